#include "bench.h"

#include <idem/idem.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

typedef struct ours {
    bench_t *bench;
    atomic_ullong begun; /* handlers */
    _Atomic double first;
    idem_client_t *client;
    idem_consumer_t *consumer;
} ours_t;

static idem_outcome_t on_delivery(idem_delivery_t *delivery, void *user)
{
    ours_t *ours = user;

    (void)delivery;
    if (atomic_fetch_add_explicit(&ours->begun, 1, memory_order_relaxed) == 0) {
        atomic_store(&ours->first, bench_now());
    }
    if (ours->bench->work_us > 0) {
        double until = bench_now() + (double)ours->bench->work_us / 1e6;
        (void)poll(NULL, 0, (int)(ours->bench->work_us / 1000));
        while (bench_now() < until) {
        }
    }
    return IDEM_ACCEPT;
}

/* Looks every half millisecond whether all is done. */
static void *watch(void *user)
{
    ours_t *ours = user;
    idem_consumer_statistics_t s = {0};
    double first = 0;

    while (s.accepted + s.duplicates < ours->bench->count) {
        struct timespec pause = {0, 500000};
        (void)ppoll(NULL, 0, &pause, NULL);
        (void)idem_consumer_statistics(ours->consumer, &s);
        if (first == 0 && s.received > 0) {
            first = bench_now();
        }
    }
    ours->bench->handled = s.handled;
    /* Before the first handler where there is none (only duplicates), or
     * where its claim took longer than the look. */
    if (atomic_load(&ours->first) > 0 && atomic_load(&ours->first) < first) {
        first = atomic_load(&ours->first);
    }
    ours->bench->seconds = bench_now() - first;
    idem_client_stop(ours->client);
    return NULL;
}

bool bench_idem(bench_t *bench, bool has_store)
{
    ours_t ours = {.bench = bench};
    idem_error_t err = {0};
    idem_store_t *store = NULL;
    idem_postgres_options_t postgres;
    idem_client_options_t client;
    idem_consumer_options_t consumer;
    pthread_t watcher;

    idem_postgres_options_init(&postgres);
    postgres.conninfo = bench->dsn;
    postgres.table = bench->table;
    postgres.connections =
        bench->connections ? bench->connections : postgres.connections;
    idem_client_options_init(&client);
    client.url = bench->url;
    idem_consumer_options_init(&consumer);
    consumer.address = bench->address;
    consumer.prefetch = bench->prefetch;
    consumer.concurrency = bench->concurrency;
    consumer.handler = on_delivery;
    consumer.user = &ours;
    consumer.scope = "";
    if ((!has_store ||
         idem_postgres_store_create(&store, &postgres, &err) == IDEM_OK)) {
        consumer.store = store;
        if (idem_client_create(&ours.client, &client, &err) == IDEM_OK &&
            idem_consumer_create(&ours.consumer, ours.client, &consumer,
                                 &err) == IDEM_OK &&
            pthread_create(&watcher, NULL, watch, &ours) == 0) {
            (void)idem_client_run(ours.client, &err);
            (void)pthread_join(watcher, NULL);
        }
    }
    if (err.status != IDEM_OK) {
        (void)fprintf(stderr, "idem: %s\n", err.message);
    }
    idem_client_destroy(ours.client);
    idem_store_destroy(store);
    return err.status == IDEM_OK;
}
