#include "identity/walk.h"

#include "identity/amqp.h"

#include <string.h>

/* The numeric descriptors of the sections, in the order in which they must
 * stand (part 3 section 3.2). */
enum {
    SECTION_HEADER = 0x70,
    SECTION_DELIVERY_ANNOTATIONS,
    SECTION_MESSAGE_ANNOTATIONS,
    SECTION_PROPERTIES,
    SECTION_APPLICATION_PROPERTIES,
    SECTION_DATA,
    SECTION_SEQUENCE,
    SECTION_VALUE,
    SECTION_FOOTER
};

/* The types of a message-id (part 3 sections 3.2.11 to 3.2.14). */
static idemi_id_t read_id(const uint8_t *value)
{
    idemi_id_t id = {.type = IDEMI_ID_OTHER};

    switch (value[0]) {
    case IDEMI_AMQP_NULL:
        id.type = IDEMI_ID_NONE;
        break;
    case IDEMI_AMQP_ULONG_0:
        id.type = IDEMI_ID_ULONG;
        break;
    case IDEMI_AMQP_ULONG_SMALL:
        id.type = IDEMI_ID_ULONG;
        id.number = value[1];
        break;
    case IDEMI_AMQP_ULONG:
        id.type = IDEMI_ID_ULONG;
        id.number = idemi_amqp_uint64(value + 1);
        break;
    case IDEMI_AMQP_UUID:
        id.type = IDEMI_ID_UUID;
        id.bytes.data = value + 1;
        id.bytes.size = 16;
        break;
    case IDEMI_AMQP_BINARY8:
    case IDEMI_AMQP_BINARY32:
        id.type = IDEMI_ID_BINARY;
        id.bytes = idemi_amqp_variable(value);
        break;
    case IDEMI_AMQP_STRING8:
    case IDEMI_AMQP_STRING32:
        id.type = IDEMI_ID_STRING;
        id.bytes = idemi_amqp_variable(value);
        break;
    default:
        break;
    }
    return id;
}

/* Artemis takes the id as string or binary alone. Its AMQP clients can also
 * write a symbol, which is text as well; numbers and uuids are no ids here. */
static idemi_id_t read_duplicate_id(const uint8_t *value)
{
    idemi_id_t id = read_id(value);

    if (idemi_amqp_is_symbol(value)) {
        id.type = IDEMI_ID_STRING;
        id.bytes = idemi_amqp_variable(value);
    } else if (id.type == IDEMI_ID_ULONG || id.type == IDEMI_ID_UUID) {
        id = (idemi_id_t){.type = IDEMI_ID_OTHER};
    }
    return id;
}

static uint32_t read_count(const uint8_t *value)
{
    switch (value[0]) {
    case IDEMI_AMQP_UINT_SMALL:
        return value[1];
    case IDEMI_AMQP_UINT:
        return idemi_amqp_uint32(value + 1);
    default:
        return 0;
    }
}

/* The sections. Each checks its value and returns where it ends, or NULL. The
 * section itself is a described value: depth 0 to 1. */

static const uint8_t *walk_header(idemi_amqp_t *amqp, const uint8_t *at,
                                  idemi_walk_t *walk)
{
    /* durable, priority, ttl, first-acquirer, delivery-count. */
    const uint32_t delivery_count = 4;
    idemi_block_t list;
    const uint8_t *end = idemi_amqp_open_list(at, amqp->end, &list);

    if (end == NULL) {
        return NULL;
    }
    at = list.at;
    if (list.count > delivery_count) {
        const uint8_t *value =
            idemi_amqp_skip(amqp, at, end, delivery_count, 1);
        at = value != NULL ? idemi_amqp_skip(amqp, value, end, 1, 1) : NULL;
        if (at == NULL) {
            return NULL;
        }
        walk->delivery_count = read_count(value);
        list.count -= delivery_count + 1;
    }
    return idemi_amqp_skip(amqp, at, end, list.count, 1) == end ? end : NULL;
}

static const uint8_t *walk_properties(idemi_amqp_t *amqp, const uint8_t *at,
                                      idemi_walk_t *walk)
{
    /* message-id, user-id, to, subject, reply-to, correlation-id,
     * content-type, content-encoding, absolute-expiry-time, creation-time,
     * group-id, group-sequence, reply-to-group-id. */
    const uint32_t group_id = 10;
    idemi_block_t list;
    const uint8_t *end = idemi_amqp_open_list(at, amqp->end, &list);

    if (end == NULL) {
        return NULL;
    }
    at = list.at;
    if (list.count > 0) {
        const uint8_t *value = at;
        at = idemi_amqp_skip(amqp, at, end, 1, 1);
        if (at == NULL) {
            return NULL;
        }
        walk->message_id = read_id(value);
        list.count--;
    }
    if (list.count >= group_id) {
        const uint8_t *value = idemi_amqp_skip(amqp, at, end, group_id - 1, 1);
        at = value != NULL ? idemi_amqp_skip(amqp, value, end, 1, 1) : NULL;
        if (at == NULL) {
            return NULL;
        }
        if (idemi_amqp_is_string(value)) {
            walk->group_id = idemi_amqp_variable(value);
        }
        list.count -= group_id;
    }
    return idemi_amqp_skip(amqp, at, end, list.count, 1) == end ? end : NULL;
}

static bool is_named(idemi_span_t key, const char *name, size_t size)
{
    return key.size == size && memcmp(key.data, name, size) == 0;
}

static const uint8_t *walk_application_properties(idemi_amqp_t *amqp,
                                                  const uint8_t *at,
                                                  idemi_walk_t *walk)
{
    static const char duplicate_id[] = "_AMQ_DUPL_ID";
    static const char traceparent[] = "traceparent";
    bool has_duplicate_id = false;
    bool has_traceparent = false;
    idemi_block_t map;
    const uint8_t *end = idemi_amqp_open_map(at, amqp->end, &map);

    if (end == NULL) {
        return NULL;
    }
    at = map.at;
    for (; map.count > 0; map.count -= 2) {
        const uint8_t *key = at;
        const uint8_t *value = idemi_amqp_skip(amqp, key, end, 1, 1);
        at = value != NULL ? idemi_amqp_skip(amqp, value, end, 1, 1) : NULL;
        if (at == NULL) {
            return NULL;
        }
        if (!idemi_amqp_is_string(key) && !idemi_amqp_is_symbol(key)) {
            continue;
        }
        /* Equal keys are against the rules, and the first one wins. */
        idemi_span_t name = idemi_amqp_variable(key);
        if (is_named(name, duplicate_id, sizeof duplicate_id - 1)) {
            if (!has_duplicate_id) {
                walk->duplicate_id = read_duplicate_id(value);
                has_duplicate_id = true;
            }
        } else if (is_named(name, traceparent, sizeof traceparent - 1)) {
            if (!has_traceparent && idemi_amqp_is_string(value)) {
                walk->traceparent = idemi_amqp_variable(value);
            }
            has_traceparent = true;
        }
    }
    return at == end ? end : NULL;
}

static const uint8_t *walk_annotations(idemi_amqp_t *amqp, const uint8_t *at)
{
    idemi_block_t map;
    const uint8_t *end = idemi_amqp_open_map(at, amqp->end, &map);

    if (end == NULL) {
        return NULL;
    }
    return idemi_amqp_skip(amqp, map.at, end, map.count, 1) == end ? end : NULL;
}

static const uint8_t *walk_data(idemi_amqp_t *amqp, const uint8_t *at)
{
    if (at == amqp->end ||
        (*at != IDEMI_AMQP_BINARY8 && *at != IDEMI_AMQP_BINARY32)) {
        return NULL;
    }
    return idemi_amqp_skip(amqp, at, amqp->end, 1, 1);
}

static const uint8_t *walk_sequence(idemi_amqp_t *amqp, const uint8_t *at)
{
    idemi_block_t list;
    const uint8_t *end = idemi_amqp_open_list(at, amqp->end, &list);

    if (end == NULL) {
        return NULL;
    }
    return idemi_amqp_skip(amqp, list.at, end, list.count, 1) == end ? end
                                                                     : NULL;
}

/* A descriptor may be written as a symbol as well. */
static unsigned find_section(idemi_span_t symbol)
{
    static const char *const names[] = {
        "amqp:header:list",
        "amqp:delivery-annotations:map",
        "amqp:message-annotations:map",
        "amqp:properties:list",
        "amqp:application-properties:map",
        "amqp:data:binary",
        "amqp:amqp-sequence:list",
        "amqp:amqp-value:*",
        "amqp:footer:map",
    };

    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if (is_named(symbol, names[i], strlen(names[i]))) {
            return SECTION_HEADER + i;
        }
    }
    return 0;
}

/* Reads the start of a section and returns where its value stands, or NULL. */
static const uint8_t *read_descriptor(const uint8_t *at, const uint8_t *limit,
                                      unsigned *section)
{
    /* Nearly every message has this form only. */
    if (limit - at < 3 || at[0] != IDEMI_AMQP_DESCRIBED) {
        return NULL;
    }
    const uint8_t *descriptor = at + 1;
    if (*descriptor == IDEMI_AMQP_ULONG_SMALL) {
        *section = descriptor[1];
        return descriptor + 2;
    }
    if (*descriptor != IDEMI_AMQP_ULONG && !idemi_amqp_is_symbol(descriptor)) {
        return NULL;
    }
    at =
        idemi_amqp_skip(&(idemi_amqp_t){.end = limit}, descriptor, limit, 1, 1);
    if (at == NULL) {
        return NULL;
    }
    if (*descriptor != IDEMI_AMQP_ULONG) {
        *section = find_section(idemi_amqp_variable(descriptor));
    } else {
        uint64_t number = idemi_amqp_uint64(descriptor + 1);
        *section = number <= SECTION_FOOTER ? (unsigned)number : 0;
    }
    return at;
}

static bool is_body(unsigned section)
{
    return section >= SECTION_DATA && section <= SECTION_VALUE;
}

/* Every section comes once at most, except for data and sequences, which
 * repeat but don't mix. */
static bool may_follow(unsigned before, unsigned section)
{
    if (is_body(before) && is_body(section)) {
        return before == section && section != SECTION_VALUE;
    }
    return section > before;
}

static bool fail(idemi_walk_t *walk, const char *problem)
{
    walk->problem = problem;
    return false;
}

bool idemi_walk(const uint8_t *data, size_t size, idemi_walk_t *walk)
{
    const uint8_t *at = data;
    unsigned before = 0;

    memset(walk, 0, sizeof *walk);
    if (size == 0) {
        return fail(walk, "the message has no bytes");
    }
    idemi_amqp_t amqp = {.end = data + size, .empty_left = size};
    while (at != amqp.end) {
        const uint8_t *start = at;
        unsigned section = 0;

        at = read_descriptor(at, amqp.end, &section);
        if (at == NULL || section < SECTION_HEADER ||
            section > SECTION_FOOTER) {
            return fail(walk, "there are bytes that begin no section");
        }
        if (!may_follow(before, section)) {
            return fail(walk, "the sections are not in their order");
        }
        amqp.values = 1;
        switch (section) {
        case SECTION_HEADER:
            at = walk_header(&amqp, at, walk);
            break;
        case SECTION_PROPERTIES:
            at = walk_properties(&amqp, at, walk);
            break;
        case SECTION_APPLICATION_PROPERTIES:
            at = walk_application_properties(&amqp, at, walk);
            break;
        case SECTION_DATA:
            at = walk_data(&amqp, at);
            break;
        case SECTION_SEQUENCE:
            at = walk_sequence(&amqp, at);
            break;
        case SECTION_VALUE:
            at = idemi_amqp_skip(&amqp, at, amqp.end, 1, 1);
            break;
        default:
            at = walk_annotations(&amqp, at);
            break;
        }
        if (at == NULL) {
            return fail(walk, "a section does not hold what it says");
        }
        if (section >= SECTION_PROPERTIES && section <= SECTION_VALUE) {
            if (walk->bare.data == NULL) {
                walk->bare.data = start;
            }
            walk->bare.size = (size_t)(at - walk->bare.data);
            walk->has_body = walk->has_body || is_body(section);
        }
        if (amqp.values > walk->values) {
            walk->values = amqp.values;
        }
        before = section;
    }
    if (walk->bare.data == NULL) {
        return fail(walk, "no section is the sender's own");
    }
    return true;
}
