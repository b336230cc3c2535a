#include "store/postgres_sql.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* How the statements are written, and why:
 *
 * - Every write is an INSERT with ON CONFLICT (message_id): it finds its row
 *   by the unique index whatever the statistics say. UPDATE, MERGE or = ANY
 *   would scan small tables, and MERGE raises 23505 in a race.
 * - Reads look each key up in a LATERAL with OFFSET 0, which the planner
 *   cannot turn into a join over the table. While that has a page or two it
 *   would still scan it for each key; see idemi_sql_session. No other column
 *   is compared in there: a table that others share may have an index on it,
 *   which looks as good as ours while the table is small.
 * - Functions are named with pg_catalog, and both sides of a comparison cast
 *   to text: otherwise whoever may create functions in a schema of the search
 *   path could put his own in their place, since exact types win. Only
 *   unnest of two arrays is grammar and cannot be qualified.
 * - Times are the database's. now() is the time of BEGIN, so a statement that
 *   waited gives a shorter lease, never a longer one.
 *
 * In the templates {T} is the table, {now} and {clock} are the times in the
 * type of its columns, and {?...} stands only where the table has the column
 * attempts, {!...} only where it has not. */

#define MS "::float8 * interval '1 millisecond'"
#define COLUMNS "(message_id, state, claimed_by, recorded_at, expires_at"
#define LEASE(state) \
    "INSERT INTO {T} AS r " COLUMNS ") " \
    "SELECT u.k, '" state "', u.o, {now}, {now} + $3" MS \
    " FROM unnest($1::text[], $2::text[]) AS u(k, o) "
#define OURS \
    "r.state::text = 'CLAIMED'" \
    " AND r.claimed_by::text = excluded.claimed_by::text"
/* Feeds only rows that are ours, so that the INSERT makes none of its own. */
#define ONLY_OURS \
    "CROSS JOIN LATERAL (SELECT claimed_by::text AS claimed_by FROM {T}" \
    " WHERE message_id::text = u.k OFFSET 0) AS x WHERE x.claimed_by = u.o "
#define NUMBERED \
    "FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY AS u(k, i) "
#define CONFIRMED \
    "DO UPDATE SET state = 'CONFIRMED', claimed_by = NULL," \
    " expires_at = excluded.expires_at WHERE r.state::text = 'CLAIMED'"

static const char *const templates[IDEMI_SQL_KINDS] = {
    [IDEMI_SQL_CLAIM] = LEASE(
        "CLAIMED") "ON CONFLICT (message_id) DO NOTHING RETURNING message_id",

    [IDEMI_SQL_READ] =
        "SELECT u.i, x.state, x.claimed_by, x.attempts, x.expires_at, "
        "x.clock " NUMBERED "LEFT JOIN LATERAL (SELECT state::text AS state,"
        " claimed_by::text AS claimed_by,"
        " {?coalesce(attempts, 0)::int4}{!0::int4} AS attempts,"
        " expires_at, {clock} AS clock"
        " FROM {T} WHERE message_id::text = u.k OFFSET 0) AS x ON true",

    /* Our own token again is our own takeover whose answer was lost, and a
     * freed row has counted its failure already. Only what can be taken, as
     * far as is known, is fed: ON CONFLICT locks a row even where its WHERE
     * does not hold, and a lock on what has become another's live claim could
     * close a circle with his renewals and releases (40P01). */
    [IDEMI_SQL_TAKEOVER] = LEASE(
        "CLAIMED") "LEFT JOIN LATERAL (SELECT state::text AS state,"
                   " claimed_by::text AS claimed_by, expires_at"
                   " FROM {T} WHERE message_id::text = u.k OFFSET 0) AS x ON "
                   "true"
                   " WHERE x.state IS NULL OR (x.state = 'CLAIMED'"
                   " AND (x.expires_at <= {now} OR x.claimed_by = u.o)) "
                   "ON CONFLICT (message_id) DO UPDATE SET claimed_by = "
                   "excluded.claimed_by,"
                   " expires_at = excluded.expires_at"
                   "{?, attempts = coalesce(r.attempts, 0) +"
                   " CASE WHEN r.claimed_by IS NULL"
                   " OR r.claimed_by::text = excluded.claimed_by::text THEN 0 "
                   "ELSE 1 END}"
                   " WHERE r.state::text = 'CLAIMED' AND (r.expires_at <= {now}"
                   " OR r.claimed_by::text = excluded.claimed_by::text)"
                   " RETURNING message_id, {?r.attempts::int4}{!0::int4}",

    /* An upsert: a purge may have taken the row of an expired claim. */
    [IDEMI_SQL_CONFIRM] = LEASE(
        "CONFIRMED") "ON CONFLICT (message_id) " CONFIRMED
                     " AND (r.claimed_by::text = excluded.claimed_by::text"
                     " OR r.expires_at <= {now}) RETURNING message_id",

    [IDEMI_SQL_RENEW] = LEASE("CLAIMED") ONLY_OURS
    "ON CONFLICT (message_id) DO UPDATE SET expires_at = excluded.expires_at"
    " WHERE " OURS " RETURNING message_id",

    /* The row stays, free, so that its attempts are not forgotten. */
    [IDEMI_SQL_RELEASE] =
        "INSERT INTO {T} AS r " COLUMNS "{?, attempts}) "
        "SELECT u.k, 'CLAIMED', u.o, {now}, {now}{?, u.a} FROM"
        " unnest($1::text[], $2::text[]{?, $3::int4[]}) AS u(k, o{?, "
        "a}) " ONLY_OURS
        "ON CONFLICT (message_id) DO UPDATE SET claimed_by = NULL,"
        " expires_at = excluded.expires_at"
        "{?, attempts = coalesce(r.attempts, 0) + excluded.attempts} "
        "WHERE " OURS,

    [IDEMI_SQL_RECORD] = "INSERT INTO {T} AS r " COLUMNS ") "
                         "SELECT u.k, 'CONFIRMED', NULL, {now}, {now} + $2" MS
                         " FROM pg_catalog.unnest($1::text[]) AS u(k) "
                         "ON CONFLICT (message_id) " CONFIRMED,

    [IDEMI_SQL_FIND] =
        "SELECT u.i " NUMBERED
        "CROSS JOIN LATERAL (SELECT state::text AS state FROM {T}"
        " WHERE message_id::text = u.k OFFSET 0) AS x"
        " WHERE x.state = 'CONFIRMED'",

    [IDEMI_SQL_COUNT] =
        "SELECT count(*) FILTER"
        " (WHERE state::text = 'CLAIMED' AND claimed_by IS NOT NULL),"
        " count(*) FILTER"
        " (WHERE state::text = 'CLAIMED' AND claimed_by IS NULL),"
        " count(*) FILTER (WHERE state::text = 'CONFIRMED') FROM {T}",
};

/* By physical place, so that no index is needed; SKIP LOCKED, so that a purge
 * waits for nobody and takes part in no deadlock. A live claim never fits. */
static const char purge_template[] =
    "DELETE FROM {T} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {T}"
    " WHERE ctid >= ('(' || $1::int8 || ',0)')::tid"
    " AND ctid < ('(' || $2::int8 || ',0)')::tid"
    " AND CASE state::text WHEN 'CONFIRMED' THEN expires_at < {now}"
    " ELSE expires_at < {now} - $3" MS " END FOR UPDATE SKIP LOCKED))";

/* A statement that waits for a lock must not be left behind when we stop
 * waiting for it: it would go on, and commit, after its connection is gone. And
 * when the network breaks in the middle of a pipeline, the server holds the
 * locks of its first half until it finds its peer dead, by default after two
 * hours; no other time limit works then.
 *
 * What is confirmed must not be forgotten when the server crashes, so a role
 * that does not wait for its commits to be flushed does so here. How far they
 * are to get beyond that (local, remote_apply) is the role's to say.
 *
 * What is prepared is planned once, so no plan may be for a small table only.
 * What has no other plan than a scan (a count, a look at the catalogue) scans
 * nevertheless, but seems so costly then that it would be compiled first.
 *
 * Settings of a session are no good where a pooler hands the session on. It
 * cannot know at login which session will serve a client, so the process that
 * it names is another than the one that answers. */
const char idemi_sql_session[] =
    "SELECT CASE WHEN pg_catalog.pg_backend_pid() = $1::int4 THEN"
    " pg_catalog.set_config('statement_timeout', $2::text, false) ||"
    " pg_catalog.set_config('synchronous_commit', coalesce(nullif("
    "pg_catalog.current_setting('synchronous_commit'), 'off'), 'on'), false) ||"
    " pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', false) ||"
    " pg_catalog.set_config('enable_seqscan', 'off', false) ||"
    " pg_catalog.set_config('jit', 'off', false) ||"
    " pg_catalog.set_config('tcp_keepalives_idle', '10', false) ||"
    " pg_catalog.set_config('tcp_keepalives_interval', '5', false) ||"
    " pg_catalog.set_config('tcp_keepalives_count', '3', false) END";

const char idemi_sql_find_table[] =
    "SELECT c.oid::text, n.nspname::text, c.relname::text, c.relkind::text"
    " FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n"
    " ON n.oid = c.relnamespace WHERE c.oid = pg_catalog.to_regclass($1::text)";

const char idemi_sql_columns[] =
    "SELECT a.attname::text,"
    " pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull,"
    " a.atthasdef OR a.attidentity <> '' OR a.attgenerated <> '',"
    " c.collname::text, coalesce(c.collisdeterministic, true)"
    " FROM pg_catalog.pg_attribute AS a"
    " LEFT JOIN pg_catalog.pg_collation AS c ON c.oid = a.attcollation"
    " WHERE a.attrelid = $1::text::oid AND a.attnum > 0"
    " AND NOT a.attisdropped";

/* Deferrable and partial unique indexes exist, but ON CONFLICT (message_id)
 * cannot use them (55000, 42P10 at the first claim). */
const char idemi_sql_arbiters[] =
    "SELECT i.indexrelid::regclass::text"
    " FROM pg_catalog.pg_index AS i WHERE i.indrelid = $1::text::oid"
    " AND i.indisunique AND i.indisvalid AND i.indimmediate"
    " AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = 1"
    " AND pg_catalog.pg_get_indexdef(i.indexrelid, 1, true) = 'message_id'";

/* Name, whether it is unique, whether it is a unique key of message_id that is
 * no arbiter, whether it names a column that a confirm changes. */
const char idemi_sql_other_indexes[] =
    "SELECT i.indexrelid::regclass::text, i.indisunique,"
    " i.indisunique AND i.indnkeyatts = 1"
    " AND pg_catalog.pg_get_indexdef(i.indexrelid, 1, true) = 'message_id',"
    " EXISTS (SELECT 1 FROM pg_catalog.pg_depend AS d"
    " JOIN pg_catalog.pg_attribute AS a"
    " ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid"
    " WHERE d.classid = 'pg_catalog.pg_class'::regclass"
    " AND d.objid = i.indexrelid AND d.refobjid = i.indrelid"
    " AND a.attname IN ('state', 'claimed_by', 'expires_at'))"
    " FROM pg_catalog.pg_index AS i WHERE i.indrelid = $1::text::oid"
    " AND NOT (i.indisunique AND i.indisvalid AND i.indimmediate"
    " AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = 1"
    " AND pg_catalog.pg_get_indexdef(i.indexrelid, 1, true) = 'message_id')";

const char idemi_sql_rights[] =
    "SELECT pg_catalog.has_table_privilege($1::text::oid, 'SELECT'),"
    " pg_catalog.has_table_privilege($1::text::oid, 'INSERT'),"
    " pg_catalog.has_table_privilege($1::text::oid, 'UPDATE'),"
    " pg_catalog.has_table_privilege($1::text::oid, 'DELETE'),"
    " pg_catalog.pg_is_in_recovery(),"
    " pg_catalog.current_setting('transaction_read_only') = 'on',"
    " pg_catalog.current_setting('server_encoding'),"
    " pg_catalog.current_setting('server_version_num')::int4,"
    " pg_catalog.current_setting('server_version'), current_user::text,"
    " pg_catalog.current_setting('default_transaction_isolation')"
    " <> 'read committed'";

/* A ctid is unique within one leaf only, so a purge walks leaf by leaf. A table
 * that is not partitioned has no tree and is its own leaf. */
const char idemi_sql_leaves[] =
    "SELECT n.nspname::text, c.relname::text,"
    " pg_catalog.pg_relation_size(c.oid)"
    " / pg_catalog.current_setting('block_size')::int8"
    " FROM pg_catalog.pg_class AS c"
    " JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
    " WHERE c.relkind = 'r' AND (c.oid = pg_catalog.to_regclass($1::text)"
    " OR c.oid IN (SELECT p.relid FROM"
    " pg_catalog.pg_partition_tree(pg_catalog.to_regclass($1::text)) AS p"
    " WHERE p.isleaf)) ORDER BY c.oid";

typedef struct text {
    char *bytes; /* NULL: only count */
    size_t size;
} text_t;

static void put(text_t *text, const char *bytes, size_t size)
{
    if (text->bytes) {
        memcpy(text->bytes + text->size, bytes, size);
    }
    text->size += size;
}

static void put_time(text_t *text, const char *name, size_t size, bool has_zone)
{
    /* In a column without time zone all parties must mean the same one; the
     * session's would differ from client to client. */
    if (!has_zone) {
        static const char utc[] = "pg_catalog.timezone('UTC', ";
        put(text, utc, sizeof utc - 1);
    }
    put(text, name, size);
    if (!has_zone) {
        put(text, ")", 1);
    }
}

static void expand(text_t *text, const char *template,
                   const idemi_sql_shape_t *shape)
{
    static const char now[] = "now()";
    static const char clock[] = "clock_timestamp()";
    const char *open;

    while ((open = strchr(template, '{')) != NULL) {
        const char *close = strchr(open, '}');
        assert(close);
        put(text, template, (size_t)(open - template));
        open++;
        switch (*open) {
        case 'T':
            put(text, shape->table, strlen(shape->table));
            break;
        case 'n':
            put_time(text, now, sizeof now - 1, shape->has_zone);
            break;
        case 'c':
            put_time(text, clock, sizeof clock - 1, shape->has_zone);
            break;
        default:
            assert(*open == '?' || *open == '!');
            if ((*open == '?') == shape->has_attempts) {
                put(text, open + 1, (size_t)(close - open) - 1);
            }
            break;
        }
        template = close + 1;
    }
    put(text, template, strlen(template) + 1);
}

static char *expanded(const char *template, const idemi_sql_shape_t *shape)
{
    text_t text = {NULL, 0};

    expand(&text, template, shape);
    text.bytes = malloc(text.size);
    if (text.bytes) {
        text.size = 0;
        expand(&text, template, shape);
    }
    return text.bytes;
}

bool idemi_sql_init(idemi_sql_t *sql, const idemi_sql_shape_t *shape)
{
    for (size_t i = 0; i < IDEMI_SQL_KINDS; i++) {
        sql->text[i] = NULL;
    }
    for (size_t i = 0; i < IDEMI_SQL_KINDS; i++) {
        sql->text[i] = expanded(templates[i], shape);
        if (!sql->text[i]) {
            idemi_sql_finish(sql);
            return false;
        }
    }
    return true;
}

void idemi_sql_finish(idemi_sql_t *sql)
{
    for (size_t i = 0; i < IDEMI_SQL_KINDS; i++) {
        free(sql->text[i]);
        sql->text[i] = NULL;
    }
}

/* The C locale's letters, whatever the program's locale is. */
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static size_t part_size(const char *name)
{
    size_t size = 0;

    if (is_letter(name[0])) {
        while (is_letter(name[size]) ||
               (name[size] >= '0' && name[size] <= '9')) {
            size++;
        }
    }
    return size <= IDEMI_SQL_NAME_BYTES ? size : 0;
}

bool idemi_sql_is_table_name(const char *name)
{
    size_t size = part_size(name);

    if (size > 0 && name[size] == '.') {
        name += size + 1;
        size = part_size(name);
    }
    return size > 0 && name[size] == '\0';
}

static bool quote_part(char **out, const char *end, const char *part)
{
    char *to = *out;

    *to++ = '"';
    for (; *part; part++) {
        if (end - to < 4) {
            return false;
        }
        if (*part == '"') {
            *to++ = '"';
        }
        *to++ = *part;
    }
    *to++ = '"';
    *to = '\0';
    *out = to;
    return true;
}

bool idemi_sql_quote(char quoted[IDEMI_SQL_TABLE_BYTES], const char *schema,
                     const char *table)
{
    const char *end = quoted + IDEMI_SQL_TABLE_BYTES;

    if (schema) {
        if (!quote_part(&quoted, end, schema) || end - quoted < 4) {
            return false;
        }
        *quoted++ = '.';
    }
    return quote_part(&quoted, end, table);
}

void idemi_sql_quote_name(char quoted[IDEMI_SQL_TABLE_BYTES], const char *name)
{
    char schema[IDEMI_SQL_NAME_BYTES + 1];
    const char *dot = strchr(name, '.');
    bool fits;

    assert(idemi_sql_is_table_name(name));
    if (dot) {
        memcpy(schema, name, (size_t)(dot - name));
        schema[dot - name] = '\0';
        fits = idemi_sql_quote(quoted, schema, dot + 1);
    } else {
        fits = idemi_sql_quote(quoted, NULL, name);
    }
    assert(fits);
    (void)fits;
}

char *idemi_sql_create(const char *table)
{
    static const char name[] = "idem_message";
    text_t text = {NULL, 0};

    for (int pass = 0; pass < 2; pass++) {
        const char *from = idemi_sql_schema;
        const char *found;
        text.size = 0;
        while ((found = strstr(from, name)) != NULL) {
            put(&text, from, (size_t)(found - from));
            put(&text, table, strlen(table));
            from = found + sizeof name - 1;
        }
        put(&text, from, strlen(from) + 1);
        if (pass == 0 && !(text.bytes = malloc(text.size))) {
            return NULL;
        }
    }
    return text.bytes;
}

char *idemi_sql_purge(const char *leaf, bool has_zone)
{
    idemi_sql_shape_t shape = {.has_zone = has_zone};

    memcpy(shape.table, leaf, strlen(leaf) + 1);
    return expanded(purge_template, &shape);
}
