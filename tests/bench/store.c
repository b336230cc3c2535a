/* How many keys a second a store claims and confirms, with a number of keys
 * in hand, beside a program that does the same with one INSERT and one UPDATE
 * a key, each committed.
 *
 *   bench-store CONNINFO [SECONDS [KEYS_IN_HAND [CONNECTIONS]]]
 *
 * CONNECTIONS 0 is the plain program. The table bench_store is dropped. */

#include "store/store.h"
#include "base/clock.h"
#include "base/mailbox.h"
#include "base/random.h"

#include <idem/store.h>

#include <libpq-fe.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct key {
    idemi_op_t op; /* first member */
    char name[48];
    char token[IDEM_TOKEN_BYTES + 1];
} bench_key_t;

typedef struct bench {
    idemi_random_t random;
    char prefix[IDEMI_TOKEN_PREFIX_BYTES];
    unsigned long tokens;
    unsigned long done;
    bool stopping;
    unsigned long out; /* with the store */
    idemi_tasks_t next;
    pthread_mutex_t mutex;
    pthread_cond_t woken;
    bool has_mail; /* guarded by mutex */
} bench_t;

static bench_t bench;

static void fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench-store: %s: %s\n", what, why);
    exit(1);
}

static void new_name(char name[48])
{
    (void)snprintf(name, 48, "ID:bench-%016llx%016llx",
                   (unsigned long long)idemi_random_next(&bench.random),
                   (unsigned long long)idemi_random_next(&bench.random));
}

static void ask(bench_key_t *key, idemi_op_kind_t kind)
{
    key->op.kind = kind;
    idemi_tasks_add(&bench.next, &key->op.task);
    bench.out++;
}

static void claim(bench_key_t *key)
{
    new_name(key->name);
    (void)snprintf(key->token, sizeof key->token, "%s-%lx", bench.prefix,
                   bench.tokens++);
    key->op.key = key->name;
    key->op.key_size = strlen(key->name);
    key->op.token = key->token;
    ask(key, IDEMI_OP_CLAIM);
}

static void answered(idemi_task_t *task, int64_t now_ms)
{
    bench_key_t *key = (bench_key_t *)task;

    (void)now_ms;
    bench.out--;
    if (key->op.kind == IDEMI_OP_CLAIM && key->op.answer == IDEMI_ANSWER_NEW) {
        ask(key, IDEMI_OP_CONFIRM);
    } else if (key->op.kind == IDEMI_OP_CONFIRM &&
               key->op.answer == IDEMI_ANSWER_DONE) {
        bench.done++;
        if (!bench.stopping) {
            claim(key);
        }
    } else {
        fail("an answer is wrong", key->name);
    }
}

static void wake(void *context)
{
    (void)context;
    (void)pthread_mutex_lock(&bench.mutex);
    bench.has_mail = true;
    (void)pthread_cond_signal(&bench.woken);
    (void)pthread_mutex_unlock(&bench.mutex);
}

static double bench_store(const char *conninfo, double seconds, unsigned hand,
                          unsigned connections)
{
    idem_postgres_options_t options;
    idem_store_t *store = NULL;
    idem_error_t err;
    idemi_mailbox_t mailbox;
    idemi_submitter_t *submitter = NULL;
    bench_key_t *keys = calloc(hand, sizeof *keys);
    idem_store_statistics_t statistics;
    int64_t start_ms;
    int64_t end_ms;

    idem_postgres_options_init(&options);
    options.conninfo = conninfo;
    options.table = "bench_store";
    options.create_schema = true;
    options.connections = connections;
    options.purge_interval_ms = 0;
    if (!keys || idem_postgres_store_create(&store, &options, &err)) {
        fail("no store", keys ? err.message : "out of memory");
    }
    if (!idemi_mailbox_init(&mailbox) ||
        idemi_submitter_create(&submitter, store, &mailbox, NULL, NULL)) {
        fail("no submitter", "out of memory");
    }
    idemi_mailbox_set_wake(&mailbox, wake, NULL);
    bench.stopping = false;
    bench.done = 0;
    start_ms = idemi_now_ms();
    end_ms = start_ms + (int64_t)(seconds * 1000);
    for (unsigned i = 0; i < hand; i++) {
        keys[i].op.task.run = answered;
        claim(&keys[i]);
    }
    while (bench.out > 0) {
        idemi_submitter_submit(submitter, &bench.next);
        (void)pthread_mutex_lock(&bench.mutex);
        while (!bench.has_mail) {
            (void)pthread_cond_wait(&bench.woken, &bench.mutex);
        }
        bench.has_mail = false;
        (void)pthread_mutex_unlock(&bench.mutex);
        (void)idemi_mailbox_run(&mailbox, 0);
        bench.stopping = idemi_now_ms() >= end_ms;
    }
    double rate =
        (double)bench.done * 1000 / (double)(idemi_now_ms() - start_ms);
    (void)idem_store_statistics(store, &statistics);
    (void)printf("%u connections, %u keys in hand: %.0f keys/s, %.0f "
                 "operations a batch\n",
                 connections, hand, rate,
                 (double)statistics.operations / (double)statistics.batches);
    idemi_submitter_destroy(submitter);
    idemi_mailbox_finish(&mailbox);
    idem_store_destroy(store);
    free(keys);
    return rate;
}

static double bench_plain(const char *conninfo, double seconds)
{
    PGconn *pg = PQconnectdb(conninfo);
    unsigned long done = 0;
    int64_t start_ms = idemi_now_ms();

    while (idemi_now_ms() < start_ms + (int64_t)(seconds * 1000)) {
        char name[48];
        const char *values[] = {name, "bench"};
        new_name(name);
        PGresult *insert = PQexecParams(
            pg,
            "INSERT INTO bench_store (message_id, state, claimed_by, "
            "recorded_at, expires_at) VALUES ($1, 'CLAIMED', $2, now(), now() "
            "+ interval '30 s') ON CONFLICT DO NOTHING",
            2, NULL, values, NULL, NULL, 0);
        PGresult *update = PQexecParams(
            pg,
            "UPDATE bench_store SET state = 'CONFIRMED', claimed_by = NULL, "
            "expires_at = now() + interval '7 days' WHERE message_id = $1 AND "
            "claimed_by = $2",
            2, NULL, values, NULL, NULL, 0);
        if (PQresultStatus(insert) != PGRES_COMMAND_OK ||
            PQresultStatus(update) != PGRES_COMMAND_OK) {
            fail("plain", PQerrorMessage(pg));
        }
        PQclear(insert);
        PQclear(update);
        done++;
    }
    PQfinish(pg);
    (void)printf("one INSERT and one UPDATE a key: %.0f keys/s\n",
                 (double)done / seconds);
    return (double)done / seconds;
}

static void execute(const char *conninfo, const char *sql)
{
    PGconn *pg = PQconnectdb(conninfo);
    PGresult *result = PQexec(pg, sql);

    if (PQresultStatus(result) != PGRES_COMMAND_OK) {
        fail(sql, PQerrorMessage(pg));
    }
    PQclear(result);
    PQfinish(pg);
}

int main(int argc, char **argv)
{
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 5;
    unsigned hand = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 1000;

    if (argc < 2) {
        (void)fprintf(stderr, "usage: bench-store CONNINFO [SECONDS "
                              "[KEYS_IN_HAND [CONNECTIONS]]]\n");
        return 2;
    }
    (void)pthread_mutex_init(&bench.mutex, NULL);
    (void)pthread_cond_init(&bench.woken, NULL);
    if (!idemi_random_bytes(&bench.random, sizeof bench.random) ||
        !idemi_token_prefix(bench.prefix)) {
        fail("random", "no bytes");
    }
    execute(argv[1], "DROP TABLE IF EXISTS bench_store");
    if (argc > 4) {
        unsigned connections = (unsigned)strtoul(argv[4], NULL, 10);
        if (connections > 0) {
            (void)bench_store(argv[1], seconds, hand, connections);
        } else {
            (void)bench_store(argv[1], 0.1, hand, 1);
            (void)bench_plain(argv[1], seconds);
        }
    } else {
        double best = 0;
        for (unsigned connections = 1; connections <= 3; connections++) {
            double rate = bench_store(argv[1], seconds, hand, connections);
            best = rate > best ? rate : best;
        }
        double plain = bench_plain(argv[1], seconds);
        (void)printf("%.1f times as fast\n", best / plain);
    }
    execute(argv[1], "DROP TABLE bench_store");
    return 0;
}
