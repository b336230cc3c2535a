#ifndef IDEM_DELIVERY_H
#define IDEM_DELIVERY_H

#include <idem/status.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pn_message_t;

/** One AMQP transfer of a message to us, as its handler sees it. */
typedef struct idem_delivery idem_delivery_t;

/**
 * What a handler makes of a delivery. A value outside of this list counts as
 * IDEM_RETRY, as does 0: a result that was never set is a failure.
 */
typedef enum idem_outcome {
    /** Tried and failed: try again later. Sends modified with delivery-failed
     * true (AMQP 1.0, section 3.4.5), after a local back-off. It counts at the
     * broker and in the store. */
    IDEM_RETRY = 0,
    /** Done. The key is confirmed, then accepted (3.4.2) is sent. */
    IDEM_ACCEPT = 1,
    /** Not tried: try again later. Sends released (3.4.4), after a local
     * back-off. It does not count. */
    IDEM_RELEASE = 2,
    /** Will never work. Sends rejected (3.4.3): Artemis moves the message to
     * the dead-letter address, and deletes it where there is none. It counts in
     * the store. */
    IDEM_REJECT = 3,
    /** idem_delivery_complete() brings the outcome later. */
    IDEM_DEFER = 4
} idem_outcome_t;

/**
 * Handles one delivery.
 *
 * Threads:   a worker thread of the consumer, or the I/O thread where
 *            concurrency is 0. No lock is held.
 * Blocks:    may block for as long as it likes on a worker: its claim is
 *            renewed meanwhile. With concurrency 0 it must not block.
 * Runs:      once per key, and again only where it did not accept and the
 *            message came again, where its lease was lost (the store was out of
 *            reach, or the process stood still, for longer than a lease), where
 *            a process died between the work and its confirm, or once the
 *            retention has passed. A message without an id runs at each
 *            delivery.
 * Calls:     every idem_delivery_ function, idem_client_stop(), the statistics
 *            and the store's own operations. Not idem_client_destroy().
 * Ownership: delivery is valid until the handler returns; after IDEM_DEFER
 *            until idem_delivery_complete() returns.
 */
typedef idem_outcome_t (*idem_handler_t)(idem_delivery_t *delivery, void *user);

/**
 * The message, decoded on the first call.
 *
 * Threads:   one thread at a time: the handler's, or after IDEM_DEFER the one
 *            that completes it.
 * Ownership: the delivery's; valid as long as the delivery. Read only.
 *
 * @return the message, or NULL when memory ran out or Proton cannot decode it
 */
IDEM_API struct pn_message_t *idem_delivery_message(idem_delivery_t *delivery);

/**
 * The message as it came over the wire: all its sections, encoded.
 *
 * Threads:   any that may use the delivery.
 * Ownership: the delivery's; valid as long as the delivery.
 *
 * @param size  receives the number of bytes
 */
IDEM_API const void *idem_delivery_encoded(const idem_delivery_t *delivery,
                                           size_t *size);

/** The key under which it is deduplicated, or NULL where it has none.
 * Valid as long as the delivery. */
IDEM_API const char *idem_delivery_key(const idem_delivery_t *delivery);

/** The group-id of the message (AMQP 1.0, section 3.2.4), or NULL.
 * Valid as long as the delivery. */
IDEM_API const char *idem_delivery_group_id(const idem_delivery_t *delivery);

/** The address that it was consumed from. Valid as long as the delivery. */
IDEM_API const char *idem_delivery_address(const idem_delivery_t *delivery);

/** The broker's delivery-count: how often it counted a failed delivery of this
 * message before. Artemis shows 0 for every large message; decide nothing by
 * it. */
IDEM_API uint32_t idem_delivery_count(const idem_delivery_t *delivery);

/** How often this key was taken over or failed before, as the store counts;
 * above 0 the handler may have run before. A claim of a dead process counts
 * whether its handler had begun or not. Always 0 without a store, without an
 * id, and where the table has no column attempts. */
IDEM_API uint32_t idem_delivery_attempts(const idem_delivery_t *delivery);

/** True once the claim may be another owner's: the store could not be reached
 * for a whole lease. Long handlers look at it and give up.
 * Threads: any that may use the delivery. */
IDEM_API bool idem_delivery_is_lease_lost(const idem_delivery_t *delivery);

/**
 * Say why a delivery is rejected: `return idem_delivery_reject(...)`.
 *
 * Artemis does not keep the reason, so idem also logs it.
 *
 * @param condition    an AMQP error condition such as "orders:bad-price"; NULL
 *                     for "idem:rejected"
 * @param description  a sentence, or NULL; cut at 255 bytes
 * @return IDEM_REJECT
 */
IDEM_API idem_outcome_t idem_delivery_reject(idem_delivery_t *delivery,
                                             const char *condition,
                                             const char *description);

/**
 * Bring the outcome of a delivery whose handler returns IDEM_DEFER.
 *
 * It may be called before the handler has returned IDEM_DEFER; the outcome
 * then takes effect when it does. While a delivery is deferred its claim is
 * renewed and it occupies one place of the prefetch window, but no worker.
 * It is safe after the client has stopped: nothing is sent to the broker then,
 * which offers the message again. Before idem_client_destroy() the outcome is
 * still recorded in the store; later it is dropped, and the claim runs out with
 * its lease.
 *
 * Threads:   any.
 * Blocks:    no.
 * Ownership: delivery is gone once this returns IDEM_OK: not even this may be
 *            called with it again.
 *
 * @param outcome  anything but IDEM_DEFER
 *
 * @retval IDEM_OK         taken
 * @retval IDEM_ERR_ARG    delivery is NULL, or outcome is IDEM_DEFER or unknown
 * @retval IDEM_ERR_STATE  completed already, while its handler still runs
 */
IDEM_API idem_status_t idem_delivery_complete(idem_delivery_t *delivery,
                                              idem_outcome_t outcome);

#ifdef __cplusplus
}
#endif

#endif
