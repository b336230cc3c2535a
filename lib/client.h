#ifndef IDEMI_CLIENT_H
#define IDEMI_CLIENT_H

#include "base/log.h"
#include "base/mailbox.h"
#include "drivers/connection.h"

#include <idem/client.h>
#include <idem/consumer.h>

#include <pthread.h>

typedef enum idemi_client_state {
    IDEMI_CLIENT_NEW,     /* consumers may be added */
    IDEMI_CLIENT_RUNNING, /* in idem_client_run() */
    IDEMI_CLIENT_REACTOR, /* in a reactor, which says when it has stopped */
    IDEMI_CLIENT_STOPPED
} idemi_client_state_t;

/* The lock order is at the top of client.c. */
struct idem_client {
    /* Set by create. */
    idem_client_options_t options; /* its strings are copies */
    idemi_url_t *urls;
    size_t url_count;
    idemi_logger_t logger;
    idemi_connection_t *connection;
    idemi_mailbox_t mailbox; /* everything that comes back to the I/O thread */

    pthread_mutex_t mutex;
    idemi_client_state_t state; /* guarded by mutex */
    /* Guarded by mutex until the client runs; does not change afterwards. */
    idem_consumer_t *consumers;
};

/* client_options.c: reads and checks what create was given. The strings in
 * options are still the caller's. On success urls are the client's to free. */
idem_status_t idemi_client_options_read(idem_client_options_t *options,
                                        const idem_client_options_t *given,
                                        idemi_url_t **urls, size_t *url_count,
                                        idem_error_t *err);

/* client_end.c: the end of a client that has stopped, or never ran. */

/* Whether the calling thread is one of its workers. */
bool idemi_client_is_own_thread(const idem_client_t *client);

/* Waits for handlers and ends the workers. */
void idemi_client_stop_workers(idem_client_t *client);

/* Waits for handlers, and a limited time for the store. Afterwards nothing but
 * memory is left of the consumers. */
void idemi_client_wind_down(idem_client_t *client);

#endif
