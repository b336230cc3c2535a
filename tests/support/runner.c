#include "runner.h"

#include "support.h"

#include <proton/handlers.h>
#include <proton/reactor.h>

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENT_TYPES (IDEM_EVENT_FAILED + 1)

enum { TICK_MS = 10, TICKS_AFTER = 3, STOP_MS = 30000 };

struct runner {
    runner_host_t host;
    idem_client_options_t options;
    idem_client_t *client;
    pthread_t thread;
    bool is_running;

    atomic_bool has_ended;
    atomic_size_t events[EVENT_TYPES];
    atomic_size_t ticks;
    int ticks_after;      /* after the client had stopped; the thread's */
    idem_status_t status; /* the thread's until it has ended */
    idem_error_t err;     /* likewise */

    pthread_mutex_t mutex;
    char *log; /* all lines; guarded by mutex */
    size_t log_size;
    FILE *log_file;
};

static void on_event(void *user, const idem_event_t *event)
{
    runner_t *runner = user;

    atomic_fetch_add(&runner->events[event->type], 1);
}

static void on_log(void *user, idem_log_level_t level, const char *message)
{
    runner_t *runner = user;

    if (getenv("IDEM_TEST_LOG") != NULL) {
        idem_log_to_stderr(NULL, level, message);
    }
    pthread_mutex_lock(&runner->mutex);
    fprintf(runner->log_file, "%s\n", message);
    pthread_mutex_unlock(&runner->mutex);
}

runner_t *runner_create(runner_host_t host, const char *url)
{
    runner_t *runner = calloc(1, sizeof *runner);

    ck_assert_ptr_nonnull(runner);
    runner->host = host;
    ck_assert_int_eq(pthread_mutex_init(&runner->mutex, NULL), 0);
    runner->log_file = open_memstream(&runner->log, &runner->log_size);
    ck_assert_ptr_nonnull(runner->log_file);
    idem_client_options_init(&runner->options);
    runner->options.url = url;
    runner->options.log_handler = on_log;
    runner->options.log_user = runner;
    runner->options.log_level = IDEM_LOG_DEBUG;
    runner->options.event_handler = on_event;
    runner->options.event_user = runner;
    return runner;
}

idem_client_options_t *runner_options(runner_t *runner)
{
    ck_assert_ptr_null(runner->client);
    return &runner->options;
}

idem_client_t *runner_client(runner_t *runner)
{
    idem_error_t err = {0};

    if (runner->client == NULL) {
        idem_status_t status =
            idem_client_create(&runner->client, &runner->options, &err);
        ck_assert_msg(status == IDEM_OK, "client: %s", err.message);
    }
    return runner->client;
}

idem_consumer_t *runner_consumer(runner_t *runner,
                                 const idem_consumer_options_t *options)
{
    idem_error_t err = {0};
    idem_consumer_t *consumer = NULL;
    idem_status_t status =
        idem_consumer_create(&consumer, runner_client(runner), options, &err);

    ck_assert_msg(status == IDEM_OK, "consumer: %s", err.message);
    return consumer;
}

/* The unrelated handler. Its timer goes on until the client has stopped, and
 * some times more. */
static void tick(pn_handler_t *handler, pn_event_t *event, pn_event_type_t type)
{
    runner_t *runner = *(runner_t **)pn_handler_mem(handler);

    if (type != PN_TIMER_TASK && type != PN_REACTOR_INIT) {
        return;
    }
    if (type == PN_TIMER_TASK) {
        atomic_fetch_add(&runner->ticks, 1);
        if (idem_reactor_result(runner->client, NULL) != IDEM_ERR_STATE) {
            runner->ticks_after++;
        }
    }
    if (runner->ticks_after < TICKS_AFTER) {
        pn_reactor_t *reactor = pn_event_reactor(event);

        /* Otherwise the delay counts from the time of the last round. */
        pn_reactor_mark(reactor);
        pn_reactor_schedule(reactor, TICK_MS, handler);
    }
}

static void run_reactor(runner_t *runner)
{
    pn_reactor_t *reactor = pn_reactor();
    pn_handler_t *handler = NULL;

    runner->status =
        idem_reactor_handler(&handler, runner->client, &runner->err);
    if (runner->status == IDEM_OK) {
        pn_handler_t *root = pn_reactor_get_handler(reactor);
        pn_handler_t *timer = pn_handler_new(tick, sizeof runner, NULL);

        *(runner_t **)pn_handler_mem(timer) = runner;
        pn_handler_add(root, timer);
        pn_handler_add(root, handler);
        pn_reactor_run(reactor);
        runner->status = idem_reactor_result(runner->client, &runner->err);
    }
    pn_reactor_free(reactor);
}

static void *run_client(void *user)
{
    runner_t *runner = user;

    if (runner->host == RUNNER_REACTOR) {
        run_reactor(runner);
    } else {
        runner->status = idem_client_run(runner->client, &runner->err);
    }
    atomic_store(&runner->has_ended, true);
    return NULL;
}

void runner_start(runner_t *runner)
{
    ck_assert(!runner->is_running);
    runner_client(runner);
    ck_assert(test_thread_start(&runner->thread, run_client, runner));
    runner->is_running = true;
}

void runner_stop(runner_t *runner)
{
    idem_client_stop(runner->client);
}

static bool has_ended(void *user)
{
    return atomic_load(&((runner_t *)user)->has_ended);
}

bool runner_has_ended(runner_t *runner)
{
    return has_ended(runner);
}

idem_status_t runner_wait(runner_t *runner, int64_t timeout_ms,
                          idem_error_t *err)
{
    ck_assert(runner->is_running);
    ck_assert_msg(test_wait(has_ended, runner, timeout_ms),
                  "the client does not end");
    ck_assert_int_eq(pthread_join(runner->thread, NULL), 0);
    runner->is_running = false;
    if (runner->host == RUNNER_REACTOR) {
        ck_assert_int_eq(runner->ticks_after, TICKS_AFTER);
    }
    if (err != NULL) {
        *err = runner->err;
    }
    return runner->status;
}

idem_error_t runner_wait_failed(runner_t *runner, idem_status_t status,
                                int64_t timeout_ms)
{
    idem_error_t err = {0};
    idem_status_t ended = runner_wait(runner, timeout_ms, &err);

    ck_assert_msg(ended == status, "%s: %s", idem_status_name(ended),
                  err.message);
    ck_assert_int_eq(err.status, status);
    ck_assert_uint_eq(runner_events(runner, IDEM_EVENT_FAILED), 1);
    ck_assert_uint_eq(runner_events(runner, IDEM_EVENT_STOPPED), 0);
    return err;
}

idem_status_t runner_join(runner_t *runner, idem_error_t *err)
{
    runner_stop(runner);
    return runner_wait(runner, STOP_MS, err);
}

void runner_destroy(runner_t *runner)
{
    if (runner == NULL) {
        return;
    }
    if (runner->is_running) {
        runner_join(runner, NULL);
    }
    idem_client_destroy(runner->client);
    fclose(runner->log_file);
    free(runner->log);
    pthread_mutex_destroy(&runner->mutex);
    free(runner);
}

size_t runner_events(runner_t *runner, idem_event_type_t type)
{
    return atomic_load(&runner->events[type]);
}

size_t runner_logged(runner_t *runner, const char *text)
{
    size_t count = 0;

    pthread_mutex_lock(&runner->mutex);
    fflush(runner->log_file);
    for (const char *line = runner->log; *line != '\0';) {
        size_t size = strcspn(line, "\n");
        const char *found = strstr(line, text);

        count += found != NULL && found < line + size;
        line += size + 1;
    }
    pthread_mutex_unlock(&runner->mutex);
    return count;
}

typedef struct wish {
    runner_t *runner;
    idem_event_type_t type;
    const char *text;
    size_t count;
} wish_t;

static bool has_event(void *user)
{
    const wish_t *wish = user;

    return runner_events(wish->runner, wish->type) >= wish->count;
}

bool runner_wait_event(runner_t *runner, idem_event_type_t type, size_t count,
                       int64_t timeout_ms)
{
    wish_t wish = {.runner = runner, .type = type, .count = count};

    return test_wait(has_event, &wish, timeout_ms);
}

static bool has_logged(void *user)
{
    const wish_t *wish = user;

    return runner_logged(wish->runner, wish->text) >= wish->count;
}

bool runner_wait_logged(runner_t *runner, const char *text, size_t count,
                        int64_t timeout_ms)
{
    wish_t wish = {.runner = runner, .text = text, .count = count};

    return test_wait(has_logged, &wish, timeout_ms);
}

size_t runner_ticks(runner_t *runner)
{
    return atomic_load(&runner->ticks);
}

idem_consumer_statistics_t runner_statistics(const idem_consumer_t *consumer)
{
    idem_consumer_statistics_t statistics = {0};

    ck_assert_int_eq(idem_consumer_statistics(consumer, &statistics), IDEM_OK);
    return statistics;
}
