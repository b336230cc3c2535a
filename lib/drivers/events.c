#include "base/error.h"
#include "drivers/limits.h"
#include "drivers/proton_log.h"
#include "drivers/state.h"

#include <proton/sasl.h>
#include <proton/transport.h>

#include <assert.h>

/* What Proton's events mean for a connection and its links. */

static pn_millis_t millis(int64_t ms)
{
    return ms < UINT32_MAX ? (pn_millis_t)ms : UINT32_MAX;
}

/* There is a transport, and nothing was sent on it yet. */
static void on_bound(idemi_connection_t *connection, pn_transport_t *transport)
{
    const idemi_connection_config_t *config = &connection->config;
    const char *password = NULL;
    const char *user = idemi_connection_user(connection, &password);
    pn_sasl_t *sasl = pn_sasl(transport);

    idemi_proton_log(transport, &config->logger);
    /* Exactly one mechanism: with a choice, Proton would fall back to
     * ANONYMOUS without a word. Where PLAIN may be used was decided before. */
    pn_sasl_allowed_mechs(sasl, user ? "PLAIN" : "ANONYMOUS");
    pn_sasl_set_allow_insecure_mechs(sasl, true);
    pn_transport_set_max_frame(transport, IDEMI_MAX_FRAME_BYTES);
    (void)pn_transport_set_channel_max(
        transport, (uint16_t)(connection->link_count < 16000
                                  ? connection->link_count * 2 + 7
                                  : 32767));
    /* Proton announces half of it (AMQP 1.0, section 2.4.5). */
    pn_transport_set_idle_timeout(transport, millis(config->idle_timeout_ms));
    if (connection->kill_wanted) {
        idemi_connection_kill(connection);
    }
}

static void on_open(idemi_connection_t *connection, int64_t now_ms)
{
    if (connection->phase != IDEMI_PHASE_CONNECTING) {
        return;
    }
    connection->phase = IDEMI_PHASE_OPEN;
    connection->due_ms = INT64_MAX;
    connection->frames = 0;
    connection->progress_at_ms = now_ms;
    connection->watch_due_ms = now_ms + IDEMI_WATCH_MS;
    for (idemi_link_t *link = connection->links; link; link = link->next) {
        link->due_ms = now_ms; /* attached in the round */
    }
}

/* A broker may accept the open of a login that it refuses with the close that
 * follows, so it is the first session that shows the connection to work. */
static void on_session_open(idemi_connection_t *connection)
{
    char where[IDEMI_URL_TEXT_BYTES];

    if (atomic_load(&connection->is_connected)) {
        return;
    }
    atomic_store(&connection->is_connected, true);
    atomic_fetch_add(&connection->connects, 1);
    idemi_url_text(where, idemi_connection_url(connection));
    idemi_log(&connection->config.logger, IDEM_LOG_INFO,
              "Connected: url=%s container=%s", where,
              connection->config.container_id);
    idemi_connection_tell(connection, IDEM_EVENT_CONNECTED, NULL, NULL, 0);
}

static void on_close(idemi_connection_t *connection, int64_t now_ms)
{
    const char *password = NULL;
    const char *user = idemi_connection_user(connection, &password);
    idem_error_t failure;

    if (connection->phase != IDEMI_PHASE_CLOSING) {
        idemi_end_t end = idemi_end_of_connection(
            &failure, idemi_connection_url(connection), user,
            connection->was_used,
            pn_connection_remote_condition(connection->wire));
        idemi_connection_note(connection, &failure, end == IDEMI_END_FATAL);
        connection->phase = IDEMI_PHASE_CLOSING;
        connection->due_ms = now_ms + IDEMI_CLOSE_MS;
    }
    for (idemi_link_t *link = connection->links; link; link = link->next) {
        idemi_link_lost(link, now_ms);
    }
    pn_connection_close(connection->wire);
}

static void on_transport_error(idemi_connection_t *connection,
                               pn_transport_t *transport)
{
    const char *password = NULL;
    const char *user = idemi_connection_user(connection, &password);
    bool was_open = connection->phase != IDEMI_PHASE_CONNECTING;
    int outcome = was_open ? PN_SASL_OK : pn_sasl_outcome(pn_sasl(transport));
    idem_error_t failure;

    idemi_end_t end = idemi_end_of_transport(
        &failure, idemi_connection_url(connection), user, was_open, outcome,
        pn_transport_condition(transport));
    idemi_connection_note(connection, &failure, end == IDEMI_END_FATAL);
    /* With a dropped SYN the head would stay open until the kernel gives up. */
    idemi_connection_kill(connection);
}

static void on_transport_closed(idemi_connection_t *connection,
                                pn_transport_t *transport, int64_t now_ms)
{
    idemi_proton_log(transport, NULL);
    idemi_connection_disconnected(connection, now_ms);
}

static void fail_link(idemi_connection_t *connection, idemi_link_t *link,
                      pn_condition_t *condition, int64_t now_ms)
{
    idem_error_t failure;
    idemi_end_t end =
        idemi_end_of_link(&failure, link->config.address,
                          link->state == IDEMI_LINK_UP, condition);

    idemi_connection_link_failed(connection, link, end, &failure, now_ms);
}

static void on_link_open(idemi_connection_t *connection, idemi_link_t *link,
                         int64_t now_ms)
{
    idem_error_t failure;

    if (link->state != IDEMI_LINK_ATTACHING) {
        return;
    }
    switch (idemi_link_attached(link, now_ms)) {
    case IDEMI_ATTACH_TAKEN:
        connection->was_used = true;
        idemi_log(&connection->config.logger, IDEM_LOG_INFO,
                  "Attached: address=%s link=%s", link->config.address,
                  pn_link_name(link->wire));
        idemi_connection_tell(connection, IDEM_EVENT_ATTACHED,
                              link->config.address, NULL, 0);
        return;
    case IDEMI_ATTACH_WRONG:
        (void)idemi_error(&failure, IDEM_ERR_ADDRESS,
                          "'%.128s' is a topic, and a queue was asked for; "
                          "name a queue, or address::queue",
                          link->config.address);
        idemi_connection_link_failed(connection, link, IDEMI_END_REFUSED,
                                     &failure, now_ms);
        return;
    case IDEMI_ATTACH_REFUSED:
        return;
    }
}

static void on_link_close(idemi_connection_t *connection, idemi_link_t *link,
                          int64_t now_ms)
{
    if (link->state == IDEMI_LINK_DETACHING) {
        idemi_link_end(link, now_ms + IDEMI_CLOSE_MS);
    } else {
        fail_link(connection, link, pn_link_remote_condition(link->wire),
                  now_ms);
    }
}

static void on_session_close(idemi_connection_t *connection, idemi_link_t *link,
                             int64_t now_ms)
{
    if (link->state == IDEMI_LINK_DETACHING) {
        idemi_link_end(link, now_ms + IDEMI_CLOSE_MS);
    } else if (link->state != IDEMI_LINK_ENDING) {
        fail_link(connection, link, pn_session_remote_condition(link->session),
                  now_ms);
    }
    idemi_link_ended(link, link->retry_at_ms);
}

static void on_delivery(idemi_connection_t *connection, idemi_link_t *link,
                        pn_delivery_t *wire, int64_t now_ms)
{
    if (link->engine_up && idemi_link_receive(link, wire, now_ms)) {
        connection->tries = 0;
        link->tries = 0;
    }
}

static void on_link_event(idemi_connection_t *connection, pn_event_t *event,
                          pn_event_type_t type, int64_t now_ms)
{
    pn_link_t *wire = pn_event_link(event);
    idemi_link_t *link = pn_link_get_context(wire);

    if (!link || link->wire != wire) {
        return; /* of an earlier attach */
    }
    switch (type) {
    case PN_LINK_REMOTE_OPEN:
        on_link_open(connection, link, now_ms);
        break;
    case PN_LINK_REMOTE_DETACH:
    case PN_LINK_REMOTE_CLOSE:
        on_link_close(connection, link, now_ms);
        break;
    default:
        on_delivery(connection, link, pn_event_delivery(event), now_ms);
        break;
    }
}

void idemi_connection_event(idemi_connection_t *connection, pn_event_t *event,
                            int64_t now_ms)
{
    pn_event_type_t type = pn_event_type(event);

    if (!connection->wire || pn_event_connection(event) != connection->wire) {
        return;
    }
    switch (type) {
    case PN_CONNECTION_BOUND:
        on_bound(connection, pn_event_transport(event));
        break;
    case PN_CONNECTION_REMOTE_OPEN:
        on_open(connection, now_ms);
        break;
    case PN_CONNECTION_REMOTE_CLOSE:
        on_close(connection, now_ms);
        break;
    case PN_SESSION_REMOTE_OPEN:
        on_session_open(connection);
        break;
    case PN_SESSION_REMOTE_CLOSE: {
        pn_session_t *session = pn_event_session(event);
        idemi_link_t *link = pn_session_get_context(session);
        if (link && link->session == session) {
            on_session_close(connection, link, now_ms);
        }
        break;
    }
    case PN_LINK_REMOTE_OPEN:
    case PN_LINK_REMOTE_DETACH:
    case PN_LINK_REMOTE_CLOSE:
    case PN_DELIVERY:
        on_link_event(connection, event, type, now_ms);
        break;
    case PN_TRANSPORT_ERROR:
        on_transport_error(connection, pn_event_transport(event));
        break;
    case PN_TRANSPORT_CLOSED:
        on_transport_closed(connection, pn_event_transport(event), now_ms);
        break;
    default:
        break;
    }
}
