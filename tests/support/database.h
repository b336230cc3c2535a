#ifndef IDEM_TEST_DATABASE_H
#define IDEM_TEST_DATABASE_H

/*
 * A test's own eyes on its database. One thread at a time. A statement that
 * fails fails the running test, with PostgreSQL's message.
 */

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Connects. */
PGconn *database_open(const char *dsn);

/** Runs statements without a result that matters. */
void database_exec(PGconn *connection, const char *sql);

/** The number in the first row and column; -1 for NULL or no row. */
int64_t database_int(PGconn *connection, const char *sql);

/** The text there, to be freed; NULL for NULL or no row. */
char *database_text(PGconn *connection, const char *sql);

/** Asks until the query returns the number. */
bool database_wait_int(PGconn *connection, const char *sql, int64_t number,
                       int64_t timeout_ms);

/**
 * Make a schema that no other test has.
 *
 * @param name  filled in; 48 bytes are enough
 */
void database_create_schema(PGconn *connection, char *name, size_t size);
void database_drop_schema(PGconn *connection, const char *name);

/** The connection string with another port (a proxy's), to be freed. */
char *database_dsn_via(const char *dsn, int port);

/** The port of a connection string. */
int database_port(const char *dsn);

/**
 * Ends the sessions that have this application_name, as an administrator
 * would (57P01). Returns how many.
 */
int64_t database_terminate(PGconn *connection, const char *application_name);

#endif
