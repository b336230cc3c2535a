#ifndef IDEMI_PROTON_LOG_H
#define IDEMI_PROTON_LOG_H

#include "base/log.h"

#include <proton/transport.h>

/* Proton's own log lines of this transport go to our logger, as debug, without
 * logins and message bodies. logger must outlive the transport, or be taken
 * away with NULL. */
void idemi_proton_log(pn_transport_t *transport, const idemi_logger_t *logger);

#endif
