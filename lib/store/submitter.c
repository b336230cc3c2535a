#include "store/store_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

bool idemi_submitter_init(idemi_submitter_t *submitter, idem_store_t *store,
                          idemi_mailbox_t *mailbox, idemi_store_watch_t watch,
                          void *context)
{
    memset(submitter, 0, sizeof *submitter);
    submitter->store = store;
    submitter->mailbox = mailbox;
    submitter->watch = watch;
    submitter->context = context;
    submitter->told = true;
    return idemi_condition_init(&submitter->changed);
}

void idemi_submitter_finish(idemi_submitter_t *submitter)
{
    (void)pthread_cond_destroy(&submitter->changed);
}

idem_status_t idemi_submitter_create(idemi_submitter_t **submitter,
                                     idem_store_t *store,
                                     idemi_mailbox_t *mailbox,
                                     idemi_store_watch_t watch, void *context)
{
    idemi_submitter_t *made = malloc(sizeof *made);

    assert(mailbox);
    if (!made) {
        return IDEM_ERR_MEMORY;
    }
    if (!idemi_submitter_init(made, store, mailbox, watch, context)) {
        free(made);
        return IDEM_ERR_SYSTEM;
    }
    if (watch) {
        (void)pthread_mutex_lock(&store->mutex);
        DL_APPEND2(store->watched, made, watch_prev, watch_next);
        (void)pthread_mutex_unlock(&store->mutex);
    }
    *submitter = made;
    return IDEM_OK;
}

void idemi_submitter_queue_locked(idemi_submitter_t *submitter,
                                  idemi_tasks_t *ops)
{
    idem_store_t *store = submitter->store;

    for (const idemi_task_t *task = ops->first; task; task = task->next) {
        submitter->pending++;
        store->queued++;
    }
    idemi_tasks_join(&submitter->queue, ops);
    if (!submitter->is_ready && submitter->queue.first) {
        submitter->is_ready = true;
        DL_APPEND(store->ready, submitter);
    }
    if (store->idle_lanes > 0 && store->queued >= IDEMI_SHARE_OPS) {
        (void)pthread_cond_broadcast(&store->work);
    } else if (store->idle_lanes > 0) {
        (void)pthread_cond_signal(&store->work);
    }
}

void idemi_submitter_unqueue_locked(idemi_submitter_t *submitter,
                                    idemi_tasks_t *ops)
{
    if (submitter->is_ready) {
        submitter->is_ready = false;
        DL_DELETE(submitter->store->ready, submitter);
    }
    *ops = (idemi_tasks_t){NULL, NULL};
    idemi_tasks_join(ops, &submitter->queue);
    for (const idemi_task_t *task = ops->first; task; task = task->next) {
        submitter->store->queued--;
    }
}

/* Answers ops, which no lane has, with FAILED. */
static void fail(idemi_submitter_t *submitter, idemi_tasks_t *ops)
{
    size_t count = 0;

    for (idemi_task_t *task = ops->first; task; task = task->next) {
        idemi_op_t *op = (idemi_op_t *)task;
        op->answer = IDEMI_ANSWER_FAILED;
        op->status = IDEM_ERR_STATE;
        count++;
    }
    if (count == 0) {
        return;
    }
    idemi_mailbox_post(submitter->mailbox, ops);
    (void)pthread_mutex_lock(&submitter->store->mutex);
    submitter->pending -= count;
    (void)pthread_cond_broadcast(&submitter->changed);
    (void)pthread_mutex_unlock(&submitter->store->mutex);
}

void idemi_submitter_submit(idemi_submitter_t *submitter, idemi_tasks_t *ops)
{
    idem_store_t *store = submitter->store;
    idemi_tasks_t rest = {NULL, NULL};

    (void)pthread_mutex_lock(&store->mutex);
    idemi_submitter_queue_locked(submitter, ops);
    if (submitter->abandoned) {
        idemi_submitter_unqueue_locked(submitter, &rest);
    }
    (void)pthread_mutex_unlock(&store->mutex);
    fail(submitter, &rest);
}

void idemi_submitter_abandon(idemi_submitter_t *submitter)
{
    idem_store_t *store = submitter->store;
    idemi_tasks_t rest;

    (void)pthread_mutex_lock(&store->mutex);
    submitter->abandoned = true;
    idemi_submitter_unqueue_locked(submitter, &rest);
    /* A lane that waits to repeat a batch drops ours from it. */
    (void)pthread_cond_broadcast(&store->again);
    (void)pthread_mutex_unlock(&store->mutex);
    fail(submitter, &rest);
}

void idemi_submitter_destroy(idemi_submitter_t *submitter)
{
    idem_store_t *store;

    if (!submitter) {
        return;
    }
    store = submitter->store;
    idemi_submitter_abandon(submitter);
    (void)pthread_mutex_lock(&store->mutex);
    while (submitter->pending > 0 || submitter->watch_runs) {
        (void)pthread_cond_wait(&submitter->changed, &store->mutex);
    }
    if (submitter->watch) {
        DL_DELETE2(store->watched, submitter, watch_prev, watch_next);
    }
    (void)pthread_mutex_unlock(&store->mutex);
    idemi_submitter_finish(submitter);
    free(submitter);
}

/* A watch that has not heard of the present state. */
static idemi_submitter_t *untold_locked(idem_store_t *store)
{
    idemi_submitter_t *submitter;

    DL_FOREACH2(store->watched, submitter, watch_next)
    {
        if (!submitter->abandoned &&
            submitter->told != atomic_load(&store->available)) {
            return submitter;
        }
    }
    return NULL;
}

void idemi_store_announce(idem_store_t *store)
{
    idemi_submitter_t *submitter;

    (void)pthread_mutex_lock(&store->mutex);
    /* One thread at a time, so that no watch hears of two states in the wrong
     * order; whoever tells goes on until all know the latest. */
    if (store->announcing) {
        (void)pthread_mutex_unlock(&store->mutex);
        return;
    }
    store->announcing = true;
    while ((submitter = untold_locked(store)) != NULL) {
        bool available = atomic_load(&store->available);
        idem_error_t err = store->last_error;
        submitter->told = available;
        submitter->watch_runs = true;
        (void)pthread_mutex_unlock(&store->mutex);
        submitter->watch(submitter->context, available,
                         available ? NULL : &err);
        (void)pthread_mutex_lock(&store->mutex);
        submitter->watch_runs = false;
        (void)pthread_cond_broadcast(&submitter->changed);
    }
    store->announcing = false;
    (void)pthread_mutex_unlock(&store->mutex);
}
