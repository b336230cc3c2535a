/* A guest in the reactor of a program with a life of its own. */

#include "driver_rig.h"
#include "peer.h"
#include "support.h"

#include <proton/connection.h>
#include <proton/handlers.h>
#include <proton/reactor.h>
#include <proton/transport.h>

#include <check.h>
#include <stdio.h>

enum { WAIT_MS = 10000 };

static const char text[] = "a message";

static peer_t *peer;
static pn_reactor_t *reactor;

static void set_up(void)
{
    peer = peer_create(NULL);
    ck_assert_ptr_nonnull(peer);
    reactor = pn_reactor();
    ck_assert_ptr_nonnull(reactor);
    pn_reactor_set_timeout(reactor, 20);
}

static void tear_down(void)
{
    if (reactor) {
        pn_reactor_free(reactor);
        reactor = NULL;
    }
    peer_destroy(peer);
    peer = NULL;
}

static rig_t *make(void)
{
    rig_options_t options = {.host = RIG_REACTOR, .url = peer_url(peer)};

    return rig_create(&options);
}

static void add(rig_t *rig)
{
    pn_handler_add(pn_reactor_get_handler(reactor), rig_reactor_handler(rig));
}

/* Turns the reactor until the condition holds. */
static bool turn(bool (*condition)(void *user), void *user, int64_t timeout_ms)
{
    int64_t end = test_now_ms() + test_scaled_ms(timeout_ms);

    while (!condition(user) && test_now_ms() < end &&
           pn_reactor_process(reactor)) {
    }
    return condition(user);
}

static bool has_credit(void *user)
{
    return peer_stats(peer).credit >= *(int *)user;
}

static bool has_ended(void *user)
{
    return rig_result(user) != IDEM_ERR_STATE;
}

START_TEST(loop_ends_when_the_client_has_stopped)
{
    int window = 10;
    rig_t *rig = make();

    add(rig);
    pn_reactor_start(reactor);
    ck_assert(turn(has_credit, &window, WAIT_MS));
    (void)peer_send_bytes(peer, text, sizeof text);
    rig_stop(rig);
    while (pn_reactor_process(reactor)) {
    }
    ck_assert_int_eq(rig_result(rig), IDEM_OK);
    rig_destroy(rig);
}
END_TEST

START_TEST(client_may_go_before_the_reactor)
{
    int window = 10;
    rig_t *rig = make();

    add(rig);
    pn_reactor_start(reactor);
    ck_assert(turn(has_credit, &window, WAIT_MS));
    rig_stop(rig);
    ck_assert(turn(has_ended, rig, WAIT_MS));
    rig_destroy(rig);
    while (pn_reactor_process(reactor)) {
    }
}
END_TEST

START_TEST(reactor_that_is_freed_first_ends_the_client)
{
    int window = 10;
    rig_t *rig = make();

    add(rig);
    pn_reactor_start(reactor);
    ck_assert(turn(has_credit, &window, WAIT_MS));
    (void)peer_send_bytes(peer, text, sizeof text);
    ck_assert(peer_wait_unsettled(peer, 1, WAIT_MS));
    pn_reactor_free(reactor);
    reactor = NULL;
    ck_assert_int_eq(rig_result(rig), IDEM_ERR_CONNECTION);
    ck_assert_uint_eq(rig_events(rig, IDEM_EVENT_FAILED), 1);
    ck_assert(peer_wait(peer, PEER_DISCONNECTED, 1, WAIT_MS));
    ck_assert_int_eq(peer_count(peer, PEER_CLOSE), 0);
    rig_stop(rig);
    rig_destroy(rig);
}
END_TEST

START_TEST(handler_that_is_never_used_costs_nothing)
{
    rig_t *rig = make();
    rig_t *other = make();
    pn_handler_t *handler = rig_reactor_handler(other);

    add(rig);
    rig_stop(rig);
    rig_destroy(rig);
    pn_decref(handler);
    rig_destroy(other);
}
END_TEST

START_TEST(handler_set_as_the_root_is_dropped_by_its_owner)
{
    int window = 10;
    rig_t *rig = make();
    pn_handler_t *handler = rig_reactor_handler(rig);

    pn_reactor_set_handler(reactor, handler);
    pn_decref(handler);
    pn_reactor_start(reactor);
    ck_assert(turn(has_credit, &window, WAIT_MS));
    rig_stop(rig);
    while (pn_reactor_process(reactor)) {
    }
    ck_assert_int_eq(rig_result(rig), IDEM_OK);
    rig_destroy(rig);
}
END_TEST

START_TEST(two_clients_share_a_reactor)
{
    int window = 20;
    rig_t *one = make();
    rig_t *two = make();

    add(one);
    add(two);
    pn_reactor_start(reactor);
    ck_assert(turn(has_credit, &window, WAIT_MS));
    rig_stop(one);
    ck_assert(turn(has_ended, one, WAIT_MS));
    ck_assert_int_eq(rig_result(two), IDEM_ERR_STATE);
    rig_stop(two);
    while (pn_reactor_process(reactor)) {
    }
    ck_assert_int_eq(rig_result(two), IDEM_OK);
    rig_destroy(one);
    rig_destroy(two);
}
END_TEST

/* The program's own connection, to a peer that has fallen silent. */

typedef struct own {
    bool is_over;
    bool has_foreign; /* an event of another connection */
    pn_connection_t *connection;
} own_t;

static void own_dispatch(pn_handler_t *handler, pn_event_t *event,
                         pn_event_type_t type)
{
    own_t *own = *(own_t **)pn_handler_mem(handler);

    if (pn_event_connection(event) &&
        pn_event_connection(event) != own->connection) {
        own->has_foreign = true;
    }
    if (type == PN_CONNECTION_BOUND) {
        pn_transport_set_idle_timeout(pn_event_transport(event), 1500);
    } else if (type == PN_TRANSPORT_CLOSED) {
        own->is_over = true;
    }
}

static bool is_over(void *user)
{
    return ((own_t *)user)->is_over;
}

static bool has_events(void *user)
{
    return rig_events(user, IDEM_EVENT_DISCONNECTED) >= 3;
}

/* Our socket comes before the program's, and is removed. */
START_TEST(heartbeats_of_the_program_survive_our_reconnects)
{
    int window = 10;
    own_t own = {0};
    own_t root = {0};
    char port[16];
    peer_t *silent = peer_create(NULL);
    rig_t *rig = make();
    pn_handler_t *handler = pn_handler_new(own_dispatch, sizeof(void *), NULL);
    pn_handler_t *watcher = pn_handler_new(own_dispatch, sizeof(void *), NULL);

    *(own_t **)pn_handler_mem(handler) = &own;
    *(own_t **)pn_handler_mem(watcher) = &root;
    add(rig);
    pn_handler_add(pn_reactor_get_handler(reactor), watcher);
    pn_reactor_start(reactor);
    ck_assert(turn(has_credit, &window, WAIT_MS));
    (void)snprintf(port, sizeof port, "%d", peer_port(silent));
    own.connection =
        pn_reactor_connection_to_host(reactor, "127.0.0.1", port, handler);
    pn_decref(handler);
    pn_connection_open(own.connection);
    peer_silence(silent, true);
    ck_assert(pn_reactor_process(reactor));
    ck_assert(peer_listen(peer, false));
    peer_cut(peer, true);
    ck_assert(turn(has_events, rig, WAIT_MS));
    ck_assert(turn(is_over, &own, 5000));
    pn_connection_release(own.connection);
    rig_stop(rig);
    while (pn_reactor_process(reactor)) {
    }
    ck_assert(!own.has_foreign);
    ck_assert(!root.has_foreign);
    ck_assert_int_eq(rig_result(rig), IDEM_OK);
    rig_destroy(rig);
    peer_silence(silent, false);
    peer_destroy(silent);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("driver-reactor");
    TCase *tests = tcase_create("guest");

    tcase_set_timeout(tests, 30);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, loop_ends_when_the_client_has_stopped);
    tcase_add_test(tests, client_may_go_before_the_reactor);
    tcase_add_test(tests, reactor_that_is_freed_first_ends_the_client);
    tcase_add_test(tests, handler_that_is_never_used_costs_nothing);
    tcase_add_test(tests, handler_set_as_the_root_is_dropped_by_its_owner);
    tcase_add_test(tests, two_clients_share_a_reactor);
    tcase_add_test(tests, heartbeats_of_the_program_survive_our_reconnects);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
