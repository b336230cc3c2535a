#ifndef IDEMI_TIMERS_H
#define IDEMI_TIMERS_H

#include "engine/engine.h"

/* A heap of entries by due_ms: at most one timer per entry. */
typedef struct idemi_timers {
    idemi_entry_t **slots;
    size_t count;
    size_t room;
} idemi_timers_t;

/* Makes room for so many entries, so that setting a timer cannot fail. */
bool idemi_timers_reserve(idemi_timers_t *timers, size_t entries);
void idemi_timers_finish(idemi_timers_t *timers);

/* Sets or moves an entry's timer. */
void idemi_timers_set(idemi_timers_t *timers, idemi_entry_t *entry,
                      int64_t due_ms);
void idemi_timers_cancel(idemi_timers_t *timers, idemi_entry_t *entry);

/* INT64_MAX: none. */
int64_t idemi_timers_next(const idemi_timers_t *timers);
/* Takes the first entry that is due; NULL: none. */
idemi_entry_t *idemi_timers_pop(idemi_timers_t *timers, int64_t now_ms);

#endif
