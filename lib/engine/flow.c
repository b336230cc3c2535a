#include "engine/flow.h"

#include "base/backoff.h"
#include "engine/list.h"

#include <assert.h>

/* A key that someone else holds is asked for again after this, doubled. */
#define PARK_MIN_MS 50
#define PARK_MAX_MS 5000
/* Behind the end of the other's lease: the clocks of two machines tick alike,
 * but not to the millisecond. */
#define PARK_MARGIN_MS 5

void idemi_flow_set_state(idemi_engine_t *engine, idemi_entry_t *entry,
                          idemi_state_t state)
{
    engine->in_state[entry->state]--;
    engine->in_state[state]++;
    entry->state = state;
}

void idemi_flow_asked(idemi_engine_t *engine, idemi_entry_t *entry)
{
    if (!entry->unasked) {
        return;
    }
    entry->unasked = false;
    if (entry->unasked_previous) {
        entry->unasked_previous->unasked_next = entry->unasked_next;
    } else {
        engine->unasked_first = entry->unasked_next;
    }
    if (entry->unasked_next) {
        entry->unasked_next->unasked_previous = entry->unasked_previous;
    } else {
        engine->unasked_last = entry->unasked_previous;
    }
}

bool idemi_flow_uses_store(const idemi_engine_t *engine,
                           const idemi_entry_t *entry)
{
    return engine->config.has_store && entry->verdict == IDEMI_VERDICT_KEYED;
}

/* Steps 2 and 6: questions to the store. */

void idemi_flow_ask(idemi_engine_t *engine, idemi_entry_t *entry,
                    idemi_op_kind_t kind)
{
    assert(!entry->op_busy);
    entry->op_busy = true;
    entry->op.kind = kind;
    entry->op.failed = false;
    entry->op.key = entry->key;
    entry->op.key_size = entry->key_size;
    entry->op.token = entry->token;
    entry->op.answer = IDEMI_ANSWER_NONE;
    idemi_list_append(&engine->to_store, entry);
}

void idemi_flow_claim(idemi_engine_t *engine, idemi_entry_t *entry)
{
    idemi_timers_cancel(&engine->timers, entry);
    idemi_flow_set_state(engine, entry, IDEMI_STATE_CLAIMING);
    if (!entry->op_busy) {
        /* A lease of ours that ran out is made new by a takeover from
         * ourselves: a claim would leave the old end. */
        idemi_flow_ask(engine, entry,
                       entry->has_claim ? IDEMI_OP_TAKEOVER : IDEMI_OP_CLAIM);
    }
}

/* Of one group only the first may start, and none while its renewal is under
 * way. */
void idemi_flow_enlist(idemi_engine_t *engine, idemi_entry_t *entry)
{
    if (idemi_index_is_group_head(entry) && !entry->list && !entry->op_busy) {
        if (entry->state == IDEMI_STATE_READY) {
            idemi_list_insert(&engine->ready, entry);
        } else if (entry->state == IDEMI_STATE_SUSPECT) {
            idemi_list_insert(&engine->suspects, entry);
        }
    }
}

void idemi_flow_leave_group(idemi_engine_t *engine, idemi_entry_t *entry)
{
    idemi_entry_t *head = idemi_index_remove_group(&engine->index, entry);

    if (head) {
        idemi_flow_enlist(engine, head);
    }
}

/* It cannot start any more. */
static void withdraw(idemi_engine_t *engine, idemi_entry_t *entry)
{
    idemi_flow_asked(engine, entry);
    if (entry->list == &engine->to_store) {
        entry->op_busy = false; /* it was never asked */
    }
    idemi_list_remove(entry);
    idemi_timers_cancel(&engine->timers, entry);
    idemi_flow_leave_group(engine, entry);
    if (engine->exclusive == entry) {
        engine->exclusive = NULL;
    }
}

/* The delivery has its settlement. Returns the one that was behind it. */
static idemi_entry_t *settle(idemi_engine_t *engine, idemi_entry_t *entry)
{
    assert(!entry->op_busy);
    withdraw(engine, entry);
    idemi_entry_t *follower = idemi_index_remove_key(&engine->index, entry);
    idemi_flow_set_state(engine, entry, IDEMI_STATE_SETTLED);
    idemi_list_append(entry->stale ? &engine->to_forget : &engine->to_settle,
                      entry);
    return follower;
}

void idemi_flow_finish(idemi_engine_t *engine, idemi_entry_t *entry)
{
    bool confirmed = entry->confirmed;
    idemi_entry_t *follower = settle(engine, entry);

    while (follower && (confirmed || engine->stopping || follower->stale)) {
        follower->settlement =
            confirmed ? IDEMI_SETTLE_ACCEPTED : IDEMI_SETTLE_RELEASED;
        if (!follower->stale) {
            engine->counts.duplicates += confirmed ? 1 : 0;
            engine->counts.given_back += confirmed ? 0 : 1;
        }
        follower = settle(engine, follower);
    }
    if (follower) {
        idemi_flow_claim(engine, follower);
    }
}

void idemi_flow_finish_as(idemi_engine_t *engine, idemi_entry_t *entry,
                          idemi_settlement_t settlement)
{
    entry->settlement = settlement;
    idemi_flow_finish(engine, entry);
}

void idemi_flow_release(idemi_engine_t *engine, idemi_entry_t *entry)
{
    withdraw(engine, entry);
    idemi_flow_set_state(engine, entry, IDEMI_STATE_RELEASING);
    if (!entry->op_busy) {
        idemi_flow_ask(engine, entry, IDEMI_OP_RELEASE);
        entry->op.failed = entry->settlement == IDEMI_SETTLE_FAILED ||
                           entry->settlement == IDEMI_SETTLE_REJECTED;
    }
}

void idemi_flow_give_back(idemi_engine_t *engine, idemi_entry_t *entry)
{
    entry->settlement = IDEMI_SETTLE_RELEASED;
    entry->tries = 0;
    engine->counts.given_back += entry->stale ? 0 : 1;
    if (entry->has_claim) {
        idemi_flow_release(engine, entry);
    } else {
        idemi_flow_finish(engine, entry);
    }
}

void idemi_flow_released(idemi_engine_t *engine, idemi_entry_t *entry)
{
    entry->has_claim = false;
    if (entry->tries == 0 || entry->stale || entry->presettled ||
        engine->stopping) {
        idemi_flow_finish(engine, entry);
        return;
    }
    idemi_flow_set_state(engine, entry, IDEMI_STATE_WAITING);
    idemi_timers_set(&engine->timers, entry,
                     engine->now_ms +
                         idemi_backoff_ms(&engine->random, entry->tries,
                                          engine->config.retry_min_ms,
                                          engine->config.retry_max_ms));
}

void idemi_flow_park(idemi_engine_t *engine, idemi_entry_t *entry,
                     int64_t remaining_ms)
{
    if (entry->stale || engine->stopping) {
        idemi_flow_give_back(engine, entry);
        return;
    }
    entry->tries++;
    int64_t pause = idemi_backoff_ms(&engine->random, entry->tries, PARK_MIN_MS,
                                     PARK_MAX_MS);
    if (remaining_ms >= 0 && pause > remaining_ms + PARK_MARGIN_MS) {
        pause = remaining_ms + PARK_MARGIN_MS;
    }
    idemi_list_remove(entry);
    idemi_flow_set_state(engine, entry, IDEMI_STATE_PARKED);
    idemi_timers_set(&engine->timers, entry, engine->now_ms + pause);
}

void idemi_flow_make_ready(idemi_engine_t *engine, idemi_entry_t *entry)
{
    entry->tries = 0;
    idemi_flow_set_state(engine, entry,
                         entry->suspect && engine->exclusive != entry
                             ? IDEMI_STATE_SUSPECT
                             : IDEMI_STATE_READY);
    idemi_flow_enlist(engine, entry);
}

void idemi_flow_cancel(idemi_engine_t *engine, idemi_entry_t *entry)
{
    if (!entry->cancelling) {
        entry->cancelling = true;
        entry->cancel_next = engine->cancels;
        engine->cancels = entry;
    }
}
