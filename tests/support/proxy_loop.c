#include "proxy_internal.h"

#include "support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

enum {
    PAIRS_MAX = 256,
    FIXED_FDS = 3, /* wake, timer, listener */
    READ_BYTES = 65536,
    QUEUED_MAX = 4 << 20
};

#define NS_PER_S INT64_C(1000000000)

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* --- Pairs ---------------------------------------------------------------- */

static int connect_to(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)port);
    if (fd >= 0 &&
        connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void prepare_socket(int fd)
{
    const int on = 1;

    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void accept_all(proxy_t *proxy)
{
    int client = accept(proxy->listen_fd, NULL, NULL);

    while (client >= 0) {
        int server = connect_to(proxy->target_port);
        pair_t *pair = calloc(1, sizeof *pair);

        if (pair == NULL) {
            abort();
        }
        proxy->stats.connections++;
        if (server < 0) {
            /* The client sees the end of a server that is not there. */
            close(client);
            free(pair);
        } else {
            prepare_socket(client);
            prepare_socket(server);
            pair->streams[PROXY_FROM_CLIENT].from = client;
            pair->streams[PROXY_FROM_CLIENT].to = server;
            pair->streams[PROXY_FROM_SERVER].from = server;
            pair->streams[PROXY_FROM_SERVER].to = client;
            proxy->stats.live_connections++;
            DL_APPEND(proxy->pairs, pair);
        }
        client = accept(proxy->listen_fd, NULL, NULL);
    }
}

static void free_chunks(stream_t *stream)
{
    while (stream->chunks != NULL) {
        chunk_t *chunk = stream->chunks;

        DL_DELETE(stream->chunks, chunk);
        free(chunk);
    }
    stream->queued_bytes = 0;
}

static void drop(proxy_t *proxy, pair_t *pair)
{
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};

    for (int side = 0; side < 2; side++) {
        stream_t *stream = &pair->streams[side];

        free_chunks(stream);
        if (pair->is_reset) {
            setsockopt(stream->from, SOL_SOCKET, SO_LINGER, &reset,
                       sizeof reset);
        }
        close(stream->from);
    }
    proxy->stats.live_connections--;
    DL_DELETE(proxy->pairs, pair);
    free(pair);
}

/* --- Patterns ------------------------------------------------------------- */

/* Where the ordered match begins in bytes, which may be before them (negative);
   size when it is not there. */
static ssize_t find(order_t *order, const stream_t *stream, const char *bytes,
                    ssize_t size)
{
    ssize_t length = (ssize_t)order->size;
    ssize_t tail = (ssize_t)stream->tail_bytes;

    tail = tail < length - 1 ? tail : length - 1;
    for (ssize_t at = -tail; at + length <= size; at++) {
        ssize_t same = 0;

        while (same < length) {
            ssize_t i = at + same;
            char c = i < 0 ? stream->tail[(ssize_t)stream->tail_bytes + i]
                           : bytes[i];
            if (c != order->pattern[same]) {
                break;
            }
            same++;
        }
        if (same == length && --order->left == 0) {
            return at;
        }
    }
    return size;
}

static void keep_tail(stream_t *stream, const char *bytes, size_t size)
{
    char all[2 * PATTERN_MAX];
    size_t part = size < PATTERN_MAX ? size : PATTERN_MAX;
    size_t total = stream->tail_bytes + part;
    size_t keep = total < PATTERN_MAX ? total : PATTERN_MAX;

    memcpy(all, stream->tail, stream->tail_bytes);
    memcpy(all + stream->tail_bytes, bytes + size - part, part);
    memcpy(stream->tail, all + total - keep, keep);
    stream->tail_bytes = keep;
}

/* Acts on the order; returns how many of the bytes are to be forwarded. */
static size_t apply_order(proxy_t *proxy, pair_t *pair, proxy_side_t side,
                          const char *bytes, size_t size)
{
    order_t *order = &proxy->order;
    stream_t *stream = &pair->streams[side];
    stream_t *back = &pair->streams[1 - side];
    ssize_t at = 0;

    if (order->size == 0 || order->side != side) {
        return size;
    }
    at = find(order, stream, bytes, (ssize_t)size);
    if (at == (ssize_t)size) {
        return size;
    }
    order->size = 0;
    proxy->stats.breaks++;
    switch (order->how) {
    case PROXY_CUT_BEFORE:
        pair->ends_when_sent = true;
        break;
    case PROXY_STALL_BEFORE:
        pair->is_stalled = true;
        break;
    case PROXY_CUT_AFTER:
        /* An orderly end behind the pattern; what is answered is read and
           dropped, so that no reset destroys what is on its way. */
        stream->has_ended = true;
        back->discards = true;
        free_chunks(back);
        shutdown(stream->from, SHUT_RDWR);
        return size;
    }
    return at > 0 ? (size_t)at : 0;
}

/* --- Forwarding ----------------------------------------------------------- */

static void push(proxy_t *proxy, pair_t *pair, proxy_side_t side,
                 const char *bytes, size_t size)
{
    stream_t *stream = &pair->streams[side];
    chunk_t *chunk = NULL;

    if (size == 0) {
        return;
    }
    chunk = malloc(sizeof *chunk + size);
    if (chunk == NULL) {
        abort();
    }
    chunk->due_ns = now_ns() + proxy->delay_ns[side];
    chunk->size = size;
    chunk->offset = 0;
    memcpy(chunk->bytes, bytes, size);
    DL_APPEND(stream->chunks, chunk);
    stream->queued_bytes += size;
}

static void read_some(proxy_t *proxy, pair_t *pair, proxy_side_t side)
{
    stream_t *stream = &pair->streams[side];
    char bytes[READ_BYTES];
    ssize_t count = recv(stream->from, bytes, sizeof bytes, 0);

    if (count > 0) {
        size_t size = (size_t)count;

        if (side == PROXY_FROM_CLIENT) {
            proxy->stats.bytes_from_client += size;
        } else {
            proxy->stats.bytes_from_server += size;
        }
        if (!stream->discards) {
            size_t pass = apply_order(proxy, pair, side, bytes, size);

            keep_tail(stream, bytes, size);
            push(proxy, pair, side, bytes, pass);
        }
    } else if (count == 0) {
        stream->has_ended = true;
    } else if (errno != EAGAIN && errno != EINTR) {
        pair->is_cut = true;
        pair->is_reset = true; /* as it came, so it is given on */
    }
}

static void write_some(pair_t *pair, stream_t *stream)
{
    chunk_t *chunk = stream->chunks;

    while (chunk != NULL && chunk->due_ns <= now_ns()) {
        ssize_t count = send(stream->to, chunk->bytes + chunk->offset,
                             chunk->size - chunk->offset, MSG_NOSIGNAL);

        if (count < 0) {
            if (errno != EAGAIN && errno != EINTR) {
                pair->is_cut = true;
            }
            return;
        }
        chunk->offset += (size_t)count;
        stream->queued_bytes -= (size_t)count;
        if (chunk->offset == chunk->size) {
            DL_DELETE(stream->chunks, chunk);
            free(chunk);
        }
        chunk = stream->chunks;
    }
    if (stream->chunks == NULL && stream->has_ended && !stream->is_shut) {
        stream->is_shut = true;
        shutdown(stream->to, SHUT_WR);
    }
}

static bool is_over(const pair_t *pair)
{
    const stream_t *up = &pair->streams[PROXY_FROM_CLIENT];
    const stream_t *down = &pair->streams[PROXY_FROM_SERVER];

    return pair->is_cut || (up->is_shut && down->is_shut) ||
           (pair->ends_when_sent && up->chunks == NULL && down->chunks == NULL);
}

static bool is_stalled(const proxy_t *proxy, const pair_t *pair)
{
    return proxy->is_stalled || pair->is_stalled;
}

static bool may_read(const pair_t *pair, const stream_t *stream)
{
    return !stream->has_ended && !pair->ends_when_sent &&
           stream->queued_bytes < QUEUED_MAX;
}

/* --- The loop ------------------------------------------------------------- */

static void update_listener(proxy_t *proxy)
{
    if (proxy->should_listen && proxy->listen_fd < 0) {
        int port = proxy->port;

        proxy->listen_fd = test_listen(&port);
        if (proxy->listen_fd < 0) {
            proxy->should_listen = false;
            proxy->listen_failed = true;
        }
    } else if (!proxy->should_listen && proxy->listen_fd >= 0) {
        close(proxy->listen_fd);
        proxy->listen_fd = -1;
    }
}

/* The descriptors to poll, two for each pair; the timer for what is due. */
static nfds_t prepare(proxy_t *proxy, struct pollfd *fds)
{
    struct itimerspec timer = {{0, 0}, {0, 0}};
    int64_t now = now_ns();
    int64_t next_ns = 0;
    nfds_t count = FIXED_FDS;
    pair_t *pair = NULL;

    fds[0] = (struct pollfd){.fd = proxy->wake_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = proxy->timer_fd, .events = POLLIN};
    fds[2] = (struct pollfd){.fd = proxy->listen_fd, .events = POLLIN};
    DL_FOREACH(proxy->pairs, pair) {
        bool skips =
            is_stalled(proxy, pair) || count + 2 > FIXED_FDS + 2 * PAIRS_MAX;

        if (skips) {
            continue;
        }
        for (int side = 0; side < 2; side++) {
            stream_t *stream = &pair->streams[side];
            const chunk_t *chunk = pair->streams[1 - side].chunks;
            struct pollfd *fd = &fds[count++];

            /* This descriptor is read for its stream and written for the
               other one. */
            *fd = (struct pollfd){.fd = stream->from};
            fd->events = may_read(pair, stream) ? POLLIN : 0;
            if (chunk != NULL && chunk->due_ns <= now) {
                fd->events |= POLLOUT;
            } else if (chunk != NULL &&
                       (next_ns == 0 || chunk->due_ns < next_ns)) {
                next_ns = chunk->due_ns;
            }
            if (fd->events == 0) {
                fd->fd = -1; /* or a hang-up would wake us again and again */
            }
        }
    }
    timer.it_value.tv_sec = (time_t)(next_ns / NS_PER_S);
    timer.it_value.tv_nsec = (long)(next_ns % NS_PER_S);
    timerfd_settime(proxy->timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
    return count;
}

static void clear(int fd)
{
    uint64_t ignored = 0;
    ssize_t got = read(fd, &ignored, sizeof ignored);

    (void)got;
}

static void work(proxy_t *proxy)
{
    pair_t *pair = NULL;
    pair_t *next = NULL;

    update_listener(proxy);
    DL_FOREACH_SAFE(proxy->pairs, pair, next) {
        for (int side = 0; side < 2 && !proxy->is_stalled; side++) {
            stream_t *stream = &pair->streams[side];

            if (may_read(pair, stream) && !pair->is_cut && !pair->is_stalled) {
                read_some(proxy, pair, (proxy_side_t)side);
            }
            if (!pair->is_cut) {
                write_some(pair, stream);
            }
        }
        if (is_over(pair)) {
            drop(proxy, pair);
        }
    }
    pthread_cond_broadcast(&proxy->changed);
}

void *proxy_loop(void *user)
{
    proxy_t *proxy = user;
    struct pollfd fds[FIXED_FDS + 2 * PAIRS_MAX];

    /* Delays are not to be rounded up by the usual 50 us. */
    prctl(PR_SET_TIMERSLACK, 1UL);
    pthread_mutex_lock(&proxy->lock);
    while (!proxy->is_stopping) {
        nfds_t count = prepare(proxy, fds);

        pthread_mutex_unlock(&proxy->lock);
        poll(fds, count, -1);
        clear(proxy->wake_fd);
        clear(proxy->timer_fd);
        pthread_mutex_lock(&proxy->lock);
        if (proxy->listen_fd >= 0 && fds[2].revents != 0) {
            accept_all(proxy);
        }
        work(proxy);
    }
    while (proxy->pairs != NULL) {
        drop(proxy, proxy->pairs);
    }
    pthread_mutex_unlock(&proxy->lock);
    return NULL;
}
