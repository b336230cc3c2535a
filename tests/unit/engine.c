/* Single promises of the engine, one short story each; tests/sim tries them in
 * random worlds. */
#include "engine/engine.h"
#include "support.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define PREFETCH 4
#define LEASE_MS 3000
#define MOST 64

static idemi_engine_t *engine;
static idemi_entry_t entries[MOST];
static int64_t now = 1000;

/* What was commanded since the last look. */
static struct {
    idemi_entry_t *store[MOST], *run[MOST], *cancel[MOST], *settle[MOST];
    size_t stores, runs, cancels, settles, forgets;
    uint32_t credit;
    bool lease_lost;
} seen;

static void look(void)
{
    idemi_command_t command;

    memset(&seen, 0, sizeof seen);
    while (idemi_engine_next(engine, &command)) {
        switch (command.kind) {
        case IDEMI_COMMAND_STORE:
            seen.store[seen.stores++] = command.entry;
            break;
        case IDEMI_COMMAND_RUN:
            seen.run[seen.runs++] = command.entry;
            break;
        case IDEMI_COMMAND_CANCEL:
            seen.cancel[seen.cancels++] = command.entry;
            seen.lease_lost |= command.lease_lost;
            break;
        case IDEMI_COMMAND_SETTLE:
            seen.settle[seen.settles++] = command.entry;
            break;
        case IDEMI_COMMAND_FORGET:
            seen.forgets++;
            break;
        case IDEMI_COMMAND_CREDIT:
            seen.credit += command.credit;
            break;
        }
    }
}

static void setup_with(bool has_store, uint32_t max_attempts)
{
    idemi_engine_config_t config = {
        .prefetch = PREFETCH,
        .has_store = has_store,
        .renew_ms = LEASE_MS / 3,
        .retry_min_ms = 200,
        .retry_max_ms = 10000,
        .max_attempts = max_attempts,
        .token_prefix = "test",
        .seed = 1,
    };

    memset(entries, 0, sizeof entries);
    ck_assert_int_eq(idemi_engine_create(&engine, &config), IDEM_OK);
    idemi_engine_link_up(engine, now);
    look();
    ck_assert_uint_eq(seen.credit, PREFETCH);
}

static void setup(void)
{
    setup_with(true, 3);
}

static void teardown(void)
{
    while (idemi_engine_take(engine)) {
    }
    idemi_engine_destroy(engine);
}

static idemi_entry_t *arrive(size_t i, const char *key, const char *group)
{
    idemi_entry_t *entry = &entries[i];

    entry->verdict = key ? IDEMI_VERDICT_KEYED : IDEMI_VERDICT_UNKEYED;
    entry->key = key;
    entry->key_size = key ? strlen(key) : 0;
    entry->group = group;
    entry->group_size = group ? strlen(group) : 0;
    ck_assert(idemi_engine_arrived(engine, entry, now));
    look();
    return entry;
}

static void answer_with(idemi_entry_t *entry, idemi_answer_t answer,
                        bool suspect, uint32_t attempts, int64_t remaining_ms)
{
    entry->op.answer = answer;
    entry->op.suspect = suspect;
    entry->op.attempts = attempts;
    entry->op.remaining_ms = remaining_ms;
    entry->op.sent_at_ms = now;
    idemi_engine_answered(engine, entry, now);
    look();
}

static void answer(idemi_entry_t *entry, idemi_answer_t what)
{
    answer_with(entry, what, false, 0, LEASE_MS);
}

static void handle(idemi_entry_t *entry, idem_outcome_t outcome)
{
    idemi_engine_handled(engine, entry, true, outcome, now);
    look();
}

static void wait_for(int64_t ms)
{
    now += ms;
    idemi_engine_tick(engine, now);
    look();
}

static idem_consumer_statistics_t counts(void)
{
    idem_consumer_statistics_t statistics;

    idemi_engine_statistics(engine, &statistics);
    return statistics;
}

START_TEST(accepted_only_after_its_confirm)
{
    idemi_entry_t *a = arrive(0, "a", NULL);

    ck_assert(seen.stores == 1 && a->op.kind == IDEMI_OP_CLAIM);
    ck_assert_uint_eq(seen.runs, 0);
    answer(a, IDEMI_ANSWER_NEW);
    ck_assert(seen.runs == 1 && seen.run[0] == a);
    handle(a, IDEM_ACCEPT);
    ck_assert(seen.stores == 1 && a->op.kind == IDEMI_OP_CONFIRM);
    ck_assert_uint_eq(seen.settles, 0);
    answer(a, IDEMI_ANSWER_DONE);
    ck_assert(seen.settles == 1 && seen.forgets == 1);
    ck_assert_int_eq(a->settlement, IDEMI_SETTLE_ACCEPTED);
    ck_assert(idemi_engine_is_idle(engine));
}
END_TEST

START_TEST(confirmed_key_skips_handler)
{
    idemi_entry_t *a = arrive(0, "a", NULL);

    answer(a, IDEMI_ANSWER_DONE);
    ck_assert(seen.runs == 0 && seen.settles == 1);
    ck_assert_int_eq(a->settlement, IDEMI_SETTLE_ACCEPTED);
    ck_assert_uint_eq(counts().duplicates, 1);
}
END_TEST

START_TEST(copies_in_one_window_are_handled_once)
{
    idemi_entry_t *a = arrive(0, "a", NULL);

    arrive(1, "a", NULL);
    ck_assert_uint_eq(seen.stores, 0);
    arrive(2, "a", NULL);
    answer(a, IDEMI_ANSWER_NEW);
    ck_assert_uint_eq(seen.runs, 1);
    handle(a, IDEM_ACCEPT);
    answer(a, IDEMI_ANSWER_DONE);
    ck_assert(seen.settles == 3 && seen.runs == 0);
    ck_assert_uint_eq(counts().duplicates, 2);
}
END_TEST

START_TEST(copy_behind_a_failure_is_run)
{
    idemi_entry_t *a = arrive(0, "a", NULL);
    idemi_entry_t *b = arrive(1, "a", NULL);

    answer(a, IDEMI_ANSWER_NEW);
    handle(a, IDEM_RETRY);
    ck_assert(a->op.kind == IDEMI_OP_RELEASE && a->op.failed);
    answer(a, IDEMI_ANSWER_FREED);
    ck_assert_uint_eq(seen.settles, 0);
    wait_for(200);
    ck_assert(seen.settles == 1 && a->settlement == IDEMI_SETTLE_FAILED);
    ck_assert(seen.stores == 1 && seen.store[0] == b);
    answer_with(b, IDEMI_ANSWER_EXPIRED, false, 1, 0);
    ck_assert(b->op.kind == IDEMI_OP_TAKEOVER);
    answer_with(b, IDEMI_ANSWER_NEW, false, 1, LEASE_MS);
    ck_assert(seen.runs == 1 && seen.run[0] == b);
}
END_TEST

START_TEST(in_progress_is_held_and_asked_again)
{
    idemi_entry_t *a = arrive(0, "a", NULL);

    answer_with(a, IDEMI_ANSWER_IN_PROGRESS, false, 0, 2000);
    ck_assert(seen.settles == 0 && counts().parked == 1);
    wait_for(idemi_engine_deadline(engine) - now);
    ck_assert(seen.stores == 1 && a->op.kind == IDEMI_OP_CLAIM);
    answer(a, IDEMI_ANSWER_DONE);
    ck_assert_int_eq(a->settlement, IDEMI_SETTLE_ACCEPTED);
}
END_TEST

START_TEST(slow_handler_keeps_its_claim)
{
    idemi_entry_t *a = arrive(0, "a", NULL);

    answer(a, IDEMI_ANSWER_NEW);
    for (int i = 0; i < 12; i++) {
        wait_for(LEASE_MS / 3);
        ck_assert(seen.stores == 1 && a->op.kind == IDEMI_OP_RENEW);
        ck_assert_uint_eq(seen.cancels, 0);
        answer(a, IDEMI_ANSWER_NEW);
    }
    handle(a, IDEM_ACCEPT);
    ck_assert_int_eq(a->op.kind, IDEMI_OP_CONFIRM);
}
END_TEST

START_TEST(handler_is_told_when_its_lease_may_be_lost)
{
    idemi_entry_t *a = arrive(0, "a", NULL);

    answer(a, IDEMI_ANSWER_NEW);
    wait_for(LEASE_MS / 3); /* the renewal is never answered */
    ck_assert_uint_eq(seen.cancels, 0);
    wait_for(LEASE_MS - LEASE_MS / 3);
    ck_assert(seen.cancels == 1 && seen.lease_lost);
}
END_TEST

START_TEST(lost_lease_is_counted_once)
{
    idemi_entry_t *a = arrive(0, "a", NULL);

    answer(a, IDEMI_ANSWER_NEW);
    wait_for(LEASE_MS / 3);
    answer(a, IDEMI_ANSWER_LOST);
    ck_assert(seen.cancels == 1 && seen.lease_lost);
    handle(a, IDEM_ACCEPT);
    ck_assert(seen.stores == 1 && a->op.kind == IDEMI_OP_CONFIRM);
    answer(a, IDEMI_ANSWER_IN_PROGRESS);
    ck_assert_uint_eq(seen.settles, 0);
    ck_assert_uint_eq(counts().leases_lost, 1);
}
END_TEST

START_TEST(delivery_that_was_too_late_to_start_is_claimed_anew)
{
    idemi_entry_t *a = arrive(0, "a", NULL);

    answer(a, IDEMI_ANSWER_NEW);
    ck_assert_uint_eq(seen.runs, 1);
    now += LEASE_MS + 1;
    idemi_engine_handled(engine, a, false, IDEM_RELEASE, now);
    look();
    ck_assert(seen.stores == 1 && a->op.kind == IDEMI_OP_TAKEOVER);
    answer(a, IDEMI_ANSWER_NEW);
    ck_assert(seen.runs == 1 && seen.run[0] == a);
    ck_assert_uint_eq(counts().takeovers, 0);
}
END_TEST

START_TEST(outcome_during_a_renewal_is_confirmed_after_it)
{
    idemi_entry_t *a = arrive(0, "a", NULL);

    answer(a, IDEMI_ANSWER_NEW);
    wait_for(LEASE_MS / 3);
    handle(a, IDEM_ACCEPT);
    ck_assert_uint_eq(seen.stores, 0);
    answer(a, IDEMI_ANSWER_NEW);
    ck_assert(seen.stores == 1 && a->op.kind == IDEMI_OP_CONFIRM);
}
END_TEST

START_TEST(suspect_runs_alone)
{
    idemi_entry_t *a = arrive(0, "a", NULL);
    idemi_entry_t *b = arrive(1, "b", NULL);
    idemi_entry_t *c = arrive(2, "c", NULL);

    answer(a, IDEMI_ANSWER_NEW);
    answer_with(b, IDEMI_ANSWER_EXPIRED, true, 0, 0);
    ck_assert_uint_eq(seen.stores, 0); /* a runs */
    answer(c, IDEMI_ANSWER_NEW);
    ck_assert_uint_eq(seen.runs, 0); /* b is first */
    handle(a, IDEM_ACCEPT);
    ck_assert(b->op.kind == IDEMI_OP_TAKEOVER && seen.runs == 0);
    answer_with(b, IDEMI_ANSWER_NEW, false, 1, LEASE_MS);
    ck_assert(seen.runs == 1 && seen.run[0] == b);
    handle(b, IDEM_ACCEPT);
    ck_assert(seen.runs == 1 && seen.run[0] == c);
    ck_assert_uint_eq(counts().takeovers, 1);
}
END_TEST

START_TEST(too_many_attempts_reject)
{
    idemi_entry_t *a = arrive(0, "a", NULL);

    answer_with(a, IDEMI_ANSWER_EXPIRED, true, 2, 0);
    answer_with(a, IDEMI_ANSWER_NEW, false, 3, LEASE_MS);
    ck_assert_uint_eq(seen.runs, 0);
    ck_assert(a->op.kind == IDEMI_OP_RELEASE && !a->op.failed);
    answer(a, IDEMI_ANSWER_FREED);
    ck_assert(seen.settles == 1 && a->settlement == IDEMI_SETTLE_REJECTED);
    ck_assert_str_eq(a->condition, "idem:attempts-exceeded");
}
END_TEST

START_TEST(back_off_grows_from_delivery_to_delivery)
{
    int64_t last = 0;

    for (size_t i = 0; i < 5; i++) {
        idemi_entry_t *a = arrive(i, "a", NULL);
        answer(a, IDEMI_ANSWER_NEW);
        handle(a, IDEM_RELEASE);
        ck_assert(!a->op.failed);
        answer(a, IDEMI_ANSWER_FREED);
        int64_t pause = idemi_engine_deadline(engine) - now;
        ck_assert_int_ge(pause, (100 << i));
        ck_assert_int_le(pause, (200 << i));
        ck_assert_int_ge(pause, last);
        last = pause / 2;
        wait_for(pause);
        ck_assert_int_eq(a->settlement, IDEMI_SETTLE_RELEASED);
    }
}
END_TEST

START_TEST(window_is_never_exceeded)
{
    for (size_t i = 0; i < PREFETCH; i++) {
        arrive(i, NULL, NULL);
    }
    ck_assert(seen.credit == 0 && counts().unsettled == PREFETCH);
    handle(&entries[0], IDEM_ACCEPT);
    ck_assert_uint_eq(seen.credit, 1);
    idemi_engine_dropped(engine, now); /* an aborted transfer */
    look();
    ck_assert_uint_eq(seen.credit, 1);
}
END_TEST

START_TEST(lost_link_settles_nothing_but_confirms)
{
    idemi_entry_t *a = arrive(0, "a", NULL);
    idemi_entry_t *b = arrive(1, "b", NULL);

    answer(a, IDEMI_ANSWER_NEW);
    answer(b, IDEMI_ANSWER_NEW);
    idemi_engine_link_down(engine, now);
    look();
    ck_assert_uint_eq(seen.cancels, 2);
    ck_assert(!seen.lease_lost);
    idemi_engine_link_up(engine, now);
    look();
    ck_assert_uint_eq(seen.credit, PREFETCH);
    handle(a, IDEM_ACCEPT);
    ck_assert_int_eq(a->op.kind, IDEMI_OP_CONFIRM);
    idemi_engine_handled(engine, b, false, IDEM_RETRY, now);
    look();
    ck_assert_int_eq(b->op.kind, IDEMI_OP_RELEASE);
    answer(b, IDEMI_ANSWER_FREED);
    ck_assert(seen.settles == 0 && seen.forgets == 1);
    answer(a, IDEMI_ANSWER_DONE);
    ck_assert(seen.settles == 0 && seen.forgets == 1);
    ck_assert_uint_eq(counts().unsettled, 0);
}
END_TEST

START_TEST(stop_gives_back_what_has_not_started)
{
    idemi_entry_t *a = arrive(0, "a", NULL);
    idemi_entry_t *b = arrive(1, "b", NULL);
    idemi_entry_t *c = arrive(2, "c", NULL);

    answer(a, IDEMI_ANSWER_NEW);
    answer_with(b, IDEMI_ANSWER_IN_PROGRESS, false, 0, 2000);
    idemi_engine_stop(engine, now);
    look();
    ck_assert(seen.settles == 1 && seen.settle[0] == b);
    ck_assert_int_eq(b->settlement, IDEMI_SETTLE_RELEASED);
    answer(c, IDEMI_ANSWER_NEW);
    ck_assert(seen.runs == 0 && c->op.kind == IDEMI_OP_RELEASE);
    answer(c, IDEMI_ANSWER_FREED);
    ck_assert_int_eq(c->settlement, IDEMI_SETTLE_RELEASED);
    handle(a, IDEM_ACCEPT);
    answer(a, IDEMI_ANSWER_DONE);
    ck_assert_int_eq(a->settlement, IDEMI_SETTLE_ACCEPTED);
    ck_assert(idemi_engine_is_idle(engine));
    ck_assert(counts().given_back == 2 && seen.credit == 0);
    idemi_entry_t *d = arrive(3, "d", NULL);
    ck_assert(seen.settles == 1 && d->settlement == IDEMI_SETTLE_RELEASED);
}
END_TEST

/* A renewal that is due in the very round in which the link is lost (0) or a
 * stop begins (1) was listed for the store, but never asked. */
START_TEST(renewal_that_was_not_asked_yet_holds_up_no_release)
{
    idemi_entry_t *a = arrive(0, "a", NULL);
    idemi_command_t command;

    answer(a, IDEMI_ANSWER_NEW);
    ck_assert(seen.runs == 1 && seen.run[0] == a);
    now += LEASE_MS / 3;
    if (_i == 0) {
        idemi_engine_link_down(engine, now);
    } else {
        idemi_engine_stop(engine, now);
    }
    idemi_engine_tick(engine, now);
    ck_assert(idemi_engine_next(engine, &command));
    ck_assert(command.kind == IDEMI_COMMAND_CANCEL && command.entry == a);
    idemi_engine_handled(engine, a, false, IDEM_RETRY, now);
    look();
    ck_assert(seen.stores == 1 && seen.store[0] == a);
    ck_assert_int_eq(a->op.kind, IDEMI_OP_RELEASE);
    answer(a, IDEMI_ANSWER_FREED);
    ck_assert_uint_eq(seen.forgets, 1);
    ck_assert(idemi_engine_is_idle(engine));
    if (_i == 0) {
        idemi_engine_link_up(engine, now);
        idemi_entry_t *again = arrive(1, "a", NULL);
        ck_assert(seen.stores == 1 && seen.store[0] == again);
        ck_assert_int_eq(again->op.kind, IDEMI_OP_CLAIM);
    }
}
END_TEST

START_TEST(group_waits_for_its_first)
{
    idemi_entry_t *a = arrive(0, "a", "g");
    idemi_entry_t *b = arrive(1, "b", "g");
    idemi_entry_t *c = arrive(2, "c", "h");

    answer_with(a, IDEMI_ANSWER_IN_PROGRESS, false, 0, 100);
    answer(b, IDEMI_ANSWER_NEW);
    ck_assert_uint_eq(seen.runs, 0);
    answer(c, IDEMI_ANSWER_NEW);
    ck_assert(seen.runs == 1 && seen.run[0] == c);
    wait_for(200);
    answer(a, IDEMI_ANSWER_NEW);
    ck_assert(seen.runs == 2 && seen.run[0] == a && seen.run[1] == b);
}
END_TEST

START_TEST(order_of_arrival_survives_answers_out_of_order)
{
    idemi_entry_t *a = arrive(0, "a", NULL);
    idemi_entry_t *b = arrive(1, "b", NULL);

    answer(b, IDEMI_ANSWER_NEW);
    ck_assert_uint_eq(seen.runs, 0);
    answer(a, IDEMI_ANSWER_NEW);
    ck_assert(seen.runs == 2 && seen.run[0] == a && seen.run[1] == b);
}
END_TEST

START_TEST(order_of_arrival_survives_a_free_row)
{
    idemi_entry_t *a = arrive(0, "a", NULL);
    idemi_entry_t *b = arrive(1, "b", NULL);

    answer(a, IDEMI_ANSWER_EXPIRED);
    ck_assert(seen.stores == 1 && a->op.kind == IDEMI_OP_TAKEOVER);
    answer(b, IDEMI_ANSWER_NEW);
    ck_assert_uint_eq(seen.runs, 0);
    answer(a, IDEMI_ANSWER_NEW);
    ck_assert(seen.runs == 2 && seen.run[0] == a && seen.run[1] == b);
}
END_TEST

START_TEST(free_row_that_another_took_holds_up_nothing)
{
    idemi_entry_t *a = arrive(0, "a", NULL);
    idemi_entry_t *b = arrive(1, "b", NULL);

    answer(a, IDEMI_ANSWER_EXPIRED);
    answer(b, IDEMI_ANSWER_NEW);
    answer(a, IDEMI_ANSWER_IN_PROGRESS);
    ck_assert(seen.runs == 1 && seen.run[0] == b);
}
END_TEST

START_TEST(refused_confirm_is_repeated_not_rerun)
{
    idemi_entry_t *a = arrive(0, "a", NULL);

    answer(a, IDEMI_ANSWER_NEW);
    handle(a, IDEM_ACCEPT);
    answer(a, IDEMI_ANSWER_FAILED);
    ck_assert(seen.settles == 0 && seen.runs == 0);
    wait_for(1000);
    ck_assert(seen.stores == 1 && a->op.kind == IDEMI_OP_CONFIRM);
    answer(a, IDEMI_ANSWER_DONE);
    ck_assert_int_eq(a->settlement, IDEMI_SETTLE_ACCEPTED);
}
END_TEST

static void setup_plain(void)
{
    setup_with(false, 0);
}

START_TEST(what_is_no_message_is_rejected)
{
    static const idemi_verdict_t verdicts[] = {IDEMI_VERDICT_UNDECODABLE,
                                               IDEMI_VERDICT_OVERSIZED,
                                               IDEMI_VERDICT_NO_ID};
    static const char *const conditions[] = {
        "amqp:decode-error", "amqp:link:message-size-exceeded", "idem:no-id"};

    for (size_t i = 0; i < 3; i++) {
        entries[i].verdict = verdicts[i];
        ck_assert(idemi_engine_arrived(engine, &entries[i], now));
        look();
        ck_assert(seen.settles == 1 && seen.runs == 0);
        ck_assert_int_eq(entries[i].settlement, IDEMI_SETTLE_REJECTED);
        ck_assert_str_eq(entries[i].condition, conditions[i]);
    }
}
END_TEST

START_TEST(without_a_store_every_delivery_is_handled)
{
    idemi_entry_t *a = arrive(0, "a", NULL);

    ck_assert(seen.runs == 1 && seen.stores == 0);
    idemi_entry_t *b = arrive(1, "a", NULL);
    ck_assert_uint_eq(seen.runs, 1);
    handle(a, IDEM_ACCEPT);
    ck_assert_int_eq(a->settlement, IDEMI_SETTLE_ACCEPTED);
    handle(b, IDEM_REJECT);
    ck_assert_int_eq(b->settlement, IDEMI_SETTLE_REJECTED);
    ck_assert(idemi_engine_is_idle(engine));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine");
    TCase *store = tcase_create("with a store");
    TCase *plain = tcase_create("without a store");

    tcase_add_checked_fixture(store, setup, teardown);
    tcase_add_test(store, accepted_only_after_its_confirm);
    tcase_add_test(store, confirmed_key_skips_handler);
    tcase_add_test(store, copies_in_one_window_are_handled_once);
    tcase_add_test(store, copy_behind_a_failure_is_run);
    tcase_add_test(store, in_progress_is_held_and_asked_again);
    tcase_add_test(store, slow_handler_keeps_its_claim);
    tcase_add_test(store, handler_is_told_when_its_lease_may_be_lost);
    tcase_add_test(store, lost_lease_is_counted_once);
    tcase_add_test(store, delivery_that_was_too_late_to_start_is_claimed_anew);
    tcase_add_test(store, outcome_during_a_renewal_is_confirmed_after_it);
    tcase_add_test(store, suspect_runs_alone);
    tcase_add_test(store, too_many_attempts_reject);
    tcase_add_test(store, back_off_grows_from_delivery_to_delivery);
    tcase_add_test(store, window_is_never_exceeded);
    tcase_add_test(store, lost_link_settles_nothing_but_confirms);
    tcase_add_test(store, stop_gives_back_what_has_not_started);
    tcase_add_loop_test(
        store, renewal_that_was_not_asked_yet_holds_up_no_release, 0, 2);
    tcase_add_test(store, group_waits_for_its_first);
    tcase_add_test(store, order_of_arrival_survives_answers_out_of_order);
    tcase_add_test(store, order_of_arrival_survives_a_free_row);
    tcase_add_test(store, free_row_that_another_took_holds_up_nothing);
    tcase_add_test(store, refused_confirm_is_repeated_not_rerun);
    tcase_add_checked_fixture(plain, setup_plain, teardown);
    tcase_add_test(plain, what_is_no_message_is_rejected);
    tcase_add_test(plain, without_a_store_every_delivery_is_handled);
    suite_add_tcase(suite, store);
    suite_add_tcase(suite, plain);
    return test_run(suite);
}
