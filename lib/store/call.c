#include "store/store_internal.h"

#include "base/clock.h"
#include "base/error.h"
#include "identity/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The blocking operations. Each is a submitter of its own, so that it queues
 * fairly with consumers, and lives on the heap with copies of its arguments:
 * when its time is up, the caller leaves at once, and the lane that still has
 * its operations frees it. */
typedef struct call {
    idemi_submitter_t submitter; /* first member */
    bool detached;               /* guarded by the store's mutex */
    size_t count;
    idemi_op_t *ops;
    char *strings; /* keys and tokens */
} call_t;

static void call_free(call_t *call)
{
    if (call) {
        idemi_submitter_finish(&call->submitter);
        free(call->ops);
        free(call->strings);
        free(call);
    }
}

void idemi_call_answered_locked(idemi_submitter_t *submitter)
{
    call_t *call = (call_t *)submitter;

    if (call->detached) {
        call_free(call);
    } else {
        (void)pthread_cond_broadcast(&submitter->changed);
    }
}

static void never_run(idemi_task_t *task, int64_t now_ms)
{
    (void)task;
    (void)now_ms;
}

/* count operations of one kind; token may be NULL. */
static call_t *call_create(idem_store_t *store, idemi_op_kind_t kind,
                           const char *const *keys, size_t count,
                           const char *token)
{
    call_t *call = calloc(1, sizeof *call);
    size_t bytes = token ? strlen(token) + 1 : 1;
    char *next;

    if (!call) {
        return NULL;
    }
    if (!idemi_submitter_init(&call->submitter, store, NULL, NULL, NULL)) {
        free(call);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        bytes += strlen(keys[i]) + 1;
    }
    call->count = count;
    call->ops = calloc(count, sizeof *call->ops);
    call->strings = malloc(bytes);
    if (!call->ops || !call->strings) {
        call_free(call);
        return NULL;
    }
    next = call->strings;
    bytes = token ? strlen(token) + 1 : 1;
    memcpy(next, token ? token : "", bytes);
    next += bytes;
    for (size_t i = 0; i < count; i++) {
        idemi_op_t *op = &call->ops[i];
        op->task.run = never_run;
        op->kind = kind;
        op->token = call->strings;
        op->key = next;
        op->key_size = strlen(keys[i]);
        memcpy(next, keys[i], op->key_size + 1);
        next += op->key_size + 1;
    }
    return call;
}

/* Submits and waits. Afterwards the call is the caller's to free, unless the
 * time was up. */
static idem_status_t call_run(call_t **running, int64_t end_ms,
                              int64_t timeout_ms, idem_error_t *err)
{
    call_t *call = *running;
    idem_store_t *store = call->submitter.store;
    idemi_tasks_t ops = {NULL, NULL};
    idem_status_t status = IDEM_OK;
    bool is_free = true;

    for (size_t i = 0; i < call->count; i++) {
        idemi_tasks_add(&ops, &call->ops[i].task);
    }
    (void)pthread_mutex_lock(&store->mutex);
    if (store->stopping) {
        (void)pthread_mutex_unlock(&store->mutex);
        return idemi_error(err, IDEM_ERR_STATE, "the store is being destroyed");
    }
    idemi_submitter_queue_locked(&call->submitter, &ops);
    while (call->submitter.pending > 0 && idemi_now_ms() < end_ms) {
        (void)idemi_wait_until(&call->submitter.changed, &store->mutex, end_ms);
    }
    if (call->submitter.pending > 0) {
        const char *reason =
            atomic_load(&store->available) ? "" : store->last_error.message;
        status =
            idemi_error(err, IDEM_ERR_TIMEOUT,
                        "no answer from the store within %lld ms%s%.400s",
                        (long long)timeout_ms, *reason ? ": " : "", reason);
        if (err && *reason) {
            memcpy(err->sqlstate, store->last_error.sqlstate,
                   sizeof err->sqlstate);
        }
        idemi_submitter_unqueue_locked(&call->submitter, &ops);
        for (idemi_task_t *task = ops.first; task; task = task->next) {
            call->submitter.pending--;
        }
        call->submitter.abandoned = true;
        is_free = call->submitter.pending == 0;
        call->detached = !is_free;
        (void)pthread_cond_broadcast(&store->again);
    } else {
        for (size_t i = 0; i < call->count; i++) {
            if (call->ops[i].answer == IDEMI_ANSWER_FAILED) {
                status = call->ops[i].status;
                if (err) {
                    *err = call->submitter.failure;
                    err->status = status;
                }
                break;
            }
        }
    }
    (void)pthread_mutex_unlock(&store->mutex);
    if (!is_free) {
        *running = NULL;
    }
    return status;
}

static idem_status_t check_key(const char *key, idem_error_t *err)
{
    size_t size = key ? strnlen(key, IDEM_KEY_BYTES + 1) : 0;

    if (size == 0 || size > IDEM_KEY_BYTES) {
        return idemi_error(err, IDEM_ERR_ARG, "key is %s: give 1 to %d bytes",
                           !key        ? "NULL"
                           : size == 0 ? "empty"
                                       : "too long",
                           IDEM_KEY_BYTES);
    }
    for (size_t i = 0; i < size;) {
        size_t step = idemi_utf8_character(key + i, size - i);
        if (step == 0) {
            return idemi_error(err, IDEM_ERR_ARG,
                               "key is not valid UTF-8 at byte %lu: encode it",
                               (unsigned long)i);
        }
        i += step;
    }
    return IDEM_OK;
}

static idem_status_t check_timeout(int64_t timeout_ms, idem_error_t *err)
{
    if (timeout_ms < 0 && timeout_ms != IDEM_WAIT_FOREVER) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "timeout_ms is %lld: give 0 or more, or "
                           "IDEM_WAIT_FOREVER",
                           (long long)timeout_ms);
    }
    return IDEM_OK;
}

static idem_status_t null_argument(const char *name, idem_error_t *err)
{
    return idemi_error(err, IDEM_ERR_ARG, "%s is NULL", name);
}

static idem_status_t no_memory(idem_error_t *err)
{
    return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
}

/* One operation from end to end; *op receives the answer. */
static idem_status_t call_one(idem_store_t *store, idemi_op_kind_t kind,
                              const char *key, const char *token,
                              bool has_failed, int64_t end_ms,
                              int64_t timeout_ms, idemi_op_t *op,
                              idem_error_t *err)
{
    call_t *call = call_create(store, kind, &key, 1, token);
    idem_status_t status;

    if (!call) {
        return no_memory(err);
    }
    call->ops[0].failed = has_failed;
    status = call_run(&call, end_ms, timeout_ms, err);
    if (status == IDEM_OK) {
        *op = call->ops[0];
    }
    call_free(call);
    return status;
}

static int64_t remaining_now(const idemi_op_t *op)
{
    int64_t left = op->remaining_ms - (idemi_now_ms() - op->sent_at_ms);

    return left > 0 ? left : 0;
}

idem_status_t idem_store_claim(idem_store_t *store, const char *key,
                               idem_claim_t *claim, int64_t timeout_ms,
                               idem_error_t *err)
{
    int64_t end_ms = idemi_end_ms(timeout_ms);
    idemi_op_t op = {.answer = IDEMI_ANSWER_NONE};
    bool suspect = false;
    idem_status_t status;

    if (!store || !claim) {
        return null_argument(store ? "claim" : "store", err);
    }
    status = check_key(key, err);
    if (status == IDEM_OK) {
        status = check_timeout(timeout_ms, err);
    }
    if (status != IDEM_OK) {
        return status;
    }
    /* The same key again is a call whose answer was lost: the token tells the
     * store that the claim it finds is this one. */
    if (claim->token[0] == '\0' || strcmp(claim->key, key) != 0) {
        size_t size = strlen(key) + 1;
        char copy[IDEM_KEY_BYTES + 1]; /* key may be claim->key */
        memcpy(copy, key, size);
        memset(claim, 0, sizeof *claim);
        memcpy(claim->key, copy, size);
        (void)snprintf(claim->token, sizeof claim->token, "%s-%llx",
                       store->token_prefix,
                       (unsigned long long)atomic_fetch_add(&store->claims, 1));
    }
    status = call_one(store, IDEMI_OP_CLAIM, claim->key, claim->token, false,
                      end_ms, timeout_ms, &op, err);
    if (status == IDEM_OK && op.answer == IDEMI_ANSWER_EXPIRED) {
        suspect = op.suspect;
        status = call_one(store, IDEMI_OP_TAKEOVER, claim->key, claim->token,
                          false, end_ms, timeout_ms, &op, err);
    }
    if (status != IDEM_OK) {
        return status;
    }
    claim->state = op.answer == IDEMI_ANSWER_NEW    ? IDEM_CLAIM_NEW
                   : op.answer == IDEMI_ANSWER_DONE ? IDEM_CLAIM_DONE
                                                    : IDEM_CLAIM_IN_PROGRESS;
    claim->is_takeover = suspect && op.answer == IDEMI_ANSWER_NEW;
    claim->attempts = op.attempts;
    claim->remaining_ms =
        op.answer == IDEMI_ANSWER_DONE ? 0 : remaining_now(&op);
    return IDEM_OK;
}

/* The arguments of confirm, release and renew. */
static idem_status_t check_claim(const idem_store_t *store,
                                 const idem_claim_t *claim, int64_t timeout_ms,
                                 idem_error_t *err)
{
    idem_status_t status;

    if (!store || !claim) {
        return null_argument(store ? "claim" : "store", err);
    }
    if (!memchr(claim->key, '\0', sizeof claim->key) ||
        !memchr(claim->token, '\0', sizeof claim->token) ||
        claim->token[0] == '\0') {
        return idemi_error(err, IDEM_ERR_ARG,
                           "claim has no token: pass what idem_store_claim() "
                           "filled in");
    }
    status = check_key(claim->key, err);
    return status == IDEM_OK ? check_timeout(timeout_ms, err) : status;
}

static idem_status_t lost(const idem_claim_t *claim, idem_error_t *err)
{
    return idemi_error(err, IDEM_ERR_LEASE_LOST,
                       "the claim on \"%.200s\" is no longer ours", claim->key);
}

idem_status_t idem_store_confirm(idem_store_t *store, const idem_claim_t *claim,
                                 int64_t timeout_ms, idem_error_t *err)
{
    idem_status_t status = check_claim(store, claim, timeout_ms, err);
    idemi_op_t op = {.answer = IDEMI_ANSWER_NONE};

    if (status == IDEM_OK && claim->state != IDEM_CLAIM_NEW) {
        status = idemi_error(err, IDEM_ERR_ARG,
                             "claim->state is %d: only a claim that was "
                             "IDEM_CLAIM_NEW can be confirmed",
                             (int)claim->state);
    }
    if (status == IDEM_OK) {
        status =
            call_one(store, IDEMI_OP_CONFIRM, claim->key, claim->token, false,
                     idemi_end_ms(timeout_ms), timeout_ms, &op, err);
    }
    if (status == IDEM_OK && op.answer != IDEMI_ANSWER_DONE) {
        status = lost(claim, err);
    }
    return status;
}

idem_status_t idem_store_release(idem_store_t *store, const idem_claim_t *claim,
                                 bool failed, int64_t timeout_ms,
                                 idem_error_t *err)
{
    idem_status_t status = check_claim(store, claim, timeout_ms, err);
    idemi_op_t op = {.answer = IDEMI_ANSWER_NONE};

    if (status == IDEM_OK) {
        status =
            call_one(store, IDEMI_OP_RELEASE, claim->key, claim->token, failed,
                     idemi_end_ms(timeout_ms), timeout_ms, &op, err);
    }
    return status;
}

idem_status_t idem_store_renew(idem_store_t *store, idem_claim_t *claim,
                               int64_t timeout_ms, idem_error_t *err)
{
    idem_status_t status = check_claim(store, claim, timeout_ms, err);
    idemi_op_t op = {.answer = IDEMI_ANSWER_NONE};

    if (status == IDEM_OK) {
        status =
            call_one(store, IDEMI_OP_RENEW, claim->key, claim->token, false,
                     idemi_end_ms(timeout_ms), timeout_ms, &op, err);
    }
    if (status == IDEM_OK && op.answer != IDEMI_ANSWER_NEW) {
        status = lost(claim, err);
    }
    if (status == IDEM_OK) {
        claim->remaining_ms = remaining_now(&op);
    }
    return status;
}

/* Distinct keys, sorted; place[i] is where keys[i] went. */
typedef struct distinct {
    const char **keys;
    size_t *places;
    size_t count;
} distinct_t;

typedef struct indexed_key {
    const char *key;
    size_t index;
} indexed_key_t;

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const indexed_key_t *)a)->key,
                  ((const indexed_key_t *)b)->key);
}

static void distinct_finish(distinct_t *distinct)
{
    free((void *)distinct->keys);
    free(distinct->places);
}

static bool distinct_init(distinct_t *distinct, const char *const *keys,
                          size_t count)
{
    indexed_key_t *sorted = calloc(count, sizeof *sorted);

    distinct->keys = calloc(count, sizeof *distinct->keys);
    distinct->places = calloc(count, sizeof *distinct->places);
    distinct->count = 0;
    if (!sorted || !distinct->keys || !distinct->places) {
        free(sorted);
        distinct_finish(distinct);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        sorted[i] = (indexed_key_t){keys[i], i};
    }
    qsort(sorted, count, sizeof *sorted, compare_keys);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(sorted[i].key, sorted[i - 1].key) != 0) {
            distinct->keys[distinct->count++] = sorted[i].key;
        }
        distinct->places[sorted[i].index] = distinct->count - 1;
    }
    free(sorted);
    return true;
}

/* FIND or RECORD for many keys. */
static idem_status_t call_many(idem_store_t *store, idemi_op_kind_t kind,
                               const char *const *keys, size_t count,
                               bool *processed, int64_t timeout_ms,
                               idem_error_t *err)
{
    int64_t end_ms = idemi_end_ms(timeout_ms);
    idem_status_t status = check_timeout(timeout_ms, err);
    distinct_t distinct;
    call_t *call;

    if (!store) {
        return null_argument("store", err);
    }
    if (!keys && count > 0) {
        return null_argument("keys", err);
    }
    for (size_t i = 0; status == IDEM_OK && i < count; i++) {
        status = check_key(keys[i], err);
    }
    if (status != IDEM_OK || count == 0) {
        return status;
    }
    if (!distinct_init(&distinct, keys, count)) {
        return no_memory(err);
    }
    call = call_create(store, kind, distinct.keys, distinct.count, NULL);
    status = call ? call_run(&call, end_ms, timeout_ms, err) : no_memory(err);
    for (size_t i = 0; processed && status == IDEM_OK && i < count; i++) {
        processed[i] =
            call->ops[distinct.places[i]].answer == IDEMI_ANSWER_DONE;
    }
    call_free(call);
    distinct_finish(&distinct);
    return status;
}

idem_status_t idem_store_is_confirmed(idem_store_t *store, const char *key,
                                      bool *confirmed, int64_t timeout_ms,
                                      idem_error_t *err)
{
    if (!confirmed) {
        return null_argument("confirmed", err);
    }
    return call_many(store, IDEMI_OP_FIND, &key, 1, confirmed, timeout_ms, err);
}

idem_status_t idem_store_find_processed(idem_store_t *store,
                                        const char *const *keys, size_t count,
                                        bool *processed, int64_t timeout_ms,
                                        idem_error_t *err)
{
    if (!processed && count > 0) {
        return null_argument("processed", err);
    }
    return call_many(store, IDEMI_OP_FIND, keys, count, processed, timeout_ms,
                     err);
}

idem_status_t idem_store_record_processed(idem_store_t *store,
                                          const char *const *keys, size_t count,
                                          int64_t timeout_ms, idem_error_t *err)
{
    return call_many(store, IDEMI_OP_RECORD, keys, count, NULL, timeout_ms,
                     err);
}
