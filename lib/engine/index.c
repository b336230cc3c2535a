#include "engine/index.h"

/* A failed allocation inside uthash leaves the element out instead of ending
 * the process. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(element) ((element)->added = false)

#include <stdlib.h>
#include <uthash.h>

typedef struct idemi_key_record {
    idemi_entry_t *first; /* the active one; others by key_next */
    idemi_entry_t *last;
    struct idemi_key_record *next_spare;
    bool added;
    UT_hash_handle hh; /* by the key of the active entry */
} idemi_key_record_t;

typedef struct idemi_group_record {
    idemi_entry_t *first;
    idemi_entry_t *last;
    char *name;
    struct idemi_group_record *next_spare;
    bool added;
    UT_hash_handle hh;
} idemi_group_record_t;

void idemi_index_finish(idemi_index_t *index)
{
    idemi_key_record_t *key, *next_key;
    idemi_group_record_t *group, *next_group;

    HASH_ITER(hh, index->keys, key, next_key) {
        HASH_DEL(index->keys, key);
        free(key);
    }
    HASH_ITER(hh, index->groups, group, next_group) {
        HASH_DEL(index->groups, group);
        free(group->name);
        free(group);
    }
    while ((key = index->spare_keys)) {
        index->spare_keys = key->next_spare;
        free(key);
    }
    while ((group = index->spare_groups)) {
        index->spare_groups = group->next_spare;
        free(group);
    }
}

bool idemi_index_add_key(idemi_index_t *index, idemi_entry_t *entry)
{
    idemi_key_record_t *record;

    HASH_FIND(hh, index->keys, entry->key, entry->key_size, record);
    if (record) {
        record->last->key_next = entry;
    } else {
        record = index->spare_keys;
        if (record) {
            index->spare_keys = record->next_spare;
        } else {
            record = malloc(sizeof *record);
            if (!record) {
                return false;
            }
        }
        record->first = entry;
        record->added = true;
        HASH_ADD_KEYPTR(hh, index->keys, entry->key, entry->key_size, record);
        if (!record->added) {
            record->next_spare = index->spare_keys;
            index->spare_keys = record;
            return false;
        }
    }
    record->last = entry;
    entry->key_next = NULL;
    entry->key_record = record;
    return true;
}

bool idemi_index_is_active(const idemi_entry_t *entry)
{
    return !entry->key_record || entry->key_record->first == entry;
}

idemi_entry_t *idemi_index_remove_key(idemi_index_t *index,
                                      idemi_entry_t *entry)
{
    idemi_key_record_t *record = entry->key_record;

    if (!record) {
        return NULL;
    }
    entry->key_record = NULL;
    if (record->first != entry) {
        idemi_entry_t *before = record->first;
        while (before->key_next != entry) {
            before = before->key_next;
        }
        before->key_next = entry->key_next;
        if (record->last == entry) {
            record->last = before;
        }
        return NULL;
    }
    record->first = entry->key_next;
    if (!record->first) {
        HASH_DEL(index->keys, record);
        record->next_spare = index->spare_keys;
        index->spare_keys = record;
        return NULL;
    }
    /* The hash borrows the key's bytes: those of an entry that stays. */
    record->hh.key = record->first->key;
    return record->first;
}

bool idemi_index_add_group(idemi_index_t *index, idemi_entry_t *entry)
{
    idemi_group_record_t *record;

    if (!entry->group) {
        return true;
    }
    HASH_FIND(hh, index->groups, entry->group, entry->group_size, record);
    if (!record) {
        /* The members come and go: the name is the record's own. */
        char *name = malloc(entry->group_size + 1);
        record = index->spare_groups;
        if (record) {
            index->spare_groups = record->next_spare;
        } else {
            record = malloc(sizeof *record);
        }
        if (!name || !record) {
            free(name);
            free(record);
            return false;
        }
        memcpy(name, entry->group, entry->group_size);
        name[entry->group_size] = '\0';
        record->name = name;
        record->first = record->last = NULL;
        record->added = true;
        HASH_ADD_KEYPTR(hh, index->groups, record->name, entry->group_size,
                        record);
        if (!record->added) {
            free(name);
            free(record);
            return false;
        }
    }
    entry->group_record = record;
    entry->group_next = NULL;
    entry->group_previous = record->last;
    if (record->last) {
        record->last->group_next = entry;
    } else {
        record->first = entry;
    }
    record->last = entry;
    return true;
}

bool idemi_index_is_group_head(const idemi_entry_t *entry)
{
    return !entry->group_record || entry->group_record->first == entry;
}

idemi_entry_t *idemi_index_remove_group(idemi_index_t *index,
                                        idemi_entry_t *entry)
{
    idemi_group_record_t *record = entry->group_record;
    idemi_entry_t *head = NULL;

    if (!record) {
        return NULL;
    }
    entry->group_record = NULL;
    if (entry->group_previous) {
        entry->group_previous->group_next = entry->group_next;
    } else {
        record->first = head = entry->group_next;
    }
    if (entry->group_next) {
        entry->group_next->group_previous = entry->group_previous;
    } else {
        record->last = entry->group_previous;
    }
    if (!record->first) {
        HASH_DEL(index->groups, record);
        free(record->name);
        record->next_spare = index->spare_groups;
        index->spare_groups = record;
    }
    return head;
}
