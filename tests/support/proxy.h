#ifndef IDEM_TEST_PROXY_H
#define IDEM_TEST_PROXY_H

/*
 * A TCP proxy on loopback, with one thread of its own, that stalls, delays and
 * cuts connections to a database or a broker.
 *
 * Threads: every function may be called from any thread. A proxy belongs to
 * the process that created it: under Check's fork mode create it in the test
 * or in a checked fixture. Timeouts are scaled by CK_TIMEOUT_MULTIPLIER.
 *
 * Patterns are looked for in the bytes as they pass, so without TLS (the
 * private PostgreSQL has none). In PostgreSQL's protocol statements and command
 * tags end with NUL, which tells them apart: "COMMIT" with its NUL (7 bytes) is
 * the statement, or the server's word that it was done, but not a part of
 * "READ COMMITTED".
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct proxy proxy_t;

typedef enum proxy_side { PROXY_FROM_CLIENT, PROXY_FROM_SERVER } proxy_side_t;

typedef enum proxy_break {
    /* What came before the pattern passes, the pattern does not, and both
       sides are cut. From the client: the server never sees it. From the
       server: it did the work, and its answer is lost. */
    PROXY_CUT_BEFORE,
    /* The pattern passes; the other side's answer does not, since the side it
       came from is cut at once, the other when it has read all. */
    PROXY_CUT_AFTER,
    /* As PROXY_CUT_BEFORE, but the connection only falls silent. */
    PROXY_STALL_BEFORE
} proxy_break_t;

typedef struct proxy_stats {
    int connections; /* ever accepted */
    int live_connections;
    int breaks; /* patterns that were met and acted on */
    uint64_t bytes_from_client;
    uint64_t bytes_from_server;
} proxy_stats_t;

/** To 127.0.0.1:target_port. Returns NULL after a line on stderr. */
proxy_t *proxy_create(int target_port);
/** Cuts all connections. NULL is fine. */
void proxy_destroy(proxy_t *proxy);

int proxy_port(const proxy_t *proxy);

/** While stalled nothing is forwarded; connections are still accepted. */
void proxy_stall(proxy_t *proxy, bool stalled);
/** End all connections on both sides, by RST or FIN; they are gone on return.
 */
void proxy_cut(proxy_t *proxy, bool reset);
/** Refuse connections, or listen again on the same port. */
bool proxy_listen(proxy_t *proxy, bool on);
/**
 * Each byte is held back that long. For benchmarks: late by a tenth of a
 * millisecond on an idle machine, by up to one on a busy one, so measure the
 * round trip that comes of it.
 */
void proxy_set_delay(proxy_t *proxy, double from_client_ms,
                     double from_server_ms);

/**
 * Break, once, the connection on which the pattern is met for the nth time
 * from now on (1: the next time). A size of 0 forgets the order. The pattern
 * is copied; it has at most 64 bytes.
 */
void proxy_break_on(proxy_t *proxy, proxy_side_t side, const void *pattern,
                    size_t size, int nth, proxy_break_t how);

/** Wait until that many breaks have happened in all. */
bool proxy_wait_breaks(proxy_t *proxy, int count, int64_t timeout_ms);

/** Wait until that many connections were accepted in all. */
bool proxy_wait_connections(proxy_t *proxy, int count, int64_t timeout_ms);

proxy_stats_t proxy_stats(proxy_t *proxy);

#endif
