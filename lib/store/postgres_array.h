#ifndef IDEMI_POSTGRES_ARRAY_H
#define IDEMI_POSTGRES_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Types by their fixed oids (pg_type.dat). */
#define IDEMI_OID_INT8 20
#define IDEMI_OID_INT4 23
#define IDEMI_OID_TEXT 25
#define IDEMI_OID_FLOAT8 701
#define IDEMI_OID_INT4_ARRAY 1007
#define IDEMI_OID_TEXT_ARRAY 1009

/* A one-dimensional array parameter in PostgreSQL's binary form, in which no
 * byte of an element needs quoting. The room is kept from use to use. */
typedef struct idemi_array {
    unsigned char *bytes;
    size_t size;
    size_t room;
    bool failed; /* memory ran out since begin */
} idemi_array_t;

/* An array of count elements of a type, which are added next. */
void idemi_array_begin(idemi_array_t *array, uint32_t oid, size_t count);
void idemi_array_add_text(idemi_array_t *array, const char *bytes, size_t size);
void idemi_array_add_int4(idemi_array_t *array, int32_t value);
void idemi_array_finish(idemi_array_t *array);

/* Big-endian integers as they stand in binary results. */
int32_t idemi_get_int4(const char *bytes);
int64_t idemi_get_int8(const char *bytes);

#endif
