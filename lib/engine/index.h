#ifndef IDEMI_INDEX_H
#define IDEMI_INDEX_H

#include "engine/engine.h"

/* Which deliveries in here have the same key, and which wait in one group.
 *
 * Of the deliveries of one key the first is active: it alone asks the store
 * and runs; the others stand behind it in the order of arrival. A group holds
 * its deliveries that have not been given to a worker yet, in the order of
 * arrival: only the first may be. */
typedef struct idemi_index {
    struct idemi_key_record *keys;
    struct idemi_key_record *spare_keys;
    struct idemi_group_record *groups;
    struct idemi_group_record *spare_groups;
} idemi_index_t;

void idemi_index_finish(idemi_index_t *index);

/* Adds entry under its key. False: no memory; nothing has changed. */
bool idemi_index_add_key(idemi_index_t *index, idemi_entry_t *entry);
bool idemi_index_is_active(const idemi_entry_t *entry);
/* Takes entry out; returns the delivery that becomes active thereby, or NULL.
 */
idemi_entry_t *idemi_index_remove_key(idemi_index_t *index,
                                      idemi_entry_t *entry);

/* Adds entry to its group, if it has one. False: no memory. */
bool idemi_index_add_group(idemi_index_t *index, idemi_entry_t *entry);
/* True for entries without a group, or that have left it. */
bool idemi_index_is_group_head(const idemi_entry_t *entry);
/* Takes entry out of its group; returns the new head if that changed, or
 * NULL. */
idemi_entry_t *idemi_index_remove_group(idemi_index_t *index,
                                        idemi_entry_t *entry);

#endif
