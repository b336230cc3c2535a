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

#include "engine/answer.h"
#include "engine/flow.h"
#include "engine/list.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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
        idemi_flow_asked(engine, entry);
        idemi_list_remove(entry);
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
        idemi_flow_give_back(engine, entry);
        return;
    case IDEMI_STATE_WAITING:
        idemi_flow_finish(engine, entry);
        return;
    case IDEMI_STATE_RUNNING:
        idemi_flow_cancel(engine, entry);
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
        idemi_flow_asked(engine, entry);
        if (entry->list == &engine->to_settle) {
            idemi_list_remove(entry);
            idemi_list_append(&engine->to_forget, entry);
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

static void finish_rejected(idemi_engine_t *engine, idemi_entry_t *entry,
                            const char *condition, const char *description)
{
    entry->condition = condition;
    entry->description = description;
    idemi_flow_finish_as(engine, entry, IDEMI_SETTLE_REJECTED);
}

bool idemi_engine_arrived(idemi_engine_t *engine, idemi_entry_t *entry,
                          int64_t now_ms)
{
    bool handled = entry->verdict == IDEMI_VERDICT_KEYED ||
                   entry->verdict == IDEMI_VERDICT_UNKEYED;
    bool keyed = idemi_flow_uses_store(engine, entry);

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
        idemi_flow_give_back(engine, entry);
    } else if (!keyed) {
        idemi_flow_make_ready(engine, entry);
    } else if (!idemi_index_is_active(entry)) {
        idemi_flow_set_state(engine, entry, IDEMI_STATE_BEHIND);
    } else {
        expect_answer(engine, entry);
        idemi_flow_claim(engine, entry);
    }
    return true;
}

void idemi_engine_dropped(idemi_engine_t *engine, int64_t now_ms)
{
    engine->now_ms = now_ms;
    engine->credit -= engine->credit ? 1 : 0;
}

/* A free row is taken over by a second question, whose answer is awaited like
 * the first: an orderly stop leaves such rows, and what came later must not
 * overtake them. */
static bool asks_on(const idemi_op_t *op)
{
    return op->kind == IDEMI_OP_CLAIM && op->answer == IDEMI_ANSWER_EXPIRED &&
           !op->suspect;
}

void idemi_engine_answered(idemi_engine_t *engine, idemi_entry_t *entry,
                           int64_t now_ms)
{
    engine->now_ms = now_ms;
    assert(entry->op_busy && !entry->list);
    entry->op_busy = false;
    if (!asks_on(&entry->op)) {
        idemi_flow_asked(engine, entry);
    }
    switch (entry->op.kind) {
    case IDEMI_OP_CLAIM:
    case IDEMI_OP_TAKEOVER:
        idemi_answer_claim(engine, entry);
        if (engine->exclusive == entry && entry->state != IDEMI_STATE_READY) {
            engine->exclusive = NULL; /* another suspect may have its turn */
        }
        return;
    case IDEMI_OP_CONFIRM:
        idemi_answer_confirm(engine, entry);
        return;
    case IDEMI_OP_RENEW:
        idemi_answer_renewal(engine, entry);
        return;
    case IDEMI_OP_RELEASE:
        /* Refused or lost: the lease runs out by itself. */
        engine->counts.store_errors +=
            entry->op.answer == IDEMI_ANSWER_FAILED ? 1 : 0;
        idemi_flow_released(engine, entry);
        return;
    case IDEMI_OP_FIND:
    case IDEMI_OP_RECORD:
        break;
    }
    assert(false && "the engine does not ask this");
}

static uint32_t count_try(idemi_engine_t *engine, const idemi_entry_t *entry)
{
    uint32_t tries = entry->delivery_count < UINT32_MAX
                         ? entry->delivery_count + 1
                         : UINT32_MAX;

    if (idemi_flow_uses_store(engine, entry)) {
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
            idemi_flow_give_back(engine, entry);
        } else {
            idemi_flow_claim(engine, entry);
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
    idemi_answer_conclude(engine, entry);
}

void idemi_engine_tick(idemi_engine_t *engine, int64_t now_ms)
{
    idemi_entry_t *entry;

    engine->now_ms = now_ms;
    while ((entry = idemi_timers_pop(&engine->timers, now_ms))) {
        switch (entry->state) {
        case IDEMI_STATE_PARKED:
            idemi_flow_claim(engine, entry);
            break;
        case IDEMI_STATE_WAITING:
            idemi_flow_finish(engine, entry);
            break;
        case IDEMI_STATE_CONFIRMING:
            idemi_answer_conclude(engine, entry);
            break;
        default:
            idemi_answer_renew_due(engine, entry);
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
        idemi_list_remove(entry);
        if (entry->has_claim && engine->now_ms >= entry->lease_end_ms) {
            /* Nothing starts on a lease that may be over. */
            idemi_flow_claim(engine, entry);
            continue;
        }
        idemi_flow_set_state(engine, entry, IDEMI_STATE_RUNNING);
        idemi_flow_leave_group(engine, entry);
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
        idemi_list_remove(entry);
        engine->exclusive = entry;
        idemi_flow_set_state(engine, entry, IDEMI_STATE_CLAIMING);
        idemi_flow_ask(engine, entry, IDEMI_OP_TAKEOVER);
    }
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
    if ((entry = idemi_list_shift(&engine->to_settle))) {
        idemi_list_append(&engine->to_forget, entry);
        engine->unsettled--;
        command->kind = IDEMI_COMMAND_SETTLE;
        command->entry = entry;
        return true;
    }
    if (next_run(engine, command)) {
        return true;
    }
    start_suspect(engine);
    if ((entry = idemi_list_shift(&engine->to_store))) {
        command->kind = IDEMI_COMMAND_STORE;
        command->entry = entry;
        return true;
    }
    if ((entry = idemi_list_shift(&engine->to_forget))) {
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
