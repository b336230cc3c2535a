/* The broker goes away and comes back while messages flow, for a consumer in
 * each host: nothing is lost, and nothing runs twice, since the table knows
 * what the broker forgot. */

#include "load.h"
#include "proxy.h"
#include "servers.h"
#include "support.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 30000, MESSAGES = 2000, HANDLER_MS = 2, IDLE_MS = 2000 };

static test_server_t *server;
static load_t loads[RUNNER_HOSTS];

static void destroy(void)
{
    test_server_destroy(server);
    server = NULL;
}

static void wait_begun(size_t runs)
{
    for (int host = 0; host < RUNNER_HOSTS; host++) {
        ck_assert(handler_wait_begun(loads[host].handler, runs, WAIT_MS));
    }
}

/* Events of the hosts, to wait for more of them: a busy machine may have
 * brought some by itself. */
typedef struct marks {
    size_t lost[RUNNER_HOSTS];
    size_t attached[RUNNER_HOSTS];
} marks_t;

static marks_t mark(void)
{
    marks_t marks;

    for (int host = 0; host < RUNNER_HOSTS; host++) {
        marks.lost[host] =
            runner_events(loads[host].runner, IDEM_EVENT_DISCONNECTED);
        marks.attached[host] =
            runner_events(loads[host].runner, IDEM_EVENT_ATTACHED);
    }
    return marks;
}

static void wait_lost(const marks_t *marks)
{
    for (int host = 0; host < RUNNER_HOSTS; host++) {
        ck_assert(runner_wait_event(loads[host].runner, IDEM_EVENT_DISCONNECTED,
                                    marks->lost[host] + 1, WAIT_MS));
    }
}

static void wait_attached(const marks_t *marks)
{
    for (int host = 0; host < RUNNER_HOSTS; host++) {
        ck_assert(runner_wait_event(loads[host].runner, IDEM_EVENT_ATTACHED,
                                    marks->attached[host] + 1, WAIT_MS));
    }
}

static void begin(const char *url, const char *url_of_client)
{
    for (int host = 0; host < RUNNER_HOSTS; host++) {
        load_prepare(&loads[host], (runner_host_t)host, url,
                     test_env("IDEM_TEST_DSN"), url_of_client);
        runner_options(loads[host].runner)->idle_timeout_ms = IDLE_MS;
        handler_set_duration(loads[host].handler, HANDLER_MS);
        load_fill(&loads[host], MESSAGES);
        load_start(&loads[host]);
    }
}

static void end(void)
{
    for (int host = 0; host < RUNNER_HOSTS; host++) {
        load_expect_totals(&loads[host], WAIT_MS);
        load_finish(&loads[host]);
    }
}

static void expect_no_dead_letters(void)
{
    ck_assert_int_eq(
        management_queue(loads[0].scene.management, "DLQ", "messageCount"), 0);
}

START_TEST(broker_that_is_stopped_and_killed_costs_only_time)
{
    server = test_artemis_start();
    begin(test_server_address(server), NULL);
    for (size_t round = 0; round < 4; round++) {
        marks_t marks;

        wait_begun(round * MESSAGES / 5 + 100);
        marks = mark();
        if (round % 2 == 0) {
            test_server_stop(server);
        } else {
            test_server_kill(server);
        }
        wait_lost(&marks);
        test_server_start(server);
        wait_attached(&marks);
    }
    for (int host = 0; host < RUNNER_HOSTS; host++) {
        load_reconnect(&loads[host]);
        ck_assert_uint_eq(
            runner_events(loads[host].runner, IDEM_EVENT_STORE_DOWN), 0);
    }
    expect_no_dead_letters();
    end();
}
END_TEST

/* D06: a link that no longer says anything, in one direction or both. */
START_TEST(silence_longer_than_the_idle_timeout_is_a_lost_connection)
{
    const char *url = test_env("IDEM_TEST_URL");
    proxy_t *proxy = proxy_create(atoi(strrchr(url, ':') + 1));
    char via[64];

    ck_assert_ptr_nonnull(proxy);
    snprintf(via, sizeof via, "amqp://127.0.0.1:%d", proxy_port(proxy));
    begin(url, via);
    for (size_t round = 0; round < 3; round++) {
        int64_t start_ms;
        marks_t marks;

        wait_begun((round + 1) * MESSAGES / 5);
        marks = mark();
        proxy_stall(proxy, true);
        start_ms = test_now_ms();
        wait_lost(&marks);
        ck_assert_int_le(test_now_ms() - start_ms, test_scaled_ms(10000));
        proxy_stall(proxy, false);
        wait_attached(&marks);
    }
    end();
    proxy_destroy(proxy);
}
END_TEST

/* D10: sockets that break off in the middle of frames. */
START_TEST(connections_that_are_reset_again_and_again_cost_only_time)
{
    const char *url = test_env("IDEM_TEST_URL");
    proxy_t *proxy = proxy_create(atoi(strrchr(url, ':') + 1));
    char via[64];

    ck_assert_ptr_nonnull(proxy);
    snprintf(via, sizeof via, "amqp://127.0.0.1:%d", proxy_port(proxy));
    begin(url, via);
    for (size_t round = 0; round < 5; round++) {
        marks_t marks;

        wait_begun(round * MESSAGES / 8 + 100);
        marks = mark();
        proxy_cut(proxy, round % 2 == 0);
        wait_lost(&marks);
        wait_attached(&marks);
    }
    end();
    proxy_destroy(proxy);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("artemis outage");
    TCase *tests = tcase_create("under load");

    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, NULL, destroy);
    tcase_add_test(tests, broker_that_is_stopped_and_killed_costs_only_time);
    tcase_add_test(tests,
                   silence_longer_than_the_idle_timeout_is_a_lost_connection);
    tcase_add_test(tests,
                   connections_that_are_reset_again_and_again_cost_only_time);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
