#include "servers.h"

#include "support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { PATH_BYTES = 512, ADDRESS_BYTES = 512 };

struct test_server {
    const char *script;
    char dir[PATH_BYTES];
    char address[ADDRESS_BYTES];
};

/* Runs `script verb dir [argument]`. The first line that it prints goes to
 * line; a status other than 0 fails the test unless it may. */
static bool run(const test_server_t *server, const char *verb,
                const char *argument, char *line, size_t size, bool may_fail)
{
    char command[3 * PATH_BYTES];
    char rest[256];
    FILE *output = NULL;
    int status = 0;

    snprintf(command, sizeof command, "exec '%s/%s' %s '%s' %s",
             test_env("IDEM_TEST_SUPPORT"), server->script, verb, server->dir,
             argument);
    output = popen(command, "r");
    ck_assert_msg(output != NULL, "cannot run %s", command);
    line[0] = '\0';
    if (fgets(line, (int)size, output) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        while (fgets(rest, sizeof rest, output) != NULL) {
        }
    }
    status = pclose(output);
    ck_assert_msg(may_fail || (WIFEXITED(status) && WEXITSTATUS(status) == 0),
                  "failed: %s", command);
    return status == 0;
}

static void tell(const test_server_t *server, const char *verb)
{
    char line[ADDRESS_BYTES];

    run(server, verb, "", line, sizeof line, false);
}

static test_server_t *start(const char *script, const char *prefix,
                            const char *argument)
{
    char name[48];
    test_server_t *server = calloc(1, sizeof *server);

    ck_assert_ptr_nonnull(server);
    server->script = script;
    snprintf(server->dir, sizeof server->dir, "%s/%s",
             test_env("IDEM_TEST_DIR"), test_unique(name, sizeof name, prefix));
    run(server, "start", argument, server->address, sizeof server->address,
        false);
    return server;
}

test_server_t *test_artemis_start(void)
{
    return start("artemis.sh", "artemis", "");
}

test_server_t *test_postgres_start(void)
{
    return start("postgres.sh", "postgres", "");
}

test_server_t *test_pgbouncer_start(const test_server_t *postgres)
{
    return start("pgbouncer.sh", "pgbouncer", postgres->dir);
}

const char *test_server_address(const test_server_t *server)
{
    return server->address;
}

pid_t test_server_pid(const test_server_t *server)
{
    char line[32];

    if (!run(server, "pid", "", line, sizeof line, true)) {
        return -1;
    }
    return (pid_t)strtol(line, NULL, 10);
}

void test_server_start(test_server_t *server)
{
    tell(server, "start");
}

void test_server_stop(test_server_t *server)
{
    tell(server, "stop");
}

void test_server_kill(test_server_t *server)
{
    tell(server, "kill");
}

void test_server_destroy(test_server_t *server)
{
    if (server != NULL) {
        tell(server, "destroy");
        free(server);
    }
}
