#include "peer.h"

#include "peer_internal.h"
#include "support.h"

#include <proton/condition.h>
#include <proton/connection.h>
#include <proton/delivery.h>
#include <proton/disposition.h>
#include <proton/link.h>
#include <proton/session.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utlist.h>

/* --- Life ---------------------------------------------------------------- */

static void init_sync(peer_t *peer)
{
    pthread_mutexattr_t recursive;
    pthread_condattr_t monotonic;

    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&peer->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&peer->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void finish(peer_t *peer)
{
    for (size_t i = 0; i < peer->entries_count; i++) {
        free(peer->entries[i]->bytes);
        free(peer->entries[i]->address);
        free(peer->entries[i]->tag);
        free(peer->entries[i]);
    }
    free(peer->entries);
    record_free(peer);
    if (peer->wake_fd >= 0) {
        close(peer->wake_fd);
    }
    pthread_cond_destroy(&peer->changed);
    pthread_mutex_destroy(&peer->lock);
    free(peer);
}

peer_t *peer_create(const peer_options_t *options)
{
    peer_t *peer = calloc(1, sizeof *peer);
    bool is_started = false;

    if (peer == NULL) {
        return NULL;
    }
    init_sync(peer);
    if (options != NULL) {
        peer->options = *options;
    }
    peer->start_ms = test_now_ms();
    peer->should_listen = true;
    peer->listen_fd = -1;
    peer->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (peer->wake_fd < 0 || !peer_open_listener(peer)) {
        finish(peer);
        return NULL;
    }
    snprintf(peer->url, sizeof peer->url, "amqp://127.0.0.1:%d", peer->port);
    /* Under the lock, so that the thread finds its own id in the peer. */
    pthread_mutex_lock(&peer->lock);
    is_started = test_thread_start(&peer->thread, peer_loop, peer);
    pthread_mutex_unlock(&peer->lock);
    if (!is_started) {
        close(peer->listen_fd);
        finish(peer);
        return NULL;
    }
    return peer;
}

void peer_destroy(peer_t *peer)
{
    if (peer == NULL) {
        return;
    }
    pthread_mutex_lock(&peer->lock);
    peer->is_stopping = true;
    pthread_mutex_unlock(&peer->lock);
    peer_wake(peer);
    pthread_join(peer->thread, NULL);
    finish(peer);
}

int peer_port(const peer_t *peer)
{
    return peer->port;
}

const char *peer_url(const peer_t *peer)
{
    return peer->url;
}

/* --- Commands ------------------------------------------------------------ */

static void enter(peer_t *peer)
{
    pthread_mutex_lock(&peer->lock);
}

static void leave(peer_t *peer)
{
    pthread_mutex_unlock(&peer->lock);
    peer_wake(peer);
}

peer_options_t peer_options(peer_t *peer)
{
    peer_options_t options;

    pthread_mutex_lock(&peer->lock);
    options = peer->options;
    pthread_mutex_unlock(&peer->lock);
    return options;
}

void peer_configure(peer_t *peer, const peer_options_t *options)
{
    enter(peer);
    peer->options = *options;
    peer->refused = 0;
    leave(peer);
}

static void *copy(const void *bytes, size_t size)
{
    void *new = malloc(size > 0 ? size : 1);

    if (new == NULL) {
        abort();
    }
    if (size > 0) {
        memcpy(new, bytes, size);
    }
    return new;
}

int peer_send(peer_t *peer, const peer_message_t *message)
{
    entry_t *entry = calloc(1, sizeof *entry);

    if (entry == NULL) {
        abort();
    }
    entry->bytes = copy(message->bytes, message->size);
    entry->size = message->size;
    entry->settled = message->settled;
    entry->hold_at = message->hold_at;
    entry->abort_at = message->abort_at;
    if (message->address != NULL) {
        entry->address = copy(message->address, strlen(message->address) + 1);
    }
    if (message->tag != NULL) {
        entry->tag = copy(message->tag, message->tag_bytes);
        entry->tag_bytes = message->tag_bytes;
    }
    enter(peer);
    entry->number = (int)peer->entries_count;
    peer->entries = grow(peer->entries, peer->entries_count,
                         &peer->entries_capacity, sizeof *peer->entries);
    peer->entries[peer->entries_count++] = entry;
    queue_insert(peer, entry);
    leave(peer);
    return entry->number;
}

int peer_send_bytes(peer_t *peer, const void *bytes, size_t size)
{
    const peer_message_t message = {.bytes = bytes, .size = size};

    return peer_send(peer, &message);
}

int peer_send_again(peer_t *peer, int message)
{
    peer_message_t again = {0};
    int number = -1;

    enter(peer);
    if (message >= 0 && (size_t)message < peer->entries_count) {
        const entry_t *entry = peer->entries[message];

        again.bytes = entry->bytes;
        again.size = entry->size;
        again.address = entry->address;
        again.settled = entry->settled;
        number = peer_send(peer, &again);
    }
    leave(peer);
    return number;
}

void peer_purge(peer_t *peer)
{
    enter(peer);
    while (peer->queue != NULL) {
        peer->queue->is_queued = false;
        DL_DELETE(peer->queue, peer->queue);
    }
    peer->stats.queued = 0;
    leave(peer);
}

void peer_pause(peer_t *peer, bool paused)
{
    enter(peer);
    peer->is_paused = paused;
    leave(peer);
}

/* --- Breaks -------------------------------------------------------------- */

static bool matches(const peer_link_t *link, const char *address)
{
    return link->is_live &&
           (address == NULL || strcmp(link->address, address) == 0);
}

static void set_condition(pn_condition_t *pn, const char *condition,
                          const char *description)
{
    if (condition != NULL) {
        pn_condition_set_name(pn, condition);
        pn_condition_set_description(pn, description);
    }
}

static void detach(peer_t *peer, const char *address, const char *condition,
                   const char *description, bool closed)
{
    connection_t *connection = NULL;
    peer_link_t *link = NULL;

    enter(peer);
    DL_FOREACH(peer->connections, connection) {
        DL_FOREACH(connection->links, link) {
            if (!matches(link, address)) {
                continue;
            }
            set_condition(pn_link_condition(link->link), condition,
                          description);
            if (closed) {
                pn_link_close(link->link);
            } else {
                pn_link_detach(link->link);
            }
            broker_lose_link(link);
        }
    }
    leave(peer);
}

void peer_detach(peer_t *peer, const char *address, const char *condition,
                 const char *description)
{
    detach(peer, address, condition, description, true);
}

void peer_detach_only(peer_t *peer, const char *address)
{
    detach(peer, address, NULL, NULL, false);
}

void peer_end_session(peer_t *peer, const char *address, const char *condition,
                      const char *description)
{
    connection_t *connection = NULL;
    peer_link_t *link = NULL;
    peer_link_t *other = NULL;

    enter(peer);
    DL_FOREACH(peer->connections, connection) {
        DL_FOREACH(connection->links, link) {
            pn_session_t *session = pn_link_session(link->link);

            if (!matches(link, address)) {
                continue;
            }
            set_condition(pn_session_condition(session), condition,
                          description);
            pn_session_close(session);
            DL_FOREACH(connection->links, other) {
                if (pn_link_session(other->link) == session) {
                    broker_lose_link(other);
                }
            }
        }
    }
    leave(peer);
}

void peer_close_connection(peer_t *peer, const char *condition,
                           const char *description)
{
    connection_t *connection = NULL;
    peer_link_t *link = NULL;

    enter(peer);
    DL_FOREACH(peer->connections, connection) {
        pn_connection_t *pn = NULL;

        if (connection->login != LOGIN_DONE) {
            continue;
        }
        pn = connection->driver.connection;
        set_condition(pn_connection_condition(pn), condition, description);
        pn_connection_close(pn);
        DL_FOREACH(connection->links, link) {
            broker_lose_link(link);
        }
    }
    leave(peer);
}

static bool is_peer_thread(const peer_t *peer)
{
    return pthread_equal(pthread_self(), peer->thread) != 0;
}

static bool has_cut(const peer_t *peer)
{
    const connection_t *connection = NULL;

    DL_FOREACH(peer->connections, connection) {
        if (connection->is_cut) {
            return true;
        }
    }
    return false;
}

void peer_cut(peer_t *peer, bool reset)
{
    connection_t *connection = NULL;

    enter(peer);
    DL_FOREACH(peer->connections, connection) {
        connection->is_cut = true;
        connection->is_reset = reset;
    }
    peer_wake(peer);
    while (!is_peer_thread(peer) && has_cut(peer)) {
        pthread_cond_wait(&peer->changed, &peer->lock);
    }
    leave(peer);
}

void peer_silence(peer_t *peer, bool silent)
{
    enter(peer);
    peer->is_silent = silent;
    leave(peer);
}

bool peer_listen(peer_t *peer, bool on)
{
    bool is_done = false;

    enter(peer);
    peer->should_listen = on;
    peer->listen_failed = false;
    peer_wake(peer);
    while (!is_peer_thread(peer) && !peer->listen_failed &&
           (peer->listen_fd >= 0) != on) {
        pthread_cond_wait(&peer->changed, &peer->lock);
    }
    is_done = !peer->listen_failed;
    leave(peer);
    return is_done;
}

static flight_t *find_flight(peer_t *peer, int message)
{
    connection_t *connection = NULL;
    peer_link_t *link = NULL;
    flight_t *flight = NULL;

    DL_FOREACH(peer->connections, connection) {
        DL_FOREACH(connection->links, link) {
            DL_FOREACH(link->flights, flight) {
                if (flight->entry->number == message && !flight->is_over &&
                    flight != link->current) {
                    return flight;
                }
            }
        }
    }
    return NULL;
}

bool peer_settle(peer_t *peer, int message, uint64_t state,
                 const char *condition)
{
    flight_t *flight = NULL;
    bool is_found = false;

    enter(peer);
    flight = find_flight(peer, message);
    is_found = flight != NULL;
    if (is_found) {
        pn_delivery_t *delivery = flight->delivery;

        set_condition(pn_disposition_condition(pn_delivery_local(delivery)),
                      condition, NULL);
        if (state != 0) {
            pn_delivery_update(delivery, state);
        }
        broker_free_flight(flight);
        pn_delivery_settle(delivery);
    }
    leave(peer);
    return is_found;
}

void peer_inject(peer_t *peer, const void *bytes, size_t size)
{
    connection_t *connection = NULL;

    enter(peer);
    DL_FOREACH(peer->connections, connection) {
        connection_flush(connection);
        connection_append(connection, bytes, size);
    }
    leave(peer);
}
