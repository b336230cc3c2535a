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

static const char *given(const PQconninfoOption *options, const char *keyword)
{
    for (const PQconninfoOption *o = options; o->keyword; o++) {
        if (strcmp(o->keyword, keyword) == 0) {
            return o->val;
        }
    }
    return NULL;
}

/* Copies the list of a keyword. It may come from the environment as well, which
 * is among libpq's defaults; a service that the connection string names is left
 * to libpq, as one target. False when memory ran out. */
static bool copy_list(char **list, const idemi_target_t *target,
                      const PQconninfoOption *defaults, const char *keyword)
{
    const char *value = given(target->options, keyword);

    if (!value && !given(target->options, "service")) {
        value = given(defaults, keyword);
    }
    *list = value ? strdup(value) : NULL;
    return !value || *list;
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

static bool begins(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* How much of what libpq says about a connection string may be shown. It quotes
 * what it did not understand, down to the whole string, and that may be a
 * password: so up to the first quotation of more than a character, but for
 * names of options. */
static size_t shown_size(const char *message)
{
    size_t size = strcspn(message, "\n");

    if (!begins(message, "invalid connection option") &&
        !begins(message, "invalid URI query parameter")) {
        for (size_t i = 0; i < size; i++) {
            if (message[i] == '"' && (size - i < 3 || message[i + 2] != '"')) {
                return i;
            }
            i += message[i] == '"' ? 2 : 0;
        }
    }
    return size;
}

static idem_status_t refused(const char *message, idem_error_t *err)
{
    size_t size = shown_size(message);

    return idemi_error(err, IDEM_ERR_ARG,
                       "conninfo is no libpq connection string: %.*s%s",
                       (int)(size < 200 ? size : 200), message,
                       message[size] == '"' ? "..." : "");
}

idem_status_t idemi_target_init(idemi_target_t *target, const char *conninfo,
                                int64_t deadline_ms, idem_error_t *err)
{
    char *message = NULL;
    PQconninfoOption *defaults;
    size_t addresses;

    memset(target, 0, sizeof *target);
    target->options = PQconninfoParse(conninfo, &message);
    if (!target->options) {
        idem_status_t status =
            message ? refused(message, err)
                    : idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
        PQfreemem(message);
        return status;
    }
    defaults = PQconndefaults();
    if (!defaults || !copy_list(&target->names, target, defaults, "host") ||
        !copy_list(&target->addresses, target, defaults, "hostaddr") ||
        !copy_list(&target->ports, target, defaults, "port")) {
        PQconninfoFree(defaults);
        idemi_target_finish(target);
        return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    }
    PQconninfoFree(defaults);
    target->hosts = elements(target->names);
    addresses = elements(target->addresses);
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
    free(target->names);
    free(target->addresses);
    free(target->ports);
    memset(target, 0, sizeof *target);
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

    if (!element(&name, target->names, host) ||
        !element(&address, target->addresses, host) ||
        !element(&port, target->ports, host)) {
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
        if (!given(target->options, additions[i].keyword)) {
            keywords[count] = additions[i].keyword;
            values[count++] = additions[i].value;
        }
    }
    if (!given(target->options, "tcp_user_timeout")) {
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
