/* What a client does when it goes while something of it still runs. */

#include "compose.h"
#include "handler.h"
#include "peer.h"
#include "runner.h"
#include "support.h"

#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { STEP_MS = 10000 };

static peer_t *peer;
static handler_t *handler;
static runner_t *runner;
static idem_consumer_options_t options;

static void setup(void)
{
    peer = peer_create(NULL);
    ck_assert_ptr_nonnull(peer);
    handler = handler_create();
    idem_consumer_options_init(&options);
    options.address = "orders";
    options.handler = handler_run;
    options.user = handler;
}

static void teardown(void)
{
    runner_destroy(runner);
    peer_destroy(peer);
    handler_destroy(handler);
}

static void start(int host, int64_t stop_timeout_ms)
{
    runner = runner_create((runner_host_t)host, peer_url(peer));
    runner_options(runner)->stop_timeout_ms = stop_timeout_ms;
    (void)runner_consumer(runner, &options);
    runner_start(runner);
}

static void send_one(void)
{
    const compose_message_t message = {
        .id = {.type = COMPOSE_STRING, .bytes = "m"}};
    size_t size = 0;
    void *bytes = compose_message(&message, &size);

    (void)peer_send_bytes(peer, bytes, size);
    free(bytes);
}

/* Without a store no renewal wakes whoever waits. */
START_TEST(destroy_waits_for_handlers_but_not_for_what_they_defer)
{
    idem_delivery_t *delivery = NULL;

    handler_plan(handler, NULL, IDEM_DEFER, 0);
    handler_set_duration(handler, 300);
    start(_i, 10);
    send_one();
    ck_assert(handler_wait_begun(handler, 1, STEP_MS));
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_ERR_TIMEOUT);
    runner_destroy(runner);
    runner = NULL;
    ck_assert_uint_eq(handler_counts(handler).ended, 1);
    delivery = handler_take(handler, STEP_MS);
    ck_assert_ptr_nonnull(delivery);
    ck_assert_int_eq(idem_delivery_complete(delivery, IDEM_ACCEPT), IDEM_OK);
}
END_TEST

static void destroy_client(idem_delivery_t *delivery, void *user)
{
    (void)delivery;
    (void)user;
    idem_client_destroy(runner_client(runner));
}

START_TEST(handler_on_the_io_thread_cannot_destroy_its_client)
{
    options.concurrency = 0;
    handler_set_hook(handler, destroy_client, NULL);
    start(_i, 5000);
    send_one();
    ck_assert(peer_wait_accepted(peer, 1, STEP_MS));
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    ck_assert_uint_eq(runner_logged(runner, "idem_client_destroy()"), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("teardown");
    TCase *tests = tcase_create("both hosts");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests,
                        destroy_waits_for_handlers_but_not_for_what_they_defer,
                        0, RUNNER_HOSTS);
    tcase_add_loop_test(tests,
                        handler_on_the_io_thread_cannot_destroy_its_client, 0,
                        RUNNER_HOSTS);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
