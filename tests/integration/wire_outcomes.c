/* What the broker sees of each delivery, with a store behind it, and what the
 * store holds then. */

#include "compose.h"
#include "stage.h"
#include "support.h"

#include <check.h>
#include <proton/disposition.h>
#include <proton/link.h>
#include <proton/message.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 10000, KIB = 1024 };

static stage_t stage;

static peer_event_t outcome_of(int message)
{
    peer_event_t event;

    ck_assert_msg(peer_outcome(stage.peer, message, &event),
                  "message %d has no outcome", message);
    ck_assert(event.disposition.settled);
    ck_assert(!event.disposition.late);
    return event;
}

static void expect_rejected(int message, const char *condition)
{
    peer_event_t event = outcome_of(message);

    ck_assert_uint_eq(event.disposition.state, PN_REJECTED);
    ck_assert_str_eq(event.disposition.condition, condition);
    ck_assert_str_ne(event.disposition.description, "");
}

START_TEST(each_outcome_has_its_state_and_its_row)
{
    peer_event_t event;
    int accepted, released, failed, rejected;

    stage_prepare(&stage, _i, NULL);
    handler_plan(stage.handler, "r", IDEM_RELEASE, 0);
    handler_plan(stage.handler, "f", IDEM_RETRY, 0);
    handler_plan(stage.handler, "x", IDEM_REJECT, 0);
    stage_open(&stage);
    accepted = stage_send(&stage, "a");
    released = stage_send(&stage, "r");
    failed = stage_send(&stage, "f");
    rejected = stage_send(&stage, "x");
    ck_assert(peer_wait_dispositions(stage.peer, 4, WAIT_MS));

    event = outcome_of(accepted);
    ck_assert_uint_eq(event.disposition.state, 0x24);
    ck_assert_str_eq(stage_row(&stage, "a"), "CONFIRMED||0");

    event = outcome_of(released);
    ck_assert_uint_eq(event.disposition.state, 0x26);
    ck_assert_str_eq(stage_row(&stage, "r"), "CLAIMED||0");

    event = outcome_of(failed);
    ck_assert_uint_eq(event.disposition.state, 0x27);
    ck_assert(event.disposition.failed);
    ck_assert(!event.disposition.undeliverable_here);
    ck_assert_str_eq(stage_row(&stage, "f"), "CLAIMED||1");

    event = outcome_of(rejected);
    ck_assert_uint_eq(event.disposition.state, 0x25);
    ck_assert_str_eq(event.disposition.condition, "test:refused");
    ck_assert_str_eq(event.disposition.description, "told to");
    ck_assert(strncmp(stage_row(&stage, "x"), "CLAIMED||", 9) == 0);
    ck_assert(runner_wait_logged(stage.runner, "test:refused", 1, WAIT_MS));

    ck_assert_int_eq(peer_stats(stage.peer).dispositions, 4);
    stage_close(&stage);
}
END_TEST

/* PROTON-2021 and following: an outcome that was never set is a failure. */
START_TEST(unknown_outcomes_are_failures)
{
    peer_event_t event;
    int message;

    stage_prepare(&stage, _i, NULL);
    handler_plan(stage.handler, NULL, (idem_outcome_t)77, 0);
    stage_open(&stage);
    message = stage_send(&stage, "f");
    ck_assert(peer_wait_dispositions(stage.peer, 1, WAIT_MS));
    event = outcome_of(message);
    ck_assert_uint_eq(event.disposition.state, PN_MODIFIED);
    ck_assert(event.disposition.failed);
    stage_close(&stage);
}
END_TEST

/* A02, A03: Proton's decoder takes all of these, and aborts on the first. */
START_TEST(broken_messages_are_rejected_and_the_next_is_handled)
{
    static const char junk[] = "\x01\x02\x03\x04";
    size_t size = 0;
    char *whole = compose_text("broken", "body", &size);
    peer_message_t message = {.bytes = NULL};
    int good;
    int count = 0;

    stage_prepare(&stage, _i, NULL);
    stage_open(&stage);
    count += stage_send_message(&stage, NULL, &message) == count;
    message = (peer_message_t){.bytes = junk, .size = 4};
    count += stage_send_message(&stage, NULL, &message) == count;
    message.bytes = whole;
    for (message.size = 1; message.size < size; message.size++) {
        count += stage_send_message(&stage, NULL, &message) == count;
    }
    good = stage_send(&stage, "good");
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    ck_assert(stage_wait_idle(&stage, WAIT_MS));
    ck_assert_uint_eq(outcome_of(good).disposition.state, PN_ACCEPTED);
    /* Cut behind the properties it is a message without a body, which is as
     * broken. */
    for (int i = 0; i < count; i++) {
        ck_assert_msg(outcome_of(i).disposition.state == PN_REJECTED ||
                          handler_runs(stage.handler, "broken") > 0,
                      "of %d bytes", i - 1);
    }
    ck_assert_uint_eq(handler_runs(stage.handler, "good"), 1);
    ck_assert_uint_eq(handler_runs(stage.handler, ""), 0);
    expect_rejected(0, "amqp:decode-error");
    ck_assert_uint_ge(stage_statistics(&stage).undecodable,
                      (unsigned)count - 1);
    free(whole);
    stage_close(&stage);
}
END_TEST

/* B26: Proton announces the limit and does not enforce it. */
START_TEST(oversized_messages_are_rejected_once_and_the_next_is_handled)
{
    peer_options_t options = {.fragment_bytes = 4 * KIB};
    size_t big = 1024 * (size_t)KIB;
    char *body = calloc(1, big);
    compose_message_t composed = {
        .id = compose_string("big"), .body = body, .body_bytes = big};
    size_t size = 0;
    char *bytes = compose_message(&composed, &size);
    peer_message_t message = {.bytes = bytes, .size = size};
    int numbers[3];

    stage_prepare(&stage, _i, &options);
    stage.options.max_message_bytes = 64 * KIB;
    stage_open(&stage);
    for (int i = 0; i < 3; i++) {
        numbers[i] = stage_send_message(&stage, "big", &message);
        stage_send(&stage, i == 0 ? "a" : i == 1 ? "b" : "c");
    }
    ck_assert(peer_wait_accepted(stage.peer, 3, WAIT_MS));
    ck_assert(stage_wait_idle(&stage, WAIT_MS));
    for (int i = 0; i < 3; i++) {
        expect_rejected(numbers[i], "amqp:link:message-size-exceeded");
    }
    ck_assert_int_eq(peer_stats(stage.peer).dispositions, 6);
    ck_assert_uint_eq(handler_runs(stage.handler, "big"), 0);
    ck_assert_str_eq(stage_row(&stage, "big"), "none");
    ck_assert_uint_eq(stage_statistics(&stage).oversized, 3);
    free(bytes);
    free(body);
    stage_close(&stage);
}
END_TEST

typedef struct seen {
    atomic_int without_key, without_id, with_count;
} seen_t;

static void look(idem_delivery_t *delivery, void *user)
{
    seen_t *seen = user;
    pn_message_t *message = idem_delivery_message(delivery);

    atomic_fetch_add(&seen->without_key, idem_delivery_key(delivery) == NULL);
    atomic_fetch_add(&seen->without_id,
                     pn_message_get_id(message).type == PN_NULL);
    atomic_fetch_add(&seen->with_count,
                     idem_delivery_count(delivery) != 0 ||
                         pn_message_get_delivery_count(message) != 0);
}

/* A01: Proton's decoder keeps the fields of the message before. */
START_TEST(message_without_properties_has_no_id_of_the_one_before)
{
    static const char value[] = "\x00\x53\x77\xa1\x02hi";
    static const char empty[] = "\x00\x53\x73\x45\x00\x53\x77\xa1\x02hi";
    peer_message_t bare = {.bytes = value, .size = sizeof value - 1};
    peer_message_t list = {.bytes = empty, .size = sizeof empty - 1};
    compose_message_t composed = {.has_header = true,
                                  .delivery_count = 3,
                                  .durable = true,
                                  .id = compose_string("order-1"),
                                  .body = "body",
                                  .body_bytes = 4};
    size_t size = 0;
    char *bytes = compose_message(&composed, &size);
    peer_message_t first = {.bytes = bytes, .size = size};
    seen_t seen = {0};

    stage_prepare(&stage, _i, NULL);
    handler_set_hook(stage.handler, look, &seen);
    stage_open(&stage);
    stage_send_message(&stage, "order-1", &first);
    stage_send_message(&stage, NULL, &bare);
    stage_send_message(&stage, "order-1", &first);
    stage_send_message(&stage, NULL, &list);
    ck_assert(peer_wait_accepted(stage.peer, 4, WAIT_MS));
    ck_assert_uint_eq(handler_runs(stage.handler, "order-1"), 1);
    ck_assert_uint_eq(handler_runs(stage.handler, ""), 2);
    ck_assert_int_eq(atomic_load(&seen.without_key), 2);
    ck_assert_int_eq(atomic_load(&seen.without_id), 2);
    ck_assert_int_eq(atomic_load(&seen.with_count), 1);
    ck_assert_uint_eq(stage_statistics(&stage).no_id, 2);
    ck_assert_int_eq(store_rig_int(&stage.rig, "SELECT count(*) FROM %s"), 1);
    free(bytes);
    stage_close(&stage);
}
END_TEST

/* A08 */
START_TEST(messages_without_an_id_are_rejected_where_that_is_asked)
{
    stage_prepare(&stage, _i, NULL);
    stage.options.missing_id = IDEM_MISSING_ID_REJECT;
    stage_open(&stage);
    for (int i = 0; i < 3; i++) {
        stage_send(&stage, NULL);
    }
    ck_assert(peer_wait_dispositions(stage.peer, 3, WAIT_MS));
    for (int i = 0; i < 3; i++) {
        expect_rejected(i, "idem:no-id");
    }
    ck_assert_uint_eq(handler_counts(stage.handler).begun, 0);
    ck_assert_uint_eq(stage_statistics(&stage).no_id, 3);
    stage_close(&stage);
}
END_TEST

/* B28 */
START_TEST(presettled_deliveries_run_once_and_get_no_disposition)
{
    enum { COUNT = 40 };
    char ids[COUNT / 2][16];
    char confirmed[256];
    size_t size = 0;

    stage_prepare(&stage, _i, NULL);
    handler_plan(stage.handler, "lost", IDEM_RETRY, 0);
    stage_open(&stage);
    for (int i = 0; i < COUNT; i++) {
        char *id = ids[i / 2];
        char *bytes = NULL;

        snprintf(id, sizeof ids[0], "settled-%d", i / 2);
        bytes = compose_text(id, "body", &size);
        peer_message_t message = {
            .bytes = bytes, .size = size, .settled = true};
        stage_send_message(&stage, id, &message);
        free(bytes);
    }
    char *lost = compose_text("lost", "body", &size);
    peer_message_t message = {.bytes = lost, .size = size, .settled = true};
    stage_send_message(&stage, "lost", &message);
    free(lost);
    ck_assert(stage_wait_row(&stage, "lost", "CLAIMED||1", WAIT_MS));
    /* The peer holds them for settled from the start, so it cannot tell. */
    snprintf(confirmed, sizeof confirmed,
             "SELECT count(*) FROM %s WHERE state = 'CONFIRMED'",
             stage.rig.table);
    ck_assert(database_wait_int(stage.rig.pg, confirmed, COUNT / 2, WAIT_MS));
    ck_assert(stage_wait_idle(&stage, WAIT_MS));
    ck_assert_uint_eq(handler_counts(stage.handler).begun, COUNT / 2 + 1);
    ck_assert_uint_eq(handler_counts(stage.handler).repeated, 0);
    ck_assert_int_eq(peer_stats(stage.peer).presettled, COUNT + 1);
    ck_assert_uint_eq(stage_statistics(&stage).presettled, COUNT + 1);
    ck_assert_int_eq(peer_count(stage.peer, PEER_DISPOSITION), 0);
    stage_close(&stage);
}
END_TEST

/* B09, B29, D23, E01, E11 */
START_TEST(open_and_attach_ask_for_what_artemis_needs)
{
    peer_event_t event;
    stage_t other;
    peer_event_t event_of_other;

    stage_prepare(&stage, _i, NULL);
    stage.options.max_message_bytes = 12345;
    stage_open(&stage);
    ck_assert(peer_event(stage.peer, PEER_OPEN, 0, &event));
    ck_assert_uint_gt(event.open.max_frame, 0);
    ck_assert_uint_le(event.open.max_frame, 1024 * KIB);
    ck_assert_uint_gt(event.open.channel_max, 0);
    ck_assert_uint_lt(event.open.channel_max, 1000);
    ck_assert_uint_eq(event.open.idle_timeout_ms, 15000);
    ck_assert_str_eq(event.open.hostname, "127.0.0.1");
    ck_assert_str_ne(event.open.container_id, "");

    stage_prepare(&other, _i, NULL);
    stage_open(&other);
    ck_assert(peer_event(other.peer, PEER_OPEN, 0, &event_of_other));
    ck_assert_str_ne(event.open.container_id, event_of_other.open.container_id);
    stage_close(&other);

    ck_assert(peer_event(stage.peer, PEER_ATTACH, 0, &event));
    ck_assert(event.attach.is_receiver);
    ck_assert_str_eq(event.attach.address, STAGE_ADDRESS);
    ck_assert_str_eq(event.attach.capabilities, "queue");
    ck_assert_int_ne(event.attach.distribution_mode, PN_DIST_MODE_COPY);
    ck_assert_int_eq(event.attach.snd_settle_mode, PN_SND_UNSETTLED);
    ck_assert_int_eq(event.attach.rcv_settle_mode, PN_RCV_FIRST);
    ck_assert_int_eq(event.attach.durability, PN_NONDURABLE);
    ck_assert_uint_eq(event.attach.max_message_size, 12345);
    ck_assert_int_eq(peer_count(stage.peer, PEER_ATTACH), 1);
    stage_close(&stage);
}
END_TEST

/* C03, C15, C17: in progress is neither done nor failed. */
START_TEST(keys_of_others_are_held_until_they_are_confirmed)
{
    stage_prepare(&stage, _i, NULL);
    stage_open(&stage);
    store_rig_row(&stage.rig, "theirs", "CLAIMED", "they", 60000, 0);
    stage_send(&stage, "theirs");
    stage_send(&stage, "ours");
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    ck_assert_uint_eq(handler_runs(stage.handler, "ours"), 1);
    ck_assert_int_eq(peer_stats(stage.peer).dispositions, 1);
    store_rig_exec(&stage.rig,
                   "UPDATE %s SET state = 'CONFIRMED', claimed_by = NULL, "
                   "expires_at = now() + interval '1 day' WHERE message_id = "
                   "'theirs'");
    ck_assert(peer_wait_accepted(stage.peer, 2, WAIT_MS));
    ck_assert_uint_eq(handler_runs(stage.handler, "theirs"), 0);
    ck_assert_uint_eq(stage_statistics(&stage).duplicates, 1);
    ck_assert_uint_ge(stage_statistics(&stage).in_progress, 1);
    stage_close(&stage);
}
END_TEST

START_TEST(keys_of_the_dead_are_taken_over_when_their_lease_ends)
{
    stage_prepare(&stage, _i, NULL);
    stage_open(&stage);
    store_rig_row(&stage.rig, "theirs", "CLAIMED", "they", 1000, 4);
    stage_send(&stage, "theirs");
    ck_assert(peer_wait_accepted(stage.peer, 1, WAIT_MS));
    ck_assert_uint_eq(handler_runs(stage.handler, "theirs"), 1);
    ck_assert_uint_eq(handler_attempts(stage.handler, "theirs"), 5);
    ck_assert_uint_eq(stage_statistics(&stage).takeovers, 1);
    ck_assert_str_eq(stage_row(&stage, "theirs"), "CONFIRMED||5");
    stage_close(&stage);
}
END_TEST

START_TEST(keys_that_used_up_their_attempts_are_rejected_without_a_run)
{
    peer_event_t event;
    int message;

    stage_prepare(&stage, _i, NULL);
    stage_open(&stage);
    store_rig_row(&stage.rig, "poison", "CLAIMED", "they", -1000, 9);
    message = stage_send(&stage, "poison");
    ck_assert(peer_wait_dispositions(stage.peer, 1, WAIT_MS));
    event = outcome_of(message);
    ck_assert_uint_eq(event.disposition.state, PN_REJECTED);
    ck_assert_str_eq(event.disposition.condition, "idem:attempts-exceeded");
    ck_assert_uint_eq(handler_counts(stage.handler).begun, 0);
    ck_assert_str_eq(stage_row(&stage, "poison"), "CLAIMED||10");
    ck_assert_uint_eq(stage_statistics(&stage).attempts_exceeded, 1);
    stage_close(&stage);
}
END_TEST

/* A22, C10: one runs, the other is accepted behind it. */
START_TEST(copies_in_one_window_run_once)
{
    stage_prepare(&stage, _i, NULL);
    stage.options.concurrency = 4;
    stage_open(&stage);
    handler_hold(stage.handler, true);
    for (int i = 0; i < 5; i++) {
        stage_send(&stage, "same");
    }
    ck_assert(peer_wait_unsettled(stage.peer, 5, WAIT_MS));
    ck_assert(handler_wait_begun(stage.handler, 1, WAIT_MS));
    handler_hold(stage.handler, false);
    ck_assert(peer_wait_accepted(stage.peer, 5, WAIT_MS));
    ck_assert_uint_eq(handler_runs(stage.handler, "same"), 1);
    stage_close(&stage);
}
END_TEST

/* Never no success with both accepted. */
START_TEST(copy_runs_when_the_first_has_failed)
{
    int first, second;

    stage_prepare(&stage, _i, NULL);
    handler_plan(stage.handler, "same", IDEM_RETRY, 1);
    stage_open(&stage);
    handler_hold(stage.handler, true);
    first = stage_send(&stage, "same");
    second = stage_send(&stage, "same");
    ck_assert(peer_wait_unsettled(stage.peer, 2, WAIT_MS));
    handler_hold(stage.handler, false);
    ck_assert(peer_wait_dispositions(stage.peer, 2, WAIT_MS));
    ck_assert_uint_eq(outcome_of(first).disposition.state, PN_MODIFIED);
    ck_assert_uint_eq(outcome_of(second).disposition.state, PN_ACCEPTED);
    ck_assert_uint_eq(handler_runs(stage.handler, "same"), 2);
    stage_close(&stage);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wire outcomes");
    TCase *tests = tcase_create("both hosts");
    const TTest *const all[] = {
        each_outcome_has_its_state_and_its_row,
        unknown_outcomes_are_failures,
        broken_messages_are_rejected_and_the_next_is_handled,
        oversized_messages_are_rejected_once_and_the_next_is_handled,
        message_without_properties_has_no_id_of_the_one_before,
        messages_without_an_id_are_rejected_where_that_is_asked,
        presettled_deliveries_run_once_and_get_no_disposition,
        open_and_attach_ask_for_what_artemis_needs,
        keys_of_others_are_held_until_they_are_confirmed,
        keys_of_the_dead_are_taken_over_when_their_lease_ends,
        keys_that_used_up_their_attempts_are_rejected_without_a_run,
        copies_in_one_window_run_once,
        copy_runs_when_the_first_has_failed,
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tcase_add_loop_test(tests, all[i], 0, RUNNER_HOSTS);
    }
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
