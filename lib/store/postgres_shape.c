#include "store/postgres.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The check at start: a table that could not work says so here, in one
 * sentence that names what to change, and not at the first message. */

/* Reads tids in ranges without a scan (14), which the purge needs. */
#define SERVER_VERSION 140000

typedef struct column {
    const char *name;
    const char *types; /* accepted, each with a comma behind */
    int characters;    /* of a text, at least; 0: it is none */
    bool is_optional;
    bool is_key;
} column_t;

static const char timestamps[] =
    "timestamp with time zone,timestamp without time zone,";

static const column_t columns[] = {
    {"message_id", "", 255, false, true},
    {"state", "", 16, false, false},
    {"claimed_by", "", 64, false, false},
    {"recorded_at", timestamps, 0, false, false},
    {"expires_at", timestamps, 0, false, false},
    {"attempts", "integer,", 0, true, false},
};
#define COLUMNS (sizeof columns / sizeof *columns)

static bool is_true(const PGresult *rows, int row, int field)
{
    return !PQgetisnull(rows, row, field) &&
           PQgetlength(rows, row, field) == 1 &&
           PQgetvalue(rows, row, field)[0] != 0;
}

/* Asks one question about the table. */
static idem_status_t ask(idemi_postgres_session_t *session, const char *sql,
                         const char *parameter, idemi_step_t *step,
                         idem_error_t *err)
{
    *step = (idemi_step_t){.sql = sql};
    idemi_step_text(step, IDEMI_OID_TEXT, parameter);
    return idemi_postgres_exchange(session, step, 1, false,
                                   session->postgres->options.deadline_ms, err);
}

static idem_status_t find_table(idemi_postgres_session_t *session,
                                idem_error_t *err)
{
    idemi_postgres_t *postgres = session->postgres;
    idemi_step_t step;
    idem_status_t status =
        ask(session, idemi_sql_find_table, postgres->named, &step, err);

    if (status != IDEM_OK) {
        return status;
    }
    if (PQntuples(step.result) == 0) {
        status = idemi_error(err, IDEM_ERR_STORE,
                             "table %s does not exist: create it from "
                             "idem_message.sql, set create_schema, or mend "
                             "the name (its case counts)",
                             postgres->named);
    } else if (!strchr("rp", PQgetvalue(step.result, 0, 3)[0])) {
        status = idemi_error(err, IDEM_ERR_STORE,
                             "%s is no table: name a table", postgres->named);
    } else if (!idemi_sql_quote(postgres->shape.table,
                                PQgetvalue(step.result, 0, 1),
                                PQgetvalue(step.result, 0, 2))) {
        status = idemi_error(err, IDEM_ERR_STORE,
                             "the schema of %s has too long a name",
                             postgres->named);
    } else {
        (void)snprintf(postgres->oid, sizeof postgres->oid, "%s",
                       PQgetvalue(step.result, 0, 0));
    }
    idemi_steps_clear(&step, 1);
    return status;
}

static int row_of(const PGresult *rows, const char *name)
{
    for (int i = 0; i < PQntuples(rows); i++) {
        if (strcmp(PQgetvalue(rows, i, 0), name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Whether type, such as "integer", is in a list such as "integer,text,". */
static bool is_listed(const char *types, const char *type)
{
    size_t size = strlen(type);

    for (; *types; types = strchr(types, ',') + 1) {
        if (strncmp(types, type, size) == 0 && types[size] == ',') {
            return true;
        }
    }
    return false;
}

/* Whether type is a text that has room for so many characters. */
static bool has_room(const char *type, int characters)
{
    static const char varying[] = "character varying";

    if (strncmp(type, varying, sizeof varying - 1) == 0) {
        type += sizeof varying - 1;
        return *type == '\0' || strtol(type + 1, NULL, 10) >= characters;
    }
    return strcmp(type, "text") == 0;
}

static idem_status_t wrong_type(const idemi_postgres_t *postgres,
                                const column_t *column, const char *type,
                                idem_error_t *err)
{
    if (column->characters > 0) {
        return idemi_error(err, IDEM_ERR_STORE,
                           "column %s of table %s is %s: make it character "
                           "varying(%d)",
                           column->name, postgres->named, type,
                           column->characters);
    }
    return idemi_error(err, IDEM_ERR_STORE,
                       "column %s of table %s is %s: make it %.*s",
                       column->name, postgres->named, type,
                       (int)strcspn(column->types, ","), column->types);
}

static bool is_ours(const char *name)
{
    for (size_t i = 0; i < COLUMNS; i++) {
        if (strcmp(columns[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static idem_status_t check_column(const idemi_postgres_t *postgres,
                                  const column_t *column, const PGresult *rows,
                                  int row, idem_error_t *err)
{
    const char *type;

    if (row < 0) {
        return column->is_optional
                   ? IDEM_OK
                   : idemi_error(err, IDEM_ERR_STORE,
                                 "table %s has no column %s: see "
                                 "idem_message.sql",
                                 postgres->named, column->name);
    }
    type = PQgetvalue(rows, row, 1);
    if (column->characters > 0 ? !has_room(type, column->characters)
                               : !is_listed(column->types, type)) {
        return wrong_type(postgres, column, type, err);
    }
    if (column->is_key && !is_true(rows, row, 5)) {
        return idemi_error(err, IDEM_ERR_STORE,
                           "column %s of table %s has the nondeterministic "
                           "collation \"%s\", under which two ids could be "
                           "one key: give it COLLATE \"C\"",
                           column->name, postgres->named,
                           PQgetvalue(rows, row, 4));
    }
    /* What confirm, release and takeover set to null. */
    if (strcmp(column->name, "claimed_by") == 0 && is_true(rows, row, 2)) {
        return idemi_error(err, IDEM_ERR_STORE,
                           "column claimed_by of table %s is not null: drop "
                           "that, since a confirmed key has no owner",
                           postgres->named);
    }
    return IDEM_OK;
}

static idem_status_t check_columns(idemi_postgres_session_t *session,
                                   idem_error_t *err)
{
    idemi_postgres_t *postgres = session->postgres;
    idemi_step_t step;
    int rows_of[COLUMNS];
    idem_status_t status =
        ask(session, idemi_sql_columns, postgres->oid, &step, err);

    if (status != IDEM_OK) {
        return status;
    }
    for (size_t i = 0; status == IDEM_OK && i < COLUMNS; i++) {
        rows_of[i] = row_of(step.result, columns[i].name);
        status =
            check_column(postgres, &columns[i], step.result, rows_of[i], err);
    }
    for (int i = 0; status == IDEM_OK && i < PQntuples(step.result); i++) {
        const char *name = PQgetvalue(step.result, i, 0);
        bool is_written = is_ours(name) && strcmp(name, "attempts") != 0;
        if (!is_written && is_true(step.result, i, 2) &&
            !is_true(step.result, i, 3)) {
            status = idemi_error(err, IDEM_ERR_STORE,
                                 "column %s of table %s is not null and has "
                                 "no default, so that no claim could be "
                                 "written: give it one",
                                 name, postgres->named);
        }
    }
    if (status == IDEM_OK) {
        const char *recorded = PQgetvalue(step.result, rows_of[3], 1);
        const char *expires = PQgetvalue(step.result, rows_of[4], 1);
        postgres->shape.has_attempts = rows_of[COLUMNS - 1] >= 0;
        postgres->shape.has_zone = strstr(expires, "with time") != NULL;
        if (strcmp(recorded, expires) != 0) {
            status = idemi_error(err, IDEM_ERR_STORE,
                                 "columns recorded_at and expires_at of table "
                                 "%s have different types: make both "
                                 "timestamp with time zone",
                                 postgres->named);
        }
    }
    idemi_steps_clear(&step, 1);
    return status;
}

static idem_status_t check_rights(idemi_postgres_session_t *session,
                                  idem_error_t *err)
{
    static const char *const rights[] = {"SELECT", "INSERT", "UPDATE",
                                         "DELETE"};
    idemi_postgres_t *postgres = session->postgres;
    char missing[64] = "";
    idemi_step_t step;
    idem_status_t status =
        ask(session, idemi_sql_rights, postgres->oid, &step, err);

    if (status != IDEM_OK) {
        return status;
    }
    postgres->is_strict = is_true(step.result, 0, 10);
    for (int i = 0; i < 4; i++) {
        if (!is_true(step.result, 0, i)) {
            size_t size = strlen(missing);
            (void)snprintf(missing + size, sizeof missing - size, "%s%s",
                           size ? ", " : "", rights[i]);
        }
    }
    if (idemi_get_int4(PQgetvalue(step.result, 0, 7)) < SERVER_VERSION) {
        status = idemi_error(err, IDEM_ERR_STORE,
                             "the server is PostgreSQL %s: 14 or newer is "
                             "needed",
                             PQgetvalue(step.result, 0, 8));
    } else if (missing[0] != '\0') {
        status = idemi_error(err, IDEM_ERR_STORE,
                             "role %s may not do all that is needed: GRANT %s "
                             "ON %s",
                             PQgetvalue(step.result, 0, 9), missing,
                             postgres->shape.table);
        (void)memcpy(err->sqlstate, "42501", sizeof "42501");
    } else if (is_true(step.result, 0, 4) || is_true(step.result, 0, 5)) {
        status = idemi_error(err, IDEM_ERR_STORE_UNAVAILABLE,
                             "the server is %s: connect to the primary; with "
                             "several hosts target_session_attrs=read-write "
                             "finds it",
                             is_true(step.result, 0, 4)
                                 ? "a standby"
                                 : "read-only (default_transaction_read_only)");
        (void)memcpy(err->sqlstate, "25006", sizeof "25006");
    } else {
        const char *encoding = PQgetvalue(step.result, 0, 6);
        if (strcmp(encoding, "UTF8") != 0 &&
            strcmp(encoding, "SQL_ASCII") != 0) {
            idemi_log(&postgres->logger, IDEM_LOG_WARNING,
                      "The database cannot hold every key: those with "
                      "characters outside its encoding are refused. "
                      "encoding=%s",
                      encoding);
        }
    }
    idemi_steps_clear(&step, 1);
    return status;
}

static idem_status_t check_arbiter(idemi_postgres_session_t *session,
                                   bool *found, idem_error_t *err)
{
    idemi_step_t step;
    idem_status_t status =
        ask(session, idemi_sql_arbiters, session->postgres->oid, &step, err);

    if (status == IDEM_OK) {
        *found = PQntuples(step.result) > 0;
        idemi_steps_clear(&step, 1);
    }
    return status;
}

static idem_status_t check_indexes(idemi_postgres_session_t *session,
                                   idem_error_t *err)
{
    const idemi_postgres_t *postgres = session->postgres;
    idemi_step_t step;
    bool found = false;
    idem_status_t status = check_arbiter(session, &found, err);

    if (status == IDEM_OK) {
        status =
            ask(session, idemi_sql_other_indexes, postgres->oid, &step, err);
    }
    if (status != IDEM_OK) {
        return status;
    }
    if (!found) {
        status = idemi_error(err, IDEM_ERR_STORE,
                             "table %s has no unique key of message_id alone: "
                             "ALTER TABLE %s ADD PRIMARY KEY (message_id)",
                             postgres->named, postgres->shape.table);
    }
    for (int i = 0; i < PQntuples(step.result); i++) {
        const char *name = PQgetvalue(step.result, i, 0);
        if (is_true(step.result, i, 2) && !found) {
            status = idemi_error(err, IDEM_ERR_STORE,
                                 "unique index %s of table %s is deferrable, "
                                 "partial or invalid and cannot decide who "
                                 "claims a key: make it a plain primary key",
                                 name, postgres->named);
        } else if (is_true(step.result, i, 1) && !is_true(step.result, i, 2) &&
                   status == IDEM_OK) {
            status = idemi_error(err, IDEM_ERR_STORE,
                                 "table %s has the further unique index %s, "
                                 "which would make claims fail (23505): drop "
                                 "it",
                                 postgres->named, name);
        } else if (is_true(step.result, i, 3)) {
            idemi_log(&postgres->logger, IDEM_LOG_WARNING,
                      "An index names state, claimed_by or expires_at, so "
                      "that every confirm writes to all indexes (no HOT "
                      "update): drop it if it can be spared. index=%s",
                      name);
        }
    }
    idemi_steps_clear(&step, 1);
    return status;
}

static void warn(const idemi_postgres_t *postgres)
{
    if (!postgres->shape.has_attempts) {
        idemi_log(&postgres->logger, IDEM_LOG_WARNING,
                  "The table has no column attempts: attempts are not "
                  "counted, and max_attempts has no effect. table=%s",
                  postgres->shape.table);
    }
    if (!postgres->shape.has_zone) {
        idemi_log(&postgres->logger, IDEM_LOG_WARNING,
                  "The table's timestamps have no time zone and are taken to "
                  "be UTC: whoever shares it must write UTC too. table=%s",
                  postgres->shape.table);
    }
}

idem_status_t idemi_postgres_check(idemi_postgres_session_t *session,
                                   idem_error_t *err)
{
    idemi_postgres_t *postgres = session->postgres;
    idem_status_t status = find_table(session, err);

    if (status == IDEM_OK) {
        status = check_columns(session, err);
    }
    if (status == IDEM_OK) {
        status = check_indexes(session, err);
    }
    if (status == IDEM_OK) {
        status = check_rights(session, err);
    }
    if (status == IDEM_OK &&
        !idemi_sql_init(&postgres->sql, &postgres->shape)) {
        status = idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    }
    if (status == IDEM_OK) {
        warn(postgres);
    }
    return status;
}
