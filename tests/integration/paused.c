/* A process that stands still for longer than its leases, as a debugger, a
 * frozen container or a starved machine makes it. */

#include "journal.h"
#include "scene.h"
#include "send.h"
#include "support.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>

enum { MESSAGES = 20, WORKERS = 3, LEASE_MS = 1000, STEP_MS = 20000 };

static scene_t scene;
static idem_store_t *store;
static process_t *worker;
static journal_t *journal;
static char path[SCENE_PATH_BYTES];

static void setup(void)
{
    scene_open(&scene, "paused");
    store = scene_store(&scene, LEASE_MS);
    journal = journal_create();
    scene_path(&scene, path, sizeof path, "worker");
}

static void teardown(void)
{
    process_destroy(worker);
    journal_destroy(journal);
    idem_store_destroy(store);
    scene_close(&scene);
}

static bool all_have_begun(void *user)
{
    (void)user;
    journal_t *now = journal_create();
    journal_read(now, path);
    bool has = journal_all_begun(now) == WORKERS;
    journal_destroy(now);
    return has;
}

/* Takes a key over, once its lease is over. */
static bool takes_over(void *user)
{
    idem_claim_t *claim = user;

    ck_assert_int_eq(idem_store_claim(store, claim->key, claim, STEP_MS, NULL),
                     IDEM_OK);
    return claim->state == IDEM_CLAIM_NEW;
}

/* The first run; the others are with the worker's threads, claimed. */
START_TEST(what_was_taken_over_meanwhile_does_not_start)
{
    const char *more[] = {"--lease",
                          "1000",
                          "--handler",
                          "300",
                          "--prefetch",
                          "50",
                          "--concurrency",
                          "3",
                          _i ? "--reactor" : NULL,
                          NULL};
    idem_claim_t claims[MESSAGES] = {{.key = ""}};

    ck_assert(send_numbered(scene.url, scene.queue, "m", MESSAGES));
    worker = scene_worker(&scene, path, more);
    ck_assert(scene_wait_rows(&scene, SCENE_CLAIMED, MESSAGES, STEP_MS));
    ck_assert(test_wait(all_have_begun, NULL, STEP_MS));
    ck_assert(process_signal(worker, SIGSTOP));
    for (int i = 1; i < MESSAGES; i++) {
        snprintf(claims[i].key, sizeof claims[i].key, "m%d", i);
        ck_assert(test_wait(takes_over, &claims[i], STEP_MS));
        if (i % 2 == 0) {
            ck_assert_int_eq(
                idem_store_confirm(store, &claims[i], STEP_MS, NULL), IDEM_OK);
        }
    }
    ck_assert(process_signal(worker, SIGCONT));
    /* Half of them are done, half are given up now. */
    for (int i = 1; i < MESSAGES; i += 2) {
        (void)idem_store_release(store, &claims[i], false, STEP_MS, NULL);
    }
    ck_assert(scene_wait_empty(&scene, STEP_MS));
    ck_assert(process_signal(worker, SIGTERM));
    ck_assert_int_eq(process_wait(worker, STEP_MS), 0);
    journal_read(journal, path);
    /* Those that ran may have to run again: their leases were lost. */
    for (int i = WORKERS; i < MESSAGES; i++) {
        char key[16];
        snprintf(key, sizeof key, "m%d", i);
        ck_assert_msg(journal_begun(journal, key) == (size_t)(i % 2),
                      "%s began %zu times", key, journal_begun(journal, key));
    }
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), MESSAGES);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("paused");
    TCase *tcase = tcase_create("paused");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, what_was_taken_over_meanwhile_does_not_start, 0,
                        2);
    return test_run(suite);
}
