#include <idem/idem.h>

#include "support.h"

#include <check.h>
#include <string.h>

static idem_client_options_t client_options;
static idem_consumer_options_t consumer_options;
static idem_client_t *client;

static idem_outcome_t on_delivery(idem_delivery_t *delivery, void *user)
{
    (void)delivery;
    (void)user;
    return IDEM_ACCEPT;
}

static void setup(void)
{
    idem_client_options_init(&client_options);
    client_options.url = "amqp://127.0.0.1:1";
    idem_consumer_options_init(&consumer_options);
    consumer_options.address = "orders";
    consumer_options.handler = on_delivery;
    ck_assert_int_eq(idem_client_create(&client, &client_options, NULL),
                     IDEM_OK);
}

static void teardown(void)
{
    idem_client_destroy(client);
}

/* The message names the field (and where it helps the value), and says what to
 * do: there is something behind the colon. */
static void check_message(const idem_error_t *err, const char *field)
{
    ck_assert_int_eq(err->status, IDEM_ERR_ARG);
    ck_assert_msg(strstr(err->message, field), "\"%s\" does not name %s",
                  err->message, field);
    const char *colon = strchr(err->message, ':');
    ck_assert_msg(colon && strlen(colon) > 4, "\"%s\" has no remedy",
                  err->message);
}

static void refuse_client(const char *field)
{
    idem_client_t *unchanged = client;
    idem_error_t err;

    memset(&err, 0x55, sizeof err);
    ck_assert_msg(idem_client_create(&unchanged, &client_options, &err) ==
                      IDEM_ERR_ARG,
                  "%s was taken", field);
    ck_assert_ptr_eq(unchanged, client);
    check_message(&err, field);
    ck_assert_str_eq(err.sqlstate, "");
    ck_assert_str_eq(err.condition, "");
    ck_assert_int_eq(idem_client_create(&unchanged, &client_options, NULL),
                     IDEM_ERR_ARG);
}

static void take_client(void)
{
    idem_client_t *made = NULL;
    idem_error_t err;

    ck_assert_msg(idem_client_create(&made, &client_options, &err) == IDEM_OK,
                  "%s", err.message);
    idem_client_destroy(made);
}

static void refuse_consumer(const char *field)
{
    idem_consumer_t *unchanged = NULL;
    idem_error_t err;

    memset(&err, 0x55, sizeof err);
    ck_assert_msg(idem_consumer_create(&unchanged, client, &consumer_options,
                                       &err) == IDEM_ERR_ARG,
                  "%s was taken", field);
    ck_assert_ptr_null(unchanged);
    check_message(&err, field);
    ck_assert_int_eq(
        idem_consumer_create(NULL, client, &consumer_options, NULL),
        IDEM_ERR_ARG);
}

static void take_consumer(void)
{
    idem_consumer_t *made = NULL;
    idem_error_t err;

    ck_assert_msg(
        idem_consumer_create(&made, client, &consumer_options, &err) == IDEM_OK,
        "%s", err.message);
    ck_assert_ptr_nonnull(made);
}

START_TEST(client_defaults_are_as_documented)
{
    ck_assert_uint_eq(client_options.struct_size, sizeof client_options);
    ck_assert_int_eq(client_options.connect_timeout_ms, 10000);
    ck_assert_int_eq(client_options.idle_timeout_ms, 30000);
    ck_assert_int_eq(client_options.reconnect_min_ms, 100);
    ck_assert_int_eq(client_options.reconnect_max_ms, 30000);
    ck_assert_uint_eq(client_options.reconnect_tries, 0);
    ck_assert_int_eq(client_options.stop_timeout_ms, 30000);
    ck_assert(!client_options.allow_insecure_plain);
    ck_assert_int_eq(client_options.log_level, IDEM_LOG_WARNING);
    ck_assert(client_options.log_handler == idem_log_to_stderr);
}
END_TEST

START_TEST(consumer_defaults_are_as_documented)
{
    ck_assert_uint_eq(consumer_options.struct_size, sizeof consumer_options);
    ck_assert_uint_eq(consumer_options.prefetch, 32);
    ck_assert_uint_eq(consumer_options.concurrency, 1);
    ck_assert_int_eq(consumer_options.id_source, IDEM_ID_MESSAGE_FIRST);
    ck_assert_int_eq(consumer_options.missing_id, IDEM_MISSING_ID_PROCESS);
    ck_assert_uint_eq(consumer_options.max_message_bytes, 1048576);
    ck_assert_int_eq(consumer_options.retry_min_ms, 200);
    ck_assert_int_eq(consumer_options.retry_max_ms, 10000);
    ck_assert_uint_eq(consumer_options.max_attempts, 10);
    ck_assert_ptr_null(consumer_options.store);
}
END_TEST

START_TEST(options_that_were_never_initialised_are_refused)
{
    memset(&client_options, 0, sizeof client_options);
    refuse_client("struct_size");
    memset(&client_options, 0xa5, sizeof client_options);
    refuse_client("struct_size");
    memset(&consumer_options, 0, sizeof consumer_options);
    refuse_consumer("struct_size");
    memset(&consumer_options, 0xa5, sizeof consumer_options);
    refuse_consumer("struct_size");
}
END_TEST

/* A program built against newer headers, with a field that this library does
 * not know. */
START_TEST(newer_options_are_taken_while_their_fields_are_unset)
{
    struct {
        idem_consumer_options_t known;
        long further;
    } newer = {.known = consumer_options};
    idem_error_t err;

    newer.known.struct_size = sizeof newer;
    ck_assert_int_eq(idem_consumer_create(NULL, client, &newer.known, NULL),
                     IDEM_OK);
    newer.further = 1;
    ck_assert_int_eq(idem_consumer_create(NULL, client, &newer.known, &err),
                     IDEM_ERR_ARG);
    check_message(&err, "struct_size");
}
END_TEST

START_TEST(init_writes_no_further_than_it_was_told)
{
    struct {
        idem_client_options_t options;
        char guard[8];
    } room;

    memset(&room, 0x7e, sizeof room);
    idem_client_options_init_sized(&room.options,
                                   offsetof(idem_client_options_t, user));
    ck_assert_uint_eq(room.options.struct_size,
                      offsetof(idem_client_options_t, user));
    ck_assert_int_eq(((unsigned char *)&room.options.user)[0], 0x7e);
    idem_client_options_init(&room.options);
    ck_assert_int_eq(room.guard[0], 0x7e);
    idem_client_options_init_sized(NULL, sizeof room.options);
    idem_consumer_options_init_sized(NULL, sizeof consumer_options);
}
END_TEST

START_TEST(client_url_is_required_and_must_parse)
{
    static const char *const bad[] = {
        NULL,
        "",
        "127.0.0.1",
        "http://127.0.0.1",
        "amqp://",
        "amqp://host:",
        "amqp://host:x",
        "amqp://host:0",
        "amqp://host:65536",
        "amqp://[::1",
        "amqp://a,,amqp://b",
        "amqp://a,",
        "amqp://us%zzer:pass@host",
        "amqp://host/path",
        "amqps://host",
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        client_options.url = bad[i];
        refuse_client("url");
    }
    client_options.url = "amqp://user:p%40ss@127.0.0.1:1,amqp://[::1],"
                         "amqp://localhost";
    take_client();
}
END_TEST

START_TEST(error_about_a_url_does_not_show_its_password)
{
    idem_error_t err;

    client_options.url = "amqp://user:geheim@host:99999";
    ck_assert_int_eq(idem_client_create(&client, &client_options, &err),
                     IDEM_ERR_ARG);
    ck_assert_ptr_null(strstr(err.message, "geheim"));
}
END_TEST

START_TEST(client_login_is_both_or_neither)
{
    client_options.user = "user";
    refuse_client("password");
    client_options.password = "";
    take_client();
    client_options.user = "";
    refuse_client("user");
    client_options.user = NULL;
    refuse_client("user");
}
END_TEST

START_TEST(client_container_id_is_text)
{
    char longest[300];

    client_options.container_id = "";
    refuse_client("container_id");
    client_options.container_id = "\xff\xfe";
    refuse_client("container_id");
    memset(longest, 'x', sizeof longest);
    longest[256] = '\0';
    client_options.container_id = longest;
    refuse_client("container_id");
    longest[255] = '\0';
    take_client();
}
END_TEST

START_TEST(client_times_are_checked)
{
    static const struct {
        size_t offset;
        const char *name;
        int64_t bad[3];
        int64_t good[2];
    } fields[] = {
#define FIELD(name) offsetof(idem_client_options_t, name), #name
        {FIELD(connect_timeout_ms), {0, -2, 86400001}, {1, IDEM_WAIT_FOREVER}},
        {FIELD(stop_timeout_ms), {-2, INT64_MIN, INT64_MAX}, {0, -1}},
        {FIELD(idle_timeout_ms), {-1, 99, INT64_MAX}, {0, 100}},
        {FIELD(reconnect_min_ms), {0, -1, 30001}, {1, 30000}},
        {FIELD(reconnect_max_ms), {99, 0, 86400001}, {100, 86400000}},
#undef FIELD
    };
    const idem_client_options_t sound = client_options;

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        int64_t *field =
            (int64_t *)(void *)((char *)&client_options + fields[i].offset);
        for (int j = 0; j < 3; j++) {
            *field = fields[i].bad[j];
            refuse_client(fields[i].name);
        }
        for (int j = 0; j < 2; j++) {
            *field = fields[i].good[j];
            take_client();
        }
        client_options = sound;
    }
}
END_TEST

START_TEST(client_log_level_is_one_of_the_list)
{
    client_options.log_level = (idem_log_level_t)5;
    refuse_client("log_level");
    client_options.log_level = (idem_log_level_t)-1;
    refuse_client("log_level");
    client_options.log_level = IDEM_LOG_OFF;
    client_options.log_handler = NULL;
    take_client();
}
END_TEST

START_TEST(consumer_address_is_required)
{
    static const char *const bad[] = {NULL, "", "::", "a::", "::q", "\xff"};
    char longest[1100];

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        consumer_options.address = bad[i];
        refuse_consumer("address");
    }
    memset(longest, 'x', sizeof longest);
    longest[1025] = '\0';
    consumer_options.address = longest;
    refuse_consumer("address");
    longest[1024] = '\0';
    take_consumer();
    consumer_options.address = "a::q";
    take_consumer();
}
END_TEST

START_TEST(consumer_handler_is_required)
{
    consumer_options.handler = NULL;
    refuse_consumer("handler");
}
END_TEST

START_TEST(consumer_numbers_are_checked)
{
    const idem_consumer_options_t sound = consumer_options;

    consumer_options.prefetch = 0;
    refuse_consumer("prefetch is 0");
    consumer_options.prefetch = 100001;
    refuse_consumer("prefetch is 100001");
    consumer_options.prefetch = 100000;
    take_consumer();

    consumer_options = sound;
    consumer_options.concurrency = 1025;
    refuse_consumer("concurrency is 1025");
    consumer_options.concurrency = 0;
    take_consumer();
    consumer_options.concurrency = 1024;
    take_consumer();

    consumer_options = sound;
    consumer_options.max_message_bytes = (UINT64_C(1) << 30) + 1;
    refuse_consumer("max_message_bytes");
    consumer_options.max_message_bytes = 0;
    take_consumer();

    consumer_options = sound;
    consumer_options.retry_min_ms = 9;
    refuse_consumer("retry_min_ms is 9");
    consumer_options.retry_min_ms = -1;
    refuse_consumer("retry_min_ms is -1");
    consumer_options.retry_min_ms = 10001;
    refuse_consumer("retry_max_ms is 10000");
    consumer_options.retry_min_ms = 10;
    consumer_options.retry_max_ms = 10;
    take_consumer();
    consumer_options.retry_max_ms = INT64_MAX;
    refuse_consumer("retry_max_ms");
}
END_TEST

START_TEST(consumer_choices_are_from_the_list)
{
    consumer_options.id_source = (idem_id_source_t)4;
    refuse_consumer("id_source is 4");
    consumer_options.id_source = (idem_id_source_t)-1;
    refuse_consumer("id_source");
    consumer_options.id_source = IDEM_ID_DUPLICATE_ONLY;
    take_consumer();
    consumer_options.missing_id = (idem_missing_id_t)2;
    refuse_consumer("missing_id is 2");
    consumer_options.missing_id = IDEM_MISSING_ID_REJECT;
    take_consumer();
}
END_TEST

START_TEST(consumer_scope_may_be_anything)
{
    static const char *const scopes[] = {NULL, "", "billing", "a/b%", "\xff"};

    for (size_t i = 0; i < sizeof scopes / sizeof scopes[0]; i++) {
        consumer_options.scope = scopes[i];
        take_consumer();
    }
}
END_TEST

START_TEST(strings_are_copied)
{
    char url[] = "amqp://user:pass@127.0.0.1:1";
    char address[] = "orders";
    char scope[] = "scope";
    idem_client_t *made = NULL;

    client_options.url = url;
    consumer_options.address = address;
    consumer_options.scope = scope;
    ck_assert_int_eq(idem_client_create(&made, &client_options, NULL), IDEM_OK);
    ck_assert_int_eq(idem_consumer_create(NULL, made, &consumer_options, NULL),
                     IDEM_OK);
    memset(url, 'x', sizeof url - 1);
    memset(address, 'x', sizeof address - 1);
    memset(scope, 'x', sizeof scope - 1);
    idem_client_destroy(made);
}
END_TEST

START_TEST(null_arguments_are_named)
{
    idem_client_t *made = NULL;
    idem_error_t err;

    ck_assert_int_eq(idem_client_create(NULL, &client_options, &err),
                     IDEM_ERR_ARG);
    ck_assert_ptr_nonnull(strstr(err.message, "client"));
    ck_assert_int_eq(idem_client_create(&made, NULL, &err), IDEM_ERR_ARG);
    ck_assert_ptr_nonnull(strstr(err.message, "options"));
    ck_assert_int_eq(idem_consumer_create(NULL, NULL, &consumer_options, &err),
                     IDEM_ERR_ARG);
    ck_assert_ptr_nonnull(strstr(err.message, "client"));
    ck_assert_int_eq(idem_consumer_create(NULL, client, NULL, &err),
                     IDEM_ERR_ARG);
    ck_assert_ptr_nonnull(strstr(err.message, "options"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("options");
    TCase *tcase = tcase_create("options");

    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, client_defaults_are_as_documented);
    tcase_add_test(tcase, consumer_defaults_are_as_documented);
    tcase_add_test(tcase, options_that_were_never_initialised_are_refused);
    tcase_add_test(tcase, newer_options_are_taken_while_their_fields_are_unset);
    tcase_add_test(tcase, init_writes_no_further_than_it_was_told);
    tcase_add_test(tcase, client_url_is_required_and_must_parse);
    tcase_add_test(tcase, error_about_a_url_does_not_show_its_password);
    tcase_add_test(tcase, client_login_is_both_or_neither);
    tcase_add_test(tcase, client_container_id_is_text);
    tcase_add_test(tcase, client_times_are_checked);
    tcase_add_test(tcase, client_log_level_is_one_of_the_list);
    tcase_add_test(tcase, consumer_address_is_required);
    tcase_add_test(tcase, consumer_handler_is_required);
    tcase_add_test(tcase, consumer_numbers_are_checked);
    tcase_add_test(tcase, consumer_choices_are_from_the_list);
    tcase_add_test(tcase, consumer_scope_may_be_anything);
    tcase_add_test(tcase, strings_are_copied);
    tcase_add_test(tcase, null_arguments_are_named);
    return test_run(suite);
}
