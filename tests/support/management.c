#include "management.h"

#include "blocking.h"
#include "support.h"

#include <jansson.h>
#include <proton/codec.h>
#include <proton/delivery.h>
#include <proton/disposition.h>
#include <proton/event.h>
#include <proton/link.h>
#include <proton/message.h>
#include <proton/session.h>
#include <proton/terminus.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TIMEOUT_MS = 10000, CREDIT = 10, LOOK_EVERY_MS = 10 };

struct management {
    blocking_t *blocking;
    pn_link_t *sender, *receiver;
    char *reply_to;
    pn_message_t *message;
    char *reply; /* JSON */
    char *bytes; /* of the reply that is arriving */
    size_t size, capacity;
    bool has_reply, succeeded;
    uint64_t next_tag;
};

static bool get_succeeded(pn_data_t *properties)
{
    bool succeeded = false;

    pn_data_rewind(properties);
    if (pn_data_next(properties) && pn_data_type(properties) == PN_MAP) {
        pn_data_enter(properties);
        while (pn_data_next(properties)) {
            pn_bytes_t name = pn_data_get_string(properties);

            if (!pn_data_next(properties)) {
                break;
            }
            if (name.size == strlen("_AMQ_OperationSucceeded") &&
                memcmp(name.start, "_AMQ_OperationSucceeded", name.size) == 0) {
                succeeded = pn_data_get_bool(properties);
            }
        }
    }
    return succeeded;
}

static void take_reply(management_t *management)
{
    pn_data_t *body = pn_message_body(management->message);

    pn_message_clear(management->message);
    if (management->size > 0) {
        pn_message_decode(management->message, management->bytes,
                          management->size);
    }
    management->size = 0;
    management->succeeded =
        get_succeeded(pn_message_properties(management->message));
    pn_data_rewind(body);
    free(management->reply);
    management->reply = NULL;
    if (pn_data_next(body) && pn_data_type(body) == PN_STRING) {
        pn_bytes_t text = pn_data_get_string(body);

        management->reply = strndup(text.start, text.size);
    }
    management->has_reply = true;
}

static void on_event(pn_event_t *event, void *user)
{
    management_t *management = user;
    pn_delivery_t *delivery = pn_event_delivery(event);
    ssize_t count = 1;

    if (pn_event_type(event) != PN_DELIVERY) {
        return;
    }
    if (pn_event_link(event) == management->sender) {
        if (pn_delivery_updated(delivery)) {
            pn_delivery_settle(delivery);
        }
        return;
    }
    while (count > 0) {
        if (management->capacity - management->size < 4096) {
            management->capacity = 2 * management->capacity + 4096;
            management->bytes =
                realloc(management->bytes, management->capacity);
            if (management->bytes == NULL) {
                abort();
            }
        }
        count = pn_link_recv(management->receiver,
                             management->bytes + management->size,
                             management->capacity - management->size);
        management->size += count > 0 ? (size_t)count : 0;
    }
    if (!pn_delivery_partial(delivery)) {
        take_reply(management);
        pn_delivery_update(delivery, PN_ACCEPTED);
        pn_delivery_settle(delivery);
        pn_link_flow(management->receiver, 1);
    }
}

static bool has_reply(void *user)
{
    return ((management_t *)user)->has_reply;
}

static bool has_credit(void *user)
{
    return pn_link_credit(user) > 0;
}

management_t *management_open(const char *url)
{
    management_t *management = calloc(1, sizeof *management);
    blocking_t *blocking = blocking_open(url, TIMEOUT_MS);
    pn_session_t *session = NULL;

    if (management == NULL || blocking == NULL) {
        blocking_close(blocking);
        free(management);
        return NULL;
    }
    management->blocking = blocking;
    management->message = pn_message();
    session = blocking_session(blocking);
    management->receiver = pn_receiver(session, "management-reply");
    pn_terminus_set_type(pn_link_source(management->receiver), PN_SOURCE);
    pn_terminus_set_dynamic(pn_link_source(management->receiver), true);
    management->sender = pn_sender(session, "management");
    pn_terminus_set_address(pn_link_target(management->sender),
                            "activemq.management");
    blocking_set_handler(blocking, on_event, management);
    if (!blocking_attach(blocking, management->receiver, TIMEOUT_MS) ||
        !blocking_attach(blocking, management->sender, TIMEOUT_MS) ||
        !blocking_run(blocking, has_credit, management->sender, TIMEOUT_MS)) {
        management_close(management);
        return NULL;
    }
    management->reply_to = strdup(
        pn_terminus_get_address(pn_link_remote_source(management->receiver)));
    pn_link_flow(management->receiver, CREDIT);
    return management;
}

void management_close(management_t *management)
{
    if (management == NULL) {
        return;
    }
    blocking_close(management->blocking);
    pn_message_free(management->message);
    free(management->reply_to);
    free(management->reply);
    free(management->bytes);
    free(management);
}

static void put_pair(pn_data_t *map, const char *name, const char *value)
{
    pn_data_put_string(map, pn_bytes(strlen(name), name));
    pn_data_put_string(map, pn_bytes(strlen(value), value));
}

/* One request; which is _AMQ_Attribute or _AMQ_OperationName. */
static bool ask(management_t *management, const char *resource,
                const char *which, const char *name, const char *arguments)
{
    pn_message_t *message = management->message;
    pn_data_t *properties = pn_message_properties(message);
    char *bytes = malloc(65536);
    size_t size = 65536;
    bool is_answered = false;

    if (bytes == NULL) {
        return false;
    }
    pn_message_clear(message);
    pn_message_set_reply_to(message, management->reply_to);
    pn_data_put_map(properties);
    pn_data_enter(properties);
    put_pair(properties, "_AMQ_ResourceName", resource);
    put_pair(properties, which, name);
    pn_data_exit(properties);
    pn_data_put_string(pn_message_body(message),
                       pn_bytes(strlen(arguments), arguments));
    management->has_reply = false;
    if (pn_message_encode(message, bytes, &size) == 0) {
        uint64_t tag = management->next_tag++;

        pn_delivery(management->sender,
                    pn_dtag((const char *)&tag, sizeof tag));
        pn_link_send(management->sender, bytes, size);
        pn_link_advance(management->sender);
        is_answered = blocking_run(management->blocking, has_reply, management,
                                   TIMEOUT_MS);
    }
    free(bytes);
    return is_answered && management->succeeded;
}

char *management_call(management_t *management, const char *resource,
                      const char *operation, const char *arguments)
{
    if (!ask(management, resource, "_AMQ_OperationName", operation,
             arguments != NULL ? arguments : "[]")) {
        fprintf(stderr, "management: %s on %s: %s\n", operation, resource,
                management->has_reply && management->reply != NULL
                    ? management->reply
                    : "no answer");
        return NULL;
    }
    return strdup(management->reply != NULL ? management->reply : "[]");
}

int64_t management_queue(management_t *management, const char *queue,
                         const char *attribute)
{
    char resource[512];
    json_t *reply = NULL;
    json_t *value = NULL;
    int64_t number = -1;

    snprintf(resource, sizeof resource, "queue.%s", queue);
    if (!ask(management, resource, "_AMQ_Attribute", attribute, "[]") ||
        management->reply == NULL) {
        return -1;
    }
    reply = json_loads(management->reply, 0, NULL);
    value = json_array_get(reply, 0);
    if (json_is_integer(value)) {
        number = json_integer_value(value);
    }
    json_decref(reply);
    return number;
}

bool management_wait(management_t *management, const char *queue,
                     const char *attribute, int64_t value, int64_t timeout_ms)
{
    const struct timespec pause = {0, LOOK_EVERY_MS * 1000000L};
    int64_t end = test_now_ms() + test_scaled_ms(timeout_ms);
    int64_t now = management_queue(management, queue, attribute);

    while (now != value && test_now_ms() < end) {
        nanosleep(&pause, NULL);
        now = management_queue(management, queue, attribute);
    }
    if (now != value) {
        fprintf(stderr, "management: %s of %s is %lld, not %lld\n", attribute,
                queue, (long long)now, (long long)value);
    }
    return now == value;
}

/* Calls an operation and drops the reply. */
static bool order(management_t *management, const char *resource,
                  const char *operation, json_t *arguments)
{
    char *text = json_dumps(arguments, 0);
    char *reply = management_call(management, resource, operation, text);
    bool is_done = reply != NULL;

    free(reply);
    free(text);
    json_decref(arguments);
    return is_done;
}

static bool order_queue(management_t *management, const char *queue,
                        const char *operation)
{
    char resource[512];

    snprintf(resource, sizeof resource, "queue.%s", queue);
    return order(management, resource, operation, json_array());
}

bool management_create_queue(management_t *management, const char *queue)
{
    char *configuration = NULL;
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:b, s:b, s:b}", "name", queue, "address",
                  queue, "routing-type", "ANYCAST", "durable", 1,
                  "auto-create-address", 1, "auto-delete", 0);
    bool is_done = false;

    configuration = json_dumps(json, 0);
    is_done = order(management, "broker", "createQueue",
                    json_pack("[s]", configuration));
    free(configuration);
    json_decref(json);
    return is_done;
}

bool management_destroy_queue(management_t *management, const char *queue)
{
    return order(management, "broker", "destroyQueue",
                 json_pack("[s, b]", queue, 1));
}

bool management_has_queue(management_t *management, const char *queue)
{
    return management_queue(management, queue, "messageCount") >= 0;
}

bool management_purge(management_t *management, const char *queue)
{
    return order_queue(management, queue, "removeAllMessages");
}

bool management_pause(management_t *management, const char *queue)
{
    return order_queue(management, queue, "pause");
}

bool management_resume(management_t *management, const char *queue)
{
    return order_queue(management, queue, "resume");
}

bool management_retry(management_t *management, const char *queue)
{
    return order_queue(management, queue, "retryMessages");
}

bool management_cut_consumers(management_t *management, const char *address)
{
    return order(management, "broker", "closeConsumerConnectionsForAddress",
                 json_pack("[s]", address));
}
