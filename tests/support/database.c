#include "database.h"

#include "support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SQL_BYTES = 1024 };

PGconn *database_open(const char *dsn)
{
    PGconn *connection = PQconnectdb(dsn);

    ck_assert_msg(PQstatus(connection) == CONNECTION_OK, "database: %s",
                  PQerrorMessage(connection));
    return connection;
}

static PGresult *run(PGconn *connection, const char *sql)
{
    PGresult *result = PQexec(connection, sql);
    ExecStatusType status = PQresultStatus(result);

    ck_assert_msg(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK,
                  "database: %s: %s", sql, PQerrorMessage(connection));
    return result;
}

void database_exec(PGconn *connection, const char *sql)
{
    PQclear(run(connection, sql));
}

char *database_text(PGconn *connection, const char *sql)
{
    PGresult *result = run(connection, sql);
    char *text = NULL;

    if (PQntuples(result) > 0 && !PQgetisnull(result, 0, 0)) {
        text = strdup(PQgetvalue(result, 0, 0));
        ck_assert_ptr_nonnull(text);
    }
    PQclear(result);
    return text;
}

int64_t database_int(PGconn *connection, const char *sql)
{
    char *text = database_text(connection, sql);
    int64_t number = text != NULL ? strtoll(text, NULL, 10) : -1;

    free(text);
    return number;
}

typedef struct question {
    PGconn *connection;
    const char *sql;
    int64_t wanted, last;
} question_t;

static bool is_answered(void *user)
{
    question_t *question = user;

    question->last = database_int(question->connection, question->sql);
    return question->last == question->wanted;
}

bool database_wait_int(PGconn *connection, const char *sql, int64_t number,
                       int64_t timeout_ms)
{
    question_t question = {
        .connection = connection, .sql = sql, .wanted = number};
    bool holds = test_wait(is_answered, &question, timeout_ms);

    if (!holds) {
        fprintf(stderr, "database: %s: %lld, not %lld\n", sql,
                (long long)question.last, (long long)number);
    }
    return holds;
}

void database_create_schema(PGconn *connection, char *name, size_t size)
{
    char sql[SQL_BYTES];

    test_unique(name, size, "test");
    snprintf(sql, sizeof sql, "CREATE SCHEMA %s", name);
    database_exec(connection, sql);
}

void database_drop_schema(PGconn *connection, const char *name)
{
    char sql[SQL_BYTES];

    snprintf(sql, sizeof sql,
             "SET client_min_messages = warning; DROP SCHEMA %s CASCADE", name);
    database_exec(connection, sql);
}

char *database_dsn_via(const char *dsn, int port)
{
    /* In a connection string the last value of a name counts. */
    size_t size = strlen(dsn) + 64;
    char *via = malloc(size);

    ck_assert_ptr_nonnull(via);
    snprintf(via, size, "%s host=127.0.0.1 port=%d", dsn, port);
    return via;
}

int database_port(const char *dsn)
{
    PQconninfoOption *options = PQconninfoParse(dsn, NULL);
    int port = 0;

    ck_assert_ptr_nonnull(options);
    for (PQconninfoOption *option = options; option->keyword != NULL;
         option++) {
        if (strcmp(option->keyword, "port") == 0 && option->val != NULL) {
            port = atoi(option->val);
        }
    }
    PQconninfoFree(options);
    return port;
}

int64_t database_terminate(PGconn *connection, const char *application_name)
{
    char sql[SQL_BYTES];

    snprintf(sql, sizeof sql,
             "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
             " WHERE application_name = '%s' AND pid <> pg_backend_pid()",
             application_name);
    return database_int(connection, sql);
}
