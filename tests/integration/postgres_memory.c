/* Each allocation of a store's whole life fails in turn: that is a status, or
 * is tried again, and nothing is leaked on the way. */

#include "store_rig.h"
#include "support.h"

#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { WAIT_MS = 20000 };

/* Made a part of this program by -Wl,--wrap. */
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
char *__wrap_strndup(const char *text, size_t size);

/* The allocation with this number fails; 0: none. Several threads allocate. */
static atomic_int failing;
static atomic_int allocations;
static atomic_bool armed; /* not while the test framework allocates */

static bool fails(void)
{
    return atomic_load(&armed) &&
           atomic_fetch_add(&allocations, 1) + 1 == atomic_load(&failing);
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return fails() ? NULL : __real_realloc(memory, size);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t size)
{
    return fails() ? NULL : __real_strndup(text, size);
}

static bool is_memory_or_ok(idem_status_t status, const idem_error_t *err)
{
    if (status == IDEM_ERR_MEMORY) {
        ck_assert_int_eq(err->status, IDEM_ERR_MEMORY);
        ck_assert_str_ne(err->message, "");
    }
    return status == IDEM_OK || status == IDEM_ERR_MEMORY;
}

#define TRY(call) \
    do { \
        idem_error_t err = {.status = IDEM_OK}; \
        atomic_store(&armed, true); \
        idem_status_t status = (call); \
        atomic_store(&armed, false); \
        ck_assert_msg(is_memory_or_ok(status, &err), "%s: %s: %s", #call, \
                      idem_status_name(status), err.message); \
    } while (0)

static void live(const idem_postgres_options_t *options)
{
    static const char *const keys[] = {"a", "b", "a"};
    idem_store_t *store = NULL;
    idem_claim_t claim = {0};
    idem_store_counts_t counts;
    uint64_t removed;
    bool processed[3];

    TRY(idem_postgres_store_create(&store, options, &err));
    if (store == NULL) {
        return;
    }
    TRY(idem_store_claim(store, "k", &claim, WAIT_MS, &err));
    if (claim.state == IDEM_CLAIM_NEW) {
        TRY(idem_store_renew(store, &claim, WAIT_MS, &err));
        TRY(idem_store_release(store, &claim, true, WAIT_MS, &err));
    }
    TRY(idem_store_record_processed(store, keys, 3, WAIT_MS, &err));
    TRY(idem_store_find_processed(store, keys, 3, processed, WAIT_MS, &err));
    TRY(idem_store_count(store, &counts, WAIT_MS, &err));
    TRY(idem_store_purge_expired(store, &removed, WAIT_MS, &err));
    idem_store_destroy(store);
}

START_TEST(each_failed_allocation_is_survived)
{
    store_rig_t rig;
    int number = 0;
    int count;

    store_rig_prepare(&rig, test_env("IDEM_TEST_DSN"));
    store_rig_exec(&rig, "SET client_min_messages = warning");
    rig.options.connections = 1;
    do {
        store_rig_exec(&rig, "DROP TABLE IF EXISTS %s");
        atomic_store(&allocations, 0);
        atomic_store(&failing, ++number);
        live(&rig.options);
        count = atomic_load(&allocations);
        atomic_store(&failing, 0);
    } while (number <= count);
    /* It did come to that. */
    ck_assert_int_gt(number, 30);
    store_rig_finish(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("postgres memory");
    TCase *tcase = tcase_create("memory");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, each_failed_allocation_is_survived);
    return test_run(suite);
}
