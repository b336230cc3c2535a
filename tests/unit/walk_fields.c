#include "identity/walk.h"

#include "encoded.h"
#include "support.h"

#include <check.h>
#include <string.h>

static encoded_t message;
static idemi_walk_t walk;

static void finish(void)
{
    encoded_finish(&message);
}

static bool walk_message(void)
{
    return idemi_walk(message.data, message.size, &walk);
}

static bool is_text(idemi_span_t span, const char *text)
{
    return span.size == strlen(text) &&
           (span.size == 0 || memcmp(span.data, text, span.size) == 0);
}

/* Properties that begin with a value, and a body. */
static bool walk_id(const char *value)
{
    encoded_clear(&message);
    encoded_section(&message, 0x73);
    size_t list = encoded_open(&message, 0xd0);
    encoded_hex(&message, value);
    encoded_close(&message, list, 1);
    encoded_hex(&message, "00 53 77 40");
    return walk_message();
}

/* Application properties of one pair, and a body. */
static bool walk_duplicate_id(const char *key, const char *value)
{
    encoded_clear(&message);
    encoded_section(&message, 0x74);
    size_t map = encoded_open(&message, 0xd1);
    encoded_hex(&message, key);
    encoded_bytes(&message, "_AMQ_DUPL_ID", 12);
    encoded_hex(&message, value);
    encoded_close(&message, map, 2);
    encoded_hex(&message, "00 53 77 40");
    return walk_message();
}

START_TEST(id_of_every_type_and_width_is_found)
{
    static const struct {
        const char *value;
        idemi_id_type_t type;
        uint64_t number;
        const char *content;
    } cases[] = {
        {"40", IDEMI_ID_NONE, 0, ""},
        {"a1 02 6964", IDEMI_ID_STRING, 0, "id"},
        {"b1 00000002 6964", IDEMI_ID_STRING, 0, "id"},
        {"a1 00", IDEMI_ID_STRING, 0, ""},
        {"b1 00000000", IDEMI_ID_STRING, 0, ""},
        {"a0 02 6964", IDEMI_ID_BINARY, 0, "id"},
        {"b0 00000002 6964", IDEMI_ID_BINARY, 0, "id"},
        {"44", IDEMI_ID_ULONG, 0, ""},
        {"53 00", IDEMI_ID_ULONG, 0, ""},
        {"53 ff", IDEMI_ID_ULONG, 255, ""},
        {"80 0000000000000007", IDEMI_ID_ULONG, 7, ""},
        {"80 ffffffffffffffff", IDEMI_ID_ULONG, UINT64_MAX, ""},
        {"98 30313233343536373839616263646566", IDEMI_ID_UUID, 0,
         "0123456789abcdef"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_msg(walk_id(cases[i].value), "%s", cases[i].value);
        ck_assert_int_eq(walk.message_id.type, cases[i].type);
        ck_assert_uint_eq(walk.message_id.number, cases[i].number);
        ck_assert(is_text(walk.message_id.bytes, cases[i].content));
        ck_assert_int_eq(walk.duplicate_id.type, IDEMI_ID_NONE);
    }
}
END_TEST

START_TEST(value_that_is_no_id_is_told_from_none)
{
    static const char *const values[] = {"41",
                                         "42",
                                         "56 01",
                                         "43",
                                         "45",
                                         "50 01",
                                         "51 01",
                                         "52 01",
                                         "54 01",
                                         "55 01",
                                         "60 0001",
                                         "61 0001",
                                         "70 00000001",
                                         "71 00000001",
                                         "72 00000000",
                                         "73 00000061",
                                         "74 00000000",
                                         "81 0000000000000001",
                                         "82 0000000000000000",
                                         "83 0000000000000000",
                                         "84 0000000000000000",
                                         "94 00000000000000000000000000000000",
                                         "a3 01 61",
                                         "b3 00000001 61",
                                         "c0 01 00",
                                         "c1 01 00",
                                         "d0 00000004 00000000",
                                         "d1 00000004 00000000",
                                         "e0 02 00 a1",
                                         "f0 00000005 00000000 a1",
                                         "00 53 01 a1 01 61"};

    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        ck_assert_msg(walk_id(values[i]), "%s", values[i]);
        ck_assert_int_eq(walk.message_id.type, IDEMI_ID_OTHER);
        ck_assert_uint_eq(walk.message_id.bytes.size, 0);
    }
}
END_TEST

START_TEST(duplicate_id_is_a_string_a_symbol_or_binary)
{
    static const char *const keys[] = {"a1 0c", "b1 0000000c", "a3 0c",
                                       "b3 0000000c"};
    static const struct {
        const char *value;
        idemi_id_type_t type;
    } cases[] = {
        {"a1 01 6b", IDEMI_ID_STRING},
        {"b1 00000001 6b", IDEMI_ID_STRING},
        {"a3 01 6b", IDEMI_ID_STRING},
        {"b3 00000001 6b", IDEMI_ID_STRING},
        {"a0 01 6b", IDEMI_ID_BINARY},
        {"b0 00000001 6b", IDEMI_ID_BINARY},
        {"40", IDEMI_ID_NONE},
        {"44", IDEMI_ID_OTHER},
        {"53 6b", IDEMI_ID_OTHER},
        {"80 000000000000006b", IDEMI_ID_OTHER},
        {"98 00000000000000000000000000000000", IDEMI_ID_OTHER},
        {"71 00000001", IDEMI_ID_OTHER},
        {"41", IDEMI_ID_OTHER},
        {"c0 03 01 a0 00", IDEMI_ID_OTHER},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            ck_assert(walk_duplicate_id(keys[k], cases[i].value));
            ck_assert_int_eq(walk.duplicate_id.type, cases[i].type);
            ck_assert_uint_eq(walk.duplicate_id.number, 0);
            if (cases[i].type == IDEMI_ID_STRING ||
                cases[i].type == IDEMI_ID_BINARY) {
                ck_assert(is_text(walk.duplicate_id.bytes, "k"));
            }
        }
        /* A key of another type with the same bytes is another key. */
        ck_assert(walk_duplicate_id("a0 0c", cases[i].value));
        ck_assert_int_eq(walk.duplicate_id.type, IDEMI_ID_NONE);
    }
}
END_TEST

START_TEST(first_of_equal_property_keys_wins)
{
    static const struct {
        const char *first;
        const char *second;
        idemi_id_type_t type;
    } cases[] = {
        {"a1 01 61", "a1 01 62", IDEMI_ID_STRING},
        {"40", "a1 01 62", IDEMI_ID_NONE},
        {"54 01", "a1 01 62", IDEMI_ID_OTHER},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        encoded_clear(&message);
        encoded_section(&message, 0x74);
        size_t map = encoded_open(&message, 0xc1);
        encoded_string(&message, "_AMQ_DUPL_ID");
        encoded_hex(&message, cases[i].first);
        encoded_string(&message, "traceparent");
        encoded_string(&message, "1");
        encoded_string(&message, "_AMQ_DUPL_ID");
        encoded_hex(&message, cases[i].second);
        encoded_string(&message, "traceparent");
        encoded_string(&message, "2");
        encoded_close(&message, map, 8);
        ck_assert(walk_message());
        ck_assert_int_eq(walk.duplicate_id.type, cases[i].type);
        if (cases[i].type == IDEMI_ID_STRING) {
            ck_assert(is_text(walk.duplicate_id.bytes, "a"));
        }
        ck_assert(is_text(walk.traceparent, "1"));
    }
}
END_TEST

START_TEST(similar_property_keys_are_no_ids)
{
    static const char *const keys[] = {"_AMQ_DUPL_I", "_AMQ_DUPL_IDS",
                                       "_amq_dupl_id", "_AMQ_DUPL_I\0", ""};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        encoded_clear(&message);
        encoded_section(&message, 0x74);
        size_t map = encoded_open(&message, 0xc1);
        encoded_string(&message, keys[i]);
        encoded_string(&message, "k");
        encoded_close(&message, map, 2);
        ck_assert(walk_message());
        ck_assert_int_eq(walk.duplicate_id.type, IDEMI_ID_NONE);
    }
}
END_TEST

START_TEST(property_names_elsewhere_are_no_ids)
{
    /* Annotations, footer and body belong to others, and a value is no key. */
    encoded_clear(&message);
    for (unsigned code = 0x71; code <= 0x78; code++) {
        if (code == 0x73 || code == 0x75 || code == 0x76) {
            continue;
        }
        encoded_section(&message, code);
        size_t map = encoded_open(&message, 0xc1);
        encoded_string(&message, code == 0x74 ? "x" : "_AMQ_DUPL_ID");
        encoded_string(&message, code == 0x74 ? "_AMQ_DUPL_ID" : "k");
        encoded_close(&message, map, 2);
    }
    ck_assert(walk_message());
    ck_assert_int_eq(walk.duplicate_id.type, IDEMI_ID_NONE);
}
END_TEST

START_TEST(header_fields_may_be_left_out)
{
    static const struct {
        const char *list;
        uint32_t count;
    } cases[] = {
        {"45", 0},
        {"c0 01 00", 0},
        {"d0 00000004 00000000", 0},
        {"c0 03 02 41 40", 0},
        {"c0 06 05 40 40 40 40 40", 0},
        {"c0 06 05 40 40 40 40 43", 0},
        {"c0 07 05 40 40 40 40 52 ff", 255},
        {"d0 0000000d 00000005 40 40 40 40 70 01020304", 0x01020304},
        {"c0 0a 05 40 40 40 40 70 ffffffff", UINT32_MAX},
        {"c0 08 05 40 40 40 40 a1 01 61", 0},
        {"c0 08 06 40 40 40 40 52 07 40", 7},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        encoded_clear(&message);
        encoded_section(&message, 0x70);
        encoded_hex(&message, cases[i].list);
        encoded_hex(&message, "00 53 75 a0 00");
        ck_assert_msg(walk_message(), "%s", cases[i].list);
        ck_assert_uint_eq(walk.delivery_count, cases[i].count);
    }
}
END_TEST

START_TEST(group_id_is_the_eleventh_property)
{
    static const struct {
        const char *list;
        const char *group;
    } cases[] = {
        {"45", NULL},
        {"c0 0b 0a 40 40 40 40 40 40 40 40 40 40", NULL},
        {"c0 0c 0b 40 40 40 40 40 40 40 40 40 40 40", NULL},
        {"c0 0e 0b 40 40 40 40 40 40 40 40 40 40 a1 01 67", "g"},
        {"d0 00000014 0000000b 40 40 40 40 40 40 40 40 40 40 b1 00000001 67",
         "g"},
        {"c0 12 0d 40 40 40 40 40 40 40 40 40 40 a1 01 67 43 a1 01 72", "g"},
        {"c0 0d 0b 40 40 40 40 40 40 40 40 40 40 a1 00", ""},
        {"c0 0e 0b 40 40 40 40 40 40 40 40 40 40 a3 01 67", NULL},
        {"c0 0e 0b 40 40 40 40 40 40 40 40 40 a1 01 67 40", NULL},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        encoded_clear(&message);
        encoded_section(&message, 0x73);
        encoded_hex(&message, cases[i].list);
        ck_assert_msg(walk_message(), "%s", cases[i].list);
        if (cases[i].group == NULL) {
            ck_assert_ptr_null(walk.group_id.data);
        } else {
            ck_assert_ptr_nonnull(walk.group_id.data);
            ck_assert(is_text(walk.group_id, cases[i].group));
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("walk-fields");
    TCase *tcase = tcase_create("walk-fields");

    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, NULL, finish);
    tcase_add_test(tcase, id_of_every_type_and_width_is_found);
    tcase_add_test(tcase, value_that_is_no_id_is_told_from_none);
    tcase_add_test(tcase, duplicate_id_is_a_string_a_symbol_or_binary);
    tcase_add_test(tcase, first_of_equal_property_keys_wins);
    tcase_add_test(tcase, similar_property_keys_are_no_ids);
    tcase_add_test(tcase, property_names_elsewhere_are_no_ids);
    tcase_add_test(tcase, header_fields_may_be_left_out);
    tcase_add_test(tcase, group_id_is_the_eleventh_property);
    return test_run(suite);
}
