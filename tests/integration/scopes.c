/* Consumers that share a table: of one scope they are one consumer, of two
 * they do not know of each other. */

#include "journal.h"
#include "runner.h"
#include "scene.h"
#include "send.h"
#include "support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEP_MS = 20000, MESSAGES = 10, ADDRESS_BYTES = 3 * SCENE_NAME_BYTES };

static scene_t scene;
static char other_queue[SCENE_NAME_BYTES];
static char topic[SCENE_NAME_BYTES];
static journal_t *journals[2]; /* of the two consumers, by key */
static idem_outcome_t outcomes[2];

static void setup(void)
{
    scene_open(&scene, "scopes");
    test_unique(other_queue, sizeof other_queue, "scopes");
    test_unique(topic, sizeof topic, "scopes");
    for (int i = 0; i < 2; i++) {
        journals[i] = journal_create();
        outcomes[i] = IDEM_ACCEPT;
    }
}

static void teardown(void)
{
    journal_destroy(journals[0]);
    journal_destroy(journals[1]);
    scene_close(&scene);
}

/* user points to the number of the consumer. */
static idem_outcome_t note_key(idem_delivery_t *delivery, void *user)
{
    int number = *(const int *)user;

    journal_begin(journals[number], idem_delivery_key(delivery));
    return outcomes[number];
}

static void add_consumer(runner_t *runner, idem_store_t *store, int number,
                         const char *address, const char *scope)
{
    static int numbers[2] = {0, 1};
    idem_consumer_options_t options;

    scene_consumer(&scene, &options, store, note_key, &numbers[number]);
    options.address = address;
    options.scope = scope;
    runner_consumer(runner, &options);
}

/* Consumes from both addresses until the queues are empty. A scope of NULL is
 * the address. */
static void consume(runner_host_t host, const char *const addresses[2],
                    const char *const scopes[2], const char *const queues[2])
{
    idem_store_t *store = scene_store(&scene, 30000);
    runner_t *runner = runner_create(host, scene.url);

    for (int i = 0; i < 2; i++) {
        add_consumer(runner, store, i, addresses[i], scopes[i]);
    }
    runner_start(runner);
    for (int i = 0; i < 2; i++) {
        ck_assert(management_wait(scene.management, queues[i], "messageCount",
                                  0, STEP_MS));
    }
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    runner_destroy(runner);
    idem_store_destroy(store);
}

START_TEST(two_queues_with_their_own_scopes_both_run_one_id)
{
    static const char *const scopes[2] = {NULL, NULL};
    const char *queues[2] = {scene.queue, other_queue};
    char key[ADDRESS_BYTES];

    ck_assert(send_numbered(scene.url, queues[0], "key-", MESSAGES));
    ck_assert(send_numbered(scene.url, queues[1], "key-", MESSAGES));
    consume((runner_host_t)_i, queues, scopes, queues);
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(journal_keys(journals[i]), MESSAGES);
        ck_assert_uint_eq(journal_all_begun(journals[i]), MESSAGES);
        snprintf(key, sizeof key, "%s/key-0", queues[i]);
        ck_assert_uint_eq(journal_begun(journals[i], key), 1);
    }
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), 2 * MESSAGES);
    ck_assert_int_eq(scene_rows(&scene, NULL), 2 * MESSAGES);
    ck_assert(management_destroy_queue(scene.management, other_queue));
}
END_TEST

START_TEST(two_queues_with_one_scope_run_one_id_once)
{
    static const char *const scopes[2] = {"orders", "orders"};
    const char *queues[2] = {scene.queue, other_queue};

    ck_assert(send_numbered(scene.url, queues[0], "key-", MESSAGES));
    ck_assert(send_numbered(scene.url, queues[1], "key-", MESSAGES));
    consume((runner_host_t)_i, queues, scopes, queues);
    ck_assert_uint_eq(journal_all_begun(journals[0]) +
                          journal_all_begun(journals[1]),
                      MESSAGES);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), MESSAGES);
    ck_assert_int_eq(scene_rows(&scene, NULL), MESSAGES);
    ck_assert(management_destroy_queue(scene.management, other_queue));
}
END_TEST

/* Calls an operation of the broker's. */
static void order(const char *resource, const char *operation,
                  const char *arguments)
{
    char *reply =
        management_call(scene.management, resource, operation, arguments);

    ck_assert_ptr_nonnull(reply);
    free(reply);
}

START_TEST(subscribers_of_one_message_both_run_it)
{
    static const char *const scopes[2] = {NULL, NULL};
    char queues[2][ADDRESS_BYTES];
    char addresses[2][ADDRESS_BYTES];
    const char *names[2] = {queues[0], queues[1]};
    const char *sources[2] = {addresses[0], addresses[1]};
    char text[1024];
    char key[2 * ADDRESS_BYTES];

    for (int i = 0; i < 2; i++) {
        snprintf(queues[i], sizeof queues[i], "%s_%d", topic, i);
        snprintf(addresses[i], sizeof addresses[i], "%s::%s_%d", topic, topic,
                 i);
        snprintf(text, sizeof text,
                 "[\"{\\\"name\\\":\\\"%s\\\",\\\"address\\\":\\\"%s\\\","
                 "\\\"routing-type\\\":\\\"MULTICAST\\\","
                 "\\\"durable\\\":true,\\\"auto-create-address\\\":true}\"]",
                 queues[i], topic);
        order("broker", "createQueue", text);
    }
    snprintf(text, sizeof text, "address.%s", topic);
    order(text, "sendMessage",
          "[{\"_AMQ_DUPL_ID\": \"news\"}, 3, \"body\", true, \"\", \"\"]");
    consume((runner_host_t)_i, sources, scopes, names);
    for (int i = 0; i < 2; i++) {
        snprintf(key, sizeof key, "%s/news", sources[i]);
        ck_assert_uint_eq(journal_begun(journals[i], key), 1);
        ck_assert_uint_eq(journal_all_begun(journals[i]), 1);
        ck_assert(management_destroy_queue(scene.management, queues[i]));
    }
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), 2);
    ck_assert_int_eq(scene_rows(&scene, NULL), 2);
}
END_TEST

/* Its own dead-letter queue, named by other_queue. */
static void set_dead_letters(void)
{
    char text[512];

    ck_assert(management_create_queue(scene.management, other_queue));
    snprintf(text, sizeof text,
             "[\"%s\", \"{\\\"deadLetterAddress\\\":\\\"%s\\\","
             "\\\"maxDeliveryAttempts\\\":3}\"]",
             scene.queue, other_queue);
    order("broker", "addAddressSettings", text);
}

/* Consumes until the message is a dead letter. */
static void give_up(runner_host_t host)
{
    idem_store_t *store = scene_store(&scene, 30000);
    runner_t *runner = runner_create(host, scene.url);

    add_consumer(runner, store, 0, scene.queue, "orders");
    runner_start(runner);
    ck_assert(management_wait(scene.management, other_queue, "messageCount", 1,
                              STEP_MS));
    ck_assert_int_eq(runner_join(runner, NULL), IDEM_OK);
    runner_destroy(runner);
    idem_store_destroy(store);
}

static void dead_letter(runner_host_t host, const char *scope,
                        idem_outcome_t outcome, size_t attempts)
{
    const char *queues[2] = {scene.queue, other_queue};
    const char *scopes[2] = {"orders", scope};
    char key[SCENE_NAME_BYTES];

    set_dead_letters();
    outcomes[0] = outcome;
    ck_assert(send_text(scene.url, scene.queue, "poor", "body"));
    give_up(host);
    ck_assert_uint_eq(journal_begun(journals[0], "orders/poor"), attempts);
    ck_assert_int_eq(scene_rows(&scene, SCENE_FREE), 1);
    outcomes[0] = IDEM_ACCEPT;
    consume(host, queues, scopes, queues);
    snprintf(key, sizeof key, "%s/poor", scope);
    ck_assert_uint_eq(journal_begun(journals[1], key), 1);
    ck_assert_int_eq(scene_rows(&scene, SCENE_CONFIRMED), 1);
    ck_assert(management_destroy_queue(scene.management, other_queue));
}

START_TEST(rejected_message_is_run_from_the_dead_letter_queue)
{
    dead_letter((runner_host_t)_i, "orders", IDEM_REJECT, 1);
}
END_TEST

START_TEST(failed_message_is_run_from_the_dead_letter_queue)
{
    dead_letter((runner_host_t)_i, "orders", IDEM_RETRY, 3);
}
END_TEST

START_TEST(dead_letter_consumer_with_its_own_scope_runs_what_was_rejected)
{
    dead_letter((runner_host_t)_i, "letters", IDEM_REJECT, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scopes");
    TCase *tcase = tcase_create("scopes");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, two_queues_with_their_own_scopes_both_run_one_id,
                        0, RUNNER_HOSTS);
    tcase_add_loop_test(tcase, two_queues_with_one_scope_run_one_id_once, 0,
                        RUNNER_HOSTS);
    tcase_add_loop_test(tcase, subscribers_of_one_message_both_run_it, 0,
                        RUNNER_HOSTS);
    tcase_add_loop_test(tcase,
                        rejected_message_is_run_from_the_dead_letter_queue, 0,
                        RUNNER_HOSTS);
    tcase_add_loop_test(tcase, failed_message_is_run_from_the_dead_letter_queue,
                        0, RUNNER_HOSTS);
    tcase_add_loop_test(
        tcase, dead_letter_consumer_with_its_own_scope_runs_what_was_rejected,
        0, RUNNER_HOSTS);
    return test_run(suite);
}
