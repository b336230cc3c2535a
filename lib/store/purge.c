#include "store/store_internal.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

/* What runs on the store's own session: the timer that purges, and the calls
 * that are not operations on keys. */

/* The timer rests between chunks, so that consumers see no difference. */
#define CHUNK_PAUSE_MS 10

#define RETRY_MIN_MS 100
#define RETRY_MAX_MS 2000

/* Takes the session; IDEM_ERR_TIMEOUT or IDEM_ERR_STATE otherwise. */
static idem_status_t session_take(idem_store_t *store, int64_t end_ms,
                                  idem_error_t *err)
{
    idem_status_t status = IDEM_OK;

    (void)pthread_mutex_lock(&store->mutex);
    while (store->admin_busy && !store->stopping && status == IDEM_OK) {
        if (!idemi_wait_until(&store->admin, &store->mutex, end_ms)) {
            status = idemi_error(err, IDEM_ERR_TIMEOUT,
                                 "the store's own connection is busy");
        }
    }
    if (store->stopping) {
        status =
            idemi_error(err, IDEM_ERR_STATE, "the store is being destroyed");
    }
    if (status == IDEM_OK) {
        store->admin_busy = true;
    }
    (void)pthread_mutex_unlock(&store->mutex);
    return status;
}

static void session_give(idem_store_t *store)
{
    (void)pthread_mutex_lock(&store->mutex);
    store->admin_busy = false;
    (void)pthread_cond_broadcast(&store->admin);
    (void)pthread_mutex_unlock(&store->mutex);
}

/* Waits; false when the store is being destroyed. */
static bool rest(idem_store_t *store, int64_t pause_ms)
{
    int64_t end_ms = idemi_end_ms(pause_ms);
    bool goes_on;

    (void)pthread_mutex_lock(&store->mutex);
    while (!store->stopping && idemi_now_ms() < end_ms) {
        (void)idemi_wait_until(&store->admin, &store->mutex, end_ms);
    }
    goes_on = !store->stopping;
    (void)pthread_mutex_unlock(&store->mutex);
    return goes_on;
}

/* One thing to do with the session; the kinds of admin calls. */
typedef struct job {
    idem_status_t (*run)(idem_store_t *store, struct job *job,
                         int64_t timeout_ms, idem_error_t *err);
    bool more; /* run again */
    uint64_t removed;
    idem_store_counts_t counts;
} job_t;

static idem_status_t run_count(idem_store_t *store, job_t *job,
                               int64_t timeout_ms, idem_error_t *err)
{
    return store->backend->table->count(store->admin_session, timeout_ms,
                                        &job->counts, err);
}

static idem_status_t run_create(idem_store_t *store, job_t *job,
                                int64_t timeout_ms, idem_error_t *err)
{
    (void)job;
    return store->backend->table->create_schema(store->admin_session,
                                                timeout_ms, err);
}

static idem_status_t purge_chunk(idem_store_t *store, bool sweep,
                                 int64_t timeout_ms, uint64_t *removed,
                                 bool *more, idem_error_t *err)
{
    idem_status_t status = store->backend->table->purge(
        store->admin_session, sweep, timeout_ms, removed, more, err);

    if (status == IDEM_OK) {
        (void)atomic_fetch_add(&store->purged, *removed);
    }
    return status;
}

static idem_status_t run_purge(idem_store_t *store, job_t *job,
                               int64_t timeout_ms, idem_error_t *err)
{
    uint64_t removed = 0;
    idem_status_t status =
        purge_chunk(store, true, timeout_ms, &removed, &job->more, err);

    if (status == IDEM_OK) {
        job->removed += removed;
    }
    return status;
}

/* Time that is left, as a backend takes it. */
static int64_t left_ms(int64_t end_ms)
{
    int64_t left = end_ms - idemi_now_ms();

    if (end_ms == INT64_MAX) {
        return IDEM_WAIT_FOREVER;
    }
    return left > 0 ? left : 0;
}

/* Runs a job until it is through, repeating it while the server is out of
 * reach. */
static idem_status_t run_job(idem_store_t *store, job_t *job,
                             int64_t timeout_ms, idem_error_t *err)
{
    int64_t end_ms = idemi_end_ms(timeout_ms);
    idemi_random_t random = {(uint64_t)end_ms};
    idem_error_t local = {.status = IDEM_OK};
    uint32_t tries = 0;
    idem_status_t status;

    if (!store) {
        return idemi_error(err, IDEM_ERR_ARG, "store is NULL");
    }
    if (timeout_ms < 0 && timeout_ms != IDEM_WAIT_FOREVER) {
        return idemi_error(err, IDEM_ERR_ARG,
                           "timeout_ms is %lld: give 0 or more, or "
                           "IDEM_WAIT_FOREVER",
                           (long long)timeout_ms);
    }
    for (;;) {
        if (idemi_now_ms() >= end_ms) {
            status = idemi_error(&local, IDEM_ERR_TIMEOUT,
                                 "not through within %lld ms",
                                 (long long)timeout_ms);
            break;
        }
        status = session_take(store, end_ms, &local);
        if (status != IDEM_OK) {
            break;
        }
        job->more = false;
        status = job->run(store, job, left_ms(end_ms), &local);
        session_give(store);
        if (status == IDEM_OK) {
            tries = 0;
            if (!job->more) {
                break;
            }
        } else if (status == IDEM_ERR_STORE_UNAVAILABLE ||
                   status == IDEM_ERR_COMMIT_UNKNOWN) {
            int64_t pause_ms =
                idemi_backoff_ms(&random, ++tries, RETRY_MIN_MS, RETRY_MAX_MS);
            if (idemi_end_ms(pause_ms) < end_ms && !rest(store, pause_ms)) {
                status = idemi_error(&local, IDEM_ERR_STATE,
                                     "the store is being destroyed");
                break;
            }
            if (idemi_end_ms(pause_ms) >= end_ms) {
                local.status = status = IDEM_ERR_TIMEOUT;
                break;
            }
        } else {
            break;
        }
    }
    if (status != IDEM_OK && err) {
        *err = local;
    }
    return status;
}

idem_status_t idem_store_count(idem_store_t *store, idem_store_counts_t *counts,
                               int64_t timeout_ms, idem_error_t *err)
{
    job_t job = {.run = run_count};
    idem_status_t status;

    if (!counts) {
        return idemi_error(err, IDEM_ERR_ARG, "counts is NULL");
    }
    status = run_job(store, &job, timeout_ms, err);
    if (status == IDEM_OK) {
        *counts = job.counts;
    }
    return status;
}

idem_status_t idem_store_purge_expired(idem_store_t *store, uint64_t *removed,
                                       int64_t timeout_ms, idem_error_t *err)
{
    job_t job = {.run = run_purge};
    idem_status_t status = run_job(store, &job, timeout_ms, err);

    if (removed && (status == IDEM_OK || status == IDEM_ERR_TIMEOUT)) {
        *removed = job.removed;
    }
    return status;
}

idem_status_t idem_store_create_schema(idem_store_t *store, int64_t timeout_ms,
                                       idem_error_t *err)
{
    job_t job = {.run = run_create};

    return run_job(store, &job, timeout_ms, err);
}

/* One turn of the timer; false when the store is being destroyed. */
static bool purge_share(idem_store_t *store)
{
    idem_error_t err = {.status = IDEM_OK};
    uint64_t total = 0;
    bool more = true;

    while (more) {
        uint64_t removed = 0;
        if (session_take(store, INT64_MAX, &err) != IDEM_OK) {
            return false;
        }
        idem_status_t status =
            purge_chunk(store, false, IDEM_WAIT_FOREVER, &removed, &more, &err);
        session_give(store);
        total += removed;
        if (status != IDEM_OK) {
            idemi_log(&store->config.logger,
                      status == IDEM_ERR_STORE ? IDEM_LOG_WARNING
                                               : IDEM_LOG_INFO,
                      "The purge stopped; the next turn goes on. status=%s "
                      "sqlstate=%s reason=\"%s\"",
                      idem_status_name(status), err.sqlstate, err.message);
            return true;
        }
        if (more && !rest(store, CHUNK_PAUSE_MS)) {
            return false;
        }
    }
    if (total > 0) {
        idemi_log(&store->config.logger, IDEM_LOG_DEBUG,
                  "Expired keys were purged. rows=%llu",
                  (unsigned long long)total);
    }
    return true;
}

static void *run_purger(void *argument)
{
    idem_store_t *store = argument;
    idemi_random_t random = {0};
    uint64_t interval_ms = (uint64_t)store->config.purge_interval_ms;

    (void)idemi_random_bytes(&random, sizeof random);
    /* From three quarters to five quarters, so that many programs that were
     * started at once do not purge at once. */
    while (rest(store,
                (int64_t)(interval_ms - interval_ms / 4 +
                          idemi_random_below(&random, interval_ms / 2 + 1)))) {
        if (!purge_share(store)) {
            break;
        }
    }
    return NULL;
}

idem_status_t idemi_purger_start(idem_store_t *store, idem_error_t *err)
{
    if (idemi_thread_create(&store->purger, run_purger, store) != 0) {
        return idemi_error(err, IDEM_ERR_SYSTEM, "no thread for the purge");
    }
    store->has_purger = true;
    return IDEM_OK;
}
