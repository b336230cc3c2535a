#include "peer_internal.h"

#include <proton/condition.h>
#include <proton/connection.h>
#include <proton/delivery.h>
#include <proton/disposition.h>
#include <proton/event.h>
#include <proton/link.h>
#include <proton/session.h>
#include <proton/terminus.h>
#include <proton/transport.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* --- Connections and sessions ------------------------------------------ */

void broker_start(connection_t *connection)
{
    const peer_options_t *options = &connection->peer->options;
    pn_transport_t *transport = NULL;

    if (pn_connection_driver_init(&connection->driver, NULL, NULL) != 0) {
        abort();
    }
    transport = connection->driver.transport;
    pn_transport_set_server(transport);
    if (options->max_frame != 0) {
        pn_transport_set_max_frame(transport, options->max_frame);
    }
    if (options->channel_max != 0) {
        pn_transport_set_channel_max(transport, options->channel_max);
    }
    /* Proton announces half of what it enforces. */
    pn_transport_set_idle_timeout(transport, 2 * options->idle_timeout_ms);
    connection->tick_at_ms = 1;
}

static void set_condition(pn_condition_t *condition, const char *name,
                          const char *description)
{
    if (name != NULL) {
        pn_condition_set_name(condition, name);
        pn_condition_set_description(condition, description);
    }
}

static void on_open(connection_t *connection)
{
    const peer_options_t *options = &connection->peer->options;
    pn_connection_t *pn = connection->driver.connection;
    pn_transport_t *transport = connection->driver.transport;
    peer_event_t event = {.kind = PEER_OPEN};

    event.open.container_id =
        record_string(connection->peer, pn_connection_remote_container(pn));
    event.open.hostname =
        record_string(connection->peer, pn_connection_remote_hostname(pn));
    event.open.max_frame = pn_transport_get_remote_max_frame(transport);
    event.open.channel_max = pn_transport_remote_channel_max(transport);
    event.open.idle_timeout_ms =
        pn_transport_get_remote_idle_timeout(transport);
    record_event(connection, 0, &event);
    if (options->no_open_answer) {
        return;
    }
    pn_connection_set_container(
        pn, options->container_id != NULL ? options->container_id : "peer");
    pn_connection_open(pn);
    if (options->open_condition != NULL) {
        set_condition(pn_connection_condition(pn), options->open_condition,
                      options->open_description);
        pn_connection_close(pn);
    }
}

/* Records the end of a link, session or connection. */
static void record_end(connection_t *connection, peer_event_kind_t kind,
                       int link, pn_condition_t *condition, bool closed)
{
    peer_event_t event = {.kind = kind};

    event.end.condition =
        record_string(connection->peer, pn_condition_get_name(condition));
    event.end.description = record_string(
        connection->peer, pn_condition_get_description(condition));
    event.end.closed = closed;
    record_event(connection, link, &event);
}

static void lose_session(connection_t *connection, pn_session_t *session)
{
    peer_link_t *link = NULL;

    DL_FOREACH(connection->links, link) {
        if (pn_link_session(link->link) == session) {
            broker_lose_link(link);
        }
    }
}

/* --- Links -------------------------------------------------------------- */

static const char *text_of(connection_t *connection, pn_data_t *data,
                           bool as_symbols)
{
    char text[1024] = "";
    size_t size = sizeof text;
    size_t used = 0;

    pn_data_rewind(data);
    if (!as_symbols) {
        if (pn_data_size(data) == 0 || pn_data_format(data, text, &size) != 0) {
            text[0] = '\0';
        }
        return record_string(connection->peer, text);
    }
    /* One symbol, or an array of them. */
    if (pn_data_next(data) && pn_data_type(data) == PN_ARRAY) {
        pn_data_enter(data);
        pn_data_next(data);
    }
    while (pn_data_type(data) == PN_SYMBOL && used < sizeof text) {
        pn_bytes_t symbol = pn_data_get_symbol(data);

        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.*s",
                                 used > 0 ? " " : "", (int)symbol.size,
                                 symbol.start);
        if (!pn_data_next(data)) {
            break;
        }
    }
    pn_data_rewind(data);
    return record_string(connection->peer, text);
}

static bool must_refuse(peer_t *peer, pn_link_t *link)
{
    const peer_options_t *options = &peer->options;

    if (pn_link_is_receiver(link)) {
        return true;
    }
    if (options->attach_condition == NULL ||
        (options->attach_refusals != 0 &&
         peer->refused >= options->attach_refusals)) {
        return false;
    }
    peer->refused++;
    return true;
}

static void record_attach(connection_t *connection, peer_link_t *link,
                          bool refused)
{
    pn_link_t *pn = link->link;
    pn_terminus_t *source = pn_link_remote_source(pn);
    peer_event_t event = {.kind = PEER_ATTACH};

    event.attach.name = record_string(connection->peer, pn_link_name(pn));
    event.attach.address = record_string(connection->peer, link->address);
    event.attach.capabilities =
        text_of(connection, pn_terminus_capabilities(source), true);
    event.attach.filter =
        text_of(connection, pn_terminus_filter(source), false);
    event.attach.distribution_mode =
        (int)pn_terminus_get_distribution_mode(source);
    event.attach.snd_settle_mode = (int)pn_link_remote_snd_settle_mode(pn);
    event.attach.rcv_settle_mode = (int)pn_link_remote_rcv_settle_mode(pn);
    event.attach.durability = (int)pn_terminus_get_durability(source);
    event.attach.expiry_policy = (int)pn_terminus_get_expiry_policy(source);
    event.attach.max_message_size = pn_link_remote_max_message_size(pn);
    event.attach.is_receiver = pn_link_is_sender(pn);
    event.attach.refused = refused;
    record_event(connection, link->number, &event);
}

static void answer_attach(peer_t *peer, pn_link_t *link)
{
    const peer_options_t *options = &peer->options;
    pn_terminus_t *source = pn_link_source(link);

    pn_terminus_copy(source, pn_link_remote_source(link));
    pn_terminus_copy(pn_link_target(link), pn_link_remote_target(link));
    if (options->reply_address != NULL) {
        pn_terminus_set_address(source, options->reply_address);
    }
    if (options->drop_capabilities) {
        pn_data_clear(pn_terminus_capabilities(source));
    }
    if (options->drop_filter) {
        pn_data_clear(pn_terminus_filter(source));
    }
    pn_link_set_snd_settle_mode(
        link, options->reply_settled ? PN_SND_SETTLED
                                     : pn_link_remote_snd_settle_mode(link));
    pn_link_set_rcv_settle_mode(link, PN_RCV_FIRST);
    pn_link_open(link);
}

static void on_attach(connection_t *connection, pn_link_t *pn)
{
    peer_t *peer = connection->peer;
    const peer_options_t *options = &peer->options;
    const char *address = pn_terminus_get_address(pn_link_remote_source(pn));
    peer_link_t *link = calloc(1, sizeof *link);
    bool refused = must_refuse(peer, pn);

    if (link == NULL ||
        (link->address = strdup(address != NULL ? address : "")) == NULL) {
        abort();
    }
    link->connection = connection;
    link->link = pn;
    link->number = ++peer->next_link;
    link->is_live = !refused && !options->no_attach_answer;
    pn_link_set_context(pn, link);
    DL_APPEND(connection->links, link);
    record_attach(connection, link, refused);
    if (refused) {
        /* As Artemis does it: no source, and a detach with the error. */
        pn_terminus_set_type(pn_link_source(pn), PN_UNSPECIFIED);
        pn_link_open(pn);
        set_condition(pn_link_condition(pn),
                      options->attach_condition != NULL
                          ? options->attach_condition
                          : "amqp:not-implemented",
                      options->attach_description);
        pn_link_close(pn);
    } else if (!options->no_attach_answer) {
        answer_attach(peer, pn);
    }
}

static void on_detach(connection_t *connection, pn_link_t *pn, bool closed)
{
    peer_link_t *link = pn_link_get_context(pn);

    if (link != NULL) {
        broker_lose_link(link);
        record_end(connection, PEER_DETACH, link->number,
                   pn_link_remote_condition(pn), closed);
    }
    if (closed) {
        pn_link_close(pn);
    } else {
        pn_link_detach(pn);
    }
}

static void on_flow(connection_t *connection, pn_link_t *pn)
{
    peer_link_t *link = pn_link_get_context(pn);
    peer_event_t event = {.kind = PEER_FLOW};

    if (link != NULL && pn_link_is_sender(pn)) {
        event.flow.credit = pn_link_credit(pn);
        event.flow.unsettled = link->unsettled;
        event.flow.drain = pn_link_get_drain(pn);
        record_event(connection, link->number, &event);
    }
}

/* --- Outcomes ----------------------------------------------------------- */

static void count_outcome(peer_stats_t *stats, const peer_event_t *event)
{
    stats->dispositions++;
    switch (event->disposition.state) {
    case PN_ACCEPTED:
        stats->accepted++;
        break;
    case PN_RELEASED:
        stats->released++;
        break;
    case PN_MODIFIED:
        stats->modified++;
        stats->modified_failed += event->disposition.failed;
        break;
    case PN_REJECTED:
        stats->rejected++;
        break;
    case 0:
        stats->without_state++;
        break;
    default:
        break;
    }
}

/* The message after its outcome: gone, or back to its old place. */
static void apply_outcome(peer_t *peer, flight_t *flight,
                          const peer_event_t *event)
{
    entry_t *entry = flight->entry;
    uint64_t state = event->disposition.state;

    entry->failures += state == PN_MODIFIED && event->disposition.failed;
    if ((state == PN_RELEASED || state == PN_MODIFIED) &&
        peer->options.redeliver && !event->disposition.undeliverable_here) {
        queue_insert(peer, entry);
    } else if (peer->options.counts_only) {
        free(entry->bytes);
        entry->bytes = NULL;
        entry->size = 0;
    }
}

static void on_disposition(connection_t *connection, pn_delivery_t *delivery)
{
    peer_t *peer = connection->peer;
    pn_disposition_t *remote = pn_delivery_remote(delivery);
    flight_t *flight = pn_delivery_get_context(delivery);
    uint64_t state = pn_delivery_remote_state(delivery);
    bool settled = pn_delivery_settled(delivery);
    int link = 0;
    peer_event_t event = {.kind = PEER_DISPOSITION};

    if (flight == NULL || !pn_delivery_updated(delivery) ||
        (state == 0 && !settled)) {
        return;
    }
    pn_delivery_clear(delivery);
    link = flight->link->number;
    event.disposition.message = flight->entry->number;
    event.disposition.attempt = flight->attempt;
    event.disposition.late = flight->is_over;
    event.disposition.state = state;
    event.disposition.settled = settled;
    event.disposition.condition = "";
    event.disposition.description = "";
    if (state == PN_MODIFIED) {
        event.disposition.failed = pn_disposition_is_failed(remote);
        event.disposition.undeliverable_here =
            pn_disposition_is_undeliverable(remote);
    } else if (state == PN_REJECTED) {
        pn_condition_t *condition = pn_disposition_condition(remote);

        event.disposition.condition =
            record_string(peer, pn_condition_get_name(condition));
        event.disposition.description =
            record_string(peer, pn_condition_get_description(condition));
    }
    count_outcome(&peer->stats, &event);
    if (!flight->is_over && state != PN_RECEIVED &&
        (settled || peer->options.settle_back)) {
        if (state != 0) {
            apply_outcome(peer, flight, &event);
        }
        if (!settled) {
            pn_delivery_update(delivery, state);
        }
        broker_free_flight(flight);
        pn_delivery_settle(delivery);
    }
    record_event(connection, link, &event);
}

/* --- Events -------------------------------------------------------------- */

static void handle(connection_t *connection, pn_event_t *event)
{
    pn_session_t *session = pn_event_session(event);
    pn_connection_t *pn = connection->driver.connection;
    peer_event_t begin = {.kind = PEER_BEGIN};

    switch (pn_event_type(event)) {
    case PN_CONNECTION_REMOTE_OPEN:
        on_open(connection);
        break;
    case PN_SESSION_REMOTE_OPEN:
        record_event(connection, 0, &begin);
        pn_session_open(session);
        break;
    case PN_LINK_REMOTE_OPEN:
        on_attach(connection, pn_event_link(event));
        break;
    case PN_LINK_FLOW:
        on_flow(connection, pn_event_link(event));
        break;
    case PN_DELIVERY:
        on_disposition(connection, pn_event_delivery(event));
        break;
    case PN_LINK_REMOTE_DETACH:
        on_detach(connection, pn_event_link(event), false);
        break;
    case PN_LINK_REMOTE_CLOSE:
        on_detach(connection, pn_event_link(event), true);
        break;
    case PN_SESSION_REMOTE_CLOSE:
        lose_session(connection, session);
        record_end(connection, PEER_END, 0,
                   pn_session_remote_condition(session), true);
        pn_session_close(session);
        break;
    case PN_CONNECTION_REMOTE_CLOSE:
        connection->was_closed = true;
        record_end(connection, PEER_CLOSE, 0,
                   pn_connection_remote_condition(pn), true);
        pn_connection_close(pn);
        break;
    case PN_TRANSPORT_ERROR:
        connection->ends_when_sent = true;
        break;
    default:
        break;
    }
}

void broker_dispatch(connection_t *connection)
{
    pn_event_t *event = NULL;

    while (!connection->is_cut && (event = pn_connection_driver_next_event(
                                       &connection->driver)) != NULL) {
        handle(connection, event);
    }
}
