/* Consumers that are killed in the middle of their work, again and again. */

#include "journal.h"
#include "scene.h"
#include "send.h"
#include "support.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    KILLS = 10,
    BATCH = 200, /* messages for each process */
    MESSAGES = KILLS * BATCH,
    LEAST = 20, /* that a process handles before it is killed */
    SPREAD = 120,
    FEW = 40, /* instead of SPREAD, where a live process handles most */
    LEASE_MS = 1500,
    LEASE_MAX_MS = 3000, /* however slow the machine is */
    /* How long after its lease's end a claim may stand: a hundred of them run
     * one after the other, each with a commit. */
    LATE_MS = 3000,
    STEP_MS = 20000,
    DRAIN_MS = 60000
};

/* Every row of a dead process is an expired claim some day; this is one that
 * nobody has taken over for too long. Scaled where the machine is slow. */
static char overdue[160]; /* a condition */

static scene_t scene;
static journal_t *all;     /* what all processes did */
static journal_t *allowed; /* what was running when its process was killed */
static process_t *victim;
static process_t *survivor;
static char survivor_path[SCENE_PATH_BYTES];

static char lease[16];
static const char *const arguments[] = {"--prefetch", "100", "--lease", lease,
                                        "--handler",  "2",   NULL};
static const char *const in_reactor[] = {
    "--prefetch", "100", "--lease", lease, "--handler", "2", "--reactor", NULL};

/* How often each message is sent. */
static size_t copies;

static void setup(void)
{
    /* Artemis may count an attempt for each message of each crash. */
    scene_open(&scene, "inf.kills");
    scene_create_table(&scene);
    snprintf(overdue, sizeof overdue,
             SCENE_CLAIMED " AND expires_at < clock_timestamp() - %lld *"
                           " interval '1 ms'",
             (long long)test_scaled_ms(LATE_MS));
    snprintf(lease, sizeof lease, "%lld",
             (long long)(test_scaled_ms(LEASE_MS) < LEASE_MAX_MS
                             ? test_scaled_ms(LEASE_MS)
                             : LEASE_MAX_MS));
    all = journal_create();
    allowed = journal_create();
}

static void teardown(void)
{
    process_destroy(victim);
    process_destroy(survivor);
    journal_destroy(all);
    journal_destroy(allowed);
    scene_close(&scene);
    victim = NULL;
    survivor = NULL;
}

/* user is the number of the batch. The copies go to two consumers at once. */
static void fill(size_t n, compose_message_t *message, void *user)
{
    static char id[48];

    snprintf(id, sizeof id, "batch-%d-%zu", *(const int *)user, n / copies);
    message->id = compose_string(id);
}

typedef struct progress {
    const char *path;
    size_t ended;
} progress_t;

/* Looks at both: that no claim is overdue, and how far the process is. */
static bool has_worked(void *user)
{
    const progress_t *progress = user;
    journal_t *journal = journal_create();
    bool holds = false;

    ck_assert_int_eq(scene_rows(&scene, overdue), 0);
    journal_read(journal, progress->path);
    holds = journal_all_ended(journal) >= progress->ended;
    journal_destroy(journal);
    return holds;
}

static bool is_confirmed(const char *key)
{
    char condition[160];

    snprintf(condition, sizeof condition,
             SCENE_CONFIRMED " AND message_id='%s'", key);
    return scene_rows(&scene, condition) == 1;
}

/* What a killed process had begun and did not get confirmed may run again. Its
 * sessions have ended, so nothing of it can reach the table any more, and its
 * claims are live, so nobody else has run it yet. */
static void note_what_was_running(const char *path)
{
    journal_t *journal = journal_create();
    journal_key_t *key;

    journal_read(journal, path);
    for (key = journal_first(journal); key != NULL; key = key->hh.next) {
        if (!is_confirmed(key->key)) {
            journal_begin(allowed, key->key);
        }
    }
    journal_destroy(journal);
    journal_read(all, path);
}

/* One process lives until it has handled some messages: few, so that it dies
 * before the claims of the one before expire, or many, so that it dies while
 * or after it takes them over. */
static void live_and_die(int number)
{
    char name[24];
    char path[SCENE_PATH_BYTES];
    char sessions[256];
    bool is_alone = survivor == NULL;
    size_t spread = is_alone ? SPREAD : FEW;
    progress_t progress = {path, LEAST + (size_t)number * 53 % spread};
    int consumers = is_alone ? 1 : 2;

    snprintf(name, sizeof name, "victim%d", number);
    scene_path(&scene, path, sizeof path, name);
    victim =
        scene_worker(&scene, path, number % 2 == 0 ? arguments : in_reactor);
    ck_assert(management_wait(scene.management, scene.queue, "consumerCount",
                              consumers, STEP_MS));
    ck_assert(send_messages(scene.url, scene.queue, copies * BATCH, fill,
                            &number, STEP_MS));
    ck_assert_msg(test_wait(has_worked, &progress, STEP_MS),
                  "process %d does not handle anything", number);
    ck_assert(process_signal(victim, SIGKILL));
    ck_assert_int_eq(process_wait(victim, STEP_MS), 128 + SIGKILL);
    process_destroy(victim);
    victim = NULL;
    snprintf(sessions, sizeof sessions,
             "SELECT count(*) FROM pg_stat_activity"
             " WHERE application_name = '%s'",
             strrchr(path, '/') + 1);
    ck_assert(database_wait_int(scene.database, sessions, 0, STEP_MS));
    ck_assert(management_wait(scene.management, scene.queue, "consumerCount",
                              consumers - 1, STEP_MS));
    note_what_was_running(path);
}

static bool is_drained(void *user)
{
    (void)user;
    ck_assert_int_eq(scene_rows(&scene, overdue), 0);
    return management_queue(scene.management, scene.queue, "messageCount") == 0;
}

static void drain_and_check(void)
{
    journal_key_t *key;
    size_t twice = 0;

    ck_assert(test_wait(is_drained, NULL, DRAIN_MS));
    scene_stop_worker(survivor);
    journal_read(all, survivor_path);

    ck_assert_uint_eq(journal_keys(all), MESSAGES);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), MESSAGES);
    ck_assert_int_eq(scene_rows(&scene, NULL), MESSAGES);
    ck_assert_int_eq(scene_killed(&scene), 0);
    for (key = journal_first(all); key != NULL; key = key->hh.next) {
        size_t crashes = journal_begun(allowed, key->key);

        ck_assert_uint_ge(key->ended, 1);
        ck_assert_msg(key->begun <= 1 + crashes,
                      "%s ran %zu times but was running at %zu kills", key->key,
                      key->begun, crashes);
        twice += key->begun > 1;
    }
    /* One at a time: so few can be running at a kill, with those whose confirm
     * was on its way. */
    ck_assert_uint_le(twice, journal_all_begun(allowed));
}

START_TEST(ten_kills_lose_nothing_and_repeat_only_what_was_running)
{
    copies = 1;
    for (int i = 0; i < KILLS; i++) {
        live_and_die(i);
    }
    scene_path(&scene, survivor_path, sizeof survivor_path, "survivor");
    survivor = scene_worker(&scene, survivor_path, arguments);
    drain_and_check();
}
END_TEST

START_TEST(kills_beside_a_live_process_repeat_only_what_was_running)
{
    copies = 2;
    scene_path(&scene, survivor_path, sizeof survivor_path, "survivor");
    survivor = scene_worker(&scene, survivor_path, arguments);
    for (int i = 0; i < KILLS; i++) {
        live_and_die(i);
    }
    drain_and_check();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kills");
    TCase *tcase = tcase_create("kills");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase,
                   ten_kills_lose_nothing_and_repeat_only_what_was_running);
    tcase_add_test(tcase,
                   kills_beside_a_live_process_repeat_only_what_was_running);
    return test_run(suite);
}
