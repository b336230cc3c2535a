#ifndef IDEM_CONSUMER_H
#define IDEM_CONSUMER_H

#include <idem/client.h>
#include <idem/delivery.h>
#include <idem/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Takes deliveries from one address and hands them to one handler. */
typedef struct idem_consumer idem_consumer_t;

/** Where the id of a message is looked for. */
typedef enum idem_id_source {
    /** message-id, else _AMQ_DUPL_ID. */
    IDEM_ID_MESSAGE_FIRST = 0,
    /** _AMQ_DUPL_ID, else message-id: for producers whose API makes a fresh
     * message-id for every send. */
    IDEM_ID_DUPLICATE_FIRST,
    /** message-id alone: sees through bridges that stamp a _AMQ_DUPL_ID of
     * their own. */
    IDEM_ID_MESSAGE_ONLY,
    /** _AMQ_DUPL_ID alone. */
    IDEM_ID_DUPLICATE_ONLY
} idem_id_source_t;

/** What becomes of a message in which no id is found. */
typedef enum idem_missing_id {
    /** Handle it at every delivery, without deduplication. */
    IDEM_MISSING_ID_PROCESS = 0,
    /** Reject it with the condition "idem:no-id". */
    IDEM_MISSING_ID_REJECT
} idem_missing_id_t;

/**
 * Supplies the id of a message in place of message-id and _AMQ_DUPL_ID.
 *
 * Threads:   the I/O thread; no lock is held.
 * Blocks:    must not.
 * Calls:     idem_delivery_encoded(), idem_delivery_message(),
 *            idem_delivery_count(), idem_delivery_group_id() and
 *            idem_delivery_address() of this delivery, nothing else.
 * Ownership: delivery is valid until it returns. The id is written into the
 *            caller's buffer; any bytes will do.
 *
 * @param id    room for the id
 * @param room  its size in bytes, at least 1,024; a longer id is the function's
 *              to shorten
 * @return the size of the id in bytes; 0 means that the message has no id. More
 *         than room, as snprintf() returns for what it cut, is logged, counted
 *         in other_id and treated as no id: see missing_id
 */
typedef size_t (*idem_key_handler_t)(idem_delivery_t *delivery, void *user,
                                     char *id, size_t room);

typedef struct idem_consumer_options {
    size_t struct_size; /**< set by init; leave alone */

    /** The queue to consume from: `queue` or `address::queue`; required. */
    const char *address;

    /** Deliveries in hand at once, at most: unsettled ones and credit. 1 to
     * 100,000; default 32. */
    uint32_t prefetch;

    /** Worker threads that run handlers; default 1, so in order. With more,
     * deliveries of one group-id still run in order, one at a time, up to the
     * return of their handler: a deferred one holds up no other. 0 runs
     * handlers on the I/O thread, a whole window in a row: only for handlers
     * that never block. At most 1,024. */
    uint32_t concurrency;

    /** Where keys are claimed; must outlive the consumer. NULL: a plain
     * consumer without deduplication. */
    idem_store_t *store;

    /** The consumer's own name in front of every key (`scope/id`), so that two
     * consumers of one message do not take each other's messages for
     * duplicates. NULL: the address. "": the bare id. */
    const char *scope;

    /** Where the id is looked for; default IDEM_ID_MESSAGE_FIRST. */
    idem_id_source_t id_source;

    /** Supplies the id instead; NULL for id_source. */
    idem_key_handler_t key_handler;

    /** What becomes of messages without an id; default
     * IDEM_MISSING_ID_PROCESS. */
    idem_missing_id_t missing_id;

    /** Handles each delivery; required. */
    idem_handler_t handler;

    /** Handed to handler and key_handler, otherwise untouched. */
    void *user;

    /** The largest message taken, encoded, in bytes; larger ones are rejected
     * with amqp:link:message-size-exceeded. Default 1 MiB; 0 keeps it. */
    uint64_t max_message_bytes;

    /** Back-off before a delivery is given back after IDEM_RETRY or
     * IDEM_RELEASE, in milliseconds: doubled per attempt from retry_min_ms up
     * to retry_max_ms, with jitter. Defaults 200 and 10,000. */
    int64_t retry_min_ms;
    int64_t retry_max_ms;

    /** A key that was taken over or failed this often is rejected with
     * "idem:attempts-exceeded" rather than run again. IDEM_RETRY and
     * IDEM_REJECT are failures. Without a store, and for messages without an
     * id, nothing counts them and only the broker's limit ends it. Default 10;
     * 0: no limit. */
    uint32_t max_attempts;
} idem_consumer_options_t;

/** What a consumer has done since it was created, and what it holds now. */
typedef struct idem_consumer_statistics {
    uint64_t received;    /**< deliveries, complete */
    uint64_t handled;     /**< handler runs that ended */
    uint64_t accepted;    /**< outcomes of handlers: accept, and confirmed */
    uint64_t retried;     /**< outcomes of handlers: retry */
    uint64_t released;    /**< outcomes of handlers: release */
    uint64_t rejected;    /**< outcomes of handlers: reject */
    uint64_t deferred;    /**< handler returned IDEM_DEFER */
    uint64_t duplicates;  /**< accepted without a run */
    uint64_t in_progress; /**< answers: someone else holds a live claim */
    uint64_t takeovers;   /**< claims taken over from a dead owner */
    uint64_t leases_lost; /**< our claim went to another owner */
    uint64_t attempts_exceeded; /**< rejected because of max_attempts */
    uint64_t no_id;             /**< messages without any id */
    uint64_t other_id;     /**< messages whose id has a type that is none */
    uint64_t undecodable;  /**< rejected: not a valid message */
    uint64_t oversized;    /**< rejected: over max_message_bytes */
    uint64_t presettled;   /**< came settled: a failure is not retried */
    uint64_t stale;        /**< outcome known only after its link was lost */
    uint64_t given_back;   /**< released at stop, not started */
    uint64_t store_errors; /**< operations that the store refused */
    uint64_t attached;     /**< how often the link was attached */

    uint32_t unsettled; /**< now: deliveries in hand */
    uint32_t credit;    /**< now: credit the broker may still use */
    uint32_t running;   /**< now: with a handler or queued for one */
    uint32_t parked;    /**< now: waiting for someone else's claim */
    uint32_t waiting;   /**< now: in back-off before they are given back */
} idem_consumer_statistics_t;

/** Fill in the defaults. Always first. */
#define idem_consumer_options_init(o) \
    idem_consumer_options_init_sized((o), sizeof *(o))

/** What idem_consumer_options_init() calls; size is sizeof *options. */
IDEM_API void idem_consumer_options_init_sized(idem_consumer_options_t *options,
                                               size_t size);

/**
 * Add a consumer to a client that does not run yet.
 *
 * Threads:   one thread, before idem_client_run() or idem_reactor_handler().
 * Blocks:    no; the network is not touched.
 * Ownership: the consumer belongs to the client and goes with it. Strings are
 *            copied. The store and user stay the caller's and must outlive the
 *            client.
 *
 * @param consumer  receives the consumer; may be NULL
 * @param client    the client that runs it
 * @param options   see the fields
 * @param err       optional; filled in when the result is not IDEM_OK
 *
 * @retval IDEM_OK          added
 * @retval IDEM_ERR_ARG     an option is wrong; err names the field
 * @retval IDEM_ERR_STATE   the client runs, or has run
 * @retval IDEM_ERR_MEMORY  out of memory
 * @retval IDEM_ERR_SYSTEM  no random bytes could be had for the claim token
 */
IDEM_API idem_status_t
idem_consumer_create(idem_consumer_t **consumer, idem_client_t *client,
                     const idem_consumer_options_t *options, idem_error_t *err);

/**
 * Read the counters.
 *
 * Threads:   any, also handlers.
 * Blocks:    no.
 *
 * @retval IDEM_OK       written
 * @retval IDEM_ERR_ARG  an argument is NULL
 */
IDEM_API idem_status_t idem_consumer_statistics(
    const idem_consumer_t *consumer, idem_consumer_statistics_t *statistics);

#ifdef __cplusplus
}
#endif

#endif
