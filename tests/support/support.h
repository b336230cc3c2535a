#ifndef IDEM_TEST_SUPPORT_H
#define IDEM_TEST_SUPPORT_H

#include <stdbool.h>
#include <stdint.h>

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

#endif
