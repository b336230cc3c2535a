#include "send.h"

#include "blocking.h"

#include <inttypes.h>
#include <proton/codec.h>
#include <proton/delivery.h>
#include <proton/disposition.h>
#include <proton/event.h>
#include <proton/link.h>
#include <proton/session.h>
#include <proton/terminus.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MS = 30000, ATTACH_MS = 10000, UNSENT_MAX = 256 * 1024 };

typedef struct sending {
    pn_link_t *link;
    pn_session_t *session;
    send_fill_t fill; /* or bytes */
    void *user;
    const void *bytes;
    size_t size;
    size_t count, sent, accepted, refused;
} sending_t;

static void send_one(sending_t *sending)
{
    uint64_t tag = sending->sent;
    char *encoded = NULL;
    const void *bytes = sending->bytes;
    size_t size = sending->size;

    if (sending->fill != NULL) {
        compose_message_t message = {.durable = true};

        sending->fill(sending->sent, &message, sending->user);
        encoded = compose_message(&message, &size);
        bytes = encoded;
    }
    pn_delivery(sending->link, pn_dtag((const char *)&tag, sizeof tag));
    pn_link_send(sending->link, bytes, size);
    pn_link_advance(sending->link);
    free(encoded);
    sending->sent++;
}

/* Sends what credit and buffers allow. */
static bool is_sent(void *user)
{
    sending_t *sending = user;

    while (sending->sent < sending->count &&
           pn_link_credit(sending->link) > 0 &&
           pn_session_outgoing_bytes(sending->session) < UNSENT_MAX) {
        send_one(sending);
    }
    return sending->accepted + sending->refused == sending->count;
}

static void on_sent(pn_event_t *event, void *user)
{
    sending_t *sending = user;
    pn_delivery_t *delivery = pn_event_delivery(event);

    if (pn_event_type(event) != PN_DELIVERY ||
        pn_delivery_remote_state(delivery) == 0) {
        return;
    }
    if (pn_delivery_remote_state(delivery) == PN_ACCEPTED) {
        sending->accepted++;
    } else {
        sending->refused++;
    }
    pn_delivery_settle(delivery);
}

static bool run(const char *url, const char *address, sending_t *sending,
                int64_t timeout_ms)
{
    blocking_t *blocking = blocking_open(url, ATTACH_MS);
    pn_terminus_t *target = NULL;
    pn_data_t *capabilities = NULL;
    bool is_done = false;

    if (blocking == NULL) {
        return false;
    }
    sending->session = blocking_session(blocking);
    sending->link = pn_sender(sending->session, "send");
    target = pn_link_target(sending->link);
    pn_terminus_set_address(target, address);
    capabilities = pn_terminus_capabilities(target);
    pn_data_put_symbol(capabilities, pn_bytes(5, "queue"));
    /* Without an own source some brokers take the link for a refusal. */
    pn_terminus_set_address(pn_link_source(sending->link), address);
    blocking_set_handler(blocking, on_sent, sending);
    if (blocking_attach(blocking, sending->link, ATTACH_MS)) {
        is_done = blocking_run(blocking, is_sent, sending, timeout_ms) &&
                  sending->refused == 0;
        if (!is_done) {
            fprintf(stderr, "send: %zu of %zu accepted, %zu refused\n",
                    sending->accepted, sending->count, sending->refused);
        }
    }
    blocking_close(blocking);
    return is_done;
}

bool send_messages(const char *url, const char *address, size_t count,
                   send_fill_t fill, void *user, int64_t timeout_ms)
{
    sending_t sending = {.fill = fill, .user = user, .count = count};

    return run(url, address, &sending, timeout_ms);
}

typedef struct numbered {
    const char *prefix;
    char id[256], body[64];
} numbered_t;

static void fill_numbered(size_t n, compose_message_t *message, void *user)
{
    numbered_t *numbered = user;

    if (numbered->prefix != NULL) {
        snprintf(numbered->id, sizeof numbered->id, "%s%zu", numbered->prefix,
                 n);
        message->id = compose_string(numbered->id);
    }
    message->body = numbered->body;
    message->body_bytes = (size_t)snprintf(
        numbered->body, sizeof numbered->body, "message %zu", n);
}

bool send_numbered(const char *url, const char *address, const char *prefix,
                   size_t count)
{
    numbered_t numbered = {.prefix = prefix};

    return send_messages(url, address, count, fill_numbered, &numbered,
                         TIMEOUT_MS + (int64_t)count);
}

bool send_bytes(const char *url, const char *address, const void *bytes,
                size_t size)
{
    sending_t sending = {.bytes = bytes, .size = size, .count = 1};

    return run(url, address, &sending, TIMEOUT_MS);
}

bool send_text(const char *url, const char *address, const char *id,
               const char *body)
{
    size_t size = 0;
    char *bytes = compose_text(id, body, &size);
    bool is_sent_now = send_bytes(url, address, bytes, size);

    free(bytes);
    return is_sent_now;
}
