/* Prints the key of every message in a queue, and each key once. */
#include <idem/idem.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static idem_client_t *client;

static void on_signal(int number)
{
    signal(number, on_signal); /* strict C resets it to the default */
    idem_client_stop(client);
}

static idem_outcome_t on_message(idem_delivery_t *delivery, void *user)
{
    const char *key = idem_delivery_key(delivery);

    (void)user;
    return puts(key ? key : "(no id)") < 0 ? IDEM_RETRY : IDEM_ACCEPT;
}

static void print_result(const idem_consumer_t *consumer,
                         const idem_error_t *err)
{
    idem_consumer_statistics_t count = {0};

    idem_consumer_statistics(consumer, &count);
    fprintf(stderr, "handled %" PRIu64 "\nduplicates %" PRIu64 "\n",
            count.handled, count.duplicates);
    fprintf(stderr, "in_progress %" PRIu64 "\ntakeovers %" PRIu64 "\n",
            count.in_progress, count.takeovers);
    if (err->status != IDEM_OK) {
        fprintf(stderr, "error: %s\n", err->message);
    }
}

int main(int argc, char **argv)
{
    idem_postgres_options_t table;
    idem_client_options_t broker;
    idem_consumer_options_t queue;
    idem_consumer_t *consumer = NULL;
    idem_error_t err = {0};

    if (argc != 4) {
        fprintf(stderr,
                "usage: %s URL CONNINFO QUEUE, such as\n"
                "  amqp://user:password@localhost \"dbname=test\" orders\n",
                argv[0]);
        return argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    idem_postgres_options_init(&table);
    table.conninfo = argv[2];
    table.create_schema = true;
    table.lease_ms = 5000; /* what a dead process has claimed waits so long */
    idem_client_options_init(&broker);
    broker.url = argv[1];
    idem_consumer_options_init(&queue);
    queue.address = argv[3];
    queue.handler = on_message;
    if (idem_postgres_store_create(&queue.store, &table, &err) == IDEM_OK &&
        idem_client_create(&client, &broker, &err) == IDEM_OK &&
        idem_consumer_create(&consumer, client, &queue, &err) == IDEM_OK) {
        signal(SIGINT, on_signal);
        signal(SIGTERM, on_signal);
        idem_client_run(client, &err);
    }
    print_result(consumer, &err);
    signal(SIGINT, SIG_DFL); /* there is no client to stop any more */
    signal(SIGTERM, SIG_DFL);
    idem_client_destroy(client);
    idem_store_destroy(queue.store);
    return err.status == IDEM_OK ? 0 : 1;
}
