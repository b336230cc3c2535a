#ifndef IDEM_TEST_STAGE_H
#define IDEM_TEST_STAGE_H

/*
 * A client between a scripted peer in the broker's part and a real database in
 * a schema of its own, with a handler that does what it is told.
 *
 *     stage_prepare(&stage, host, &peer_options);
 *     stage.rig.options.lease_ms = 1000;
 *     stage_open(&stage);
 *     message = stage_send(&stage, "m1");
 *     ...
 *     stage_close(&stage);
 *
 * Messages are deduplicated under their bare ids, so the ids are the keys.
 *
 * The stage watches what no path may break: a delivery is settled with a state
 * only, accepted only once its key is confirmed in the database, the window
 * holds, and no key runs twice at a time. stage_close() asserts these.
 *
 * Threads: the test's own. Whatever goes wrong fails the running test.
 */

#include "handler.h"
#include "peer.h"
#include "proxy.h"
#include "runner.h"
#include "store_rig.h"

#include <stdatomic.h>
#include <stdbool.h>

enum { STAGE_MESSAGES_MAX = 4096 };

#define STAGE_ADDRESS "orders"

typedef struct stage {
    /* To be changed between stage_prepare() and stage_open(). */
    store_rig_t rig; /* options of the store */
    idem_consumer_options_t options;
    bool no_store;  /* a plain consumer */
    bool unwatched; /* no question to the database at each accept */
    bool has_proxy; /* before the database: stage.proxy, once it is open */
    runner_t *runner;
    handler_t *handler;
    peer_t *peer;

    /* Made by stage_open(). */
    proxy_t *proxy;
    idem_consumer_t *consumer;

    /* The rest is the stage's own. */
    PGconn *watch;                                 /* the peer's thread's */
    _Atomic(const char *) ids[STAGE_MESSAGES_MAX]; /* NULL: none */
    size_t messages;
    atomic_int early_accepts;
    peer_hook_t hook; /* of the test, called behind the stage's */
    void *hook_user;
    bool is_started;
    char row[64];
} stage_t;

/** Options of the peer may be NULL; its hook is called with its own user. */
void stage_prepare(stage_t *stage, int host, const peer_options_t *options);

/** Starts the client and waits for the full window of credit. */
void stage_open(stage_t *stage);

/** As stage_open(), but waits for nothing. */
void stage_start(stage_t *stage);

/** Lets handlers go, stops the client in order, asserts, frees. */
void stage_close(stage_t *stage);

/** As stage_close() for a client that has ended, or may end with a status. */
void stage_close_anyhow(stage_t *stage);

/** A message with an id and a small body. The id is not copied; NULL: none.
 * Returns its number. */
int stage_send(stage_t *stage, const char *id);
/** Any bytes under the id that they hold; NULL for none. */
int stage_send_message(stage_t *stage, const char *id,
                       const peer_message_t *message);

/** Sends a copy of a message again, behind all others. */
int stage_send_again(stage_t *stage, int message);

/** "state|claimed_by|attempts" of a key, without the owner's name where there
 * is one: "CLAIMED|owner|0", "CONFIRMED||0"; "none" without a row. Valid until
 * the next call. */
const char *stage_row(stage_t *stage, const char *id);
/** Waits until stage_row() says so. */
bool stage_wait_row(stage_t *stage, const char *id, const char *row,
                    int64_t timeout_ms);

idem_consumer_statistics_t stage_statistics(const stage_t *stage);

/** The full window is with the peer again, and nothing in our hands. */
bool stage_wait_idle(stage_t *stage, int64_t timeout_ms);

#endif
