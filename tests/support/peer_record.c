#include "peer_internal.h"

#include "support.h"

#include <stdlib.h>
#include <string.h>

/* Room for one more item. A test program that is out of memory ends. */
void *grow(void *items, size_t count, size_t *capacity, size_t item_size)
{
    if (count == *capacity) {
        *capacity = count == 0 ? 16 : 2 * count;
        items = realloc(items, *capacity * item_size);
        if (items == NULL) {
            abort();
        }
    }
    return items;
}

const char *record_string(peer_t *peer, const char *text)
{
    char *copy = NULL;

    if (text == NULL || text[0] == '\0') {
        return "";
    }
    copy = strdup(text);
    if (copy == NULL) {
        abort();
    }
    peer->strings = grow(peer->strings, peer->strings_count,
                         &peer->strings_capacity, sizeof *peer->strings);
    peer->strings[peer->strings_count++] = copy;
    return copy;
}

void record_event(connection_t *connection, int link, peer_event_t *event)
{
    peer_t *peer = connection->peer;
    records_t *records = &peer->records[event->kind];

    event->sequence = ++peer->next_sequence;
    event->at_ms = test_now_ms() - peer->start_ms;
    event->connection = connection->number;
    event->link = link;
    records->seen++;
    if (!peer->options.counts_only ||
        (event->kind != PEER_FLOW && event->kind != PEER_DISPOSITION)) {
        records->events = grow(records->events, records->count,
                               &records->capacity, sizeof *records->events);
        records->events[records->count++] = *event;
    }
    if (peer->options.hook != NULL) {
        peer->options.hook(peer, event, peer->options.hook_user);
    }
}

void record_free(peer_t *peer)
{
    for (int kind = 0; kind < PEER_EVENT_KINDS; kind++) {
        free(peer->records[kind].events);
    }
    for (size_t i = 0; i < peer->strings_count; i++) {
        free(peer->strings[i]);
    }
    free(peer->strings);
}

peer_stats_t peer_stats(peer_t *peer)
{
    peer_stats_t stats;

    pthread_mutex_lock(&peer->lock);
    stats = peer->stats;
    pthread_mutex_unlock(&peer->lock);
    return stats;
}

int peer_count(peer_t *peer, peer_event_kind_t kind)
{
    int count = 0;

    pthread_mutex_lock(&peer->lock);
    count = peer->records[kind].seen;
    pthread_mutex_unlock(&peer->lock);
    return count;
}

bool peer_event(peer_t *peer, peer_event_kind_t kind, int n,
                peer_event_t *event)
{
    bool is_found = false;

    pthread_mutex_lock(&peer->lock);
    if (n < 0) {
        n += (int)peer->records[kind].count;
    }
    if (n >= 0 && (size_t)n < peer->records[kind].count) {
        *event = peer->records[kind].events[n];
        is_found = true;
    }
    pthread_mutex_unlock(&peer->lock);
    return is_found;
}

bool peer_outcome(peer_t *peer, int message, peer_event_t *event)
{
    records_t *records = &peer->records[PEER_DISPOSITION];
    bool is_found = false;

    pthread_mutex_lock(&peer->lock);
    for (size_t i = records->count; i > 0 && !is_found; i--) {
        if (records->events[i - 1].disposition.message == message) {
            *event = records->events[i - 1];
            is_found = true;
        }
    }
    pthread_mutex_unlock(&peer->lock);
    return is_found;
}

/* Called with the lock held; false at the deadline. */
static bool wait_locked(peer_t *peer, int64_t end_ms)
{
    struct timespec end = {
        .tv_sec = (time_t)(end_ms / 1000),
        .tv_nsec = (long)(end_ms % 1000) * 1000000,
    };

    return pthread_cond_timedwait(&peer->changed, &peer->lock, &end) == 0 ||
           test_now_ms() < end_ms;
}

bool peer_wait(peer_t *peer, peer_event_kind_t kind, int count,
               int64_t timeout_ms)
{
    int64_t end_ms = test_now_ms() + test_scaled_ms(timeout_ms);
    bool holds = false;

    pthread_mutex_lock(&peer->lock);
    holds = peer->records[kind].seen >= count;
    while (!holds && wait_locked(peer, end_ms)) {
        holds = peer->records[kind].seen >= count;
    }
    pthread_mutex_unlock(&peer->lock);
    return holds;
}

bool peer_wait_until(peer_t *peer,
                     bool (*condition)(const peer_stats_t *stats, void *user),
                     void *user, int64_t timeout_ms)
{
    int64_t end_ms = test_now_ms() + test_scaled_ms(timeout_ms);
    bool holds = false;

    pthread_mutex_lock(&peer->lock);
    holds = condition(&peer->stats, user);
    while (!holds && wait_locked(peer, end_ms)) {
        holds = condition(&peer->stats, user);
    }
    pthread_mutex_unlock(&peer->lock);
    return holds;
}

static bool has_accepted(const peer_stats_t *stats, void *user)
{
    return stats->accepted >= *(int *)user;
}

bool peer_wait_accepted(peer_t *peer, int count, int64_t timeout_ms)
{
    return peer_wait_until(peer, has_accepted, &count, timeout_ms);
}

bool peer_wait_dispositions(peer_t *peer, int count, int64_t timeout_ms)
{
    return peer_wait(peer, PEER_DISPOSITION, count, timeout_ms);
}

static bool has_unsettled(const peer_stats_t *stats, void *user)
{
    return stats->unsettled == *(int *)user;
}

bool peer_wait_unsettled(peer_t *peer, int count, int64_t timeout_ms)
{
    return peer_wait_until(peer, has_unsettled, &count, timeout_ms);
}

static bool has_credit(const peer_stats_t *stats, void *user)
{
    return stats->credit >= *(int *)user;
}

bool peer_wait_credit(peer_t *peer, int at_least, int64_t timeout_ms)
{
    return peer_wait_until(peer, has_credit, &at_least, timeout_ms);
}
