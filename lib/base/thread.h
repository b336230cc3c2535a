#ifndef IDEMI_THREAD_H
#define IDEMI_THREAD_H

#include <pthread.h>

/* pthread_create() for a thread that takes none of the program's signals: they
 * are for the threads that the program made itself. Signals of the thread's own
 * faults still reach it. Returns 0 or an errno value. */
int idemi_thread_create(pthread_t *thread, void *(*run)(void *argument),
                        void *argument);

#endif
