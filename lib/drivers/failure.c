#include "drivers/failure.h"

#include "base/error.h"

#include <proton/sasl.h>

#include <stdio.h>
#include <string.h>

/* Of a peer's text; the rest of a message must fit behind it. */
#define TEXT_BYTES 240

void idemi_url_text(char text[IDEMI_URL_TEXT_BYTES], const idemi_url_t *url)
{
    const char *form =
        strchr(url->host, ':') ? "amqp://[%s]:%s" : "amqp://%s:%s";

    (void)snprintf(text, IDEMI_URL_TEXT_BYTES, form, url->host, url->port);
}

static const char *name_of(pn_condition_t *condition)
{
    const char *name = condition ? pn_condition_get_name(condition) : NULL;

    return name ? name : "";
}

/* What the peer said, in words: " (name: description)". */
static void describe(char text[TEXT_BYTES], pn_condition_t *condition)
{
    const char *name = name_of(condition);
    const char *description =
        condition ? pn_condition_get_description(condition) : NULL;

    if (name[0] && description && description[0]) {
        (void)snprintf(text, TEXT_BYTES, " (%s: %s)", name, description);
    } else if (name[0]) {
        (void)snprintf(text, TEXT_BYTES, " (%s)", name);
    } else {
        text[0] = '\0';
    }
    if (strlen(text) == TEXT_BYTES - 1) {
        memcpy(text + TEXT_BYTES - 5, "...)", 5);
    }
}

static void set_condition(idem_error_t *err, pn_condition_t *condition)
{
    (void)snprintf(err->condition, sizeof err->condition, "%s",
                   name_of(condition));
}

static bool is(pn_condition_t *condition, const char *name)
{
    return strcmp(name_of(condition), name) == 0;
}

static idemi_end_t refused_login(idem_error_t *err, const char *where,
                                 const char *user, const char *said)
{
    if (user) {
        (void)idemi_error(err, IDEM_ERR_AUTHENTICATION,
                          "%s refuses the login of user '%.64s'%s; check user "
                          "and password, and that it offers SASL PLAIN",
                          where, user, said);
    } else {
        (void)idemi_error(err, IDEM_ERR_AUTHENTICATION,
                          "%s refuses an anonymous login%s; set user and "
                          "password, or let it offer SASL ANONYMOUS",
                          where, said);
    }
    return IDEMI_END_FATAL;
}

idemi_end_t idemi_end_of_transport(idem_error_t *err, const idemi_url_t *url,
                                   const char *user, bool was_open, int outcome,
                                   pn_condition_t *condition)
{
    char where[IDEMI_URL_TEXT_BYTES];
    char said[TEXT_BYTES];
    idemi_end_t end = IDEMI_END_RETRY;

    idemi_url_text(where, url);
    describe(said, condition);
    if (was_open) {
        (void)idemi_error(err, IDEM_ERR_CONNECTION,
                          "the connection to %s was lost%s", where, said);
    } else if (outcome == PN_SASL_AUTH || outcome == PN_SASL_PERM) {
        /* AMQP 1.0, section 5.3.3.6; Proton also says "perm" where the peer
         * does not offer the one mechanism that we allow. */
        end = refused_login(err, where, user, said);
    } else if (outcome == PN_SASL_SYS || outcome == PN_SASL_TEMP) {
        (void)idemi_error(err, IDEM_ERR_CONNECTION,
                          "%s cannot check the login at present%s", where,
                          said);
    } else if (outcome == PN_SASL_OK) {
        (void)idemi_error(err, IDEM_ERR_CONNECTION,
                          "%s let us log in, but did not open the "
                          "connection%s",
                          where, said);
    } else if (is(condition, "proton:io")) {
        (void)idemi_error(err, IDEM_ERR_CONNECTION,
                          "cannot connect and log in to %s%s; check that the "
                          "broker runs and listens there",
                          where, said);
    } else {
        (void)idemi_error(err, IDEM_ERR_CONNECTION,
                          "%s ended the login%s; check that it is an AMQP 1.0 "
                          "broker with SASL, and without TLS",
                          where, said);
    }
    set_condition(err, condition);
    return end;
}

idemi_end_t idemi_end_of_connection(idem_error_t *err, const idemi_url_t *url,
                                    const char *user, bool was_used,
                                    pn_condition_t *condition)
{
    char where[IDEMI_URL_TEXT_BYTES];
    char said[TEXT_BYTES];
    idemi_end_t end = IDEMI_END_RETRY;

    idemi_url_text(where, url);
    describe(said, condition);
    if (!was_used && is(condition, "amqp:unauthorized-access")) {
        end = refused_login(err, where, user, said);
    } else {
        (void)idemi_error(err, IDEM_ERR_CONNECTION,
                          "%s closed the connection%s", where, said);
    }
    set_condition(err, condition);
    return end;
}

idemi_end_t idemi_end_of_link(idem_error_t *err, const char *address,
                              bool was_up, pn_condition_t *condition)
{
    char said[TEXT_BYTES];
    idemi_end_t end = IDEMI_END_RETRY;

    describe(said, condition);
    if (was_up) {
        (void)idemi_error(err, IDEM_ERR_CONNECTION,
                          "the broker ended the link to '%.128s'%s", address,
                          said);
    } else if (is(condition, "amqp:unauthorized-access")) {
        (void)idemi_error(err, IDEM_ERR_PERMISSION,
                          "the broker does not let this user consume from "
                          "'%.128s'%s; grant the permission",
                          address, said);
        end = IDEMI_END_REFUSED;
    } else if (is(condition, "amqp:not-found") ||
               is(condition, "amqp:illegal-state") ||
               is(condition, "amqp:invalid-field")) {
        (void)idemi_error(err, IDEM_ERR_ADDRESS,
                          "the broker has no queue for '%.128s'%s; create it, "
                          "or mend the address or its routing type (anycast)",
                          address, said);
        end = IDEMI_END_REFUSED;
    } else {
        (void)idemi_error(err, IDEM_ERR_CONNECTION,
                          "the broker does not attach '%.128s' at present%s",
                          address, said);
    }
    set_condition(err, condition);
    return end;
}

void idemi_end_of_trust(idem_error_t *err, const idemi_url_t *url,
                        const char *user)
{
    char where[IDEMI_URL_TEXT_BYTES];

    idemi_url_text(where, url);
    (void)idemi_error(err, IDEM_ERR_AUTHENTICATION,
                      "the password of user '%.64s' is not sent to %s, since "
                      "the connection is neither encrypted nor to this "
                      "machine; set allow_insecure_plain where the network "
                      "is trusted",
                      user, where);
}
