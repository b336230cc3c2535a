/* Answers of the database that do not arrive: the question is settled by
 * token, and nothing runs twice for it. */

#include "stage.h"
#include "support.h"

#include <check.h>
#include <proton/disposition.h>
#include <stdio.h>
#include <string.h>

enum { WAIT_MS = 15000, MANY = 1000, CUTS = 30 };

static stage_t stage;

static void prepare(int host)
{
    stage_prepare(&stage, host, NULL);
    stage.has_proxy = true;
    stage.rig.options.connections = 1;
    stage.rig.options.deadline_ms = 400;
}

static char *numbered(size_t n)
{
    static char ids[MANY][8];

    snprintf(ids[n], sizeof ids[n], "m%zu", n);
    return ids[n];
}

/* C21, C22: the COMMIT of a batch, whose claims travel with the confirms of
 * the batch before, is lost on its way there or back, again and again. */
START_TEST(lost_commits_under_load_leave_one_run_each)
{
    static const struct {
        proxy_side_t side;
        proxy_break_t how;
    } ways[] = {
        {PROXY_FROM_CLIENT, PROXY_CUT_BEFORE},   /* never arrives */
        {PROXY_FROM_CLIENT, PROXY_CUT_AFTER},    /* arrives, no answer */
        {PROXY_FROM_SERVER, PROXY_CUT_BEFORE},   /* is done, no answer */
        {PROXY_FROM_SERVER, PROXY_STALL_BEFORE}, /* is done, and silence */
    };
    static const char commit[] = "COMMIT"; /* with its NUL */
    int breaks = 0;

    prepare(_i);
    stage.options.prefetch = 50;
    stage_open(&stage);
    handler_set_duration(stage.handler, 1);
    for (size_t i = 0; i < MANY; i++) {
        stage_send(&stage, numbered(i));
    }
    for (; breaks < CUTS; breaks++) {
        int way = breaks % 4;

        proxy_break_on(stage.proxy, ways[way].side, commit, sizeof commit, 2,
                       ways[way].how);
        if (!proxy_wait_breaks(stage.proxy, breaks + 1, 2000)) {
            break; /* all is done */
        }
    }
    ck_assert_int_ge(breaks, 10);
    proxy_break_on(stage.proxy, PROXY_FROM_CLIENT, NULL, 0, 1,
                   PROXY_CUT_BEFORE);
    ck_assert(peer_wait_accepted(stage.peer, MANY, 20000));
    ck_assert_uint_eq(handler_counts(stage.handler).begun, MANY);
    ck_assert_uint_eq(handler_counts(stage.handler).repeated, 0);
    ck_assert_int_eq(store_rig_int(&stage.rig,
                                   "SELECT count(*) FROM %s WHERE state = "
                                   "'CONFIRMED' AND attempts = 0"),
                     MANY);
    ck_assert_int_eq(peer_stats(stage.peer).dispositions, MANY);
    ck_assert_int_eq(peer_count(stage.peer, PEER_CONNECTED), 1);
    stage_close(&stage);
}
END_TEST

/* C20: the failure counts once, although its release is said twice. */
START_TEST(lost_release_counts_one_attempt)
{
    static const char done[] = "INSERT 0 1";
    peer_event_t event;
    int side = _i / RUNNER_HOSTS;

    prepare(_i % RUNNER_HOSTS);
    handler_plan(stage.handler, NULL, IDEM_RETRY, 1);
    stage_open(&stage);
    handler_hold(stage.handler, true);
    stage_send(&stage, "failing");
    ck_assert(handler_wait_begun(stage.handler, 1, WAIT_MS));
    if (side == PROXY_FROM_CLIENT) {
        proxy_break_on(stage.proxy, PROXY_FROM_CLIENT, "failing", 7, 1,
                       PROXY_CUT_BEFORE);
    } else {
        proxy_break_on(stage.proxy, PROXY_FROM_SERVER, done, sizeof done, 1,
                       PROXY_CUT_BEFORE);
    }
    handler_hold(stage.handler, false);
    ck_assert(proxy_wait_breaks(stage.proxy, 1, WAIT_MS));
    ck_assert(peer_wait_dispositions(stage.peer, 1, WAIT_MS));
    ck_assert(peer_outcome(stage.peer, 0, &event));
    ck_assert_uint_eq(event.disposition.state, PN_MODIFIED);
    ck_assert(event.disposition.failed);
    ck_assert_str_eq(stage_row(&stage, "failing"), "CLAIMED||1");
    stage_send(&stage, "failing");
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    ck_assert_uint_eq(handler_attempts(stage.handler, "failing"), 1);
    ck_assert_str_eq(stage_row(&stage, "failing"), "CONFIRMED||1");
    stage_close(&stage);
}
END_TEST

/* The owner died, and the answer to the takeover is lost: it is ours, and
 * counts once. */
START_TEST(lost_takeover_counts_one_attempt)
{
    static const char done[] = "INSERT 0 1";

    prepare(_i);
    stage_open(&stage);
    store_rig_row(&stage.rig, "orphan", "CLAIMED", "they", -1000, 2);
    proxy_break_on(stage.proxy, PROXY_FROM_SERVER, done, sizeof done, 1,
                   PROXY_CUT_BEFORE);
    stage_send(&stage, "orphan");
    ck_assert(proxy_wait_breaks(stage.proxy, 1, WAIT_MS));
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    ck_assert_uint_eq(handler_runs(stage.handler, "orphan"), 1);
    ck_assert_uint_eq(handler_attempts(stage.handler, "orphan"), 3);
    ck_assert_str_eq(stage_row(&stage, "orphan"), "CONFIRMED||3");
    stage_close(&stage);
}
END_TEST

/* C33: a host that answers nothing, and refuses nothing. */
START_TEST(silent_database_is_noticed_by_deadline)
{
    int64_t start_ms;

    prepare(_i);
    stage_open(&stage);
    stage_send(&stage, numbered(0));
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    proxy_stall(stage.proxy, true);
    start_ms = test_now_ms();
    for (size_t i = 1; i < 50; i++) {
        stage_send(&stage, numbered(i));
    }
    ck_assert(
        runner_wait_event(stage.runner, IDEM_EVENT_STORE_DOWN, 1, WAIT_MS));
    /* The idle session first, then a new one. */
    ck_assert_int_ge(test_now_ms() - start_ms, 400);
    ck_assert_int_le(test_now_ms() - start_ms, test_scaled_ms(4000));
    ck_assert(peer_wait_unsettled(stage.peer, 10, WAIT_MS));
    ck_assert_int_eq(peer_stats(stage.peer).transfers, 11);
    ck_assert_uint_eq(handler_counts(stage.handler).begun, 1);
    ck_assert_int_eq(peer_stats(stage.peer).dispositions, 1);
    proxy_stall(stage.proxy, false);
    ck_assert(runner_wait_event(stage.runner, IDEM_EVENT_STORE_UP, 1, WAIT_MS));
    ck_assert(peer_wait_accepted(stage.peer, 50, WAIT_MS));
    ck_assert_uint_eq(handler_counts(stage.handler).begun, 50);
    ck_assert_int_eq(peer_count(stage.peer, PEER_CONNECTED), 1);
    stage_close(&stage);
}
END_TEST

/* A stop while the database is silent: what waits is given back to the broker
 * although the store cannot be told, within the limit. */
START_TEST(stop_does_not_wait_for_a_silent_database)
{
    int64_t start_ms;
    idem_status_t status;
    int flows;

    prepare(_i);
    runner_options(stage.runner)->stop_timeout_ms = 1000;
    stage_open(&stage);
    handler_hold(stage.handler, true);
    for (size_t i = 0; i < 10; i++) {
        stage_send(&stage, numbered(i));
    }
    ck_assert(handler_wait_begun(stage.handler, 1, WAIT_MS));
    ck_assert(stage_wait_row(&stage, "m9", "CLAIMED|owner|0", WAIT_MS));
    flows = peer_count(stage.peer, PEER_FLOW);
    proxy_stall(stage.proxy, true);
    start_ms = test_now_ms();
    runner_stop(stage.runner);
    ck_assert(peer_wait(stage.peer, PEER_FLOW, flows + 1, WAIT_MS));
    handler_hold(stage.handler, false);
    status = runner_join(stage.runner, NULL);
    ck_assert(status == IDEM_OK || status == IDEM_ERR_TIMEOUT);
    ck_assert_int_le(test_now_ms() - start_ms, test_scaled_ms(6000));
    /* None of it is confirmed, so none is accepted. */
    ck_assert_int_eq(peer_stats(stage.peer).accepted, 0);
    ck_assert_uint_eq(handler_counts(stage.handler).begun, 1);
    runner_destroy(stage.runner);
    stage.runner = NULL;
    proxy_stall(stage.proxy, false);
    stage_close_anyhow(&stage);
}
END_TEST

static void be_taken_over(idem_claim_t *claim, idem_store_t *other)
{
    /* It can be had once the lease has run out. */
    while (claim->state != IDEM_CLAIM_NEW) {
        ck_assert_int_eq(idem_store_claim(other, "long", claim, WAIT_MS, NULL),
                         IDEM_OK);
    }
    ck_assert(claim->is_takeover);
}

typedef struct told {
    atomic_bool is_lost;
    atomic_bool is_over;
} told_t;

/* Runs until its lease is lost. */
static void work_until_lost(idem_delivery_t *delivery, void *user)
{
    const struct timespec pause = {0, 5000000};
    told_t *told = user;

    while (!atomic_load(&told->is_over) && !atomic_load(&told->is_lost)) {
        nanosleep(&pause, NULL);
        atomic_store(&told->is_lost, idem_delivery_is_lease_lost(delivery));
    }
}

/* C04, C05: the database is out of reach for a whole lease, another owner
 * takes the key over, and the old one comes back with its work done. */
START_TEST(lost_lease_is_told_and_its_confirm_changes_nothing)
{
    idem_claim_t claim = {0};
    idem_store_t *other = NULL;
    told_t told = {false, false};
    int64_t start_ms;

    prepare(_i);
    stage.rig.options.lease_ms = 1000;
    handler_set_hook(stage.handler, work_until_lost, &told);
    other = store_rig_open_other(&stage.rig);
    stage_open(&stage);
    start_ms = test_now_ms();
    stage_send(&stage, "long");
    ck_assert(handler_wait_begun(stage.handler, 1, WAIT_MS));
    handler_hold(stage.handler, true);
    proxy_stall(stage.proxy, true);
    be_taken_over(&claim, other);
    ck_assert_int_ge(test_now_ms() - start_ms, 900);
    while (!atomic_load(&told.is_lost)) {
        ck_assert_int_le(test_now_ms() - start_ms, test_scaled_ms(5000));
    }
    handler_hold(stage.handler, false);
    ck_assert(handler_wait_ended(stage.handler, 1, WAIT_MS));
    ck_assert_uint_eq(handler_counts(stage.handler).lost, 1);
    proxy_stall(stage.proxy, false);
    /* Kept alive by its owner, who is at work. */
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(idem_store_renew(other, &claim, WAIT_MS, NULL),
                         IDEM_OK);
        (void)peer_wait_dispositions(stage.peer, 1, 200);
    }
    ck_assert_int_eq(peer_stats(stage.peer).dispositions, 0);
    ck_assert_uint_ge(stage_statistics(&stage).leases_lost, 1);
    ck_assert_int_eq(idem_store_confirm(other, &claim, WAIT_MS, NULL), IDEM_OK);
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    ck_assert_uint_eq(handler_runs(stage.handler, "long"), 1);
    idem_store_destroy(other);
    stage_close(&stage);
}
END_TEST

/* The same, but the other owner fails: the message is not lost. */
START_TEST(lost_lease_whose_new_owner_fails_ends_in_a_run)
{
    idem_claim_t claim = {0};
    idem_store_t *other = NULL;
    told_t told = {false, false};

    prepare(_i);
    stage.rig.options.lease_ms = 1000;
    handler_set_hook(stage.handler, work_until_lost, &told);
    other = store_rig_open_other(&stage.rig);
    stage_open(&stage);
    stage_send(&stage, "long");
    ck_assert(handler_wait_begun(stage.handler, 1, WAIT_MS));
    proxy_stall(stage.proxy, true);
    be_taken_over(&claim, other);
    ck_assert(handler_wait_ended(stage.handler, 1, WAIT_MS));
    atomic_store(&told.is_over, true);
    proxy_stall(stage.proxy, false);
    ck_assert_int_eq(idem_store_release(other, &claim, true, WAIT_MS, NULL),
                     IDEM_OK);
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    ck_assert(stage_wait_idle(&stage, WAIT_MS));
    ck_assert_int_eq(peer_stats(stage.peer).dispositions, 1);
    ck_assert(strncmp(stage_row(&stage, "long"), "CONFIRMED", 9) == 0);
    idem_store_destroy(other);
    stage_close(&stage);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("commits");
    TCase *tests = tcase_create("both hosts");
    const TTest *const all[] = {
        lost_commits_under_load_leave_one_run_each,
        lost_takeover_counts_one_attempt,
        silent_database_is_noticed_by_deadline,
        stop_does_not_wait_for_a_silent_database,
        lost_lease_is_told_and_its_confirm_changes_nothing,
        lost_lease_whose_new_owner_fails_ends_in_a_run,
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tcase_add_loop_test(tests, all[i], 0, RUNNER_HOSTS);
    }
    tcase_add_loop_test(tests, lost_release_counts_one_attempt, 0,
                        2 * RUNNER_HOSTS);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
