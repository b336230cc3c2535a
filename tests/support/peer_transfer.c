#include "peer_internal.h"

#include <proton/delivery.h>
#include <proton/link.h>
#include <proton/session.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* Enough to keep the socket busy; more would only be memory. */
enum { OUT_ENOUGH = 256 * 1024 };

static int by_number(const entry_t *a, const entry_t *b)
{
    return a->number - b->number;
}

/* A message goes to the place that it had. */
void queue_insert(peer_t *peer, entry_t *entry)
{
    if (entry->is_queued) {
        return;
    }
    entry->is_queued = true;
    if (peer->queue != NULL && by_number(peer->queue->prev, entry) < 0) {
        DL_APPEND(peer->queue, entry); /* behind the last one */
    } else {
        DL_INSERT_INORDER(peer->queue, entry, by_number);
    }
    peer->stats.queued++;
}

/* The delivery is out of the client's hand. The flight itself lives on as
   long as Proton's delivery does, to know a late disposition. */
void broker_end_flight(flight_t *flight)
{
    peer_link_t *link = flight->link;

    if (!flight->is_over) {
        flight->is_over = true;
        link->unsettled--;
        link->connection->peer->stats.unsettled--;
        if (link->current == flight) {
            link->current = NULL;
        }
    }
}

/* What a link held when it ended goes out again, to whom ever is next. */
void broker_lose_link(peer_link_t *link)
{
    peer_t *peer = link->connection->peer;
    flight_t *flight = NULL;

    link->is_live = false;
    DL_FOREACH(link->flights, flight) {
        if (!flight->is_over) {
            broker_end_flight(flight);
            if (!peer->options.forget_lost) {
                queue_insert(peer, flight->entry);
            }
        }
    }
}

void broker_free_flight(flight_t *flight)
{
    broker_end_flight(flight);
    if (flight->delivery != NULL) {
        pn_delivery_set_context(flight->delivery, NULL);
    }
    DL_DELETE(flight->link->flights, flight);
    free(flight->bytes);
    free(flight);
}

void broker_free_links(connection_t *connection)
{
    peer_link_t *link = NULL;
    peer_link_t *next = NULL;

    DL_FOREACH_SAFE(connection->links, link, next) {
        while (link->flights != NULL) {
            broker_free_flight(link->flights);
        }
        DL_DELETE(connection->links, link);
        free(link->address);
        free(link);
    }
}

/* The header section, with the delivery-count, that a broker puts before a
   message whose delivery failed. An old header is taken off. */
static void raise_count(flight_t *flight)
{
    const entry_t *entry = flight->entry;
    const unsigned char *bytes = (const unsigned char *)entry->bytes;
    const unsigned char header[] = {
        0x00, 0x53,
        0x70, 0xc0,
        7,    5,
        0x41, 0x40,
        0x40, 0x42,
        0x52, (unsigned char)(entry->failures < 255 ? entry->failures : 255),
    };
    size_t skip = 0;

    if (entry->size >= 5 && memcmp(bytes, "\x00\x53\x70", 3) == 0) {
        if (bytes[3] == 0x45) {
            skip = 4;
        } else if (bytes[3] == 0xc0) {
            skip = 5 + (size_t)bytes[4];
        } else if (bytes[3] == 0xd0 && entry->size >= 8) {
            skip = 8 + ((size_t)bytes[4] << 24 | (size_t)bytes[5] << 16 |
                        (size_t)bytes[6] << 8 | bytes[7]);
        }
    }
    if (skip > entry->size) {
        return; /* hostile: sent as it is */
    }
    flight->size = sizeof header + entry->size - skip;
    flight->bytes = malloc(flight->size);
    if (flight->bytes == NULL) {
        abort();
    }
    memcpy(flight->bytes, header, sizeof header);
    memcpy(flight->bytes + sizeof header, bytes + skip, entry->size - skip);
}

static entry_t *next_for(peer_t *peer, const peer_link_t *link)
{
    entry_t *entry = NULL;

    DL_FOREACH(peer->queue, entry) {
        if (entry->address == NULL ||
            strcmp(entry->address, link->address) == 0) {
            break;
        }
    }
    return entry;
}

static bool begin(peer_t *peer, peer_link_t *link)
{
    entry_t *entry = peer->is_paused || pn_link_credit(link->link) <= 0
                         ? NULL
                         : next_for(peer, link);
    flight_t *flight = NULL;

    if (entry == NULL) {
        return false;
    }
    flight = calloc(1, sizeof *flight);
    if (flight == NULL) {
        abort();
    }
    DL_DELETE(peer->queue, entry);
    entry->is_queued = false;
    peer->stats.queued--;
    peer->stats.transfers++;
    peer->stats.unsettled++;
    flight->entry = entry;
    flight->link = link;
    flight->size = entry->size;
    flight->attempt = ++entry->attempts;
    if (entry->failures > 0) {
        raise_count(flight);
    }
    if (entry->tag != NULL) {
        flight->delivery =
            pn_delivery(link->link, pn_dtag(entry->tag, entry->tag_bytes));
    } else {
        link->next_tag++;
        flight->delivery =
            pn_delivery(link->link, pn_dtag((const char *)&link->next_tag,
                                            sizeof link->next_tag));
    }
    pn_delivery_set_context(flight->delivery, flight);
    DL_APPEND(link->flights, flight);
    link->current = flight;
    link->unsettled++;
    return true;
}

static void finish(peer_t *peer, peer_link_t *link)
{
    flight_t *flight = link->current;

    link->current = NULL;
    pn_link_advance(link->link);
    if (flight->entry->settled ||
        pn_link_snd_settle_mode(link->link) == PN_SND_SETTLED) {
        pn_delivery_t *delivery = flight->delivery;

        peer->stats.presettled++;
        broker_free_flight(flight);
        pn_delivery_settle(delivery);
    }
}

static void abort_delivery(peer_link_t *link)
{
    pn_delivery_t *delivery = link->current->delivery;

    broker_free_flight(link->current);
    pn_delivery_abort(delivery);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* One transfer, or one whole message; false when nothing can be sent. */
static bool send_part(peer_t *peer, peer_link_t *link)
{
    const peer_options_t *options = &peer->options;
    flight_t *flight = link->current;
    const entry_t *entry = NULL;
    const char *bytes = NULL;
    size_t part = 0;

    if (flight == NULL) {
        if (!begin(peer, link)) {
            return false;
        }
        flight = link->current;
    }
    entry = flight->entry;
    bytes = flight->bytes != NULL ? flight->bytes : entry->bytes;
    if (flight->offset > 0 && pn_delivery_pending(flight->delivery) > 0) {
        return false; /* the session window is full */
    }
    if (entry->abort_at != 0 && flight->offset >= entry->abort_at) {
        abort_delivery(link);
        return true;
    }
    if (entry->hold_at != 0 && flight->offset >= entry->hold_at) {
        return false;
    }
    part = flight->size - flight->offset;
    if (part == 0) {
        finish(peer, link);
        return true;
    }
    if (options->fragment_bytes != 0) {
        part = smaller(part, options->fragment_bytes);
    }
    if (entry->abort_at != 0) {
        part = smaller(part, entry->abort_at - flight->offset);
    }
    if (entry->hold_at != 0) {
        part = smaller(part, entry->hold_at - flight->offset);
    }
    pn_link_send(link->link, bytes + flight->offset, part);
    flight->offset += part;
    if (flight->offset == flight->size && !options->empty_last_frame &&
        entry->abort_at == 0 && entry->hold_at == 0) {
        finish(peer, link);
    }
    if (options->fragment_bytes != 0 || link->current != NULL) {
        connection_flush(link->connection);
    }
    return true;
}

static bool has_room(const peer_link_t *link)
{
    return link->connection->out_bytes < OUT_ENOUGH &&
           pn_session_outgoing_bytes(pn_link_session(link->link)) < OUT_ENOUGH;
}

/* As much as credit and buffers allow, the links in turn. */
bool broker_pump(peer_t *peer)
{
    connection_t *connection = NULL;
    peer_link_t *link = NULL;
    bool is_moving = true;
    bool has_moved = false;

    while (is_moving) {
        is_moving = false;
        DL_FOREACH(peer->connections, connection) {
            DL_FOREACH(connection->links, link) {
                if (link->is_live && !connection->is_cut && has_room(link)) {
                    is_moving |= send_part(peer, link);
                }
            }
        }
        has_moved |= is_moving;
    }
    DL_FOREACH(peer->connections, connection) {
        DL_FOREACH(connection->links, link) {
            if (link->is_live && !connection->is_cut &&
                pn_link_get_drain(link->link) && link->current == NULL &&
                !peer->options.hold_drain &&
                (peer->is_paused || next_for(peer, link) == NULL)) {
                pn_link_drained(link->link);
            }
        }
    }
    broker_measure(peer);
    return has_moved;
}

/* Called when all that has been read is applied and before more is sent. */
void broker_measure(peer_t *peer)
{
    peer_stats_t *stats = &peer->stats;
    connection_t *connection = NULL;
    peer_link_t *link = NULL;

    stats->live_links = 0;
    stats->credit = 0;
    DL_FOREACH(peer->connections, connection) {
        DL_FOREACH(connection->links, link) {
            if (link->is_live) {
                int credit = pn_link_credit(link->link);
                int outstanding =
                    link->unsettled + credit - (link->current != NULL);

                stats->live_links++;
                stats->credit += credit;
                if (link->unsettled > stats->max_unsettled) {
                    stats->max_unsettled = link->unsettled;
                }
                if (outstanding > stats->max_outstanding) {
                    stats->max_outstanding = outstanding;
                }
            }
        }
    }
}
