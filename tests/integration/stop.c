/* A stop with much in hand. */

#include "gate.h"
#include "journal.h"
#include "runner.h"
#include "scene.h"
#include "send.h"
#include "support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

enum { PREFETCH = 100, STEP_MS = 20000 };

static scene_t scene;
static gate_t gate;
static journal_t *journal;

static void setup(void)
{
    scene_open(&scene, "stop");
    gate_init(&gate);
    journal = journal_create();
}

static void teardown(void)
{
    gate_open(&gate);
    journal_destroy(journal);
    scene_close(&scene);
}

static idem_outcome_t wait_for_the_gate(idem_delivery_t *delivery, void *user)
{
    (void)user;
    journal_begin(journal, idem_delivery_key(delivery));
    gate_pass(&gate);
    journal_end(journal, idem_delivery_key(delivery));
    return IDEM_ACCEPT;
}

/* A client that has PREFETCH deliveries in hand, all claimed, the first of
 * them with its handler. */
static runner_t *start(runner_host_t host, idem_store_t *store)
{
    runner_t *runner = runner_create(host, scene.url);
    idem_consumer_options_t options;

    ck_assert(send_numbered(scene.url, scene.queue, "key-", PREFETCH));
    scene_consumer(&scene, &options, store, wait_for_the_gate, NULL);
    options.prefetch = PREFETCH;
    runner_consumer(runner, &options);
    runner_start(runner);
    ck_assert(gate_wait_arrived(&gate, 1, STEP_MS));
    ck_assert(management_wait(scene.management, scene.queue, "deliveringCount",
                              PREFETCH, STEP_MS));
    ck_assert(scene_wait_rows(&scene, SCENE_CLAIMED, PREFETCH, STEP_MS));
    return runner;
}

static void check_rest(void)
{
    received_list_t list;

    ck_assert(receive_take(scene.url, scene.queue, 0, &list));
    ck_assert_uint_eq(list.count, PREFETCH - 1);
    for (size_t i = 0; i < list.count; i++) {
        char id[32];

        ck_assert_uint_eq(list.messages[i].delivery_count, 0);
        snprintf(id, sizeof id, "key-%zu", i + 1);
        ck_assert_uint_eq(received_count(&list, id), 1);
    }
    received_free(&list);
}

START_TEST(stop_gives_back_what_has_not_started_and_lets_the_running_one_end)
{
    idem_store_t *store = scene_store(&scene, 30000);
    runner_t *runner = start((runner_host_t)_i, store);

    runner_stop(runner);
    /* The others are free at once, while the one still runs. */
    ck_assert(management_wait(scene.management, scene.queue, "deliveringCount",
                              1, STEP_MS));
    ck_assert(scene_wait_rows(&scene, SCENE_FREE, PREFETCH - 1, STEP_MS));
    ck_assert(!runner_has_ended(runner));
    gate_open(&gate);
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    ck_assert_uint_eq(runner_events(runner, IDEM_EVENT_STOPPED), 1);
    runner_destroy(runner);
    idem_store_destroy(store);

    ck_assert_uint_eq(journal_all_begun(journal), 1);
    ck_assert_uint_eq(journal_ended(journal, "key-0"), 1);
    ck_assert_int_eq(
        scene_rows(&scene, SCENE_CONFIRMED " AND message_id = 'key-0'"), 1);
    ck_assert_int_eq(scene_rows(&scene, SCENE_FREE
                                " AND attempts = 0"
                                " AND expires_at <= clock_timestamp()"),
                     PREFETCH - 1);
    ck_assert_int_eq(scene_rows(&scene, NULL), PREFETCH);
    ck_assert_int_eq(
        management_queue(scene.management, scene.queue, "consumerCount"), 0);
    check_rest();
    ck_assert_int_eq(scene_killed(&scene), 0);
}
END_TEST

START_TEST(handler_that_outlives_the_stop_is_still_confirmed)
{
    idem_store_t *store = scene_store(&scene, 30000);
    runner_t *runner = runner_create((runner_host_t)_i, scene.url);
    idem_consumer_options_t options;

    runner_options(runner)->stop_timeout_ms = 200;
    ck_assert(send_text(scene.url, scene.queue, "long", "body"));
    scene_consumer(&scene, &options, store, wait_for_the_gate, NULL);
    runner_consumer(runner, &options);
    runner_start(runner);
    ck_assert(gate_wait_arrived(&gate, 1, STEP_MS));
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_ERR_TIMEOUT);
    /* The broker has it back, the claim is still held. */
    ck_assert(management_wait(scene.management, scene.queue, "deliveringCount",
                              0, STEP_MS));
    ck_assert_int_eq(
        management_queue(scene.management, scene.queue, "messageCount"), 1);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CLAIMED), 1);
    gate_open(&gate);
    runner_destroy(runner);
    idem_store_destroy(store);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), 1);
    ck_assert_uint_eq(journal_ended(journal, "long"), 1);

    /* So that it is a duplicate when it comes again. */
    store = scene_store(&scene, 30000);
    runner = runner_create((runner_host_t)_i, scene.url);
    options.store = store;
    runner_consumer(runner, &options);
    runner_start(runner);
    ck_assert(scene_wait_empty(&scene, STEP_MS));
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    runner_destroy(runner);
    idem_store_destroy(store);
    ck_assert_uint_eq(journal_all_begun(journal), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stop");
    TCase *tcase = tcase_create("stop");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(
        tcase,
        stop_gives_back_what_has_not_started_and_lets_the_running_one_end, 0,
        RUNNER_HOSTS);
    tcase_add_loop_test(tcase,
                        handler_that_outlives_the_stop_is_still_confirmed, 0,
                        RUNNER_HOSTS);
    return test_run(suite);
}
