#include "engine/timers.h"

#include <assert.h>
#include <stdlib.h>

static void put(idemi_timers_t *timers, size_t slot, idemi_entry_t *entry)
{
    timers->slots[slot] = entry;
    entry->timer = slot + 1;
}

static void sift_up(idemi_timers_t *timers, size_t slot)
{
    idemi_entry_t *entry = timers->slots[slot];

    while (slot > 0) {
        size_t parent = (slot - 1) / 2;
        if (timers->slots[parent]->due_ms <= entry->due_ms) {
            break;
        }
        put(timers, slot, timers->slots[parent]);
        slot = parent;
    }
    put(timers, slot, entry);
}

static void sift_down(idemi_timers_t *timers, size_t slot)
{
    idemi_entry_t *entry = timers->slots[slot];

    for (;;) {
        size_t child = 2 * slot + 1;
        if (child >= timers->count) {
            break;
        }
        if (child + 1 < timers->count &&
            timers->slots[child + 1]->due_ms < timers->slots[child]->due_ms) {
            child++;
        }
        if (entry->due_ms <= timers->slots[child]->due_ms) {
            break;
        }
        put(timers, slot, timers->slots[child]);
        slot = child;
    }
    put(timers, slot, entry);
}

bool idemi_timers_reserve(idemi_timers_t *timers, size_t entries)
{
    if (entries > timers->room) {
        size_t room = timers->room ? timers->room : 64;
        while (room < entries) {
            room *= 2;
        }
        idemi_entry_t **slots =
            realloc(timers->slots, room * sizeof(idemi_entry_t *));
        if (!slots) {
            return false;
        }
        timers->slots = slots;
        timers->room = room;
    }
    return true;
}

void idemi_timers_finish(idemi_timers_t *timers)
{
    free(timers->slots);
    *timers = (idemi_timers_t){NULL, 0, 0};
}

void idemi_timers_set(idemi_timers_t *timers, idemi_entry_t *entry,
                      int64_t due_ms)
{
    size_t slot;

    entry->due_ms = due_ms;
    if (entry->timer) {
        slot = entry->timer - 1;
    } else {
        assert(timers->count < timers->room);
        slot = timers->count++;
        put(timers, slot, entry);
    }
    sift_up(timers, slot);
    sift_down(timers, entry->timer - 1);
}

void idemi_timers_cancel(idemi_timers_t *timers, idemi_entry_t *entry)
{
    if (!entry->timer) {
        return;
    }
    size_t slot = entry->timer - 1;
    idemi_entry_t *last = timers->slots[--timers->count];
    entry->timer = 0;
    if (last != entry) {
        put(timers, slot, last);
        sift_up(timers, slot);
        sift_down(timers, last->timer - 1);
    }
}

int64_t idemi_timers_next(const idemi_timers_t *timers)
{
    return timers->count ? timers->slots[0]->due_ms : INT64_MAX;
}

idemi_entry_t *idemi_timers_pop(idemi_timers_t *timers, int64_t now_ms)
{
    if (idemi_timers_next(timers) > now_ms) {
        return NULL;
    }
    idemi_entry_t *entry = timers->slots[0];
    idemi_timers_cancel(timers, entry);
    return entry;
}
