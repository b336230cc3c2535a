#include "proxy.h"

#include "proxy_internal.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

static void wake(proxy_t *proxy)
{
    const uint64_t one = 1;
    ssize_t written = write(proxy->wake_fd, &one, sizeof one);

    (void)written; /* a full counter wakes just as well */
}

static void enter(proxy_t *proxy)
{
    pthread_mutex_lock(&proxy->lock);
}

static void leave(proxy_t *proxy)
{
    pthread_mutex_unlock(&proxy->lock);
    wake(proxy);
}

static void finish(proxy_t *proxy)
{
    const int fds[] = {proxy->wake_fd, proxy->timer_fd, proxy->listen_fd};

    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    pthread_cond_destroy(&proxy->changed);
    pthread_mutex_destroy(&proxy->lock);
    free(proxy);
}

proxy_t *proxy_create(int target_port)
{
    proxy_t *proxy = calloc(1, sizeof *proxy);
    pthread_condattr_t monotonic;

    if (proxy == NULL) {
        return NULL;
    }
    pthread_mutex_init(&proxy->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&proxy->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    proxy->target_port = target_port;
    proxy->should_listen = true;
    proxy->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    proxy->timer_fd =
        timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    proxy->listen_fd = test_listen(&proxy->port);
    if (proxy->wake_fd < 0 || proxy->timer_fd < 0 || proxy->listen_fd < 0 ||
        !test_thread_start(&proxy->thread, proxy_loop, proxy)) {
        fprintf(stderr, "proxy: cannot start\n");
        finish(proxy);
        return NULL;
    }
    return proxy;
}

void proxy_destroy(proxy_t *proxy)
{
    if (proxy == NULL) {
        return;
    }
    enter(proxy);
    proxy->is_stopping = true;
    leave(proxy);
    pthread_join(proxy->thread, NULL);
    finish(proxy);
}

int proxy_port(const proxy_t *proxy)
{
    return proxy->port;
}

void proxy_stall(proxy_t *proxy, bool stalled)
{
    enter(proxy);
    proxy->is_stalled = stalled;
    leave(proxy);
}

static bool has_cut(const proxy_t *proxy)
{
    const pair_t *pair = NULL;

    DL_FOREACH(proxy->pairs, pair) {
        if (pair->is_cut) {
            return true;
        }
    }
    return false;
}

void proxy_cut(proxy_t *proxy, bool reset)
{
    pair_t *pair = NULL;

    enter(proxy);
    DL_FOREACH(proxy->pairs, pair) {
        pair->is_cut = true;
        pair->is_reset = reset;
    }
    wake(proxy);
    while (has_cut(proxy)) {
        pthread_cond_wait(&proxy->changed, &proxy->lock);
    }
    leave(proxy);
}

bool proxy_listen(proxy_t *proxy, bool on)
{
    bool is_done = false;

    enter(proxy);
    proxy->should_listen = on;
    proxy->listen_failed = false;
    wake(proxy);
    while (!proxy->listen_failed && (proxy->listen_fd >= 0) != on) {
        pthread_cond_wait(&proxy->changed, &proxy->lock);
    }
    is_done = !proxy->listen_failed;
    leave(proxy);
    return is_done;
}

void proxy_set_delay(proxy_t *proxy, double from_client_ms,
                     double from_server_ms)
{
    enter(proxy);
    proxy->delay_ns[PROXY_FROM_CLIENT] = (int64_t)(from_client_ms * 1e6);
    proxy->delay_ns[PROXY_FROM_SERVER] = (int64_t)(from_server_ms * 1e6);
    leave(proxy);
}

void proxy_break_on(proxy_t *proxy, proxy_side_t side, const void *pattern,
                    size_t size, int nth, proxy_break_t how)
{
    if (size > PATTERN_MAX) {
        fprintf(stderr, "proxy: the pattern is too long\n");
        abort();
    }
    enter(proxy);
    proxy->order =
        (order_t){.side = side, .how = how, .size = size, .left = nth};
    if (size > 0) {
        memcpy(proxy->order.pattern, pattern, size);
    }
    leave(proxy);
}

/* Waits until one of the numbers in the stats is large enough. */
static bool wait_number(proxy_t *proxy, const int *number, int count,
                        int64_t timeout_ms)
{
    int64_t end_ms = test_now_ms() + test_scaled_ms(timeout_ms);
    struct timespec end = {
        .tv_sec = (time_t)(end_ms / 1000),
        .tv_nsec = (long)(end_ms % 1000) * 1000000,
    };
    bool holds = false;

    enter(proxy);
    holds = *number >= count;
    while (!holds && test_now_ms() < end_ms) {
        pthread_cond_timedwait(&proxy->changed, &proxy->lock, &end);
        holds = *number >= count;
    }
    leave(proxy);
    return holds;
}

bool proxy_wait_breaks(proxy_t *proxy, int count, int64_t timeout_ms)
{
    return wait_number(proxy, &proxy->stats.breaks, count, timeout_ms);
}

bool proxy_wait_connections(proxy_t *proxy, int count, int64_t timeout_ms)
{
    return wait_number(proxy, &proxy->stats.connections, count, timeout_ms);
}

proxy_stats_t proxy_stats(proxy_t *proxy)
{
    proxy_stats_t stats;

    enter(proxy);
    stats = proxy->stats;
    leave(proxy);
    return stats;
}
