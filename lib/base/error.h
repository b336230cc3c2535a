#ifndef IDEMI_ERROR_H
#define IDEMI_ERROR_H

#include <idem/status.h>

/* Fills err, which may be NULL, and returns status, so that a failing function
 * can end with `return idemi_error(err, ...)`. Clears sqlstate and condition.
 */
idem_status_t idemi_error(idem_error_t *err, idem_status_t status,
                          const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
