#ifndef IDEMI_POSTGRES_CONNECTION_H
#define IDEMI_POSTGRES_CONNECTION_H

#include "store/postgres_target.h"

#include <idem/status.h>

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One statement of a pipeline. */
#define IDEMI_STEP_PARAMETERS 3
#define IDEMI_STEP_NUMBERS 32
typedef struct idemi_step {
    const char *sql;
    unsigned int number; /* of a statement that is prepared where that lasts,
                            below IDEMI_STEP_NUMBERS; 0: it is not */
    int parameters;
    Oid types[IDEMI_STEP_PARAMETERS];
    const char *values[IDEMI_STEP_PARAMETERS];
    int lengths[IDEMI_STEP_PARAMETERS];
    int formats[IDEMI_STEP_PARAMETERS]; /* 0 text, 1 binary */
    bool is_commit;                     /* judged by its command tag */
    bool is_preparing;                  /* its first result is of that */
    PGresult *result;                   /* binary; NULL until answered */
} idemi_step_t;

/* What an SQLSTATE asks for. */
typedef enum idemi_sqlstate_class {
    IDEMI_SQLSTATE_REPEAT,    /* 40001, 40P01: the same again at once */
    IDEMI_SQLSTATE_RECONNECT, /* this connection is of no use any more */
    IDEMI_SQLSTATE_BUSY,      /* try again later on this connection */
    IDEMI_SQLSTATE_REFUSED    /* only a change of something helps */
} idemi_sqlstate_class_t;

idemi_sqlstate_class_t idemi_sqlstate_classify(const char *sqlstate);

/* One connection, made when it is first used and after each loss. It belongs
 * to one thread at a time. Never blocks beyond its deadlines, except while
 * the name of a host is resolved. */
typedef struct idemi_connection {
    const idemi_target_t *target;
    const char *limit_ms; /* of one statement, as text, at the server */
    int64_t deadline_ms;  /* for connecting to one host, and for one pipeline */
    int64_t end_ms;       /* no wait goes on beyond it; INT64_MAX: none */
    PGconn *pg;           /* NULL: not connected */
    bool is_own;          /* the session is ours alone: limit_ms holds for it,
                             and what is prepared stays prepared */
    bool is_shared;       /* it turned out not to be, although it looked so */
    uint32_t prepared;    /* a bit for each number of a step */
    uint64_t name;        /* of what is prepared; no two sessions' is alike */
    uint64_t made;        /* how many connections were made */
    int64_t sent_at_ms;   /* when the last pipeline was sent */
} idemi_connection_t;

void idemi_connection_init(idemi_connection_t *connection,
                           const idemi_target_t *target, int64_t deadline_ms,
                           const char *limit_ms);
void idemi_connection_finish(idemi_connection_t *connection);

/* Connects if there is no connection. IDEM_ERR_STORE_UNAVAILABLE otherwise. */
idem_status_t idemi_connection_open(idemi_connection_t *connection,
                                    idem_error_t *err);

/* Sends count steps and one sync, and waits up to timeout_ms (negative: without
 * limit) for all results. On IDEM_OK every step has its result. writes says
 * whether a lost answer leaves something unknown.
 *
 * IDEM_ERR_STORE_UNAVAILABLE  nothing was done, but for what a COMMIT among
 *                             the steps had made last; the connection may be
 *                             gone
 * IDEM_ERR_COMMIT_UNKNOWN     the connection went while it was being done
 * IDEM_ERR_STORE              refused, with the same exception;
 *                             err->sqlstate says why
 */
idem_status_t idemi_connection_exchange(idemi_connection_t *connection,
                                        idemi_step_t *steps, size_t count,
                                        bool writes, int64_t timeout_ms,
                                        idem_error_t *err);

/* Frees the results of steps. */
void idemi_steps_clear(idemi_step_t *steps, size_t count);

/* Parameters, in order. */
void idemi_step_binary(idemi_step_t *step, Oid type, const void *bytes,
                       size_t size);
void idemi_step_text(idemi_step_t *step, Oid type, const char *text);

#endif
