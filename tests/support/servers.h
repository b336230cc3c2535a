#ifndef IDEM_TEST_SERVERS_H
#define IDEM_TEST_SERVERS_H

#include <sys/types.h>

/**
 * A broker or database of one test's own, which it may stop, kill and hang.
 *
 * Needs the fixture servers: the folders lie in that of the shared servers, so
 * that none of them outlives the run, even when a test is cut off.
 *
 * Threads: the test's own. Whatever goes wrong fails the running test.
 */
typedef struct test_server test_server_t;

/** Start an Artemis. The environment may hold settings for artemis.sh. */
test_server_t *test_artemis_start(void);

/** Start a PostgreSQL. The environment may hold settings for postgres.sh. */
test_server_t *test_postgres_start(void);

/** Start a PgBouncer before a PostgreSQL. */
test_server_t *test_pgbouncer_start(const test_server_t *postgres);

/** Its URL or connection string, the same after every restart. */
const char *test_server_address(const test_server_t *server);

/** Its process, to be hung with SIGSTOP; -1 when it is not running. */
pid_t test_server_pid(const test_server_t *server);

/** Start it again on the same port and data; returns once it answers. */
void test_server_start(test_server_t *server);

/** End it in order; returns once it has ended. */
void test_server_stop(test_server_t *server);

/** End it with SIGKILL, its children too; returns once they have ended. */
void test_server_kill(test_server_t *server);

/** Kill it and delete its folder. NULL is allowed. */
void test_server_destroy(test_server_t *server);

#endif
