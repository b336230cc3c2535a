#ifndef IDEMI_CLOCK_H
#define IDEMI_CLOCK_H

#include <stdint.h>

/* Milliseconds on the monotonic clock: only differences mean anything. */
int64_t idemi_now_ms(void);

#endif
