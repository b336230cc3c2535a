/* Each allocation of a call fails in turn, until the call succeeds: out of
 * memory is a status, and nothing is leaked or touched twice on the way. */
#include <idem/idem.h>

#include "support.h"

#include <check.h>
#include <string.h>

/* Made a part of this program by -Wl,--wrap. */
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

/* The allocation with this number fails; 0: none. */
static int failing;
static int allocations;

static int fails(void)
{
    return ++allocations == failing;
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

static void fail_allocation(int number)
{
    allocations = 0;
    failing = number;
}

static idem_outcome_t on_delivery(idem_delivery_t *delivery, void *user)
{
    (void)delivery;
    (void)user;
    return IDEM_ACCEPT;
}

static idem_client_options_t client_options;
static idem_consumer_options_t consumer_options;

static void setup(void)
{
    idem_client_options_init(&client_options);
    client_options.url = "amqp://u:p@127.0.0.1:1,amqp://[::1]:2";
    client_options.user = "user";
    client_options.password = "password";
    idem_consumer_options_init(&consumer_options);
    consumer_options.address = "orders";
    consumer_options.handler = on_delivery;
}

static void check_error(idem_status_t status, const idem_error_t *err)
{
    ck_assert_int_eq(status, IDEM_ERR_MEMORY);
    ck_assert_int_eq(err->status, IDEM_ERR_MEMORY);
    ck_assert_str_ne(err->message, "");
}

START_TEST(client_create_survives_each_failed_allocation)
{
    idem_client_t *client = NULL;
    idem_status_t status = IDEM_ERR_MEMORY;
    int number = 0;

    while (status != IDEM_OK) {
        idem_error_t err = {IDEM_OK, "", "", ""};
        fail_allocation(++number);
        status = idem_client_create(&client, &client_options, &err);
        fail_allocation(0);
        if (status != IDEM_OK) {
            check_error(status, &err);
            ck_assert_ptr_null(client);
        }
        ck_assert_int_lt(number, 1000);
    }
    /* Some were there to fail. */
    ck_assert_int_gt(number, 5);
    idem_client_destroy(client);
}
END_TEST

START_TEST(consumer_create_survives_each_failed_allocation)
{
    idem_client_t *client = NULL;
    idem_consumer_t *consumer = NULL;
    idem_status_t status = IDEM_ERR_MEMORY;
    int number = 0;

    ck_assert_int_eq(idem_client_create(&client, &client_options, NULL),
                     IDEM_OK);
    while (status != IDEM_OK) {
        idem_error_t err = {IDEM_OK, "", "", ""};
        fail_allocation(++number);
        status =
            idem_consumer_create(&consumer, client, &consumer_options, &err);
        fail_allocation(0);
        if (status != IDEM_OK) {
            check_error(status, &err);
            ck_assert_ptr_null(consumer);
        }
        ck_assert_int_lt(number, 1000);
    }
    ck_assert_int_gt(number, 3);
    /* The one that was made works. */
    idem_client_stop(client);
    ck_assert_int_eq(idem_client_run(client, NULL), IDEM_OK);
    idem_client_destroy(client);
}
END_TEST

START_TEST(run_survives_each_failed_allocation)
{
    idem_status_t status = IDEM_ERR_MEMORY;
    int number = 0;

    while (status != IDEM_OK) {
        idem_client_t *client = NULL;
        idem_error_t err = {IDEM_OK, "", "", ""};
        ck_assert_int_eq(idem_client_create(&client, &client_options, NULL),
                         IDEM_OK);
        ck_assert_int_eq(
            idem_consumer_create(NULL, client, &consumer_options, NULL),
            IDEM_OK);
        idem_client_stop(client);
        fail_allocation(++number);
        status = idem_client_run(client, &err);
        fail_allocation(0);
        if (status != IDEM_OK) {
            check_error(status, &err);
        }
        idem_client_destroy(client);
        ck_assert_int_lt(number, 1000);
    }
    ck_assert_int_gt(number, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory");
    TCase *tcase = tcase_create("memory");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, client_create_survives_each_failed_allocation);
    tcase_add_test(tcase, consumer_create_survives_each_failed_allocation);
    tcase_add_test(tcase, run_survives_each_failed_allocation);
    return test_run(suite);
}
