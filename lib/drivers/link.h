#ifndef IDEMI_LINK_H
#define IDEMI_LINK_H

#include "base/random.h"
#include "drivers/connection.h"

#include <proton/delivery.h>
#include <proton/link.h>
#include <proton/session.h>

/* One receiving link over all reconnects, each time in a session of its own:
 * its events become inputs of its engine, its engine's commands calls on it.
 * I/O thread only; Proton is called only where the connection may. */

typedef enum idemi_link_state {
    IDEMI_LINK_DOWN,      /* attached at due_ms, once the connection is open */
    IDEMI_LINK_ATTACHING, /* no answer yet; given up at due_ms */
    IDEMI_LINK_UP,
    IDEMI_LINK_DETACHING, /* a stop: our detach waits for its answer */
    IDEMI_LINK_ENDING     /* our end waits for its answer, until due_ms */
} idemi_link_state_t;

/* What becomes of the bytes of the delivery that is being read. */
typedef enum idemi_reading {
    IDEMI_READING_KEPT,
    IDEMI_READING_OVERSIZED, /* dropped; rejected at its end */
    IDEMI_READING_NO_MEMORY  /* dropped; released at its end */
} idemi_reading_t;

/* A delivery to be accepted at the end of the round. */
typedef struct idemi_acceptance {
    uint64_t number; /* in the order of arrival */
    pn_delivery_t *wire;
} idemi_acceptance_t;

typedef struct idemi_link idemi_link_t;
struct idemi_link {
    idemi_link_t *next;
    idemi_connection_t *connection;
    idemi_link_config_t config;
    idemi_logger_t logger;

    idemi_link_state_t state;
    int64_t due_ms;
    pn_session_t *session;
    pn_link_t *wire;
    pn_session_t *spent; /* ended by both sides, to be freed */

    /* What wire's deliveries are known by: a delivery of another generation
     * is gone, and its memory may be another delivery's. */
    uint64_t generation;
    bool engine_up;  /* the engine was told of the link */
    bool is_settled; /* the peer insists on settled transfers */
    bool drained;    /* a stop: our drain was sent */
    uint64_t attaches;

    /* Credit that the engine counts as the broker's. */
    uint32_t granted;

    idem_delivery_t *delivery; /* being read */
    idemi_reading_t reading;
    uint64_t received; /* bytes of it */

    idemi_acceptance_t *acceptances;
    size_t acceptance_count, acceptance_room;

    /* Deliveries that there was no memory for, as many as the window has. */
    pn_delivery_t **held;
    size_t held_count;

    /* Failures in a row, and since when the peer refuses. */
    uint32_t tries;
    uint32_t refusals;
    int64_t refused_at_ms;
    int64_t retry_at_ms; /* when to attach again, once the session is over */
    bool has_attached;   /* ever */
    int64_t up_at_ms;
    bool is_starved; /* the watchdog found no credit at the peer */
};

/* NULL: no memory. */
idemi_link_t *idemi_link_create(idemi_connection_t *connection,
                                const idemi_link_config_t *config,
                                const idemi_logger_t *logger);
/* Its Proton objects must be gone. */
void idemi_link_destroy(idemi_link_t *link);

/* Begins a session and attaches; state is DOWN. name is unique. */
void idemi_link_attach(idemi_link_t *link, pn_connection_t *connection,
                       const char *name, int64_t due_ms);

/* Looks at the peer's answer to our attach. */
typedef enum idemi_attach_answer {
    IDEMI_ATTACH_TAKEN,
    IDEMI_ATTACH_REFUSED, /* the reason follows with the peer's detach */
    IDEMI_ATTACH_WRONG    /* not what was asked for */
} idemi_attach_answer_t;
idemi_attach_answer_t idemi_link_attached(idemi_link_t *link, int64_t now_ms);

/* Its deliveries can no longer be settled. Tells the engine. */
void idemi_link_lost(idemi_link_t *link, int64_t now_ms);

/* A stop: detaches; nothing is settled after it. */
void idemi_link_detach(idemi_link_t *link, int64_t now_ms, int64_t due_ms);

/* Detaches, or answers a detach, and ends the session. */
void idemi_link_end(idemi_link_t *link, int64_t due_ms);

/* The session is ended by both sides: the link is DOWN until due_ms. */
void idemi_link_ended(idemi_link_t *link, int64_t due_ms);

/* The connection and every Proton object in it are gone. */
void idemi_link_disconnected(idemi_link_t *link, int64_t now_ms);

/* Asks the peer to use up or give back its credit. */
void idemi_link_drain(idemi_link_t *link);
/* No transfer is to be expected any more. */
bool idemi_link_is_drained(const idemi_link_t *link);

/* A PN_DELIVERY event (drivers/receive.c). True when a delivery arrived. */
bool idemi_link_receive(idemi_link_t *link, pn_delivery_t *wire,
                        int64_t now_ms);
/* Forgets a delivery that was being read. */
void idemi_link_stop_reading(idemi_link_t *link);

/* Carries out what the engine has to say (drivers/settle.c). */
void idemi_link_pump(idemi_link_t *link);
/* Settles a delivery that has no entry: as released, or, where the peer has
 * settled it, here alone. */
void idemi_link_release(pn_delivery_t *wire);
void idemi_link_abort(pn_delivery_t *wire);

/* Releases what there was no memory for. That is done once a second: at once,
 * the peer would send it again at once. */
void idemi_link_release_held(idemi_link_t *link, int64_t now_ms);

/* Once a second while the link is up: false when the peer has no credit
 * although the engine gave it, for the second time in a row. */
bool idemi_link_watch(idemi_link_t *link, int64_t now_ms);

#endif
