#ifndef IDEM_STORE_H
#define IDEM_STORE_H

#include <idem/status.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Remembers which keys are claimed and which are confirmed. */
typedef struct idem_store idem_store_t;

/** Bytes of a key at most, without its NUL. */
#define IDEM_KEY_BYTES 255

/** Bytes of a claim's token at most, without its NUL. */
#define IDEM_TOKEN_BYTES 64

typedef struct idem_postgres_options {
    size_t struct_size; /**< set by init; leave alone */

    /** A libpq connection string or URI; required ("" takes libpq's
     * environment). Several hosts with target_session_attrs=read-write fail
     * over. idem adds client_encoding=UTF8 and, where they are not given,
     * keepalives, tcp_user_timeout and an application_name. */
    const char *conninfo;

    /** `table` or `schema.table`; each part a plain SQL identifier (letters,
     * digits, underscores; at most 63 bytes). Default "idem_message". */
    const char *table;

    /** How long a claim lives unless it is renewed; default 30,000 ms. At
     * least 1,000. */
    int64_t lease_ms;

    /** How often a claim that is still worked on is renewed; default 0: a
     * third of the lease. At most a third of it. */
    int64_t renew_ms;

    /** How long a confirmed key is remembered, from its confirm; default
     * 7 days. Not shorter than the lease. It must outlast every way in which
     * a message can come again: retries, paused queues, replays. */
    int64_t retention_ms;

    /** How often expired keys are purged, jittered; default 60,000 ms. 0: only
     * by idem_store_purge_expired(). */
    int64_t purge_interval_ms;

    /** Limit for one round trip, connecting included; default 10,000 ms.
     * Afterwards the connection is dropped and the question is asked again on
     * a new one. At least 100. */
    int64_t deadline_ms;

    /** Connections that carry batches, in turn; default 2. 1 to 16. One more is
     * made for purging, counting and creating the table. */
    uint32_t connections;

    /** Create the table first if it does not exist; default false. */
    bool create_schema;

    /** Where log lines go and from which level on; NULL for nowhere. Default
     * idem_log_to_stderr() at IDEM_LOG_WARNING. */
    idem_log_handler_t log_handler;
    void *log_user;
    idem_log_level_t log_level;
} idem_postgres_options_t;

/** Fill in the defaults. Always first. */
#define idem_postgres_options_init(o) \
    idem_postgres_options_init_sized((o), sizeof *(o))

/** What idem_postgres_options_init() calls; size is sizeof *options. */
IDEM_API void idem_postgres_options_init_sized(idem_postgres_options_t *options,
                                               size_t size);

/**
 * Open a store in a PostgreSQL table and check the table's shape.
 *
 * Threads:   any.
 * Blocks:    up to deadline_ms for each address that conninfo names, and for
 *            each of a few questions; and while names are looked up.
 * Ownership: the caller owes idem_store_destroy(), after the clients that use
 *            it are destroyed. Strings are copied. A child made by fork() has
 *            none of its threads and cannot use it: create it behind the fork.
 *
 * @retval IDEM_OK                     open
 * @retval IDEM_ERR_ARG                an option is wrong; err names the field.
 *                                     The network was not touched
 * @retval IDEM_ERR_STORE              the table is missing, has another shape,
 *                                     or rights are missing; err says which
 * @retval IDEM_ERR_STORE_UNAVAILABLE  the server cannot be reached: try again
 * @retval IDEM_ERR_MEMORY, IDEM_ERR_SYSTEM  no memory or no thread
 */
IDEM_API idem_status_t idem_postgres_store_create(
    idem_store_t **store, const idem_postgres_options_t *options,
    idem_error_t *err);

/**
 * Close a store. NULL is allowed. Claims that are still held run out with
 * their lease.
 *
 * Threads:   one thread; no other call on the store may be under way.
 * Blocks:    until what its connections are doing has ended: a round trip, or
 *            one try to connect to each address, each at most deadline_ms.
 */
IDEM_API void idem_store_destroy(idem_store_t *store);

/*
 * A store is useful alone: the operations below are for programs that have
 * their own consumer, an HTTP handler or a batch job.
 *
 * Each of them may be called from any thread, several at once; calls that
 * meet travel in one batch. Each blocks for the store's round trip and goes on
 * trying while the server is out of reach, up to timeout_ms (IDEM_WAIT_FOREVER
 * waits on; 0 is over before it begins). Counting, purging and creating the
 * table may wait longer while the name of a host is looked up. Keys are 1 to
 * IDEM_KEY_BYTES bytes of valid UTF-8; idem's consumers make such keys of any
 * id. Besides its own results each returns
 *
 *   IDEM_ERR_ARG                an argument is wrong; err names it
 *   IDEM_ERR_TIMEOUT            no answer within timeout_ms. Whether it took
 *                               effect is unknown: call again with the same
 *                               claim, or let the lease run out
 *   IDEM_ERR_STORE              the database refuses; see sqlstate
 *   IDEM_ERR_STATE              the store is being destroyed
 *   IDEM_ERR_MEMORY             out of memory
 */

/** What a claim came to. */
typedef enum idem_claim_state {
    /** Yours: do the work, then confirm or release. */
    IDEM_CLAIM_NEW = 1,
    /** Confirmed before: a duplicate. Do nothing. */
    IDEM_CLAIM_DONE,
    /** Someone else works on it: neither do the work nor report it as done;
     * ask again once remaining_ms have passed at the latest. */
    IDEM_CLAIM_IN_PROGRESS
} idem_claim_state_t;

/** A claim that the caller holds, or was refused. Fill with zeros before its
 * first use; the token makes a repeated claim answer NEW again. */
typedef struct idem_claim {
    idem_claim_state_t state;
    /** True when the claim was taken over from an owner that died. */
    bool is_takeover;
    /** How often the key was taken over or failed, this time included. */
    uint32_t attempts;
    /** NEW: until the lease ends unless it is renewed. IN_PROGRESS: until the
     * other's lease ends. Milliseconds from the time of the call's return. */
    int64_t remaining_ms;
    char key[IDEM_KEY_BYTES + 1];
    char token[IDEM_TOKEN_BYTES + 1];
} idem_claim_t;

/**
 * Claim a key. An expired claim of a dead owner is taken over.
 *
 * @param claim  receives the answer; pass the same again to repeat a call
 *               whose answer was lost
 * @retval IDEM_OK  see claim->state
 */
IDEM_API idem_status_t idem_store_claim(idem_store_t *store, const char *key,
                                        idem_claim_t *claim, int64_t timeout_ms,
                                        idem_error_t *err);

/**
 * Record that the work of a claim is done. Kept for the retention.
 *
 * @retval IDEM_OK              confirmed, now or before, by this owner or
 *                              another; also where the claim has expired or was
 *                              released and nobody else holds a live one
 * @retval IDEM_ERR_LEASE_LOST  someone else holds a live claim
 */
IDEM_API idem_status_t idem_store_confirm(idem_store_t *store,
                                          const idem_claim_t *claim,
                                          int64_t timeout_ms,
                                          idem_error_t *err);

/**
 * Give a claim up so that the key can be tried again.
 *
 * @param failed  true when the work was tried and failed: counts an attempt
 * @retval IDEM_OK              given up, or no longer held
 */
IDEM_API idem_status_t idem_store_release(idem_store_t *store,
                                          const idem_claim_t *claim,
                                          bool failed, int64_t timeout_ms,
                                          idem_error_t *err);

/**
 * Start the lease of a claim anew.
 *
 * @retval IDEM_OK              claim->remaining_ms is renewed
 * @retval IDEM_ERR_LEASE_LOST  someone else holds it, or it is confirmed
 */
IDEM_API idem_status_t idem_store_renew(idem_store_t *store,
                                        idem_claim_t *claim, int64_t timeout_ms,
                                        idem_error_t *err);

/** Whether a key is confirmed. */
IDEM_API idem_status_t idem_store_is_confirmed(idem_store_t *store,
                                               const char *key, bool *confirmed,
                                               int64_t timeout_ms,
                                               idem_error_t *err);

/**
 * Which of many keys are confirmed.
 *
 * @param keys       count keys
 * @param processed  receives count results, in the order of keys
 */
IDEM_API idem_status_t idem_store_find_processed(idem_store_t *store,
                                                 const char *const *keys,
                                                 size_t count, bool *processed,
                                                 int64_t timeout_ms,
                                                 idem_error_t *err);

/** Confirm many keys without a claim, whoever claims them. */
IDEM_API idem_status_t idem_store_record_processed(idem_store_t *store,
                                                   const char *const *keys,
                                                   size_t count,
                                                   int64_t timeout_ms,
                                                   idem_error_t *err);

typedef struct idem_store_counts {
    uint64_t claimed;   /**< rows in state CLAIMED with an owner */
    uint64_t freed;     /**< rows in state CLAIMED without an owner */
    uint64_t confirmed; /**< rows in state CONFIRMED */
} idem_store_counts_t;

/** Count the rows. Reads the whole table: for people, not for a metric. */
IDEM_API idem_status_t idem_store_count(idem_store_t *store,
                                        idem_store_counts_t *counts,
                                        int64_t timeout_ms, idem_error_t *err);

/**
 * Delete confirmed keys whose retention has passed, and dead claims as old, in
 * chunks of their own transactions. A live claim is never touched.
 *
 * @param removed  receives the number of rows; also on IDEM_ERR_TIMEOUT, when
 *                 the rest is left for the next call
 */
IDEM_API idem_status_t idem_store_purge_expired(idem_store_t *store,
                                                uint64_t *removed,
                                                int64_t timeout_ms,
                                                idem_error_t *err);

/** Create the table if it does not exist: for development and tests. The same
 * text is installed as a file for migration tools. */
IDEM_API idem_status_t idem_store_create_schema(idem_store_t *store,
                                                int64_t timeout_ms,
                                                idem_error_t *err);

typedef struct idem_store_statistics {
    uint64_t batches;    /**< transactions that carried operations */
    uint64_t operations; /**< operations in them */
    uint64_t retries;    /**< batches repeated for 40001 or 40P01 */
    uint64_t reconnects; /**< connections made anew after a loss */
    uint64_t errors;     /**< operations that the database refused for good */
    uint64_t purged;     /**< rows deleted */
    bool available;      /**< the last round trip succeeded */
} idem_store_statistics_t;

/** Read the counters. Threads: any. Blocks: no. */
IDEM_API idem_status_t idem_store_statistics(
    const idem_store_t *store, idem_store_statistics_t *statistics);

#ifdef __cplusplus
}
#endif

#endif
