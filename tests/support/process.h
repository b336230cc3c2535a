#ifndef IDEM_TEST_PROCESS_H
#define IDEM_TEST_PROCESS_H

/*
 * Child programs of a test. They die with the test. Only the test's own thread
 * uses this. Timeouts are scaled by CK_TIMEOUT_MULTIPLIER.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct process process_t;

/**
 * Start a program. What it writes to stdout and stderr is kept.
 *
 * @param argv  ends with NULL; argv[0] is looked for in PATH
 * @param env   "NAME=value" lines on top of our own environment, ending with
 *              NULL; may be NULL
 *
 * @return NULL after a line on stderr
 */
process_t *process_start(const char *const *argv, const char *const *env);

/** Kills it if it still runs. NULL is fine. */
void process_destroy(process_t *process);

pid_t process_pid(const process_t *process);
bool process_signal(process_t *process, int signal);

/**
 * Wait for its end.
 *
 * @return the exit status, 128 + the signal that ended it, or -1 when it still
 *         runs at the deadline
 */
int process_wait(process_t *process, int64_t timeout_ms);

/** All that it has written so far, to be freed. */
char *process_output(process_t *process);

/** Wait until it has written the text. False when it ends without. */
bool process_wait_output(process_t *process, const char *text,
                         int64_t timeout_ms);

/**
 * Start a program and wait for its end.
 *
 * @param output  if not NULL, what it wrote, to be freed
 *
 * @return as process_wait(); -1 also when it did not start
 */
int process_run(const char *const *argv, const char *const *env,
                int64_t timeout_ms, char **output);

#endif
