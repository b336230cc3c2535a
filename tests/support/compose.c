#include "compose.h"

#include "encoded.h"

#include <string.h>

/* Section descriptors, AMQP 1.0 part 3.2. */
enum {
    SECTION_HEADER = 0x70,
    SECTION_PROPERTIES = 0x73,
    SECTION_APPLICATION_PROPERTIES = 0x74,
    SECTION_DATA = 0x75,
    SECTION_VALUE = 0x77
};

/* Format codes, AMQP 1.0 part 1.6. */
enum {
    CODE_NULL = 0x40,
    CODE_TRUE = 0x41,
    CODE_FALSE = 0x42,
    CODE_UINT = 0x70,
    CODE_ULONG = 0x80,
    CODE_UUID = 0x98,
    CODE_BINARY8 = 0xa0,
    CODE_STRING8 = 0xa1,
    CODE_SYMBOL8 = 0xa3,
    CODE_LIST32 = 0xd0,
    CODE_MAP32 = 0xd1
};

/* From the 8-bit form of a variable-width code to the 32-bit one. */
enum { WIDE = 0x10, UUID_BYTES = 16 };

static void put_variable(encoded_t *out, unsigned code, const void *bytes,
                         size_t size)
{
    encoded_variable(out, size < 256 ? code : code + WIDE, bytes, size);
}

static void put_null(encoded_t *out)
{
    encoded_byte(out, CODE_NULL);
}

static void put_text(encoded_t *out, const char *text)
{
    if (text == NULL) {
        put_null(out);
    } else {
        put_variable(out, CODE_STRING8, text, strlen(text));
    }
}

static void put_value(encoded_t *out, const compose_value_t *value)
{
    const void *bytes = value->bytes != NULL ? value->bytes : "";
    size_t size = value->size;

    if (size == 0 && value->type != COMPOSE_UUID) {
        size = strlen(bytes);
    }
    switch (value->type) {
    case COMPOSE_STRING:
        put_variable(out, CODE_STRING8, bytes, size);
        break;
    case COMPOSE_SYMBOL:
        put_variable(out, CODE_SYMBOL8, bytes, size);
        break;
    case COMPOSE_BINARY:
        put_variable(out, CODE_BINARY8, bytes, size);
        break;
    case COMPOSE_UUID:
        encoded_byte(out, CODE_UUID);
        encoded_bytes(out, bytes, UUID_BYTES);
        break;
    case COMPOSE_ULONG:
        encoded_byte(out, CODE_ULONG);
        encoded_uint32(out, (uint32_t)(value->number >> 32));
        encoded_uint32(out, (uint32_t)(value->number & UINT32_MAX));
        break;
    default:
        put_null(out);
        break;
    }
}

static void put_header(encoded_t *out, const compose_message_t *message)
{
    size_t at = 0;

    encoded_section(out, SECTION_HEADER);
    at = encoded_open(out, CODE_LIST32);
    encoded_byte(out, message->durable ? CODE_TRUE : CODE_FALSE);
    put_null(out); /* priority */
    if (message->ttl_ms != 0) {
        encoded_byte(out, CODE_UINT);
        encoded_uint32(out, message->ttl_ms);
    } else {
        put_null(out);
    }
    put_null(out); /* first-acquirer */
    encoded_byte(out, CODE_UINT);
    encoded_uint32(out, message->delivery_count);
    encoded_close(out, at, 5);
}

static void put_properties(encoded_t *out, const compose_message_t *message)
{
    size_t at = 0;

    encoded_section(out, SECTION_PROPERTIES);
    at = encoded_open(out, CODE_LIST32);
    put_value(out, &message->id);
    put_null(out); /* user-id */
    put_null(out); /* to */
    put_text(out, message->subject);
    for (int i = 0; i < 6; i++) {
        put_null(out); /* reply-to to creation-time */
    }
    put_text(out, message->group_id);
    encoded_close(out, at, 11);
}

static void put_application_properties(encoded_t *out,
                                       const compose_message_t *message)
{
    const compose_property_t *properties = message->properties;
    uint32_t count = 0;
    uint32_t named = 0;
    size_t at = 0;

    while (named < COMPOSE_PROPERTIES && properties[named].name != NULL) {
        named++;
    }
    count = named + (message->duplicate_id.type != COMPOSE_NONE);
    if (count == 0) {
        return;
    }
    encoded_section(out, SECTION_APPLICATION_PROPERTIES);
    at = encoded_open(out, CODE_MAP32);
    if (message->duplicate_id.type != COMPOSE_NONE) {
        put_text(out, "_AMQ_DUPL_ID");
        put_value(out, &message->duplicate_id);
    }
    for (uint32_t i = 0; i < named; i++) {
        put_text(out, properties[i].name);
        put_value(out, &properties[i].value);
    }
    encoded_close(out, at, 2 * count);
}

static void put_body(encoded_t *out, const compose_message_t *message)
{
    const void *body = message->body != NULL ? message->body : "";

    encoded_section(out, message->body_string ? SECTION_VALUE : SECTION_DATA);
    put_variable(out, message->body_string ? CODE_STRING8 : CODE_BINARY8, body,
                 message->body_bytes);
}

char *compose_message(const compose_message_t *message, size_t *size)
{
    encoded_t out = {0};

    if (message->has_header || message->durable || message->ttl_ms != 0 ||
        message->delivery_count != 0) {
        put_header(&out, message);
    }
    if (message->has_properties || message->id.type != COMPOSE_NONE ||
        message->subject != NULL || message->group_id != NULL) {
        put_properties(&out, message);
    }
    put_application_properties(&out, message);
    if (!message->no_body) {
        put_body(&out, message);
    }
    *size = out.size;
    return (char *)out.data;
}

char *compose_text(const char *id, const char *body, size_t *size)
{
    compose_message_t message = {.durable = true};

    if (id != NULL) {
        message.id = compose_string(id);
    }
    message.body = body;
    message.body_bytes = body != NULL ? strlen(body) : 0;
    return compose_message(&message, size);
}

compose_value_t compose_string(const char *text)
{
    return (compose_value_t){.type = COMPOSE_STRING, .bytes = text};
}

compose_value_t compose_ulong(uint64_t number)
{
    return (compose_value_t){.type = COMPOSE_ULONG, .number = number};
}

compose_value_t compose_uuid(const void *bytes)
{
    return (compose_value_t){
        .type = COMPOSE_UUID, .bytes = bytes, .size = UUID_BYTES};
}

compose_value_t compose_binary(const void *bytes, size_t size)
{
    return (compose_value_t){
        .type = COMPOSE_BINARY, .bytes = size > 0 ? bytes : "", .size = size};
}
