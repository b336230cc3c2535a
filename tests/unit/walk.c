#include "identity/walk.h"

#include "encoded.h"
#include "samples.h"
#include "support.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static encoded_t message;
static sample_t sample;
static idemi_walk_t walk;

static void finish(void)
{
    encoded_finish(&message);
    sample_finish(&sample);
}

/* A copy without a byte to spare, so that a read beyond the end is seen. */
static bool walk_bytes(const uint8_t *data, size_t size)
{
    static uint8_t *copy;

    free(copy);
    copy = malloc(size > 0 ? size : 1);
    ck_assert_ptr_nonnull(copy);
    if (size > 0) {
        memcpy(copy, data, size);
    }
    bool is_message = idemi_walk(copy, size, &walk);
    ck_assert_int_eq(is_message, walk.problem == NULL);
    return is_message;
}

static bool walk_message(void)
{
    return walk_bytes(message.data, message.size);
}

static bool walk_hex(const char *digits)
{
    encoded_clear(&message);
    encoded_hex(&message, digits);
    return walk_message();
}

static bool is_text(idemi_span_t span, const char *text)
{
    return span.size == strlen(text) &&
           (span.size == 0 || memcmp(span.data, text, span.size) == 0);
}

START_TEST(whole_message_is_walked)
{
    sample_write(&sample, (unsigned)_i);
    ck_assert(walk_bytes(sample.message.data, sample.message.size));
    ck_assert_uint_eq(walk.delivery_count, 3);
    ck_assert(is_text(walk.group_id, "g1"));
    ck_assert_int_eq(walk.duplicate_id.type, IDEMI_ID_STRING);
    ck_assert(is_text(walk.duplicate_id.bytes, "duplicate-1"));
    ck_assert(is_text(walk.traceparent, "00-0af7651916cd43dd8448eb211c80319c-"
                                        "b7ad6b7169203331-01"));
    ck_assert(walk.has_body);
    ck_assert_uint_eq(walk.bare.size, sample.bare_end - sample.bare_start);
    ck_assert_mem_eq(walk.bare.data, sample.message.data + sample.bare_start,
                     walk.bare.size);
}
END_TEST

START_TEST(cut_message_is_refused_except_between_sections)
{
    sample_write(&sample, (unsigned)_i);
    for (size_t size = 0; size < sample.message.size; size++) {
        bool is_whole = size == sample.cut_ends[0] ||
                        size == sample.cut_ends[1] ||
                        size == sample.cut_ends[2];
        ck_assert_msg(walk_bytes(sample.message.data, size) == is_whole,
                      "%zu of %zu bytes", size, sample.message.size);
    }
}
END_TEST

START_TEST(message_with_a_cut_in_front_is_refused)
{
    sample_write(&sample, (unsigned)_i);
    for (size_t cut = 1; cut < sample.bare_start; cut++) {
        /* Whole sections missing are no damage. */
        const uint8_t *at = sample.message.data + cut;
        if (at[0] == 0x00 && at[1] == 0x53 && (at[2] & 0xf0) == 0x70) {
            continue;
        }
        ck_assert(!walk_bytes(at, sample.message.size - cut));
    }
}
END_TEST

START_TEST(message_with_bytes_behind_it_is_refused)
{
    sample_write(&sample, (unsigned)_i);
    size_t size = sample.message.size;

    for (unsigned byte = 0; byte < 256; byte++) {
        encoded_byte(&sample.message, byte);
        ck_assert(!walk_bytes(sample.message.data, sample.message.size));
        sample.message.size = size;
    }
}
END_TEST

START_TEST(no_bytes_are_no_message)
{
    ck_assert(!idemi_walk(NULL, 0, &walk));
    ck_assert_ptr_nonnull(walk.problem);
    ck_assert(!walk_hex(""));
}
END_TEST

START_TEST(descriptor_is_known_in_each_form)
{
    static const char *const forms[] = {
        "amqp:header:list",
        "amqp:delivery-annotations:map",
        "amqp:message-annotations:map",
        "amqp:properties:list",
        "amqp:application-properties:map",
        "amqp:data:binary",
        "amqp:amqp-sequence:list",
        "amqp:amqp-value:*",
        "amqp:footer:map",
    };
    static const char *const values[] = {
        "45",    "c1 01 00", "c1 01 00", "c0 04 01 a1 01 69", "c1 01 00",
        "a0 00", "45",       "40",       "c1 01 00"};

    for (unsigned form = 0; form < 4; form++) {
        encoded_clear(&message);
        for (unsigned i = 0; i < 9; i++) {
            if (i == 6 || i == 7) {
                continue;
            }
            encoded_byte(&message, 0x00);
            if (form == 0) {
                encoded_hex(&message, "53");
                encoded_byte(&message, 0x70 + i);
            } else if (form == 1) {
                encoded_hex(&message, "80 00000000000000");
                encoded_byte(&message, 0x70 + i);
            } else {
                encoded_variable(&message, form == 2 ? 0xa3 : 0xb3, forms[i],
                                 strlen(forms[i]));
            }
            encoded_hex(&message, values[i]);
        }
        ck_assert_msg(walk_message(), "form %u: %s", form, walk.problem);
        ck_assert(is_text(walk.message_id.bytes, "i"));
    }
}
END_TEST

START_TEST(unknown_descriptor_is_refused)
{
    static const char *const starts[] = {
        "00 53 6f 40",
        "00 53 79 40",
        "00 53 00 40",
        "00 44 40",
        "00 80 0100000000000077 40",
        "00 80 0000000000000177 40",
        "00 80 0000000100000077 40",
        "00 54 77 40",
        "00 a1 11 616d71703a616d71702d76616c75653a2a 40",
        "00 a3 11 616d71703a616d71702d76616c75653a2b 40",
        "00 a3 10 616d71703a616d71702d76616c75653a 40",
        "00 a3 00 40",
        "00 00 53 77 40 40",
        "00 40 40",
        "53 77 40",
        "40",
        "a1 02 6964",
        "00",
        "00 53",
        "00 53 77",
        "00 80 00000000000000",
        "00 b3 00000011 616d71703a",
    };

    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        ck_assert_msg(!walk_hex(starts[i]), "%s", starts[i]);
    }
    ck_assert(walk_hex("00 a3 11 616d71703a616d71702d76616c75653a2a 40"));
}
END_TEST

/* The smallest section of each kind. */
static void add_section(unsigned code)
{
    static const char *const values[] = {"45", "c1 01 00", "c1 01 00",
                                         "45", "c1 01 00", "a0 00",
                                         "45", "40",       "c1 01 00"};

    encoded_section(&message, code);
    encoded_hex(&message, values[code - 0x70]);
}

/* The order of sections, written as the letters A to I: each once, the body
 * F+, G+ or H, and something of D to H. */
static bool is_in_order(const char *letters)
{
    const char *at = letters;
    bool is_bare = false;

    for (char letter = 'A'; letter <= 'E'; letter++) {
        if (*at == letter) {
            is_bare = is_bare || letter >= 'D';
            at++;
        }
    }
    if (*at == 'F' || *at == 'G') {
        char body = *at;
        while (*at == body) {
            at++;
        }
        is_bare = true;
    } else if (*at == 'H') {
        is_bare = true;
        at++;
    }
    if (*at == 'I') {
        at++;
    }
    return is_bare && *at == '\0';
}

START_TEST(sections_come_in_their_order_and_once)
{
    /* All rows of up to five sections, of nine kinds. */
    for (unsigned row = 1; row < 100000; row++) {
        char letters[6] = "";
        unsigned count = 0;
        unsigned left = row;

        encoded_clear(&message);
        for (; left > 0 && left % 10 != 0; left /= 10) {
            letters[count++] = (char)('A' + left % 10 - 1);
            add_section(0x70 + left % 10 - 1);
        }
        if (left == 0) {
            ck_assert_msg(idemi_walk(message.data, message.size, &walk) ==
                              is_in_order(letters),
                          "%s", letters);
        }
    }
}
END_TEST

START_TEST(section_of_the_wrong_type_is_refused)
{
    static const char *const values[] = {"40",
                                         "41",
                                         "45",
                                         "c0 01 00",
                                         "c1 01 00",
                                         "a0 00",
                                         "a1 00",
                                         "a3 00",
                                         "44",
                                         "e0 02 00 a1",
                                         "00 53 01 45",
                                         "d0 00000004 00000000",
                                         "d1 00000004 00000000",
                                         "b0 00000000"};
    /* Lists, maps and binaries among them, by their place. */
    static const char list[] = "..++.......+..";
    static const char map[] = "....+.......+.";
    static const char binary[] = ".....+.......+";
    static const char any[] = "++++++++++++++";
    static const char *const allowed[] = {list,   map,  map, list, map,
                                          binary, list, any, map};

    for (unsigned code = 0x70; code <= 0x78; code++) {
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            encoded_clear(&message);
            if (code == 0x78) {
                encoded_hex(&message, "00 53 77 40");
            }
            encoded_section(&message, code);
            encoded_hex(&message, values[i]);
            if (code < 0x75) {
                encoded_hex(&message, "00 53 77 40");
            }
            ck_assert_msg(walk_message() == (allowed[code - 0x70][i] == '+'),
                          "%x: %s", code, values[i]);
        }
    }
}
END_TEST

START_TEST(section_holds_exactly_what_it_counts)
{
    /* Each with an even number of values, also enough for the last field that
     * is looked for. */
    static const unsigned counts[] = {0, 2, 4, 6, 12, 14};

    for (unsigned code = 0x70; code <= 0x78; code++) {
        bool is_map =
            code == 0x71 || code == 0x72 || code == 0x74 || code == 0x78;
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            for (unsigned given = 0; given <= 16; given++) {
                encoded_clear(&message);
                if (code == 0x78) {
                    encoded_hex(&message, "00 53 77 40");
                }
                encoded_section(&message, code == 0x75 ? 0x77 : code);
                size_t opened = encoded_open(&message, is_map ? 0xc1 : 0xc0);
                for (unsigned k = 0; k < given; k++) {
                    encoded_hex(&message, "40");
                }
                encoded_close(&message, opened, counts[i]);
                if (code < 0x75) {
                    encoded_hex(&message, "00 53 77 40");
                }
                ck_assert_msg(walk_message() == (given == counts[i]),
                              "%x: %u of %u", code, given, counts[i]);
            }
        }
    }
}
END_TEST

START_TEST(missing_body_is_told)
{
    /* What Proton sends for a message without a body. */
    ck_assert(walk_hex("00 53 70 45 00 53 73 c0 04 01 a1 01 69"));
    ck_assert(!walk.has_body);
    ck_assert(is_text(walk.message_id.bytes, "i"));
    ck_assert(walk_hex("00 53 74 c1 01 00"));
    ck_assert(!walk.has_body);
    ck_assert(walk_hex("00 53 77 40"));
    ck_assert(walk.has_body);
    /* Nothing of the sender's. */
    ck_assert(!walk_hex("00 53 70 45"));
    ck_assert(!walk_hex("00 53 70 45 00 53 72 c1 01 00"));
    ck_assert(!walk_hex("00 53 72 c1 01 00 00 53 78 c1 01 00"));
}
END_TEST

START_TEST(bare_message_leaves_out_what_the_broker_changes)
{
    static const char bare[] = "00 53 73 c0 04 01 a1 01 69 00 53 75 a0 01 31"
                               "00 53 75 a0 01 32";
    static const char *const before[] = {
        "", "00 53 70 45", "00 53 70 c0 07 05 40 40 40 40 52 09",
        "00 53 71 c1 01 00 00 53 72 c1 06 02 a3 01 78 54 01"};
    static const char *const after[] = {"", "00 53 78 c1 01 00"};
    encoded_t expected = {0};

    encoded_hex(&expected, bare);
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        for (size_t k = 0; k < sizeof after / sizeof *after; k++) {
            encoded_clear(&message);
            encoded_hex(&message, before[i]);
            encoded_hex(&message, bare);
            encoded_hex(&message, after[k]);
            ck_assert(walk_message());
            ck_assert_uint_eq(walk.bare.size, expected.size);
            ck_assert_mem_eq(walk.bare.data, expected.data, expected.size);
        }
    }
    encoded_finish(&expected);
}
END_TEST

START_TEST(walk_forgets_the_message_before)
{
    sample_write(&sample, 0);
    ck_assert(walk_bytes(sample.message.data, sample.message.size));
    ck_assert(walk_hex("00 53 77 40"));
    ck_assert_int_eq(walk.message_id.type, IDEMI_ID_NONE);
    ck_assert_int_eq(walk.duplicate_id.type, IDEMI_ID_NONE);
    ck_assert_ptr_null(walk.group_id.data);
    ck_assert_ptr_null(walk.traceparent.data);
    ck_assert_uint_eq(walk.delivery_count, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("walk");
    TCase *tcase = tcase_create("walk");

    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, NULL, finish);
    tcase_add_loop_test(tcase, whole_message_is_walked, 0, SAMPLE_COUNT);
    tcase_add_loop_test(tcase, cut_message_is_refused_except_between_sections,
                        0, SAMPLE_COUNT);
    tcase_add_loop_test(tcase, message_with_a_cut_in_front_is_refused, 0,
                        SAMPLE_COUNT);
    tcase_add_loop_test(tcase, message_with_bytes_behind_it_is_refused, 0,
                        SAMPLE_COUNT);
    tcase_add_test(tcase, no_bytes_are_no_message);
    tcase_add_test(tcase, descriptor_is_known_in_each_form);
    tcase_add_test(tcase, unknown_descriptor_is_refused);
    tcase_add_test(tcase, sections_come_in_their_order_and_once);
    tcase_add_test(tcase, section_of_the_wrong_type_is_refused);
    tcase_add_test(tcase, section_holds_exactly_what_it_counts);
    tcase_add_test(tcase, missing_body_is_told);
    tcase_add_test(tcase, bare_message_leaves_out_what_the_broker_changes);
    tcase_add_test(tcase, walk_forgets_the_message_before);
    return test_run(suite);
}
