/* Ids of every kind, through a real broker and into a real table. */

#include "journal.h"
#include "peer.h"
#include "runner.h"
#include "scene.h"
#include "send.h"
#include "support.h"

#include <proton/codec.h>
#include <proton/message.h>

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IDS_MAX = 300, STEP_MS = 20000, LONG = 5000, VERY_LONG = 70000 };

static scene_t scene;
static journal_t *journal; /* by the body, which says which id it is */

/* The ids of a test. Each is sent twice, one after the other. */
static compose_value_t ids[IDS_MAX];
static size_t id_count;

static void setup(void)
{
    scene_open(&scene, "ids");
    journal = journal_create();
    id_count = 0;
}

static void teardown(void)
{
    journal_destroy(journal);
    scene_close(&scene);
}

static void add(compose_value_t id)
{
    ck_assert_uint_lt(id_count, IDS_MAX);
    ids[id_count++] = id;
}

static void add_bytes(const void *bytes, size_t size)
{
    compose_value_t id = {COMPOSE_STRING, bytes, size, 0};

    add(id);
}

static idem_outcome_t note_body(idem_delivery_t *delivery, void *user)
{
    pn_message_t *message = idem_delivery_message(delivery);
    pn_data_t *body = message != NULL ? pn_message_body(message) : NULL;
    char text[32] = "?";

    (void)user;
    if (body != NULL) {
        pn_data_rewind(body);
        if (pn_data_next(body)) {
            pn_bytes_t bytes = pn_data_get_binary(body);

            snprintf(text, sizeof text, "%.*s", (int)bytes.size, bytes.start);
        }
    }
    journal_begin(journal, text);
    return IDEM_ACCEPT;
}

static void fill(size_t n, compose_message_t *message, void *user)
{
    static char body[32];

    (void)user;
    message->id = ids[n / 2];
    message->body = body;
    message->body_bytes = (size_t)snprintf(body, sizeof body, "%zu", n / 2);
}

/* A consumer that has all in one window, on several workers. */
static idem_consumer_t *start(runner_t *runner, idem_store_t *store)
{
    idem_consumer_options_t options;
    idem_consumer_t *consumer = NULL;

    scene_consumer(&scene, &options, store, note_body, NULL);
    options.prefetch = 2 * IDS_MAX;
    options.concurrency = 4;
    consumer = runner_consumer(runner, &options);
    runner_start(runner);
    return consumer;
}

/* Returns what the consumer counted. */
static idem_consumer_statistics_t run(runner_host_t host)
{
    idem_store_t *store = scene_store(&scene, 30000);
    runner_t *runner = runner_create(host, scene.url);
    idem_consumer_t *consumer = NULL;
    idem_consumer_statistics_t statistics;

    ck_assert(send_messages(scene.url, scene.queue, 2 * id_count, fill, NULL,
                            STEP_MS));
    consumer = start(runner, store);
    ck_assert(scene_wait_empty(&scene, STEP_MS));
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    statistics = runner_statistics(consumer);
    runner_destroy(runner);
    idem_store_destroy(store);
    ck_assert_int_eq(scene_killed(&scene), 0);
    return statistics;
}

/* The same with a peer in place of the broker. */
static void run_at_peer(runner_host_t host)
{
    idem_store_t *store = scene_store(&scene, 30000);
    peer_t *peer = peer_create(NULL);
    runner_t *runner = NULL;

    ck_assert_ptr_nonnull(peer);
    for (size_t n = 0; n < 2 * id_count; n++) {
        compose_message_t message = {.durable = true};
        size_t size = 0;
        char *bytes = NULL;

        fill(n, &message, NULL);
        bytes = compose_message(&message, &size);
        peer_send_bytes(peer, bytes, size);
        free(bytes);
    }
    runner = runner_create(host, peer_url(peer));
    start(runner, store);
    ck_assert(peer_wait_accepted(peer, 2 * (int)id_count, STEP_MS));
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    runner_destroy(runner);
    idem_store_destroy(store);
    peer_destroy(peer);
}

/* Each of the ids is another. */
static void check_handled_once(void)
{
    for (size_t i = 0; i < id_count; i++) {
        char body[32];

        snprintf(body, sizeof body, "%zu", i);
        ck_assert_msg(journal_begun(journal, body) == 1, "id %zu ran %zu times",
                      i, journal_begun(journal, body));
    }
    ck_assert_uint_eq(journal_keys(journal), id_count);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), (int64_t)id_count);
    ck_assert_int_eq(scene_rows(&scene, NULL), (int64_t)id_count);
}

START_TEST(same_id_twice_within_a_window_is_handled_once)
{
    static char texts[IDS_MAX][16];

    for (int i = 0; i < IDS_MAX; i++) {
        snprintf(texts[i], sizeof texts[i], "id-%d", i);
        add(compose_string(texts[i]));
    }
    run((runner_host_t)_i);
    check_handled_once();
}
END_TEST

START_TEST(ids_of_each_type_are_different_ids)
{
    static const char bytes[16] = "0123456789abcdef";

    add(compose_string("7"));
    add(compose_ulong(7));
    add(compose_binary("7", 1));
    add(compose_string("ID:AMQP_ULONG:7"));
    add(compose_string("ID:AMQP_BINARY:37"));
    add(compose_string("ID:AMQP_STRING:7"));
    add(compose_string("ID:AMQP_STRING:ID:AMQP_ULONG:7"));
    add_bytes(bytes, sizeof bytes);
    add(compose_uuid(bytes));
    add(compose_binary(bytes, sizeof bytes));
    add(compose_string("30313233-3435-3637-3839-616263646566"));
    add(compose_string("ID:AMQP_UUID:30313233-3435-3637-3839-616263646566"));
    add(compose_ulong(0));
    add(compose_string("0"));
    add(compose_ulong(UINT64_MAX));
    add(compose_string("18446744073709551615"));
    run((runner_host_t)_i);
    check_handled_once();
}
END_TEST

/* Random bytes, to be freed. Those under mask are characters. */
static char *write_long(size_t size, unsigned mask)
{
    char *bytes = malloc(size);
    unsigned state = 1;

    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < size; i++) {
        state = state * 1664525U + 1013904223U;
        bytes[i] = (char)((state >> 24) & mask);
    }
    return bytes;
}

/* Two ids that differ in their last byte alone. */
static void add_pair(compose_type_t type, char *bytes[2], size_t size,
                     unsigned mask)
{
    for (int i = 0; i < 2; i++) {
        compose_value_t id = {.type = type, .size = size};

        bytes[i] = write_long(size, mask);
        bytes[i][size - 1] = (char)('0' + i);
        id.bytes = bytes[i];
        add(id);
    }
}

static void free_pair(char *bytes[2])
{
    free(bytes[0]);
    free(bytes[1]);
}

START_TEST(hostile_ids_are_different_ids)
{
    static char letters[LONG];
    char *strings[2];
    char *longer[2];
    char *binaries[2];

    memset(letters, 'x', sizeof letters);
    /* NULs. */
    add_bytes("\0", 1);
    add_bytes("\0\0", 2);
    add_bytes("nul\0", 4);
    add_bytes("nul", 3);
    add_bytes("nul\0a", 5);
    add_bytes("nul\0b", 5);
    add(compose_binary("\0", 1));
    add(compose_binary("\xff\xfe", 2));
    /* Longer than a key, and around that. Strings with all that is ASCII, as
     * the broker closes the connection at one that is not UTF-8. */
    add_pair(COMPOSE_STRING, strings, LONG, 0x7f);
    add_pair(COMPOSE_STRING, longer, VERY_LONG, 0x7f);
    add_pair(COMPOSE_BINARY, binaries, LONG, 0xff);
    add(compose_binary(strings[0], LONG));
    for (size_t size = 253; size < 260; size++) {
        add_bytes(letters, size);
    }
    add_bytes(letters, LONG);
    /* What a collation or a CHAR column takes for equal. */
    add(compose_string("trailing"));
    add(compose_string("trailing "));
    add(compose_string("trailing  "));
    add(compose_string(" "));
    add(compose_string("ABC"));
    add(compose_string("abc"));
    add(compose_string("stra\xc3\x9f"
                       "e"));
    add(compose_string("strasse"));
    add(compose_string("\xc3\xa9"));     /* composed */
    add(compose_string("e\xcc\x81"));    /* decomposed */
    add(compose_string("\xe2\x80\x8b")); /* a space without width */
    /* What an SQL text, an array or a format takes for its own. */
    add(compose_string("'; DROP TABLE idem_message; --"));
    add(compose_string("{\"a\",NULL}"));
    add(compose_string("NULL"));
    add(compose_string("\\N"));
    add(compose_string("$1 %s %n"));
    add(compose_string("a\tb\nc\r\n"));
    add(compose_string("a/b"));
    run((runner_host_t)_i);
    check_handled_once();
    free_pair(strings);
    free_pair(longer);
    free_pair(binaries);
}
END_TEST

START_TEST(strings_that_are_not_utf8_are_different_ids)
{
    char *strings[2];
    char *longer[2];

    add_bytes("\xff\xfe", 2);
    add(compose_binary("\xff\xfe", 2));
    add(compose_string("ID:IDEM_HEX:FFFE"));
    add_bytes("\xc3", 1);         /* half a character */
    add_bytes("\xc0\x80", 2);     /* NUL, overlong */
    add_bytes("\xed\xa0\x80", 3); /* a surrogate */
    add_bytes("a\xff", 2);
    add_bytes("A\xff", 2);
    add_bytes("\xff ", 2);
    add_pair(COMPOSE_STRING, strings, LONG, 0xff);
    add_pair(COMPOSE_STRING, longer, VERY_LONG, 0xff);
    run_at_peer((runner_host_t)_i);
    check_handled_once();
    free_pair(strings);
    free_pair(longer);
}
END_TEST

START_TEST(messages_without_an_id_are_handled_each_time_and_counted)
{
    idem_consumer_statistics_t statistics;

    add(compose_string(""));
    add(compose_binary("", 0));
    add((compose_value_t){0});
    statistics = run((runner_host_t)_i);
    ck_assert_uint_eq(journal_begun(journal, "0"), 2);
    ck_assert_uint_eq(journal_begun(journal, "1"), 2);
    ck_assert_uint_eq(journal_begun(journal, "2"), 2);
    ck_assert_int_eq(scene_rows(&scene, NULL), 0);
    ck_assert_uint_eq(statistics.no_id, 6);
    ck_assert_uint_eq(statistics.duplicates, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ids");
    TCase *tcase = tcase_create("ids");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, same_id_twice_within_a_window_is_handled_once, 0,
                        RUNNER_HOSTS);
    tcase_add_loop_test(tcase, ids_of_each_type_are_different_ids, 0,
                        RUNNER_HOSTS);
    tcase_add_loop_test(tcase, hostile_ids_are_different_ids, 0, RUNNER_HOSTS);
    tcase_add_loop_test(tcase, strings_that_are_not_utf8_are_different_ids, 0,
                        RUNNER_HOSTS);
    tcase_add_loop_test(
        tcase, messages_without_an_id_are_handled_each_time_and_counted, 0,
        RUNNER_HOSTS);
    return test_run(suite);
}
