#include "drivers/close_on_exec.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

static void set(int fd)
{
    int flags = fcntl(fd, F_GETFD);

    if (flags >= 0) {
        (void)fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
    }
}

static unsigned port_of(const struct sockaddr_storage *address)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;

    if (address->ss_family == AF_INET) {
        memcpy(&four, address, sizeof four);
        return ntohs(four.sin_port);
    }
    if (address->ss_family == AF_INET6) {
        memcpy(&six, address, sizeof six);
        return ntohs(six.sin6_port);
    }
    return 0;
}

/* Proton tells no descriptor, so the socket is found by its address among all
 * that are open; without /proc it is left as it is. */
void idemi_close_on_exec(const struct sockaddr *local, socklen_t size)
{
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;

    /* Safe as long as no two threads share the folder (POSIX.1-2024). */
    /* NOLINTNEXTLINE(concurrency-mt-unsafe) */
    while (folder && (entry = readdir(folder))) {
        struct sockaddr_storage address = {0};
        socklen_t length = sizeof address;
        char *end = NULL;
        long fd = strtol(entry->d_name, &end, 10);

        if (end != entry->d_name && *end == '\0' &&
            getsockname((int)fd, (struct sockaddr *)&address, &length) == 0 &&
            length == size && memcmp(&address, local, size) == 0) {
            set((int)fd);
        }
    }
    if (folder) {
        (void)closedir(folder);
    }
}

void idemi_close_on_exec_to(int fd, unsigned port)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;

    if (getpeername(fd, (struct sockaddr *)&address, &length) == 0 &&
        port_of(&address) == port) {
        set(fd);
    }
}
