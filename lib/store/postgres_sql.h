#ifndef IDEMI_POSTGRES_SQL_H
#define IDEMI_POSTGRES_SQL_H

#include <stdbool.h>
#include <stddef.h>

/* All SQL text of the PostgreSQL store. */

/* PostgreSQL cuts longer identifiers off (NAMEDATALEN - 1). */
#define IDEMI_SQL_NAME_BYTES 63

/* `"schema"."table"` with its NUL. A name that the server reports may hold
 * quotes, which are doubled. */
#define IDEMI_SQL_TABLE_BYTES (2 * (2 * IDEMI_SQL_NAME_BYTES + 2) + 2)

typedef enum idemi_sql_kind {
    IDEMI_SQL_CLAIM,    /* $1 keys, $2 tokens, $3 ms: the new keys */
    IDEMI_SQL_READ,     /* $1 keys: index and row, null where absent */
    IDEMI_SQL_TAKEOVER, /* $1 keys, $2 tokens, $3 ms: key, attempts */
    IDEMI_SQL_CONFIRM,  /* $1 keys, $2 tokens, $3 ms: key */
    IDEMI_SQL_RENEW,    /* $1 keys, $2 tokens, $3 ms: key */
    IDEMI_SQL_RELEASE,  /* $1 keys, $2 tokens, $3 attempts int4[] */
    IDEMI_SQL_RECORD,   /* $1 keys, $2 ms */
    IDEMI_SQL_FIND,     /* $1 keys: index of those confirmed */
    IDEMI_SQL_COUNT,    /* claimed, freed, confirmed */
    IDEMI_SQL_KINDS
} idemi_sql_kind_t;

/* What the table looks like. */
typedef struct idemi_sql_shape {
    char table[IDEMI_SQL_TABLE_BYTES]; /* quoted, with its schema */
    bool has_attempts;
    bool has_zone; /* the timestamps carry a time zone */
} idemi_sql_shape_t;

typedef struct idemi_sql {
    char *text[IDEMI_SQL_KINDS];
} idemi_sql_t;

/* False when memory ran out; nothing is left to finish then. */
bool idemi_sql_init(idemi_sql_t *sql, const idemi_sql_shape_t *shape);
void idemi_sql_finish(idemi_sql_t *sql);

/* Whether name is `part` or `part.part`, each a plain SQL identifier: a letter
 * or underscore, then letters, digits and underscores. */
bool idemi_sql_is_table_name(const char *name);

/* Quotes schema (NULL: none) and table into quoted; false where they do not
 * fit. */
bool idemi_sql_quote(char quoted[IDEMI_SQL_TABLE_BYTES], const char *schema,
                     const char *table);

/* The same for a name that idemi_sql_is_table_name() accepts. */
void idemi_sql_quote_name(char quoted[IDEMI_SQL_TABLE_BYTES], const char *name);

/* The text that creates the table, to be freed; NULL when memory ran out. */
char *idemi_sql_create(const char *table);

/* Deletes what is expired from some pages of one leaf; to be freed. $1 first
 * page, $2 the page behind the last, $3 ms that a dead claim is kept. */
char *idemi_sql_purge(const char *leaf, bool has_zone);

/* The text of idem_message.sql. */
extern const char idemi_sql_schema[];

/* Said explicitly: the server's default may be stricter, and then a race for
 * a key would be an error, 40001. */
#define IDEMI_SQL_BEGIN "BEGIN ISOLATION LEVEL READ COMMITTED"
#define IDEMI_SQL_COMMIT "COMMIT"
#define IDEMI_SQL_ROLLBACK "ROLLBACK"

/* $1 milliseconds as text: ends with the transaction, so that nothing leaks to
 * the next client of a pooler. */
#define IDEMI_SQL_LIMIT \
    "SELECT pg_catalog.set_config('statement_timeout', $1::text, true)"

/* Undoes for one transaction what idemi_sql_session sets: a count reads every
 * row, best with helpers. */
#define IDEMI_SQL_SCAN \
    "SELECT pg_catalog.set_config('enable_seqscan', 'on', true)"

/* $1 the process that the connection was told of, $2 milliseconds as text:
 * settings for a session that is ours alone; null where it is a pooler's. */
extern const char idemi_sql_session[];

/* $1 the quoted name: one row, or none where it does not exist. */
extern const char idemi_sql_find_table[];
/* $1 the quoted name: the leaves of the table and their pages. */
extern const char idemi_sql_leaves[];
/* $1 the table's oid as text in all of these. */
extern const char idemi_sql_columns[];
extern const char idemi_sql_arbiters[];
extern const char idemi_sql_other_indexes[];
extern const char idemi_sql_rights[];

#endif
