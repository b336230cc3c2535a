#include "world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEASE_MS 3000
#define RETRY_MIN_MS 200
#define RETRY_MAX_MS 2000

void world_break(world_t *world, const char *format, ...)
{
    va_list args;

    if (!world->broken[0]) {
        va_start(args, format);
        (void)vsnprintf(world->broken, sizeof world->broken, format, args);
        va_end(args);
    }
}

static void trace(const world_t *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void trace(const world_t *world, const char *format, ...)
{
    va_list args;

    if (world->trace) {
        (void)printf("%6" PRId64 " ", world->now_ms);
        va_start(args, format);
        (void)vprintf(format, args);
        va_end(args);
        (void)printf("\n");
    }
}

static bool chance(world_t *world, uint64_t percent)
{
    return idemi_random_below(&world->random, 100) < percent;
}

/* Processes. */

static void start_process(world_t *world, int number)
{
    world_process_t *process = &world->processes[number];
    char prefix[IDEMI_TOKEN_PREFIX_BYTES];

    (void)snprintf(prefix, sizeof prefix, "p%d.%" PRIu64, number,
                   ++world->generations);
    idemi_engine_config_t config = {
        .prefetch = 1 + (uint32_t)idemi_random_below(&world->random, 8),
        .has_store = true,
        .renew_ms = LEASE_MS / 3,
        .retry_min_ms = RETRY_MIN_MS,
        .retry_max_ms = RETRY_MAX_MS,
        .max_attempts = world->max_attempts,
        .token_prefix = prefix,
        .seed = idemi_random_next(&world->random),
    };
    *process = (world_process_t){
        .prefetch = config.prefetch,
        .concurrency = 1 + (uint32_t)idemi_random_below(&world->random, 3),
    };
    if (idemi_engine_create(&process->engine, &config) != IDEM_OK) {
        abort();
    }
    trace(world, "process %d starts, prefetch %u", number, process->prefetch);
}

static void requeue(world_t *world, world_message_t *message, bool first)
{
    int index = (int)(message - world->messages);
    int place = 0;

    while (world->order[place] != index) {
        place++;
    }
    if (first) {
        memmove(world->order + 1, world->order,
                (size_t)place * sizeof world->order[0]);
        world->order[0] = index;
    } else {
        memmove(world->order + place, world->order + place + 1,
                (size_t)(world->message_count - 1 - place) *
                    sizeof world->order[0]);
        world->order[world->message_count - 1] = index;
    }
    message->place = WORLD_QUEUED;
    message->delivery = NULL;
}

static void forget(world_t *world, world_delivery_t *delivery)
{
    world_process_t *process = &world->processes[delivery->process];

    if (delivery->message && delivery->message->delivery == delivery) {
        requeue(world, delivery->message, false);
    }
    for (int i = 0; i < world->op_count; i++) {
        if (world->ops[i].delivery == delivery) {
            world->ops[i].delivery = NULL;
        }
    }
    if (delivery->previous) {
        delivery->previous->next = delivery->next;
    } else {
        process->deliveries = delivery->next;
    }
    if (delivery->next) {
        delivery->next->previous = delivery->previous;
    }
    free(delivery);
}

static void crash(world_t *world, int number)
{
    world_process_t *process = &world->processes[number];
    idemi_entry_t *entry;

    trace(world, "process %d dies", number);
    while ((entry = idemi_engine_take(process->engine))) {
        world_delivery_t *delivery = (world_delivery_t *)entry;
        if (delivery->message->key >= 0 && (delivery->run == WORLD_STARTED ||
                                            delivery->run == WORLD_SUCCEEDED)) {
            world->excused[delivery->message->key] = true;
        }
        forget(world, delivery);
    }
    idemi_engine_destroy(process->engine);
    process->engine = NULL;
}

static void lose_link(world_t *world, int number)
{
    world_process_t *process = &world->processes[number];

    trace(world, "process %d loses its link", number);
    process->link_up = false;
    process->credit = process->unsettled = 0;
    for (world_delivery_t *delivery = process->deliveries; delivery;
         delivery = delivery->next) {
        if (delivery->message->delivery == delivery) {
            requeue(world, delivery->message, chance(world, 50));
        }
        delivery->on_link = false;
    }
    idemi_engine_link_down(process->engine, world->now_ms);
}

/* Commands. */

static bool is_mine(const world_t *world, const world_delivery_t *delivery)
{
    const world_row_t *row = &world->rows[delivery->message->key];

    return row->exists && !row->confirmed &&
           strcmp(row->owner, delivery->entry.token) == 0 &&
           row->expires_ms >= world->now_ms;
}

/* Promise 1, and what the broker does with it. */
static void obey_settle(world_t *world, world_delivery_t *delivery)
{
    world_process_t *process = &world->processes[delivery->process];
    world_message_t *message = delivery->message;
    idemi_settlement_t how = delivery->entry.settlement;
    bool unkeyed_ok = delivery->run == WORLD_SUCCEEDED;

    trace(world, "process %d settles %d as %d", delivery->process,
          (int)(message - world->messages), (int)how);
    if (message->delivery != delivery) {
        world_break(world, "settled a delivery that is no longer ours");
        return;
    }
    if (!delivery->on_link) {
        world_break(world, "settled twice, or after the link was lost");
        return;
    }
    delivery->on_link = false;
    process->unsettled--;
    if (how == IDEMI_SETTLE_ACCEPTED &&
        (message->key >= 0 ? !world->rows[message->key].confirmed
                           : !unkeyed_ok)) {
        world_break(world, "accepted without being confirmed");
    }
    if (message->key >= 0 && how != IDEMI_SETTLE_ACCEPTED &&
        !delivery->was_refused && is_mine(world, delivery)) {
        world_break(world, "given back with its claim held");
    }
    /* Promise 6. */
    if ((how == IDEMI_SETTLE_RELEASED || how == IDEMI_SETTLE_FAILED) &&
        !process->stopping) {
        if (!delivery->ended) {
            world_break(world, "given back though no handler ended");
        }
        if (world->now_ms - delivery->arrived_ms < RETRY_MIN_MS / 2) {
            world_break(world, "given back without a back-off");
        }
    }
    switch (how) {
    case IDEMI_SETTLE_ACCEPTED:
        message->place = WORLD_ACCEPTED;
        break;
    case IDEMI_SETTLE_REJECTED:
        if (!delivery->ended && !world->max_attempts) {
            world_break(world, "rejected without a reason");
        }
        message->place = WORLD_REJECTED;
        break;
    case IDEMI_SETTLE_FAILED:
        message->count++;
        requeue(world, message, chance(world, 70));
        return;
    case IDEMI_SETTLE_RELEASED:
        requeue(world, message, chance(world, 70));
        return;
    }
    message->delivery = NULL;
}

static void obey_store(world_t *world, world_delivery_t *delivery)
{
    idemi_op_t *op = &delivery->entry.op;

    if (world->op_count == WORLD_OPS) {
        world_break(world, "too many operations at once");
        return;
    }
    for (int i = 0; i < world->op_count; i++) {
        if (world->ops[i].delivery == delivery) {
            world_break(world, "two operations of one delivery at once");
        } else if (world->ops[i].delivery &&
                   world->ops[i].delivery->process == delivery->process &&
                   world->ops[i].key == delivery->message->key) {
            world_break(world, "two operations on one key at once");
        }
    }
    world_op_t *slot = &world->ops[world->op_count++];
    memset(slot, 0, sizeof *slot);
    slot->op = *op;
    slot->delivery = delivery;
    slot->key = delivery->message->key;
    slot->asked_ms = world->now_ms;
    memcpy(slot->token, delivery->entry.token, sizeof slot->token);
    trace(world, "process %d asks %d for key %d", delivery->process,
          (int)op->kind, slot->key);
}

/* Order within a group: none is given to a worker before those that arrived
 * earlier and have never been given to one. */
static void obey_run(world_t *world, world_delivery_t *delivery)
{
    world_process_t *process = &world->processes[delivery->process];

    trace(world, "process %d queues %d", delivery->process,
          (int)(delivery->message - world->messages));
    if (delivery->run != WORLD_IDLE) {
        world_break(world, "given to a worker twice");
    }
    for (world_delivery_t *other = process->deliveries; other;
         other = other->next) {
        if (delivery->group[0] && !delivery->was_run && !other->was_run &&
            other->number < delivery->number &&
            strcmp(other->group, delivery->group) == 0 && !other->entry.stale &&
            other->entry.state != IDEMI_STATE_SETTLED &&
            other->entry.state != IDEMI_STATE_RELEASING) {
            world_break(world, "overtook one of its group");
        }
    }
    delivery->was_run = true;
    delivery->run = WORLD_GIVEN;
}

static void obey(world_t *world, int number)
{
    world_process_t *process = &world->processes[number];
    idemi_command_t command;

    if (!process->engine) {
        return;
    }
    while (!world->broken[0] && idemi_engine_next(process->engine, &command)) {
        world_delivery_t *delivery = (world_delivery_t *)command.entry;
        switch (command.kind) {
        case IDEMI_COMMAND_STORE:
            obey_store(world, delivery);
            break;
        case IDEMI_COMMAND_RUN:
            obey_run(world, delivery);
            break;
        case IDEMI_COMMAND_CANCEL:
            if (delivery->run == WORLD_GIVEN) {
                delivery->run = WORLD_CANCELLED;
            }
            delivery->told_lost |= command.lease_lost;
            break;
        case IDEMI_COMMAND_SETTLE:
            obey_settle(world, delivery);
            break;
        case IDEMI_COMMAND_FORGET:
            if (delivery->on_link && !delivery->entry.stale) {
                world_break(world, "forgotten, not settled");
            }
            forget(world, delivery);
            break;
        case IDEMI_COMMAND_CREDIT:
            process->credit += command.credit;
            break;
        }
        if (process->unsettled + process->credit > process->prefetch) {
            world_break(world, "unsettled %u + credit %u over prefetch %u",
                        process->unsettled, process->credit, process->prefetch);
        }
    }
}

/* Events. */

static bool deliver(world_t *world, int number)
{
    world_process_t *process = &world->processes[number];
    world_message_t *message = NULL;

    if (!process->link_up || process->credit == 0) {
        return false;
    }
    for (int i = 0; i < world->message_count && !message; i++) {
        if (world->messages[world->order[i]].place == WORLD_QUEUED) {
            message = &world->messages[world->order[i]];
        }
    }
    if (!message) {
        return false;
    }
    world_delivery_t *delivery = calloc(1, sizeof *delivery);
    if (!delivery) {
        abort();
    }
    delivery->message = message;
    delivery->process = number;
    delivery->arrived_ms = world->now_ms;
    delivery->number = ++process->arrivals;
    delivery->on_link = true;
    delivery->entry.verdict = IDEMI_VERDICT_UNKEYED;
    delivery->entry.delivery_count = message->count;
    if (message->key >= 0) {
        delivery->entry.verdict = IDEMI_VERDICT_KEYED;
        (void)snprintf(delivery->key, sizeof delivery->key, "key-%d",
                       message->key);
        delivery->entry.key = delivery->key;
        delivery->entry.key_size = strlen(delivery->key);
    }
    if (message->group >= 0) {
        (void)snprintf(delivery->group, sizeof delivery->group, "g%d",
                       message->group);
        delivery->entry.group = delivery->group;
        delivery->entry.group_size = strlen(delivery->group);
    }
    delivery->next = process->deliveries;
    if (delivery->next) {
        delivery->next->previous = delivery;
    }
    process->deliveries = delivery;
    message->place = WORLD_ASSIGNED;
    message->delivery = delivery;
    process->credit--;
    process->unsettled++;
    trace(world, "process %d gets %d, key %d", number,
          (int)(message - world->messages), message->key);
    if (!idemi_engine_arrived(process->engine, &delivery->entry,
                              world->now_ms)) {
        abort();
    }
    return true;
}

static uint32_t count_started(const world_process_t *process)
{
    uint32_t count = 0;

    for (const world_delivery_t *d = process->deliveries; d; d = d->next) {
        count += d->run == WORLD_STARTED ? 1 : 0;
    }
    return count;
}

/* Promises 2 and 4, and that a suspect is alone. */
static void check_start(world_t *world, world_delivery_t *delivery)
{
    int key = delivery->message->key;

    for (world_delivery_t *d = world->processes[delivery->process].deliveries;
         d; d = d->next) {
        if (d != delivery && d->run == WORLD_STARTED &&
            (d->suspect || delivery->suspect)) {
            world_break(world, "a suspect does not run alone");
        }
    }
    if (key < 0) {
        return;
    }
    if (world->rows[key].confirmed) {
        world_break(world, "started although key %d is confirmed", key);
    }
    if (!is_mine(world, delivery)) {
        world_break(world, "started without a live claim on key %d", key);
    }
    for (int i = 0; i < world->process_count; i++) {
        for (world_delivery_t *d = world->processes[i].deliveries; d;
             d = d->next) {
            if (d != delivery && d->message->key == key &&
                (d->run == WORLD_STARTED || d->run == WORLD_SUCCEEDED)) {
                /* Only where its lease was lost: ours is live. */
                world->excused[key] = true;
            }
        }
    }
}

/* A worker takes the first that it may: in order, a group one at a time. */
static bool start(world_t *world, int number)
{
    world_process_t *process = &world->processes[number];
    world_delivery_t *first = NULL;

    if (count_started(process) >= process->concurrency) {
        return false;
    }
    for (world_delivery_t *d = process->deliveries; d; d = d->next) {
        bool busy = false;
        for (world_delivery_t *o = process->deliveries; o && d->group[0];
             o = o->next) {
            busy |= o->run == WORLD_STARTED && strcmp(o->group, d->group) == 0;
        }
        if (d->run == WORLD_GIVEN && !busy &&
            (!first || d->number < first->number)) {
            first = d;
        }
    }
    if (!first) {
        return false;
    }
    first->run = WORLD_STARTED;
    trace(world, "process %d starts %d", number,
          (int)(first->message - world->messages));
    check_start(world, first);
    return true;
}

static world_delivery_t *pick(world_t *world, int number, world_run_t run)
{
    world_delivery_t *picked = NULL;
    uint64_t seen = 0;

    for (world_delivery_t *d = world->processes[number].deliveries; d;
         d = d->next) {
        if (d->run == run && idemi_random_below(&world->random, ++seen) == 0) {
            picked = d;
        }
    }
    return picked;
}

static bool end(world_t *world, int number)
{
    world_delivery_t *delivery = pick(world, number, WORLD_STARTED);
    idem_outcome_t outcome = IDEM_ACCEPT;

    if (!delivery) {
        return false;
    }
    if (world->faults && chance(world, 30)) {
        static const idem_outcome_t others[] = {IDEM_RETRY, IDEM_RELEASE,
                                                IDEM_REJECT};
        outcome = others[idemi_random_below(&world->random, 3)];
    }
    trace(world, "process %d ends %d with %d", number,
          (int)(delivery->message - world->messages), (int)outcome);
    delivery->ended = true;
    delivery->run = WORLD_IDLE;
    if (outcome == IDEM_ACCEPT) {
        int key = delivery->message->key;
        delivery->run = WORLD_SUCCEEDED;
        if (key >= 0 && ++world->successes[key] > 1 && !world->excused[key]) {
            world_break(world, "key %d was handled twice", key);
        }
    }
    idemi_engine_handled(world->processes[number].engine, &delivery->entry,
                         true, outcome, world->now_ms);
    return true;
}

static bool report_cancelled(world_t *world, int number)
{
    world_delivery_t *delivery = pick(world, number, WORLD_CANCELLED);

    if (!delivery) {
        return false;
    }
    delivery->run = WORLD_IDLE;
    idemi_engine_handled(world->processes[number].engine, &delivery->entry,
                         false, IDEM_RETRY, world->now_ms);
    return true;
}

/* What the engine was told of its claim decides who is a suspect. */
static void note_answer(world_delivery_t *delivery, const world_op_t *op)
{
    delivery->was_refused |= op->op.answer == IDEMI_ANSWER_FAILED;
    if (op->op.answer == IDEMI_ANSWER_EXPIRED) {
        delivery->suspect = op->op.suspect;
    } else if (op->op.answer == IDEMI_ANSWER_IN_PROGRESS) {
        delivery->suspect = false;
    }
}

static bool advance_store(world_t *world)
{
    if (world->op_count == 0) {
        return false;
    }
    int slot =
        (int)idemi_random_below(&world->random, (uint64_t)world->op_count);
    world_op_t *op = &world->ops[slot];
    world_process_t *process =
        op->delivery ? &world->processes[op->delivery->process] : NULL;

    if (!op->executed) {
        if (process && process->store_down) {
            return false;
        }
        if (!op->delivery && chance(world, 50)) {
            world->ops[slot] = world->ops[--world->op_count];
            return true; /* it died with its connection */
        }
        bool fails = world->faults && chance(world, 3);
        if (!fails || chance(world, 50)) {
            world_execute(world, op);
        }
        if (fails) {
            op->executed = true;
            op->op.answer = IDEMI_ANSWER_FAILED;
            op->op.status = IDEM_ERR_STORE;
        }
        return true;
    }
    world_op_t answered = *op;
    world->ops[slot] = world->ops[--world->op_count];
    if (!answered.delivery) {
        return true;
    }
    world_delivery_t *delivery = answered.delivery;
    idemi_op_t *to = &delivery->entry.op;
    to->answer = answered.op.answer;
    to->suspect = answered.op.suspect;
    to->attempts = answered.op.attempts;
    to->remaining_ms = answered.op.remaining_ms;
    to->sent_at_ms = answered.op.sent_at_ms;
    to->status = answered.op.status;
    note_answer(delivery, &answered);
    trace(world, "process %d is answered %d to %d for key %d",
          delivery->process, (int)to->answer, (int)to->kind, answered.key);
    if (delivery->run == WORLD_SUCCEEDED && to->kind == IDEMI_OP_CONFIRM &&
        to->answer == IDEMI_ANSWER_IN_PROGRESS) {
        /* Its lease was lost meanwhile, and another owner runs it. */
        delivery->run = WORLD_IDLE;
        world->excused[answered.key] = true;
    }
    idemi_engine_answered(process->engine, &delivery->entry, world->now_ms);
    return true;
}

static void tick(world_t *world)
{
    for (int i = 0; i < world->process_count; i++) {
        world_process_t *process = &world->processes[i];
        if (process->engine &&
            idemi_engine_deadline(process->engine) <= world->now_ms) {
            idemi_engine_tick(process->engine, world->now_ms);
            obey(world, i);
        }
    }
    /* Promise 2: who may have lost its lease was told so. */
    for (int i = 0; i < world->process_count; i++) {
        for (world_delivery_t *d = world->processes[i].deliveries; d;
             d = d->next) {
            if (d->run == WORLD_STARTED && d->message->key >= 0 &&
                !is_mine(world, d) && !d->told_lost) {
                world_break(world, "a handler was not told of its lost lease");
            }
        }
    }
}

static void pass_time(world_t *world)
{
    int64_t next = INT64_MAX;
    int64_t pause = 1 + (int64_t)idemi_random_below(&world->random, 60);

    for (int i = 0; i < world->process_count; i++) {
        if (world->processes[i].engine) {
            int64_t deadline =
                idemi_engine_deadline(world->processes[i].engine);
            next = deadline < next ? deadline : next;
        }
    }
    if (world->faults && chance(world, 2)) {
        pause = (int64_t)idemi_random_below(&world->random, 2 * LEASE_MS);
    } else if (next != INT64_MAX && chance(world, 30)) {
        pause = next > world->now_ms ? next - world->now_ms : 0;
    }
    world->now_ms += pause;
    tick(world);
}

static void fault(world_t *world, int number)
{
    world_process_t *process = &world->processes[number];

    switch (idemi_random_below(&world->random, 4)) {
    case 0:
        crash(world, number);
        break;
    case 1:
        if (process->link_up) {
            lose_link(world, number);
        }
        break;
    case 2:
        process->store_down = !process->store_down;
        break;
    default:
        process->stopping = true;
        idemi_engine_stop(process->engine, world->now_ms);
        process->credit = 0; /* withdrawn by a drain */
        break;
    }
}

/* Brings back what has ended or was lost. */
static bool recover(world_t *world, int number)
{
    world_process_t *process = &world->processes[number];

    if (!process->engine) {
        start_process(world, number);
    } else if (process->stopping && idemi_engine_is_idle(process->engine)) {
        idemi_engine_destroy(process->engine);
        start_process(world, number);
    } else if (!process->link_up && !process->stopping) {
        process->link_up = true;
        idemi_engine_link_up(process->engine, world->now_ms);
    } else {
        return false;
    }
    return true;
}

static void act(world_t *world, int number)
{
    world_process_t *process = &world->processes[number];
    uint64_t dice = idemi_random_below(&world->random, 100);

    if (!process->engine || (!process->link_up && dice < 50) ||
        process->stopping) {
        if (recover(world, number)) {
            obey(world, number);
            return;
        }
    }
    if (world->faults && dice == 99 && chance(world, 60)) {
        fault(world, number);
    } else if (dice < 25) {
        (void)deliver(world, number);
    } else if (dice < 45) {
        (void)advance_store(world);
        for (int i = 0; i < world->process_count; i++) {
            obey(world, i);
        }
    } else if (dice < 60) {
        (void)start(world, number);
    } else if (dice < 75) {
        (void)end(world, number);
    } else if (dice < 85) {
        (void)report_cancelled(world, number);
    } else {
        pass_time(world);
    }
    obey(world, number);
}

bool world_step(world_t *world)
{
    world->steps++;
    act(world, (int)idemi_random_below(&world->random,
                                       (uint64_t)world->process_count));
    return !world->broken[0];
}

static bool all_done(const world_t *world)
{
    for (int i = 0; i < world->message_count; i++) {
        if (world->messages[i].place != WORLD_ACCEPTED &&
            world->messages[i].place != WORLD_REJECTED) {
            return false;
        }
    }
    for (int i = 0; i < world->process_count; i++) {
        if (world->processes[i].engine &&
            !idemi_engine_is_idle(world->processes[i].engine)) {
            return false;
        }
    }
    return true;
}

bool world_settle(world_t *world)
{
    world->faults = false;
    for (int i = 0; i < world->process_count; i++) {
        world->processes[i].store_down = false;
    }
    for (int i = 0; i < 40000 && !all_done(world); i++) {
        if (!world_step(world)) {
            return false;
        }
    }
    if (!all_done(world)) {
        world_break(world, "not everything came to its end");
    }
    for (int i = 0; i < world->message_count; i++) {
        const world_message_t *message = &world->messages[i];
        if (message->place == WORLD_ACCEPTED && message->key >= 0 &&
            world->successes[message->key] == 0) {
            world_break(world, "key %d was accepted and never handled",
                        message->key);
        }
    }
    return !world->broken[0];
}

void world_init(world_t *world, uint64_t seed, bool trace_it)
{
    memset(world, 0, sizeof *world);
    world->seed = seed;
    world->random.state = seed;
    world->trace = trace_it;
    world->faults = true;
    world->lease_ms = LEASE_MS;
    world->now_ms = 1000000;
    world->max_attempts = chance(world, 30) ? 3 : 0;
    world->message_count =
        2 + (int)idemi_random_below(&world->random, WORLD_MESSAGES - 1);
    for (int i = 0; i < world->message_count; i++) {
        world_message_t *message = &world->messages[i];
        message->key = chance(world, 85)
                           ? (int)idemi_random_below(&world->random, WORLD_KEYS)
                           : -1;
        message->group =
            chance(world, 40)
                ? (int)idemi_random_below(&world->random, WORLD_GROUPS)
                : -1;
        world->order[i] = i;
    }
    world->process_count =
        1 + (int)idemi_random_below(&world->random, WORLD_PROCESSES);
    for (int i = 0; i < world->process_count; i++) {
        start_process(world, i);
    }
}

void world_finish(world_t *world)
{
    for (int i = 0; i < world->process_count; i++) {
        if (world->processes[i].engine) {
            crash(world, i);
        }
    }
}
