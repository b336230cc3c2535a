#ifndef IDEMI_OP_H
#define IDEMI_OP_H

#include "base/task.h"

#include <idem/status.h>
#include <idem/store.h>

#include <stdbool.h>
#include <stdint.h>

/* One operation on one key: what the engine asks of a store. Every operation
 * may be repeated with the same token without harm, so an answer that was
 * lost is settled by asking again (design: promise 8). */
typedef enum idemi_op_kind {
    IDEMI_OP_CLAIM,    /* NEW, DONE, IN_PROGRESS, EXPIRED */
    IDEMI_OP_TAKEOVER, /* NEW, DONE, IN_PROGRESS */
    IDEMI_OP_CONFIRM,  /* DONE, IN_PROGRESS */
    IDEMI_OP_RENEW,    /* NEW, LOST */
    IDEMI_OP_RELEASE,  /* FREED (also when it was not ours any more) */
    IDEMI_OP_FIND,     /* DONE, ABSENT */
    IDEMI_OP_RECORD,   /* DONE */
} idemi_op_kind_t;

typedef enum idemi_answer {
    IDEMI_ANSWER_NONE,        /* not answered yet */
    IDEMI_ANSWER_NEW,         /* ours; remaining_ms, attempts */
    IDEMI_ANSWER_DONE,        /* confirmed, by us or before */
    IDEMI_ANSWER_IN_PROGRESS, /* another's live claim; remaining_ms */
    IDEMI_ANSWER_EXPIRED,     /* a dead or a freed claim; suspect, attempts */
    IDEMI_ANSWER_LOST,        /* no longer ours */
    IDEMI_ANSWER_FREED,
    IDEMI_ANSWER_ABSENT,
    IDEMI_ANSWER_FAILED /* the store refused this operation or was closed;
                           status says why; whether it took effect may be
                           unknown */
} idemi_answer_t;

typedef struct idemi_op {
    idemi_task_t task; /* how the answer travels back; first member */

    /* The question. key and token stay valid until the answer has come. */
    idemi_op_kind_t kind;
    bool failed; /* RELEASE: count an attempt */
    const char *key;
    size_t key_size;
    const char *token;

    /* The answer. */
    idemi_answer_t answer;
    bool suspect;         /* EXPIRED: its owner died holding it */
    uint32_t attempts;    /* takeovers and failures that the row has seen */
    int64_t remaining_ms; /* of the lease, counted from sent_at_ms */
    int64_t sent_at_ms;   /* monotonic: when the deciding question was sent */
    idem_status_t status; /* FAILED */
} idemi_op_t;

#endif
