#include "blocking.h"

#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <proton/condition.h>
#include <proton/connection.h>
#include <proton/connection_driver.h>
#include <proton/link.h>
#include <proton/sasl.h>
#include <proton/session.h>
#include <proton/terminus.h>
#include <proton/transport.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLOSE_MS = 2000 };

struct blocking {
    pn_connection_driver_t driver;
    pn_session_t *session;
    blocking_handler_t handler;
    void *user;
    int fd;
    bool is_open;
    bool is_failed;  /* the connection is of no use any more */
    bool is_refused; /* a link or the session was ended by the broker */
};

typedef struct target {
    char user[64], password[64], host[128], port[16];
} target_t;

static void complain(const char *what, pn_condition_t *condition)
{
    const char *name = pn_condition_get_name(condition);
    const char *description = pn_condition_get_description(condition);

    fprintf(stderr, "blocking: %s: %s: %s\n", what,
            name != NULL ? name : "(no condition)",
            description != NULL ? description : "");
}

static bool parse(const char *url, target_t *target)
{
    const char *at = NULL;

    memset(target, 0, sizeof *target);
    if (strncmp(url, "amqp://", 7) != 0) {
        return false;
    }
    url += 7;
    at = strrchr(url, '@');
    if (at != NULL) {
        sscanf(url, "%63[^:@]:%63[^@]", target->user, target->password);
        url = at + 1;
    }
    return sscanf(url, "%127[^:/]:%15[0-9]", target->host, target->port) == 2;
}

static int connect_to(const target_t *target)
{
    const struct addrinfo hints = {.ai_family = AF_INET,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    const int on = 1;
    int fd = -1;

    if (getaddrinfo(target->host, target->port, &hints, &found) == 0) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
        freeaddrinfo(found);
    }
    if (fd < 0) {
        fprintf(stderr, "blocking: cannot connect to %s:%s: %s\n", target->host,
                target->port, strerror(errno));
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void start(blocking_t *blocking, const target_t *target)
{
    pn_connection_t *connection = blocking->driver.connection;
    pn_sasl_t *sasl = NULL;
    char container[64];

    pn_connection_set_container(
        connection, test_unique(container, sizeof container, "blocking"));
    pn_connection_set_hostname(connection, target->host);
    if (target->user[0] != '\0') {
        pn_connection_set_user(connection, target->user);
        pn_connection_set_password(connection, target->password);
    }
    sasl = pn_sasl(blocking->driver.transport);
    pn_sasl_allowed_mechs(sasl,
                          target->user[0] != '\0' ? "PLAIN" : "ANONYMOUS");
    pn_sasl_set_allow_insecure_mechs(sasl, true);
    pn_connection_driver_bind(&blocking->driver);
    pn_connection_open(connection);
    blocking->session = pn_session(connection);
    pn_session_open(blocking->session);
}

static void handle(blocking_t *blocking, pn_event_t *event)
{
    pn_link_t *link = pn_event_link(event);
    pn_session_t *session = pn_event_session(event);
    pn_connection_t *connection = pn_event_connection(event);

    switch (pn_event_type(event)) {
    case PN_SESSION_REMOTE_OPEN:
        blocking->is_open = true;
        break;
    case PN_LINK_REMOTE_CLOSE:
    case PN_LINK_REMOTE_DETACH:
        if ((pn_link_state(link) & PN_LOCAL_ACTIVE) != 0) {
            complain("link ended", pn_link_remote_condition(link));
            blocking->is_refused = true;
            pn_link_close(link);
        }
        break;
    case PN_SESSION_REMOTE_CLOSE:
        if ((pn_session_state(session) & PN_LOCAL_ACTIVE) != 0) {
            complain("session ended", pn_session_remote_condition(session));
            blocking->is_refused = true;
        }
        break;
    case PN_CONNECTION_REMOTE_CLOSE:
        if ((pn_connection_state(connection) & PN_LOCAL_ACTIVE) != 0) {
            complain("connection closed",
                     pn_connection_remote_condition(connection));
        }
        blocking->is_failed = true;
        pn_connection_close(connection);
        break;
    case PN_TRANSPORT_ERROR:
        complain("transport",
                 pn_transport_condition(pn_event_transport(event)));
        blocking->is_failed = true;
        break;
    case PN_TRANSPORT_CLOSED:
        blocking->is_failed = true;
        break;
    default:
        break;
    }
    if (blocking->handler != NULL) {
        blocking->handler(event, blocking->user);
    }
}

static void dispatch(blocking_t *blocking)
{
    pn_event_t *event = pn_connection_driver_next_event(&blocking->driver);

    while (event != NULL) {
        handle(blocking, event);
        event = pn_connection_driver_next_event(&blocking->driver);
    }
}

static void read_all(blocking_t *blocking)
{
    pn_rwbytes_t buffer = pn_connection_driver_read_buffer(&blocking->driver);
    ssize_t count = 1;

    while (buffer.size > 0 && count > 0) {
        count = recv(blocking->fd, buffer.start, buffer.size, 0);
        if (count > 0) {
            pn_connection_driver_read_done(&blocking->driver, (size_t)count);
            dispatch(blocking);
            buffer = pn_connection_driver_read_buffer(&blocking->driver);
        } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
            pn_connection_driver_close(&blocking->driver);
            blocking->is_failed = true;
        }
    }
}

/* True when something is left that the socket did not take. */
static bool write_all(blocking_t *blocking)
{
    pn_bytes_t bytes = pn_connection_driver_write_buffer(&blocking->driver);
    ssize_t count = 1;

    while (bytes.size > 0 && count > 0) {
        count = send(blocking->fd, bytes.start, bytes.size, MSG_NOSIGNAL);
        if (count > 0) {
            bytes = pn_connection_driver_write_done(&blocking->driver,
                                                    (size_t)count);
            if (bytes.size == 0) {
                bytes = pn_connection_driver_write_buffer(&blocking->driver);
            }
        } else if (errno != EAGAIN && errno != EINTR) {
            pn_connection_driver_close(&blocking->driver);
            blocking->is_failed = true;
        }
    }
    return bytes.size > 0;
}

/* Sees to heartbeats; returns for how long that does, in left at most. */
static int64_t until_tick(blocking_t *blocking, int64_t left)
{
    int64_t now = test_now_ms();
    int64_t next = pn_transport_tick(blocking->driver.transport, now);

    if (next != 0 && next - now < left) {
        left = next > now ? next - now : 0;
    }
    return left;
}

bool blocking_run(blocking_t *blocking, bool (*condition)(void *user),
                  void *user, int64_t timeout_ms)
{
    int64_t end = test_now_ms() + test_scaled_ms(timeout_ms);
    bool holds = false;

    dispatch(blocking);
    holds = condition(user);
    while (!holds && !blocking->is_failed && !blocking->is_refused) {
        int64_t left = end - test_now_ms();
        struct pollfd fd = {.fd = blocking->fd, .events = POLLIN};

        if (left <= 0) {
            break;
        }
        left = until_tick(blocking, left);
        if (write_all(blocking)) {
            fd.events |= POLLOUT;
        }
        dispatch(blocking);
        holds = condition(user);
        /* Writing can end it too: a login without a common mechanism does. */
        if (holds || blocking->is_failed || blocking->is_refused) {
            break;
        }
        poll(&fd, 1, (int)left);
        read_all(blocking);
        dispatch(blocking);
        holds = condition(user);
    }
    write_all(blocking);
    return holds;
}

static bool is_open(void *user)
{
    return ((blocking_t *)user)->is_open;
}

static bool is_failed(void *user)
{
    return ((blocking_t *)user)->is_failed;
}

blocking_t *blocking_open(const char *url, int64_t timeout_ms)
{
    target_t target;
    blocking_t *blocking = calloc(1, sizeof *blocking);
    bool is_ready = false;

    if (blocking == NULL) {
        return NULL;
    }
    blocking->fd = -1;
    if (!parse(url, &target)) {
        fprintf(stderr, "blocking: not an amqp:// URL\n");
    } else {
        blocking->fd = connect_to(&target);
    }
    if (blocking->fd >= 0 &&
        pn_connection_driver_init(&blocking->driver, NULL, NULL) == 0) {
        start(blocking, &target);
        is_ready = blocking_run(blocking, is_open, blocking, timeout_ms);
    }
    if (!is_ready) {
        blocking_close(blocking);
        blocking = NULL;
    }
    return blocking;
}

void blocking_close(blocking_t *blocking)
{
    if (blocking == NULL) {
        return;
    }
    blocking->handler = NULL;
    if (blocking->driver.connection != NULL) {
        if (!blocking->is_failed) {
            blocking->is_refused = false;
            pn_connection_close(blocking->driver.connection);
            blocking_run(blocking, is_failed, blocking, CLOSE_MS);
        }
        pn_connection_driver_destroy(&blocking->driver);
    }
    if (blocking->fd >= 0) {
        close(blocking->fd);
    }
    free(blocking);
}

pn_session_t *blocking_session(blocking_t *blocking)
{
    return blocking->session;
}

void blocking_set_handler(blocking_t *blocking, blocking_handler_t handler,
                          void *user)
{
    blocking->handler = handler;
    blocking->user = user;
}

/* A refusal is an attach with a null terminus, and then a detach: wait for
   either the terminus or the end. */
static bool is_attached(void *user)
{
    pn_link_t *link = user;
    pn_terminus_t *remote = pn_link_is_sender(link)
                                ? pn_link_remote_target(link)
                                : pn_link_remote_source(link);

    return (pn_link_state(link) & PN_REMOTE_ACTIVE) != 0 &&
           pn_terminus_get_type(remote) != PN_UNSPECIFIED;
}

static bool is_detached(void *user)
{
    return (pn_link_state(user) & PN_REMOTE_CLOSED) != 0;
}

bool blocking_attach(blocking_t *blocking, pn_link_t *link, int64_t timeout_ms)
{
    pn_link_open(link);
    return blocking_run(blocking, is_attached, link, timeout_ms);
}

bool blocking_detach(blocking_t *blocking, pn_link_t *link, int64_t timeout_ms)
{
    pn_link_close(link);
    return blocking_run(blocking, is_detached, link, timeout_ms);
}
