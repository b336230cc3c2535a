#ifndef IDEM_TEST_JOURNAL_H
#define IDEM_TEST_JOURNAL_H

/*
 * Which keys handlers began and ended, as handlers in this process note it, or
 * as worker processes wrote it to their files. Any thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uthash.h>

typedef struct journal_key {
    char *key;
    size_t begun, ended;
    UT_hash_handle hh;
} journal_key_t;

typedef struct journal journal_t;

journal_t *journal_create(void);
void journal_destroy(journal_t *journal);

/** A handler begins, or ends. A NULL key is "-", as in a worker's file. */
void journal_begin(journal_t *journal, const char *key);
void journal_end(journal_t *journal, const char *key);

/** Adds what a worker's file holds. A line that is still being written is left
 * out; a file that is not there holds nothing. */
void journal_read(journal_t *journal, const char *path);

/** How often a key was begun; ended. */
size_t journal_begun(journal_t *journal, const char *key);
size_t journal_ended(journal_t *journal, const char *key);

/** How many keys there are; runs that began and ended, of all keys. */
size_t journal_keys(journal_t *journal);
size_t journal_all_begun(journal_t *journal);
size_t journal_all_ended(journal_t *journal);

/** The first of the keys, to walk over them by hh.next while no handler runs.
 */
journal_key_t *journal_first(journal_t *journal);

/** Wait until that many runs have begun, or ended, in all. */
bool journal_wait_begun(journal_t *journal, size_t count, int64_t timeout_ms);
bool journal_wait_ended(journal_t *journal, size_t count, int64_t timeout_ms);

/** Wait until a worker's file holds that many "end" lines. */
bool journal_wait_file(const char *path, size_t ended, int64_t timeout_ms);

#endif
