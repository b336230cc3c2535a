#include <idem/idem.h>

#include "support.h"

#include <proton/handlers.h>
#include <proton/object.h>
#include <proton/reactor.h>

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static idem_client_options_t client_options;
static idem_consumer_options_t consumer_options;
static idem_client_t *client;
static idem_consumer_t *consumer;

static atomic_int errors_logged;
static atomic_int disconnects_told;
static atomic_int ends_told;

static idem_outcome_t on_delivery(idem_delivery_t *delivery, void *user)
{
    (void)delivery;
    (void)user;
    return IDEM_ACCEPT;
}

static void on_log(void *user, idem_log_level_t level, const char *message)
{
    (void)user;
    (void)message;
    if (level == IDEM_LOG_ERROR) {
        atomic_fetch_add(&errors_logged, 1);
    }
}

static void on_event(void *user, const idem_event_t *event)
{
    (void)user;
    ck_assert_ptr_nonnull(event->error);
    if (event->type == IDEM_EVENT_DISCONNECTED) {
        atomic_fetch_add(&disconnects_told, 1);
    } else if (event->type == IDEM_EVENT_STOPPED ||
               event->type == IDEM_EVENT_FAILED) {
        atomic_fetch_add(&ends_told, 1);
    }
}

/* A client of a broker that is not there: it tries for ever. */
static void setup(void)
{
    idem_client_options_init(&client_options);
    client_options.url = "amqp://127.0.0.1:1";
    client_options.reconnect_min_ms = 1;
    client_options.reconnect_max_ms = 5;
    client_options.log_handler = on_log;
    client_options.event_handler = on_event;
    idem_consumer_options_init(&consumer_options);
    consumer_options.address = "orders";
    consumer_options.handler = on_delivery;
    ck_assert_int_eq(idem_client_create(&client, &client_options, NULL),
                     IDEM_OK);
    ck_assert_int_eq(
        idem_consumer_create(&consumer, client, &consumer_options, NULL),
        IDEM_OK);
}

static void teardown(void)
{
    idem_client_destroy(client);
}

static void *run(void *user)
{
    idem_status_t *status = user;

    *status = idem_client_run(client, NULL);
    return NULL;
}

static bool has_tried(void *user)
{
    (void)user;
    return atomic_load(&disconnects_told) > 0;
}

static void expect_state_error(idem_status_t status, const idem_error_t *err)
{
    ck_assert_int_eq(status, IDEM_ERR_STATE);
    ck_assert_int_eq(err->status, IDEM_ERR_STATE);
    ck_assert_str_ne(err->message, "");
}

START_TEST(client_without_a_consumer_does_not_run)
{
    idem_client_t *empty = NULL;
    struct pn_handler_t *handler = NULL;
    idem_error_t err;

    ck_assert_int_eq(idem_client_create(&empty, &client_options, NULL),
                     IDEM_OK);
    expect_state_error(idem_client_run(empty, &err), &err);
    expect_state_error(idem_reactor_handler(&handler, empty, &err), &err);
    ck_assert_ptr_null(handler);
    /* Nothing is spoiled by that. */
    ck_assert_int_eq(idem_consumer_create(NULL, empty, &consumer_options, NULL),
                     IDEM_OK);
    idem_client_stop(empty);
    ck_assert_int_eq(idem_client_run(empty, NULL), IDEM_OK);
    idem_client_destroy(empty);
}
END_TEST

START_TEST(stop_before_run_ends_it_at_once)
{
    idem_client_stop(client);
    idem_client_stop(client);
    ck_assert_int_eq(idem_client_run(client, NULL), IDEM_OK);
    ck_assert_int_eq(atomic_load(&ends_told), 1);
    ck_assert_int_eq(atomic_load(&disconnects_told), 0);
    idem_client_stop(client);
}
END_TEST

START_TEST(client_runs_once)
{
    struct pn_handler_t *handler = NULL;
    idem_error_t err;

    idem_client_stop(client);
    ck_assert_int_eq(idem_client_run(client, NULL), IDEM_OK);
    expect_state_error(idem_client_run(client, &err), &err);
    expect_state_error(idem_reactor_handler(&handler, client, &err), &err);
    expect_state_error(
        idem_consumer_create(NULL, client, &consumer_options, &err), &err);
    ck_assert_int_eq(atomic_load(&ends_told), 1);
}
END_TEST

START_TEST(client_that_could_not_begin_may_run_later)
{
    struct rlimit limit;
    struct rlimit none;
    idem_error_t err;
    int used = open("/dev/null", O_RDONLY);

    ck_assert_int_ge(used, 0);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    /* Enough for a part of what it needs is not enough. */
    for (rlim_t more = 1; more < 5; more++) {
        none.rlim_cur = (rlim_t)used + more;
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
        ck_assert_int_eq(idem_client_run(client, &err), IDEM_ERR_SYSTEM);
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
        ck_assert_int_eq(err.status, IDEM_ERR_SYSTEM);
    }
    close(used);
    idem_client_stop(client);
    ck_assert_int_eq(idem_client_run(client, NULL), IDEM_OK);
}
END_TEST

START_TEST(running_client_refuses_what_it_must)
{
    struct pn_handler_t *handler = NULL;
    idem_status_t status = IDEM_ERR_SYSTEM;
    idem_client_statistics_t statistics;
    idem_error_t err;
    pthread_t thread;

    ck_assert(test_thread_start(&thread, run, &status));
    ck_assert(test_wait(has_tried, NULL, 10000));
    expect_state_error(idem_client_run(client, &err), &err);
    expect_state_error(idem_reactor_handler(&handler, client, &err), &err);
    expect_state_error(
        idem_consumer_create(NULL, client, &consumer_options, &err), &err);
    ck_assert_int_eq(atomic_load(&errors_logged), 0);
    /* Not a crash: it says so and leaves everything alone. */
    idem_client_destroy(client);
    ck_assert_int_eq(atomic_load(&errors_logged), 1);
    ck_assert_int_eq(idem_client_statistics(client, &statistics), IDEM_OK);
    ck_assert(!statistics.connected);
    ck_assert_uint_eq(statistics.connects, 0);
    ck_assert_uint_ge(statistics.disconnects, 1);
    idem_client_stop(client);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(status, IDEM_OK);
    ck_assert_int_eq(atomic_load(&ends_told), 1);
}
END_TEST

START_TEST(tries_are_limited_where_that_is_asked_for)
{
    idem_client_t *limited = NULL;
    idem_error_t err;

    client_options.reconnect_tries = 3;
    ck_assert_int_eq(idem_client_create(&limited, &client_options, NULL),
                     IDEM_OK);
    ck_assert_int_eq(
        idem_consumer_create(NULL, limited, &consumer_options, NULL), IDEM_OK);
    ck_assert_int_eq(idem_client_run(limited, &err), IDEM_ERR_CONNECTION);
    ck_assert_int_eq(err.status, IDEM_ERR_CONNECTION);
    ck_assert_ptr_nonnull(strstr(err.message, "127.0.0.1"));
    ck_assert_int_eq(atomic_load(&ends_told), 1);
    idem_client_destroy(limited);
}
END_TEST

static void on_signal(int number)
{
    (void)number;
    idem_client_stop(client);
}

START_TEST(signal_handler_may_stop_it)
{
    struct sigaction action = {.sa_handler = on_signal};
    idem_status_t status = IDEM_ERR_SYSTEM;
    pthread_t thread;

    ck_assert_int_eq(sigaction(SIGUSR1, &action, NULL), 0);
    ck_assert(test_thread_start(&thread, run, &status));
    ck_assert(test_wait(has_tried, NULL, 10000));
    ck_assert_int_eq(raise(SIGUSR1), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(status, IDEM_OK);
}
END_TEST

/* With the reference handed to the reactor, as Proton has it, and with one
 * that the program dropped besides. */
START_TEST(reactor_runs_it_and_tells_how_it_ended)
{
    pn_reactor_t *reactor = pn_reactor();
    struct pn_handler_t *handler = NULL;
    idem_error_t err;

    expect_state_error(idem_reactor_result(client, &err), &err);
    ck_assert_int_eq(idem_reactor_handler(&handler, client, &err), IDEM_OK);
    expect_state_error(idem_reactor_result(client, &err), &err);
    expect_state_error(idem_client_run(client, &err), &err);
    pn_handler_add(pn_reactor_get_handler(reactor), handler);
    if (_i == 1) {
        pn_decref(handler);
    }
    idem_client_stop(client);
    pn_reactor_run(reactor);
    ck_assert_int_eq(idem_reactor_result(client, &err), IDEM_OK);
    pn_reactor_free(reactor);
    expect_state_error(idem_client_run(client, &err), &err);
}
END_TEST

START_TEST(reactor_handler_that_was_never_used_is_no_leak)
{
    struct pn_handler_t *handler = NULL;

    ck_assert_int_eq(idem_reactor_handler(&handler, client, NULL), IDEM_OK);
    pn_decref(handler);
}
END_TEST

START_TEST(null_is_refused_and_not_followed)
{
    struct pn_handler_t *handler = NULL;
    idem_client_statistics_t client_statistics;
    idem_consumer_statistics_t consumer_statistics;
    idem_error_t err;

    ck_assert_int_eq(idem_client_run(NULL, &err), IDEM_ERR_ARG);
    ck_assert_int_eq(idem_client_run(NULL, NULL), IDEM_ERR_ARG);
    ck_assert_int_eq(idem_reactor_handler(NULL, client, &err), IDEM_ERR_ARG);
    ck_assert_int_eq(idem_reactor_handler(&handler, NULL, &err), IDEM_ERR_ARG);
    ck_assert_int_eq(idem_reactor_result(NULL, &err), IDEM_ERR_ARG);
    ck_assert_int_eq(idem_client_statistics(NULL, &client_statistics),
                     IDEM_ERR_ARG);
    ck_assert_int_eq(idem_client_statistics(client, NULL), IDEM_ERR_ARG);
    ck_assert_int_eq(idem_consumer_statistics(NULL, &consumer_statistics),
                     IDEM_ERR_ARG);
    ck_assert_int_eq(idem_consumer_statistics(consumer, NULL), IDEM_ERR_ARG);
    idem_client_stop(NULL);
    idem_client_destroy(NULL);
    idem_store_destroy(NULL);
}
END_TEST

START_TEST(statistics_are_there_before_it_runs)
{
    idem_consumer_statistics_t statistics;
    idem_client_statistics_t counts;

    memset(&statistics, 0x55, sizeof statistics);
    memset(&counts, 0x55, sizeof counts);
    ck_assert_int_eq(idem_consumer_statistics(consumer, &statistics), IDEM_OK);
    ck_assert_uint_eq(statistics.received, 0);
    ck_assert_uint_eq(statistics.deferred, 0);
    ck_assert_uint_eq(statistics.waiting, 0);
    ck_assert_int_eq(idem_client_statistics(client, &counts), IDEM_OK);
    ck_assert_uint_eq(counts.connects, 0);
    ck_assert(!counts.connected);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state");
    TCase *tcase = tcase_create("state");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, client_without_a_consumer_does_not_run);
    tcase_add_test(tcase, stop_before_run_ends_it_at_once);
    tcase_add_test(tcase, client_runs_once);
    tcase_add_test(tcase, client_that_could_not_begin_may_run_later);
    tcase_add_test(tcase, running_client_refuses_what_it_must);
    tcase_add_test(tcase, tries_are_limited_where_that_is_asked_for);
    tcase_add_test(tcase, signal_handler_may_stop_it);
    tcase_add_loop_test(tcase, reactor_runs_it_and_tells_how_it_ended, 0, 2);
    tcase_add_test(tcase, reactor_handler_that_was_never_used_is_no_leak);
    tcase_add_test(tcase, null_is_refused_and_not_followed);
    tcase_add_test(tcase, statistics_are_there_before_it_runs);
    return test_run(suite);
}
