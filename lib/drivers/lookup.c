#include "drivers/lookup.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/types.h>

const char *idemi_lookup(char address[IDEMI_LOOKUP_BYTES], const char *host,
                         size_t turn)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int error = getaddrinfo(host, NULL, &hints, &list);
    size_t count = 0;

    if (error != 0) {
        return gai_strerror(error);
    }
    /* There is at least one. */
    const struct addrinfo *chosen = list;
    do {
        count++;
    } while ((chosen = chosen->ai_next));
    chosen = list;
    for (size_t i = turn % count; i > 0; i--) {
        chosen = chosen->ai_next;
    }
    error = getnameinfo(chosen->ai_addr, chosen->ai_addrlen, address,
                        IDEMI_LOOKUP_BYTES, NULL, 0, NI_NUMERICHOST);
    freeaddrinfo(list);
    return error != 0 ? gai_strerror(error) : NULL;
}
