#ifndef IDEMI_POSTGRES_H
#define IDEMI_POSTGRES_H

#include "base/log.h"
#include "base/random.h"
#include "store/backend.h"
#include "store/postgres_array.h"
#include "store/postgres_connection.h"
#include "store/postgres_sql.h"
#include "store/postgres_target.h"

#include <idem/store.h>

/* How many bytes `statement_timeout` and the other numbers need as text. */
#define IDEMI_NUMBER_BYTES 24

/* The PostgreSQL backend: read-only once its sessions are used by several
 * threads. */
typedef struct idemi_postgres {
    idemi_backend_t base;            /* first member */
    idem_postgres_options_t options; /* its strings are not used */
    idemi_logger_t logger;
    idemi_target_t target;
    char named[IDEMI_SQL_TABLE_BYTES]; /* as the options name it, quoted */
    idemi_sql_shape_t shape;
    idemi_sql_t sql;
    bool is_strict;               /* the server's default isolation is */
    char oid[IDEMI_NUMBER_BYTES]; /* of the table */
    char lease_ms[IDEMI_NUMBER_BYTES];
    char retention_ms[IDEMI_NUMBER_BYTES];
    char limit_ms[IDEMI_NUMBER_BYTES]; /* statement_timeout: under deadline */
} idemi_postgres_t;

/* Where a purge is on its walk. */
typedef struct idemi_purge_walk {
    char (*leaves)[IDEMI_SQL_TABLE_BYTES];
    int64_t *pages;
    size_t count;
    size_t leaf;   /* the present one; count: the walk is through */
    int64_t page;  /* the next one in it */
    char *sql;     /* for the present leaf */
    int64_t chunk; /* pages to take at a time */
    int64_t share; /* pages that are left of this timer's share */
} idemi_purge_walk_t;

typedef struct idemi_postgres_session {
    idemi_postgres_t *postgres;
    idemi_connection_t connection;
    idemi_random_t random;
    /* Kept from batch to batch. */
    idemi_array_t arrays[3 * (IDEMI_OP_RECORD + 1)];
    idemi_op_t **sorted;
    size_t sorted_room;
    bool met_known; /* the latest claims met keys that were there */
    idemi_purge_walk_t walks[2]; /* the timer's, and a sweep's */
} idemi_postgres_session_t;

/* postgres_options.c: every field, or IDEM_ERR_ARG naming it. Copies into
 * postgres, except for strings. */
idem_status_t idemi_postgres_options(idemi_postgres_t *postgres,
                                     const idem_postgres_options_t *options,
                                     idem_error_t *err);

/* postgres_shape.c: looks at the table and makes the statements for it. */
idem_status_t idemi_postgres_check(idemi_postgres_session_t *session,
                                   idem_error_t *err);

/* postgres_batch.c: see backend.h. */
idem_status_t idemi_postgres_execute(idemi_session_t *session, idemi_op_t **ops,
                                     size_t count, idem_error_t *err);

/* postgres_admin.c: see backend.h. */
idem_status_t idemi_postgres_purge(idemi_session_t *session, bool sweep,
                                   int64_t timeout_ms, uint64_t *removed,
                                   bool *more, idem_error_t *err);
idem_status_t idemi_postgres_count(idemi_session_t *session, int64_t timeout_ms,
                                   idem_store_counts_t *counts,
                                   idem_error_t *err);
idem_status_t idemi_postgres_create_schema(idemi_session_t *session,
                                           int64_t timeout_ms,
                                           idem_error_t *err);
void idemi_purge_walk_finish(idemi_purge_walk_t *walk);

/* postgres.c: connects if need be, and keeps count of connections. */
idem_status_t idemi_postgres_open(idemi_postgres_session_t *session,
                                  idem_error_t *err);

/* The same, and an exchange that is repeated after 40001 and 40P01, a bounded
 * number of times. */
idem_status_t idemi_postgres_exchange(idemi_postgres_session_t *session,
                                      idemi_step_t *steps, size_t count,
                                      bool writes, int64_t timeout_ms,
                                      idem_error_t *err);

#endif
