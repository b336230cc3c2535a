#ifndef IDEMI_TASK_H
#define IDEMI_TASK_H

#include <stdint.h>

/* Something to be done on another thread; embedded in what it is about, so
 * that handing it over allocates nothing. run() is called once, on the
 * receiving thread, and may free the memory that the task is in. */
typedef struct idemi_task idemi_task_t;
struct idemi_task {
    idemi_task_t *next;
    void (*run)(idemi_task_t *task, int64_t now_ms);
};

/* A chain of tasks, first in first out. */
typedef struct idemi_tasks {
    idemi_task_t *first;
    idemi_task_t *last;
} idemi_tasks_t;

static inline void idemi_tasks_add(idemi_tasks_t *tasks, idemi_task_t *task)
{
    task->next = (void *)0;
    if (tasks->last) {
        tasks->last->next = task;
    } else {
        tasks->first = task;
    }
    tasks->last = task;
}

/* Moves all of more behind tasks; more is empty afterwards. */
static inline void idemi_tasks_join(idemi_tasks_t *tasks, idemi_tasks_t *more)
{
    if (more->first) {
        if (tasks->last) {
            tasks->last->next = more->first;
        } else {
            tasks->first = more->first;
        }
        tasks->last = more->last;
        more->first = more->last = (void *)0;
    }
}

#endif
