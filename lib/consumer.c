#include "consumer.h"

#include "base/error.h"
#include "base/random.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static idem_status_t create_engine(idem_consumer_t *consumer, idem_error_t *err)
{
    const idem_consumer_options_t *options = &consumer->options;
    char prefix[IDEMI_TOKEN_PREFIX_BYTES];
    idemi_engine_config_t config = {.prefetch = options->prefetch,
                                    .has_store = options->store != NULL,
                                    .retry_min_ms = options->retry_min_ms,
                                    .retry_max_ms = options->retry_max_ms,
                                    .max_attempts = options->max_attempts,
                                    .token_prefix = prefix};

    if (!idemi_token_prefix(prefix) ||
        !idemi_random_bytes(&config.seed, sizeof config.seed)) {
        return idemi_error(err, IDEM_ERR_SYSTEM,
                           "no random bytes could be had for the tokens of "
                           "claims");
    }
    if (options->store) {
        config.renew_ms = idemi_store_renew_ms(options->store);
    }
    idem_status_t status = idemi_engine_create(&consumer->engine, &config);
    if (status != IDEM_OK) {
        return idemi_error(err, status, "out of memory");
    }
    return IDEM_OK;
}

/* Its parts, but for the workers. What is made so far goes with
 * idemi_consumer_destroy(). */
static idem_status_t create_parts(idem_consumer_t *consumer, idem_error_t *err)
{
    idem_client_t *client = consumer->client;
    idem_consumer_options_t *options = &consumer->options;
    const char *scope = options->scope ? options->scope : options->address;
    idem_status_t status;

    bool has_scope = idemi_scope_init(&consumer->scope, scope);
    options->scope = NULL;
    options->address = strdup(options->address);
    consumer->completions = idemi_completions_create(&client->mailbox);
    if (!has_scope || !options->address || !consumer->completions) {
        return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    }
    status = create_engine(consumer, err);
    if (status == IDEM_OK && options->store) {
        status = idemi_submitter_create(&consumer->submitter, options->store,
                                        &client->mailbox,
                                        idemi_consumer_watch_store, consumer);
        if (status != IDEM_OK) {
            (void)idemi_error(err, status,
                              "the store does not take the consumer (%s)",
                              idem_status_name(status));
        }
    }
    if (status == IDEM_OK) {
        idemi_link_config_t link = {.address = options->address,
                                    .max_message_bytes =
                                        options->max_message_bytes,
                                    .prefetch = options->prefetch,
                                    .engine = consumer->engine,
                                    .completions = consumer->completions,
                                    .port = &idemi_consumer_port,
                                    .context = consumer};
        status = idemi_connection_add_link(client->connection, &link);
        if (status != IDEM_OK) {
            (void)idemi_error(err, status, "the link could not be made (%s)",
                              idem_status_name(status));
        }
    }
    return status;
}

idem_status_t idem_consumer_create(idem_consumer_t **consumer,
                                   idem_client_t *client,
                                   const idem_consumer_options_t *options,
                                   idem_error_t *err)
{
    idem_consumer_options_t checked;
    idem_consumer_t *made = NULL;
    idem_status_t status;

    if (!client || !options) {
        return idemi_error(err, IDEM_ERR_ARG, "%s is NULL",
                           client ? "options" : "client");
    }
    status = idemi_consumer_options_read(&checked, options, err);
    if (status != IDEM_OK) {
        return status;
    }
    made = calloc(1, sizeof *made);
    if (!made) {
        return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    }
    if (pthread_mutex_init(&made->mutex, NULL) != 0) {
        free(made);
        return idemi_error(err, IDEM_ERR_SYSTEM, "no mutex could be made");
    }
    made->client = client;
    made->options = checked;

    (void)pthread_mutex_lock(&client->mutex);
    if (client->state != IDEMI_CLIENT_NEW) {
        made->options.address = NULL; /* still the caller's */
        status = idemi_error(err, IDEM_ERR_STATE,
                             "the client runs already, or has run: create its "
                             "consumers before");
    } else {
        status = create_parts(made, err);
    }
    if (status == IDEM_OK) {
        idem_consumer_t **end = &client->consumers;
        while (*end) {
            end = &(*end)->next;
        }
        *end = made;
    }
    (void)pthread_mutex_unlock(&client->mutex);
    if (status != IDEM_OK) {
        idemi_consumer_close(made);
        idemi_consumer_destroy(made);
    } else if (consumer) {
        *consumer = made;
    }
    return status;
}

idem_status_t idem_consumer_statistics(const idem_consumer_t *consumer,
                                       idem_consumer_statistics_t *statistics)
{
    if (!consumer || !statistics) {
        return IDEM_ERR_ARG;
    }
    /* The lock is not a part of what the caller sees as constant. */
    pthread_mutex_t *mutex = (pthread_mutex_t *)&consumer->mutex;
    (void)pthread_mutex_lock(mutex);
    *statistics = consumer->statistics;
    (void)pthread_mutex_unlock(mutex);
    statistics->deferred = atomic_load(&consumer->completions->deferred);
    return IDEM_OK;
}

idem_status_t idemi_consumer_start(idem_consumer_t *consumer, idem_error_t *err)
{
    if (consumer->options.concurrency == 0) {
        return IDEM_OK;
    }
    return idemi_workers_create(&consumer->workers,
                                consumer->options.concurrency, err);
}

void idemi_consumer_stop(idem_consumer_t *consumer)
{
    idemi_workers_destroy(consumer->workers);
    consumer->workers = NULL;
}

void idemi_consumer_close(idem_consumer_t *consumer)
{
    assert(!consumer->workers);
    if (consumer->submitter) {
        idemi_submitter_destroy(consumer->submitter);
        consumer->submitter = NULL;
    }
    if (consumer->completions) {
        idemi_completions_close(consumer->completions);
    }
}

void idemi_consumer_destroy(idem_consumer_t *consumer)
{
    if (consumer->engine) {
        idemi_entry_t *entry;
        while ((entry = idemi_engine_take(consumer->engine))) {
            idemi_delivery_destroy((idem_delivery_t *)(void *)entry);
        }
        idemi_engine_destroy(consumer->engine);
    }
    idemi_completions_drop(consumer->completions);
    free((char *)consumer->options.address);
    (void)pthread_mutex_destroy(&consumer->mutex);
    free(consumer);
}
