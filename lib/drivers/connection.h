#ifndef IDEMI_CONNECTION_H
#define IDEMI_CONNECTION_H

#include "base/log.h"
#include "base/mailbox.h"
#include "drivers/url.h"
#include "engine/engine.h"
#include "message/delivery.h"

#include <idem/client.h>

/* One connection, its session and its links, over all reconnects: Proton
 * events become engine inputs, engine commands become Proton calls. Both hosts
 * (proactor, reactor) run the same code. Everything here belongs to the I/O
 * thread unless it says otherwise. */
typedef struct idemi_connection idemi_connection_t;

typedef struct idemi_connection_config {
    /* All of it stays valid as long as the connection. */
    const idemi_url_t *urls;
    size_t url_count;
    const char *user; /* for URLs that carry none; NULL: none */
    const char *password;
    bool allow_insecure_plain;
    const char *container_id;
    int64_t connect_timeout_ms;
    int64_t idle_timeout_ms;
    int64_t reconnect_min_ms;
    int64_t reconnect_max_ms;
    uint32_t reconnect_tries; /* 0: no limit */
    int64_t stop_timeout_ms;
    uint64_t seed;            /* of the jitter */
    idemi_mailbox_t *mailbox; /* its tasks are run on the I/O thread */
    idemi_logger_t logger;
    idem_event_handler_t event_handler;
    void *event_user;
} idemi_connection_config_t;

/* What the consumer behind a link does for it; called on the I/O thread. */
typedef struct idemi_link_port {
    /* All bytes of the message are in delivery->encoded (none, when oversized
     * is true): fill in entry.verdict, key, group and the rest. False: no
     * memory; release it, as where idemi_engine_arrived() says so. */
    bool (*identify)(void *context, idem_delivery_t *delivery, bool oversized);
    /* STORE, RUN, CANCEL. */
    void (*command)(void *context, const idemi_command_t *command);
    /* The last command of a round was given: hand over what was gathered. */
    void (*flush)(void *context);
    /* A delivery ends with this outcome that carries a reason: for the log. */
    void (*rejected)(void *context, const idem_delivery_t *delivery);
} idemi_link_port_t;

typedef struct idemi_link_config {
    const char *address; /* stays valid, as do the others */
    uint64_t max_message_bytes;
    uint32_t prefetch;
    idemi_engine_t *engine;
    idemi_completions_t *completions;
    const idemi_link_port_t *port;
    void *context;
} idemi_link_config_t;

idem_status_t idemi_connection_create(idemi_connection_t **connection,
                                      const idemi_connection_config_t *config);
/* Before it runs. */
idem_status_t idemi_connection_add_link(idemi_connection_t *connection,
                                        const idemi_link_config_t *config);
/* Once it has stopped, or never ran. NULL is allowed. */
void idemi_connection_destroy(idemi_connection_t *connection);

/* Any thread and signal handlers: asks for a stop, at any time in its life. */
void idemi_connection_stop(idemi_connection_t *connection);

/* Runs on a proactor of its own until it has stopped (drivers/proactor.c). */
idem_status_t idemi_connection_run(idemi_connection_t *connection,
                                   idem_error_t *err);

/* A handler that runs it inside the caller's reactor (drivers/reactor.c). */
idem_status_t idemi_connection_reactor_handler(idemi_connection_t *connection,
                                               struct pn_handler_t **handler,
                                               idem_error_t *err);

/* How it ended; IDEM_ERR_STATE while it has not. */
idem_status_t idemi_connection_result(const idemi_connection_t *connection,
                                      idem_error_t *err);

/* Any thread: the I/O thread is at work in here, perhaps in a callback. */
bool idemi_connection_is_busy(const idemi_connection_t *connection);

/* Any thread. */
void idemi_connection_statistics(const idemi_connection_t *connection,
                                 idem_client_statistics_t *statistics);

#endif
