#ifndef IDEM_TEST_BLOCKING_H
#define IDEM_TEST_BLOCKING_H

/*
 * A blocking AMQP connection without a thread: Proton's connection driver on a
 * socket. Management, the sender and the receiver of this library stand on it.
 * One thread at a time. What fails says why on stderr.
 */

#include <proton/types.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct pn_event_t pn_event_t;
typedef struct blocking blocking_t;

/** Called in blocking_run() for each event, after it was handled. */
typedef void (*blocking_handler_t)(pn_event_t *event, void *user);

/**
 * Connect, log in (ANONYMOUS, or PLAIN when the URL has a user), open, begin.
 *
 * @param url  amqp://[user:password@]host:port, by IPv4 or name
 *
 * @return NULL when that did not work in time
 */
blocking_t *blocking_open(const char *url, int64_t timeout_ms);

/** Closes in order, in at most two seconds, and frees. NULL is fine. */
void blocking_close(blocking_t *blocking);

pn_session_t *blocking_session(blocking_t *blocking);

void blocking_set_handler(blocking_t *blocking, blocking_handler_t handler,
                          void *user);

/**
 * Work until the condition holds. It is asked after each round of events.
 *
 * @return false at the deadline, or when the connection is gone or a link was
 *         refused or detached by the broker
 */
bool blocking_run(blocking_t *blocking, bool (*condition)(void *user),
                  void *user, int64_t timeout_ms);

/**
 * Open a link that the caller has set up, and wait for the answer.
 *
 * @return false when it was refused
 */
bool blocking_attach(blocking_t *blocking, pn_link_t *link, int64_t timeout_ms);

/** Close a link and wait for the answer. */
bool blocking_detach(blocking_t *blocking, pn_link_t *link, int64_t timeout_ms);

#endif
