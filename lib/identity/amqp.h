#ifndef IDEMI_AMQP_H
#define IDEMI_AMQP_H

#include "identity/span.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* AMQP's encodings of values (AMQP 1.0 part 1 section 1): checked, never
 * copied. A position stands at a constructor and moves over whole values. */

/* The constructors that are asked for by name. */
enum {
    IDEMI_AMQP_DESCRIBED = 0x00,
    IDEMI_AMQP_NULL = 0x40,
    IDEMI_AMQP_UINT_0 = 0x43,
    IDEMI_AMQP_ULONG_0 = 0x44,
    IDEMI_AMQP_LIST_0 = 0x45,
    IDEMI_AMQP_UINT_SMALL = 0x52,
    IDEMI_AMQP_ULONG_SMALL = 0x53,
    IDEMI_AMQP_UINT = 0x70,
    IDEMI_AMQP_ULONG = 0x80,
    IDEMI_AMQP_UUID = 0x98,
    IDEMI_AMQP_BINARY8 = 0xa0,
    IDEMI_AMQP_STRING8 = 0xa1,
    IDEMI_AMQP_SYMBOL8 = 0xa3,
    IDEMI_AMQP_BINARY32 = 0xb0,
    IDEMI_AMQP_STRING32 = 0xb1,
    IDEMI_AMQP_SYMBOL32 = 0xb3,
    IDEMI_AMQP_LIST8 = 0xc0,
    IDEMI_AMQP_MAP8 = 0xc1,
    IDEMI_AMQP_LIST32 = 0xd0,
    IDEMI_AMQP_MAP32 = 0xd1
};

typedef struct idemi_amqp {
    const uint8_t *end;
    /* Array elements without any bytes (null, true, an empty list) that may
     * still come. Their count is all there is of them, so without a limit a
     * few bytes could stand for billions of values; more of them than the
     * message has bytes are refused. */
    size_t empty_left;
    /* The values seen so far, nested ones and descriptors too. */
    size_t values;
} idemi_amqp_t;

/* A compound value: its first element, its end, how many elements. */
typedef struct idemi_block {
    const uint8_t *at;
    const uint8_t *end;
    uint32_t count;
} idemi_block_t;

/* Check `count` values that end at the limit or before it.
 *
 * depth is how deep they stand; the section's own value is at 0. Returns where
 * they end, or NULL when they are not what they say. */
const uint8_t *idemi_amqp_skip(idemi_amqp_t *amqp, const uint8_t *at,
                               const uint8_t *limit, size_t count,
                               unsigned depth);

/* Open a value that must be a list, or a map. Its elements are not checked.
 * Returns where it ends, or NULL. */
const uint8_t *idemi_amqp_open_list(const uint8_t *at, const uint8_t *limit,
                                    idemi_block_t *list);
const uint8_t *idemi_amqp_open_map(const uint8_t *at, const uint8_t *limit,
                                   idemi_block_t *map);

/* The content of a binary, string or symbol that has been checked. */
idemi_span_t idemi_amqp_variable(const uint8_t *value);

/* Numbers in network order. */
static inline uint32_t idemi_amqp_uint32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 |
           (uint32_t)at[2] << 8 | at[3];
}

static inline uint64_t idemi_amqp_uint64(const uint8_t *at)
{
    return (uint64_t)idemi_amqp_uint32(at) << 32 | idemi_amqp_uint32(at + 4);
}

static inline bool idemi_amqp_is_string(const uint8_t *value)
{
    return *value == IDEMI_AMQP_STRING8 || *value == IDEMI_AMQP_STRING32;
}

static inline bool idemi_amqp_is_symbol(const uint8_t *value)
{
    return *value == IDEMI_AMQP_SYMBOL8 || *value == IDEMI_AMQP_SYMBOL32;
}

#endif
