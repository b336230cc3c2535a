#include "store/store_internal.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

#include <string.h>
#include <utlist.h>

/* The pause before a batch is repeated. */
#define RETRY_MIN_MS 100
#define RETRY_MAX_MS 5000

/* FNV-1a. Keys come from strangers, but a lane has 500 of them at most, so
 * that chains stay short enough even for one who makes them collide. */
static uint64_t hash_of(const char *key, size_t size)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ (unsigned char)key[i]) * UINT64_C(1099511628211);
    }
    return hash;
}

static bool is_busy_locked(const idem_store_t *store, const idemi_op_t *op,
                           uint64_t hash)
{
    for (const idemi_slot_t *slot = store->busy[hash & store->busy_mask]; slot;
         slot = slot->busy_next) {
        if (slot->hash == hash && slot->op->key_size == op->key_size &&
            memcmp(slot->op->key, op->key, op->key_size) == 0) {
            return true;
        }
    }
    return false;
}

static void take_locked(idemi_lane_t *lane, idemi_submitter_t *submitter,
                        idemi_op_t *op, uint64_t hash)
{
    idemi_slot_t **bucket = &lane->store->busy[hash & lane->store->busy_mask];
    idemi_slot_t *slot = &lane->slots[lane->count];

    lane->batch[lane->count++] = slot;
    lane->store->queued--;
    *slot = (idemi_slot_t){op, submitter, hash, *bucket};
    *bucket = slot;
}

static void free_key_locked(idem_store_t *store, const idemi_slot_t *slot)
{
    idemi_slot_t **link = &store->busy[slot->hash & store->busy_mask];

    while (*link != slot) {
        link = &(*link)->busy_next;
    }
    *link = slot->busy_next;
}

/* Records and other operations never share a batch: both may have to wait for
 * rows of others, in two statements, so that two such batches could wait for
 * each other. */
static bool fits(const idemi_lane_t *lane, const idemi_op_t *op)
{
    return lane->count < lane->limit &&
           (lane->count == 0 || (lane->slots[0].op->kind == IDEMI_OP_RECORD) ==
                                    (op->kind == IDEMI_OP_RECORD));
}

static void gather_from_locked(idemi_lane_t *lane, idemi_submitter_t *submitter)
{
    idemi_tasks_t left = {NULL, NULL};
    idemi_task_t *task = submitter->queue.first;

    while (task && lane->count < lane->limit) {
        idemi_op_t *op = (idemi_op_t *)task;
        uint64_t hash = hash_of(op->key, op->key_size);
        idemi_task_t *next = task->next;
        if (fits(lane, op) && !is_busy_locked(lane->store, op, hash)) {
            take_locked(lane, submitter, op, hash);
        } else {
            idemi_tasks_add(&left, task);
        }
        task = next;
    }
    if (task) {
        idemi_tasks_t rest = {task, submitter->queue.last};
        idemi_tasks_join(&left, &rest);
    }
    submitter->queue = left;
}

/* The submitter is in no list; it is put at the end if something is left. */
static void gather_one_locked(idemi_lane_t *lane, idemi_submitter_t *submitter)
{
    gather_from_locked(lane, submitter);
    submitter->is_ready = submitter->queue.first != NULL;
    if (submitter->is_ready) {
        DL_APPEND(lane->store->ready, submitter);
    }
}

/* Takes what waits. Who is first now is last the next time. */
static bool gather_locked(idemi_lane_t *lane)
{
    idem_store_t *store = lane->store;
    const idemi_submitter_t *last = NULL;
    bool is_last = false;

    lane->count = 0;
    lane->limit =
        store->queued / (store->config.lanes - store->working_lanes) + 1;
    if (lane->limit < IDEMI_SHARE_OPS || lane->limit > IDEMI_BATCH_OPS) {
        lane->limit = IDEMI_BATCH_OPS;
    }
    while (store->ready && !is_last && lane->count < lane->limit) {
        idemi_submitter_t *submitter = store->ready;
        if (!last) {
            last = submitter->prev; /* of the head: the list's end */
        }
        is_last = submitter == last;
        DL_DELETE(store->ready, submitter);
        gather_one_locked(lane, submitter);
    }
    if (store->ready && lane->count > 0 && store->idle_lanes > 0) {
        (void)pthread_cond_signal(&store->work);
    }
    return lane->count > 0;
}

/* Sends answered operations back to their submitters. */
static void deliver(idemi_lane_t *lane, size_t from, size_t to)
{
    idem_store_t *store = lane->store;

    (void)pthread_mutex_lock(&store->mutex);
    for (size_t i = from; i < to; i++) {
        free_key_locked(store, lane->batch[i]);
    }
    (void)pthread_mutex_unlock(&store->mutex);

    while (from < to) {
        idemi_submitter_t *submitter = lane->batch[from]->submitter;
        idemi_tasks_t answers = {NULL, NULL};
        size_t count = 0;
        while (from < to && lane->batch[from]->submitter == submitter) {
            idemi_tasks_add(&answers, &lane->batch[from++]->op->task);
            count++;
        }
        if (submitter->mailbox) {
            idemi_mailbox_post(submitter->mailbox, &answers);
        }
        (void)pthread_mutex_lock(&store->mutex);
        submitter->pending -= count;
        if (submitter->pending == 0) {
            if (submitter->mailbox) {
                (void)pthread_cond_broadcast(&submitter->changed);
            } else {
                idemi_call_answered_locked(submitter);
            }
        }
        (void)pthread_mutex_unlock(&store->mutex);
    }
}

static void fail_locked(idemi_slot_t *slot, const idem_error_t *err)
{
    slot->op->answer = IDEMI_ANSWER_FAILED;
    slot->op->status = err->status;
    slot->submitter->failure = *err;
}

/* Answers with FAILED what nobody waits for any more, and blocking calls to
 * which the database said no: their callers decide themselves. Returns where
 * the rest of the batch begins. */
static size_t give_up(idemi_lane_t *lane, size_t from, const idem_error_t *err)
{
    idem_store_t *store = lane->store;
    idemi_slot_t *rest[IDEMI_BATCH_OPS];
    size_t given_up = from;
    size_t kept = 0;

    (void)pthread_mutex_lock(&store->mutex);
    for (size_t i = from; i < lane->count; i++) {
        idemi_slot_t *slot = lane->batch[i];
        bool is_call = slot->submitter->mailbox == NULL;
        if (store->stopping || slot->submitter->abandoned ||
            (is_call && err->status == IDEM_ERR_STORE)) {
            fail_locked(slot, err);
            lane->batch[given_up++] = slot;
        } else {
            rest[kept++] = slot;
        }
    }
    for (size_t i = 0; i < kept; i++) {
        lane->batch[given_up + i] = rest[i];
    }
    (void)pthread_mutex_unlock(&store->mutex);
    deliver(lane, from, given_up);
    return given_up;
}

/* The store answers. */
static void succeeded(idemi_lane_t *lane)
{
    idem_store_t *store = lane->store;
    bool is_news = false;

    lane->works = true;
    if (atomic_load(&store->available)) {
        return;
    }
    (void)pthread_mutex_lock(&store->mutex);
    if (!atomic_load(&store->available)) {
        is_news = true;
        atomic_store(&store->available, true);
        store->recoveries++;
        /* Lanes that wait to repeat theirs need wait no longer. */
        (void)pthread_cond_broadcast(&store->again);
    }
    (void)pthread_mutex_unlock(&store->mutex);
    if (is_news) {
        idemi_log(&store->config.logger, IDEM_LOG_INFO,
                  "The store answers again.");
        idemi_store_announce(store);
    }
}

/* The store does not answer, or refuses everything. */
static void failed(idemi_lane_t *lane, const idem_error_t *err)
{
    idem_store_t *store = lane->store;
    bool is_news;

    (void)pthread_mutex_lock(&store->mutex);
    is_news = atomic_load(&store->available);
    atomic_store(&store->available, false);
    store->last_error = *err;
    (void)pthread_mutex_unlock(&store->mutex);
    if (is_news) {
        idemi_log(&store->config.logger,
                  err->status == IDEM_ERR_STORE ? IDEM_LOG_ERROR
                                                : IDEM_LOG_WARNING,
                  "The store does not answer; nothing is lost, it is tried "
                  "again. status=%s sqlstate=%s reason=\"%s\"",
                  idem_status_name(err->status), err->sqlstate, err->message);
    }
    idemi_store_announce(store);
}

/* Waits before the batch is repeated from `from` on: until its time, or until
 * another lane found the store well again, or until something may be given up.
 */
static void pause_lane(idemi_lane_t *lane, size_t from, uint32_t tries)
{
    idem_store_t *store = lane->store;
    int64_t end_ms = idemi_end_ms(
        idemi_backoff_ms(&lane->random, tries, RETRY_MIN_MS, RETRY_MAX_MS));
    uint64_t recoveries;

    (void)pthread_mutex_lock(&store->mutex);
    recoveries = store->recoveries;
    while (!store->stopping && store->recoveries == recoveries &&
           idemi_now_ms() < end_ms) {
        bool is_abandoned = false;
        for (size_t i = from; i < lane->count && !is_abandoned; i++) {
            is_abandoned = lane->batch[i]->submitter->abandoned;
        }
        if (is_abandoned ||
            !idemi_wait_until(&store->again, &store->mutex, end_ms)) {
            break;
        }
    }
    (void)pthread_mutex_unlock(&store->mutex);
}

/* SQLSTATE classes 22 (data) and 23 (constraints) are about some row of the
 * batch; the others would be neighbours of the guilty one. */
static bool is_poison(const idem_error_t *err)
{
    return err->status == IDEM_ERR_STORE &&
           (strncmp(err->sqlstate, "22", 2) == 0 ||
            strncmp(err->sqlstate, "23", 2) == 0);
}

static void refuse(idemi_lane_t *lane, size_t index, const idem_error_t *err)
{
    idem_store_t *store = lane->store;

    (void)atomic_fetch_add(&store->errors, 1);
    idemi_log(&store->config.logger, IDEM_LOG_WARNING,
              "The database refuses an operation. sqlstate=%s key=\"%.255s\" "
              "reason=\"%s\"",
              err->sqlstate, lane->batch[index]->op->key, err->message);
    (void)pthread_mutex_lock(&store->mutex);
    fail_locked(lane->batch[index], err);
    (void)pthread_mutex_unlock(&store->mutex);
    deliver(lane, index, index + 1);
}

static idem_status_t execute(idemi_lane_t *lane, size_t from, size_t count,
                             idem_error_t *err)
{
    idem_store_t *store = lane->store;
    idem_status_t status;

    for (size_t i = 0; i < count; i++) {
        lane->ops[i] = lane->batch[from + i]->op;
    }
    *err = (idem_error_t){.status = IDEM_OK};
    status =
        store->backend->table->execute(lane->session, lane->ops, count, err);
    if (status == IDEM_OK) {
        (void)atomic_fetch_add(&store->batches, 1);
        (void)atomic_fetch_add(&store->operations, count);
    } else {
        err->status = status;
    }
    return status;
}

/* Has the batch answered, however long it takes. */
static void work(idemi_lane_t *lane)
{
    size_t done = 0;
    size_t size = lane->count; /* smaller while a guilty one is looked for */
    uint32_t tries = 0;
    idem_error_t err;

    while (done < lane->count) {
        if (size > lane->count - done) {
            size = lane->count - done;
        }
        if (execute(lane, done, size, &err) == IDEM_OK) {
            succeeded(lane);
            deliver(lane, done, done + size);
            done += size;
            size *= 2;
            tries = 0;
        } else if (is_poison(&err)) {
            succeeded(lane);
            if (size > 1) {
                size /= 2;
            } else {
                refuse(lane, done++, &err);
                size = lane->count;
            }
        } else if (lane->works && err.status != IDEM_ERR_STORE) {
            /* A connection that stood idle may have died unnoticed: that is
             * no outage until a new one fails too. */
            lane->works = false;
        } else {
            lane->works = false;
            failed(lane, &err);
            done = give_up(lane, done, &err);
            if (done < lane->count) {
                pause_lane(lane, done, ++tries);
                done = give_up(lane, done, &err);
            }
            size = lane->count;
        }
    }
}

static void *run(void *argument)
{
    idemi_lane_t *lane = argument;
    idem_store_t *store = lane->store;

    (void)pthread_mutex_lock(&store->mutex);
    for (;;) {
        if (gather_locked(lane)) {
            store->working_lanes++;
            (void)pthread_mutex_unlock(&store->mutex);
            work(lane);
            (void)pthread_mutex_lock(&store->mutex);
            store->working_lanes--;
        } else if (store->stopping) {
            break;
        } else {
            store->idle_lanes++;
            (void)pthread_cond_wait(&store->work, &store->mutex);
            store->idle_lanes--;
        }
    }
    (void)pthread_mutex_unlock(&store->mutex);
    return NULL;
}

idem_status_t idemi_lane_start(idemi_lane_t *lane, idem_store_t *store,
                               idem_error_t *err)
{
    idem_status_t status;

    lane->store = store;
    (void)idemi_random_bytes(&lane->random, sizeof lane->random);
    status = store->backend->table->open(store->backend, &lane->session, err);
    if (status != IDEM_OK) {
        return status;
    }
    if (idemi_thread_create(&lane->thread, run, lane) != 0) {
        return idemi_error(err, IDEM_ERR_SYSTEM,
                           "no thread for a connection of the store");
    }
    lane->has_thread = true;
    return IDEM_OK;
}

void idemi_lane_join(idemi_lane_t *lane)
{
    if (lane->has_thread) {
        (void)pthread_join(lane->thread, NULL);
    }
}
