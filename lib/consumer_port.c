#include "consumer.h"

#include "base/clock.h"
#include "base/log.h"
#include "identity/walk.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Missing ids are warned of this often. */
#define WARN_EVERY_MS 60000

/* Room for the id that a program's own function supplies. Longer than a key,
 * since the longest ids become a hash of all their bytes. */
#define ID_BYTES 1024

/* Proton decodes no more values of a section, and drops the rest silently. */
#define PROTON_VALUES 65535

/* How a task finds the delivery that it is a part of. */
#define DELIVERY_OF(task, member) \
    ((idem_delivery_t *)(void *)((char *)(task)-offsetof(idem_delivery_t, \
                                                         member)))

/* Answers, on the I/O thread. */

static void store_answered(idemi_task_t *task, int64_t now_ms)
{
    idem_delivery_t *delivery = DELIVERY_OF(task, entry.op.task);
    idem_consumer_t *consumer = delivery->consumer;

    consumer->asked--;
    idemi_engine_answered(consumer->engine, &delivery->entry, now_ms);
    if (delivery->entry.has_claim) {
        atomic_store(&delivery->lease_end_ms, delivery->entry.lease_end_ms);
    }
}

static void handler_ended(idemi_task_t *task, int64_t now_ms)
{
    idem_delivery_t *delivery = DELIVERY_OF(task, done);
    idem_consumer_t *consumer = delivery->consumer;

    idemi_engine_handled(consumer->engine, &delivery->entry,
                         !delivery->was_late, delivery->outcome, now_ms);
}

/* A job, on a worker. */

static void run_handler(idemi_task_t *task, int64_t now_ms)
{
    idem_delivery_t *delivery = DELIVERY_OF(task, job.task);
    idem_consumer_t *consumer = delivery->consumer;

    (void)now_ms;
    if (idemi_delivery_run(delivery, consumer->options.handler,
                           consumer->options.user)) {
        idemi_tasks_t done = {NULL, NULL};
        idemi_tasks_add(&done, &delivery->done);
        idemi_mailbox_post(&consumer->client->mailbox, &done);
    } else {
        /* It may be deferred: whoever destroys the client waits for it no
         * longer. */
        idemi_mailbox_wake(&consumer->client->mailbox);
    }
}

/* The same on the I/O thread, where concurrency is 0. The outcomes take the
 * way over the mailbox, too: the engine is not called from within its round. */
static void run_handlers_inline(idem_consumer_t *consumer)
{
    idemi_tasks_t done = {NULL, NULL};
    idemi_task_t *task = consumer->jobs.first;

    consumer->jobs = (idemi_tasks_t){NULL, NULL};
    while (task) {
        idem_delivery_t *delivery = DELIVERY_OF(task, job.task);
        task = task->next;
        if (idemi_delivery_run(delivery, consumer->options.handler,
                               consumer->options.user)) {
            idemi_tasks_add(&done, &delivery->done);
        }
    }
    idemi_mailbox_post(&consumer->client->mailbox, &done);
}

/* Identity. */

/* Counts a message without an id. The warning says how many there were, not
 * which: they cannot be told apart. */
static void note_missing_id(idem_consumer_t *consumer, bool has_other)
{
    int64_t now_ms = idemi_now_ms();

    if (has_other) {
        consumer->other_id++;
    } else {
        consumer->no_id++;
    }
    consumer->unwarned++;
    if (now_ms >= consumer->warn_at_ms) {
        idemi_log(&consumer->client->logger, IDEM_LOG_WARNING,
                  "Messages without a usable id are %s; see id_source and "
                  "missing_id: address=%s messages=%" PRIu64,
                  consumer->options.missing_id == IDEM_MISSING_ID_REJECT
                      ? "rejected"
                      : "handled without deduplication",
                  consumer->options.address, consumer->unwarned);
        consumer->unwarned = 0;
        consumer->warn_at_ms = now_ms + WARN_EVERY_MS;
    }
}

static idemi_identity_t find_key(idem_consumer_t *consumer,
                                 idem_delivery_t *delivery,
                                 const idemi_walk_t *walk, size_t *key_size)
{
    char id[ID_BYTES];

    if (!consumer->options.key_handler) {
        return idemi_identity_key(&consumer->scope, consumer->options.id_source,
                                  walk, delivery->key, key_size);
    }
    size_t size = consumer->options.key_handler(
        delivery, consumer->options.user, id, sizeof id);
    /* Decoded anew for the handler: until then the bytes are all that a
     * waiting delivery costs. */
    idemi_delivery_release_message(delivery);
    if (size > sizeof id) {
        /* Cut off, two different ids could meet in one key. */
        idemi_log(&consumer->client->logger, IDEM_LOG_ERROR,
                  "key_handler returned more bytes than it has room for: "
                  "address=%s size=%zu room=%zu",
                  consumer->options.address, size, sizeof id);
        return IDEMI_IDENTITY_OTHER_TYPE;
    }
    return idemi_identity_key_from(&consumer->scope, id, size, delivery->key,
                                   key_size);
}

static bool copy_group(idem_delivery_t *delivery, const idemi_span_t *group_id)
{
    /* An empty group-id groups nothing. */
    if (group_id->size == 0) {
        return true;
    }
    delivery->group = malloc(group_id->size + 1);
    if (!delivery->group) {
        return false;
    }
    memcpy(delivery->group, group_id->data, group_id->size);
    delivery->group[group_id->size] = '\0';
    delivery->entry.group = delivery->group;
    delivery->entry.group_size = group_id->size;
    delivery->job.group = delivery->group;
    delivery->job.group_size = group_id->size;
    return true;
}

static bool identify(void *context, idem_delivery_t *delivery, bool oversized)
{
    idem_consumer_t *consumer = context;
    idemi_entry_t *entry = &delivery->entry;
    idemi_walk_t walk;

    delivery->consumer = consumer;
    delivery->address = consumer->options.address;
    delivery->job.task.run = run_handler;
    delivery->done.run = handler_ended;
    entry->op.task.run = store_answered;
    if (oversized) {
        entry->verdict = IDEMI_VERDICT_OVERSIZED;
        return true;
    }
    if (!idemi_walk(delivery->encoded, delivery->encoded_size, &walk)) {
        idemi_log(&consumer->client->logger, IDEM_LOG_DEBUG,
                  "A delivery is not a message: address=%s size=%zu problem=%s",
                  consumer->options.address, delivery->encoded_size,
                  walk.problem);
        entry->verdict = IDEMI_VERDICT_UNDECODABLE;
        return true;
    }
    delivery->is_beyond_proton = walk.values > PROTON_VALUES;
    delivery->delivery_count = walk.delivery_count;
    entry->delivery_count = walk.delivery_count;
    if (!copy_group(delivery, &walk.group_id)) {
        return false;
    }
    idemi_identity_t found =
        find_key(consumer, delivery, &walk, &entry->key_size);
    switch (found) {
    case IDEMI_IDENTITY_KEY:
        entry->key = delivery->key;
        entry->verdict = IDEMI_VERDICT_KEYED;
        return true;
    case IDEMI_IDENTITY_NONE:
    case IDEMI_IDENTITY_OTHER_TYPE:
        note_missing_id(consumer, found == IDEMI_IDENTITY_OTHER_TYPE);
        entry->verdict = consumer->options.missing_id == IDEM_MISSING_ID_REJECT
                             ? IDEMI_VERDICT_NO_ID
                             : IDEMI_VERDICT_UNKEYED;
        return true;
    case IDEMI_IDENTITY_FAILED:
        break;
    }
    return false;
}

/* Commands. */

static void command(void *context, const idemi_command_t *given)
{
    idem_consumer_t *consumer = context;
    idem_delivery_t *delivery = DELIVERY_OF(given->entry, entry);

    switch (given->kind) {
    case IDEMI_COMMAND_STORE:
        consumer->asked++;
        idemi_tasks_add(&consumer->ops, &given->entry->op.task);
        return;
    case IDEMI_COMMAND_RUN:
        /* A copy: the engine may write its own while the handler reads. */
        delivery->attempts = given->entry->attempts;
        atomic_store(&delivery->lease_lost, false);
        if (idemi_delivery_queue(delivery)) {
            idemi_tasks_add(&consumer->jobs, &delivery->job.task);
        }
        return;
    case IDEMI_COMMAND_CANCEL:
        if (given->lease_lost) {
            atomic_store(&delivery->lease_lost, true);
        }
        if (idemi_delivery_cancel(delivery)) {
            idemi_engine_handled(consumer->engine, given->entry, false,
                                 IDEM_RELEASE, idemi_now_ms());
        }
        return;
    case IDEMI_COMMAND_SETTLE:
    case IDEMI_COMMAND_FORGET:
    case IDEMI_COMMAND_CREDIT:
        break; /* the driver's */
    }
}

/* Other threads read a copy of the counters, never the engine. */
static void publish_statistics(idem_consumer_t *consumer)
{
    idem_consumer_statistics_t now;

    idemi_engine_statistics(consumer->engine, &now);
    now.no_id = consumer->no_id;
    now.other_id = consumer->other_id;
    (void)pthread_mutex_lock(&consumer->mutex);
    consumer->statistics = now;
    (void)pthread_mutex_unlock(&consumer->mutex);
}

static void flush(void *context)
{
    idem_consumer_t *consumer = context;

    /* Published first: who sees the effect of a round sees it counted. */
    publish_statistics(consumer);
    if (consumer->submitter) {
        idemi_submitter_submit(consumer->submitter, &consumer->ops);
    }
    if (consumer->options.concurrency == 0) {
        run_handlers_inline(consumer);
    } else if (consumer->workers) {
        idemi_workers_submit(consumer->workers, &consumer->jobs);
    }
}

static void rejected(void *context, const idem_delivery_t *delivery)
{
    idem_consumer_t *consumer = context;
    const char *key = idem_delivery_key(delivery);
    const char *description = idemi_delivery_description(delivery);

    /* Artemis keeps no reason: this line is the only trace of it. */
    idemi_log(&consumer->client->logger, IDEM_LOG_WARNING,
              "A delivery is rejected; without a dead-letter address Artemis "
              "deletes it: address=%s key=%s condition=%s description=%s",
              consumer->options.address, key ? key : "(none)",
              idemi_delivery_condition(delivery),
              description ? description : "(none)");
}

const idemi_link_port_t idemi_consumer_port = {identify, command, flush,
                                               rejected};

void idemi_consumer_watch_store(void *context, bool available,
                                const idem_error_t *err)
{
    idem_consumer_t *consumer = context;
    const idem_client_options_t *options = &consumer->client->options;

    if (available) {
        idemi_log(&consumer->client->logger, IDEM_LOG_WARNING,
                  "The store answers again: address=%s",
                  consumer->options.address);
    } else {
        idemi_log(&consumer->client->logger, IDEM_LOG_WARNING,
                  "The store does not answer, so nothing is handled until it "
                  "does: address=%s error=%s sqlstate=%s",
                  consumer->options.address, err ? err->message : "",
                  err ? err->sqlstate : "");
    }
    if (options->event_handler) {
        static const idem_error_t none = {.status = IDEM_OK};
        idem_event_t event = {.type = available ? IDEM_EVENT_STORE_UP
                                                : IDEM_EVENT_STORE_DOWN,
                              .address = consumer->options.address,
                              .error = err && !available ? err : &none,
                              .retry_in_ms = 0};
        options->event_handler(options->event_user, &event);
    }
}

bool idemi_consumer_wind_down(idem_consumer_t *consumer, int64_t now_ms)
{
    idemi_command_t given;

    /* As often as it likes: both say the same every time. */
    idemi_engine_stop(consumer->engine, now_ms);
    idemi_engine_link_down(consumer->engine, now_ms);
    idemi_engine_tick(consumer->engine, now_ms);
    while (idemi_engine_next(consumer->engine, &given)) {
        switch (given.kind) {
        case IDEMI_COMMAND_STORE:
        case IDEMI_COMMAND_RUN:
        case IDEMI_COMMAND_CANCEL:
            command(consumer, &given);
            break;
        case IDEMI_COMMAND_FORGET:
            idemi_delivery_destroy(DELIVERY_OF(given.entry, entry));
            break;
        case IDEMI_COMMAND_SETTLE: /* there is nobody to settle it with */
        case IDEMI_COMMAND_CREDIT:
            break;
        }
    }
    flush(consumer);
    /* What is deferred runs no more: its program may take its time. */
    return consumer->statistics.running >
           atomic_load(&consumer->completions->open);
}
