#ifndef IDEM_FUZZ_CHECK_WALK_H
#define IDEM_FUZZ_CHECK_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Walks the bytes, makes a key and aborts the program where anything is not
 * as it must be for any input. Returns whether the walk let them pass. */
bool check_walk(const uint8_t *data, size_t size);

#endif
