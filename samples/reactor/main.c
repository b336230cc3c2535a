/* idem inside a program that has a pn_reactor_t of its own. What the program
 * did before goes on: here a task that prints a line every second. See
 * `reactor --help`. */
#include <idem/idem.h>

#include <proton/event.h>
#include <proton/handlers.h>
#include <proton/reactor.h>

#include <argp.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct settings {
    const char *url, *conninfo, *address;
} settings_t;

static idem_client_t *client;
static idem_consumer_t *consumer;

static void on_signal(int number)
{
    signal(number, on_signal); /* strict C resets it to the default */
    idem_client_stop(client);
}

/* Runs on a worker thread: the reactor's thread never waits for it. */
static idem_outcome_t on_message(idem_delivery_t *delivery, void *user)
{
    const char *key = idem_delivery_key(delivery);

    (void)user;
    printf("%s\n", key ? key : "(no id)");
    return IDEM_ACCEPT;
}

/* The program's own handler. It sees no event of idem's, and idem none of its.
 * When idem has stopped the task ends as well: with nothing left to do,
 * pn_reactor_run() returns. */
static void on_event(pn_handler_t *handler, pn_event_t *event,
                     pn_event_type_t type)
{
    idem_consumer_statistics_t count = {0};
    static uint64_t seconds;

    if (type == PN_REACTOR_INIT || type == PN_TIMER_TASK) {
        idem_consumer_statistics(consumer, &count);
        if (type == PN_TIMER_TASK) {
            fprintf(stderr, "second %" PRIu64 ": handled %" PRIu64 "\n",
                    ++seconds, count.handled);
        }
        if (idem_reactor_result(client, NULL) == IDEM_ERR_STATE) {
            pn_reactor_schedule(pn_event_reactor(event), 1000, handler);
        }
    }
}

static idem_status_t run(idem_error_t *err)
{
    pn_reactor_t *reactor = pn_reactor();
    pn_handler_t *own = pn_handler(on_event);
    pn_handler_t *guest = NULL;
    idem_status_t status = idem_reactor_handler(&guest, client, err);

    if (status == IDEM_OK) {
        /* The line that a raw Proton handler would take, too. Both handlers
         * are the reactor's from here on. */
        pn_handler_add(pn_reactor_get_handler(reactor), guest);
        pn_handler_add(pn_reactor_get_handler(reactor), own);
        signal(SIGINT, on_signal);
        signal(SIGTERM, on_signal);
        pn_reactor_run(reactor);
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        status = idem_reactor_result(client, err);
    } else {
        pn_decref(own);
    }
    pn_reactor_free(reactor);
    return status;
}

static const struct argp_option options[] = {
    {"url", 'u', "URL", 0, "amqp://[user:password@]host[:port]; required", 0},
    {"dsn", 'd', "CONNINFO", 0, "libpq's connection string; required", 0},
    {"address", 'a', "QUEUE", 0, "to consume from; required", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    settings_t *settings = state->input;

    switch (key) {
    case 'u':
        settings->url = arg;
        return 0;
    case 'd':
        settings->conninfo = arg;
        return 0;
    case 'a':
        settings->address = arg;
        return 0;
    case ARGP_KEY_END:
        if (!settings->url || !settings->conninfo || !settings->address) {
            argp_error(state, "--url, --dsn and --address are required");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        NULL,
        "Consume a queue inside a pn_reactor_t that also does other things."
        "\vPrints the key of each message. Ctrl-C or SIGTERM stops it. The "
        "exit code is 0 then, 1 after an error, 64 for wrong arguments.",
        NULL,
        NULL,
        NULL};
    settings_t settings = {0};
    idem_postgres_options_t table;
    idem_client_options_t broker;
    idem_consumer_options_t queue;
    idem_error_t err = {0};

    argp_parse(&argp, argc, argv, 0, NULL, &settings);
    setvbuf(stdout, NULL, _IOLBF, 0);
    idem_postgres_options_init(&table);
    table.conninfo = settings.conninfo;
    table.create_schema = true;
    idem_client_options_init(&broker);
    broker.url = settings.url;
    idem_consumer_options_init(&queue);
    queue.address = settings.address;
    queue.handler = on_message;
    if (idem_postgres_store_create(&queue.store, &table, &err) == IDEM_OK &&
        idem_client_create(&client, &broker, &err) == IDEM_OK &&
        idem_consumer_create(&consumer, client, &queue, &err) == IDEM_OK) {
        (void)run(&err);
    }
    /* After the reactor is gone. */
    idem_client_destroy(client);
    idem_store_destroy(queue.store);
    if (err.status != IDEM_OK) {
        fprintf(stderr, "reactor: %s\n", err.message);
    }
    return err.status == IDEM_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
