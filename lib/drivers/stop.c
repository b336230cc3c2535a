#include "base/error.h"
#include "drivers/limits.h"
#include "drivers/state.h"

#include <inttypes.h>

/* A stop, asked for or forced by an error: credit is withdrawn, what has not
 * started is given back and what runs is awaited, then links, sessions and
 * connection are closed in order, each with a limit. */

void idemi_connection_begin_stop(idemi_connection_t *connection, int64_t now_ms)
{
    int64_t timeout_ms = connection->config.stop_timeout_ms;

    connection->stopping = true;
    connection->stop_due_ms = timeout_ms < 0 || timeout_ms > INT64_MAX - now_ms
                                  ? INT64_MAX
                                  : now_ms + timeout_ms;
    connection->drain_due_ms = now_ms + IDEMI_DRAIN_MS;
    for (idemi_link_t *link = connection->links; link; link = link->next) {
        idemi_engine_stop(link->config.engine, now_ms);
        idemi_link_drain(link);
    }
    if (connection->phase == IDEMI_PHASE_PAUSED) {
        connection->phase = IDEMI_PHASE_IDLE;
        connection->due_ms = INT64_MAX;
    } else if (connection->phase == IDEMI_PHASE_CONNECTING) {
        idemi_connection_kill(connection);
    }
}

void idemi_connection_fail(idemi_connection_t *connection,
                           const idem_error_t *error, int64_t now_ms)
{
    if (!connection->stopping) {
        connection->result = *error;
        idemi_connection_begin_stop(connection, now_ms);
    }
}

static bool is_idle(const idemi_connection_t *connection)
{
    for (idemi_link_t *link = connection->links; link; link = link->next) {
        if (!idemi_engine_is_idle(link->config.engine)) {
            return false;
        }
    }
    return true;
}

static bool is_drained(const idemi_connection_t *connection, int64_t now_ms)
{
    for (idemi_link_t *link = connection->links; link; link = link->next) {
        if (!idemi_link_is_drained(link)) {
            return now_ms >= connection->drain_due_ms;
        }
    }
    return true;
}

static bool are_links_down(const idemi_connection_t *connection)
{
    for (idemi_link_t *link = connection->links; link; link = link->next) {
        if (link->state != IDEMI_LINK_DOWN) {
            return false;
        }
    }
    return true;
}

static void end(idemi_connection_t *connection)
{
    idemi_host_t *host = atomic_load(&connection->host);
    const idemi_logger_t *logger = &connection->config.logger;
    idem_error_t *result = &connection->result;
    bool has_failed = result->status != IDEM_OK;

    idemi_mailbox_set_wake(connection->config.mailbox, NULL, NULL);
    if (!has_failed && !is_idle(connection)) {
        (void)idemi_error(result, IDEM_ERR_TIMEOUT,
                          "deliveries were still in hand after %" PRId64
                          " ms (stop_timeout_ms); the broker offers them again",
                          connection->config.stop_timeout_ms);
    }
    connection->phase = IDEMI_PHASE_ENDED;
    if (result->status) {
        idemi_log(logger, has_failed ? IDEM_LOG_ERROR : IDEM_LOG_WARNING,
                  "Stopped: %s: status=%s", result->message,
                  idem_status_name(result->status));
    } else {
        idemi_log(logger, IDEM_LOG_INFO, "Stopped.");
    }
    idemi_connection_tell(connection,
                          has_failed ? IDEM_EVENT_FAILED : IDEM_EVENT_STOPPED,
                          NULL, result->status ? result : NULL, 0);
    host->finished(host);
}

bool idemi_connection_advance_stop(idemi_connection_t *connection,
                                   int64_t now_ms)
{
    bool is_late = now_ms >= connection->stop_due_ms;
    bool is_over = is_late || is_idle(connection);

    switch (connection->phase) {
    case IDEMI_PHASE_OPEN:
        if (!connection->detaching) {
            if (!is_late && !(is_over && is_drained(connection, now_ms))) {
                return false;
            }
            connection->detaching = true;
            for (idemi_link_t *link = connection->links; link;
                 link = link->next) {
                if (link->state == IDEMI_LINK_UP ||
                    link->state == IDEMI_LINK_ATTACHING) {
                    idemi_link_detach(link, now_ms, now_ms + IDEMI_CLOSE_MS);
                }
            }
        } else if (!are_links_down(connection)) {
            return false;
        } else {
            pn_connection_close(connection->wire);
            connection->phase = IDEMI_PHASE_CLOSING;
            connection->due_ms = now_ms + IDEMI_CLOSE_MS;
        }
        return true;
    case IDEMI_PHASE_IDLE:
        if (!is_over) {
            return false;
        }
        end(connection);
        return true;
    default:
        return false;
    }
}

void idemi_connection_abandon(idemi_connection_t *connection, int64_t now_ms)
{
    if (connection->phase == IDEMI_PHASE_ENDED) {
        return;
    }
    idemi_mailbox_set_wake(connection->config.mailbox, NULL, NULL);
    for (idemi_link_t *link = connection->links; link; link = link->next) {
        idemi_link_disconnected(link, now_ms);
    }
    connection->wire = NULL;
    connection->phase = IDEMI_PHASE_ENDED;
    atomic_store(&connection->is_connected, false);
    if (!connection->result.status) {
        (void)idemi_error(&connection->result, IDEM_ERR_CONNECTION,
                          "the reactor ended before the client had stopped; "
                          "stop the client first");
    }
    idemi_log(&connection->config.logger, IDEM_LOG_WARNING, "Stopped: %s.",
              connection->result.message);
    idemi_connection_tell(connection, IDEM_EVENT_FAILED, NULL,
                          &connection->result, 0);
}
