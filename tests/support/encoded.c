#include "encoded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program: no test goes on without its input. */
static void stop(const char *why)
{
    fprintf(stderr, "encoded: %s\n", why);
    abort();
}

void encoded_finish(encoded_t *encoded)
{
    free(encoded->data);
    *encoded = (encoded_t){0};
}

void encoded_clear(encoded_t *encoded)
{
    encoded->size = 0;
}

void encoded_bytes(encoded_t *encoded, const void *bytes, size_t size)
{
    if (encoded->room - encoded->size < size) {
        size_t room = 2 * (encoded->size + size);
        uint8_t *data = realloc(encoded->data, room);

        if (data == NULL) {
            stop("out of memory");
        }
        encoded->data = data;
        encoded->room = room;
    }
    if (size > 0) {
        memcpy(encoded->data + encoded->size, bytes, size);
        encoded->size += size;
    }
}

void encoded_byte(encoded_t *encoded, unsigned byte)
{
    uint8_t value = (uint8_t)byte;

    encoded_bytes(encoded, &value, 1);
}

static void put_uint32(uint8_t *at, uint32_t number)
{
    at[0] = (uint8_t)(number >> 24);
    at[1] = (uint8_t)(number >> 16);
    at[2] = (uint8_t)(number >> 8);
    at[3] = (uint8_t)number;
}

void encoded_uint32(encoded_t *encoded, uint32_t number)
{
    uint8_t bytes[4];

    put_uint32(bytes, number);
    encoded_bytes(encoded, bytes, sizeof bytes);
}

void encoded_hex(encoded_t *encoded, const char *digits)
{
    static const char hex[] = "0123456789abcdef";
    unsigned byte = 0;
    unsigned count = 0;

    for (; *digits != '\0'; digits++) {
        if (*digits == ' ') {
            continue;
        }
        const char *digit = strchr(hex, *digits);
        if (digit == NULL) {
            stop("that is no hex digit");
        }
        byte = byte << 4 | (unsigned)(digit - hex);
        if (++count % 2 == 0) {
            encoded_byte(encoded, byte & 0xff);
        }
    }
    if (count % 2 != 0) {
        stop("half a byte");
    }
}

void encoded_section(encoded_t *encoded, unsigned code)
{
    encoded_byte(encoded, 0x00);
    encoded_byte(encoded, 0x53);
    encoded_byte(encoded, code);
}

/* Whether sizes and counts take four bytes: in each family of encodings, the
 * higher code (AMQP 1.0 part 1 section 1.2). */
static int is_wide(unsigned constructor)
{
    unsigned family = constructor & 0xf0;

    return family == 0xb0 || family == 0xd0 || family == 0xf0;
}

void encoded_variable(encoded_t *encoded, unsigned constructor,
                      const void *bytes, size_t size)
{
    encoded_byte(encoded, constructor);
    if (is_wide(constructor)) {
        encoded_uint32(encoded, (uint32_t)size);
    } else if (size < 256) {
        encoded_byte(encoded, (unsigned)size);
    } else {
        stop("too long for one byte of size");
    }
    encoded_bytes(encoded, bytes, size);
}

void encoded_string(encoded_t *encoded, const char *string)
{
    size_t size = strlen(string);

    encoded_variable(encoded, size < 256 ? 0xa1 : 0xb1, string, size);
}

size_t encoded_open(encoded_t *encoded, unsigned constructor)
{
    size_t opened = encoded->size;

    encoded_byte(encoded, constructor);
    encoded_bytes(encoded, "\0\0\0\0\0\0\0\0", is_wide(constructor) ? 8 : 2);
    return opened;
}

void encoded_close(encoded_t *encoded, size_t opened, uint32_t count)
{
    uint8_t *at = encoded->data + opened;
    size_t inside = encoded->size - opened - 1;

    if (is_wide(*at)) {
        put_uint32(at + 1, (uint32_t)(inside - 4));
        put_uint32(at + 5, count);
    } else if (inside - 1 < 256 && count < 256) {
        at[1] = (uint8_t)(inside - 1);
        at[2] = (uint8_t)count;
    } else {
        stop("too much for one byte of size");
    }
}
