#ifndef IDEM_TEST_STORE_RIG_H
#define IDEM_TEST_STORE_RIG_H

/*
 * A PostgreSQL store in a schema of its own, a connection to look at its rows,
 * and one asker. What goes wrong fails the running test.
 */

#include "asker.h"
#include "database.h"

#include <idem/store.h>

typedef struct store_rig {
    PGconn *pg;
    char schema[48];
    char table[64];       /* schema.idem_message */
    char application[48]; /* what the store's sessions call themselves */
    char conninfo[512];   /* of the store */
    idem_postgres_options_t options;
    idem_store_t *store;
    asker_t *asker;
} store_rig_t;

/** A schema and default options; quiet, without a purge timer. */
void store_rig_prepare(store_rig_t *rig, const char *dsn);

/** Let the store connect by a proxy. Before store_rig_open(). */
void store_rig_via(store_rig_t *rig, int port);

/** Create the table and open the store with rig->options. */
void store_rig_open(store_rig_t *rig);

/** Both, on the shared server. */
void store_rig_start(store_rig_t *rig);

/** Close the store, drop the schema, disconnect. */
void store_rig_finish(store_rig_t *rig);

/** Another store on the same table. */
idem_store_t *store_rig_open_other(const store_rig_t *rig);

/** Ask one operation of the rig's asker. */
question_t store_rig_ask(store_rig_t *rig, idemi_op_kind_t kind,
                         const char *key, const char *token);

/** Put "%s" in the place of the table and run it. */
void store_rig_exec(store_rig_t *rig, const char *format);
int64_t store_rig_int(store_rig_t *rig, const char *format);

/** How many of the store's own sessions fit; the server has others too. */
int64_t store_rig_sessions(const store_rig_t *rig, const char *condition);

/** Write a row: owner NULL for none, lease in ms from now, may be negative. */
void store_rig_row(store_rig_t *rig, const char *key, const char *state,
                   const char *owner, int64_t expires_in_ms, int attempts);

/** "state|claimed_by|attempts|t if it is not expired", to be freed; NULL
 * without such a row. */
char *store_rig_look(store_rig_t *rig, const char *key);

#endif
