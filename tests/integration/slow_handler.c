/* A handler that takes longer than its lease. */

#include "gate.h"
#include "journal.h"
#include "runner.h"
#include "scene.h"
#include "send.h"
#include "support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEASE_MS = 1500,
    LEASE_MAX_MS = 3000, /* however slow the machine is */
    LEASES = 3,
    STEP_MS = 30000
};

static scene_t scene;
static gate_t gate;
static journal_t *journal;
static process_t *other;
static int64_t lease_ms;

static void setup(void)
{
    scene_open(&scene, "slow");
    lease_ms = test_scaled_ms(LEASE_MS);
    lease_ms = lease_ms < LEASE_MAX_MS ? lease_ms : LEASE_MAX_MS;
    gate_init(&gate);
    journal = journal_create();
}

static void teardown(void)
{
    gate_open(&gate);
    process_destroy(other);
    journal_destroy(journal);
    scene_close(&scene);
    other = NULL;
}

static idem_outcome_t work_until_the_gate_opens(idem_delivery_t *delivery,
                                                void *user)
{
    (void)user;
    journal_begin(journal, idem_delivery_key(delivery));
    gate_pass(&gate);
    if (!idem_delivery_is_lease_lost(delivery)) {
        journal_end(journal, idem_delivery_key(delivery));
    }
    return IDEM_ACCEPT;
}

typedef struct watch {
    const char *owner;
    int64_t end_ms;
} watch_t;

/* The claim is its first owner's and live at each look. */
static bool is_over(void *user)
{
    const watch_t *watch = user;
    char condition[200];

    snprintf(condition, sizeof condition,
             "state = 'CLAIMED' AND claimed_by = '%s'"
             " AND expires_at > clock_timestamp()",
             watch->owner);
    ck_assert_int_eq(scene_rows(&scene, condition), 1);
    return test_now_ms() >= watch->end_ms;
}

static void watch_the_claim(void)
{
    char sql[256];
    char *owner = NULL;
    watch_t watch;

    snprintf(sql, sizeof sql, "SELECT claimed_by FROM %s", scene.table);
    owner = database_text(scene.database, sql);
    ck_assert_ptr_nonnull(owner);
    watch = (watch_t){owner, test_now_ms() + LEASES * lease_ms + 200};
    ck_assert(test_wait(is_over, &watch, STEP_MS));
    free(owner);
}

START_TEST(slow_handler_keeps_its_claim_and_a_copy_elsewhere_waits)
{
    char lease[16];
    const char *more[] = {"--lease", lease, "--prefetch", "10", NULL};
    char path[SCENE_PATH_BYTES];
    char *output = NULL;
    idem_store_t *store = scene_store(&scene, lease_ms);
    runner_t *runner = runner_create((runner_host_t)_i, scene.url);
    idem_consumer_options_t options;
    journal_t *others = journal_create();

    snprintf(lease, sizeof lease, "%lld", (long long)lease_ms);
    /* With a prefetch of one, the copy goes to the other process. */
    scene_consumer(&scene, &options, store, work_until_the_gate_opens, NULL);
    options.prefetch = 1;
    runner_consumer(runner, &options);
    runner_start(runner);
    ck_assert(send_text(scene.url, scene.queue, "slow", "first"));
    ck_assert(gate_wait_arrived(&gate, 1, STEP_MS));
    scene_path(&scene, path, sizeof path, "other");
    other = scene_worker(&scene, path, more);
    ck_assert(send_text(scene.url, scene.queue, "slow", "copy"));
    ck_assert(management_wait(scene.management, scene.queue, "deliveringCount",
                              2, STEP_MS));

    watch_the_claim();
    /* Neither is settled: the copy is not given back, nor accepted. */
    ck_assert_int_eq(
        management_queue(scene.management, scene.queue, "deliveringCount"), 2);
    ck_assert_int_eq(
        management_queue(scene.management, scene.queue, "messagesAcknowledged"),
        0);
    gate_open(&gate);
    ck_assert(scene_wait_empty(&scene, STEP_MS));
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    runner_destroy(runner);
    idem_store_destroy(store);
    scene_stop_worker(other);

    ck_assert_uint_eq(journal_begun(journal, "slow"), 1);
    ck_assert_uint_eq(journal_ended(journal, "slow"), 1);
    journal_read(others, path);
    ck_assert_uint_eq(journal_all_begun(others), 0);
    journal_destroy(others);
    /* It got the copy once and accepted it without a run: the broker had no
     * reason to count an attempt. */
    output = process_output(other);
    ck_assert_ptr_nonnull(strstr(output, "received 1\n"));
    ck_assert_ptr_nonnull(strstr(output, "duplicates 1\n"));
    free(output);
    ck_assert_int_eq(
        management_queue(scene.management, scene.queue, "messagesAcknowledged"),
        2);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED " AND attempts = 0"),
                     1);
    ck_assert_int_eq(scene_rows(&scene, NULL), 1);
    ck_assert_int_eq(scene_killed(&scene), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("slow_handler");
    TCase *tcase = tcase_create("slow_handler");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase,
                        slow_handler_keeps_its_claim_and_a_copy_elsewhere_waits,
                        0, RUNNER_HOSTS);
    return test_run(suite);
}
