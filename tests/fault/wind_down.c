/* What a client still owes its store when it is destroyed: claims of handlers
 * that run on, confirms, releases. */

#include "stage.h"
#include "support.h"

#include <check.h>
#include <pthread.h>

enum { WAIT_MS = 20000, LEASE_MS = 1000 };

static stage_t stage;

static void prepare(int host)
{
    stage_prepare(&stage, host, NULL);
    stage.rig.options.lease_ms = LEASE_MS;
    runner_options(stage.runner)->stop_timeout_ms = 100;
    stage_open(&stage);
    handler_hold(stage.handler, true);
    stage_send(&stage, "m");
    ck_assert(handler_wait_begun(stage.handler, 1, WAIT_MS));
    ck_assert_int_eq(runner_join(stage.runner, NULL), IDEM_ERR_TIMEOUT);
}

static void *destroy(void *user)
{
    runner_destroy(user);
    return NULL;
}

/* Destroys the client while the handler is held, and looks at its claim. */
static void watch_the_claim(pthread_t *thread)
{
    idem_claim_t claim = {0};
    int64_t end_ms = test_now_ms() + 3 * LEASE_MS + 500;

    ck_assert(test_thread_start(thread, destroy, stage.runner));
    stage.runner = NULL;
    while (test_now_ms() < end_ms) {
        ck_assert_int_eq(
            idem_store_claim(stage.rig.store, "m", &claim, WAIT_MS, NULL),
            IDEM_OK);
        ck_assert_int_eq(claim.state, IDEM_CLAIM_IN_PROGRESS);
    }
}

START_TEST(running_handler_keeps_its_claim_and_is_confirmed)
{
    pthread_t thread;

    prepare(_i);
    watch_the_claim(&thread);
    handler_hold(stage.handler, false);
    pthread_join(thread, NULL);
    ck_assert_str_eq(stage_row(&stage, "m"), "CONFIRMED||0");
    stage_close_anyhow(&stage);
}
END_TEST

START_TEST(failed_handler_gives_its_claim_up)
{
    pthread_t thread;

    prepare(_i);
    handler_plan(stage.handler, NULL, IDEM_RETRY, 0);
    watch_the_claim(&thread);
    handler_hold(stage.handler, false);
    pthread_join(thread, NULL);
    ck_assert_str_eq(stage_row(&stage, "m"), "CLAIMED||1");
    stage_close_anyhow(&stage);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wind down");
    TCase *tests = tcase_create("both hosts");

    tcase_add_loop_test(tests, running_handler_keeps_its_claim_and_is_confirmed,
                        0, RUNNER_HOSTS);
    tcase_add_loop_test(tests, failed_handler_gives_its_claim_up, 0,
                        RUNNER_HOSTS);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
