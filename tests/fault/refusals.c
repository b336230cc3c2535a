/* Brokers that refuse, are not there, or end what they have begun: what cannot
 * be mended ends the client with an error that says what and where, all else
 * is tried again at growing intervals. */

#include "stage.h"
#include "support.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { WAIT_MS = 10000, URL_BYTES = 512, EVENTS_MAX = 64 };

static stage_t stage;

/* Events with their errors, beside those that the runner counts. */

typedef struct noted {
    idem_event_type_t type;
    idem_error_t error;
    int64_t retry_in_ms;
    int64_t at_ms;
    char address[32];
} noted_t;

static noted_t noted[EVENTS_MAX];
static atomic_size_t noted_count;
static idem_event_handler_t runners_handler;
static void *runners_user;

static void note(void *user, const idem_event_t *event)
{
    size_t n = atomic_load(&noted_count);

    (void)user;
    if (n < EVENTS_MAX) {
        noted[n].type = event->type;
        noted[n].error = *event->error;
        noted[n].retry_in_ms = event->retry_in_ms;
        noted[n].at_ms = test_now_ms();
        snprintf(noted[n].address, sizeof noted[n].address, "%s",
                 event->address != NULL ? event->address : "");
        atomic_store(&noted_count, n + 1);
    }
    runners_handler(runners_user, event);
}

static void prepare(int host, const peer_options_t *options)
{
    idem_client_options_t *client = NULL;

    stage_prepare(&stage, host, options);
    client = runner_options(stage.runner);
    runners_handler = client->event_handler;
    runners_user = client->event_user;
    client->event_handler = note;
    atomic_store(&noted_count, 0);
}

/* Pauses behind events of a type double, up to the limit; each lies between
 * half of that and all. */
static void expect_growing(idem_event_type_t type, size_t count, int64_t min_ms,
                           int64_t max_ms)
{
    int64_t pause_ms = min_ms;
    int64_t due_ms = 0;
    size_t found = 0;

    for (size_t i = 0; i < atomic_load(&noted_count); i++) {
        if (noted[i].type != type || found == count) {
            continue;
        }
        ck_assert_int_ge(noted[i].retry_in_ms, pause_ms / 2);
        ck_assert_int_le(noted[i].retry_in_ms, pause_ms);
        ck_assert_int_ge(noted[i].at_ms, due_ms);
        ck_assert_str_ne(noted[i].error.message, "");
        due_ms = noted[i].at_ms + noted[i].retry_in_ms - 2;
        pause_ms = pause_ms * 2 < max_ms ? pause_ms * 2 : max_ms;
        found++;
    }
    ck_assert_uint_eq(found, count);
}

/* D01: one attempt. */
START_TEST(wrong_password_ends_the_client_at_once)
{
    peer_options_t options = {.user = "idem", .password = "right"};
    idem_error_t err;

    prepare(_i, &options);
    runner_options(stage.runner)->user = "idem";
    runner_options(stage.runner)->password = "wrong-secret";
    stage_start(&stage);
    err = runner_wait_failed(stage.runner, IDEM_ERR_AUTHENTICATION, WAIT_MS);
    test_expect_words(err.message, "idem", peer_url(stage.peer));
    ck_assert_ptr_null(strstr(err.message, "secret"));
    ck_assert_uint_eq(runner_logged(stage.runner, "secret"), 0);
    ck_assert_int_eq(peer_count(stage.peer, PEER_CONNECTED), 1);
    ck_assert_int_eq(peer_count(stage.peer, PEER_OPEN), 0);
    stage_close_anyhow(&stage);
}
END_TEST

START_TEST(right_password_of_the_url_is_sent_by_plain)
{
    peer_options_t options = {.user = "id@em", .password = "p:w/1"};
    char url[URL_BYTES];
    peer_event_t event;

    prepare(_i, &options);
    snprintf(url, sizeof url, "amqp://id%%40em:p%%3Aw%%2F1@127.0.0.1:%d",
             peer_port(stage.peer));
    runner_options(stage.runner)->url = url;
    stage_open(&stage);
    ck_assert(peer_event(stage.peer, PEER_SASL, 0, &event));
    ck_assert_str_eq(event.sasl.mechanism, "PLAIN");
    ck_assert_str_eq(event.sasl.user, "id@em");
    ck_assert_uint_eq(runner_logged(stage.runner, "p:w/1"), 0);
    ck_assert_uint_eq(runner_logged(stage.runner, "p%3Aw"), 0);
    stage_close(&stage);
}
END_TEST

/* D14: with a user set there is no way but PLAIN. */
START_TEST(peer_without_plain_is_refused)
{
    peer_options_t options = {.mechanisms = "ANONYMOUS"};

    prepare(_i, &options);
    runner_options(stage.runner)->user = "idem";
    runner_options(stage.runner)->password = "pw";
    stage_start(&stage);
    runner_wait_failed(stage.runner, IDEM_ERR_AUTHENTICATION, WAIT_MS);
    ck_assert_int_eq(peer_count(stage.peer, PEER_CONNECTED), 1);
    ck_assert_int_eq(peer_count(stage.peer, PEER_OPEN), 0);
    stage_close_anyhow(&stage);
}
END_TEST

START_TEST(peer_without_sasl_never_gets_an_open)
{
    peer_options_t options = {.no_sasl = true};

    prepare(_i, &options);
    runner_options(stage.runner)->user = "idem";
    runner_options(stage.runner)->password = "pw";
    runner_options(stage.runner)->reconnect_tries = 3;
    stage_start(&stage);
    runner_wait_failed(stage.runner, IDEM_ERR_CONNECTION, WAIT_MS);
    ck_assert_int_eq(peer_count(stage.peer, PEER_CONNECTED), 3);
    ck_assert_int_eq(peer_count(stage.peer, PEER_OPEN), 0);
    stage_close_anyhow(&stage);
}
END_TEST

/* D01, D02: "temporary" (AMQP 1.0, section 5.3.3.6) is no wrong password. */
START_TEST(login_that_cannot_be_checked_is_tried_again)
{
    peer_options_t options = {.sasl_outcome = 4};

    prepare(_i, &options);
    stage_start(&stage);
    ck_assert(
        runner_wait_event(stage.runner, IDEM_EVENT_DISCONNECTED, 3, WAIT_MS));
    options = peer_options(stage.peer);
    options.sasl_outcome = 0;
    peer_configure(stage.peer, &options);
    ck_assert(runner_wait_event(stage.runner, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    expect_growing(IDEM_EVENT_DISCONNECTED, 3, 20, 200);
    stage_close(&stage);
}
END_TEST

/* D03: it is no refusal of the user. */
START_TEST(login_that_is_cut_off_is_tried_again)
{
    peer_options_t options = {.cut_after_mechanisms = true};

    prepare(_i, &options);
    stage_start(&stage);
    ck_assert(
        runner_wait_event(stage.runner, IDEM_EVENT_DISCONNECTED, 5, WAIT_MS));
    expect_growing(IDEM_EVENT_DISCONNECTED, 5, 20, 200);
    ck_assert_int_eq(noted[0].error.status, IDEM_ERR_CONNECTION);
    ck_assert_ptr_nonnull(strstr(noted[0].error.message, peer_url(stage.peer)));
    stage_close(&stage);
}
END_TEST

/* An open that the close takes back is Artemis' "not anonymous". */
START_TEST(open_that_is_closed_as_unauthorized_ends_the_client)
{
    peer_options_t options = {.open_condition = "amqp:unauthorized-access",
                              .open_description = "no anonymous users"};
    idem_error_t err;

    prepare(_i, &options);
    stage_start(&stage);
    err = runner_wait_failed(stage.runner, IDEM_ERR_AUTHENTICATION, WAIT_MS);
    test_expect_words(err.message, "no anonymous users", peer_url(stage.peer));
    ck_assert_str_eq(err.condition, "amqp:unauthorized-access");
    ck_assert_int_eq(peer_count(stage.peer, PEER_CONNECTED), 1);
    stage_close_anyhow(&stage);
}
END_TEST

/* D25 and others: it may be right the next time. */
START_TEST(open_that_is_closed_otherwise_is_tried_again)
{
    peer_options_t options = {.open_condition = "amqp:invalid-field",
                              .open_description = "container-id in use"};

    prepare(_i, &options);
    stage_start(&stage);
    ck_assert(
        runner_wait_event(stage.runner, IDEM_EVENT_DISCONNECTED, 4, WAIT_MS));
    expect_growing(IDEM_EVENT_DISCONNECTED, 4, 20, 200);
    options = peer_options(stage.peer);
    options.open_condition = NULL;
    peer_configure(stage.peer, &options);
    ck_assert(runner_wait_event(stage.runner, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    stage_close(&stage);
}
END_TEST

/* A broker that is down at the start, with one event for each try. */
START_TEST(broker_that_is_down_is_tried_again_with_an_event_each)
{
    prepare(_i, NULL);
    ck_assert(peer_listen(stage.peer, false));
    stage_start(&stage);
    ck_assert(
        runner_wait_event(stage.runner, IDEM_EVENT_DISCONNECTED, 6, WAIT_MS));
    expect_growing(IDEM_EVENT_DISCONNECTED, 6, 20, 200);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(noted[i].type, IDEM_EVENT_DISCONNECTED);
        ck_assert_int_eq(noted[i].error.status, IDEM_ERR_CONNECTION);
        test_expect_words(noted[i].error.message, peer_url(stage.peer),
                          "connect");
    }
    ck_assert_uint_ge(runner_logged(stage.runner, peer_url(stage.peer)), 6);
    ck_assert(peer_listen(stage.peer, true));
    ck_assert(runner_wait_event(stage.runner, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    stage_send(&stage, "m");
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    stage_close(&stage);
}
END_TEST

START_TEST(tries_can_be_limited)
{
    idem_error_t err;

    prepare(_i, NULL);
    ck_assert(peer_listen(stage.peer, false));
    runner_options(stage.runner)->reconnect_tries = 4;
    stage_start(&stage);
    err = runner_wait_failed(stage.runner, IDEM_ERR_CONNECTION, WAIT_MS);
    test_expect_words(err.message, peer_url(stage.peer), "connect");
    ck_assert_uint_eq(runner_events(stage.runner, IDEM_EVENT_DISCONNECTED), 3);
    stage_close_anyhow(&stage);
}
END_TEST

/* D15: the list is tried in turn, and again from the start. */
START_TEST(second_broker_is_used_when_the_first_is_not_there)
{
    char url[URL_BYTES];
    peer_t *first = peer_create(NULL);

    ck_assert_ptr_nonnull(first);
    prepare(_i, NULL);
    ck_assert(peer_listen(first, false)); /* its port is not the second's */
    snprintf(url, sizeof url, "%s,%s", peer_url(first), peer_url(stage.peer));
    runner_options(stage.runner)->url = url;
    stage_open(&stage);
    stage_send(&stage, "m");
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    ck_assert_uint_eq(runner_events(stage.runner, IDEM_EVENT_DISCONNECTED), 1);

    /* The second dies, and the first is back. */
    ck_assert(peer_listen(first, true));
    ck_assert(peer_listen(stage.peer, false));
    peer_cut(stage.peer, true);
    ck_assert(peer_wait_credit(first, (int)stage.options.prefetch, WAIT_MS));
    stage_close(&stage);
    peer_destroy(first);
}
END_TEST

/* D04: the connection works, its links do not. */
START_TEST(refused_attaches_are_spaced_out_after_a_working_one)
{
    peer_options_t options;

    prepare(_i, NULL);
    runner_options(stage.runner)->reconnect_max_ms = 500;
    stage_open(&stage);
    options = peer_options(stage.peer);
    options.attach_condition = "amqp:internal-error";
    options.attach_description = "not now";
    peer_configure(stage.peer, &options);
    peer_detach(stage.peer, NULL, "amqp:internal-error", "not now");
    ck_assert(runner_wait_event(stage.runner, IDEM_EVENT_DETACHED, 8, WAIT_MS));
    expect_growing(IDEM_EVENT_DETACHED, 8, 20, 500);
    for (size_t i = 0; i < atomic_load(&noted_count); i++) {
        if (noted[i].type == IDEM_EVENT_DETACHED) {
            test_expect_words(noted[i].error.message, STAGE_ADDRESS, "not now");
            ck_assert_str_eq(noted[i].error.condition, "amqp:internal-error");
            ck_assert_str_eq(noted[i].address, STAGE_ADDRESS);
        }
    }
    ck_assert_int_eq(peer_count(stage.peer, PEER_CONNECTED), 1);
    options.attach_condition = NULL;
    peer_configure(stage.peer, &options);
    ck_assert(runner_wait_event(stage.runner, IDEM_EVENT_ATTACHED, 2, WAIT_MS));
    stage_close(&stage);
}
END_TEST

/* A broker that starts up refuses for a moment what it knows a little later;
 * one that goes on refusing means it. */
START_TEST(address_that_is_gone_for_good_ends_the_client_after_a_while)
{
    peer_options_t options;
    int64_t start_ms;
    idem_error_t err;

    prepare(_i, NULL);
    runner_options(stage.runner)->reconnect_max_ms = 500;
    stage_open(&stage);
    options = peer_options(stage.peer);
    options.attach_condition = "amqp:not-found";
    options.attach_description = "no such queue";
    peer_configure(stage.peer, &options);
    start_ms = test_now_ms();
    peer_detach(stage.peer, NULL, "amqp:resource-deleted", "deleted");
    err = runner_wait_failed(stage.runner, IDEM_ERR_ADDRESS, WAIT_MS);
    test_expect_words(err.message, STAGE_ADDRESS, "no such queue");
    ck_assert_int_ge(test_now_ms() - start_ms, 500);
    ck_assert_int_le(peer_count(stage.peer, PEER_ATTACH), 12);
    stage_close_anyhow(&stage);
}
END_TEST

/* B36: attached, credit given, closed; and again. */
START_TEST(connections_that_end_without_a_message_are_spaced_out)
{
    prepare(_i, NULL);
    runner_options(stage.runner)->reconnect_max_ms = 1000;
    stage_open(&stage);
    for (int i = 0; i < 7; i++) {
        peer_close_connection(stage.peer, "amqp:internal-error", "confused");
        ck_assert(runner_wait_event(stage.runner, IDEM_EVENT_ATTACHED,
                                    (size_t)i + 2, WAIT_MS));
    }
    expect_growing(IDEM_EVENT_DISCONNECTED, 7, 20, 1000);
    stage_close(&stage);
}
END_TEST

/* After a delivery the next pause is the shortest again. */
START_TEST(pauses_begin_anew_after_a_delivery)
{
    size_t last = 0;

    prepare(_i, NULL);
    runner_options(stage.runner)->reconnect_max_ms = 1000;
    stage_open(&stage);
    for (int i = 0; i < 5; i++) {
        peer_cut(stage.peer, true);
        ck_assert(runner_wait_event(stage.runner, IDEM_EVENT_ATTACHED,
                                    (size_t)i + 2, WAIT_MS));
    }
    stage_send(&stage, "m");
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    last = atomic_load(&noted_count);
    peer_cut(stage.peer, true);
    ck_assert(
        runner_wait_event(stage.runner, IDEM_EVENT_DISCONNECTED, 6, WAIT_MS));
    ck_assert_int_eq(noted[last].type, IDEM_EVENT_DISCONNECTED);
    ck_assert_int_le(noted[last].retry_in_ms, 20);
    stage_close(&stage);
}
END_TEST

START_TEST(silence_instead_of_an_open_is_cut_off)
{
    peer_options_t options = {.no_open_answer = true};

    prepare(_i, &options);
    runner_options(stage.runner)->connect_timeout_ms = 300;
    stage_start(&stage);
    ck_assert(
        runner_wait_event(stage.runner, IDEM_EVENT_DISCONNECTED, 2, WAIT_MS));
    test_expect_words(noted[0].error.message, peer_url(stage.peer),
                      "connect_timeout_ms");
    stage_close(&stage);
}
END_TEST

START_TEST(silence_instead_of_an_attach_is_cut_off)
{
    peer_options_t options = {.no_attach_answer = true};

    prepare(_i, &options);
    runner_options(stage.runner)->connect_timeout_ms = 300;
    stage_start(&stage);
    ck_assert(
        runner_wait_event(stage.runner, IDEM_EVENT_DISCONNECTED, 1, WAIT_MS));
    options = peer_options(stage.peer);
    options.no_attach_answer = false;
    peer_configure(stage.peer, &options);
    ck_assert(runner_wait_event(stage.runner, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    stage_close(&stage);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("refusals");
    TCase *tests = tcase_create("both hosts");
    const TTest *const all[] = {
        wrong_password_ends_the_client_at_once,
        right_password_of_the_url_is_sent_by_plain,
        peer_without_plain_is_refused,
        peer_without_sasl_never_gets_an_open,
        login_that_cannot_be_checked_is_tried_again,
        login_that_is_cut_off_is_tried_again,
        open_that_is_closed_as_unauthorized_ends_the_client,
        open_that_is_closed_otherwise_is_tried_again,
        broker_that_is_down_is_tried_again_with_an_event_each,
        tries_can_be_limited,
        second_broker_is_used_when_the_first_is_not_there,
        refused_attaches_are_spaced_out_after_a_working_one,
        address_that_is_gone_for_good_ends_the_client_after_a_while,
        connections_that_end_without_a_message_are_spaced_out,
        pauses_begin_anew_after_a_delivery,
        silence_instead_of_an_open_is_cut_off,
        silence_instead_of_an_attach_is_cut_off,
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tcase_add_loop_test(tests, all[i], 0, RUNNER_HOSTS);
    }
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
