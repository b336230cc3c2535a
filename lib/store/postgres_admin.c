#include "store/postgres.h"

#include "base/clock.h"
#include "base/error.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is not on a message's path: creating the table, counting, purging. */

/* One chunk of a purge: claims beside it see no difference. */
#define CHUNK_PAGES 20

/* A chunk in which nothing was found costs little: the next is larger. */
#define CHUNK_PAGES_MAX 160

/* A timer's share of a walk: all pages are seen this often while the longest
 * lived row lives, so that the table is at most that much larger than need
 * be; but at least these pages. */
#define WALKS_PER_RETENTION 16
#define SHARE_PAGES 2048

static int64_t shorter(int64_t timeout_ms, int64_t deadline_ms)
{
    return timeout_ms >= 0 && timeout_ms < deadline_ms ? timeout_ms
                                                       : deadline_ms;
}

/* Connecting included, a call ends when its time is up. */
static void begin_call(idemi_postgres_session_t *session, int64_t timeout_ms)
{
    int64_t now_ms = idemi_now_ms();

    session->connection.end_ms =
        timeout_ms < 0 || timeout_ms > INT64_MAX - now_ms ? INT64_MAX
                                                          : now_ms + timeout_ms;
}

/* True: it is there, or the answer is in *status. */
static bool has_table(idemi_postgres_session_t *session, int64_t timeout_ms,
                      idem_status_t *status, idem_error_t *err)
{
    idemi_step_t step = {.sql = idemi_sql_find_table};
    bool found = true;

    idemi_step_text(&step, IDEMI_OID_TEXT, session->postgres->named);
    *status =
        idemi_postgres_exchange(session, &step, 1, false, timeout_ms, err);
    if (*status == IDEM_OK) {
        found = PQntuples(step.result) > 0;
        idemi_steps_clear(&step, 1);
    }
    return found;
}

idem_status_t idemi_postgres_create_schema(idemi_session_t *session,
                                           int64_t timeout_ms,
                                           idem_error_t *err)
{
    idemi_postgres_session_t *s = (idemi_postgres_session_t *)session;
    int64_t limit_ms = shorter(timeout_ms, s->postgres->options.deadline_ms);
    idemi_step_t step = {0};
    idem_status_t status;
    char *sql = NULL;

    begin_call(s, timeout_ms);
    /* Asked first: IF NOT EXISTS wants the right to create even when there is
     * nothing to do. */
    if (has_table(s, limit_ms, &status, err)) {
        return status;
    }
    sql = idemi_sql_create(s->postgres->named);
    if (!sql) {
        return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    }
    step.sql = sql;
    status = idemi_postgres_exchange(s, &step, 1, true, limit_ms, err);
    if (status == IDEM_OK) {
        idemi_steps_clear(&step, 1);
    } else if (status == IDEM_ERR_STORE) {
        /* Two who create at once meet in the catalogue (23505, 42P07): then
         * the other's table is there now. */
        idem_error_t ignored;
        idem_status_t looked;
        if (has_table(s, limit_ms, &looked, &ignored) && looked == IDEM_OK) {
            status = IDEM_OK;
        }
    }
    free(sql);
    return status;
}

idem_status_t idemi_postgres_count(idemi_session_t *session, int64_t timeout_ms,
                                   idem_store_counts_t *counts,
                                   idem_error_t *err)
{
    idemi_postgres_session_t *s = (idemi_postgres_session_t *)session;
    char limit[IDEMI_NUMBER_BYTES];
    idemi_step_t steps[] = {
        {.sql = IDEMI_SQL_LIMIT},
        {.sql = IDEMI_SQL_SCAN},
        {.sql = s->postgres->sql.text[IDEMI_SQL_COUNT]},
    };
    idem_status_t status;

    begin_call(s, timeout_ms);
    /* The session's own limit is too short for a large table. */
    (void)snprintf(
        limit, sizeof limit, "%lld",
        (long long)(timeout_ms < 0 || timeout_ms > INT32_MAX ? 0 : timeout_ms));
    idemi_step_text(&steps[0], IDEMI_OID_TEXT, limit);
    status = idemi_postgres_exchange(s, steps, 3, false, timeout_ms, err);
    if (status == IDEM_OK) {
        const PGresult *row = steps[2].result;
        counts->claimed = (uint64_t)idemi_get_int8(PQgetvalue(row, 0, 0));
        counts->freed = (uint64_t)idemi_get_int8(PQgetvalue(row, 0, 1));
        counts->confirmed = (uint64_t)idemi_get_int8(PQgetvalue(row, 0, 2));
        idemi_steps_clear(steps, 3);
    }
    return status;
}

void idemi_purge_walk_finish(idemi_purge_walk_t *walk)
{
    free(walk->leaves);
    free(walk->pages);
    free(walk->sql);
    *walk = (idemi_purge_walk_t){0};
}

/* A share of all pages for one run of the timer. */
static int64_t share_of(const idemi_postgres_t *postgres, int64_t pages)
{
    double part = (double)postgres->options.purge_interval_ms *
                  WALKS_PER_RETENTION / (double)postgres->options.retention_ms;
    double share = part >= 1.0 ? (double)pages : part * (double)pages;

    return share < SHARE_PAGES ? SHARE_PAGES : (int64_t)share;
}

/* The leaves that the server named; false when memory ran out. */
static bool fill_walk(idemi_purge_walk_t *walk, const PGresult *rows)
{
    size_t count = (size_t)PQntuples(rows);

    walk->leaves = calloc(count + 1, sizeof *walk->leaves);
    walk->pages = calloc(count + 1, sizeof *walk->pages);
    if (!walk->leaves || !walk->pages) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        bool fits =
            idemi_sql_quote(walk->leaves[i], PQgetvalue(rows, (int)i, 0),
                            PQgetvalue(rows, (int)i, 1));
        assert(fits); /* names are cut by the server */
        (void)fits;
        walk->pages[i] = idemi_get_int8(PQgetvalue(rows, (int)i, 2));
    }
    walk->count = count;
    return true;
}

static idem_status_t begin_walk(idemi_postgres_session_t *session,
                                idemi_purge_walk_t *walk, int64_t timeout_ms,
                                idem_error_t *err)
{
    idemi_step_t step = {.sql = idemi_sql_leaves};
    idem_status_t status;

    idemi_purge_walk_finish(walk);
    idemi_step_text(&step, IDEMI_OID_TEXT, session->postgres->shape.table);
    status = idemi_postgres_exchange(session, &step, 1, false, timeout_ms, err);
    if (status != IDEM_OK) {
        return status;
    }
    if (!fill_walk(walk, step.result)) {
        status = idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
        idemi_purge_walk_finish(walk);
    }
    idemi_steps_clear(&step, 1);
    return status;
}

static int64_t pages_of(const idemi_purge_walk_t *walk)
{
    int64_t pages = 0;

    for (size_t i = 0; i < walk->count; i++) {
        pages += walk->pages[i];
    }
    return pages;
}

static idem_status_t purge_pages(idemi_postgres_session_t *session,
                                 idemi_purge_walk_t *walk, int64_t timeout_ms,
                                 uint64_t *removed, idem_error_t *err)
{
    char first[IDEMI_NUMBER_BYTES];
    char last[IDEMI_NUMBER_BYTES];
    idemi_step_t step = {0};
    idem_status_t status;

    if (!walk->sql) {
        walk->sql = idemi_sql_purge(walk->leaves[walk->leaf],
                                    session->postgres->shape.has_zone);
        if (!walk->sql) {
            return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
        }
    }
    (void)snprintf(first, sizeof first, "%lld", (long long)walk->page);
    (void)snprintf(last, sizeof last, "%lld",
                   (long long)walk->page + (long long)walk->chunk);
    step.sql = walk->sql;
    idemi_step_text(&step, IDEMI_OID_INT8, first);
    idemi_step_text(&step, IDEMI_OID_INT8, last);
    idemi_step_text(&step, IDEMI_OID_FLOAT8, session->postgres->retention_ms);
    status = idemi_postgres_exchange(session, &step, 1, true, timeout_ms, err);
    if (status == IDEM_OK) {
        *removed = strtoull(PQcmdTuples(step.result), NULL, 10);
        idemi_steps_clear(&step, 1);
    }
    return status;
}

idem_status_t idemi_postgres_purge(idemi_session_t *session, bool sweep,
                                   int64_t timeout_ms, uint64_t *removed,
                                   bool *more, idem_error_t *err)
{
    idemi_postgres_session_t *s = (idemi_postgres_session_t *)session;
    idemi_purge_walk_t *walk = &s->walks[sweep];
    int64_t limit_ms = shorter(timeout_ms, s->postgres->options.deadline_ms);
    idem_status_t status = IDEM_OK;

    begin_call(s, timeout_ms);
    *removed = 0;
    *more = false;
    if (walk->leaf == walk->count) {
        status = begin_walk(s, walk, limit_ms, err);
    }
    while (walk->leaf < walk->count && walk->page >= walk->pages[walk->leaf]) {
        free(walk->sql);
        walk->sql = NULL;
        walk->page = 0;
        walk->leaf++;
    }
    if (status != IDEM_OK || walk->leaf == walk->count) {
        return status;
    }
    if (walk->share <= 0) {
        walk->share = share_of(s->postgres, pages_of(walk));
    }
    if (walk->chunk == 0) {
        walk->chunk = CHUNK_PAGES;
    }
    status = purge_pages(s, walk, limit_ms, removed, err);
    if (status != IDEM_OK) {
        if (status == IDEM_ERR_STORE) {
            /* A partition may be gone: look again next time. */
            idemi_purge_walk_finish(walk);
        }
        return status;
    }
    walk->page += walk->chunk;
    walk->share -= walk->chunk;
    if (*removed > 0) {
        walk->chunk = CHUNK_PAGES;
    } else if (walk->chunk < CHUNK_PAGES_MAX) {
        walk->chunk *= 2;
    }
    *more = sweep || walk->share > 0;
    return IDEM_OK;
}
