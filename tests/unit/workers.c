#include "workers/workers.h"

#include "support.h"

#include <check.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Made a part of this program by -Wl,--wrap=malloc. */
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

static atomic_bool no_memory;

void *__wrap_malloc(size_t size)
{
    return atomic_load(&no_memory) ? NULL : __real_malloc(size);
}

typedef struct numbered {
    idemi_job_t job;
    int number;
    char group[24];
    /* Taken down while it runs. */
    int place;
    bool was_alone;
} numbered_t;

static idemi_workers_t *workers;
static atomic_int finished;
static atomic_int places;
static atomic_bool gate;
static atomic_int at_gate;

static void start(uint32_t count)
{
    idem_error_t err;

    ck_assert_msg(idemi_workers_create(&workers, count, &err) == IDEM_OK, "%s",
                  err.message);
}

static bool all_finished(void *user)
{
    return atomic_load(&finished) == *(const int *)user;
}

static void wait_for(int count)
{
    ck_assert_msg(test_wait(all_finished, &count, 10000), "%d of %d finished",
                  atomic_load(&finished), count);
}

static void run_numbered(idemi_task_t *task, int64_t now_ms)
{
    numbered_t *job = (numbered_t *)task;

    (void)now_ms;
    job->place = atomic_fetch_add(&places, 1);
    atomic_fetch_add(&finished, 1);
}

static bool gate_is_open(void *user)
{
    (void)user;
    return atomic_load(&gate);
}

/* Keeps its thread until the gate opens. */
static void run_slow(idemi_task_t *task, int64_t now_ms)
{
    (void)task;
    (void)now_ms;
    atomic_fetch_add(&at_gate, 1);
    (void)test_wait(gate_is_open, NULL, 30000);
    atomic_fetch_add(&finished, 1);
}

static bool is_at_gate(void *user)
{
    return atomic_load(&at_gate) == *(const int *)user;
}

static void wait_at_gate(int count)
{
    ck_assert(test_wait(is_at_gate, &count, 10000));
}

static void add(idemi_tasks_t *jobs, numbered_t *job,
                void (*run)(idemi_task_t *task, int64_t now_ms),
                const char *group)
{
    memset(job, 0, sizeof *job);
    job->job.task.run = run;
    if (group) {
        (void)snprintf(job->group, sizeof job->group, "%s", group);
        job->job.group = job->group;
        job->job.group_size = strlen(job->group);
    }
    idemi_tasks_add(jobs, &job->job.task);
}

START_TEST(one_thread_runs_jobs_in_the_order_given)
{
    enum { COUNT = 1000, CHAIN = 7 };
    numbered_t *jobs = calloc(COUNT, sizeof *jobs);
    idemi_tasks_t chain = {NULL, NULL};

    ck_assert_ptr_nonnull(jobs);
    start(1);
    for (int i = 0; i < COUNT; i++) {
        add(&chain, &jobs[i], run_numbered, i % 3 == 0 ? "group" : NULL);
        if (i % CHAIN == 0) {
            idemi_workers_submit(workers, &chain);
            ck_assert_ptr_null(chain.first);
            ck_assert_ptr_null(chain.last);
        }
    }
    idemi_workers_submit(workers, &chain);
    idemi_workers_destroy(workers);
    for (int i = 0; i < COUNT; i++) {
        ck_assert_int_eq(jobs[i].place, i);
    }
    free(jobs);
}
END_TEST

enum { GROUPS = 37 };
static atomic_int group_is_busy[GROUPS];
static int group_last[GROUPS];

static void run_in_group(idemi_task_t *task, int64_t now_ms)
{
    numbered_t *job = (numbered_t *)task;
    int group = job->number % GROUPS;

    (void)now_ms;
    job->was_alone = atomic_exchange(&group_is_busy[group], 1) == 0;
    /* Without a lock: TSan sees whether the pool is one. */
    job->was_alone = job->was_alone && group_last[group] < job->number;
    group_last[group] = job->number;
    atomic_store(&group_is_busy[group], 0);
    atomic_fetch_add(&finished, 1);
}

static void check_groups(bool with_memory)
{
    enum { COUNT = 20000 };
    numbered_t *jobs = calloc(COUNT, sizeof *jobs);
    idemi_tasks_t chain = {NULL, NULL};

    ck_assert_ptr_nonnull(jobs);
    for (int i = 0; i < GROUPS; i++) {
        group_last[i] = -1;
    }
    start(8);
    for (int i = 0; i < COUNT; i++) {
        char group[24];
        (void)snprintf(group, sizeof group, "group-%d", i % GROUPS);
        add(&chain, &jobs[i], run_in_group, group);
        jobs[i].number = i;
        if (i % 100 == 0) {
            /* Every other chain meets a pool that gets no memory. */
            atomic_store(&no_memory, !with_memory && i % 200 == 0);
            idemi_workers_submit(workers, &chain);
            atomic_store(&no_memory, false);
        }
    }
    idemi_workers_submit(workers, &chain);
    idemi_workers_destroy(workers);
    ck_assert_int_eq(atomic_load(&finished), COUNT);
    for (int i = 0; i < COUNT; i++) {
        ck_assert_msg(jobs[i].was_alone, "job %d was not alone or late", i);
    }
    free(jobs);
}

START_TEST(group_runs_in_order_and_one_at_a_time)
{
    check_groups(true);
}
END_TEST

START_TEST(order_of_groups_needs_no_memory)
{
    check_groups(false);
}
END_TEST

START_TEST(slow_job_holds_back_no_other)
{
    enum { COUNT = 100 };
    static numbered_t jobs[COUNT];
    idemi_tasks_t chain = {NULL, NULL};

    start(2);
    add(&chain, &jobs[0], run_slow, NULL);
    for (int i = 1; i < COUNT; i++) {
        add(&chain, &jobs[i], run_numbered, NULL);
    }
    idemi_workers_submit(workers, &chain);
    wait_for(COUNT - 1);
    atomic_store(&gate, true);
    idemi_workers_destroy(workers);
    ck_assert_int_eq(atomic_load(&finished), COUNT);
}
END_TEST

START_TEST(slow_group_holds_back_no_other_group)
{
    enum { COUNT = 100 };
    static numbered_t jobs[COUNT];
    idemi_tasks_t chain = {NULL, NULL};

    start(2);
    add(&chain, &jobs[0], run_slow, "slow");
    for (int i = 1; i < COUNT; i++) {
        add(&chain, &jobs[i], run_numbered, i % 2 ? "slow" : "other");
    }
    idemi_workers_submit(workers, &chain);
    wait_for(COUNT / 2 - 1);
    atomic_store(&gate, true);
    wait_for(COUNT);
    idemi_workers_destroy(workers);
}
END_TEST

START_TEST(one_chain_keeps_every_thread_busy)
{
    enum { COUNT = 6 };
    static numbered_t jobs[COUNT];
    idemi_tasks_t chain = {NULL, NULL};

    start(COUNT);
    for (int i = 0; i < COUNT; i++) {
        add(&chain, &jobs[i], run_slow, NULL);
    }
    idemi_workers_submit(workers, &chain);
    wait_at_gate(COUNT);
    atomic_store(&gate, true);
    idemi_workers_destroy(workers);
}
END_TEST

START_TEST(destroy_runs_what_was_given)
{
    enum { COUNT = 100 };
    static numbered_t jobs[COUNT];
    uint32_t count = (uint32_t)_i + 1;

    for (int round = 0; round < 50; round++) {
        idemi_tasks_t chain = {NULL, NULL};
        atomic_store(&finished, 0);
        start(count);
        for (int i = 0; i < COUNT; i++) {
            add(&chain, &jobs[i], run_numbered, i % 2 ? "group" : NULL);
        }
        idemi_workers_submit(workers, &chain);
        idemi_workers_destroy(workers);
        ck_assert_int_eq(atomic_load(&finished), COUNT);
    }
    idemi_workers_destroy(NULL);
}
END_TEST

static void run_and_free(idemi_task_t *task, int64_t now_ms)
{
    (void)now_ms;
    free(task);
    atomic_fetch_add(&finished, 1);
}

START_TEST(job_may_free_itself)
{
    enum { COUNT = 1000 };
    idemi_tasks_t chain = {NULL, NULL};

    start((uint32_t)_i + 1);
    for (int i = 0; i < COUNT; i++) {
        numbered_t *job = malloc(sizeof *job);
        ck_assert_ptr_nonnull(job);
        add(&chain, job, run_and_free, i % 2 ? "group" : NULL);
    }
    idemi_workers_submit(workers, &chain);
    idemi_workers_destroy(workers);
    ck_assert_int_eq(atomic_load(&finished), COUNT);
}
END_TEST

static sigset_t mask;
static bool is_own;

static void run_look_at_signals(idemi_task_t *task, int64_t now_ms)
{
    (void)task;
    (void)now_ms;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
    is_own = idemi_workers_is_own_thread(workers);
    atomic_fetch_add(&finished, 1);
}

START_TEST(threads_leave_signals_to_the_program)
{
    static numbered_t job;
    idemi_tasks_t chain = {NULL, NULL};
    sigset_t ours;

    start(1);
    add(&chain, &job, run_look_at_signals, NULL);
    idemi_workers_submit(workers, &chain);
    wait_for(1);
    ck_assert(!idemi_workers_is_own_thread(workers));
    idemi_workers_destroy(workers);
    ck_assert(is_own);
    ck_assert_int_eq(sigismember(&mask, SIGINT), 1);
    ck_assert_int_eq(sigismember(&mask, SIGTERM), 1);
    ck_assert_int_eq(sigismember(&mask, SIGUSR1), 1);
    ck_assert_int_eq(sigismember(&mask, SIGSEGV), 0);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &ours);
    ck_assert_int_eq(sigismember(&ours, SIGINT), 0);
}
END_TEST

START_TEST(without_memory_there_is_no_pool)
{
    idem_error_t err;

    atomic_store(&no_memory, true);
    /* The struct comes from calloc(), the table of groups does not. */
    idem_status_t status = idemi_workers_create(&workers, 2, &err);
    atomic_store(&no_memory, false);
    ck_assert_int_eq(status, IDEM_ERR_MEMORY);
    ck_assert_int_eq(err.status, IDEM_ERR_MEMORY);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("workers");
    TCase *tcase = tcase_create("workers");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, one_thread_runs_jobs_in_the_order_given);
    tcase_add_test(tcase, group_runs_in_order_and_one_at_a_time);
    tcase_add_test(tcase, order_of_groups_needs_no_memory);
    tcase_add_test(tcase, slow_job_holds_back_no_other);
    tcase_add_test(tcase, slow_group_holds_back_no_other_group);
    tcase_add_test(tcase, one_chain_keeps_every_thread_busy);
    tcase_add_loop_test(tcase, destroy_runs_what_was_given, 0, 3);
    tcase_add_loop_test(tcase, job_may_free_itself, 0, 3);
    tcase_add_test(tcase, threads_leave_signals_to_the_program);
    tcase_add_test(tcase, without_memory_there_is_no_pool);
    return test_run(suite);
}
