#ifndef IDEM_TEST_HANDLER_H
#define IDEM_TEST_HANDLER_H

/*
 * A consumer's handler in the hands of a test: it records its runs by key and
 * does what it was told.
 *
 *     options.handler = handler_run;
 *     options.user = handler_create();
 *
 * Threads: every function may be called from any thread; those that fail the
 * running test (create, take) from the test's own only. Timeouts are scaled
 * by CK_TIMEOUT_MULTIPLIER.
 */

#include <idem/delivery.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct handler handler_t;

handler_t *handler_create(void);
/** Once no handler runs any more. NULL is fine. */
void handler_destroy(handler_t *handler);

/** The idem_handler_t; user is the handler_t. */
idem_outcome_t handler_run(idem_delivery_t *delivery, void *user);

/**
 * What runs return from now on: the first plan that fits and is not used up
 * counts; IDEM_ACCEPT where there is none.
 *
 * @param key      of the deliveries it is for, or NULL for all; not copied
 * @param outcome  IDEM_REJECT is said with the condition "test:refused" and
 *                 the description "told to"
 * @param times    how many runs; 0 for all
 */
void handler_plan(handler_t *handler, const char *key, idem_outcome_t outcome,
                  size_t times);

/** While held, runs do not end. */
void handler_hold(handler_t *handler, bool held);

/** How long each run takes that begins from now on. */
void handler_set_duration(handler_t *handler, int64_t duration_ms);

/** Called in each run, before it ends. NULL: nothing. */
void handler_set_hook(handler_t *handler,
                      void (*hook)(idem_delivery_t *delivery, void *user),
                      void *user);

/** The oldest delivery that was deferred and not taken yet. A run that defers
 * offers it before it returns. NULL at the deadline. */
idem_delivery_t *handler_take(handler_t *handler, int64_t timeout_ms);

typedef struct handler_counts {
    size_t begun;
    size_t ended;
    size_t keys;     /* different keys that ran; "" for none is one */
    size_t repeated; /* keys that ran more than once */
    size_t overlaps; /* runs that began while the same key ran */
    size_t most_at_once;
    size_t lost;         /* runs that ended with their lease lost */
    uint32_t deliveries; /* the highest delivery-count that a run saw */
} handler_counts_t;

handler_counts_t handler_counts(handler_t *handler);

/** How often a key ran. */
size_t handler_runs(handler_t *handler, const char *key);
/** idem_delivery_attempts() in its last run. */
uint32_t handler_attempts(handler_t *handler, const char *key);
/** When the nth run of a key began, from 0, up to 15; -1: it did not. */
int64_t handler_began_ms(handler_t *handler, const char *key, size_t n);

bool handler_wait_begun(handler_t *handler, size_t runs, int64_t timeout_ms);
bool handler_wait_ended(handler_t *handler, size_t runs, int64_t timeout_ms);
bool handler_wait_keys(handler_t *handler, size_t keys, int64_t timeout_ms);

#endif
