#include "engine/answer.h"

#include "base/backoff.h"
#include "engine/list.h"

#include <assert.h>

/* A confirm that the store refused is repeated after this, doubled. */
#define CONFIRM_MIN_MS 50
#define CONFIRM_MAX_MS 5000
/* A renewal that the store refused is tried again after this. */
#define RENEW_AGAIN_MS 250

static void finish_duplicate(idemi_engine_t *engine, idemi_entry_t *entry)
{
    entry->confirmed = true;
    entry->has_claim = false;
    engine->counts.duplicates += entry->stale ? 0 : 1;
    idemi_flow_finish_as(engine, entry, IDEMI_SETTLE_ACCEPTED);
}

static void arm_renewal(idemi_engine_t *engine, idemi_entry_t *entry)
{
    int64_t renew = entry->op.sent_at_ms + engine->config.renew_ms;

    /* Renewed when a third of what remains is used, should the row have had
     * less than a whole lease left. */
    int64_t third = entry->op.sent_at_ms + entry->op.remaining_ms / 3;
    idemi_timers_set(&engine->timers, entry, renew < third ? renew : third);
}

static void take_claim(idemi_engine_t *engine, idemi_entry_t *entry)
{
    entry->has_claim = true;
    entry->lease_lost = false;
    entry->attempts = entry->op.attempts;
    entry->lease_end_ms = entry->op.sent_at_ms + entry->op.remaining_ms;
    arm_renewal(engine, entry);
}

static void exceed(idemi_engine_t *engine, idemi_entry_t *entry)
{
    engine->counts.attempts_exceeded++;
    entry->condition = "idem:attempts-exceeded";
    entry->description = "taken over or failed as often as max_attempts";
    entry->settlement = IDEMI_SETTLE_REJECTED;
    entry->tries = 0;
    idemi_flow_release(engine, entry);
    /* Not a failure of a handler: the count stays. */
    entry->op.failed = false;
}

void idemi_answer_claim(idemi_engine_t *engine, idemi_entry_t *entry)
{
    const idemi_op_t *op = &entry->op;
    bool ended = entry->stale || engine->stopping;

    switch (op->answer) {
    case IDEMI_ANSWER_NEW:
        if (op->kind == IDEMI_OP_TAKEOVER && !entry->has_claim) {
            engine->counts.takeovers += engine->exclusive == entry ? 1 : 0;
        }
        take_claim(engine, entry);
        if (ended) {
            idemi_flow_give_back(engine, entry);
        } else if (op->kind == IDEMI_OP_TAKEOVER &&
                   engine->config.max_attempts &&
                   entry->attempts >= engine->config.max_attempts) {
            exceed(engine, entry);
        } else {
            idemi_flow_make_ready(engine, entry);
        }
        return;
    case IDEMI_ANSWER_DONE:
        entry->has_claim = false;
        finish_duplicate(engine, entry);
        return;
    case IDEMI_ANSWER_EXPIRED:
        entry->has_claim = false;
        entry->suspect = op->suspect;
        if (ended) {
            idemi_flow_give_back(engine, entry);
        } else if (entry->suspect) {
            idemi_flow_set_state(engine, entry, IDEMI_STATE_SUSPECT);
            idemi_flow_enlist(engine, entry);
        } else {
            idemi_flow_ask(engine, entry, IDEMI_OP_TAKEOVER);
        }
        return;
    case IDEMI_ANSWER_IN_PROGRESS:
        engine->counts.in_progress++;
        entry->suspect = false;
        if (entry->has_claim) {
            engine->counts.leases_lost++;
            entry->has_claim = false;
        }
        idemi_flow_park(engine, entry, op->remaining_ms);
        return;
    case IDEMI_ANSWER_FAILED:
        /* Whether it took effect is not known. With our token it can be asked
         * again, or released in case it did. */
        engine->counts.store_errors++;
        entry->has_claim = entry->has_claim || ended;
        idemi_flow_park(engine, entry, -1);
        return;
    default:
        /* A takeover that found no row: it was purged meanwhile. */
        entry->has_claim = false;
        idemi_flow_park(engine, entry, 0);
        return;
    }
}

void idemi_answer_conclude(idemi_engine_t *engine, idemi_entry_t *entry)
{
    if (entry->settlement == IDEMI_SETTLE_ACCEPTED &&
        idemi_flow_uses_store(engine, entry)) {
        idemi_timers_cancel(&engine->timers, entry);
        idemi_flow_set_state(engine, entry, IDEMI_STATE_CONFIRMING);
        if (!entry->op_busy) {
            idemi_flow_ask(engine, entry, IDEMI_OP_CONFIRM);
        }
    } else if (entry->settlement == IDEMI_SETTLE_ACCEPTED) {
        engine->counts.accepted++;
        idemi_flow_finish(engine, entry);
    } else if (entry->has_claim || entry->op_busy) {
        idemi_flow_release(engine, entry);
    } else {
        idemi_flow_released(engine, entry);
    }
}

void idemi_answer_confirm(idemi_engine_t *engine, idemi_entry_t *entry)
{
    switch (entry->op.answer) {
    case IDEMI_ANSWER_DONE:
        entry->has_claim = false;
        entry->confirmed = true;
        engine->counts.accepted++;
        idemi_recent_forget(&engine->recent, entry->key, entry->key_size);
        idemi_flow_finish(engine, entry);
        return;
    case IDEMI_ANSWER_IN_PROGRESS:
        /* Another owner took the key over and runs it now: its outcome counts.
         * Until then this delivery is neither accepted nor run again. */
        engine->counts.leases_lost += entry->has_claim ? 1 : 0;
        entry->has_claim = false;
        entry->tries = 0;
        idemi_flow_park(engine, entry, entry->op.remaining_ms);
        return;
    default:
        /* The work is done: what is repeated is the confirm alone, during a
         * stop too, as long as that lasts. */
        engine->counts.store_errors++;
        entry->tries++;
        idemi_timers_set(&engine->timers, entry,
                         engine->now_ms +
                             idemi_backoff_ms(&engine->random, entry->tries,
                                              CONFIRM_MIN_MS, CONFIRM_MAX_MS));
        return;
    }
}

void idemi_answer_renewal(idemi_engine_t *engine, idemi_entry_t *entry)
{
    if (entry->op.answer == IDEMI_ANSWER_NEW) {
        entry->lease_lost = false;
        entry->lease_end_ms = entry->op.sent_at_ms + entry->op.remaining_ms;
        arm_renewal(engine, entry);
    } else if (entry->op.answer == IDEMI_ANSWER_FAILED) {
        int64_t due = engine->now_ms + RENEW_AGAIN_MS;
        engine->counts.store_errors++;
        if (entry->lease_end_ms > engine->now_ms && entry->lease_end_ms < due) {
            due = entry->lease_end_ms;
        }
        idemi_timers_set(&engine->timers, entry, due);
    } else {
        engine->counts.leases_lost++;
        entry->has_claim = false;
        idemi_timers_cancel(&engine->timers, entry);
    }
    switch (entry->state) {
    case IDEMI_STATE_RUNNING:
        if (!entry->has_claim && !entry->lease_lost) {
            entry->lease_lost = true;
            idemi_flow_cancel(engine, entry);
        }
        return;
    case IDEMI_STATE_READY:
    case IDEMI_STATE_SUSPECT:
        if (entry->has_claim) {
            idemi_flow_enlist(engine, entry);
        } else {
            idemi_flow_claim(engine, entry);
        }
        return;
    case IDEMI_STATE_CLAIMING: /* its lease ran out before it started */
        if (entry->stale || engine->stopping) {
            idemi_flow_give_back(engine, entry);
        } else if (entry->op.answer == IDEMI_ANSWER_NEW) {
            idemi_flow_make_ready(engine, entry);
        } else {
            idemi_flow_claim(engine, entry);
        }
        return;
    case IDEMI_STATE_CONFIRMING:
        idemi_answer_conclude(engine, entry);
        return;
    case IDEMI_STATE_RELEASING:
        if (entry->has_claim) {
            idemi_flow_release(engine, entry);
        } else {
            idemi_flow_released(engine, entry);
        }
        return;
    default:
        assert(false && "a renewal in this state");
        return;
    }
}

void idemi_answer_renew_due(idemi_engine_t *engine, idemi_entry_t *entry)
{
    int64_t now = engine->now_ms;

    if (now >= entry->lease_end_ms && entry->state == IDEMI_STATE_RUNNING &&
        !entry->lease_lost) {
        entry->lease_lost = true;
        idemi_flow_cancel(engine, entry);
    }
    if (entry->op_busy) {
        /* The renewal is not answered yet: look again when the lease ends. */
        if (now < entry->lease_end_ms) {
            idemi_timers_set(&engine->timers, entry, entry->lease_end_ms);
        }
        return;
    }
    idemi_list_remove(entry); /* of those that may start: until the answer */
    idemi_flow_ask(engine, entry, IDEMI_OP_RENEW);
    if (now < entry->lease_end_ms) {
        idemi_timers_set(&engine->timers, entry, entry->lease_end_ms);
    }
}
