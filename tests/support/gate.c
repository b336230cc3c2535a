#include "gate.h"

#include "support.h"

enum { PASS_MS = 60000 };

void gate_init(gate_t *gate)
{
    atomic_init(&gate->is_open, false);
    atomic_init(&gate->arrived, 0);
}

static bool is_open(void *user)
{
    return atomic_load(&((gate_t *)user)->is_open);
}

void gate_pass(gate_t *gate)
{
    atomic_fetch_add(&gate->arrived, 1);
    test_wait(is_open, gate, PASS_MS);
}

idem_outcome_t gate_handler(idem_delivery_t *delivery, void *user)
{
    (void)delivery;
    gate_pass(user);
    return IDEM_ACCEPT;
}

void gate_open(gate_t *gate)
{
    atomic_store(&gate->is_open, true);
}

typedef struct wish {
    gate_t *gate;
    size_t count;
} wish_t;

static bool has_arrived(void *user)
{
    const wish_t *wish = user;

    return atomic_load(&wish->gate->arrived) >= wish->count;
}

bool gate_wait_arrived(gate_t *gate, size_t count, int64_t timeout_ms)
{
    wish_t wish = {gate, count};

    return test_wait(has_arrived, &wish, timeout_ms);
}
