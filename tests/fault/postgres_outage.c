/* The database goes away and comes back while messages flow, for a consumer in
 * each host: nothing is handled without it, nothing twice, and the broker
 * notices nothing. */

#include "load.h"
#include "servers.h"
#include "support.h"

#include <check.h>
#include <poll.h>

enum {
    WAIT_MS = 20000,
    MESSAGES = 2000,
    PREFETCH = 32,
    STOPPED_MS = 10000,
    KILLED_MS = 3000,
    TERMINATED_MS = 6000,
    READ_ONLY_MS = 3000
};

static test_server_t *server;
static load_t loads[RUNNER_HOSTS];

static void destroy(void)
{
    test_server_destroy(server);
    server = NULL;
}

static void begin(size_t messages, int64_t pause_ms)
{
    server = test_postgres_start();
    for (int host = 0; host < RUNNER_HOSTS; host++) {
        load_prepare(&loads[host], (runner_host_t)host,
                     test_env("IDEM_TEST_URL"), test_server_address(server),
                     NULL);
        loads[host].options.prefetch = PREFETCH;
        load_start(&loads[host]);
        load_feed(&loads[host], messages, pause_ms);
    }
}

static void wait_begun(size_t runs)
{
    for (int host = 0; host < RUNNER_HOSTS; host++) {
        ck_assert(handler_wait_begun(loads[host].handler, runs, WAIT_MS));
    }
}

static void wait_event(idem_event_type_t type, size_t count)
{
    for (int host = 0; host < RUNNER_HOSTS; host++) {
        ck_assert(runner_wait_event(loads[host].runner, type, count, WAIT_MS));
    }
}

static void reconnect(void)
{
    for (int host = 0; host < RUNNER_HOSTS; host++) {
        load_reconnect(&loads[host]);
    }
}

/* Until all that was accepted before has reached the broker; how much that is.
 */
static int64_t wait_accepted(load_t *load)
{
    int64_t accepted = -1;

    while (accepted != (int64_t)runner_statistics(load->consumer).accepted) {
        accepted = (int64_t)runner_statistics(load->consumer).accepted;
        ck_assert(management_wait(load->scene.management, load->scene.queue,
                                  "messagesAcknowledged", accepted, WAIT_MS));
    }
    return accepted;
}

/* Nothing is accepted meanwhile, only what was claimed is run, and the
 * connection to the broker stays. */
static void stay_down(int64_t duration_ms)
{
    int64_t end_ms = test_now_ms() + duration_ms;
    int64_t accepted[RUNNER_HOSTS];
    size_t begun[RUNNER_HOSTS];

    for (int host = 0; host < RUNNER_HOSTS; host++) {
        accepted[host] = wait_accepted(&loads[host]);
        begun[host] = handler_counts(loads[host].handler).begun;
    }
    while (test_now_ms() < end_ms) {
        for (int host = 0; host < RUNNER_HOSTS; host++) {
            load_t *load = &loads[host];

            ck_assert_int_eq(management_queue(load->scene.management,
                                              load->scene.queue,
                                              "messagesAcknowledged"),
                             accepted[host]);
            ck_assert_uint_le(handler_counts(load->handler).begun,
                              begun[host] + PREFETCH);
            load_expect_no_redelivery(load);
        }
        (void)poll(NULL, 0, 500);
    }
}

static void end(size_t outages)
{
    for (int host = 0; host < RUNNER_HOSTS; host++) {
        load_t *load = &loads[host];

        load_expect_totals(load, WAIT_MS);
        load_expect_no_redelivery(load);
        ck_assert_uint_eq(runner_statistics(load->consumer).received,
                          load->messages);
        ck_assert_uint_eq(runner_events(load->runner, IDEM_EVENT_STORE_DOWN),
                          runner_events(load->runner, IDEM_EVENT_STORE_UP));
        if (outages > 0) {
            size_t downs = runner_events(load->runner, IDEM_EVENT_STORE_DOWN);
            /* A server that has just come back may turn one away again. */
            ck_assert_uint_ge(downs, outages);
            ck_assert_uint_le(downs, 2 * outages);
        }
        load_finish(load);
    }
}

START_TEST(database_that_is_stopped_and_killed_costs_only_time)
{
    begin(MESSAGES / 2, 150);
    wait_begun(MESSAGES / 10);

    test_server_stop(server);
    wait_event(IDEM_EVENT_STORE_DOWN, 1);
    stay_down(STOPPED_MS);
    test_server_start(server);
    wait_event(IDEM_EVENT_STORE_UP, 1);
    reconnect();

    for (int host = 0; host < RUNNER_HOSTS; host++) {
        load_feed(&loads[host], MESSAGES / 2, 150);
    }
    wait_begun(MESSAGES / 2 + MESSAGES / 10);
    test_server_kill(server);
    wait_event(IDEM_EVENT_STORE_DOWN, 2);
    stay_down(KILLED_MS);
    test_server_start(server);
    wait_event(IDEM_EVENT_STORE_UP, 2);
    reconnect();
    end(2);
}
END_TEST

/* C31: after a failover, or by an administrator's order, the database refuses
 * every write, and then takes them again. */
START_TEST(database_that_is_read_only_for_a_while_costs_only_time)
{
    PGconn *admin = NULL;

    begin(MESSAGES / 2, 100);
    admin = database_open(test_server_address(server));
    wait_begun(MESSAGES / 10);
    database_exec(admin, "ALTER SYSTEM SET default_transaction_read_only = on");
    database_exec(admin, "SELECT pg_reload_conf()");
    wait_event(IDEM_EVENT_STORE_DOWN, 1);
    stay_down(READ_ONLY_MS);
    database_exec(admin, "ALTER SYSTEM RESET default_transaction_read_only");
    database_exec(admin, "SELECT pg_reload_conf()");
    wait_event(IDEM_EVENT_STORE_UP, 1);
    PQfinish(admin);
    end(1);
}
END_TEST

/* C32 */
START_TEST(sessions_that_are_terminated_again_and_again_cost_only_time)
{
    PGconn *admin = NULL;
    int64_t end_ms;
    int64_t killed = 0;

    begin(MESSAGES, 20);
    admin = database_open(test_server_address(server));
    wait_begun(MESSAGES / 20);
    end_ms = test_now_ms() + TERMINATED_MS;
    while (test_now_ms() < end_ms) {
        for (int host = 0; host < RUNNER_HOSTS; host++) {
            killed += database_terminate(admin, loads[host].application);
        }
        (void)poll(NULL, 0, 50);
    }
    ck_assert_int_ge(killed, 10);
    PQfinish(admin);
    end(0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("postgres outage");
    TCase *tests = tcase_create("under load");

    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, NULL, destroy);
    tcase_add_test(tests, database_that_is_stopped_and_killed_costs_only_time);
    tcase_add_test(tests,
                   database_that_is_read_only_for_a_while_costs_only_time);
    tcase_add_test(tests,
                   sessions_that_are_terminated_again_and_again_cost_only_time);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
