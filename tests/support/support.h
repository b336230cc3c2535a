#ifndef IDEM_TEST_SUPPORT_H
#define IDEM_TEST_SUPPORT_H

#include <check.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Run a program's suite, as Check's environment says (CK_FORK, CK_RUN_CASE),
 * and free it.
 *
 * @return what main() returns
 */
int test_run(Suite *suite);

/**
 * The value of a name such as IDEM_TEST_DSN.
 *
 * The environment is asked first, then the file that IDEM_TEST_ENV names. A
 * value that is in neither fails the running test, since a test without its
 * server must not pass.
 *
 * @return the value, which lives until the program ends
 */
const char *test_env(const char *name);

/** Fails the running test unless a text, such as an error's, has both. */
void test_expect_words(const char *text, const char *first, const char *second);

/** Milliseconds on the monotonic clock. */
int64_t test_now_ms(void);

/** timeout_ms times CK_TIMEOUT_MULTIPLIER, which slow machines set. */
int64_t test_scaled_ms(int64_t timeout_ms);

/**
 * Wait until a condition holds, looking every few milliseconds.
 *
 * @param condition   asked in the calling thread
 * @param user        handed to condition
 * @param timeout_ms  the deadline, scaled by CK_TIMEOUT_MULTIPLIER
 *
 * @return whether the condition held in time
 */
bool test_wait(bool (*condition)(void *user), void *user, int64_t timeout_ms);

/**
 * A name that no other test on the same servers has: lower-case letters,
 * digits and underscores, so good for queues, schemas and tables alike.
 *
 * @param name    filled in
 * @param size    of name; 48 is enough for a prefix of 16
 * @param prefix  how it begins
 *
 * @return name
 */
char *test_unique(char *name, size_t size, const char *prefix);

/**
 * Start a thread that is left alone by signals. They are for the threads of
 * the test, which may be tested with them.
 */
bool test_thread_start(pthread_t *thread, void *(*run)(void *user), void *user);

/**
 * A non-blocking listening socket on loopback.
 *
 * @param port  0: a free one is taken and put here. It lies below the range
 *              that outgoing connections are served from, so that it can be
 *              closed and opened again
 *
 * @return the descriptor, or -1 after a line on stderr
 */
int test_listen(int *port);

#endif
