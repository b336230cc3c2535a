#ifndef IDEM_TEST_PEER_INTERNAL_H
#define IDEM_TEST_PEER_INTERNAL_H

/*
 * Shared by the files of the peer; tests include peer.h only.
 *
 * peer.c         what tests call
 * peer_loop.c    the thread: sockets and timers
 * peer_login.c   the SASL layer, by hand
 * peer_broker.c  what a broker answers to events
 * peer_transfer.c  messages, as credit allows
 * peer_record.c  what was seen
 *
 * One recursive lock guards everything, Proton's objects included, and the
 * thread lets go of it only to poll. Recursive, since hooks call peer.h.
 */

#include "peer.h"

#include <proton/connection_driver.h>
#include <proton/types.h>
#include <pthread.h>

typedef struct entry entry_t;
typedef struct flight flight_t;
typedef struct peer_link peer_link_t;
typedef struct connection connection_t;

/* A message of the script. The queue is sorted by number. */
struct entry {
    entry_t *prev, *next; /* in the queue, when is_queued */
    bool is_queued;
    int number;
    int attempts; /* deliveries begun */
    int failures; /* modified with delivery-failed */
    char *bytes;
    size_t size;
    char *address;
    char *tag;
    size_t tag_bytes;
    size_t hold_at, abort_at;
    bool settled;
};

/* One delivery of an entry. It ends with the delivery or the connection. */
struct flight {
    flight_t *prev, *next;
    entry_t *entry;
    peer_link_t *link;
    pn_delivery_t *delivery;
    char *bytes; /* the entry's with a raised delivery-count, or NULL */
    size_t size;
    size_t offset;
    int attempt;
    bool is_over; /* not in the client's hand any more */
};

struct peer_link {
    peer_link_t *prev, *next;
    connection_t *connection;
    pn_link_t *link;
    flight_t *flights;
    flight_t *current; /* begun, not yet complete */
    uint32_t next_tag;
    char *address;
    int number;
    int unsettled;
    bool is_live;
};

typedef enum login { LOGIN_HEADER, LOGIN_INIT, LOGIN_DONE } login_t;

struct connection {
    connection_t *prev, *next;
    peer_t *peer;
    peer_link_t *links;
    pn_connection_driver_t driver; /* from LOGIN_DONE on */
    login_t login;
    int number;
    int fd;
    unsigned char in[1024]; /* before LOGIN_DONE */
    size_t in_bytes;
    char *out;
    size_t out_bytes, out_capacity;
    int64_t last_read_ms; /* 0: none since the open */
    int64_t tick_at_ms;   /* 0: never */
    bool is_cut;          /* to be ended by the thread */
    bool is_reset;        /* with RST */
    bool is_gone;         /* the client ended it */
    bool ends_when_sent;
    bool was_closed;
};

typedef struct records {
    peer_event_t *events;
    size_t count, capacity;
    int seen; /* also what was not kept */
} records_t;

struct peer {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    int wake_fd; /* fixed; eventfd */
    int port;    /* fixed */
    char url[64];
    int64_t start_ms; /* fixed */

    /* The rest is guarded by the lock. */
    peer_options_t options;
    int listen_fd; /* closed by the thread only; -1: not listening */
    bool should_listen, listen_failed;
    bool is_stopping, is_silent, is_paused;
    int refused;
    connection_t *connections;
    int next_connection, next_link;
    entry_t *queue;
    entry_t **entries; /* by number */
    size_t entries_count, entries_capacity;
    peer_stats_t stats;
    records_t records[PEER_EVENT_KINDS];
    uint64_t next_sequence;
    char **strings; /* what events point at */
    size_t strings_count, strings_capacity;
};

/* peer_loop.c */
void *peer_loop(void *peer);
bool peer_open_listener(peer_t *peer); /* on peer->port; 0: any */
void peer_wake(peer_t *peer);
void connection_append(connection_t *connection, const void *bytes,
                       size_t size);
void connection_flush(connection_t *connection);

/* peer_login.c: consumes connection->in */
void login_input(connection_t *connection);

/* peer_broker.c, peer_transfer.c */
void broker_start(connection_t *connection);
void broker_dispatch(connection_t *connection);
bool broker_pump(peer_t *peer);
void broker_measure(peer_t *peer);
void broker_lose_link(peer_link_t *link);
void broker_end_flight(flight_t *flight);
void broker_free_flight(flight_t *flight);
void broker_free_links(connection_t *connection);
void queue_insert(peer_t *peer, entry_t *entry);

/* peer_record.c */
void *grow(void *items, size_t count, size_t *capacity, size_t item_size);
const char *record_string(peer_t *peer, const char *text);
void record_event(connection_t *connection, int link, peer_event_t *event);
void record_free(peer_t *peer);

#endif
