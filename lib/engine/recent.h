#ifndef IDEMI_RECENT_H
#define IDEMI_RECENT_H

#include <stddef.h>
#include <stdint.h>

/* How often keys were given back of late, so that the back-off of a message
 * grows from one delivery to the next: the broker does not count a release,
 * and shows no count for a large message. Bounded; the one that was not given
 * back for longest is forgotten first. */
typedef struct idemi_recent {
    struct idemi_recent_record *records; /* oldest first */
} idemi_recent_t;

void idemi_recent_finish(idemi_recent_t *recent);

/* Counts one more, and returns the count (1: the first). */
uint32_t idemi_recent_count(idemi_recent_t *recent, const char *key,
                            size_t key_size);
/* The key is through. */
void idemi_recent_forget(idemi_recent_t *recent, const char *key,
                         size_t key_size);

#endif
