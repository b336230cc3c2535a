#ifndef IDEM_TEST_ASKER_H
#define IDEM_TEST_ASKER_H

/*
 * One consumer's way into a store, as a blocking call: asks operations and
 * waits for their answers. One thread at a time.
 */

#include "store/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct asker asker_t;

/* An operation with room for its texts. */
typedef struct question {
    idemi_op_t op; /* first member */
    asker_t *asker;
    char key[IDEM_KEY_BYTES + 1];
    char token[IDEM_TOKEN_BYTES + 1];
} question_t;

/** Fails the running test when there is no memory. */
asker_t *asker_create(idem_store_t *store);
void asker_destroy(asker_t *asker);

/** Fill in a question; key and token are copied. */
void question_set(question_t *question, idemi_op_kind_t kind, const char *key,
                  const char *token);

/** Submit without waiting. */
void asker_submit(asker_t *asker, question_t *questions, size_t count);

/** Wait until all that was submitted is answered. False when time is up. */
bool asker_wait(asker_t *asker, int64_t timeout_ms);

/** Both; false when time is up. */
bool asker_ask(asker_t *asker, question_t *questions, size_t count,
               int64_t timeout_ms);

/** Answer all that waits with FAILED, as a consumer does that gives up. */
void asker_abandon(asker_t *asker);

/** What the store said last about itself: how often it ceased to answer, and
 * answered again. */
int asker_outages(asker_t *asker);
int asker_recoveries(asker_t *asker);

/** How many times mail came: at most one for each batch. */
int asker_mails(asker_t *asker);

const char *answer_name(idemi_answer_t answer);

#endif
