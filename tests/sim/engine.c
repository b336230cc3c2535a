#include "support.h"
#include "world.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* IDEM_SIM_RUNS sets the number of worlds, IDEM_SIM_SEED the first seed;
 * IDEM_SIM_TRACE prints every event of one world. */
#define RUNS 100000
#define STEPS 400

/* Seeds that once broke a promise. */
static const uint64_t former[] = {1};

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static void run(uint64_t seed, bool trace)
{
    static world_t world;

    world_init(&world, seed, trace);
    for (int i = 0; i < STEPS && world_step(&world); i++) {
    }
    if (!world.broken[0]) {
        (void)world_settle(&world);
    }
    world_finish(&world);
    ck_assert_msg(!world.broken[0],
                  "seed %" PRIu64 ", step %" PRIu64 ", at %" PRId64 ": %s",
                  seed, world.steps, world.now_ms, world.broken);
}

START_TEST(former_failures_stay_mended)
{
    for (size_t i = 0; i < sizeof former / sizeof former[0]; i++) {
        run(former[i], false);
    }
}
END_TEST

START_TEST(promises_hold_in_random_worlds)
{
    uint64_t runs = number_from("IDEM_SIM_RUNS", RUNS);
    uint64_t first = number_from("IDEM_SIM_SEED", 1);

    (void)printf("seeds %" PRIu64 " to %" PRIu64 "\n", first, first + runs - 1);
    for (uint64_t i = 0; i < runs; i++) {
        run(first + i, getenv("IDEM_SIM_TRACE") != NULL);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine simulation");
    TCase *tests = tcase_create("worlds");

    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, former_failures_stay_mended);
    tcase_add_test(tests, promises_hold_in_random_worlds);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
