#include "engine/recent.h"

/* A key that cannot be noted starts its back-off anew, nothing worse. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(element) ((element)->added = false)

#include <idem/store.h>

#include <stdbool.h>
#include <stdlib.h>
#include <uthash.h>

#define MOST 1024

typedef struct idemi_recent_record {
    uint32_t count;
    bool added;
    UT_hash_handle hh; /* uthash keeps the order in which they were added */
    char key[IDEM_KEY_BYTES + 1];
} idemi_recent_record_t;

static void drop(idemi_recent_t *recent, idemi_recent_record_t *record)
{
    HASH_DEL(recent->records, record);
    free(record);
}

void idemi_recent_finish(idemi_recent_t *recent)
{
    while (recent->records) {
        drop(recent, recent->records);
    }
}

uint32_t idemi_recent_count(idemi_recent_t *recent, const char *key,
                            size_t key_size)
{
    idemi_recent_record_t *record;
    uint32_t count = 1;

    HASH_FIND(hh, recent->records, key, key_size, record);
    if (record) {
        count = record->count < UINT32_MAX ? record->count + 1 : UINT32_MAX;
        HASH_DEL(recent->records, record);
    } else {
        if (HASH_COUNT(recent->records) >= MOST) {
            drop(recent, recent->records);
        }
        record = malloc(sizeof *record);
        if (!record || key_size > IDEM_KEY_BYTES) {
            free(record);
            return count;
        }
        memcpy(record->key, key, key_size);
    }
    record->count = count;
    record->added = true;
    HASH_ADD_KEYPTR(hh, recent->records, record->key, key_size, record);
    if (!record->added) {
        free(record);
    }
    return count;
}

void idemi_recent_forget(idemi_recent_t *recent, const char *key,
                         size_t key_size)
{
    idemi_recent_record_t *record;

    if (recent->records) {
        HASH_FIND(hh, recent->records, key, key_size, record);
        if (record) {
            drop(recent, record);
        }
    }
}
