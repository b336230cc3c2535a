#include <idem/version.h>

const char *idem_version(void)
{
    return IDEM_VERSION;
}
