#include "store/postgres.h"

#include "base/error.h"
#include "base/options.h"

#include <stddef.h>
#include <string.h>

#define DAY_MS (INT64_C(24) * 60 * 60 * 1000)

/* 100 years: longer ones would overflow a timestamp or are mistakes. */
#define LONGEST_MS (INT64_C(36525) * DAY_MS)

/* poll() and statement_timeout take an int. */
#define DEADLINE_MAX_MS (INT64_C(24) * 60 * 60 * 1000)

#define CONNECTIONS_MAX 16

void idem_postgres_options_init_sized(idem_postgres_options_t *options,
                                      size_t size)
{
    const idem_postgres_options_t defaults = {
        .struct_size = sizeof defaults,
        .table = "idem_message",
        .lease_ms = 30000,
        .retention_ms = 7 * DAY_MS,
        .purge_interval_ms = 60000,
        .deadline_ms = 10000,
        .connections = 2,
        .log_handler = idem_log_to_stderr,
        .log_level = IDEM_LOG_WARNING,
    };

    idemi_options_init(options, size, &defaults, sizeof defaults);
}

static idem_status_t check_durations(const idem_postgres_options_t *o,
                                     idem_error_t *err)
{
    if (o->lease_ms < 1000 || o->lease_ms > LONGEST_MS) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "lease_ms is %lld: give at least 1000",
                           (long long)o->lease_ms);
    }
    if (o->renew_ms < 0 || o->renew_ms > o->lease_ms / 3) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "renew_ms is %lld: give 1 to %lld, a third of "
                           "lease_ms, or 0 for just that",
                           (long long)o->renew_ms,
                           (long long)(o->lease_ms / 3));
    }
    if (o->retention_ms < o->lease_ms || o->retention_ms > LONGEST_MS) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "retention_ms is %lld: give at least lease_ms, "
                           "%lld, and at most 100 years",
                           (long long)o->retention_ms, (long long)o->lease_ms);
    }
    if (o->purge_interval_ms < 0 || o->purge_interval_ms > LONGEST_MS) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "purge_interval_ms is %lld: give a positive "
                           "interval, or 0 for no timer",
                           (long long)o->purge_interval_ms);
    }
    if (o->deadline_ms < 100 || o->deadline_ms > DEADLINE_MAX_MS) {
        return idemi_error(
            err, IDEM_ERR_ARG, "deadline_ms is %lld: give 100 to %lld",
            (long long)o->deadline_ms, (long long)DEADLINE_MAX_MS);
    }
    return IDEM_OK;
}

static idem_status_t check_table(const char *table, idem_error_t *err)
{
    if (!table || !*table) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "table is %s: give `table` or `schema.table`",
                           table ? "empty" : "NULL");
    }
    if (!idemi_sql_is_table_name(table)) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "table is \"%.150s\": give `table` or "
                           "`schema.table`, each part letters, digits and "
                           "underscores, not beginning with a digit, of at "
                           "most %d bytes",
                           table, IDEMI_SQL_NAME_BYTES);
    }
    return IDEM_OK;
}

idem_status_t idemi_postgres_options(idemi_postgres_t *postgres,
                                     const idem_postgres_options_t *options,
                                     idem_error_t *err)
{
    idem_postgres_options_t *o = &postgres->options;
    idem_status_t status;

    idem_postgres_options_init(o);
    if (!idemi_options_read(o, sizeof *o, options,
                            offsetof(idem_postgres_options_t, log_level) +
                                sizeof o->log_level)) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "struct_size is %zu: the options were not "
                           "initialised, or have fields of a newer idem; call "
                           "idem_postgres_options_init() first",
                           options->struct_size);
    }
    status = check_table(o->table, err);
    if (status == IDEM_OK) {
        status = check_durations(o, err);
    }
    if (status != IDEM_OK) {
        return status;
    }
    if (o->connections < 1 || o->connections > CONNECTIONS_MAX) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "connections is %lu: give 1 to %d",
                           (unsigned long)o->connections, CONNECTIONS_MAX);
    }
    if (!o->conninfo) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "conninfo is NULL: give a libpq connection string, "
                           "or \"\" for libpq's environment variables");
    }
    if (o->log_level < IDEM_LOG_OFF || o->log_level > IDEM_LOG_DEBUG) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "log_level is %d: give IDEM_LOG_OFF to "
                           "IDEM_LOG_DEBUG",
                           (int)o->log_level);
    }
    if (o->renew_ms == 0) {
        o->renew_ms = o->lease_ms / 3;
    }
    idemi_sql_quote_name(postgres->named, o->table);
    return idemi_target_init(&postgres->target, o->conninfo, o->deadline_ms,
                             err);
}
