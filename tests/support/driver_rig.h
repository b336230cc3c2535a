#ifndef IDEM_TEST_DRIVER_RIG_H
#define IDEM_TEST_DRIVER_RIG_H

/*
 * A driver under test without a client around it: one connection with its
 * links, each with a real engine that has no store, so that every delivery
 * goes straight to a handler. The same test runs with both hosts, the proactor
 * and the reactor.
 *
 * The host runs on a thread of the rig's. Handlers run on the threads of a
 * pool, or on the host's own where there is none. The reactor's program has a
 * timer of its own, and ends when that has gone on for a while after the
 * connection was done.
 */

#include <idem/consumer.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum rig_host { RIG_PROACTOR, RIG_REACTOR, RIG_HOSTS } rig_host_t;

typedef struct rig rig_t;

typedef struct rig_options {
    rig_host_t host;
    const char *url;
    const char *login; /* for URLs without one */
    const char *password;
    bool allow_insecure_plain;
    const char *addresses[4];   /* the first: "orders" when NULL */
    uint32_t prefetch;          /* 0: 10 */
    uint32_t workers;           /* threads; 0: on the I/O thread */
    uint64_t max_message_bytes; /* 0: 1 MiB */
    int64_t connect_timeout_ms; /* 0: 5000 */
    int64_t idle_timeout_ms;    /* 0: 30000; -1: none */
    int64_t reconnect_min_ms;   /* 0: 20 */
    int64_t reconnect_max_ms;   /* 0: 200 */
    uint32_t reconnect_tries;
    int64_t stop_timeout_ms; /* 0: 5000; -1: none at all */
    int64_t retry_min_ms;    /* back-off of the engine; 0: 5 */
    idem_handler_t handler;  /* NULL: accept */
    void *user;              /* handed to it */
} rig_options_t;

/* Fails the test where it cannot be made. */
rig_t *rig_create(const rig_options_t *options);
/* Starts the host's thread. It takes SIGUSR1, which the test may send. */
void rig_start(rig_t *rig);
/* Both. */
rig_t *rig_run(const rig_options_t *options);
/* Any thread, signal handlers too. */
void rig_stop(rig_t *rig);
/* Waits until the host has ended; fails the test after a while. */
idem_status_t rig_join(rig_t *rig, idem_error_t *err);
/* Stops where it still runs; checks that nothing is left; frees. */
void rig_destroy(rig_t *rig);

size_t rig_handled(rig_t *rig);
bool rig_wait_handled(rig_t *rig, size_t count, int64_t timeout_ms);

/* Events, in order. */
size_t rig_events(rig_t *rig, idem_event_type_t type);
bool rig_wait_event(rig_t *rig, idem_event_type_t type, size_t count,
                    int64_t timeout_ms);
/* The nth of a type; retry_in_ms and error are copies. */
typedef struct rig_event {
    idem_event_type_t type;
    idem_error_t error;
    int64_t retry_in_ms;
    int64_t at_ms;
    char address[64];
} rig_event_t;
bool rig_event(rig_t *rig, idem_event_type_t type, size_t n,
               rig_event_t *event);

/* Log lines that contain a text. */
size_t rig_logged(rig_t *rig, const char *text);

idem_client_statistics_t rig_statistics(rig_t *rig);
/* Of one link; exact once the host has ended. */
idem_consumer_statistics_t rig_consumer(rig_t *rig, size_t link);

pthread_t rig_thread(rig_t *rig);

/* In place of rig_start(): the handler for a reactor of the test's own. */
struct pn_handler_t *rig_reactor_handler(rig_t *rig);
/* How it ended, in the reactor's thread; IDEM_ERR_STATE: it has not. */
idem_status_t rig_result(rig_t *rig);

#endif
