#include "consumer.h"

#include "base/error.h"
#include "base/options.h"
#include "identity/utf8.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#define PREFETCH_MAX 100000
#define CONCURRENCY_MAX 1024
#define ADDRESS_BYTES 1024
#define MESSAGE_DEFAULT (UINT64_C(1) << 20)
#define MESSAGE_MAX (UINT64_C(1) << 30)
/* A shorter back-off would be the tight loop that it is there to prevent. */
#define RETRY_MIN_MS 10
#define RETRY_MAX_MS INT64_C(86400000)

/* The size of the struct in its first version. */
#define OLDEST_BYTES \
    (offsetof(idem_consumer_options_t, max_attempts) + sizeof(uint32_t))

static const idem_consumer_options_t defaults = {
    .prefetch = 32,
    .concurrency = 1,
    .id_source = IDEM_ID_MESSAGE_FIRST,
    .missing_id = IDEM_MISSING_ID_PROCESS,
    .max_message_bytes = MESSAGE_DEFAULT,
    .retry_min_ms = 200,
    .retry_max_ms = 10000,
    .max_attempts = 10};

void idem_consumer_options_init_sized(idem_consumer_options_t *options,
                                      size_t size)
{
    idemi_options_init(options, size, &defaults, sizeof defaults);
}

static idem_status_t check_address(const char *address, idem_error_t *err)
{
    if (!address || !*address) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "address is missing: name the queue to consume "
                           "from, as `queue` or `address::queue`");
    }
    size_t size = strnlen(address, ADDRESS_BYTES + 1);
    if (size > ADDRESS_BYTES) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "address has more than %d bytes: shorten it",
                           ADDRESS_BYTES);
    }
    if (!idemi_utf8_is_text(address, size)) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "address is not UTF-8: AMQP has no other text");
    }
    const char *queue = strstr(address, "::");
    if (queue && (queue == address || queue[2] == '\0')) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "address is \"%s\": give both parts of "
                           "`address::queue`",
                           address);
    }
    return IDEM_OK;
}

static idem_status_t check_numbers(const idem_consumer_options_t *options,
                                   idem_error_t *err)
{
    if (options->prefetch < 1 || options->prefetch > PREFETCH_MAX) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "prefetch is %" PRIu32 ": it must be 1 to %d",
                           options->prefetch, PREFETCH_MAX);
    }
    if (options->concurrency > CONCURRENCY_MAX) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "concurrency is %" PRIu32 ": it must be 0 to %d",
                           options->concurrency, CONCURRENCY_MAX);
    }
    if (options->max_message_bytes > MESSAGE_MAX) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "max_message_bytes is %" PRIu64
                           ": it must be at most %" PRIu64 " (1 GiB)",
                           options->max_message_bytes, MESSAGE_MAX);
    }
    if (options->retry_min_ms < RETRY_MIN_MS ||
        options->retry_min_ms > RETRY_MAX_MS) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "retry_min_ms is %" PRId64
                           ": it must be %d to %" PRId64,
                           options->retry_min_ms, RETRY_MIN_MS, RETRY_MAX_MS);
    }
    if (options->retry_max_ms < options->retry_min_ms ||
        options->retry_max_ms > RETRY_MAX_MS) {
        return idemi_error(
            err, IDEM_ERR_ARG,
            "retry_max_ms is %" PRId64 ": it must be retry_min_ms (%" PRId64
            ") to %" PRId64,
            options->retry_max_ms, options->retry_min_ms, RETRY_MAX_MS);
    }
    return IDEM_OK;
}

/* A program may have put any number into an enum. */
static idem_status_t check_choices(const idem_consumer_options_t *options,
                                   idem_error_t *err)
{
    switch (options->id_source) {
    case IDEM_ID_MESSAGE_FIRST:
    case IDEM_ID_DUPLICATE_FIRST:
    case IDEM_ID_MESSAGE_ONLY:
    case IDEM_ID_DUPLICATE_ONLY:
        break;
    default:
        return idemi_error(err, IDEM_ERR_ARG,
                           "id_source is %d: use one of the IDEM_ID_ values",
                           (int)options->id_source);
    }
    switch (options->missing_id) {
    case IDEM_MISSING_ID_PROCESS:
    case IDEM_MISSING_ID_REJECT:
        break;
    default:
        return idemi_error(err, IDEM_ERR_ARG,
                           "missing_id is %d: use IDEM_MISSING_ID_PROCESS or "
                           "IDEM_MISSING_ID_REJECT",
                           (int)options->missing_id);
    }
    return IDEM_OK;
}

idem_status_t idemi_consumer_options_read(idem_consumer_options_t *options,
                                          const idem_consumer_options_t *given,
                                          idem_error_t *err)
{
    idem_status_t status;

    *options = defaults;
    if (!idemi_options_read(options, sizeof *options, given, OLDEST_BYTES)) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "struct_size is %zu: call "
                           "idem_consumer_options_init() first, and use a "
                           "library as new as the headers",
                           given->struct_size);
    }
    status = check_address(options->address, err);
    if (status == IDEM_OK && !options->handler) {
        status = idemi_error(err, IDEM_ERR_ARG,
                             "handler is NULL: give the function that handles "
                             "each delivery");
    }
    if (status == IDEM_OK) {
        status = check_numbers(options, err);
    }
    if (status == IDEM_OK) {
        status = check_choices(options, err);
    }
    if (options->max_message_bytes == 0) {
        options->max_message_bytes = MESSAGE_DEFAULT;
    }
    return status;
}
