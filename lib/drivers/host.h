#ifndef IDEMI_HOST_H
#define IDEMI_HOST_H

#include "drivers/connection.h"

#include <proton/connection.h>
#include <proton/event.h>

/* What runs a connection: a proactor of its own, or the reactor of the program
 * that it lives in. The host owns the loop, the clock's timer and the sockets;
 * the connection decides what happens on them. */
typedef struct idemi_host idemi_host_t;
struct idemi_host {
    /* A new Proton connection for this URL, not open yet. NULL: no memory, or
     * what was noted. */
    pn_connection_t *(*create)(idemi_host_t *host, const idemi_url_t *url);

    /* Connects what create() returned. From then on it is the host's, which
     * frees it after its PN_TRANSPORT_CLOSED. */
    void (*connect)(idemi_host_t *host, pn_connection_t *wire,
                    const idemi_url_t *url);

    /* Any thread and signal handlers: a round soon. Keeps errno. */
    void (*interrupt)(idemi_host_t *host);

    /* A round at deadline_ms at the latest; INT64_MAX: none is needed. */
    void (*arm)(idemi_host_t *host, int64_t deadline_ms);

    /* The connection has stopped for good; nothing of it may be called any
     * more but idemi_connection_result(). */
    void (*finished)(idemi_host_t *host);

    /* Frees the host; idemi_connection_destroy() calls it. */
    void (*destroy)(idemi_host_t *host);
};

/* The rest is what a host calls, on the I/O thread. */

/* Takes the connection for this host, which idemi_connection_stop() may
 * interrupt from now on. False: it has a host already, or no link. */
bool idemi_connection_take(idemi_connection_t *connection, idemi_host_t *host);

/* The first round; finished() may be called before it returns. */
void idemi_connection_begin(idemi_connection_t *connection, int64_t now_ms);

/* Within create(): the host of the URL could not be looked up. */
void idemi_connection_note_lookup(idemi_connection_t *connection,
                                  const char *problem);

/* One event of the connection's Proton objects; others are ignored. */
void idemi_connection_event(idemi_connection_t *connection, pn_event_t *event,
                            int64_t now_ms);

/* Does what is due: tasks of the mailbox, timers, commands of the engines, the
 * steps of a stop. Call it behind each batch of events, after interrupt() and
 * when the timer has fired; where the connection has a wire, then only in a
 * place where Proton allows calls on it. */
void idemi_connection_round(idemi_connection_t *connection, int64_t now_ms);

/* Around calls of the functions above by a host whose loop is the program's:
 * callbacks in between must not destroy the client. */
void idemi_connection_enter(idemi_connection_t *connection);
void idemi_connection_leave(idemi_connection_t *connection);

/* Its mailbox; the host sets the wake, the end of the connection
 * removes it. */
idemi_mailbox_t *idemi_connection_mailbox(const idemi_connection_t *connection);

/* The Proton connection of the present try, or NULL between two. */
pn_connection_t *idemi_connection_wire(const idemi_connection_t *connection);

/* Whether the connection is in the hands of another thread, which connects it:
 * until then rounds leave it alone, wherever they are. */
void idemi_connection_lend(idemi_connection_t *connection, bool is_lent);
bool idemi_connection_is_lent(const idemi_connection_t *connection);

/* The URL of the present try. */
const idemi_url_t *idemi_connection_url(const idemi_connection_t *connection);

/* The host is gone, and every Proton object with it: ends without a close. */
void idemi_connection_abandon(idemi_connection_t *connection, int64_t now_ms);

#endif
