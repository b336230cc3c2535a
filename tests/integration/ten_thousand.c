/* Many messages, each sent twice, to two processes. */

#include "journal.h"
#include "scene.h"
#include "send.h"
#include "support.h"

#include <check.h>
#include <stdio.h>

enum {
    DISTINCT = 10000,
    WORKERS = 2,
    SEND_MS = 60000,
    DRAIN_MS = 60000,
    END_MS = 20000
};

static scene_t scene;

static void setup(void)
{
    scene_open(&scene, "twice");
    scene_create_table(&scene);
}

static void teardown(void)
{
    scene_close(&scene);
}

/* The first half: each message right after its copy, so that the two go to
 * two consumers at the same time. The second half: far behind it. */
static void fill(size_t n, compose_message_t *message, void *user)
{
    static char id[32];
    size_t number =
        n < DISTINCT ? n / 2 : DISTINCT / 2 + (n - DISTINCT) % (DISTINCT / 2);

    (void)user;
    snprintf(id, sizeof id, "message-%zu", number);
    message->id = compose_string(id);
    message->body = "body";
    message->body_bytes = 4;
}

START_TEST(ten_thousand_each_sent_twice_are_handled_once)
{
    static const char *const more[] = {"--prefetch", "500", NULL};
    static const char *const in_reactor[] = {"--prefetch", "500", "--reactor",
                                             NULL};
    process_t *workers[WORKERS];
    char paths[WORKERS][SCENE_PATH_BYTES];
    journal_t *all = journal_create();

    for (int i = 0; i < WORKERS; i++) {
        char name[24];

        snprintf(name, sizeof name, "worker%d", i);
        scene_path(&scene, paths[i], sizeof paths[i], name);
        workers[i] = scene_worker(&scene, paths[i], i == 0 ? more : in_reactor);
    }
    ck_assert(management_wait(scene.management, scene.queue, "consumerCount",
                              WORKERS, END_MS));
    ck_assert(send_messages(scene.url, scene.queue, 2 * (size_t)DISTINCT, fill,
                            NULL, SEND_MS));
    ck_assert(scene_wait_empty(&scene, DRAIN_MS));
    for (int i = 0; i < WORKERS; i++) {
        journal_t *own = journal_create();

        scene_stop_worker(workers[i]);
        process_destroy(workers[i]);
        journal_read(own, paths[i]);
        ck_assert_uint_gt(journal_keys(own), 0);
        journal_destroy(own);
        journal_read(all, paths[i]);
    }

    ck_assert_uint_eq(journal_keys(all), DISTINCT);
    ck_assert_uint_eq(journal_all_begun(all), DISTINCT);
    ck_assert_uint_eq(journal_all_ended(all), DISTINCT);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), DISTINCT);
    ck_assert_int_eq(scene_rows(&scene, NULL), DISTINCT);
    ck_assert_int_eq(scene_killed(&scene), 0);
    ck_assert(management_wait(scene.management, scene.queue,
                              "messagesAcknowledged", 2 * (int64_t)DISTINCT,
                              END_MS));
    journal_destroy(all);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ten_thousand");
    TCase *tcase = tcase_create("ten_thousand");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, ten_thousand_each_sent_twice_are_handled_once);
    return test_run(suite);
}
