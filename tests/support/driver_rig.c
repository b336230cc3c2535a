#include "driver_rig.h"

#include "base/clock.h"
#include "drivers/connection.h"
#include "support.h"

#include <proton/handlers.h>
#include <proton/reactor.h>

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINKS_MAX = 4,
    EVENTS_MAX = 4096,
    LINES_MAX = 4096,
    TICK_MS = 10,
    TICKS_AFTER = 3,
    JOIN_MS = 30000
};

#define DELIVERY_OF(task, member) \
    ((idem_delivery_t *)(void *)((char *)(task)-offsetof(idem_delivery_t, \
                                                         member)))

typedef struct rig_link {
    rig_t *rig;
    char address[64];
    idemi_engine_t *engine;
    idemi_tasks_t jobs;
    idem_consumer_statistics_t statistics; /* guarded by the rig's mutex */
} rig_link_t;

struct rig {
    rig_options_t options;
    idemi_url_t *urls;
    size_t url_count;
    idemi_mailbox_t mailbox;
    idemi_completions_t *completions;
    idemi_workers_t *workers;
    idemi_connection_t *connection;
    rig_link_t links[LINKS_MAX];
    size_t link_count;
    pthread_t thread;
    bool is_running;
    atomic_bool has_ended;
    atomic_size_t handled;
    idem_status_t status;
    idem_error_t err;
    int ticks_after;

    pthread_mutex_t mutex;
    rig_event_t events[EVENTS_MAX];
    size_t event_count;
    char *lines[LINES_MAX];
    size_t line_count;
};

/* The port. */

static void handler_ended(idemi_task_t *task, int64_t now_ms)
{
    idem_delivery_t *delivery = DELIVERY_OF(task, done);
    rig_link_t *link = delivery->consumer;

    idemi_engine_handled(link->engine, &delivery->entry, true,
                         delivery->outcome, now_ms);
    atomic_fetch_add(&link->rig->handled, 1);
}

static idem_outcome_t accept(idem_delivery_t *delivery, void *user)
{
    (void)delivery;
    (void)user;
    return IDEM_ACCEPT;
}

static void run_handler(idemi_task_t *task, int64_t now_ms)
{
    idem_delivery_t *delivery = DELIVERY_OF(task, job.task);
    rig_link_t *link = delivery->consumer;
    rig_t *rig = link->rig;
    idem_handler_t handler = rig->options.handler;

    (void)now_ms;
    if (idemi_delivery_run(delivery, handler ? handler : accept,
                           rig->options.user)) {
        idemi_tasks_t done = {NULL, NULL};
        idemi_tasks_add(&done, &delivery->done);
        idemi_mailbox_post(&rig->mailbox, &done);
    }
}

static bool identify(void *context, idem_delivery_t *delivery, bool oversized)
{
    rig_link_t *link = context;

    delivery->consumer = link;
    delivery->address = link->address;
    delivery->job.task.run = run_handler;
    delivery->done.run = handler_ended;
    delivery->entry.verdict = oversized ? IDEMI_VERDICT_OVERSIZED
                              : delivery->encoded_size
                                  ? IDEMI_VERDICT_UNKEYED
                                  : IDEMI_VERDICT_UNDECODABLE;
    return true;
}

static void command(void *context, const idemi_command_t *given)
{
    rig_link_t *link = context;
    idem_delivery_t *delivery = (idem_delivery_t *)(void *)given->entry;

    if (given->kind == IDEMI_COMMAND_RUN) {
        if (idemi_delivery_queue(delivery)) {
            idemi_tasks_add(&link->jobs, &delivery->job.task);
        }
    } else if (given->kind == IDEMI_COMMAND_CANCEL &&
               idemi_delivery_cancel(delivery)) {
        idemi_engine_handled(link->engine, given->entry, false, IDEM_RELEASE,
                             idemi_now_ms());
    }
}

static void flush(void *context)
{
    rig_link_t *link = context;
    rig_t *rig = link->rig;
    idemi_task_t *task = link->jobs.first;

    (void)pthread_mutex_lock(&rig->mutex);
    idemi_engine_statistics(link->engine, &link->statistics);
    (void)pthread_mutex_unlock(&rig->mutex);
    if (rig->workers) {
        idemi_workers_submit(rig->workers, &link->jobs);
        return;
    }
    link->jobs = (idemi_tasks_t){NULL, NULL};
    while (task) {
        idemi_task_t *next = task->next;
        task->run(task, idemi_now_ms());
        task = next;
    }
}

static void rejected(void *context, const idem_delivery_t *delivery)
{
    (void)context;
    (void)delivery;
}

static const idemi_link_port_t port = {identify, command, flush, rejected};

/* What it sees. */

static void keep_event(void *user, const idem_event_t *event)
{
    rig_t *rig = user;

    (void)pthread_mutex_lock(&rig->mutex);
    if (rig->event_count < EVENTS_MAX) {
        rig_event_t *kept = &rig->events[rig->event_count++];
        kept->type = event->type;
        kept->error = *event->error;
        kept->retry_in_ms = event->retry_in_ms;
        kept->at_ms = test_now_ms();
        (void)snprintf(kept->address, sizeof kept->address, "%s",
                       event->address ? event->address : "");
    }
    (void)pthread_mutex_unlock(&rig->mutex);
}

static void keep_line(void *user, idem_log_level_t level, const char *message)
{
    rig_t *rig = user;

    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes it */
    if (getenv("IDEM_TEST_LOG")) {
        idem_log_to_stderr(NULL, level, message);
    }
    (void)pthread_mutex_lock(&rig->mutex);
    if (rig->line_count < LINES_MAX) {
        rig->lines[rig->line_count++] = strdup(message);
    }
    (void)pthread_mutex_unlock(&rig->mutex);
}

/* The reactor's program. */

static void tick(pn_handler_t *handler, pn_event_t *event, pn_event_type_t type)
{
    rig_t *rig = *(rig_t **)pn_handler_mem(handler);

    if (type != PN_TIMER_TASK && type != PN_REACTOR_INIT) {
        return;
    }
    if (type == PN_TIMER_TASK &&
        idemi_connection_result(rig->connection, NULL) != IDEM_ERR_STATE) {
        rig->ticks_after++;
    }
    if (rig->ticks_after < TICKS_AFTER) {
        pn_reactor_t *reactor = pn_event_reactor(event);
        (void)pn_reactor_mark(reactor);
        (void)pn_reactor_schedule(reactor, TICK_MS, handler);
    }
}

static void run_reactor(rig_t *rig)
{
    pn_reactor_t *reactor = pn_reactor();
    pn_handler_t *timer = pn_handler_new(tick, sizeof(void *), NULL);
    pn_handler_t *handler = NULL;

    *(rig_t **)pn_handler_mem(timer) = rig;
    rig->status =
        idemi_connection_reactor_handler(rig->connection, &handler, &rig->err);
    if (!rig->status) {
        pn_handler_t *root = pn_reactor_get_handler(reactor);
        pn_handler_add(root, timer);
        pn_handler_add(root, handler);
        pn_reactor_run(reactor);
        rig->status = idemi_connection_result(rig->connection, &rig->err);
    } else {
        pn_decref(timer);
    }
    pn_reactor_free(reactor);
}

static void *run_host(void *user)
{
    rig_t *rig = user;

    if (rig->options.host == RIG_REACTOR) {
        run_reactor(rig);
    } else {
        rig->status = idemi_connection_run(rig->connection, &rig->err);
    }
    atomic_store(&rig->has_ended, true);
    return NULL;
}

/* Its life. */

static int64_t or_default(int64_t value, int64_t fallback)
{
    return value < 0 ? 0 : value ? value : fallback;
}

static void add_link(rig_t *rig, const char *address)
{
    const rig_options_t *options = &rig->options;
    rig_link_t *link = &rig->links[rig->link_count++];
    uint32_t prefetch = options->prefetch ? options->prefetch : 10;
    int64_t retry_ms = or_default(options->retry_min_ms, 5);
    idemi_engine_config_t engine = {.prefetch = prefetch,
                                    .renew_ms = 10000,
                                    .retry_min_ms = retry_ms,
                                    .retry_max_ms = retry_ms * 4,
                                    .token_prefix = "rig",
                                    .seed = 7};

    link->rig = rig;
    (void)snprintf(link->address, sizeof link->address, "%s", address);
    ck_assert_int_eq(idemi_engine_create(&link->engine, &engine), IDEM_OK);
    idemi_link_config_t config = {
        .address = link->address,
        .max_message_bytes =
            options->max_message_bytes ? options->max_message_bytes : 1 << 20,
        .prefetch = prefetch,
        .engine = link->engine,
        .completions = rig->completions,
        .port = &port,
        .context = link};
    ck_assert_int_eq(idemi_connection_add_link(rig->connection, &config),
                     IDEM_OK);
}

static void create_connection(rig_t *rig)
{
    const rig_options_t *options = &rig->options;
    idemi_connection_config_t config = {
        .urls = rig->urls,
        .url_count = rig->url_count,
        .user = options->login,
        .password = options->password,
        .allow_insecure_plain = options->allow_insecure_plain,
        .container_id = "rig",
        .connect_timeout_ms = or_default(options->connect_timeout_ms, 5000),
        .idle_timeout_ms = or_default(options->idle_timeout_ms, 30000),
        .reconnect_min_ms = or_default(options->reconnect_min_ms, 20),
        .reconnect_max_ms = or_default(options->reconnect_max_ms, 200),
        .reconnect_tries = options->reconnect_tries,
        .stop_timeout_ms = or_default(options->stop_timeout_ms, 5000),
        .seed = (uint64_t)test_now_ms(),
        .mailbox = &rig->mailbox,
        .logger = {keep_line, rig, IDEM_LOG_DEBUG},
        .event_handler = keep_event,
        .event_user = rig};

    ck_assert_int_eq(idemi_connection_create(&rig->connection, &config),
                     IDEM_OK);
}

rig_t *rig_create(const rig_options_t *options)
{
    rig_t *rig = calloc(1, sizeof *rig);
    idem_error_t err;

    ck_assert_ptr_nonnull(rig);
    rig->options = *options;
    atomic_init(&rig->has_ended, false);
    atomic_init(&rig->handled, 0);
    ck_assert_int_eq(pthread_mutex_init(&rig->mutex, NULL), 0);
    ck_assert_msg(idemi_urls_parse(&rig->urls, &rig->url_count, options->url,
                                   &err) == IDEM_OK,
                  "%s", err.message);
    ck_assert(idemi_mailbox_init(&rig->mailbox));
    rig->completions = idemi_completions_create(&rig->mailbox);
    ck_assert_ptr_nonnull(rig->completions);
    if (options->workers) {
        ck_assert_int_eq(
            idemi_workers_create(&rig->workers, options->workers, NULL),
            IDEM_OK);
    }
    create_connection(rig);
    for (size_t i = 0; i < LINKS_MAX && options->addresses[i]; i++) {
        add_link(rig, options->addresses[i]);
    }
    if (!rig->link_count) {
        add_link(rig, "orders");
    }
    return rig;
}

void rig_start(rig_t *rig)
{
    ck_assert_int_eq(pthread_create(&rig->thread, NULL, run_host, rig), 0);
    rig->is_running = true;
}

rig_t *rig_run(const rig_options_t *options)
{
    rig_t *rig = rig_create(options);

    rig_start(rig);
    return rig;
}

void rig_stop(rig_t *rig)
{
    idemi_connection_stop(rig->connection);
}

static bool has_ended(void *user)
{
    return atomic_load(&((rig_t *)user)->has_ended);
}

idem_status_t rig_join(rig_t *rig, idem_error_t *err)
{
    ck_assert(rig->is_running);
    ck_assert_msg(test_wait(has_ended, rig, JOIN_MS), "the host does not end");
    ck_assert_int_eq(pthread_join(rig->thread, NULL), 0);
    rig->is_running = false;
    if (err) {
        *err = rig->err;
    }
    if (rig->options.host == RIG_REACTOR) {
        ck_assert_int_eq(rig->ticks_after, TICKS_AFTER);
    }
    return rig->status;
}

void rig_destroy(rig_t *rig)
{
    if (rig->is_running) {
        rig_stop(rig);
        (void)rig_join(rig, NULL);
    }
    idemi_workers_destroy(rig->workers);
    idemi_connection_destroy(rig->connection);
    (void)idemi_mailbox_run(&rig->mailbox, idemi_now_ms());
    for (size_t i = 0; i < rig->link_count; i++) {
        idemi_entry_t *entry;
        while ((entry = idemi_engine_take(rig->links[i].engine))) {
            idemi_delivery_destroy((idem_delivery_t *)(void *)entry);
        }
        idemi_engine_destroy(rig->links[i].engine);
    }
    idemi_completions_close(rig->completions);
    idemi_completions_drop(rig->completions);
    idemi_mailbox_finish(&rig->mailbox);
    idemi_urls_free(rig->urls, rig->url_count);
    for (size_t i = 0; i < rig->line_count; i++) {
        free(rig->lines[i]);
    }
    (void)pthread_mutex_destroy(&rig->mutex);
    free(rig);
}

/* Questions. */

size_t rig_handled(rig_t *rig)
{
    return atomic_load(&rig->handled);
}

typedef struct rig_wish {
    rig_t *rig;
    size_t count;
    idem_event_type_t type;
} rig_wish_t;

static bool has_handled(void *user)
{
    rig_wish_t *wish = user;

    return rig_handled(wish->rig) >= wish->count;
}

bool rig_wait_handled(rig_t *rig, size_t count, int64_t timeout_ms)
{
    rig_wish_t wish = {rig, count, 0};

    return test_wait(has_handled, &wish, timeout_ms);
}

size_t rig_events(rig_t *rig, idem_event_type_t type)
{
    size_t count = 0;

    (void)pthread_mutex_lock(&rig->mutex);
    for (size_t i = 0; i < rig->event_count; i++) {
        count += rig->events[i].type == type;
    }
    (void)pthread_mutex_unlock(&rig->mutex);
    return count;
}

static bool has_event(void *user)
{
    rig_wish_t *wish = user;

    return rig_events(wish->rig, wish->type) >= wish->count;
}

bool rig_wait_event(rig_t *rig, idem_event_type_t type, size_t count,
                    int64_t timeout_ms)
{
    rig_wish_t wish = {rig, count, type};

    return test_wait(has_event, &wish, timeout_ms);
}

bool rig_event(rig_t *rig, idem_event_type_t type, size_t n, rig_event_t *event)
{
    bool found = false;

    (void)pthread_mutex_lock(&rig->mutex);
    for (size_t i = 0; i < rig->event_count && !found; i++) {
        if (rig->events[i].type == type && n-- == 0) {
            *event = rig->events[i];
            found = true;
        }
    }
    (void)pthread_mutex_unlock(&rig->mutex);
    return found;
}

size_t rig_logged(rig_t *rig, const char *text)
{
    size_t count = 0;

    (void)pthread_mutex_lock(&rig->mutex);
    for (size_t i = 0; i < rig->line_count; i++) {
        count += strstr(rig->lines[i], text) != NULL;
    }
    (void)pthread_mutex_unlock(&rig->mutex);
    return count;
}

idem_client_statistics_t rig_statistics(rig_t *rig)
{
    idem_client_statistics_t statistics;

    idemi_connection_statistics(rig->connection, &statistics);
    return statistics;
}

idem_consumer_statistics_t rig_consumer(rig_t *rig, size_t link)
{
    idem_consumer_statistics_t statistics;

    (void)pthread_mutex_lock(&rig->mutex);
    statistics = rig->links[link].statistics;
    (void)pthread_mutex_unlock(&rig->mutex);
    return statistics;
}

pthread_t rig_thread(rig_t *rig)
{
    return rig->thread;
}

struct pn_handler_t *rig_reactor_handler(rig_t *rig)
{
    pn_handler_t *handler = NULL;

    ck_assert_int_eq(
        idemi_connection_reactor_handler(rig->connection, &handler, &rig->err),
        IDEM_OK);
    return handler;
}

idem_status_t rig_result(rig_t *rig)
{
    return idemi_connection_result(rig->connection, NULL);
}
