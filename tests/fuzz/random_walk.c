#include "check_walk.h"

#include "base/random.h"
#include "samples.h"
#include "support.h"

#include <check.h>
#include <proton/message.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the fuzzer does with coverage to guide it, here from a fixed seed, so
 * that every run of the tests does some of it. */
#define SEED UINT64_C(19700101)

static idemi_random_t generator;

static void start(void)
{
    generator.state = SEED;
    printf("seed %llu\n", (unsigned long long)SEED);
}

static size_t below(size_t limit)
{
    return (size_t)idemi_random_below(&generator, limit);
}

/* A byte that means something more often than chance would have it. */
static uint8_t random_byte(void)
{
    static const uint8_t codes[] = {
        0x00, 0x01, 0x40, 0x41, 0x43, 0x44, 0x45, 0x50, 0x52, 0x53,
        0x56, 0x60, 0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77,
        0x78, 0x80, 0x83, 0x94, 0x98, 0xa0, 0xa1, 0xa3, 0xb0, 0xb1,
        0xb3, 0xc0, 0xc1, 0xd0, 0xd1, 0xe0, 0xf0, 0xff};

    return below(2) == 0 ? codes[below(sizeof codes)] : (uint8_t)below(256);
}

/* In a block of exactly its size, so that a read beyond it is seen. */
static bool check_copy(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);

    ck_assert_ptr_nonnull(copy);
    if (size > 0) {
        memcpy(copy, data, size);
    }
    bool is_message = check_walk(copy, size);
    free(copy);
    return is_message;
}

START_TEST(random_bytes_do_no_harm)
{
    uint8_t bytes[64];
    unsigned passed = 0;

    for (unsigned i = 0; i < 300000; i++) {
        size_t size = below(sizeof bytes + 1);
        for (size_t at = 0; at < size; at++) {
            bytes[at] = random_byte();
        }
        /* Half of them at least begin like a message. */
        if (size >= 3 && below(2) == 0) {
            bytes[0] = 0x00;
            bytes[1] = 0x53;
            bytes[2] = (uint8_t)(0x70 + below(9));
        }
        passed += check_copy(bytes, size);
    }
    ck_assert_uint_gt(passed, 0);
}
END_TEST

static void mutate(uint8_t *data, size_t *size)
{
    for (size_t changes = 1 + below(3); changes > 0 && *size > 0; changes--) {
        size_t at = below(*size);
        size_t count = 1 + below(*size - at);

        switch (below(6)) {
        case 0:
            *size = at;
            break;
        case 1:
            memmove(data + at, data + at + count, *size - at - count);
            *size -= count;
            break;
        case 2:
            data[at] = (uint8_t)(data[at] + 1 - 2 * below(2));
            break;
        case 3:
            memmove(data + at, data + below(*size - count + 1), count);
            break;
        default:
            data[at] = random_byte();
            break;
        }
    }
}

START_TEST(mutated_messages_do_no_harm)
{
    sample_t sample = {0};
    unsigned passed = 0;

    for (unsigned i = 0; i < 200000; i++) {
        sample_write(&sample, i % SAMPLE_COUNT);
        size_t size = sample.message.size;
        mutate(sample.message.data, &size);
        passed += check_copy(sample.message.data, size);
    }
    ck_assert_uint_gt(passed, 1000);
    sample_finish(&sample);
}
END_TEST

/* What passes is what a handler's message is decoded from. */
START_TEST(what_passes_is_decoded_by_proton_as_well)
{
    sample_t sample = {0};
    pn_message_t *message = pn_message();
    unsigned passed = 0;

    ck_assert_ptr_nonnull(message);
    for (unsigned i = 0; i < 50000; i++) {
        sample_write(&sample, i % SAMPLE_COUNT);
        size_t size = sample.message.size;
        mutate(sample.message.data, &size);
        if (check_walk(sample.message.data, size)) {
            pn_message_clear(message);
            ck_assert_int_eq(
                pn_message_decode(message, (char *)sample.message.data, size),
                0);
            passed++;
        }
    }
    ck_assert_uint_gt(passed, 1000);
    pn_message_free(message);
    sample_finish(&sample);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("random-walk");
    TCase *tcase = tcase_create("random-walk");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, start, NULL);
    tcase_add_test(tcase, random_bytes_do_no_harm);
    tcase_add_test(tcase, mutated_messages_do_no_harm);
    tcase_add_test(tcase, what_passes_is_decoded_by_proton_as_well);
    return test_run(suite);
}
