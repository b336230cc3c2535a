#ifndef IDEM_SIM_WORLD_H
#define IDEM_SIM_WORLD_H

#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>

/* A whole world in one thread: some consumer processes (real engines), a model
 * of the store's table and a model of a broker's queue. Random events move it;
 * after every one the promises of the library are checked. Everything follows
 * from the seed. */

#define WORLD_PROCESSES 3
#define WORLD_MESSAGES 16
#define WORLD_KEYS 8
#define WORLD_GROUPS 2
#define WORLD_OPS 512

typedef struct world_row {
    bool exists;
    bool confirmed;
    char owner[IDEM_TOKEN_BYTES + 1]; /* "": freed */
    int64_t expires_ms;
    uint32_t attempts;
} world_row_t;

typedef enum world_place {
    WORLD_QUEUED,
    WORLD_ASSIGNED,
    WORLD_ACCEPTED,
    WORLD_REJECTED
} world_place_t;

struct world_delivery;

typedef struct world_message {
    int key; /* -1: none */
    int group;
    world_place_t place;
    struct world_delivery *delivery; /* ASSIGNED */
    uint32_t count;                  /* failed deliveries */
} world_message_t;

typedef enum world_run {
    WORLD_IDLE,
    WORLD_GIVEN,     /* with a worker, not started */
    WORLD_CANCELLED, /* not started, and told so */
    WORLD_STARTED,
    WORLD_SUCCEEDED /* its handler accepted; not confirmed yet */
} world_run_t;

typedef struct world_delivery {
    idemi_entry_t entry; /* first member */
    world_message_t *message;
    int process;
    world_run_t run;
    bool suspect; /* its key was taken over from an owner that died */
    bool ended;   /* its handler has ended */
    bool told_lost;
    bool on_link; /* counts against the window */
    bool was_run;
    bool was_refused; /* the store failed it: its claim may be left over */
    int64_t arrived_ms;
    uint64_t number;
    char key[16];
    char group[16];
    struct world_delivery *next, *previous; /* of its process */
} world_delivery_t;

typedef struct world_process {
    idemi_engine_t *engine;
    bool link_up;
    bool stopping;
    bool store_down; /* nothing it asks is executed */
    uint32_t prefetch;
    uint32_t concurrency;
    uint32_t credit;
    uint32_t unsettled;
    uint64_t arrivals;
    world_delivery_t *deliveries;
} world_process_t;

typedef struct world_op {
    idemi_op_t op;              /* a copy of the question, then the answer */
    world_delivery_t *delivery; /* NULL: its process has died */
    char token[IDEM_TOKEN_BYTES + 1];
    int key;
    bool executed;
    int64_t asked_ms;
} world_op_t;

typedef struct world {
    uint64_t seed;
    idemi_random_t random;
    int64_t now_ms;
    int64_t lease_ms;
    uint32_t max_attempts;
    bool faults; /* crashes, losses, failures may happen */
    bool trace;

    world_row_t rows[WORLD_KEYS];
    bool excused[WORLD_KEYS]; /* may have been handled twice */
    uint32_t successes[WORLD_KEYS];
    world_message_t messages[WORLD_MESSAGES];
    int message_count;
    int order[WORLD_MESSAGES]; /* the queue's order */
    world_process_t processes[WORLD_PROCESSES];
    int process_count;
    uint64_t generations;
    world_op_t ops[WORLD_OPS];
    int op_count;

    uint64_t steps;
    char broken[256]; /* the promise that was broken; "": none */
} world_t;

void world_init(world_t *world, uint64_t seed, bool trace);
void world_finish(world_t *world);

/* One random event and all checks; false once a promise is broken. */
bool world_step(world_t *world);

/* No more faults: everything must come to its end. */
bool world_settle(world_t *world);

/* world_store.c: what PostgreSQL does with an operation at world->now_ms. */
void world_execute(world_t *world, world_op_t *op);

/* Notes the first broken promise. */
void world_break(world_t *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
