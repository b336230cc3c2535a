#include "store/postgres_array.h"

#include <stdlib.h>
#include <string.h>

static void put(idemi_array_t *array, const void *bytes, size_t size)
{
    if (array->failed) {
        return;
    }
    if (array->room - array->size < size) {
        size_t room = 2 * (array->size + size) + 1024;
        unsigned char *grown = realloc(array->bytes, room);
        if (!grown) {
            array->failed = true;
            return;
        }
        array->bytes = grown;
        array->room = room;
    }
    memcpy(array->bytes + array->size, bytes, size);
    array->size += size;
}

static void put_int4(idemi_array_t *array, uint32_t value)
{
    const unsigned char bytes[4] = {
        (unsigned char)(value >> 24), (unsigned char)(value >> 16),
        (unsigned char)(value >> 8), (unsigned char)value};

    put(array, bytes, sizeof bytes);
}

void idemi_array_begin(idemi_array_t *array, uint32_t oid, size_t count)
{
    array->size = 0;
    array->failed = false;
    put_int4(array, count > 0 ? 1 : 0); /* dimensions */
    put_int4(array, 0);                 /* no nulls */
    put_int4(array, oid);
    if (count > 0) {
        put_int4(array, (uint32_t)count);
        put_int4(array, 1); /* lower bound */
    }
}

void idemi_array_add_text(idemi_array_t *array, const char *bytes, size_t size)
{
    put_int4(array, (uint32_t)size);
    put(array, bytes, size);
}

void idemi_array_add_int4(idemi_array_t *array, int32_t value)
{
    put_int4(array, 4);
    put_int4(array, (uint32_t)value);
}

void idemi_array_finish(idemi_array_t *array)
{
    free(array->bytes);
    *array = (idemi_array_t){NULL, 0, 0, false};
}

int32_t idemi_get_int4(const char *bytes)
{
    const unsigned char *b = (const unsigned char *)bytes;

    return (int32_t)((uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 |
                     (uint32_t)b[2] << 8 | (uint32_t)b[3]);
}

int64_t idemi_get_int8(const char *bytes)
{
    return (int64_t)((uint64_t)(uint32_t)idemi_get_int4(bytes) << 32 |
                     (uint32_t)idemi_get_int4(bytes + 4));
}
