#include "base/mailbox.h"

bool idemi_mailbox_init(idemi_mailbox_t *mailbox)
{
    mailbox->tasks = (idemi_tasks_t){NULL, NULL};
    mailbox->wake = NULL;
    mailbox->context = NULL;
    return pthread_mutex_init(&mailbox->mutex, NULL) == 0;
}

void idemi_mailbox_finish(idemi_mailbox_t *mailbox)
{
    (void)pthread_mutex_destroy(&mailbox->mutex);
}

void idemi_mailbox_set_wake(idemi_mailbox_t *mailbox, void (*wake)(void *),
                            void *context)
{
    (void)pthread_mutex_lock(&mailbox->mutex);
    mailbox->wake = wake;
    mailbox->context = context;
    if (wake && mailbox->tasks.first) {
        wake(context);
    }
    (void)pthread_mutex_unlock(&mailbox->mutex);
}

void idemi_mailbox_post(idemi_mailbox_t *mailbox, idemi_tasks_t *tasks)
{
    if (!tasks->first) {
        return;
    }
    (void)pthread_mutex_lock(&mailbox->mutex);
    bool was_empty = !mailbox->tasks.first;
    idemi_tasks_join(&mailbox->tasks, tasks);
    if (was_empty && mailbox->wake) {
        mailbox->wake(mailbox->context);
    }
    (void)pthread_mutex_unlock(&mailbox->mutex);
}

void idemi_mailbox_wake(idemi_mailbox_t *mailbox)
{
    (void)pthread_mutex_lock(&mailbox->mutex);
    if (mailbox->wake) {
        mailbox->wake(mailbox->context);
    }
    (void)pthread_mutex_unlock(&mailbox->mutex);
}

size_t idemi_mailbox_run(idemi_mailbox_t *mailbox, int64_t now_ms)
{
    size_t count = 0;

    (void)pthread_mutex_lock(&mailbox->mutex);
    idemi_task_t *task = mailbox->tasks.first;
    mailbox->tasks = (idemi_tasks_t){NULL, NULL};
    (void)pthread_mutex_unlock(&mailbox->mutex);

    while (task) {
        idemi_task_t *next = task->next; /* run() may free the task */
        task->run(task, now_ms);
        task = next;
        count++;
    }
    return count;
}
