/* The wrapper around a backend: gathering, repeating, giving up. The backend
 * here keeps rows in an array and does as its test says; what it stands for is
 * tested with a real server. */

#include "asker.h"
#include "support.h"

#include "base/error.h"
#include "store/store_internal.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES_MAX = 4096, WAIT_MS = 10000 };

/* What execute() answers while the rule is set. */
typedef enum rule {
    RULE_ANSWER,
    RULE_ANSWER_ONE,  /* answer this call, hold the next */
    RULE_HOLD,        /* wait until it is another */
    RULE_UNAVAILABLE, /* fail so */
    RULE_REFUSE,      /* 42P01, whatever the operation */
    RULE_POISON       /* 22021, when a key begins with "bad" */
} rule_t;

typedef struct fake {
    idemi_backend_t base; /* first member */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Guarded by mutex. */
    rule_t rule;
    int failures_left; /* RULE_UNAVAILABLE: then RULE_ANSWER; -1: for ever */
    int inside;        /* calls of execute() */
    int calls;
    size_t batches[BATCHES_MAX]; /* sizes of those that were answered */
    int batches_count;
    int twice; /* a key stood in a batch or in two sessions twice */
    int mixed; /* records beside others */
    int sessions;
    int purges;
    int sweeps;
    bool destroyed;
    char busy[1024][24]; /* keys with a session */
    int busy_count;
    char log[4096]; /* the operations in order: "c:key " */
} fake_t;

static fake_t fake;

static void lock(void)
{
    pthread_mutex_lock(&fake.mutex);
}

static void unlock(void)
{
    pthread_mutex_unlock(&fake.mutex);
}

static void set_rule(rule_t rule, int failures)
{
    lock();
    fake.rule = rule;
    fake.failures_left = failures;
    pthread_cond_broadcast(&fake.changed);
    unlock();
}

static int number(const int *of)
{
    int value;

    lock();
    value = *of;
    unlock();
    return value;
}

static idem_status_t fake_open(idemi_backend_t *backend,
                               idemi_session_t **session, idem_error_t *err)
{
    (void)err;
    lock();
    fake.sessions++;
    unlock();
    *session = (idemi_session_t *)backend;
    return IDEM_OK;
}

static void fake_close(idemi_session_t *session)
{
    (void)session;
    lock();
    fake.sessions--;
    unlock();
}

/* Notes the keys as busy, and what must not be. */
static void enter(idemi_op_t **ops, size_t count)
{
    fake.inside++;
    fake.calls++;
    for (size_t i = 0; i < count; i++) {
        for (int j = 0; j < fake.busy_count; j++) {
            fake.twice += strcmp(fake.busy[j], ops[i]->key) == 0;
        }
        ck_assert_int_lt(fake.busy_count, 1024);
        snprintf(fake.busy[fake.busy_count++], sizeof fake.busy[0], "%s",
                 ops[i]->key);
        fake.mixed += (ops[i]->kind == IDEMI_OP_RECORD) !=
                      (ops[0]->kind == IDEMI_OP_RECORD);
    }
}

static void leave(idemi_op_t **ops, size_t count)
{
    fake.inside--;
    for (size_t i = 0; i < count; i++) {
        for (int j = 0; j < fake.busy_count; j++) {
            if (strcmp(fake.busy[j], ops[i]->key) == 0) {
                memmove(fake.busy[j], fake.busy[--fake.busy_count],
                        sizeof fake.busy[0]);
                break;
            }
        }
    }
}

static void answer(idemi_op_t *op)
{
    size_t size = strlen(fake.log);

    op->answer = op->kind == IDEMI_OP_CLAIM     ? IDEMI_ANSWER_NEW
                 : op->kind == IDEMI_OP_RELEASE ? IDEMI_ANSWER_FREED
                                                : IDEMI_ANSWER_DONE;
    op->remaining_ms = 30000;
    op->sent_at_ms = test_now_ms();
    if (size + 32 < sizeof fake.log) {
        snprintf(fake.log + size, sizeof fake.log - size, "%c:%s ",
                 "ctfnlir"[op->kind], op -> key);
    }
}

static bool has_poison(idemi_op_t **ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strncmp(ops[i]->key, "bad", 3) == 0) {
            return true;
        }
    }
    return false;
}

static idem_status_t fake_execute(idemi_session_t *session, idemi_op_t **ops,
                                  size_t count, idem_error_t *err)
{
    idem_status_t status = IDEM_OK;

    (void)session;
    lock();
    enter(ops, count);
    pthread_cond_broadcast(&fake.changed);
    while (fake.rule == RULE_HOLD) {
        pthread_cond_wait(&fake.changed, &fake.mutex);
    }
    if (fake.rule == RULE_UNAVAILABLE) {
        status = idemi_error(err, IDEM_ERR_STORE_UNAVAILABLE, "out");
        if (fake.failures_left > 0 && --fake.failures_left == 0) {
            fake.rule = RULE_ANSWER;
        }
    } else if (fake.rule == RULE_REFUSE) {
        status = idemi_error(err, IDEM_ERR_STORE, "no such table");
        snprintf(err->sqlstate, sizeof err->sqlstate, "42P01");
    } else if (fake.rule == RULE_POISON && has_poison(ops, count)) {
        status = idemi_error(err, IDEM_ERR_STORE, "bad bytes");
        snprintf(err->sqlstate, sizeof err->sqlstate, "22021");
    } else {
        if (fake.rule == RULE_ANSWER_ONE) {
            fake.rule = RULE_HOLD;
        }
        fake.batches[fake.batches_count++ % BATCHES_MAX] = count;
        for (size_t i = 0; i < count; i++) {
            answer(ops[i]);
        }
    }
    leave(ops, count);
    unlock();
    return status;
}

static idem_status_t fake_purge(idemi_session_t *session, bool sweep,
                                int64_t timeout_ms, uint64_t *removed,
                                bool *more, idem_error_t *err)
{
    (void)session;
    (void)timeout_ms;
    (void)err;
    lock();
    fake.purges++;
    fake.sweeps += sweep;
    *removed = 2;
    *more = fake.purges % 3 != 0;
    unlock();
    return IDEM_OK;
}

static idem_status_t fake_count(idemi_session_t *session, int64_t timeout_ms,
                                idem_store_counts_t *counts, idem_error_t *err)
{
    (void)session;
    (void)timeout_ms;
    lock();
    if (fake.rule == RULE_UNAVAILABLE) {
        unlock();
        return idemi_error(err, IDEM_ERR_STORE_UNAVAILABLE, "out");
    }
    unlock();
    *counts = (idem_store_counts_t){1, 2, 3};
    return IDEM_OK;
}

static idem_status_t fake_create_schema(idemi_session_t *session,
                                        int64_t timeout_ms, idem_error_t *err)
{
    (void)session;
    (void)timeout_ms;
    (void)err;
    return IDEM_OK;
}

static void fake_destroy(idemi_backend_t *backend)
{
    (void)backend;
    fake.destroyed = true;
}

static const idemi_backend_table_t fake_table = {
    fake_open,  fake_close,         fake_execute, fake_purge,
    fake_count, fake_create_schema, fake_destroy,
};

static idem_store_t *store;
static asker_t *asker;

static void open_store(uint32_t lanes, int64_t purge_interval_ms)
{
    idemi_store_config_t config = {.renew_ms = 10000,
                                   .purge_interval_ms = purge_interval_ms,
                                   .lanes = lanes};

    memset(&fake, 0, sizeof fake);
    fake.base.table = &fake_table;
    pthread_mutex_init(&fake.mutex, NULL);
    pthread_cond_init(&fake.changed, NULL);
    ck_assert_int_eq(idemi_store_create(&store, &fake.base, &config, NULL),
                     IDEM_OK);
    asker = asker_create(store);
}

static void start(void)
{
    open_store(1, 0);
}

static void finish(void)
{
    set_rule(RULE_ANSWER, 0);
    asker_destroy(asker);
    idem_store_destroy(store);
    ck_assert(fake.destroyed);
    ck_assert_int_eq(fake.sessions, 0);
    ck_assert_int_eq(fake.twice, 0);
    ck_assert_int_eq(fake.mixed, 0);
    pthread_cond_destroy(&fake.changed);
    pthread_mutex_destroy(&fake.mutex);
}

static bool is_inside(void *user)
{
    return number(&fake.inside) == *(int *)user;
}

/* Waits until that many sessions are in execute(). */
static void wait_inside(int count)
{
    ck_assert(test_wait(is_inside, &count, WAIT_MS));
}

static question_t *make(idemi_op_kind_t kind, const char *prefix, int count)
{
    question_t *questions = calloc((size_t)count, sizeof *questions);

    ck_assert_ptr_nonnull(questions);
    for (int i = 0; i < count; i++) {
        char key[24];
        snprintf(key, sizeof key, "%s-%d", prefix, i);
        question_set(&questions[i], kind, key, "token");
    }
    return questions;
}

START_TEST(a_single_operation_at_idle_waits_for_nothing)
{
    question_t *q = make(IDEMI_OP_CLAIM, "k", 1);

    ck_assert(asker_ask(asker, q, 1, WAIT_MS));
    ck_assert_int_eq(q->op.answer, IDEMI_ANSWER_NEW);
    ck_assert_int_eq(fake.batches_count, 1);
    free(q);
}
END_TEST

START_TEST(what_arrives_during_a_batch_is_the_next_batch)
{
    question_t *first = make(IDEMI_OP_CLAIM, "first", 1);
    question_t *more = make(IDEMI_OP_CLAIM, "more", 30);

    set_rule(RULE_HOLD, 0);
    asker_submit(asker, first, 1);
    wait_inside(1);
    for (int i = 0; i < 30; i++) {
        asker_submit(asker, &more[i], 1);
    }
    set_rule(RULE_ANSWER, 0);
    ck_assert(asker_wait(asker, WAIT_MS));
    ck_assert_int_eq(fake.batches_count, 2);
    ck_assert_uint_eq(fake.batches[0], 1);
    ck_assert_uint_eq(fake.batches[1], 30);
    ck_assert_int_le(asker_mails(asker), 2);
    free(first);
    free(more);
}
END_TEST

START_TEST(a_batch_is_bounded)
{
    question_t *first = make(IDEMI_OP_CLAIM, "first", 1);
    question_t *more = make(IDEMI_OP_CLAIM, "more", 1300);

    set_rule(RULE_HOLD, 0);
    asker_submit(asker, first, 1);
    wait_inside(1);
    asker_submit(asker, more, 1300);
    set_rule(RULE_ANSWER, 0);
    ck_assert(asker_wait(asker, WAIT_MS));
    ck_assert_int_eq(fake.batches_count, 4);
    ck_assert_uint_eq(fake.batches[1], 500);
    ck_assert_uint_eq(fake.batches[2], 500);
    ck_assert_uint_eq(fake.batches[3], 300);
    free(first);
    free(more);
}
END_TEST

/* C10: a backend never sees a key twice; the order of a key's operations is
 * kept. */
START_TEST(operations_on_one_key_keep_their_order)
{
    question_t q[4];

    question_set(&q[0], IDEMI_OP_CLAIM, "k", "a");
    question_set(&q[1], IDEMI_OP_CLAIM, "other", "a");
    question_set(&q[2], IDEMI_OP_RELEASE, "k", "a");
    question_set(&q[3], IDEMI_OP_CLAIM, "k", "b");
    ck_assert(asker_ask(asker, q, 4, WAIT_MS));
    ck_assert_str_eq(fake.log, "c:k c:other l:k c:k ");
}
END_TEST

START_TEST(one_key_is_with_one_lane_at_a_time)
{
    enum { ROUNDS = 200, KEYS = 8 };
    asker_t *askers[3];
    question_t *questions[3];

    finish();
    open_store(4, 0);
    for (int i = 0; i < 3; i++) {
        askers[i] = asker_create(store);
        questions[i] = make(IDEMI_OP_CLAIM, "k", KEYS);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 3; i++) {
            asker_submit(askers[i], questions[i], KEYS);
        }
        for (int i = 0; i < 3; i++) {
            ck_assert(asker_wait(askers[i], WAIT_MS));
        }
    }
    for (int i = 0; i < 3; i++) {
        asker_destroy(askers[i]);
        free(questions[i]);
    }
}
END_TEST

START_TEST(records_have_batches_of_their_own)
{
    question_t *first = make(IDEMI_OP_CLAIM, "first", 1);
    question_t *claims = make(IDEMI_OP_CLAIM, "claim", 5);
    question_t *records = make(IDEMI_OP_RECORD, "record", 5);

    set_rule(RULE_HOLD, 0);
    asker_submit(asker, first, 1);
    wait_inside(1);
    for (int i = 0; i < 5; i++) {
        asker_submit(asker, &records[i], 1);
        asker_submit(asker, &claims[i], 1);
    }
    set_rule(RULE_ANSWER, 0);
    ck_assert(asker_wait(asker, WAIT_MS));
    ck_assert_int_eq(fake.batches_count, 3);
    free(first);
    free(claims);
    free(records);
}
END_TEST

START_TEST(free_lanes_share_a_long_queue)
{
    question_t *first = make(IDEMI_OP_CLAIM, "first", 2);
    question_t *more = make(IDEMI_OP_CLAIM, "more", 400);

    finish();
    open_store(2, 0);
    set_rule(RULE_HOLD, 0);
    asker_submit(asker, more, 400);
    wait_inside(2);
    set_rule(RULE_ANSWER, 0);
    ck_assert(asker_wait(asker, WAIT_MS));
    ck_assert_int_eq(fake.batches_count, 2);
    ck_assert_uint_le(fake.batches[0], 300);
    ck_assert_uint_le(fake.batches[1], 300);
    free(first);
    free(more);
}
END_TEST

START_TEST(an_outage_loses_nothing_and_is_told_once)
{
    question_t *q = make(IDEMI_OP_CLAIM, "k", 10);
    idem_store_statistics_t statistics;

    set_rule(RULE_UNAVAILABLE, 4);
    ck_assert(asker_ask(asker, q, 10, WAIT_MS));
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(q[i].op.answer, IDEMI_ANSWER_NEW);
    }
    ck_assert_int_eq(asker_outages(asker), 1);
    ck_assert_int_eq(asker_recoveries(asker), 1);
    ck_assert_int_eq(idem_store_statistics(store, &statistics), IDEM_OK);
    ck_assert(statistics.available);
    ck_assert_uint_eq(statistics.batches, 1);
    ck_assert_uint_eq(statistics.operations, 10);
    free(q);
}
END_TEST

/* C32: the connection may have died while nobody used it. */
START_TEST(a_first_failure_is_repeated_at_once_and_is_no_outage)
{
    question_t *q = make(IDEMI_OP_CLAIM, "k", 2);
    int64_t start_ms;

    ck_assert(asker_ask(asker, q, 1, WAIT_MS));
    set_rule(RULE_UNAVAILABLE, 1);
    start_ms = test_now_ms();
    ck_assert(asker_ask(asker, &q[1], 1, WAIT_MS));
    ck_assert_int_lt(test_now_ms() - start_ms, 50);
    ck_assert_int_eq(asker_outages(asker), 0);
    free(q);
}
END_TEST

/* The table is gone: that is not the messages' fault. */
START_TEST(a_refusal_of_everything_is_an_outage)
{
    question_t *q = make(IDEMI_OP_CLAIM, "k", 3);

    set_rule(RULE_REFUSE, 0);
    asker_submit(asker, q, 3);
    ck_assert(!asker_wait(asker, 300));
    ck_assert_int_eq(asker_outages(asker), 1);
    set_rule(RULE_ANSWER, 0);
    ck_assert(asker_wait(asker, WAIT_MS));
    ck_assert_int_eq(q[0].op.answer, IDEMI_ANSWER_NEW);
    ck_assert_int_eq(asker_recoveries(asker), 1);
    free(q);
}
END_TEST

START_TEST(a_poisonous_operation_fails_alone)
{
    question_t *first = make(IDEMI_OP_CLAIM, "first", 1);
    question_t *q = make(IDEMI_OP_CLAIM, "k", 500);
    static const int bad[] = {0, 1, 255, 256, 499};
    idem_store_statistics_t statistics;
    size_t next = 0;

    for (size_t i = 0; i < 5; i++) {
        char key[24];
        snprintf(key, sizeof key, "bad-%d", bad[i]);
        question_set(&q[bad[i]], IDEMI_OP_CLAIM, key, "t");
    }
    set_rule(RULE_HOLD, 0);
    asker_submit(asker, first, 1);
    wait_inside(1);
    asker_submit(asker, q, 500);
    set_rule(RULE_POISON, 0);
    ck_assert(asker_wait(asker, WAIT_MS));
    for (int i = 0; i < 500; i++) {
        if (next < 5 && i == bad[next]) {
            ck_assert_int_eq(q[i].op.answer, IDEMI_ANSWER_FAILED);
            ck_assert_int_eq(q[i].op.status, IDEM_ERR_STORE);
            next++;
        } else {
            ck_assert_int_eq(q[i].op.answer, IDEMI_ANSWER_NEW);
        }
    }
    /* Not one question for each of them. */
    ck_assert_int_lt(fake.calls, 120);
    ck_assert_int_eq(asker_outages(asker), 0);
    ck_assert_int_eq(idem_store_statistics(store, &statistics), IDEM_OK);
    ck_assert_uint_eq(statistics.errors, 5);
    free(first);
    free(q);
}
END_TEST

START_TEST(who_gives_up_is_answered_at_once)
{
    question_t *q = make(IDEMI_OP_CLAIM, "k", 5);

    set_rule(RULE_HOLD, 0);
    asker_submit(asker, &q[0], 1);
    wait_inside(1);
    asker_submit(asker, &q[1], 4);
    asker_abandon(asker);
    ck_assert(!asker_wait(asker, 100));
    for (int i = 1; i < 5; i++) {
        ck_assert_int_eq(q[i].op.answer, IDEMI_ANSWER_FAILED);
        ck_assert_int_eq(q[i].op.status, IDEM_ERR_STATE);
    }
    /* The one that a session works on is answered as it ends. */
    ck_assert_int_eq(q[0].op.answer, IDEMI_ANSWER_NONE);
    set_rule(RULE_ANSWER, 0);
    ck_assert(asker_wait(asker, WAIT_MS));
    ck_assert_int_eq(q[0].op.answer, IDEMI_ANSWER_NEW);
    /* Later ones never reach a session. */
    ck_assert(asker_ask(asker, &q[1], 1, WAIT_MS));
    ck_assert_int_eq(q[1].op.answer, IDEMI_ANSWER_FAILED);
    ck_assert_int_eq(fake.calls, 1);
    free(q);
}
END_TEST

START_TEST(who_gives_up_during_an_outage_does_not_wait_for_its_end)
{
    question_t *q = make(IDEMI_OP_CLAIM, "k", 5);
    question_t *others = make(IDEMI_OP_CLAIM, "o", 5);
    asker_t *other = asker_create(store);

    set_rule(RULE_UNAVAILABLE, -1);
    asker_submit(asker, q, 5);
    asker_submit(other, others, 5);
    ck_assert(!asker_wait(asker, 300));
    asker_abandon(asker);
    ck_assert(asker_wait(asker, WAIT_MS));
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(q[i].op.answer, IDEMI_ANSWER_FAILED);
    }
    /* The neighbours in the same batch are not given up. */
    set_rule(RULE_ANSWER, 0);
    ck_assert(asker_wait(other, WAIT_MS));
    ck_assert_int_eq(others[0].op.answer, IDEMI_ANSWER_NEW);
    asker_destroy(other);
    free(q);
    free(others);
}
END_TEST

static bool heard_of_outage(void *user)
{
    return asker_outages(user) == 1;
}

START_TEST(a_newcomer_during_an_outage_is_told_of_it)
{
    question_t *q = make(IDEMI_OP_CLAIM, "k", 1);
    asker_t *late;

    set_rule(RULE_UNAVAILABLE, -1);
    asker_submit(asker, q, 1);
    ck_assert(!asker_wait(asker, 100));
    late = asker_create(store);
    ck_assert(test_wait(heard_of_outage, late, WAIT_MS));
    set_rule(RULE_ANSWER, 0);
    ck_assert(asker_wait(asker, WAIT_MS));
    ck_assert_int_eq(asker_recoveries(late), 1);
    asker_destroy(late);
    free(q);
}
END_TEST

/* The blocking operations. */

START_TEST(a_call_that_is_late_leaves_safely)
{
    idem_claim_t claim = {0};
    idem_error_t err;
    idem_status_t status;

    set_rule(RULE_HOLD, 0);
    /* Until it left while a session had it. */
    for (int64_t timeout_ms = 50; number(&fake.inside) == 0; timeout_ms *= 2) {
        int64_t start_ms = test_now_ms();
        ck_assert_int_lt(timeout_ms, WAIT_MS);
        status = idem_store_claim(store, "k", &claim, timeout_ms, &err);
        ck_assert_int_eq(status, IDEM_ERR_TIMEOUT);
        ck_assert_int_ge(test_now_ms() - start_ms, timeout_ms);
    }
    /* The second one never reaches the session. */
    status = idem_store_claim(store, "j", &claim, 50, &err);
    ck_assert_int_eq(status, IDEM_ERR_TIMEOUT);
    set_rule(RULE_ANSWER, 0);
    status = idem_store_claim(store, "i", &claim, WAIT_MS, &err);
    ck_assert_int_eq(status, IDEM_OK);
    ck_assert_str_eq(fake.log, "c:k c:i ");
}
END_TEST

START_TEST(a_claim_may_bring_its_key_itself)
{
    idem_claim_t claim = {.key = "own"};

    ck_assert_int_eq(idem_store_claim(store, claim.key, &claim, WAIT_MS, NULL),
                     IDEM_OK);
    ck_assert_int_eq(idem_store_claim(store, claim.key, &claim, WAIT_MS, NULL),
                     IDEM_OK);
    ck_assert_str_eq(claim.key, "own");
    ck_assert_str_eq(fake.log, "c:own c:own ");
}
END_TEST

START_TEST(a_late_call_names_the_reason)
{
    idem_claim_t claim = {0};
    idem_error_t err;

    set_rule(RULE_UNAVAILABLE, -1);
    ck_assert_int_eq(idem_store_claim(store, "k", &claim, 300, &err),
                     IDEM_ERR_TIMEOUT);
    ck_assert_msg(strstr(err.message, ": out") != NULL, "%s", err.message);
    ck_assert_int_eq(err.status, IDEM_ERR_TIMEOUT);
}
END_TEST

static bool is_queued(void *user)
{
    bool queued;

    pthread_mutex_lock(&store->mutex);
    queued = store->queued == *(size_t *)user;
    pthread_mutex_unlock(&store->mutex);
    return queued;
}

static bool has_been_called_often(void *user)
{
    (void)user;
    return number(&fake.calls) > 30;
}

static void *call_late(void *user)
{
    idem_claim_t claim = {0};

    *(idem_status_t *)user = idem_store_claim(store, "call", &claim, 200, NULL);
    return NULL;
}

START_TEST(a_late_call_does_not_hurry_what_was_in_its_batch)
{
    question_t *q = make(IDEMI_OP_CLAIM, "k", 2);
    idem_status_t status = IDEM_OK;
    size_t both = 2;
    pthread_t caller;

    /* One batch of the call and of a consumer's operation. */
    set_rule(RULE_HOLD, 0);
    asker_submit(asker, &q[0], 1);
    wait_inside(1);
    asker_submit(asker, &q[1], 1);
    ck_assert(test_thread_start(&caller, call_late, &status));
    ck_assert(test_wait(is_queued, &both, WAIT_MS));
    set_rule(RULE_ANSWER_ONE, 0);
    pthread_join(caller, NULL);
    ck_assert_int_eq(status, IDEM_ERR_TIMEOUT);
    set_rule(RULE_UNAVAILABLE, -1);
    /* The call is gone; the operation is repeated with the usual pauses. */
    ck_assert(!test_wait(has_been_called_often, NULL, 500));
    set_rule(RULE_ANSWER, 0);
    ck_assert(asker_wait(asker, WAIT_MS));
    free(q);
}
END_TEST

/* A consumer waits until the table is mended; a program decides itself. */
START_TEST(a_call_that_is_refused_says_so_at_once)
{
    idem_claim_t claim = {0};
    idem_error_t err;

    set_rule(RULE_REFUSE, 0);
    ck_assert_int_eq(
        idem_store_claim(store, "k", &claim, IDEM_WAIT_FOREVER, &err),
        IDEM_ERR_STORE);
    ck_assert_str_eq(err.sqlstate, "42P01");
    set_rule(RULE_POISON, 0);
    ck_assert_int_eq(
        idem_store_claim(store, "bad", &claim, IDEM_WAIT_FOREVER, &err),
        IDEM_ERR_STORE);
    ck_assert_str_eq(err.sqlstate, "22021");
}
END_TEST

START_TEST(arguments_are_checked)
{
    char longest[IDEM_KEY_BYTES + 2];
    idem_claim_t claim = {0};
    idem_error_t err;
    bool confirmed;
    const char *keys[] = {"ok", "\xff"};
    struct {
        const char *key;
        const char *says;
    } bad[] = {{NULL, "NULL"},
               {"", "empty"},
               {longest, "too long"},
               {"\xc3", "UTF-8"},
               {"a\xed\xa0\x80", "UTF-8"}};

    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(idem_store_claim(store, bad[i].key, &claim, 1, &err),
                         IDEM_ERR_ARG);
        ck_assert_msg(strstr(err.message, bad[i].says) != NULL, "%s",
                      err.message);
    }
    ck_assert_int_eq(idem_store_claim(NULL, "k", &claim, 1, &err),
                     IDEM_ERR_ARG);
    ck_assert_int_eq(idem_store_claim(store, "k", NULL, 1, &err), IDEM_ERR_ARG);
    ck_assert_int_eq(idem_store_claim(store, "k", &claim, -2, &err),
                     IDEM_ERR_ARG);
    memset(&claim, 0, sizeof claim);
    ck_assert_int_eq(idem_store_confirm(store, &claim, 1, &err), IDEM_ERR_ARG);
    ck_assert_int_eq(idem_store_renew(store, &claim, 1, NULL), IDEM_ERR_ARG);
    ck_assert_int_eq(idem_store_release(store, &claim, true, 1, &err),
                     IDEM_ERR_ARG);
    ck_assert_int_eq(
        idem_store_find_processed(store, keys, 2, &confirmed, 1, &err),
        IDEM_ERR_ARG);
    ck_assert_int_eq(idem_store_find_processed(store, keys, 0, NULL, 1, &err),
                     IDEM_OK);
    ck_assert_int_eq(idem_store_record_processed(store, NULL, 1, 1, &err),
                     IDEM_ERR_ARG);
    ck_assert_int_eq(idem_store_is_confirmed(store, "k", NULL, 1, &err),
                     IDEM_ERR_ARG);
    ck_assert_int_eq(idem_store_count(store, NULL, 1, &err), IDEM_ERR_ARG);
    ck_assert_int_eq(idem_store_statistics(NULL, NULL), IDEM_ERR_ARG);
    idem_store_destroy(NULL);
    idemi_submitter_destroy(NULL);
    ck_assert_int_eq(fake.calls, 0);
}
END_TEST

START_TEST(many_keys_are_asked_once_each)
{
    const char *keys[] = {"b", "a", "b", "c", "a", "b"};
    bool processed[6] = {false};

    ck_assert_int_eq(
        idem_store_find_processed(store, keys, 6, processed, WAIT_MS, NULL),
        IDEM_OK);
    ck_assert_str_eq(fake.log, "i:a i:b i:c ");
    for (int i = 0; i < 6; i++) {
        ck_assert(processed[i]);
    }
}
END_TEST

static bool purged_thrice(void *user)
{
    (void)user;
    return number(&fake.purges) >= 6;
}

START_TEST(the_timer_purges_in_chunks_and_goes_on)
{
    idem_store_statistics_t statistics;

    finish();
    open_store(1, 20);
    ck_assert(test_wait(purged_thrice, NULL, WAIT_MS));
    ck_assert_int_eq(number(&fake.sweeps), 0);
    ck_assert_int_eq(idem_store_statistics(store, &statistics), IDEM_OK);
    ck_assert_uint_ge(statistics.purged, 10);
}
END_TEST

START_TEST(a_purge_by_call_goes_through_everything)
{
    uint64_t removed = 0;

    ck_assert_int_eq(idem_store_purge_expired(store, &removed, WAIT_MS, NULL),
                     IDEM_OK);
    ck_assert_uint_eq(removed, 6);
    ck_assert_int_eq(fake.purges, 3);
    ck_assert_int_eq(fake.sweeps, 3);
}
END_TEST

START_TEST(counting_waits_for_the_server_until_its_time_is_up)
{
    idem_store_counts_t counts;
    idem_error_t err;

    ck_assert_int_eq(idem_store_count(store, &counts, WAIT_MS, &err), IDEM_OK);
    ck_assert_uint_eq(counts.confirmed, 3);
    set_rule(RULE_UNAVAILABLE, -1);
    ck_assert_int_eq(idem_store_count(store, &counts, 300, &err),
                     IDEM_ERR_TIMEOUT);
    ck_assert_int_eq(err.status, IDEM_ERR_TIMEOUT);
}
END_TEST

typedef struct caller {
    pthread_t thread;
    int index;
    int failures;
} caller_t;

static void *call_often(void *user)
{
    caller_t *caller = user;

    for (int i = 0; i < 300; i++) {
        idem_claim_t claim = {0};
        char key[24];
        snprintf(key, sizeof key, "%d", (i + caller->index) % 7);
        /* Some of them are late on purpose. */
        int64_t timeout_ms = i % 3 == 0 ? i % 2 : WAIT_MS;
        idem_status_t status =
            idem_store_claim(store, key, &claim, timeout_ms, NULL);
        caller->failures += status != IDEM_OK && !(status == IDEM_ERR_TIMEOUT &&
                                                   timeout_ms < WAIT_MS);
    }
    return NULL;
}

START_TEST(many_threads_call_at_once)
{
    enum { CALLERS = 8 };
    caller_t callers[CALLERS];

    finish();
    open_store(3, 0);
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (caller_t){.index = i};
        ck_assert(
            test_thread_start(&callers[i].thread, call_often, &callers[i]));
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        ck_assert_int_eq(callers[i].failures, 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store");
    TCase *tcase = tcase_create("store");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, start, finish);
    tcase_add_test(tcase, a_single_operation_at_idle_waits_for_nothing);
    tcase_add_test(tcase, what_arrives_during_a_batch_is_the_next_batch);
    tcase_add_test(tcase, a_batch_is_bounded);
    tcase_add_test(tcase, operations_on_one_key_keep_their_order);
    tcase_add_test(tcase, one_key_is_with_one_lane_at_a_time);
    tcase_add_test(tcase, records_have_batches_of_their_own);
    tcase_add_test(tcase, free_lanes_share_a_long_queue);
    tcase_add_test(tcase, an_outage_loses_nothing_and_is_told_once);
    tcase_add_test(tcase, a_first_failure_is_repeated_at_once_and_is_no_outage);
    tcase_add_test(tcase, a_refusal_of_everything_is_an_outage);
    tcase_add_test(tcase, a_poisonous_operation_fails_alone);
    tcase_add_test(tcase, who_gives_up_is_answered_at_once);
    tcase_add_test(tcase,
                   who_gives_up_during_an_outage_does_not_wait_for_its_end);
    tcase_add_test(tcase, a_newcomer_during_an_outage_is_told_of_it);
    tcase_add_test(tcase, a_call_that_is_late_leaves_safely);
    tcase_add_test(tcase, a_late_call_names_the_reason);
    tcase_add_test(tcase, a_claim_may_bring_its_key_itself);
    tcase_add_test(tcase, a_late_call_does_not_hurry_what_was_in_its_batch);
    tcase_add_test(tcase, a_call_that_is_refused_says_so_at_once);
    tcase_add_test(tcase, arguments_are_checked);
    tcase_add_test(tcase, many_keys_are_asked_once_each);
    tcase_add_test(tcase, the_timer_purges_in_chunks_and_goes_on);
    tcase_add_test(tcase, a_purge_by_call_goes_through_everything);
    tcase_add_test(tcase, counting_waits_for_the_server_until_its_time_is_up);
    tcase_add_test(tcase, many_threads_call_at_once);
    return test_run(suite);
}
