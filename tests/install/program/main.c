#include <idem/idem.h>

#include <stdio.h>

int main(void)
{
    /* Brings in what idem itself is linked with. */
    idem_client_destroy(NULL);
    idem_store_destroy(NULL);
    return puts(idem_version()) < 0;
}
