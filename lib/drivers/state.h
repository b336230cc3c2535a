#ifndef IDEMI_STATE_H
#define IDEMI_STATE_H

#include "base/random.h"
#include "drivers/failure.h"
#include "drivers/host.h"
#include "drivers/link.h"

#include <stdatomic.h>

/* The inside of a connection, for connection.c, events.c, round.c and stop.c
 * alone. */

typedef enum idemi_phase {
    IDEMI_PHASE_IDLE,       /* no wire, and none is wanted */
    IDEMI_PHASE_PAUSED,     /* no wire; the next try is at due_ms */
    IDEMI_PHASE_CONNECTING, /* TCP, SASL and open, until due_ms */
    IDEMI_PHASE_OPEN,
    IDEMI_PHASE_CLOSING, /* closed by us, answered until due_ms */
    IDEMI_PHASE_ENDED
} idemi_phase_t;

struct idemi_connection {
    idemi_connection_config_t config;
    idemi_link_t *links; /* fixed once it runs */
    size_t link_count;

    /* Any thread and signal handlers. The host is set once and lives as long
     * as the connection. */
    _Atomic(idemi_host_t *) host;
    atomic_bool stop_asked;

    /* Written by the I/O thread, read by any. */
    atomic_uint_fast64_t connects;
    atomic_uint_fast64_t disconnects;
    atomic_bool is_connected;
    atomic_int entered; /* nested calls of the host */

    /* The rest is the I/O thread's. */
    idemi_random_t random;
    uint64_t name;  /* of this connection's links */
    uint64_t names; /* made so far */

    pn_connection_t *wire;
    size_t url_index;
    idemi_phase_t phase;
    uint32_t tries; /* that failed, in a row */
    int64_t due_ms;

    /* The watchdog. */
    int64_t watch_due_ms;
    int64_t progress_at_ms;
    uint64_t frames;

    /* The stop. */
    int64_t stop_due_ms;
    int64_t drain_due_ms;
    bool stopping;
    bool detaching;

    bool is_lent;     /* the wire, to a thread of the host's */
    bool kill_wanted; /* as soon as there is a transport */
    bool was_used;    /* a link was attached on this wire */
    bool has_failure;
    bool failure_is_fatal;
    idem_error_t failure; /* why this wire ends, once that is known */
    idem_error_t result;  /* why it stops; IDEM_OK: as it was asked */
};

/* User and password of the present try; NULL: ANONYMOUS. */
const char *idemi_connection_user(const idemi_connection_t *connection,
                                  const char **password);

/* Tells the event handler. */
void idemi_connection_tell(const idemi_connection_t *connection,
                           idem_event_type_t type, const char *address,
                           const idem_error_t *error, int64_t retry_in_ms);

/* Stops for good because of this error. */
void idemi_connection_fail(idemi_connection_t *connection,
                           const idem_error_t *error, int64_t now_ms);

/* Notes why the wire ends; the first reason stays. */
void idemi_connection_note(idemi_connection_t *connection,
                           const idem_error_t *failure, bool is_fatal);

/* Ends the wire without a word; PN_TRANSPORT_CLOSED follows. */
void idemi_connection_kill(idemi_connection_t *connection);

/* The next try. */
void idemi_connection_connect(idemi_connection_t *connection, int64_t now_ms);

void idemi_connection_begin_stop(idemi_connection_t *connection,
                                 int64_t now_ms);

/* The next step of a stop, when its time has come. True when there was one. */
bool idemi_connection_advance_stop(idemi_connection_t *connection,
                                   int64_t now_ms);

/* Ends a link and attaches it again later, or fails. */
void idemi_connection_link_failed(idemi_connection_t *connection,
                                  idemi_link_t *link, idemi_end_t end,
                                  const idem_error_t *error, int64_t now_ms);

/* The wire is gone: pauses before the next try, or goes on to stop. */
void idemi_connection_disconnected(idemi_connection_t *connection,
                                   int64_t now_ms);

#endif
