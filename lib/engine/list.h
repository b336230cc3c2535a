#ifndef IDEMI_LIST_H
#define IDEMI_LIST_H

#include "engine/engine.h"

/* Lists of entries; an entry is in one at most, which it knows. */

void idemi_list_append(idemi_entry_list_t *list, idemi_entry_t *entry);
/* By number, in the order of arrival. */
void idemi_list_insert(idemi_entry_list_t *list, idemi_entry_t *entry);
/* Out of the list it is in, if any. */
void idemi_list_remove(idemi_entry_t *entry);
/* Takes the first; NULL: none. */
idemi_entry_t *idemi_list_shift(idemi_entry_list_t *list);

#endif
