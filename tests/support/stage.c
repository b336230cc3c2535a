#include "stage.h"

#include "compose.h"
#include "support.h"

#include <check.h>
#include <proton/disposition.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFETCH = 10, ATTACH_MS = 20000 };

/* Whether the key of a message is confirmed, as the database says. */
static bool is_confirmed(stage_t *stage, const char *id)
{
    char sql[256];
    PGresult *result = NULL;
    bool is = false;

    snprintf(sql, sizeof sql,
             "SELECT 1 FROM %s WHERE message_id = $1 AND state = 'CONFIRMED'",
             stage->rig.table);
    result = PQexecParams(stage->watch, sql, 1, NULL, &id, NULL, NULL, 0);
    is = PQntuples(result) == 1;
    PQclear(result);
    return is;
}

/* On the peer's thread. */
static void watch(peer_t *peer, const peer_event_t *event, void *user)
{
    stage_t *stage = user;

    if (event->kind == PEER_DISPOSITION &&
        event->disposition.state == PN_ACCEPTED && !stage->unwatched &&
        !stage->no_store) {
        const char *id = atomic_load(&stage->ids[event->disposition.message]);

        if (id != NULL && !is_confirmed(stage, id)) {
            atomic_fetch_add(&stage->early_accepts, 1);
        }
    }
    if (stage->hook != NULL) {
        stage->hook(peer, event, stage->hook_user);
    }
}

void stage_prepare(stage_t *stage, int host, const peer_options_t *options)
{
    peer_options_t watched = {0};
    idem_client_options_t *client = NULL;

    memset(stage, 0, sizeof *stage);
    if (options != NULL) {
        watched = *options;
    }
    stage->hook = watched.hook;
    stage->hook_user = watched.hook_user;
    watched.hook = watch;
    watched.hook_user = stage;
    store_rig_prepare(&stage->rig, test_env("IDEM_TEST_DSN"));
    stage->watch = database_open(test_env("IDEM_TEST_DSN"));
    stage->peer = peer_create(&watched);
    ck_assert_ptr_nonnull(stage->peer);
    stage->handler = handler_create();
    stage->runner = runner_create((runner_host_t)host, peer_url(stage->peer));
    client = runner_options(stage->runner);
    client->reconnect_min_ms = 20;
    client->reconnect_max_ms = 200;
    idem_consumer_options_init(&stage->options);
    stage->options.address = STAGE_ADDRESS;
    stage->options.scope = "";
    stage->options.prefetch = PREFETCH;
    stage->options.handler = handler_run;
    stage->options.user = stage->handler;
    stage->options.retry_min_ms = 10;
    stage->options.retry_max_ms = 100;
}

void stage_start(stage_t *stage)
{
    if (stage->has_proxy) {
        stage->proxy = proxy_create(database_port(stage->rig.conninfo));
        ck_assert_ptr_nonnull(stage->proxy);
        store_rig_via(&stage->rig, proxy_port(stage->proxy));
    }
    store_rig_open(&stage->rig);
    stage->options.store = stage->no_store ? NULL : stage->rig.store;
    stage->consumer = runner_consumer(stage->runner, &stage->options);
    runner_start(stage->runner);
    stage->is_started = true;
}

void stage_open(stage_t *stage)
{
    stage_start(stage);
    ck_assert(
        peer_wait_credit(stage->peer, (int)stage->options.prefetch, ATTACH_MS));
}

static void release(stage_t *stage)
{
    runner_destroy(stage->runner);
    peer_destroy(stage->peer);
    /* Sessions that it stalled keep their locks on the table. */
    proxy_destroy(stage->proxy);
    store_rig_finish(&stage->rig);
    handler_destroy(stage->handler);
    PQfinish(stage->watch);
    memset(stage, 0, sizeof *stage);
}

void stage_close_anyhow(stage_t *stage)
{
    handler_counts_t counts = handler_counts(stage->handler);
    peer_stats_t stats = peer_stats(stage->peer);

    ck_assert_int_eq(stats.without_state, 0);
    ck_assert_int_le(stats.max_outstanding, (int)stage->options.prefetch);
    ck_assert_int_eq(atomic_load(&stage->early_accepts), 0);
    ck_assert_uint_eq(counts.overlaps, 0);
    release(stage);
}

void stage_close(stage_t *stage)
{
    idem_error_t err = {0};

    handler_hold(stage->handler, false);
    if (stage->is_started) {
        idem_status_t status = runner_join(stage->runner, &err);
        ck_assert_msg(status == IDEM_OK, "%s: %s", idem_status_name(status),
                      err.message);
    }
    stage_close_anyhow(stage);
}

int stage_send_message(stage_t *stage, const char *id,
                       const peer_message_t *message)
{
    int number = -1;

    ck_assert_uint_lt(stage->messages, STAGE_MESSAGES_MAX);
    /* Before it is sent, since it may be accepted at once. */
    atomic_store(&stage->ids[stage->messages], id);
    number = peer_send(stage->peer, message);
    ck_assert_int_eq(number, (int)stage->messages);
    stage->messages++;
    return number;
}

int stage_send(stage_t *stage, const char *id)
{
    size_t size = 0;
    char *bytes = compose_text(id, "body", &size);
    peer_message_t message = {.bytes = bytes, .size = size};
    int number = stage_send_message(stage, id, &message);

    free(bytes);
    return number;
}

int stage_send_again(stage_t *stage, int message)
{
    int number = -1;

    ck_assert_uint_lt(stage->messages, STAGE_MESSAGES_MAX);
    atomic_store(&stage->ids[stage->messages],
                 atomic_load(&stage->ids[message]));
    number = peer_send_again(stage->peer, message);
    ck_assert_int_eq(number, (int)stage->messages);
    stage->messages++;
    return number;
}

const char *stage_row(stage_t *stage, const char *id)
{
    char sql[512];
    char *text = NULL;

    snprintf(sql, sizeof sql,
             "SELECT state || '|' || CASE WHEN claimed_by IS NULL OR state = "
             "'CONFIRMED' THEN '' ELSE 'owner' END || '|' || attempts FROM %s "
             "WHERE message_id = '%s'",
             stage->rig.table, id);
    text = database_text(stage->rig.pg, sql);
    snprintf(stage->row, sizeof stage->row, "%s", text != NULL ? text : "none");
    free(text);
    return stage->row;
}

typedef struct row_wish {
    stage_t *stage;
    const char *id;
    const char *row;
} row_wish_t;

static bool is_row(void *user)
{
    const row_wish_t *wish = user;

    return strcmp(stage_row(wish->stage, wish->id), wish->row) == 0;
}

bool stage_wait_row(stage_t *stage, const char *id, const char *row,
                    int64_t timeout_ms)
{
    row_wish_t wish = {stage, id, row};
    bool is = test_wait(is_row, &wish, timeout_ms);

    if (!is) {
        fprintf(stderr, "row of %s: %s, not %s\n", id, stage->row, row);
    }
    return is;
}

idem_consumer_statistics_t stage_statistics(const stage_t *stage)
{
    return runner_statistics(stage->consumer);
}

static bool is_idle(const peer_stats_t *stats, void *user)
{
    const stage_t *stage = user;
    int window = (int)stage->options.prefetch;

    /* Credit is renewed in halves. */
    return stats->queued == 0 && stats->unsettled == 0 &&
           stats->credit > window / 2 && stats->credit <= window;
}

bool stage_wait_idle(stage_t *stage, int64_t timeout_ms)
{
    return peer_wait_until(stage->peer, is_idle, stage, timeout_ms);
}
