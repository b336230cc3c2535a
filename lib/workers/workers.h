#ifndef IDEMI_WORKERS_H
#define IDEMI_WORKERS_H

#include "base/task.h"

#include <idem/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A pool of threads that run jobs in the order in which they were given. Jobs
 * of one group run in that order and one at a time. The threads block all
 * signals, which are the program's. */
typedef struct idemi_workers idemi_workers_t;

typedef struct idemi_job idemi_job_t;
struct idemi_job {
    idemi_task_t task; /* run() is called on a worker; first member */
    const char *group; /* NULL: none. Read while it is submitted */
    size_t group_size;
    struct idemi_group *record; /* the pool's own */
};

/* Starts count threads (at least 1). */
idem_status_t idemi_workers_create(idemi_workers_t **workers, uint32_t count,
                                   idem_error_t *err);

/* Any thread: takes all of jobs (their tasks chained). */
void idemi_workers_submit(idemi_workers_t *workers, idemi_tasks_t *jobs);

/* Whether the calling thread belongs to the pool. */
bool idemi_workers_is_own_thread(const idemi_workers_t *workers);

/* Waits for the jobs that were given and ends the threads. NULL is allowed. */
void idemi_workers_destroy(idemi_workers_t *workers);

#endif
