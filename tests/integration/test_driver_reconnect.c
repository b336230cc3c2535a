/* What a driver does when its connection, session or link ends, and when it is
 * refused, with both hosts. */

#include "driver_rig.h"
#include "gate.h"
#include "message/delivery.h"
#include "peer.h"
#include "support.h"

#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WAIT_MS = 10000, PREFETCH = 10 };

static const char text[] = "a message";

static peer_t *peer;
static rig_t *rig;

static void tear_down(void)
{
    if (rig) {
        rig_destroy(rig);
        rig = NULL;
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
    if (!options->url) {
        options->url = peer_url(peer);
    }
    rig = rig_run(options);
}

static void expect_end(idem_status_t status, const char *words)
{
    idem_error_t err = {0};
    idem_status_t ended = rig_join(rig, &err);

    ck_assert_msg(ended == status, "%s: %s", idem_status_name(ended),
                  err.message);
    if (words) {
        ck_assert_msg(strstr(err.message, words) != NULL, "%s", err.message);
    }
    ck_assert_uint_eq(
        rig_events(rig, status ? IDEM_EVENT_FAILED : IDEM_EVENT_STOPPED), 1);
    ck_assert_int_eq(peer_stats(peer).without_state, 0);
    ck_assert(!rig_statistics(rig).connected);
}

static void stop_well(void)
{
    rig_stop(rig);
    expect_end(IDEM_OK, NULL);
}

static bool has_full_window(const peer_stats_t *stats, void *user)
{
    (void)user;
    return stats->live_links == 1 && stats->unsettled == 0 &&
           stats->credit == PREFETCH;
}

/* Links that came back have all of their credit. */
static void expect_full_window(void)
{
    ck_assert(peer_wait_until(peer, has_full_window, NULL, WAIT_MS));
}

/* Ends and what follows. */

typedef void (*break_t)(void);

static void cut_by_reset(void)
{
    peer_cut(peer, true);
}

static void cut_by_fin(void)
{
    peer_cut(peer, false);
}

static void close_by_force(void)
{
    peer_close_connection(peer, "amqp:connection:forced", NULL);
}

static void close_without_error(void)
{
    peer_close_connection(peer, NULL, NULL);
}

static void detach_with_error(void)
{
    peer_detach(peer, NULL, "amqp:resource-deleted", "Queue deleted");
}

static void detach_without_error(void)
{
    peer_detach(peer, NULL, NULL, NULL);
}

static void detach_without_close(void)
{
    peer_detach_only(peer, NULL);
}

static void end_session(void)
{
    peer_end_session(peer, NULL, "amqp:invalid-field", "that outcome");
}

static const break_t breaks[] = {cut_by_reset,         cut_by_fin,
                                 close_by_force,       close_without_error,
                                 detach_with_error,    detach_without_error,
                                 detach_without_close, end_session};
enum { BREAKS = sizeof breaks / sizeof *breaks };

START_TEST(every_end_is_followed_by_a_link_with_full_credit)
{
    rig_options_t options = {.prefetch = PREFETCH};
    size_t handled = 0;

    start(NULL, &options, _i % RIG_HOSTS);
    for (int round = 0; round < 4; round++) {
        expect_full_window();
        for (int i = 0; i < 3; i++) {
            (void)peer_send_bytes(peer, text, sizeof text);
        }
        handled += 3;
        ck_assert(peer_wait_accepted(peer, (int)handled, WAIT_MS));
        breaks[_i / RIG_HOSTS]();
        ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, (size_t)round + 2,
                                 WAIT_MS));
    }
    expect_full_window();
    stop_well();
    ck_assert_uint_eq(rig_handled(rig), handled);
}
END_TEST

static gate_t gate;

/* A handler runs, others wait, one message is half there: every kind of end
 * comes, and the outcomes of before settle nothing of after. */
START_TEST(outcomes_of_a_lost_link_settle_nothing)
{
    unsigned char large[5000] = {0};
    rig_options_t options = {.prefetch = PREFETCH,
                             .handler = gate_handler,
                             .user = &gate,
                             .workers = 2,
                             .stop_timeout_ms =
                                 300}; /* the drain is not answered */
    peer_message_t half = {
        .bytes = large, .size = sizeof large, .hold_at = 3000};

    gate_init(&gate);
    start(NULL, &options, _i % RIG_HOSTS);
    for (int i = 0; i < 5; i++) {
        (void)peer_send_bytes(peer, text, sizeof text);
    }
    ck_assert(gate_wait_arrived(&gate, 2, WAIT_MS));
    int held = peer_send(peer, &half);
    ck_assert(peer_wait_unsettled(peer, 6, WAIT_MS));
    breaks[_i / RIG_HOSTS]();
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 2, WAIT_MS));
    gate_open(&gate);
    ck_assert(peer_wait_accepted(peer, 5, WAIT_MS));
    stop_well();
    /* The peer tells a settlement of a delivery that is over. */
    for (int i = 0; i < 5; i++) {
        peer_event_t event;
        ck_assert(peer_outcome(peer, i, &event));
        ck_assert(!event.disposition.late);
        ck_assert_int_eq(event.disposition.attempt, 2);
    }
    peer_event_t event;
    ck_assert(!peer_outcome(peer, held, &event));
    /* Those that ran; the others were taken back from the pool. */
    ck_assert_uint_eq(rig_consumer(rig, 0).stale, 2);
}
END_TEST

START_TEST(one_link_ends_and_the_other_goes_on)
{
    rig_options_t options = {.addresses = {"one", "two"}};

    start(NULL, &options, _i);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 2, WAIT_MS));
    for (int round = 0; round < 4; round++) {
        peer_detach(peer, "one", "amqp:internal-error", "no");
        for (int i = 0; i < 10; i++) {
            peer_message_t message = {
                .bytes = text, .size = sizeof text, .address = "two"};
            (void)peer_send(peer, &message);
            ck_assert(peer_wait_accepted(peer, round * 10 + i + 1, WAIT_MS));
        }
        ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, (size_t)round + 3,
                                 WAIT_MS));
    }
    ck_assert_int_eq(peer_stats(peer).connections, 1);
    ck_assert_int_eq(peer_count(peer, PEER_BEGIN), 6);
    stop_well();
}
END_TEST

START_TEST(fifty_attaches_leak_no_session)
{
    rig_options_t options = {.prefetch = PREFETCH, .reconnect_max_ms = 20};

    start(NULL, &options, _i);
    for (size_t i = 1; i <= 50; i++) {
        ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, i, WAIT_MS));
        expect_full_window();
        peer_detach(peer, NULL, "amqp:internal-error", "again");
    }
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 51, WAIT_MS));
    expect_full_window();
    ck_assert_int_eq(peer_stats(peer).connections, 1);
    stop_well();
    ck_assert_int_eq(peer_count(peer, PEER_END), 51);
}
END_TEST

/* Pauses. */

/* The pause of try n is between half and all of min * 2^(n-1), up to max. */
static void expect_pauses(idem_event_type_t type, size_t count, int64_t min_ms,
                          int64_t max_ms)
{
    rig_event_t event;
    rig_event_t next;
    int64_t whole = min_ms;

    for (size_t i = 0; i < count; i++) {
        ck_assert(rig_event(rig, type, i, &event));
        ck_assert_int_ge(event.retry_in_ms, whole - whole / 2);
        ck_assert_int_le(event.retry_in_ms, whole);
        if (i + 1 < count) {
            ck_assert(rig_event(rig, type, i + 1, &next));
            ck_assert_int_ge(next.at_ms - event.at_ms, event.retry_in_ms - 1);
        }
        whole = whole * 2 < max_ms ? whole * 2 : max_ms;
    }
}

START_TEST(pauses_grow_while_nobody_listens)
{
    rig_options_t options = {.reconnect_min_ms = 20, .reconnect_max_ms = 200};

    peer = peer_create(NULL);
    ck_assert(peer_listen(peer, false));
    options.host = (rig_host_t)_i;
    options.url = peer_url(peer);
    rig = rig_run(&options);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_DISCONNECTED, 6, WAIT_MS));
    expect_pauses(IDEM_EVENT_DISCONNECTED, 6, 20, 200);
    ck_assert(peer_listen(peer, true));
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    stop_well();
    ck_assert_uint_eq(rig_statistics(rig).connects, 1);
    ck_assert_uint_ge(rig_statistics(rig).disconnects, 7);
}
END_TEST

START_TEST(pauses_grow_while_attaches_are_refused)
{
    peer_options_t peer_options = {.attach_condition = "amqp:internal-error",
                                   .attach_description = "not yet",
                                   .attach_refusals = 6};
    rig_options_t options = {.reconnect_min_ms = 20, .reconnect_max_ms = 200};

    start(&peer_options, &options, _i);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    expect_pauses(IDEM_EVENT_DETACHED, 6, 20, 200);
    stop_well();
    ck_assert_int_eq(peer_stats(peer).connections, 1);
}
END_TEST

static void close_on_flow(peer_t *closing, const peer_event_t *event,
                          void *user)
{
    (void)user;
    if (event->kind == PEER_FLOW) {
        peer_close_connection(closing, "amqp:internal-error", "cannot convert");
    }
}

START_TEST(pauses_grow_while_each_attach_is_followed_by_a_close)
{
    peer_options_t peer_options = {.hook = close_on_flow};
    rig_options_t options = {.reconnect_min_ms = 20, .reconnect_max_ms = 200};

    start(&peer_options, &options, _i);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_DISCONNECTED, 6, WAIT_MS));
    expect_pauses(IDEM_EVENT_DISCONNECTED, 6, 20, 200);
    stop_well();
}
END_TEST

START_TEST(delivery_makes_the_next_pause_short)
{
    rig_options_t options = {.reconnect_min_ms = 20, .reconnect_max_ms = 5000};
    rig_event_t event;

    start(NULL, &options, _i);
    for (int i = 0; i < 6; i++) {
        ck_assert(
            rig_wait_event(rig, IDEM_EVENT_ATTACHED, (size_t)i + 1, WAIT_MS));
        (void)peer_send_bytes(peer, text, sizeof text);
        ck_assert(peer_wait_accepted(peer, i + 1, WAIT_MS));
        peer_cut(peer, true);
        ck_assert(rig_wait_event(rig, IDEM_EVENT_DISCONNECTED, (size_t)i + 1,
                                 WAIT_MS));
        ck_assert(rig_event(rig, IDEM_EVENT_DISCONNECTED, (size_t)i, &event));
        ck_assert_int_le(event.retry_in_ms, 20);
    }
    stop_well();
}
END_TEST

START_TEST(tries_that_are_used_up_end_it)
{
    rig_options_t options = {.reconnect_tries = 3};

    peer = peer_create(NULL);
    ck_assert(peer_listen(peer, false));
    options.host = (rig_host_t)_i;
    options.url = peer_url(peer);
    rig = rig_run(&options);
    expect_end(IDEM_ERR_CONNECTION,
               "cannot connect and log in to amqp://127.0.0.1:");
    ck_assert_uint_eq(rig_events(rig, IDEM_EVENT_DISCONNECTED), 2);
}
END_TEST

START_TEST(several_urls_are_tried_in_turn)
{
    char urls[256];
    rig_options_t options = {.url = urls};
    peer_t *other = peer_create(NULL);

    peer = peer_create(NULL);
    ck_assert(peer_listen(peer, false));
    (void)snprintf(urls, sizeof urls, "%s,%s", peer_url(peer), peer_url(other));
    options.host = (rig_host_t)_i;
    rig = rig_run(&options);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    ck_assert_int_eq(peer_stats(other).live_links, 1);
    ck_assert(peer_listen(peer, true));
    ck_assert(peer_listen(other, false));
    peer_cut(other, false);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 2, WAIT_MS));
    ck_assert_int_eq(peer_stats(peer).live_links, 1);
    stop_well();
    peer_destroy(other);
}
END_TEST

/* Logins. */

START_TEST(password_is_sent_by_plain_alone)
{
    peer_options_t peer_options = {.user = "al:ice", .password = "p@ss,word"};
    char url[128];
    rig_options_t options = {.url = url, .login = "other", .password = "x"};
    peer_event_t event;

    peer = peer_create(&peer_options);
    options.host = (rig_host_t)_i;
    (void)snprintf(url, sizeof url,
                   "amqp://al%%3aice:p%%40ss%%2Cword@127.0.0.1:%d",
                   peer_port(peer));
    rig = rig_run(&options);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    ck_assert(peer_event(peer, PEER_SASL, 0, &event));
    ck_assert_str_eq(event.sasl.mechanism, "PLAIN");
    ck_assert_str_eq(event.sasl.user, "al:ice");
    stop_well();
    ck_assert_uint_eq(rig_logged(rig, "p@ss"), 0);
}
END_TEST

START_TEST(wrong_password_ends_it_after_one_try)
{
    peer_options_t peer_options = {.user = "alice", .password = "right"};
    rig_options_t options = {.login = "alice", .password = "wr0ng-one"};
    rig_event_t event;

    start(&peer_options, &options, _i);
    expect_end(IDEM_ERR_AUTHENTICATION, "user 'alice'");
    ck_assert_int_eq(peer_stats(peer).connections, 1);
    ck_assert(rig_event(rig, IDEM_EVENT_FAILED, 0, &event));
    ck_assert_str_eq(event.error.condition, "amqp:unauthorized-access");
    ck_assert_uint_eq(rig_logged(rig, "wr0ng-one"), 0);
    ck_assert_uint_eq(rig_events(rig, IDEM_EVENT_CONNECTED), 0);
}
END_TEST

START_TEST(login_of_a_user_never_falls_back_to_anonymous)
{
    peer_options_t peer_options = {.mechanisms = "ANONYMOUS"};
    rig_options_t options = {.login = "alice", .password = "secret"};

    start(&peer_options, &options, _i);
    expect_end(IDEM_ERR_AUTHENTICATION, "SASL PLAIN");
    ck_assert_int_eq(peer_count(peer, PEER_OPEN), 0);
}
END_TEST

START_TEST(anonymous_refused_by_a_close_is_a_refused_login)
{
    peer_options_t peer_options = {.open_condition = "amqp:unauthorized-access",
                                   .open_description = "Username: null"};
    rig_options_t options = {0};

    start(&peer_options, &options, _i);
    expect_end(IDEM_ERR_AUTHENTICATION, "anonymous");
    ck_assert_int_eq(peer_stats(peer).connections, 1);
    ck_assert_uint_eq(rig_events(rig, IDEM_EVENT_CONNECTED), 0);
}
END_TEST

START_TEST(login_that_cannot_be_checked_now_is_tried_again)
{
    peer_options_t peer_options = {.sasl_outcome = 4};
    rig_options_t options = {0};

    start(&peer_options, &options, _i);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_DISCONNECTED, 3, WAIT_MS));
    expect_pauses(IDEM_EVENT_DISCONNECTED, 3, 20, 200);
    peer_options.sasl_outcome = 0;
    peer_configure(peer, &peer_options);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    stop_well();
}
END_TEST

START_TEST(peer_without_sasl_is_refused)
{
    peer_options_t peer_options = {.no_sasl = true};
    rig_options_t options = {.login = "alice", .password = "secret"};
    rig_event_t event;

    start(&peer_options, &options, _i);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_DISCONNECTED, 2, WAIT_MS));
    ck_assert(rig_event(rig, IDEM_EVENT_DISCONNECTED, 0, &event));
    ck_assert_ptr_nonnull(strstr(event.error.message, "SASL"));
    ck_assert_int_eq(peer_count(peer, PEER_OPEN), 0);
    stop_well();
}
END_TEST

START_TEST(socket_cut_during_the_login_is_told_as_that)
{
    peer_options_t peer_options = {.cut_after_mechanisms = true};
    rig_options_t options = {0};
    rig_event_t event;

    start(&peer_options, &options, _i);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_DISCONNECTED, 3, WAIT_MS));
    expect_pauses(IDEM_EVENT_DISCONNECTED, 3, 20, 200);
    ck_assert(rig_event(rig, IDEM_EVENT_DISCONNECTED, 0, &event));
    ck_assert_int_eq(event.error.status, IDEM_ERR_CONNECTION);
    /* A cut that comes with a reset looks like a failed connect. */
    ck_assert(strstr(event.error.message, "login") != NULL ||
              strstr(event.error.message, "log in") != NULL);
    stop_well();
}
END_TEST

START_TEST(password_does_not_leave_this_machine_in_the_clear)
{
    rig_options_t options = {
        .url = "amqp://192.0.2.1:5672", .login = "alice", .password = "secret"};

    start(NULL, &options, _i);
    expect_end(IDEM_ERR_AUTHENTICATION, "allow_insecure_plain");
}
END_TEST

/* Attaches. */

typedef struct refusal {
    const char *condition;
    idem_status_t status;
} refusal_t;

static const refusal_t refusals[] = {
    {"amqp:unauthorized-access", IDEM_ERR_PERMISSION},
    {"amqp:not-found", IDEM_ERR_ADDRESS},
    {"amqp:illegal-state", IDEM_ERR_ADDRESS},
};
enum { REFUSALS = sizeof refusals / sizeof *refusals };

START_TEST(refused_address_ends_it_after_one_try)
{
    const refusal_t *refusal = &refusals[_i / RIG_HOSTS];
    peer_options_t peer_options = {.attach_condition = refusal->condition,
                                   .attach_description = "says the broker"};
    rig_options_t options = {.addresses = {"there", "not-there"}};
    rig_event_t event;

    start(&peer_options, &options, _i % RIG_HOSTS);
    expect_end(refusal->status, "says the broker");
    ck_assert(rig_event(rig, IDEM_EVENT_FAILED, 0, &event));
    ck_assert_str_eq(event.error.condition, refusal->condition);
    ck_assert_int_eq(peer_stats(peer).connections, 1);
    ck_assert_int_eq(peer_count(peer, PEER_CLOSE), 1);
}
END_TEST

START_TEST(refusals_after_work_have_a_grace)
{
    peer_options_t peer_options = {0};
    rig_options_t options = {.reconnect_max_ms = 300};

    start(&peer_options, &options, _i);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    peer_options.attach_condition = "amqp:not-found";
    peer_options.attach_refusals = 3;
    peer_configure(peer, &peer_options);
    peer_cut(peer, true);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 2, WAIT_MS));
    peer_options.attach_refusals = 0;
    peer_configure(peer, &peer_options);
    peer_cut(peer, true);
    expect_end(IDEM_ERR_ADDRESS, "orders");
    ck_assert_uint_ge(rig_events(rig, IDEM_EVENT_DETACHED), 5);
}
END_TEST

START_TEST(attach_that_is_no_queue_is_warned_of)
{
    peer_options_t peer_options = {.drop_capabilities = true,
                                   .reply_address = "elsewhere"};
    rig_options_t options = {0};

    start(&peer_options, &options, _i);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    stop_well();
    ck_assert_uint_eq(rig_logged(rig, "does not say"), 1);
    ck_assert_uint_eq(rig_logged(rig, "attached=elsewhere"), 1);
}
END_TEST

/* Silence. */

START_TEST(silent_peer_hits_the_connect_timeout)
{
    peer_options_t peer_options = {.no_open_answer = true};
    rig_options_t options = {.connect_timeout_ms = 200};
    rig_event_t event;
    int64_t began = test_now_ms();

    start(&peer_options, &options, _i);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_DISCONNECTED, 2, WAIT_MS));
    ck_assert(rig_event(rig, IDEM_EVENT_DISCONNECTED, 0, &event));
    ck_assert_int_ge(event.at_ms - began, 190);
    ck_assert_int_lt(event.at_ms - began, 2000);
    ck_assert_ptr_nonnull(strstr(event.error.message, "connect_timeout_ms"));
    stop_well();
}
END_TEST

START_TEST(peer_that_accepts_and_says_nothing_hits_the_connect_timeout)
{
    rig_options_t options = {.connect_timeout_ms = 200};
    rig_event_t event;

    peer = peer_create(NULL);
    peer_silence(peer, true);
    options.host = (rig_host_t)_i;
    options.url = peer_url(peer);
    rig = rig_run(&options);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_DISCONNECTED, 2, WAIT_MS));
    ck_assert(rig_event(rig, IDEM_EVENT_DISCONNECTED, 0, &event));
    ck_assert_ptr_nonnull(strstr(event.error.message, "connect_timeout_ms"));
    peer_silence(peer, false);
    stop_well();
}
END_TEST

/* A listener whose queue is full drops the SYN of whoever comes next. */
START_TEST(dropped_syn_hits_the_connect_timeout)
{
    enum { FILLERS = 4 };
    int port = 0;
    int fds[FILLERS + 1];
    char url[64];
    rig_options_t options = {.connect_timeout_ms = 300, .url = url};
    struct sockaddr_in address = {.sin_family = AF_INET};
    rig_event_t event;

    fds[FILLERS] = test_listen(&port);
    ck_assert_int_eq(listen(fds[FILLERS], 0), 0);
    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < FILLERS; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        ck_assert_int_eq(fcntl(fds[i], F_SETFL, O_NONBLOCK), 0);
        (void)connect(fds[i], (struct sockaddr *)&address, sizeof address);
    }
    (void)snprintf(url, sizeof url, "amqp://127.0.0.1:%d", port);
    start(NULL, &options, _i);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_DISCONNECTED, 2, WAIT_MS));
    ck_assert(rig_event(rig, IDEM_EVENT_DISCONNECTED, 0, &event));
    ck_assert_ptr_nonnull(strstr(event.error.message, "connect_timeout_ms"));
    ck_assert(rig_wait_event(rig, IDEM_EVENT_DISCONNECTED, 3, WAIT_MS));
    int64_t began = test_now_ms();
    stop_well();
    ck_assert_int_lt(test_now_ms() - began, 1500);
    for (int i = 0; i <= FILLERS; i++) {
        (void)close(fds[i]);
    }
}
END_TEST

START_TEST(unanswered_attach_hits_the_connect_timeout)
{
    peer_options_t peer_options = {.no_attach_answer = true};
    rig_options_t options = {.connect_timeout_ms = 200};

    start(&peer_options, &options, _i);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_DISCONNECTED, 2, WAIT_MS));
    peer_options.no_attach_answer = false;
    peer_configure(peer, &peer_options);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    stop_well();
}
END_TEST

START_TEST(peer_that_falls_silent_is_left)
{
    rig_options_t options = {.idle_timeout_ms = 400};
    rig_event_t event;

    start(NULL, &options, _i);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    int64_t began = test_now_ms();
    peer_silence(peer, true);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_DISCONNECTED, 1, WAIT_MS));
    ck_assert(rig_event(rig, IDEM_EVENT_DISCONNECTED, 0, &event));
    ck_assert_int_lt(event.at_ms - began, 3000);
    peer_silence(peer, false);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 2, WAIT_MS));
    stop_well();
}
END_TEST

START_TEST(idle_connection_stays_up_by_heartbeats)
{
    peer_options_t peer_options = {.idle_timeout_ms = 200};
    rig_options_t options = {.idle_timeout_ms = 400};
    const struct timespec while_idle = {2, 0};

    start(&peer_options, &options, _i);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    nanosleep(&while_idle, NULL); /* nothing is to happen: no condition */
    ck_assert_uint_eq(rig_events(rig, IDEM_EVENT_DISCONNECTED), 0);
    /* The peer would end it after twice what it announces. */
    ck_assert_int_lt(peer_stats(peer).longest_silence_ms, 400);
    stop_well();
}
END_TEST

/* A flow on channel 0 and handle 0 by which the sender uses up ten credits
 * without a transfer. */
static const unsigned char spent_once[] = {
    0,    0,    0,    0x1e, 2,    0,    0,    0,    0,    0x53,
    0x13, 0xc0, 0x11, 7,    0x43, 0x70, 0x7f, 0xff, 0xff, 0xff,
    0x43, 0x70, 0x7f, 0xff, 0xff, 0xff, 0x43, 0x52, 10,   0x43};
static const unsigned char spent_twice[] = {
    0,    0,    0,    0x1e, 2,    0,    0,    0,    0,    0x53,
    0x13, 0xc0, 0x11, 7,    0x43, 0x70, 0x7f, 0xff, 0xff, 0xff,
    0x43, 0x70, 0x7f, 0xff, 0xff, 0xff, 0x43, 0x52, 20,   0x43};

START_TEST(credit_that_the_peer_gives_back_is_granted_again)
{
    rig_options_t options = {.prefetch = PREFETCH};
    peer_event_t event;

    start(NULL, &options, _i);
    expect_full_window();
    ck_assert_int_eq(peer_count(peer, PEER_FLOW), 1);
    peer_inject(peer, spent_once, sizeof spent_once);
    ck_assert(peer_wait(peer, PEER_FLOW, 2, WAIT_MS));
    ck_assert(peer_event(peer, PEER_FLOW, 1, &event));
    ck_assert_int_ge(event.flow.credit, PREFETCH);
    ck_assert_uint_eq(rig_logged(rig, "granting it again"), 1);
    /* Once more, before anything came: the link is made anew. */
    peer_inject(peer, spent_twice, sizeof spent_twice);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 2, WAIT_MS));
    expect_full_window();
    ck_assert_int_eq(peer_stats(peer).connections, 1);
    stop_well();
}
END_TEST

/* Races. */

static idem_outcome_t accept_slowly(idem_delivery_t *delivery, void *user)
{
    const struct timespec pause = {0, 100000};

    (void)delivery;
    (void)user;
    nanosleep(&pause, NULL);
    return IDEM_ACCEPT;
}

static int open_descriptors(void)
{
    int count = 0;

    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

START_TEST(results_handed_over_while_the_socket_is_cut_lose_nothing)
{
    enum { ROUNDS = 200, EACH = 20 };
    rig_options_t options = {.handler = accept_slowly,
                             .workers = 4,
                             .prefetch = 20,
                             .reconnect_min_ms = 2,
                             .reconnect_max_ms = 4};

    start(NULL, &options, _i);
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, 1, WAIT_MS));
    int descriptors = open_descriptors();
    for (int round = 0; round < ROUNDS; round++) {
        ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, (size_t)round + 1,
                                 WAIT_MS));
        for (int i = 0; i < EACH; i++) {
            (void)peer_send_bytes(peer, text, sizeof text);
        }
        ck_assert(rig_wait_handled(rig, (size_t)round * EACH / 2, WAIT_MS));
        peer_cut(peer, round % 2 == 0);
    }
    ck_assert(peer_wait_accepted(peer, ROUNDS * EACH, 30000));
    ck_assert(rig_wait_event(rig, IDEM_EVENT_ATTACHED, ROUNDS + 1, WAIT_MS));
    ck_assert_int_le(open_descriptors(), descriptors + 2);
    stop_well();
    ck_assert_int_eq(peer_stats(peer).queued, 0);
}
END_TEST

static TCase *add_case(Suite *made, const char *name)
{
    TCase *tests = tcase_create(name);

    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, NULL, tear_down);
    suite_add_tcase(made, tests);
    return tests;
}

/* Each with every host. */
#define ADD(tests, test) tcase_add_loop_test(tests, test, 0, RIG_HOSTS)

static Suite *suite(void)
{
    Suite *made = suite_create("driver-reconnect");
    TCase *ends = add_case(made, "ends");
    TCase *pauses = add_case(made, "pauses");
    TCase *logins = add_case(made, "logins");
    TCase *attaches = add_case(made, "attaches");
    TCase *silence = add_case(made, "silence");
    TCase *races = add_case(made, "races");

    tcase_add_loop_test(ends, every_end_is_followed_by_a_link_with_full_credit,
                        0, BREAKS * RIG_HOSTS);
    tcase_add_loop_test(ends, outcomes_of_a_lost_link_settle_nothing, 0,
                        BREAKS * RIG_HOSTS);
    ADD(ends, one_link_ends_and_the_other_goes_on);
    ADD(ends, fifty_attaches_leak_no_session);
    ADD(pauses, pauses_grow_while_nobody_listens);
    ADD(pauses, pauses_grow_while_attaches_are_refused);
    ADD(pauses, pauses_grow_while_each_attach_is_followed_by_a_close);
    ADD(pauses, delivery_makes_the_next_pause_short);
    ADD(pauses, tries_that_are_used_up_end_it);
    ADD(pauses, several_urls_are_tried_in_turn);
    ADD(logins, password_is_sent_by_plain_alone);
    ADD(logins, wrong_password_ends_it_after_one_try);
    ADD(logins, login_of_a_user_never_falls_back_to_anonymous);
    ADD(logins, anonymous_refused_by_a_close_is_a_refused_login);
    ADD(logins, login_that_cannot_be_checked_now_is_tried_again);
    ADD(logins, peer_without_sasl_is_refused);
    ADD(logins, socket_cut_during_the_login_is_told_as_that);
    ADD(logins, password_does_not_leave_this_machine_in_the_clear);
    tcase_add_loop_test(attaches, refused_address_ends_it_after_one_try, 0,
                        REFUSALS * RIG_HOSTS);
    ADD(attaches, refusals_after_work_have_a_grace);
    ADD(attaches, attach_that_is_no_queue_is_warned_of);
    ADD(silence, silent_peer_hits_the_connect_timeout);
    ADD(silence, peer_that_accepts_and_says_nothing_hits_the_connect_timeout);
    ADD(silence, dropped_syn_hits_the_connect_timeout);
    ADD(silence, unanswered_attach_hits_the_connect_timeout);
    ADD(silence, peer_that_falls_silent_is_left);
    ADD(silence, idle_connection_stays_up_by_heartbeats);
    ADD(silence, credit_that_the_peer_gives_back_is_granted_again);
    ADD(races, results_handed_over_while_the_socket_is_cut_lose_nothing);
    return made;
}

int main(void)
{
    return test_run(suite());
}
