/*
 * Threads
 *
 *   I/O       the one in idem_client_run(), or the reactor's: everything of
 *             Proton, the engines, and the mailbox's receiving end. When the
 *             client is destroyed, the destroying thread takes its place.
 *   workers   handlers, one pool to each consumer.
 *   store     the store's own; they answer by the mailbox.
 *
 * Whoever has something for the I/O thread posts a task to the mailbox, which
 * wakes it.
 *
 * Locks, in the order in which they may be held together:
 *
 *   1  completions.mutex   a deferred delivery is completed, or the client
 *                          goes; it keeps the mailbox alive meanwhile, so it
 *                          comes before
 *   2  mailbox.mutex       tasks are left or taken; waking happens under it,
 *                          so that no wake-up reaches a receiver that is gone
 *   3  the wake-up's own   drivers, or client_end.c
 *
 *   client.mutex           state and list of consumers; nothing but memory is
 *                          allocated under it
 *   consumer.mutex, the workers' and the store's    held alone
 *
 * No handler, log callback, event callback or network call runs under any.
 */
#include "client.h"

#include "base/error.h"
#include "base/random.h"
#include "consumer.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

/* Copies the strings that the connection needs, and makes an id where none is
 * given. What was copied goes with release_options(). */
static idem_status_t copy_options(idem_client_t *client, idem_error_t *err)
{
    idem_client_options_t *options = &client->options;
    char unique[IDEMI_TOKEN_PREFIX_BYTES];
    const char *user = options->user;
    const char *password = options->password;
    const char *id = options->container_id;

    options->url = options->user = options->password = NULL;
    options->container_id = NULL;
    if (!id) {
        if (!idemi_token_prefix(unique)) {
            return idemi_error(err, IDEM_ERR_SYSTEM,
                               "no random bytes could be had for a container "
                               "id");
        }
        id = unique;
    }
    options->container_id = strdup(id);
    options->user = user ? strdup(user) : NULL;
    options->password = password ? strdup(password) : NULL;
    if (!options->container_id || !options->user != !user ||
        !options->password != !password) {
        return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    }
    return IDEM_OK;
}

static void release_options(idem_client_options_t *options)
{
    if (options->password) {
        OPENSSL_cleanse((char *)options->password, strlen(options->password));
    }
    free((char *)options->password);
    free((char *)options->user);
    free((char *)options->container_id);
}

static idem_status_t create_connection(idem_client_t *client, idem_error_t *err)
{
    const idem_client_options_t *options = &client->options;
    idemi_connection_config_t config = {
        .urls = client->urls,
        .url_count = client->url_count,
        .user = options->user,
        .password = options->password,
        .allow_insecure_plain = options->allow_insecure_plain,
        .container_id = options->container_id,
        .connect_timeout_ms = options->connect_timeout_ms,
        .idle_timeout_ms = options->idle_timeout_ms,
        .reconnect_min_ms = options->reconnect_min_ms,
        .reconnect_max_ms = options->reconnect_max_ms,
        .reconnect_tries = options->reconnect_tries,
        .stop_timeout_ms = options->stop_timeout_ms,
        .mailbox = &client->mailbox,
        .logger = client->logger,
        .event_handler = options->event_handler,
        .event_user = options->event_user};

    if (!idemi_random_bytes(&config.seed, sizeof config.seed)) {
        return idemi_error(err, IDEM_ERR_SYSTEM,
                           "no random bytes could be had");
    }
    idem_status_t status =
        idemi_connection_create(&client->connection, &config);
    if (status != IDEM_OK) {
        return idemi_error(err, status, "the connection could not be made (%s)",
                           idem_status_name(status));
    }
    return IDEM_OK;
}

/* Everything that no consumer and no thread uses any more. */
static void release(idem_client_t *client)
{
    idemi_connection_destroy(client->connection);
    while (client->consumers) {
        idem_consumer_t *consumer = client->consumers;
        client->consumers = consumer->next;
        idemi_consumer_destroy(consumer);
    }
    idemi_urls_free(client->urls, client->url_count);
    release_options(&client->options);
    idemi_mailbox_finish(&client->mailbox);
    (void)pthread_mutex_destroy(&client->mutex);
    free(client);
}

idem_status_t idem_client_create(idem_client_t **client,
                                 const idem_client_options_t *options,
                                 idem_error_t *err)
{
    idem_client_t *made = NULL;
    idem_status_t status;

    if (!client || !options) {
        return idemi_error(err, IDEM_ERR_ARG, "%s is NULL",
                           client ? "options" : "client");
    }
    made = calloc(1, sizeof *made);
    if (!made) {
        return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    }
    if (pthread_mutex_init(&made->mutex, NULL) != 0) {
        free(made);
        return idemi_error(err, IDEM_ERR_SYSTEM, "no mutex could be made");
    }
    if (!idemi_mailbox_init(&made->mailbox)) {
        (void)pthread_mutex_destroy(&made->mutex);
        free(made);
        return idemi_error(err, IDEM_ERR_SYSTEM, "no mutex could be made");
    }
    status = idemi_client_options_read(&made->options, options, &made->urls,
                                       &made->url_count, err);
    if (status != IDEM_OK) {
        made->options = (idem_client_options_t){0}; /* the caller's strings */
    } else {
        made->logger =
            (idemi_logger_t){made->options.log_handler, made->options.log_user,
                             made->options.log_level};
        status = copy_options(made, err);
    }
    if (status == IDEM_OK) {
        status = create_connection(made, err);
    }
    if (status == IDEM_OK) {
        *client = made;
    } else {
        release(made);
    }
    return status;
}

/* From NEW to a state in which it runs, with the workers started. */
static idem_status_t begin(idem_client_t *client, idemi_client_state_t state,
                           idem_error_t *err)
{
    idem_status_t status = IDEM_OK;

    (void)pthread_mutex_lock(&client->mutex);
    if (client->state != IDEMI_CLIENT_NEW) {
        status = idemi_error(err, IDEM_ERR_STATE,
                             client->state == IDEMI_CLIENT_STOPPED
                                 ? "the client has run: create a new one"
                                 : "the client runs already");
    } else if (!client->consumers) {
        status = idemi_error(err, IDEM_ERR_STATE,
                             "the client has no consumer: add one with "
                             "idem_consumer_create()");
    } else {
        client->state = state;
    }
    (void)pthread_mutex_unlock(&client->mutex);
    return status;
}

static void set_state(idem_client_t *client, idemi_client_state_t state)
{
    (void)pthread_mutex_lock(&client->mutex);
    client->state = state;
    (void)pthread_mutex_unlock(&client->mutex);
}

static idem_status_t start_workers(idem_client_t *client, idem_error_t *err)
{
    for (idem_consumer_t *consumer = client->consumers; consumer;
         consumer = consumer->next) {
        idem_status_t status = idemi_consumer_start(consumer, err);
        if (status != IDEM_OK) {
            idemi_client_stop_workers(client);
            return status;
        }
    }
    return IDEM_OK;
}

idem_status_t idem_client_run(idem_client_t *client, idem_error_t *err)
{
    idem_status_t status;

    if (!client) {
        return idemi_error(err, IDEM_ERR_ARG, "client is NULL");
    }
    status = begin(client, IDEMI_CLIENT_RUNNING, err);
    if (status != IDEM_OK) {
        return status;
    }
    status = start_workers(client, err);
    if (status != IDEM_OK) {
        set_state(client, IDEMI_CLIENT_NEW);
        return status;
    }
    status = idemi_connection_run(client->connection, err);
    if (idemi_connection_result(client->connection, NULL) == IDEM_ERR_STATE) {
        /* It could not begin: nothing has changed. */
        idemi_client_stop_workers(client);
        set_state(client, IDEMI_CLIENT_NEW);
    } else {
        set_state(client, IDEMI_CLIENT_STOPPED);
    }
    return status;
}

idem_status_t idem_reactor_handler(struct pn_handler_t **handler,
                                   idem_client_t *client, idem_error_t *err)
{
    idem_status_t status;

    if (!handler || !client) {
        return idemi_error(err, IDEM_ERR_ARG, "%s is NULL",
                           handler ? "client" : "handler");
    }
    status = begin(client, IDEMI_CLIENT_REACTOR, err);
    if (status != IDEM_OK) {
        return status;
    }
    status = start_workers(client, err);
    if (status == IDEM_OK) {
        status =
            idemi_connection_reactor_handler(client->connection, handler, err);
        if (status != IDEM_OK) {
            idemi_client_stop_workers(client);
        }
    }
    if (status != IDEM_OK) {
        set_state(client, IDEMI_CLIENT_NEW);
    }
    return status;
}

idem_status_t idem_reactor_result(const idem_client_t *client,
                                  idem_error_t *err)
{
    if (!client) {
        return idemi_error(err, IDEM_ERR_ARG, "client is NULL");
    }
    return idemi_connection_result(client->connection, err);
}

void idem_client_stop(idem_client_t *client)
{
    if (client) {
        idemi_connection_stop(client->connection);
    }
}

idem_status_t idem_client_statistics(const idem_client_t *client,
                                     idem_client_statistics_t *statistics)
{
    if (!client || !statistics) {
        return IDEM_ERR_ARG;
    }
    idemi_connection_statistics(client->connection, statistics);
    return IDEM_OK;
}

void idem_client_destroy(idem_client_t *client)
{
    if (!client) {
        return;
    }
    (void)pthread_mutex_lock(&client->mutex);
    bool runs = client->state == IDEMI_CLIENT_RUNNING;
    (void)pthread_mutex_unlock(&client->mutex);
    if (runs || idemi_connection_is_busy(client->connection) ||
        idemi_client_is_own_thread(client)) {
        /* Left alive: a leak is the smaller harm. */
        idemi_log(&client->logger, IDEM_LOG_ERROR,
                  "idem_client_destroy() was called %s: nothing was freed",
                  runs ? "before idem_client_run() had returned"
                       : "by a handler or callback");
        return;
    }
    idemi_client_wind_down(client);
    release(client);
}
