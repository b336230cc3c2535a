#include "base/clock.h"
#include "base/error.h"
#include "drivers/close_on_exec.h"
#include "drivers/host.h"

#include <proton/netaddr.h>
#include <proton/proactor.h>

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* One thread and one proactor with one connection: the well-trodden part of
 * the proactor. Nothing here is called by two threads but interrupt(). */
typedef struct proactor_host {
    idemi_host_t host; /* first member */
    idemi_connection_t *connection;
    idemi_mailbox_t *mailbox;
    pn_proactor_t *proactor;
    int64_t armed_ms; /* the proactor's timeout */
    bool has_finished;
} proactor_host_t;

static pn_connection_t *create(idemi_host_t *host, const idemi_url_t *url)
{
    (void)host;
    (void)url;
    return pn_connection();
}

/* Names are looked up in here, on the I/O thread: a slow resolver holds up
 * this connection, which is not there yet, but no other thread, since the
 * others wake this connection only when it is bound. */
static void start_connect(idemi_host_t *host, pn_connection_t *wire,
                          const idemi_url_t *url)
{
    proactor_host_t *self = (proactor_host_t *)host;
    char address[320];

    /* Split at the last colon, so IPv6 needs no brackets, and has none. */
    (void)snprintf(address, sizeof address, "%s:%s", url->host, url->port);
    pn_proactor_connect2(self->proactor, wire, NULL, address);
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
    pn_proactor_free(((proactor_host_t *)host)->proactor);
    free(host);
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
 * be touched then: the round follows in the connection's own batch. */
static void poke(proactor_host_t *host)
{
    pn_connection_t *wire = idemi_connection_wire(host->connection);

    if (wire) {
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
