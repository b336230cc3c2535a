#include "world.h"

#include <string.h>

static bool is_owner(const world_row_t *row, const world_op_t *op)
{
    return row->owner[0] && strcmp(row->owner, op->token) == 0;
}

static void own(world_t *world, world_row_t *row, const world_op_t *op)
{
    memcpy(row->owner, op->token, sizeof row->owner);
    row->expires_ms = world->now_ms + world->lease_ms;
}

static void insert(world_t *world, world_row_t *row, world_op_t *op)
{
    memset(row, 0, sizeof *row);
    row->exists = true;
    own(world, row, op);
}

static void answer(world_t *world, const world_row_t *row, world_op_t *op,
                   idemi_answer_t what)
{
    op->op.answer = what;
    op->op.attempts = row->attempts;
    op->op.remaining_ms = row->expires_ms - world->now_ms;
}

static void answer_state(world_t *world, const world_row_t *row, world_op_t *op)
{
    if (row->confirmed) {
        answer(world, row, op, IDEMI_ANSWER_DONE);
    } else if (is_owner(row, op)) {
        answer(world, row, op, IDEMI_ANSWER_NEW);
    } else if (!row->owner[0] || row->expires_ms <= world->now_ms) {
        answer(world, row, op, IDEMI_ANSWER_EXPIRED);
        op->op.suspect = row->owner[0] != '\0';
    } else {
        answer(world, row, op, IDEMI_ANSWER_IN_PROGRESS);
    }
}

static void takeover(world_t *world, world_row_t *row, world_op_t *op)
{
    if (!row->exists) {
        insert(world, row, op);
    } else if (!row->confirmed &&
               (row->expires_ms <= world->now_ms || is_owner(row, op))) {
        row->attempts += row->owner[0] && !is_owner(row, op) ? 1 : 0;
        own(world, row, op);
    }
    answer_state(world, row, op);
}

static void confirm(world_t *world, world_row_t *row, world_op_t *op)
{
    if (!row->exists) {
        insert(world, row, op);
        row->confirmed = true;
    } else if (!row->confirmed &&
               (is_owner(row, op) || row->expires_ms <= world->now_ms)) {
        row->confirmed = true;
        row->owner[0] = '\0';
    }
    answer_state(world, row, op);
}

void world_execute(world_t *world, world_op_t *op)
{
    world_row_t *row = &world->rows[op->key];

    op->executed = true;
    op->op.suspect = false;
    /* The question left a little before it was decided. */
    op->op.sent_at_ms =
        world->now_ms - (int64_t)idemi_random_below(&world->random, 4);
    if (op->op.sent_at_ms < op->asked_ms) {
        op->op.sent_at_ms = op->asked_ms;
    }
    switch (op->op.kind) {
    case IDEMI_OP_CLAIM:
        if (!row->exists) {
            insert(world, row, op);
        }
        answer_state(world, row, op);
        break;
    case IDEMI_OP_TAKEOVER:
        takeover(world, row, op);
        break;
    case IDEMI_OP_CONFIRM:
        confirm(world, row, op);
        break;
    case IDEMI_OP_RENEW:
        if (row->exists && !row->confirmed && is_owner(row, op)) {
            own(world, row, op);
            answer(world, row, op, IDEMI_ANSWER_NEW);
        } else {
            answer(world, row, op, IDEMI_ANSWER_LOST);
        }
        break;
    case IDEMI_OP_RELEASE:
        if (row->exists && !row->confirmed && is_owner(row, op)) {
            row->owner[0] = '\0';
            row->expires_ms = world->now_ms;
            row->attempts += op->op.failed ? 1 : 0;
        }
        answer(world, row, op, IDEMI_ANSWER_FREED);
        break;
    default:
        world_break(world, "the engine asked for operation %d",
                    (int)op->op.kind);
        break;
    }
}
