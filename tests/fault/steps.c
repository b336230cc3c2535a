/*
 * The steps of a delivery (lib/engine/engine.c) crossed with everything that
 * can break: at each step one thing breaks, and in the end the message is
 * accepted, its key is confirmed, and it ran once, or twice where the process
 * was killed between the start of its work and the confirm.
 *
 * Steps are staged by the proxy before the database, which lets the last
 * question or answer vanish, by the handler, which is held, and by the peer,
 * which reads nothing.
 */

#include "process.h"
#include "stage.h"
#include "support.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 15000, DEADLINE_MS = 400, LEASE_MS = 1000, HANDLER_MS = 700 };

#define KEY "the-message"

static stage_t stage;
static process_t *worker;

static void end_worker(void)
{
    process_destroy(worker);
    worker = NULL;
}

typedef enum step {
    CLAIM_ASKED,   /* 2: the database has not seen it */
    CLAIM_DONE,    /* 3: it has, and we do not know */
    HANDLER_RUNS,  /* 4 */
    CONFIRM_ASKED, /* 6 */
    CONFIRM_DONE,  /* 7 */
    ACCEPT_SENT,   /* 8: written, and not read by the broker */
    STEPS
} step_t;

static const char *const step_names[STEPS] = {"claim asked",  "claim done",
                                              "handler runs", "confirm asked",
                                              "confirm done", "accept sent"};

/* What a row shows at a step. */
static const char *const rows[STEPS] = {
    "none",         "CLAIMED|owner|0", "CLAIMED|owner|0", "CLAIMED|owner|0",
    "CONFIRMED||0", "CONFIRMED||0"};

/* Lets the nth question about the key, or the answer to it, vanish. */
static void lose(proxy_t *proxy, proxy_side_t side, int nth)
{
    static const char done[] = "INSERT 0 1"; /* with its NUL */

    if (side == PROXY_FROM_CLIENT) {
        proxy_break_on(proxy, side, KEY, strlen(KEY), nth, PROXY_STALL_BEFORE);
    } else {
        proxy_break_on(proxy, side, done, sizeof done, nth, PROXY_STALL_BEFORE);
    }
}

static void go_to(step_t step)
{
    if (step == CLAIM_ASKED || step == CLAIM_DONE) {
        lose(stage.proxy,
             step == CLAIM_ASKED ? PROXY_FROM_CLIENT : PROXY_FROM_SERVER, 1);
        stage_send(&stage, KEY);
        ck_assert(proxy_wait_breaks(stage.proxy, 1, WAIT_MS));
    } else {
        handler_hold(stage.handler, true);
        stage_send(&stage, KEY);
        ck_assert(handler_wait_begun(stage.handler, 1, WAIT_MS));
    }
    if (step == CONFIRM_ASKED || step == CONFIRM_DONE) {
        lose(stage.proxy,
             step == CONFIRM_ASKED ? PROXY_FROM_CLIENT : PROXY_FROM_SERVER, 1);
        handler_hold(stage.handler, false);
        ck_assert(proxy_wait_breaks(stage.proxy, 1, WAIT_MS));
    } else if (step == ACCEPT_SENT) {
        peer_silence(stage.peer, true);
        handler_hold(stage.handler, false);
    }
    ck_assert_msg(stage_wait_row(&stage, KEY, rows[step], WAIT_MS), "%s",
                  step_names[step]);
}

/* Breaks. */

typedef enum breakage {
    LINK_DETACHED,
    SESSION_ENDED,
    CONNECTION_CLOSED,
    CONNECTION_RESET,
    DATABASE_SILENT, /* until the deadline */
    DATABASE_RESET,
    DATABASE_AWAY, /* reset, and refused for a while */
    SESSION_TERMINATED,
    BREAKS
} breakage_t;

static const char *const break_names[BREAKS] = {
    "link detached",    "session ended",     "connection closed",
    "connection reset", "database silent",   "database reset",
    "database away",    "session terminated"};

static void hide_database(void)
{
    int tries = proxy_stats(stage.proxy).connections;

    ck_assert(proxy_listen(stage.proxy, false));
    proxy_cut(stage.proxy, true);
    if (handler_counts(stage.handler).ended !=
        handler_counts(stage.handler).begun) {
        handler_hold(stage.handler, false); /* so that it is missed */
    }
    ck_assert(
        runner_wait_event(stage.runner, IDEM_EVENT_STORE_DOWN, 1, WAIT_MS));
    ck_assert_int_eq(proxy_stats(stage.proxy).connections, tries);
    ck_assert(proxy_listen(stage.proxy, true));
}

static void break_it(breakage_t what)
{
    switch (what) {
    case LINK_DETACHED:
        peer_detach(stage.peer, NULL, "amqp:resource-deleted", "gone");
        break;
    case SESSION_ENDED:
        peer_end_session(stage.peer, NULL, "amqp:internal-error", "gone");
        break;
    case CONNECTION_CLOSED:
        peer_close_connection(stage.peer, "amqp:connection:forced", NULL);
        break;
    case CONNECTION_RESET:
        peer_cut(stage.peer, true);
        break;
    case DATABASE_RESET:
        proxy_cut(stage.proxy, true);
        break;
    case DATABASE_AWAY:
        hide_database();
        break;
    case SESSION_TERMINATED:
        (void)database_terminate(stage.rig.pg, stage.rig.application);
        break;
    case DATABASE_SILENT: /* where it is not lost by the step itself */
    case BREAKS:
        break;
    }
}

static bool is_of_link(breakage_t what)
{
    return what <= CONNECTION_RESET;
}

/* While the peer reads nothing, only a reset can happen. And the database's
 * breaks are none where nobody asks it anything. */
static bool can_be_staged(step_t step, breakage_t what)
{
    return step == ACCEPT_SENT    ? what == CONNECTION_RESET
           : step == HANDLER_RUNS ? what != DATABASE_SILENT
                                  : true;
}

START_TEST(each_break_at_each_step_leaves_one_run)
{
    runner_host_t host = (runner_host_t)(_i % (int)RUNNER_HOSTS);
    breakage_t what = (breakage_t)(_i / (int)RUNNER_HOSTS % BREAKS);
    step_t step = (step_t)(_i / (int)RUNNER_HOSTS / BREAKS);
    peer_event_t event;

    if (!can_be_staged(step, what)) {
        return;
    }
    stage_prepare(&stage, (int)host, NULL);
    stage.has_proxy = true;
    stage.rig.options.connections = 1;
    stage.rig.options.deadline_ms = DEADLINE_MS;
    stage_open(&stage);
    go_to(step);
    break_it(what);
    if (is_of_link(what)) {
        if (step == ACCEPT_SENT) {
            peer_silence(stage.peer, false);
        }
        ck_assert(peer_wait(stage.peer, PEER_ATTACH, 2, WAIT_MS));
    }
    handler_hold(stage.handler, false);
    ck_assert_msg(peer_wait_accepted(stage.peer, 1, WAIT_MS), "%s at: %s",
                  break_names[what], step_names[step]);
    ck_assert(stage_wait_idle(&stage, WAIT_MS));
    ck_assert(peer_outcome(stage.peer, 0, &event));
    ck_assert(!event.disposition.late);
    ck_assert_int_eq(event.disposition.attempt, is_of_link(what) ? 2 : 1);
    ck_assert_int_eq(peer_stats(stage.peer).dispositions, 1);
    ck_assert_int_eq(peer_count(stage.peer, PEER_CONNECTED),
                     what == CONNECTION_CLOSED || what == CONNECTION_RESET ? 2
                                                                           : 1);
    ck_assert_str_eq(stage_row(&stage, KEY), "CONFIRMED||0");
    ck_assert_msg(handler_runs(stage.handler, KEY) == 1, "%zu runs: %s at: %s",
                  handler_runs(stage.handler, KEY), break_names[what],
                  step_names[step]);
    ck_assert_uint_eq(handler_counts(stage.handler).lost, 0);
    ck_assert_uint_eq(stage_statistics(&stage).leases_lost, 0);
    stage_close(&stage);
}
END_TEST

/* The process is killed. Its successor is a client in this process. */

static void start_worker(proxy_t *proxy, step_t step)
{
    char program[512];
    char deadline[] = "10000";
    char handler[16];
    char *dsn = database_dsn_via(stage.rig.conninfo, proxy_port(proxy));
    const char *argv[] = {program,         "--url",     peer_url(stage.peer),
                          "--dsn",         dsn,         "--table",
                          stage.rig.table, "--address", STAGE_ADDRESS,
                          "--connections", "1",         "--deadline",
                          deadline,        "--lease",   "1000",
                          "--handler",     handler,     NULL};

    snprintf(program, sizeof program, "%s/tests/support/idem-worker",
             test_env("IDEM_TEST_BUILD"));
    snprintf(handler, sizeof handler, "%d",
             step == HANDLER_RUNS  ? 60000
             : step == ACCEPT_SENT ? HANDLER_MS
                                   : 0);
    worker = process_start(argv, NULL);
    ck_assert_ptr_nonnull(worker);
    free(dsn);
}

static void bring_worker_to(proxy_t *proxy, step_t step)
{
    static const char confirms[] = "DO UPDATE SET state = 'CONFIRMED'";

    if (step == CLAIM_ASKED) {
        lose(proxy, PROXY_FROM_CLIENT, 1);
    } else if (step == CONFIRM_ASKED) {
        /* Its first one is prepared with it. The key may stand twice in what
         * asks for the claim. */
        proxy_break_on(proxy, PROXY_FROM_CLIENT, confirms, sizeof confirms - 1,
                       1, PROXY_STALL_BEFORE);
    } else if (step == CLAIM_DONE || step == CONFIRM_DONE) {
        lose(proxy, PROXY_FROM_SERVER, step == CLAIM_DONE ? 1 : 2);
    }
    stage_send(&stage, KEY);
    if (step == HANDLER_RUNS || step == ACCEPT_SENT) {
        ck_assert(process_wait_output(worker, "begin " KEY, WAIT_MS));
    } else {
        ck_assert(proxy_wait_breaks(proxy, 1, WAIT_MS));
    }
    if (step == ACCEPT_SENT) {
        peer_silence(stage.peer, true);
    }
    ck_assert(stage_wait_row(&stage, KEY, rows[step], WAIT_MS));
}

START_TEST(process_killed_at_each_step_is_succeeded)
{
    /* Whether the dead one began, and whether it was known to be done. */
    static const bool began[STEPS] = {false, false, true, true, true, true};
    static const bool is_done[STEPS] = {false, false, false, false, true, true};
    step_t step = (step_t)(_i / RUNNER_HOSTS);
    proxy_t *proxy = NULL;
    char *output = NULL;

    stage_prepare(&stage, _i % RUNNER_HOSTS, NULL);
    stage.rig.options.lease_ms = LEASE_MS;
    proxy = proxy_create(database_port(stage.rig.conninfo));
    ck_assert_ptr_nonnull(proxy);
    idem_store_destroy(store_rig_open_other(&stage.rig)); /* for the table */
    start_worker(proxy, step);
    ck_assert(peer_wait_credit(stage.peer, 100, WAIT_MS));
    bring_worker_to(proxy, step);
    ck_assert(process_signal(worker, SIGKILL));
    ck_assert_int_eq(process_wait(worker, WAIT_MS), 128 + SIGKILL);
    if (step == ACCEPT_SENT) {
        peer_cut(stage.peer, true); /* what was written is never read */
        peer_silence(stage.peer, false);
    }
    output = process_output(worker);
    ck_assert_int_eq(strstr(output, "begin " KEY) != NULL, began[step]);
    free(output);
    stage.options.prefetch = 100; /* as the worker's: one limit for both */
    stage_start(&stage);
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    ck_assert_msg(handler_runs(stage.handler, KEY) == (is_done[step] ? 0 : 1),
                  "%zu runs after: %s", handler_runs(stage.handler, KEY),
                  step_names[step]);
    ck_assert_str_eq(stage_row(&stage, KEY),
                     step == CLAIM_ASKED || is_done[step] ? "CONFIRMED||0"
                                                          : "CONFIRMED||1");
    ck_assert_uint_eq(stage_statistics(&stage).takeovers,
                      step != CLAIM_ASKED && !is_done[step]);
    end_worker();
    proxy_destroy(proxy); /* and with it the locks of a stalled session */
    stage_close(&stage);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("steps");
    TCase *breaks = tcase_create("breaks");
    TCase *kills = tcase_create("kills");

    tcase_add_loop_test(breaks, each_break_at_each_step_leaves_one_run, 0,
                        (int)STEPS * (int)BREAKS * (int)RUNNER_HOSTS);
    tcase_add_loop_test(kills, process_killed_at_each_step_is_succeeded, 0,
                        (int)STEPS * (int)RUNNER_HOSTS);
    suite_add_tcase(suite, breaks);
    suite_add_tcase(suite, kills);
    return test_run(suite);
}
