#ifndef IDEMI_CONSUMER_H
#define IDEMI_CONSUMER_H

#include "client.h"
#include "engine/engine.h"
#include "identity/identity.h"
#include "message/delivery.h"
#include "store/store.h"
#include "workers/workers.h"

#include <idem/consumer.h>

/* One consumer: the parts that its link, its store and its workers are to
 * each other. */
struct idem_consumer {
    /* Set by create. */
    idem_client_t *client;
    idem_consumer_t *next;
    idem_consumer_options_t options; /* address is a copy, scope is unset */
    idemi_scope_t scope;
    idemi_completions_t *completions;
    idemi_submitter_t *submitter; /* NULL: no store */

    /* From the start of the client to its end; NULL where concurrency is 0. */
    idemi_workers_t *workers;

    /* The I/O thread's. */
    idemi_engine_t *engine;
    idemi_tasks_t ops;  /* of this round, for the store */
    idemi_tasks_t jobs; /* of this round, for the workers */
    size_t asked;       /* operations that are not answered yet */
    uint64_t no_id;
    uint64_t other_id;
    uint64_t unwarned; /* messages without an id since the last warning */
    int64_t warn_at_ms;

    pthread_mutex_t mutex;
    idem_consumer_statistics_t statistics; /* guarded by mutex: a copy */
};

/* consumer_options.c: reads and checks what create was given. The strings are
 * still the caller's. */
idem_status_t idemi_consumer_options_read(idem_consumer_options_t *options,
                                          const idem_consumer_options_t *given,
                                          idem_error_t *err);

/* consumer_port.c: the consumer behind its link; context is the consumer. */
extern const idemi_link_port_t idemi_consumer_port;

/* The store ceased to answer or answers again; context is the consumer. */
void idemi_consumer_watch_store(void *context, bool available,
                                const idem_error_t *err);

/* Before the client runs: starts the workers. */
idem_status_t idemi_consumer_start(idem_consumer_t *consumer,
                                   idem_error_t *err);

/* Waits for handlers and ends the workers. */
void idemi_consumer_stop(idem_consumer_t *consumer);

/* For the end, without a connection: one round of what is left to be done.
 * Returns whether handlers still run. */
bool idemi_consumer_wind_down(idem_consumer_t *consumer, int64_t now_ms);

/* The last step, after which nothing is posted to the mailbox on behalf of the
 * consumer. The mailbox must run once more before the consumer is destroyed.
 */
void idemi_consumer_close(idem_consumer_t *consumer);

/* Frees it with the deliveries that are left. */
void idemi_consumer_destroy(idem_consumer_t *consumer);

#endif
