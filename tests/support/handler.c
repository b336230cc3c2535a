#include "handler.h"

#include "support.h"

#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

enum { PLANS_MAX = 16, TAKES_MAX = 256, BEGINS_MAX = 16 };

typedef struct plan {
    const char *key; /* NULL: any */
    idem_outcome_t outcome;
    size_t left;
    bool is_endless;
} plan_t;

typedef struct record {
    UT_hash_handle hh;
    size_t runs;
    size_t running;
    uint32_t attempts;
    int64_t began_ms[BEGINS_MAX];
    char key[];
} record_t;

struct handler {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Guarded by mutex. */
    bool held;
    int64_t duration_ms;
    void (*hook)(idem_delivery_t *delivery, void *user);
    void *hook_user;
    plan_t plans[PLANS_MAX];
    size_t plans_count;
    record_t *records;
    size_t running;
    handler_counts_t counts;
    idem_delivery_t *deferred[TAKES_MAX];
    size_t deferred_count;
    size_t taken;
};

handler_t *handler_create(void)
{
    handler_t *handler = calloc(1, sizeof *handler);

    ck_assert_ptr_nonnull(handler);
    ck_assert_int_eq(pthread_mutex_init(&handler->mutex, NULL), 0);
    ck_assert_int_eq(pthread_cond_init(&handler->changed, NULL), 0);
    return handler;
}

void handler_destroy(handler_t *handler)
{
    record_t *record = NULL;
    record_t *next = NULL;

    if (handler == NULL) {
        return;
    }
    HASH_ITER(hh, handler->records, record, next) {
        HASH_DEL(handler->records, record);
        free(record);
    }
    pthread_cond_destroy(&handler->changed);
    pthread_mutex_destroy(&handler->mutex);
    free(handler);
}

static record_t *find_locked(handler_t *handler, const char *key)
{
    record_t *record = NULL;

    HASH_FIND_STR(handler->records, key, record);
    return record;
}

static record_t *record_locked(handler_t *handler, const char *key)
{
    record_t *record = find_locked(handler, key);
    size_t size = strlen(key) + 1;

    if (record == NULL) {
        record = calloc(1, sizeof *record + size);
        if (record == NULL) {
            abort();
        }
        memcpy(record->key, key, size);
        HASH_ADD_STR(handler->records, key, record);
        handler->counts.keys++;
    }
    return record;
}

static record_t *begin_locked(handler_t *handler, idem_delivery_t *delivery)
{
    const char *key = idem_delivery_key(delivery);
    record_t *record = record_locked(handler, key != NULL ? key : "");
    uint32_t deliveries = idem_delivery_count(delivery);

    if (record->runs < BEGINS_MAX) {
        record->began_ms[record->runs] = test_now_ms();
    }
    record->runs++;
    record->attempts = idem_delivery_attempts(delivery);
    handler->counts.begun++;
    handler->counts.repeated += record->runs == 2;
    /* Messages without an id are not one another. */
    handler->counts.overlaps += key != NULL && record->running > 0;
    record->running++;
    handler->running++;
    if (handler->running > handler->counts.most_at_once) {
        handler->counts.most_at_once = handler->running;
    }
    if (deliveries > handler->counts.deliveries) {
        handler->counts.deliveries = deliveries;
    }
    return record;
}

static idem_outcome_t outcome_locked(handler_t *handler, const char *key)
{
    for (size_t i = 0; i < handler->plans_count; i++) {
        plan_t *plan = &handler->plans[i];

        if ((plan->key == NULL || strcmp(plan->key, key) == 0) &&
            (plan->is_endless || plan->left > 0)) {
            plan->left -= plan->is_endless ? 0 : 1;
            return plan->outcome;
        }
    }
    return IDEM_ACCEPT;
}

static void end_locked(handler_t *handler, record_t *record,
                       idem_delivery_t *delivery, idem_outcome_t outcome)
{
    record->running--;
    handler->running--;
    handler->counts.ended++;
    handler->counts.lost += idem_delivery_is_lease_lost(delivery);
    if (outcome == IDEM_DEFER) {
        if (handler->deferred_count == TAKES_MAX) {
            abort();
        }
        handler->deferred[handler->deferred_count++] = delivery;
    }
}

idem_outcome_t handler_run(idem_delivery_t *delivery, void *user)
{
    handler_t *handler = user;
    record_t *record = NULL;
    int64_t duration_ms = 0;
    idem_outcome_t outcome = IDEM_RETRY;
    void (*hook)(idem_delivery_t * delivery, void *user) = NULL;

    pthread_mutex_lock(&handler->mutex);
    record = begin_locked(handler, delivery);
    duration_ms = handler->duration_ms;
    hook = handler->hook;
    pthread_mutex_unlock(&handler->mutex);

    if (hook != NULL) {
        hook(delivery, handler->hook_user);
    }
    if (duration_ms > 0) {
        (void)poll(NULL, 0, (int)duration_ms);
    }

    pthread_mutex_lock(&handler->mutex);
    while (handler->held) {
        pthread_cond_wait(&handler->changed, &handler->mutex);
    }
    outcome = outcome_locked(handler, record->key);
    end_locked(handler, record, delivery, outcome);
    pthread_mutex_unlock(&handler->mutex);
    return outcome == IDEM_REJECT
               ? idem_delivery_reject(delivery, "test:refused", "told to")
               : outcome;
}

void handler_plan(handler_t *handler, const char *key, idem_outcome_t outcome,
                  size_t times)
{
    pthread_mutex_lock(&handler->mutex);
    ck_assert_uint_lt(handler->plans_count, PLANS_MAX);
    handler->plans[handler->plans_count++] =
        (plan_t){key, outcome, times, times == 0};
    pthread_mutex_unlock(&handler->mutex);
}

void handler_hold(handler_t *handler, bool held)
{
    pthread_mutex_lock(&handler->mutex);
    handler->held = held;
    pthread_cond_broadcast(&handler->changed);
    pthread_mutex_unlock(&handler->mutex);
}

void handler_set_duration(handler_t *handler, int64_t duration_ms)
{
    pthread_mutex_lock(&handler->mutex);
    handler->duration_ms = duration_ms;
    pthread_mutex_unlock(&handler->mutex);
}

void handler_set_hook(handler_t *handler,
                      void (*hook)(idem_delivery_t *delivery, void *user),
                      void *user)
{
    pthread_mutex_lock(&handler->mutex);
    handler->hook = hook;
    handler->hook_user = user;
    pthread_mutex_unlock(&handler->mutex);
}

handler_counts_t handler_counts(handler_t *handler)
{
    handler_counts_t counts;

    pthread_mutex_lock(&handler->mutex);
    counts = handler->counts;
    pthread_mutex_unlock(&handler->mutex);
    return counts;
}

size_t handler_runs(handler_t *handler, const char *key)
{
    const record_t *record = NULL;
    size_t runs = 0;

    pthread_mutex_lock(&handler->mutex);
    record = find_locked(handler, key);
    runs = record != NULL ? record->runs : 0;
    pthread_mutex_unlock(&handler->mutex);
    return runs;
}

uint32_t handler_attempts(handler_t *handler, const char *key)
{
    const record_t *record = NULL;
    uint32_t attempts = 0;

    pthread_mutex_lock(&handler->mutex);
    record = find_locked(handler, key);
    attempts = record != NULL ? record->attempts : 0;
    pthread_mutex_unlock(&handler->mutex);
    return attempts;
}

int64_t handler_began_ms(handler_t *handler, const char *key, size_t n)
{
    const record_t *record = NULL;
    int64_t began_ms = -1;

    pthread_mutex_lock(&handler->mutex);
    record = find_locked(handler, key);
    if (record != NULL && n < record->runs && n < BEGINS_MAX) {
        began_ms = record->began_ms[n];
    }
    pthread_mutex_unlock(&handler->mutex);
    return began_ms;
}

typedef struct wish {
    handler_t *handler;
    size_t begun, ended, keys, deferred;
} wish_t;

static bool is_granted(void *user)
{
    const wish_t *wish = user;
    handler_t *handler = wish->handler;
    bool is = false;

    pthread_mutex_lock(&handler->mutex);
    is = handler->counts.begun >= wish->begun &&
         handler->counts.ended >= wish->ended &&
         handler->counts.keys >= wish->keys &&
         handler->deferred_count >= wish->deferred;
    pthread_mutex_unlock(&handler->mutex);
    return is;
}

bool handler_wait_begun(handler_t *handler, size_t runs, int64_t timeout_ms)
{
    wish_t wish = {.handler = handler, .begun = runs};

    return test_wait(is_granted, &wish, timeout_ms);
}

bool handler_wait_ended(handler_t *handler, size_t runs, int64_t timeout_ms)
{
    wish_t wish = {.handler = handler, .ended = runs};

    return test_wait(is_granted, &wish, timeout_ms);
}

bool handler_wait_keys(handler_t *handler, size_t keys, int64_t timeout_ms)
{
    wish_t wish = {.handler = handler, .keys = keys};

    return test_wait(is_granted, &wish, timeout_ms);
}

idem_delivery_t *handler_take(handler_t *handler, int64_t timeout_ms)
{
    wish_t wish = {.handler = handler, .deferred = handler->taken + 1};
    idem_delivery_t *delivery = NULL;

    if (test_wait(is_granted, &wish, timeout_ms)) {
        pthread_mutex_lock(&handler->mutex);
        delivery = handler->deferred[handler->taken++];
        pthread_mutex_unlock(&handler->mutex);
    }
    return delivery;
}
