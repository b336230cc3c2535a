/* What the statements cost the server: rows read for a key, however large the
 * table is and whatever the planner believes of it, and row versions written.
 */

#include "store_rig.h"
#include "support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 60000, SQL_BYTES = 512 };

static store_rig_t rig;

/* What was believed when the work began. */
static const char *const beliefs[] = {
    "",                          /* never analysed */
    "ANALYZE %s",                /* analysed as it is */
    "DELETE FROM %s; ANALYZE %s" /* stale: analysed when it was empty */
};
enum { BELIEFS = 3, ROWS = 30000 };

static const char thousands[] =
    "INSERT INTO %s (message_id, state, recorded_at, expires_at) SELECT "
    "md5(i::text), 'CONFIRMED', now(), now() + interval '1 day' FROM "
    "generate_series(1, 30000) AS i";

static void fill(int belief)
{
    store_rig_prepare(&rig, test_env("IDEM_TEST_DSN"));
    store_rig_open(&rig);
    /* Statistics are to stay what they are. */
    store_rig_exec(&rig, "ALTER TABLE %s SET (autovacuum_enabled = off)");
    if (belief == 2) {
        store_rig_exec(&rig, beliefs[belief]);
    }
    store_rig_exec(&rig, thousands);
    if (belief != 2 && beliefs[belief][0] != '\0') {
        store_rig_exec(&rig, beliefs[belief]);
    }
}

static int64_t stat(const char *expression)
{
    char sql[SQL_BYTES];

    snprintf(sql, sizeof sql,
             "SELECT %s FROM pg_stat_user_tables WHERE schemaname = '%s' AND "
             "relname = 'idem_message'",
             expression, rig.schema);
    return database_int(rig.pg, sql);
}

static bool has_no_session(void *user)
{
    (void)user;
    return store_rig_sessions(&rig, "true") == 0;
}

/* Sessions tell what they did when they end at the latest. */
static void reopen(void)
{
    asker_destroy(rig.asker);
    idem_store_destroy(rig.store);
    rig.asker = NULL;
    rig.store = NULL;
    ck_assert(test_wait(has_no_session, NULL, WAIT_MS));
    store_rig_open(&rig);
}

static int64_t rows_read(void)
{
    reopen();
    return stat("seq_tup_read + coalesce(idx_tup_fetch, 0)");
}

static void ask(question_t *questions, int count, idemi_op_kind_t kind,
                int batch)
{
    for (int i = 0; i < count; i += batch) {
        int size = count - i < batch ? count - i : batch;
        for (int j = i; j < i + size; j++) {
            questions[j].op.kind = kind;
        }
        ck_assert(asker_ask(rig.asker, &questions[i], (size_t)size, WAIT_MS));
    }
}

static void check_read(const char *what, int64_t before, int keys)
{
    int64_t after = rows_read();

    ck_assert_msg(after - before <= 2 * (int64_t)keys,
                  "%s: %lld rows for %d "
                  "keys",
                  what, (long long)(after - before), keys);
}

/* C42: no statement scans the table. */
START_TEST(rows_read_per_key_do_not_grow_with_the_table)
{
    static const int batches[] = {1, 10, 250};
    int belief = _i / 3;
    int batch = batches[_i % 3];
    int count = batch == 1 ? 20 : 2 * batch;
    question_t *questions = calloc((size_t)count, sizeof *questions);
    int64_t before;

    fill(belief);
    for (int i = 0; i < count; i++) {
        char key[64];
        snprintf(key, sizeof key, "new-%d", i);
        question_set(&questions[i], IDEMI_OP_CLAIM, key, "t");
    }
    before = rows_read();
    ask(questions, count, IDEMI_OP_CLAIM, batch);
    check_read("claims of new keys", before, count);
    before = rows_read();
    ask(questions, count, IDEMI_OP_CLAIM, batch);
    check_read("claims of keys that are there", before, count);
    before = rows_read();
    ask(questions, count, IDEMI_OP_RENEW, batch);
    check_read("renewals", before, count);
    before = rows_read();
    ask(questions, count, IDEMI_OP_RELEASE, batch);
    check_read("releases", before, count);
    before = rows_read();
    ask(questions, count, IDEMI_OP_TAKEOVER, batch);
    check_read("takeovers", before, count);
    before = rows_read();
    ask(questions, count, IDEMI_OP_CONFIRM, batch);
    check_read("confirms", before, count);
    before = rows_read();
    ask(questions, count, IDEMI_OP_FIND, batch);
    check_read("finds", before, count);
    before = rows_read();
    ask(questions, count, IDEMI_OP_RECORD, batch);
    check_read("records", before, count);
    for (int i = 0; i < count; i++) {
        ck_assert_int_eq(questions[i].op.answer, IDEMI_ANSWER_DONE);
    }
    free(questions);
    store_rig_finish(&rig);
}
END_TEST

enum { KINDS_EACH = 8 };

/* Each statement for each key, one at a time. */
static void ask_each(question_t *questions, int count)
{
    static const idemi_op_kind_t kinds[KINDS_EACH] = {
        IDEMI_OP_CLAIM,    IDEMI_OP_CLAIM,   IDEMI_OP_RENEW, IDEMI_OP_RELEASE,
        IDEMI_OP_TAKEOVER, IDEMI_OP_CONFIRM, IDEMI_OP_FIND,  IDEMI_OP_RECORD};

    for (int i = 0; i < KINDS_EACH; i++) {
        ask(questions, count, kinds[i], 1);
    }
}

/* Those that a table may have which others share. */
static const char *const indexes[] = {
    "CREATE INDEX ON %s (state, expires_at)",
    "CREATE INDEX ON %s (claimed_by)",
    "CREATE INDEX ON %s (expires_at) WHERE state = 'CONFIRMED'",
};

/* What is prepared keeps its plan, made when the table was as good as empty.
 */
START_TEST(a_session_reads_no_more_per_key_once_the_table_has_grown)
{
    enum { KEYS = 60, HALF = KEYS / 2 };
    bool has_other_indexes = _i == 1;
    question_t *questions = calloc(KEYS, sizeof *questions);
    int64_t before;

    store_rig_prepare(&rig, test_env("IDEM_TEST_DSN"));
    rig.options.connections = 1;
    store_rig_open(&rig);
    store_rig_exec(&rig, "ALTER TABLE %s SET (autovacuum_enabled = off)");
    if (has_other_indexes) {
        for (size_t i = 0; i < sizeof indexes / sizeof *indexes; i++) {
            store_rig_exec(&rig, indexes[i]);
        }
    }
    for (int i = 0; i < KEYS; i++) {
        char key[64];
        snprintf(key, sizeof key, "new-%d", i);
        question_set(&questions[i], IDEMI_OP_CLAIM, key, "t");
    }
    before = rows_read();
    ask(questions, 1, IDEMI_OP_RECORD, 1);
    store_rig_exec(&rig, "ANALYZE %s");
    ask_each(questions, HALF);
    store_rig_exec(&rig, thousands);
    ask_each(questions + HALF, HALF);
    check_read("a small table that grew", before, KINDS_EACH * KEYS);
    ck_assert_int_eq(store_rig_int(&rig, "SELECT count(*) FROM %s WHERE "
                                         "message_id LIKE 'new-%' AND state "
                                         "= 'CONFIRMED'"),
                     KEYS);
    free(questions);
    store_rig_finish(&rig);
}
END_TEST

/* C25, C26: one insert, one update within the page, a message. */
START_TEST(confirms_touch_no_index)
{
    enum { KEYS = 5000 };
    question_t *questions = calloc(KEYS, sizeof *questions);

    store_rig_start(&rig);
    for (int i = 0; i < KEYS; i++) {
        char key[64];
        snprintf(key, sizeof key, "ID:%08x-%04x-4000-8000-%012x:1:1:1:1",
                 (unsigned)i * 2654435761U, (unsigned)i % 65536, (unsigned)i);
        question_set(&questions[i], IDEMI_OP_CLAIM, key, "t");
    }
    for (int i = 0; i < KEYS; i += 250) {
        ask(&questions[i], 250, IDEMI_OP_CLAIM, 250);
        ask(&questions[i], 250, IDEMI_OP_CONFIRM, 250);
    }
    reopen();
    ck_assert_int_eq(stat("n_tup_ins"), KEYS);
    ck_assert_int_eq(stat("n_tup_upd"), KEYS);
    ck_assert_int_ge(stat("n_tup_hot_upd"), KEYS * 99 / 100);
    free(questions);
    store_rig_finish(&rig);
}
END_TEST

/* Duplicates, the commonest message of a bad day, write nothing. */
START_TEST(duplicates_write_nothing)
{
    enum { KEYS = 500 };
    question_t *questions = calloc(KEYS, sizeof *questions);
    char sql[SQL_BYTES];
    int64_t before;
    int64_t after;

    store_rig_start(&rig);
    for (int i = 0; i < KEYS; i++) {
        char key[64];
        snprintf(key, sizeof key, "k-%d", i);
        question_set(&questions[i], IDEMI_OP_RECORD, key, "t");
    }
    ask(questions, KEYS, IDEMI_OP_RECORD, 250);
    snprintf(sql, sizeof sql,
             "SELECT (n_tup_ins + n_tup_upd + n_tup_del) FROM "
             "pg_stat_user_tables WHERE schemaname = '%s'",
             rig.schema);
    reopen();
    before = database_int(rig.pg, sql);
    ask(questions, KEYS, IDEMI_OP_CLAIM, 250);
    ask(questions, 20, IDEMI_OP_CLAIM, 1);
    for (int i = 0; i < KEYS; i++) {
        ck_assert_int_eq(questions[i].op.answer, IDEMI_ANSWER_DONE);
    }
    reopen();
    after = database_int(rig.pg, sql);
    ck_assert_int_eq(after, before);
    free(questions);
    store_rig_finish(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("postgres plans");
    TCase *tcase = tcase_create("plans");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, rows_read_per_key_do_not_grow_with_the_table, 0,
                        3 * BELIEFS);
    tcase_add_loop_test(
        tcase, a_session_reads_no_more_per_key_once_the_table_has_grown, 0, 2);
    tcase_add_test(tcase, confirms_touch_no_index);
    tcase_add_test(tcase, duplicates_write_nothing);
    return test_run(suite);
}
