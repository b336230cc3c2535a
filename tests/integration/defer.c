/* Handlers that bring their outcome later, run on the I/O thread, or call what
 * they may and may not. */

#include "handler.h"
#include "runner.h"
#include "scene.h"
#include "send.h"
#include "support.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>

enum { LEASE_MS = 1000, STEP_MS = 20000 };

static scene_t scene;
static handler_t *handler;
static idem_store_t *store;
static runner_t *runner;
static idem_consumer_t *consumer;

static void setup(void)
{
    scene_open(&scene, "defer");
    handler = handler_create();
    store = scene_store(&scene, LEASE_MS);
}

static void teardown(void)
{
    runner_destroy(runner);
    idem_store_destroy(store);
    handler_destroy(handler);
    scene_close(&scene);
    runner = NULL;
}

static void start(const idem_consumer_options_t *options)
{
    consumer = runner_consumer(runner, options);
    runner_start(runner);
}

static void prepare(int host, idem_consumer_options_t *options)
{
    runner = runner_create((runner_host_t)host, scene.url);
    scene_consumer(&scene, options, store, handler_run, handler);
}

static void stop_and_destroy(void)
{
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    runner_destroy(runner);
    runner = NULL;
}

START_TEST(deferred_deliveries_are_settled_as_they_are_completed)
{
    enum { COUNT = 90 };
    static const idem_outcome_t outcomes[] = {IDEM_ACCEPT, IDEM_RETRY,
                                              IDEM_REJECT};
    idem_consumer_options_t options;

    prepare(_i, &options);
    options.prefetch = COUNT;
    handler_plan(handler, NULL, IDEM_DEFER, COUNT);
    ck_assert(send_numbered(scene.url, scene.queue, "m", COUNT));
    start(&options);
    /* One worker is enough for all of them. */
    ck_assert(handler_wait_begun(handler, COUNT, STEP_MS));
    ck_assert(scene_wait_rows(&scene, SCENE_CLAIMED, COUNT, STEP_MS));
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), 0);
    ck_assert_uint_eq(runner_statistics(consumer).deferred, COUNT);
    for (int i = 0; i < COUNT; i++) {
        idem_delivery_t *delivery = handler_take(handler, STEP_MS);
        ck_assert_ptr_nonnull(delivery);
        ck_assert_int_eq(idem_delivery_complete(delivery, outcomes[i % 3]),
                         IDEM_OK);
    }
    /* What failed comes again, and is then accepted at once. */
    ck_assert(scene_wait_empty(&scene, STEP_MS));
    ck_assert(handler_wait_ended(handler, COUNT + COUNT / 3, STEP_MS));
    stop_and_destroy();
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), COUNT * 2 / 3);
    ck_assert_int_eq(scene_killed(&scene), COUNT / 3);
}
END_TEST

/* The claim is live at each look until then. */
static bool is_kept_until(void *user)
{
    ck_assert_int_eq(
        scene_rows(&scene, SCENE_CLAIMED " AND expires_at > clock_timestamp()"),
        1);
    return test_now_ms() >= *(const int64_t *)user;
}

START_TEST(deferred_delivery_keeps_its_claim)
{
    idem_consumer_options_t options;
    int64_t end_ms = 0;

    prepare(_i, &options);
    handler_plan(handler, NULL, IDEM_DEFER, 1);
    ck_assert(send_numbered(scene.url, scene.queue, "m", 1));
    start(&options);
    idem_delivery_t *delivery = handler_take(handler, STEP_MS);
    ck_assert_ptr_nonnull(delivery);
    end_ms = test_now_ms() + 3 * LEASE_MS;
    ck_assert(test_wait(is_kept_until, &end_ms, STEP_MS));
    ck_assert(!idem_delivery_is_lease_lost(delivery));
    ck_assert_int_eq(idem_delivery_complete(delivery, IDEM_ACCEPT), IDEM_OK);
    ck_assert(scene_wait_rows(&scene, SCENE_CONFIRMED, 1, STEP_MS));
    ck_assert(scene_wait_empty(&scene, STEP_MS));
    stop_and_destroy();
    ck_assert_uint_eq(handler_runs(handler, "m0"), 1);
}
END_TEST

static idem_delivery_t *late;

static bool is_time(void *user)
{
    return test_now_ms() >= *(const int64_t *)user;
}

static void *complete_soon(void *user)
{
    (void)test_wait(is_time, user, STEP_MS);
    (void)idem_delivery_complete(late, IDEM_ACCEPT);
    return NULL;
}

START_TEST(stop_waits_for_what_is_deferred)
{
    idem_consumer_options_t options;
    pthread_t thread;

    prepare(_i, &options);
    handler_plan(handler, NULL, IDEM_DEFER, 1);
    ck_assert(send_numbered(scene.url, scene.queue, "m", 1));
    start(&options);
    late = handler_take(handler, STEP_MS);
    ck_assert_ptr_nonnull(late);
    runner_stop(runner);
    int64_t at_ms = test_now_ms() + 300;
    ck_assert(test_thread_start(&thread, complete_soon, &at_ms));
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    ck_assert_int_ge(test_now_ms(), at_ms);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), 1);
    ck_assert(scene_wait_empty(&scene, STEP_MS));
}
END_TEST

START_TEST(deferred_delivery_outlives_its_client)
{
    idem_consumer_options_t options;
    idem_error_t err;

    prepare(_i, &options);
    runner_options(runner)->stop_timeout_ms = 100;
    handler_plan(handler, NULL, IDEM_DEFER, 1);
    ck_assert(send_numbered(scene.url, scene.queue, "m", 1));
    start(&options);
    late = handler_take(handler, STEP_MS);
    ck_assert_ptr_nonnull(late);
    ck_assert_int_eq(runner_join(runner, &err), IDEM_ERR_TIMEOUT);
    ck_assert_int_eq(err.status, IDEM_ERR_TIMEOUT);
    runner_destroy(runner);
    runner = NULL;

    /* It can still be looked at, and completed without an effect. */
    ck_assert_str_eq(idem_delivery_key(late), "m0");
    ck_assert_ptr_nonnull(idem_delivery_message(late));
    ck_assert_int_eq(idem_delivery_complete(late, IDEM_ACCEPT), IDEM_OK);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), 0);
    ck_assert_int_eq(
        management_queue(scene.management, scene.queue, "messageCount"), 1);

    /* Nobody said that it was done: the next one does it. */
    prepare(_i, &options);
    start(&options);
    ck_assert(scene_wait_rows(&scene, SCENE_CONFIRMED, 1, STEP_MS));
    ck_assert(scene_wait_empty(&scene, STEP_MS));
    stop_and_destroy();
    ck_assert_uint_eq(handler_runs(handler, "m0"), 2);
    ck_assert_uint_eq(handler_attempts(handler, "m0"), 1);
}
END_TEST

/* Calls by a handler; what came of them. */
static atomic_int ran, nested_run, nested_create, wrong_counts;

static idem_outcome_t on_call_around(idem_delivery_t *delivery, void *user)
{
    idem_consumer_statistics_t counts;
    idem_consumer_options_t *options = user;

    (void)delivery;
    atomic_store(&nested_run, idem_client_run(runner_client(runner), NULL));
    atomic_store(
        &nested_create,
        idem_consumer_create(NULL, runner_client(runner), options, NULL));
    idem_client_destroy(runner_client(runner));
    if (idem_consumer_statistics(consumer, &counts) != IDEM_OK ||
        counts.received < 1 || counts.running < 1) {
        atomic_fetch_add(&wrong_counts, 1);
    }
    idem_client_stop(runner_client(runner));
    atomic_fetch_add(&ran, 1);
    return IDEM_ACCEPT;
}

START_TEST(handler_calls_what_it_may_and_is_refused_the_rest)
{
    idem_consumer_options_t options;

    prepare(_i, &options);
    options.handler = on_call_around;
    options.user = &options;
    options.prefetch = 1;
    ck_assert(send_numbered(scene.url, scene.queue, "m", 1));
    start(&options);
    /* It stops the client itself, which waits for its outcome. */
    ck_assert_int_eq(runner_wait(runner, STEP_MS, NULL), IDEM_OK);
    ck_assert_int_eq(atomic_load(&ran), 1);
    ck_assert_int_eq(atomic_load(&nested_run), IDEM_ERR_STATE);
    ck_assert_int_eq(atomic_load(&nested_create), IDEM_ERR_STATE);
    ck_assert_int_eq(atomic_load(&wrong_counts), 0);
    ck_assert_uint_eq(runner_logged(runner, "idem_client_destroy()"), 1);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), 1);
}
END_TEST

static pthread_t handler_thread;
static atomic_int other_threads;

static void note_thread(idem_delivery_t *delivery, void *user)
{
    (void)delivery;
    (void)user;
    if (atomic_fetch_add(&ran, 1) == 0) {
        handler_thread = pthread_self();
    } else if (!pthread_equal(handler_thread, pthread_self())) {
        atomic_fetch_add(&other_threads, 1);
    }
}

START_TEST(without_workers_handlers_run_on_the_io_thread)
{
    enum { COUNT = 300 };
    idem_consumer_options_t options;

    prepare(_i, &options);
    options.concurrency = 0;
    options.prefetch = 50;
    handler_set_hook(handler, note_thread, NULL);
    handler_plan(handler, "m7", IDEM_RETRY, 1);
    handler_plan(handler, "m8", IDEM_DEFER, 1);
    ck_assert(send_numbered(scene.url, scene.queue, "m", COUNT));
    start(&options);
    idem_delivery_t *delivery = handler_take(handler, STEP_MS);
    ck_assert_ptr_nonnull(delivery);
    ck_assert_int_eq(idem_delivery_complete(delivery, IDEM_ACCEPT), IDEM_OK);
    ck_assert(scene_wait_rows(&scene, SCENE_CONFIRMED, COUNT, STEP_MS));
    ck_assert(scene_wait_empty(&scene, STEP_MS));
    stop_and_destroy();
    ck_assert_int_eq(atomic_load(&ran), COUNT + 1);
    ck_assert_int_eq(atomic_load(&other_threads), 0);
    ck_assert_uint_eq(handler_runs(handler, "m7"), 2);
    ck_assert_uint_eq(handler_counts(handler).most_at_once, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("defer");
    TCase *tcase = tcase_create("defer");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase,
                        deferred_deliveries_are_settled_as_they_are_completed,
                        0, RUNNER_HOSTS);
    tcase_add_loop_test(tcase, deferred_delivery_keeps_its_claim, 0,
                        RUNNER_HOSTS);
    tcase_add_loop_test(tcase, stop_waits_for_what_is_deferred, 0,
                        RUNNER_HOSTS);
    tcase_add_loop_test(tcase, deferred_delivery_outlives_its_client, 0,
                        RUNNER_HOSTS);
    tcase_add_loop_test(tcase,
                        handler_calls_what_it_may_and_is_refused_the_rest, 0,
                        RUNNER_HOSTS);
    tcase_add_loop_test(tcase, without_workers_handlers_run_on_the_io_thread, 0,
                        RUNNER_HOSTS);
    return test_run(suite);
}
