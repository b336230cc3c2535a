#include <idem/idem.h>

#include <stdio.h>

int main(void)
{
    return puts(idem_version()) < 0;
}
