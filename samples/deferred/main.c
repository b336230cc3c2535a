/* A handler that only starts the work: another thread finishes it, and brings
 * the outcome by idem_delivery_complete(). See `deferred --help`. */
#include <idem/idem.h>

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct settings {
    const char *url, *conninfo, *address;
    long work_ms;
} settings_t;

/* Work that is under way elsewhere. Here that is time that passes; it could be
 * a request to another service whose answer is awaited. */
typedef struct work {
    struct work *next;
    idem_delivery_t *delivery;
    struct timespec due;
} work_t;

/* Due in the order in which it was started. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static work_t *first, **end = &first; /* guarded by mutex */
static bool is_over;                  /* guarded by mutex */

static settings_t settings = {.work_ms = 100};
static idem_client_t *client;

static void on_signal(int number)
{
    signal(number, on_signal); /* strict C resets it to the default */
    idem_client_stop(client);
}

/* Returns at once, so one worker is enough for any number of deliveries under
 * way: prefetch limits them. Their claims are renewed meanwhile. */
static idem_outcome_t on_message(idem_delivery_t *delivery, void *user)
{
    work_t *work = malloc(sizeof *work);

    (void)user;
    if (!work) {
        return IDEM_RELEASE; /* not tried: try again later */
    }
    work->next = NULL;
    work->delivery = delivery;
    clock_gettime(CLOCK_REALTIME, &work->due);
    work->due.tv_sec += settings.work_ms / 1000;
    work->due.tv_nsec += settings.work_ms % 1000 * 1000000;
    if (work->due.tv_nsec >= 1000000000) {
        work->due.tv_sec++;
        work->due.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&mutex);
    *end = work;
    end = &work->next;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
    return IDEM_DEFER;
}

/* Waits for the work that is due next; NULL when all is done and over. */
static work_t *next_work(void)
{
    work_t *work = NULL;

    pthread_mutex_lock(&mutex);
    while (!first && !is_over) {
        pthread_cond_wait(&changed, &mutex);
    }
    if (first) {
        struct timespec due = first->due;
        while (!is_over &&
               pthread_cond_timedwait(&changed, &mutex, &due) != ETIMEDOUT) {
        }
        work = first;
        first = work->next;
        if (!first) {
            end = &first;
        }
    }
    pthread_mutex_unlock(&mutex);
    return work;
}

static void *finish_work(void *unused)
{
    work_t *work;

    while ((work = next_work())) {
        const char *key = idem_delivery_key(work->delivery);
        printf("%s\n", key ? key : "(no id)");
        /* From here on the delivery is not ours any more. */
        (void)idem_delivery_complete(work->delivery, IDEM_ACCEPT);
        free(work);
    }
    return unused;
}

static void end_work(void)
{
    pthread_mutex_lock(&mutex);
    is_over = true;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
}

static const struct argp_option options[] = {
    {"url", 'u', "URL", 0, "amqp://[user:password@]host[:port]; required", 0},
    {"dsn", 'd', "CONNINFO", 0, "libpq's connection string; required", 0},
    {"address", 'a', "QUEUE", 0, "to consume from; required", 0},
    {"work", 'w', "MS", 0, "how long the work takes; default 100", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    char *rest = NULL;

    switch (key) {
    case 'u':
        settings.url = arg;
        return 0;
    case 'd':
        settings.conninfo = arg;
        return 0;
    case 'a':
        settings.address = arg;
        return 0;
    case 'w':
        settings.work_ms = strtol(arg, &rest, 10);
        if (rest == arg || *rest || settings.work_ms < 0 ||
            settings.work_ms > 86400000) {
            argp_error(state, "\"%s\" is not a number of milliseconds", arg);
        }
        return 0;
    case ARGP_KEY_END:
        if (!settings.url || !settings.conninfo || !settings.address) {
            argp_error(state, "--url, --dsn and --address are required");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void consume(idem_error_t *err)
{
    idem_postgres_options_t table;
    idem_client_options_t broker;
    idem_consumer_options_t queue;
    idem_consumer_t *consumer = NULL;
    idem_consumer_statistics_t count = {0};

    idem_postgres_options_init(&table);
    table.conninfo = settings.conninfo;
    table.create_schema = true;
    idem_client_options_init(&broker);
    broker.url = settings.url;
    idem_consumer_options_init(&queue);
    queue.address = settings.address;
    queue.prefetch = 1000;
    queue.handler = on_message;
    if (idem_postgres_store_create(&queue.store, &table, err) == IDEM_OK &&
        idem_client_create(&client, &broker, err) == IDEM_OK &&
        idem_consumer_create(&consumer, client, &queue, err) == IDEM_OK) {
        signal(SIGINT, on_signal);
        signal(SIGTERM, on_signal);
        /* A stop waits for what is deferred, up to stop_timeout_ms. */
        idem_client_run(client, err);
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        idem_consumer_statistics(consumer, &count);
        fprintf(stderr, "deferred %" PRIu64 "\naccepted %" PRIu64 "\n",
                count.deferred, count.accepted);
    }
    /* What is deferred still stays valid: the thread below completes it, and
     * the broker offers it again. */
    idem_client_destroy(client);
    idem_store_destroy(queue.store);
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        NULL,
        "Consume a queue and complete each delivery later, from another "
        "thread.\vPrints the key of each message when its work is done. Ctrl-C "
        "or SIGTERM stops it. The exit code is 0 then, 1 after an error, 64 "
        "for wrong arguments.",
        NULL,
        NULL,
        NULL};
    idem_error_t err = {0};
    pthread_t thread;
    sigset_t all, before;

    argp_parse(&argp, argc, argv, 0, NULL, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* Signals are for the main thread, which waits in idem_client_run(). */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, finish_work, NULL) != 0) {
        fprintf(stderr, "deferred: no thread could be started\n");
        return EXIT_FAILURE;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    consume(&err);
    end_work();
    pthread_join(thread, NULL);
    if (err.status != IDEM_OK) {
        fprintf(stderr, "deferred: %s\n", err.message);
    }
    return err.status == IDEM_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
