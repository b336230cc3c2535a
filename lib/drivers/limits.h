#ifndef IDEMI_LIMITS_H
#define IDEMI_LIMITS_H

/* What the open frame says. Without a limit of its own Proton takes frames of
 * any size. */
#define IDEMI_MAX_FRAME_BYTES 65536

/* A connection or link that lasted this long has worked: the next pause is
 * the shortest one again, as it is after a delivery. */
#define IDEMI_STABLE_MS 10000

/* How long our close, end or detach waits for its answer. */
#define IDEMI_CLOSE_MS 2000

/* How long a stop waits for the answer to its drain. */
#define IDEMI_DRAIN_MS 2000

/* How often a connection that is open is looked after. */
#define IDEMI_WATCH_MS 1000

#endif
