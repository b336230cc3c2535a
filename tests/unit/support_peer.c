/* The scripted peer, as a Proton client sees it. */

#include "blocking.h"
#include "compose.h"
#include "peer.h"
#include "send.h"
#include "support.h"

#include <check.h>
#include <proton/codec.h>
#include <proton/delivery.h>
#include <proton/disposition.h>
#include <proton/event.h>
#include <proton/link.h>
#include <proton/session.h>
#include <proton/terminus.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 5000, MESSAGES = 2000, LARGE_BYTES = 1 << 20 };

/* A consumer by hand: it counts, and settles each message with state. */
typedef struct consumer {
    blocking_t *blocking;
    pn_link_t *link;
    uint64_t state;
    bool failed;
    bool keeps; /* leaves deliveries unsettled */
    int messages, frames, aborted;
    size_t bytes, wanted_bytes;
    int wanted;
} consumer_t;

static void on_event(pn_event_t *event, void *user)
{
    consumer_t *consumer = user;
    pn_delivery_t *delivery = pn_event_delivery(event);
    char bytes[4096];
    ssize_t count = 1;

    if (pn_event_type(event) != PN_DELIVERY) {
        return;
    }
    consumer->frames++;
    while (count > 0) {
        count = pn_link_recv(consumer->link, bytes, sizeof bytes);
        consumer->bytes += count > 0 ? (size_t)count : 0;
    }
    if (pn_delivery_partial(delivery)) {
        return;
    }
    if (pn_delivery_aborted(delivery)) {
        consumer->aborted++;
        pn_delivery_settle(delivery);
        return;
    }
    consumer->messages++;
    pn_link_advance(consumer->link);
    if (!consumer->keeps) {
        if (consumer->failed) {
            pn_disposition_set_failed(pn_delivery_local(delivery), true);
        }
        pn_delivery_update(delivery, consumer->state);
        pn_delivery_settle(delivery);
        pn_link_flow(consumer->link, 1);
    }
}

static bool consumer_open(consumer_t *consumer, const char *url, int credit)
{
    pn_terminus_t *source = NULL;
    bool is_attached = false;

    consumer->blocking = blocking_open(url, WAIT_MS);
    if (consumer->blocking == NULL) {
        return false;
    }
    consumer->link =
        pn_receiver(blocking_session(consumer->blocking), "consumer");
    source = pn_link_source(consumer->link);
    pn_terminus_set_address(source, "orders");
    pn_data_put_symbol(pn_terminus_capabilities(source), pn_bytes(5, "queue"));
    blocking_set_handler(consumer->blocking, on_event, consumer);
    is_attached = blocking_attach(consumer->blocking, consumer->link, WAIT_MS);
    pn_link_flow(consumer->link, credit);
    return is_attached;
}

static bool has_messages(void *user)
{
    const consumer_t *consumer = user;

    return consumer->messages >= consumer->wanted &&
           consumer->bytes >= consumer->wanted_bytes;
}

static bool consumer_run(consumer_t *consumer, int wanted)
{
    consumer->wanted = wanted;
    return blocking_run(consumer->blocking, has_messages, consumer, WAIT_MS);
}

static bool never(void *user)
{
    (void)user;
    return false;
}

static void send_text_to(peer_t *peer, const char *id)
{
    size_t size = 0;
    char *bytes = compose_text(id, "body", &size);

    peer_send_bytes(peer, bytes, size);
    free(bytes);
}

START_TEST(messages_go_out_as_credit_allows)
{
    peer_t *peer = peer_create(NULL);
    consumer_t consumer = {.state = PN_ACCEPTED};
    peer_event_t event;
    peer_stats_t stats;

    ck_assert_ptr_nonnull(peer);
    for (int i = 0; i < MESSAGES; i++) {
        send_text_to(peer, "id");
    }
    ck_assert(consumer_open(&consumer, peer_url(peer), 10));
    ck_assert(consumer_run(&consumer, MESSAGES));
    ck_assert(peer_wait_accepted(peer, MESSAGES, WAIT_MS));
    blocking_close(consumer.blocking);
    ck_assert(peer_wait(peer, PEER_DISCONNECTED, 1, WAIT_MS));

    stats = peer_stats(peer);
    ck_assert_int_eq(stats.transfers, MESSAGES);
    ck_assert_int_eq(stats.unsettled, 0);
    ck_assert_int_eq(stats.max_outstanding, 10);
    ck_assert_int_eq(stats.without_state, 0);
    ck_assert(peer_event(peer, PEER_ATTACH, 0, &event));
    ck_assert_str_eq(event.attach.address, "orders");
    ck_assert_str_eq(event.attach.capabilities, "queue");
    ck_assert(event.attach.is_receiver);
    ck_assert(peer_event(peer, PEER_SASL, 0, &event));
    ck_assert_str_eq(event.sasl.mechanism, "ANONYMOUS");
    ck_assert(peer_event(peer, PEER_DISCONNECTED, 0, &event));
    ck_assert(event.disconnected.was_closed);
    ck_assert(!event.disconnected.by_peer);
    peer_destroy(peer);
}
END_TEST

START_TEST(failed_messages_come_again_with_a_count)
{
    const peer_options_t options = {.redeliver = true};
    peer_t *peer = peer_create(&options);
    consumer_t consumer = {.state = PN_MODIFIED, .failed = true};
    peer_event_t event;
    int number = 0;
    size_t size = 0;
    char *bytes = compose_text("a", "body", &size);

    number = peer_send_bytes(peer, bytes, size);
    free(bytes);
    ck_assert(consumer_open(&consumer, peer_url(peer), 1));
    ck_assert(consumer_run(&consumer, 3));
    consumer.state = PN_ACCEPTED;
    ck_assert(consumer_run(&consumer, 4));
    ck_assert(peer_wait_accepted(peer, 1, WAIT_MS));
    ck_assert(peer_outcome(peer, number, &event));
    ck_assert_int_eq(event.disposition.attempt, 4);
    ck_assert(peer_event(peer, PEER_DISPOSITION, 0, &event));
    ck_assert(event.disposition.failed);
    ck_assert(!event.disposition.undeliverable_here);
    ck_assert(event.disposition.settled);
    ck_assert_int_eq(peer_stats(peer).modified_failed, 3);
    blocking_close(consumer.blocking);
    peer_destroy(peer);
}
END_TEST

START_TEST(large_messages_come_in_small_frames)
{
    const peer_options_t options = {.fragment_bytes = 512,
                                    .empty_last_frame = true};
    peer_t *peer = peer_create(&options);
    consumer_t consumer = {.state = PN_ACCEPTED};
    char *bytes = calloc(1, LARGE_BYTES);

    ck_assert_ptr_nonnull(bytes);
    peer_send_bytes(peer, bytes, LARGE_BYTES);
    peer_send_bytes(peer, NULL, 0);
    ck_assert(consumer_open(&consumer, peer_url(peer), 10));
    consumer.wanted_bytes = LARGE_BYTES;
    ck_assert(consumer_run(&consumer, 2));
    ck_assert_uint_eq(consumer.bytes, LARGE_BYTES);
    ck_assert(peer_wait_accepted(peer, 2, WAIT_MS));
    blocking_close(consumer.blocking);
    peer_destroy(peer);
    free(bytes);
}
END_TEST

START_TEST(aborted_and_presettled_messages_are_not_unsettled)
{
    peer_t *peer = peer_create(NULL);
    consumer_t consumer = {.state = PN_ACCEPTED, .keeps = true};
    const peer_message_t aborted = {
        .bytes = "0123456789", .size = 10, .abort_at = 5};
    const peer_message_t settled = {
        .bytes = "0123456789", .size = 10, .settled = true};

    peer_send(peer, &aborted);
    peer_send(peer, &settled);
    peer_send_bytes(peer, "x", 1);
    ck_assert(consumer_open(&consumer, peer_url(peer), 10));
    ck_assert(consumer_run(&consumer, 2));
    ck_assert_int_eq(consumer.aborted, 1);
    ck_assert(peer_wait_unsettled(peer, 1, WAIT_MS));
    ck_assert_int_eq(peer_stats(peer).presettled, 1);
    ck_assert(peer_settle(peer, 2, PN_REJECTED, "test:settled"));
    ck_assert(peer_wait_unsettled(peer, 0, WAIT_MS));
    blocking_close(consumer.blocking);
    peer_destroy(peer);
}
END_TEST

START_TEST(lost_links_give_their_messages_to_the_next)
{
    peer_t *peer = peer_create(NULL);
    consumer_t first = {.keeps = true};
    consumer_t second = {.state = PN_ACCEPTED};
    peer_event_t event;

    for (int i = 0; i < 5; i++) {
        send_text_to(peer, "id");
    }
    ck_assert(consumer_open(&first, peer_url(peer), 5));
    ck_assert(consumer_run(&first, 5));
    ck_assert(peer_wait_unsettled(peer, 5, WAIT_MS));
    peer_detach(peer, "orders", "test:detached", "because");
    ck_assert(!blocking_run(first.blocking, never, NULL, WAIT_MS));
    ck_assert_int_eq(peer_stats(peer).queued, 5);
    blocking_close(first.blocking);
    ck_assert(consumer_open(&second, peer_url(peer), 5));
    ck_assert(consumer_run(&second, 5));
    ck_assert(peer_wait_accepted(peer, 5, WAIT_MS));
    ck_assert(peer_event(peer, PEER_DISPOSITION, 4, &event));
    ck_assert_int_eq(event.disposition.message, 4);
    ck_assert_int_eq(event.disposition.attempt, 2);
    ck_assert(peer_event(peer, PEER_DETACH, 0, &event));
    ck_assert(event.end.closed);
    blocking_close(second.blocking);
    peer_destroy(peer);
}
END_TEST

START_TEST(sessions_and_connections_end_with_an_error)
{
    peer_t *peer = peer_create(NULL);
    consumer_t consumer = {.keeps = true};

    ck_assert(consumer_open(&consumer, peer_url(peer), 5));
    peer_end_session(peer, NULL, "test:ended", "because");
    ck_assert(!blocking_run(consumer.blocking, never, NULL, WAIT_MS));
    blocking_close(consumer.blocking);
    ck_assert(consumer_open(&consumer, peer_url(peer), 5));
    peer_close_connection(peer, "test:closed", "because");
    ck_assert(!blocking_run(consumer.blocking, never, NULL, WAIT_MS));
    ck_assert(peer_wait(peer, PEER_CLOSE, 2, WAIT_MS));
    blocking_close(consumer.blocking);
    peer_destroy(peer);
}
END_TEST

START_TEST(cut_connections_can_come_back_on_the_same_port)
{
    peer_t *peer = peer_create(NULL);
    consumer_t consumer = {.state = PN_ACCEPTED};

    for (int reset = 0; reset < 2; reset++) {
        ck_assert(consumer_open(&consumer, peer_url(peer), 5));
        peer_cut(peer, reset == 1);
        ck_assert_int_eq(peer_stats(peer).live_connections, 0);
        ck_assert(!blocking_run(consumer.blocking, never, NULL, WAIT_MS));
        blocking_close(consumer.blocking);
    }
    ck_assert(peer_listen(peer, false));
    ck_assert_ptr_null(blocking_open(peer_url(peer), WAIT_MS));
    ck_assert(peer_listen(peer, true));
    ck_assert(consumer_open(&consumer, peer_url(peer), 5));
    blocking_close(consumer.blocking);
    ck_assert_int_eq(peer_stats(peer).connections, 3);
    peer_destroy(peer);
}
END_TEST

START_TEST(logins_are_checked)
{
    peer_options_t options = {.user = "u", .password = "p"};
    peer_t *peer = peer_create(&options);
    peer_event_t event;
    blocking_t *blocking = NULL;
    char url[128];

    snprintf(url, sizeof url, "amqp://u:p@127.0.0.1:%d", peer_port(peer));
    blocking = blocking_open(url, WAIT_MS);
    ck_assert_ptr_nonnull(blocking);
    blocking_close(blocking);
    snprintf(url, sizeof url, "amqp://u:q@127.0.0.1:%d", peer_port(peer));
    ck_assert_ptr_null(blocking_open(url, WAIT_MS));
    ck_assert(peer_event(peer, PEER_SASL, 1, &event));
    ck_assert_int_eq(event.sasl.outcome, 1);
    ck_assert_str_eq(event.sasl.user, "u");
    ck_assert_ptr_null(blocking_open(peer_url(peer), WAIT_MS));
    options.sasl_outcome = 4;
    peer_configure(peer, &options);
    snprintf(url, sizeof url, "amqp://u:p@127.0.0.1:%d", peer_port(peer));
    ck_assert_ptr_null(blocking_open(url, WAIT_MS));
    ck_assert(peer_event(peer, PEER_SASL, -1, &event));
    ck_assert_int_eq(event.sasl.outcome, 4);
    options.sasl_outcome = 0;
    options.cut_after_mechanisms = true;
    peer_configure(peer, &options);
    ck_assert_ptr_null(blocking_open(url, WAIT_MS));
    options.cut_after_mechanisms = false;
    options.no_sasl = true;
    peer_configure(peer, &options);
    ck_assert_ptr_null(blocking_open(url, WAIT_MS));
    peer_destroy(peer);
}
END_TEST

START_TEST(attaches_are_refused_as_often_as_asked)
{
    const peer_options_t options = {
        .attach_condition = "amqp:not-found",
        .attach_description = "no such queue",
        .attach_refusals = 2,
    };
    peer_t *peer = peer_create(&options);
    consumer_t consumer = {.state = PN_ACCEPTED};
    peer_event_t event;

    for (int i = 0; i < 2; i++) {
        ck_assert(!consumer_open(&consumer, peer_url(peer), 1));
        blocking_close(consumer.blocking);
    }
    ck_assert(consumer_open(&consumer, peer_url(peer), 1));
    blocking_close(consumer.blocking);
    ck_assert(peer_event(peer, PEER_ATTACH, 1, &event));
    ck_assert(event.attach.refused);
    ck_assert(peer_event(peer, PEER_ATTACH, 2, &event));
    ck_assert(!event.attach.refused);
    peer_destroy(peer);
}
END_TEST

static void cut_on_accepted(peer_t *peer, const peer_event_t *event, void *user)
{
    (void)user;
    if (event->kind == PEER_DISPOSITION) {
        peer_cut(peer, true);
    }
}

START_TEST(hooks_act_at_the_event)
{
    const peer_options_t options = {.hook = cut_on_accepted};
    peer_t *peer = peer_create(&options);
    consumer_t consumer = {.state = PN_ACCEPTED};

    send_text_to(peer, "a");
    ck_assert(consumer_open(&consumer, peer_url(peer), 1));
    ck_assert(!blocking_run(consumer.blocking, never, NULL, WAIT_MS));
    ck_assert_int_eq(consumer.messages, 1);
    ck_assert(peer_wait(peer, PEER_DISCONNECTED, 1, WAIT_MS));
    blocking_close(consumer.blocking);
    peer_destroy(peer);
}
END_TEST

START_TEST(silent_peers_answer_when_they_wake)
{
    peer_t *peer = peer_create(NULL);
    consumer_t consumer = {.state = PN_ACCEPTED};

    ck_assert(consumer_open(&consumer, peer_url(peer), 1));
    peer_silence(peer, true);
    send_text_to(peer, "a");
    consumer.wanted = 1;
    ck_assert(!blocking_run(consumer.blocking, has_messages, &consumer, 100));
    peer_silence(peer, false);
    ck_assert(consumer_run(&consumer, 1));
    blocking_close(consumer.blocking);
    peer_destroy(peer);
}
END_TEST

START_TEST(drains_are_answered_or_held)
{
    peer_options_t options = {.hold_drain = true};
    peer_t *peer = peer_create(&options);
    consumer_t consumer = {.state = PN_ACCEPTED, .keeps = true};
    received_list_t list;

    ck_assert(consumer_open(&consumer, peer_url(peer), 0));
    pn_link_drain(consumer.link, 5);
    ck_assert(!blocking_run(consumer.blocking, never, NULL, 100));
    ck_assert(pn_link_draining(consumer.link));
    send_text_to(peer, "a");
    ck_assert(consumer_run(&consumer, 1));
    options.hold_drain = false;
    peer_configure(peer, &options);
    ck_assert(peer_wait(peer, PEER_FLOW, 1, WAIT_MS));
    ck_assert(!blocking_run(consumer.blocking, never, NULL, 100));
    ck_assert(!pn_link_draining(consumer.link));
    blocking_close(consumer.blocking);

    /* What that link held goes to this receiver, which drains too. */
    ck_assert(receive_take(peer_url(peer), "orders", 0, &list));
    ck_assert_uint_eq(list.count, 1);
    ck_assert_str_eq(list.messages[0].id, "a");
    received_free(&list);
    peer_destroy(peer);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("support_peer");
    TCase *tests = tcase_create("peer");

    tcase_set_timeout(tests, 30);
    tcase_add_test(tests, messages_go_out_as_credit_allows);
    tcase_add_test(tests, failed_messages_come_again_with_a_count);
    tcase_add_test(tests, large_messages_come_in_small_frames);
    tcase_add_test(tests, aborted_and_presettled_messages_are_not_unsettled);
    tcase_add_test(tests, lost_links_give_their_messages_to_the_next);
    tcase_add_test(tests, sessions_and_connections_end_with_an_error);
    tcase_add_test(tests, cut_connections_can_come_back_on_the_same_port);
    tcase_add_test(tests, logins_are_checked);
    tcase_add_test(tests, attaches_are_refused_as_often_as_asked);
    tcase_add_test(tests, hooks_act_at_the_event);
    tcase_add_test(tests, silent_peers_answer_when_they_wake);
    tcase_add_test(tests, drains_are_answered_or_held);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
