#ifndef IDEMI_ENGINE_H
#define IDEMI_ENGINE_H

#include "base/random.h"
#include "engine/op.h"

#include <idem/consumer.h>

#include <stdbool.h>
#include <stdint.h>

/* The state machine of one consumer. It has no thread, clock, socket, lock or
 * database: inputs are calls that carry the time, commands are fetched with
 * idemi_engine_next() until it says false. One thread at a time. */
typedef struct idemi_engine idemi_engine_t;

/* What the identity of a delivery came to. */
typedef enum idemi_verdict {
    IDEMI_VERDICT_KEYED,       /* key is set */
    IDEMI_VERDICT_UNKEYED,     /* handle without deduplication */
    IDEMI_VERDICT_NO_ID,       /* no id, and the options say reject */
    IDEMI_VERDICT_UNDECODABLE, /* not a valid message: reject */
    IDEMI_VERDICT_OVERSIZED    /* over max_message_bytes: reject */
} idemi_verdict_t;

typedef enum idemi_state {
    IDEMI_STATE_RECEIVED,   /* not asked for yet */
    IDEMI_STATE_CLAIMING,   /* a claim or takeover is with the store */
    IDEMI_STATE_SUSPECT,    /* waits for its turn to run alone */
    IDEMI_STATE_READY,      /* ours; waits for a handler */
    IDEMI_STATE_RUNNING,    /* queued for a worker, or with its handler */
    IDEMI_STATE_CONFIRMING, /* a confirm is with the store */
    IDEMI_STATE_RELEASING,  /* a release is with the store */
    IDEMI_STATE_PARKED,     /* someone else's live claim, or a failed store */
    IDEMI_STATE_BEHIND,     /* behind a delivery of the same key in here */
    IDEMI_STATE_WAITING,    /* back-off before it is given back */
    IDEMI_STATE_SETTLED     /* nothing more to do */
} idemi_state_t;

/* How a delivery is settled on the wire. */
typedef enum idemi_settlement {
    IDEMI_SETTLE_ACCEPTED,
    IDEMI_SETTLE_RELEASED,
    IDEMI_SETTLE_FAILED, /* modified, delivery-failed true */
    IDEMI_SETTLE_REJECTED
} idemi_settlement_t;

typedef struct idemi_entry idemi_entry_t;
struct idemi_key_record;   /* engine/index.h */
struct idemi_group_record; /* likewise */

/* A doubly linked list of entries. An entry is in one list at most. */
typedef struct idemi_entry_list {
    idemi_entry_t *first;
    idemi_entry_t *last;
    idemi_entry_t *inserted; /* the latest that idemi_list_insert() put in */
} idemi_entry_list_t;

/* One delivery. The caller owns the memory (it is embedded in what stands for
 * the delivery outside), fills the first part and zeroes the rest, and may
 * free it once the command FORGET names it. */
struct idemi_entry {
    /* Filled by the caller before idemi_engine_arrived(); strings are valid
     * until FORGET. */
    idemi_verdict_t verdict;
    const char *key; /* NUL-terminated */
    size_t key_size;
    const char *group; /* NULL: none */
    size_t group_size;
    uint32_t delivery_count; /* the broker's; only widens a back-off */
    bool presettled;

    /* Set by the engine, to be read by the caller. */
    idemi_op_t op; /* the operation of command STORE */
    uint32_t attempts;
    idemi_settlement_t settlement;
    const char *condition;   /* REJECTED by the engine itself: why, else NULL */
    const char *description; /* likewise */

    /* The engine's own. */
    idemi_state_t state;
    bool stale;           /* its link is gone: nothing will be settled */
    bool has_claim;       /* as far as we know the key is ours */
    bool op_busy;         /* op is with the store, or listed for it */
    bool lease_lost;      /* its handler was told */
    bool unasked;         /* its first claim is not answered yet */
    bool cancelling;      /* in the list of cancels */
    bool confirmed;       /* the key is confirmed */
    bool suspect;         /* runs alone: its last owner died holding the key */
    uint32_t tries;       /* of the present back-off */
    uint64_t number;      /* in the order of arrival */
    int64_t due_ms;       /* in the timer heap: when to look at it */
    size_t timer;         /* its place in the timer heap plus 1; 0: none */
    int64_t lease_end_ms; /* of our claim */
    char token[IDEM_TOKEN_BYTES + 1];
    idemi_entry_list_t *list; /* the list that it is in */
    idemi_entry_t *next, *previous;
    idemi_entry_t *live_next, *live_previous;       /* all entries */
    idemi_entry_t *unasked_next, *unasked_previous; /* by number */
    idemi_entry_t *cancel_next;
    struct idemi_key_record *key_record;
    idemi_entry_t *key_next; /* the next delivery of the same key */
    struct idemi_group_record *group_record; /* until it may run */
    idemi_entry_t *group_next, *group_previous;
};

typedef struct idemi_engine_config {
    uint32_t prefetch;
    bool has_store;
    int64_t renew_ms;
    int64_t retry_min_ms; /* back-off before giving back */
    int64_t retry_max_ms;
    uint32_t max_attempts;    /* 0: no limit */
    const char *token_prefix; /* under IDEMI_TOKEN_PREFIX_BYTES; copied */
    uint64_t seed;            /* of the jitter */
} idemi_engine_config_t;

typedef enum idemi_command_kind {
    IDEMI_COMMAND_STORE,  /* give entry->op to the store */
    IDEMI_COMMAND_RUN,    /* queue the entry for its handler */
    IDEMI_COMMAND_CANCEL, /* do not start it if it has not started (then say
                             NOT_STARTED), and tell its handler */
    IDEMI_COMMAND_SETTLE, /* as entry->settlement says; unless presettled */
    IDEMI_COMMAND_FORGET, /* free it; never before its SETTLE, if any */
    IDEMI_COMMAND_CREDIT, /* give the broker `credit` more */
} idemi_command_kind_t;

typedef struct idemi_command {
    idemi_command_kind_t kind;
    idemi_entry_t *entry;
    uint32_t credit;
    bool lease_lost; /* CANCEL: because the lease is lost, not for a stop */
} idemi_command_t;

idem_status_t idemi_engine_create(idemi_engine_t **engine,
                                  const idemi_engine_config_t *config);
void idemi_engine_destroy(idemi_engine_t *engine);

/* For a teardown: takes an entry out, whatever its state, so that the caller
 * can free it; NULL when none is left. */
idemi_entry_t *idemi_engine_take(idemi_engine_t *engine);

/* Inputs. */

/* The link is attached and has no credit. */
void idemi_engine_link_up(idemi_engine_t *engine, int64_t now_ms);
/* The link, its session or the connection is gone: what was delivered by it
 * can no longer be settled. */
void idemi_engine_link_down(idemi_engine_t *engine, int64_t now_ms);

/* A delivery is complete. Uses one credit. False when memory ran out: the
 * entry is not taken, the caller releases the delivery and calls
 * idemi_engine_dropped(). */
bool idemi_engine_arrived(idemi_engine_t *engine, idemi_entry_t *entry,
                          int64_t now_ms);
/* A delivery was settled without an entry (aborted, or out of memory): its
 * credit is used and its place is free. */
void idemi_engine_dropped(idemi_engine_t *engine, int64_t now_ms);

/* The store answered entry->op. */
void idemi_engine_answered(idemi_engine_t *engine, idemi_entry_t *entry,
                           int64_t now_ms);

/* The handler is through (also: a deferred delivery was completed), or
 * started is false: a cancelled entry whose handler never began. outcome is
 * not IDEM_DEFER. */
void idemi_engine_handled(idemi_engine_t *engine, idemi_entry_t *entry,
                          bool started, idem_outcome_t outcome, int64_t now_ms);

/* It is now_ms: renewals, back-offs, leases. */
void idemi_engine_tick(idemi_engine_t *engine, int64_t now_ms);

/* Take nothing more: no credit is granted, what has not started is given
 * back, what runs is awaited. Credit already out is the driver's to withdraw.
 */
void idemi_engine_stop(idemi_engine_t *engine, int64_t now_ms);

/* Outputs. */

/* The next command; false when there is none. Inputs may be called between
 * two calls. */
bool idemi_engine_next(idemi_engine_t *engine, idemi_command_t *command);

/* When idemi_engine_tick() is next of use; INT64_MAX: never. */
int64_t idemi_engine_deadline(const idemi_engine_t *engine);

/* No entry is left. */
bool idemi_engine_is_idle(const idemi_engine_t *engine);

/* Counters and gauges; `attached` is counted by link_up. */
void idemi_engine_statistics(const idemi_engine_t *engine,
                             idem_consumer_statistics_t *statistics);

#endif
