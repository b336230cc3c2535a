#include "store/postgres.h"

#include "base/backoff.h"
#include "base/error.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Serialization failures and deadlocks come in bursts of a few; what still
 * fails after this many tries waits for the store's own back-off. */
#define REPEATS 8
#define REPEAT_MIN_MS 2
#define REPEAT_MAX_MS 100

static idem_status_t open_session(idemi_backend_t *backend,
                                  idemi_session_t **session, idem_error_t *err)
{
    idemi_postgres_t *postgres = (idemi_postgres_t *)backend;
    idemi_postgres_session_t *made = calloc(1, sizeof *made);

    if (!made) {
        return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    }
    made->postgres = postgres;
    idemi_connection_init(&made->connection, &postgres->target,
                          postgres->options.deadline_ms, postgres->limit_ms);
    (void)idemi_random_bytes(&made->random, sizeof made->random);
    made->met_known = true; /* after a crash there will be some */
    *session = (idemi_session_t *)made;
    return IDEM_OK;
}

static void close_session(idemi_session_t *session)
{
    idemi_postgres_session_t *closed = (idemi_postgres_session_t *)session;

    if (!closed) {
        return;
    }
    idemi_connection_finish(&closed->connection);
    for (size_t i = 0; i < sizeof closed->arrays / sizeof *closed->arrays;
         i++) {
        idemi_array_finish(&closed->arrays[i]);
    }
    idemi_purge_walk_finish(&closed->walks[0]);
    idemi_purge_walk_finish(&closed->walks[1]);
    free(closed->sorted);
    free(closed);
}

static void destroy(idemi_backend_t *backend)
{
    idemi_postgres_t *postgres = (idemi_postgres_t *)backend;

    idemi_sql_finish(&postgres->sql);
    idemi_target_finish(&postgres->target);
    free(postgres);
}

static const idemi_backend_table_t table = {
    .open = open_session,
    .close = close_session,
    .execute = idemi_postgres_execute,
    .purge = idemi_postgres_purge,
    .count = idemi_postgres_count,
    .create_schema = idemi_postgres_create_schema,
    .destroy = destroy,
};

static void pause_ms(int64_t ms)
{
    struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000L};

    (void)nanosleep(&left, NULL);
}

idem_status_t idemi_postgres_open(idemi_postgres_session_t *session,
                                  idem_error_t *err)
{
    uint64_t made = session->connection.made;
    idem_status_t status = idemi_connection_open(&session->connection, err);

    if (made != 0 && session->connection.made != made) {
        (void)atomic_fetch_add(&session->postgres->base.reconnects, 1);
    }
    return status;
}

idem_status_t idemi_postgres_exchange(idemi_postgres_session_t *session,
                                      idemi_step_t *steps, size_t count,
                                      bool writes, int64_t timeout_ms,
                                      idem_error_t *err)
{
    idemi_postgres_t *postgres = session->postgres;
    idem_status_t status;
    uint32_t tries = 0;

    for (;;) {
        status = idemi_postgres_open(session, err);
        if (status != IDEM_OK) {
            return status;
        }
        status = idemi_connection_exchange(&session->connection, steps, count,
                                           writes, timeout_ms, err);
        if (status != IDEM_ERR_STORE ||
            idemi_sqlstate_classify(err->sqlstate) != IDEMI_SQLSTATE_REPEAT) {
            return status;
        }
        if (++tries > REPEATS) {
            err->status = IDEM_ERR_STORE_UNAVAILABLE;
            return IDEM_ERR_STORE_UNAVAILABLE;
        }
        (void)atomic_fetch_add(&postgres->base.retries, 1);
        idemi_log(&postgres->logger, IDEM_LOG_DEBUG,
                  "The transaction is repeated. sqlstate=%s try=%u",
                  err->sqlstate, (unsigned)tries);
        pause_ms(idemi_backoff_ms(&session->random, tries, REPEAT_MIN_MS,
                                  REPEAT_MAX_MS));
    }
}

static void number(char text[IDEMI_NUMBER_BYTES], int64_t value)
{
    (void)snprintf(text, IDEMI_NUMBER_BYTES, "%lld", (long long)value);
}

/* Connects, creates the table if asked, and looks at it. */
static idem_status_t prepare(idemi_postgres_t *postgres, idem_error_t *err)
{
    idemi_session_t *session = NULL;
    idem_error_t local;
    idem_status_t status = open_session(&postgres->base, &session, &local);

    if (status == IDEM_OK && postgres->options.create_schema) {
        status =
            idemi_postgres_create_schema(session, IDEM_WAIT_FOREVER, &local);
    }
    if (status == IDEM_OK) {
        status =
            idemi_postgres_check((idemi_postgres_session_t *)session, &local);
    }
    close_session(session);
    if (status != IDEM_OK && err) {
        *err = local;
    }
    return status;
}

idem_status_t idem_postgres_store_create(idem_store_t **store,
                                         const idem_postgres_options_t *options,
                                         idem_error_t *err)
{
    idemi_postgres_t *postgres = NULL;
    idem_status_t status;

    if (!store || !options) {
        return idemi_error(err, IDEM_ERR_ARG, "%s is NULL",
                           store ? "options" : "store");
    }
    postgres = calloc(1, sizeof *postgres);
    if (!postgres) {
        return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    }
    postgres->base.table = &table;
    status = idemi_postgres_options(postgres, options, err);
    if (status != IDEM_OK) {
        goto failed;
    }
    postgres->logger = (idemi_logger_t){postgres->options.log_handler,
                                        postgres->options.log_user,
                                        postgres->options.log_level};
    number(postgres->lease_ms, postgres->options.lease_ms);
    number(postgres->retention_ms, postgres->options.retention_ms);
    number(postgres->limit_ms,
           postgres->options.deadline_ms - postgres->options.deadline_ms / 10);
    status = prepare(postgres, err);
    if (status != IDEM_OK) {
        goto failed;
    }
    idemi_store_config_t config = {
        .renew_ms = postgres->options.renew_ms,
        .purge_interval_ms = postgres->options.purge_interval_ms,
        .lanes = postgres->options.connections,
        .logger = postgres->logger,
    };
    return idemi_store_create(store, &postgres->base, &config, err);

failed:
    destroy(&postgres->base);
    return status;
}
