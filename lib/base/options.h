#ifndef IDEMI_OPTIONS_H
#define IDEMI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

/* Options structs begin with their size, so that a program that was built
 * against an older, shorter struct still works (style: fields are only
 * appended). A value that no version of the struct can have means that it was
 * never initialised. */

/* Writes `size` bytes of defaults (known: our own sizeof) into options. Bytes
 * beyond what we know become 0. */
void idemi_options_init(void *options, size_t size, const void *defaults,
                        size_t known);

/* Copies the caller's struct over the defaults. False when struct_size is not
 * between smallest (the first released version's) and a sane bound, or when a
 * newer program set bytes that we do not know. */
bool idemi_options_read(void *copy, size_t known, const void *options,
                        size_t smallest);

#endif
