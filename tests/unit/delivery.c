#include "message/delivery.h"

#include "support.h"

#include <proton/message.h>

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

static idemi_mailbox_t mailbox;
static idemi_completions_t *completions;

/* What the handler does and finds. */
static atomic_int runs;
static idem_outcome_t handler_outcome;

/* Outcomes that came by the mailbox. */
static int outcomes;
static idem_outcome_t last_outcome;

static void done(idemi_task_t *task, int64_t now_ms)
{
    idem_delivery_t *delivery =
        (idem_delivery_t *)((char *)task - offsetof(idem_delivery_t, done));

    (void)now_ms;
    outcomes++;
    last_outcome = delivery->outcome;
}

static void setup(void)
{
    ck_assert(idemi_mailbox_init(&mailbox));
    completions = idemi_completions_create(&mailbox);
    ck_assert_ptr_nonnull(completions);
}

static void close_client(void)
{
    idemi_completions_close(completions);
    idemi_completions_drop(completions);
    idemi_mailbox_finish(&mailbox);
}

static idem_delivery_t *create(void)
{
    idem_delivery_t *delivery = idemi_delivery_create(completions, 0);

    ck_assert_ptr_nonnull(delivery);
    delivery->done.run = done;
    return delivery;
}

static idem_delivery_t *queued(void)
{
    idem_delivery_t *delivery = create();

    ck_assert(idemi_delivery_queue(delivery));
    return delivery;
}

static idem_outcome_t on_delivery(idem_delivery_t *delivery, void *user)
{
    (void)delivery;
    (void)user;
    atomic_fetch_add(&runs, 1);
    return handler_outcome;
}

static bool run(idem_delivery_t *delivery, idem_outcome_t outcome)
{
    handler_outcome = outcome;
    return idemi_delivery_run(delivery, on_delivery, NULL);
}

static void receive(int expected)
{
    (void)idemi_mailbox_run(&mailbox, 0);
    ck_assert_int_eq(outcomes, expected);
}

/* Outcomes of handlers. */

START_TEST(outcome_of_handler_is_known_when_it_returns)
{
    static const idem_outcome_t all[] = {IDEM_RETRY, IDEM_ACCEPT, IDEM_RELEASE,
                                         IDEM_REJECT};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        idem_delivery_t *delivery = queued();
        ck_assert(run(delivery, all[i]));
        ck_assert_int_eq(delivery->outcome, all[i]);
        idemi_delivery_destroy(delivery);
    }
    ck_assert_int_eq(atomic_load(&runs), 4);
    close_client();
}
END_TEST

START_TEST(outcome_nobody_knows_is_a_retry)
{
    static const int odd[] = {-1, 5, 99, 0x7fffffff};

    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        idem_delivery_t *delivery = queued();
        ck_assert(run(delivery, (idem_outcome_t)odd[i]));
        ck_assert_int_eq(delivery->outcome, IDEM_RETRY);
        idemi_delivery_destroy(delivery);
    }
    close_client();
}
END_TEST

/* Cancelling. */

START_TEST(cancelled_delivery_does_not_start)
{
    idem_delivery_t *delivery = queued();

    ck_assert(idemi_delivery_cancel(delivery));
    ck_assert(!idemi_delivery_cancel(delivery));
    ck_assert(!run(delivery, IDEM_ACCEPT));
    ck_assert_int_eq(atomic_load(&runs), 0);
    idemi_delivery_destroy(delivery);
    close_client();
}
END_TEST

START_TEST(started_delivery_is_not_cancelled)
{
    idem_delivery_t *delivery = queued();

    ck_assert(run(delivery, IDEM_ACCEPT));
    ck_assert(!idemi_delivery_cancel(delivery));
    idemi_delivery_destroy(delivery);
    close_client();
}
END_TEST

START_TEST(cancelled_delivery_may_go_before_the_worker_sees_it)
{
    idem_delivery_t *delivery = queued();

    ck_assert(idemi_delivery_cancel(delivery));
    idemi_delivery_destroy(delivery);
    /* The worker's: it frees. */
    ck_assert(!run(delivery, IDEM_ACCEPT));
    ck_assert_int_eq(atomic_load(&runs), 0);
    close_client();
}
END_TEST

START_TEST(cancelled_delivery_is_queued_again_in_its_place)
{
    idem_delivery_t *delivery = queued();

    ck_assert(idemi_delivery_cancel(delivery));
    /* Its job is in the queue still. */
    ck_assert(!idemi_delivery_queue(delivery));
    ck_assert(run(delivery, IDEM_ACCEPT));
    ck_assert_int_eq(atomic_load(&runs), 1);
    idemi_delivery_destroy(delivery);

    delivery = queued();
    ck_assert(idemi_delivery_cancel(delivery));
    ck_assert(!run(delivery, IDEM_ACCEPT));
    /* It has left the queue. */
    ck_assert(idemi_delivery_queue(delivery));
    ck_assert(run(delivery, IDEM_ACCEPT));
    ck_assert_int_eq(atomic_load(&runs), 2);
    idemi_delivery_destroy(delivery);
    close_client();
}
END_TEST

START_TEST(delivery_whose_lease_is_over_does_not_start)
{
    idem_delivery_t *delivery = queued();

    atomic_store(&delivery->lease_end_ms, test_now_ms() - 1);
    ck_assert(run(delivery, IDEM_ACCEPT));
    ck_assert(delivery->was_late);
    ck_assert_int_eq(atomic_load(&runs), 0);
    /* It is claimed anew, and queued again. */
    atomic_store(&delivery->lease_end_ms, test_now_ms() + 60000);
    ck_assert(idemi_delivery_queue(delivery));
    ck_assert(run(delivery, IDEM_ACCEPT));
    ck_assert(!delivery->was_late);
    ck_assert_int_eq(atomic_load(&runs), 1);
    idemi_delivery_destroy(delivery);
    close_client();
}
END_TEST

/* Completing. */

static idem_status_t completed[2];

static idem_outcome_t on_complete_early(idem_delivery_t *delivery, void *user)
{
    (void)user;
    completed[0] = idem_delivery_complete(delivery, IDEM_REJECT);
    completed[1] = idem_delivery_complete(delivery, IDEM_ACCEPT);
    return handler_outcome;
}

START_TEST(completing_early_takes_effect_when_the_handler_defers)
{
    idem_delivery_t *delivery = queued();

    handler_outcome = IDEM_DEFER;
    ck_assert(idemi_delivery_run(delivery, on_complete_early, NULL));
    ck_assert_int_eq(completed[0], IDEM_OK);
    ck_assert_int_eq(completed[1], IDEM_ERR_STATE);
    ck_assert_int_eq(delivery->outcome, IDEM_REJECT);
    ck_assert_uint_eq(atomic_load(&completions->deferred), 1);
    ck_assert_uint_eq(atomic_load(&completions->open), 0);
    /* Its outcome is the worker's to post. */
    receive(0);
    idemi_delivery_destroy(delivery);
    close_client();
}
END_TEST

START_TEST(returned_outcome_counts_before_an_early_completion)
{
    idem_delivery_t *delivery = queued();

    handler_outcome = IDEM_RETRY;
    ck_assert(idemi_delivery_run(delivery, on_complete_early, NULL));
    ck_assert_int_eq(completed[0], IDEM_OK);
    ck_assert_int_eq(delivery->outcome, IDEM_RETRY);
    idemi_delivery_destroy(delivery);
    close_client();
}
END_TEST

START_TEST(completing_later_brings_the_outcome_by_the_mailbox)
{
    idem_delivery_t *delivery = queued();

    ck_assert(!run(delivery, IDEM_DEFER));
    receive(0);
    ck_assert_uint_eq(atomic_load(&completions->open), 1);
    ck_assert_int_eq(idem_delivery_complete(delivery, IDEM_RELEASE), IDEM_OK);
    ck_assert_uint_eq(atomic_load(&completions->open), 0);
    ck_assert_int_eq(idem_delivery_complete(delivery, IDEM_ACCEPT),
                     IDEM_ERR_STATE);
    receive(1);
    ck_assert_int_eq(last_outcome, IDEM_RELEASE);
    idemi_delivery_destroy(delivery);
    close_client();
}
END_TEST

START_TEST(completing_what_was_not_deferred_is_an_error)
{
    idem_delivery_t *delivery = create();

    ck_assert_int_eq(idem_delivery_complete(delivery, IDEM_ACCEPT),
                     IDEM_ERR_STATE);
    ck_assert(idemi_delivery_queue(delivery));
    ck_assert_int_eq(idem_delivery_complete(delivery, IDEM_ACCEPT),
                     IDEM_ERR_STATE);
    ck_assert(run(delivery, IDEM_ACCEPT));
    ck_assert_int_eq(idem_delivery_complete(delivery, IDEM_ACCEPT),
                     IDEM_ERR_STATE);
    receive(0);
    idemi_delivery_destroy(delivery);
    close_client();
}
END_TEST

START_TEST(completing_needs_an_outcome)
{
    idem_delivery_t *delivery = queued();

    ck_assert(!run(delivery, IDEM_DEFER));
    ck_assert_int_eq(idem_delivery_complete(NULL, IDEM_ACCEPT), IDEM_ERR_ARG);
    ck_assert_int_eq(idem_delivery_complete(delivery, IDEM_DEFER),
                     IDEM_ERR_ARG);
    ck_assert_int_eq(idem_delivery_complete(delivery, (idem_outcome_t)17),
                     IDEM_ERR_ARG);
    ck_assert_int_eq(idem_delivery_complete(delivery, IDEM_RETRY), IDEM_OK);
    receive(1);
    ck_assert_int_eq(last_outcome, IDEM_RETRY);
    idemi_delivery_destroy(delivery);
    close_client();
}
END_TEST

START_TEST(completing_after_the_client_is_gone_frees_the_delivery)
{
    idem_delivery_t *delivery = queued();

    ck_assert(!run(delivery, IDEM_DEFER));
    idemi_completions_close(completions);
    idemi_delivery_destroy(delivery);
    idemi_completions_drop(completions);
    idemi_mailbox_finish(&mailbox);
    /* Its parts are the program's to read until then. */
    size_t size = 1;
    (void)idem_delivery_encoded(delivery, &size);
    ck_assert_uint_eq(size, 0);
    ck_assert_int_eq(idem_delivery_complete(delivery, IDEM_ACCEPT), IDEM_OK);
    ck_assert_int_eq(outcomes, 0);
}
END_TEST

START_TEST(completing_while_the_client_goes_leaves_the_delivery_to_it)
{
    idem_delivery_t *delivery = queued();

    ck_assert(!run(delivery, IDEM_DEFER));
    idemi_completions_close(completions);
    ck_assert_int_eq(idem_delivery_complete(delivery, IDEM_ACCEPT), IDEM_OK);
    receive(0);
    idemi_delivery_destroy(delivery);
    close_client();
}
END_TEST

/* Races: other threads and this one meet at one delivery after the other. */

enum { ROUNDS = 10000 };

static idem_delivery_t *slots[ROUNDS];
static atomic_int offered;
static atomic_int known;
static atomic_int taken;
static atomic_int through;

static void offer(idem_delivery_t *delivery)
{
    slots[atomic_load(&offered)] = delivery;
    atomic_fetch_add(&offered, 1);
}

static void wait_for(atomic_int *counter, int count)
{
    int64_t end_ms = test_now_ms() + test_scaled_ms(30000);

    while (atomic_load(counter) < count) {
        ck_assert(test_now_ms() < end_ms);
        (void)sched_yield();
    }
}

/* So that the threads meet at different places. */
static void dawdle(int count)
{
    for (int i = count % 64; i > 0; i--) {
        (void)atomic_load(&through);
    }
}

static idem_delivery_t *next_offer(int number)
{
    while (atomic_load(&offered) <= number) {
        (void)sched_yield();
    }
    dawdle(number * 7);
    return slots[number];
}

/* Runs what is offered, as a worker does. */
static void *work(void *user)
{
    (void)user;
    for (int i = 0; i < ROUNDS; i++) {
        if (idemi_delivery_run(next_offer(i), on_delivery, NULL)) {
            atomic_fetch_add(&known, 1);
        }
        atomic_fetch_add(&through, 1);
    }
    return NULL;
}

/* Completes what is offered, as a program does. */
static void *complete(void *user)
{
    const int *tries = user;

    for (int i = 0; i < ROUNDS; i++) {
        idem_delivery_t *delivery = next_offer(i);
        for (int count = 0; count < *tries; count++) {
            if (idem_delivery_complete(delivery, IDEM_ACCEPT) == IDEM_OK) {
                atomic_fetch_add(&taken, 1);
            }
        }
        atomic_fetch_add(&through, 1);
    }
    return NULL;
}

START_TEST(start_and_cancel_have_one_winner)
{
    pthread_t worker;
    int cancelled = 0;

    handler_outcome = IDEM_ACCEPT;
    ck_assert(test_thread_start(&worker, work, NULL));
    for (int i = 0; i < ROUNDS; i++) {
        idem_delivery_t *delivery = queued();
        offer(delivery);
        dawdle(i);
        if (idemi_delivery_cancel(delivery)) {
            /* While the worker has it in its hands, perhaps. */
            idemi_delivery_destroy(delivery);
            cancelled++;
        } else {
            wait_for(&through, i + 1);
            idemi_delivery_destroy(delivery);
        }
    }
    ck_assert_int_eq(pthread_join(worker, NULL), 0);
    ck_assert_int_eq(atomic_load(&known), atomic_load(&runs));
    ck_assert_int_eq(atomic_load(&runs) + cancelled, ROUNDS);
    close_client();
}
END_TEST

START_TEST(one_completion_counts_while_the_handler_returns)
{
    static int tries = 3;
    pthread_t threads[3];
    int own = 0;

    handler_outcome = IDEM_DEFER;
    ck_assert(test_thread_start(&threads[0], work, NULL));
    ck_assert(test_thread_start(&threads[1], complete, &tries));
    ck_assert(test_thread_start(&threads[2], complete, &tries));
    for (int i = 0; i < ROUNDS; i++) {
        idem_delivery_t *delivery = queued();
        offer(delivery);
        wait_for(&through, 3 * (i + 1));
        /* Where all were too early it is still deferred. */
        if (idem_delivery_complete(delivery, IDEM_ACCEPT) == IDEM_OK) {
            own++;
        }
        (void)idemi_mailbox_run(&mailbox, 0);
        ck_assert_int_eq(atomic_load(&taken) + own, i + 1);
        ck_assert_int_eq(atomic_load(&known) + outcomes, i + 1);
        ck_assert_int_eq(delivery->outcome, IDEM_ACCEPT);
        idemi_delivery_destroy(delivery);
    }
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    }
    ck_assert_uint_eq(atomic_load(&completions->open), 0);
    close_client();
}
END_TEST

START_TEST(completing_is_safe_while_the_client_goes)
{
    static int tries = 1;
    pthread_t thread;

    ck_assert(test_thread_start(&thread, complete, &tries));
    for (int i = 0; i < ROUNDS; i++) {
        idem_delivery_t *delivery = queued();
        ck_assert(!run(delivery, IDEM_DEFER));
        offer(delivery);
        dawdle(i);
        /* As idem_client_destroy() does it. */
        idemi_completions_close(completions);
        (void)idemi_mailbox_run(&mailbox, 0);
        idemi_delivery_destroy(delivery);
        idemi_completions_drop(completions);
        completions = idemi_completions_create(&mailbox);
        ck_assert_ptr_nonnull(completions);
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(atomic_load(&taken), ROUNDS);
    close_client();
}
END_TEST

/* What a handler sees. */

static idem_delivery_t *with_bytes(const char *bytes, size_t size)
{
    idem_delivery_t *delivery = create();

    ck_assert(idemi_delivery_reserve(delivery, size));
    if (size > 0) {
        memcpy(delivery->encoded, bytes, size);
    }
    delivery->encoded_size = size;
    return delivery;
}

START_TEST(bytes_survive_growing)
{
    enum { PIECE = 1000, COUNT = 100 };
    idem_delivery_t *delivery = idemi_delivery_create(completions, 10);

    ck_assert_ptr_nonnull(delivery);
    for (int i = 0; i < COUNT; i++) {
        ck_assert(idemi_delivery_reserve(delivery, PIECE));
        memset(delivery->encoded + delivery->encoded_size, i, PIECE);
        delivery->encoded_size += PIECE;
    }
    size_t size = 0;
    const unsigned char *bytes = idem_delivery_encoded(delivery, &size);
    ck_assert_uint_eq(size, PIECE * COUNT);
    for (size_t i = 0; i < size; i++) {
        ck_assert_int_eq(bytes[i], (int)(i / PIECE));
    }
    ck_assert(!idemi_delivery_reserve(delivery, SIZE_MAX - 5));
    ck_assert_ptr_null(idemi_delivery_create(completions, SIZE_MAX - 5));
    idemi_delivery_destroy(delivery);
    close_client();
}
END_TEST

START_TEST(empty_delivery_is_never_decoded)
{
    idem_delivery_t *delivery = with_bytes("", 0);

    ck_assert_ptr_null(idem_delivery_message(delivery));
    idemi_delivery_destroy(delivery);
    close_client();
}
END_TEST

START_TEST(message_is_decoded_once_and_cleanly)
{
    /* Durable, message-id "a"; then one that says nothing of either. */
    static const char first[] = "\x00\x53\x70\xc0\x02\x01\x41"
                                "\x00\x53\x73\xc0\x04\x01\xa1\x01"
                                "a\x00\x53\x77\x40";
    static const char second[] = "\x00\x53\x77\x40";
    idem_delivery_t *delivery = with_bytes(first, sizeof first - 1);
    pn_message_t *message = idem_delivery_message(delivery);

    ck_assert_ptr_nonnull(message);
    ck_assert(pn_message_is_durable(message));
    ck_assert_int_eq(pn_message_get_id(message).type, PN_STRING);
    ck_assert_ptr_eq(idem_delivery_message(delivery), message);
    idemi_delivery_release_message(delivery);
    idemi_delivery_destroy(delivery);

    delivery = with_bytes(second, sizeof second - 1);
    message = idem_delivery_message(delivery);
    ck_assert_ptr_nonnull(message);
    ck_assert(!pn_message_is_durable(message));
    ck_assert_int_eq(pn_message_get_id(message).type, PN_NULL);
    idemi_delivery_destroy(delivery);
    close_client();
}
END_TEST

START_TEST(message_that_proton_would_cut_is_not_decoded)
{
    idem_delivery_t *delivery = with_bytes("\x00\x53\x77\x40", 4);

    delivery->is_beyond_proton = true;
    ck_assert_ptr_null(idem_delivery_message(delivery));
    idemi_delivery_destroy(delivery);
    close_client();
}
END_TEST

START_TEST(reject_keeps_its_reason)
{
    idem_delivery_t *delivery = create();
    char longest[600];

    ck_assert_str_eq(idemi_delivery_condition(delivery), "idem:rejected");
    ck_assert_ptr_null(idemi_delivery_description(delivery));
    ck_assert_int_eq(idem_delivery_reject(delivery, "a:b", "c"), IDEM_REJECT);
    ck_assert_str_eq(idemi_delivery_condition(delivery), "a:b");
    ck_assert_str_eq(idemi_delivery_description(delivery), "c");
    ck_assert_int_eq(idem_delivery_reject(delivery, NULL, NULL), IDEM_REJECT);
    ck_assert_str_eq(idemi_delivery_condition(delivery), "idem:rejected");
    ck_assert_ptr_null(idemi_delivery_description(delivery));
    ck_assert_int_eq(idem_delivery_reject(NULL, "a:b", "c"), IDEM_REJECT);

    /* Cut where a character ends: 254 bytes before a two-byte one. */
    memset(longest, 'x', sizeof longest);
    memcpy(longest + 254, "\xc3\xa9", 2);
    longest[sizeof longest - 1] = '\0';
    (void)idem_delivery_reject(delivery, longest, longest);
    ck_assert_uint_eq(strlen(idemi_delivery_condition(delivery)),
                      IDEMI_CONDITION_BYTES - 1);
    ck_assert_uint_eq(strlen(idemi_delivery_description(delivery)), 254);

    /* What could not be sent is replaced: a symbol is ASCII, a string UTF-8.
     */
    (void)idem_delivery_reject(delivery, "a\xc3\xa9", "b\xff\xc3\xa9");
    ck_assert_str_eq(idemi_delivery_condition(delivery), "a??");
    ck_assert_str_eq(idemi_delivery_description(delivery), "b???");
    (void)idem_delivery_reject(delivery, "a", "b\xc3\xa9");
    ck_assert_str_eq(idemi_delivery_description(delivery), "b\xc3\xa9");

    /* The engine's own reason comes first. */
    delivery->entry.condition = "idem:attempts-exceeded";
    ck_assert_str_eq(idemi_delivery_condition(delivery),
                     "idem:attempts-exceeded");
    ck_assert_ptr_null(idemi_delivery_description(delivery));
    idemi_delivery_destroy(delivery);
    close_client();
}
END_TEST

START_TEST(parts_that_are_missing_are_null)
{
    idem_delivery_t *delivery = create();

    ck_assert_ptr_null(idem_delivery_key(delivery));
    ck_assert_ptr_null(idem_delivery_group_id(delivery));
    ck_assert(!idem_delivery_is_lease_lost(delivery));
    memcpy(delivery->key, "q/1", 4);
    ck_assert_str_eq(idem_delivery_key(delivery), "q/1");
    idemi_delivery_destroy(delivery);
    idemi_delivery_destroy(NULL);
    close_client();
}
END_TEST

START_TEST(no_delivery_is_no_crash)
{
    size_t size = 7;

    ck_assert_ptr_null(idem_delivery_message(NULL));
    ck_assert_ptr_null(idem_delivery_encoded(NULL, &size));
    ck_assert_uint_eq(size, 0);
    ck_assert_ptr_null(idem_delivery_encoded(NULL, NULL));
    ck_assert_ptr_null(idem_delivery_key(NULL));
    ck_assert_ptr_null(idem_delivery_group_id(NULL));
    ck_assert_ptr_null(idem_delivery_address(NULL));
    ck_assert_uint_eq(idem_delivery_count(NULL), 0);
    ck_assert_uint_eq(idem_delivery_attempts(NULL), 0);
    ck_assert(!idem_delivery_is_lease_lost(NULL));
    close_client();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("delivery");
    TCase *tcase = tcase_create("delivery");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 40);
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, outcome_of_handler_is_known_when_it_returns);
    tcase_add_test(tcase, outcome_nobody_knows_is_a_retry);
    tcase_add_test(tcase, cancelled_delivery_does_not_start);
    tcase_add_test(tcase, started_delivery_is_not_cancelled);
    tcase_add_test(tcase, cancelled_delivery_may_go_before_the_worker_sees_it);
    tcase_add_test(tcase, cancelled_delivery_is_queued_again_in_its_place);
    tcase_add_test(tcase, delivery_whose_lease_is_over_does_not_start);
    tcase_add_test(tcase,
                   completing_early_takes_effect_when_the_handler_defers);
    tcase_add_test(tcase, returned_outcome_counts_before_an_early_completion);
    tcase_add_test(tcase, completing_later_brings_the_outcome_by_the_mailbox);
    tcase_add_test(tcase, completing_what_was_not_deferred_is_an_error);
    tcase_add_test(tcase, completing_needs_an_outcome);
    tcase_add_test(tcase,
                   completing_after_the_client_is_gone_frees_the_delivery);
    tcase_add_test(tcase,
                   completing_while_the_client_goes_leaves_the_delivery_to_it);
    tcase_add_test(tcase, start_and_cancel_have_one_winner);
    tcase_add_test(tcase, one_completion_counts_while_the_handler_returns);
    tcase_add_test(tcase, completing_is_safe_while_the_client_goes);
    tcase_add_test(tcase, bytes_survive_growing);
    tcase_add_test(tcase, empty_delivery_is_never_decoded);
    tcase_add_test(tcase, message_is_decoded_once_and_cleanly);
    tcase_add_test(tcase, message_that_proton_would_cut_is_not_decoded);
    tcase_add_test(tcase, reject_keeps_its_reason);
    tcase_add_test(tcase, parts_that_are_missing_are_null);
    tcase_add_test(tcase, no_delivery_is_no_crash);
    return test_run(suite);
}
