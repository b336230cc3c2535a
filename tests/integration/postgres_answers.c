/* What each operation answers for a key in each state, and what the row is
 * afterwards: alone, and in one batch with all others. */

#include "store_rig.h"
#include "support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The states a row can be in, seen by the owner "me". */
typedef enum row {
    ROW_ABSENT,
    ROW_OURS,
    ROW_THEIRS,
    ROW_DEAD,      /* theirs, expired */
    ROW_OURS_DEAD, /* ours, expired */
    ROW_FREE,
    ROW_CONFIRMED,
    ROWS
} row_t;

static const char *const row_names[ROWS] = {
    "absent", "ours", "theirs", "dead", "ours, dead", "free", "confirmed"};

typedef struct expected {
    idemi_op_kind_t kind;
    bool failed; /* of a release */
    row_t row;
    idemi_answer_t answer;
    uint32_t attempts; /* in the answer, where the answer has them */
    bool suspect;
    const char *look; /* the row afterwards; NULL: there is none */
} expected_t;

#define LEASE 30000
#define BEFORE 3 /* attempts that each row has seen */

static const expected_t table[] = {
    {IDEMI_OP_CLAIM, false, ROW_ABSENT, IDEMI_ANSWER_NEW, 0, false,
     "CLAIMED|me|0|t"},
    {IDEMI_OP_CLAIM, false, ROW_OURS, IDEMI_ANSWER_NEW, 3, false,
     "CLAIMED|me|3|t"},
    {IDEMI_OP_CLAIM, false, ROW_THEIRS, IDEMI_ANSWER_IN_PROGRESS, 3, false,
     "CLAIMED|they|3|t"},
    {IDEMI_OP_CLAIM, false, ROW_DEAD, IDEMI_ANSWER_EXPIRED, 3, true,
     "CLAIMED|they|3|f"},
    {IDEMI_OP_CLAIM, false, ROW_OURS_DEAD, IDEMI_ANSWER_EXPIRED, 3, false,
     "CLAIMED|me|3|f"},
    {IDEMI_OP_CLAIM, false, ROW_FREE, IDEMI_ANSWER_EXPIRED, 3, false,
     "CLAIMED||3|f"},
    {IDEMI_OP_CLAIM, false, ROW_CONFIRMED, IDEMI_ANSWER_DONE, 0, false,
     "CONFIRMED||3|t"},

    {IDEMI_OP_TAKEOVER, false, ROW_ABSENT, IDEMI_ANSWER_NEW, 0, false,
     "CLAIMED|me|0|t"},
    {IDEMI_OP_TAKEOVER, false, ROW_OURS, IDEMI_ANSWER_NEW, 3, false,
     "CLAIMED|me|3|t"},
    {IDEMI_OP_TAKEOVER, false, ROW_THEIRS, IDEMI_ANSWER_IN_PROGRESS, 3, false,
     "CLAIMED|they|3|t"},
    {IDEMI_OP_TAKEOVER, false, ROW_DEAD, IDEMI_ANSWER_NEW, 4, false,
     "CLAIMED|me|4|t"},
    {IDEMI_OP_TAKEOVER, false, ROW_OURS_DEAD, IDEMI_ANSWER_NEW, 3, false,
     "CLAIMED|me|3|t"},
    {IDEMI_OP_TAKEOVER, false, ROW_FREE, IDEMI_ANSWER_NEW, 3, false,
     "CLAIMED|me|3|t"},
    {IDEMI_OP_TAKEOVER, false, ROW_CONFIRMED, IDEMI_ANSWER_DONE, 0, false,
     "CONFIRMED||3|t"},

    /* A row that a confirm had to make keeps its token. */
    {IDEMI_OP_CONFIRM, false, ROW_ABSENT, IDEMI_ANSWER_DONE, 0, false,
     "CONFIRMED|me|0|t"},
    {IDEMI_OP_CONFIRM, false, ROW_OURS, IDEMI_ANSWER_DONE, 0, false,
     "CONFIRMED||3|t"},
    {IDEMI_OP_CONFIRM, false, ROW_THEIRS, IDEMI_ANSWER_IN_PROGRESS, 3, false,
     "CLAIMED|they|3|t"},
    {IDEMI_OP_CONFIRM, false, ROW_DEAD, IDEMI_ANSWER_DONE, 0, false,
     "CONFIRMED||3|t"},
    {IDEMI_OP_CONFIRM, false, ROW_OURS_DEAD, IDEMI_ANSWER_DONE, 0, false,
     "CONFIRMED||3|t"},
    {IDEMI_OP_CONFIRM, false, ROW_FREE, IDEMI_ANSWER_DONE, 0, false,
     "CONFIRMED||3|t"},
    {IDEMI_OP_CONFIRM, false, ROW_CONFIRMED, IDEMI_ANSWER_DONE, 0, false,
     "CONFIRMED||3|t"},

    {IDEMI_OP_RENEW, false, ROW_ABSENT, IDEMI_ANSWER_LOST, 0, false, NULL},
    {IDEMI_OP_RENEW, false, ROW_OURS, IDEMI_ANSWER_NEW, 0, false,
     "CLAIMED|me|3|t"},
    {IDEMI_OP_RENEW, false, ROW_THEIRS, IDEMI_ANSWER_LOST, 0, false,
     "CLAIMED|they|3|t"},
    {IDEMI_OP_RENEW, false, ROW_DEAD, IDEMI_ANSWER_LOST, 0, false,
     "CLAIMED|they|3|f"},
    {IDEMI_OP_RENEW, false, ROW_OURS_DEAD, IDEMI_ANSWER_NEW, 0, false,
     "CLAIMED|me|3|t"},
    {IDEMI_OP_RENEW, false, ROW_FREE, IDEMI_ANSWER_LOST, 0, false,
     "CLAIMED||3|f"},
    {IDEMI_OP_RENEW, false, ROW_CONFIRMED, IDEMI_ANSWER_LOST, 0, false,
     "CONFIRMED||3|t"},

    {IDEMI_OP_RELEASE, false, ROW_ABSENT, IDEMI_ANSWER_FREED, 0, false, NULL},
    {IDEMI_OP_RELEASE, false, ROW_OURS, IDEMI_ANSWER_FREED, 0, false,
     "CLAIMED||3|f"},
    {IDEMI_OP_RELEASE, true, ROW_OURS, IDEMI_ANSWER_FREED, 0, false,
     "CLAIMED||4|f"},
    {IDEMI_OP_RELEASE, true, ROW_THEIRS, IDEMI_ANSWER_FREED, 0, false,
     "CLAIMED|they|3|t"},
    {IDEMI_OP_RELEASE, true, ROW_DEAD, IDEMI_ANSWER_FREED, 0, false,
     "CLAIMED|they|3|f"},
    {IDEMI_OP_RELEASE, true, ROW_OURS_DEAD, IDEMI_ANSWER_FREED, 0, false,
     "CLAIMED||4|f"},
    {IDEMI_OP_RELEASE, true, ROW_FREE, IDEMI_ANSWER_FREED, 0, false,
     "CLAIMED||3|f"},
    {IDEMI_OP_RELEASE, true, ROW_CONFIRMED, IDEMI_ANSWER_FREED, 0, false,
     "CONFIRMED||3|t"},

    {IDEMI_OP_FIND, false, ROW_ABSENT, IDEMI_ANSWER_ABSENT, 0, false, NULL},
    {IDEMI_OP_FIND, false, ROW_OURS, IDEMI_ANSWER_ABSENT, 0, false,
     "CLAIMED|me|3|t"},
    {IDEMI_OP_FIND, false, ROW_FREE, IDEMI_ANSWER_ABSENT, 0, false,
     "CLAIMED||3|f"},
    {IDEMI_OP_FIND, false, ROW_CONFIRMED, IDEMI_ANSWER_DONE, 0, false,
     "CONFIRMED||3|t"},

    {IDEMI_OP_RECORD, false, ROW_ABSENT, IDEMI_ANSWER_DONE, 0, false,
     "CONFIRMED||0|t"},
    {IDEMI_OP_RECORD, false, ROW_OURS, IDEMI_ANSWER_DONE, 0, false,
     "CONFIRMED||3|t"},
    {IDEMI_OP_RECORD, false, ROW_THEIRS, IDEMI_ANSWER_DONE, 0, false,
     "CONFIRMED||3|t"},
    {IDEMI_OP_RECORD, false, ROW_FREE, IDEMI_ANSWER_DONE, 0, false,
     "CONFIRMED||3|t"},
    {IDEMI_OP_RECORD, false, ROW_CONFIRMED, IDEMI_ANSWER_DONE, 0, false,
     "CONFIRMED||3|t"},
};
enum { CASES = sizeof table / sizeof *table };

static store_rig_t rig;

static void start(void)
{
    store_rig_start(&rig);
}

static void finish(void)
{
    store_rig_finish(&rig);
}

static void put_row(const char *key, row_t row)
{
    switch (row) {
    case ROW_OURS:
        store_rig_row(&rig, key, "CLAIMED", "me", 2 * LEASE, BEFORE);
        break;
    case ROW_THEIRS:
        store_rig_row(&rig, key, "CLAIMED", "they", 2 * LEASE, BEFORE);
        break;
    case ROW_DEAD:
        store_rig_row(&rig, key, "CLAIMED", "they", -1000, BEFORE);
        break;
    case ROW_OURS_DEAD:
        store_rig_row(&rig, key, "CLAIMED", "me", -1000, BEFORE);
        break;
    case ROW_FREE:
        store_rig_row(&rig, key, "CLAIMED", NULL, -1000, BEFORE);
        break;
    case ROW_CONFIRMED:
        store_rig_row(&rig, key, "CONFIRMED", NULL, 2 * LEASE, BEFORE);
        break;
    default:
        break;
    }
}

static void check_remaining(const question_t *question,
                            const expected_t *expected, const char *what)
{
    int64_t least = 0;
    int64_t most = 0;

    if (expected->answer == IDEMI_ANSWER_NEW) {
        /* Our own claim that was found has what is left of it; the others
         * begin a lease. */
        most = expected->kind == IDEMI_OP_CLAIM && expected->row == ROW_OURS
                   ? 2 * LEASE
                   : LEASE;
    } else if (expected->answer == IDEMI_ANSWER_IN_PROGRESS) {
        most = 2 * LEASE;
    } else {
        return;
    }
    least = most - 20000;
    ck_assert_msg(
        question->op.remaining_ms > least && question->op.remaining_ms <= most,
        "%s: %lld ms remain", what, (long long)question->op.remaining_ms);
    ck_assert_msg(question->op.sent_at_ms <= test_now_ms() &&
                      question->op.sent_at_ms > test_now_ms() - 20000,
                  "%s: sent at %lld", what, (long long)question->op.sent_at_ms);
}

static void check_case(const question_t *question, const expected_t *expected)
{
    char what[96];
    char *look = store_rig_look(&rig, question->key);

    snprintf(what, sizeof what, "operation %d on a key that is %s",
             (int)expected->kind, row_names[expected->row]);
    ck_assert_msg(question->op.answer == expected->answer, "%s: %s, not %s",
                  what, answer_name(question->op.answer),
                  answer_name(expected->answer));
    ck_assert_msg(question->op.attempts == expected->attempts,
                  "%s: %u attempts", what, (unsigned)question->op.attempts);
    ck_assert_msg(question->op.suspect == expected->suspect, "%s: suspect %d",
                  what, question->op.suspect);
    check_remaining(question, expected, what);
    ck_assert_msg(look == NULL || expected->look == NULL
                      ? look == expected->look
                      : strcmp(look, expected->look) == 0,
                  "%s: the row is %s", what, look ? look : "absent");
    free(look);
}

static void set(question_t *question, int i)
{
    char key[32];

    snprintf(key, sizeof key, "key-%d", i);
    put_row(key, table[i].row);
    question_set(question, table[i].kind, key, "me");
    question->op.failed = table[i].failed;
}

START_TEST(each_operation_answers_what_the_row_says)
{
    question_t question;

    set(&question, _i);
    ck_assert(asker_ask(rig.asker, &question, 1, 20000));
    check_case(&question, &table[_i]);
}
END_TEST

START_TEST(a_mixed_batch_answers_as_single_operations_do)
{
    question_t *questions = calloc(CASES, sizeof *questions);

    ck_assert_ptr_nonnull(questions);
    for (int i = 0; i < CASES; i++) {
        set(&questions[i], i);
    }
    ck_assert(asker_ask(rig.asker, questions, CASES, 20000));
    for (int i = 0; i < CASES; i++) {
        check_case(&questions[i], &table[i]);
    }
    free(questions);
}
END_TEST

/* Above some number of keys a claim is another statement. */
START_TEST(a_large_batch_of_claims_answers_as_a_small_one)
{
    enum { COPIES = 40 };
    question_t *questions = calloc((size_t)COPIES * ROWS, sizeof *questions);

    ck_assert_ptr_nonnull(questions);
    for (int i = 0; i < COPIES * ROWS; i++) {
        char key[32];
        snprintf(key, sizeof key, "%d-key", i * 7919 % 1000);
        put_row(key, (row_t)(i % ROWS));
        question_set(&questions[i], IDEMI_OP_CLAIM, key, "me");
    }
    ck_assert(asker_ask(rig.asker, questions, (size_t)COPIES * ROWS, 20000));
    for (int i = 0; i < COPIES * ROWS; i++) {
        /* The table begins with the claims, in the order of rows. */
        check_case(&questions[i], &table[i % ROWS]);
    }
    free(questions);
}
END_TEST

/* An answer may be lost on its way; the question is asked again. */
START_TEST(asking_again_with_the_same_token_changes_nothing)
{
    question_t q = store_rig_ask(&rig, IDEMI_OP_CLAIM, "k", "me");

    ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_NEW);
    q = store_rig_ask(&rig, IDEMI_OP_CLAIM, "k", "me");
    ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_NEW);

    store_rig_row(&rig, "dead", "CLAIMED", "they", -1000, 0);
    for (int i = 0; i < 3; i++) {
        q = store_rig_ask(&rig, IDEMI_OP_TAKEOVER, "dead", "me");
        ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_NEW);
        ck_assert_uint_eq(q.op.attempts, 1);
    }
    for (int i = 0; i < 3; i++) {
        question_set(&q, IDEMI_OP_RELEASE, "dead", "me");
        q.op.failed = true;
        ck_assert(asker_ask(rig.asker, &q, 1, 20000));
        ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_FREED);
    }
    ck_assert_int_eq(store_rig_int(&rig,
                                   "SELECT attempts FROM %s WHERE message_id = "
                                   "'dead'"),
                     2);
    for (int i = 0; i < 3; i++) {
        q = store_rig_ask(&rig, IDEMI_OP_CONFIRM, "k", "me");
        ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_DONE);
    }
}
END_TEST

/* C04: a token is a fence. */
START_TEST(a_lost_owner_can_neither_confirm_nor_renew_nor_release)
{
    question_t q;
    char *look;

    store_rig_row(&rig, "k", "CLAIMED", "old", -1, 0);
    q = store_rig_ask(&rig, IDEMI_OP_TAKEOVER, "k", "new");
    ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_NEW);
    q = store_rig_ask(&rig, IDEMI_OP_CONFIRM, "k", "old");
    ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_IN_PROGRESS);
    q = store_rig_ask(&rig, IDEMI_OP_RENEW, "k", "old");
    ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_LOST);
    q = store_rig_ask(&rig, IDEMI_OP_RELEASE, "k", "old");
    ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_FREED);
    look = store_rig_look(&rig, "k");
    ck_assert_str_eq(look, "CLAIMED|new|1|t");
    free(look);
    q = store_rig_ask(&rig, IDEMI_OP_CONFIRM, "k", "new");
    ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_DONE);
}
END_TEST

/* A15, and section 8 of the protocol's text rules: nothing needs quoting. */
START_TEST(hostile_keys_stay_themselves)
{
    static const char *const keys[] = {
        "'; DROP TABLE idem_message; --",
        "\"quoted\"",
        "back\\slash",
        "{1,2}",
        "NULL",
        "null",
        " blanks ",
        " blanks",
        "blanks ",
        "$1",
        "%s",
        "\n\t\r",
        "\x01\x02",
        "\xc3\xa4",
        "a\xcc\x88", /* the same letter, decomposed */
        "\xf0\x9f\x98\x80",
        "A",
        "a",
    };
    enum { KEYS = sizeof keys / sizeof *keys };
    question_t questions[KEYS + 2];
    char longest[IDEM_KEY_BYTES + 1];
    char shorter[IDEM_KEY_BYTES];

    memset(longest, 'x', sizeof longest);
    longest[IDEM_KEY_BYTES] = '\0';
    memset(shorter, 'x', sizeof shorter);
    shorter[IDEM_KEY_BYTES - 1] = '\0';
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < KEYS; i++) {
            question_set(&questions[i], IDEMI_OP_CLAIM, keys[i],
                         round ? "b" : "a");
        }
        question_set(&questions[KEYS], IDEMI_OP_CLAIM, longest, "a");
        question_set(&questions[KEYS + 1], IDEMI_OP_CLAIM, shorter, "a");
        ck_assert(asker_ask(rig.asker, questions, KEYS + 2, 20000));
        for (int i = 0; i < KEYS; i++) {
            ck_assert_msg(
                questions[i].op.answer ==
                    (round ? IDEMI_ANSWER_IN_PROGRESS : IDEMI_ANSWER_NEW),
                "%s: %s", keys[i], answer_name(questions[i].op.answer));
        }
    }
    ck_assert_int_eq(store_rig_int(&rig, "SELECT count(*) FROM %s"), KEYS + 2);
}
END_TEST

/* C10: what a consumer gets twice in one window. */
START_TEST(the_same_key_twice_at_once_gives_two_answers)
{
    question_t questions[3];

    question_set(&questions[0], IDEMI_OP_CLAIM, "k", "a");
    question_set(&questions[1], IDEMI_OP_CLAIM, "k", "b");
    question_set(&questions[2], IDEMI_OP_CLAIM, "j", "c");
    ck_assert(asker_ask(rig.asker, questions, 3, 20000));
    ck_assert_int_eq(questions[0].op.answer, IDEMI_ANSWER_NEW);
    ck_assert_int_eq(questions[1].op.answer, IDEMI_ANSWER_IN_PROGRESS);
    ck_assert_int_eq(questions[2].op.answer, IDEMI_ANSWER_NEW);
}
END_TEST

/* Far ends of time that a human may have written. */
START_TEST(infinite_leases_are_in_progress)
{
    question_t q;

    store_rig_exec(&rig,
                   "INSERT INTO %s (message_id, state, claimed_by, "
                   "recorded_at, expires_at) VALUES ('ever', 'CLAIMED', "
                   "'they', now(), 'infinity'), ('past', 'CLAIMED', 'they', "
                   "now(), '-infinity')");
    q = store_rig_ask(&rig, IDEMI_OP_CLAIM, "ever", "me");
    ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_IN_PROGRESS);
    ck_assert_int_gt(q.op.remaining_ms, LEASE);
    q = store_rig_ask(&rig, IDEMI_OP_CLAIM, "past", "me");
    ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_EXPIRED);
}
END_TEST

/* What a table may hold that others share: each row is its own key's affair. */
START_TEST(rows_that_others_wrote_differently_hold_up_nobody)
{
    static const struct {
        const char *key;
        idemi_answer_t answer;
    } rows[] = {
        {"no-state", IDEMI_ANSWER_IN_PROGRESS},
        {"other-state", IDEMI_ANSWER_IN_PROGRESS},
        {"no-end", IDEMI_ANSWER_IN_PROGRESS},
        {"free-without-end", IDEMI_ANSWER_IN_PROGRESS},
        {"free-later", IDEMI_ANSWER_IN_PROGRESS},
        {"no-count", IDEMI_ANSWER_EXPIRED},
        {"less-than-none", IDEMI_ANSWER_EXPIRED},
        {"none", IDEMI_ANSWER_NEW},
    };
    enum { ODD = sizeof rows / sizeof *rows };
    question_t questions[ODD];
    question_t q;

    store_rig_exec(&rig, "ALTER TABLE %s ALTER state DROP NOT NULL, ALTER "
                         "expires_at DROP NOT NULL, ALTER attempts DROP NOT "
                         "NULL");
    store_rig_exec(
        &rig,
        "INSERT INTO %s (message_id, state, claimed_by, recorded_at, "
        "expires_at, attempts) VALUES "
        "('no-state', NULL, 'they', now(), now() - interval '1 s', 0), "
        "('other-state', 'FAILED', 'they', now(), now() - interval '1 s', 0), "
        "('no-end', 'CLAIMED', 'they', now(), NULL, 0), "
        "('free-without-end', 'CLAIMED', NULL, now(), NULL, 0), "
        "('free-later', 'CLAIMED', NULL, now(), now() + interval '1 h', 0), "
        "('no-count', 'CLAIMED', 'they', now(), now() - interval '1 s', "
        "NULL), "
        "('less-than-none', 'CLAIMED', NULL, now(), now() - interval '1 s', "
        "-5)");
    for (int i = 0; i < ODD; i++) {
        question_set(&questions[i], IDEMI_OP_CLAIM, rows[i].key, "me");
    }
    ck_assert(asker_ask(rig.asker, questions, ODD, 10000));
    for (int i = 0; i < ODD; i++) {
        ck_assert_msg(questions[i].op.answer == rows[i].answer, "%s: %s",
                      rows[i].key, answer_name(questions[i].op.answer));
        ck_assert_uint_eq(questions[i].op.attempts, 0);
    }
    for (int i = 0; i < ODD - 3; i++) {
        q = store_rig_ask(&rig, IDEMI_OP_TAKEOVER, rows[i].key, "me");
        ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_IN_PROGRESS);
        q = store_rig_ask(&rig, IDEMI_OP_CONFIRM, rows[i].key, "me");
        ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_IN_PROGRESS);
    }
    q = store_rig_ask(&rig, IDEMI_OP_TAKEOVER, "no-count", "me");
    ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_NEW);
    ck_assert_uint_eq(q.op.attempts, 1);
    q = store_rig_ask(&rig, IDEMI_OP_TAKEOVER, "less-than-none", "me");
    ck_assert_int_eq(q.op.answer, IDEMI_ANSWER_NEW);
    ck_assert_uint_eq(q.op.attempts, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("postgres answers");
    TCase *tcase = tcase_create("answers");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, start, finish);
    tcase_add_loop_test(tcase, each_operation_answers_what_the_row_says, 0,
                        CASES);
    tcase_add_test(tcase, a_mixed_batch_answers_as_single_operations_do);
    tcase_add_test(tcase, a_large_batch_of_claims_answers_as_a_small_one);
    tcase_add_test(tcase, asking_again_with_the_same_token_changes_nothing);
    tcase_add_test(tcase,
                   a_lost_owner_can_neither_confirm_nor_renew_nor_release);
    tcase_add_test(tcase, hostile_keys_stay_themselves);
    tcase_add_test(tcase, the_same_key_twice_at_once_gives_two_answers);
    tcase_add_test(tcase, infinite_leases_are_in_progress);
    tcase_add_test(tcase, rows_that_others_wrote_differently_hold_up_nobody);
    return test_run(suite);
}
