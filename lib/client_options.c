#include "client.h"

#include "base/error.h"
#include "base/options.h"
#include "identity/utf8.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#define DAY_MS INT64_C(86400000)
/* What IDEM_WAIT_FOREVER becomes: sums with the clock do not overflow. */
#define FOREVER_MS (INT64_C(36500) * DAY_MS)
/* Heartbeats more frequent than this say nothing about the peer. */
#define IDLE_MIN_MS 100
#define CONTAINER_ID_BYTES 255

/* The size of the struct in its first version. */
#define OLDEST_BYTES \
    (offsetof(idem_client_options_t, event_user) + sizeof(void *))

static const idem_client_options_t defaults = {.connect_timeout_ms = 10000,
                                               .idle_timeout_ms = 30000,
                                               .reconnect_min_ms = 100,
                                               .reconnect_max_ms = 30000,
                                               .stop_timeout_ms = 30000,
                                               .log_handler =
                                                   idem_log_to_stderr,
                                               .log_level = IDEM_LOG_WARNING};

void idem_client_options_init_sized(idem_client_options_t *options, size_t size)
{
    idemi_options_init(options, size, &defaults, sizeof defaults);
}

/* Credentials that URLs do not carry. */
static idem_status_t check_login(const idem_client_options_t *options,
                                 idem_error_t *err)
{
    if (!options->user != !options->password) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "%s is missing: give both user and password, or "
                           "neither",
                           options->user ? "password" : "user");
    }
    if (options->user && !*options->user) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "user is empty: name one, or set user and password "
                           "to NULL to log in as ANONYMOUS");
    }
    return IDEM_OK;
}

static idem_status_t check_container_id(const char *id, idem_error_t *err)
{
    if (!id) {
        return IDEM_OK;
    }
    size_t size = strnlen(id, CONTAINER_ID_BYTES + 1);
    if (size == 0) {
        /* Artemis takes it, and would name subscriptions of all such clients
         * alike. */
        return idemi_error(err, IDEM_ERR_ARG,
                           "container_id is empty: give a name, or NULL for a "
                           "unique one");
    }
    if (size > CONTAINER_ID_BYTES || !idemi_utf8_is_text(id, size)) {
        return idemi_error(
            err, IDEM_ERR_ARG,
            "container_id is not usable: give UTF-8 of at most %d "
            "bytes",
            CONTAINER_ID_BYTES);
    }
    return IDEM_OK;
}

/* A time limit that may be IDEM_WAIT_FOREVER. */
static idem_status_t check_limit(int64_t *limit_ms, int64_t min_ms,
                                 const char *name, idem_error_t *err)
{
    if (*limit_ms == IDEM_WAIT_FOREVER) {
        *limit_ms = FOREVER_MS;
    } else if (*limit_ms < min_ms || *limit_ms > DAY_MS) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "%s is %" PRId64 ": it must be %" PRId64
                           " to %" PRId64 ", or IDEM_WAIT_FOREVER",
                           name, *limit_ms, min_ms, DAY_MS);
    }
    return IDEM_OK;
}

static idem_status_t check_times(idem_client_options_t *options,
                                 idem_error_t *err)
{
    idem_status_t status =
        check_limit(&options->connect_timeout_ms, 1, "connect_timeout_ms", err);

    if (status == IDEM_OK) {
        status =
            check_limit(&options->stop_timeout_ms, 0, "stop_timeout_ms", err);
    }
    if (status != IDEM_OK) {
        return status;
    }
    if (options->idle_timeout_ms != 0 &&
        (options->idle_timeout_ms < IDLE_MIN_MS ||
         options->idle_timeout_ms > DAY_MS)) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "idle_timeout_ms is %" PRId64
                           ": it must be 0 (off) or %d to %" PRId64,
                           options->idle_timeout_ms, IDLE_MIN_MS, DAY_MS);
    }
    if (options->reconnect_min_ms < 1 || options->reconnect_min_ms > DAY_MS) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "reconnect_min_ms is %" PRId64
                           ": it must be 1 to %" PRId64,
                           options->reconnect_min_ms, DAY_MS);
    }
    if (options->reconnect_max_ms < options->reconnect_min_ms ||
        options->reconnect_max_ms > DAY_MS) {
        return idemi_error(
            err, IDEM_ERR_ARG,
            "reconnect_max_ms is %" PRId64
            ": it must be reconnect_min_ms (%" PRId64 ") to %" PRId64,
            options->reconnect_max_ms, options->reconnect_min_ms, DAY_MS);
    }
    return IDEM_OK;
}

static idem_status_t check_log_level(idem_log_level_t level, idem_error_t *err)
{
    switch (level) {
    case IDEM_LOG_OFF:
    case IDEM_LOG_ERROR:
    case IDEM_LOG_WARNING:
    case IDEM_LOG_INFO:
    case IDEM_LOG_DEBUG:
        return IDEM_OK;
    }
    return idemi_error(err, IDEM_ERR_ARG,
                       "log_level is %d: use one of the IDEM_LOG_ values",
                       (int)level);
}

idem_status_t idemi_client_options_read(idem_client_options_t *options,
                                        const idem_client_options_t *given,
                                        idemi_url_t **urls, size_t *url_count,
                                        idem_error_t *err)
{
    idem_status_t status;

    *options = defaults;
    if (!idemi_options_read(options, sizeof *options, given, OLDEST_BYTES)) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "struct_size is %zu: call "
                           "idem_client_options_init() first, and use a "
                           "library as new as the headers",
                           given->struct_size);
    }
    if (!options->url || !*options->url) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "url is missing: give the broker's, such as "
                           "amqp://localhost:5672");
    }
    status = check_login(options, err);
    if (status == IDEM_OK) {
        status = check_container_id(options->container_id, err);
    }
    if (status == IDEM_OK) {
        status = check_times(options, err);
    }
    if (status == IDEM_OK) {
        status = check_log_level(options->log_level, err);
    }
    if (status == IDEM_OK) {
        status = idemi_urls_parse(urls, url_count, options->url, err);
    }
    return status;
}
