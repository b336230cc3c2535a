/* Which id is seen, by how the producer names its messages. */

#include "journal.h"
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

enum { STEP_MS = 20000, QUEUES = 2, MESSAGES = 20 };

static scene_t scene;
static char other_queue[SCENE_NAME_BYTES];
static journal_t *journal;

static void setup(void)
{
    scene_open(&scene, "producers");
    test_unique(other_queue, sizeof other_queue, "producers");
    ck_assert(management_create_queue(scene.management, other_queue));
    journal = journal_create();
}

static void teardown(void)
{
    management_destroy_queue(scene.management, other_queue);
    journal_destroy(journal);
    scene_close(&scene);
}

static idem_outcome_t note_key(idem_delivery_t *delivery, void *user)
{
    (void)user;
    journal_begin(journal, idem_delivery_key(delivery));
    return IDEM_ACCEPT;
}

/* Message n of a producer whose API makes a message-id of its own for every
 * send; the program only sets _AMQ_DUPL_ID, as a string or as bytes. */
static void fill_fresh(size_t n, compose_message_t *message, void *user)
{
    static char id[64];
    static char duplicate_id[32];
    int length = 0;

    test_unique(id, sizeof id, "fresh");
    length = snprintf(duplicate_id, sizeof duplicate_id, "order-%zu", n);
    message->id = compose_string(id);
    message->duplicate_id = n % 2 == 0
                                ? compose_string(duplicate_id)
                                : compose_binary(duplicate_id, (size_t)length);
    (void)user;
}

/* Artemis drops the second copy of a _AMQ_DUPL_ID itself, but knows it for one
 * address only. So the copies go to two, read by one consumer's scope. */
static void consume_both(runner_host_t host, idem_id_source_t source)
{
    idem_store_t *store = scene_store(&scene, 30000);
    runner_t *runner = runner_create(host, scene.url);
    const char *queues[QUEUES] = {scene.queue, other_queue};

    for (int i = 0; i < QUEUES; i++) {
        idem_consumer_options_t options;

        ck_assert(send_messages(scene.url, queues[i], MESSAGES, fill_fresh,
                                NULL, STEP_MS));
        scene_consumer(&scene, &options, store, note_key, NULL);
        options.address = queues[i];
        options.id_source = source;
        runner_consumer(runner, &options);
    }
    runner_start(runner);
    for (int i = 0; i < QUEUES; i++) {
        ck_assert(management_wait(scene.management, queues[i], "messageCount",
                                  0, STEP_MS));
        ck_assert(management_wait(scene.management, queues[i],
                                  "messagesAcknowledged", MESSAGES, STEP_MS));
    }
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    runner_destroy(runner);
    idem_store_destroy(store);
}

START_TEST(duplicate_id_first_sees_through_fresh_message_ids)
{
    consume_both((runner_host_t)_i, IDEM_ID_DUPLICATE_FIRST);
    ck_assert_uint_eq(journal_keys(journal), MESSAGES);
    ck_assert_uint_eq(journal_all_begun(journal), MESSAGES);
    ck_assert_uint_eq(journal_begun(journal, "order-0"), 1);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), MESSAGES);
}
END_TEST

START_TEST(duplicate_id_only_sees_through_fresh_message_ids)
{
    consume_both((runner_host_t)_i, IDEM_ID_DUPLICATE_ONLY);
    ck_assert_uint_eq(journal_all_begun(journal), MESSAGES);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), MESSAGES);
}
END_TEST

START_TEST(message_id_first_takes_fresh_message_ids_for_new_messages)
{
    consume_both((runner_host_t)_i, IDEM_ID_MESSAGE_FIRST);
    ck_assert_uint_eq(journal_all_begun(journal), QUEUES * MESSAGES);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), QUEUES * MESSAGES);
}
END_TEST

/* A bridge keeps the message-id and stamps a _AMQ_DUPL_ID of its own. */
static void fill_bridged(size_t n, compose_message_t *message, void *user)
{
    static char id[32];
    static char duplicate_id[64];

    (void)user;
    snprintf(id, sizeof id, "order-%zu", n / 2);
    message->id = compose_string(id);
    message->duplicate_id = compose_string(
        test_unique(duplicate_id, sizeof duplicate_id, "bridge"));
}

static void consume(runner_host_t host, idem_id_source_t source,
                    idem_key_handler_t key_handler)
{
    idem_store_t *store = scene_store(&scene, 30000);
    runner_t *runner = runner_create(host, scene.url);
    idem_consumer_options_t options;

    scene_consumer(&scene, &options, store, note_key, NULL);
    options.id_source = source;
    options.key_handler = key_handler;
    runner_consumer(runner, &options);
    runner_start(runner);
    ck_assert(scene_wait_empty(&scene, STEP_MS));
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    runner_destroy(runner);
    idem_store_destroy(store);
    ck_assert_int_eq(scene_killed(&scene), 0);
}

START_TEST(message_id_sees_through_a_bridge)
{
    static const idem_id_source_t sources[] = {IDEM_ID_MESSAGE_FIRST,
                                               IDEM_ID_MESSAGE_ONLY};

    ck_assert(send_messages(scene.url, scene.queue, (size_t)2 * MESSAGES,
                            fill_bridged, NULL, STEP_MS));
    consume((runner_host_t)(_i % RUNNER_HOSTS), sources[_i / RUNNER_HOSTS],
            NULL);
    ck_assert_uint_eq(journal_keys(journal), MESSAGES);
    ck_assert_uint_eq(journal_all_begun(journal), MESSAGES);
}
END_TEST

/* The broker's own sendMessage makes a message as a producer of its core
 * protocol does: no properties section, and a null in the application
 * properties. */
static void send_core(const char *properties, const char *body)
{
    char resource[SCENE_NAME_BYTES + 16];
    char arguments[256];
    char *reply = NULL;

    snprintf(resource, sizeof resource, "address.%s", scene.queue);
    snprintf(arguments, sizeof arguments, "[%s, 3, \"%s\", true, \"\", \"\"]",
             properties, body);
    reply =
        management_call(scene.management, resource, "sendMessage", arguments);
    ck_assert_ptr_nonnull(reply);
    free(reply);
}

START_TEST(core_messages_have_no_id_or_their_duplicate_id)
{
    send_core("{}", "first");
    send_core("{}", "second");
    send_core("{\"_AMQ_DUPL_ID\": \"core\"}", "third");
    consume((runner_host_t)_i, IDEM_ID_MESSAGE_FIRST, NULL);
    ck_assert_uint_eq(journal_begun(journal, "-"), 2);
    ck_assert_uint_eq(journal_begun(journal, "core"), 1);
    ck_assert_uint_eq(journal_all_begun(journal), 3);
    ck_assert_int_eq(
        scene_rows(&scene, SCENE_CONFIRMED " AND message_id = 'core'"), 1);
    ck_assert_int_eq(scene_rows(&scene, NULL), 1);
}
END_TEST

/* A program's own id: the body's text. */
static size_t take_body(idem_delivery_t *delivery, void *user, char *id,
                        size_t room)
{
    pn_message_t *message = idem_delivery_message(delivery);
    pn_data_t *body = NULL;
    pn_bytes_t text;

    (void)user;
    if (message == NULL) {
        return 0;
    }
    body = pn_message_body(message);
    pn_data_rewind(body);
    if (!pn_data_next(body)) {
        return 0;
    }
    text = pn_data_get_bytes(body);
    if (text.size > room) {
        return 0;
    }
    memcpy(id, text.start, text.size);
    return text.size;
}

START_TEST(key_handler_finds_the_id_in_the_body)
{
    send_core("{}", "order-1");
    send_core("{}", "order-2");
    send_core("{}", "order-1");
    ck_assert(send_text(scene.url, scene.queue, "other", "order-2"));
    consume((runner_host_t)_i, IDEM_ID_MESSAGE_FIRST, take_body);
    ck_assert_uint_eq(journal_begun(journal, "order-1"), 1);
    ck_assert_uint_eq(journal_begun(journal, "order-2"), 1);
    ck_assert_uint_eq(journal_all_begun(journal), 2);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), 2);
    ck_assert_int_eq(scene_rows(&scene, NULL), 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("producers");
    TCase *tcase = tcase_create("producers");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase,
                        duplicate_id_first_sees_through_fresh_message_ids, 0,
                        RUNNER_HOSTS);
    tcase_add_loop_test(tcase, duplicate_id_only_sees_through_fresh_message_ids,
                        0, RUNNER_HOSTS);
    tcase_add_loop_test(
        tcase, message_id_first_takes_fresh_message_ids_for_new_messages, 0,
        RUNNER_HOSTS);
    tcase_add_loop_test(tcase, message_id_sees_through_a_bridge, 0,
                        2 * RUNNER_HOSTS);
    tcase_add_loop_test(tcase, core_messages_have_no_id_or_their_duplicate_id,
                        0, RUNNER_HOSTS);
    tcase_add_loop_test(tcase, key_handler_finds_the_id_in_the_body, 0,
                        RUNNER_HOSTS);
    return test_run(suite);
}
