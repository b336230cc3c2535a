#ifndef IDEMI_CLOSE_ON_EXEC_H
#define IDEMI_CLOSE_ON_EXEC_H

#include <stdbool.h>
#include <sys/socket.h>

/* Proton's sockets are inherited by child processes: a child would keep the
 * connection, and with it the prefetched messages, after its parent died. */

/* For the socket that is bound to this local address. */
void idemi_close_on_exec(const struct sockaddr *local, socklen_t size);

/* For fd, where it is a socket connected to this port. */
void idemi_close_on_exec_to(int fd, unsigned port);

#endif
