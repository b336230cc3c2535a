#include "identity/walk.h"

#include "encoded.h"
#include "support.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static encoded_t message;
static idemi_walk_t walk;

static void finish(void)
{
    encoded_finish(&message);
}

/* A copy without a byte to spare, so that a read beyond the end is seen. */
static bool walk_bytes(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size);

    ck_assert_ptr_nonnull(copy);
    memcpy(copy, data, size);
    bool is_message = idemi_walk(copy, size, &walk);
    free(copy);
    return is_message;
}

static bool walk_message(void)
{
    return walk_bytes(message.data, message.size);
}

/* The value as a body, whose last byte is the message's last. */
static bool walk_value(const char *value)
{
    encoded_clear(&message);
    encoded_hex(&message, "00 53 77");
    encoded_hex(&message, value);
    return walk_message();
}

/* A value that is all there is of a message, in the places where a value can
 * stand: body, list, map, array. In each it must have exactly its own size. */
static bool is_value(const char *value)
{
    bool is_whole = walk_value(value);
    size_t size = message.size;

    for (size_t i = 3; is_whole && i < size; i++) {
        ck_assert_msg(!walk_bytes(message.data, i), "%s", value);
    }
    for (unsigned constructor = 0xc0; constructor <= 0xd1;
         constructor += constructor % 16 == 0 ? 1 : 15) {
        for (int more = is_whole ? -1 : 0; more <= (is_whole ? 1 : 0); more++) {
            encoded_clear(&message);
            encoded_hex(&message, "00 53 77");
            size_t opened = encoded_open(&message, constructor);
            encoded_hex(&message, "40");
            encoded_hex(&message, value);
            if (more > 0) {
                encoded_byte(&message, 0x40);
            } else if (more < 0) {
                message.size--;
            }
            encoded_close(&message, opened, 2);
            ck_assert_msg(walk_message() == (is_whole && more == 0), "%x: %s",
                          constructor, value);
        }
    }
    return is_whole;
}

START_TEST(each_constructor_has_its_size)
{
    static const struct {
        unsigned code;
        unsigned size;
    } sizes[] = {{0x40, 0},  {0x41, 0}, {0x42, 0}, {0x43, 0}, {0x44, 0},
                 {0x45, 0},  {0x50, 1}, {0x51, 1}, {0x52, 1}, {0x53, 1},
                 {0x54, 1},  {0x55, 1}, {0x56, 1}, {0x60, 2}, {0x61, 2},
                 {0x70, 4},  {0x71, 4}, {0x72, 4}, {0x73, 4}, {0x74, 4},
                 {0x80, 8},  {0x81, 8}, {0x82, 8}, {0x83, 8}, {0x84, 8},
                 {0x94, 16}, {0x98, 16}};
    /* Variable and compound ones are 0 here: zeroes are their size. */
    static const unsigned others[] = {0x00, 0xa0, 0xa1, 0xa3, 0xb0, 0xb1, 0xb3,
                                      0xc0, 0xc1, 0xd0, 0xd1, 0xe0, 0xf0};

    for (unsigned code = 0; code < 256; code++) {
        unsigned size = 0;
        bool is_fixed = false;
        bool is_other = false;

        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            if (sizes[i].code == code) {
                is_fixed = true;
                size = sizes[i].size;
            }
        }
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
            is_other = is_other || others[i] == code;
        }
        if (is_other) {
            continue;
        }
        for (unsigned given = 0; given < 20; given++) {
            encoded_clear(&message);
            encoded_hex(&message, "00 53 77");
            encoded_byte(&message, code);
            for (unsigned i = 0; i < given; i++) {
                encoded_byte(&message, 0xff);
            }
            ck_assert_msg(walk_message() == (is_fixed && given == size),
                          "%x with %u", code, given);
        }
    }
}
END_TEST

START_TEST(sizes_and_counts_must_add_up)
{
    static const struct {
        const char *value;
        bool is_whole;
    } cases[] = {
        {"a1 00", true},
        {"a1 02 6161", true},
        {"a0 01", false},
        {"b0 00000000", true},
        {"b0 00000001", false},
        {"b1 00000001 61", true},
        {"b3 ffffffff 61", false},
        {"b0 000000", false},
        {"c0 01 00", true},
        {"c0 02 01 40", true},
        {"c0 02 00 40", false},
        {"c0 02 02 40", false},
        {"c0 03 01 40", false},
        {"c0 01 01", false},
        {"c0 00", false},
        {"c0 00 00", false},
        {"d0 00000004 00000000", true},
        {"d0 00000005 00000001 40", true},
        {"d0 00000005 00000002 40", false},
        {"d0 00000005 ffffffff 40", false},
        {"d0 00000003 00000000", false},
        {"d0 00000000", false},
        {"d0 ffffffff 00000000", false},
        {"d0 00000004 000000", false},
        {"c1 01 00", true},
        {"c1 03 02 40 40", true},
        {"c1 02 01 40", false},
        {"c1 04 03 40 40 40", false},
        {"c1 03 04 40 40", false},
        {"d1 00000004 00000000", true},
        {"d1 00000006 00000002 40 40", true},
        {"d1 00000005 00000001 40", false},
        /* What is inside ends inside. */
        {"c0 04 01 a1 01 61", true},
        {"c0 04 01 a1 02 61", false},
        {"c0 03 01 a1 01 61", false},
        {"c0 05 01 c0 02 01 40", true},
        {"c0 05 01 c0 03 01 40", false},
        {"c0 06 02 c0 02 01 40 40", true},
        {"c0 06 02 c0 03 01 40 40", false},
        {"c0 06 02 c0 03 02 40 40", false},
        {"00 40 40", true},
        {"00 53 01 a1 01 61", true},
        {"00 a3 01 78 00 a3 01 79 44", true},
        {"00 00 40 40 40", true},
        {"00 53 01", false},
        {"00", false},
        {"00 a3 02 78", false},
        {"3f", false},
        {"46", false},
        {"c0 02 01 46", false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_msg(is_value(cases[i].value) == cases[i].is_whole, "%s",
                      cases[i].value);
    }
}
END_TEST

START_TEST(array_elements_share_one_constructor)
{
    static const struct {
        const char *value;
        bool is_whole;
    } cases[] = {
        {"e0 02 00 71", true},
        {"e0 06 01 71 00000001", true},
        {"e0 0a 02 71 00000001 00000002", true},
        {"e0 0a 01 71 00000001 00000002", false},
        {"e0 0a 03 71 00000001 00000002", false},
        {"e0 09 02 71 00000001 000000", false},
        {"e0 01 00", false},
        {"e0 01 01", false},
        {"e0 00", false},
        {"e0 00 00", false},
        {"e0 02 00 46", false},
        {"f0 00000005 00000000 71", true},
        {"f0 00000009 00000001 71 00000001", true},
        {"f0 00000009 00000002 71 00000001", false},
        {"f0 00000009 40000001 71 00000001", false},
        {"f0 00000004 00000000", false},
        {"f0 00000003 00000000 71", false},
        /* Elements without bytes. */
        {"e0 02 02 40", true},
        {"e0 02 02 45", true},
        {"e0 03 02 40 40", false},
        {"e0 03 01 56 01", true},
        {"e0 04 02 56 01 00", true},
        /* Variable ones. */
        {"e0 02 00 a1", true},
        {"e0 05 02 a1 01 61 00", true},
        {"e0 05 02 a1 01 61 01", false},
        {"e0 05 01 a1 01 61 00", false},
        {"e0 07 01 b3 00000001 61", true},
        {"e0 07 01 b3 00000002 61", false},
        {"e0 07 02 b3 00000001 61", false},
        /* Compound ones. */
        {"e0 04 01 c0 01 00", true},
        {"e0 07 02 c0 01 00 02 01 40", true},
        {"e0 07 02 c0 01 00 02 02 40", false},
        {"e0 05 01 c1 02 01 40", false},
        {"e0 06 01 c1 03 02 40 40", true},
        {"e0 0a 01 d0 00000004 00000000", true},
        {"e0 05 01 e0 02 00 71", true},
        {"e0 0c 02 e0 02 00 71 06 01 71 00000001", true},
        {"e0 0c 02 e0 02 00 71 06 02 71 00000001", false},
        {"e0 04 01 e0 01 00", false},
        /* Described ones: the descriptor is part of the constructor. */
        {"e0 05 00 00 53 01 71", true},
        {"e0 09 01 00 53 01 71 00000001", true},
        {"e0 08 02 00 a3 01 78 a1 01 61 00", false},
        {"e0 09 02 00 a3 01 78 a1 01 61 00", true},
        {"e0 08 01 00 53 01 00 53 02 43", true},
        {"e0 04 00 00 53 01", false},
        {"e0 02 00 00", false},
        {"e0 03 00 00 46", false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_msg(is_value(cases[i].value) == cases[i].is_whole, "%s",
                      cases[i].value);
    }
}
END_TEST

START_TEST(elements_without_bytes_are_no_more_than_the_message_has)
{
    /* 16 bytes, of which 4 are the count. */
    ck_assert(walk_value("f0 00000005 0000000d 40"));
    ck_assert(!walk_value("f0 00000005 0000000e 40"));
    ck_assert(!walk_value("f0 00000005 ffffffff 40"));
    ck_assert(!walk_value("f0 00000005 80000000 45"));
    /* Nor are several arrays together. */
    ck_assert(walk_value("c0 0d 03 e0 02 05 40 e0 02 05 41 e0 02 05 42"));
    ck_assert(!walk_value("c0 0d 03 e0 02 08 40 e0 02 08 41 e0 02 08 42"));
    ck_assert(!walk_value("c0 09 02 e0 02 08 40 e0 02 08 41"));
}
END_TEST

/* A body of values in one another. */
static bool walk_nested(const char *start, unsigned depth)
{
    static const size_t list_start = 9;

    encoded_clear(&message);
    encoded_hex(&message, "00 53 77");
    for (unsigned i = 0; i < depth; i++) {
        if (start != NULL) {
            encoded_hex(&message, start);
            continue;
        }
        size_t left = (depth - i) * list_start + 1;
        encoded_byte(&message, 0xd0);
        encoded_uint32(&message, (uint32_t)(left - 5));
        encoded_uint32(&message, 1);
    }
    encoded_byte(&message, 0x40);
    return walk_message();
}

/* An array in an array, each with one element. */
static bool walk_nested_arrays(unsigned depth)
{
    encoded_clear(&message);
    encoded_hex(&message, "00 53 77 f0");
    for (unsigned i = depth; i > 1; i--) {
        encoded_uint32(&message, 9 * (i - 1) + 5);
        encoded_uint32(&message, 1);
        encoded_byte(&message, 0xf0);
    }
    encoded_uint32(&message, 5);
    encoded_uint32(&message, 1);
    encoded_byte(&message, 0x40);
    return walk_message();
}

START_TEST(nesting_is_bounded)
{
    for (unsigned depth = 0; depth <= 32; depth++) {
        ck_assert_msg(walk_nested(NULL, depth), "%u lists", depth);
        ck_assert(depth == 0 || walk_nested_arrays(depth));
    }
    ck_assert(!walk_nested(NULL, 33));
    ck_assert(!walk_nested(NULL, 100000));
    ck_assert(!walk_nested_arrays(33));
    ck_assert(!walk_nested_arrays(100000));
    /* A descriptor in front of each value, and in place of each. */
    ck_assert(walk_nested("00 40", 32));
    ck_assert(!walk_nested("00 40", 33));
    ck_assert(!walk_nested("00 40", 100000));
    ck_assert(!walk_nested("00", 100000));
    /* Of an array's elements, in turn. */
    for (unsigned depth = 1; depth <= 100000; depth *= 10) {
        encoded_clear(&message);
        encoded_hex(&message, "00 53 77");
        size_t array = encoded_open(&message, 0xf0);
        for (unsigned i = 0; i < depth; i++) {
            encoded_hex(&message, "00 40");
        }
        encoded_byte(&message, 0x40);
        encoded_close(&message, array, 1);
        ck_assert(walk_message() == (depth <= 10));
    }
}
END_TEST

/* How often a message is walked in 50 ms. */
static int64_t walks_in_a_while(void)
{
    int64_t end = test_now_ms() + 50;
    int64_t walks = 0;

    do {
        ck_assert(walk_message());
        walks++;
    } while (test_now_ms() < end);
    return walks;
}

static void write_pairs(unsigned pairs)
{
    encoded_clear(&message);
    encoded_section(&message, 0x74);
    size_t map = encoded_open(&message, 0xd1);
    for (unsigned i = 0; i < pairs; i++) {
        encoded_hex(&message, "a1 02 6b6b 40");
    }
    encoded_close(&message, map, 2 * pairs);
    encoded_hex(&message, "00 53 77 40");
}

START_TEST(work_grows_with_the_size_only)
{
    write_pairs(2000);
    int64_t small = walks_in_a_while();
    write_pairs(200000);
    int64_t large = walks_in_a_while();
    ck_assert_uint_eq(walk.values, 400001);
    /* A hundred times the pairs; ten times slower still would be noise, but
     * with work that grows as the square it is a hundred times. */
    ck_assert_msg(large * 1000 > small, "%lld and %lld", (long long)small,
                  (long long)large);
}
END_TEST

START_TEST(values_are_counted_for_a_decoder_with_a_limit)
{
    static const struct {
        const char *value;
        size_t values;
    } cases[] = {
        {"40", 2},
        {"c0 03 02 40 40", 4},
        {"00 53 01 40", 4},
        {"c0 08 02 00 40 40 e0 02 05 40", 11},
        {"e0 02 05 40", 7},
        {"e0 05 05 00 53 01 40", 8},
        {"e0 07 02 c0 01 00 02 01 40", 5},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert(walk_value(cases[i].value));
        ck_assert_msg(walk.values == cases[i].values, "%s: %zu", cases[i].value,
                      walk.values);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("amqp");
    TCase *tcase = tcase_create("amqp");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, NULL, finish);
    tcase_add_test(tcase, each_constructor_has_its_size);
    tcase_add_test(tcase, sizes_and_counts_must_add_up);
    tcase_add_test(tcase, array_elements_share_one_constructor);
    tcase_add_test(tcase,
                   elements_without_bytes_are_no_more_than_the_message_has);
    tcase_add_test(tcase, nesting_is_bounded);
    tcase_add_test(tcase, work_grows_with_the_size_only);
    tcase_add_test(tcase, values_are_counted_for_a_decoder_with_a_limit);
    return test_run(suite);
}
