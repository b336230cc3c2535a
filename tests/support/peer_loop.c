#include "peer_internal.h"

#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <proton/transport.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

enum { OUT_MAX = 1 << 20, CONNECTIONS_MAX = 256 };

void peer_wake(peer_t *peer)
{
    const uint64_t one = 1;
    ssize_t written = write(peer->wake_fd, &one, sizeof one);

    (void)written; /* a full counter wakes just as well */
}

bool peer_open_listener(peer_t *peer)
{
    peer->listen_fd = test_listen(&peer->port);
    return peer->listen_fd >= 0;
}

void connection_append(connection_t *connection, const void *bytes, size_t size)
{
    if (size == 0) {
        return;
    }
    while (connection->out_capacity - connection->out_bytes < size) {
        connection->out_capacity =
            connection->out_capacity == 0 ? 4096 : 2 * connection->out_capacity;
        connection->out = realloc(connection->out, connection->out_capacity);
        if (connection->out == NULL) {
            abort();
        }
    }
    memcpy(connection->out + connection->out_bytes, bytes, size);
    connection->out_bytes += size;
}

/* All frames that Proton has ready, so that the next transfer is a new one. */
void connection_flush(connection_t *connection)
{
    pn_bytes_t bytes = {0, NULL};

    if (connection->login != LOGIN_DONE) {
        return;
    }
    bytes = pn_connection_driver_write_buffer(&connection->driver);
    while (bytes.size > 0) {
        connection_append(connection, bytes.start, bytes.size);
        pn_connection_driver_write_done(&connection->driver, bytes.size);
        bytes = pn_connection_driver_write_buffer(&connection->driver);
    }
}

static void accept_all(peer_t *peer)
{
    const int on = 1;
    int fd = accept(peer->listen_fd, NULL, NULL);

    while (fd >= 0) {
        connection_t *connection = calloc(1, sizeof *connection);
        peer_event_t event = {.kind = PEER_CONNECTED};

        if (connection == NULL) {
            abort();
        }
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, O_NONBLOCK);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        connection->peer = peer;
        connection->fd = fd;
        connection->number = ++peer->next_connection;
        DL_APPEND(peer->connections, connection);
        peer->stats.connections++;
        peer->stats.live_connections++;
        record_event(connection, 0, &event);
        fd = accept(peer->listen_fd, NULL, NULL);
    }
}

static void drop(connection_t *connection)
{
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    peer_t *peer = connection->peer;
    peer_event_t event = {.kind = PEER_DISCONNECTED};
    peer_link_t *link = NULL;

    DL_FOREACH(connection->links, link) {
        broker_lose_link(link);
    }
    event.disconnected.was_closed = connection->was_closed;
    event.disconnected.by_peer =
        !connection->is_gone &&
        (connection->is_cut || connection->ends_when_sent);
    if (connection->is_reset) {
        setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    }
    close(connection->fd);
    connection->fd = -1;
    peer->stats.live_connections--;
    broker_measure(peer);
    record_event(connection, 0, &event);
    broker_free_links(connection);
    if (connection->login == LOGIN_DONE) {
        pn_connection_driver_destroy(&connection->driver);
    }
    DL_DELETE(peer->connections, connection);
    free(connection->out);
    free(connection);
}

/* Bytes to Proton. What it does not take any more is dropped. */
static void feed(connection_t *connection, const unsigned char *bytes,
                 size_t size)
{
    while (size > 0) {
        pn_rwbytes_t buffer =
            pn_connection_driver_read_buffer(&connection->driver);
        size_t part = buffer.size < size ? buffer.size : size;

        if (part == 0) {
            return;
        }
        memcpy(buffer.start, bytes, part);
        pn_connection_driver_read_done(&connection->driver, part);
        bytes += part;
        size -= part;
        if (pn_connection_driver_read_buffer(&connection->driver).size == 0) {
            broker_dispatch(connection);
        }
    }
}

static void note_read(connection_t *connection)
{
    peer_stats_t *stats = &connection->peer->stats;
    int64_t now = test_now_ms();

    if (connection->last_read_ms != 0 &&
        now - connection->last_read_ms > stats->longest_silence_ms) {
        stats->longest_silence_ms = now - connection->last_read_ms;
    }
    if (connection->login == LOGIN_DONE) {
        connection->last_read_ms = now;
    }
}

/* Everything that is there, before any of it is answered: a flow and the
   dispositions sent with it are then seen as one. */
static void read_all(connection_t *connection)
{
    unsigned char bytes[65536];
    bool is_login = connection->login != LOGIN_DONE;
    size_t room =
        is_login ? sizeof connection->in - connection->in_bytes : sizeof bytes;
    ssize_t count = recv(connection->fd, bytes, room, 0);

    while (count > 0) {
        note_read(connection);
        if (is_login) {
            memcpy(connection->in + connection->in_bytes, bytes, (size_t)count);
            connection->in_bytes += (size_t)count;
            login_input(connection);
            is_login = connection->login != LOGIN_DONE;
            if (!is_login) {
                broker_start(connection);
                feed(connection, connection->in, connection->in_bytes);
            }
        } else {
            feed(connection, bytes, (size_t)count);
        }
        room = is_login ? sizeof connection->in - connection->in_bytes
                        : sizeof bytes;
        count = room > 0 ? recv(connection->fd, bytes, room, 0) : 0;
    }
    if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
        connection->is_gone = true;
        if (!is_login) {
            pn_connection_driver_read_close(&connection->driver);
        }
    }
    if (!is_login) {
        broker_dispatch(connection);
    }
}

static void write_some(connection_t *connection)
{
    ssize_t count = 0;

    if (connection->out_bytes > 0) {
        count = send(connection->fd, connection->out, connection->out_bytes,
                     MSG_NOSIGNAL);
    }
    if (count > 0) {
        connection->out_bytes -= (size_t)count;
        memmove(connection->out, connection->out + count,
                connection->out_bytes);
    } else if (count < 0 && errno != EAGAIN && errno != EINTR) {
        connection->is_gone = true;
    }
}

static void tick(connection_t *connection)
{
    if (connection->login == LOGIN_DONE) {
        int64_t now = test_now_ms();

        connection->tick_at_ms =
            pn_transport_tick(connection->driver.transport, now);
        broker_dispatch(connection);
    }
}

static bool is_done(connection_t *connection)
{
    if (connection->is_cut || connection->is_gone) {
        return true;
    }
    if (connection->out_bytes > 0) {
        return false;
    }
    /* The close frame is out; the client's comes before or after it. */
    return connection->ends_when_sent ||
           (connection->was_closed &&
            pn_connection_driver_write_closed(&connection->driver));
}

static void update_listener(peer_t *peer)
{
    if (peer->should_listen && peer->listen_fd < 0) {
        if (!peer_open_listener(peer)) {
            peer->should_listen = false;
            peer->listen_failed = true;
        }
    } else if (!peer->should_listen && peer->listen_fd >= 0) {
        close(peer->listen_fd);
        peer->listen_fd = -1;
    }
}

/* What tests asked for and what came in, then all that follows from it. */
static void work(peer_t *peer)
{
    connection_t *connection = NULL;
    connection_t *next = NULL;
    bool is_moving = false;

    update_listener(peer);
    if (!peer->is_silent) {
        DL_FOREACH(peer->connections, connection) {
            if (!connection->is_cut) {
                tick(connection);
            }
        }
        broker_measure(peer);
        /* What is written makes room for more. */
        do {
            is_moving = broker_pump(peer);
            DL_FOREACH(peer->connections, connection) {
                if (!connection->is_cut) {
                    size_t before = connection->out_bytes;

                    connection_flush(connection);
                    is_moving = is_moving || connection->out_bytes > before;
                    write_some(connection);
                }
            }
        } while (is_moving);
    }
    DL_FOREACH_SAFE(peer->connections, connection, next) {
        if (is_done(connection)) {
            drop(connection);
        }
    }
    broker_measure(peer);
    pthread_cond_broadcast(&peer->changed);
}

/* The descriptors to poll, the connections from index 2 on; the time-out. */
static int prepare(peer_t *peer, struct pollfd *fds, int *count)
{
    connection_t *connection = NULL;
    int64_t now = test_now_ms();
    int64_t timeout_ms = -1;

    fds[0] = (struct pollfd){.fd = peer->wake_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = peer->listen_fd, .events = POLLIN};
    *count = 2;
    DL_FOREACH(peer->connections, connection) {
        struct pollfd *fd = &fds[*count];

        if (*count == CONNECTIONS_MAX) {
            break;
        }
        *fd = (struct pollfd){.fd = connection->fd, .events = POLLIN};
        if (connection->out_bytes > 0) {
            fd->events |= POLLOUT;
        }
        if (connection->out_bytes > OUT_MAX) {
            fd->events = POLLOUT;
        }
        if (peer->is_silent) {
            fd->fd = -1;
        } else if (connection->tick_at_ms != 0) {
            int64_t left = connection->tick_at_ms - now;
            left = left > 0 ? left : 0;
            timeout_ms =
                timeout_ms < 0 || left < timeout_ms ? left : timeout_ms;
        }
        (*count)++;
    }
    return (int)timeout_ms;
}

void *peer_loop(void *user)
{
    peer_t *peer = user;
    struct pollfd fds[CONNECTIONS_MAX];

    pthread_mutex_lock(&peer->lock);
    while (!peer->is_stopping) {
        connection_t *connection = NULL;
        connection_t *next = NULL;
        uint64_t ignored = 0;
        int count = 0;
        int at = 2;
        int timeout_ms = prepare(peer, fds, &count);
        ssize_t got = 0;

        pthread_mutex_unlock(&peer->lock);
        poll(fds, (nfds_t)count, timeout_ms);
        got = fds[0].revents != 0
                  ? read(peer->wake_fd, &ignored, sizeof ignored)
                  : 0;
        (void)got;
        pthread_mutex_lock(&peer->lock);
        /* Only this thread adds and removes connections, so the list still
           is what fds was made from. */
        DL_FOREACH_SAFE(peer->connections, connection, next) {
            if (at < count && fds[at].revents != 0 && !peer->is_silent &&
                !connection->is_cut) {
                read_all(connection);
            }
            at++;
        }
        if (fds[1].revents != 0 && peer->listen_fd >= 0) {
            accept_all(peer);
        }
        work(peer);
    }
    while (peer->connections != NULL) {
        peer->connections->is_cut = true;
        drop(peer->connections);
    }
    if (peer->listen_fd >= 0) {
        close(peer->listen_fd);
        peer->listen_fd = -1;
    }
    pthread_mutex_unlock(&peer->lock);
    return NULL;
}
