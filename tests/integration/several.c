/* More than one of everything: consumers of one address, of two addresses, on
 * one store and on two, clients on one store. */

#include "handler.h"
#include "runner.h"
#include "scene.h"
#include "send.h"
#include "support.h"

#include <check.h>
#include <stdio.h>

enum { COUNT = 300, STEP_MS = 30000 };

static scene_t scenes[2];
static idem_store_t *stores[2];
static handler_t *handlers[2];
static runner_t *runners[2];

static void setup(void)
{
    for (int i = 0; i < 2; i++) {
        scene_open(&scenes[i], i == 0 ? "several" : "further");
        stores[i] = scene_store(&scenes[i], 30000);
        handlers[i] = handler_create();
    }
}

static void teardown(void)
{
    for (int i = 0; i < 2; i++) {
        runner_destroy(runners[i]);
    }
    for (int i = 0; i < 2; i++) {
        idem_store_destroy(stores[i]);
        handler_destroy(handlers[i]);
        scene_close(&scenes[i]);
    }
}

static void send_twice(const scene_t *scene)
{
    ck_assert(send_numbered(scene->url, scene->queue, "m", COUNT));
    ck_assert(send_numbered(scene->url, scene->queue, "m", COUNT));
}

/* A small window, so that copies meet in two consumers. */
static void add(runner_t *runner, int of, handler_t *handler)
{
    idem_consumer_options_t options;

    scene_consumer(&scenes[of], &options, stores[of], handler_run, handler);
    options.prefetch = 7;
    (void)runner_consumer(runner, &options);
}

static void expect_each_once(int of, handler_t *handler)
{
    handler_counts_t counts;

    ck_assert(scene_wait_empty(&scenes[of], STEP_MS));
    counts = handler_counts(handler);
    ck_assert_uint_eq(counts.keys, COUNT);
    ck_assert_uint_eq(counts.ended, COUNT);
    ck_assert_int_eq(scene_rows(&scenes[of], SCENE_CONFIRMED), COUNT);
    ck_assert_int_eq(scene_rows(&scenes[of], NULL), COUNT);
}

START_TEST(consumers_of_one_address_share_its_work)
{
    runners[0] = runner_create((runner_host_t)_i, scenes[0].url);
    for (int i = 0; i < 3; i++) {
        add(runners[0], 0, handlers[0]);
    }
    send_twice(&scenes[0]);
    runner_start(runners[0]);
    expect_each_once(0, handlers[0]);
    ck_assert_int_eq(runner_join(runners[0], NULL), IDEM_OK);
}
END_TEST

START_TEST(consumers_of_two_addresses_with_a_store_each_do_not_meet)
{
    runners[0] = runner_create((runner_host_t)_i, scenes[0].url);
    for (int i = 0; i < 2; i++) {
        add(runners[0], i, handlers[i]);
        send_twice(&scenes[i]);
    }
    runner_start(runners[0]);
    for (int i = 0; i < 2; i++) {
        expect_each_once(i, handlers[i]);
    }
    ck_assert_int_eq(runner_join(runners[0], NULL), IDEM_OK);
}
END_TEST

START_TEST(clients_on_one_store_share_the_work_and_end_apart)
{
    for (int i = 0; i < 2; i++) {
        /* One in either host. */
        runners[i] = runner_create((runner_host_t)i, scenes[0].url);
        add(runners[i], 0, handlers[0]);
    }
    send_twice(&scenes[0]);
    runner_start(runners[0]);
    runner_start(runners[1]);
    ck_assert(handler_wait_ended(handlers[0], COUNT / 3, STEP_MS));
    ck_assert_int_eq(runner_join(runners[0], NULL), IDEM_OK);
    runner_destroy(runners[0]);
    runners[0] = NULL;
    expect_each_once(0, handlers[0]);
    ck_assert_int_eq(runner_join(runners[1], NULL), IDEM_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("several");
    TCase *tcase = tcase_create("several");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, consumers_of_one_address_share_its_work, 0,
                        RUNNER_HOSTS);
    tcase_add_loop_test(
        tcase, consumers_of_two_addresses_with_a_store_each_do_not_meet, 0,
        RUNNER_HOSTS);
    tcase_add_test(tcase, clients_on_one_store_share_the_work_and_end_apart);
    return test_run(suite);
}
