/* The window, hot loops, and what a stop does to what is in hand. */

#include "compose.h"
#include "stage.h"
#include "support.h"

#include <check.h>
#include <proton/disposition.h>
#include <string.h>
#include <time.h>

enum { WAIT_MS = 10000, MANY = 3000 };

static stage_t stage;

static double cpu_seconds(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

static char *numbered(size_t n)
{
    static char ids[MANY][8];

    snprintf(ids[n], sizeof ids[n], "m%zu", n);
    return ids[n];
}

/* B18, B19: all outcomes, four workers, links that come and go. */
START_TEST(window_holds_and_is_whole_at_the_end)
{
    peer_options_t options = {.redeliver = true};

    stage_prepare(&stage, _i, &options);
    stage.options.concurrency = 4;
    stage.options.prefetch = 7;
    handler_plan(stage.handler, NULL, IDEM_ACCEPT, 10);
    handler_plan(stage.handler, NULL, IDEM_RETRY, 10);
    handler_plan(stage.handler, NULL, IDEM_RELEASE, 10);
    handler_plan(stage.handler, NULL, IDEM_REJECT, 10);
    handler_plan(stage.handler, NULL, IDEM_ACCEPT, 500);
    handler_plan(stage.handler, NULL, IDEM_RETRY, 20);
    stage_open(&stage);
    for (size_t i = 0; i < MANY; i++) {
        stage_send(&stage, numbered(i));
        if (i % 1000 == 500) {
            ck_assert(peer_wait_dispositions(stage.peer, (int)i / 2, 20000));
            peer_cut(stage.peer, i > 1500);
        } else if (i % 1000 == 999) {
            ck_assert(peer_wait_dispositions(stage.peer, (int)i / 2, 20000));
            peer_detach(stage.peer, NULL, NULL, NULL);
        }
    }
    ck_assert(stage_wait_idle(&stage, 20000));
    ck_assert_int_le(peer_stats(stage.peer).max_outstanding, 7);
    ck_assert_int_eq(store_rig_int(&stage.rig,
                                   "SELECT count(*) FROM %s WHERE state = "
                                   "'CONFIRMED'"),
                     MANY - 10);
    ck_assert_int_eq(store_rig_int(&stage.rig, "SELECT count(*) FROM %s WHERE "
                                               "claimed_by IS NOT NULL"),
                     0);
    ck_assert_uint_eq(stage_statistics(&stage).unsettled, 0);
    stage_close(&stage);
}
END_TEST

/* B18: what is not settled is not replaced. */
START_TEST(blocked_handlers_hold_one_window)
{
    stage_prepare(&stage, _i, NULL);
    stage_open(&stage);
    handler_hold(stage.handler, true);
    for (size_t i = 0; i < 100; i++) {
        stage_send(&stage, numbered(i));
    }
    ck_assert(peer_wait_unsettled(stage.peer, 10, WAIT_MS));
    ck_assert(stage_wait_row(&stage, "m9", "CLAIMED|owner|0", WAIT_MS));
    ck_assert_int_eq(peer_stats(stage.peer).transfers, 10);
    handler_hold(stage.handler, false);
    ck_assert(peer_wait_accepted(stage.peer, 100, WAIT_MS));
    stage_close(&stage);
}
END_TEST

/* B06: a peer that redelivers at once, and a handler that always fails. */
static void expect_cool(idem_outcome_t outcome, int host)
{
    peer_options_t options = {.redeliver = true};
    handler_counts_t counts;
    double used_s;
    int64_t end_ms;

    stage_prepare(&stage, host, &options);
    stage.options.retry_min_ms = 200;
    stage.options.retry_max_ms = 10000;
    stage.options.max_attempts = 0;
    handler_plan(stage.handler, NULL, outcome, 0);
    stage_open(&stage);
    used_s = cpu_seconds();
    end_ms = test_now_ms() + 2000;
    stage_send(&stage, "m");
    while (test_now_ms() < end_ms) {
        (void)peer_wait_dispositions(stage.peer, 1000, 100);
    }
    used_s = cpu_seconds() - used_s;
    counts = handler_counts(stage.handler);
    ck_assert_uint_ge(counts.begun, 2);
    ck_assert_uint_le(counts.begun, 10);
    ck_assert_msg(used_s < 0.5, "%.2f s of processor time", used_s);
    stage_close(&stage);
}

START_TEST(handler_that_always_fails_is_no_hot_loop)
{
    expect_cool(IDEM_RETRY, _i);
}
END_TEST

START_TEST(handler_that_always_releases_is_no_hot_loop)
{
    expect_cool(IDEM_RELEASE, _i);
}
END_TEST

/* Promise 6: neither is a key that somebody else holds for long. */
START_TEST(foreign_claims_are_no_hot_loop)
{
    peer_options_t options = {.redeliver = true};
    double used_s;
    int64_t end_ms;

    stage_prepare(&stage, _i, &options);
    stage_open(&stage);
    store_rig_exec(&stage.rig,
                   "INSERT INTO %s (message_id, state, claimed_by, "
                   "recorded_at, expires_at) SELECT 'm' || n, 'CLAIMED', "
                   "'they', now(), now() + interval '1 hour' FROM "
                   "generate_series(0, 9) AS n");
    used_s = cpu_seconds();
    for (size_t i = 0; i < 10; i++) {
        stage_send(&stage, numbered(i));
    }
    end_ms = test_now_ms() + 2000;
    while (test_now_ms() < end_ms) {
        (void)peer_wait_dispositions(stage.peer, 1, 100);
    }
    used_s = cpu_seconds() - used_s;
    ck_assert_int_eq(peer_stats(stage.peer).transfers, 10);
    ck_assert_int_eq(peer_stats(stage.peer).dispositions, 0);
    ck_assert_uint_le(stage_statistics(&stage).in_progress, 10 * 12);
    ck_assert_msg(used_s < 0.5, "%.2f s of processor time", used_s);
    /* Ten that wait do not keep a stop waiting. */
    stage_close(&stage);
}
END_TEST

/* B16, B17, D19: three run, seven wait. */
START_TEST(stop_ends_what_runs_and_releases_the_rest)
{
    peer_event_t event;
    peer_event_t detach, end, close;
    idem_error_t err = {0};

    stage_prepare(&stage, _i, NULL);
    stage.options.concurrency = 3;
    stage_open(&stage);
    handler_hold(stage.handler, true);
    for (size_t i = 0; i < 10; i++) {
        stage_send(&stage, numbered(i));
    }
    ck_assert(handler_wait_begun(stage.handler, 3, WAIT_MS));
    ck_assert(peer_wait_unsettled(stage.peer, 10, WAIT_MS));
    runner_stop(stage.runner);
    ck_assert(peer_wait_dispositions(stage.peer, 7, WAIT_MS));
    ck_assert(!runner_has_ended(stage.runner));
    ck_assert_int_eq(peer_stats(stage.peer).released, 7);
    handler_hold(stage.handler, false);
    ck_assert_msg(runner_join(stage.runner, &err) == IDEM_OK, "%s",
                  err.message);
    ck_assert_int_eq(peer_stats(stage.peer).accepted, 3);
    ck_assert_int_eq(peer_stats(stage.peer).dispositions, 10);
    for (int i = 0; i < 10; i++) {
        ck_assert(peer_outcome(stage.peer, i, &event));
        ck_assert(!event.disposition.late);
        ck_assert_uint_eq(event.disposition.state,
                          i < 3 ? PN_ACCEPTED : PN_RELEASED);
    }
    ck_assert_int_eq(store_rig_int(&stage.rig, "SELECT count(*) FROM %s WHERE "
                                               "claimed_by IS NOT NULL"),
                     0);
    /* In order, and each waited for. */
    ck_assert(peer_wait(stage.peer, PEER_DISCONNECTED, 1, WAIT_MS));
    ck_assert(peer_event(stage.peer, PEER_DETACH, -1, &detach));
    ck_assert(peer_event(stage.peer, PEER_END, -1, &end));
    ck_assert(peer_event(stage.peer, PEER_CLOSE, -1, &close));
    ck_assert_uint_lt(detach.sequence, end.sequence);
    ck_assert_uint_lt(end.sequence, close.sequence);
    ck_assert(detach.end.closed);
    ck_assert_uint_eq(stage_statistics(&stage).given_back, 7);
    ck_assert_uint_eq(handler_counts(stage.handler).begun, 3);
    stage_close_anyhow(&stage);
}
END_TEST

/* B17: its work is done, so it is confirmed, but nobody accepted it. */
START_TEST(handler_that_outlives_the_stop_is_not_accepted)
{
    idem_error_t err = {0};

    stage_prepare(&stage, _i, NULL);
    runner_options(stage.runner)->stop_timeout_ms = test_scaled_ms(1000);
    stage_open(&stage);
    handler_hold(stage.handler, true);
    for (size_t i = 0; i < 10; i++) {
        stage_send(&stage, numbered(i));
    }
    ck_assert(handler_wait_begun(stage.handler, 1, WAIT_MS));
    ck_assert(peer_wait_unsettled(stage.peer, 10, WAIT_MS));
    ck_assert_int_eq(runner_join(stage.runner, &err), IDEM_ERR_TIMEOUT);
    ck_assert(peer_wait(stage.peer, PEER_DISCONNECTED, 1, WAIT_MS));
    ck_assert_int_eq(peer_stats(stage.peer).released, 9);
    ck_assert_int_eq(peer_stats(stage.peer).dispositions, 9);
    ck_assert_int_eq(peer_count(stage.peer, PEER_CLOSE), 1);
    handler_hold(stage.handler, false);
    runner_destroy(stage.runner);
    stage.runner = NULL;
    ck_assert_str_eq(stage_row(&stage, "m0"), "CONFIRMED||0");
    ck_assert_str_eq(stage_row(&stage, "m1"), "CLAIMED||0");
    stage_close_anyhow(&stage);
}
END_TEST

/* B22: a transfer that is on its way while the drain is answered. */
START_TEST(delivery_that_meets_the_drain_is_released)
{
    peer_options_t options = {.hold_drain = true};
    peer_event_t event;
    int message;

    stage_prepare(&stage, _i, &options);
    stage_open(&stage);
    peer_pause(stage.peer, true);
    message = stage_send(&stage, "late");
    runner_stop(stage.runner);
    ck_assert(peer_wait(stage.peer, PEER_FLOW, 2, WAIT_MS));
    ck_assert(peer_event(stage.peer, PEER_FLOW, -1, &event));
    ck_assert(event.flow.drain);
    peer_pause(stage.peer, false);
    options = peer_options(stage.peer);
    options.hold_drain = false;
    peer_configure(stage.peer, &options);
    ck_assert_int_eq(runner_join(stage.runner, NULL), IDEM_OK);
    ck_assert(peer_outcome(stage.peer, message, &event));
    ck_assert_uint_eq(event.disposition.state, PN_RELEASED);
    ck_assert_uint_eq(handler_counts(stage.handler).begun, 0);
    stage_close_anyhow(&stage);
}
END_TEST

/* A broker that is silent keeps no stop waiting for ever. */
START_TEST(stop_ends_although_the_broker_is_silent)
{
    int64_t start_ms;

    stage_prepare(&stage, _i, NULL);
    runner_options(stage.runner)->stop_timeout_ms = 1000;
    stage_open(&stage);
    peer_silence(stage.peer, true);
    start_ms = test_now_ms();
    (void)runner_join(stage.runner, NULL);
    ck_assert_int_lt(test_now_ms() - start_ms, test_scaled_ms(10000));
    peer_silence(stage.peer, false);
    stage_close_anyhow(&stage);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("flow");
    TCase *tests = tcase_create("both hosts");
    const TTest *const all[] = {
        window_holds_and_is_whole_at_the_end,
        blocked_handlers_hold_one_window,
        handler_that_always_fails_is_no_hot_loop,
        handler_that_always_releases_is_no_hot_loop,
        foreign_claims_are_no_hot_loop,
        stop_ends_what_runs_and_releases_the_rest,
        handler_that_outlives_the_stop_is_not_accepted,
        delivery_that_meets_the_drain_is_released,
        stop_ends_although_the_broker_is_silent,
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tcase_add_loop_test(tests, all[i], 0, RUNNER_HOSTS);
    }
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
