#include "bench.h"

#include <idem/idem.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

typedef struct ours {
    bench_t *bench;
    atomic_bool is_begun;
    atomic_bool is_over;
    idem_client_t *client;
    idem_consumer_t *consumer;
} ours_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* By the first handler, or by the one who looks on where none runs. */
static void begin(ours_t *ours)
{
    if (atomic_load_explicit(&ours->is_begun, memory_order_acquire)) {
        return;
    }
    (void)pthread_mutex_lock(&lock);
    if (!atomic_load(&ours->is_begun)) {
        bench_begin(ours->bench);
        atomic_store(&ours->is_begun, true);
    }
    (void)pthread_mutex_unlock(&lock);
}

static idem_outcome_t on_delivery(idem_delivery_t *delivery, void *user)
{
    ours_t *ours = user;

    (void)delivery;
    begin(ours);
    if (ours->bench->work_us > 0) {
        bench_sleep_until(bench_now() + (double)ours->bench->work_us / 1e6);
    }
    return IDEM_ACCEPT;
}

static double thread_cpu(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Looks every millisecond whether all is done. What that costs is not idem's
 * and is taken off. */
static void *watch(void *user)
{
    ours_t *ours = user;
    bench_t *bench = ours->bench;
    idem_consumer_statistics_t s = {0};
    double since = bench_now();
    bool is_idle = false;

    while (bench->settled < bench->count && !is_idle &&
           !atomic_load(&ours->is_over)) {
        (void)poll(NULL, 0, 1);
        (void)idem_consumer_statistics(ours->consumer, &s);
        if (s.received > 0) {
            begin(ours);
        }
        if (s.accepted + s.duplicates != bench->settled) {
            bench->settled = s.accepted + s.duplicates;
            since = bench_now();
        }
        is_idle = bench->idle_ms > 0 &&
                  (bench_now() - since) * 1e3 > (double)bench->idle_ms;
    }
    bench->handled = s.handled;
    bench_end(bench);
    bench->last = since;
    bench->cpu -= thread_cpu();
    idem_client_stop(ours->client);
    return NULL;
}

static bool run(ours_t *ours, idem_store_t *store, idem_error_t *err)
{
    bench_t *bench = ours->bench;
    idem_client_options_t client;
    idem_consumer_options_t consumer;
    pthread_t watcher;
    idem_status_t status;

    idem_client_options_init(&client);
    client.url = bench->url;
    idem_consumer_options_init(&consumer);
    consumer.address = bench->address;
    consumer.prefetch = bench->prefetch;
    consumer.concurrency = bench->concurrency;
    consumer.handler = on_delivery;
    consumer.user = ours;
    consumer.store = store;
    consumer.scope = "";
    consumer.max_message_bytes = 64 << 20;
    status = idem_client_create(&ours->client, &client, err);
    if (status == IDEM_OK) {
        status =
            idem_consumer_create(&ours->consumer, ours->client, &consumer, err);
    }
    if (status == IDEM_OK && pthread_create(&watcher, NULL, watch, ours) == 0) {
        status = idem_client_run(ours->client, err);
        atomic_store(&ours->is_over, true);
        (void)pthread_join(watcher, NULL);
    }
    idem_client_destroy(ours->client);
    return status == IDEM_OK;
}

bool bench_idem(bench_t *bench, bool has_store)
{
    ours_t ours = {.bench = bench};
    idem_error_t err = {0};
    idem_store_t *store = NULL;
    idem_postgres_options_t postgres;
    bool done;

    idem_postgres_options_init(&postgres);
    postgres.conninfo = bench->dsn;
    postgres.table = bench->table;
    if (bench->connections > 0) {
        postgres.connections = bench->connections;
    }
    if (bench->purge_ms >= 0) {
        postgres.purge_interval_ms = bench->purge_ms;
    }
    done = (!has_store ||
            idem_postgres_store_create(&store, &postgres, &err) == IDEM_OK) &&
           run(&ours, store, &err);
    if (!done) {
        (void)fprintf(stderr, "idem: %s\n", err.message);
    }
    idem_store_destroy(store);
    return done;
}
