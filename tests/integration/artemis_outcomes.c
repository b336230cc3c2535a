/* What outcomes come to on Artemis: delivery counts, delays and the
 * dead-letter queue. The first word of a queue's name chooses its settings, see
 * artemis.sh. */

#include "handler.h"
#include "runner.h"
#include "scene.h"
#include "send.h"
#include "support.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { WAIT_MS = 20000 };

static scene_t scene;
static handler_t *handler;
static idem_store_t *store;
static runner_t *runner;
static idem_consumer_t *consumer;
static idem_consumer_options_t options;
static char id[64]; /* dead letters of all queues meet in one */

static void prepare(int host, const char *prefix)
{
    scene_open(&scene, prefix);
    test_unique(id, sizeof id, "outcome");
    handler = handler_create();
    store = scene_store(&scene, 30000);
    runner = runner_create((runner_host_t)host, scene.url);
    scene_consumer(&scene, &options, store, handler_run, handler);
}

static void start(void)
{
    consumer = runner_consumer(runner, &options);
    runner_start(runner);
    ck_assert(send_text(scene.url, scene.queue, id, "body"));
}

static void finish(void)
{
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    runner_destroy(runner);
    idem_store_destroy(store);
    handler_destroy(handler);
    scene_close(&scene);
}

/* How often the message is in the dead-letter queue; what is found is left
 * there. */
static size_t dead_letters(void)
{
    received_list_t list;
    size_t count = 0;

    ck_assert(receive_browse(scene.url, "DLQ", &list));
    count = received_count(&list, id);
    received_free(&list);
    return count;
}

static bool wait_killed(void)
{
    return management_wait(scene.management, scene.queue, "messagesKilled", 1,
                           WAIT_MS);
}

/* B01 */
START_TEST(failure_is_dead_lettered_after_the_attempts_of_the_broker)
{
    prepare(_i, "max3.");
    handler_plan(handler, NULL, IDEM_RETRY, 0);
    start();
    ck_assert(wait_killed());
    ck_assert_uint_eq(handler_runs(handler, id), 3);
    ck_assert_uint_eq(handler_counts(handler).deliveries, 2);
    ck_assert_uint_eq(handler_attempts(handler, id), 2);
    ck_assert_uint_eq(dead_letters(), 1);
    ck_assert(scene_wait_empty(&scene, WAIT_MS));
    ck_assert_int_eq(scene_rows(&scene, SCENE_FREE " AND attempts = 3"), 1);
    finish();
}
END_TEST

/* B03 */
START_TEST(release_does_not_count)
{
    prepare(_i, "max3.");
    handler_plan(handler, NULL, IDEM_RELEASE, 6);
    start();
    ck_assert(scene_wait_rows(&scene, SCENE_CONFIRMED " AND attempts = 0", 1,
                              WAIT_MS));
    ck_assert(scene_wait_empty(&scene, WAIT_MS));
    ck_assert_uint_eq(handler_runs(handler, id), 7);
    ck_assert_uint_eq(handler_counts(handler).deliveries, 0);
    ck_assert_uint_eq(handler_attempts(handler, id), 0);
    ck_assert_int_eq(scene_killed(&scene), 0);
    ck_assert_uint_eq(dead_letters(), 0);
    finish();
}
END_TEST

START_TEST(rejection_is_dead_lettered_at_once)
{
    prepare(_i, "outcome");
    handler_plan(handler, NULL, IDEM_REJECT, 0);
    start();
    ck_assert(wait_killed());
    ck_assert_uint_eq(handler_runs(handler, id), 1);
    ck_assert_uint_eq(dead_letters(), 1);
    ck_assert(scene_wait_empty(&scene, WAIT_MS));
    ck_assert_uint_eq(runner_logged(runner, "test:refused"), 1);
    finish();
}
END_TEST

/* B04: there is no trace of it but our line. */
START_TEST(rejection_without_a_dead_letter_address_is_logged)
{
    prepare(_i, "nodla.");
    handler_plan(handler, NULL, IDEM_REJECT, 0);
    start();
    ck_assert(wait_killed());
    ck_assert(scene_wait_empty(&scene, WAIT_MS));
    ck_assert_uint_eq(dead_letters(), 0);
    ck_assert_uint_eq(runner_logged(runner, id), 1);
    ck_assert_uint_eq(runner_logged(runner, "dead-letter"), 1);
    finish();
}
END_TEST

/* C17: who waits for another's claim uses up no attempt. */
START_TEST(foreign_claim_costs_no_attempt)
{
    char sql[512];

    prepare(_i, "max3.");
    snprintf(sql, sizeof sql,
             "INSERT INTO %s (message_id, state, claimed_by, recorded_at, "
             "expires_at) VALUES ('%s', 'CLAIMED', 'they', now(), now() + "
             "interval '5 s')",
             scene.table, id);
    database_exec(scene.database, sql);
    start();
    ck_assert(scene_wait_rows(&scene, SCENE_CONFIRMED, 1, WAIT_MS));
    ck_assert(scene_wait_empty(&scene, WAIT_MS));
    ck_assert_uint_eq(handler_runs(handler, id), 1);
    ck_assert_uint_eq(handler_counts(handler).deliveries, 0);
    ck_assert_uint_eq(handler_attempts(handler, id), 1);
    ck_assert_int_eq(scene_killed(&scene), 0);
    ck_assert_uint_eq(dead_letters(), 0);
    ck_assert_uint_eq(runner_statistics(consumer).received, 1);
    ck_assert_uint_ge(runner_statistics(consumer).in_progress, 2);
    finish();
}
END_TEST

/* Where the broker has no limit, the table's holds. */
START_TEST(key_that_failed_too_often_is_rejected)
{
    prepare(_i, "inf.");
    options.max_attempts = 3;
    handler_plan(handler, NULL, IDEM_RETRY, 0);
    start();
    ck_assert(wait_killed());
    ck_assert_uint_eq(handler_runs(handler, id), 3);
    ck_assert_uint_eq(dead_letters(), 1);
    ck_assert(runner_wait_logged(runner, "idem:attempts-exceeded", 1, WAIT_MS));
    ck_assert_uint_eq(runner_statistics(consumer).attempts_exceeded, 1);
    finish();
}
END_TEST

/* E22 */
START_TEST(redelivery_delay_of_the_broker_is_waited_for)
{
    int64_t gap_ms;

    prepare(_i, "delay.");
    handler_plan(handler, NULL, IDEM_RETRY, 1);
    start();
    ck_assert(scene_wait_rows(&scene, SCENE_CONFIRMED, 1, WAIT_MS));
    ck_assert(scene_wait_empty(&scene, WAIT_MS));
    ck_assert_uint_eq(handler_runs(handler, id), 2);
    gap_ms =
        handler_began_ms(handler, id, 1) - handler_began_ms(handler, id, 0);
    ck_assert_int_ge(gap_ms, 500);
    ck_assert_int_eq(scene_killed(&scene), 0);
    finish();
}
END_TEST

/* E01: a queue that is made on demand is a queue: what is sent while nobody is
 * attached is kept. */
START_TEST(address_that_is_made_on_demand_keeps_messages)
{
    char queue[SCENE_NAME_BYTES];

    prepare(_i, "outcome");
    test_unique(queue, sizeof queue, "fresh");
    options.address = queue;
    consumer = runner_consumer(runner, &options);
    runner_start(runner);
    ck_assert(runner_wait_event(runner, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    ck_assert(send_text(scene.url, queue, "first", "body"));
    ck_assert(handler_wait_ended(handler, 1, WAIT_MS));
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    runner_destroy(runner);
    ck_assert(send_text(scene.url, queue, "second", "body"));
    runner = runner_create((runner_host_t)_i, scene.url);
    consumer = runner_consumer(runner, &options);
    runner_start(runner);
    ck_assert(scene_wait_rows(&scene, SCENE_CONFIRMED, 2, WAIT_MS));
    ck_assert_uint_eq(handler_runs(handler, "second"), 1);
    ck_assert(management_destroy_queue(scene.management, queue));
    finish();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("artemis outcomes");
    TCase *tests = tcase_create("both hosts");
    const TTest *const all[] = {
        failure_is_dead_lettered_after_the_attempts_of_the_broker,
        release_does_not_count,
        rejection_is_dead_lettered_at_once,
        rejection_without_a_dead_letter_address_is_logged,
        foreign_claim_costs_no_attempt,
        key_that_failed_too_often_is_rejected,
        redelivery_delay_of_the_broker_is_waited_for,
        address_that_is_made_on_demand_keeps_messages,
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tcase_add_loop_test(tests, all[i], 0, RUNNER_HOSTS);
    }
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
