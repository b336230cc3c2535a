#ifndef IDEM_CLIENT_H
#define IDEM_CLIENT_H

#include <idem/status.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pn_reactor_t;
struct pn_handler_t;

/** One connection to a broker and the consumers on it. */
typedef struct idem_client idem_client_t;

/** What happened to a client; see idem_event_t. */
typedef enum idem_event_type {
    IDEM_EVENT_CONNECTED = 1, /**< the broker accepted the connection */
    IDEM_EVENT_DISCONNECTED,  /**< lost, or could not be made; tried again */
    IDEM_EVENT_ATTACHED,      /**< a consumer's link is up */
    IDEM_EVENT_DETACHED,      /**< a consumer's link ended; attached again */
    IDEM_EVENT_STORE_DOWN,    /**< the store does not answer; retried */
    IDEM_EVENT_STORE_UP,      /**< the store answers again */
    IDEM_EVENT_STOPPED,       /**< the client has stopped as it was asked */
    IDEM_EVENT_FAILED         /**< the client has stopped with this error */
} idem_event_type_t;

typedef struct idem_event {
    idem_event_type_t type;
    /** The consumer's address, or NULL where the event is the client's. */
    const char *address;
    /** The reason; status IDEM_OK where there is none. */
    const idem_error_t *error;
    /** The pause before the next try, in milliseconds, else 0. */
    int64_t retry_in_ms;
} idem_event_t;

/**
 * Receives state changes.
 *
 * Threads:   the I/O thread; store events on a store thread, perhaps at the
 *            same time. No lock is held.
 * Blocks:    must not.
 * Ownership: everything in event is valid until the callback returns.
 */
typedef void (*idem_event_handler_t)(void *user, const idem_event_t *event);

typedef struct idem_client_options {
    size_t struct_size; /**< set by init; leave alone */

    /** One broker or several, separated by commas and tried in turn:
     * `amqp://[user:password@]host[:port]`; required. Parts may be %-escaped;
     * IPv6 addresses stand in brackets. The port is 5672 by default. */
    const char *url;

    /** SASL PLAIN credentials for URLs that carry none; both or neither.
     * Without any, the client logs in as ANONYMOUS. */
    const char *user;
    const char *password;

    /** Send a password in clear to a host that is not this machine; default
     * false. */
    bool allow_insecure_plain;

    /** AMQP container id; NULL makes one that is unique to this client. */
    const char *container_id;

    /** Limit for TCP, SASL and open together; default 10,000 ms. */
    int64_t connect_timeout_ms;

    /** The connection counts as dead when the broker has been silent this
     * long; half of it is announced (AMQP 1.0, section 2.4.5). Default
     * 30,000 ms; 0 turns the check off. */
    int64_t idle_timeout_ms;

    /** Pause before a new try: doubled from min to max, half of it at random.
     * Defaults 100 and 30,000 ms. */
    int64_t reconnect_min_ms;
    int64_t reconnect_max_ms;

    /** Give up after this many failed tries in a row, of the connection or of
     * one link; 0, the default, never does. Whatever it says, a refused login
     * ends the client at once, and a refused address at the first attach, or
     * later once it was refused for reconnect_max_ms. */
    uint32_t reconnect_tries;

    /** How long a stop waits for running handlers and their confirms; default
     * 30,000 ms. */
    int64_t stop_timeout_ms;

    /** Where log lines go and from which level on; NULL for nowhere. Default
     * idem_log_to_stderr() at IDEM_LOG_WARNING. */
    idem_log_handler_t log_handler;
    void *log_user;
    idem_log_level_t log_level;

    /** Told of state changes; may be NULL. */
    idem_event_handler_t event_handler;
    void *event_user;
} idem_client_options_t;

/** What a client has done since it was created. */
typedef struct idem_client_statistics {
    uint64_t connects;    /**< connections that were opened */
    uint64_t disconnects; /**< connections that ended, or were never opened */
    bool connected;       /**< now */
} idem_client_statistics_t;

/** Fill in the defaults. Always first. */
#define idem_client_options_init(o) \
    idem_client_options_init_sized((o), sizeof *(o))

/** What idem_client_options_init() calls; size is sizeof *options. */
IDEM_API void idem_client_options_init_sized(idem_client_options_t *options,
                                             size_t size);

/**
 * Make a client. Add consumers with idem_consumer_create(), then run it.
 *
 * Threads:   any.
 * Blocks:    no; the network is not touched.
 * Ownership: the caller owes idem_client_destroy(). Strings are copied.
 *
 * @retval IDEM_OK          made
 * @retval IDEM_ERR_ARG     an option is wrong; err names the field
 * @retval IDEM_ERR_MEMORY  out of memory
 * @retval IDEM_ERR_SYSTEM  no random bytes or no descriptor could be had
 */
IDEM_API idem_status_t idem_client_create(idem_client_t **client,
                                          const idem_client_options_t *options,
                                          idem_error_t *err);

/**
 * Connect, consume and reconnect until idem_client_stop() or a refusal that no
 * new try can mend. The calling thread becomes the I/O thread.
 *
 * A client runs once. When it is asked to stop, it takes nothing more, lets
 * running handlers finish within stop_timeout_ms, gives back what was not
 * started (claims and deliveries) and closes in order.
 *
 * Threads:   one thread, not a handler's.
 * Blocks:    until the client has stopped; a name that is being looked up is
 *            waited for. Handlers that outlive stop_timeout_ms go on in their
 *            thread; idem_client_destroy(), which should follow soon, waits for
 *            them and renews their claims.
 *
 * @retval IDEM_OK                   stopped as asked
 * @retval IDEM_ERR_STATE            it runs, has run, or has no consumer
 * @retval IDEM_ERR_TIMEOUT          stopped, but handlers were still running
 * @retval IDEM_ERR_AUTHENTICATION   wrong user or password, or a password for
 *                                   another machine without
 *                                   allow_insecure_plain
 * @retval IDEM_ERR_PERMISSION       the user may not consume there
 * @retval IDEM_ERR_ADDRESS          no such address, or another routing
 * @retval IDEM_ERR_CONNECTION       reconnect_tries are used up
 * @retval IDEM_ERR_MEMORY, IDEM_ERR_SYSTEM  no threads or memory to start
 */
IDEM_API idem_status_t idem_client_run(idem_client_t *client,
                                       idem_error_t *err);

/**
 * Ask a client to stop. May be called before it runs, and often.
 *
 * Threads:   any, also handlers and signal handlers (it is
 *            async-signal-safe); not once idem_client_destroy() has begun.
 * Blocks:    no.
 */
IDEM_API void idem_client_stop(idem_client_t *client);

/**
 * Free a client and its consumers. NULL is allowed.
 *
 * Work that handlers have ended by then is still confirmed in the store, so
 * that it is not done again, and what they left is released. Deliveries that
 * are deferred still stay valid until idem_delivery_complete(); their claims
 * run out with the lease. Called by a handler or a callback of the I/O thread,
 * or while idem_client_run() runs, it logs an error and does nothing.
 *
 * Threads:   one thread, not a handler's, once idem_client_run() has returned
 *            or the host reactor has let go of the client.
 * Blocks:    until handlers that are still running return, and then for the
 *            store up to stop_timeout_ms, at most 30,000 ms, and for what its
 *            connections are doing by then, at most its deadline.
 */
IDEM_API void idem_client_destroy(idem_client_t *client);

/**
 * Read the counters.
 *
 * Threads:   any.
 *
 * @retval IDEM_OK       written
 * @retval IDEM_ERR_ARG  an argument is NULL
 */
IDEM_API idem_status_t idem_client_statistics(
    const idem_client_t *client, idem_client_statistics_t *statistics);

/**
 * Run a client inside a program that has its own reactor: the handler that
 * this returns takes the place of a raw Proton handler.
 *
 *     pn_handler_add(pn_reactor_get_handler(reactor), handler);
 *
 * The client starts with the first event that the handler sees
 * (PN_REACTOR_INIT, when it was added before pn_reactor_start()), makes its own
 * connection in that reactor, and keeps the reactor's loop alive until it has
 * stopped. The reactor's other connections and handlers are left alone.
 * How it ended is told by the event handler and by idem_reactor_result().
 *
 * Claims are renewed by the reactor's loop: whatever holds it up for longer
 * than a lease, a slow look-up of a name too, makes running handlers lose
 * theirs.
 *
 * Threads:   the thread that runs the reactor, which becomes the I/O thread.
 * Blocks:    no.
 * Ownership: pn_reactor_free() drops the returned reference of a handler that
 *            was added as above, together with the reactor's own: do not
 *            pn_decref() it. (One that was given to pn_reactor_set_handler()
 *            or to a connection is the caller's to drop.) The client must live
 *            until it has stopped and the reactor has gone on from there, or
 *            is freed. Stop it before the reactor: a reactor that is freed
 *            first ends the client without a close, as a crash would.
 *
 * @param handler  receives the handler
 * @retval IDEM_OK          made
 * @retval IDEM_ERR_STATE   the client runs, has run, or has no consumer
 * @retval IDEM_ERR_ARG     an argument is NULL
 * @retval IDEM_ERR_MEMORY, IDEM_ERR_SYSTEM  no threads or memory to start
 */
IDEM_API idem_status_t idem_reactor_handler(struct pn_handler_t **handler,
                                            idem_client_t *client,
                                            idem_error_t *err);

/**
 * What idem_client_run() would have returned, for a client in a reactor.
 *
 * Threads:   the reactor's, or any once the reactor no longer runs.
 *
 * @retval IDEM_ERR_STATE  the client has not stopped yet
 */
IDEM_API idem_status_t idem_reactor_result(const idem_client_t *client,
                                           idem_error_t *err);

#ifdef __cplusplus
}
#endif

#endif
