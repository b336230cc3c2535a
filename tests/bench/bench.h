#ifndef IDEM_BENCH_H
#define IDEM_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a contender is to do, and what it did. */
typedef struct bench {
    const char *url; /* amqp://host:port */
    const char *dsn;
    const char *table; /* a plain name */
    const char *address;
    uint32_t prefetch;
    uint64_t count; /* messages to be handled, or seen as duplicates */
    uint32_t concurrency;
    uint32_t connections;
    int64_t work_us; /* of a handler */

    uint64_t handled;
    double seconds; /* from the first delivery to the last settled */
} bench_t;

/* Each prints what went wrong and returns false. */
bool bench_raw(bench_t *bench);   /* accept at once, no store */
bool bench_naive(bench_t *bench); /* INSERT and UPDATE, each committed */
bool bench_idem(bench_t *bench, bool has_store);

double bench_now(void);

#endif
