#ifndef IDEMI_URL_H
#define IDEMI_URL_H

#include <idem/status.h>

#include <stdbool.h>
#include <stddef.h>

/* One broker of a client's list, unescaped. */
typedef struct idemi_url {
    char *user;       /* NULL: none */
    char *password;   /* NULL: none */
    char *host;       /* a name or a numeric address, without brackets */
    char *port;       /* digits */
    bool is_loopback; /* by its name: localhost, 127.0.0.0/8, ::1 */
} idemi_url_t;

/* Parses `url[,url...]`. The message of an error names the entry by its
 * number and never shows a password. */
idem_status_t idemi_urls_parse(idemi_url_t **urls, size_t *count,
                               const char *text, idem_error_t *err);
/* Wipes the passwords, too. */
void idemi_urls_free(idemi_url_t *urls, size_t count);

#endif
