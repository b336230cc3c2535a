#include "engine/list.h"

#include <assert.h>
#include <stddef.h>

void idemi_list_append(idemi_entry_list_t *list, idemi_entry_t *entry)
{
    assert(!entry->list);
    entry->list = list;
    entry->next = NULL;
    entry->previous = list->last;
    if (list->last) {
        list->last->next = entry;
    } else {
        list->first = entry;
    }
    list->last = entry;
}

/* Answers come nearly in the order of arrival, and where two batches cross, in
 * runs: the place is behind the entry of the last call, or near the end. */
void idemi_list_insert(idemi_entry_list_t *list, idemi_entry_t *entry)
{
    idemi_entry_t *before = list->inserted;

    assert(!entry->list);
    list->inserted = entry;
    if (!before || before->number > entry->number ||
        (before->next && before->next->number < entry->number)) {
        before = list->last;
    }
    while (before && before->number > entry->number) {
        before = before->previous;
    }
    idemi_entry_t *after = before ? before->next : list->first;
    entry->list = list;
    entry->previous = before;
    entry->next = after;
    if (before) {
        before->next = entry;
    } else {
        list->first = entry;
    }
    if (after) {
        after->previous = entry;
    } else {
        list->last = entry;
    }
}

void idemi_list_remove(idemi_entry_t *entry)
{
    idemi_entry_list_t *list = entry->list;

    if (!list) {
        return;
    }
    if (entry->previous) {
        entry->previous->next = entry->next;
    } else {
        list->first = entry->next;
    }
    if (entry->next) {
        entry->next->previous = entry->previous;
    } else {
        list->last = entry->previous;
    }
    if (list->inserted == entry) {
        list->inserted = NULL;
    }
    entry->list = NULL;
    entry->next = entry->previous = NULL;
}

idemi_entry_t *idemi_list_shift(idemi_entry_list_t *list)
{
    idemi_entry_t *entry = list->first;

    if (entry) {
        idemi_list_remove(entry);
    }
    return entry;
}
