#include "send.h"

#include "blocking.h"

#include <inttypes.h>
#include <proton/codec.h>
#include <proton/delivery.h>
#include <proton/disposition.h>
#include <proton/event.h>
#include <proton/link.h>
#include <proton/message.h>
#include <proton/terminus.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    TIMEOUT_MS = 60000,
    ATTACH_MS = 10000,
    CREDIT = 1000,
    EMPTY_MAX = 3,
    PAUSE_MS = 20
};

typedef struct receiving {
    received_list_t *list;
    pn_link_t *link;
    pn_message_t *message;
    char *bytes; /* of the delivery that is arriving */
    size_t size, capacity;
    size_t at_most; /* 0: all */
    size_t before;  /* what the list held when the last credit was given */
    int empty;      /* portions in a row that brought nothing */
} receiving_t;

static char *copy_text(const void *bytes, size_t size)
{
    char *text = malloc(size + 1);

    if (text == NULL) {
        abort();
    }
    if (size > 0) {
        memcpy(text, bytes, size);
    }
    text[size] = '\0';
    return text;
}

static char *copy_hex(const void *bytes, size_t size)
{
    const unsigned char *in = bytes;
    char *text = malloc(2 * size + 1);

    if (text == NULL) {
        abort();
    }
    text[0] = '\0';
    for (size_t i = 0; i < size; i++) {
        snprintf(text + 2 * i, 3, "%02x", in[i]);
    }
    return text;
}

static char *copy_atom(pn_atom_t atom, compose_type_t *type)
{
    char number[32];

    switch (atom.type) {
    case PN_STRING:
        *type = COMPOSE_STRING;
        return copy_text(atom.u.as_bytes.start, atom.u.as_bytes.size);
    case PN_SYMBOL:
        *type = COMPOSE_SYMBOL;
        return copy_text(atom.u.as_bytes.start, atom.u.as_bytes.size);
    case PN_BINARY:
        *type = COMPOSE_BINARY;
        return copy_hex(atom.u.as_bytes.start, atom.u.as_bytes.size);
    case PN_UUID:
        *type = COMPOSE_UUID;
        return copy_hex(atom.u.as_uuid.bytes, sizeof atom.u.as_uuid.bytes);
    case PN_ULONG:
        *type = COMPOSE_ULONG;
        snprintf(number, sizeof number, "%" PRIu64, atom.u.as_ulong);
        return copy_text(number, strlen(number));
    default:
        *type = COMPOSE_NONE;
        return copy_text("", 0);
    }
}

static char *copy_duplicate_id(pn_data_t *properties)
{
    compose_type_t ignored = COMPOSE_NONE;

    pn_data_rewind(properties);
    if (pn_data_next(properties) && pn_data_type(properties) == PN_MAP) {
        pn_data_enter(properties);
        while (pn_data_next(properties)) {
            pn_bytes_t name = pn_data_get_string(properties);

            if (!pn_data_next(properties)) {
                break;
            }
            if (name.size == 12 &&
                memcmp(name.start, "_AMQ_DUPL_ID", 12) == 0) {
                return copy_atom(pn_data_get_atom(properties), &ignored);
            }
        }
    }
    return copy_text("", 0);
}

static void add(receiving_t *receiving)
{
    received_list_t *list = receiving->list;
    pn_message_t *message = receiving->message;
    const char *group = NULL;
    pn_data_t *body = NULL;
    received_t *received = NULL;

    list->messages =
        realloc(list->messages, (list->count + 1) * sizeof *list->messages);
    if (list->messages == NULL) {
        abort();
    }
    received = &list->messages[list->count++];
    memset(received, 0, sizeof *received);
    pn_message_clear(message);
    /* Proton aborts on an empty payload. */
    if (receiving->size > 0) {
        pn_message_decode(message, receiving->bytes, receiving->size);
    }
    group = pn_message_get_group_id(message);
    body = pn_message_body(message);
    received->id = copy_atom(pn_message_get_id(message), &received->type);
    received->duplicate_id = copy_duplicate_id(pn_message_properties(message));
    received->group_id = copy_text(group, group != NULL ? strlen(group) : 0);
    received->delivery_count = pn_message_get_delivery_count(message);
    received->durable = pn_message_is_durable(message);
    pn_data_rewind(body);
    if (pn_data_next(body) &&
        (pn_data_type(body) == PN_BINARY || pn_data_type(body) == PN_STRING)) {
        pn_bytes_t bytes = pn_data_get_bytes(body);

        received->body = copy_text(bytes.start, bytes.size);
        received->body_bytes = bytes.size;
    } else {
        received->body = copy_text("", 0);
    }
}

static void read_part(receiving_t *receiving)
{
    ssize_t count = 1;

    while (count > 0) {
        if (receiving->capacity - receiving->size < 65536) {
            receiving->capacity = 2 * receiving->capacity + 65536;
            receiving->bytes = realloc(receiving->bytes, receiving->capacity);
            if (receiving->bytes == NULL) {
                abort();
            }
        }
        count =
            pn_link_recv(receiving->link, receiving->bytes + receiving->size,
                         receiving->capacity - receiving->size);
        receiving->size += count > 0 ? (size_t)count : 0;
    }
}

static void on_received(pn_event_t *event, void *user)
{
    receiving_t *receiving = user;
    pn_delivery_t *delivery = pn_event_delivery(event);

    if (pn_event_type(event) != PN_DELIVERY ||
        !pn_delivery_readable(delivery)) {
        return;
    }
    read_part(receiving);
    if (!pn_delivery_partial(delivery)) {
        add(receiving);
        receiving->size = 0;
        pn_delivery_update(delivery, PN_ACCEPTED);
        pn_delivery_settle(delivery);
    }
}

/* Drains in portions. Artemis may answer that there is nothing while it still
   puts returned or many messages in order, so it is asked more than once. */
static bool is_drained(void *user)
{
    const struct timespec pause = {0, PAUSE_MS * 1000000L};
    receiving_t *receiving = user;
    received_list_t *list = receiving->list;
    size_t more = CREDIT;

    if (pn_link_draining(receiving->link)) {
        return false;
    }
    if (receiving->at_most != 0 && list->count >= receiving->at_most) {
        return true;
    }
    if (receiving->before != list->count) {
        receiving->empty = 0;
    } else if (++receiving->empty == EMPTY_MAX) {
        return true;
    } else {
        nanosleep(&pause, NULL);
    }
    if (receiving->at_most != 0 && receiving->at_most - list->count < more) {
        more = receiving->at_most - list->count;
    }
    receiving->before = list->count;
    pn_link_drain(receiving->link, (int)more);
    return false;
}

static bool receive(const char *url, const char *address, bool browses,
                    size_t at_most, received_list_t *list)
{
    receiving_t receiving = {
        .list = list, .at_most = at_most, .before = SIZE_MAX};
    blocking_t *blocking = blocking_open(url, ATTACH_MS);
    pn_terminus_t *source = NULL;
    bool is_done = false;

    list->messages = NULL;
    list->count = 0;
    if (blocking == NULL) {
        return false;
    }
    receiving.message = pn_message();
    receiving.link = pn_receiver(blocking_session(blocking), "receive");
    source = pn_link_source(receiving.link);
    pn_terminus_set_address(source, address);
    pn_terminus_set_address(pn_link_target(receiving.link), "receive");
    pn_data_put_symbol(pn_terminus_capabilities(source), pn_bytes(5, "queue"));
    if (browses) {
        pn_terminus_set_distribution_mode(source, PN_DIST_MODE_COPY);
    }
    blocking_set_handler(blocking, on_received, &receiving);
    if (blocking_attach(blocking, receiving.link, ATTACH_MS)) {
        is_done = blocking_run(blocking, is_drained, &receiving, TIMEOUT_MS);
        is_done =
            blocking_detach(blocking, receiving.link, ATTACH_MS) && is_done;
    }
    blocking_close(blocking);
    pn_message_free(receiving.message);
    free(receiving.bytes);
    return is_done;
}

bool receive_browse(const char *url, const char *address, received_list_t *list)
{
    return receive(url, address, true, 0, list);
}

bool receive_take(const char *url, const char *address, size_t at_most,
                  received_list_t *list)
{
    return receive(url, address, false, at_most, list);
}

size_t received_count(const received_list_t *list, const char *id)
{
    size_t count = 0;

    for (size_t i = 0; i < list->count; i++) {
        count += strcmp(list->messages[i].id, id) == 0;
    }
    return count;
}

void received_free(received_list_t *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->messages[i].id);
        free(list->messages[i].duplicate_id);
        free(list->messages[i].group_id);
        free(list->messages[i].body);
    }
    free(list->messages);
    list->messages = NULL;
    list->count = 0;
}
