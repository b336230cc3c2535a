#include "store/postgres_target.h"

#include "base/error.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libpq has some 40 keywords; ours are 8. */
#define KEYWORDS 96

/* What is added unless the user, or the environment, says otherwise. A dead
 * peer is noticed within 25 s while nothing is sent. */
static const struct {
    const char *keyword;
    const char *value;
} additions[] = {
    {"fallback_application_name", "idem"},
    {"keepalives_idle", "10"},
    {"keepalives_interval", "5"},
    {"keepalives_count", "3"},
};

static const char *given(const idemi_target_t *target, const char *keyword)
{
    for (const PQconninfoOption *o = target->options; o->keyword; o++) {
        if (strcmp(o->keyword, keyword) == 0) {
            return o->val;
        }
    }
    return NULL;
}

/* Hosts may come from the environment as well; a service file is left to
 * libpq, as one target. */
static const char *hosts_of(const idemi_target_t *target, const char *keyword,
                            const char *variable)
{
    const char *value = given(target, keyword);

    if (!value && !given(target, "service") && !getenv("PGSERVICE")) {
        value = getenv(variable);
    }
    return value;
}

static size_t elements(const char *list)
{
    size_t count = list && *list ? 1 : 0;

    for (; list && *list; list++) {
        count += *list == ',';
    }
    return count;
}

/* Element number `index` of a list, or its only one; NULL for none. */
static bool element(char **out, const char *list, size_t index)
{
    size_t count = elements(list);

    *out = NULL;
    if (count == 0) {
        return true;
    }
    for (index = count == 1 ? 0 : index; index > 0; index--) {
        const char *comma = strchr(list, ',');
        if (!comma) {
            return true;
        }
        list = comma + 1;
    }
    *out = strndup(list, strcspn(list, ","));
    return *out != NULL;
}

idem_status_t idemi_target_init(idemi_target_t *target, const char *conninfo,
                                int64_t deadline_ms, idem_error_t *err)
{
    char *message = NULL;
    size_t addresses;

    target->options = PQconninfoParse(conninfo, &message);
    if (!target->options) {
        idem_status_t status =
            message ? idemi_error(err, IDEM_ERR_ARG,
                                  "conninfo is no libpq connection string: "
                                  "%.*s",
                                  (int)strcspn(message, "\n"), message)
                    : idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
        PQfreemem(message);
        return status;
    }
    target->hosts = elements(hosts_of(target, "host", "PGHOST"));
    addresses = elements(hosts_of(target, "hostaddr", "PGHOSTADDR"));
    if (addresses > target->hosts) {
        target->hosts = addresses;
    }
    if (target->hosts == 0) {
        target->hosts = 1;
    }
    /* Linux applies it to connecting too. Half of the deadline, so that the
     * second address of a name has its turn when the first is silent. */
    (void)snprintf(target->tcp_user_timeout, sizeof target->tcp_user_timeout,
                   "%lld", (long long)(deadline_ms / 2));
    return IDEM_OK;
}

void idemi_target_finish(idemi_target_t *target)
{
    PQconninfoFree(target->options);
    target->options = NULL;
}

PGconn *idemi_target_connect(const idemi_target_t *target, size_t host)
{
    const char *keywords[KEYWORDS];
    const char *values[KEYWORDS];
    size_t count = 0;
    char *name = NULL;
    char *address = NULL;
    char *port = NULL;
    PGconn *connection = NULL;

    if (!element(&name, hosts_of(target, "host", "PGHOST"), host) ||
        !element(&address, hosts_of(target, "hostaddr", "PGHOSTADDR"), host) ||
        !element(&port, hosts_of(target, "port", "PGPORT"), host)) {
        goto done;
    }
    for (const PQconninfoOption *o = target->options;
         o->keyword && count < KEYWORDS / 2; o++) {
        if (o->val && strcmp(o->keyword, "host") != 0 &&
            strcmp(o->keyword, "hostaddr") != 0 &&
            strcmp(o->keyword, "port") != 0 &&
            strcmp(o->keyword, "client_encoding") != 0) {
            keywords[count] = o->keyword;
            values[count++] = o->val;
        }
    }
    for (size_t i = 0; i < sizeof additions / sizeof *additions; i++) {
        if (!given(target, additions[i].keyword)) {
            keywords[count] = additions[i].keyword;
            values[count++] = additions[i].value;
        }
    }
    if (!given(target, "tcp_user_timeout")) {
        keywords[count] = "tcp_user_timeout";
        values[count++] = target->tcp_user_timeout;
    }
    /* Another encoding, PGCLIENTENCODING's for one, would re-code keys: the
     * row would not be the one that other clients mean. */
    keywords[count] = "client_encoding";
    values[count++] = "UTF8";
    if (name) {
        keywords[count] = "host";
        values[count++] = name;
    }
    if (address) {
        keywords[count] = "hostaddr";
        values[count++] = address;
    }
    if (port) {
        keywords[count] = "port";
        values[count++] = port;
    }
    keywords[count] = NULL;
    values[count] = NULL;
    connection = PQconnectStartParams(keywords, values, 0);

done:
    free(name);
    free(address);
    free(port);
    return connection;
}
