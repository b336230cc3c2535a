#ifndef IDEMI_MAILBOX_H
#define IDEMI_MAILBOX_H

#include "base/task.h"

#include <pthread.h>
#include <stdbool.h>

/* Brings tasks from any thread to one. The receiver is woken only when the
 * mailbox was empty, so a burst costs one wake-up. */
typedef struct idemi_mailbox {
    pthread_mutex_t mutex;
    /* Guarded by mutex. */
    idemi_tasks_t tasks;
    void (*wake)(void *context); /* called under mutex: must not block */
    void *context;
} idemi_mailbox_t;

/* False when no mutex could be had. */
bool idemi_mailbox_init(idemi_mailbox_t *mailbox);
void idemi_mailbox_finish(idemi_mailbox_t *mailbox);

/* Sets or (NULL) removes the receiver. When this returns, the old wake is not
 * running and will not be called again. Tasks that wait are announced to the
 * new one. */
void idemi_mailbox_set_wake(idemi_mailbox_t *mailbox, void (*wake)(void *),
                            void *context);

/* Any thread. Takes all of tasks, which is empty afterwards. */
void idemi_mailbox_post(idemi_mailbox_t *mailbox, idemi_tasks_t *tasks);

/* Any thread: wakes the receiver although there is nothing for it to run. */
void idemi_mailbox_wake(idemi_mailbox_t *mailbox);

/* The receiver: runs what has arrived until now, in order. Returns how many
 * tasks ran. */
size_t idemi_mailbox_run(idemi_mailbox_t *mailbox, int64_t now_ms);

#endif
