#ifndef IDEMI_WALK_H
#define IDEMI_WALK_H

#include "identity/span.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum idemi_id_type {
    IDEMI_ID_NONE = 0, /* absent or null */
    IDEMI_ID_STRING,   /* string; in application properties also symbol */
    IDEMI_ID_ULONG,
    IDEMI_ID_UUID,
    IDEMI_ID_BINARY,
    IDEMI_ID_OTHER /* present, but of a type that is no id */
} idemi_id_type_t;

typedef struct idemi_id {
    idemi_id_type_t type;
    idemi_span_t bytes; /* string, binary: the content; uuid: 16 bytes */
    uint64_t number;    /* ulong */
} idemi_id_t;

/* Spans point into the message. */
typedef struct idemi_walk {
    idemi_id_t message_id;    /* of the properties section */
    idemi_id_t duplicate_id;  /* application property _AMQ_DUPL_ID */
    idemi_span_t group_id;    /* of the properties section */
    idemi_span_t traceparent; /* application property, a string */
    idemi_span_t bare;        /* what the sender wrote: properties to body */
    uint32_t delivery_count;  /* of the header */
    bool has_body;            /* false: no body section */
    size_t values;            /* in the section that has most of them */
    const char *problem;      /* what is wrong, where the walk failed */
} idemi_walk_t;

/**
 * Find the id of an encoded message, and see that it is one.
 *
 * One pass, linear in size, without allocation. The whole structure is
 * checked: the order of the sections, every constructor, size and count, down
 * to the last nested value (AMQP 1.0 part 1 section 1, part 3 section 3.2).
 * What it lets pass has exactly as many bytes as it says. The content of
 * values is not judged: a string may hold any bytes, and a field of an
 * unexpected type is as good as none, except that ids say so.
 *
 * A body is not asked for. By the book it must be there (section 3.2), but
 * Proton and other clients leave the section out when a message has nothing
 * but properties. One of properties, application properties and body must be
 * there. So what is left of a message that was cut exactly between two sections
 * can pass, since it is a message as well; any other cut is noticed.
 *
 * `values` counts nested values and descriptors as well. Proton decodes no more
 * than 65,535 of them in a section, and drops the rest without an error.
 *
 * @param data  the encoded message; may be NULL where size is 0
 * @param walk  written in any case; only `problem` counts where it failed
 *
 * @return false for what is not a message, `problem` then says why
 */
bool idemi_walk(const uint8_t *data, size_t size, idemi_walk_t *walk);

#endif
