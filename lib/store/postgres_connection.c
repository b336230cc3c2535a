#include "store/postgres_connection.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "store/postgres_array.h"
#include "store/postgres_sql.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* A prepared statement that is not there, or is there already: a pooler that
 * shows its servers as they are hands them from one to the other. */
static bool is_of_names(const char *sqlstate)
{
    return strcmp(sqlstate, "26000") == 0 || strcmp(sqlstate, "42P05") == 0;
}

idemi_sqlstate_class_t idemi_sqlstate_classify(const char *sqlstate)
{
    /* 08: connection exceptions; 08P01 is what PgBouncer says when it lost its
     * server. 57P01 to 57P05: the server goes down or ends the session. 25006:
     * it has become a standby or was set read-only; another host, or the same
     * one later, may be the primary. */
    if (strncmp(sqlstate, "08", 2) == 0 || strncmp(sqlstate, "57P", 3) == 0 ||
        strcmp(sqlstate, "25006") == 0) {
        return IDEMI_SQLSTATE_RECONNECT;
    }
    if (strcmp(sqlstate, "40001") == 0 || strcmp(sqlstate, "40P01") == 0) {
        return IDEMI_SQLSTATE_REPEAT;
    }
    /* 40002 is an integrity constraint. 53: out of memory, disk or slots; 55:
     * a lock that is not to be had; 57014: statement_timeout; 58: system
     * errors. */
    if (strncmp(sqlstate, "53", 2) == 0 || strcmp(sqlstate, "55P03") == 0 ||
        strcmp(sqlstate, "55006") == 0 || strcmp(sqlstate, "57014") == 0 ||
        strncmp(sqlstate, "58", 2) == 0 || strcmp(sqlstate, "40003") == 0) {
        return IDEMI_SQLSTATE_BUSY;
    }
    return IDEMI_SQLSTATE_REFUSED;
}

void idemi_connection_init(idemi_connection_t *connection,
                           const idemi_target_t *target, int64_t deadline_ms,
                           const char *limit_ms)
{
    connection->target = target;
    connection->limit_ms = limit_ms;
    connection->deadline_ms = deadline_ms;
    connection->end_ms = INT64_MAX;
    connection->pg = NULL;
    connection->is_own = false;
    connection->is_shared = false;
    connection->prepared = 0;
    connection->name = 0;
    connection->made = 0;
    connection->sent_at_ms = 0;
}

/* Closes without a word that would need the peer: PQcancel could block. */
static void drop(idemi_connection_t *connection)
{
    PQfinish(connection->pg);
    connection->pg = NULL;
}

void idemi_connection_finish(idemi_connection_t *connection)
{
    drop(connection);
}

static void no_notice(void *user, const PGresult *result)
{
    (void)user;
    (void)result;
}

/* libpq's text without its line breaks at the end. It never holds the
 * password. */
static int text_size(const char *text)
{
    size_t size = strlen(text);

    while (size > 0 && text[size - 1] == '\n') {
        size--;
    }
    return size > 400 ? 400 : (int)size;
}

/* 1: ready; 0: the time is up; -1: the socket is broken. */
static int wait_socket(PGconn *pg, short events, int64_t end_ms)
{
    struct pollfd socket = {.fd = PQsocket(pg), .events = events};

    for (;;) {
        int timeout = -1;
        if (end_ms != INT64_MAX) {
            int64_t left = end_ms - idemi_now_ms();
            if (left <= 0) {
                return 0;
            }
            timeout = left > INT_MAX ? INT_MAX : (int)left;
        }
        int ready = poll(&socket, 1, timeout);
        if (ready > 0) {
            return 1;
        }
        if (ready < 0 && errno != EINTR) {
            return -1;
        }
    }
}

/* The end of a wait for so long; negative: without limit of its own. */
static int64_t end_of(const idemi_connection_t *connection, int64_t now_ms,
                      int64_t timeout_ms)
{
    return timeout_ms >= 0 && timeout_ms < connection->end_ms - now_ms
               ? now_ms + timeout_ms
               : connection->end_ms;
}

static idem_status_t connect_to(idemi_connection_t *connection, size_t host,
                                idem_error_t *err)
{
    int64_t start_ms = idemi_now_ms();
    int64_t end_ms = end_of(connection, start_ms, connection->deadline_ms);
    PostgresPollingStatusType want = PGRES_POLLING_WRITING;
    PGconn *pg = idemi_target_connect(connection->target, host);

    if (!pg) {
        return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    }
    (void)PQsetNoticeReceiver(pg, no_notice, NULL);
    if (PQstatus(pg) == CONNECTION_BAD) {
        want = PGRES_POLLING_FAILED;
    }
    while (want == PGRES_POLLING_READING || want == PGRES_POLLING_WRITING) {
        /* The socket may be another one after each step. */
        int ready = wait_socket(
            pg, want == PGRES_POLLING_READING ? POLLIN : POLLOUT, end_ms);
        if (ready == 0) {
            const char *name = PQhost(pg);
            idem_status_t status = idemi_error(
                err, IDEM_ERR_STORE_UNAVAILABLE,
                "no connection to PostgreSQL at \"%s\", port %s, within %lld "
                "ms",
                name ? name : "", PQport(pg) ? PQport(pg) : "",
                (long long)(end_ms - start_ms));
            PQfinish(pg);
            return status;
        }
        want = PQconnectPoll(pg);
    }
    if (want != PGRES_POLLING_OK || PQsetnonblocking(pg, 1) != 0 ||
        PQenterPipelineMode(pg) != 1) {
        const char *text = PQerrorMessage(pg);
        idem_status_t status = idemi_error(err, IDEM_ERR_STORE_UNAVAILABLE,
                                           "no connection to PostgreSQL: %.*s",
                                           text_size(text), text);
        PQfinish(pg);
        return status;
    }
    connection->pg = pg;
    connection->is_own = false;
    connection->prepared = 0;
    if (!idemi_random_bytes(&connection->name, sizeof connection->name)) {
        connection->is_shared = true; /* then nothing is prepared */
    }
    connection->made++;
    return IDEM_OK;
}

void idemi_step_binary(idemi_step_t *step, Oid type, const void *bytes,
                       size_t size)
{
    assert(step->parameters < IDEMI_STEP_PARAMETERS && size <= INT_MAX);
    step->types[step->parameters] = type;
    step->values[step->parameters] = bytes;
    step->lengths[step->parameters] = (int)size;
    step->formats[step->parameters++] = 1;
}

void idemi_step_text(idemi_step_t *step, Oid type, const char *text)
{
    assert(step->parameters < IDEMI_STEP_PARAMETERS);
    step->types[step->parameters] = type;
    step->values[step->parameters] = text;
    step->lengths[step->parameters] = 0;
    step->formats[step->parameters++] = 0;
}

void idemi_steps_clear(idemi_step_t *steps, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        PQclear(steps[i].result);
        steps[i].result = NULL;
    }
}

/* How a pipeline stands. */
typedef struct exchange {
    idemi_connection_t *connection;
    idemi_step_t *steps;
    size_t count;
    size_t skip;       /* results to ignore first: of our ROLLBACK */
    size_t next;       /* the step whose result comes next */
    uint32_t prepared; /* what was prepared before */
    bool synced;
    bool failed; /* the first error is in err */
    bool rolled_back;
    idem_error_t *err;
} exchange_t;

static uint32_t bit_of(const idemi_step_t *step)
{
    assert(step->number < IDEMI_STEP_NUMBERS);
    return step->number > 0 ? UINT32_C(1) << step->number : 0;
}

/* A number stands in a pipeline once: twice, unprepared, it would be parsed
 * twice. */
static bool send_step(idemi_connection_t *connection, idemi_step_t *step)
{
    PGconn *pg = connection->pg;
    char name[64];

    if (step->number == 0 || !connection->is_own) {
        return PQsendQueryParams(pg, step->sql, step->parameters, step->types,
                                 step->values, step->lengths, step->formats,
                                 1) == 1;
    }
    (void)snprintf(name, sizeof name, "idem_%016" PRIx64 "_%u",
                   connection->name, step->number);
    if (!(connection->prepared & bit_of(step))) {
        step->is_preparing = true;
        if (!PQsendPrepare(pg, name, step->sql, step->parameters,
                           step->types)) {
            return false;
        }
    }
    return PQsendQueryPrepared(pg, name, step->parameters, step->values,
                               step->lengths, step->formats, 1) == 1;
}

static bool send_all(exchange_t *exchange)
{
    PGconn *pg = exchange->connection->pg;

    /* What an error left behind is cleared first; outside a transaction it
     * would only be a warning, so it is said only when needed. */
    if (PQtransactionStatus(pg) != PQTRANS_IDLE) {
        exchange->skip = 1;
        if (!PQsendQueryParams(pg, "ROLLBACK", 0, NULL, NULL, NULL, NULL, 1)) {
            return false;
        }
    }
    for (size_t i = 0; i < exchange->count; i++) {
        if (!send_step(exchange->connection, &exchange->steps[i])) {
            return false;
        }
    }
    return PQpipelineSync(pg) == 1;
}

static void take_error(exchange_t *exchange, const PGresult *result)
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

    if (!text) {
        text = PQresultErrorMessage(result);
    }
    (void)idemi_error(exchange->err, IDEM_ERR_STORE, "PostgreSQL says: %.*s",
                      text_size(text), text);
    if (sqlstate && strlen(sqlstate) < sizeof exchange->err->sqlstate) {
        memcpy(exchange->err->sqlstate, sqlstate, strlen(sqlstate) + 1);
    }
    exchange->failed = true;
}

/* True when the step is through. */
static bool take_success(exchange_t *exchange, PGresult *result)
{
    idemi_step_t *step = &exchange->steps[exchange->next];

    if (step->is_preparing) {
        step->is_preparing = false;
        exchange->connection->prepared |= bit_of(step);
        return false;
    }
    /* The COMMIT of a transaction that had failed succeeds, and is called
     * ROLLBACK. */
    if (step->is_commit && strcmp(PQcmdStatus(result), "COMMIT") != 0) {
        exchange->rolled_back = true;
    }
    step->result = result;
    exchange->next++;
    return true;
}

/* Takes one result, which is not NULL. */
static void take_result(exchange_t *exchange, PGresult *result)
{
    switch (PQresultStatus(result)) {
    case PGRES_PIPELINE_SYNC:
        exchange->synced = true;
        break;
    case PGRES_PIPELINE_ABORTED:
        break;
    case PGRES_TUPLES_OK:
    case PGRES_COMMAND_OK:
        if (exchange->skip > 0) {
            exchange->skip--;
        } else if (exchange->next < exchange->count &&
                   take_success(exchange, result)) {
            return;
        }
        break;
    default:
        if (!exchange->failed) {
            take_error(exchange, result);
        }
        break;
    }
    PQclear(result);
}

typedef enum outcome { OUTCOME_DONE, OUTCOME_LOST, OUTCOME_TIMEOUT } outcome_t;

static outcome_t receive_all(exchange_t *exchange, int64_t end_ms)
{
    PGconn *pg = exchange->connection->pg;

    for (;;) {
        int unsent = PQflush(pg);
        if (unsent < 0) {
            /* What the server said before it went may still be there. */
            (void)PQconsumeInput(pg);
        }
        while (!PQisBusy(pg)) {
            PGresult *result = PQgetResult(pg);
            if (result) {
                take_result(exchange, result);
            }
            if (exchange->synced) {
                return OUTCOME_DONE;
            }
            if (PQstatus(pg) == CONNECTION_BAD) {
                return OUTCOME_LOST;
            }
        }
        if (unsent < 0) {
            return OUTCOME_LOST;
        }
        int ready =
            wait_socket(pg, (short)(POLLIN | (unsent ? POLLOUT : 0)), end_ms);
        if (ready == 0) {
            return OUTCOME_TIMEOUT;
        }
        if (ready < 0 || !PQconsumeInput(pg)) {
            /* A server that goes down says so first: 57P01. */
            while (!exchange->failed && !PQisBusy(pg)) {
                PGresult *result = PQgetResult(pg);
                if (!result) {
                    break;
                }
                take_result(exchange, result);
            }
            return OUTCOME_LOST;
        }
    }
}

static idem_status_t lost(const exchange_t *exchange, bool writes,
                          outcome_t outcome, int64_t timeout_ms)
{
    idemi_connection_t *connection = exchange->connection;
    idem_status_t status =
        writes ? IDEM_ERR_COMMIT_UNKNOWN : IDEM_ERR_STORE_UNAVAILABLE;
    idem_error_t *err = exchange->err;

    if (exchange->failed) {
        err->status = status;
    } else if (outcome == OUTCOME_TIMEOUT) {
        (void)idemi_error(err, status,
                          "no answer from PostgreSQL within %lld ms",
                          (long long)timeout_ms);
    } else {
        const char *text = PQerrorMessage(connection->pg);
        (void)idemi_error(err, status,
                          "the connection to PostgreSQL was lost: %.*s",
                          text_size(text), text);
    }
    drop(connection);
    return status;
}

/* It was rolled back, but for what a COMMIT before the error had made last;
 * who repeats it finds that by its tokens. */
static idem_status_t refused(const exchange_t *exchange)
{
    idemi_connection_t *connection = exchange->connection;
    const char *sqlstate = exchange->err->sqlstate;

    /* "Cached plan must not change result type", after an ALTER TABLE: what
     * is prepared is of no use any more. What was prepared just now is not
     * meant: then a trigger says so, or a partition's. */
    if (strcmp(sqlstate, "0A000") == 0 && exchange->next < exchange->count &&
        (exchange->prepared & bit_of(&exchange->steps[exchange->next]))) {
        drop(connection);
        return IDEM_ERR_STORE_UNAVAILABLE;
    }
    if (is_of_names(sqlstate) && connection->is_own) {
        connection->is_shared = true;
        drop(connection);
        return IDEM_ERR_STORE_UNAVAILABLE;
    }
    switch (idemi_sqlstate_classify(sqlstate)) {
    case IDEMI_SQLSTATE_RECONNECT:
        drop(connection);
        return IDEM_ERR_STORE_UNAVAILABLE;
    case IDEMI_SQLSTATE_BUSY:
        return IDEM_ERR_STORE_UNAVAILABLE;
    case IDEMI_SQLSTATE_REPEAT:
    case IDEMI_SQLSTATE_REFUSED:
        break;
    }
    return IDEM_ERR_STORE;
}

/* As idemi_connection_exchange(), on a connection that is there. */
static idem_status_t exchange_steps(idemi_connection_t *connection,
                                    idemi_step_t *steps, size_t count,
                                    bool writes, int64_t timeout_ms,
                                    idem_error_t *err)
{
    exchange_t exchange = {.connection = connection,
                           .steps = steps,
                           .count = count,
                           .prepared = connection->prepared,
                           .err = err};
    idem_status_t status = IDEM_OK;
    outcome_t outcome;

    assert(err);
    for (size_t i = 0; i < count; i++) {
        steps[i].result = NULL;
        steps[i].is_preparing = false;
    }
    outcome = OUTCOME_LOST;
    connection->sent_at_ms = idemi_now_ms();
    if (send_all(&exchange)) {
        outcome = receive_all(
            &exchange, end_of(connection, connection->sent_at_ms, timeout_ms));
    }
    if (outcome != OUTCOME_DONE) {
        status = lost(&exchange, writes, outcome, timeout_ms);
    } else if (exchange.failed) {
        status = err->status = refused(&exchange);
    } else if (exchange.rolled_back) {
        status = idemi_error(err, IDEM_ERR_STORE_UNAVAILABLE,
                             "PostgreSQL rolled the transaction back at its "
                             "COMMIT");
    } else {
        for (size_t i = 0; i < count; i++) {
            assert(steps[i].result);
        }
    }
    if (status != IDEM_OK) {
        idemi_steps_clear(steps, count);
    }
    return status;
}

/* Sets limits for the whole session, where it is ours alone. */
static idem_status_t limit_session(idemi_connection_t *connection,
                                   idem_error_t *err)
{
    idemi_step_t step = {.sql = idemi_sql_session};
    char process[24];
    idem_status_t status;

    if (connection->is_shared) {
        return IDEM_OK; /* it would hold for strangers */
    }
    (void)snprintf(process, sizeof process, "%d", PQbackendPID(connection->pg));
    idemi_step_text(&step, IDEMI_OID_INT4, process);
    idemi_step_text(&step, IDEMI_OID_TEXT, connection->limit_ms);
    status = exchange_steps(connection, &step, 1, false,
                            connection->deadline_ms, err);
    if (status == IDEM_OK) {
        connection->is_own = PQgetisnull(step.result, 0, 0) == 0;
        idemi_steps_clear(&step, 1);
    } else if (connection->pg) {
        drop(connection);
    }
    return status;
}

idem_status_t idemi_connection_open(idemi_connection_t *connection,
                                    idem_error_t *err)
{
    idem_status_t status = IDEM_OK;

    for (size_t i = 0; !connection->pg && i < connection->target->hosts; i++) {
        status = connect_to(connection, i, err);
        if (status == IDEM_OK) {
            status = limit_session(connection, err);
        }
    }
    if (connection->pg) {
        return IDEM_OK;
    }
    if (status == IDEM_ERR_STORE) {
        /* Whatever refused that is no table. */
        status = err->status = IDEM_ERR_STORE_UNAVAILABLE;
    }
    return status;
}

idem_status_t idemi_connection_exchange(idemi_connection_t *connection,
                                        idemi_step_t *steps, size_t count,
                                        bool writes, int64_t timeout_ms,
                                        idem_error_t *err)
{
    idem_status_t status = idemi_connection_open(connection, err);

    return status == IDEM_OK ? exchange_steps(connection, steps, count, writes,
                                              timeout_ms, err)
                             : status;
}
