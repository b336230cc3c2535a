/* A copy of a message that arrives while the first is being handled. */

#include "gate.h"
#include "journal.h"
#include "runner.h"
#include "scene.h"
#include "send.h"
#include "support.h"

#include <check.h>
#include <stdatomic.h>
#include <stdio.h>

enum { STEP_MS = 20000, LEASE_MS = 30000, WATCH_MS = 150 };

static scene_t scene;
static gate_t gate;
static journal_t *journal;
static atomic_int runs;
static atomic_int successes;
static atomic_int at_once;
static atomic_int at_once_most;

/* What the first run makes of it; all others accept. */
static idem_outcome_t first_outcome;

static void setup(void)
{
    scene_open(&scene, "copies");
    gate_init(&gate);
    journal = journal_create();
    runs = 0;
    successes = 0;
    at_once = 0;
    at_once_most = 0;
}

static void teardown(void)
{
    gate_open(&gate);
    journal_destroy(journal);
    scene_close(&scene);
}

static idem_outcome_t fail_first(idem_delivery_t *delivery, void *user)
{
    idem_outcome_t outcome = IDEM_ACCEPT;
    int now = atomic_fetch_add(&at_once, 1) + 1;

    (void)user;
    if (now > atomic_load(&at_once_most)) {
        atomic_store(&at_once_most, now);
    }
    journal_begin(journal, idem_delivery_key(delivery));
    if (atomic_fetch_add(&runs, 1) == 0) {
        gate_pass(&gate);
        outcome = first_outcome;
    }
    journal_end(journal, idem_delivery_key(delivery));
    atomic_fetch_add(&successes, outcome == IDEM_ACCEPT);
    atomic_fetch_sub(&at_once, 1);
    return outcome;
}

/* The outcome of the first run, times the host. */
static const idem_outcome_t outcomes[] = {IDEM_ACCEPT, IDEM_RETRY, IDEM_RELEASE,
                                          IDEM_REJECT};
enum { CASES = 4 * RUNNER_HOSTS };

static runner_host_t choose(int number)
{
    first_outcome = outcomes[number / RUNNER_HOSTS];
    return (runner_host_t)(number % RUNNER_HOSTS);
}

/* Either the first run succeeds, and the copy is accepted without a run; or it
 * fails and the copy is run, and what came back of the first is a duplicate;
 * a rejected one does not come back. */
static void check(void)
{
    bool fails = first_outcome != IDEM_ACCEPT;
    bool is_rejected = first_outcome == IDEM_REJECT;

    ck_assert(scene_wait_empty(&scene, STEP_MS));
    ck_assert(management_wait(scene.management, scene.queue,
                              "messagesAcknowledged", is_rejected ? 1 : 2,
                              STEP_MS));
    ck_assert_int_eq(scene_killed(&scene), is_rejected ? 1 : 0);
    ck_assert_int_eq(atomic_load(&successes), 1);
    ck_assert_int_eq(atomic_load(&runs), fails ? 2 : 1);
    ck_assert_int_eq(atomic_load(&at_once_most), 1);
    ck_assert_uint_eq(journal_begun(journal, "copied"), fails ? 2 : 1);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), 1);
    ck_assert_int_eq(scene_rows(&scene, NULL), 1);
}

/* While the first runs, the copy is neither run nor settled. */
static bool is_watched(void *user)
{
    ck_assert_int_eq(
        management_queue(scene.management, scene.queue, "deliveringCount"), 2);
    ck_assert_int_eq(
        management_queue(scene.management, scene.queue, "messagesAcknowledged"),
        0);
    ck_assert_int_eq(atomic_load(&runs), 1);
    return test_now_ms() >= *(const int64_t *)user;
}

static void watch_the_copy(void)
{
    int64_t end_ms = 0;

    ck_assert(management_wait(scene.management, scene.queue, "deliveringCount",
                              2, STEP_MS));
    end_ms = test_now_ms() + WATCH_MS;
    ck_assert(test_wait(is_watched, &end_ms, STEP_MS));
}

START_TEST(copy_that_arrives_during_a_failing_first_run_is_run)
{
    runner_t *runner = runner_create(choose(_i), scene.url);
    idem_store_t *store = scene_store(&scene, LEASE_MS);
    idem_consumer_options_t options;

    scene_consumer(&scene, &options, store, fail_first, NULL);
    options.concurrency = 4;
    runner_consumer(runner, &options);
    runner_start(runner);
    ck_assert(send_text(scene.url, scene.queue, "copied", "first"));
    ck_assert(gate_wait_arrived(&gate, 1, STEP_MS));
    ck_assert(send_text(scene.url, scene.queue, "copied", "copy"));
    watch_the_copy();
    gate_open(&gate);
    check();
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    runner_destroy(runner);
    idem_store_destroy(store);
}
END_TEST

START_TEST(copy_at_another_consumer_during_a_failing_first_run_is_run)
{
    runner_host_t host = choose(_i);
    runner_t *runners[2];
    idem_store_t *stores[2];
    idem_consumer_options_t options;

    for (int i = 0; i < 2; i++) {
        stores[i] = scene_store(&scene, LEASE_MS);
        runners[i] = runner_create(host, scene.url);
        scene_consumer(&scene, &options, stores[i], fail_first, NULL);
        /* Then a second message goes to the other consumer. */
        options.prefetch = 1;
        runner_consumer(runners[i], &options);
        runner_start(runners[i]);
    }
    ck_assert(management_wait(scene.management, scene.queue, "consumerCount", 2,
                              STEP_MS));
    ck_assert(send_text(scene.url, scene.queue, "copied", "first"));
    ck_assert(gate_wait_arrived(&gate, 1, STEP_MS));
    ck_assert(send_text(scene.url, scene.queue, "copied", "copy"));
    watch_the_copy();
    gate_open(&gate);
    check();
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(runner_join(runners[i], NULL), IDEM_OK);
        runner_destroy(runners[i]);
        idem_store_destroy(stores[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("copies");
    TCase *tcase = tcase_create("copies");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(
        tcase, copy_that_arrives_during_a_failing_first_run_is_run, 0, CASES);
    tcase_add_loop_test(
        tcase, copy_at_another_consumer_during_a_failing_first_run_is_run, 0,
        CASES);
    return test_run(suite);
}
