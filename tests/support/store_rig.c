#include "store_rig.h"

#include "support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SQL_BYTES = 2048, ASK_MS = 20000, TRIES = 10 };

void store_rig_prepare(store_rig_t *rig, const char *dsn)
{
    memset(rig, 0, sizeof *rig);
    rig->pg = database_open(dsn);
    database_create_schema(rig->pg, rig->schema, sizeof rig->schema);
    snprintf(rig->table, sizeof rig->table, "%s.idem_message", rig->schema);
    test_unique(rig->application, sizeof rig->application, "store");
    snprintf(rig->conninfo, sizeof rig->conninfo, "%s application_name=%s", dsn,
             rig->application);
    idem_postgres_options_init(&rig->options);
    rig->options.conninfo = rig->conninfo;
    rig->options.table = rig->table;
    rig->options.create_schema = true;
    rig->options.purge_interval_ms = 0;
    rig->options.log_handler = NULL;
}

void store_rig_via(store_rig_t *rig, int port)
{
    char *dsn = database_dsn_via(rig->conninfo, port);

    snprintf(rig->conninfo, sizeof rig->conninfo, "%s", dsn);
    free(dsn);
}

idem_store_t *store_rig_open_other(const store_rig_t *rig)
{
    idem_store_t *store = NULL;
    idem_error_t err = {.status = IDEM_OK};
    idem_status_t status = IDEM_ERR_STORE_UNAVAILABLE;

    /* The short deadlines of some tests are not met on a busy machine while
     * everything is made. */
    for (int tries = 0; tries < TRIES && status == IDEM_ERR_STORE_UNAVAILABLE;
         tries++) {
        status = idem_postgres_store_create(&store, &rig->options, &err);
    }
    ck_assert_msg(status == IDEM_OK, "%s", err.message);
    return store;
}

void store_rig_open(store_rig_t *rig)
{
    rig->store = store_rig_open_other(rig);
    rig->asker = asker_create(rig->store);
}

void store_rig_start(store_rig_t *rig)
{
    store_rig_prepare(rig, test_env("IDEM_TEST_DSN"));
    store_rig_open(rig);
}

void store_rig_finish(store_rig_t *rig)
{
    asker_destroy(rig->asker);
    idem_store_destroy(rig->store);
    if (rig->pg != NULL) {
        database_drop_schema(rig->pg, rig->schema);
        PQfinish(rig->pg);
    }
    memset(rig, 0, sizeof *rig);
}

question_t store_rig_ask(store_rig_t *rig, idemi_op_kind_t kind,
                         const char *key, const char *token)
{
    question_t question;

    question_set(&question, kind, key, token);
    ck_assert_msg(asker_ask(rig->asker, &question, 1, ASK_MS),
                  "no answer for %s", key);
    return question;
}

static void fill(char sql[SQL_BYTES], const store_rig_t *rig,
                 const char *format)
{
    size_t size = 0;

    for (; *format != '\0'; format++) {
        ck_assert_uint_lt(size + sizeof rig->table, SQL_BYTES);
        if (format[0] == '%' && format[1] == 's') {
            size += (size_t)snprintf(sql + size, SQL_BYTES - size, "%s",
                                     rig->table);
            format++;
        } else {
            sql[size++] = *format;
        }
    }
    sql[size] = '\0';
}

void store_rig_exec(store_rig_t *rig, const char *format)
{
    char sql[SQL_BYTES];

    fill(sql, rig, format);
    database_exec(rig->pg, sql);
}

int64_t store_rig_int(store_rig_t *rig, const char *format)
{
    char sql[SQL_BYTES];

    fill(sql, rig, format);
    return database_int(rig->pg, sql);
}

int64_t store_rig_sessions(const store_rig_t *rig, const char *condition)
{
    char sql[SQL_BYTES];

    snprintf(sql, sizeof sql,
             "SELECT count(*) FROM pg_stat_activity WHERE application_name = "
             "'%s' AND %s",
             rig->application, condition);
    return database_int(rig->pg, sql);
}

void store_rig_row(store_rig_t *rig, const char *key, const char *state,
                   const char *owner, int64_t expires_in_ms, int attempts)
{
    char sql[SQL_BYTES];

    snprintf(sql, sizeof sql,
             "INSERT INTO %s (message_id, state, claimed_by, recorded_at, "
             "expires_at, attempts) VALUES ('%s', '%s', %s%s%s, now(), now() "
             "+ %lld * interval '1 ms', %d)",
             rig->table, key, state, owner ? "'" : "", owner ? owner : "NULL",
             owner ? "'" : "", (long long)expires_in_ms, attempts);
    database_exec(rig->pg, sql);
}

char *store_rig_look(store_rig_t *rig, const char *key)
{
    char sql[SQL_BYTES];

    snprintf(sql, sizeof sql,
             "SELECT state || '|' || coalesce(claimed_by, '') || '|' || "
             "attempts || '|' || CASE WHEN expires_at > clock_timestamp() "
             "THEN 't' ELSE 'f' END FROM %s WHERE message_id = '%s'",
             rig->table, key);
    return database_text(rig->pg, sql);
}
