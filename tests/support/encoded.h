#ifndef IDEM_TEST_ENCODED_H
#define IDEM_TEST_ENCODED_H

#include <stddef.h>
#include <stdint.h>

/* An AMQP message written byte by byte, so that a test can say how each value
 * is encoded, also wrongly. */
typedef struct encoded {
    uint8_t *data;
    size_t size;
    size_t room;
} encoded_t;

/* Starts as {0}; gives the memory back. */
void encoded_finish(encoded_t *encoded);

/* Starts again, in the same memory. */
void encoded_clear(encoded_t *encoded);

void encoded_byte(encoded_t *encoded, unsigned byte);
void encoded_bytes(encoded_t *encoded, const void *bytes, size_t size);
void encoded_uint32(encoded_t *encoded, uint32_t number);

/* Bytes as hex digits, blanks between them as you like. */
void encoded_hex(encoded_t *encoded, const char *digits);

/* The descriptor of a section, such as 0x73; its value comes next. */
void encoded_section(encoded_t *encoded, unsigned code);

/* A binary, string or symbol: the constructor says which, and how wide its
 * size is. */
void encoded_variable(encoded_t *encoded, unsigned constructor,
                      const void *bytes, size_t size);
void encoded_string(encoded_t *encoded, const char *string);

/* A list, map or array: what is written between open and close is in it. An
 * array begins with the constructor of its elements. */
size_t encoded_open(encoded_t *encoded, unsigned constructor);
void encoded_close(encoded_t *encoded, size_t opened, uint32_t count);

#endif
