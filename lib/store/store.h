#ifndef IDEMI_STORE_H
#define IDEMI_STORE_H

#include "base/log.h"
#include "base/mailbox.h"
#include "store/backend.h"

#include <idem/store.h>

typedef struct idemi_store_config {
    int64_t renew_ms;
    int64_t purge_interval_ms; /* 0: none */
    uint32_t lanes;            /* threads, each with a session */
    idemi_logger_t logger;
} idemi_store_config_t;

/* Wraps a backend, which is the store's from then on, also on failure. Opens
 * no session before the first use. */
idem_status_t idemi_store_create(idem_store_t **store, idemi_backend_t *backend,
                                 const idemi_store_config_t *config,
                                 idem_error_t *err);

int64_t idemi_store_renew_ms(const idem_store_t *store);

/* A submitter: one consumer's way into the store. Answers come back through
 * the mailbox, in any order, each op's task.run having been set by the
 * submitter. */
typedef struct idemi_submitter idemi_submitter_t;

/* Told, on a store thread, when the store ceases to answer or answers again.
 */
typedef void (*idemi_store_watch_t)(void *context, bool available,
                                    const idem_error_t *err);

idem_status_t idemi_submitter_create(idemi_submitter_t **submitter,
                                     idem_store_t *store,
                                     idemi_mailbox_t *mailbox,
                                     idemi_store_watch_t watch, void *context);

/* Any thread; does not block for the store. Takes all of ops (their tasks
 * chained); each is answered once, FAILED after idemi_submitter_abandon(). */
void idemi_submitter_submit(idemi_submitter_t *submitter, idemi_tasks_t *ops);

/* Stop waiting: operations of this submitter that are not answered yet are
 * answered FAILED as soon as no session works on them (at most one deadline),
 * and so are later ones, at once. */
void idemi_submitter_abandon(idemi_submitter_t *submitter);

/* Abandons, and returns once every operation is answered and no watch runs. */
void idemi_submitter_destroy(idemi_submitter_t *submitter);

#endif
