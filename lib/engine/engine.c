/*
 * The path of a delivery, by the numbers that the tests use as well:
 *
 *  1  it arrives, complete, and its identity is known
 *  2  its key is claimed; an expired claim is taken over      STORE
 *  3  the claim is answered
 *  4  it is given to a worker                                 RUN
 *  5  its handler ends
 *  6  its key is confirmed, or released                       STORE
 *  7  that is answered
 *  8  it is settled, after a back-off if it failed            SETTLE, FORGET
 *
 * A claim is renewed from 3 to 6. A delivery whose link is lost goes the same
 * way up to 7, and then nothing is settled. A suspect (its key was taken over
 * from an owner that died) waits between 3 and 4 until no handler runs, is
 * taken over and runs alone.
 *
 * An entry has one operation with the store at a time. Where one is needed
 * while a renewal is under way, the state says so (CONFIRMING, RELEASING) and
 * the operation follows the renewal's answer.
 */
#include "engine/engine.h"

#include "base/backoff.h"
#include "engine/index.h"
#include "engine/recent.h"
#include "engine/timers.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A key that someone else holds is asked for again after this, doubled. */
#define PARK_MIN_MS 50
#define PARK_MAX_MS 5000
/* Behind the end of the other's lease: the clocks of two machines tick alike,
 * but not to the millisecond. */
#define PARK_MARGIN_MS 5
/* A renewal that the store refused is tried again after this. */
#define RENEW_AGAIN_MS 250

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

/* Lists. */

static void append(idemi_entry_list_t *list, idemi_entry_t *entry)
{
    assert(!entry->list);
    entry->list = list;
    entry->next = NULL;
    entry->previous = list->last;
    if (list->last) {
        list->last->next = entry;
    } else {
        list->first = entry;
    }
    list->last = entry;
}

/* From the end: answers come nearly in the order of arrival. */
static void insert_by_number(idemi_entry_list_t *list, idemi_entry_t *entry)
{
    idemi_entry_t *before = list->last;

    assert(!entry->list);
    while (before && before->number > entry->number) {
        before = before->previous;
    }
    if (before == list->last) {
        append(list, entry);
        return;
    }
    entry->list = list;
    entry->previous = before;
    entry->next = before ? before->next : list->first;
    entry->next->previous = entry;
    if (before) {
        before->next = entry;
    } else {
        list->first = entry;
    }
}

static void unlist(idemi_entry_t *entry)
{
    idemi_entry_list_t *list = entry->list;

    if (!list) {
        return;
    }
    if (entry->previous) {
        entry->previous->next = entry->next;
    } else {
        list->first = entry->next;
    }
    if (entry->next) {
        entry->next->previous = entry->previous;
    } else {
        list->last = entry->previous;
    }
    entry->list = NULL;
    entry->next = entry->previous = NULL;
}

static void set_state(idemi_engine_t *engine, idemi_entry_t *entry,
                      idemi_state_t state)
{
    engine->in_state[entry->state]--;
    engine->in_state[state]++;
    entry->state = state;
}

static void asked(idemi_engine_t *engine, idemi_entry_t *entry)
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

static bool uses_store(const idemi_engine_t *engine, const idemi_entry_t *entry)
{
    return engine->config.has_store && entry->verdict == IDEMI_VERDICT_KEYED;
}

/* Steps 2 and 6: questions to the store. */

static void ask(idemi_engine_t *engine, idemi_entry_t *entry,
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
    append(&engine->to_store, entry);
}

static void claim(idemi_engine_t *engine, idemi_entry_t *entry)
{
    idemi_timers_cancel(&engine->timers, entry);
    set_state(engine, entry, IDEMI_STATE_CLAIMING);
    if (!entry->op_busy) {
        /* A lease of ours that ran out is made new by a takeover from
         * ourselves: a claim would leave the old end. */
        ask(engine, entry,
            entry->has_claim ? IDEMI_OP_TAKEOVER : IDEMI_OP_CLAIM);
    }
}

/* Step 8. */

/* Of one group only the first may start, and none while its renewal is under
 * way. */
static void enlist(idemi_engine_t *engine, idemi_entry_t *entry)
{
    if (idemi_index_is_group_head(entry) && !entry->list && !entry->op_busy) {
        if (entry->state == IDEMI_STATE_READY) {
            insert_by_number(&engine->ready, entry);
        } else if (entry->state == IDEMI_STATE_SUSPECT) {
            insert_by_number(&engine->suspects, entry);
        }
    }
}

static void leave_group(idemi_engine_t *engine, idemi_entry_t *entry)
{
    idemi_entry_t *head = idemi_index_remove_group(&engine->index, entry);

    if (head) {
        enlist(engine, head);
    }
}

/* It cannot start any more. */
static void withdraw(idemi_engine_t *engine, idemi_entry_t *entry)
{
    asked(engine, entry);
    unlist(entry);
    idemi_timers_cancel(&engine->timers, entry);
    leave_group(engine, entry);
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
    set_state(engine, entry, IDEMI_STATE_SETTLED);
    append(entry->stale ? &engine->to_forget : &engine->to_settle, entry);
    return follower;
}

/* Settles a delivery, and with it those behind it that need no question of
 * their own: copies of what is confirmed now, or what is given back anyway. */
static void finish(idemi_engine_t *engine, idemi_entry_t *entry)
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
        claim(engine, follower);
    }
}

static void finish_as(idemi_engine_t *engine, idemi_entry_t *entry,
                      idemi_settlement_t settlement)
{
    entry->settlement = settlement;
    finish(engine, entry);
}

static void finish_rejected(idemi_engine_t *engine, idemi_entry_t *entry,
                            const char *condition, const char *description)
{
    entry->condition = condition;
    entry->description = description;
    finish_as(engine, entry, IDEMI_SETTLE_REJECTED);
}

static void finish_duplicate(idemi_engine_t *engine, idemi_entry_t *entry)
{
    entry->confirmed = true;
    entry->has_claim = false;
    engine->counts.duplicates += entry->stale ? 0 : 1;
    finish_as(engine, entry, IDEMI_SETTLE_ACCEPTED);
}

/* After a handler, or instead of one: whatever has been decided, the claim is
 * released first (steps 6 and 7). */
static void release(idemi_engine_t *engine, idemi_entry_t *entry)
{
    withdraw(engine, entry);
    set_state(engine, entry, IDEMI_STATE_RELEASING);
    if (!entry->op_busy) {
        ask(engine, entry, IDEMI_OP_RELEASE);
        entry->op.failed = entry->settlement == IDEMI_SETTLE_FAILED ||
                           entry->settlement == IDEMI_SETTLE_REJECTED;
    }
}

/* It has not started and will not: nothing is counted against it. */
static void give_back(idemi_engine_t *engine, idemi_entry_t *entry)
{
    entry->settlement = IDEMI_SETTLE_RELEASED;
    entry->tries = 0;
    engine->counts.given_back += entry->stale ? 0 : 1;
    if (entry->has_claim) {
        release(engine, entry);
    } else {
        finish(engine, entry);
    }
}

/* The claim is released: back-off, then settle. */
static void released(idemi_engine_t *engine, idemi_entry_t *entry)
{
    entry->has_claim = false;
    if (entry->tries == 0 || entry->stale || entry->presettled ||
        engine->stopping) {
        finish(engine, entry);
        return;
    }
    set_state(engine, entry, IDEMI_STATE_WAITING);
    idemi_timers_set(&engine->timers, entry,
                     engine->now_ms +
                         idemi_backoff_ms(&engine->random, entry->tries,
                                          engine->config.retry_min_ms,
                                          engine->config.retry_max_ms));
}

/* Someone else holds the key, or the store refused: ask again later. */
static void park(idemi_engine_t *engine, idemi_entry_t *entry,
                 int64_t remaining_ms)
{
    if (entry->stale || engine->stopping) {
        give_back(engine, entry);
        return;
    }
    entry->tries++;
    int64_t pause = idemi_backoff_ms(&engine->random, entry->tries, PARK_MIN_MS,
                                     PARK_MAX_MS);
    if (remaining_ms >= 0 && pause > remaining_ms + PARK_MARGIN_MS) {
        pause = remaining_ms + PARK_MARGIN_MS;
    }
    unlist(entry);
    set_state(engine, entry, IDEMI_STATE_PARKED);
    idemi_timers_set(&engine->timers, entry, engine->now_ms + pause);
}

/* Steps 3 to 5. */

static void make_ready(idemi_engine_t *engine, idemi_entry_t *entry)
{
    entry->tries = 0;
    set_state(engine, entry,
              entry->suspect && engine->exclusive != entry
                  ? IDEMI_STATE_SUSPECT
                  : IDEMI_STATE_READY);
    enlist(engine, entry);
}

static void cancel(idemi_engine_t *engine, idemi_entry_t *entry)
{
    if (!entry->cancelling) {
        entry->cancelling = true;
        entry->cancel_next = engine->cancels;
        engine->cancels = entry;
    }
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
    release(engine, entry);
    /* Not a failure of a handler: the count stays. */
    entry->op.failed = false;
}

static void claim_answered(idemi_engine_t *engine, idemi_entry_t *entry)
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
            give_back(engine, entry);
        } else if (op->kind == IDEMI_OP_TAKEOVER &&
                   engine->config.max_attempts &&
                   entry->attempts >= engine->config.max_attempts) {
            exceed(engine, entry);
        } else {
            make_ready(engine, entry);
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
            give_back(engine, entry);
        } else if (entry->suspect) {
            set_state(engine, entry, IDEMI_STATE_SUSPECT);
            enlist(engine, entry);
        } else {
            ask(engine, entry, IDEMI_OP_TAKEOVER);
        }
        return;
    case IDEMI_ANSWER_IN_PROGRESS:
        engine->counts.in_progress++;
        entry->suspect = false;
        if (entry->has_claim) {
            engine->counts.leases_lost++;
            entry->has_claim = false;
        }
        park(engine, entry, op->remaining_ms);
        return;
    case IDEMI_ANSWER_FAILED:
        /* Whether it took effect is not known. With our token it can be asked
         * again, or released in case it did. */
        engine->counts.store_errors++;
        entry->has_claim = entry->has_claim || ended;
        park(engine, entry, -1);
        return;
    default:
        /* A takeover that found no row: it was purged meanwhile. */
        entry->has_claim = false;
        park(engine, entry, 0);
        return;
    }
}

/* Step 6: what the handler said. */
static void conclude(idemi_engine_t *engine, idemi_entry_t *entry)
{
    if (entry->settlement == IDEMI_SETTLE_ACCEPTED &&
        uses_store(engine, entry)) {
        idemi_timers_cancel(&engine->timers, entry);
        set_state(engine, entry, IDEMI_STATE_CONFIRMING);
        if (!entry->op_busy) {
            ask(engine, entry, IDEMI_OP_CONFIRM);
        }
    } else if (entry->settlement == IDEMI_SETTLE_ACCEPTED) {
        engine->counts.accepted++;
        finish(engine, entry);
    } else if (entry->has_claim || entry->op_busy) {
        release(engine, entry);
    } else {
        released(engine, entry);
    }
}

static void confirm_answered(idemi_engine_t *engine, idemi_entry_t *entry)
{
    switch (entry->op.answer) {
    case IDEMI_ANSWER_DONE:
        entry->has_claim = false;
        entry->confirmed = true;
        engine->counts.accepted++;
        idemi_recent_forget(&engine->recent, entry->key, entry->key_size);
        finish(engine, entry);
        return;
    case IDEMI_ANSWER_IN_PROGRESS:
        /* Another owner took the key over and runs it now: its outcome counts.
         * Until then this delivery is neither accepted nor run again. */
        engine->counts.leases_lost++;
        entry->has_claim = false;
        entry->tries = 0;
        park(engine, entry, entry->op.remaining_ms);
        return;
    default:
        /* The work is done: what is repeated is the confirm alone, during a
         * stop too, as long as that lasts. */
        engine->counts.store_errors++;
        entry->tries++;
        idemi_timers_set(&engine->timers, entry,
                         engine->now_ms +
                             idemi_backoff_ms(&engine->random, entry->tries,
                                              PARK_MIN_MS, PARK_MAX_MS));
        return;
    }
}

static void renewal_answered(idemi_engine_t *engine, idemi_entry_t *entry)
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
            cancel(engine, entry);
        }
        return;
    case IDEMI_STATE_READY:
    case IDEMI_STATE_SUSPECT:
        if (entry->has_claim) {
            enlist(engine, entry);
        } else {
            claim(engine, entry);
        }
        return;
    case IDEMI_STATE_CLAIMING: /* its lease ran out before it started */
        if (entry->stale || engine->stopping) {
            give_back(engine, entry);
        } else if (entry->op.answer == IDEMI_ANSWER_NEW) {
            make_ready(engine, entry);
        } else {
            claim(engine, entry);
        }
        return;
    case IDEMI_STATE_CONFIRMING:
        conclude(engine, entry);
        return;
    case IDEMI_STATE_RELEASING:
        if (entry->has_claim) {
            release(engine, entry);
        } else {
            released(engine, entry);
        }
        return;
    default:
        assert(!"a renewal in this state");
        return;
    }
}

/* Inputs. */

idem_status_t idemi_engine_create(idemi_engine_t **out,
                                  const idemi_engine_config_t *config)
{
    idemi_engine_t *engine = calloc(1, sizeof *engine);

    if (!engine) {
        return IDEM_ERR_MEMORY;
    }
    engine->config = *config;
    engine->random.state = config->seed;
    (void)snprintf(engine->token_prefix, sizeof engine->token_prefix, "%s",
                   config->token_prefix);
    engine->config.token_prefix = engine->token_prefix;
    *out = engine;
    return IDEM_OK;
}

void idemi_engine_destroy(idemi_engine_t *engine)
{
    if (engine) {
        idemi_index_finish(&engine->index);
        idemi_timers_finish(&engine->timers);
        idemi_recent_finish(&engine->recent);
        free(engine);
    }
}

static void unlink_live(idemi_engine_t *engine, idemi_entry_t *entry)
{
    if (entry->live_previous) {
        entry->live_previous->live_next = entry->live_next;
    } else {
        engine->live_first = entry->live_next;
    }
    if (entry->live_next) {
        entry->live_next->live_previous = entry->live_previous;
    } else {
        engine->live_last = entry->live_previous;
    }
    engine->live--;
    engine->in_state[entry->state]--;
}

idemi_entry_t *idemi_engine_take(idemi_engine_t *engine)
{
    idemi_entry_t *entry = engine->live_first;

    if (entry) {
        asked(engine, entry);
        unlist(entry);
        idemi_timers_cancel(&engine->timers, entry);
        (void)idemi_index_remove_group(&engine->index, entry);
        (void)idemi_index_remove_key(&engine->index, entry);
        engine->cancels = NULL;
        unlink_live(engine, entry);
    }
    return entry;
}

void idemi_engine_link_up(idemi_engine_t *engine, int64_t now_ms)
{
    engine->now_ms = now_ms;
    engine->link_up = true;
    engine->credit = 0;
    engine->unsettled = 0;
    engine->counts.attached++;
}

/* Not started and not with the store: it can end at once. */
static void drop_idle(idemi_engine_t *engine, idemi_entry_t *entry)
{
    switch (entry->state) {
    case IDEMI_STATE_READY:
    case IDEMI_STATE_SUSPECT:
    case IDEMI_STATE_PARKED:
    case IDEMI_STATE_BEHIND:
        give_back(engine, entry);
        return;
    case IDEMI_STATE_WAITING:
        finish(engine, entry);
        return;
    case IDEMI_STATE_RUNNING:
        cancel(engine, entry);
        return;
    default: /* its answer decides */
        return;
    }
}

void idemi_engine_link_down(idemi_engine_t *engine, int64_t now_ms)
{
    engine->now_ms = now_ms;
    engine->link_up = false;
    engine->credit = 0;
    engine->unsettled = 0;
    for (idemi_entry_t *entry = engine->live_first; entry;
         entry = entry->live_next) {
        entry->stale = true;
        asked(engine, entry);
        if (entry->list == &engine->to_settle) {
            unlist(entry);
            append(&engine->to_forget, entry);
        }
    }
    /* No entry leaves the list of the living before FORGET. */
    for (idemi_entry_t *entry = engine->live_first; entry;
         entry = entry->live_next) {
        drop_idle(engine, entry);
    }
}

static void make_token(idemi_engine_t *engine, idemi_entry_t *entry)
{
    /* 43 + 1 + 16 characters at most. */
    (void)snprintf(entry->token, sizeof entry->token, "%s-%" PRIx64,
                   engine->token_prefix, ++engine->token_count);
}

static void enlist_arrival(idemi_engine_t *engine, idemi_entry_t *entry)
{
    entry->number = ++engine->arrivals;
    entry->live_next = NULL;
    entry->live_previous = engine->live_last;
    if (engine->live_last) {
        engine->live_last->live_next = entry;
    } else {
        engine->live_first = entry;
    }
    engine->live_last = entry;
    engine->live++;
    entry->state = IDEMI_STATE_RECEIVED;
    engine->in_state[IDEMI_STATE_RECEIVED]++;
    engine->counts.received++;
    engine->counts.presettled += entry->presettled ? 1 : 0;
    engine->credit -= engine->credit ? 1 : 0;
    engine->unsettled++;
}

static void expect_answer(idemi_engine_t *engine, idemi_entry_t *entry)
{
    entry->unasked = true;
    entry->unasked_next = NULL;
    entry->unasked_previous = engine->unasked_last;
    if (engine->unasked_last) {
        engine->unasked_last->unasked_next = entry;
    } else {
        engine->unasked_first = entry;
    }
    engine->unasked_last = entry;
}

bool idemi_engine_arrived(idemi_engine_t *engine, idemi_entry_t *entry,
                          int64_t now_ms)
{
    bool handled = entry->verdict == IDEMI_VERDICT_KEYED ||
                   entry->verdict == IDEMI_VERDICT_UNKEYED;
    bool keyed = uses_store(engine, entry);

    engine->now_ms = now_ms;
    if (!idemi_timers_reserve(&engine->timers, engine->live + 1)) {
        return false;
    }
    if (keyed && !idemi_index_add_key(&engine->index, entry)) {
        return false;
    }
    if (handled && !idemi_index_add_group(&engine->index, entry)) {
        (void)idemi_index_remove_key(&engine->index, entry);
        return false;
    }
    enlist_arrival(engine, entry);
    switch (entry->verdict) {
    case IDEMI_VERDICT_UNDECODABLE:
        engine->counts.undecodable++;
        finish_rejected(engine, entry, "amqp:decode-error",
                        "not a valid AMQP 1.0 message");
        return true;
    case IDEMI_VERDICT_OVERSIZED:
        engine->counts.oversized++;
        finish_rejected(engine, entry, "amqp:link:message-size-exceeded",
                        "larger than max_message_bytes");
        return true;
    case IDEMI_VERDICT_NO_ID:
        finish_rejected(engine, entry, "idem:no-id",
                        "no id to deduplicate the message by");
        return true;
    case IDEMI_VERDICT_KEYED:
    case IDEMI_VERDICT_UNKEYED:
        break;
    }
    if (keyed) {
        make_token(engine, entry);
    }
    if (engine->stopping) {
        give_back(engine, entry);
    } else if (!keyed) {
        make_ready(engine, entry);
    } else if (!idemi_index_is_active(entry)) {
        set_state(engine, entry, IDEMI_STATE_BEHIND);
    } else {
        expect_answer(engine, entry);
        claim(engine, entry);
    }
    return true;
}

void idemi_engine_dropped(idemi_engine_t *engine, int64_t now_ms)
{
    engine->now_ms = now_ms;
    engine->credit -= engine->credit ? 1 : 0;
}

void idemi_engine_answered(idemi_engine_t *engine, idemi_entry_t *entry,
                           int64_t now_ms)
{
    engine->now_ms = now_ms;
    assert(entry->op_busy && !entry->list);
    entry->op_busy = false;
    asked(engine, entry);
    switch (entry->op.kind) {
    case IDEMI_OP_CLAIM:
    case IDEMI_OP_TAKEOVER:
        claim_answered(engine, entry);
        if (engine->exclusive == entry && entry->state != IDEMI_STATE_READY) {
            engine->exclusive = NULL; /* another suspect may have its turn */
        }
        return;
    case IDEMI_OP_CONFIRM:
        confirm_answered(engine, entry);
        return;
    case IDEMI_OP_RENEW:
        renewal_answered(engine, entry);
        return;
    case IDEMI_OP_RELEASE:
        /* Refused or lost: the lease runs out by itself. */
        engine->counts.store_errors +=
            entry->op.answer == IDEMI_ANSWER_FAILED ? 1 : 0;
        released(engine, entry);
        return;
    case IDEMI_OP_FIND:
    case IDEMI_OP_RECORD:
        break;
    }
    assert(!"the engine does not ask this");
}

static uint32_t count_try(idemi_engine_t *engine, const idemi_entry_t *entry)
{
    uint32_t tries = entry->delivery_count < UINT32_MAX
                         ? entry->delivery_count + 1
                         : UINT32_MAX;

    if (uses_store(engine, entry)) {
        uint32_t recent =
            idemi_recent_count(&engine->recent, entry->key, entry->key_size);
        tries = tries > recent ? tries : recent;
    }
    return tries;
}

void idemi_engine_handled(idemi_engine_t *engine, idemi_entry_t *entry,
                          bool started, idem_outcome_t outcome, int64_t now_ms)
{
    engine->now_ms = now_ms;
    assert(entry->state == IDEMI_STATE_RUNNING);
    if (!started) {
        if (entry->stale || engine->stopping) {
            give_back(engine, entry);
        } else {
            claim(engine, entry);
        }
        return;
    }
    if (engine->exclusive == entry) {
        engine->exclusive = NULL;
    }
    entry->suspect = false;
    engine->counts.handled++;
    engine->counts.stale += entry->stale ? 1 : 0;
    switch (outcome) {
    case IDEM_ACCEPT:
        entry->settlement = IDEMI_SETTLE_ACCEPTED;
        entry->tries = 0;
        break;
    case IDEM_RELEASE:
        engine->counts.released++;
        entry->settlement = IDEMI_SETTLE_RELEASED;
        entry->tries = count_try(engine, entry);
        break;
    case IDEM_REJECT:
        engine->counts.rejected++;
        entry->settlement = IDEMI_SETTLE_REJECTED;
        entry->tries = 0;
        break;
    default:
        engine->counts.retried++;
        entry->settlement = IDEMI_SETTLE_FAILED;
        entry->tries = count_try(engine, entry);
        break;
    }
    conclude(engine, entry);
}

void idemi_engine_deferred(idemi_engine_t *engine)
{
    engine->counts.deferred++;
}

/* A timer of a delivery whose claim is ours: renew, or face the end. */
static void renew(idemi_engine_t *engine, idemi_entry_t *entry)
{
    int64_t now = engine->now_ms;

    if (now >= entry->lease_end_ms && entry->state == IDEMI_STATE_RUNNING &&
        !entry->lease_lost) {
        entry->lease_lost = true;
        cancel(engine, entry);
    }
    if (entry->op_busy) {
        /* The renewal is not answered yet: look again when the lease ends. */
        if (now < entry->lease_end_ms) {
            idemi_timers_set(&engine->timers, entry, entry->lease_end_ms);
        }
        return;
    }
    unlist(entry); /* of those that may start: until the answer */
    ask(engine, entry, IDEMI_OP_RENEW);
    if (now < entry->lease_end_ms) {
        idemi_timers_set(&engine->timers, entry, entry->lease_end_ms);
    }
}

void idemi_engine_tick(idemi_engine_t *engine, int64_t now_ms)
{
    idemi_entry_t *entry;

    engine->now_ms = now_ms;
    while ((entry = idemi_timers_pop(&engine->timers, now_ms))) {
        switch (entry->state) {
        case IDEMI_STATE_PARKED:
            claim(engine, entry);
            break;
        case IDEMI_STATE_WAITING:
            finish(engine, entry);
            break;
        case IDEMI_STATE_CONFIRMING:
            conclude(engine, entry);
            break;
        default:
            renew(engine, entry);
            break;
        }
    }
}

void idemi_engine_stop(idemi_engine_t *engine, int64_t now_ms)
{
    engine->now_ms = now_ms;
    if (engine->stopping) {
        return;
    }
    engine->stopping = true;
    for (idemi_entry_t *entry = engine->live_first; entry;
         entry = entry->live_next) {
        drop_idle(engine, entry);
    }
}

/* Outputs. */

/* The next delivery that a worker may have (step 4), or NULL. */
static idemi_entry_t *next_to_run(idemi_engine_t *engine)
{
    idemi_entry_t *entry;

    if (engine->exclusive || engine->suspects.first) {
        entry = engine->exclusive;
        if (engine->in_state[IDEMI_STATE_RUNNING] > 0 || !entry ||
            entry->state != IDEMI_STATE_READY || !entry->list) {
            return NULL;
        }
    } else {
        entry = engine->ready.first;
        /* In order of arrival: not before the claims of those that came
         * earlier are answered. */
        if (!entry || (engine->unasked_first &&
                       engine->unasked_first->number < entry->number)) {
            return NULL;
        }
    }
    return entry;
}

static bool next_run(idemi_engine_t *engine, idemi_command_t *command)
{
    idemi_entry_t *entry;

    while ((entry = next_to_run(engine))) {
        unlist(entry);
        if (entry->has_claim && engine->now_ms >= entry->lease_end_ms) {
            /* Nothing starts on a lease that may be over. */
            claim(engine, entry);
            continue;
        }
        set_state(engine, entry, IDEMI_STATE_RUNNING);
        leave_group(engine, entry);
        command->kind = IDEMI_COMMAND_RUN;
        command->entry = entry;
        return true;
    }
    return false;
}

/* A suspect's turn has come when nothing runs. */
static void start_suspect(idemi_engine_t *engine)
{
    idemi_entry_t *entry = engine->suspects.first;

    if (entry && !engine->exclusive &&
        engine->in_state[IDEMI_STATE_RUNNING] == 0) {
        unlist(entry);
        engine->exclusive = entry;
        set_state(engine, entry, IDEMI_STATE_CLAIMING);
        ask(engine, entry, IDEMI_OP_TAKEOVER);
    }
}

static idemi_entry_t *shift(idemi_entry_list_t *list)
{
    idemi_entry_t *entry = list->first;

    if (entry) {
        unlist(entry);
    }
    return entry;
}

bool idemi_engine_next(idemi_engine_t *engine, idemi_command_t *command)
{
    idemi_entry_t *entry;

    command->credit = 0;
    command->lease_lost = false;
    while ((entry = engine->cancels)) {
        engine->cancels = entry->cancel_next;
        entry->cancelling = false;
        if (entry->state == IDEMI_STATE_RUNNING) {
            command->kind = IDEMI_COMMAND_CANCEL;
            command->entry = entry;
            command->lease_lost = entry->lease_lost;
            return true;
        }
    }
    if ((entry = shift(&engine->to_settle))) {
        append(&engine->to_forget, entry);
        engine->unsettled--;
        command->kind = IDEMI_COMMAND_SETTLE;
        command->entry = entry;
        return true;
    }
    if (next_run(engine, command)) {
        return true;
    }
    start_suspect(engine);
    if ((entry = shift(&engine->to_store))) {
        command->kind = IDEMI_COMMAND_STORE;
        command->entry = entry;
        return true;
    }
    if ((entry = shift(&engine->to_forget))) {
        unlink_live(engine, entry);
        command->kind = IDEMI_COMMAND_FORGET;
        command->entry = entry;
        return true;
    }
    /* Half a window at a time, so that credit travels in few frames; what is
     * in hand and what is still to come never exceed the window. */
    uint32_t used = engine->unsettled + engine->credit;
    if (engine->link_up && !engine->stopping &&
        engine->credit <= engine->config.prefetch / 2 &&
        used < engine->config.prefetch) {
        command->kind = IDEMI_COMMAND_CREDIT;
        command->entry = NULL;
        command->credit = engine->config.prefetch - used;
        engine->credit += command->credit;
        return true;
    }
    return false;
}

int64_t idemi_engine_deadline(const idemi_engine_t *engine)
{
    return idemi_timers_next(&engine->timers);
}

bool idemi_engine_is_idle(const idemi_engine_t *engine)
{
    return engine->live == 0;
}

void idemi_engine_statistics(const idemi_engine_t *engine,
                             idem_consumer_statistics_t *statistics)
{
    *statistics = engine->counts;
    statistics->unsettled = engine->unsettled;
    statistics->credit = engine->credit;
    statistics->running = engine->in_state[IDEMI_STATE_RUNNING];
    statistics->parked = engine->in_state[IDEMI_STATE_PARKED] +
                         engine->in_state[IDEMI_STATE_BEHIND];
    statistics->waiting = engine->in_state[IDEMI_STATE_WAITING];
}
