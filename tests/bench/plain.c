/* What people write by hand: a Proton consumer that accepts at once (raw), and
 * one that notes each message in a table first (naive): an INSERT that claims,
 * committed, the work, an UPDATE that confirms, committed, accept. Both settle
 * and give credit as their authors would: per event, on one thread. */
#include "bench.h"

#include <libpq-fe.h>
#include <proton/connection.h>
#include <proton/delivery.h>
#include <proton/link.h>
#include <proton/message.h>
#include <proton/proactor.h>
#include <proton/session.h>
#include <proton/terminus.h>
#include <proton/transport.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct plain {
    bench_t *bench;
    PGconn *database; /* NULL: raw */
    pn_proactor_t *proactor;
    pn_connection_t *connection;
    pn_message_t *message;
    pn_link_t *link;
    char *bytes;
    size_t room;
    uint64_t seen; /* settled when last looked, for the end by idleness */
    bool failed;
} plain_t;

static bool statement(plain_t *plain, const char *name, const char *key)
{
    const char *values[] = {key};
    PGresult *result =
        PQexecPrepared(plain->database, name, 1, values, NULL, NULL, 0);
    bool done = PQresultStatus(result) == PGRES_COMMAND_OK;

    if (!done) {
        (void)fprintf(stderr, "naive: %s", PQerrorMessage(plain->database));
        plain->failed = true;
    }
    PQclear(result);
    return done;
}

static bool reserve(plain_t *plain, size_t size)
{
    if (size > plain->room) {
        char *bytes = realloc(plain->bytes, size);
        if (!bytes) {
            return false;
        }
        plain->bytes = bytes;
        plain->room = size;
    }
    return true;
}

static bool handle(plain_t *plain, pn_delivery_t *delivery)
{
    size_t size = pn_delivery_pending(delivery);

    if (!reserve(plain, size) ||
        pn_link_recv(plain->link, plain->bytes, size) != (ssize_t)size) {
        plain->failed = true;
        return false;
    }
    if (!plain->database) {
        return true;
    }
    pn_message_clear(plain->message);
    if (pn_message_decode(plain->message, plain->bytes, size) != 0) {
        plain->failed = true;
        return false;
    }
    pn_msgid_t id = pn_message_get_id(plain->message);
    char key[256];
    (void)snprintf(key, sizeof key, "%.*s", (int)id.u.as_bytes.size,
                   id.u.as_bytes.start);
    return statement(plain, "claim", key) && statement(plain, "confirm", key);
}

static void on_delivery(plain_t *plain, pn_delivery_t *delivery)
{
    bench_t *bench = plain->bench;

    if (!pn_delivery_readable(delivery) || pn_delivery_partial(delivery)) {
        return;
    }
    if (bench->settled == 0) {
        bench_begin(bench);
    }
    if (handle(plain, delivery)) {
        bench->handled++;
        pn_delivery_update(delivery, PN_ACCEPTED);
    } else {
        pn_delivery_update(delivery, PN_RELEASED);
    }
    pn_delivery_settle(delivery);
    bench->settled++;
    if (bench->idle_ms > 0) {
        bench->last = bench_now();
    }
    if (pn_link_credit(plain->link) <= (int)bench->prefetch / 2) {
        pn_link_flow(plain->link,
                     (int)bench->prefetch - pn_link_credit(plain->link));
    }
    if (bench->settled == bench->count || plain->failed) {
        bench_end(bench);
        pn_connection_close(plain->connection);
    }
}

static void on_timeout(plain_t *plain)
{
    bench_t *bench = plain->bench;

    if (bench->settled != plain->seen) {
        plain->seen = bench->settled;
        pn_proactor_set_timeout(plain->proactor, (pn_millis_t)bench->idle_ms);
    } else {
        double last = bench->last;
        bench_end(bench);
        bench->last = last;
        pn_connection_close(plain->connection);
    }
}

static void on_bound(plain_t *plain, pn_connection_t *connection)
{
    pn_session_t *session = pn_session(connection);

    plain->connection = connection;
    if (plain->bench->idle_ms > 0) {
        pn_proactor_set_timeout(plain->proactor,
                                (pn_millis_t)plain->bench->idle_ms);
    }
    pn_connection_set_container(connection, "idem-bench");
    pn_connection_open(connection);
    pn_session_open(session);
    plain->link = pn_receiver(session, "bench");
    pn_terminus_set_address(pn_link_source(plain->link), plain->bench->address);
    pn_data_t *capabilities =
        pn_terminus_capabilities(pn_link_source(plain->link));
    (void)pn_data_put_symbol(capabilities, pn_bytes(5, "queue"));
    pn_link_open(plain->link);
    pn_link_flow(plain->link, (int)plain->bench->prefetch);
}

static bool on_event(plain_t *plain, pn_event_t *event)
{
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT:
        on_bound(plain, pn_event_connection(event));
        return true;
    case PN_DELIVERY:
        on_delivery(plain, pn_event_delivery(event));
        return true;
    case PN_LINK_REMOTE_CLOSE:
    case PN_CONNECTION_REMOTE_CLOSE:
        pn_connection_close(pn_event_connection(event));
        return true;
    case PN_PROACTOR_TIMEOUT:
        on_timeout(plain);
        return true;
    case PN_PROACTOR_INACTIVE:
        return false;
    default:
        return true;
    }
}

static bool run(plain_t *plain)
{
    bool running = true;
    bench_t *bench = plain->bench;

    plain->proactor = pn_proactor();
    plain->message = pn_message();
    pn_proactor_connect2(plain->proactor, NULL, NULL,
                         bench->url + strlen("amqp://"));
    while (running) {
        pn_event_batch_t *batch = pn_proactor_wait(plain->proactor);
        pn_event_t *event;
        while ((event = pn_event_batch_next(batch))) {
            running = on_event(plain, event) && running;
        }
        pn_proactor_done(plain->proactor, batch);
    }
    pn_proactor_free(plain->proactor);
    pn_message_free(plain->message);
    free(plain->bytes);
    return !plain->failed &&
           (bench->settled == bench->count || bench->idle_ms > 0);
}

bool bench_raw(bench_t *bench)
{
    plain_t plain = {.bench = bench};

    return run(&plain);
}

static bool prepare(PGconn *database, const char *name, const char *sql)
{
    PGresult *result = PQprepare(database, name, sql, 1, NULL);
    bool done = PQresultStatus(result) == PGRES_COMMAND_OK;

    PQclear(result);
    return done;
}

bool bench_naive(bench_t *bench)
{
    plain_t plain = {.bench = bench, .database = PQconnectdb(bench->dsn)};
    char sql[512];
    bool done;

    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO %s (message_id, state, claimed_by, recorded_at,"
                   " expires_at) VALUES ($1, 'CLAIMED', 'naive', now(),"
                   " now() + interval '30 seconds')",
                   bench->table);
    done = prepare(plain.database, "claim", sql);
    (void)snprintf(sql, sizeof sql,
                   "UPDATE %s SET state = 'CONFIRMED', claimed_by = NULL,"
                   " expires_at = now() + interval '7 days'"
                   " WHERE message_id = $1 AND claimed_by = 'naive'",
                   bench->table);
    done = done && prepare(plain.database, "confirm", sql);
    if (!done) {
        (void)fprintf(stderr, "naive: %s", PQerrorMessage(plain.database));
    }
    done = done && run(&plain);
    PQfinish(plain.database);
    return done;
}
