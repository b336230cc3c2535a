/* How a driver stops, at any time of its life, with both hosts. */

#include "driver_rig.h"
#include "gate.h"
#include "message/delivery.h"
#include "peer.h"
#include "support.h"

#include <proton/disposition.h>

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WAIT_MS = 10000, SOON_MS = 1500 };

static const char text[] = "a message";

static peer_t *peer;
static rig_t *rig;

static void tear_down(void)
{
    if (rig) {
        rig_destroy(rig);
        rig = NULL;
    }
    peer_destroy(peer);
    peer = NULL;
}

static void start(const peer_options_t *peer_options, rig_options_t *options,
                  int host)
{
    peer = peer_create(peer_options);
    ck_assert_ptr_nonnull(peer);
    options->host = (rig_host_t)host;
    options->url = peer_url(peer);
    rig = rig_create(options);
}

/* Returns how long it took. */
static int64_t join(idem_status_t status)
{
    idem_error_t err = {0};
    int64_t began = test_now_ms();
    idem_status_t ended = rig_join(rig, &err);

    ck_assert_msg(ended == status, "%s: %s", idem_status_name(ended),
                  err.message);
    ck_assert_uint_eq(rig_events(rig, IDEM_EVENT_STOPPED), 1);
    ck_assert_uint_eq(rig_events(rig, IDEM_EVENT_FAILED), 0);
    ck_assert_int_eq(peer_stats(peer).without_state, 0);
    return test_now_ms() - began;
}

/* Handlers that wait. */

static gate_t gate;

static void start_with_handlers_waiting(const peer_options_t *peer_options,
                                        rig_options_t *options, int host,
                                        int messages)
{
    gate_init(&gate);
    options->handler = gate_handler;
    options->user = &gate;
    options->workers = 3;
    start(peer_options, options, host);
    rig_start(rig);
    for (int i = 0; i < messages; i++) {
        (void)peer_send_bytes(peer, text, sizeof text);
    }
    ck_assert(gate_wait_arrived(&gate, 3, WAIT_MS));
    ck_assert(
        peer_wait_unsettled(peer, messages < 10 ? messages : 10, WAIT_MS));
}

START_TEST(stop_releases_what_has_not_started_and_awaits_what_runs)
{
    rig_options_t options = {0};
    peer_event_t event;
    peer_event_t detach;

    start_with_handlers_waiting(NULL, &options, _i, 30);
    rig_stop(rig);
    ck_assert(peer_wait_dispositions(peer, 7, WAIT_MS));
    ck_assert_int_eq(peer_stats(peer).released, 7);
    ck_assert_int_eq(peer_count(peer, PEER_DETACH), 0);
    gate_open(&gate);
    join(IDEM_OK);
    ck_assert(peer_wait_dispositions(peer, 10, WAIT_MS));
    ck_assert_int_eq(peer_stats(peer).accepted, 3);
    ck_assert_int_eq(peer_stats(peer).released, 7);
    /* In order, and each before the next. */
    ck_assert(peer_event(peer, PEER_DISPOSITION, -1, &event));
    ck_assert(peer_event(peer, PEER_DETACH, 0, &detach));
    ck_assert_uint_lt(event.sequence, detach.sequence);
    ck_assert(detach.end.closed);
    ck_assert(peer_event(peer, PEER_END, 0, &event));
    ck_assert_uint_gt(event.sequence, detach.sequence);
    ck_assert(peer_event(peer, PEER_CLOSE, 0, &detach));
    ck_assert_uint_gt(detach.sequence, event.sequence);
    ck_assert_uint_eq(rig_consumer(rig, 0).given_back, 7);
}
END_TEST

START_TEST(handlers_that_outlast_the_limit_are_left_unsettled)
{
    rig_options_t options = {.stop_timeout_ms = 200};

    start_with_handlers_waiting(NULL, &options, _i, 10);
    rig_stop(rig);
    ck_assert_int_lt(join(IDEM_ERR_TIMEOUT), SOON_MS);
    ck_assert_int_eq(peer_stats(peer).released, 7);
    ck_assert_int_eq(peer_stats(peer).accepted, 0);
    ck_assert_int_eq(peer_count(peer, PEER_CLOSE), 1);
    gate_open(&gate);
}
END_TEST

START_TEST(stop_without_time_ends_at_once)
{
    rig_options_t options = {.stop_timeout_ms = -1};

    start_with_handlers_waiting(NULL, &options, _i, 3);
    rig_stop(rig);
    ck_assert_int_lt(join(IDEM_ERR_TIMEOUT), SOON_MS);
    gate_open(&gate);
}
END_TEST

START_TEST(stop_before_the_run_connects_to_nobody)
{
    rig_options_t options = {0};

    start(NULL, &options, _i);
    rig_stop(rig);
    rig_start(rig);
    ck_assert_int_lt(join(IDEM_OK), SOON_MS);
    ck_assert_int_eq(peer_stats(peer).connections, 0);
    rig_stop(rig); /* and after the end: nothing happens */
}
END_TEST

START_TEST(stop_while_pausing_works_at_once)
{
    rig_options_t options = {.reconnect_min_ms = 60000,
                             .reconnect_max_ms = 60000};

    start(NULL, &options, _i);
    ck_assert(peer_listen(peer, false));
    rig_start(rig);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_DISCONNECTED, 1, WAIT_MS));
    rig_stop(rig);
    ck_assert_int_lt(join(IDEM_OK), SOON_MS);
}
END_TEST

START_TEST(stop_while_connecting_works_at_once)
{
    peer_options_t peer_options = {.no_open_answer = true};
    rig_options_t options = {.connect_timeout_ms = 60000};

    start(&peer_options, &options, _i);
    rig_start(rig);
    ck_assert(peer_wait(peer, PEER_OPEN, 1, WAIT_MS));
    rig_stop(rig);
    ck_assert_int_lt(join(IDEM_OK), SOON_MS);
}
END_TEST

static bool has_connection(const peer_stats_t *stats, void *user)
{
    (void)user;
    return stats->live_connections == 1;
}

START_TEST(stop_while_the_peer_is_silent_works_soon)
{
    rig_options_t options = {.connect_timeout_ms = 60000};

    start(NULL, &options, _i);
    peer_silence(peer, true);
    rig_start(rig);
    ck_assert(peer_wait_until(peer, has_connection, NULL, WAIT_MS));
    rig_stop(rig);
    ck_assert_int_lt(join(IDEM_OK), SOON_MS);
    peer_silence(peer, false);
}
END_TEST

START_TEST(stop_while_attaching_works_soon)
{
    peer_options_t peer_options = {.no_attach_answer = true};
    rig_options_t options = {.connect_timeout_ms = 60000};

    start(&peer_options, &options, _i);
    rig_start(rig);
    ck_assert(peer_wait(peer, PEER_ATTACH, 1, WAIT_MS));
    rig_stop(rig);
    ck_assert_int_lt(join(IDEM_OK), 4000);
}
END_TEST

START_TEST(stop_while_the_link_pauses_works_at_once)
{
    rig_options_t options = {.reconnect_min_ms = 60000,
                             .reconnect_max_ms = 60000};

    start(NULL, &options, _i);
    rig_start(rig);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    peer_detach(peer, NULL, "amqp:internal-error", "no");
    ck_assert(rig_wait_event(rig, IDEM_EVENT_DETACHED, 1, WAIT_MS));
    rig_stop(rig);
    ck_assert_int_lt(join(IDEM_OK), SOON_MS);
    ck_assert_int_eq(peer_count(peer, PEER_CLOSE), 1);
}
END_TEST

START_TEST(unanswered_drain_does_not_hold_up_the_stop)
{
    peer_options_t peer_options = {.hold_drain = true};
    rig_options_t options = {0};

    start(&peer_options, &options, _i);
    rig_start(rig);
    ck_assert(peer_wait_credit(peer, 10, WAIT_MS));
    rig_stop(rig);
    ck_assert_int_lt(join(IDEM_OK), 4000);
    ck_assert_int_eq(peer_count(peer, PEER_CLOSE), 1);
}
END_TEST

static void send_before_the_drain(peer_t *answering, const peer_event_t *event,
                                  void *user)
{
    (void)user;
    if (event->kind == PEER_FLOW && event->flow.drain) {
        (void)peer_send_bytes(answering, text, sizeof text);
    }
}

START_TEST(transfer_that_races_the_drain_is_released)
{
    peer_options_t peer_options = {.hook = send_before_the_drain};
    rig_options_t options = {0};

    start(&peer_options, &options, _i);
    rig_start(rig);
    ck_assert(peer_wait_credit(peer, 10, WAIT_MS));
    rig_stop(rig);
    join(IDEM_OK);
    ck_assert_int_ge(peer_stats(peer).released, 1);
    ck_assert_int_eq(peer_stats(peer).unsettled, 0);
    ck_assert_uint_eq(rig_handled(rig), 0);
}
END_TEST

static bool only_started_ones_run(void *user)
{
    (void)user;
    return rig_consumer(rig, 0).running == 3;
}

START_TEST(stop_while_disconnected_awaits_the_handlers)
{
    rig_options_t options = {.reconnect_min_ms = 60000,
                             .reconnect_max_ms = 60000};

    start_with_handlers_waiting(NULL, &options, _i, 5);
    ck_assert(peer_listen(peer, false));
    peer_cut(peer, true);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_DISCONNECTED, 1, WAIT_MS));
    ck_assert(test_wait(only_started_ones_run, NULL, WAIT_MS));
    rig_stop(rig);
    gate_open(&gate);
    ck_assert_int_lt(join(IDEM_OK), SOON_MS);
    ck_assert_uint_eq(rig_handled(rig), 3);
    ck_assert_uint_eq(rig_consumer(rig, 0).stale, 3);
}
END_TEST

START_TEST(connection_lost_during_the_stop_ends_it)
{
    rig_options_t options = {0};

    start_with_handlers_waiting(NULL, &options, _i, 5);
    rig_stop(rig);
    ck_assert(peer_wait_dispositions(peer, 2, WAIT_MS));
    peer_cut(peer, false);
    gate_open(&gate);
    ck_assert_int_lt(join(IDEM_OK), SOON_MS);
    ck_assert_int_eq(peer_stats(peer).connections, 1);
}
END_TEST

/* Signals. */

static rig_t *volatile signalled;

static void stop_on_signal(int number)
{
    int kept = errno;

    (void)number;
    errno = 4711;
    rig_stop(signalled);
    if (errno != 4711) {
        _exit(99);
    }
    errno = kept;
}

static void ignore_signal(int number)
{
    (void)number;
}

static void catch_signal(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};

    ck_assert_int_eq(sigaction(number, &action, NULL), 0);
}

START_TEST(signals_lose_nothing_and_one_may_stop_it)
{
    enum { COUNT = 3000 };
    const struct timespec pause = {0, 500000};
    rig_options_t options = {.workers = 2, .prefetch = 20};

    start(NULL, &options, _i);
    catch_signal(SIGUSR1, ignore_signal);
    rig_start(rig);
    for (int i = 0; i < COUNT; i++) {
        (void)peer_send_bytes(peer, text, sizeof text);
    }
    for (int i = 0; i < 1000; i++) {
        ck_assert_int_eq(pthread_kill(rig_thread(rig), SIGUSR1), 0);
        nanosleep(&pause, NULL);
    }
    ck_assert(peer_wait_accepted(peer, COUNT, WAIT_MS));
    signalled = rig;
    catch_signal(SIGUSR1, stop_on_signal);
    ck_assert_int_eq(pthread_kill(rig_thread(rig), SIGUSR1), 0);
    join(IDEM_OK);
    ck_assert_int_eq(peer_stats(peer).connections, 1);
    ck_assert_int_eq(peer_stats(peer).accepted, COUNT);
}
END_TEST

/* Children. */

START_TEST(child_process_does_not_inherit_the_connection)
{
    rig_options_t options = {0};
    int found = 0;

    start(NULL, &options, _i);
    rig_start(rig);
    ck_assert(peer_wait_credit(peer, 10, WAIT_MS));
    for (int fd = 0; fd < 256; fd++) {
        struct sockaddr_in address = {0};
        socklen_t size = sizeof address;
        if (getpeername(fd, (struct sockaddr *)&address, &size) == 0 &&
            address.sin_family == AF_INET &&
            ntohs(address.sin_port) == peer_port(peer)) {
            ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
            found++;
        }
    }
    ck_assert_int_eq(found, 1);
}
END_TEST

static TCase *add_case(Suite *made, const char *name)
{
    TCase *tests = tcase_create(name);

    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, NULL, tear_down);
    suite_add_tcase(made, tests);
    return tests;
}

/* Each with every host. */
#define ADD(tests, test) tcase_add_loop_test(tests, test, 0, RIG_HOSTS)

static Suite *suite(void)
{
    Suite *made = suite_create("driver-stop");
    TCase *handlers = add_case(made, "handlers");
    TCase *moments = add_case(made, "moments");
    TCase *drains = add_case(made, "drains");
    TCase *process = add_case(made, "process");

    ADD(handlers, stop_releases_what_has_not_started_and_awaits_what_runs);
    ADD(handlers, handlers_that_outlast_the_limit_are_left_unsettled);
    ADD(handlers, stop_without_time_ends_at_once);
    ADD(handlers, stop_while_disconnected_awaits_the_handlers);
    ADD(handlers, connection_lost_during_the_stop_ends_it);
    ADD(moments, stop_before_the_run_connects_to_nobody);
    ADD(moments, stop_while_pausing_works_at_once);
    ADD(moments, stop_while_connecting_works_at_once);
    ADD(moments, stop_while_the_peer_is_silent_works_soon);
    ADD(moments, stop_while_attaching_works_soon);
    ADD(moments, stop_while_the_link_pauses_works_at_once);
    ADD(drains, unanswered_drain_does_not_hold_up_the_stop);
    ADD(drains, transfer_that_races_the_drain_is_released);
    ADD(process, signals_lose_nothing_and_one_may_stop_it);
    ADD(process, child_process_does_not_inherit_the_connection);
    return made;
}

int main(void)
{
    return test_run(suite());
}
