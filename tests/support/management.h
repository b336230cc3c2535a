#ifndef IDEM_TEST_MANAGEMENT_H
#define IDEM_TEST_MANAGEMENT_H

/*
 * Artemis' own view of its queues, by management messages over AMQP. It
 * blocks; what fails says why on stderr. One thread at a time.
 */

#include <stdbool.h>
#include <stdint.h>

typedef struct management management_t;

/** Needs a user with the right to manage. NULL when that did not work. */
management_t *management_open(const char *url);
void management_close(management_t *management);

/**
 * Call an operation.
 *
 * @param resource   "broker", "queue.<name>" or "address.<name>"
 * @param arguments  a JSON array; NULL means none
 *
 * @return the JSON text of the reply, an array with the result first, to be
 *         freed; NULL when it failed
 */
char *management_call(management_t *management, const char *resource,
                      const char *operation, const char *arguments);

/**
 * Read a number of a queue: messageCount (with delivering and scheduled),
 * deliveringCount, scheduledCount, messagesAdded, messagesAcknowledged,
 * messagesKilled (dead-lettered or purged), messagesExpired, consumerCount.
 *
 * @return -1 when there is no such queue
 */
int64_t management_queue(management_t *management, const char *queue,
                         const char *attribute);

/** Read until it has the value. Counters lag behind dispositions. */
bool management_wait(management_t *management, const char *queue,
                     const char *attribute, int64_t value, int64_t timeout_ms);

/** Make an address with one durable queue of the same name. */
bool management_create_queue(management_t *management, const char *queue);
/** Whatever it holds, and its consumers too. */
bool management_destroy_queue(management_t *management, const char *queue);
bool management_has_queue(management_t *management, const char *queue);
/** Remove what is not in a consumer's hand. */
bool management_purge(management_t *management, const char *queue);
bool management_pause(management_t *management, const char *queue);
bool management_resume(management_t *management, const char *queue);
/** Move back what was dead-lettered. */
bool management_retry(management_t *management, const char *queue);
/** Cut the connections (TCP, without a close frame) of those who consume. */
bool management_cut_consumers(management_t *management, const char *address);

#endif
