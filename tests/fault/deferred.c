/* Deliveries that are completed later: by another thread, on a link that is
 * gone, after the client has stopped. */

#include "stage.h"
#include "support.h"

#include <check.h>
#include <proton/disposition.h>
#include <string.h>

enum { WAIT_MS = 10000, MANY = 200 };

static stage_t stage;

static void prepare(int host)
{
    stage_prepare(&stage, host, NULL);
    handler_plan(stage.handler, NULL, IDEM_DEFER, 0);
}

static idem_delivery_t *take(void)
{
    idem_delivery_t *delivery = handler_take(stage.handler, WAIT_MS);

    ck_assert_ptr_nonnull(delivery);
    return delivery;
}

static void complete(idem_delivery_t *delivery, idem_outcome_t outcome)
{
    ck_assert_int_eq(idem_delivery_complete(delivery, outcome), IDEM_OK);
}

/* Each outcome, in another order than they came. */
START_TEST(outcomes_come_from_another_thread_in_any_order)
{
    const uint64_t states[] = {PN_ACCEPTED, PN_RELEASED, PN_MODIFIED,
                               PN_REJECTED};
    const idem_outcome_t outcomes[] = {IDEM_ACCEPT, IDEM_RELEASE, IDEM_RETRY,
                                       IDEM_REJECT};
    static const char *const ids[] = {"a", "r", "f", "x"};
    idem_delivery_t *deliveries[4];
    peer_event_t event;

    prepare(_i);
    stage_open(&stage);
    for (int i = 0; i < 4; i++) {
        stage_send(&stage, ids[i]);
        deliveries[i] = take();
    }
    /* They occupy the window, but no worker. */
    ck_assert_int_eq(peer_stats(stage.peer).unsettled, 4);
    ck_assert_int_eq(peer_count(stage.peer, PEER_DISPOSITION), 0);
    ck_assert_int_eq(idem_delivery_complete(deliveries[0], IDEM_DEFER),
                     IDEM_ERR_ARG);
    ck_assert_int_eq(idem_delivery_complete(deliveries[0], (idem_outcome_t)99),
                     IDEM_ERR_ARG);
    ck_assert_int_eq(idem_delivery_complete(NULL, IDEM_ACCEPT), IDEM_ERR_ARG);
    (void)idem_delivery_reject(deliveries[3], "test:late", "later");
    for (int i = 3; i >= 0; i--) {
        complete(deliveries[i], outcomes[i]);
    }
    ck_assert(peer_wait_dispositions(stage.peer, 4, WAIT_MS));
    for (int i = 0; i < 4; i++) {
        ck_assert(peer_outcome(stage.peer, i, &event));
        ck_assert_uint_eq(event.disposition.state, states[i]);
        ck_assert_int_eq(event.disposition.failed, i == 2);
    }
    ck_assert_str_eq(event.disposition.condition, "test:late");
    ck_assert_str_eq(stage_row(&stage, "a"), "CONFIRMED||0");
    ck_assert_str_eq(stage_row(&stage, "r"), "CLAIMED||0");
    ck_assert_str_eq(stage_row(&stage, "f"), "CLAIMED||1");
    ck_assert_uint_eq(stage_statistics(&stage).deferred, 4);
    stage_close(&stage);
}
END_TEST

/* The claim lives as long as the program takes its time. */
START_TEST(claim_is_renewed_while_a_delivery_is_deferred)
{
    idem_delivery_t *delivery = NULL;
    idem_claim_t claim = {0};
    int64_t end_ms;

    prepare(_i);
    stage.rig.options.lease_ms = 1000;
    stage_open(&stage);
    stage_send(&stage, "m");
    delivery = take();
    end_ms = test_now_ms() + 3500;
    while (test_now_ms() < end_ms) {
        ck_assert_int_eq(
            idem_store_claim(stage.rig.store, "m", &claim, WAIT_MS, NULL),
            IDEM_OK);
        ck_assert_int_eq(claim.state, IDEM_CLAIM_IN_PROGRESS);
    }
    ck_assert(!idem_delivery_is_lease_lost(delivery));
    complete(delivery, IDEM_ACCEPT);
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    stage_close(&stage);
}
END_TEST

START_TEST(outcome_after_the_link_is_lost_is_confirmed)
{
    idem_delivery_t *delivery = NULL;
    int window;

    prepare(_i);
    window = (int)stage.options.prefetch;
    stage_open(&stage);
    stage_send(&stage, "m");
    delivery = take();
    peer_cut(stage.peer, true);
    ck_assert(peer_wait(stage.peer, PEER_ATTACH, 2, WAIT_MS));
    ck_assert(peer_wait_unsettled(stage.peer, 1, WAIT_MS));
    ck_assert(peer_wait_credit(stage.peer, window - 1, WAIT_MS));
    complete(delivery, IDEM_ACCEPT);
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    ck_assert_str_eq(stage_row(&stage, "m"), "CONFIRMED||0");
    ck_assert_uint_eq(handler_runs(stage.handler, "m"), 1);
    ck_assert_int_eq(peer_count(stage.peer, PEER_DISPOSITION), 1);
    stage_close(&stage);
}
END_TEST

static void *complete_all(void *user)
{
    handler_t *handler = user;

    for (int i = 0; i < MANY; i++) {
        idem_delivery_t *delivery = handler_take(handler, WAIT_MS);

        if (delivery != NULL) {
            (void)idem_delivery_complete(delivery, IDEM_ACCEPT);
        }
    }
    return NULL;
}

/* Completion races with the handler's return and with lost links. */
START_TEST(outcomes_race_with_returns_and_reconnects)
{
    static char ids[MANY][8];
    pthread_t thread;

    prepare(_i);
    stage.options.concurrency = 4;
    stage_open(&stage);
    ck_assert(test_thread_start(&thread, complete_all, stage.handler));
    for (int i = 0; i < MANY; i++) {
        snprintf(ids[i], sizeof ids[i], "m%d", i);
        stage_send(&stage, ids[i]);
        if (i % 50 == 49) {
            ck_assert(peer_wait_accepted(stage.peer, i / 2, WAIT_MS));
            peer_cut(stage.peer, i % 100 == 99);
        }
    }
    ck_assert(stage_wait_idle(&stage, WAIT_MS));
    ck_assert_int_eq(store_rig_int(&stage.rig,
                                   "SELECT count(*) FROM %s WHERE state = "
                                   "'CONFIRMED'"),
                     MANY);
    ck_assert_uint_eq(handler_counts(stage.handler).keys, MANY);
    ck_assert_uint_eq(handler_counts(stage.handler).repeated, 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    stage_close(&stage);
}
END_TEST

/* A stop waits for it, up to its limit; then the claim runs out. */
START_TEST(outcome_after_the_client_stopped_is_dropped)
{
    idem_delivery_t *delivery = NULL;
    idem_claim_t claim = {0};
    idem_error_t err = {0};

    prepare(_i);
    stage.rig.options.lease_ms = 1000;
    runner_options(stage.runner)->stop_timeout_ms = 200;
    stage_open(&stage);
    stage_send(&stage, "m");
    delivery = take();
    ck_assert_int_eq(runner_join(stage.runner, &err), IDEM_ERR_TIMEOUT);
    ck_assert_str_eq(idem_delivery_key(delivery), "m");
    complete(delivery, IDEM_ACCEPT);
    ck_assert_int_eq(peer_stats(stage.peer).accepted, 0);
    ck_assert_int_eq(peer_stats(stage.peer).without_state, 0);
    /* The next owner has it within a lease. */
    while (claim.state != IDEM_CLAIM_NEW && claim.state != IDEM_CLAIM_DONE) {
        ck_assert_int_eq(
            idem_store_claim(stage.rig.store, "m", &claim, WAIT_MS, NULL),
            IDEM_OK);
    }
    stage_close_anyhow(&stage);
}
END_TEST

START_TEST(outcome_after_the_client_is_destroyed_is_dropped)
{
    idem_delivery_t *deliveries[2];
    handler_t *handler;

    prepare(_i);
    runner_options(stage.runner)->stop_timeout_ms = 100;
    stage_open(&stage);
    stage_send(&stage, "m");
    stage_send(&stage, "n");
    deliveries[0] = take();
    deliveries[1] = take();
    handler = stage.handler;
    stage.handler = NULL;
    ck_assert_int_eq(runner_join(stage.runner, NULL), IDEM_ERR_TIMEOUT);
    runner_destroy(stage.runner);
    stage.runner = NULL;
    ck_assert_int_eq(peer_stats(stage.peer).accepted, 0);
    ck_assert_int_eq(peer_stats(stage.peer).without_state, 0);
    peer_destroy(stage.peer);
    store_rig_finish(&stage.rig);
    PQfinish(stage.watch);
    ck_assert_str_eq(idem_delivery_key(deliveries[0]), "m");
    complete(deliveries[0], IDEM_ACCEPT);
    complete(deliveries[1], IDEM_RETRY);
    handler_destroy(handler);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("deferred");
    TCase *tests = tcase_create("both hosts");
    const TTest *const all[] = {
        outcomes_come_from_another_thread_in_any_order,
        claim_is_renewed_while_a_delivery_is_deferred,
        outcome_after_the_link_is_lost_is_confirmed,
        outcomes_race_with_returns_and_reconnects,
        outcome_after_the_client_stopped_is_dropped,
        outcome_after_the_client_is_destroyed_is_dropped,
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tcase_add_loop_test(tests, all[i], 0, RUNNER_HOSTS);
    }
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
