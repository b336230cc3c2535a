#ifndef IDEM_TEST_RUNNER_H
#define IDEM_TEST_RUNNER_H

/*
 * A client on a thread of its own, in either host. With the reactor, the
 * program around it has a second handler, with a timer, that has nothing to do
 * with idem: it must go on while the client runs and after it has stopped.
 *
 *     runner_t *runner = runner_create(RUNNER_PROACTOR, url);
 *     runner_options(runner)->reconnect_max_ms = 200;
 *     options.address = ...
 *     consumer = runner_consumer(runner, &options);
 *     runner_start(runner);
 *     ...
 *     ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
 *     runner_destroy(runner);
 *
 * Threads: the test's own. What cannot be done fails the running test.
 */

#include <idem/idem.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the order of loop tests: tcase_add_loop_test(tcase, test, 0, 2). */
typedef enum runner_host {
    RUNNER_PROACTOR,
    RUNNER_REACTOR,
    RUNNER_HOSTS
} runner_host_t;

typedef struct runner runner_t;

/** Prepares a client; nothing is connected yet. url may be NULL where the
 * options bring another. */
runner_t *runner_create(runner_host_t host, const char *url);

/** The client's options, to be changed before the first consumer. Events and
 * log lines go to the runner. */
idem_client_options_t *runner_options(runner_t *runner);

/** The client, made with the options as they are now. */
idem_client_t *runner_client(runner_t *runner);

/** Adds a consumer. */
idem_consumer_t *runner_consumer(runner_t *runner,
                                 const idem_consumer_options_t *options);

void runner_start(runner_t *runner);

/** Asks the client to stop. Does not wait. */
void runner_stop(runner_t *runner);

/** Whether idem_client_run() or the reactor has returned. */
bool runner_has_ended(runner_t *runner);

/** Waits for a client that ends by itself, up to timeout_ms (scaled); a client
 * that does not fails the test. Returns what idem_client_run() did. */
idem_status_t runner_wait(runner_t *runner, int64_t timeout_ms,
                          idem_error_t *err);

/** runner_wait() for a client that fails by itself: with this status, after
 * IDEM_EVENT_FAILED. Returns its error. */
idem_error_t runner_wait_failed(runner_t *runner, idem_status_t status,
                                int64_t timeout_ms);

/** runner_stop() and runner_wait() for 30 s. err may be NULL. */
idem_status_t runner_join(runner_t *runner, idem_error_t *err);

/** Stops where it still runs, and frees the client. NULL is fine. */
void runner_destroy(runner_t *runner);

/** How often an event came. */
size_t runner_events(runner_t *runner, idem_event_type_t type);
bool runner_wait_event(runner_t *runner, idem_event_type_t type, size_t count,
                       int64_t timeout_ms);

/** How many log lines contain the text. With IDEM_TEST_LOG in the environment
 * they go to standard error, too. */
size_t runner_logged(runner_t *runner, const char *text);
bool runner_wait_logged(runner_t *runner, const char *text, size_t count,
                        int64_t timeout_ms);

/** Reactor: how often the unrelated handler's timer has fired. */
size_t runner_ticks(runner_t *runner);

/** The counters of a consumer. */
idem_consumer_statistics_t runner_statistics(const idem_consumer_t *consumer);

#endif
