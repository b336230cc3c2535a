/* Lists of brokers: what is understood, and what is refused with a reason. */

#include "drivers/url.h"
#include "support.h"

#include <check.h>
#include <string.h>

typedef struct good {
    const char *text;
    const char *user;
    const char *password;
    const char *host;
    const char *port;
    bool is_loopback;
} good_t;

static const good_t good[] = {
    {"amqp://broker", NULL, NULL, "broker", "5672", false},
    {"amqp://broker/", NULL, NULL, "broker", "5672", false},
    {"  amqp://broker\t", NULL, NULL, "broker", "5672", false},
    {"AMQP://Broker.Example:5673", NULL, NULL, "Broker.Example", "5673", false},
    {"amqp://broker:1", NULL, NULL, "broker", "1", false},
    {"amqp://broker:65535", NULL, NULL, "broker", "65535", false},
    {"amqp://u:p@broker", "u", "p", "broker", "5672", false},
    {"amqp://u:@broker", "u", "", "broker", "5672", false},
    {"amqp://a%3Ab:c%40d%2Fe%2cf%25@broker:1", "a:b", "c@d/e,f%", "broker", "1",
     false},
    {"amqp://\xc3\xbc:\xc3\xa4@broker", "\xc3\xbc", "\xc3\xa4", "broker",
     "5672", false},
    {"amqp://u:p/?#[]@broker", "u", "p/?#[]", "broker", "5672", false},
    {"amqp://localhost", NULL, NULL, "localhost", "5672", true},
    {"amqp://LOCALHOST:9", NULL, NULL, "LOCALHOST", "9", true},
    {"amqp://127.0.0.1", NULL, NULL, "127.0.0.1", "5672", true},
    {"amqp://127.9.8.7", NULL, NULL, "127.9.8.7", "5672", true},
    {"amqp://126.0.0.1", NULL, NULL, "126.0.0.1", "5672", false},
    {"amqp://localhost.evil.example", NULL, NULL, "localhost.evil.example",
     "5672", false},
    {"amqp://127.0.0.1.evil.example", NULL, NULL, "127.0.0.1.evil.example",
     "5672", false},
    {"amqp://[::1]", NULL, NULL, "::1", "5672", true},
    {"amqp://[::1]:5673", NULL, NULL, "::1", "5673", true},
    {"amqp://u:p@[2001:db8::7]:1/", "u", "p", "2001:db8::7", "1", false},
};

START_TEST(good_url_is_taken_apart)
{
    const good_t *want = &good[_i];
    idemi_url_t *urls = NULL;
    size_t count = 0;
    idem_error_t err;

    ck_assert_msg(idemi_urls_parse(&urls, &count, want->text, &err) == IDEM_OK,
                  "%s: %s", want->text, err.message);
    ck_assert_uint_eq(count, 1);
    ck_assert_pstr_eq(urls->user, want->user);
    ck_assert_pstr_eq(urls->password, want->password);
    ck_assert_str_eq(urls->host, want->host);
    ck_assert_str_eq(urls->port, want->port);
    ck_assert_int_eq(urls->is_loopback, want->is_loopback);
    idemi_urls_free(urls, count);
}
END_TEST

typedef struct bad {
    const char *text;
    const char *entry; /* in the message */
    const char *words; /* likewise */
} bad_t;

/* The password of each that has one is "hush-hush" or begins with "hush". */
static const bad_t bad[] = {
    {"", "entry 1", "empty"},
    {"   ", "entry 1", "empty"},
    {"broker", "entry 1", "amqp://"},
    {"broker:5672", "entry 1", "amqp://"},
    {"http://broker", "entry 1", "amqp://"},
    {"amqps://broker", "entry 1", "TLS"},
    {"amqp://", "entry 1", "host"},
    {"amqp:///", "entry 1", "host"},
    {"amqp://:5672", "entry 1", "host"},
    {"amqp://broker:", "entry 1", "port"},
    {"amqp://broker:0", "entry 1", "port"},
    {"amqp://broker:65536", "entry 1", "port"},
    {"amqp://broker:999999999999", "entry 1", "port"},
    {"amqp://broker:56x", "entry 1", "port"},
    {"amqp://broker:-1", "entry 1", "port"},
    {"amqp://::1:5672", "entry 1", "brackets"},
    {"amqp://[::1", "entry 1", "bracket"},
    {"amqp://[::1]5672", "entry 1", "bracket"},
    {"amqp://[not-an-address]", "entry 1", "IPv6"},
    {"amqp://[127.0.0.1]", "entry 1", "IPv6"},
    {"amqp://broker/queue", "entry 1", "path"},
    {"amqp://broker?a=b", "entry 1", "?"},
    {"amqp://bro%20ker", "entry 1", "character"},
    {"amqp://bro%0aker", "entry 1", "control"},
    {"amqp://user@broker", "entry 1", "user:password"},
    {"amqp://:hush@broker", "entry 1", "user:password"},
    {"amqp://u:hush@hush@broker", "entry 1", "%40"},
    {"amqp://u:hush:hush@broker", "entry 1", "%3A"},
    {"amqp://u:hush%2@broker", "entry 1", "hex"},
    {"amqp://u:hush%@broker", "entry 1", "hex"},
    {"amqp://u:hush%zz@broker", "entry 1", "hex"},
    {"amqp://u:hush%00@broker", "entry 1", "control"},
    {"amqp://a,", "entry 2", "empty"},
    {",amqp://a", "entry 1", "empty"},
    {"amqp://a,,amqp://b", "entry 2", "empty"},
    {"amqp://a,amqp://b,amqp://u:hush@", "entry 3", "host"},
    {"amqp://u:hush,hush@broker", "entry 1", "port"},
};

START_TEST(bad_url_is_refused_by_number_and_reason)
{
    const bad_t *want = &bad[_i];
    idemi_url_t *urls = NULL;
    size_t count = 7;
    idem_error_t err = {0};

    ck_assert_msg(idemi_urls_parse(&urls, &count, want->text, &err) ==
                      IDEM_ERR_ARG,
                  "%s", want->text);
    ck_assert_msg(strstr(err.message, want->entry) != NULL, "%s: %s",
                  want->text, err.message);
    ck_assert_msg(strstr(err.message, want->words) != NULL, "%s: %s",
                  want->text, err.message);
    ck_assert_ptr_null(strstr(err.message, "hush"));
    ck_assert_ptr_null(urls);
    ck_assert_uint_eq(count, 7);
    ck_assert_int_eq(idemi_urls_parse(&urls, &count, want->text, NULL),
                     IDEM_ERR_ARG);
}
END_TEST

START_TEST(list_keeps_its_order)
{
    idemi_url_t *urls = NULL;
    size_t count = 0;

    ck_assert_int_eq(
        idemi_urls_parse(&urls, &count,
                         "amqp://u:p@one:1, amqp://two:2,amqp://[::3]:3", NULL),
        IDEM_OK);
    ck_assert_uint_eq(count, 3);
    ck_assert_str_eq(urls[0].host, "one");
    ck_assert_str_eq(urls[1].host, "two");
    ck_assert_str_eq(urls[2].host, "::3");
    ck_assert_str_eq(urls[0].user, "u");
    ck_assert_ptr_null(urls[1].user);
    idemi_urls_free(urls, count);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("url");
    TCase *tests = tcase_create("urls");

    tcase_add_loop_test(tests, good_url_is_taken_apart, 0,
                        sizeof good / sizeof *good);
    tcase_add_loop_test(tests, bad_url_is_refused_by_number_and_reason, 0,
                        sizeof bad / sizeof *bad);
    tcase_add_test(tests, list_keeps_its_order);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
