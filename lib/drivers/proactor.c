#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "drivers/close_on_exec.h"
#include "drivers/host.h"

#include <proton/netaddr.h>
#include <proton/proactor.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Room for a host, a port and the colon between them. */
#define ADDRESS_BYTES 320

/* One thread and one proactor with one connection: the well-trodden part of
 * the proactor. Nothing here is called by two threads but interrupt(), and
 * pn_proactor_connect2(), which looks a name up and so may take long: a thread
 * of its own calls it, since handlers that run meanwhile need their claims
 * renewed. */
typedef struct proactor_host {
    idemi_host_t host; /* first member */
    idemi_connection_t *connection;
    idemi_mailbox_t *mailbox;
    pn_proactor_t *proactor;
    int64_t armed_ms; /* the proactor's timeout */
    bool has_finished;

    /* The thread that connects, and what it was given. */
    pthread_t connector;
    bool has_connector;
    pn_connection_t *wire;
    char address[ADDRESS_BYTES];
    atomic_bool has_connected; /* it has come back */
} proactor_host_t;

static pn_connection_t *create(idemi_host_t *host, const idemi_url_t *url)
{
    (void)host;
    (void)url;
    return pn_connection();
}

static bool is_numeric(const char *host)
{
    struct in6_addr address;

    return inet_pton(AF_INET, host, &address) == 1 ||
           inet_pton(AF_INET6, host, &address) == 1;
}

static void *look_up_and_connect(void *argument)
{
    proactor_host_t *self = argument;

    pn_proactor_connect2(self->proactor, self->wire, NULL, self->address);
    atomic_store(&self->has_connected, true);
    pn_proactor_interrupt(self->proactor);
    return NULL;
}

static void join_connector(proactor_host_t *self)
{
    if (self->has_connector) {
        (void)pthread_join(self->connector, NULL);
        self->has_connector = false;
    }
}

static void start_connect(idemi_host_t *host, pn_connection_t *wire,
                          const idemi_url_t *url)
{
    proactor_host_t *self = (proactor_host_t *)host;

    join_connector(self); /* its connection is gone, so it has nothing to do */
    /* Split at the last colon, so IPv6 needs no brackets, and has none. */
    (void)snprintf(self->address, sizeof self->address, "%s:%s", url->host,
                   url->port);
    self->wire = wire;
    atomic_store(&self->has_connected, false);
    idemi_connection_lend(self->connection, true);
    self->has_connector =
        !is_numeric(url->host) &&
        idemi_thread_create(&self->connector, look_up_and_connect, self) == 0;
    if (!self->has_connector) {
        idemi_connection_lend(self->connection, false);
        pn_proactor_connect2(self->proactor, wire, NULL, self->address);
    }
}

static void interrupt(idemi_host_t *host)
{
    pn_proactor_interrupt(((proactor_host_t *)host)->proactor);
}

/* A timeout that fires early costs a round, setting it anew each time a system
 * call: so it is only ever brought forward. */
static void arm(idemi_host_t *host, int64_t deadline_ms)
{
    proactor_host_t *self = (proactor_host_t *)host;
    int64_t pause = deadline_ms - idemi_now_ms();

    if (deadline_ms < self->armed_ms) {
        self->armed_ms = deadline_ms;
        pause = pause < 0 ? 0 : pause;
        pause = pause > INT32_MAX ? INT32_MAX : pause;
        pn_proactor_set_timeout(self->proactor, (pn_millis_t)pause);
    }
}

static void finished(idemi_host_t *host)
{
    ((proactor_host_t *)host)->has_finished = true;
}

static void destroy(idemi_host_t *host)
{
    proactor_host_t *self = (proactor_host_t *)host;

    join_connector(self);
    pn_proactor_free(self->proactor);
    free(self);
}

/* Wakes of the mailbox, under its lock. A wake of a connection is the faster
 * one, but may only be used while the connection is known to live: from BOUND
 * until TRANSPORT_CLOSED, the last event before Proton frees it. */
static void wake_proactor(void *context)
{
    pn_proactor_interrupt(context);
}

static void wake_wire(void *context)
{
    pn_connection_wake(context);
}

static void make_close_on_exec(pn_transport_t *transport)
{
    const pn_netaddr_t *local = pn_transport_local_addr(transport);

    if (local && pn_netaddr_sockaddr(local)) {
        idemi_close_on_exec(pn_netaddr_sockaddr(local),
                            (socklen_t)pn_netaddr_socklen(local));
    }
}

static void on_wire_event(proactor_host_t *host, pn_event_t *event)
{
    idemi_connection_lend(host->connection, false);
    switch (pn_event_type(event)) {
    case PN_CONNECTION_BOUND:
        idemi_mailbox_set_wake(host->mailbox, wake_wire,
                               pn_event_connection(event));
        break;
    case PN_CONNECTION_REMOTE_OPEN:
        make_close_on_exec(pn_event_transport(event));
        break;
    case PN_TRANSPORT_CLOSED:
        idemi_mailbox_set_wake(host->mailbox, wake_proactor, host->proactor);
        break;
    default:
        break;
    }
    idemi_connection_event(host->connection, event, idemi_now_ms());
}

/* Events of the proactor itself belong to no connection, so nothing of one may
 * be touched then: the round follows in the connection's own batch. While its
 * name is looked up it has none, and a wake would wait for the resolver. */
static void poke(proactor_host_t *host)
{
    pn_connection_t *wire = idemi_connection_wire(host->connection);

    if (atomic_load(&host->has_connected)) {
        idemi_connection_lend(host->connection, false);
    }
    if (wire && !idemi_connection_is_lent(host->connection)) {
        pn_connection_wake(wire);
    } else {
        idemi_connection_round(host->connection, idemi_now_ms());
    }
}

static void take_batch(proactor_host_t *host, pn_event_batch_t *batch)
{
    bool is_poked = false;
    bool more = true;

    /* A round behind the events, and again while it brings new ones. */
    while (more) {
        pn_event_t *event;
        bool is_wire = false;
        more = false;
        while ((event = pn_event_batch_next(batch))) {
            more = true;
            switch (pn_event_type(event)) {
            case PN_PROACTOR_TIMEOUT:
                host->armed_ms = INT64_MAX;
                is_poked = true;
                break;
            case PN_PROACTOR_INTERRUPT:
                is_poked = true;
                break;
            case PN_PROACTOR_INACTIVE:
                break;
            default:
                is_wire = true;
                on_wire_event(host, event);
                break;
            }
        }
        if (is_wire) {
            idemi_connection_round(host->connection, idemi_now_ms());
        }
    }
    if (is_poked) {
        poke(host);
    }
}

/* Proton 0.37 needs four of them for a proactor, and crashes where it does not
 * get them all. */
static bool has_descriptors(void)
{
    int fds[4];
    size_t count = 0;
    bool has_all = true;

    while (has_all && count < sizeof fds / sizeof *fds) {
        fds[count] = eventfd(0, EFD_CLOEXEC);
        has_all = fds[count] >= 0;
        count += has_all ? 1 : 0;
    }
    while (count > 0) {
        (void)close(fds[--count]);
    }
    return has_all;
}

idem_status_t idemi_connection_run(idemi_connection_t *connection,
                                   idem_error_t *err)
{
    proactor_host_t *host = calloc(1, sizeof *host);

    if (!host) {
        return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    }
    host->host = (idemi_host_t){create, start_connect, interrupt,
                                arm,    finished,      destroy};
    host->connection = connection;
    atomic_init(&host->has_connected, false);
    host->mailbox = idemi_connection_mailbox(connection);
    host->armed_ms = INT64_MAX;
    host->proactor = has_descriptors() ? pn_proactor() : NULL;
    if (!host->proactor) {
        free(host);
        return idemi_error(err, IDEM_ERR_SYSTEM,
                           "no descriptors for a proactor; raise the limit of "
                           "open files");
    }
    if (!idemi_connection_take(connection, &host->host)) {
        destroy(&host->host);
        return idemi_error(err, IDEM_ERR_STATE,
                           "a client runs once, and only with a consumer");
    }
    idemi_mailbox_set_wake(host->mailbox, wake_proactor, host->proactor);
    idemi_connection_begin(connection, idemi_now_ms());
    while (!host->has_finished) {
        pn_event_batch_t *batch = pn_proactor_wait(host->proactor);
        take_batch(host, batch);
        pn_proactor_done(host->proactor, batch);
    }
    return idemi_connection_result(connection, err);
}
