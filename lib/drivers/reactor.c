#include "base/clock.h"
#include "base/error.h"
#include "drivers/close_on_exec.h"
#include "drivers/host.h"
#include "drivers/lookup.h"
#include "drivers/proton_log.h"

#include <proton/handlers.h>
#include <proton/reactor.h>
#include <proton/selectable.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* A guest in the reactor of a program that has a life of its own. It brings
 *
 *  - the outer handler, which the program adds and which only waits for the
 *    first event, to learn the reactor from it;
 *  - the inner handler, of our connections and our selectable alone, so that
 *    no event of the program's comes here and none of ours goes there;
 *  - one selectable on an epoll descriptor that holds an eventfd, for wakes
 *    from other threads, and a timer. pn_reactor_wakeup() blocks when its pipe
 *    is full and gives no event; the reactor's tasks run by the wall clock,
 *    and keep the reactor alive when they are cancelled.
 *
 * The handlers may outlive us: they find us through their memory, which is
 * cleared when we go. */
typedef struct reactor_host {
    idemi_host_t host; /* first member */
    idemi_connection_t *connection;
    pn_handler_t *outer;
    pn_handler_t *inner;

    /* From the first event until the connection has stopped. */
    pn_reactor_t *reactor;
    pn_selectable_t *selectable;
    pn_connection_t *wire; /* until it is released */
    const idemi_url_t *first_url;
    size_t turn;       /* of the list of URLs, and of the addresses of a name */
    bool is_round_due; /* a selectable event for it is on its way */
    bool has_begun;
    bool is_repair_due;
    bool has_finished;

    int poll_fd;
    int event_fd; /* any thread writes to it */
    int timer_fd;
    int64_t armed_ms;
} reactor_host_t;

/* What a handler's memory holds. */
typedef struct guest {
    reactor_host_t *host; /* NULL: gone */
} guest_t;

static reactor_host_t *host_of(pn_handler_t *handler)
{
    return ((guest_t *)pn_handler_mem(handler))->host;
}

/* The reactor would try a name's first address alone. A slow resolver holds its
 * thread up either way. */
static pn_connection_t *create(idemi_host_t *host, const idemi_url_t *url)
{
    reactor_host_t *self = (reactor_host_t *)host;
    char address[IDEMI_LOOKUP_BYTES];

    if (!self->first_url || self->first_url == url) {
        self->first_url = url;
        self->turn++;
    }
    const char *problem = idemi_lookup(address, url->host, self->turn - 1);
    if (problem) {
        idemi_connection_note_lookup(self->connection, problem);
        return NULL;
    }
    self->wire = pn_reactor_connection_to_host(self->reactor, address,
                                               url->port, self->inner);
    return self->wire;
}

static void start_connect(idemi_host_t *host, pn_connection_t *wire,
                          const idemi_url_t *url)
{
    (void)host;
    (void)url;
    pn_connection_open(wire);
}

static void interrupt(idemi_host_t *host)
{
    const uint64_t one = 1;
    int kept = errno;
    ssize_t written =
        write(((reactor_host_t *)host)->event_fd, &one, sizeof one);

    (void)written; /* it only fails when the counter is full: that wakes, too */
    errno = kept;
}

static void wake(void *context)
{
    interrupt(context);
}

static void do_round(reactor_host_t *self)
{
    idemi_connection_enter(self->connection);
    idemi_connection_round(self->connection, idemi_now_ms());
    idemi_connection_leave(self->connection);
}

/* Only ever brought forward: a round too early is cheaper than a system call
 * for each change. */
static void arm(idemi_host_t *host, int64_t deadline_ms)
{
    reactor_host_t *self = (reactor_host_t *)host;
    struct itimerspec timer = {{0, 0}, {0, 0}};

    if (deadline_ms >= self->armed_ms) {
        return;
    }
    self->armed_ms = deadline_ms;
    timer.it_value.tv_sec = deadline_ms > 0 ? deadline_ms / 1000 : 0;
    timer.it_value.tv_nsec = deadline_ms > 0 ? deadline_ms % 1000 * 1000000 : 1;
    (void)timerfd_settime(self->timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

/* When a descriptor is removed, Proton 0.37 shifts its list of them but not
 * the list of their deadlines, so that heartbeats and the program's timers
 * stop. An update of each writes them anew. */
static void repair_deadlines(reactor_host_t *self)
{
    pn_list_t *children = pn_reactor_children(self->reactor);

    for (size_t i = 0; i < pn_list_size(children); i++) {
        void *child = pn_list_get(children, (int)i);
        if (child != self->selectable &&
            strcmp(pn_class_name(pn_class(child)), "pn_selectable") == 0) {
            pn_reactor_update(self->reactor, child);
        }
    }
}

static void release_wire(reactor_host_t *self)
{
    if (self->wire) {
        pn_transport_t *transport = pn_connection_transport(self->wire);
        if (transport) {
            idemi_proton_log(transport, NULL); /* it may outlive us */
        }
        pn_connection_release(self->wire);
        self->wire = NULL;
        /* In the next turn, as in finished(). */
        self->is_repair_due = true;
        interrupt(&self->host);
    }
}

/* Lets go of the reactor, whose loop then ends when nothing else is in it. */
static void leave(reactor_host_t *self)
{
    pn_selectable_t *selectable = self->selectable;

    release_wire(self);
    self->selectable = NULL;
    if (selectable) {
        pn_selectable_terminate(selectable);
        pn_reactor_update(self->reactor, selectable);
        repair_deadlines(self);
    }
    self->reactor = NULL;
}

/* In the next turn of the loop: the socket that was closed last must be out of
 * it before the deadlines can be repaired. */
static void finished(idemi_host_t *host)
{
    ((reactor_host_t *)host)->has_finished = true;
    interrupt(host);
}

static void forget(pn_handler_t *handler)
{
    ((guest_t *)pn_handler_mem(handler))->host = NULL;
    pn_decref(handler);
}

static void close_fd(int fd)
{
    if (fd >= 0) {
        (void)close(fd);
    }
}

static void destroy(idemi_host_t *host)
{
    reactor_host_t *self = (reactor_host_t *)host;

    leave(self);
    if (self->outer) {
        forget(self->outer);
    }
    if (self->inner) {
        forget(self->inner);
    }
    close_fd(self->poll_fd);
    close_fd(self->timer_fd);
    close_fd(self->event_fd);
    free(self);
}

static void on_readable(pn_selectable_t *selectable)
{
    reactor_host_t *self =
        host_of(pn_record_get_handler(pn_selectable_attachments(selectable)));
    uint64_t count;

    if (!self || !self->reactor) {
        return;
    }
    /* Both are non-blocking, and whatever is read, a round follows. */
    ssize_t got = read(self->timer_fd, &count, sizeof count);
    if (got > 0) {
        self->armed_ms = INT64_MAX;
    }
    got = read(self->event_fd, &count, sizeof count);
    (void)got;
    if (self->has_finished) {
        leave(self);
        return;
    }
    if (self->is_repair_due) {
        self->is_repair_due = false;
        repair_deadlines(self);
    }
    do_round(self);
}

/* We never set a deadline: this one is another's, see repair_deadlines(). */
static void on_expired(pn_selectable_t *selectable)
{
    reactor_host_t *self =
        host_of(pn_record_get_handler(pn_selectable_attachments(selectable)));

    if (self && self->reactor) {
        pn_reactor_update(self->reactor, selectable);
        repair_deadlines(self);
    }
}

/* The reactor is freed while we are in it: the program did not wait for us. */
static void on_finalize(pn_selectable_t *selectable)
{
    reactor_host_t *self =
        host_of(pn_record_get_handler(pn_selectable_attachments(selectable)));

    if (self && self->selectable == selectable) {
        self->selectable = NULL;
        self->wire = NULL;
        self->reactor = NULL;
        self->has_finished = true;
        idemi_connection_enter(self->connection);
        idemi_connection_abandon(self->connection, idemi_now_ms());
        idemi_connection_leave(self->connection);
    }
}

static void begin(reactor_host_t *self, pn_reactor_t *reactor)
{
    self->has_begun = true;
    self->reactor = reactor;
    /* Made now and not before: one that is older than the reactor's own would
     * stop the program's timers when it goes. */
    self->selectable = pn_reactor_selectable(reactor);
    pn_selectable_set_fd(self->selectable, self->poll_fd);
    pn_selectable_on_readable(self->selectable, on_readable);
    pn_selectable_on_expired(self->selectable, on_expired);
    pn_selectable_on_finalize(self->selectable, on_finalize);
    pn_record_set_handler(pn_selectable_attachments(self->selectable),
                          self->inner);
    pn_selectable_set_reading(self->selectable, true);
    pn_reactor_update(reactor, self->selectable);
    idemi_mailbox_set_wake(idemi_connection_mailbox(self->connection), wake,
                           &self->host);
    idemi_connection_enter(self->connection);
    idemi_connection_begin(self->connection, idemi_now_ms());
    idemi_connection_leave(self->connection);
}

static void outer_dispatch(pn_handler_t *handler, pn_event_t *event,
                           pn_event_type_t type)
{
    reactor_host_t *self = host_of(handler);
    pn_reactor_t *reactor = pn_event_reactor(event);

    if (self && !self->has_begun && reactor && type != PN_REACTOR_FINAL) {
        begin(self, reactor);
    }
}

static void make_close_on_exec(const reactor_host_t *self)
{
    pn_list_t *children = pn_reactor_children(self->reactor);
    const char *port = idemi_connection_url(self->connection)->port;

    for (size_t i = 0; i < pn_list_size(children); i++) {
        void *child = pn_list_get(children, (int)i);
        if (strcmp(pn_class_name(pn_class(child)), "pn_selectable") == 0) {
            idemi_close_on_exec_to(pn_selectable_get_fd(child),
                                   (unsigned)strtoul(port, NULL, 10));
        }
    }
}

/* The events of a batch are in the queue together. A round behind all of them
 * is had by one more event, of our selectable. */
static void want_round(reactor_host_t *self)
{
    if (!self->is_round_due) {
        self->is_round_due = true;
        pn_reactor_update(self->reactor, self->selectable);
    }
}

static void inner_dispatch(pn_handler_t *handler, pn_event_t *event,
                           pn_event_type_t type)
{
    reactor_host_t *self = host_of(handler);

    if (!self || !self->reactor) {
        return;
    }
    if (type == PN_SELECTABLE_UPDATED) {
        if (self->is_round_due) {
            self->is_round_due = false;
            do_round(self);
        }
        return;
    }
    if (!self->wire || pn_event_connection(event) != self->wire) {
        return;
    }
    idemi_connection_enter(self->connection);
    idemi_connection_event(self->connection, event, idemi_now_ms());
    idemi_connection_leave(self->connection);
    if (type == PN_CONNECTION_REMOTE_OPEN) {
        make_close_on_exec(self);
    } else if (type == PN_CONNECTION_UNBOUND) {
        release_wire(self);
    }
    want_round(self);
}

/* pn_reactor_free() drops a handler that was added twice: for itself and for
 * whoever added it. A program that dropped its own reference as well has taken
 * ours with it by now. */
static void outer_finalize(pn_handler_t *handler)
{
    reactor_host_t *self = host_of(handler);

    if (self) {
        self->outer = NULL;
    }
}

static pn_handler_t *make_handler(reactor_host_t *self,
                                  void (*dispatch)(pn_handler_t *, pn_event_t *,
                                                   pn_event_type_t),
                                  void (*finalize)(pn_handler_t *))
{
    pn_handler_t *handler = pn_handler_new(dispatch, sizeof(guest_t), finalize);

    if (handler) {
        ((guest_t *)pn_handler_mem(handler))->host = self;
    }
    return handler;
}

static bool watch_fd(const reactor_host_t *self, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    return fd >= 0 && epoll_ctl(self->poll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static reactor_host_t *make_host(idemi_connection_t *connection)
{
    reactor_host_t *self = calloc(1, sizeof *self);

    if (!self) {
        return NULL;
    }
    self->host = (idemi_host_t){create, start_connect, interrupt,
                                arm,    finished,      destroy};
    self->connection = connection;
    self->armed_ms = INT64_MAX;
    self->outer = make_handler(self, outer_dispatch, outer_finalize);
    self->inner = make_handler(self, inner_dispatch, NULL);
    self->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    self->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    self->timer_fd =
        timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return self;
}

idem_status_t idemi_connection_reactor_handler(idemi_connection_t *connection,
                                               struct pn_handler_t **handler,
                                               idem_error_t *err)
{
    reactor_host_t *self = make_host(connection);
    idem_status_t status = IDEM_OK;

    if (!self || !self->outer || !self->inner) {
        status = idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    } else if (self->poll_fd < 0 || !watch_fd(self, self->event_fd) ||
               !watch_fd(self, self->timer_fd)) {
        status = idemi_error(err, IDEM_ERR_SYSTEM,
                             "no descriptors to wake a reactor; raise the "
                             "limit of open files");
    } else if (!idemi_connection_take(connection, &self->host)) {
        status = idemi_error(err, IDEM_ERR_STATE,
                             "a client runs once, and only with a consumer");
    }
    if (status) {
        if (self) {
            destroy(&self->host);
        }
        return status;
    }
    pn_incref(self->outer);
    *handler = self->outer;
    return IDEM_OK;
}
