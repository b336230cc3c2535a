/* Behind PgBouncer, which gives each transaction any of its server sessions. */

#include "servers.h"
#include "store_rig.h"
#include "support.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 30000 };

static store_rig_t rig;
static test_server_t *server;
static test_server_t *pooler;

static void start(void)
{
    setenv("PGBOUNCER_CONF", "default_pool_size = 2", 1);
    server = test_postgres_start();
    pooler = test_pgbouncer_start(server);
    store_rig_prepare(&rig, test_server_address(server));
    store_rig_via(&rig, database_port(test_server_address(pooler)));
}

static void finish(void)
{
    store_rig_finish(&rig);
    test_server_destroy(pooler);
    test_server_destroy(server);
}

typedef struct worker {
    pthread_t thread;
    int index;
    int failures;
} worker_t;

static void *claim_and_confirm(void *user)
{
    worker_t *worker = user;

    for (int i = 0; i < 200; i++) {
        idem_claim_t claim = {0};
        char key[32];
        snprintf(key, sizeof key, "key-%d-%d", worker->index, i);
        worker->failures += idem_store_claim(rig.store, key, &claim, WAIT_MS,
                                             NULL) != IDEM_OK ||
                            claim.state != IDEM_CLAIM_NEW;
        worker->failures +=
            idem_store_confirm(rig.store, &claim, WAIT_MS, NULL) != IDEM_OK;
    }
    return NULL;
}

/* C27 to C29: no named statements, no startup options, nothing left behind. */
START_TEST(everything_works_and_nothing_leaks)
{
    enum { WORKERS = 8, KEYS = 2000 };
    worker_t workers[WORKERS] = {{0}};
    question_t *questions = calloc(KEYS, sizeof *questions);
    PGconn *pg;
    char *text;

    rig.options.connections = 4;
    store_rig_open(&rig);
    for (int i = 0; i < WORKERS; i++) {
        workers[i].index = i;
        ck_assert(test_thread_start(&workers[i].thread, claim_and_confirm,
                                    &workers[i]));
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        ck_assert_int_eq(workers[i].failures, 0);
    }
    for (int i = 0; i < KEYS; i++) {
        char key[32];
        snprintf(key, sizeof key, "many-%d", i);
        question_set(&questions[i], IDEMI_OP_CLAIM, key, "t");
    }
    ck_assert(asker_ask(rig.asker, questions, KEYS, WAIT_MS));
    for (int i = 0; i < KEYS; i++) {
        ck_assert_int_eq(questions[i].op.answer, IDEMI_ANSWER_NEW);
        questions[i].op.kind = IDEMI_OP_CONFIRM;
    }
    ck_assert(asker_ask(rig.asker, questions, KEYS, WAIT_MS));
    for (int i = 0; i < KEYS; i++) {
        ck_assert_int_eq(questions[i].op.answer, IDEMI_ANSWER_DONE);
    }
    free(questions);
    ck_assert_int_eq(asker_outages(rig.asker), 0);

    /* The next client of the pool finds its sessions as they were made. */
    pg = database_open(rig.conninfo);
    for (int i = 0; i < 4; i++) {
        text = database_text(pg, "SHOW statement_timeout");
        ck_assert_str_eq(text, "0");
        free(text);
    }
    ck_assert_int_eq(
        database_int(pg, "SELECT count(*) FROM pg_prepared_statements WHERE "
                         "name <> ''"),
        0);
    PQfinish(pg);
    ck_assert_int_eq(
        database_int(rig.pg, "SELECT count(*) FROM pg_locks WHERE locktype = "
                             "'advisory'"),
        0);
}
END_TEST

static bool waits_for_lock(void *user)
{
    (void)user;
    return database_int(rig.pg, "SELECT count(*) FROM pg_stat_activity WHERE "
                                "wait_event_type = 'Lock'") > 0;
}

/* PgBouncer says 08P01 when its server went, and closes. */
START_TEST(a_lost_server_behind_the_pooler_is_repeated)
{
    question_t question;

    store_rig_open(&rig);
    store_rig_exec(&rig, "BEGIN");
    store_rig_row(&rig, "k", "CLAIMED", "they", -1000, 0);
    question_set(&question, IDEMI_OP_CLAIM, "k", "t");
    asker_submit(rig.asker, &question, 1);
    /* In our own transaction the view would stand still. */
    PGconn *own = rig.pg;
    rig.pg = database_open(test_server_address(server));
    ck_assert(test_wait(waits_for_lock, NULL, WAIT_MS));
    ck_assert_int_eq(
        database_int(rig.pg, "SELECT count(pg_terminate_backend(pid)) FROM "
                             "pg_stat_activity WHERE wait_event_type = 'Lock'"),
        1);
    PQfinish(rig.pg);
    rig.pg = own;
    store_rig_exec(&rig, "ROLLBACK");
    ck_assert(asker_wait(rig.asker, WAIT_MS));
    ck_assert_int_eq(question.op.answer, IDEMI_ANSWER_NEW);
}
END_TEST

/* C28: the time limit holds behind the pooler too. */
START_TEST(a_blocked_statement_ends_behind_the_pooler)
{
    question_t question;

    rig.options.deadline_ms = test_scaled_ms(1000);
    rig.options.connections = 1;
    store_rig_open(&rig);
    store_rig_exec(&rig, "BEGIN");
    store_rig_row(&rig, "k", "CLAIMED", "they", 60000, 0);
    question_set(&question, IDEMI_OP_CLAIM, "k", "t");
    asker_submit(rig.asker, &question, 1);
    ck_assert(!asker_wait(rig.asker, 3000));
    ck_assert_int_eq(asker_outages(rig.asker), 1);
    store_rig_exec(&rig, "COMMIT");
    ck_assert(asker_wait(rig.asker, WAIT_MS));
    ck_assert_int_eq(question.op.answer, IDEMI_ANSWER_IN_PROGRESS);
}
END_TEST

START_TEST(a_restarted_pooler_is_found_again)
{
    question_t question;

    store_rig_open(&rig);
    question = store_rig_ask(&rig, IDEMI_OP_CLAIM, "a", "t");
    ck_assert_int_eq(question.op.answer, IDEMI_ANSWER_NEW);
    test_server_kill(pooler);
    question_set(&question, IDEMI_OP_CONFIRM, "a", "t");
    asker_submit(rig.asker, &question, 1);
    ck_assert(!asker_wait(rig.asker, 300));
    test_server_start(pooler);
    ck_assert(asker_wait(rig.asker, WAIT_MS));
    ck_assert_int_eq(question.op.answer, IDEMI_ANSWER_DONE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("postgres pooler");
    TCase *tcase = tcase_create("pooler");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, start, finish);
    tcase_add_test(tcase, everything_works_and_nothing_leaks);
    tcase_add_test(tcase, a_lost_server_behind_the_pooler_is_repeated);
    tcase_add_test(tcase, a_blocked_statement_ends_behind_the_pooler);
    tcase_add_test(tcase, a_restarted_pooler_is_found_again);
    return test_run(suite);
}
