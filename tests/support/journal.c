#include "journal.h"

#include "support.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 512 };

struct journal {
    pthread_mutex_t mutex;
    /* Guarded by mutex. */
    journal_key_t *keys;
    size_t begun, ended;
};

journal_t *journal_create(void)
{
    journal_t *journal = calloc(1, sizeof *journal);

    ck_assert_ptr_nonnull(journal);
    ck_assert_int_eq(pthread_mutex_init(&journal->mutex, NULL), 0);
    return journal;
}

void journal_destroy(journal_t *journal)
{
    journal_key_t *key;
    journal_key_t *next;

    if (journal == NULL) {
        return;
    }
    HASH_ITER(hh, journal->keys, key, next) {
        HASH_DEL(journal->keys, key);
        free(key->key);
        free(key);
    }
    pthread_mutex_destroy(&journal->mutex);
    free(journal);
}

static journal_key_t *find_locked(journal_t *journal, const char *name)
{
    journal_key_t *key = NULL;

    HASH_FIND_STR(journal->keys, name, key);
    return key;
}

static void note(journal_t *journal, const char *name, bool has_ended)
{
    journal_key_t *key = NULL;

    name = name != NULL ? name : "-";
    pthread_mutex_lock(&journal->mutex);
    key = find_locked(journal, name);
    if (key == NULL) {
        key = calloc(1, sizeof *key);
        if (key == NULL || (key->key = strdup(name)) == NULL) {
            abort();
        }
        HASH_ADD_KEYPTR(hh, journal->keys, key->key, strlen(key->key), key);
    }
    if (has_ended) {
        key->ended++;
        journal->ended++;
    } else {
        key->begun++;
        journal->begun++;
    }
    pthread_mutex_unlock(&journal->mutex);
}

void journal_begin(journal_t *journal, const char *key)
{
    note(journal, key, false);
}

void journal_end(journal_t *journal, const char *key)
{
    note(journal, key, true);
}

void journal_read(journal_t *journal, const char *path)
{
    char line[LINE_BYTES];
    FILE *file = fopen(path, "re");

    if (file == NULL) {
        return;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        size_t size = strcspn(line, "\n");

        if (line[size] != '\n') {
            break;
        }
        line[size] = '\0';
        if (strncmp(line, "begin ", 6) == 0) {
            journal_begin(journal, line + 6);
        } else if (strncmp(line, "end ", 4) == 0) {
            journal_end(journal, line + 4);
        } else {
            ck_abort_msg("%s holds: %s", path, line);
        }
    }
    fclose(file);
}

size_t journal_begun(journal_t *journal, const char *key)
{
    const journal_key_t *found = NULL;
    size_t count = 0;

    pthread_mutex_lock(&journal->mutex);
    found = find_locked(journal, key);
    count = found != NULL ? found->begun : 0;
    pthread_mutex_unlock(&journal->mutex);
    return count;
}

size_t journal_ended(journal_t *journal, const char *key)
{
    const journal_key_t *found = NULL;
    size_t count = 0;

    pthread_mutex_lock(&journal->mutex);
    found = find_locked(journal, key);
    count = found != NULL ? found->ended : 0;
    pthread_mutex_unlock(&journal->mutex);
    return count;
}

size_t journal_keys(journal_t *journal)
{
    size_t count = 0;

    pthread_mutex_lock(&journal->mutex);
    count = HASH_COUNT(journal->keys);
    pthread_mutex_unlock(&journal->mutex);
    return count;
}

size_t journal_all_begun(journal_t *journal)
{
    size_t count = 0;

    pthread_mutex_lock(&journal->mutex);
    count = journal->begun;
    pthread_mutex_unlock(&journal->mutex);
    return count;
}

size_t journal_all_ended(journal_t *journal)
{
    size_t count = 0;

    pthread_mutex_lock(&journal->mutex);
    count = journal->ended;
    pthread_mutex_unlock(&journal->mutex);
    return count;
}

journal_key_t *journal_first(journal_t *journal)
{
    return journal->keys;
}

typedef struct wish {
    journal_t *journal;
    const char *path;
    size_t count;
} wish_t;

static bool has_begun(void *user)
{
    const wish_t *wish = user;

    return journal_all_begun(wish->journal) >= wish->count;
}

static bool has_ended(void *user)
{
    const wish_t *wish = user;

    return journal_all_ended(wish->journal) >= wish->count;
}

static bool file_has_ended(void *user)
{
    const wish_t *wish = user;
    journal_t *journal = journal_create();
    bool holds = false;

    journal_read(journal, wish->path);
    holds = journal->ended >= wish->count;
    journal_destroy(journal);
    return holds;
}

bool journal_wait_begun(journal_t *journal, size_t count, int64_t timeout_ms)
{
    wish_t wish = {.journal = journal, .count = count};

    return test_wait(has_begun, &wish, timeout_ms);
}

bool journal_wait_ended(journal_t *journal, size_t count, int64_t timeout_ms)
{
    wish_t wish = {.journal = journal, .count = count};

    return test_wait(has_ended, &wish, timeout_ms);
}

bool journal_wait_file(const char *path, size_t ended, int64_t timeout_ms)
{
    wish_t wish = {.path = path, .count = ended};

    return test_wait(file_has_ended, &wish, timeout_ms);
}
