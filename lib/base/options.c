#include "base/options.h"

#include <string.h>

/* No options struct grows beyond this. */
#define SANE_BYTES 4096

void idemi_options_init(void *options, size_t size, const void *defaults,
                        size_t known)
{
    size_t common = size < known ? size : known;

    if (!options || size < sizeof size) {
        return;
    }
    memset(options, 0, size);
    memcpy(options, defaults, common);
    memcpy(options, &size, sizeof size);
}

bool idemi_options_read(void *copy, size_t known, const void *options,
                        size_t smallest)
{
    size_t size;

    memcpy(&size, options, sizeof size);
    if (size < smallest || size > SANE_BYTES) {
        return false;
    }
    for (size_t i = known; i < size; i++) {
        if (((const unsigned char *)options)[i] != 0) {
            return false;
        }
    }
    memcpy(copy, options, size < known ? size : known);
    memcpy(copy, &known, sizeof known);
    return true;
}
