/* The servers that other tests stop and kill come back as they were. */

#include "servers.h"
#include "management.h"
#include "support.h"

#include <check.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdlib.h>

static test_server_t *server;
static test_server_t *pool;

static void destroy(void)
{
    test_server_destroy(pool);
    test_server_destroy(server);
    pool = NULL;
    server = NULL;
}

/* The first field of the answer, or -1 when there is none. */
static int ask(const test_server_t *database, const char *sql)
{
    PGconn *connection = PQconnectdb(test_server_address(database));
    PGresult *result = PQexec(connection, sql);
    int answer = -1;

    if (PQresultStatus(result) == PGRES_TUPLES_OK) {
        answer = atoi(PQgetvalue(result, 0, 0));
    } else if (PQresultStatus(result) == PGRES_COMMAND_OK) {
        answer = 0;
    }
    PQclear(result);
    PQfinish(connection);
    return answer;
}

START_TEST(postgres_keeps_its_rows_when_killed_and_when_stopped)
{
    server = test_postgres_start();
    pool = test_pgbouncer_start(server);
    ck_assert_int_eq(ask(server, "CREATE TABLE seen AS SELECT 7 AS n"), 0);
    ck_assert_int_eq(ask(pool, "SELECT n FROM seen"), 7);

    test_server_kill(server);
    ck_assert_int_eq(test_server_pid(server), -1);
    ck_assert_int_eq(ask(server, "SELECT n FROM seen"), -1);
    test_server_start(server);
    ck_assert_int_eq(ask(server, "SELECT n FROM seen"), 7);

    test_server_stop(server);
    ck_assert_int_eq(ask(server, "SELECT n FROM seen"), -1);
    test_server_start(server);
    ck_assert_int_eq(ask(server, "SELECT n FROM seen"), 7);
}
END_TEST

static bool broker_answers(void)
{
    management_t *management = management_open(test_server_address(server));
    bool answers = management != NULL;

    management_close(management);
    return answers;
}

START_TEST(artemis_comes_back_when_killed_and_when_stopped)
{
    pid_t first = -1;

    server = test_artemis_start();
    first = test_server_pid(server);
    ck_assert_int_gt(first, 0);
    ck_assert(broker_answers());

    test_server_kill(server);
    ck_assert_int_eq(test_server_pid(server), -1);
    test_server_start(server);
    ck_assert_int_ne(test_server_pid(server), first);
    ck_assert(broker_answers());

    test_server_stop(server);
    ck_assert_int_eq(test_server_pid(server), -1);
    test_server_start(server);
    ck_assert(broker_answers());
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("servers");
    TCase *tcase = tcase_create("servers");

    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, NULL, destroy);
    tcase_add_test(tcase, postgres_keeps_its_rows_when_killed_and_when_stopped);
    tcase_add_test(tcase, artemis_comes_back_when_killed_and_when_stopped);
    return test_run(suite);
}
