/* Messages of a group are handled in order, also by many workers. */

#include "runner.h"
#include "scene.h"
#include "send.h"
#include "support.h"

#include <check.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GROUPS = 20,
    MEMBERS = 50,
    MESSAGES = GROUPS * MEMBERS,
    CONCURRENCY = 8,
    STEP_MS = 30000
};

typedef struct group {
    atomic_int running;
    atomic_int next; /* the member that must come next */
} group_t;

static scene_t scene;
static group_t groups[GROUPS];
static atomic_int running;
static atomic_int running_most;
static atomic_int handled;
static atomic_int out_of_order;
static atomic_int overlapping;

static void setup(void)
{
    scene_open(&scene, "groups");
    memset(groups, 0, sizeof groups);
    running = 0;
    running_most = 0;
    handled = 0;
    out_of_order = 0;
    overlapping = 0;
}

static void teardown(void)
{
    scene_close(&scene);
}

static idem_outcome_t note_order(idem_delivery_t *delivery, void *user)
{
    int number = -1;
    int member = -1;
    int now = atomic_fetch_add(&running, 1) + 1;

    (void)user;
    if (sscanf(idem_delivery_key(delivery), "%d-%d", &number, &member) != 2 ||
        number != atoi(idem_delivery_group_id(delivery))) {
        abort();
    }
    if (now > atomic_load(&running_most)) {
        atomic_store(&running_most, now);
    }
    if (atomic_fetch_add(&groups[number].running, 1) != 0) {
        atomic_fetch_add(&overlapping, 1);
    }
    if (atomic_fetch_add(&groups[number].next, 1) != member) {
        atomic_fetch_add(&out_of_order, 1);
    }
    /* Work of 0 to 3 ms, by no pattern that fits to the groups. */
    poll(NULL, 0, (number * 7 + member * 13) % 4);
    atomic_fetch_sub(&groups[number].running, 1);
    atomic_fetch_sub(&running, 1);
    atomic_fetch_add(&handled, 1);
    return IDEM_ACCEPT;
}

/* Round by round; user says how often each is sent. */
static void fill(size_t n, compose_message_t *message, void *user)
{
    static char id[32];
    static char group[16];
    size_t copies = *(const size_t *)user;
    size_t index = n / copies;

    snprintf(group, sizeof group, "%zu", index % GROUPS);
    snprintf(id, sizeof id, "%zu-%zu", index % GROUPS, index / GROUPS);
    message->id = compose_string(id);
    message->group_id = group;
}

static void run(runner_host_t host, size_t copies)
{
    runner_t *runner = runner_create(host, scene.url);
    idem_store_t *store = scene_store(&scene, 30000);
    idem_consumer_options_t options;

    ck_assert(send_messages(scene.url, scene.queue, MESSAGES * copies, fill,
                            &copies, STEP_MS));
    scene_consumer(&scene, &options, store, note_order, NULL);
    options.prefetch = 300;
    options.concurrency = CONCURRENCY;
    runner_consumer(runner, &options);
    runner_start(runner);
    ck_assert(scene_wait_empty(&scene, STEP_MS));
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    runner_destroy(runner);
    idem_store_destroy(store);

    ck_assert_int_eq(atomic_load(&handled), MESSAGES);
    ck_assert_int_eq(atomic_load(&overlapping), 0);
    ck_assert_int_eq(atomic_load(&out_of_order), 0);
    /* Otherwise it would prove nothing. */
    ck_assert_int_ge(atomic_load(&running_most), 2);
    ck_assert_int_le(atomic_load(&running_most), CONCURRENCY);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), MESSAGES);
    ck_assert_int_eq(scene_rows(&scene, NULL), MESSAGES);
}

START_TEST(groups_are_handled_in_order_one_at_a_time)
{
    run((runner_host_t)_i, 1);
}
END_TEST

START_TEST(groups_stay_in_order_when_each_message_comes_twice)
{
    run((runner_host_t)_i, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("groups");
    TCase *tcase = tcase_create("groups");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, groups_are_handled_in_order_one_at_a_time, 0,
                        RUNNER_HOSTS);
    tcase_add_loop_test(tcase,
                        groups_stay_in_order_when_each_message_comes_twice, 0,
                        RUNNER_HOSTS);
    return test_run(suite);
}
