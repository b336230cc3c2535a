#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

idem_status_t idemi_error(idem_error_t *err, idem_status_t status,
                          const char *format, ...)
{
    if (err) {
        va_list args;
        err->status = status;
        err->sqlstate[0] = '\0';
        err->condition[0] = '\0';
        va_start(args, format);
        (void)vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
    }
    return status;
}

const char *idem_status_name(idem_status_t status)
{
    switch (status) {
    case IDEM_OK:
        return "IDEM_OK";
    case IDEM_ERR_ARG:
        return "IDEM_ERR_ARG";
    case IDEM_ERR_STATE:
        return "IDEM_ERR_STATE";
    case IDEM_ERR_MEMORY:
        return "IDEM_ERR_MEMORY";
    case IDEM_ERR_SYSTEM:
        return "IDEM_ERR_SYSTEM";
    case IDEM_ERR_TIMEOUT:
        return "IDEM_ERR_TIMEOUT";
    case IDEM_ERR_STORE_UNAVAILABLE:
        return "IDEM_ERR_STORE_UNAVAILABLE";
    case IDEM_ERR_STORE:
        return "IDEM_ERR_STORE";
    case IDEM_ERR_COMMIT_UNKNOWN:
        return "IDEM_ERR_COMMIT_UNKNOWN";
    case IDEM_ERR_LEASE_LOST:
        return "IDEM_ERR_LEASE_LOST";
    case IDEM_ERR_CONNECTION:
        return "IDEM_ERR_CONNECTION";
    case IDEM_ERR_AUTHENTICATION:
        return "IDEM_ERR_AUTHENTICATION";
    case IDEM_ERR_PERMISSION:
        return "IDEM_ERR_PERMISSION";
    case IDEM_ERR_ADDRESS:
        return "IDEM_ERR_ADDRESS";
    }
    return "unknown status";
}
