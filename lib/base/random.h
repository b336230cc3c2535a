#ifndef IDEMI_RANDOM_H
#define IDEMI_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A small generator for jitter (splitmix64): repeatable from its seed, so that
 * a simulation replays; not for tokens. */
typedef struct idemi_random {
    uint64_t state;
} idemi_random_t;

uint64_t idemi_random_next(idemi_random_t *random);

/* Evenly from 0 to limit - 1; 0 where limit is 0. */
uint64_t idemi_random_below(idemi_random_t *random, uint64_t limit);

/* Unpredictable bytes for tokens and seeds, from libcrypto; false where none
 * are to be had. */
bool idemi_random_bytes(void *bytes, size_t size);

/* A process-unique token prefix: `<program>-<22 characters>`, at most
 * IDEMI_TOKEN_PREFIX_BYTES with its NUL. A per-claim counter goes behind it. */
#define IDEMI_TOKEN_PREFIX_BYTES 44
bool idemi_token_prefix(char prefix[IDEMI_TOKEN_PREFIX_BYTES]);

#endif
