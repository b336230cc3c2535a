#ifndef IDEM_TEST_SEND_H
#define IDEM_TEST_SEND_H

/*
 * Putting messages on a broker's queue, and looking at what it still holds.
 * All of it blocks; what fails says why on stderr. Timeouts are scaled by
 * CK_TIMEOUT_MULTIPLIER.
 */

#include "compose.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Sets up message number n, from 0. The message is all zero but durable; what
 * it points at must live until the next call.
 */
typedef void (*send_fill_t)(size_t n, compose_message_t *message, void *user);

/**
 * Send count messages to a queue, which is made if it is missing, and wait
 * until the broker has accepted each.
 *
 * @return false when it did not, or not within the time
 */
bool send_messages(const char *url, const char *address, size_t count,
                   send_fill_t fill, void *user, int64_t timeout_ms);

/**
 * As send_messages(), with string ids "<prefix>0", "<prefix>1", ... and a
 * small body. A prefix of NULL means no ids.
 */
bool send_numbered(const char *url, const char *address, const char *prefix,
                   size_t count);

/** Send one message as it is given: bytes of the AMQP format. */
bool send_bytes(const char *url, const char *address, const void *bytes,
                size_t size);

/** Send one message with a string id (NULL: none) and a text body. */
bool send_text(const char *url, const char *address, const char *id,
               const char *body);

typedef struct received {
    char *id;            /* "" without one; ulong in decimal, uuid and binary in
                            lower-case hex */
    compose_type_t type; /* of the id */
    char *duplicate_id;  /* _AMQ_DUPL_ID as a string or hex; "" without one */
    char *group_id;
    char *body; /* data or amqp-value string, NUL added */
    size_t body_bytes;
    uint32_t delivery_count;
    bool durable;
} received_t;

typedef struct received_list {
    received_t *messages;
    size_t count;
} received_list_t;

/** See all that a queue can deliver now, and leave it there. */
bool receive_browse(const char *url, const char *address,
                    received_list_t *list);

/** Take at most that many off a queue; 0 means all there is. */
bool receive_take(const char *url, const char *address, size_t at_most,
                  received_list_t *list);

/** How many of the list have this id. */
size_t received_count(const received_list_t *list, const char *id);

void received_free(received_list_t *list);

#endif
