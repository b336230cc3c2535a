/* Many owners on the same keys, at the same time. */

#include "store_rig.h"
#include "support.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 60000 };

static store_rig_t rig;

static void start(void)
{
    store_rig_start(&rig);
}

static void finish(void)
{
    store_rig_finish(&rig);
}

/* A thread with a store of its own, as another process would have. */
typedef struct racer {
    pthread_t thread;
    idem_store_t *store;
    asker_t *asker;
    int index;
    int rounds;
    int keys;
    int step; /* 1 or -1: the order in which it asks */
    int won;
    int wrong; /* answers that must not be */
    int late;
} racer_t;

static atomic_bool stopping;

static void race(racer_t *racers, int count, void *(*run)(void *user))
{
    atomic_store(&stopping, false);
    for (int i = 0; i < count; i++) {
        racers[i].index = i;
        racers[i].store = store_rig_open_other(&rig);
        racers[i].asker = asker_create(racers[i].store);
    }
    for (int i = 0; i < count; i++) {
        ck_assert(test_thread_start(&racers[i].thread, run, &racers[i]));
    }
    for (int i = 0; i < count; i++) {
        pthread_join(racers[i].thread, NULL);
        ck_assert_msg(racers[i].late == 0, "racer %d waited in vain", i);
        ck_assert_msg(racers[i].wrong == 0, "racer %d: %d wrong answers", i,
                      racers[i].wrong);
        /* 40001 and 40P01 stay inside. */
        ck_assert_int_eq(asker_outages(racers[i].asker), 0);
    }
}

static uint64_t retries(racer_t *racers, int count)
{
    uint64_t sum = 0;

    for (int i = 0; i < count; i++) {
        idem_store_statistics_t statistics;
        idem_store_statistics(racers[i].store, &statistics);
        sum += statistics.retries;
    }
    return sum;
}

static void end_race(racer_t *racers, int count)
{
    for (int i = 0; i < count; i++) {
        asker_destroy(racers[i].asker);
        idem_store_destroy(racers[i].store);
    }
}

static void *claim_all(void *user)
{
    racer_t *racer = user;
    question_t *questions = calloc((size_t)racer->keys, sizeof *questions);
    char token[16];

    snprintf(token, sizeof token, "racer-%d", racer->index);
    for (int i = 0; i < racer->keys; i++) {
        char key[16];
        snprintf(key, sizeof key, "key-%d",
                 racer->step > 0 ? i : racer->keys - 1 - i);
        question_set(&questions[i], IDEMI_OP_CLAIM, key, token);
    }
    /* In slices, so that the racers are within one another's batches. */
    for (int i = 0; i < racer->keys; i += 50) {
        int count = racer->keys - i < 50 ? racer->keys - i : 50;
        racer->late +=
            !asker_ask(racer->asker, &questions[i], (size_t)count, WAIT_MS);
    }
    for (int i = 0; i < racer->keys; i++) {
        racer->won += questions[i].op.answer == IDEMI_ANSWER_NEW;
        racer->wrong += questions[i].op.answer != IDEMI_ANSWER_NEW &&
                        questions[i].op.answer != IDEMI_ANSWER_IN_PROGRESS;
    }
    free(questions);
    return NULL;
}

/* Returns how many transactions had to be repeated. */
static uint64_t each_key_has_one_winner(void)
{
    enum { RACERS = 6, KEYS = 1000 };
    racer_t racers[RACERS] = {{0}};
    uint64_t repeated;
    int won = 0;

    for (int i = 0; i < RACERS; i++) {
        racers[i].keys = KEYS;
        racers[i].step = i % 2 ? 1 : -1;
    }
    race(racers, RACERS, claim_all);
    for (int i = 0; i < RACERS; i++) {
        won += racers[i].won;
    }
    ck_assert_int_eq(won, KEYS);
    ck_assert_int_eq(store_rig_int(&rig, "SELECT count(*) FROM %s"), KEYS);
    repeated = retries(racers, RACERS);
    end_race(racers, RACERS);
    return repeated;
}

START_TEST(a_race_for_new_keys_has_one_winner_for_each)
{
    ck_assert_uint_eq(each_key_has_one_winner(), 0);
}
END_TEST

/* C07, C08: whatever the operator set as the default. */
START_TEST(a_stricter_default_isolation_changes_nothing)
{
    size_t size = strlen(rig.conninfo);

    snprintf(rig.conninfo + size, sizeof rig.conninfo - size,
             " options='-c default_transaction_isolation=%s'",
             _i ? "repeatable\\\\ read" : "serializable");
    ck_assert_uint_eq(each_key_has_one_winner(), 0);
}
END_TEST

/* C01: of many that find a dead claim one gets it. */
static void *take_all(void *user)
{
    racer_t *racer = user;
    question_t *questions = calloc((size_t)racer->keys, sizeof *questions);
    char token[16];

    snprintf(token, sizeof token, "racer-%d", racer->index);
    for (int i = 0; i < racer->keys; i++) {
        char key[16];
        snprintf(key, sizeof key, "key-%d",
                 racer->step > 0 ? i : racer->keys - 1 - i);
        question_set(&questions[i], IDEMI_OP_TAKEOVER, key, token);
    }
    racer->late +=
        !asker_ask(racer->asker, questions, (size_t)racer->keys, WAIT_MS);
    for (int i = 0; i < racer->keys; i++) {
        racer->won += questions[i].op.answer == IDEMI_ANSWER_NEW;
        racer->wrong +=
            questions[i].op.answer == IDEMI_ANSWER_NEW
                ? questions[i].op.attempts != 1
                : questions[i].op.answer != IDEMI_ANSWER_IN_PROGRESS;
    }
    free(questions);
    return NULL;
}

START_TEST(a_race_for_dead_claims_has_one_winner_for_each)
{
    enum { RACERS = 5, KEYS = 300 };
    racer_t racers[RACERS] = {{0}};
    int won = 0;

    store_rig_exec(&rig,
                   "INSERT INTO %s (message_id, state, claimed_by, "
                   "recorded_at, expires_at) SELECT 'key-' || i, 'CLAIMED', "
                   "'dead', now(), now() FROM generate_series(0, 299) AS i");
    for (int i = 0; i < RACERS; i++) {
        racers[i].keys = KEYS;
        racers[i].step = i % 2 ? 1 : -1;
    }
    race(racers, RACERS, take_all);
    for (int i = 0; i < RACERS; i++) {
        won += racers[i].won;
    }
    ck_assert_int_eq(won, KEYS);
    ck_assert_int_eq(
        store_rig_int(&rig, "SELECT count(*) FROM %s WHERE attempts = 1"),
        KEYS);
    end_race(racers, RACERS);
}
END_TEST

/* C09: everybody claims the same keys, in opposite orders, and what he gets he
 * confirms, renews or gives up, in the batch of his next claims. */
static void *work_on_all(void *user)
{
    racer_t *racer = user;
    size_t keys = (size_t)racer->keys;
    question_t *questions = calloc(keys, sizeof *questions);

    for (size_t i = 0; i < keys; i++) {
        char key[32];
        char token[48];
        snprintf(key, sizeof key, "key-%zu",
                 racer->step > 0 ? i : keys - 1 - i);
        snprintf(token, sizeof token, "racer-%d-%zu", racer->index, i);
        question_set(&questions[i], IDEMI_OP_CLAIM, key, token);
    }
    for (int round = 0; round < racer->rounds && !racer->late; round++) {
        racer->late += !asker_ask(racer->asker, questions, keys, WAIT_MS);
        for (size_t i = 0; i < keys; i++) {
            idemi_op_t *op = &questions[i].op;
            bool is_ours = op->answer == IDEMI_ANSWER_NEW;
            racer->wrong += op->answer == IDEMI_ANSWER_FAILED;
            if (op->kind == IDEMI_OP_CLAIM &&
                op->answer == IDEMI_ANSWER_EXPIRED) {
                op->kind = IDEMI_OP_TAKEOVER;
            } else if (is_ours && (op->kind == IDEMI_OP_CLAIM ||
                                   op->kind == IDEMI_OP_TAKEOVER)) {
                op->kind = i % 3 == 0 ? IDEMI_OP_RENEW : IDEMI_OP_RELEASE;
            } else if (is_ours && op->kind == IDEMI_OP_RENEW) {
                op->kind = i % 16 == 0 ? IDEMI_OP_CONFIRM : IDEMI_OP_RELEASE;
            } else {
                op->kind = IDEMI_OP_CLAIM;
            }
        }
    }
    free(questions);
    return NULL;
}

START_TEST(opposite_orders_do_not_deadlock)
{
    enum { RACERS = 4 };
    racer_t racers[RACERS] = {{0}};

    for (int i = 0; i < RACERS; i++) {
        racers[i].keys = 200;
        racers[i].rounds = 100;
        racers[i].step = i % 2 ? 1 : -1;
    }
    race(racers, RACERS, work_on_all);
    /* Each deadlock would cost deadlock_timeout, a second. In the wrong order
     * nearly every one of the 400 batches meets one; what is left in the right
     * order takes a takeover that crosses its owner's own change, seldom. */
    ck_assert_uint_le(retries(racers, RACERS), 6);
    end_race(racers, RACERS);
}
END_TEST

/* C11, C23, C24: rows vanish under the claims. */
typedef struct deleter {
    pthread_t thread;
    char sql[256];
} deleter_t;

static void *delete_all(void *user)
{
    deleter_t *deleter = user;
    PGconn *pg = database_open(test_env("IDEM_TEST_DSN"));

    while (!atomic_load(&stopping)) {
        PQclear(PQexec(pg, deleter->sql));
    }
    PQfinish(pg);
    return NULL;
}

static void *claim_and_confirm(void *user)
{
    racer_t *racer = user;
    size_t keys = (size_t)racer->keys;
    question_t *questions = calloc(keys, sizeof *questions);

    for (int round = 0; round < racer->rounds && !racer->late; round++) {
        for (size_t i = 0; i < keys; i++) {
            char key[32];
            char token[64];
            snprintf(key, sizeof key, "key-%zu", i);
            snprintf(token, sizeof token, "r-%d-%d-%zu", racer->index, round,
                     i);
            question_set(&questions[i], IDEMI_OP_CLAIM, key, token);
        }
        racer->late += !asker_ask(racer->asker, questions, keys, WAIT_MS);
        for (size_t i = 0; i < keys; i++) {
            idemi_answer_t answer = questions[i].op.answer;
            racer->wrong += answer != IDEMI_ANSWER_NEW &&
                            answer != IDEMI_ANSWER_DONE &&
                            answer != IDEMI_ANSWER_IN_PROGRESS;
            if (answer == IDEMI_ANSWER_NEW) {
                racer->won++;
                questions[i].op.kind = IDEMI_OP_CONFIRM;
            } else {
                questions[i].op.kind = IDEMI_OP_FIND;
            }
        }
        racer->late += !asker_ask(racer->asker, questions, keys, WAIT_MS);
        for (size_t i = 0; i < keys; i++) {
            racer->wrong += questions[i].op.kind == IDEMI_OP_CONFIRM &&
                            questions[i].op.answer != IDEMI_ANSWER_DONE;
        }
    }
    if (racer->index == 0) {
        atomic_store(&stopping, true);
    }
    free(questions);
    return NULL;
}

START_TEST(rows_that_vanish_are_claimed_again)
{
    enum { RACERS = 3 };
    racer_t racers[RACERS] = {{0}};
    deleter_t deleter;

    /* Only what is confirmed: a claim is its owner's. */
    snprintf(deleter.sql, sizeof deleter.sql,
             "DELETE FROM %s WHERE state = 'CONFIRMED'", rig.table);
    for (int i = 0; i < RACERS; i++) {
        racers[i].keys = 20;
        racers[i].rounds = 150;
    }
    atomic_store(&stopping, false);
    ck_assert(test_thread_start(&deleter.thread, delete_all, &deleter));
    race(racers, RACERS, claim_and_confirm);
    atomic_store(&stopping, true);
    pthread_join(deleter.thread, NULL);
    /* It did come to that. */
    ck_assert_int_gt(racers[0].won + racers[1].won + racers[2].won, 20);
    end_race(racers, RACERS);
}
END_TEST

/* Another's confirm that is not committed yet makes a claim wait, and it
 * answers with what came of it. */
START_TEST(a_claim_waits_for_a_transaction_and_answers_its_end)
{
    static const struct {
        const char *end;
        const char *begin;
        idemi_answer_t answer;
    } table[] = {
        {"COMMIT",
         "INSERT INTO %s VALUES ('k', 'CLAIMED', 'they', now(), now() + "
         "interval '1 min')",
         IDEMI_ANSWER_IN_PROGRESS},
        {"ROLLBACK",
         "INSERT INTO %s VALUES ('k', 'CLAIMED', 'they', now(), now() + "
         "interval '1 min')",
         IDEMI_ANSWER_NEW},
        {"COMMIT",
         "INSERT INTO %s VALUES ('k', 'CONFIRMED', NULL, now(), now() + "
         "interval '1 min')",
         IDEMI_ANSWER_DONE},
        {"COMMIT", "DELETE FROM %s WHERE message_id = 'dead'",
         IDEMI_ANSWER_NEW},
    };
    enum { OTHERS = 30 };
    bool is_large = _i >= 4;
    const char *key = _i % 4 == 3 ? "dead" : "k";
    question_t questions[OTHERS + 1];

    store_rig_row(&rig, "dead", "CLAIMED", "they", -1000, 0);
    store_rig_exec(&rig, "BEGIN");
    store_rig_exec(&rig, table[_i % 4].begin);
    question_set(&questions[0], IDEMI_OP_CLAIM, key, "me");
    for (int i = 1; i <= OTHERS; i++) {
        char other[16];
        snprintf(other, sizeof other, "o-%d", i);
        question_set(&questions[i], IDEMI_OP_CLAIM, other, "me");
    }
    asker_submit(rig.asker, questions, is_large ? OTHERS + 1 : 1);
    ck_assert(!asker_wait(rig.asker, 100));
    store_rig_exec(&rig, table[_i % 4].end);
    ck_assert(asker_wait(rig.asker, WAIT_MS));
    ck_assert_msg(questions[0].op.answer == table[_i % 4].answer, "%s",
                  answer_name(questions[0].op.answer));
    for (int i = 1; is_large && i <= OTHERS; i++) {
        ck_assert_int_eq(questions[i].op.answer, IDEMI_ANSWER_NEW);
    }
}
END_TEST

/* C02, C14, C18: nobody waits for a claim that is held. */
START_TEST(a_held_claim_is_answered_at_once)
{
    idem_claim_t ours = {0};
    idem_claim_t theirs = {0};
    int64_t start_ms;

    ck_assert_int_eq(idem_store_claim(rig.store, "k", &ours, WAIT_MS, NULL),
                     IDEM_OK);
    start_ms = test_now_ms();
    ck_assert_int_eq(idem_store_claim(rig.store, "k", &theirs, WAIT_MS, NULL),
                     IDEM_OK);
    ck_assert_int_lt(test_now_ms() - start_ms, test_scaled_ms(1000));
    ck_assert_int_eq(theirs.state, IDEM_CLAIM_IN_PROGRESS);
    ck_assert_int_gt(theirs.remaining_ms, 20000);
    ck_assert_int_le(theirs.remaining_ms, 30000);
    /* No transaction is open while the work is done. */
    ck_assert_int_eq(
        store_rig_sessions(&rig, "state LIKE 'idle in transaction%'"), 0);
}
END_TEST

/* C24, C35: a purge beside claims takes only what nobody needs. */
typedef struct purger {
    pthread_t thread;
    idem_store_t *store;
    uint64_t removed;
    int failures;
} purger_t;

static void *purge_often(void *user)
{
    purger_t *purger = user;

    while (!atomic_load(&stopping)) {
        uint64_t removed = 0;
        purger->failures += idem_store_purge_expired(purger->store, &removed,
                                                     WAIT_MS, NULL) != IDEM_OK;
        purger->removed += removed;
    }
    return NULL;
}

START_TEST(two_purges_beside_claims_take_only_what_is_over)
{
    enum { RACERS = 2, PURGERS = 2 };
    racer_t racers[RACERS] = {{0}};
    purger_t purgers[PURGERS] = {{0}};

    store_rig_exec(
        &rig, "INSERT INTO %s (message_id, state, claimed_by, recorded_at, "
              "expires_at) SELECT 'old-' || i, 'CONFIRMED', NULL, now(), "
              "now() - interval '1 s' FROM generate_series(1, 20000) AS i");
    atomic_store(&stopping, false);
    for (int i = 0; i < PURGERS; i++) {
        purgers[i].store = store_rig_open_other(&rig);
        ck_assert(
            test_thread_start(&purgers[i].thread, purge_often, &purgers[i]));
    }
    for (int i = 0; i < RACERS; i++) {
        racers[i].keys = 100;
        racers[i].rounds = 60;
        racers[i].step = i % 2 ? 1 : -1;
    }
    race(racers, RACERS, work_on_all);
    atomic_store(&stopping, true);
    for (int i = 0; i < PURGERS; i++) {
        pthread_join(purgers[i].thread, NULL);
        ck_assert_int_eq(purgers[i].failures, 0);
        idem_store_destroy(purgers[i].store);
    }
    end_race(racers, RACERS);
    ck_assert_int_eq(store_rig_int(&rig, "SELECT count(*) FROM %s WHERE "
                                         "message_id LIKE 'old%'"),
                     0);
    ck_assert_uint_ge(purgers[0].removed + purgers[1].removed, 20000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("postgres races");
    TCase *tcase = tcase_create("races");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, start, finish);
    tcase_add_test(tcase, a_race_for_new_keys_has_one_winner_for_each);
    tcase_add_loop_test(tcase, a_stricter_default_isolation_changes_nothing, 0,
                        2);
    tcase_add_test(tcase, a_race_for_dead_claims_has_one_winner_for_each);
    tcase_add_test(tcase, opposite_orders_do_not_deadlock);
    tcase_add_test(tcase, rows_that_vanish_are_claimed_again);
    tcase_add_loop_test(
        tcase, a_claim_waits_for_a_transaction_and_answers_its_end, 0, 8);
    tcase_add_test(tcase, a_held_claim_is_answered_at_once);
    tcase_add_test(tcase, two_purges_beside_claims_take_only_what_is_over);
    return test_run(suite);
}
