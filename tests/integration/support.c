/* The support library against the real servers. */

#include "support.h"
#include "compose.h"
#include "database.h"
#include "management.h"
#include "process.h"
#include "proxy.h"
#include "send.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 10000, MANY = 20000, NAME_BYTES = 48 };

static const char uuid[16] = "0123456789abcdef";

static void fill_types(size_t n, compose_message_t *message, void *user)
{
    (void)user;
    switch (n) {
    case 0:
        message->id = compose_string("text");
        message->group_id = "group";
        break;
    case 1:
        message->id = compose_ulong(7);
        message->duplicate_id = compose_string("duplicate");
        break;
    case 2:
        message->id = compose_uuid(uuid);
        message->duplicate_id = compose_binary("\x01\xff", 2);
        break;
    case 3:
        message->id = compose_binary("\0\1", 2);
        break;
    default:
        break;
    }
    message->body = "body";
    message->body_bytes = 4;
}

START_TEST(messages_arrive_with_the_ids_they_were_sent_with)
{
    const char *url = test_env("IDEM_TEST_URL");
    management_t *management = management_open(url);
    received_list_t list;
    char queue[NAME_BYTES];

    ck_assert_ptr_nonnull(management);
    test_unique(queue, sizeof queue, "support");
    ck_assert(send_messages(url, queue, 5, fill_types, NULL, WAIT_MS));
    ck_assert(management_wait(management, queue, "messageCount", 5, WAIT_MS));
    ck_assert(receive_browse(url, queue, &list));
    ck_assert_uint_eq(list.count, 5);
    received_free(&list);
    ck_assert(receive_take(url, queue, 1, &list));
    ck_assert_uint_eq(list.count, 1);
    ck_assert_str_eq(list.messages[0].id, "text");
    ck_assert_str_eq(list.messages[0].group_id, "group");
    ck_assert_str_eq(list.messages[0].body, "body");
    ck_assert(list.messages[0].durable);
    received_free(&list);
    ck_assert(receive_take(url, queue, 0, &list));
    ck_assert_uint_eq(list.count, 4);
    ck_assert_str_eq(list.messages[0].id, "7");
    ck_assert_int_eq(list.messages[0].type, COMPOSE_ULONG);
    ck_assert_str_eq(list.messages[0].duplicate_id, "duplicate");
    ck_assert_int_eq(list.messages[1].type, COMPOSE_UUID);
    ck_assert_str_eq(list.messages[1].duplicate_id, "01ff");
    ck_assert_str_eq(list.messages[2].id, "0001");
    ck_assert_int_eq(list.messages[3].type, COMPOSE_NONE);
    received_free(&list);
    ck_assert(
        management_wait(management, queue, "messagesAcknowledged", 5, WAIT_MS));
    ck_assert(management_destroy_queue(management, queue));
    ck_assert(!management_has_queue(management, queue));
    management_close(management);
}
END_TEST

START_TEST(queues_can_be_made_paused_and_purged)
{
    const char *url = test_env("IDEM_TEST_URL");
    management_t *management = management_open(url);
    received_list_t list;
    char queue[NAME_BYTES];

    ck_assert_ptr_nonnull(management);
    test_unique(queue, sizeof queue, "support");
    ck_assert(management_create_queue(management, queue));
    ck_assert_int_eq(management_queue(management, queue, "messageCount"), 0);
    ck_assert(send_numbered(url, queue, "id-", MANY));
    ck_assert(
        management_wait(management, queue, "messageCount", MANY, WAIT_MS));
    ck_assert(management_pause(management, queue));
    ck_assert(receive_take(url, queue, 1, &list));
    ck_assert_uint_eq(list.count, 0);
    received_free(&list);
    ck_assert(management_resume(management, queue));
    ck_assert(receive_take(url, queue, 1000, &list));
    ck_assert_uint_eq(list.count, 1000);
    ck_assert_uint_eq(received_count(&list, "id-999"), 1);
    received_free(&list);
    ck_assert(management_purge(management, queue));
    ck_assert(management_wait(management, queue, "messageCount", 0, WAIT_MS));
    ck_assert_ptr_null(
        management_call(management, "queue.nowhere", "pause", NULL));
    ck_assert(management_destroy_queue(management, queue));
    management_close(management);
}
END_TEST

START_TEST(lost_commits_are_committed_and_unsent_ones_are_not)
{
    const char *dsn = test_env("IDEM_TEST_DSN");
    PGconn *own = database_open(dsn);
    proxy_t *proxy = proxy_create(database_port(dsn));
    char *via = database_dsn_via(dsn, proxy_port(proxy));
    char schema[NAME_BYTES];
    char sql[256];
    const struct {
        proxy_side_t side;
        proxy_break_t how;
        int64_t rows;
    } cases[] = {
        {PROXY_FROM_CLIENT, PROXY_CUT_BEFORE, 0},
        {PROXY_FROM_SERVER, PROXY_CUT_BEFORE, 1},
        {PROXY_FROM_CLIENT, PROXY_CUT_AFTER, 2},
    };

    database_create_schema(own, schema, sizeof schema);
    snprintf(sql, sizeof sql, "CREATE TABLE %s.t (id int)", schema);
    database_exec(own, sql);
    for (int i = 0; i < 3; i++) {
        PGconn *connection = database_open(via);
        PGresult *result = NULL;

        database_exec(connection, "BEGIN ISOLATION LEVEL READ COMMITTED");
        snprintf(sql, sizeof sql, "INSERT INTO %s.t VALUES (1)", schema);
        database_exec(connection, sql);
        proxy_break_on(proxy, cases[i].side, "COMMIT", 7, 1, cases[i].how);
        result = PQexec(connection, "COMMIT");
        ck_assert_int_ne(PQresultStatus(result), PGRES_COMMAND_OK);
        ck_assert_int_eq(PQstatus(connection), CONNECTION_BAD);
        PQclear(result);
        PQfinish(connection);
        ck_assert(proxy_wait_breaks(proxy, i + 1, WAIT_MS));
        snprintf(sql, sizeof sql, "SELECT count(*) FROM %s.t", schema);
        ck_assert(database_wait_int(own, sql, cases[i].rows, WAIT_MS));
    }
    database_drop_schema(own, schema);
    PQfinish(own);
    proxy_destroy(proxy);
    free(via);
}
END_TEST

static bool is_over(void *user)
{
    PGconn *connection = user;

    PQconsumeInput(connection);
    return PQisBusy(connection) == 0;
}

START_TEST(proxies_stall_delay_refuse_and_cut)
{
    const char *dsn = test_env("IDEM_TEST_DSN");
    proxy_t *proxy = proxy_create(database_port(dsn));
    char *via = database_dsn_via(dsn, proxy_port(proxy));
    PGconn *connection = database_open(via);
    PGconn *refused = NULL;
    int64_t start = 0;

    proxy_stall(proxy, true);
    ck_assert(PQsendQuery(connection, "SELECT 1"));
    ck_assert(!test_wait(is_over, connection, 100));
    proxy_stall(proxy, false);
    ck_assert(test_wait(is_over, connection, WAIT_MS));
    PQclear(PQgetResult(connection));
    ck_assert_ptr_null(PQgetResult(connection));
    proxy_set_delay(proxy, 20, 30);
    start = test_now_ms();
    ck_assert_int_eq(database_int(connection, "SELECT 2"), 2);
    ck_assert_int_ge(test_now_ms() - start, 49);
    ck_assert(proxy_listen(proxy, false));
    refused = PQconnectdb(via);
    ck_assert_int_eq(PQstatus(refused), CONNECTION_BAD);
    PQfinish(refused);
    ck_assert(proxy_listen(proxy, true));
    proxy_cut(proxy, true);
    ck_assert_int_eq(proxy_stats(proxy).live_connections, 0);
    PQclear(PQexec(connection, "SELECT 3"));
    ck_assert_int_eq(PQstatus(connection), CONNECTION_BAD);
    PQfinish(connection);
    PQfinish(database_open(via));
    ck_assert_int_eq(proxy_stats(proxy).connections, 2);
    proxy_destroy(proxy);
    free(via);
}
END_TEST

START_TEST(children_can_be_read_signalled_and_waited_for)
{
    const char *const shell[] = {"sh", "-c", "echo ready $WORD; exec sleep 100",
                                 NULL};
    const char *const fails[] = {"sh", "-c", "exit 3", NULL};
    const char *const env[] = {"WORD=word", NULL};
    process_t *process = process_start(shell, env);

    ck_assert_ptr_nonnull(process);
    ck_assert(process_wait_output(process, "ready word", WAIT_MS));
    ck_assert_int_eq(process_wait(process, 0), -1);
    ck_assert(process_signal(process, SIGTERM));
    ck_assert_int_eq(process_wait(process, WAIT_MS), 128 + SIGTERM);
    process_destroy(process);
    ck_assert_int_eq(process_run(fails, NULL, WAIT_MS, NULL), 3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("support");
    TCase *tests = tcase_create("servers");

    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, messages_arrive_with_the_ids_they_were_sent_with);
    tcase_add_test(tests, queues_can_be_made_paused_and_purged);
    tcase_add_test(tests, lost_commits_are_committed_and_unsent_ones_are_not);
    tcase_add_test(tests, proxies_stall_delay_refuse_and_cut);
    tcase_add_test(tests, children_can_be_read_signalled_and_waited_for);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
