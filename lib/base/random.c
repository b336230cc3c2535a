#include "base/random.h"

#include <errno.h>
#include <limits.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

/* 20 characters of the program's name are enough to know it by. */
#define NAME_BYTES 20

uint64_t idemi_random_next(idemi_random_t *random)
{
    uint64_t z = (random->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t idemi_random_below(idemi_random_t *random, uint64_t limit)
{
    /* The bias of a remainder does not matter to a jitter. */
    return limit ? idemi_random_next(random) % limit : 0;
}

bool idemi_random_bytes(void *bytes, size_t size)
{
    return size <= INT_MAX && RAND_bytes(bytes, (int)size) == 1;
}

bool idemi_token_prefix(char prefix[IDEMI_TOKEN_PREFIX_BYTES])
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuv";
    unsigned char random[22];
    char *out = prefix;

    if (!idemi_random_bytes(random, sizeof random)) {
        return false;
    }
    /* The name is for the human who reads claimed_by; it stays printable
     * ASCII, since the column is text. */
    for (const char *c = program_invocation_short_name;
         *c && out < prefix + NAME_BYTES; c++) {
        *out++ = (*c > ' ' && *c < 0x7f) ? *c : '_';
    }
    *out++ = '-';
    for (size_t i = 0; i < sizeof random; i++) {
        *out++ = digits[random[i] & 31];
    }
    *out = '\0';
    return true;
}
