#include "drivers/link.h"

#include <assert.h>

/* Bytes that are dropped are read in pieces of this. */
#define DROP_BYTES 4096

void idemi_link_stop_reading(idemi_link_t *link)
{
    idemi_delivery_destroy(link->delivery);
    link->delivery = NULL;
    link->reading = IDEMI_READING_KEPT;
    link->received = 0;
}

static void drop_what_was_read(idemi_link_t *link, idemi_reading_t reading)
{
    idemi_delivery_destroy(link->delivery);
    link->delivery = NULL;
    link->reading = reading;
}

static void drop_bytes(pn_link_t *wire)
{
    char bytes[DROP_BYTES];

    while (pn_link_recv(wire, bytes, sizeof bytes) > 0) {
    }
}

/* Bytes are read as they come: what Proton buffers it never gives back, and a
 * delivery that is settled before its end keeps its part of the session
 * window for good. */
static void read_bytes(idemi_link_t *link, pn_delivery_t *wire)
{
    size_t pending = pn_delivery_pending(wire);
    idem_delivery_t *delivery = link->delivery;

    link->received += pending;
    if (link->received > link->config.max_message_bytes) {
        if (link->reading == IDEMI_READING_KEPT) {
            drop_what_was_read(link, IDEMI_READING_OVERSIZED);
        }
    } else if (link->reading == IDEMI_READING_KEPT) {
        if (!delivery) {
            delivery =
                idemi_delivery_create(link->config.completions,
                                      pn_delivery_partial(wire) ? 0 : pending);
            link->delivery = delivery;
        }
        if (!delivery || !idemi_delivery_reserve(delivery, pending)) {
            drop_what_was_read(link, IDEMI_READING_NO_MEMORY);
        }
    }
    if (link->reading != IDEMI_READING_KEPT) {
        drop_bytes(link->wire);
        return;
    }
    if (pending > 0) {
        ssize_t count = pn_link_recv(
            link->wire, (char *)delivery->encoded + delivery->encoded_size,
            pending);
        assert(count == (ssize_t)pending);
        delivery->encoded_size += count > 0 ? (size_t)count : 0;
    }
}

/* Without an entry: the broker offers it again. Until it is released its credit
 * counts as unused, so that the window holds. */
static void give_back(idemi_link_t *link, pn_delivery_t *wire, int64_t now_ms)
{
    idemi_log(&link->logger, IDEM_LOG_WARNING,
              "Out of memory; a delivery is released: address=%s",
              link->config.address);
    if (link->held_count == link->config.prefetch) {
        idemi_link_release_held(link, now_ms); /* a peer may ignore credit */
    }
    link->held[link->held_count++] = wire;
}

void idemi_link_release_held(idemi_link_t *link, int64_t now_ms)
{
    for (size_t i = 0; i < link->held_count; i++) {
        if (pn_delivery_settled(link->held[i])) {
            idemi_link_abort(link->held[i]);
        } else {
            idemi_link_release(link->held[i]);
        }
        idemi_engine_dropped(link->config.engine, now_ms);
    }
    link->held_count = 0;
}

static void hand_over(idemi_link_t *link, pn_delivery_t *wire, int64_t now_ms)
{
    bool oversized = link->reading == IDEMI_READING_OVERSIZED;
    idem_delivery_t *delivery = link->delivery;

    if (!delivery && oversized) {
        delivery = idemi_delivery_create(link->config.completions, 0);
    }
    link->delivery = NULL;
    if (!delivery) {
        give_back(link, wire, now_ms);
        return;
    }
    delivery->wire = wire;
    delivery->generation = link->generation;
    delivery->entry.presettled = pn_delivery_settled(wire);
    if (!link->config.port->identify(link->config.context, delivery,
                                     oversized) ||
        !idemi_engine_arrived(link->config.engine, &delivery->entry, now_ms)) {
        give_back(link, wire, now_ms);
        idemi_delivery_destroy(delivery);
    }
}

/* The delivery whose bytes are next. True when it is complete, so that there
 * may be another behind it. */
static bool read_delivery(idemi_link_t *link, pn_delivery_t *wire,
                          int64_t now_ms)
{
    pn_delivery_clear(wire);
    if (pn_delivery_aborted(wire)) {
        idemi_link_stop_reading(link);
        link->granted -= link->granted ? 1 : 0;
        idemi_link_abort(wire);
        idemi_engine_dropped(link->config.engine, now_ms);
        return true;
    }
    read_bytes(link, wire);
    if (pn_delivery_partial(wire)) {
        return false;
    }
    (void)pn_link_advance(link->wire);
    link->granted -= link->granted ? 1 : 0;
    hand_over(link, wire, now_ms);
    idemi_link_stop_reading(link);
    return true;
}

/* The peer changed a delivery that we hold. Its message will come again, or
 * is gone; the claim decides what the redelivery does. */
static void report_update(const idemi_link_t *link, pn_delivery_t *wire)
{
    pn_condition_t *condition =
        pn_disposition_condition(pn_delivery_remote(wire));
    const char *name = pn_condition_get_name(condition);
    uint64_t state = pn_delivery_remote_state(wire);

    idemi_log(&link->logger, IDEM_LOG_WARNING,
              "The broker decided about a delivery in our hands; our outcome "
              "will not count: address=%s settled=%s state=%s condition=%s",
              link->config.address, pn_delivery_settled(wire) ? "yes" : "no",
              state ? pn_disposition_type_name(state) : "none",
              name ? name : "");
}

bool idemi_link_receive(idemi_link_t *link, pn_delivery_t *wire, int64_t now_ms)
{
    bool any = false;
    pn_delivery_t *current = pn_link_current(link->wire);

    if (wire != current && pn_delivery_updated(wire)) {
        report_update(link, wire);
        pn_delivery_clear(wire);
    }
    while (current && read_delivery(link, current, now_ms)) {
        any = true;
        current = pn_link_current(link->wire);
    }
    return any;
}
