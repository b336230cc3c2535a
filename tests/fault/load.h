#ifndef IDEM_TEST_LOAD_H
#define IDEM_TEST_LOAD_H

/*
 * A consumer in one host with a queue and a table of its own, through which
 * numbered messages flow while something is broken. A test has one for each
 * host and breaks what they share.
 *
 * Threads: the test's own. Whatever goes wrong fails the running test.
 */

#include "handler.h"
#include "runner.h"
#include "scene.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct load {
    /* To be changed between load_prepare() and load_start(). */
    runner_t *runner;
    idem_consumer_options_t options;
    idem_postgres_options_t postgres;

    scene_t scene;
    handler_t *handler;
    idem_store_t *store;
    idem_consumer_t *consumer;
    char application[48]; /* of the store's sessions */
    char conninfo[512];
    size_t messages;

    /* The feeder's. */
    pthread_t feeder;
    bool is_fed;
    size_t sent;
    int64_t pause_ms;
    atomic_bool has_failed;
} load_t;

/** url and dsn of the servers; url_of_client where that takes another way. */
void load_prepare(load_t *load, runner_host_t host, const char *url,
                  const char *dsn, const char *url_of_client);

/** Starts the client. */
void load_start(load_t *load);

/** Sends that many messages, all at once. */
void load_fill(load_t *load, size_t messages);

/** Sends that many messages from a thread, twenty at a time with a pause
 * between. Waits first for the ones that an earlier call sends. */
void load_feed(load_t *load, size_t messages, int64_t pause_ms);

/** Connects again to servers that were away. */
void load_reconnect(load_t *load);

/**
 * Waits until every message is confirmed and the queue is empty, and asserts
 * that each was handled once, none was given up, and no lease was lost.
 */
void load_expect_totals(load_t *load, int64_t timeout_ms);

/** Asserts that the broker did not offer anything twice, and that the
 * connection to it is the first one. */
void load_expect_no_redelivery(load_t *load);

/** Stops the client in order and frees. */
void load_finish(load_t *load);

#endif
