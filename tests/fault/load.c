#include "load.h"

#include "send.h"
#include "support.h"

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BURST = 20, SEND_MS = 20000 };

void load_prepare(load_t *load, runner_host_t host, const char *url,
                  const char *dsn, const char *url_of_client)
{
    memset(load, 0, sizeof *load);
    scene_open_at(&load->scene, "load", url, dsn);
    test_unique(load->application, sizeof load->application, "load");
    snprintf(load->conninfo, sizeof load->conninfo, "%s application_name=%s",
             dsn, load->application);
    idem_postgres_options_init(&load->postgres);
    load->postgres.conninfo = load->conninfo;
    load->postgres.table = load->scene.table;
    load->postgres.create_schema = true;
    load->postgres.log_handler = NULL;
    load->handler = handler_create();
    load->runner =
        runner_create(host, url_of_client != NULL ? url_of_client : url);
    runner_options(load->runner)->reconnect_max_ms = 500;
    scene_consumer(&load->scene, &load->options, NULL, handler_run,
                   load->handler);
}

void load_start(load_t *load)
{
    idem_error_t err = {0};
    idem_status_t status =
        idem_postgres_store_create(&load->store, &load->postgres, &err);

    ck_assert_msg(status == IDEM_OK, "%s", err.message);
    load->options.store = load->store;
    load->consumer = runner_consumer(load->runner, &load->options);
    runner_start(load->runner);
}

void load_fill(load_t *load, size_t messages)
{
    load->messages += messages;
    ck_assert(send_numbered(load->scene.url, load->scene.queue, "m", messages));
}

static void fill(size_t n, compose_message_t *message, void *user)
{
    static _Thread_local char id[16];
    load_t *load = user;

    snprintf(id, sizeof id, "m%zu", load->sent + n);
    message->id = compose_string(id);
    message->body = "body";
    message->body_bytes = 4;
}

static void *feed(void *user)
{
    load_t *load = user;

    while (load->sent < load->messages && !atomic_load(&load->has_failed)) {
        if (!send_messages(load->scene.url, load->scene.queue, BURST, fill,
                           load, SEND_MS)) {
            atomic_store(&load->has_failed, true);
        }
        load->sent += BURST;
        (void)poll(NULL, 0, (int)load->pause_ms);
    }
    return NULL;
}

static void join_feeder(load_t *load)
{
    if (load->is_fed) {
        ck_assert_int_eq(pthread_join(load->feeder, NULL), 0);
        load->is_fed = false;
        ck_assert(!atomic_load(&load->has_failed));
    }
}

void load_feed(load_t *load, size_t messages, int64_t pause_ms)
{
    ck_assert_uint_eq(messages % BURST, 0);
    join_feeder(load);
    load->messages += messages;
    load->pause_ms = pause_ms;
    load->is_fed = true;
    ck_assert(test_thread_start(&load->feeder, feed, load));
}

void load_reconnect(load_t *load)
{
    if (PQstatus(load->scene.database) != CONNECTION_OK ||
        PQsocket(load->scene.database) < 0) {
        PQreset(load->scene.database);
    }
    PQclear(PQexec(load->scene.database, "SELECT 1"));
    if (PQstatus(load->scene.database) != CONNECTION_OK) {
        PQreset(load->scene.database);
    }
    ck_assert_int_eq(PQstatus(load->scene.database), CONNECTION_OK);
    management_close(load->scene.management);
    load->scene.management = management_open(load->scene.url);
    ck_assert_ptr_nonnull(load->scene.management);
}

void load_expect_totals(load_t *load, int64_t timeout_ms)
{
    handler_counts_t counts;
    idem_consumer_statistics_t statistics;

    join_feeder(load);
    ck_assert(scene_wait_rows(&load->scene, SCENE_CONFIRMED,
                              (int64_t)load->messages, timeout_ms));
    ck_assert(scene_wait_empty(&load->scene, timeout_ms));
    ck_assert_int_eq(scene_rows(&load->scene, NULL), (int64_t)load->messages);
    ck_assert_int_eq(scene_killed(&load->scene), 0);
    counts = handler_counts(load->handler);
    ck_assert_uint_eq(counts.keys, load->messages);
    ck_assert_uint_eq(counts.repeated, 0);
    ck_assert_uint_eq(counts.begun, load->messages);
    ck_assert_uint_eq(counts.overlaps, 0);
    ck_assert_uint_eq(counts.lost, 0);
    statistics = runner_statistics(load->consumer);
    ck_assert_uint_eq(statistics.leases_lost, 0);
    ck_assert_uint_eq(statistics.takeovers, 0);
    ck_assert_uint_eq(statistics.undecodable, 0);
}

void load_expect_no_redelivery(load_t *load)
{
    idem_client_statistics_t client;
    idem_consumer_statistics_t consumer = runner_statistics(load->consumer);

    ck_assert_int_eq(
        idem_client_statistics(runner_client(load->runner), &client), IDEM_OK);
    ck_assert_uint_eq(client.connects, 1);
    ck_assert_uint_eq(client.disconnects, 0);
    ck_assert(client.connected);
    ck_assert_uint_eq(consumer.attached, 1);
    ck_assert_int_eq(management_queue(load->scene.management, load->scene.queue,
                                      "consumerCount"),
                     1);
    ck_assert_uint_eq(handler_counts(load->handler).deliveries, 0);
    ck_assert_uint_le(consumer.received, load->messages);
    ck_assert_uint_eq(consumer.duplicates, 0);
}

void load_finish(load_t *load)
{
    idem_error_t err = {0};
    idem_status_t status = runner_join(load->runner, &err);

    ck_assert_msg(status == IDEM_OK, "%s", err.message);
    runner_destroy(load->runner);
    idem_store_destroy(load->store);
    handler_destroy(load->handler);
    scene_close(&load->scene);
}
