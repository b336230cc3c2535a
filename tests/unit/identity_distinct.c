#include "identity/identity.h"

#include "base/random.h"
#include "identity/utf8.h"
#include "support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED UINT64_C(20240229)

/* Two different ids never meet in one key: all ids that a test makes are
 * sorted by key, and equal neighbours must be the same id. */
typedef struct entry {
    size_t scope;
    idemi_id_type_t type;
    uint64_t number;
    uint8_t *bytes;
    size_t size;
    char key[IDEMI_KEY_MAX + 1];
} entry_t;

static entry_t *entries;
static size_t entry_count;
static size_t entry_room;

/* The bare scope is alone in its table; the others share one. */
static const char *const bare_scopes[] = {""};
static const char *const named_scopes[] = {
    "a",
    "A",
    "a ",
    "a/b",
    "a%2Fb",
    "a%252Fb",
    "%",
    "%_",
    "ID:AMQP_STRING:",
    "a very long name of a consumer, longer than what of it could stand in "
    "front of every key, and it goes on after that for a while, to the letter",
    "a very long name of a consumer, longer than what of it could stand in "
    "front of every key, and it goes on after that for a while, to the lettes",
};
static const char *const *scopes;
static size_t scope_count;
static idemi_scope_t prepared[sizeof named_scopes / sizeof *named_scopes];

static void use_scopes(int which)
{
    scopes = which == 0 ? bare_scopes : named_scopes;
    scope_count = which == 0 ? 1 : sizeof named_scopes / sizeof *named_scopes;
    for (size_t i = 0; i < scope_count; i++) {
        ck_assert(idemi_scope_init(&prepared[i], scopes[i]));
    }
}

static void finish(void)
{
    for (size_t i = 0; i < entry_count; i++) {
        free(entries[i].bytes);
    }
    free(entries);
    entries = NULL;
    entry_count = 0;
    entry_room = 0;
}

static void add(size_t scope, idemi_id_type_t type, const void *bytes,
                size_t size, uint64_t number)
{
    size_t key_size = 0;
    bool is_empty = type != IDEMI_ID_ULONG && size == 0;

    if (entry_count == entry_room) {
        entry_room = 2 * entry_room + 1024;
        entries = realloc(entries, entry_room * sizeof *entries);
        ck_assert_ptr_nonnull(entries);
    }
    entry_t *entry = &entries[entry_count];
    *entry = (entry_t){.scope = scope,
                       .type = type,
                       .number = number,
                       .bytes = malloc(size + 1),
                       .size = size};
    ck_assert_ptr_nonnull(entry->bytes);
    if (size > 0) {
        memcpy(entry->bytes, bytes, size);
    }
    idemi_walk_t walk = {
        .message_id = {.type = type,
                       .number = number,
                       .bytes = {.data = entry->bytes, .size = size}}};
    idemi_identity_t identity = idemi_identity_key(
        &prepared[scope], IDEM_ID_MESSAGE_FIRST, &walk, entry->key, &key_size);
    if (is_empty) {
        ck_assert_int_eq(identity, IDEMI_IDENTITY_NONE);
        free(entry->bytes);
        return;
    }
    ck_assert_int_eq(identity, IDEMI_IDENTITY_KEY);
    ck_assert_uint_eq(strlen(entry->key), key_size);
    ck_assert_uint_le(key_size, IDEMI_KEY_MAX);
    ck_assert(idemi_utf8_is_text(entry->key, key_size));
    entry_count++;
}

/* The bytes as each type that can hold them, in each scope. */
static void add_everywhere(const void *bytes, size_t size)
{
    for (size_t scope = 0; scope < scope_count; scope++) {
        add(scope, IDEMI_ID_STRING, bytes, size, 0);
        add(scope, IDEMI_ID_BINARY, bytes, size, 0);
        if (size == 16) {
            add(scope, IDEMI_ID_UUID, bytes, size, 0);
        }
    }
}

static int compare_keys(const void *left, const void *right)
{
    return strcmp(((const entry_t *)left)->key, ((const entry_t *)right)->key);
}

static bool is_same_id(const entry_t *left, const entry_t *right)
{
    return left->scope == right->scope && left->type == right->type &&
           left->number == right->number && left->size == right->size &&
           memcmp(left->bytes, right->bytes, left->size) == 0;
}

static void check_distinct(void)
{
    qsort(entries, entry_count, sizeof *entries, compare_keys);
    for (size_t i = 1; i < entry_count; i++) {
        ck_assert_msg(strcmp(entries[i - 1].key, entries[i].key) != 0 ||
                          is_same_id(&entries[i - 1], &entries[i]),
                      "two ids with the key %s", entries[i].key);
    }
}

#define BYTES(literal) \
    { \
        literal, sizeof(literal) - 1 \
    }

static const struct {
    const char *bytes;
    size_t size;
} hostile[] = {
    BYTES(" "),
    BYTES("  "),
    BYTES("\t"),
    BYTES("k"),
    BYTES("K"),
    BYTES("k "),
    BYTES(" k"),
    BYTES("k\n"),
    BYTES("k\0"),
    BYTES("\0k"),
    BYTES("\0"),
    BYTES("\0\0"),
    BYTES("a\0b"),
    BYTES("a\0c"),
    BYTES("a"),
    BYTES("a/b"),
    BYTES("a/b/c"),
    BYTES("b/c"),
    BYTES("/"),
    BYTES("//"),
    BYTES("a%2Fb"),
    BYTES("%2F"),
    BYTES("%"),
    BYTES("ABC"),
    BYTES("abc"),
    BYTES("abc "),
    BYTES("caf\xc3\xa9"),
    BYTES("cafe\xcc\x81"),
    BYTES("caf\xe9"),
    BYTES("\xff\xfe"),
    BYTES("\xef\xbf\xbd"),
    BYTES("\xc0\x80"),
    BYTES("\xed\xa0\x80"),
    BYTES("\xf4\x90\x80\x80"),
    BYTES("\xe2\x80\x8b"),
    BYTES("k\xe2\x80\x8b"),
    BYTES("7"),
    BYTES("07"),
    BYTES("\x07"),
    BYTES("0"),
    BYTES("18446744073709551615"),
    BYTES("NULL"),
    BYTES("\\N"),
    BYTES("'"),
    BYTES("\"; drop table idem_message; --"),
    BYTES("{a,b}"),
    BYTES("0123456789abcdef"),
    BYTES("00112233-4455-6677-8899-aabbccddeeff"),
    BYTES("00112233-4455-6677-8899-AABBCCDDEEFF"),
    BYTES("\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff"),
    BYTES("ID:"),
    BYTES("ID:7"),
    BYTES("ID:AMQP_"),
    BYTES("ID:AMQP_ULONG:7"),
    BYTES("ID:AMQP_ULONG:07"),
    BYTES("ID:AMQP_ULONG:"),
    BYTES("ID:AMQP_UUID:00112233-4455-6677-8899-aabbccddeeff"),
    BYTES("ID:AMQP_BINARY:07"),
    BYTES("ID:AMQP_BINARY:610062"),
    BYTES("ID:AMQP_BINARY:"),
    BYTES("ID:AMQP_STRING:ID:AMQP_ULONG:7"),
    BYTES("ID:AMQP_STRING:k"),
    BYTES("ID:AMQP_STRING:"),
    BYTES("ID:AMQP_NO_PREFIX:k"),
    BYTES("ID:IDEM_HEX:610062"),
    BYTES("ID:IDEM_HEX:"),
    BYTES("ID:IDEM_SHA256:"),
};

/* Lengths around those at which a key becomes too long, in several contents. */
static void add_long_ids(void)
{
    static uint8_t bytes[70001];

    for (unsigned content = 0; content < 4; content++) {
        for (size_t i = 0; i < sizeof bytes; i++) {
            static const char *const repeated[] = {
                "x", "ID:AMQP_BINARY:", "\xc3\xa9", "\xff"};
            const char *text = repeated[content];
            bytes[i] = (uint8_t)text[i % strlen(text)];
        }
        for (size_t size = 100; size < 270; size += size < 236 ? 9 : 1) {
            add_everywhere(bytes, size);
        }
        add_everywhere(bytes, 5000);
        add_everywhere(bytes, 5001);
        add_everywhere(bytes, 70000);
        add_everywhere(bytes, 70001);
    }
}

START_TEST(hostile_ids_never_share_a_key)
{
    static const uint64_t numbers[] = {0, 7, 610062, 10, 255, UINT64_MAX};

    use_scopes(_i);
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        add_everywhere(hostile[i].bytes, hostile[i].size);
    }
    for (size_t scope = 0; scope < scope_count; scope++) {
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            add(scope, IDEMI_ID_ULONG, NULL, 0, numbers[i]);
        }
    }
    add_long_ids();
    check_distinct();
}
END_TEST

START_TEST(id_that_is_another_ids_key_has_another_key)
{
    use_scopes(_i);
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        add(i % scope_count, IDEMI_ID_STRING, hostile[i].bytes, hostile[i].size,
            0);
        add(i % scope_count, IDEMI_ID_BINARY, hostile[i].bytes, hostile[i].size,
            0);
    }
    add(0, IDEMI_ID_ULONG, NULL, 0, 7);
    add(0, IDEMI_ID_UUID, "0123456789abcdef", 16, 0);
    static uint8_t bytes[70000];
    memset(bytes, 'x', sizeof bytes);
    add(0, IDEMI_ID_STRING, bytes, 256, 0);
    add(0, IDEMI_ID_STRING, bytes, sizeof bytes, 0);
    add(0, IDEMI_ID_BINARY, bytes, 256, 0);
    /* The keys become ids in their turn, with and without their scope. */
    size_t from = 0;
    for (unsigned round = 0; round < 3; round++) {
        size_t to = entry_count;
        for (; from < to; from++) {
            char key[IDEMI_KEY_MAX + 1];
            strcpy(key, entries[from].key);
            size_t scope_size = prepared[entries[from].scope].size;
            for (size_t scope = 0; scope < scope_count && scope < 4; scope++) {
                add(scope, IDEMI_ID_STRING, key, strlen(key), 0);
                add(scope, IDEMI_ID_STRING, key + scope_size,
                    strlen(key) - scope_size, 0);
            }
        }
    }
    check_distinct();
}
END_TEST

static idemi_random_t generator;

static size_t below(size_t limit)
{
    return (size_t)idemi_random_below(&generator, limit);
}

/* An id from the pieces that forms are made of, so that near misses are
 * likely. */
static size_t random_bytes(uint8_t *bytes, size_t room)
{
    static const char *const pieces[] = {
        "ID:",      "AMQP_", "STRING:",
        "BINARY:",  "UUID:", "ULONG:",
        "IDEM_",    "HEX:",  "SHA256:",
        "a",        "61",    "0",
        "/",        "%",     "%2F",
        " ",        "FF",    "-",
        "\xc3\xa9", "\xff",  "\xf0\x9f\x99\x82",
        "",         ":",     "NO_PREFIX:"};
    size_t size = 0;
    size_t count = below(4) == 0 ? 60 : 1 + below(6);

    for (size_t i = 0; i < count; i++) {
        const char *piece = pieces[below(sizeof pieces / sizeof *pieces)];
        /* The empty piece stands for a NUL. */
        size_t length = piece[0] == '\0' ? 1 : strlen(piece);
        if (size + length > room) {
            break;
        }
        memcpy(bytes + size, piece, length);
        size += length;
    }
    return size;
}

START_TEST(random_ids_never_share_a_key)
{
    uint8_t bytes[1024];

    printf("seed %llu\n", (unsigned long long)SEED);
    generator.state = SEED;
    use_scopes(_i);
    for (unsigned i = 0; i < 40000; i++) {
        size_t scope = below(scope_count);
        idemi_id_type_t type = (idemi_id_type_t)(1 + below(4));
        size_t size = random_bytes(bytes, sizeof bytes);

        if (type == IDEMI_ID_ULONG) {
            add(scope, type, NULL, 0, below(1000));
        } else if (type == IDEMI_ID_UUID) {
            memset(bytes, (int)below(256), 16);
            add(scope, type, bytes, 16, 0);
        } else {
            add(scope, type, bytes, size, 0);
        }
    }
    check_distinct();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("identity-distinct");
    TCase *tcase = tcase_create("identity-distinct");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, NULL, finish);
    tcase_add_loop_test(tcase, hostile_ids_never_share_a_key, 0, 2);
    tcase_add_loop_test(tcase, id_that_is_another_ids_key_has_another_key, 0,
                        2);
    tcase_add_loop_test(tcase, random_ids_never_share_a_key, 0, 2);
    return test_run(suite);
}
