/* A resolver that does not answer for a while, while handlers run; names of
 * several addresses, and of none. */

#include "gate.h"
#include "stage.h"
#include "support.h"

#include <check.h>
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

enum { WAIT_MS = 20000 };

static stage_t stage;
static gate_t gate;
static char url[64];

/* In the place of the C library's, for Proton too. Nobody listens at the first
 * address of two.test. */
__attribute__((visibility("default"))) int getaddrinfo(
    const char *name, const char *service, const struct addrinfo *hints,
    struct addrinfo **results)
{
    int (*real)(const char *, const char *, const struct addrinfo *,
                struct addrinfo **) = NULL;

    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (name != NULL && strcmp(name, "slow.test") == 0) {
        gate_pass(&gate);
        name = "127.0.0.1";
    }
    if (name != NULL && strcmp(name, "two.test") == 0) {
        struct addrinfo *end = NULL;
        int error = real("127.0.0.2", service, hints, results);
        for (end = *results; error == 0 && end->ai_next != NULL;) {
            end = end->ai_next;
        }
        return error == 0 ? real("127.0.0.1", service, hints, &end->ai_next)
                          : error;
    }
    return real(name, service, hints, results);
}

static void prepare_name(int host, const char *name)
{
    gate_init(&gate);
    stage_prepare(&stage, host, NULL);
    snprintf(url, sizeof url, "amqp://%s:%d", name, peer_port(stage.peer));
    runner_options(stage.runner)->url = url;
}

static void prepare(void)
{
    prepare_name(RUNNER_PROACTOR, "slow.test");
}

START_TEST(running_handler_keeps_its_claim_while_a_name_is_looked_up)
{
    idem_claim_t claim = {0};
    int64_t end_ms;

    prepare();
    stage.rig.options.lease_ms = 1000;
    gate_open(&gate);
    stage_open(&stage);
    handler_hold(stage.handler, true);
    stage_send(&stage, "m");
    ck_assert(handler_wait_begun(stage.handler, 1, WAIT_MS));
    gate_init(&gate);
    peer_cut(stage.peer, false);
    ck_assert(gate_wait_arrived(&gate, 1, WAIT_MS));
    end_ms = test_now_ms() + 3500;
    while (test_now_ms() < end_ms) {
        ck_assert_int_eq(
            idem_store_claim(stage.rig.store, "m", &claim, WAIT_MS, NULL),
            IDEM_OK);
        ck_assert_int_eq(claim.state, IDEM_CLAIM_IN_PROGRESS);
    }
    handler_hold(stage.handler, false);
    ck_assert(stage_wait_row(&stage, "m", "CONFIRMED||0", WAIT_MS));
    gate_open(&gate);
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    ck_assert_uint_eq(handler_counts(stage.handler).begun, 1);
    ck_assert_uint_eq(handler_counts(stage.handler).lost, 0);
    stage_close(&stage);
}
END_TEST

START_TEST(limit_for_connecting_holds_during_a_lookup)
{
    prepare();
    runner_options(stage.runner)->connect_timeout_ms = 300;
    stage_start(&stage);
    ck_assert(gate_wait_arrived(&gate, 1, WAIT_MS));
    /* Nothing of it is dropped before the resolver has answered. */
    ck_assert(
        !runner_wait_event(stage.runner, IDEM_EVENT_DISCONNECTED, 1, 600));
    gate_open(&gate);
    ck_assert(
        runner_wait_event(stage.runner, IDEM_EVENT_DISCONNECTED, 1, WAIT_MS));
    ck_assert_uint_ge(runner_logged(stage.runner, "connect_timeout_ms"), 1);
    ck_assert(runner_wait_event(stage.runner, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    stage_close(&stage);
}
END_TEST

START_TEST(stop_during_a_lookup_ends_with_it)
{
    prepare();
    stage_start(&stage);
    ck_assert(gate_wait_arrived(&gate, 1, WAIT_MS));
    runner_stop(stage.runner);
    gate_open(&gate);
    ck_assert_int_eq(runner_wait(stage.runner, WAIT_MS, NULL), IDEM_OK);
    stage_close_anyhow(&stage);
}
END_TEST

START_TEST(every_address_of_a_name_has_its_turn)
{
    prepare_name(_i, "two.test");
    stage_start(&stage);
    ck_assert(runner_wait_event(stage.runner, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    stage_close(&stage);
}
END_TEST

START_TEST(name_that_nobody_knows_is_told)
{
    idem_error_t err;

    prepare_name(_i, "none.invalid");
    runner_options(stage.runner)->reconnect_tries = 2;
    stage_start(&stage);
    ck_assert_int_eq(runner_wait(stage.runner, WAIT_MS, &err),
                     IDEM_ERR_CONNECTION);
    ck_assert_msg(strstr(err.message, "none.invalid") != NULL, "%s",
                  err.message);
    ck_assert_msg(strstr(err.message, gai_strerror(EAI_NONAME)) != NULL ||
                      strstr(err.message, gai_strerror(EAI_AGAIN)) != NULL,
                  "%s", err.message);
    stage_close_anyhow(&stage);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lookup");
    TCase *tests = tcase_create("lookup");

    tcase_add_test(tests,
                   running_handler_keeps_its_claim_while_a_name_is_looked_up);
    tcase_add_test(tests, limit_for_connecting_holds_during_a_lookup);
    tcase_add_test(tests, stop_during_a_lookup_ends_with_it);
    tcase_add_loop_test(tests, every_address_of_a_name_has_its_turn, 0,
                        RUNNER_HOSTS);
    tcase_add_loop_test(tests, name_that_nobody_knows_is_told, 0, RUNNER_HOSTS);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
