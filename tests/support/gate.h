#ifndef IDEM_TEST_GATE_H
#define IDEM_TEST_GATE_H

/* Where handlers wait until the test lets them on. Any thread. */

#include <idem/delivery.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gate {
    atomic_bool is_open;
    atomic_size_t arrived; /* how many came to it, ever */
} gate_t;

/** Shut, and nobody has come. */
void gate_init(gate_t *gate);

/** Returns once it is open, or after a minute, so that no test hangs. */
void gate_pass(gate_t *gate);

/** The idem_handler_t that passes and accepts; user is the gate_t. */
idem_outcome_t gate_handler(idem_delivery_t *delivery, void *user);

void gate_open(gate_t *gate);

/** Wait until that many have come in all. */
bool gate_wait_arrived(gate_t *gate, size_t count, int64_t timeout_ms);

#endif
