#include "drivers/connection.h"

#include "base/backoff.h"
#include "base/error.h"
#include "drivers/limits.h"
#include "drivers/state.h"

#include <proton/transport.h>

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

idem_status_t idemi_connection_create(idemi_connection_t **connection,
                                      const idemi_connection_config_t *config)
{
    idemi_connection_t *made = calloc(1, sizeof *made);

    if (!made) {
        return IDEM_ERR_MEMORY;
    }
    made->config = *config;
    made->random.state = config->seed;
    made->name = idemi_random_next(&made->random);
    made->phase = IDEMI_PHASE_IDLE;
    atomic_init(&made->host, NULL);
    atomic_init(&made->stop_asked, false);
    atomic_init(&made->connects, 0);
    atomic_init(&made->disconnects, 0);
    atomic_init(&made->is_connected, false);
    atomic_init(&made->entered, 0);
    *connection = made;
    return IDEM_OK;
}

idem_status_t idemi_connection_add_link(idemi_connection_t *connection,
                                        const idemi_link_config_t *config)
{
    idemi_link_t **end = &connection->links;
    idemi_link_t *link =
        idemi_link_create(connection, config, &connection->config.logger);

    if (!link) {
        return IDEM_ERR_MEMORY;
    }
    while (*end) {
        end = &(*end)->next;
    }
    *end = link;
    connection->link_count++;
    return IDEM_OK;
}

void idemi_connection_destroy(idemi_connection_t *connection)
{
    if (!connection) {
        return;
    }
    idemi_host_t *host = atomic_load(&connection->host);
    if (host) {
        host->destroy(host);
    }
    while (connection->links) {
        idemi_link_t *link = connection->links;
        connection->links = link->next;
        idemi_link_destroy(link);
    }
    free(connection);
}

void idemi_connection_stop(idemi_connection_t *connection)
{
    int kept = errno;

    atomic_store(&connection->stop_asked, true);
    idemi_host_t *host = atomic_load(&connection->host);
    if (host) {
        host->interrupt(host);
    }
    errno = kept;
}

idem_status_t idemi_connection_result(const idemi_connection_t *connection,
                                      idem_error_t *err)
{
    if (connection->phase != IDEMI_PHASE_ENDED) {
        return idemi_error(err, IDEM_ERR_STATE, "the client has not stopped");
    }
    if (connection->result.status && err) {
        *err = connection->result;
    }
    return connection->result.status;
}

void idemi_connection_enter(idemi_connection_t *connection)
{
    (void)atomic_fetch_add(&connection->entered, 1);
}

void idemi_connection_leave(idemi_connection_t *connection)
{
    (void)atomic_fetch_sub(&connection->entered, 1);
}

bool idemi_connection_is_busy(const idemi_connection_t *connection)
{
    return atomic_load(&connection->entered) > 0;
}

void idemi_connection_statistics(const idemi_connection_t *connection,
                                 idem_client_statistics_t *statistics)
{
    statistics->connects = atomic_load(&connection->connects);
    statistics->disconnects = atomic_load(&connection->disconnects);
    statistics->connected = atomic_load(&connection->is_connected);
}

idemi_mailbox_t *idemi_connection_mailbox(const idemi_connection_t *connection)
{
    return connection->config.mailbox;
}

pn_connection_t *idemi_connection_wire(const idemi_connection_t *connection)
{
    return connection->wire;
}

void idemi_connection_lend(idemi_connection_t *connection, bool is_lent)
{
    connection->is_lent = is_lent;
}

bool idemi_connection_is_lent(const idemi_connection_t *connection)
{
    return connection->is_lent;
}

const idemi_url_t *idemi_connection_url(const idemi_connection_t *connection)
{
    return &connection->config.urls[connection->url_index];
}

const char *idemi_connection_user(const idemi_connection_t *connection,
                                  const char **password)
{
    const idemi_url_t *url = idemi_connection_url(connection);

    *password = url->user ? url->password : connection->config.password;
    return url->user ? url->user : connection->config.user;
}

void idemi_connection_tell(const idemi_connection_t *connection,
                           idem_event_type_t type, const char *address,
                           const idem_error_t *error, int64_t retry_in_ms)
{
    static const idem_error_t none;
    idem_event_t event = {type, address, error ? error : &none, retry_in_ms};

    if (connection->config.event_handler) {
        connection->config.event_handler(connection->config.event_user, &event);
    }
}

void idemi_connection_note(idemi_connection_t *connection,
                           const idem_error_t *failure, bool is_fatal)
{
    if (!connection->has_failure) {
        connection->has_failure = true;
        connection->failure_is_fatal = is_fatal;
        connection->failure = *failure;
    }
}

void idemi_connection_note_lookup(idemi_connection_t *connection,
                                  const char *problem)
{
    char where[IDEMI_URL_TEXT_BYTES];
    idem_error_t failure;

    idemi_url_text(where, idemi_connection_url(connection));
    (void)idemi_error(&failure, IDEM_ERR_CONNECTION,
                      "cannot connect to %s (%s); check the name of the host",
                      where, problem);
    idemi_connection_note(connection, &failure, false);
}

/* pn_connection_close() ends nothing while the peer is silent; this does, at
 * any time. */
void idemi_connection_kill(idemi_connection_t *connection)
{
    pn_transport_t *transport =
        connection->is_lent ? NULL : pn_connection_transport(connection->wire);

    connection->kill_wanted = !transport;
    if (transport) {
        pn_condition_t *condition = pn_transport_condition(transport);
        if (!pn_condition_is_set(condition)) {
            (void)pn_condition_set_name(condition, "idem:closed");
        }
        (void)pn_transport_close_tail(transport);
        (void)pn_transport_close_head(transport);
    }
}

void idemi_connection_connect(idemi_connection_t *connection, int64_t now_ms)
{
    idemi_host_t *host = atomic_load(&connection->host);
    const idemi_url_t *url = idemi_connection_url(connection);
    const char *password = NULL;
    const char *user = idemi_connection_user(connection, &password);

    connection->has_failure = false;
    connection->was_used = false;
    connection->kill_wanted = false;
    connection->wire = host->create(host, url);
    if (!connection->wire) {
        idem_error_t failure;
        (void)idemi_error(&failure, IDEM_ERR_MEMORY, "out of memory");
        idemi_connection_note(connection, &failure, false);
        idemi_connection_disconnected(connection, now_ms);
        return;
    }
    pn_connection_set_container(connection->wire,
                                connection->config.container_id);
    pn_connection_set_hostname(connection->wire, url->host);
    if (user) {
        pn_connection_set_user(connection->wire, user);
        pn_connection_set_password(connection->wire, password);
    }
    connection->phase = IDEMI_PHASE_CONNECTING;
    connection->due_ms = now_ms + connection->config.connect_timeout_ms;
    host->connect(host, connection->wire, url);
}

void idemi_connection_disconnected(idemi_connection_t *connection,
                                   int64_t now_ms)
{
    const idemi_connection_config_t *config = &connection->config;
    idem_error_t failure = connection->failure;
    char where[IDEMI_URL_TEXT_BYTES];

    idemi_url_text(where, idemi_connection_url(connection));
    for (idemi_link_t *link = connection->links; link; link = link->next) {
        if (link->state == IDEMI_LINK_UP &&
            now_ms - link->up_at_ms >= IDEMI_STABLE_MS) {
            connection->tries = 0;
        }
        idemi_link_disconnected(link, now_ms);
    }
    connection->wire = NULL;
    connection->phase = IDEMI_PHASE_IDLE;
    connection->due_ms = INT64_MAX;
    atomic_fetch_add(&connection->disconnects, 1);
    atomic_store(&connection->is_connected, false);
    if (!connection->has_failure) {
        (void)idemi_error(&failure, IDEM_ERR_CONNECTION,
                          "the connection to %s ended", where);
    }
    if (connection->stopping) {
        idemi_log(&config->logger, IDEM_LOG_INFO, "Disconnected: url=%s",
                  where);
        return;
    }
    if (connection->has_failure && connection->failure_is_fatal) {
        idemi_connection_fail(connection, &failure, now_ms);
        return;
    }
    connection->tries++;
    if (config->reconnect_tries &&
        connection->tries >= config->reconnect_tries) {
        idemi_connection_fail(connection, &failure, now_ms);
        return;
    }
    /* The pause grows with each round through the list. */
    uint32_t urls = (uint32_t)config->url_count;
    int64_t pause = idemi_backoff_ms(
        &connection->random, (connection->tries - 1) / urls + 1,
        config->reconnect_min_ms, config->reconnect_max_ms);
    connection->url_index = (connection->url_index + 1) % config->url_count;
    connection->phase = IDEMI_PHASE_PAUSED;
    connection->due_ms = now_ms + pause;
    idemi_log(&config->logger, IDEM_LOG_WARNING,
              "Not connected: %s: tries=%" PRIu32 " retry_in_ms=%" PRId64,
              failure.message, connection->tries, pause);
    idemi_connection_tell(connection, IDEM_EVENT_DISCONNECTED, NULL, &failure,
                          pause);
}

/* Refused addresses are final at the first attach. Later they also come from a
 * broker that is still starting, so there they are tried again for a while. */
static bool is_final(const idemi_connection_t *connection, idemi_link_t *link,
                     idemi_end_t end, int64_t now_ms)
{
    const idemi_connection_config_t *config = &connection->config;

    if (end == IDEMI_END_FATAL) {
        return true;
    }
    if (end == IDEMI_END_REFUSED) {
        if (link->refusals++ == 0) {
            link->refused_at_ms = now_ms;
        }
        if (!link->has_attached ||
            (link->refusals > 2 &&
             now_ms - link->refused_at_ms >= config->reconnect_max_ms)) {
            return true;
        }
    }
    return config->reconnect_tries && link->tries >= config->reconnect_tries;
}

void idemi_connection_link_failed(idemi_connection_t *connection,
                                  idemi_link_t *link, idemi_end_t end,
                                  const idem_error_t *error, int64_t now_ms)
{
    const idemi_connection_config_t *config = &connection->config;

    if (link->state == IDEMI_LINK_UP &&
        now_ms - link->up_at_ms >= IDEMI_STABLE_MS) {
        link->tries = 0;
    }
    idemi_link_lost(link, now_ms);
    idemi_link_end(link, now_ms + IDEMI_CLOSE_MS);
    link->tries++;
    int64_t pause =
        idemi_backoff_ms(&connection->random, link->tries,
                         config->reconnect_min_ms, config->reconnect_max_ms);
    link->retry_at_ms = now_ms + pause;
    if (connection->stopping) {
        return;
    }
    if (is_final(connection, link, end, now_ms)) {
        idemi_connection_fail(connection, error, now_ms);
        return;
    }
    idemi_log(&config->logger, IDEM_LOG_WARNING,
              "Not attached: %s: tries=%" PRIu32 " retry_in_ms=%" PRId64,
              error->message, link->tries, pause);
    idemi_connection_tell(connection, IDEM_EVENT_DETACHED, link->config.address,
                          error, pause);
}

bool idemi_connection_take(idemi_connection_t *connection, idemi_host_t *host)
{
    idemi_host_t *none = NULL;

    return connection->links &&
           atomic_compare_exchange_strong(&connection->host, &none, host);
}
