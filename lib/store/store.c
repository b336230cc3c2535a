#include "store/store_internal.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

int64_t idemi_end_ms(int64_t timeout_ms)
{
    int64_t now_ms = idemi_now_ms();

    return timeout_ms < 0 || timeout_ms > INT64_MAX - now_ms
               ? INT64_MAX
               : now_ms + timeout_ms;
}

bool idemi_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex,
                      int64_t end_ms)
{
    struct timespec end = {(time_t)(end_ms / 1000),
                           (long)(end_ms % 1000) * 1000000L};

    if (end_ms == INT64_MAX) {
        (void)pthread_cond_wait(condition, mutex);
        return true;
    }
    return pthread_cond_timedwait(condition, mutex, &end) != ETIMEDOUT;
}

/* Room for every key that the lanes can have at once, half of it empty. */
static size_t buckets_for(uint32_t lanes)
{
    size_t count = 1024;

    while (count < 2 * (size_t)lanes * IDEMI_BATCH_OPS) {
        count *= 2;
    }
    return count;
}

bool idemi_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    bool made;

    if (pthread_condattr_init(&attributes) != 0) {
        return false;
    }
    made = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
           pthread_cond_init(condition, &attributes) == 0;
    (void)pthread_condattr_destroy(&attributes);
    return made;
}

/* The mutex and the conditions, or none of them. */
static bool init_locks(idem_store_t *store)
{
    pthread_cond_t *const conditions[] = {&store->work, &store->again,
                                          &store->admin};
    size_t made = 0;

    if (pthread_mutex_init(&store->mutex, NULL) != 0) {
        return false;
    }
    while (made < 3 && idemi_condition_init(conditions[made])) {
        made++;
    }
    if (made == 3) {
        return true;
    }
    while (made > 0) {
        (void)pthread_cond_destroy(conditions[--made]);
    }
    (void)pthread_mutex_destroy(&store->mutex);
    return false;
}

static void stop_threads(idem_store_t *store)
{
    (void)pthread_mutex_lock(&store->mutex);
    store->stopping = true;
    (void)pthread_cond_broadcast(&store->work);
    (void)pthread_cond_broadcast(&store->again);
    (void)pthread_cond_broadcast(&store->admin);
    (void)pthread_mutex_unlock(&store->mutex);
    for (uint32_t i = 0; i < store->config.lanes; i++) {
        idemi_lane_join(&store->lanes[i]);
    }
    if (store->has_purger) {
        (void)pthread_join(store->purger, NULL);
    }
}

idem_status_t idemi_store_create(idem_store_t **store, idemi_backend_t *backend,
                                 const idemi_store_config_t *config,
                                 idem_error_t *err)
{
    idem_store_t *made = calloc(1, sizeof *made);
    size_t buckets = buckets_for(config->lanes);
    idem_status_t status;

    if (made) {
        made->lanes = calloc(config->lanes, sizeof *made->lanes);
        made->busy = calloc(buckets, sizeof(idemi_slot_t *));
    }
    if (!made || !made->lanes || !made->busy) {
        status = idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
        goto failed;
    }
    made->backend = backend;
    made->config = *config;
    made->busy_mask = buckets - 1;
    atomic_init(&made->available, true);
    if (!idemi_token_prefix(made->token_prefix)) {
        status = idemi_error(err, IDEM_ERR_SYSTEM,
                             "no random bytes for claim tokens");
        goto failed;
    }
    if (!init_locks(made)) {
        status = idemi_error(err, IDEM_ERR_SYSTEM, "no mutex");
        goto failed;
    }
    status = backend->table->open(backend, &made->admin_session, err);
    for (uint32_t i = 0; status == IDEM_OK && i < config->lanes; i++) {
        status = idemi_lane_start(&made->lanes[i], made, err);
    }
    if (status == IDEM_OK && config->purge_interval_ms > 0) {
        status = idemi_purger_start(made, err);
    }
    if (status != IDEM_OK) {
        idem_store_destroy(made);
        return status;
    }
    *store = made;
    return IDEM_OK;

failed:
    if (made) {
        free(made->lanes);
        free((void *)made->busy);
        free(made);
    }
    backend->table->destroy(backend);
    return status;
}

void idem_store_destroy(idem_store_t *store)
{
    if (!store) {
        return;
    }
    stop_threads(store);
    for (uint32_t i = 0; i < store->config.lanes; i++) {
        if (store->lanes[i].session) {
            store->backend->table->close(store->lanes[i].session);
        }
    }
    if (store->admin_session) {
        store->backend->table->close(store->admin_session);
    }
    store->backend->table->destroy(store->backend);
    (void)pthread_cond_destroy(&store->admin);
    (void)pthread_cond_destroy(&store->again);
    (void)pthread_cond_destroy(&store->work);
    (void)pthread_mutex_destroy(&store->mutex);
    free(store->lanes);
    free((void *)store->busy);
    free(store);
}

int64_t idemi_store_renew_ms(const idem_store_t *store)
{
    return store->config.renew_ms;
}

idem_status_t idem_store_statistics(const idem_store_t *store,
                                    idem_store_statistics_t *statistics)
{
    if (!store || !statistics) {
        return IDEM_ERR_ARG;
    }
    statistics->batches = atomic_load(&store->batches);
    statistics->operations = atomic_load(&store->operations);
    statistics->retries = atomic_load(&store->backend->retries);
    statistics->reconnects = atomic_load(&store->backend->reconnects);
    statistics->errors = atomic_load(&store->errors);
    statistics->purged = atomic_load(&store->purged);
    statistics->available = atomic_load(&store->available);
    return IDEM_OK;
}
