/* Tables that are not as they should be, and what a store says of them; tables
 * that are another's, and work. */

#include "store_rig.h"
#include "support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 20000, SQL_BYTES = 2048 };

static store_rig_t rig;
static int warnings;
static char warned[2048];

static void note(void *user, idem_log_level_t level, const char *message)
{
    size_t size = strlen(warned);

    (void)user;
    if (level <= IDEM_LOG_WARNING) {
        warnings++;
        snprintf(warned + size, sizeof warned - size, "%s\n", message);
    }
}

static void prepare(void)
{
    store_rig_prepare(&rig, test_env("IDEM_TEST_DSN"));
    rig.options.create_schema = false;
    rig.options.log_handler = note;
    warnings = 0;
    warned[0] = '\0';
}

static void finish(void)
{
    store_rig_finish(&rig);
}

#define KEY "message_id varchar(255) COLLATE \"C\" PRIMARY KEY"
#define REST \
    "state varchar(16) NOT NULL, claimed_by varchar(64), recorded_at " \
    "timestamptz NOT NULL, expires_at timestamptz NOT NULL"
#define OURS "attempts integer NOT NULL DEFAULT 0, fingerprint bytea"

/* In each text %s is the table. */
static const struct {
    const char *create;
    const char *says[3]; /* in the message */
} wrong[] = {
    {"SELECT 1", {"does not exist", "idem_message.sql", "create_schema"}},
    {"CREATE VIEW %s AS SELECT 1 AS message_id", {"is no table"}},
    {"CREATE TABLE %s (" KEY ")", {"no column state"}},
    {"CREATE TABLE %s (" KEY ", state varchar(16) NOT NULL, claimed_by "
     "varchar(64), recorded_at timestamptz NOT NULL)",
     {"no column expires_at"}},
    {"CREATE TABLE %s (message_id uuid PRIMARY KEY, " REST ")",
     {"message_id", "uuid", "character varying(255)"}},
    {"CREATE TABLE %s (message_id varchar(100) PRIMARY KEY, " REST ")",
     {"message_id", "character varying(100)"}},
    {"CREATE TABLE %s (" KEY ", state text NOT NULL, claimed_by varchar(64), "
     "recorded_at timestamptz NOT NULL, expires_at bigint NOT NULL)",
     {"expires_at", "bigint", "timestamp with time zone"}},
    {"CREATE TABLE %s (" KEY ", state varchar(16) NOT NULL, claimed_by "
     "varchar(64), recorded_at timestamp NOT NULL, expires_at timestamptz NOT "
     "NULL)",
     {"recorded_at and expires_at", "different types"}},
    {"CREATE TABLE %s (" KEY ", state varchar(4) NOT NULL, claimed_by "
     "varchar(64), recorded_at timestamptz NOT NULL, expires_at timestamptz "
     "NOT NULL)",
     {"state", "character varying(4)"}},
    {"CREATE TABLE %s (" KEY ", state varchar(16) NOT NULL, claimed_by "
     "varchar(64) NOT NULL, recorded_at timestamptz NOT NULL, expires_at "
     "timestamptz NOT NULL)",
     {"claimed_by", "not null"}},
    {"CREATE TABLE %s (" KEY ", " REST ", attempts bigint)",
     {"attempts", "bigint", "integer"}},
    {"CREATE TABLE %s (message_id varchar(255), " REST ")",
     {"no unique key", "PRIMARY KEY"}},
    {"CREATE TABLE %s (message_id varchar(255), " REST
     ", PRIMARY KEY (message_id, state))",
     {"no unique key"}},
    {"CREATE TABLE %s (message_id varchar(255) UNIQUE DEFERRABLE, " REST ")",
     {"deferrable", "idem_message_message_id_key"}},
    {"CREATE TABLE %s (message_id varchar(255), " REST
     "); CREATE UNIQUE INDEX part ON %s (message_id) WHERE state = 'CLAIMED'",
     {"partial", "part"}},
    {"CREATE TABLE %s (message_id varchar(255), " REST
     "); CREATE UNIQUE INDEX lower_key ON %s (lower(message_id))",
     {"no unique key"}},
    {"CREATE TABLE %s (" KEY ", " REST ", UNIQUE (claimed_by))",
     {"further unique index", "idem_message_claimed_by_key", "23505"}},
    {"CREATE TABLE %s (" KEY ", " REST ", tenant text NOT NULL)",
     {"tenant", "no default"}},
};
enum { WRONG = sizeof wrong / sizeof *wrong };

static void run(const char *format)
{
    store_rig_exec(&rig, format);
}

static idem_status_t open_store(idem_error_t *err)
{
    idem_store_t *store = NULL;
    idem_status_t status;

    memset(err, 0, sizeof *err);
    status = idem_postgres_store_create(&store, &rig.options, err);
    if (status == IDEM_OK) {
        idem_store_destroy(store);
    }
    return status;
}

START_TEST(a_wrong_table_says_what_is_wrong)
{
    idem_error_t err;

    run(wrong[_i].create);
    ck_assert_msg(open_store(&err) == IDEM_ERR_STORE, "%s", wrong[_i].create);
    for (int i = 0; i < 3 && wrong[_i].says[i] != NULL; i++) {
        ck_assert_msg(strstr(err.message, wrong[_i].says[i]) != NULL, "%s",
                      err.message);
    }
}
END_TEST

START_TEST(a_collation_that_merges_keys_is_refused)
{
    idem_error_t err;
    char sql[SQL_BYTES];

    if (database_int(rig.pg, "SELECT count(*) FROM pg_collation WHERE "
                             "collprovider = 'i'") == 0) {
        return; /* a server without ICU has none of them */
    }
    snprintf(sql, sizeof sql,
             "CREATE COLLATION %s.folded (provider = icu, locale = "
             "'und-u-ks-level2', deterministic = false); CREATE TABLE %s "
             "(message_id varchar(255) COLLATE %s.folded PRIMARY KEY, " REST
             ")",
             rig.schema, rig.table, rig.schema);
    database_exec(rig.pg, sql);
    ck_assert_int_eq(open_store(&err), IDEM_ERR_STORE);
    ck_assert_msg(strstr(err.message, "nondeterministic") != NULL, "%s",
                  err.message);
}
END_TEST

START_TEST(each_missing_right_is_named)
{
    static const char *const rights[] = {"SELECT", "INSERT", "UPDATE",
                                         "DELETE"};
    idem_error_t err;
    char role[48];
    char sql[SQL_BYTES];
    char conninfo[640];

    run("CREATE TABLE %s (" KEY ", " REST ", " OURS ")");
    test_unique(role, sizeof role, "role");
    snprintf(sql, sizeof sql,
             "CREATE ROLE %s LOGIN PASSWORD 'p'; GRANT USAGE ON SCHEMA %s TO "
             "%s",
             role, rig.schema, role);
    database_exec(rig.pg, sql);
    snprintf(conninfo, sizeof conninfo, "%s user=%s password=p", rig.conninfo,
             role);
    rig.options.conninfo = conninfo;
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(open_store(&err), IDEM_ERR_STORE);
        ck_assert_str_eq(err.sqlstate, "42501");
        ck_assert_ptr_nonnull(strstr(err.message, role));
        ck_assert_ptr_nonnull(strstr(err.message, rights[i]));
        snprintf(sql, sizeof sql, "GRANT %s ON %s TO %s", rights[i], rig.table,
                 role);
        database_exec(rig.pg, sql);
    }
    /* create_schema needs no further right where the table is there. */
    rig.options.create_schema = true;
    ck_assert_msg(open_store(&err) == IDEM_OK, "%s", err.message);
    snprintf(sql, sizeof sql, "DROP OWNED BY %s; DROP ROLE %s", role, role);
    database_exec(rig.pg, sql);
}
END_TEST

/* claim, fail, claim, die, take over, confirm, find, purge. */
static void live_a_life(uint32_t attempts)
{
    idem_claim_t claim = {0};
    idem_claim_t other = {0};
    bool confirmed = false;
    uint64_t removed = 0;

    rig.options.lease_ms = 1000;
    rig.options.retention_ms = 1000;
    store_rig_open(&rig);
    ck_assert_int_eq(idem_store_claim(rig.store, "k", &claim, WAIT_MS, NULL),
                     IDEM_OK);
    ck_assert_int_eq(claim.state, IDEM_CLAIM_NEW);
    ck_assert_int_eq(idem_store_claim(rig.store, "k", &other, WAIT_MS, NULL),
                     IDEM_OK);
    ck_assert_int_eq(other.state, IDEM_CLAIM_IN_PROGRESS);
    ck_assert_int_le(other.remaining_ms, 1000);
    ck_assert_int_eq(idem_store_release(rig.store, &claim, true, WAIT_MS, NULL),
                     IDEM_OK);
    ck_assert_int_eq(idem_store_claim(rig.store, "k", &other, WAIT_MS, NULL),
                     IDEM_OK);
    ck_assert_int_eq(other.state, IDEM_CLAIM_NEW);
    ck_assert_uint_eq(other.attempts, attempts);
    ck_assert(!other.is_takeover);
    ck_assert_int_eq(idem_store_renew(rig.store, &other, WAIT_MS, NULL),
                     IDEM_OK);
    /* It dies: its lease ends. */
    memset(&claim, 0, sizeof claim);
    int64_t end_ms = test_now_ms() + test_scaled_ms(WAIT_MS);
    while (claim.state != IDEM_CLAIM_NEW && test_now_ms() < end_ms) {
        ck_assert_int_eq(
            idem_store_claim(rig.store, "k", &claim, WAIT_MS, NULL), IDEM_OK);
    }
    ck_assert_int_eq(claim.state, IDEM_CLAIM_NEW);
    ck_assert(claim.is_takeover);
    ck_assert_uint_eq(claim.attempts, attempts > 0 ? attempts + 1 : 0);
    ck_assert_int_eq(idem_store_confirm(rig.store, &other, WAIT_MS, NULL),
                     IDEM_ERR_LEASE_LOST);
    ck_assert_int_eq(idem_store_confirm(rig.store, &claim, WAIT_MS, NULL),
                     IDEM_OK);
    ck_assert_int_eq(
        idem_store_is_confirmed(rig.store, "k", &confirmed, WAIT_MS, NULL),
        IDEM_OK);
    ck_assert(confirmed);
    while (removed == 0 && test_now_ms() < end_ms) {
        ck_assert_int_eq(
            idem_store_purge_expired(rig.store, &removed, WAIT_MS, NULL),
            IDEM_OK);
    }
    ck_assert_uint_eq(removed, 1);
}

START_TEST(the_created_table_works)
{
    rig.options.create_schema = true;
    live_a_life(1);
    ck_assert_msg(warnings == 0, "%s", warned);
}
END_TEST

/* AceMQ's five columns, with and without a time zone, its default collation.
 * The session's time zone must not matter. */
START_TEST(a_table_of_five_columns_works_with_one_warning)
{
    run("CREATE TABLE %s (message_id varchar(255) PRIMARY KEY, " REST ")");
    live_a_life(0);
    ck_assert_msg(warnings == 1, "%s", warned);
    ck_assert_ptr_nonnull(strstr(warned, "attempts"));
}
END_TEST

START_TEST(timestamps_without_time_zone_are_utc_whatever_the_sessions_zone)
{
    char conninfo[640];
    static const char *const zones[] = {"Asia/Tokyo", "America/New_York"};

    run("CREATE TABLE %s (message_id varchar(255) PRIMARY KEY, state "
        "varchar(16) NOT NULL, claimed_by varchar(64), recorded_at timestamp "
        "NOT NULL, expires_at timestamp NOT NULL)");
    snprintf(conninfo, sizeof conninfo, "%s options='-c timezone=%s'",
             rig.conninfo, zones[_i]);
    rig.options.conninfo = conninfo;
    live_a_life(0);
    ck_assert_msg(warnings == 2, "%s", warned);
    ck_assert_ptr_nonnull(strstr(warned, "UTC"));
    ck_assert_int_eq(idem_store_record_processed(
                         rig.store, (const char *[]){"r"}, 1, WAIT_MS, NULL),
                     IDEM_OK);
    ck_assert_int_eq(
        store_rig_int(&rig, "SELECT count(*) FROM %s WHERE abs(extract(epoch "
                            "FROM recorded_at - timezone('UTC', now()))) < "
                            "60"),
        1);
}
END_TEST

/* Wider texts are as good. */
START_TEST(a_table_of_plain_texts_works)
{
    run("CREATE TABLE %s (message_id text PRIMARY KEY, state text NOT NULL, "
        "claimed_by varchar, recorded_at timestamptz NOT NULL, expires_at "
        "timestamptz NOT NULL, attempts integer NOT NULL DEFAULT 0)");
    live_a_life(1);
    ck_assert_msg(warnings == 0, "%s", warned);
}
END_TEST

START_TEST(a_trigger_that_changes_keys_claims_nothing)
{
    idem_claim_t claim = {0};
    idem_error_t err;
    char sql[SQL_BYTES];

    rig.options.create_schema = true;
    store_rig_open(&rig);
    snprintf(sql, sizeof sql,
             "CREATE FUNCTION %s.lower_id() RETURNS trigger LANGUAGE plpgsql "
             "AS 'BEGIN NEW.message_id = lower(NEW.message_id); RETURN NEW; "
             "END'",
             rig.schema);
    database_exec(rig.pg, sql);
    snprintf(sql, sizeof sql,
             "CREATE TRIGGER t BEFORE INSERT ON %s FOR EACH ROW EXECUTE "
             "FUNCTION %s.lower_id()",
             rig.table, rig.schema);
    database_exec(rig.pg, sql);
    ck_assert_int_eq(
        idem_store_claim(rig.store, "small", &claim, WAIT_MS, &err), IDEM_OK);
    ck_assert_int_eq(idem_store_claim(rig.store, "LARGE", &claim, 500, &err),
                     IDEM_ERR_TIMEOUT);
    ck_assert_msg(strstr(err.message, "trigger") != NULL, "%s", err.message);
}
END_TEST

START_TEST(a_partitioned_table_works)
{
    char sql[SQL_BYTES];

    snprintf(sql, sizeof sql,
             "CREATE TABLE %s (" KEY ", " REST ", " OURS
             ") PARTITION BY HASH (message_id)",
             rig.table);
    database_exec(rig.pg, sql);
    for (int i = 0; i < 4; i++) {
        snprintf(sql, sizeof sql,
                 "CREATE TABLE %s_%d PARTITION OF %s FOR VALUES WITH (MODULUS "
                 "4, REMAINDER %d) WITH (fillfactor = 50)",
                 rig.table, i, rig.table, i);
        database_exec(rig.pg, sql);
    }
    live_a_life(1);
    ck_assert_msg(warnings == 0, "%s", warned);
    run("INSERT INTO %s (message_id, state, recorded_at, expires_at) SELECT "
        "i, 'CONFIRMED', now(), now() - interval '1 s' FROM "
        "generate_series(1, 10000) AS i");
    uint64_t removed = 0;
    ck_assert_int_eq(
        idem_store_purge_expired(rig.store, &removed, WAIT_MS, NULL), IDEM_OK);
    ck_assert_uint_eq(removed, 10000);
}
END_TEST

START_TEST(an_index_that_spoils_confirms_is_warned_of)
{
    idem_error_t err;

    run("CREATE TABLE %s (" KEY ", " REST ", " OURS
        "); CREATE INDEX by_expiry ON %s (expires_at)");
    ck_assert_msg(open_store(&err) == IDEM_OK, "%s", err.message);
    ck_assert_msg(warnings == 1, "%s", warned);
    ck_assert_ptr_nonnull(strstr(warned, "by_expiry"));
    run("DROP TABLE %s; CREATE TABLE %s (" KEY ", " REST ", " OURS
        "); CREATE INDEX of_claims ON %s (recorded_at) WHERE state = "
        "'CLAIMED'");
    warnings = 0;
    ck_assert_msg(open_store(&err) == IDEM_OK, "%s", err.message);
    ck_assert_msg(warnings == 1, "%s", warned);
}
END_TEST

/* C38: the search path plays no part once the table is found. */
START_TEST(an_unqualified_name_is_found_once_by_the_search_path)
{
    char conninfo[640];

    snprintf(conninfo, sizeof conninfo, "%s options='-c search_path=%s'",
             rig.conninfo, rig.schema);
    rig.options.conninfo = conninfo;
    rig.options.table = "idem_message";
    rig.options.create_schema = true;
    live_a_life(1);
}
END_TEST

/* Several programs that start at once all create the table. */
static void *create(void *user)
{
    (void)user;
    idem_error_t err;
    return open_store(&err) == IDEM_OK ? user : NULL;
}

START_TEST(many_may_create_the_table_at_once)
{
    enum { CREATORS = 8 };
    pthread_t threads[CREATORS];
    int created = 0;

    rig.options.create_schema = true;
    for (int i = 0; i < CREATORS; i++) {
        ck_assert(test_thread_start(&threads[i], create, &rig));
    }
    for (int i = 0; i < CREATORS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        created += result != NULL;
    }
    ck_assert_int_eq(created, CREATORS);
}
END_TEST

/* C24: what a purge takes and leaves. */
START_TEST(a_purge_never_takes_a_live_claim)
{
    uint64_t removed = 0;

    rig.options.create_schema = true;
    rig.options.retention_ms = 3600000;
    store_rig_open(&rig);
    store_rig_row(&rig, "confirmed, over", "CONFIRMED", NULL, -1, 0);
    store_rig_row(&rig, "confirmed", "CONFIRMED", NULL, 60000, 0);
    store_rig_row(&rig, "claimed", "CLAIMED", "they", 60000, 0);
    store_rig_row(&rig, "dead", "CLAIMED", "they", -1000, 3);
    store_rig_row(&rig, "dead, over", "CLAIMED", "they", -3700000, 3);
    store_rig_row(&rig, "free", "CLAIMED", NULL, -1000, 3);
    store_rig_row(&rig, "free, over", "CLAIMED", NULL, -3700000, 3);
    ck_assert_int_eq(
        idem_store_purge_expired(rig.store, &removed, WAIT_MS, NULL), IDEM_OK);
    ck_assert_uint_eq(removed, 3);
    ck_assert_int_eq(store_rig_int(&rig, "SELECT count(*) FROM %s WHERE "
                                         "message_id LIKE '%, over'"),
                     0);
    idem_store_counts_t counts;
    ck_assert_int_eq(idem_store_count(rig.store, &counts, WAIT_MS, NULL),
                     IDEM_OK);
    ck_assert_uint_eq(counts.claimed, 2);
    ck_assert_uint_eq(counts.freed, 1);
    ck_assert_uint_eq(counts.confirmed, 1);
}
END_TEST

/* Another encoding in the environment must not re-code keys. */
START_TEST(keys_are_utf8_whatever_the_environment_says)
{
    question_t q;

    setenv("PGCLIENTENCODING", "LATIN1", 1);
    rig.options.create_schema = true;
    store_rig_open(&rig);
    q = store_rig_ask(&rig, IDEMI_OP_CLAIM, "\xc3\xa4\xe2\x82\xac", "t");
    ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_NEW);
    ck_assert_int_eq(store_rig_int(&rig, "SELECT count(*) FROM %s WHERE "
                                         "message_id = U&'\\00e4\\20ac'"),
                     1);
}
END_TEST

/* What is accepted must not be forgotten when the server crashes. */
START_TEST(commits_are_flushed_whatever_the_role_says)
{
    static const char *const settings[][2] = {
        {"off", "on"}, {"on", "on"}, {"remote_write", "remote_write"}};
    char options[64];
    char *found = NULL;
    char sql[SQL_BYTES];
    question_t q;

    snprintf(options, sizeof options, "-c synchronous_commit=%s",
             settings[_i][0]);
    setenv("PGOPTIONS", options, 1);
    rig.options.create_schema = true;
    store_rig_open(&rig);
    store_rig_exec(&rig, "ALTER TABLE %s ADD COLUMN flushed text DEFAULT "
                         "current_setting('synchronous_commit')");
    q = store_rig_ask(&rig, IDEMI_OP_CLAIM, "a", "t");
    ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_NEW);
    snprintf(sql, sizeof sql, "SELECT flushed FROM %s WHERE message_id = 'a'",
             rig.table);
    found = database_text(rig.pg, sql);
    ck_assert_str_eq(found, settings[_i][1]);
    free(found);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("postgres shape");
    TCase *tcase = tcase_create("shape");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, prepare, finish);
    tcase_add_loop_test(tcase, a_wrong_table_says_what_is_wrong, 0, WRONG);
    tcase_add_test(tcase, a_collation_that_merges_keys_is_refused);
    tcase_add_test(tcase, each_missing_right_is_named);
    tcase_add_test(tcase, the_created_table_works);
    tcase_add_test(tcase, a_table_of_five_columns_works_with_one_warning);
    tcase_add_loop_test(
        tcase, timestamps_without_time_zone_are_utc_whatever_the_sessions_zone,
        0, 2);
    tcase_add_test(tcase, a_table_of_plain_texts_works);
    tcase_add_test(tcase, a_trigger_that_changes_keys_claims_nothing);
    tcase_add_test(tcase, a_partitioned_table_works);
    tcase_add_test(tcase, an_index_that_spoils_confirms_is_warned_of);
    tcase_add_test(tcase, an_unqualified_name_is_found_once_by_the_search_path);
    tcase_add_test(tcase, many_may_create_the_table_at_once);
    tcase_add_test(tcase, a_purge_never_takes_a_live_claim);
    tcase_add_test(tcase, keys_are_utf8_whatever_the_environment_says);
    tcase_add_loop_test(tcase, commits_are_flushed_whatever_the_role_says, 0,
                        3);
    return test_run(suite);
}
