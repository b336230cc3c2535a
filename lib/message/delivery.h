#ifndef IDEMI_DELIVERY_H
#define IDEMI_DELIVERY_H

#include "base/mailbox.h"
#include "engine/engine.h"
#include "workers/workers.h"

#include <idem/delivery.h>

#include <pthread.h>
#include <stdatomic.h>

/* What a completion needs of its consumer, alive as long as any delivery is:
 * counted by references, so that idem_delivery_complete() is safe after the
 * client is gone. */
typedef struct idemi_completions {
    atomic_uint references;
    /* Deliveries whose handler returned IDEM_DEFER: ever, and still open. */
    atomic_uint_fast64_t deferred;
    atomic_size_t open;
    pthread_mutex_t mutex;
    idemi_mailbox_t *mailbox; /* guarded by mutex; NULL: the client is gone */
} idemi_completions_t;

/* With one reference, the caller's. NULL: no memory. */
idemi_completions_t *idemi_completions_create(idemi_mailbox_t *mailbox);
/* When this returns nothing is posted any more. */
void idemi_completions_close(idemi_completions_t *completions);
/* Gives a reference back. NULL is allowed. */
void idemi_completions_drop(idemi_completions_t *completions);

/* Where a delivery stands between its handler and its outcome. */
typedef enum idemi_handoff {
    IDEMI_HANDOFF_NONE,      /* not with the workers */
    IDEMI_HANDOFF_QUEUED,    /* with the workers, not started */
    IDEMI_HANDOFF_CANCELLED, /* likewise, and not to be started */
    IDEMI_HANDOFF_STARTED,   /* the handler runs */
    IDEMI_HANDOFF_DEFERRED,  /* it returned IDEM_DEFER */
    IDEMI_HANDOFF_ENDED,     /* the outcome is known */
    IDEMI_HANDOFF_ORPHANED,  /* destroyed while the workers or, deferred, the
                                program held it: they free it */
    /* Completed before the handler returned: this plus the outcome. */
    IDEMI_HANDOFF_COMPLETED
} idemi_handoff_t;

#define IDEMI_CONDITION_BYTES 96
#define IDEMI_DESCRIPTION_BYTES 256

/* A delivery as its handler sees it, and as it travels through the library.
 * Its bytes follow it in the same allocation where their number was known. */
struct idem_delivery {
    idemi_entry_t entry; /* the engine's; first member */
    idemi_job_t job;     /* the workers' */
    idemi_task_t done;   /* brings the outcome back to the I/O thread */

    /* Set by the consumer that it is for, before its handler can see it. */
    void *consumer;
    const char *address;
    char key[IDEM_KEY_BYTES + 1]; /* "": none */
    char *group;                  /* NUL-terminated copy, or NULL */
    uint32_t delivery_count;
    uint32_t attempts; /* the engine's, when it was queued for its handler */
    bool is_beyond_proton; /* Proton would drop some of its values */

    /* The driver's own, for settling; opaque to others. */
    void *wire;
    uint64_t generation; /* of the link that wire belongs to */

    unsigned char *encoded;
    size_t encoded_size;
    size_t encoded_room;

    /* The handler's side. */
    idemi_completions_t *completions;
    atomic_int handoff; /* idemi_handoff_t */
    atomic_bool lease_lost;
    atomic_int_least64_t lease_end_ms; /* INT64_MAX: there is no claim */
    bool was_late; /* the handler was not started: its lease was over */
    idem_outcome_t outcome;
    struct pn_message_t *message;
    char *condition;   /* of a reject, or NULL */
    char *description; /* likewise */
};

/* Makes a delivery with room for so many encoded bytes, zeroed where this
 * does not say otherwise. NULL: no memory. */
idem_delivery_t *idemi_delivery_create(idemi_completions_t *completions,
                                       size_t room);
/* Room for `more` further bytes behind encoded_size. False: no memory. */
bool idemi_delivery_reserve(idem_delivery_t *delivery, size_t more);
/* NULL is allowed. I/O thread. What the workers still have in their queue, or
 * the program has deferred, is freed by them later. */
void idemi_delivery_destroy(idem_delivery_t *delivery);

/* I/O thread: about to be queued for its handler. True: submit delivery->job;
 * false: it is in the queue still, from before it was cancelled. */
bool idemi_delivery_queue(idem_delivery_t *delivery);

/* I/O thread: do not start it. False when it has started. */
bool idemi_delivery_cancel(idem_delivery_t *delivery);

/* On a worker, for what was queued: runs the handler unless it is cancelled, or
 * its lease is over: a process that was stopped for a while finds its queue as
 * it was, and the I/O thread may come later than the workers to cancel it.
 * True when the outcome is known, or was_late set, and the caller is to post
 * delivery->done; otherwise the delivery may be gone. */
bool idemi_delivery_run(idem_delivery_t *delivery, idem_handler_t handler,
                        void *user);

/* Frees what idem_delivery_message() made. */
void idemi_delivery_release_message(idem_delivery_t *delivery);

/* Why it is rejected: the engine's reason, or else the handler's. The
 * description may be NULL. */
const char *idemi_delivery_condition(const idem_delivery_t *delivery);
const char *idemi_delivery_description(const idem_delivery_t *delivery);

#endif
