/* The server goes away, comes back, falls silent, or changes its mind. */

#include "proxy.h"
#include "servers.h"
#include "store_rig.h"
#include "support.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 30000 };

static store_rig_t rig;
static proxy_t *proxy;

static void prepare(void)
{
    store_rig_prepare(&rig, test_env("IDEM_TEST_DSN"));
}

static void prepare_proxy(void)
{
    prepare();
    proxy = proxy_create(database_port(test_env("IDEM_TEST_DSN")));
    ck_assert_ptr_nonnull(proxy);
    store_rig_via(&rig, proxy_port(proxy));
}

static void finish(void)
{
    store_rig_finish(&rig);
    proxy_destroy(proxy);
    proxy = NULL;
}

static idem_store_statistics_t statistics(void)
{
    idem_store_statistics_t now;

    ck_assert_int_eq(idem_store_statistics(rig.store, &now), IDEM_OK);
    return now;
}

static void expect(idemi_op_kind_t kind, const char *key, const char *token,
                   idemi_answer_t answer)
{
    question_t question = store_rig_ask(&rig, kind, key, token);

    ck_assert_msg(question.op.answer == answer, "%s: %s, not %s", key,
                  answer_name(question.op.answer), answer_name(answer));
}

/* C32: the connection died while nobody used it. */
START_TEST(a_killed_idle_session_costs_one_reconnect)
{
    rig.options.connections = 1;
    store_rig_open(&rig);
    expect(IDEMI_OP_CLAIM, "a", "t", IDEMI_ANSWER_NEW);
    ck_assert_int_ge(database_terminate(rig.pg, rig.application), 1);
    expect(IDEMI_OP_CLAIM, "b", "t", IDEMI_ANSWER_NEW);
    expect(IDEMI_OP_CONFIRM, "a", "t", IDEMI_ANSWER_DONE);
    ck_assert_uint_eq(statistics().reconnects, 1);
    ck_assert_int_eq(asker_outages(rig.asker), 0);
    ck_assert(statistics().available);
}
END_TEST

static bool waits_for_lock(void *user)
{
    (void)user;
    return store_rig_sessions(&rig, "wait_event_type = 'Lock'") > 0;
}

/* The session is killed while its batch waits for a lock. */
START_TEST(a_killed_busy_session_is_repeated)
{
    question_t question;
    PGconn *other = database_open(test_env("IDEM_TEST_DSN"));
    char sql[256];

    store_rig_open(&rig);
    snprintf(sql, sizeof sql,
             "BEGIN; INSERT INTO %s VALUES ('k', 'CLAIMED', 'they', now(), "
             "now())",
             rig.table);
    database_exec(other, sql);
    question_set(&question, IDEMI_OP_CLAIM, "k", "t");
    asker_submit(rig.asker, &question, 1);
    ck_assert(test_wait(waits_for_lock, NULL, WAIT_MS));
    ck_assert_int_ge(database_terminate(rig.pg, rig.application), 1);
    database_exec(other, "ROLLBACK");
    PQfinish(other);
    ck_assert(asker_wait(rig.asker, WAIT_MS));
    ck_assert_int_eq(question.op.answer, IDEMI_ANSWER_NEW);
}
END_TEST

/* C21, C22, and promise 8: the COMMIT arrived or did not, and we cannot know.
 * Bit 0: cut before the server sees it, or before we see its answer. */
START_TEST(an_unknown_commit_is_settled_by_the_token)
{
    bool done = (_i & 1) != 0;
    question_t questions[6];
    char *look;

    rig.options.connections = 1;
    rig.options.lease_ms = 60000;
    store_rig_open(&rig);
    expect(IDEMI_OP_CLAIM, "mine", "t", IDEMI_ANSWER_NEW);
    expect(IDEMI_OP_CLAIM, "failed", "t", IDEMI_ANSWER_NEW);
    expect(IDEMI_OP_CLAIM, "kept", "t", IDEMI_ANSWER_NEW);
    store_rig_row(&rig, "dead", "CLAIMED", "they", -1000, 0);
    proxy_break_on(proxy, done ? PROXY_FROM_SERVER : PROXY_FROM_CLIENT,
                   "COMMIT", 7, 1, PROXY_CUT_BEFORE);
    question_set(&questions[0], IDEMI_OP_CLAIM, "new", "t");
    question_set(&questions[1], IDEMI_OP_TAKEOVER, "dead", "t");
    question_set(&questions[2], IDEMI_OP_CONFIRM, "mine", "t");
    question_set(&questions[3], IDEMI_OP_RELEASE, "failed", "t");
    questions[3].op.failed = true;
    question_set(&questions[4], IDEMI_OP_RENEW, "kept", "t");
    question_set(&questions[5], IDEMI_OP_CLAIM, "mine too", "t");
    ck_assert(asker_ask(rig.asker, questions, 6, WAIT_MS));
    ck_assert_int_eq(proxy_stats(proxy).breaks, 1);
    ck_assert_int_eq(questions[0].op.answer, IDEMI_ANSWER_NEW);
    ck_assert_int_eq(questions[1].op.answer, IDEMI_ANSWER_NEW);
    ck_assert_uint_eq(questions[1].op.attempts, 1);
    ck_assert_int_eq(questions[2].op.answer, IDEMI_ANSWER_DONE);
    ck_assert_int_eq(questions[3].op.answer, IDEMI_ANSWER_FREED);
    ck_assert_int_eq(questions[4].op.answer, IDEMI_ANSWER_NEW);
    ck_assert_int_eq(questions[5].op.answer, IDEMI_ANSWER_NEW);
    look = store_rig_look(&rig, "failed");
    ck_assert_str_eq(look, "CLAIMED||1|f");
    free(look);
    look = store_rig_look(&rig, "mine");
    ck_assert_str_eq(look, "CONFIRMED||0|t");
    free(look);
    ck_assert_int_eq(asker_outages(rig.asker), 0);
}
END_TEST

/* The same for a single statement, which has no COMMIT. */
START_TEST(a_lost_answer_of_one_statement_is_settled_by_the_token)
{
    rig.options.connections = 1;
    store_rig_open(&rig);
    expect(IDEMI_OP_CLAIM, "first", "t", IDEMI_ANSWER_NEW);
    /* Its command tag, with NUL. */
    proxy_break_on(proxy, PROXY_FROM_SERVER, "INSERT 0 1", 11, 1,
                   PROXY_CUT_BEFORE);
    expect(IDEMI_OP_CLAIM, "second", "t", IDEMI_ANSWER_NEW);
    ck_assert_int_eq(proxy_stats(proxy).breaks, 1);
    expect(IDEMI_OP_CLAIM, "second", "they", IDEMI_ANSWER_IN_PROGRESS);
    proxy_break_on(proxy, PROXY_FROM_SERVER, "INSERT 0 1", 11, 1,
                   PROXY_CUT_BEFORE);
    expect(IDEMI_OP_CONFIRM, "second", "t", IDEMI_ANSWER_DONE);
    ck_assert_int_eq(proxy_stats(proxy).breaks, 2);
}
END_TEST

/* C33: neither side says a word any more. */
START_TEST(a_silent_server_is_given_up_at_the_deadline)
{
    question_t question;
    int64_t start_ms;

    rig.options.connections = 1;
    rig.options.deadline_ms = 500;
    store_rig_open(&rig);
    expect(IDEMI_OP_CLAIM, "a", "t", IDEMI_ANSWER_NEW);
    proxy_stall(proxy, true);
    start_ms = test_now_ms();
    question_set(&question, IDEMI_OP_CLAIM, "b", "t");
    asker_submit(rig.asker, &question, 1);
    /* The first silence is asked about once more before it is an outage. */
    while (asker_outages(rig.asker) == 0 &&
           test_now_ms() - start_ms < test_scaled_ms(5000)) {
        asker_wait(rig.asker, 10);
    }
    ck_assert_int_eq(asker_outages(rig.asker), 1);
    ck_assert_int_ge(test_now_ms() - start_ms, 900);
    ck_assert_int_lt(test_now_ms() - start_ms, test_scaled_ms(2500));
    ck_assert(!statistics().available);
    proxy_stall(proxy, false);
    ck_assert(asker_wait(rig.asker, WAIT_MS));
    ck_assert_int_eq(question.op.answer, IDEMI_ANSWER_NEW);
    ck_assert_int_eq(asker_recoveries(rig.asker), 1);
}
END_TEST

START_TEST(a_silent_server_does_not_hold_up_create)
{
    idem_store_t *store = NULL;
    idem_error_t err;
    int64_t start_ms = test_now_ms();

    rig.options.deadline_ms = 300;
    proxy_stall(proxy, true);
    ck_assert_int_eq(idem_postgres_store_create(&store, &rig.options, &err),
                     IDEM_ERR_STORE_UNAVAILABLE);
    ck_assert_int_lt(test_now_ms() - start_ms, test_scaled_ms(2000));
    ck_assert_msg(strstr(err.message, "300 ms") != NULL, "%s", err.message);
}
END_TEST

/* Whatever the deadline is, and whether there is a connection yet or not. */
START_TEST(a_silent_server_does_not_hold_up_a_count)
{
    idem_store_counts_t counts;
    idem_error_t err;
    int64_t start_ms;

    rig.options.deadline_ms = 60000;
    store_rig_open(&rig);
    ck_assert_int_eq(idem_store_count(rig.store, &counts, WAIT_MS, &err),
                     IDEM_OK);
    proxy_stall(proxy, true);
    start_ms = test_now_ms();
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(idem_store_count(rig.store, &counts, 200, &err),
                         IDEM_ERR_TIMEOUT);
    }
    /* Each that waits at all makes a connection. */
    for (int i = 0; i < 1000; i++) {
        ck_assert_int_eq(
            idem_store_count(rig.store, &counts, i % 200 == 0 ? 1 : 0, &err),
            IDEM_ERR_TIMEOUT);
    }
    ck_assert_int_lt(test_now_ms() - start_ms, test_scaled_ms(10000));
    proxy_stall(proxy, false);
    ck_assert_int_eq(idem_store_count(rig.store, &counts, WAIT_MS, &err),
                     IDEM_OK);
}
END_TEST

/* One of several hosts is silent: the next one has its turn. */
START_TEST(a_silent_first_host_is_passed_over)
{
    char conninfo[768];

    rig.options.deadline_ms = 500;
    proxy_stall(proxy, true);
    snprintf(conninfo, sizeof conninfo,
             "%s host=127.0.0.1,127.0.0.1 port=%d,%d "
             "target_session_attrs=read-write",
             rig.conninfo, proxy_port(proxy),
             database_port(test_env("IDEM_TEST_DSN")));
    rig.options.conninfo = conninfo;
    store_rig_open(&rig);
    expect(IDEMI_OP_CLAIM, "a", "t", IDEMI_ANSWER_NEW);
}
END_TEST

/* C28: what waits for a lock ends at the server too, and does nothing late. */
START_TEST(a_blocked_statement_ends_with_its_deadline)
{
    question_t question;
    PGconn *other = database_open(test_env("IDEM_TEST_DSN"));
    char sql[256];

    rig.options.deadline_ms = test_scaled_ms(1000);
    rig.options.connections = 1;
    store_rig_open(&rig);
    snprintf(sql, sizeof sql,
             "BEGIN; INSERT INTO %s VALUES ('k', 'CLAIMED', 'they', now(), "
             "now() + interval '1 min')",
             rig.table);
    database_exec(other, sql);
    question_set(&question, IDEMI_OP_CLAIM, "k", "t");
    asker_submit(rig.asker, &question, 1);
    ck_assert(!asker_wait(rig.asker, 3500));
    ck_assert_int_eq(asker_outages(rig.asker), 1);
    /* Repeats did not pile up, on the server or here. */
    snprintf(sql, sizeof sql,
             "SELECT count(*) FROM pg_stat_activity WHERE application_name = "
             "'%s' AND wait_event_type = 'Lock'",
             rig.application);
    ck_assert_int_le(database_int(rig.pg, sql), 2);
    /* It was the server that ended it, but for a machine that is slow. */
    ck_assert_uint_le(statistics().reconnects, 1);
    database_exec(other, "COMMIT");
    PQfinish(other);
    ck_assert(asker_wait(rig.asker, WAIT_MS));
    ck_assert_int_eq(question.op.answer, IDEMI_ANSWER_IN_PROGRESS);
}
END_TEST

/* C31: a failover, or an operator's switch. */
START_TEST(a_read_only_server_is_an_outage)
{
    question_t question;
    test_server_t *server = test_postgres_start();

    store_rig_finish(&rig);
    store_rig_prepare(&rig, test_server_address(server));
    store_rig_open(&rig);
    expect(IDEMI_OP_CLAIM, "a", "t", IDEMI_ANSWER_NEW);
    database_exec(rig.pg,
                  "ALTER SYSTEM SET default_transaction_read_only = on");
    database_exec(rig.pg, "SELECT pg_reload_conf()");
    ck_assert(database_wait_int(rig.pg,
                                "SELECT count(*) FROM pg_settings WHERE name "
                                "= 'default_transaction_read_only' AND "
                                "setting = 'on'",
                                1, WAIT_MS));
    question_set(&question, IDEMI_OP_CLAIM, "b", "t");
    asker_submit(rig.asker, &question, 1);
    ck_assert(!asker_wait(rig.asker, 1000));
    ck_assert_int_eq(asker_outages(rig.asker), 1);
    idem_store_t *store = NULL;
    idem_error_t err;
    ck_assert_int_eq(idem_postgres_store_create(&store, &rig.options, &err),
                     IDEM_ERR_STORE_UNAVAILABLE);
    ck_assert_msg(strstr(err.message, "read-only") != NULL, "%s", err.message);
    database_exec(rig.pg, "SET default_transaction_read_only = off");
    database_exec(rig.pg, "ALTER SYSTEM RESET default_transaction_read_only");
    database_exec(rig.pg, "SELECT pg_reload_conf()");
    ck_assert(asker_wait(rig.asker, WAIT_MS));
    ck_assert_int_eq(question.op.answer, IDEMI_ANSWER_NEW);
    ck_assert_int_eq(asker_recoveries(rig.asker), 1);
    store_rig_finish(&rig);
    test_server_destroy(server);
    prepare();
}
END_TEST

/* The server ends in order, or by SIGKILL, and starts again, under load. */
static atomic_bool stopping;

static void *claim_and_confirm(void *user)
{
    asker_t *asker = user;
    question_t questions[20];
    intptr_t wrong = 0;

    for (int round = 0; !atomic_load(&stopping); round++) {
        for (int i = 0; i < 20; i++) {
            char key[32];
            snprintf(key, sizeof key, "key-%d-%d", round, i);
            question_set(&questions[i], IDEMI_OP_CLAIM, key, "t");
        }
        wrong += !asker_ask(asker, questions, 20, WAIT_MS);
        for (int i = 0; i < 20; i++) {
            wrong += questions[i].op.answer != IDEMI_ANSWER_NEW;
            questions[i].op.kind = IDEMI_OP_CONFIRM;
        }
        wrong += !asker_ask(asker, questions, 20, WAIT_MS);
        for (int i = 0; i < 20; i++) {
            wrong += questions[i].op.answer != IDEMI_ANSWER_DONE;
        }
    }
    return (void *)wrong;
}

START_TEST(a_restarted_server_is_found_again)
{
    test_server_t *server = test_postgres_start();
    pthread_t thread;
    void *wrong = NULL;

    store_rig_finish(&rig);
    store_rig_prepare(&rig, test_server_address(server));
    store_rig_open(&rig);
    atomic_store(&stopping, false);
    ck_assert(test_thread_start(&thread, claim_and_confirm, rig.asker));
    for (int i = 0; i < 2; i++) {
        int outages = asker_outages(rig.asker);
        PQfinish(rig.pg);
        if (i == 0) {
            test_server_stop(server);
        } else {
            test_server_kill(server);
        }
        int64_t end_ms = test_now_ms() + test_scaled_ms(WAIT_MS);
        while (asker_outages(rig.asker) == outages && test_now_ms() < end_ms) {
            sched_yield();
        }
        ck_assert_int_gt(asker_outages(rig.asker), outages);
        test_server_start(server);
        rig.pg = database_open(test_server_address(server));
        while (asker_recoveries(rig.asker) <= outages &&
               test_now_ms() < end_ms) {
            sched_yield();
        }
        ck_assert_int_gt(asker_recoveries(rig.asker), outages);
    }
    atomic_store(&stopping, true);
    pthread_join(thread, &wrong);
    ck_assert_int_eq((intptr_t)wrong, 0);
    ck_assert_int_eq(store_rig_int(&rig,
                                   "SELECT count(*) FROM %s WHERE state <> "
                                   "'CONFIRMED' OR attempts <> 0"),
                     0);
    store_rig_finish(&rig);
    test_server_destroy(server);
    prepare();
}
END_TEST

/* A constraint of the user's own refuses one row, not its neighbours. */
START_TEST(a_refused_row_fails_alone)
{
    question_t questions[40];
    idem_claim_t claim = {0};
    idem_error_t err;

    store_rig_open(&rig);
    store_rig_exec(&rig, "ALTER TABLE %s ADD CHECK (message_id <> 'bad')");
    for (int i = 0; i < 40; i++) {
        char key[16];
        snprintf(key, sizeof key, "key-%d", i);
        question_set(&questions[i], IDEMI_OP_CLAIM, i == 17 ? "bad" : key, "t");
    }
    ck_assert(asker_ask(rig.asker, questions, 40, WAIT_MS));
    for (int i = 0; i < 40; i++) {
        ck_assert_int_eq(questions[i].op.answer,
                         i == 17 ? IDEMI_ANSWER_FAILED : IDEMI_ANSWER_NEW);
    }
    ck_assert_int_eq(asker_outages(rig.asker), 0);
    ck_assert_int_eq(idem_store_claim(rig.store, "bad", &claim, WAIT_MS, &err),
                     IDEM_ERR_STORE);
    ck_assert_str_eq(err.sqlstate, "23514");
}
END_TEST

/* Someone drops the table: nothing can be done until it is back. */
START_TEST(a_dropped_table_is_waited_for)
{
    question_t question;
    idem_claim_t claim = {0};
    idem_error_t err;

    store_rig_open(&rig);
    store_rig_exec(&rig, "DROP TABLE %s");
    question_set(&question, IDEMI_OP_CLAIM, "k", "t");
    asker_submit(rig.asker, &question, 1);
    ck_assert_int_eq(idem_store_claim(rig.store, "j", &claim, WAIT_MS, &err),
                     IDEM_ERR_STORE);
    ck_assert_str_eq(err.sqlstate, "42P01");
    ck_assert(!asker_wait(rig.asker, 200));
    ck_assert_int_eq(asker_outages(rig.asker), 1);
    ck_assert_int_eq(idem_store_create_schema(rig.store, WAIT_MS, &err),
                     IDEM_OK);
    ck_assert(asker_wait(rig.asker, WAIT_MS));
    ck_assert_int_eq(question.op.answer, IDEMI_ANSWER_NEW);
}
END_TEST

static void handle_keys(int from, int to)
{
    for (int i = from; i < to; i++) {
        char key[16];
        snprintf(key, sizeof key, "key-%d", i);
        expect(IDEMI_OP_CLAIM, key, "t", IDEMI_ANSWER_NEW);
        expect(IDEMI_OP_CONFIRM, key, "t", IDEMI_ANSWER_DONE);
    }
}

/* A migration beside a running consumer: what is prepared no longer fits. */
START_TEST(an_altered_column_is_no_outage)
{
    rig.options.connections = 1;
    store_rig_open(&rig);
    handle_keys(0, 10);
    store_rig_exec(&rig, "ALTER TABLE %s ALTER message_id TYPE varchar(300)");
    handle_keys(10, 20);
    ck_assert_uint_eq(statistics().reconnects, 1);
    ck_assert_int_eq(asker_outages(rig.asker), 0);
    ck_assert_int_eq(store_rig_int(&rig, "SELECT count(*) FROM %s WHERE state "
                                         "= 'CONFIRMED'"),
                     20);
}
END_TEST

/* C27: a pooler that passes on its servers' process numbers looks like a
 * server, until a session comes back without what was prepared in it. Here a
 * trigger takes that away, each time. */
START_TEST(what_was_prepared_may_be_gone)
{
    rig.options.connections = 1;
    store_rig_open(&rig);
    handle_keys(0, 10);
    store_rig_exec(&rig,
                   "CREATE FUNCTION %s_forget() RETURNS trigger LANGUAGE "
                   "plpgsql AS $$ BEGIN EXECUTE 'DEALLOCATE ALL'; RETURN NULL; "
                   "END $$");
    store_rig_exec(&rig, "CREATE TRIGGER forget AFTER INSERT ON %s FOR EACH "
                         "STATEMENT EXECUTE FUNCTION %s_forget()");
    handle_keys(10, 30);
    ck_assert_uint_eq(statistics().reconnects, 1);
    ck_assert_int_eq(asker_outages(rig.asker), 0);
    ck_assert_int_eq(store_rig_int(&rig, "SELECT count(*) FROM %s WHERE state "
                                         "= 'CONFIRMED'"),
                     30);
}
END_TEST

/* The same SQLSTATEs as for a stale plan and a lost statement, and no plan is
 * stale, no statement lost. */
START_TEST(what_a_trigger_says_of_plans_is_a_refusal)
{
    static const char *const states[] = {"0A000", "26000"};
    char sql[512];
    idem_claim_t claim = {0};
    idem_error_t err = {.status = IDEM_OK};

    rig.options.connections = 1;
    store_rig_open(&rig);
    handle_keys(0, 10);
    snprintf(sql, sizeof sql,
             "CREATE FUNCTION %s_refuse() RETURNS trigger LANGUAGE plpgsql AS "
             "$$ BEGIN RAISE SQLSTATE '%s'; END $$",
             rig.table, states[_i]);
    database_exec(rig.pg, sql);
    store_rig_exec(&rig, "CREATE TRIGGER refuse BEFORE INSERT ON %s FOR EACH "
                         "ROW EXECUTE FUNCTION %s_refuse()");
    ck_assert_int_eq(idem_store_claim(rig.store, "k", &claim, WAIT_MS, &err),
                     IDEM_ERR_STORE);
    ck_assert_str_eq(err.sqlstate, states[_i]);
    ck_assert_uint_le(statistics().reconnects, 1);
}
END_TEST

/* C06: a transaction that fails at its very end. */
START_TEST(an_error_at_commit_is_no_success)
{
    question_t questions[2];

    rig.options.connections = 1;
    store_rig_open(&rig);
    char sql[512];
    snprintf(sql, sizeof sql,
             "CREATE FUNCTION %s.refuse() RETURNS trigger LANGUAGE plpgsql AS "
             "$$ BEGIN IF NEW.message_id = 'late' THEN RAISE check_violation; "
             "END IF; RETURN NULL; END $$; CREATE CONSTRAINT TRIGGER refuse "
             "AFTER INSERT ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW "
             "EXECUTE FUNCTION %s.refuse()",
             rig.schema, rig.table, rig.schema);
    database_exec(rig.pg, sql);
    question_set(&questions[0], IDEMI_OP_CLAIM, "late", "t");
    question_set(&questions[1], IDEMI_OP_TAKEOVER, "fine", "t");
    ck_assert(asker_ask(rig.asker, questions, 2, WAIT_MS));
    ck_assert_int_eq(questions[0].op.answer, IDEMI_ANSWER_FAILED);
    ck_assert_int_eq(questions[1].op.answer, IDEMI_ANSWER_NEW);
    ck_assert_int_eq(store_rig_int(&rig, "SELECT count(*) FROM %s"), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("postgres faults");
    TCase *direct = tcase_create("direct");
    TCase *proxied = tcase_create("proxied");

    suite_add_tcase(suite, direct);
    tcase_set_timeout(direct, 120);
    tcase_add_checked_fixture(direct, prepare, finish);
    tcase_add_test(direct, a_killed_idle_session_costs_one_reconnect);
    tcase_add_test(direct, a_killed_busy_session_is_repeated);
    tcase_add_test(direct, a_blocked_statement_ends_with_its_deadline);
    tcase_add_test(direct, a_read_only_server_is_an_outage);
    tcase_add_test(direct, a_restarted_server_is_found_again);
    tcase_add_test(direct, a_refused_row_fails_alone);
    tcase_add_test(direct, a_dropped_table_is_waited_for);
    tcase_add_test(direct, an_altered_column_is_no_outage);
    tcase_add_test(direct, what_was_prepared_may_be_gone);
    tcase_add_loop_test(direct, what_a_trigger_says_of_plans_is_a_refusal, 0,
                        2);
    tcase_add_test(direct, an_error_at_commit_is_no_success);

    suite_add_tcase(suite, proxied);
    tcase_set_timeout(proxied, 120);
    tcase_add_checked_fixture(proxied, prepare_proxy, finish);
    tcase_add_loop_test(proxied, an_unknown_commit_is_settled_by_the_token, 0,
                        2);
    tcase_add_test(proxied,
                   a_lost_answer_of_one_statement_is_settled_by_the_token);
    tcase_add_test(proxied, a_silent_server_is_given_up_at_the_deadline);
    tcase_add_test(proxied, a_silent_server_does_not_hold_up_create);
    tcase_add_test(proxied, a_silent_server_does_not_hold_up_a_count);
    tcase_add_test(proxied, a_silent_first_host_is_passed_over);
    return test_run(suite);
}
