#ifndef IDEMI_BACKEND_H
#define IDEMI_BACKEND_H

#include "engine/op.h"

#include <idem/store.h>

#include <stdatomic.h>

/* What one kind of store supplies: a few blocking functions over a batch of
 * operations. Gathering, repeating, threads and metrics are done once, around
 * it, by store/store.c and store/lane.c. A further kind of store is one more
 * file that fills this table in. */
typedef struct idemi_backend idemi_backend_t;
typedef struct idemi_session idemi_session_t; /* e.g. one connection */

typedef struct idemi_backend_table {
    /* A session; no network yet. One thread at a time uses it. */
    idem_status_t (*open)(idemi_backend_t *backend, idemi_session_t **session,
                          idem_error_t *err);
    void (*close)(idemi_session_t *session);

    /* Answers count operations, what they write in one transaction,
     * connecting first if need be. Different kinds may be mixed; a key
     * stands in at most one operation.
     *
     * IDEM_OK: every op has its answer, remaining_ms and sent_at_ms.
     * Otherwise no op is answered, and the same call may be repeated:
     * IDEM_ERR_STORE_UNAVAILABLE and IDEM_ERR_COMMIT_UNKNOWN after a pause,
     * IDEM_ERR_STORE only if something changes. */
    idem_status_t (*execute)(idemi_session_t *session, idemi_op_t **ops,
                             size_t count, idem_error_t *err);

    /* The functions below end within timeout_ms or within the store's own
     * limit for one round trip, whichever is sooner; count() alone may need
     * longer than the latter, and IDEM_WAIT_FOREVER lets it. */

    /* One chunk of a walk through all keys, which goes on where the call
     * before it ended; *more says whether another call is worth it now. With
     * sweep that is until the walk is through, without it until the share is
     * done that a timer should do at a time. */
    idem_status_t (*purge)(idemi_session_t *session, bool sweep,
                           int64_t timeout_ms, uint64_t *removed, bool *more,
                           idem_error_t *err);
    idem_status_t (*count)(idemi_session_t *session, int64_t timeout_ms,
                           idem_store_counts_t *counts, idem_error_t *err);
    idem_status_t (*create_schema)(idemi_session_t *session, int64_t timeout_ms,
                                   idem_error_t *err);

    void (*destroy)(idemi_backend_t *backend);
} idemi_backend_table_t;

struct idemi_backend {
    const idemi_backend_table_t *table;
    /* Counted by the sessions, read by idem_store_statistics(). */
    atomic_uint_least64_t retries;
    atomic_uint_least64_t reconnects;
};

#endif
