#ifndef IDEMI_POSTGRES_TARGET_H
#define IDEMI_POSTGRES_TARGET_H

#include <idem/status.h>

#include <libpq-fe.h>
#include <stddef.h>
#include <stdint.h>

/* Where to connect: a parsed connection string and the hosts in it, which are
 * tried one at a time, since PQconnectPoll knows no time limit and would stay
 * with a silent first host for ever. Read-only once it is made. */
typedef struct idemi_target {
    PQconninfoOption *options;
    size_t hosts; /* at least 1 */
    /* Lists, separated by commas; NULL: what libpq does without. */
    char *names;
    char *addresses;
    char *ports;
    char tcp_user_timeout[24];
} idemi_target_t;

/* IDEM_ERR_ARG where libpq cannot parse conninfo. */
idem_status_t idemi_target_init(idemi_target_t *target, const char *conninfo,
                                int64_t deadline_ms, idem_error_t *err);
void idemi_target_finish(idemi_target_t *target);

/* Begins to connect to host number `host`; NULL when memory ran out. Blocks
 * only while a name is resolved. */
PGconn *idemi_target_connect(const idemi_target_t *target, size_t host);

#endif
