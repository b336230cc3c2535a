/* What a driver takes from the wire and gives back to it, with both hosts. */

#include "driver_rig.h"
#include "gate.h"
#include "message/delivery.h"
#include "peer.h"
#include "support.h"

#include <proton/disposition.h>
#include <proton/link.h>
#include <proton/logger.h>

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 10000, MANY = 70000, MIB = 1 << 20 };

static const char text[] = "a message";

static peer_t *peer;
static rig_t *rig;

static void set_up(void)
{
    rig = NULL;
}

static void tear_down(void)
{
    if (rig) {
        rig_destroy(rig);
    }
    peer_destroy(peer);
    peer = NULL;
}

static void start(const peer_options_t *peer_options, rig_options_t *options,
                  int host)
{
    peer = peer_create(peer_options);
    ck_assert_ptr_nonnull(peer);
    options->host = (rig_host_t)host;
    options->url = peer_url(peer);
    rig = rig_run(options);
}

static void stop_well(void)
{
    idem_error_t err;

    rig_stop(rig);
    ck_assert_msg(rig_join(rig, &err) == IDEM_OK, "%s", err.message);
    ck_assert_int_eq(peer_stats(peer).without_state, 0);
}

static peer_event_t outcome_of(int message)
{
    peer_event_t event;

    ck_assert(peer_outcome(peer, message, &event));
    return event;
}

/* Outcomes. */

static idem_outcome_t by_first_byte(idem_delivery_t *delivery, void *user)
{
    (void)user;
    switch (delivery->encoded[0]) {
    case 'a':
        return IDEM_ACCEPT;
    case 'r':
        return IDEM_RELEASE;
    case 'f':
        return IDEM_RETRY;
    default:
        return idem_delivery_reject(delivery, "test:bad", "as it was sent");
    }
}

START_TEST(each_outcome_has_its_state_on_the_wire)
{
    rig_options_t options = {.handler = by_first_byte};
    peer_event_t event;

    start(NULL, &options, _i);
    int accepted = peer_send_bytes(peer, "a", 1);
    int released = peer_send_bytes(peer, "r", 1);
    int failed = peer_send_bytes(peer, "f", 1);
    int rejected = peer_send_bytes(peer, "x", 1);
    ck_assert(peer_wait_dispositions(peer, 4, WAIT_MS));
    event = outcome_of(accepted);
    ck_assert_uint_eq(event.disposition.state, PN_ACCEPTED);
    ck_assert(event.disposition.settled);
    event = outcome_of(released);
    ck_assert_uint_eq(event.disposition.state, PN_RELEASED);
    ck_assert(event.disposition.settled);
    event = outcome_of(failed);
    ck_assert_uint_eq(event.disposition.state, PN_MODIFIED);
    ck_assert(event.disposition.failed);
    ck_assert(!event.disposition.undeliverable_here);
    ck_assert(event.disposition.settled);
    event = outcome_of(rejected);
    ck_assert_uint_eq(event.disposition.state, PN_REJECTED);
    ck_assert_str_eq(event.disposition.condition, "test:bad");
    ck_assert_str_eq(event.disposition.description, "as it was sent");
    ck_assert(event.disposition.settled);
    stop_well();
    ck_assert_int_eq(peer_stats(peer).dispositions, 4);
}
END_TEST

START_TEST(attach_says_what_it_wants)
{
    rig_options_t options = {.addresses = {"box::orders"},
                             .max_message_bytes = 12345};
    peer_event_t event;

    start(NULL, &options, _i);
    ck_assert(peer_wait_credit(peer, 10, WAIT_MS));
    ck_assert(peer_event(peer, PEER_ATTACH, 0, &event));
    ck_assert(event.attach.is_receiver);
    ck_assert_str_eq(event.attach.address, "box::orders");
    ck_assert_str_eq(event.attach.capabilities, "queue");
    ck_assert_int_eq(event.attach.snd_settle_mode, PN_SND_UNSETTLED);
    ck_assert_int_eq(event.attach.rcv_settle_mode, PN_RCV_FIRST);
    ck_assert_int_eq(event.attach.distribution_mode, 0);
    ck_assert_uint_eq(event.attach.max_message_size, 12345);
    ck_assert(peer_event(peer, PEER_OPEN, 0, &event));
    ck_assert_str_eq(event.open.container_id, "rig");
    ck_assert_str_eq(event.open.hostname, "127.0.0.1");
    ck_assert_uint_eq(event.open.max_frame, 65536);
    ck_assert_uint_lt(event.open.channel_max, 100);
    ck_assert_uint_eq(event.open.idle_timeout_ms, 15000);
    ck_assert(peer_event(peer, PEER_SASL, 0, &event));
    ck_assert_str_eq(event.sasl.mechanism, "ANONYMOUS");
}
END_TEST

/* Credit. */

static gate_t gate;

START_TEST(blocked_handlers_hold_no_more_than_the_window)
{
    rig_options_t options = {
        .handler = gate_handler, .user = &gate, .workers = 2};

    gate_init(&gate);
    start(NULL, &options, _i);
    for (int i = 0; i < 200; i++) {
        (void)peer_send_bytes(peer, text, sizeof text);
    }
    ck_assert(peer_wait_unsettled(peer, 10, WAIT_MS));
    ck_assert_int_eq(peer_stats(peer).transfers, 10);
    gate_open(&gate);
    ck_assert(peer_wait_accepted(peer, 200, WAIT_MS));
    ck_assert(peer_wait_credit(peer, 6, WAIT_MS));
    ck_assert_int_le(peer_stats(peer).max_outstanding, 10);
    stop_well();
}
END_TEST

START_TEST(session_goes_on_past_70000_messages)
{
    peer_options_t peer_options = {.counts_only = true};
    rig_options_t options = {.prefetch = 100};

    start(&peer_options, &options, _i);
    for (int i = 0; i < MANY; i++) {
        (void)peer_send_bytes(peer, text, sizeof text);
    }
    ck_assert(peer_wait_accepted(peer, MANY, 30000));
    ck_assert_int_eq(peer_stats(peer).connections, 1);
    ck_assert_int_le(peer_stats(peer).max_outstanding, 100);
    stop_well();
    ck_assert_uint_eq(rig_handled(rig), MANY);
    ck_assert_uint_eq(rig_consumer(rig, 0).unsettled, 0);
}
END_TEST

/* Bytes. */

typedef struct expected {
    const unsigned char *bytes;
    size_t size;
    atomic_size_t equal;
} expected_t;

static idem_outcome_t compare(idem_delivery_t *delivery, void *user)
{
    expected_t *expected = user;

    if (delivery->encoded_size == expected->size &&
        memcmp(delivery->encoded, expected->bytes, expected->size) == 0) {
        atomic_fetch_add(&expected->equal, 1);
        return IDEM_ACCEPT;
    }
    return IDEM_REJECT;
}

static unsigned char *pattern(size_t size)
{
    unsigned char *bytes = malloc(size);

    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)(i * 7 + i / 251);
    }
    return bytes;
}

START_TEST(message_of_many_frames_arrives_whole)
{
    static const size_t fragments[] = {0, 512, 5000};
    unsigned char *bytes = pattern(MIB);
    expected_t expected = {bytes, MIB, 0};

    for (size_t i = 0; i < sizeof fragments / sizeof *fragments; i++) {
        peer_options_t peer_options = {.fragment_bytes = fragments[i],
                                       .empty_last_frame = true};
        rig_options_t options = {
            .handler = compare, .user = &expected, .addresses = {"one", "two"}};
        atomic_store(&expected.equal, 0);
        start(&peer_options, &options, _i);
        for (int n = 0; n < 4; n++) {
            peer_message_t message = {
                .bytes = bytes, .size = MIB, .address = n % 2 ? "one" : "two"};
            (void)peer_send(peer, &message);
        }
        ck_assert(peer_wait_accepted(peer, 4, WAIT_MS));
        ck_assert_uint_eq(atomic_load(&expected.equal), 4);
        stop_well();
        rig_destroy(rig);
        rig = NULL;
        peer_destroy(peer);
        peer = NULL;
    }
    free(bytes);
}
END_TEST

START_TEST(oversized_message_is_rejected_once_and_the_next_is_handled)
{
    const size_t large_bytes = 3 << 20;
    unsigned char *bytes = pattern(large_bytes);
    rig_options_t options = {.max_message_bytes = 65536};
    peer_event_t event;

    start(NULL, &options, _i);
    for (int i = 0; i < 3; i++) {
        int large = peer_send_bytes(peer, bytes, large_bytes);
        int exact = peer_send_bytes(peer, bytes, 65536);
        int over = peer_send_bytes(peer, bytes, 65537);
        ck_assert(peer_wait_dispositions(peer, 3 * (i + 1), WAIT_MS));
        event = outcome_of(large);
        ck_assert_uint_eq(event.disposition.state, PN_REJECTED);
        ck_assert_str_eq(event.disposition.condition,
                         "amqp:link:message-size-exceeded");
        ck_assert_uint_eq(outcome_of(exact).disposition.state, PN_ACCEPTED);
        ck_assert_uint_eq(outcome_of(over).disposition.state, PN_REJECTED);
    }
    stop_well();
    ck_assert_uint_eq(rig_consumer(rig, 0).oversized, 6);
    ck_assert_uint_eq(rig_handled(rig), 3);
    ck_assert_int_eq(peer_stats(peer).connections, 1);
    free(bytes);
}
END_TEST

START_TEST(aborted_delivery_leaves_no_trace)
{
    unsigned char *bytes = pattern(50000);
    rig_options_t options = {0};

    start(NULL, &options, _i);
    for (int i = 0; i < 30; i++) {
        peer_message_t message = {
            .bytes = bytes, .size = 50000, .abort_at = 20000};
        (void)peer_send(peer, &message);
    }
    int after = peer_send_bytes(peer, text, sizeof text);
    ck_assert(peer_wait_accepted(peer, 1, WAIT_MS));
    ck_assert_uint_eq(outcome_of(after).disposition.state, PN_ACCEPTED);
    ck_assert(peer_wait_credit(peer, 6, WAIT_MS));
    stop_well();
    ck_assert_int_eq(peer_stats(peer).dispositions, 1);
    ck_assert_uint_eq(rig_handled(rig), 1);
    ck_assert_uint_eq(rig_logged(rig, "decided about a delivery"), 0);
    free(bytes);
}
END_TEST

START_TEST(empty_delivery_is_rejected)
{
    rig_options_t options = {0};
    peer_event_t event;

    start(NULL, &options, _i);
    int empty = peer_send_bytes(peer, NULL, 0);
    ck_assert(peer_wait_dispositions(peer, 1, WAIT_MS));
    event = outcome_of(empty);
    ck_assert_uint_eq(event.disposition.state, PN_REJECTED);
    ck_assert_str_eq(event.disposition.condition, "amqp:decode-error");
    stop_well();
}
END_TEST

START_TEST(presettled_messages_run_and_send_no_disposition)
{
    enum { COUNT = 10000 };
    peer_options_t peer_options = {.counts_only = true};
    rig_options_t options = {.prefetch = 50};

    start(&peer_options, &options, _i);
    for (int i = 0; i < COUNT; i++) {
        peer_message_t message = {
            .bytes = text, .size = sizeof text, .settled = true};
        (void)peer_send(peer, &message);
    }
    ck_assert(rig_wait_handled(rig, COUNT, WAIT_MS));
    stop_well();
    ck_assert_int_eq(peer_stats(peer).dispositions, 0);
    ck_assert_int_eq(peer_stats(peer).presettled, COUNT);
    ck_assert_uint_eq(rig_consumer(rig, 0).presettled, COUNT);
}
END_TEST

START_TEST(peer_that_settles_first_is_reported)
{
    rig_options_t options = {
        .handler = gate_handler, .user = &gate, .workers = 1};

    gate_init(&gate);
    start(NULL, &options, _i);
    int first = peer_send_bytes(peer, text, sizeof text);
    ck_assert(gate_wait_arrived(&gate, 1, WAIT_MS));
    ck_assert(peer_settle(peer, first, PN_REJECTED, "test:mine"));
    int second = peer_send_bytes(peer, text, sizeof text);
    ck_assert(peer_wait_unsettled(peer, 1, WAIT_MS));
    gate_open(&gate);
    ck_assert(peer_wait_accepted(peer, 1, WAIT_MS));
    ck_assert_uint_eq(outcome_of(second).disposition.state, PN_ACCEPTED);
    stop_well();
    ck_assert_uint_eq(rig_logged(rig, "condition=test:mine"), 1);
    ck_assert_int_eq(peer_stats(peer).connections, 1);
}
END_TEST

START_TEST(peer_that_sends_settled_although_not_asked_is_warned_of)
{
    peer_options_t peer_options = {.reply_settled = true};
    rig_options_t options = {0};

    start(&peer_options, &options, _i);
    (void)peer_send_bytes(peer, text, sizeof text);
    ck_assert(rig_wait_handled(rig, 1, WAIT_MS));
    stop_well();
    ck_assert_uint_eq(rig_logged(rig, "settled transfers"), 1);
}
END_TEST

/* The log. */

/* Of the peer, which runs in this process, too. */
static void drop_line(intptr_t context, pn_log_subsystem_t subsystem,
                      pn_log_level_t level, const char *message)
{
    (void)context;
    (void)subsystem;
    (void)level;
    (void)message;
}

START_TEST(frame_log_shows_neither_password_nor_body)
{
    peer_options_t peer_options = {.user = "alice", .password = "s3cr3t-word"};
    rig_options_t options = {.login = "alice", .password = "s3cr3t-word"};

    pn_logger_set_log_sink(pn_default_logger(), drop_line, 0);
    /* As PN_LOG and PN_TRACE_FRM in the environment would. */
    pn_logger_set_mask(pn_default_logger(), PN_SUBSYSTEM_ALL,
                       PN_LEVEL_FRAME | PN_LEVEL_RAW | PN_LEVEL_TRACE);
    start(&peer_options, &options, _i);
    (void)peer_send_bytes(peer, "private-words", 13);
    ck_assert(peer_wait_accepted(peer, 1, WAIT_MS));
    stop_well();
    ck_assert_uint_gt(rig_logged(rig, "@disposition"), 0);
    ck_assert_uint_gt(rig_logged(rig, "@transfer"), 0);
    ck_assert_uint_eq(rig_logged(rig, "s3cr3t"), 0);
    ck_assert_uint_eq(rig_logged(rig, "private-words"), 0);
}
END_TEST

static TCase *add_case(Suite *made, const char *name)
{
    TCase *tests = tcase_create(name);

    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    suite_add_tcase(made, tests);
    return tests;
}

/* Each with every host. */
#define ADD(tests, test) tcase_add_loop_test(tests, test, 0, RIG_HOSTS)

static Suite *suite(void)
{
    Suite *made = suite_create("driver-outcomes");
    TCase *outcomes = add_case(made, "outcomes");
    TCase *credit = add_case(made, "credit");
    TCase *bytes = add_case(made, "bytes");
    TCase *settled = add_case(made, "settled");
    TCase *lines = add_case(made, "log");

    ADD(outcomes, each_outcome_has_its_state_on_the_wire);
    ADD(outcomes, attach_says_what_it_wants);
    ADD(credit, blocked_handlers_hold_no_more_than_the_window);
    ADD(credit, session_goes_on_past_70000_messages);
    ADD(bytes, message_of_many_frames_arrives_whole);
    ADD(bytes, oversized_message_is_rejected_once_and_the_next_is_handled);
    ADD(bytes, aborted_delivery_leaves_no_trace);
    ADD(bytes, empty_delivery_is_rejected);
    ADD(settled, presettled_messages_run_and_send_no_disposition);
    ADD(settled, peer_that_settles_first_is_reported);
    ADD(settled, peer_that_sends_settled_although_not_asked_is_warned_of);
    ADD(lines, frame_log_shows_neither_password_nor_body);
    return made;
}

int main(void)
{
    return test_run(suite());
}
