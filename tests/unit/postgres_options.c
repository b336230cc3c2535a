/* What the PostgreSQL store does before it touches the network: options,
 * names, arrays, SQLSTATEs. */

#include "base/options.h"
#include "store/postgres_array.h"
#include "store/postgres_connection.h"
#include "store/postgres_sql.h"
#include "support.h"

#include <idem/store.h>

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nobody listens there: an option that passes shows as this. */
#define NOWHERE "host=127.0.0.1 port=1 dbname=none"

static idem_status_t create(const idem_postgres_options_t *options,
                            idem_error_t *err)
{
    idem_store_t *store = NULL;
    idem_status_t status;

    memset(err, 0, sizeof *err);
    status = idem_postgres_store_create(&store, options, err);
    ck_assert_ptr_null(store);
    ck_assert_int_eq(err->status, status);
    return status;
}

START_TEST(defaults_are_the_documented_ones)
{
    idem_postgres_options_t o;
    idem_error_t err;

    idem_postgres_options_init(&o);
    ck_assert_uint_eq(o.struct_size, sizeof o);
    ck_assert_str_eq(o.table, "idem_message");
    ck_assert_int_eq(o.lease_ms, 30000);
    ck_assert_int_eq(o.renew_ms, 0);
    ck_assert_int_eq(o.retention_ms, INT64_C(7) * 24 * 3600 * 1000);
    ck_assert_int_eq(o.purge_interval_ms, 60000);
    ck_assert_int_eq(o.deadline_ms, 10000);
    ck_assert_uint_eq(o.connections, 2);
    ck_assert(!o.create_schema);
    ck_assert(o.log_handler == idem_log_to_stderr);
    ck_assert_int_eq(o.log_level, IDEM_LOG_WARNING);
    o.conninfo = NOWHERE;
    ck_assert_int_eq(create(&o, &err), IDEM_ERR_STORE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.message, "127.0.0.1"));
}
END_TEST

#define BAD(field, value, ...) \
    do { \
        static const char *const says[] = {#field, __VA_ARGS__}; \
        idem_postgres_options_t o; \
        idem_error_t err; \
        idem_postgres_options_init(&o); \
        o.conninfo = NOWHERE; \
        o.field = (value); \
        ck_assert_msg(create(&o, &err) == IDEM_ERR_ARG, "%s: %s", #field, \
                      err.message); \
        for (size_t i = 0; i < sizeof says / sizeof *says; i++) { \
            ck_assert_msg(strstr(err.message, says[i]) != NULL, "%s: %s", \
                          says[i], err.message); \
        } \
    } while (0)

/* C37, C41: the field, the value and the remedy. */
START_TEST(each_wrong_option_is_named_before_the_network_is_touched)
{
    static const char long_name[] = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnop"
                                    "qrstuvwxyzabcdefghijkl";

    ck_assert_uint_eq(sizeof long_name - 1, 64);
    BAD(conninfo, NULL, "NULL");
    BAD(conninfo, "nonsense", "missing \"=\" after");
    BAD(conninfo, "colour=blue", "colour");
    BAD(conninfo, "postgres://[broken", "connection string");
    BAD(table, NULL, "NULL");
    BAD(table, "", "empty");
    BAD(table, long_name, "63 bytes");
    BAD(table, "t\"; DROP TABLE x; --", "letters");
    BAD(table, "a\"b", "a\"b");
    BAD(table, "\"quoted\"", "letters");
    BAD(table, "a.b.c", "a.b.c");
    BAD(table, ".t", ".t");
    BAD(table, "s.", "s.");
    BAD(table, "my-app.inbox", "my-app");
    BAD(table, "1st", "digit");
    BAD(table, "t\xc3\xa4", "letters");
    BAD(table, "two words", "two words");
    BAD(lease_ms, 999, "999", "1000");
    BAD(lease_ms, -1, "-1");
    BAD(lease_ms, INT64_MAX, "lease_ms");
    BAD(renew_ms, 10001, "10001", "10000", "a third");
    BAD(renew_ms, -5, "-5");
    BAD(retention_ms, 29999, "29999", "30000");
    BAD(retention_ms, INT64_MAX, "100 years");
    BAD(purge_interval_ms, -1, "-1", "0 for no timer");
    BAD(deadline_ms, 99, "99", "100");
    BAD(deadline_ms, INT64_MAX, "deadline_ms");
    BAD(connections, 0, "0", "1 to 16");
    BAD(connections, 17, "17");
    BAD(log_level, (idem_log_level_t)7, "7");
    BAD(struct_size, 0, "not initialised", "idem_postgres_options_init");
    BAD(struct_size, 12, "not initialised");
    BAD(struct_size, (size_t)1 << 40, "not initialised");
}
END_TEST

START_TEST(a_struct_that_was_never_initialised_is_refused)
{
    idem_postgres_options_t o;
    idem_error_t err;

    memset(&o, 0xa5, sizeof o);
    ck_assert_int_eq(create(&o, &err), IDEM_ERR_ARG);
    memset(&o, 0, sizeof o);
    ck_assert_int_eq(create(&o, &err), IDEM_ERR_ARG);
    ck_assert_int_eq(create(NULL, &err), IDEM_ERR_ARG);
    ck_assert_int_eq(idem_postgres_store_create(NULL, &o, NULL), IDEM_ERR_ARG);
}
END_TEST

/* A program that was built with a newer, longer struct. */
START_TEST(a_longer_struct_works_while_its_new_fields_are_zero)
{
    struct {
        idem_postgres_options_t o;
        void *newer;
    } longer;
    idem_error_t err;

    idem_postgres_options_init_sized(&longer.o, sizeof longer);
    longer.o.conninfo = NOWHERE;
    ck_assert_int_eq(create(&longer.o, &err), IDEM_ERR_STORE_UNAVAILABLE);
    longer.newer = &longer;
    ck_assert_int_eq(create(&longer.o, &err), IDEM_ERR_ARG);
}
END_TEST

START_TEST(the_password_is_in_no_message)
{
    static const char *const conninfos[] = {
        "host=127.0.0.1 port=1 password=s3cret user=u",
        "postgres://u:s3cret@127.0.0.1:1/d",
        "host=127.0.0.1 port=1 password=s3cret colour",
        "host=127.0.0.1 password=my s3cret",
        "host=127.0.0.1 password='s3cret",
        "postgres://u:s3cret@[::1/d",
        "postgres://u:s3cret@[]/d",
        "postgres://u:s3cret@[::1]x/d",
        "postgres://u:%zzs3cret@127.0.0.1:1/d",
        "postgres://u:s3cret%00@127.0.0.1:1/d",
        "postgres://u@127.0.0.1:1/d?s3cret",
    };

    for (size_t i = 0; i < sizeof conninfos / sizeof *conninfos; i++) {
        idem_postgres_options_t o;
        idem_error_t err;
        idem_postgres_options_init(&o);
        o.conninfo = conninfos[i];
        ck_assert_int_ne(create(&o, &err), IDEM_OK);
        ck_assert_msg(strstr(err.message, "s3cret") == NULL, "%s", err.message);
    }
}
END_TEST

START_TEST(names_are_quoted_part_by_part)
{
    char quoted[IDEMI_SQL_TABLE_BYTES];
    char quotes[IDEMI_SQL_NAME_BYTES + 1];

    idemi_sql_quote_name(quoted, "idem_message");
    ck_assert_str_eq(quoted, "\"idem_message\"");
    idemi_sql_quote_name(quoted, "Schema_1.Table_2");
    ck_assert_str_eq(quoted, "\"Schema_1\".\"Table_2\"");
    /* What the server says a partition is called. */
    ck_assert(idemi_sql_quote(quoted, "we\"ird", "t\\\""));
    ck_assert_str_eq(quoted, "\"we\"\"ird\".\"t\\\"\"\"");
    memset(quotes, '"', sizeof quotes - 1);
    quotes[sizeof quotes - 1] = '\0';
    ck_assert(idemi_sql_quote(quoted, quotes, quotes));
    ck_assert_uint_eq(strlen(quoted), sizeof quoted - 1);
}
END_TEST

START_TEST(statements_fit_the_table)
{
    idemi_sql_shape_t shape = {.has_attempts = true, .has_zone = true};
    idemi_sql_t sql;

    idemi_sql_quote_name(shape.table, "s.t");
    ck_assert(idemi_sql_init(&sql, &shape));
    for (int i = 0; i < IDEMI_SQL_KINDS; i++) {
        ck_assert_ptr_nonnull(strstr(sql.text[i], "\"s\".\"t\""));
        ck_assert_ptr_null(strpbrk(sql.text[i], "{}"));
        ck_assert_ptr_null(strstr(sql.text[i], "'UTC'"));
    }
    ck_assert_ptr_nonnull(strstr(sql.text[IDEMI_SQL_RELEASE], "attempts"));
    idemi_sql_finish(&sql);

    shape.has_attempts = false;
    shape.has_zone = false;
    ck_assert(idemi_sql_init(&sql, &shape));
    for (int i = 0; i < IDEMI_SQL_KINDS; i++) {
        const char *attempts = strstr(sql.text[i], "attempts");
        ck_assert(!attempts || strncmp(attempts - 3, "AS ", 3) == 0 ||
                  strncmp(attempts - 2, "x.", 2) == 0);
        for (const char *now = sql.text[i];
             (now = strstr(now, "now()")) != NULL; now++) {
            ck_assert(strncmp(now - 7, "'UTC', ", 7) == 0);
        }
    }
    idemi_sql_finish(&sql);
}
END_TEST

START_TEST(the_table_is_created_by_the_installed_text)
{
    char *sql = idemi_sql_create("\"s\".\"t\"");

    ck_assert_ptr_nonnull(sql);
    ck_assert_ptr_nonnull(
        strstr(sql, "CREATE TABLE IF NOT EXISTS \"s\".\"t\" ("));
    ck_assert_ptr_null(strstr(sql, "idem_message"));
    free(sql);
}
END_TEST

START_TEST(arrays_are_in_the_binary_form)
{
    static const unsigned char texts[] = {
        0, 0, 0, 1, 0, 0,   0,   0, 0, 0, 0, 25, 0, 0, 0, 3,   0,   0,   0,
        1, 0, 0, 0, 2, 'a', '"', 0, 0, 0, 0, 0,  0, 0, 4, 'N', 'U', 'L', 'L'};
    static const unsigned char numbers[] = {
        0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 23, 0, 0, 0,    2,    0,    0,
        0, 1, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0,  0, 4, 0xff, 0xff, 0xff, 0xfe};
    static const unsigned char empty[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 25};
    idemi_array_t array = {0};

    idemi_array_begin(&array, IDEMI_OID_TEXT, 3);
    idemi_array_add_text(&array, "a\"", 2);
    idemi_array_add_text(&array, "", 0);
    idemi_array_add_text(&array, "NULL", 4);
    ck_assert(!array.failed);
    ck_assert_uint_eq(array.size, sizeof texts);
    ck_assert_mem_eq(array.bytes, texts, sizeof texts);
    idemi_array_begin(&array, IDEMI_OID_INT4, 2);
    idemi_array_add_int4(&array, 1);
    idemi_array_add_int4(&array, -2);
    ck_assert_uint_eq(array.size, sizeof numbers);
    ck_assert_mem_eq(array.bytes, numbers, sizeof numbers);
    idemi_array_begin(&array, IDEMI_OID_TEXT, 0);
    ck_assert_uint_eq(array.size, sizeof empty);
    ck_assert_mem_eq(array.bytes, empty, sizeof empty);
    idemi_array_begin(&array, IDEMI_OID_TEXT, 10000);
    for (int i = 0; i < 10000; i++) {
        idemi_array_add_text(&array, "0123456789", 10);
    }
    ck_assert_uint_eq(array.size, 20 + 10000 * 14);
    idemi_array_finish(&array);
}
END_TEST

START_TEST(integers_are_read_as_they_are_sent)
{
    ck_assert_int_eq(idemi_get_int4("\x00\x00\x01\x02"), 258);
    ck_assert_int_eq(idemi_get_int4("\xff\xff\xff\xff"), -1);
    ck_assert_int_eq(idemi_get_int8("\x00\x00\x00\x01\x00\x00\x00\x02"),
                     INT64_C(0x100000002));
    ck_assert_int_eq(idemi_get_int8("\x80\x00\x00\x00\x00\x00\x00\x00"),
                     INT64_MIN);
    ck_assert_int_eq(idemi_get_int8("\xff\xff\xff\xff\xff\xff\xff\xfe"), -2);
}
END_TEST

START_TEST(sqlstates_say_what_to_do_next)
{
    static const struct {
        const char *sqlstate;
        idemi_sqlstate_class_t expected;
    } table[] = {
        {"40001", IDEMI_SQLSTATE_REPEAT},
        {"40P01", IDEMI_SQLSTATE_REPEAT},
        {"08006", IDEMI_SQLSTATE_RECONNECT},
        {"08P01", IDEMI_SQLSTATE_RECONNECT},
        {"57P01", IDEMI_SQLSTATE_RECONNECT},
        {"57P02", IDEMI_SQLSTATE_RECONNECT},
        {"57P03", IDEMI_SQLSTATE_RECONNECT},
        {"57P05", IDEMI_SQLSTATE_RECONNECT},
        {"25006", IDEMI_SQLSTATE_RECONNECT},
        {"53100", IDEMI_SQLSTATE_BUSY},
        {"53300", IDEMI_SQLSTATE_BUSY},
        {"55P03", IDEMI_SQLSTATE_BUSY},
        {"57014", IDEMI_SQLSTATE_BUSY},
        {"58030", IDEMI_SQLSTATE_BUSY},
        {"22021", IDEMI_SQLSTATE_REFUSED},
        {"23505", IDEMI_SQLSTATE_REFUSED},
        {"23514", IDEMI_SQLSTATE_REFUSED},
        {"42P01", IDEMI_SQLSTATE_REFUSED},
        {"42501", IDEMI_SQLSTATE_REFUSED},
        {"XX000", IDEMI_SQLSTATE_REFUSED},
        {"", IDEMI_SQLSTATE_REFUSED},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        ck_assert_msg(idemi_sqlstate_classify(table[i].sqlstate) ==
                          table[i].expected,
                      "%s", table[i].sqlstate);
    }
}
END_TEST

/* Hosts, given in each of the ways that libpq has. */
START_TEST(hosts_are_counted)
{
    static const struct {
        const char *conninfo;
        size_t hosts;
    } table[] = {
        {"", 1},
        {"host=a", 1},
        {"host=a,b,c port=1,2,3", 3},
        {"host=a,b port=5432", 2},
        {"hostaddr=127.0.0.1,127.0.0.2", 2},
        {"postgres://a:1,b:2,c/d?target_session_attrs=read-write", 3},
        {"service=none", 1},
    };

    unsetenv("PGHOST");
    unsetenv("PGHOSTADDR");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        idemi_target_t target;
        idem_error_t err;
        ck_assert_int_eq(
            idemi_target_init(&target, table[i].conninfo, 1000, &err), IDEM_OK);
        ck_assert_msg(target.hosts == table[i].hosts, "%s: %zu",
                      table[i].conninfo, target.hosts);
        idemi_target_finish(&target);
    }
    setenv("PGHOST", "x,y", 1);
    idemi_target_t target;
    ck_assert_int_eq(idemi_target_init(&target, "", 1000, NULL), IDEM_OK);
    ck_assert_uint_eq(target.hosts, 2);
    idemi_target_finish(&target);
}
END_TEST

/* The value that libpq has for a keyword once a connection has begun. */
static char *value_of(PGconn *pg, const char *keyword)
{
    PQconninfoOption *options = PQconninfo(pg);
    char *value = NULL;

    for (PQconninfoOption *o = options; o->keyword != NULL; o++) {
        if (strcmp(o->keyword, keyword) == 0 && o->val != NULL) {
            value = strdup(o->val);
        }
    }
    PQconninfoFree(options);
    return value;
}

static void check_value(const char *conninfo, size_t host, const char *keyword,
                        const char *expected)
{
    idemi_target_t target;
    PGconn *pg;
    char *value;

    ck_assert_int_eq(idemi_target_init(&target, conninfo, 8000, NULL), IDEM_OK);
    pg = idemi_target_connect(&target, host);
    ck_assert_ptr_nonnull(pg);
    value = value_of(pg, keyword);
    ck_assert_msg(value != NULL && strcmp(value, expected) == 0, "%s: %s is %s",
                  conninfo, keyword, value ? value : "unset");
    free(value);
    PQfinish(pg);
    idemi_target_finish(&target);
}

START_TEST(what_the_user_gives_is_kept_and_the_rest_is_added)
{
#define LOCAL "host=127.0.0.1 port=1"
    check_value(LOCAL, 0, "client_encoding", "UTF8");
    check_value(LOCAL " client_encoding=LATIN1", 0, "client_encoding", "UTF8");
    check_value(LOCAL, 0, "fallback_application_name", "idem");
    check_value(LOCAL " application_name=mine", 0, "application_name", "mine");
    check_value(LOCAL, 0, "keepalives_idle", "10");
    check_value(LOCAL " keepalives_idle=77", 0, "keepalives_idle", "77");
    check_value(LOCAL, 0, "tcp_user_timeout", "4000");
    check_value(LOCAL " tcp_user_timeout=5", 0, "tcp_user_timeout", "5");
    check_value("host=127.0.0.1,127.0.0.2 port=1,2", 1, "host", "127.0.0.2");
    check_value("host=127.0.0.1,127.0.0.2 port=1,2", 1, "port", "2");
    check_value("host=127.0.0.1,127.0.0.2 port=3", 1, "port", "3");
    check_value("host=a,b hostaddr=127.0.0.1,127.0.0.2 port=3", 1, "hostaddr",
                "127.0.0.2");
    setenv("PGCLIENTENCODING", "LATIN1", 1);
    check_value(LOCAL, 0, "client_encoding", "UTF8");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("postgres options");
    TCase *tcase = tcase_create("options");

    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, defaults_are_the_documented_ones);
    tcase_add_test(tcase,
                   each_wrong_option_is_named_before_the_network_is_touched);
    tcase_add_test(tcase, a_struct_that_was_never_initialised_is_refused);
    tcase_add_test(tcase, a_longer_struct_works_while_its_new_fields_are_zero);
    tcase_add_test(tcase, the_password_is_in_no_message);
    tcase_add_test(tcase, names_are_quoted_part_by_part);
    tcase_add_test(tcase, statements_fit_the_table);
    tcase_add_test(tcase, the_table_is_created_by_the_installed_text);
    tcase_add_test(tcase, arrays_are_in_the_binary_form);
    tcase_add_test(tcase, integers_are_read_as_they_are_sent);
    tcase_add_test(tcase, sqlstates_say_what_to_do_next);
    tcase_add_test(tcase, hosts_are_counted);
    tcase_add_test(tcase, what_the_user_gives_is_kept_and_the_rest_is_added);
    return test_run(suite);
}
