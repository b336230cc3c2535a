#ifndef IDEMI_STORE_INTERNAL_H
#define IDEMI_STORE_INTERNAL_H

#include "base/random.h"
#include "store/store.h"

#include <pthread.h>
#include <stdatomic.h>

/* The wrapper around a backend: a queue per submitter, and lanes that empty
 * them.
 *
 * Lane:  a thread with a session. It takes what waits as one batch, has the
 *        backend answer it, and repeats it until it is answered; meanwhile
 *        what arrives is gathered for the next one. So a batch grows with the
 *        load, and a single operation at idle waits for nothing.
 * Busy:  a key is with one lane at a time. A second operation on it is held
 *        back until the first is answered: a backend never sees a key twice in
 *        a batch, and operations on a key keep their order.
 *
 * There is one lock, the store's mutex. No backend, mailbox, watch or log
 * handler is called under it. */

/* Larger batches are hardly faster. */
#define IDEMI_BATCH_OPS 500

/* What fills two batches of this size is shared by two lanes that are free. */
#define IDEMI_SHARE_OPS 100

typedef struct idemi_slot idemi_slot_t;
struct idemi_slot {
    idemi_op_t *op;
    idemi_submitter_t *submitter;
    uint64_t hash;
    idemi_slot_t *busy_next; /* guarded by the store's mutex */
};

typedef struct idemi_lane {
    idem_store_t *store;
    pthread_t thread;
    bool has_thread;
    idemi_session_t *session;
    bool works; /* the last batch was answered */
    idemi_random_t random;
    size_t count; /* of the batch */
    size_t limit; /* of the batch that is being gathered */
    idemi_slot_t slots[IDEMI_BATCH_OPS];
    idemi_slot_t *batch[IDEMI_BATCH_OPS]; /* slots, in the order of work */
    idemi_op_t *ops[IDEMI_BATCH_OPS];
} idemi_lane_t;

struct idemi_submitter {
    idem_store_t *store;
    idemi_mailbox_t *mailbox; /* NULL: a blocking call waits on changed */
    idemi_store_watch_t watch;
    void *context;

    /* Guarded by the store's mutex. */
    pthread_cond_t changed;
    idemi_tasks_t queue;
    size_t pending; /* operations that are not answered yet */
    bool is_ready;  /* in the store's list of those with a queue */
    bool abandoned;
    bool told; /* what the watch was told last */
    bool watch_runs;
    idem_error_t failure;           /* of a blocking call's FAILED operation */
    idemi_submitter_t *prev, *next; /* ready */
    idemi_submitter_t *watch_prev, *watch_next; /* all that have a watch */
};

struct idem_store {
    idemi_backend_t *backend;
    idemi_store_config_t config;
    char token_prefix[IDEMI_TOKEN_PREFIX_BYTES];
    idemi_lane_t *lanes;
    pthread_t purger;
    bool has_purger;

    atomic_uint_least64_t claims; /* for tokens */
    atomic_uint_least64_t batches;
    atomic_uint_least64_t operations;
    atomic_uint_least64_t errors;
    atomic_uint_least64_t purged;
    atomic_bool available; /* written under mutex */

    pthread_mutex_t mutex;
    pthread_cond_t work;  /* idle lanes: a queue, or the end */
    pthread_cond_t again; /* lanes that wait to repeat: a recovery, something
                             to give up, or the end */
    pthread_cond_t admin; /* the purger, and calls that wait for the session */

    /* Guarded by mutex. */
    idemi_submitter_t *ready;
    idemi_submitter_t *watched;
    size_t queued;       /* operations that no lane has taken */
    idemi_slot_t **busy; /* buckets */
    size_t busy_mask;
    size_t idle_lanes;    /* that wait for work */
    size_t working_lanes; /* that have a batch */
    uint64_t recoveries;  /* how often the store became available again */
    bool announcing;
    bool stopping;
    idem_error_t last_error;

    /* The session for calls that are not operations: used by whoever set
     * admin_busy, which mutex guards. */
    bool admin_busy;
    idemi_session_t *admin_session;
};

/* Waits on one of the store's conditions until end_ms on the monotonic clock
 * (INT64_MAX: without limit); false when that time has come. */
bool idemi_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex,
                      int64_t end_ms);

/* A condition that waits on the monotonic clock. */
bool idemi_condition_init(pthread_cond_t *condition);

/* The time in timeout_ms from now; INT64_MAX without limit. */
int64_t idemi_end_ms(int64_t timeout_ms);

/* lane.c */
idem_status_t idemi_lane_start(idemi_lane_t *lane, idem_store_t *store,
                               idem_error_t *err);
void idemi_lane_join(idemi_lane_t *lane);

/* submitter.c */
bool idemi_submitter_init(idemi_submitter_t *submitter, idem_store_t *store,
                          idemi_mailbox_t *mailbox, idemi_store_watch_t watch,
                          void *context);
void idemi_submitter_finish(idemi_submitter_t *submitter);
void idemi_submitter_queue_locked(idemi_submitter_t *submitter,
                                  idemi_tasks_t *ops);
/* Takes back what no lane has taken. */
void idemi_submitter_unqueue_locked(idemi_submitter_t *submitter,
                                    idemi_tasks_t *ops);
/* Tells the watches what they were not told yet. */
void idemi_store_announce(idem_store_t *store);

/* call.c: the last operation of a blocking call has been answered. */
void idemi_call_answered_locked(idemi_submitter_t *submitter);

/* purge.c */
idem_status_t idemi_purger_start(idem_store_t *store, idem_error_t *err);

#endif
