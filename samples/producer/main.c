/* Sends messages for the other samples to consume, some of them twice. Plain
 * Proton: idem has no sender. See `producer --help`. */
#include <proton/connection.h>
#include <proton/delivery.h>
#include <proton/link.h>
#include <proton/message.h>
#include <proton/proactor.h>
#include <proton/sasl.h>
#include <proton/session.h>
#include <proton/transport.h>

#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef enum id_type {
    ID_STRING,
    ID_ULONG,
    ID_UUID,
    ID_BINARY,
    ID_NONE
} id_type_t;

static const char *const id_names[] = {"string", "ulong", "uuid", "binary",
                                       "none"};

typedef struct settings {
    char *user, *password, *host; /* of the URL; host has the port, too */
    const char *address;
    long count, rate, body_bytes, duplicates, groups, timeout_s;
    id_type_t id_type;
    bool has_duplicate_id, is_transient, prints_ids;
} settings_t;

typedef struct producer {
    settings_t settings;
    uint64_t prefix; /* in front of the numbers, so that no run repeats ids */
    pn_proactor_t *proactor;
    pn_connection_t *connection;
    pn_link_t *sender;
    pn_rwbytes_t buffer;
    long number;  /* of the next message */
    bool is_copy; /* it is sent for the second time */
    long sent, copies, accepted, refused;
    int64_t started_ms;
    long waiting_for_s; /* without an answer */
    long answered_before;
    bool failed;
} producer_t;

/* Arguments. */

enum {
    KEY_DUPLICATE_ID = 256,
    KEY_GROUPS,
    KEY_ID,
    KEY_PRINT,
    KEY_TIMEOUT,
    KEY_TRANSIENT
};

static const struct argp_option options[] = {
    {"url", 'u', "URL", 0, "amqp://[user:password@]host[:port]; required", 0},
    {"address", 'a', "QUEUE", 0, "where to send to; required", 0},
    {"count", 'c', "N", 0, "distinct messages; default 10", 0},
    {"rate", 'r', "N", 0, "messages a second; default 0: as many as can be", 0},
    {"body-bytes", 'b', "N", 0, "size of the body; default 256", 0},
    {"duplicates", 'd', "PERCENT", 0,
     "of the messages are sent twice, evenly spread; default 0", 0},
    {"id", KEY_ID, "TYPE", 0,
     "of message-id: string (default), ulong, uuid, binary or none", 0},
    {"duplicate-id", KEY_DUPLICATE_ID, NULL, 0,
     "set _AMQ_DUPL_ID, too. Artemis then drops the second copy itself, unless "
     "its acceptor says amqpDuplicateDetection=false",
     0},
    {"groups", KEY_GROUPS, "N", 0,
     "spread the messages over so many group-ids; default 0: none", 0},
    {"transient", KEY_TRANSIENT, NULL, 0, "messages that are not durable", 0},
    {"print-ids", KEY_PRINT, NULL, 0, "print the id of each message", 0},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0,
     "give up when the broker is silent so long; default 30", 0},
    {0}};

static long number_of(const char *text, long max, struct argp_state *state)
{
    char *end = NULL;
    errno = 0;
    long number = strtol(text, &end, 10);

    if (errno || end == text || *end || number < 0 || number > max) {
        argp_error(state, "\"%s\" is not a number from 0 to %ld", text, max);
    }
    return number;
}

static id_type_t id_type_of(const char *text, struct argp_state *state)
{
    for (int type = ID_STRING; type <= ID_NONE; type++) {
        if (strcmp(text, id_names[type]) == 0) {
            return (id_type_t)type;
        }
    }
    argp_error(state, "\"%s\" is none of the types of an id", text);
    return ID_NONE;
}

/* Takes user, password and host out of amqp://user:password@host:port. */
static void parse_url(settings_t *settings, char *url, struct argp_state *state)
{
    if (strncmp(url, "amqp://", 7) != 0) {
        argp_error(state, "the URL must begin with amqp://");
    }
    settings->host = url + 7;
    char *at = strrchr(settings->host, '@');
    if (at) {
        *at = '\0';
        settings->user = settings->host;
        settings->host = at + 1;
        settings->password = strchr(settings->user, ':');
        if (!settings->password) {
            argp_error(state, "the URL has a user without a password");
            return;
        }
        *settings->password++ = '\0';
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    settings_t *settings = state->input;

    switch (key) {
    case 'u':
        parse_url(settings, arg, state);
        return 0;
    case 'a':
        settings->address = arg;
        return 0;
    case 'c':
        settings->count = number_of(arg, 1000000000, state);
        return 0;
    case 'r':
        settings->rate = number_of(arg, 1000000, state);
        return 0;
    case 'b':
        settings->body_bytes = number_of(arg, 1 << 30, state);
        return 0;
    case 'd':
        settings->duplicates = number_of(arg, 100, state);
        return 0;
    case KEY_ID:
        settings->id_type = id_type_of(arg, state);
        return 0;
    case KEY_DUPLICATE_ID:
        settings->has_duplicate_id = true;
        return 0;
    case KEY_GROUPS:
        settings->groups = number_of(arg, 1000000, state);
        return 0;
    case KEY_TRANSIENT:
        settings->is_transient = true;
        return 0;
    case KEY_PRINT:
        settings->prints_ids = true;
        return 0;
    case KEY_TIMEOUT:
        settings->timeout_s = number_of(arg, 86400, state);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "\"%s\" is one argument too many", arg);
        return 0;
    case ARGP_KEY_END:
        if (!settings->host || !settings->address) {
            argp_error(state, "--url and --address are required");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Messages. */

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The same for each copy of a message. text is for people and for
 * _AMQ_DUPL_ID. */
static pn_atom_t id_of(const producer_t *producer, char text[64])
{
    unsigned long long number = (unsigned long long)producer->number;
    pn_atom_t id = {.type = PN_NULL};
    unsigned char *bytes = (unsigned char *)id.u.as_uuid.bytes;
    static char binary[16];

    snprintf(text, 64, "%016llx-%llu", (unsigned long long)producer->prefix,
             number);
    switch (producer->settings.id_type) {
    case ID_STRING:
        id.type = PN_STRING;
        id.u.as_bytes = pn_bytes(strlen(text), text);
        break;
    case ID_ULONG:
        id.type = PN_ULONG;
        id.u.as_ulong = (producer->prefix << 32) + number;
        snprintf(text, 64, "%llu", (unsigned long long)id.u.as_ulong);
        break;
    case ID_UUID:
        id.type = PN_UUID;
        memcpy(bytes, &producer->prefix, 8);
        for (int i = 0; i < 8; i++) {
            bytes[8 + i] = (unsigned char)(number >> (56 - 8 * i));
        }
        break;
    case ID_BINARY:
        id.type = PN_BINARY;
        memcpy(binary, &producer->prefix, 8);
        memcpy(binary + 8, &number, 8);
        id.u.as_bytes = pn_bytes(sizeof binary, binary);
        break;
    case ID_NONE:
        break;
    }
    return id;
}

static pn_message_t *make_message(const producer_t *producer)
{
    const settings_t *settings = &producer->settings;
    pn_message_t *message = pn_message();
    char text[64];
    pn_atom_t id = id_of(producer, text);

    pn_message_set_durable(message, !settings->is_transient);
    if (id.type != PN_NULL) {
        pn_message_set_id(message, id);
    }
    if (settings->groups > 0) {
        char group[32];
        snprintf(group, sizeof group, "group-%ld",
                 producer->number % settings->groups);
        pn_message_set_group_id(message, group);
    }
    if (settings->has_duplicate_id) {
        pn_data_t *properties = pn_message_properties(message);
        pn_data_put_map(properties);
        pn_data_enter(properties);
        pn_data_put_string(properties, pn_bytes(12, "_AMQ_DUPL_ID"));
        pn_data_put_string(properties, pn_bytes(strlen(text), text));
        pn_data_exit(properties);
    }
    char *body = calloc(1, (size_t)settings->body_bytes + 1);
    if (body) {
        memset(body, 'x', (size_t)settings->body_bytes);
        pn_message_set_inferred(message, true);
        pn_data_put_binary(pn_message_body(message),
                           pn_bytes((size_t)settings->body_bytes, body));
        free(body);
    }
    if (settings->prints_ids) {
        printf("%s%s\n", text, producer->is_copy ? " copy" : "");
    }
    return message;
}

/* Whether message number `number` is one of those that are sent twice. */
static bool is_sent_twice(const settings_t *settings, long number)
{
    return (number + 1) * settings->duplicates / 100 >
           number * settings->duplicates / 100;
}

static bool has_more(const producer_t *producer)
{
    return producer->number < producer->settings.count;
}

static bool send_next(producer_t *producer)
{
    pn_message_t *message = make_message(producer);
    uint64_t tag = (uint64_t)producer->sent;

    pn_delivery(producer->sender, pn_dtag((const char *)&tag, sizeof tag));
    ssize_t size =
        pn_message_send(message, producer->sender, &producer->buffer);
    pn_message_free(message);
    if (size < 0) {
        fprintf(stderr, "producer: a message could not be encoded: %s\n",
                pn_code((int)size));
        producer->failed = true;
        return false;
    }
    producer->sent++;
    if (producer->is_copy) {
        producer->copies++;
        producer->is_copy = false;
        producer->number++;
    } else if (is_sent_twice(&producer->settings, producer->number)) {
        producer->is_copy = true;
    } else {
        producer->number++;
    }
    return true;
}

/* As many as credit and rate allow. */
static void send_some(producer_t *producer)
{
    long rate = producer->settings.rate;
    int64_t due = INT64_MAX;

    if (rate > 0) {
        due = (now_ms() - producer->started_ms) * rate / 1000 + 1;
    }
    while (producer->sender && has_more(producer) && producer->sent < due &&
           pn_link_credit(producer->sender) > 0 && send_next(producer)) {
    }
    if (!has_more(producer) &&
        producer->accepted + producer->refused == producer->sent) {
        pn_connection_close(producer->connection);
    }
}

/* Events. */

static void fail(producer_t *producer, pn_condition_t *condition)
{
    if (pn_condition_is_set(condition)) {
        const char *description = pn_condition_get_description(condition);
        fprintf(stderr, "producer: %s: %s\n", pn_condition_get_name(condition),
                description ? description : "no description");
        producer->failed = true;
    }
}

static void open_sender(producer_t *producer, pn_connection_t *connection)
{
    pn_session_t *session = pn_session(connection);
    pn_link_t *sender = pn_sender(session, "producer");
    pn_data_t *capabilities = pn_terminus_capabilities(pn_link_target(sender));

    pn_connection_open(connection);
    pn_session_open(session);
    pn_terminus_set_address(pn_link_target(sender), producer->settings.address);
    /* Without it Artemis makes a topic of an address that it does not know.
     */
    pn_data_put_symbol(capabilities, pn_bytes(5, "queue"));
    pn_link_open(sender);
    producer->sender = sender;
}

static void count_answer(producer_t *producer, pn_delivery_t *delivery)
{
    if (pn_delivery_updated(delivery)) {
        if (pn_delivery_remote_state(delivery) == PN_ACCEPTED) {
            producer->accepted++;
        } else {
            producer->refused++;
            fail(producer,
                 pn_disposition_condition(pn_delivery_remote(delivery)));
        }
        pn_delivery_settle(delivery);
    }
}

/* Every 10 ms where there is a rate, else every second. */
static void set_timer(const producer_t *producer)
{
    pn_proactor_set_timeout(producer->proactor,
                            producer->settings.rate > 0 ? 10 : 1000);
}

static void watch(producer_t *producer)
{
    static int64_t looked_ms;
    long answered = producer->accepted + producer->refused;

    if (looked_ms == 0 || answered != producer->answered_before) {
        producer->answered_before = answered;
        looked_ms = now_ms();
    } else if (producer->sent > answered &&
               now_ms() - looked_ms > producer->settings.timeout_s * 1000) {
        fprintf(stderr, "producer: the broker is silent\n");
        producer->failed = true;
        pn_proactor_disconnect(producer->proactor, NULL);
    }
}

/* False at the end. */
static bool handle(producer_t *producer, pn_event_t *event)
{
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT:
        open_sender(producer, pn_event_connection(event));
        break;
    case PN_LINK_FLOW:
    case PN_CONNECTION_WAKE:
        send_some(producer);
        break;
    case PN_DELIVERY:
        count_answer(producer, pn_event_delivery(event));
        send_some(producer);
        break;
    case PN_LINK_REMOTE_CLOSE:
    case PN_LINK_REMOTE_DETACH:
        fail(producer, pn_link_remote_condition(pn_event_link(event)));
        producer->sender = NULL;
        pn_connection_close(pn_event_connection(event));
        break;
    case PN_CONNECTION_REMOTE_CLOSE:
        fail(producer,
             pn_connection_remote_condition(pn_event_connection(event)));
        pn_connection_close(pn_event_connection(event));
        break;
    case PN_TRANSPORT_CLOSED:
        fail(producer, pn_transport_condition(pn_event_transport(event)));
        producer->connection = NULL;
        producer->sender = NULL;
        pn_proactor_cancel_timeout(producer->proactor);
        break;
    case PN_PROACTOR_TIMEOUT:
        watch(producer);
        if (producer->connection) {
            pn_connection_wake(producer->connection);
            set_timer(producer);
        }
        break;
    case PN_PROACTOR_INACTIVE:
        return false;
    default:
        break;
    }
    return true;
}

static void run(producer_t *producer)
{
    const settings_t *settings = &producer->settings;
    pn_transport_t *transport = pn_transport();
    bool goes_on = true;

    producer->proactor = pn_proactor();
    producer->connection = pn_connection();
    producer->started_ms = now_ms();
    if (settings->user) {
        pn_connection_set_user(producer->connection, settings->user);
        pn_connection_set_password(producer->connection, settings->password);
        pn_sasl_allowed_mechs(pn_sasl(transport), "PLAIN");
        pn_sasl_set_allow_insecure_mechs(pn_sasl(transport), true);
    } else {
        pn_sasl_allowed_mechs(pn_sasl(transport), "ANONYMOUS");
    }
    pn_proactor_connect2(producer->proactor, producer->connection, transport,
                         settings->host);
    set_timer(producer);
    while (goes_on) {
        pn_event_batch_t *batch = pn_proactor_wait(producer->proactor);
        pn_event_t *event;
        while (goes_on && (event = pn_event_batch_next(batch))) {
            goes_on = handle(producer, event);
        }
        pn_proactor_done(producer->proactor, batch);
    }
    pn_proactor_free(producer->proactor);
    free(producer->buffer.start);
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        NULL,
        "Send messages to a queue, some of them twice.\v"
        "Prints what it sent. The exit code is 0 when the broker accepted all "
        "of it, 1 when not, 64 for wrong arguments.",
        NULL,
        NULL,
        NULL};
    producer_t producer = {
        .settings = {.count = 10, .body_bytes = 256, .timeout_s = 30}};
    struct timespec now;

    argp_parse(&argp, argc, argv, 0, NULL, &producer.settings);
    clock_gettime(CLOCK_REALTIME, &now);
    producer.prefix =
        ((uint64_t)now.tv_sec << 32 ^ (uint64_t)now.tv_nsec << 12) +
        (uint64_t)getpid();
    run(&producer);

    printf("sent %ld\ncopies %ld\naccepted %ld\nrefused %ld\n", producer.sent,
           producer.copies, producer.accepted, producer.refused);
    return !producer.failed && !has_more(&producer) &&
                   producer.accepted == producer.sent
               ? EXIT_SUCCESS
               : EXIT_FAILURE;
}
