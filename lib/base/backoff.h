#ifndef IDEMI_BACKOFF_H
#define IDEMI_BACKOFF_H

#include "base/random.h"

#include <stdint.h>

/* The pause before try number `tries` (1 = the first repeat): doubled from
 * min_ms up to max_ms, then half of it fixed and half at random, so that
 * many clients spread and no pause is near nothing. */
int64_t idemi_backoff_ms(idemi_random_t *random, uint32_t tries, int64_t min_ms,
                         int64_t max_ms);

#endif
