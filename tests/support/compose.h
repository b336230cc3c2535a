#ifndef IDEM_TEST_COMPOSE_H
#define IDEM_TEST_COMPOSE_H

/*
 * Well-formed messages as bytes, from what they are to hold. encoded.h is for
 * those that are to be wrong.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum compose_type {
    COMPOSE_NONE,
    COMPOSE_STRING,
    COMPOSE_ULONG,
    COMPOSE_UUID,
    COMPOSE_BINARY,
    COMPOSE_SYMBOL /* not a legal message-id */
} compose_type_t;

/* A scalar. Bytes of 0 mean strlen() of a string, symbol or binary; 16 for a
   uuid. An empty string is the empty string: "" and 0. */
typedef struct compose_value {
    compose_type_t type;
    const void *bytes;
    size_t size;
    uint64_t number; /* COMPOSE_ULONG */
} compose_value_t;

typedef struct compose_property {
    const char *name;
    compose_value_t value; /* COMPOSE_NONE: null */
} compose_property_t;

enum { COMPOSE_PROPERTIES = 8 };

/* All zero is a message that is only an empty data section. */
typedef struct compose_message {
    bool has_header;
    bool durable;
    uint32_t ttl_ms; /* 0: none given */
    uint32_t delivery_count;

    /* The properties section is there when one of these is set. */
    bool has_properties; /* there anyhow */
    compose_value_t id;
    const char *subject;
    const char *group_id;

    compose_value_t duplicate_id; /* application property _AMQ_DUPL_ID */
    compose_property_t properties[COMPOSE_PROPERTIES]; /* ends at no name */

    const void *body;
    size_t body_bytes;
    bool no_body;     /* no body section at all */
    bool body_string; /* an amqp-value string, not a data section */
} compose_message_t;

/** The encoded message, to be freed; size is set. NULL when it is empty. */
char *compose_message(const compose_message_t *message, size_t *size);

/** A string id and a text body: what most tests want. id may be NULL. */
char *compose_text(const char *id, const char *body, size_t *size);

compose_value_t compose_string(const char *text);
compose_value_t compose_ulong(uint64_t number);
compose_value_t compose_uuid(const void *bytes);
compose_value_t compose_binary(const void *bytes, size_t size);

#endif
