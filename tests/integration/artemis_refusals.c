/* What Artemis refuses ends the client at the first try, with an error that
 * says what and where. */

#include "management.h"
#include "stage.h"
#include "support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 10000, URL_BYTES = 512 };

static stage_t stage;

static void aim(const char *user, const char *password, const char *address)
{
    runner_options(stage.runner)->url = test_env("IDEM_TEST_LOGIN_URL");
    runner_options(stage.runner)->user = user;
    runner_options(stage.runner)->password = password;
    stage.options.address = address;
}

START_TEST(artemis_refuses_a_wrong_password)
{
    idem_error_t err;

    stage_prepare(&stage, _i, NULL);
    aim("admin", "wrong", "ro.refusals");
    stage_start(&stage);
    err = runner_wait_failed(stage.runner, IDEM_ERR_AUTHENTICATION, WAIT_MS);
    test_expect_words(err.message, "admin", test_env("IDEM_TEST_LOGIN_URL"));
    ck_assert_str_eq(err.condition, "amqp:unauthorized-access");
    ck_assert_uint_eq(runner_events(stage.runner, IDEM_EVENT_DISCONNECTED), 0);
    stage_close_anyhow(&stage);
}
END_TEST

START_TEST(artemis_refuses_anonymous_users)
{
    idem_error_t err;

    stage_prepare(&stage, _i, NULL);
    aim(NULL, NULL, "ro.refusals");
    stage_start(&stage);
    err = runner_wait_failed(stage.runner, IDEM_ERR_AUTHENTICATION, WAIT_MS);
    test_expect_words(err.message, "anonymous",
                      test_env("IDEM_TEST_LOGIN_URL"));
    ck_assert_uint_eq(runner_events(stage.runner, IDEM_EVENT_CONNECTED), 0);
    stage_close_anyhow(&stage);
}
END_TEST

static management_t *manage(const char *url_of, const char *login)
{
    char url[URL_BYTES];
    management_t *management = NULL;

    snprintf(url, sizeof url, "amqp://%s%s", login,
             test_env(url_of) + strlen("amqp://"));
    management = management_open(url);
    ck_assert_ptr_nonnull(management);
    return management;
}

START_TEST(artemis_refuses_a_user_without_the_right_to_consume)
{
    management_t *management = manage("IDEM_TEST_LOGIN_URL", "admin:admin@");
    char queue[64];
    idem_error_t err;

    test_unique(queue, sizeof queue, "refusals");
    ck_assert(management_create_queue(management, queue));
    stage_prepare(&stage, _i, NULL);
    aim("ro", "ro", queue);
    stage_start(&stage);
    err = runner_wait_failed(stage.runner, IDEM_ERR_PERMISSION, WAIT_MS);
    test_expect_words(err.message, queue, "CONSUME");
    ck_assert_str_eq(err.condition, "amqp:unauthorized-access");
    ck_assert_uint_eq(runner_events(stage.runner, IDEM_EVENT_DETACHED), 0);
    ck_assert(management_destroy_queue(management, queue));
    management_close(management);
    stage_close_anyhow(&stage);
}
END_TEST

START_TEST(artemis_has_no_such_address)
{
    idem_error_t err;

    stage_prepare(&stage, _i, NULL);
    aim("admin", "admin", "noauto.nowhere");
    stage_start(&stage);
    err = runner_wait_failed(stage.runner, IDEM_ERR_ADDRESS, WAIT_MS);
    test_expect_words(err.message, "noauto.nowhere", "does not exist");
    ck_assert_str_eq(err.condition, "amqp:not-found");
    stage_close_anyhow(&stage);
}
END_TEST

START_TEST(artemis_has_a_topic_there)
{
    management_t *management = manage("IDEM_TEST_LOGIN_URL", "admin:admin@");
    char topic[64];
    char arguments[128];
    char *reply = NULL;
    idem_error_t err;

    test_unique(topic, sizeof topic, "topic");
    snprintf(arguments, sizeof arguments, "[\"%s\",\"MULTICAST\"]", topic);
    reply = management_call(management, "broker", "createAddress", arguments);
    ck_assert_ptr_nonnull(reply);
    free(reply);
    stage_prepare(&stage, _i, NULL);
    aim("admin", "admin", topic);
    stage_start(&stage);
    err = runner_wait_failed(stage.runner, IDEM_ERR_ADDRESS, WAIT_MS);
    test_expect_words(err.message, topic, "queue");
    ck_assert_str_eq(err.condition, "amqp:illegal-state");
    snprintf(arguments, sizeof arguments, "[\"%s\"]", topic);
    reply = management_call(management, "broker", "deleteAddress", arguments);
    ck_assert_ptr_nonnull(reply);
    free(reply);
    management_close(management);
    stage_close_anyhow(&stage);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("artemis refusals");
    TCase *tests = tcase_create("both hosts");
    const TTest *const all[] = {
        artemis_refuses_a_wrong_password,
        artemis_refuses_anonymous_users,
        artemis_refuses_a_user_without_the_right_to_consume,
        artemis_has_no_such_address,
        artemis_has_a_topic_there,
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tcase_add_loop_test(tests, all[i], 0, RUNNER_HOSTS);
    }
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
