#include "base/error.h"
#include "drivers/limits.h"
#include "drivers/state.h"

#include <proton/transport.h>

#include <inttypes.h>
#include <stdio.h>

/* What is done behind each batch of events: whatever is due. */

static void connect_late(idemi_connection_t *connection)
{
    char where[IDEMI_URL_TEXT_BYTES];
    idem_error_t failure;

    idemi_url_text(where, idemi_connection_url(connection));
    (void)idemi_error(&failure, IDEM_ERR_CONNECTION,
                      "%s did not open a connection within %" PRId64
                      " ms (connect_timeout_ms); check that an AMQP 1.0 broker "
                      "listens there, without TLS",
                      where, connection->config.connect_timeout_ms);
    idemi_connection_note(connection, &failure, false);
    idemi_connection_kill(connection);
}

static void attach_late(idemi_connection_t *connection,
                        const idemi_link_t *link)
{
    idem_error_t failure;

    (void)idemi_error(&failure, IDEM_ERR_CONNECTION,
                      "the broker did not answer the attach of '%.128s' within "
                      "%" PRId64 " ms (connect_timeout_ms)",
                      link->config.address,
                      connection->config.connect_timeout_ms);
    idemi_connection_note(connection, &failure, false);
    idemi_connection_kill(connection);
}

static void step_link(idemi_connection_t *connection, idemi_link_t *link,
                      int64_t now_ms)
{
    char name[64];

    if (now_ms < link->due_ms) {
        return;
    }
    switch (link->state) {
    case IDEMI_LINK_DOWN:
        if (connection->phase == IDEMI_PHASE_OPEN && !connection->stopping) {
            (void)snprintf(name, sizeof name, "idem-%016" PRIx64 "-%" PRIu64,
                           connection->name, ++connection->names);
            idemi_link_attach(link, connection->wire, name,
                              now_ms + connection->config.connect_timeout_ms);
        }
        return;
    case IDEMI_LINK_ATTACHING:
        attach_late(connection, link);
        link->due_ms = now_ms + IDEMI_CLOSE_MS;
        return;
    case IDEMI_LINK_DETACHING:
    case IDEMI_LINK_ENDING:
        idemi_connection_kill(connection);
        link->due_ms = now_ms + IDEMI_CLOSE_MS;
        return;
    case IDEMI_LINK_UP:
        return;
    }
}

/* Proton's idle check runs by its own timers; this one would notice if those
 * stood still. A live peer sends a frame at least every half idle timeout. */
static void watch(idemi_connection_t *connection, int64_t now_ms)
{
    pn_transport_t *transport = pn_connection_transport(connection->wire);
    uint64_t frames = pn_transport_get_frames_input(transport);
    int64_t limit_ms = connection->config.idle_timeout_ms;
    idem_error_t failure;

    connection->watch_due_ms = now_ms + IDEMI_WATCH_MS;
    if (frames != connection->frames) {
        connection->frames = frames;
        connection->progress_at_ms = now_ms;
    } else if (limit_ms > 0 &&
               (now_ms - connection->progress_at_ms) / 2 > limit_ms) {
        (void)idemi_error(&failure, IDEM_ERR_CONNECTION,
                          "no frame came from the broker for %" PRId64 " ms",
                          now_ms - connection->progress_at_ms);
        idemi_connection_note(connection, &failure, false);
        idemi_connection_kill(connection);
        connection->progress_at_ms = now_ms;
    }
    for (idemi_link_t *link = connection->links; link; link = link->next) {
        if (!idemi_link_watch(link, now_ms)) {
            (void)idemi_error(&failure, IDEM_ERR_CONNECTION,
                              "the broker takes no credit for '%.128s'",
                              link->config.address);
            idemi_connection_link_failed(connection, link, IDEMI_END_RETRY,
                                         &failure, now_ms);
        }
    }
}

static void step(idemi_connection_t *connection, int64_t now_ms)
{
    if (connection->phase == IDEMI_PHASE_PAUSED &&
        now_ms >= connection->due_ms) {
        idemi_connection_connect(connection, now_ms);
    } else if (connection->phase == IDEMI_PHASE_CONNECTING &&
               now_ms >= connection->due_ms) {
        connect_late(connection);
        connection->due_ms = now_ms + IDEMI_CLOSE_MS;
    } else if (connection->phase == IDEMI_PHASE_CLOSING &&
               now_ms >= connection->due_ms) {
        idemi_connection_kill(connection);
        connection->due_ms = now_ms + IDEMI_CLOSE_MS;
    } else if (connection->phase == IDEMI_PHASE_OPEN &&
               now_ms >= connection->watch_due_ms) {
        watch(connection, now_ms);
    }
    for (idemi_link_t *link = connection->links; link; link = link->next) {
        step_link(connection, link, now_ms);
    }
}

static void pump(idemi_connection_t *connection, int64_t now_ms)
{
    for (idemi_link_t *link = connection->links; link; link = link->next) {
        if (idemi_engine_deadline(link->config.engine) <= now_ms) {
            idemi_engine_tick(link->config.engine, now_ms);
        }
        idemi_link_pump(link);
    }
}

static int64_t earlier(int64_t left, int64_t right)
{
    return left < right ? left : right;
}

/* A limit that has passed has had its effect. */
static int64_t ahead(int64_t deadline_ms, int64_t now_ms)
{
    return deadline_ms > now_ms ? deadline_ms : INT64_MAX;
}

static int64_t next_deadline(const idemi_connection_t *connection,
                             int64_t now_ms)
{
    bool is_open = connection->phase == IDEMI_PHASE_OPEN;
    int64_t next = is_open ? connection->watch_due_ms : connection->due_ms;

    if (connection->stopping) {
        next = earlier(next, ahead(connection->stop_due_ms, now_ms));
        if (is_open && !connection->detaching) {
            next = earlier(next, ahead(connection->drain_due_ms, now_ms));
        }
    }
    for (idemi_link_t *link = connection->links; link; link = link->next) {
        next = earlier(next, idemi_engine_deadline(link->config.engine));
        if (is_open &&
            (link->state != IDEMI_LINK_DOWN || !connection->stopping)) {
            next = earlier(next, link->due_ms);
        }
    }
    return next;
}

void idemi_connection_round(idemi_connection_t *connection, int64_t now_ms)
{
    idemi_host_t *host = atomic_load(&connection->host);

    if (connection->phase == IDEMI_PHASE_ENDED) {
        return;
    }
    (void)idemi_mailbox_run(connection->config.mailbox, now_ms);
    if (atomic_load(&connection->stop_asked) && !connection->stopping) {
        idemi_connection_begin_stop(connection, now_ms);
    }
    step(connection, now_ms);
    pump(connection, now_ms);
    while (connection->stopping &&
           idemi_connection_advance_stop(connection, now_ms)) {
        if (connection->phase == IDEMI_PHASE_ENDED) {
            return;
        }
        pump(connection, now_ms);
    }
    host->arm(host, next_deadline(connection, now_ms));
}

void idemi_connection_begin(idemi_connection_t *connection, int64_t now_ms)
{
    const idemi_connection_config_t *config = &connection->config;
    idem_error_t failure;

    connection->phase = IDEMI_PHASE_PAUSED;
    connection->due_ms = now_ms;
    for (size_t i = 0; i < config->url_count; i++) {
        const idemi_url_t *url = &config->urls[i];
        const char *user = url->user ? url->user : config->user;
        if (user && !url->is_loopback && !config->allow_insecure_plain) {
            idemi_end_of_trust(&failure, url, user);
            idemi_connection_fail(connection, &failure, now_ms);
        }
    }
    idemi_connection_round(connection, now_ms);
}
