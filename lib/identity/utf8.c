#include "identity/utf8.h"

#include <stdint.h>
#include <string.h>

size_t idemi_utf8_character(const void *bytes, size_t room)
{
    const uint8_t *at = bytes;
    uint8_t first = at[0];
    uint8_t low = 0x80;
    uint8_t high = 0xbf;

    if (first < 0x80) {
        return first != 0 ? 1 : 0;
    }
    if (first < 0xc2 || first > 0xf4) {
        return 0;
    }
    size_t size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (room < size) {
        return 0;
    }
    /* The second byte's range is narrower after these four (RFC 3629 section
     * 4): longer forms than needed, surrogates, beyond U+10FFFF. */
    if (first == 0xe0) {
        low = 0xa0;
    } else if (first == 0xed) {
        high = 0x9f;
    } else if (first == 0xf0) {
        low = 0x90;
    } else if (first == 0xf4) {
        high = 0x8f;
    }
    if (at[1] < low || at[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return size;
}

/* Whether eight bytes are all ASCII and none is NUL: no high bit is set, and
 * subtracting 1 from each borrows nowhere. */
static bool is_plain(const uint8_t *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof word);
    return ((word | (word - UINT64_C(0x0101010101010101))) &
            UINT64_C(0x8080808080808080)) == 0;
}

bool idemi_utf8_is_text(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;

    while (size > 0) {
        size_t step =
            size >= 8 && is_plain(at) ? 8 : idemi_utf8_character(at, size);
        if (step == 0) {
            return false;
        }
        at += step;
        size -= step;
    }
    return true;
}
