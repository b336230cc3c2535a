#ifndef IDEMI_FLOW_H
#define IDEMI_FLOW_H

#include "engine/engine.h"
#include "engine/index.h"
#include "engine/recent.h"
#include "engine/timers.h"

/* The moves that a delivery can make, shared by the inputs (engine.c) and the
 * answers of the store (answer.c). */

struct idemi_engine {
    idemi_engine_config_t config;
    char token_prefix[IDEMI_TOKEN_PREFIX_BYTES];
    uint64_t token_count;
    idemi_random_t random;
    int64_t now_ms; /* of the last input */

    bool link_up;
    bool stopping;
    uint32_t credit;    /* that the broker may still use */
    uint32_t unsettled; /* on the present link */
    uint64_t arrivals;

    idemi_index_t index;
    idemi_timers_t timers;
    idemi_recent_t recent;
    size_t live;
    idemi_entry_t *live_first, *live_last;
    idemi_entry_t *unasked_first, *unasked_last;

    idemi_entry_list_t to_store;
    idemi_entry_list_t to_settle;
    idemi_entry_list_t to_forget;
    idemi_entry_list_t ready;    /* may run, by number */
    idemi_entry_list_t suspects; /* may be taken over, by number */
    idemi_entry_t *cancels;
    idemi_entry_t *exclusive; /* the suspect whose turn it is */

    uint32_t in_state[IDEMI_STATE_SETTLED + 1];
    idem_consumer_statistics_t counts;
};

void idemi_flow_set_state(idemi_engine_t *engine, idemi_entry_t *entry,
                          idemi_state_t state);
/* Its first claim is answered, or not awaited any more. */
void idemi_flow_asked(idemi_engine_t *engine, idemi_entry_t *entry);
bool idemi_flow_uses_store(const idemi_engine_t *engine,
                           const idemi_entry_t *entry);

/* Steps 2 and 6. */
void idemi_flow_ask(idemi_engine_t *engine, idemi_entry_t *entry,
                    idemi_op_kind_t kind);
void idemi_flow_claim(idemi_engine_t *engine, idemi_entry_t *entry);

/* Step 3: it may start, when its turn comes. */
void idemi_flow_make_ready(idemi_engine_t *engine, idemi_entry_t *entry);
/* READY or SUSPECT: into the list of those that may start. */
void idemi_flow_enlist(idemi_engine_t *engine, idemi_entry_t *entry);
void idemi_flow_leave_group(idemi_engine_t *engine, idemi_entry_t *entry);
/* Someone else holds the key (for remaining_ms, if not negative), or the store
 * refused: asks again later. */
void idemi_flow_park(idemi_engine_t *engine, idemi_entry_t *entry,
                     int64_t remaining_ms);
void idemi_flow_cancel(idemi_engine_t *engine, idemi_entry_t *entry);

/* Step 6: whatever has been decided, the claim is released first. */
void idemi_flow_release(idemi_engine_t *engine, idemi_entry_t *entry);
/* Step 7: the claim is released: back-off, then step 8. */
void idemi_flow_released(idemi_engine_t *engine, idemi_entry_t *entry);
/* It has not started and will not: nothing is counted against it. */
void idemi_flow_give_back(idemi_engine_t *engine, idemi_entry_t *entry);

/* Step 8: settles a delivery, and with it those behind it that need no
 * question of their own: copies of what is confirmed now, or what is given
 * back anyway. */
void idemi_flow_finish(idemi_engine_t *engine, idemi_entry_t *entry);
void idemi_flow_finish_as(idemi_engine_t *engine, idemi_entry_t *entry,
                          idemi_settlement_t settlement);

#endif
