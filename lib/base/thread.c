#include "base/thread.h"

#include <signal.h>
#include <stddef.h>

int idemi_thread_create(pthread_t *thread, void *(*run)(void *argument),
                        void *argument)
{
    /* Blocked, a fault would end the process without its own handler for it.
     */
    static const int faults[] = {SIGABRT, SIGBUS,  SIGFPE, SIGILL,
                                 SIGSEGV, SIGTRAP, SIGSYS};
    sigset_t blocked;
    sigset_t before;

    (void)sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        (void)sigdelset(&blocked, faults[i]);
    }
    /* A new thread inherits the mask, so that no signal can come between. */
    int error = pthread_sigmask(SIG_SETMASK, &blocked, &before);
    if (error != 0) {
        return error;
    }
    error = pthread_create(thread, NULL, run, argument);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
