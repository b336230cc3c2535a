#include "identity/utf8.h"
#include "support.h"

#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* UTF-8 by its definition: decode without mercy, encode again, compare. */
static size_t encode(uint32_t point, uint8_t *out)
{
    if (point < 0x80) {
        out[0] = (uint8_t)point;
        return 1;
    }
    if (point < 0x800) {
        out[0] = (uint8_t)(0xc0 | point >> 6);
        out[1] = (uint8_t)(0x80 | (point & 0x3f));
        return 2;
    }
    if (point < 0x10000) {
        out[0] = (uint8_t)(0xe0 | point >> 12);
        out[1] = (uint8_t)(0x80 | (point >> 6 & 0x3f));
        out[2] = (uint8_t)(0x80 | (point & 0x3f));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | point >> 18);
    out[1] = (uint8_t)(0x80 | (point >> 12 & 0x3f));
    out[2] = (uint8_t)(0x80 | (point >> 6 & 0x3f));
    out[3] = (uint8_t)(0x80 | (point & 0x3f));
    return 4;
}

static bool is_character(uint32_t point)
{
    return point > 0 && point <= 0x10ffff && (point < 0xd800 || point > 0xdfff);
}

static size_t expected_character(const uint8_t *bytes, size_t size)
{
    static const uint8_t masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};

    for (size_t length = 1; length <= 4 && length <= size; length++) {
        uint8_t again[4];
        uint32_t point = bytes[0] & masks[length];
        for (size_t i = 1; i < length; i++) {
            point = point << 6 | (bytes[i] & 0x3f);
        }
        if (is_character(point) && encode(point, again) == length &&
            memcmp(again, bytes, length) == 0) {
            return length;
        }
    }
    return 0;
}

START_TEST(every_character_is_taken)
{
    for (uint32_t point = 0; point < 0x110000; point++) {
        uint8_t bytes[4];
        size_t size = encode(point, bytes);
        bool is_one = idemi_utf8_character(bytes, size) == size;
        bool is_cut_one = size > 1 && idemi_utf8_character(bytes, size - 1) > 0;
        if (is_one != is_character(point) || is_cut_one ||
            idemi_utf8_is_text(bytes, size) != is_one) {
            ck_abort_msg("U+%04X", point);
        }
    }
}
END_TEST

START_TEST(nothing_else_is_taken)
{
    static const uint8_t edges[] = {0x00, 0x01, 0x7f, 0x80, 0x81, 0x8f, 0x90,
                                    0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf,
                                    0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0,
                                    0xf1, 0xf3, 0xf4, 0xf5, 0xf8, 0xff};
    const size_t count = sizeof edges;

    for (size_t row = 0; row < count * count * count * count; row++) {
        uint8_t bytes[4] = {edges[row % count], edges[row / count % count],
                            edges[row / count / count % count],
                            edges[row / count / count / count]};
        for (size_t size = 1; size <= 4; size++) {
            if (idemi_utf8_character(bytes, size) !=
                expected_character(bytes, size)) {
                ck_abort_msg("%02x%02x%02x%02x, %zu bytes", bytes[0], bytes[1],
                             bytes[2], bytes[3], size);
            }
        }
    }
}
END_TEST

START_TEST(one_bad_byte_anywhere_is_seen)
{
    static const uint8_t bad[] = {0x00, 0x80, 0xc3, 0xff};

    for (size_t size = 1; size <= 40; size++) {
        char *text = malloc(size);
        ck_assert_ptr_nonnull(text);
        memset(text, 'a', size);
        ck_assert(idemi_utf8_is_text(text, size));
        for (size_t at = 0; at < size; at++) {
            for (size_t i = 0; i < sizeof bad; i++) {
                text[at] = (char)bad[i];
                ck_assert(!idemi_utf8_is_text(text, size));
            }
            text[at] = '\x01';
            ck_assert(idemi_utf8_is_text(text, size));
            text[at] = '\x7f';
        }
        free(text);
    }
    ck_assert(idemi_utf8_is_text(NULL, 0));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("utf8");
    TCase *tcase = tcase_create("utf8");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, every_character_is_taken);
    tcase_add_test(tcase, nothing_else_is_taken);
    tcase_add_test(tcase, one_bad_byte_anywhere_is_seen);
    return test_run(suite);
}
