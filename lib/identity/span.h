#ifndef IDEMI_SPAN_H
#define IDEMI_SPAN_H

#include <stddef.h>
#include <stdint.h>

/* Bytes in somebody else's buffer; they live as long as it does. data is NULL
 * where there is no such value. */
typedef struct idemi_span {
    const uint8_t *data;
    size_t size;
} idemi_span_t;

#endif
