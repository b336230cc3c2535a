#include "identity/amqp.h"

/* Values nested deeper than this are refused, so that a hostile message
 * cannot use up the stack, here or in a decoder that recurses. */
#define DEPTH_MAX 32

/* How the bytes after a constructor are laid out (AMQP 1.0 part 1 section
 * 1.2). FIXED(n) is n bytes; 0 is no constructor at all. */
#define FIXED(n) ((n) + 1)
enum {
    SHAPE_INVALID = 0,
    SHAPE_FIXED_MAX = FIXED(16),
    SHAPE_VARIABLE8,
    SHAPE_VARIABLE32,
    SHAPE_LIST8,
    SHAPE_LIST32,
    SHAPE_MAP8,
    SHAPE_MAP32,
    SHAPE_ARRAY8,
    SHAPE_ARRAY32,
    SHAPE_DESCRIBED
};

static const uint8_t shapes[256] = {
    [IDEMI_AMQP_DESCRIBED] = SHAPE_DESCRIBED,
    [IDEMI_AMQP_NULL] = FIXED(0),
    [0x41] = FIXED(0), /* true */
    [0x42] = FIXED(0), /* false */
    [IDEMI_AMQP_UINT_0] = FIXED(0),
    [IDEMI_AMQP_ULONG_0] = FIXED(0),
    [IDEMI_AMQP_LIST_0] = FIXED(0),
    [0x50] = FIXED(1), /* ubyte */
    [0x51] = FIXED(1), /* byte */
    [IDEMI_AMQP_UINT_SMALL] = FIXED(1),
    [IDEMI_AMQP_ULONG_SMALL] = FIXED(1),
    [0x54] = FIXED(1), /* smallint */
    [0x55] = FIXED(1), /* smalllong */
    [0x56] = FIXED(1), /* boolean */
    [0x60] = FIXED(2), /* ushort */
    [0x61] = FIXED(2), /* short */
    [IDEMI_AMQP_UINT] = FIXED(4),
    [0x71] = FIXED(4), /* int */
    [0x72] = FIXED(4), /* float */
    [0x73] = FIXED(4), /* char */
    [0x74] = FIXED(4), /* decimal32 */
    [IDEMI_AMQP_ULONG] = FIXED(8),
    [0x81] = FIXED(8),  /* long */
    [0x82] = FIXED(8),  /* double */
    [0x83] = FIXED(8),  /* timestamp */
    [0x84] = FIXED(8),  /* decimal64 */
    [0x94] = FIXED(16), /* decimal128 */
    [IDEMI_AMQP_UUID] = FIXED(16),
    [IDEMI_AMQP_BINARY8] = SHAPE_VARIABLE8,
    [IDEMI_AMQP_STRING8] = SHAPE_VARIABLE8,
    [IDEMI_AMQP_SYMBOL8] = SHAPE_VARIABLE8,
    [IDEMI_AMQP_BINARY32] = SHAPE_VARIABLE32,
    [IDEMI_AMQP_STRING32] = SHAPE_VARIABLE32,
    [IDEMI_AMQP_SYMBOL32] = SHAPE_VARIABLE32,
    [IDEMI_AMQP_LIST8] = SHAPE_LIST8,
    [IDEMI_AMQP_MAP8] = SHAPE_MAP8,
    [IDEMI_AMQP_LIST32] = SHAPE_LIST32,
    [IDEMI_AMQP_MAP32] = SHAPE_MAP32,
    [0xe0] = SHAPE_ARRAY8,
    [0xf0] = SHAPE_ARRAY32,
};

/* Reads size and count of a compound whose constructor was just read. Returns
 * where the compound ends, or NULL when that is beyond the limit. */
static const uint8_t *open_block(const uint8_t *at, const uint8_t *limit,
                                 bool wide, idemi_block_t *block)
{
    size_t room = (size_t)(limit - at);
    size_t width = wide ? 4 : 1;

    if (room < 2 * width) {
        return NULL;
    }
    uint32_t size = wide ? idemi_amqp_uint32(at) : at[0];
    if (size < width || size > room - width) {
        return NULL;
    }
    block->count = wide ? idemi_amqp_uint32(at + 4) : at[1];
    block->at = at + 2 * width;
    block->end = at + width + size;
    return block->end;
}

static const uint8_t *skip_content(idemi_amqp_t *amqp, unsigned shape,
                                   const uint8_t *at, const uint8_t *limit,
                                   unsigned depth);

static bool check_array(idemi_amqp_t *amqp, idemi_block_t *array,
                        unsigned depth)
{
    const uint8_t *at = array->at;
    unsigned shape;

    for (;; depth++) {
        if (at == array->end || depth > DEPTH_MAX) {
            return false;
        }
        shape = shapes[*at++];
        if (shape != SHAPE_DESCRIBED) {
            break;
        }
        at = idemi_amqp_skip(amqp, at, array->end, 1, depth + 1);
        if (at == NULL) {
            return false;
        }
    }
    if (shape == SHAPE_INVALID) {
        return false;
    }
    amqp->values += array->count;
    size_t left = (size_t)(array->end - at);
    if (shape == FIXED(0)) {
        if (left > 0 || array->count > amqp->empty_left) {
            return false;
        }
        amqp->empty_left -= array->count;
        return true;
    }
    if (shape <= SHAPE_FIXED_MAX) {
        return (uint64_t)array->count * (shape - FIXED(0)) == left;
    }
    for (uint32_t count = array->count; count > 0; count--) {
        at = skip_content(amqp, shape, at, array->end, depth + 1);
        if (at == NULL) {
            return false;
        }
    }
    return at == array->end;
}

/* Checks what follows a constructor of any but a fixed width, and returns
 * where it ends, or NULL. */
static const uint8_t *skip_content(idemi_amqp_t *amqp, unsigned shape,
                                   const uint8_t *at, const uint8_t *limit,
                                   unsigned depth)
{
    size_t room = (size_t)(limit - at);
    idemi_block_t block;

    switch (shape) {
    case SHAPE_VARIABLE8:
        if (room < 1 || room - 1 < at[0]) {
            return NULL;
        }
        return at + 1 + at[0];
    case SHAPE_VARIABLE32:
        if (room < 4 || room - 4 < idemi_amqp_uint32(at)) {
            return NULL;
        }
        return at + 4 + idemi_amqp_uint32(at);
    case SHAPE_LIST8:
    case SHAPE_LIST32:
    case SHAPE_MAP8:
    case SHAPE_MAP32:
        at = open_block(at, limit,
                        shape == SHAPE_LIST32 || shape == SHAPE_MAP32, &block);
        if (at == NULL || depth > DEPTH_MAX) {
            return NULL;
        }
        /* A map counts keys and values (part 1 section 1.6.23). */
        if (shape >= SHAPE_MAP8 && block.count % 2 != 0) {
            return NULL;
        }
        if (idemi_amqp_skip(amqp, block.at, block.end, block.count,
                            depth + 1) != block.end) {
            return NULL;
        }
        return at;
    case SHAPE_ARRAY8:
    case SHAPE_ARRAY32:
        at = open_block(at, limit, shape == SHAPE_ARRAY32, &block);
        if (at == NULL || depth > DEPTH_MAX ||
            !check_array(amqp, &block, depth)) {
            return NULL;
        }
        return at;
    case SHAPE_DESCRIBED:
        if (depth > DEPTH_MAX) {
            return NULL;
        }
        return idemi_amqp_skip(amqp, at, limit, 2, depth + 1);
    default:
        return NULL;
    }
}

/* Checks `count` values and returns where they end, or NULL. Each takes at
 * least its constructor's byte, so a count cannot make work that the message
 * has not the bytes for. */
const uint8_t *idemi_amqp_skip(idemi_amqp_t *amqp, const uint8_t *at,
                               const uint8_t *limit, size_t count,
                               unsigned depth)
{
    amqp->values += count;
    for (; count > 0; count--) {
        if (at == limit) {
            return NULL;
        }
        unsigned shape = shapes[*at++];
        size_t width = shape - FIXED(0);
        if (shape == SHAPE_VARIABLE8 && at != limit) {
            width = 1 + (size_t)*at;
        } else if (width > SHAPE_FIXED_MAX - FIXED(0)) {
            at = skip_content(amqp, shape, at, limit, depth);
            if (at == NULL) {
                return NULL;
            }
            continue;
        }
        if ((size_t)(limit - at) < width) {
            return NULL;
        }
        at += width;
    }
    return at;
}

/* The functions below look at a value that has been checked. */

idemi_span_t idemi_amqp_variable(const uint8_t *value)
{
    idemi_span_t span;

    if (shapes[value[0]] == SHAPE_VARIABLE8) {
        span.data = value + 2;
        span.size = value[1];
    } else {
        span.data = value + 5;
        span.size = idemi_amqp_uint32(value + 1);
    }
    return span;
}

const uint8_t *idemi_amqp_open_list(const uint8_t *at, const uint8_t *limit,
                                    idemi_block_t *list)
{
    if (at == limit) {
        return NULL;
    }
    switch (*at) {
    case IDEMI_AMQP_LIST_0:
        list->count = 0;
        list->at = at + 1;
        list->end = at + 1;
        return list->end;
    case IDEMI_AMQP_LIST8:
    case IDEMI_AMQP_LIST32:
        return open_block(at + 1, limit, *at == IDEMI_AMQP_LIST32, list);
    default:
        return NULL;
    }
}

const uint8_t *idemi_amqp_open_map(const uint8_t *at, const uint8_t *limit,
                                   idemi_block_t *map)
{
    if (at == limit || (*at != IDEMI_AMQP_MAP8 && *at != IDEMI_AMQP_MAP32)) {
        return NULL;
    }
    at = open_block(at + 1, limit, *at == IDEMI_AMQP_MAP32, map);
    return at != NULL && map->count % 2 == 0 ? at : NULL;
}
