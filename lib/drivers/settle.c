#include "drivers/link.h"

#include <proton/disposition.h>

#include <assert.h>
#include <stdlib.h>

/* The one place where a delivery is settled with an outcome: a settlement
 * without a state would leave the message with the broker as "delivering"
 * until the link goes. */
static void settle(pn_delivery_t *wire, uint64_t state)
{
    assert(state != 0);
    pn_delivery_update(wire, state);
    pn_delivery_settle(wire);
}

void idemi_link_release(pn_delivery_t *wire)
{
    settle(wire, PN_RELEASED);
}

void idemi_link_abort(pn_delivery_t *wire)
{
    /* The peer has settled it; this only frees it here. */
    pn_delivery_settle(wire);
}

static void settle_rejected(const idem_delivery_t *delivery,
                            pn_delivery_t *wire)
{
    pn_condition_t *condition =
        pn_disposition_condition(pn_delivery_local(wire));
    const char *description = idemi_delivery_description(delivery);

    (void)pn_condition_set_name(condition, idemi_delivery_condition(delivery));
    if (description) {
        (void)pn_condition_set_description(condition, description);
    }
    settle(wire, PN_REJECTED);
}

static int by_number(const void *left, const void *right)
{
    uint64_t a = ((const idemi_acceptance_t *)left)->number;
    uint64_t b = ((const idemi_acceptance_t *)right)->number;

    return a < b ? -1 : a > b;
}

/* Proton merges the settlements of neighbours into one frame when they are
 * made in the order of arrival and nothing else comes between. */
static void settle_accepted(idemi_link_t *link)
{
    bool sorted = true;

    for (size_t i = 1; i < link->acceptance_count; i++) {
        sorted = sorted && by_number(&link->acceptances[i - 1],
                                     &link->acceptances[i]) < 0;
    }
    if (!sorted) {
        qsort(link->acceptances, link->acceptance_count,
              sizeof *link->acceptances, by_number);
    }
    for (size_t i = 0; i < link->acceptance_count; i++) {
        settle(link->acceptances[i].wire, PN_ACCEPTED);
    }
    link->acceptance_count = 0;
}

static void accept_later(idemi_link_t *link, const idem_delivery_t *delivery,
                         pn_delivery_t *wire)
{
    /* There are as many places as the window has; a peer may ignore credit. */
    if (link->acceptance_count == link->acceptance_room) {
        settle_accepted(link);
    }
    link->acceptances[link->acceptance_count++] =
        (idemi_acceptance_t){delivery->entry.number, wire};
}

static void take_settlement(idemi_link_t *link, idem_delivery_t *delivery)
{
    const idemi_settlement_t settlement = delivery->entry.settlement;
    pn_delivery_t *wire = delivery->wire;
    bool is_current = wire && delivery->generation == link->generation;

    if (settlement == IDEMI_SETTLE_REJECTED && link->config.port->rejected) {
        link->config.port->rejected(link->config.context, delivery);
    }
    delivery->wire = NULL; /* never twice */
    if (!is_current) {
        return;
    }
    if (delivery->entry.presettled) {
        pn_delivery_settle(wire); /* here alone: the peer has settled it */
        return;
    }
    switch (settlement) {
    case IDEMI_SETTLE_ACCEPTED:
        accept_later(link, delivery, wire);
        return;
    case IDEMI_SETTLE_RELEASED:
        settle(wire, PN_RELEASED);
        return;
    case IDEMI_SETTLE_FAILED:
        /* Said explicitly: failed is false by default, and a broker treats
         * that like a release (AMQP 1.0, section 3.4.5). */
        pn_disposition_set_failed(pn_delivery_local(wire), true);
        settle(wire, PN_MODIFIED);
        return;
    case IDEMI_SETTLE_REJECTED:
        settle_rejected(delivery, wire);
        return;
    }
    assert(false); /* there is no settlement without an outcome */
}

/* Makes up the difference between what the engine counts and what the peer
 * has, so that credit that a third party granted or that was lost is mended
 * here. */
static void grant(idemi_link_t *link)
{
    int missing = (int)link->granted - pn_link_credit(link->wire);

    if (missing > 0) {
        pn_link_flow(link->wire, missing);
    }
}

void idemi_link_pump(idemi_link_t *link)
{
    const idemi_link_port_t *port = link->config.port;
    idemi_command_t command;
    bool credited = false;

    while (idemi_engine_next(link->config.engine, &command)) {
        switch (command.kind) {
        case IDEMI_COMMAND_STORE:
        case IDEMI_COMMAND_RUN:
        case IDEMI_COMMAND_CANCEL:
            port->command(link->config.context, &command);
            break;
        case IDEMI_COMMAND_SETTLE:
            take_settlement(link, (idem_delivery_t *)(void *)command.entry);
            break;
        case IDEMI_COMMAND_FORGET:
            idemi_delivery_destroy((idem_delivery_t *)command.entry);
            break;
        case IDEMI_COMMAND_CREDIT:
            link->granted += command.credit;
            credited = true;
            break;
        }
    }
    settle_accepted(link);
    if (credited && link->engine_up) {
        grant(link);
    }
    port->flush(link->config.context);
}

bool idemi_link_watch(idemi_link_t *link, int64_t now_ms)
{
    idemi_link_release_held(link, now_ms);
    if (!link->engine_up || link->drained) {
        return true;
    }
    bool starved = link->granted > 0 && pn_link_credit(link->wire) <= 0;
    if (!starved) {
        link->is_starved = false;
        /* Sends no frame; in a reactor it renews the deadlines of the
         * transport, which the removal of another descriptor can lose. */
        pn_link_flow(link->wire, 0);
        return true;
    }
    if (link->is_starved) {
        return false;
    }
    link->is_starved = true;
    idemi_log(&link->logger, IDEM_LOG_WARNING,
              "The broker gave back its credit unasked; granting it again: "
              "address=%s credit=%u",
              link->config.address, link->granted);
    grant(link);
    return true;
}
