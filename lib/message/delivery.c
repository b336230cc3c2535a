#include "message/delivery.h"

#include "base/clock.h"
#include "identity/utf8.h"

#include <proton/message.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A delivery has at times two holders: the I/O thread, which destroys it, and
 * the workers (from the queue to the outcome) or, deferred, the program. Its
 * handoff says who; whoever finds in it that the other has let go frees the
 * memory. Every change of it is one compare-and-swap. */

static bool hand_over(idem_delivery_t *delivery, int from, int to)
{
    return atomic_compare_exchange_strong(&delivery->handoff, &from, to);
}

idemi_completions_t *idemi_completions_create(idemi_mailbox_t *mailbox)
{
    idemi_completions_t *completions = malloc(sizeof *completions);

    if (!completions) {
        return NULL;
    }
    if (pthread_mutex_init(&completions->mutex, NULL) != 0) {
        free(completions);
        return NULL;
    }
    atomic_init(&completions->references, 1);
    atomic_init(&completions->deferred, 0);
    atomic_init(&completions->open, 0);
    completions->mailbox = mailbox;
    return completions;
}

void idemi_completions_close(idemi_completions_t *completions)
{
    (void)pthread_mutex_lock(&completions->mutex);
    completions->mailbox = NULL;
    (void)pthread_mutex_unlock(&completions->mutex);
}

void idemi_completions_drop(idemi_completions_t *completions)
{
    if (completions && atomic_fetch_sub(&completions->references, 1) == 1) {
        (void)pthread_mutex_destroy(&completions->mutex);
        free(completions);
    }
}

/* The bytes behind the struct, in its own allocation. */
static unsigned char *inline_bytes(idem_delivery_t *delivery)
{
    return (unsigned char *)(delivery + 1);
}

idem_delivery_t *idemi_delivery_create(idemi_completions_t *completions,
                                       size_t room)
{
    idem_delivery_t *delivery = NULL;

    if (room > SIZE_MAX - sizeof *delivery) {
        return NULL;
    }
    delivery = malloc(sizeof *delivery + room);
    if (!delivery) {
        return NULL;
    }
    memset(delivery, 0, sizeof *delivery);
    atomic_init(&delivery->handoff, IDEMI_HANDOFF_NONE);
    atomic_init(&delivery->lease_lost, false);
    atomic_init(&delivery->lease_end_ms, INT64_MAX);
    delivery->encoded = inline_bytes(delivery);
    delivery->encoded_room = room;
    atomic_fetch_add(&completions->references, 1);
    delivery->completions = completions;
    return delivery;
}

bool idemi_delivery_reserve(idem_delivery_t *delivery, size_t more)
{
    size_t room = delivery->encoded_room;
    bool is_inline = delivery->encoded == inline_bytes(delivery);
    unsigned char *bytes = NULL;

    if (more <= room - delivery->encoded_size) {
        return true;
    }
    if (more > SIZE_MAX / 2 - delivery->encoded_size) {
        return false;
    }
    /* Doubled, so that a message of many frames is copied a few times only. */
    room = room > SIZE_MAX / 2 ? SIZE_MAX : room * 2;
    if (room < delivery->encoded_size + more) {
        room = delivery->encoded_size + more;
    }
    bytes = realloc(is_inline ? NULL : delivery->encoded, room);
    if (!bytes) {
        return false;
    }
    if (is_inline) {
        memcpy(bytes, delivery->encoded, delivery->encoded_size);
    }
    delivery->encoded = bytes;
    delivery->encoded_room = room;
    return true;
}

void idemi_delivery_release_message(idem_delivery_t *delivery)
{
    if (delivery->message) {
        pn_message_free(delivery->message);
        delivery->message = NULL;
    }
}

static void release_memory(idem_delivery_t *delivery)
{
    idemi_delivery_release_message(delivery);
    if (delivery->encoded != inline_bytes(delivery)) {
        free(delivery->encoded);
    }
    free(delivery->group);
    free(delivery->condition);
    free(delivery->description);
    idemi_completions_drop(delivery->completions);
    free(delivery);
}

void idemi_delivery_destroy(idem_delivery_t *delivery)
{
    if (!delivery) {
        return;
    }
    for (;;) {
        int handoff = atomic_load(&delivery->handoff);
        if (handoff == IDEMI_HANDOFF_NONE || handoff == IDEMI_HANDOFF_ENDED) {
            release_memory(delivery);
            return;
        }
        /* Handlers are waited for. */
        assert(handoff != IDEMI_HANDOFF_STARTED &&
               handoff < IDEMI_HANDOFF_COMPLETED);
        if (hand_over(delivery, handoff, IDEMI_HANDOFF_ORPHANED)) {
            return;
        }
    }
}

bool idemi_delivery_queue(idem_delivery_t *delivery)
{
    if (hand_over(delivery, IDEMI_HANDOFF_CANCELLED, IDEMI_HANDOFF_QUEUED)) {
        return false;
    }
    atomic_store(&delivery->handoff, IDEMI_HANDOFF_QUEUED);
    return true;
}

bool idemi_delivery_cancel(idem_delivery_t *delivery)
{
    return hand_over(delivery, IDEMI_HANDOFF_QUEUED, IDEMI_HANDOFF_CANCELLED);
}

/* A worker takes a delivery out of its queue. False: nothing is to be run, and
 * the delivery is no longer the worker's. */
static bool starts(idem_delivery_t *delivery)
{
    for (;;) {
        if (hand_over(delivery, IDEMI_HANDOFF_QUEUED, IDEMI_HANDOFF_STARTED)) {
            return true;
        }
        if (hand_over(delivery, IDEMI_HANDOFF_CANCELLED, IDEMI_HANDOFF_NONE)) {
            return false;
        }
        if (atomic_load(&delivery->handoff) == IDEMI_HANDOFF_ORPHANED) {
            release_memory(delivery);
            return false;
        }
    }
}

static bool is_final(idem_outcome_t outcome)
{
    return outcome == IDEM_RETRY || outcome == IDEM_ACCEPT ||
           outcome == IDEM_RELEASE || outcome == IDEM_REJECT;
}

bool idemi_delivery_run(idem_delivery_t *delivery, idem_handler_t handler,
                        void *user)
{
    idemi_completions_t *completions = delivery->completions;

    if (!starts(delivery)) {
        return false;
    }
    delivery->was_late = idemi_now_ms() >= atomic_load(&delivery->lease_end_ms);
    if (delivery->was_late) {
        atomic_store(&delivery->handoff, IDEMI_HANDOFF_ENDED);
        return true;
    }
    idem_outcome_t outcome = handler(delivery, user);

    if (outcome == IDEM_DEFER) {
        /* Counted first: afterwards another thread may complete it. */
        atomic_fetch_add(&completions->deferred, 1);
        atomic_fetch_add(&completions->open, 1);
        if (hand_over(delivery, IDEMI_HANDOFF_STARTED,
                      IDEMI_HANDOFF_DEFERRED)) {
            return false;
        }
        atomic_fetch_sub(&completions->open, 1);
        outcome = (idem_outcome_t)(atomic_load(&delivery->handoff) -
                                   IDEMI_HANDOFF_COMPLETED);
    }
    delivery->outcome = is_final(outcome) ? outcome : IDEM_RETRY;
    idemi_delivery_release_message(delivery);
    atomic_store(&delivery->handoff, IDEMI_HANDOFF_ENDED);
    return true;
}

idem_status_t idem_delivery_complete(idem_delivery_t *delivery,
                                     idem_outcome_t outcome)
{
    idem_status_t status = IDEM_ERR_STATE;

    if (!delivery || !is_final(outcome)) {
        return IDEM_ERR_ARG;
    }
    /* Held, since the delivery may go with the post, and the last reference
     * with it. */
    idemi_completions_t *completions = delivery->completions;
    atomic_fetch_add(&completions->references, 1);
    (void)pthread_mutex_lock(&completions->mutex);
    for (;;) {
        int handoff = atomic_load(&delivery->handoff);
        if (handoff == IDEMI_HANDOFF_STARTED) {
            if (!hand_over(delivery, handoff,
                           IDEMI_HANDOFF_COMPLETED + (int)outcome)) {
                continue; /* the handler has returned just now */
            }
            status = IDEM_OK;
        } else if (handoff == IDEMI_HANDOFF_DEFERRED) {
            if (!hand_over(delivery, handoff, IDEMI_HANDOFF_ENDED)) {
                continue;
            }
            atomic_fetch_sub(&completions->open, 1);
            /* Without a mailbox the client is going. It has not come to this
             * delivery yet and frees it when it does. */
            if (completions->mailbox) {
                idemi_tasks_t done = {NULL, NULL};
                delivery->outcome = outcome;
                idemi_tasks_add(&done, &delivery->done);
                idemi_mailbox_post(completions->mailbox, &done);
            }
            status = IDEM_OK;
        } else if (handoff == IDEMI_HANDOFF_ORPHANED) {
            if (!hand_over(delivery, handoff, IDEMI_HANDOFF_ENDED)) {
                continue;
            }
            release_memory(delivery);
            status = IDEM_OK;
        }
        break;
    }
    (void)pthread_mutex_unlock(&completions->mutex);
    idemi_completions_drop(completions);
    return status;
}

struct pn_message_t *idem_delivery_message(idem_delivery_t *delivery)
{
    /* Proton's decoder aborts on an empty payload, and keeps what a message
     * held before: so a new one, and never nothing. */
    if (delivery && !delivery->message && delivery->encoded_size > 0 &&
        !delivery->is_beyond_proton) {
        pn_message_t *message = pn_message();
        if (message &&
            pn_message_decode(message, (const char *)delivery->encoded,
                              delivery->encoded_size) != 0) {
            pn_message_free(message);
            message = NULL;
        }
        delivery->message = message;
    }
    return delivery ? delivery->message : NULL;
}

const void *idem_delivery_encoded(const idem_delivery_t *delivery, size_t *size)
{
    if (size) {
        *size = delivery ? delivery->encoded_size : 0;
    }
    return delivery ? delivery->encoded : NULL;
}

const char *idem_delivery_key(const idem_delivery_t *delivery)
{
    return delivery && delivery->key[0] != '\0' ? delivery->key : NULL;
}

const char *idem_delivery_group_id(const idem_delivery_t *delivery)
{
    return delivery ? delivery->group : NULL;
}

const char *idem_delivery_address(const idem_delivery_t *delivery)
{
    return delivery ? delivery->address : NULL;
}

uint32_t idem_delivery_count(const idem_delivery_t *delivery)
{
    return delivery ? delivery->delivery_count : 0;
}

uint32_t idem_delivery_attempts(const idem_delivery_t *delivery)
{
    return delivery ? delivery->attempts : 0;
}

bool idem_delivery_is_lease_lost(const idem_delivery_t *delivery)
{
    return delivery && atomic_load(&delivery->lease_lost);
}

/* A copy of at most size - 1 bytes that ends with a whole character. What is no
 * UTF-8 could not be sent as a string or symbol: '?' stands for its bytes. */
static void replace_text(char **text, const char *value, size_t size,
                         bool is_symbol)
{
    char *copy = NULL;

    if (value) {
        size_t length = strnlen(value, size);
        if (length == size) {
            length = size - 1;
            while (length > 0 &&
                   ((unsigned char)value[length] & 0xc0) == 0x80) {
                length--;
            }
        }
        copy = malloc(length + 1);
        if (copy) {
            memcpy(copy, value, length);
            copy[length] = '\0';
            bool is_text = !is_symbol && idemi_utf8_is_text(copy, length);
            for (size_t i = 0; i < length && !is_text; i++) {
                if ((unsigned char)copy[i] > 0x7f) {
                    copy[i] = '?';
                }
            }
        }
    }
    free(*text);
    *text = copy;
}

idem_outcome_t idem_delivery_reject(idem_delivery_t *delivery,
                                    const char *condition,
                                    const char *description)
{
    if (delivery) {
        replace_text(&delivery->condition,
                     condition && *condition ? condition : NULL,
                     IDEMI_CONDITION_BYTES, true);
        replace_text(&delivery->description, description,
                     IDEMI_DESCRIPTION_BYTES, false);
    }
    return IDEM_REJECT;
}

const char *idemi_delivery_condition(const idem_delivery_t *delivery)
{
    if (delivery->entry.condition) {
        return delivery->entry.condition;
    }
    return delivery->condition ? delivery->condition : "idem:rejected";
}

const char *idemi_delivery_description(const idem_delivery_t *delivery)
{
    return delivery->entry.condition ? delivery->entry.description
                                     : delivery->description;
}
