/* A message whose handler ends the process. */

#include "journal.h"
#include "scene.h"
#include "send.h"
#include "support.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>

enum {
    MESSAGES = 60,
    ATTEMPTS = 3,
    LEASE_MS = 1500,
    LEASE_MAX_MS = 3000, /* however slow the machine is */
    STEP_MS = 30000
};

#define POISON "key-9"

static scene_t scene;
static journal_t *all;
static journal_t *allowed; /* what was begun and not confirmed at a crash */
static process_t *worker;
static char lease[24];

static void setup(void)
{
    int64_t lease_ms = test_scaled_ms(LEASE_MS);

    /* Artemis may count an attempt for each message of each crash. */
    scene_open(&scene, "inf.poison");
    scene_create_table(&scene);
    snprintf(lease, sizeof lease, "%lld",
             (long long)(lease_ms < LEASE_MAX_MS ? lease_ms : LEASE_MAX_MS));
    all = journal_create();
    allowed = journal_create();
}

static void teardown(void)
{
    process_destroy(worker);
    worker = NULL;
    journal_destroy(all);
    journal_destroy(allowed);
    scene_close(&scene);
}

static void start(char *path, size_t size, int number)
{
    const char *more[] = {"--lease",
                          lease,
                          "--concurrency",
                          "4",
                          "--handler",
                          "5",
                          "--attempts",
                          "3",
                          "--crash",
                          POISON,
                          "--prefetch",
                          "20",
                          number % 2 == 0 ? NULL : "--reactor",
                          NULL};
    char name[24];

    snprintf(name, sizeof name, "worker%d", number);
    scene_path(&scene, path, size, name);
    worker = scene_worker(&scene, path, more);
}

/* Once it had ended a process, it runs alone. */
static void look_at_crash(const char *path, int number)
{
    journal_t *journal = journal_create();
    journal_key_t *key;

    journal_read(journal, path);
    ck_assert_uint_eq(journal_begun(journal, POISON), 1);
    ck_assert_uint_eq(journal_ended(journal, POISON), 0);
    if (number > 0) {
        ck_assert_uint_eq(journal_all_begun(journal),
                          journal_all_ended(journal) + 1);
    }
    for (key = journal_first(journal); key != NULL; key = key->hh.next) {
        char condition[160];

        snprintf(condition, sizeof condition,
                 SCENE_CONFIRMED " AND message_id = '%s'", key->key);
        if (scene_rows(&scene, condition) == 0) {
            journal_begin(allowed, key->key);
        }
    }
    journal_destroy(journal);
    journal_read(all, path);
}

START_TEST(poison_ends_few_processes_and_harms_no_other_message)
{
    char path[SCENE_PATH_BYTES];
    journal_key_t *key;

    ck_assert(send_numbered(scene.url, scene.queue, "key-", MESSAGES));
    for (int i = 0; i < ATTEMPTS; i++) {
        start(path, sizeof path, i);
        ck_assert_int_eq(process_wait(worker, STEP_MS), 128 + SIGKILL);
        process_destroy(worker);
        worker = NULL;
        look_at_crash(path, i);
    }
    start(path, sizeof path, ATTEMPTS);
    ck_assert(scene_wait_empty(&scene, STEP_MS));
    scene_stop_worker(worker);
    journal_read(all, path);

    /* It ran as often as it may, and is where dead letters are. */
    ck_assert_uint_eq(journal_begun(all, POISON), ATTEMPTS);
    ck_assert_int_eq(scene_killed(&scene), 1);
    ck_assert_int_eq(
        scene_rows(&scene, "message_id = '" POISON "' AND " SCENE_FREE), 1);
    /* All others were handled, and twice only where they ran beside its first
     * run, when nobody could know, or their confirm was on its way. */
    ck_assert_uint_eq(journal_keys(all), MESSAGES);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), MESSAGES - 1);
    ck_assert_int_eq(scene_rows(&scene, NULL), MESSAGES);
    for (key = journal_first(all); key != NULL; key = key->hh.next) {
        ck_assert_uint_le(key->begun, 1 + journal_begun(allowed, key->key));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("poison");
    TCase *tcase = tcase_create("poison");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, poison_ends_few_processes_and_harms_no_other_message);
    return test_run(suite);
}
