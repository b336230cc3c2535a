/* A consumer in a process of its own, for tests that kill it: `worker --help`.
 *
 * Appends a line to a file when a handler begins ("begin KEY") and when it ends
 * ("end KEY"), each in one write(), so that what was running at a kill can be
 * told. On SIGTERM it stops in order and prints its statistics. */
#include <idem/idem.h>

#include <proton/handlers.h>
#include <proton/reactor.h>

#include <argp.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct worker {
    const char *url, *dsn, *table, *address, *scope, *log, *crash;
    int64_t lease_ms, purge_ms, deadline_ms;
    int prefetch, concurrency, handler_ms, max_attempts, connections;
    int file;
    bool reactor;
} worker_t;

static idem_client_t *client;

enum {
    LEASE = 256,
    HANDLER,
    ATTEMPTS,
    SCOPE,
    PURGE,
    DEADLINE,
    CONNECTIONS,
    REACTOR,
    CRASH
};

static const struct argp_option options[] = {
    {"url", 'u', "URL", 0, "of the broker", 0},
    {"dsn", 'd', "DSN", 0, "of the database", 0},
    {"table", 't', "NAME", 0, "of the keys", 0},
    {"address", 'a', "QUEUE", 0, "to consume from", 0},
    {"log", 'l', "FILE", 0, "for the lines of the handlers", 0},
    {"prefetch", 'p', "N", 0, "default 100", 0},
    {"concurrency", 'c', "N", 0, "default 1", 0},
    {"lease", LEASE, "MS", 0, "default 30000", 0},
    {"handler", HANDLER, "MS", 0, "how long a handler works; default 0", 0},
    {"attempts", ATTEMPTS, "N", 0, "max_attempts; default 0", 0},
    {"scope", SCOPE, "NAME", 0, "default \"\"", 0},
    {"purge", PURGE, "MS", 0, "interval; default 0", 0},
    {"deadline", DEADLINE, "MS", 0, "of the store; default 10000", 0},
    {"connections", CONNECTIONS, "N", 0, "of the store; default 2", 0},
    {"crash", CRASH, "KEY", 0, "end by SIGKILL in the handler of this key", 0},
    {"reactor", REACTOR, NULL, 0, "run in a pn_reactor_t", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    worker_t *worker = state->input;

    switch (key) {
    case 'u':
        worker->url = arg;
        return 0;
    case 'd':
        worker->dsn = arg;
        return 0;
    case 't':
        worker->table = arg;
        return 0;
    case 'a':
        worker->address = arg;
        return 0;
    case 'l':
        worker->log = arg;
        return 0;
    case 'p':
        worker->prefetch = atoi(arg);
        return 0;
    case 'c':
        worker->concurrency = atoi(arg);
        return 0;
    case LEASE:
        worker->lease_ms = atoll(arg);
        return 0;
    case HANDLER:
        worker->handler_ms = atoi(arg);
        return 0;
    case ATTEMPTS:
        worker->max_attempts = atoi(arg);
        return 0;
    case SCOPE:
        worker->scope = arg;
        return 0;
    case PURGE:
        worker->purge_ms = atoll(arg);
        return 0;
    case DEADLINE:
        worker->deadline_ms = atoll(arg);
        return 0;
    case CONNECTIONS:
        worker->connections = atoi(arg);
        return 0;
    case CRASH:
        worker->crash = arg;
        return 0;
    case REACTOR:
        worker->reactor = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void on_signal(int number)
{
    (void)number;
    idem_client_stop(client);
}

static void note(const worker_t *worker, const char *what, const char *key)
{
    char line[IDEM_KEY_BYTES + 16];
    int size = snprintf(line, sizeof line, "%s %s\n", what, key ? key : "-");

    if (write(worker->file, line, (size_t)size) != size) {
        abort();
    }
}

static idem_outcome_t on_delivery(idem_delivery_t *delivery, void *user)
{
    const worker_t *worker = user;

    note(worker, "begin", idem_delivery_key(delivery));
    if (worker->handler_ms > 0) {
        (void)poll(NULL, 0, worker->handler_ms);
    }
    if (worker->crash && idem_delivery_key(delivery) &&
        strcmp(worker->crash, idem_delivery_key(delivery)) == 0) {
        (void)kill(getpid(), SIGKILL);
    }
    note(worker, "end", idem_delivery_key(delivery));
    return IDEM_ACCEPT;
}

static void report(const idem_consumer_t *consumer)
{
    idem_consumer_statistics_t s;

    (void)idem_consumer_statistics(consumer, &s);
    (void)printf(
        "received %llu\nhandled %llu\nduplicates %llu\n"
        "in_progress %llu\ntakeovers %llu\nleases_lost %llu\n"
        "given_back %llu\nattached %llu\n",
        (unsigned long long)s.received, (unsigned long long)s.handled,
        (unsigned long long)s.duplicates, (unsigned long long)s.in_progress,
        (unsigned long long)s.takeovers, (unsigned long long)s.leases_lost,
        (unsigned long long)s.given_back, (unsigned long long)s.attached);
}

static idem_status_t run_in_reactor(idem_error_t *err)
{
    pn_reactor_t *reactor = pn_reactor();
    pn_handler_t *handler = NULL;
    idem_status_t status = idem_reactor_handler(&handler, client, err);

    if (status == IDEM_OK) {
        pn_handler_add(pn_reactor_get_handler(reactor), handler);
        pn_reactor_run(reactor);
        status = idem_reactor_result(client, err);
    }
    pn_reactor_free(reactor);
    return status;
}

static int run(worker_t *worker)
{
    idem_error_t err = {0};
    idem_store_t *store = NULL;
    idem_consumer_t *consumer = NULL;
    idem_postgres_options_t postgres;
    idem_client_options_t options_client;
    idem_consumer_options_t options_consumer;

    idem_postgres_options_init(&postgres);
    postgres.conninfo = worker->dsn;
    postgres.table = worker->table;
    postgres.lease_ms = worker->lease_ms;
    postgres.purge_interval_ms = worker->purge_ms;
    postgres.deadline_ms = worker->deadline_ms;
    postgres.connections = (uint32_t)worker->connections;
    idem_client_options_init(&options_client);
    options_client.url = worker->url;
    options_client.reconnect_max_ms = 1000;
    idem_consumer_options_init(&options_consumer);
    options_consumer.address = worker->address;
    options_consumer.scope = worker->scope;
    options_consumer.prefetch = (uint32_t)worker->prefetch;
    options_consumer.concurrency = (uint32_t)worker->concurrency;
    options_consumer.max_attempts = (uint32_t)worker->max_attempts;
    options_consumer.handler = on_delivery;
    options_consumer.user = worker;
    if (idem_postgres_store_create(&store, &postgres, &err) == IDEM_OK) {
        options_consumer.store = store;
        if (idem_client_create(&client, &options_client, &err) == IDEM_OK &&
            idem_consumer_create(&consumer, client, &options_consumer, &err) ==
                IDEM_OK) {
            (void)signal(SIGTERM, on_signal);
            (void)(worker->reactor ? run_in_reactor(&err)
                                   : idem_client_run(client, &err));
            (void)signal(SIGTERM, SIG_DFL);
            report(consumer);
        }
    }
    if (err.status != IDEM_OK) {
        (void)fprintf(stderr, "worker: %s\n", err.message);
    }
    idem_client_destroy(client);
    idem_store_destroy(store);
    return err.status == IDEM_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {options, parse, NULL, NULL,
                                     NULL,    NULL,  NULL};
    worker_t worker = {.table = "idem_message",
                       .scope = "",
                       .lease_ms = 30000,
                       .deadline_ms = 10000,
                       .prefetch = 100,
                       .concurrency = 1,
                       .connections = 2,
                       .file = STDOUT_FILENO};

    (void)argp_parse(&argp, argc, argv, 0, NULL, &worker);
    if (!worker.url || !worker.dsn || !worker.address) {
        (void)fprintf(stderr, "worker: --url, --dsn and --address, please\n");
        return EXIT_FAILURE;
    }
    if (worker.log) {
        worker.file =
            open(worker.log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (worker.file < 0) {
            perror(worker.log);
            return EXIT_FAILURE;
        }
    }
    return run(&worker);
}
