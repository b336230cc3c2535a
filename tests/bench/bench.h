#ifndef IDEM_BENCH_H
#define IDEM_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What to do, and what was done. */
typedef struct bench {
    const char *url; /* amqp://host:port */
    const char *dsn;
    const char *table; /* a plain name */
    const char *address;
    uint64_t count; /* messages, or rows */
    double rate;    /* a second; 0: as fast as can be */
    int64_t body_bytes;
    const char *prefix; /* of the ids */
    bool random_ids;

    uint32_t prefetch;
    uint32_t concurrency; /* of handlers */
    uint32_t connections; /* of the store; 0: its default */
    int64_t work_us;      /* of a handler */
    int64_t purge_ms;     /* of the store; below 0: its default */
    int64_t idle_ms; /* end when nothing comes for so long; 0: at count alone */

    uint64_t settled;
    uint64_t handled;
    double first; /* delivery: seconds on the monotonic clock */
    double last;  /* settled */
    double cpu;   /* seconds of this process between the two */
} bench_t;

/* Each prints what went wrong and returns false. */
bool bench_load(bench_t *bench);  /* put messages on a queue */
bool bench_feed(bench_t *bench);  /* the same, evenly over time */
bool bench_raw(bench_t *bench);   /* consume: accept at once, no store */
bool bench_naive(bench_t *bench); /* INSERT and UPDATE, each committed */
bool bench_idem(bench_t *bench, bool has_store);
bool bench_insert(bench_t *bench); /* commit single rows; prints percentiles */
bool bench_tap(bench_t *bench);    /* time deliveries; prints percentiles */

double bench_now(void);
/* Note clock and processor time. The first delivery begins, and the last that
 * is settled ends. */
void bench_begin(bench_t *bench);
void bench_end(bench_t *bench);

/* A message's id is as long as those of JMS producers, 43 characters: in the
 * order of n, or spread evenly over all of them. */
enum { BENCH_ID_BYTES = 64, BENCH_PREFIX_MAX = 20 };
void bench_id(const bench_t *bench, uint64_t n, char id[BENCH_ID_BYTES]);

/* Sorts the values, of at least one, and prints a JSON object. */
void bench_print_percentiles(double *seconds, size_t count);

/* Wait until a point in time. */
void bench_sleep_until(double time);

#endif
