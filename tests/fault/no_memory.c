/* Messages that there is no memory for: none is lost, and none comes again and
 * again without a pause. */

#include "compose.h"
#include "handler.h"
#include "peer.h"
#include "runner.h"
#include "support.h"

#include <idem/delivery.h>

#include <check.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum { WAIT_MS = 20000, PAUSED_MS = 2500, BODY_BYTES = 400000 };

/* Made a part of this program by -Wl,--wrap. */
bool __real_idemi_delivery_reserve(idem_delivery_t *delivery, size_t more);
bool __wrap_idemi_delivery_reserve(idem_delivery_t *delivery, size_t more);

static atomic_bool is_short;

/* What a message grows in while its frames come. */
bool __wrap_idemi_delivery_reserve(idem_delivery_t *delivery, size_t more)
{
    return !atomic_load(&is_short) &&
           __real_idemi_delivery_reserve(delivery, more);
}

static peer_t *peer;
static handler_t *handler;
static runner_t *runner;

static void setup(void)
{
    const peer_options_t peer_options = {.redeliver = true};
    idem_consumer_options_t options;

    peer = peer_create(&peer_options);
    ck_assert_ptr_nonnull(peer);
    handler = handler_create();
    idem_consumer_options_init(&options);
    options.address = "orders";
    options.handler = handler_run;
    options.user = handler;
    options.prefetch = 2;
    runner = runner_create(RUNNER_PROACTOR, peer_url(peer));
    (void)runner_consumer(runner, &options);
}

static void teardown(void)
{
    runner_destroy(runner);
    peer_destroy(peer);
    handler_destroy(handler);
}

static void send_bytes(size_t size)
{
    char *body = calloc(1, size);
    const compose_message_t message = {.body = body, .body_bytes = size};
    size_t bytes_size = 0;
    char *bytes = compose_message(&message, &bytes_size);

    (void)peer_send_bytes(peer, bytes, bytes_size);
    free(bytes);
    free(body);
}

static void start_short_of_memory(int messages)
{
    for (int i = 0; i < messages; i++) {
        send_bytes(BODY_BYTES);
    }
    atomic_store(&is_short, true);
    runner_start(runner);
}

/* Two in the window, each released once a second: more than those. */
static bool has_many_transfers(const peer_stats_t *stats, void *user)
{
    (void)user;
    return stats->transfers > 7 + 2 * test_scaled_ms(PAUSED_MS) / 1000;
}

static bool has_one_released(const peer_stats_t *stats, void *user)
{
    (void)user;
    return stats->released >= 1;
}

START_TEST(message_without_memory_comes_again_with_pauses)
{
    peer_stats_t stats;

    start_short_of_memory(2);
    ck_assert(peer_wait_until(peer, has_one_released, NULL, WAIT_MS));
    ck_assert(!peer_wait_until(peer, has_many_transfers, NULL, PAUSED_MS));
    ck_assert_uint_eq(handler_counts(handler).begun, 0);
    stats = peer_stats(peer);
    ck_assert_int_le(stats.max_outstanding, 2);
    atomic_store(&is_short, false);
    ck_assert(peer_wait_accepted(peer, 2, WAIT_MS));
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    stats = peer_stats(peer);
    ck_assert_int_eq(stats.without_state, 0);
    ck_assert_int_eq(stats.modified + stats.rejected, 0);
    ck_assert_int_le(stats.max_outstanding, 2);
}
END_TEST

START_TEST(stop_releases_what_there_was_no_memory_for)
{
    start_short_of_memory(1);
    ck_assert(runner_wait_logged(runner, "Out of memory", 1, WAIT_MS));
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    ck_assert_int_ge(peer_stats(peer).released, 1);
    ck_assert_int_eq(peer_stats(peer).without_state, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("no memory");
    TCase *tests = tcase_create("proactor");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, message_without_memory_comes_again_with_pauses);
    tcase_add_test(tests, stop_releases_what_there_was_no_memory_for);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
