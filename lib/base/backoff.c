#include "base/backoff.h"

int64_t idemi_backoff_ms(idemi_random_t *random, uint32_t tries, int64_t min_ms,
                         int64_t max_ms)
{
    int64_t pause = min_ms;

    for (uint32_t i = 1; i < tries && pause < max_ms; i++) {
        pause = pause > max_ms / 2 ? max_ms : pause * 2;
    }
    if (pause > max_ms) {
        pause = max_ms;
    }
    return pause - pause / 2 +
           (int64_t)idemi_random_below(random, (uint64_t)(pause / 2) + 1);
}
