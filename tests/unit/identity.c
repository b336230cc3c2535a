#include "identity/identity.h"

#include "identity/utf8.h"
#include "support.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define LONG_ID 70000

static char key[IDEMI_KEY_MAX + 1];
static size_t key_size;

static idemi_id_t id_of(idemi_id_type_t type, const void *bytes, size_t size)
{
    return (idemi_id_t){.type = type, .bytes = {.data = bytes, .size = size}};
}

static idemi_id_t string_of(const char *string)
{
    return id_of(IDEMI_ID_STRING, string, strlen(string));
}

/* Each key that any test makes must be one that a text column takes. */
static void check_key(void)
{
    ck_assert_uint_gt(key_size, 0);
    ck_assert_uint_le(key_size, IDEMI_KEY_MAX);
    ck_assert_uint_eq(strlen(key), key_size);
    ck_assert(idemi_utf8_is_text(key, key_size));
}

static const char *key_of(const char *name, idemi_id_t id)
{
    idemi_scope_t scope;
    idemi_walk_t walk = {.message_id = id};

    ck_assert(idemi_scope_init(&scope, name));
    ck_assert_int_eq(
        idemi_identity_key(&scope, IDEM_ID_MESSAGE_ONLY, &walk, key, &key_size),
        IDEMI_IDENTITY_KEY);
    check_key();
    return key;
}

START_TEST(id_has_its_text)
{
    static const uint8_t uuid[16] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55,
                                     0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb,
                                     0xcc, 0xdd, 0xee, 0xff};

    ck_assert_str_eq(key_of("", string_of("order-1")), "order-1");
    ck_assert_str_eq(key_of(NULL, string_of("order-1")), "order-1");
    ck_assert_str_eq(key_of("q", string_of("order-1")), "q/order-1");
    ck_assert_str_eq(key_of("q", string_of(" ")), "q/ ");
    ck_assert_str_eq(key_of("q", string_of("7")), "q/7");
    ck_assert_str_eq(key_of("q", id_of(IDEMI_ID_UUID, uuid, 16)),
                     "q/ID:AMQP_UUID:00112233-4455-6677-8899-aabbccddeeff");
    ck_assert_str_eq(key_of("q", id_of(IDEMI_ID_BINARY, uuid, 16)),
                     "q/ID:AMQP_BINARY:00112233445566778899AABBCCDDEEFF");
    ck_assert_str_eq(key_of("q", (idemi_id_t){.type = IDEMI_ID_ULONG}),
                     "q/ID:AMQP_ULONG:0");
    ck_assert_str_eq(
        key_of("q", (idemi_id_t){.type = IDEMI_ID_ULONG, .number = UINT64_MAX}),
        "q/ID:AMQP_ULONG:18446744073709551615");
}
END_TEST

/* The AMQP-JMS mapping escapes what begins like an encoding, and so the type
 * of an id can be told from its text. */
START_TEST(string_like_an_encoding_is_escaped)
{
    static const struct {
        const char *id;
        const char *key;
    } cases[] = {
        {"ID:AMQP_UUID:x", "ID:AMQP_STRING:ID:AMQP_UUID:x"},
        {"ID:AMQP_ULONG:7", "ID:AMQP_STRING:ID:AMQP_ULONG:7"},
        {"ID:AMQP_BINARY:07", "ID:AMQP_STRING:ID:AMQP_BINARY:07"},
        {"ID:AMQP_STRING:x", "ID:AMQP_STRING:ID:AMQP_STRING:x"},
        {"ID:AMQP_NO_PREFIX:x", "ID:AMQP_STRING:ID:AMQP_NO_PREFIX:x"},
        {"ID:AMQP_BINARY:", "ID:AMQP_STRING:ID:AMQP_BINARY:"},
        {"ID:IDEM_HEX:FF", "ID:AMQP_STRING:ID:IDEM_HEX:FF"},
        {"ID:IDEM_", "ID:AMQP_STRING:ID:IDEM_"},
        {"ID:AMQP_STRING:ID:AMQP_UUID:x",
         "ID:AMQP_STRING:ID:AMQP_STRING:ID:AMQP_UUID:x"},
        {"ID:AMQP_UUID", "ID:AMQP_UUID"},
        {"ID:amqp_uuid:x", "ID:amqp_uuid:x"},
        {"id:AMQP_UUID:x", "id:AMQP_UUID:x"},
        {" ID:AMQP_UUID:x", " ID:AMQP_UUID:x"},
        {"AMQP_UUID:x", "AMQP_UUID:x"},
        {"ID:", "ID:"},
        {"ID:af3c1a52-0b9e:1:1:1-1", "ID:af3c1a52-0b9e:1:1:1-1"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_str_eq(key_of("", string_of(cases[i].id)), cases[i].key);
    }
}
END_TEST

START_TEST(string_that_is_no_text_is_encoded)
{
    ck_assert_str_eq(key_of("q", id_of(IDEMI_ID_STRING, "a\0b", 3)),
                     "q/ID:IDEM_HEX:610062");
    ck_assert_str_eq(key_of("q", id_of(IDEMI_ID_STRING, "a\0c", 3)),
                     "q/ID:IDEM_HEX:610063");
    ck_assert_str_eq(key_of("q", id_of(IDEMI_ID_STRING, "\xff\xfe", 2)),
                     "q/ID:IDEM_HEX:FFFE");
    ck_assert_str_eq(key_of("q", id_of(IDEMI_ID_STRING, "\0", 1)),
                     "q/ID:IDEM_HEX:00");
    /* A binary of the same bytes is another id. */
    ck_assert_str_eq(key_of("q", id_of(IDEMI_ID_BINARY, "a\0b", 3)),
                     "q/ID:AMQP_BINARY:610062");
}
END_TEST

START_TEST(scope_ends_at_the_first_slash)
{
    static const struct {
        const char *scope;
        const char *id;
        const char *key;
    } cases[] = {
        {"a", "b/c", "a/b/c"},        {"a/b", "c", "a%2Fb/c"},
        {"a%2Fb", "c", "a%252Fb/c"},  {"/", "x", "%2F/x"},
        {"q::r", "x", "q::r/x"},      {"caf\xc3\xa9", "x", "caf\xc3\xa9/x"},
        {"caf\xe9", "x", "caf%E9/x"}, {"", "/x", "/x"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_str_eq(key_of(cases[i].scope, string_of(cases[i].id)),
                         cases[i].key);
    }
}
END_TEST

START_TEST(long_scope_is_its_beginning_and_hash)
{
    char name[301];
    char first[IDEMI_KEY_MAX + 1];

    memset(name, 's', sizeof name);
    for (size_t size = 1; size <= 300; size++) {
        name[size] = '\0';
        key_of(name, string_of("x"));
        if (size < IDEMI_SCOPE_MAX) {
            ck_assert_uint_eq(key_size, size + 2);
        } else {
            ck_assert_uint_eq(key_size, IDEMI_SCOPE_MAX + 1);
            ck_assert_ptr_nonnull(strstr(key, "s%_"));
        }
        /* Which ends as another long one does not. */
        strcpy(first, key);
        name[size - 1] = 't';
        ck_assert_str_ne(key_of(name, string_of("x")), first);
        name[size - 1] = 's';
        name[size] = 's';
    }
    /* A name that is what a long one becomes is not the long one. */
    name[200] = '\0';
    strcpy(first, key_of(name, string_of("x")));
    strcpy(name, first);
    name[strlen(name) - 2] = '\0';
    ck_assert_str_ne(key_of(name, string_of("x")), first);
    /* Characters and escapes are not cut in halves that mean something else. */
    for (size_t ascii = 0; ascii < 4; ascii++) {
        size_t size = ascii;
        memset(name, 's', ascii);
        while (size + 4 < sizeof name) {
            memcpy(name + size, "\xf0\x9f\x99\x82", 5);
            size += 4;
        }
        key_of(name, string_of("x"));
        ck_assert_uint_le(strcspn(key, "/"), IDEMI_SCOPE_MAX - 1);
    }
}
END_TEST

START_TEST(order_of_sources_is_kept)
{
    static const uint8_t uuid[16];
    idemi_id_t none = {.type = IDEMI_ID_NONE};
    idemi_id_t empty = {.type = IDEMI_ID_STRING};
    idemi_id_t empty_binary = {.type = IDEMI_ID_BINARY};
    idemi_id_t other = {.type = IDEMI_ID_OTHER};
    idemi_id_t m = string_of("m");
    idemi_id_t d = string_of("d");
    idemi_id_t u = id_of(IDEMI_ID_UUID, uuid, 16);
    const char *zero = "ID:AMQP_UUID:00000000-0000-0000-0000-000000000000";
    /* Expected: message first, duplicate first, message only, duplicate only.
     * "" is no id, "?" something that is none. */
    const struct {
        idemi_id_t message_id;
        idemi_id_t duplicate_id;
        const char *keys[4];
    } cases[] = {
        {m, d, {"m", "d", "m", "d"}},
        {m, none, {"m", "m", "m", ""}},
        {none, d, {"d", "d", "", "d"}},
        {none, none, {"", "", "", ""}},
        {empty, d, {"d", "d", "", "d"}},
        {empty_binary, empty, {"", "", "", ""}},
        {m, empty, {"m", "m", "m", ""}},
        {other, d, {"d", "d", "?", "d"}},
        {m, other, {"m", "m", "m", "?"}},
        {other, none, {"?", "?", "?", ""}},
        {none, other, {"?", "?", "", "?"}},
        {empty, other, {"?", "?", "", "?"}},
        {other, other, {"?", "?", "?", "?"}},
        {u, d, {zero, "d", zero, "d"}},
    };
    idemi_scope_t scope;

    ck_assert(idemi_scope_init(&scope, ""));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        idemi_walk_t walk = {.message_id = cases[i].message_id,
                             .duplicate_id = cases[i].duplicate_id};
        for (unsigned source = 0; source < 4; source++) {
            const char *expected = cases[i].keys[source];
            idemi_identity_t identity;
            strcpy(key, "untouched");
            key_size = 77;
            identity = idemi_identity_key(&scope, (idem_id_source_t)source,
                                          &walk, key, &key_size);
            if (expected[0] == '\0' || expected[0] == '?') {
                ck_assert_int_eq(identity, expected[0] == '?'
                                               ? IDEMI_IDENTITY_OTHER_TYPE
                                               : IDEMI_IDENTITY_NONE);
                ck_assert_str_eq(key, "untouched");
                ck_assert_uint_eq(key_size, 77);
            } else {
                ck_assert_int_eq(identity, IDEMI_IDENTITY_KEY);
                ck_assert_str_eq(key, expected);
                check_key();
            }
        }
    }
}
END_TEST

START_TEST(key_fits_whatever_the_length)
{
    static const size_t sizes[] = {1,   100, 239, 240, 241,  250,    253,
                                   254, 255, 256, 257, 5000, LONG_ID};
    static char id[LONG_ID];
    static const char *const names[] = {"", "q", "a/long/name/of/a/queue"};

    memset(id, 'i', sizeof id);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        size_t scope_size = strlen(key_of(names[n], string_of("x"))) - 1;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            idemi_id_t string = id_of(IDEMI_ID_STRING, id, sizes[i]);
            idemi_id_t binary = id_of(IDEMI_ID_BINARY, id, sizes[i]);
            char first[IDEMI_KEY_MAX + 1];

            strcpy(first, key_of(names[n], string));
            if (scope_size + sizes[i] <= IDEMI_KEY_MAX) {
                ck_assert_uint_eq(key_size, scope_size + sizes[i]);
            } else {
                ck_assert_uint_eq(key_size, IDEMI_KEY_MAX);
                ck_assert_int_eq(
                    strncmp(key + scope_size, "ID:IDEM_SHA256:", 15), 0);
                ck_assert_str_eq(key + IDEMI_KEY_MAX - 8, "iiiiiiii");
            }
            ck_assert_str_eq(key_of(names[n], string), first);
            ck_assert_str_ne(key_of(names[n], binary), first);
            /* Its last byte counts, however long it is. */
            id[sizes[i] - 1] = 'j';
            ck_assert_str_ne(key_of(names[n], string), first);
            id[sizes[i] - 1] = ' ';
            ck_assert_str_ne(key_of(names[n], string), first);
            id[sizes[i] - 1] = 'i';
        }
    }
}
END_TEST

/* The forms are stored, so a later version has to make the same keys. */
START_TEST(form_of_a_long_id_never_changes)
{
    static char id[300];
    char expected[IDEMI_KEY_MAX + 1];

    memset(id, 'i', sizeof id);
    /* SHA-256 of s or b, then 300 times i. */
    snprintf(expected, sizeof expected, "q/ID:IDEM_SHA256:%s:%.173s",
             "f53f6d9237149203831b32c733cb6cf68a7f5d3e3617b96f30570f35e2252744",
             id);
    ck_assert_str_eq(key_of("q", id_of(IDEMI_ID_STRING, id, 300)), expected);
    snprintf(
        expected, sizeof expected, "ID:IDEM_SHA256:%s:ID:AMQP_BINARY:",
        "2d033788a842694c254e443b6ecc85abed062dd15e420ef6460b99303f6325dc");
    key_of("", id_of(IDEMI_ID_BINARY, id, 300));
    ck_assert_int_eq(strncmp(key, expected, strlen(expected)), 0);
    ck_assert_str_eq(key + key_size - 4, "6969");
}
END_TEST

START_TEST(long_id_is_cut_between_characters)
{
    static char id[400];

    for (size_t ascii = 0; ascii < 4; ascii++) {
        memset(id, 'i', sizeof id);
        for (size_t at = ascii; at + 4 <= sizeof id; at += 4) {
            memcpy(id + at, "\xf0\x9f\x99\x82", 4);
        }
        size_t size = ascii + (sizeof id - ascii) / 4 * 4;
        key_of("q", id_of(IDEMI_ID_STRING, id, size));
        ck_assert_uint_gt(key_size, IDEMI_KEY_MAX - 4);
    }
}
END_TEST

START_TEST(supplied_id_is_a_string)
{
    static char id[LONG_ID];
    static const struct {
        const char *id;
        size_t size;
        const char *key;
    } cases[] = {
        {"k", 1, "q/k"},
        {"a\0b", 3, "q/ID:IDEM_HEX:610062"},
        {"ID:AMQP_ULONG:7", 15, "q/ID:AMQP_STRING:ID:AMQP_ULONG:7"},
    };
    idemi_scope_t scope;

    ck_assert(idemi_scope_init(&scope, "q"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq(idemi_identity_key_from(&scope, cases[i].id,
                                                 cases[i].size, key, &key_size),
                         IDEMI_IDENTITY_KEY);
        check_key();
        ck_assert_str_eq(key, cases[i].key);
    }
    ck_assert_int_eq(idemi_identity_key_from(&scope, "", 0, key, &key_size),
                     IDEMI_IDENTITY_NONE);
    ck_assert_int_eq(idemi_identity_key_from(&scope, NULL, 0, key, &key_size),
                     IDEMI_IDENTITY_NONE);
    memset(id, 'i', sizeof id);
    ck_assert_int_eq(
        idemi_identity_key_from(&scope, id, sizeof id, key, &key_size),
        IDEMI_IDENTITY_KEY);
    check_key();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("identity");
    TCase *tcase = tcase_create("identity");

    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, id_has_its_text);
    tcase_add_test(tcase, string_like_an_encoding_is_escaped);
    tcase_add_test(tcase, string_that_is_no_text_is_encoded);
    tcase_add_test(tcase, scope_ends_at_the_first_slash);
    tcase_add_test(tcase, long_scope_is_its_beginning_and_hash);
    tcase_add_test(tcase, order_of_sources_is_kept);
    tcase_add_test(tcase, key_fits_whatever_the_length);
    tcase_add_test(tcase, form_of_a_long_id_never_changes);
    tcase_add_test(tcase, long_id_is_cut_between_characters);
    tcase_add_test(tcase, supplied_id_is_a_string);
    return test_run(suite);
}
