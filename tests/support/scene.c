#include "scene.h"

#include "support.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SQL_BYTES = 1024, ARGS_MAX = 40, STOP_MS = 30000 };

void scene_open(scene_t *scene, const char *prefix)
{
    scene_open_at(scene, prefix, test_env("IDEM_TEST_URL"),
                  test_env("IDEM_TEST_DSN"));
}

void scene_open_at(scene_t *scene, const char *prefix, const char *url,
                   const char *dsn)
{
    memset(scene, 0, sizeof *scene);
    scene->url = url;
    scene->dsn = dsn;
    test_unique(scene->queue, sizeof scene->queue, prefix);
    scene->database = database_open(dsn);
    database_create_schema(scene->database, scene->schema,
                           sizeof scene->schema);
    snprintf(scene->table, sizeof scene->table, "%s.idem_message",
             scene->schema);
    scene->management = management_open(url);
    ck_assert_ptr_nonnull(scene->management);
    ck_assert(management_create_queue(scene->management, scene->queue));
}

void scene_close(scene_t *scene)
{
    if (scene->management != NULL) {
        management_destroy_queue(scene->management, scene->queue);
        management_close(scene->management);
    }
    if (scene->database != NULL) {
        database_drop_schema(scene->database, scene->schema);
        PQfinish(scene->database);
    }
    memset(scene, 0, sizeof *scene);
}

idem_store_t *scene_store(const scene_t *scene, int64_t lease_ms)
{
    idem_postgres_options_t options;
    idem_store_t *store = NULL;
    idem_error_t err = {0};
    idem_status_t status;

    idem_postgres_options_init(&options);
    options.conninfo = scene->dsn;
    options.table = scene->table;
    options.create_schema = true;
    options.lease_ms = lease_ms;
    options.purge_interval_ms = 0;
    status = idem_postgres_store_create(&store, &options, &err);
    ck_assert_msg(status == IDEM_OK, "store: %s", err.message);
    return store;
}

void scene_create_table(const scene_t *scene)
{
    idem_store_destroy(scene_store(scene, 30000));
}

void scene_consumer(const scene_t *scene, idem_consumer_options_t *options,
                    idem_store_t *store, idem_handler_t handler, void *user)
{
    idem_consumer_options_init(options);
    options->address = scene->queue;
    options->scope = "";
    options->store = store;
    options->handler = handler;
    options->user = user;
    options->retry_min_ms = 10;
    options->retry_max_ms = 100;
}

static void write_count(const scene_t *scene, char *sql, size_t size,
                        const char *condition)
{
    snprintf(sql, size, "SELECT count(*) FROM %s WHERE %s", scene->table,
             condition != NULL ? condition : "true");
}

int64_t scene_rows(scene_t *scene, const char *condition)
{
    char sql[SQL_BYTES];

    write_count(scene, sql, sizeof sql, condition);
    return database_int(scene->database, sql);
}

bool scene_wait_rows(scene_t *scene, const char *condition, int64_t count,
                     int64_t timeout_ms)
{
    char sql[SQL_BYTES];

    write_count(scene, sql, sizeof sql, condition);
    return database_wait_int(scene->database, sql, count, timeout_ms);
}

bool scene_wait_empty(scene_t *scene, int64_t timeout_ms)
{
    return management_wait(scene->management, scene->queue, "messageCount", 0,
                           timeout_ms);
}

int64_t scene_killed(scene_t *scene)
{
    return management_queue(scene->management, scene->queue, "messagesKilled");
}

void scene_path(const scene_t *scene, char *path, size_t size, const char *name)
{
    snprintf(path, size, "%s/%s.%s", test_env("IDEM_TEST_DIR"), scene->schema,
             name);
}

process_t *scene_worker(const scene_t *scene, const char *journal,
                        const char *const *more)
{
    char program[SCENE_PATH_BYTES];
    char dsn[SCENE_PATH_BYTES];
    const char *argv[ARGS_MAX] = {
        program,      "--url",     scene->url,   "--dsn", dsn,    "--table",
        scene->table, "--address", scene->queue, "--log", journal};
    const char *name = strrchr(journal, '/');
    size_t count = 11;
    process_t *process = NULL;

    snprintf(program, sizeof program, "%s/tests/support/idem-worker",
             test_env("IDEM_TEST_BUILD"));
    snprintf(dsn, sizeof dsn, "%s application_name=%s", scene->dsn,
             name != NULL ? name + 1 : journal);
    while (more != NULL && *more != NULL && count < ARGS_MAX - 1) {
        argv[count++] = *more++;
    }
    process = process_start(argv, NULL);
    ck_assert_ptr_nonnull(process);
    return process;
}

void scene_stop_worker(process_t *worker)
{
    int status = -1;
    char *output = NULL;

    ck_assert(process_signal(worker, SIGTERM));
    status = process_wait(worker, STOP_MS);
    output = process_output(worker);
    ck_assert_msg(status == 0, "worker: %d: %s", status, output);
    free(output);
}
