#include "store/postgres.h"

#include "base/error.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A batch is one pipeline and one transaction, behind which it is read:
 *
 *   BEGIN, a time limit, claims, takeovers, confirms, records, renewals,
 *   releases, COMMIT, finds, the rows of the claims
 *
 * The order matters. A claim or a takeover may have to wait for another's
 * transaction; had we touched our own rows before, it might be waiting for us.
 * Within a statement the keys are sorted for the same reason. A single
 * statement needs no BEGIN and COMMIT.
 *
 * What the statements leave undecided is read afterwards, under a new
 * snapshot: a row that made a statement wait is not visible to that statement.
 * Where the claims before met keys that were there, the rows are asked for in
 * the same trip; where all were new, only when one is not. A row that is gone
 * by then (a purge), or free by then, makes the operation start anew. */

/* Of operations that start anew in one call. Rows that vanish again and again
 * are left to the store's back-off. */
#define ROUNDS 16

/* BEGIN, limit, one statement for each kind, COMMIT, the rows. */
#define STEPS (4 + IDEMI_OP_RECORD + 1)

/* A remaining lease, of which 'infinity' would be none. */
#define REMAINING_MAX_MS (INT64_C(1) << 40)

/* The order of kinds within a transaction. */
static const idemi_op_kind_t order[] = {
    IDEMI_OP_CLAIM, IDEMI_OP_TAKEOVER, IDEMI_OP_CONFIRM, IDEMI_OP_RECORD,
    IDEMI_OP_RENEW, IDEMI_OP_RELEASE,  IDEMI_OP_FIND,
};
#define KINDS (sizeof order / sizeof *order)

static const idemi_sql_kind_t sql_of[] = {
    [IDEMI_OP_CLAIM] = IDEMI_SQL_CLAIM,
    [IDEMI_OP_TAKEOVER] = IDEMI_SQL_TAKEOVER,
    [IDEMI_OP_CONFIRM] = IDEMI_SQL_CONFIRM,
    [IDEMI_OP_RENEW] = IDEMI_SQL_RENEW,
    [IDEMI_OP_RELEASE] = IDEMI_SQL_RELEASE,
    [IDEMI_OP_FIND] = IDEMI_SQL_FIND,
    [IDEMI_OP_RECORD] = IDEMI_SQL_RECORD,
};

_Static_assert(IDEMI_SQL_KINDS < IDEMI_STEP_NUMBERS, "a number for each");

/* Operations of one kind, in the order of their keys. */
typedef struct group {
    idemi_op_t **ops;
    size_t count;
    idemi_step_t *step;
    idemi_step_t *rows; /* of claims, where they are read in the same trip */
} group_t;

typedef struct batch {
    idemi_postgres_session_t *session;
    idemi_op_t **ops; /* sorted by kind and key; those without an answer */
    size_t count;
    group_t groups[KINDS];
    idemi_step_t steps[STEPS];
    size_t steps_count;
    int64_t sent_at_ms;
} batch_t;

static int compare_bytes(const char *a, size_t a_size, const char *b,
                         size_t b_size)
{
    size_t common = a_size < b_size ? a_size : b_size;
    int difference = memcmp(a, b, common);

    if (difference != 0) {
        return difference;
    }
    return a_size < b_size ? -1 : a_size > b_size;
}

static int compare_ops(const void *a, const void *b)
{
    static const unsigned char rank[] = {
        [IDEMI_OP_CLAIM] = 0,  [IDEMI_OP_TAKEOVER] = 1, [IDEMI_OP_CONFIRM] = 2,
        [IDEMI_OP_RECORD] = 3, [IDEMI_OP_RENEW] = 4,    [IDEMI_OP_RELEASE] = 5,
        [IDEMI_OP_FIND] = 6,
    };
    const idemi_op_t *one = *(idemi_op_t *const *)a;
    const idemi_op_t *two = *(idemi_op_t *const *)b;

    if (one->kind != two->kind) {
        return rank[one->kind] < rank[two->kind] ? -1 : 1;
    }
    return compare_bytes(one->key, one->key_size, two->key, two->key_size);
}

/* The operation of a group that has this key. Answers come in the order of the
 * question, but nothing promises that. */
static idemi_op_t *find_op(const group_t *group, const char *key, size_t size)
{
    size_t from = 0;
    size_t to = group->count;

    while (from < to) {
        size_t middle = from + (to - from) / 2;
        idemi_op_t *op = group->ops[middle];
        int difference = compare_bytes(op->key, op->key_size, key, size);
        if (difference == 0) {
            return op;
        }
        if (difference < 0) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return NULL;
}

static bool wants(idemi_op_kind_t kind, idemi_op_kind_t one,
                  idemi_op_kind_t two)
{
    return kind == one || kind == two;
}

/* One of ours. Where the session is ours alone it is prepared once, since no
 * plan depends there on how large the table was: see idemi_sql_session. */
static idemi_step_t step_of(const batch_t *batch, idemi_sql_kind_t kind)
{
    return (idemi_step_t){.sql = batch->session->postgres->sql.text[kind],
                          .number = (unsigned int)kind + 1};
}

/* The statement of a group, whose step is the next one. */
static bool add_group(batch_t *batch, group_t *group, idemi_array_t *arrays)
{
    const idemi_postgres_t *postgres = batch->session->postgres;
    idemi_op_kind_t kind = group->ops[0]->kind;
    idemi_step_t *step = &batch->steps[batch->steps_count++];
    bool has_tokens = !wants(kind, IDEMI_OP_RECORD, IDEMI_OP_FIND);

    group->step = step;
    *step = step_of(batch, sql_of[kind]);

    arrays[1].failed = false;
    arrays[2].failed = false;
    idemi_array_begin(&arrays[0], IDEMI_OID_TEXT, group->count);
    for (size_t i = 0; i < group->count; i++) {
        idemi_array_add_text(&arrays[0], group->ops[i]->key,
                             group->ops[i]->key_size);
    }
    idemi_step_binary(step, IDEMI_OID_TEXT_ARRAY, arrays[0].bytes,
                      arrays[0].size);
    if (has_tokens) {
        idemi_array_begin(&arrays[1], IDEMI_OID_TEXT, group->count);
        for (size_t i = 0; i < group->count; i++) {
            idemi_array_add_text(&arrays[1], group->ops[i]->token,
                                 strlen(group->ops[i]->token));
        }
        idemi_step_binary(step, IDEMI_OID_TEXT_ARRAY, arrays[1].bytes,
                          arrays[1].size);
    }
    if (kind == IDEMI_OP_RELEASE && postgres->shape.has_attempts) {
        idemi_array_begin(&arrays[2], IDEMI_OID_INT4, group->count);
        for (size_t i = 0; i < group->count; i++) {
            idemi_array_add_int4(&arrays[2], group->ops[i]->failed ? 1 : 0);
        }
        idemi_step_binary(step, IDEMI_OID_INT4_ARRAY, arrays[2].bytes,
                          arrays[2].size);
    } else if (wants(kind, IDEMI_OP_CONFIRM, IDEMI_OP_RECORD)) {
        idemi_step_text(step, IDEMI_OID_FLOAT8, postgres->retention_ms);
    } else if (!wants(kind, IDEMI_OP_RELEASE, IDEMI_OP_FIND)) {
        idemi_step_text(step, IDEMI_OID_FLOAT8, postgres->lease_ms);
    }
    return !arrays[0].failed && !arrays[1].failed && !arrays[2].failed;
}

static void add_step(batch_t *batch, const char *sql)
{
    batch->steps[batch->steps_count++] =
        (idemi_step_t){.sql = sql, .is_commit = false};
}

/* Where the session is a pooler's, each transaction has to set its limit. */
static void add_limit(batch_t *batch)
{
    add_step(batch, IDEMI_SQL_LIMIT);
    idemi_step_text(&batch->steps[batch->steps_count - 1], IDEMI_OID_TEXT,
                    batch->session->postgres->limit_ms);
}

/* The rows of claims, whose keys are in keys already. */
static void add_rows(batch_t *batch, group_t *claims, const idemi_array_t *keys)
{
    claims->rows = &batch->steps[batch->steps_count++];
    *claims->rows = step_of(batch, IDEMI_SQL_READ);
    idemi_step_binary(claims->rows, IDEMI_OID_TEXT_ARRAY, keys->bytes,
                      keys->size);
}

/* Splits the sorted operations into groups and makes the steps. */
static bool build(batch_t *batch)
{
    size_t next = 0;
    size_t writing = 0;
    bool has_begin;
    bool built = true;

    batch->steps_count = 0;
    for (size_t i = 0; i < KINDS; i++) {
        group_t *group = &batch->groups[i];
        *group = (group_t){.ops = batch->ops + next};
        while (next < batch->count && batch->ops[next]->kind == order[i]) {
            group->count++;
            next++;
        }
        if (group->count > 0 && order[i] != IDEMI_OP_FIND) {
            writing++;
        }
    }
    assert(next == batch->count);
    /* A lone statement does without, unless it would run under a stricter
     * isolation and fill the server's log with 40001. */
    has_begin =
        writing > 1 || (writing == 1 && batch->session->postgres->is_strict);
    if (has_begin) {
        add_step(batch, IDEMI_SQL_BEGIN);
    }
    if (writing > 0 && !batch->session->connection.is_own) {
        add_limit(batch);
    }
    for (size_t i = 0; i < KINDS; i++) {
        if (order[i] == IDEMI_OP_FIND && has_begin) {
            add_step(batch, IDEMI_SQL_COMMIT);
            batch->steps[batch->steps_count - 1].is_commit = true;
        }
        if (batch->groups[i].count > 0) {
            built = add_group(batch, &batch->groups[i],
                              &batch->session->arrays[3 * i]) &&
                    built;
        }
    }
    if (batch->groups[0].count > 0 && batch->session->met_known) {
        assert(order[0] == IDEMI_OP_CLAIM);
        add_rows(batch, &batch->groups[0], &batch->session->arrays[0]);
    }
    return built;
}

/* Milliseconds until a lease ends; 0: it has ended. Both are times in
 * microseconds, of which 'infinity' and '-infinity' are the last and first. */
static int64_t until(int64_t end_us, int64_t now_us)
{
    int64_t left_us;

    if (end_us <= now_us) {
        return 0;
    }
    if (__builtin_sub_overflow(end_us, now_us, &left_us) ||
        left_us / 1000 > REMAINING_MAX_MS) {
        return REMAINING_MAX_MS;
    }
    return left_us / 1000;
}

static bool is_token(const PGresult *rows, int row, const char *token)
{
    size_t size = strlen(token);

    return !PQgetisnull(rows, row, 2) &&
           (size_t)PQgetlength(rows, row, 2) == size &&
           memcmp(PQgetvalue(rows, row, 2), token, size) == 0;
}

/* The remaining lease of a row. A table that others share may let its end be
 * null, which no statement takes for over. */
static int64_t remaining_of(const PGresult *rows, int row)
{
    return PQgetisnull(rows, row, 4)
               ? REMAINING_MAX_MS
               : until(idemi_get_int8(PQgetvalue(rows, row, 4)),
                       idemi_get_int8(PQgetvalue(rows, row, 5)));
}

/* What a row says to an operation; NONE where it has to start anew. That is
 * for what can be had only, as the statements see it: whatever else a row may
 * hold is another's affair, and must not hold up the batch. */
static void judge(idemi_op_t *op, const PGresult *rows, int row,
                  int64_t sent_at_ms)
{
    const char *state = PQgetvalue(rows, row, 1);
    bool is_ours = is_token(rows, row, op->token);
    int32_t attempts;

    if (PQgetisnull(rows, row, 5)) {
        return; /* there is no row */
    }
    if (strcmp(state, "CONFIRMED") == 0) {
        op->answer = IDEMI_ANSWER_DONE;
        return;
    }
    attempts = idemi_get_int4(PQgetvalue(rows, row, 3));
    op->attempts = attempts > 0 ? (uint32_t)attempts : 0;
    op->sent_at_ms = sent_at_ms;
    if (strcmp(state, "CLAIMED") != 0) {
        op->remaining_ms = REMAINING_MAX_MS;
        op->answer = IDEMI_ANSWER_IN_PROGRESS;
        return;
    }
    op->remaining_ms = remaining_of(rows, row);
    if (op->remaining_ms == 0) {
        /* Takeover and confirm try again: they may have it. */
        if (op->kind == IDEMI_OP_CLAIM) {
            op->answer = IDEMI_ANSWER_EXPIRED;
            op->suspect = !PQgetisnull(rows, row, 2) && !is_ours;
        }
    } else if (!is_ours) {
        op->answer = IDEMI_ANSWER_IN_PROGRESS;
    } else if (op->kind != IDEMI_OP_CONFIRM) {
        op->answer = IDEMI_ANSWER_NEW;
    }
}

/* Rows of READ, whose first column is the place in the question. What has its
 * answer keeps it. */
static void judge_rows(idemi_op_t **ops, size_t count, const PGresult *rows,
                       int64_t sent_at_ms)
{
    for (int i = 0; i < PQntuples(rows); i++) {
        int64_t place = idemi_get_int8(PQgetvalue(rows, i, 0));
        assert(place >= 1 && (uint64_t)place <= count);
        (void)count;
        if (ops[place - 1]->answer == IDEMI_ANSWER_NONE) {
            judge(ops[place - 1], rows, i, sent_at_ms);
        }
    }
}

static void answer(const batch_t *batch, idemi_op_t *op, idemi_answer_t what)
{
    op->answer = what;
    op->remaining_ms = batch->session->postgres->options.lease_ms;
    op->sent_at_ms = batch->sent_at_ms;
}

static void answer_all(const batch_t *batch, const group_t *group,
                       idemi_answer_t what)
{
    for (size_t i = 0; i < group->count; i++) {
        if (group->ops[i]->answer == IDEMI_ANSWER_NONE) {
            answer(batch, group->ops[i], what);
        }
    }
}

/* The operations whose keys a statement returned. */
static void answer_returned(const batch_t *batch, const group_t *group,
                            idemi_answer_t what)
{
    const PGresult *rows = group->step->result;

    for (int i = 0; i < PQntuples(rows); i++) {
        idemi_op_t *op = find_op(group, PQgetvalue(rows, i, 0),
                                 (size_t)PQgetlength(rows, i, 0));
        if (!op) {
            continue; /* a trigger made another key of it */
        }
        answer(batch, op, what);
        if (op->kind == IDEMI_OP_TAKEOVER) {
            int32_t attempts = idemi_get_int4(PQgetvalue(rows, i, 1));
            op->attempts = attempts > 0 ? (uint32_t)attempts : 0;
        }
    }
}

static bool is_all_new(const group_t *group)
{
    for (size_t i = 0; i < group->count; i++) {
        if (group->ops[i]->answer != IDEMI_ANSWER_NEW) {
            return false;
        }
    }
    return true;
}

static void answer_group(const batch_t *batch, const group_t *group)
{
    switch (group->ops[0]->kind) {
    case IDEMI_OP_CLAIM:
        answer_returned(batch, group, IDEMI_ANSWER_NEW);
        batch->session->met_known = !is_all_new(group);
        if (group->rows) {
            judge_rows(group->ops, group->count, group->rows->result,
                       batch->sent_at_ms);
        }
        break;
    case IDEMI_OP_TAKEOVER:
        answer_returned(batch, group, IDEMI_ANSWER_NEW);
        break;
    case IDEMI_OP_CONFIRM:
        answer_returned(batch, group, IDEMI_ANSWER_DONE);
        break;
    case IDEMI_OP_RENEW:
        answer_returned(batch, group, IDEMI_ANSWER_NEW);
        answer_all(batch, group, IDEMI_ANSWER_LOST);
        break;
    case IDEMI_OP_RELEASE:
        answer_all(batch, group, IDEMI_ANSWER_FREED);
        break;
    case IDEMI_OP_RECORD:
        answer_all(batch, group, IDEMI_ANSWER_DONE);
        break;
    case IDEMI_OP_FIND:
        for (int i = 0; i < PQntuples(group->step->result); i++) {
            int64_t place =
                idemi_get_int8(PQgetvalue(group->step->result, i, 0));
            assert(place >= 1 && (uint64_t)place <= group->count);
            answer(batch, group->ops[place - 1], IDEMI_ANSWER_DONE);
        }
        answer_all(batch, group, IDEMI_ANSWER_ABSENT);
        break;
    }
}

/* Leaves only the operations without an answer. */
static void keep_undecided(batch_t *batch)
{
    size_t kept = 0;

    for (size_t i = 0; i < batch->count; i++) {
        if (batch->ops[i]->answer == IDEMI_ANSWER_NONE) {
            batch->ops[kept++] = batch->ops[i];
        }
    }
    batch->count = kept;
}

static idem_status_t ask(batch_t *batch, idem_error_t *err)
{
    idem_status_t status = idemi_postgres_open(batch->session, err);

    if (status != IDEM_OK) {
        return status;
    }
    if (!build(batch)) {
        return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    }
    status = idemi_postgres_exchange(
        batch->session, batch->steps, batch->steps_count, true,
        batch->session->postgres->options.deadline_ms, err);
    if (status != IDEM_OK) {
        return status;
    }
    batch->sent_at_ms = batch->session->connection.sent_at_ms;
    for (size_t i = 0; i < KINDS; i++) {
        if (batch->groups[i].count > 0) {
            answer_group(batch, &batch->groups[i]);
        }
    }
    idemi_steps_clear(batch->steps, batch->steps_count);
    keep_undecided(batch);
    return IDEM_OK;
}

/* Reads the rows of what is undecided. */
static idem_status_t look(batch_t *batch, idem_error_t *err)
{
    idemi_postgres_session_t *session = batch->session;
    idemi_array_t *keys = &session->arrays[0];
    idemi_step_t step = step_of(batch, IDEMI_SQL_READ);
    idem_status_t status;

    idemi_array_begin(keys, IDEMI_OID_TEXT, batch->count);
    for (size_t i = 0; i < batch->count; i++) {
        idemi_array_add_text(keys, batch->ops[i]->key, batch->ops[i]->key_size);
    }
    if (keys->failed) {
        return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    }
    idemi_step_binary(&step, IDEMI_OID_TEXT_ARRAY, keys->bytes, keys->size);
    status = idemi_postgres_exchange(
        session, &step, 1, false, session->postgres->options.deadline_ms, err);
    if (status == IDEM_OK) {
        judge_rows(batch->ops, batch->count, step.result,
                   session->connection.sent_at_ms);
        idemi_steps_clear(&step, 1);
        keep_undecided(batch);
    }
    return status;
}

static bool reserve(idemi_postgres_session_t *session, size_t count)
{
    if (session->sorted_room < count) {
        /* NOLINTNEXTLINE(bugprone-sizeof-expression): of a pointer. */
        idemi_op_t **grown = calloc(count, sizeof *grown);
        if (!grown) {
            return false;
        }
        free((void *)session->sorted);
        session->sorted = grown;
        session->sorted_room = count;
    }
    return true;
}

idem_status_t idemi_postgres_execute(idemi_session_t *session, idemi_op_t **ops,
                                     size_t count, idem_error_t *err)
{
    batch_t batch = {.session = (idemi_postgres_session_t *)session,
                     .count = count};
    idem_status_t status = IDEM_OK;

    if (!reserve(batch.session, count)) {
        return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    }
    batch.ops = batch.session->sorted;
    for (size_t i = 0; i < count; i++) {
        batch.ops[i] = ops[i];
        ops[i]->answer = IDEMI_ANSWER_NONE;
        ops[i]->suspect = false;
        ops[i]->attempts = 0;
    }
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): of a pointer. */
    qsort((void *)batch.ops, count, sizeof *batch.ops, compare_ops);

    for (int round = 0; status == IDEM_OK && batch.count > 0; round++) {
        if (round == ROUNDS) {
            status = idemi_error(err, IDEM_ERR_STORE_UNAVAILABLE,
                                 "rows vanished between two statements %d "
                                 "times: somebody deletes claims, or a "
                                 "trigger changes them",
                                 ROUNDS);
            break;
        }
        status = ask(&batch, err);
        if (status == IDEM_OK && batch.count > 0) {
            status = look(&batch, err);
        }
    }
    if (status != IDEM_OK) {
        for (size_t i = 0; i < count; i++) {
            ops[i]->answer = IDEMI_ANSWER_NONE;
        }
    }
    return status;
}
