/* Puts messages on a queue: as fast as the broker takes them, or evenly over
 * time. */
#include "bench.h"

#include "compose.h"
#include "send.h"

#include <proton/connection.h>
#include <proton/delivery.h>
#include <proton/link.h>
#include <proton/proactor.h>
#include <proton/session.h>
#include <proton/terminus.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct load {
    bench_t *bench;
    char *body;
    char id[BENCH_ID_BYTES];
} load_t;

static bool load_init(load_t *load, bench_t *bench)
{
    *load =
        (load_t){.bench = bench, .body = malloc((size_t)bench->body_bytes + 1)};
    if (!load->body) {
        (void)fprintf(stderr, "bench: out of memory\n");
        return false;
    }
    memset(load->body, 'x', (size_t)bench->body_bytes);
    return true;
}

static void fill(size_t n, compose_message_t *message, void *user)
{
    load_t *load = user;

    bench_id(load->bench, n, load->id);
    message->has_header = true;
    message->durable = true;
    message->id.type = COMPOSE_STRING;
    message->id.bytes = load->id;
    message->body = load->body;
    message->body_bytes = (size_t)load->bench->body_bytes;
}

bool bench_load(bench_t *bench)
{
    load_t load;
    bool sent = load_init(&load, bench) &&
                send_messages(bench->url, bench->address, (size_t)bench->count,
                              fill, &load, 600000);

    free(load.body);
    return sent;
}

typedef struct feed {
    load_t load;
    pn_proactor_t *proactor;
    pn_connection_t *connection;
    pn_link_t *link;
    uint64_t sent;
    uint64_t accepted;
    bool failed;
    pthread_t clock;
    bool has_clock;
    double start;
    /* Messages whose time has come; the clock's thread counts. */
    atomic_ullong due;
    atomic_bool stopped;
} feed_t;

/* Wakes the I/O thread for each message, and for several at once where they
 * are closer together than a timer can tell. */
static void *tick(void *user)
{
    feed_t *feed = user;
    bench_t *bench = feed->load.bench;
    double step = 1 / bench->rate > 200e-6 ? 1 / bench->rate : 200e-6;
    uint64_t due = 0;

    for (uint64_t n = 0; due < bench->count && !atomic_load(&feed->stopped);
         n++) {
        bench_sleep_until(feed->start + (double)n * step);
        due = (uint64_t)((bench_now() - feed->start) * bench->rate) + 1;
        due = due < bench->count ? due : bench->count;
        atomic_store(&feed->due, due);
        pn_connection_wake(feed->connection);
    }
    return NULL;
}

static void send_due(feed_t *feed)
{
    uint64_t due = atomic_load(&feed->due);

    while (feed->sent < due && pn_link_credit(feed->link) > 0) {
        compose_message_t message = {.durable = true};
        size_t size = 0;
        fill((size_t)feed->sent, &message, &feed->load);
        char *encoded = compose_message(&message, &size);
        if (!encoded) {
            feed->failed = true;
            return;
        }
        (void)pn_delivery(
            feed->link, pn_dtag((const char *)&feed->sent, sizeof feed->sent));
        (void)pn_link_send(feed->link, encoded, size);
        (void)pn_link_advance(feed->link);
        free(encoded);
        feed->sent++;
    }
}

static void attach(feed_t *feed, pn_connection_t *connection)
{
    pn_session_t *session = pn_session(connection);

    feed->connection = connection;
    pn_connection_set_container(connection, "idem-bench-feed");
    pn_connection_open(connection);
    pn_session_open(session);
    feed->link = pn_sender(session, "feed");
    pn_terminus_t *target = pn_link_target(feed->link);
    pn_terminus_set_address(target, feed->load.bench->address);
    (void)pn_data_put_symbol(pn_terminus_capabilities(target),
                             pn_bytes(5, "queue"));
    pn_terminus_set_address(pn_link_source(feed->link),
                            feed->load.bench->address);
    pn_link_open(feed->link);
}

static void on_settled(feed_t *feed, pn_delivery_t *delivery)
{
    if (pn_delivery_remote_state(delivery) != PN_ACCEPTED) {
        feed->failed = true;
    }
    pn_delivery_settle(delivery);
    feed->accepted++;
    if (feed->accepted == feed->load.bench->count || feed->failed) {
        pn_connection_close(feed->connection);
    }
}

static bool on_event(feed_t *feed, pn_event_t *event)
{
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT:
        attach(feed, pn_event_connection(event));
        break;
    case PN_LINK_FLOW:
        if (!feed->has_clock) {
            feed->start = bench_now();
            feed->has_clock =
                pthread_create(&feed->clock, NULL, tick, feed) == 0;
        }
        send_due(feed);
        break;
    case PN_CONNECTION_WAKE:
        send_due(feed);
        break;
    case PN_DELIVERY:
        on_settled(feed, pn_event_delivery(event));
        break;
    case PN_LINK_REMOTE_CLOSE:
    case PN_CONNECTION_REMOTE_CLOSE:
        pn_connection_close(pn_event_connection(event));
        break;
    case PN_TRANSPORT_CLOSED:
        /* The clock wakes a connection, which has to be there for that. */
        atomic_store(&feed->stopped, true);
        if (feed->has_clock) {
            (void)pthread_join(feed->clock, NULL);
        }
        break;
    case PN_PROACTOR_INACTIVE:
        return false;
    default:
        break;
    }
    return true;
}

bool bench_feed(bench_t *bench)
{
    feed_t feed = {.proactor = pn_proactor()};
    bool running = true;

    if (!load_init(&feed.load, bench)) {
        return false;
    }
    pn_proactor_connect2(feed.proactor, NULL, NULL,
                         bench->url + strlen("amqp://"));
    while (running) {
        pn_event_batch_t *batch = pn_proactor_wait(feed.proactor);
        pn_event_t *event;
        while ((event = pn_event_batch_next(batch))) {
            running = on_event(&feed, event) && running;
        }
        pn_proactor_done(feed.proactor, batch);
    }
    pn_proactor_free(feed.proactor);
    free(feed.load.body);
    return !feed.failed && feed.accepted == bench->count;
}
