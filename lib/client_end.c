#include "client.h"

#include "base/clock.h"
#include "consumer.h"

#include <pthread.h>
#include <time.h>

/* How long a client that goes waits for the store at most, once its handlers
 * have returned. */
#define STORE_LIMIT_MS 30000

/* What wakes the destroying thread, in place of Proton. */
typedef struct idemi_bell {
    pthread_mutex_t mutex;
    pthread_cond_t rung;
    bool is_rung; /* guarded by mutex */
} idemi_bell_t;

static bool bell_init(idemi_bell_t *bell)
{
    pthread_condattr_t attributes;

    bell->is_rung = false;
    if (pthread_mutex_init(&bell->mutex, NULL) != 0) {
        return false;
    }
    if (pthread_condattr_init(&attributes) == 0) {
        int error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        if (error == 0) {
            error = pthread_cond_init(&bell->rung, &attributes);
        }
        (void)pthread_condattr_destroy(&attributes);
        if (error == 0) {
            return true;
        }
    }
    (void)pthread_mutex_destroy(&bell->mutex);
    return false;
}

static void bell_finish(idemi_bell_t *bell)
{
    (void)pthread_cond_destroy(&bell->rung);
    (void)pthread_mutex_destroy(&bell->mutex);
}

static void bell_ring(void *context)
{
    idemi_bell_t *bell = context;

    (void)pthread_mutex_lock(&bell->mutex);
    bell->is_rung = true;
    (void)pthread_cond_signal(&bell->rung);
    (void)pthread_mutex_unlock(&bell->mutex);
}

/* Until it rings, or until the time has come; INT64_MAX: never. */
static void bell_wait(idemi_bell_t *bell, int64_t until_ms)
{
    struct timespec until = {.tv_sec = until_ms / 1000,
                             .tv_nsec = until_ms % 1000 * 1000000};
    int error = 0;

    (void)pthread_mutex_lock(&bell->mutex);
    while (!bell->is_rung && error == 0) {
        error = until_ms == INT64_MAX
                    ? pthread_cond_wait(&bell->rung, &bell->mutex)
                    : pthread_cond_timedwait(&bell->rung, &bell->mutex, &until);
    }
    bell->is_rung = false;
    (void)pthread_mutex_unlock(&bell->mutex);
}

/* What one round found. */
typedef struct idemi_round {
    int64_t now_ms;
    int64_t deadline_ms; /* the next of the engines' */
    bool handlers_run;
    bool is_asking; /* the store owes answers */
} idemi_round_t;

static idemi_round_t go_round(idem_client_t *client)
{
    idemi_round_t round = {.now_ms = idemi_now_ms(), .deadline_ms = INT64_MAX};

    (void)idemi_mailbox_run(&client->mailbox, round.now_ms);
    for (idem_consumer_t *consumer = client->consumers; consumer;
         consumer = consumer->next) {
        if (idemi_consumer_wind_down(consumer, round.now_ms)) {
            round.handlers_run = true;
        }
        int64_t deadline_ms = idemi_engine_deadline(consumer->engine);
        if (deadline_ms < round.deadline_ms) {
            round.deadline_ms = deadline_ms;
        }
        round.is_asking = round.is_asking || consumer->asked > 0;
    }
    return round;
}

bool idemi_client_is_own_thread(const idem_client_t *client)
{
    for (const idem_consumer_t *consumer = client->consumers; consumer;
         consumer = consumer->next) {
        if (consumer->workers &&
            idemi_workers_is_own_thread(consumer->workers)) {
            return true;
        }
    }
    return false;
}

void idemi_client_stop_workers(idem_client_t *client)
{
    for (idem_consumer_t *consumer = client->consumers; consumer;
         consumer = consumer->next) {
        idemi_consumer_stop(consumer);
    }
}

/* The engines go on without a connection, so that work which was done is
 * confirmed, and what was not is released: neither is repeated, nor has to wait
 * for the end of a lease. */
static void settle_in_store(idem_client_t *client, idemi_bell_t *bell)
{
    idemi_round_t round;
    int64_t limit_ms = client->options.stop_timeout_ms;

    idemi_mailbox_set_wake(&client->mailbox, bell_ring, bell);
    for (;;) {
        round = go_round(client);
        if (!round.handlers_run) {
            break;
        }
        bell_wait(bell, round.deadline_ms);
    }
    idemi_client_stop_workers(client);

    limit_ms = limit_ms < STORE_LIMIT_MS ? limit_ms : STORE_LIMIT_MS;
    limit_ms += idemi_now_ms();
    for (;;) {
        round = go_round(client);
        if (!round.is_asking || round.now_ms >= limit_ms) {
            break;
        }
        bell_wait(bell,
                  round.deadline_ms < limit_ms ? round.deadline_ms : limit_ms);
    }
    idemi_mailbox_set_wake(&client->mailbox, NULL, NULL);
}

void idemi_client_wind_down(idem_client_t *client)
{
    idemi_bell_t bell;

    if (bell_init(&bell)) {
        settle_in_store(client, &bell);
        bell_finish(&bell);
    } else {
        idemi_client_stop_workers(client);
    }
    for (idem_consumer_t *consumer = client->consumers; consumer;
         consumer = consumer->next) {
        idemi_consumer_close(consumer);
    }
    /* The answers of operations that were given up, and what was completed in
     * the meantime: nobody is left to send them. */
    (void)idemi_mailbox_run(&client->mailbox, idemi_now_ms());
}
