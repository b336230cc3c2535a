/* Stands between a broker and one consumer and times each delivery on the
 * wire: from the last byte of its transfer on the way to the consumer to the
 * disposition that settles it on the way back. Thus every consumer is measured
 * alike, from outside, down to its last socket call. Prints its port, then,
 * when the consumer is gone, percentiles.
 *
 * One session and one link are expected, so that delivery ids count up from 0
 * (AMQP 1.0, section 2.8.7, leaves the start open: Artemis begins there). */
#include "bench.h"

#include "support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <proton/codec.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TRANSFER = 0x14, DISPOSITION = 0x15, READ_BYTES = 65536 };

typedef struct way {
    int from;
    int to;
    char *bytes; /* a frame that is not complete yet */
    size_t size;
    size_t room;
} way_t;

typedef struct tap {
    pn_data_t *data;
    double *received; /* by delivery id; 0: not there, or settled */
    double *seconds;
    uint64_t count;
    uint64_t settled;
    uint32_t delivery; /* whose transfer is under way */
} tap_t;

/* The fields of a performative, up to four. Absent ones are 0. */
static uint64_t read_fields(pn_data_t *data, uint64_t fields[4], size_t *count)
{
    uint64_t descriptor = 0;

    pn_data_rewind(data);
    *count = 0;
    if (!pn_data_next(data) || pn_data_type(data) != PN_DESCRIBED) {
        return 0;
    }
    (void)pn_data_enter(data);
    if (pn_data_next(data) && pn_data_type(data) == PN_ULONG) {
        descriptor = pn_data_get_ulong(data);
    }
    if (!pn_data_next(data) || pn_data_type(data) != PN_LIST) {
        return 0;
    }
    (void)pn_data_enter(data);
    while (*count < 4 && pn_data_next(data)) {
        pn_type_t type = pn_data_type(data);
        fields[*count] = type == PN_UINT   ? pn_data_get_uint(data)
                         : type == PN_BOOL ? pn_data_get_bool(data)
                                           : UINT64_MAX;
        (*count)++;
    }
    return descriptor;
}

static void on_disposition(tap_t *tap, uint64_t first, uint64_t last, double at)
{
    for (uint64_t id = first; id <= last && id < tap->count; id++) {
        if (tap->received[id] > 0) {
            tap->seconds[tap->settled++] = at - tap->received[id];
            tap->received[id] = 0;
        }
    }
}

static void on_frame(tap_t *tap, const char *frame, size_t size,
                     bool from_consumer, double at)
{
    size_t offset = (size_t)(unsigned char)frame[4] * 4;
    uint64_t fields[4] = {0};
    size_t count = 0;

    if (frame[5] != 0 || offset >= size) {
        return; /* SASL, or empty */
    }
    pn_data_clear(tap->data);
    if (pn_data_decode(tap->data, frame + offset, size - offset) < 0) {
        return;
    }
    uint64_t descriptor = read_fields(tap->data, fields, &count);
    if (!from_consumer && descriptor == TRANSFER && count >= 2) {
        /* Only the first frame of a delivery has to name it. */
        if (fields[1] != UINT64_MAX) {
            tap->delivery = (uint32_t)fields[1];
        }
        if (tap->delivery < tap->count) {
            tap->received[tap->delivery] = at;
        }
    } else if (from_consumer && descriptor == DISPOSITION && count >= 2) {
        bool has_last = count >= 3 && fields[2] != UINT64_MAX;
        on_disposition(tap, fields[1], has_last ? fields[2] : fields[1], at);
    }
}

static void look(tap_t *tap, way_t *way, bool from_consumer, double at)
{
    size_t used = 0;

    while (way->size - used >= 8) {
        const char *frame = way->bytes + used;
        uint32_t size = 8; /* of a protocol header */
        if (memcmp(frame, "AMQP", 4) != 0) {
            memcpy(&size, frame, 4);
            size = ntohl(size);
        }
        if (size < 8 || way->size - used < size) {
            break;
        }
        if (memcmp(frame, "AMQP", 4) != 0) {
            on_frame(tap, frame, size, from_consumer, at);
        }
        used += size;
    }
    memmove(way->bytes, way->bytes + used, way->size - used);
    way->size -= used;
}

/* Passes on what has come; false at the end. */
static bool forward(tap_t *tap, way_t *way, bool from_consumer)
{
    if (way->room - way->size < READ_BYTES) {
        char *bytes = realloc(way->bytes, way->room + READ_BYTES);
        if (!bytes) {
            return false;
        }
        way->bytes = bytes;
        way->room += READ_BYTES;
    }
    char *next = way->bytes + way->size;
    ssize_t size = read(way->from, next, READ_BYTES);
    double at = bench_now();
    for (ssize_t sent = 0; sent < size;) {
        ssize_t written = write(way->to, next + sent, (size_t)(size - sent));
        if (written < 0) {
            return false;
        }
        sent += written;
    }
    if (size > 0) {
        way->size += (size_t)size;
        look(tap, way, from_consumer, at);
    }
    return size > 0;
}

static int connect_broker(const char *url)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const char *port = strrchr(url, ':');
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)atoi(port ? port + 1 : ""));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        perror("tap: broker");
        return -1;
    }
    return fd;
}

static void pass(tap_t *tap, int consumer, int broker)
{
    way_t ways[2] = {{.from = consumer, .to = broker},
                     {.from = broker, .to = consumer}};
    struct pollfd fds[2] = {{.fd = consumer, .events = POLLIN},
                            {.fd = broker, .events = POLLIN}};
    bool running = true;

    while (running && poll(fds, 2, -1) > 0) {
        for (int i = 0; i < 2 && running; i++) {
            if (fds[i].revents) {
                running = forward(tap, &ways[i], i == 0);
            }
        }
    }
    free(ways[0].bytes);
    free(ways[1].bytes);
}

bool bench_tap(bench_t *bench)
{
    tap_t tap = {.data = pn_data(64),
                 .received = calloc((size_t)bench->count, sizeof(double)),
                 .seconds = calloc((size_t)bench->count, sizeof(double)),
                 .count = bench->count};
    int port = 0;
    int listener = test_listen(&port);
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    const int on = 1;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)printf("{\"port\":%d}\n", port);
    (void)fflush(stdout);
    (void)poll(&ready, 1, 60000);
    int consumer = accept(listener, NULL, NULL);
    int broker = consumer < 0 ? -1 : connect_broker(bench->url);
    if (tap.received && tap.seconds && broker >= 0) {
        (void)setsockopt(consumer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        pass(&tap, consumer, broker);
    }
    bool done = tap.settled == bench->count;
    if (done) {
        bench_print_percentiles(tap.seconds, (size_t)tap.settled);
    } else {
        (void)fprintf(stderr, "tap: %llu of %llu deliveries settled\n",
                      (unsigned long long)tap.settled,
                      (unsigned long long)bench->count);
    }
    (void)close(consumer);
    (void)close(broker);
    (void)close(listener);
    pn_data_free(tap.data);
    free(tap.received);
    free(tap.seconds);
    return done;
}
