#include "workers/workers.h"

#include "base/error.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(record) ((record)->is_lost = true)
#include <uthash.h>

/* The jobs of one group that wait for the one before them. There is a record
 * for a group exactly as long as a job of it is ready or runs. Groups are told
 * apart by a hash alone: two that should meet in one share their order, which
 * costs a little time and no promise. */
typedef struct idemi_group {
    uint64_t hash;
    idemi_tasks_t waiting;
    bool is_lost; /* there was no memory to add it to the table */
    struct idemi_group *next_spare;
    UT_hash_handle hh;
} idemi_group_t;

struct idemi_workers {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    uint32_t count;

    /* Guarded by mutex. */
    idemi_tasks_t ready;
    idemi_group_t *groups;
    idemi_group_t *spare; /* records without a group */
    /* Where there is no memory for a record, its group's jobs go here, and so
     * do all that come for further groups until it is empty again: they run
     * one at a time, in order. It is in the table as well, under the hash of
     * no group, so that the table stays allocated. */
    idemi_group_t overflow;
    bool overflow_is_busy;
    uint32_t idle;  /* threads that wait */
    uint32_t woken; /* of these, signalled and not yet running */
    bool is_stopping;

    pthread_t threads[];
};

/* No group has it: see group_hash(). */
#define OVERFLOW_HASH UINT64_C(0)

/* FNV-1a. */
static uint64_t group_hash(const char *group, size_t size)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ (unsigned char)group[i]) * UINT64_C(0x100000001b3);
    }
    return hash != OVERFLOW_HASH ? hash : 1;
}

/* Whether one more thread is to be woken, now that jobs are ready. Each that
 * wakes and finds more than it takes wakes the next, so that whoever submits
 * pays for one wake-up and not for all. */
static bool wakes_one_locked(idemi_workers_t *workers)
{
    if (workers->ready.first && workers->idle > workers->woken) {
        workers->woken++;
        return true;
    }
    return false;
}

static idemi_group_t *group_create_locked(idemi_workers_t *workers,
                                          uint64_t hash)
{
    idemi_group_t *group = workers->spare;

    if (group) {
        workers->spare = group->next_spare;
    } else {
        group = malloc(sizeof *group);
        if (!group) {
            return NULL;
        }
    }
    group->hash = hash;
    group->waiting = (idemi_tasks_t){NULL, NULL};
    group->is_lost = false;
    HASH_ADD(hh, workers->groups, hash, sizeof group->hash, group);
    if (group->is_lost) {
        free(group);
        return NULL;
    }
    return group;
}

/* Where a job goes that is to run after those of its group before it. */
static void add_grouped_locked(idemi_workers_t *workers, idemi_job_t *job)
{
    idemi_group_t *group = NULL;
    uint64_t hash = group_hash(job->group, job->group_size);

    HASH_FIND(hh, workers->groups, &hash, sizeof hash, group);
    if (group) {
        job->record = group;
        idemi_tasks_add(&group->waiting, &job->task);
        return;
    }
    if (!workers->overflow_is_busy) {
        group = group_create_locked(workers, hash);
    }
    if (group) {
        job->record = group;
        idemi_tasks_add(&workers->ready, &job->task);
        return;
    }
    job->record = &workers->overflow;
    if (workers->overflow_is_busy) {
        idemi_tasks_add(&workers->overflow.waiting, &job->task);
    } else {
        workers->overflow_is_busy = true;
        idemi_tasks_add(&workers->ready, &job->task);
    }
}

/* A job of the group is through: the next one is ready. */
static void group_advance_locked(idemi_workers_t *workers, idemi_group_t *group)
{
    idemi_task_t *next = group->waiting.first;

    if (next) {
        group->waiting.first = next->next;
        if (!next->next) {
            group->waiting.last = NULL;
        }
        idemi_tasks_add(&workers->ready, next);
    } else if (group == &workers->overflow) {
        workers->overflow_is_busy = false;
    } else {
        HASH_DELETE(hh, workers->groups, group);
        group->next_spare = workers->spare;
        workers->spare = group;
    }
}

/* Takes what one thread runs next: with several threads one job, since behind
 * a slow one nothing may wait that another could run; alone, all there is. */
static idemi_task_t *take_locked(idemi_workers_t *workers)
{
    idemi_task_t *first = workers->ready.first;

    if (workers->count == 1) {
        workers->ready = (idemi_tasks_t){NULL, NULL};
    } else if (first) {
        workers->ready.first = first->next;
        if (!first->next) {
            workers->ready.last = NULL;
        }
        first->next = NULL;
    }
    return first;
}

static void *work(void *argument)
{
    idemi_workers_t *workers = argument;

    (void)pthread_mutex_lock(&workers->mutex);
    for (;;) {
        idemi_task_t *task = take_locked(workers);
        if (!task) {
            if (workers->is_stopping) {
                break;
            }
            workers->idle++;
            (void)pthread_cond_wait(&workers->wake, &workers->mutex);
            workers->idle--;
            if (workers->woken > 0) {
                workers->woken--;
            }
            continue;
        }
        bool wakes = wakes_one_locked(workers);
        (void)pthread_mutex_unlock(&workers->mutex);
        if (wakes) {
            (void)pthread_cond_signal(&workers->wake);
        }

        idemi_group_t *group = ((idemi_job_t *)task)->record;
        while (task) {
            idemi_task_t *next = task->next; /* run() may free the job */
            task->run(task, 0);
            task = next;
        }

        (void)pthread_mutex_lock(&workers->mutex);
        if (group) {
            group_advance_locked(workers, group);
        }
    }
    (void)pthread_mutex_unlock(&workers->mutex);
    return NULL;
}

/* Ends the threads that were started, then frees everything. */
static void finish(idemi_workers_t *workers, uint32_t started)
{
    idemi_group_t *group = NULL;
    idemi_group_t *next = NULL;

    (void)pthread_mutex_lock(&workers->mutex);
    workers->is_stopping = true;
    (void)pthread_mutex_unlock(&workers->mutex);
    (void)pthread_cond_broadcast(&workers->wake);
    for (uint32_t i = 0; i < started; i++) {
        (void)pthread_join(workers->threads[i], NULL);
    }

    HASH_ITER(hh, workers->groups, group, next) {
        HASH_DELETE(hh, workers->groups, group);
        if (group != &workers->overflow) {
            free(group);
        }
    }
    while (workers->spare) {
        group = workers->spare;
        workers->spare = group->next_spare;
        free(group);
    }
    (void)pthread_cond_destroy(&workers->wake);
    (void)pthread_mutex_destroy(&workers->mutex);
    free(workers);
}

idem_status_t idemi_workers_create(idemi_workers_t **workers, uint32_t count,
                                   idem_error_t *err)
{
    idemi_workers_t *made =
        calloc(1, sizeof *made + count * sizeof made->threads[0]);

    if (!made) {
        return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    }
    if (pthread_mutex_init(&made->mutex, NULL) != 0) {
        free(made);
        return idemi_error(err, IDEM_ERR_SYSTEM, "no mutex could be made");
    }
    if (pthread_cond_init(&made->wake, NULL) != 0) {
        (void)pthread_mutex_destroy(&made->mutex);
        free(made);
        return idemi_error(err, IDEM_ERR_SYSTEM, "no condition could be made");
    }
    made->count = count;
    made->overflow.hash = OVERFLOW_HASH;
    HASH_ADD(hh, made->groups, hash, sizeof made->overflow.hash,
             (&made->overflow));
    if (made->overflow.is_lost) {
        finish(made, 0);
        return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    }
    for (uint32_t i = 0; i < count; i++) {
        int error = idemi_thread_create(&made->threads[i], work, made);
        if (error != 0) {
            char reason[64] = "";
            (void)strerror_r(error, reason, sizeof reason);
            finish(made, i);
            return idemi_error(err, IDEM_ERR_SYSTEM,
                               "worker thread %u of %u could not be started "
                               "(%s): lower concurrency or raise the limit of "
                               "threads",
                               i + 1, count, reason);
        }
    }
    *workers = made;
    return IDEM_OK;
}

void idemi_workers_submit(idemi_workers_t *workers, idemi_tasks_t *jobs)
{
    idemi_task_t *task = jobs->first;

    if (!task) {
        return;
    }
    (void)pthread_mutex_lock(&workers->mutex);
    while (task) {
        idemi_job_t *job = (idemi_job_t *)task;
        idemi_task_t *next = task->next;
        job->record = NULL;
        /* One thread keeps every order by itself. */
        if (job->group && workers->count > 1) {
            add_grouped_locked(workers, job);
        } else {
            idemi_tasks_add(&workers->ready, task);
        }
        task = next;
    }
    bool wakes = wakes_one_locked(workers);
    (void)pthread_mutex_unlock(&workers->mutex);
    *jobs = (idemi_tasks_t){NULL, NULL};
    if (wakes) {
        (void)pthread_cond_signal(&workers->wake);
    }
}

bool idemi_workers_is_own_thread(const idemi_workers_t *workers)
{
    for (uint32_t i = 0; i < workers->count; i++) {
        if (pthread_equal(workers->threads[i], pthread_self())) {
            return true;
        }
    }
    return false;
}

void idemi_workers_destroy(idemi_workers_t *workers)
{
    if (workers) {
        finish(workers, workers->count);
    }
}
