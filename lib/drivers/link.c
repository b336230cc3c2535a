#include "drivers/link.h"

#include "drivers/limits.h"

#include <proton/connection.h>
#include <proton/terminus.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

idemi_link_t *idemi_link_create(idemi_connection_t *connection,
                                const idemi_link_config_t *config,
                                const idemi_logger_t *logger)
{
    idemi_link_t *link = calloc(1, sizeof *link);

    assert(config->max_message_bytes > 0 && config->prefetch > 0);
    if (!link) {
        return NULL;
    }
    link->connection = connection;
    link->config = *config;
    link->logger = *logger;
    link->state = IDEMI_LINK_DOWN;
    link->acceptance_room = config->prefetch;
    link->acceptances =
        calloc(link->acceptance_room, sizeof *link->acceptances);
    link->held = calloc(config->prefetch, sizeof(pn_delivery_t *));
    if (!link->acceptances || !link->held) {
        free((void *)link->held);
        free(link->acceptances);
        free(link);
        return NULL;
    }
    return link;
}

void idemi_link_destroy(idemi_link_t *link)
{
    if (link) {
        idemi_link_stop_reading(link);
        free((void *)link->held);
        free(link->acceptances);
        free(link);
    }
}

/* Without a limit Proton would buffer whatever the peer sends. The window
 * counts transfers, so it holds one message of the largest size and a frame
 * for each delivery that the credit allows. */
static size_t session_capacity(const idemi_link_config_t *config)
{
    const uint64_t limit = (uint64_t)INT32_MAX * IDEMI_MAX_FRAME_BYTES;
    uint64_t frames = config->max_message_bytes / IDEMI_MAX_FRAME_BYTES +
                      config->prefetch + 2;
    uint64_t bytes = frames * IDEMI_MAX_FRAME_BYTES;

    return (size_t)(bytes < limit ? bytes : limit);
}

static void free_spent(idemi_link_t *link)
{
    if (link->spent) {
        pn_session_free(link->spent);
        link->spent = NULL;
    }
}

void idemi_link_attach(idemi_link_t *link, pn_connection_t *connection,
                       const char *name, int64_t due_ms)
{
    assert(link->state == IDEMI_LINK_DOWN && !link->session);
    free_spent(link);
    link->session = pn_session(connection);
    pn_session_set_context(link->session, link);
    pn_session_set_incoming_capacity(link->session,
                                     session_capacity(&link->config));
    pn_session_open(link->session);

    link->wire = pn_receiver(link->session, name);
    pn_link_set_context(link->wire, link);
    pn_terminus_t *source = pn_link_source(link->wire);
    (void)pn_terminus_set_address(source, link->config.address);
    /* Without it Artemis makes a missing address a topic, whose messages are
     * lost while nobody is attached. */
    (void)pn_data_put_symbol(pn_terminus_capabilities(source),
                             pn_bytes(5, "queue"));
    /* Settled transfers would be gone at the broker before they are handled;
     * mode second is not known to Artemis. */
    pn_link_set_snd_settle_mode(link->wire, PN_SND_UNSETTLED);
    pn_link_set_rcv_settle_mode(link->wire, PN_RCV_FIRST);
    pn_link_set_max_message_size(link->wire, link->config.max_message_bytes);
    pn_link_open(link->wire);

    link->attaches++;
    link->generation++;
    link->state = IDEMI_LINK_ATTACHING;
    link->due_ms = due_ms;
}

static bool is_symbol(pn_data_t *data, const char *wanted)
{
    pn_bytes_t symbol;

    if (pn_data_type(data) != PN_SYMBOL) {
        return false;
    }
    symbol = pn_data_get_symbol(data);
    return symbol.size == strlen(wanted) &&
           memcmp(symbol.start, wanted, symbol.size) == 0;
}

/* One symbol or an array of them (AMQP 1.0, section 3.5.3). */
static bool has_capability(pn_terminus_t *terminus, const char *wanted)
{
    pn_data_t *data = pn_terminus_capabilities(terminus);
    bool found = false;

    pn_data_rewind(data);
    while (pn_data_next(data) && !found) {
        found = is_symbol(data, wanted);
        if (pn_data_type(data) == PN_ARRAY && pn_data_enter(data)) {
            while (pn_data_next(data) && !found) {
                found = is_symbol(data, wanted);
            }
            (void)pn_data_exit(data);
        }
    }
    return found;
}

static void check_reply(idemi_link_t *link, const char *address)
{
    if (strcmp(address, link->config.address) != 0) {
        idemi_log(&link->logger, IDEM_LOG_WARNING,
                  "The broker attached another address than was asked for: "
                  "address=%s attached=%s",
                  link->config.address, address);
    }
    if (!has_capability(pn_link_remote_source(link->wire), "queue")) {
        idemi_log(&link->logger, IDEM_LOG_WARNING,
                  "The broker does not say that it attached a queue, as was "
                  "asked for: address=%s",
                  link->config.address);
    }
    link->is_settled =
        pn_link_remote_snd_settle_mode(link->wire) == PN_SND_SETTLED;
    if (link->is_settled) {
        idemi_log(&link->logger, IDEM_LOG_WARNING,
                  "The broker sends settled transfers although unsettled ones "
                  "were asked for: a message that is not handled is lost: "
                  "address=%s",
                  link->config.address);
    }
}

idemi_attach_answer_t idemi_link_attached(idemi_link_t *link, int64_t now_ms)
{
    pn_terminus_t *source = pn_link_remote_source(link->wire);
    const char *address = pn_terminus_get_address(source);

    if (pn_terminus_get_type(source) == PN_UNSPECIFIED || !address) {
        return IDEMI_ATTACH_REFUSED;
    }
    if (has_capability(source, "topic")) {
        return IDEMI_ATTACH_WRONG;
    }
    check_reply(link, address);
    link->state = IDEMI_LINK_UP;
    link->due_ms = INT64_MAX;
    link->has_attached = true;
    link->refusals = 0;
    link->up_at_ms = now_ms;
    link->granted = 0;
    link->drained = false;
    link->is_starved = false;
    link->engine_up = true;
    idemi_engine_link_up(link->config.engine, now_ms);
    return IDEMI_ATTACH_TAKEN;
}

void idemi_link_lost(idemi_link_t *link, int64_t now_ms)
{
    link->generation++;
    link->held_count = 0;
    idemi_link_stop_reading(link);
    if (link->engine_up) {
        link->engine_up = false;
        link->granted = 0;
        idemi_engine_link_down(link->config.engine, now_ms);
    }
}

void idemi_link_detach(idemi_link_t *link, int64_t now_ms, int64_t due_ms)
{
    idemi_link_release_held(link, now_ms);
    pn_link_close(link->wire);
    idemi_link_lost(link, now_ms);
    link->state = IDEMI_LINK_DETACHING;
    link->due_ms = due_ms;
}

void idemi_link_end(idemi_link_t *link, int64_t due_ms)
{
    assert(link->session);
    if (link->wire) {
        pn_link_close(link->wire);
        link->wire = NULL;
    }
    pn_session_close(link->session);
    link->state = IDEMI_LINK_ENDING;
    link->due_ms = due_ms;
}

void idemi_link_ended(idemi_link_t *link, int64_t due_ms)
{
    assert(!link->wire && !link->engine_up);
    /* Freed before the next attach, when its end has long been written. */
    free_spent(link);
    link->spent = link->session;
    link->session = NULL;
    link->state = IDEMI_LINK_DOWN;
    link->due_ms = due_ms;
}

void idemi_link_disconnected(idemi_link_t *link, int64_t now_ms)
{
    idemi_link_lost(link, now_ms);
    link->spent = NULL;
    link->session = NULL;
    link->wire = NULL;
    link->state = IDEMI_LINK_DOWN;
    link->due_ms = 0;
}

void idemi_link_drain(idemi_link_t *link)
{
    if (link->state == IDEMI_LINK_UP && !link->drained) {
        link->drained = true;
        pn_link_drain(link->wire, 0);
    }
}

bool idemi_link_is_drained(const idemi_link_t *link)
{
    return link->state != IDEMI_LINK_UP || !pn_link_draining(link->wire);
}
