/* Links, sessions and connections end while a handler runs: its work is
 * confirmed, nothing is settled that another link delivered, and the
 * redelivery is accepted without a second run. */

#include "stage.h"
#include "support.h"

#include <check.h>
#include <proton/disposition.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 10000, ROUNDS = 5 };

static stage_t stage;

/* How a link can end. */

static void detach_with_error(peer_t *peer)
{
    peer_detach(peer, NULL, "amqp:resource-deleted", "gone");
}

static void detach_without_close(peer_t *peer)
{
    peer_detach_only(peer, NULL);
}

static void end_session(peer_t *peer)
{
    peer_end_session(peer, NULL, "amqp:internal-error", "no session");
}

static void close_connection(peer_t *peer)
{
    peer_close_connection(peer, "amqp:connection:forced", NULL);
}

static void end_tcp(peer_t *peer)
{
    peer_cut(peer, false);
}

static void reset_tcp(peer_t *peer)
{
    peer_cut(peer, true);
}

static void (*const breaks[])(peer_t *peer) = {
    detach_with_error, detach_without_close,
    end_session,       close_connection,
    end_tcp,           reset_tcp,
};

enum {
    BREAKS = sizeof breaks / sizeof *breaks,
    CASES = (int)BREAKS * (int)RUNNER_HOSTS
};

static void (*prepare(int n, const peer_options_t *options))(peer_t *peer)
{
    stage_prepare(&stage, n % RUNNER_HOSTS, options);
    return breaks[n / RUNNER_HOSTS];
}

static void count_late(const peer_event_t *event, int *late)
{
    *late += event->disposition.late;
}

static int late_dispositions(void)
{
    peer_event_t event;
    int late = 0;

    for (int n = 0; peer_event(stage.peer, PEER_DISPOSITION, n, &event); n++) {
        count_late(&event, &late);
    }
    return late;
}

/* B11: the redelivery comes at once, while the first still runs. */
START_TEST(redelivery_during_the_run_is_accepted_behind_it)
{
    void (*break_link)(peer_t * peer) = prepare(_i, NULL);
    peer_event_t event;
    int message;

    stage_open(&stage);
    handler_hold(stage.handler, true);
    message = stage_send(&stage, "m");
    ck_assert(handler_wait_begun(stage.handler, 1, WAIT_MS));
    break_link(stage.peer);
    ck_assert(peer_wait(stage.peer, PEER_ATTACH, 2, WAIT_MS));
    /* Delivered by the new link, and held. */
    ck_assert(peer_wait_unsettled(stage.peer, 1, WAIT_MS));
    ck_assert_str_eq(stage_row(&stage, "m"), "CLAIMED|owner|0");
    ck_assert_int_eq(peer_count(stage.peer, PEER_DISPOSITION), 0);
    handler_hold(stage.handler, false);
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    ck_assert(peer_outcome(stage.peer, message, &event));
    ck_assert_int_eq(event.disposition.attempt, 2);
    ck_assert(stage_wait_idle(&stage, WAIT_MS));
    ck_assert_int_eq(peer_count(stage.peer, PEER_DISPOSITION), 1);
    ck_assert_int_eq(late_dispositions(), 0);
    ck_assert_uint_eq(handler_runs(stage.handler, "m"), 1);
    ck_assert_uint_eq(stage_statistics(&stage).stale, 1);
    ck_assert_uint_eq(stage_statistics(&stage).duplicates, 1);
    ck_assert_str_eq(stage_row(&stage, "m"), "CONFIRMED||0");
    stage_close(&stage);
}
END_TEST

/* B15: it comes when the work is long confirmed. */
START_TEST(redelivery_after_the_run_is_accepted_without_another)
{
    peer_options_t options = {.forget_lost = true};
    void (*break_link)(peer_t * peer) = prepare(_i, &options);
    peer_event_t event;
    int message;

    stage_open(&stage);
    handler_hold(stage.handler, true);
    message = stage_send(&stage, "m");
    ck_assert(handler_wait_begun(stage.handler, 1, WAIT_MS));
    break_link(stage.peer);
    ck_assert(
        peer_wait_credit(stage.peer, (int)stage.options.prefetch, WAIT_MS));
    handler_hold(stage.handler, false);
    ck_assert(stage_wait_row(&stage, "m", "CONFIRMED||0", WAIT_MS));
    message = stage_send_again(&stage, message);
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    ck_assert(peer_outcome(stage.peer, message, &event));
    ck_assert_uint_eq(event.disposition.state, PN_ACCEPTED);
    ck_assert(stage_wait_idle(&stage, WAIT_MS));
    ck_assert_int_eq(peer_count(stage.peer, PEER_DISPOSITION), 1);
    ck_assert_int_eq(late_dispositions(), 0);
    ck_assert_uint_eq(handler_runs(stage.handler, "m"), 1);
    stage_close(&stage);
}
END_TEST

/* What failed on a link that is gone is free for the redelivery, which runs.
 * Its failure counts in the store. */
START_TEST(failure_after_the_link_is_lost_gives_the_claim_up)
{
    void (*break_link)(peer_t * peer) = prepare(_i, NULL);

    handler_plan(stage.handler, "m", IDEM_RETRY, 1);
    stage_open(&stage);
    handler_hold(stage.handler, true);
    stage_send(&stage, "m");
    ck_assert(handler_wait_begun(stage.handler, 1, WAIT_MS));
    break_link(stage.peer);
    ck_assert(peer_wait(stage.peer, PEER_ATTACH, 2, WAIT_MS));
    handler_hold(stage.handler, false);
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    ck_assert_uint_eq(handler_runs(stage.handler, "m"), 2);
    ck_assert_uint_eq(handler_attempts(stage.handler, "m"), 1);
    ck_assert_int_eq(peer_count(stage.peer, PEER_DISPOSITION), 1);
    ck_assert_int_eq(late_dispositions(), 0);
    stage_close(&stage);
}
END_TEST

/* What has not started by then is not run on the old link's account: the claim
 * is given up, or taken along by the redelivery. */
START_TEST(deliveries_that_wait_go_with_their_link)
{
    void (*break_link)(peer_t * peer) = prepare(_i, NULL);
    char ids[8][8];

    stage_open(&stage);
    handler_hold(stage.handler, true);
    for (int i = 0; i < 8; i++) {
        snprintf(ids[i], sizeof ids[i], "m%d", i);
        stage_send(&stage, ids[i]);
    }
    ck_assert(handler_wait_begun(stage.handler, 1, WAIT_MS));
    for (int i = 0; i < 8; i++) {
        ck_assert(stage_wait_row(&stage, ids[i], "CLAIMED|owner|0", WAIT_MS));
    }
    break_link(stage.peer);
    ck_assert(peer_wait(stage.peer, PEER_ATTACH, 2, WAIT_MS));
    handler_hold(stage.handler, false);
    ck_assert(peer_wait_accepted(stage.peer, 8, WAIT_MS));
    ck_assert(stage_wait_idle(&stage, WAIT_MS));
    ck_assert_uint_eq(handler_counts(stage.handler).begun, 8);
    ck_assert_uint_eq(handler_counts(stage.handler).repeated, 0);
    ck_assert_int_eq(peer_count(stage.peer, PEER_DISPOSITION), 8);
    ck_assert_int_eq(late_dispositions(), 0);
    stage_close(&stage);
}
END_TEST

/* B31: after each attach the whole window is granted again. */
START_TEST(window_is_whole_after_each_attach)
{
    void (*break_link)(peer_t * peer) = prepare(_i, NULL);
    int window = (int)stage.options.prefetch;
    char ids[ROUNDS][8];

    stage_open(&stage);
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(ids[i], sizeof ids[i], "m%d", i);
        stage_send(&stage, ids[i]);
        ck_assert(peer_wait_accepted(stage.peer, i + 1, WAIT_MS));
        break_link(stage.peer);
        ck_assert(peer_wait(stage.peer, PEER_ATTACH, i + 2, WAIT_MS));
        ck_assert(peer_wait_credit(stage.peer, window, WAIT_MS));
        ck_assert_int_eq(peer_stats(stage.peer).live_links, 1);
    }
    ck_assert_uint_eq(stage_statistics(&stage).attached, ROUNDS + 1);
    ck_assert_uint_eq(handler_counts(stage.handler).begun, ROUNDS);
    stage_close(&stage);
}
END_TEST

/* B25, B34: half a message does not outlive its link. */
START_TEST(half_a_message_is_forgotten_with_its_link)
{
    char body[4096] = "";
    peer_message_t half = {.bytes = body, .size = sizeof body, .hold_at = 1024};
    peer_options_t options = {.fragment_bytes = 512};
    void (*break_link)(peer_t * peer) = prepare(_i, &options);

    stage_open(&stage);
    stage_send_message(&stage, NULL, &half);
    ck_assert(peer_wait_unsettled(stage.peer, 1, WAIT_MS));
    peer_pause(stage.peer, true);
    break_link(stage.peer);
    peer_purge(stage.peer);
    stage_send(&stage, "whole");
    peer_pause(stage.peer, false);
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    ck_assert_uint_eq(handler_runs(stage.handler, "whole"), 1);
    ck_assert_uint_eq(stage_statistics(&stage).received, 1);
    stage_close(&stage);
}
END_TEST

/* B15: the accept is on its way, or at the broker, when the connection dies,
 * and the broker did not note it. */
START_TEST(accept_that_was_lost_is_said_again_without_a_run)
{
    int message;

    stage_prepare(&stage, _i, NULL);
    stage_open(&stage);
    message = stage_send(&stage, "m");
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    peer_cut(stage.peer, true);
    message = stage_send_again(&stage, message);
    ck_assert(peer_wait_accepted(stage.peer, 2, WAIT_MS));
    ck_assert_uint_eq(handler_runs(stage.handler, "m"), 1);
    ck_assert_uint_eq(stage_statistics(&stage).duplicates, 1);
    stage_close(&stage);
}
END_TEST

/* B14: the broker decides before us. The work is confirmed all the same. */
START_TEST(delivery_that_the_broker_settled_first_is_confirmed)
{
    int message;

    stage_prepare(&stage, _i, NULL);
    stage_open(&stage);
    handler_hold(stage.handler, true);
    message = stage_send(&stage, "m");
    ck_assert(handler_wait_begun(stage.handler, 1, WAIT_MS));
    ck_assert(peer_settle(stage.peer, message, PN_REJECTED, "test:lock-lost"));
    ck_assert(runner_wait_logged(stage.runner, "test:lock-lost", 1, WAIT_MS));
    handler_hold(stage.handler, false);
    ck_assert(stage_wait_row(&stage, "m", "CONFIRMED||0", WAIT_MS));
    stage_send(&stage, "next");
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    ck_assert_int_eq(peer_count(stage.peer, PEER_ATTACH), 1);
    ck_assert(stage_wait_idle(&stage, WAIT_MS));
    stage_close(&stage);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("link breaks");
    TCase *tests = tcase_create("each break, both hosts");
    TCase *others = tcase_create("both hosts");

    tcase_add_loop_test(tests, redelivery_during_the_run_is_accepted_behind_it,
                        0, CASES);
    tcase_add_loop_test(
        tests, redelivery_after_the_run_is_accepted_without_another, 0, CASES);
    tcase_add_loop_test(
        tests, failure_after_the_link_is_lost_gives_the_claim_up, 0, CASES);
    tcase_add_loop_test(tests, deliveries_that_wait_go_with_their_link, 0,
                        CASES);
    tcase_add_loop_test(tests, window_is_whole_after_each_attach, 0, CASES);
    tcase_add_loop_test(tests, half_a_message_is_forgotten_with_its_link, 0,
                        CASES);
    suite_add_tcase(suite, tests);
    tcase_add_loop_test(others,
                        accept_that_was_lost_is_said_again_without_a_run, 0,
                        RUNNER_HOSTS);
    tcase_add_loop_test(others,
                        delivery_that_the_broker_settled_first_is_confirmed, 0,
                        RUNNER_HOSTS);
    suite_add_tcase(suite, others);
    return test_run(suite);
}
