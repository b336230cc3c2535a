#ifndef IDEMI_FAILURE_H
#define IDEMI_FAILURE_H

#include "drivers/url.h"

#include <proton/condition.h>

/* What an end means that the peer or the network brought about: whether a new
 * try may mend it, and the sentence for the human. Nothing here touches any
 * state. */

/* Room for a URL as it is shown: never with a user or a password. */
#define IDEMI_URL_TEXT_BYTES 320

void idemi_url_text(char text[IDEMI_URL_TEXT_BYTES], const idemi_url_t *url);

typedef enum idemi_end {
    IDEMI_END_RETRY, /* try again, with a back-off */
    /* No such address, no right: final at the first attach, but brokers also
     * say so for a moment while they start. */
    IDEMI_END_REFUSED,
    IDEMI_END_FATAL /* no new try can mend it */
} idemi_end_t;

/* The transport failed, before or after it was open (was_open). user is NULL
 * for ANONYMOUS; outcome is pn_sasl_outcome(). Fills err with status,
 * condition and message. */
idemi_end_t idemi_end_of_transport(idem_error_t *err, const idemi_url_t *url,
                                   const char *user, bool was_open, int outcome,
                                   pn_condition_t *condition);

/* The peer closed the connection; was_used: a link had been attached. */
idemi_end_t idemi_end_of_connection(idem_error_t *err, const idemi_url_t *url,
                                    const char *user, bool was_used,
                                    pn_condition_t *condition);

/* The peer ended a link or its session; was_up: after it was attached. */
idemi_end_t idemi_end_of_link(idem_error_t *err, const char *address,
                              bool was_up, pn_condition_t *condition);

/* A user's password may not go over this connection. */
void idemi_end_of_trust(idem_error_t *err, const idemi_url_t *url,
                        const char *user);

#endif
