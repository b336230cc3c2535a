#ifndef IDEM_IDEM_H
#define IDEM_IDEM_H

#include <idem/client.h>
#include <idem/consumer.h>
#include <idem/delivery.h>
#include <idem/status.h>
#include <idem/store.h>
#include <idem/version.h>

#endif
