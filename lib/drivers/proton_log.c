#include "drivers/proton_log.h"

#include <proton/logger.h>

#include <string.h>

/* PN_LOG and PN_TRACE_FRM in the environment of any program switch Proton's
 * frame log on, and its lines show the initial response of SASL PLAIN, which
 * is the password, and the payload of transfers. */
static void sink(intptr_t context, pn_log_subsystem_t subsystem,
                 pn_log_level_t level, const char *message)
{
    const idemi_logger_t *logger = (const idemi_logger_t *)context;
    size_t shown = strlen(message);

    (void)subsystem;
    if (!logger || (level & PN_LEVEL_RAW) || strstr(message, "@sasl-init") ||
        strstr(message, "@sasl-response")) {
        return;
    }
    const char *transfer = strstr(message, "@transfer");
    const char *payload = transfer ? strstr(transfer, "] (") : NULL;
    if (payload) {
        shown = (size_t)(payload - message) + 1;
    }
    idemi_log(logger, IDEM_LOG_DEBUG, "proton: %.*s",
              (int)(shown < 900 ? shown : 900), message);
}

void idemi_proton_log(pn_transport_t *transport, const idemi_logger_t *logger)
{
    pn_logger_set_log_sink(pn_transport_logger(transport), sink,
                           (intptr_t)logger);
}
