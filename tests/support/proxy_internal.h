#ifndef IDEM_TEST_PROXY_INTERNAL_H
#define IDEM_TEST_PROXY_INTERNAL_H

/*
 * Shared by the files of the proxy; tests include proxy.h only.
 *
 * proxy.c       what tests call
 * proxy_loop.c  the thread: forwarding and breaking
 *
 * One lock guards everything; the thread lets go of it only to poll.
 */

#include "proxy.h"

#include <pthread.h>

enum { PATTERN_MAX = 64 };

/* Bytes on their way, to be written when they are due. */
typedef struct chunk {
    struct chunk *prev, *next;
    int64_t due_ns;
    size_t size, offset;
    char bytes[];
} chunk_t;

/* From one socket to the other. */
typedef struct stream {
    chunk_t *chunks;
    size_t queued_bytes;
    int from, to;           /* descriptors */
    char tail[PATTERN_MAX]; /* the last bytes that passed, for the search */
    size_t tail_bytes;
    bool has_ended; /* end of file from its source */
    bool is_shut;   /* end of file given on */
    bool discards;
} stream_t;

typedef struct pair {
    struct pair *prev, *next;
    stream_t streams[2]; /* by proxy_side_t */
    bool is_cut, is_reset;
    bool is_stalled;
    bool ends_when_sent;
} pair_t;

typedef struct order {
    proxy_side_t side;
    proxy_break_t how;
    char pattern[PATTERN_MAX];
    size_t size; /* 0: no order */
    int left;    /* matches still to be let pass, and one */
} order_t;

struct proxy {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    int wake_fd, timer_fd; /* fixed */
    int port;              /* fixed */
    int target_port;       /* fixed */

    /* The rest is guarded by the lock. */
    int listen_fd; /* closed by the thread only; -1: not listening */
    bool should_listen, listen_failed;
    bool is_stopping, is_stalled;
    int64_t delay_ns[2];
    pair_t *pairs;
    order_t order;
    proxy_stats_t stats;
};

void *proxy_loop(void *proxy);

#endif
