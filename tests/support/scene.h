#ifndef IDEM_TEST_SCENE_H
#define IDEM_TEST_SCENE_H

/*
 * What a test on real servers starts with: a queue and a schema of its own,
 * and eyes on both. Used as a checked fixture.
 *
 * Threads: the test's own. Whatever goes wrong fails the running test.
 */

#include "database.h"
#include "management.h"
#include "process.h"

#include <idem/idem.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SCENE_NAME_BYTES = 64, SCENE_PATH_BYTES = 512 };

typedef struct scene {
    const char *url;
    const char *dsn;
    char queue[SCENE_NAME_BYTES];
    char schema[SCENE_NAME_BYTES];
    char table[2 * SCENE_NAME_BYTES]; /* schema.idem_message */
    PGconn *database;
    management_t *management;
} scene_t;

/**
 * @param prefix  how the queue's name begins, which chooses the broker's
 *                settings: see artemis.sh. At most 20 characters
 */
void scene_open(scene_t *scene, const char *prefix);

/** On other servers than the shared ones. */
void scene_open_at(scene_t *scene, const char *prefix, const char *url,
                   const char *dsn);

/** Deletes the queue and the schema. */
void scene_close(scene_t *scene);

/** A store on the scene's table, which is made. */
idem_store_t *scene_store(const scene_t *scene, int64_t lease_ms);

/** Makes the table, for workers, which do not. */
void scene_create_table(const scene_t *scene);

/** Options of a consumer of the scene's queue with an empty scope. */
void scene_consumer(const scene_t *scene, idem_consumer_options_t *options,
                    idem_store_t *store, idem_handler_t handler, void *user);

/** How many rows fulfil a condition; NULL: all. */
int64_t scene_rows(scene_t *scene, const char *condition);
bool scene_wait_rows(scene_t *scene, const char *condition, int64_t count,
                     int64_t timeout_ms);

/** The conditions that are asked most. A live claim has an owner; one without
 * is free. */
#define SCENE_CONFIRMED "state = 'CONFIRMED'"
#define SCENE_CLAIMED "state = 'CLAIMED' AND claimed_by IS NOT NULL"
#define SCENE_FREE "state = 'CLAIMED' AND claimed_by IS NULL"

/** Whether the broker holds nothing any more, in time. */
bool scene_wait_empty(scene_t *scene, int64_t timeout_ms);

/** How many messages the broker gave up on: dead-lettered or deleted. */
int64_t scene_killed(scene_t *scene);

/** A file of the test's own, which is deleted with the servers. */
void scene_path(const scene_t *scene, char *path, size_t size,
                const char *name);

/**
 * Start idem-worker on the scene's queue and table.
 *
 * @param journal  the file for its lines. Its name after the last slash is the
 *                 application_name of its database sessions
 * @param more     further arguments, ending with NULL; may be NULL
 */
process_t *scene_worker(const scene_t *scene, const char *journal,
                        const char *const *more);

/** Ask a worker to stop in order, and wait until it has. Whatever it says when
 * it does not succeed fails the test. */
void scene_stop_worker(process_t *worker);

#endif
