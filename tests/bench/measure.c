#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double read_clock(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

double bench_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

void bench_begin(bench_t *bench)
{
    bench->first = bench_now();
    bench->cpu = -read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void bench_end(bench_t *bench)
{
    bench->last = bench_now();
    bench->cpu += read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void bench_sleep_until(double time)
{
    struct timespec at = {.tv_sec = (time_t)time};

    at.tv_nsec = (long)((time - (double)at.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) {
    }
}

/* The finalizer of SplitMix64: spreads a counter over all numbers. */
static unsigned long long spread(uint64_t n)
{
    n += 0x9e3779b97f4a7c15;
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9;
    n = (n ^ (n >> 27)) * 0x94d049bb133111eb;
    return n ^ (n >> 31);
}

void bench_id(const bench_t *bench, uint64_t n, char id[BENCH_ID_BYTES])
{
    uint64_t seed = 0;

    if (!bench->random_ids) {
        (void)snprintf(id, BENCH_ID_BYTES, "ID:%.*s-%0*llu", BENCH_PREFIX_MAX,
                       bench->prefix, 39 - (int)strlen(bench->prefix),
                       (unsigned long long)n);
        return;
    }
    for (const char *c = bench->prefix; *c; c++) {
        seed = spread(seed ^ (unsigned char)*c);
    }
    (void)snprintf(id, BENCH_ID_BYTES, "ID:%016llx%016llx-%07llu",
                   spread(seed ^ n), spread(~(seed ^ n)),
                   (unsigned long long)n % 10000000);
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;

    return (left > right) - (left < right);
}

static double percentile_ms(const double *sorted, size_t count, double share)
{
    size_t at = (size_t)(share * (double)count);

    return sorted[at < count ? at : count - 1] * 1e3;
}

void bench_print_percentiles(double *seconds, size_t count)
{
    qsort(seconds, count, sizeof *seconds, compare);
    (void)printf(
        "{\"count\":%zu,\"p50_ms\":%.4f,\"p90_ms\":%.4f,"
        "\"p99_ms\":%.4f,\"p999_ms\":%.4f,\"max_ms\":%.4f}\n",
        count, percentile_ms(seconds, count, 0.5),
        percentile_ms(seconds, count, 0.9), percentile_ms(seconds, count, 0.99),
        percentile_ms(seconds, count, 0.999), seconds[count - 1] * 1e3);
}
