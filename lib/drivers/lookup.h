#ifndef IDEMI_LOOKUP_H
#define IDEMI_LOOKUP_H

#include <stddef.h>

/* Room for an address, with the interface that it may be bound to. */
#define IDEMI_LOOKUP_BYTES 80

/* Writes one address of a host as a number, which is taken as it is wherever a
 * name would be looked up: with each higher turn the next one, then the first
 * again. NULL, or why that cannot be done. Blocks for the resolver. */
const char *idemi_lookup(char address[IDEMI_LOOKUP_BYTES], const char *host,
                         size_t turn);

#endif
