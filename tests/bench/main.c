/* One contender, one run; prints one JSON object. tests/bench/run starts the
 * servers, loads the queue and verifies what this leaves behind. */
#include "bench.h"

#include "send.h"

#include <argp.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

typedef struct arguments {
    const char *mode;
    const char *prefix;
    size_t body_bytes;
    uint32_t copies;
    bench_t bench;
} arguments_t;

double bench_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static const struct argp_option options[] = {
    {"url", 'u', "URL", 0, "of the broker", 0},
    {"dsn", 'd', "DSN", 0, "of the database", 0},
    {"table", 't', "NAME", 0, "of the keys", 0},
    {"address", 'a', "QUEUE", 0, "to consume from, or to load", 0},
    {"count", 'n', "N", 0, "of messages", 0},
    {"prefetch", 'p', "N", 0, "default 1000", 0},
    {"concurrency", 'c', "N", 0, "of handlers; default 1", 0},
    {"connections", 'C', "N", 0, "of the store; default its own", 0},
    {"work", 'w', "US", 0, "microseconds a handler works; default 0", 0},
    {"body", 'b', "BYTES", 0, "load: default 256", 0},
    {"prefix", 'i', "TEXT", 0, "load: of the ids; default one of its own", 0},
    {"copies", 'k', "N", 0, "load: of every message; default 1", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments_t *a = state->input;

    switch (key) {
    case 'u':
        a->bench.url = arg;
        return 0;
    case 'd':
        a->bench.dsn = arg;
        return 0;
    case 't':
        a->bench.table = arg;
        return 0;
    case 'a':
        a->bench.address = arg;
        return 0;
    case 'n':
        a->bench.count = strtoull(arg, NULL, 10);
        return 0;
    case 'p':
        a->bench.prefetch = (uint32_t)strtoul(arg, NULL, 10);
        return 0;
    case 'c':
        a->bench.concurrency = (uint32_t)strtoul(arg, NULL, 10);
        return 0;
    case 'C':
        a->bench.connections = (uint32_t)strtoul(arg, NULL, 10);
        return 0;
    case 'w':
        a->bench.work_us = strtoll(arg, NULL, 10);
        return 0;
    case 'b':
        a->body_bytes = strtoul(arg, NULL, 10);
        return 0;
    case 'i':
        a->prefix = arg;
        return 0;
    case 'k':
        a->copies = (uint32_t)strtoul(arg, NULL, 10);
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0) {
            argp_usage(state);
        }
        a->mode = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static char *body;
static char id[64];

static void fill(size_t n, compose_message_t *message, void *user)
{
    const arguments_t *a = user;

    /* As long as the ids of JMS producers: 43 characters. */
    (void)snprintf(id, sizeof id, "ID:%.20s-%019zu", a->prefix,
                   n % (size_t)(a->bench.count / a->copies));
    message->has_header = true;
    message->durable = true;
    message->id.type = COMPOSE_STRING;
    message->id.bytes = id;
    message->body = body;
    message->body_bytes = a->body_bytes;
}

static bool load(arguments_t *a)
{
    body = malloc(a->body_bytes + 1);
    if (!body) {
        return false;
    }
    memset(body, 'x', a->body_bytes);
    bool sent = send_messages(a->bench.url, a->bench.address,
                              (size_t)a->bench.count, fill, a, 600000);
    free(body);
    return sent;
}

static void print(const arguments_t *a)
{
    struct rusage usage;
    const bench_t *b = &a->bench;

    (void)getrusage(RUSAGE_SELF, &usage);
    double cpu =
        (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6 +
        (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6;
    json_t *object = json_pack(
        "{s:s,s:I,s:I,s:f,s:f,s:f,s:I}", "mode", a->mode, "messages",
        (json_int_t)b->count, "handled", (json_int_t)b->handled, "seconds",
        b->seconds, "rate", (double)b->count / b->seconds, "cpu_us_per_message",
        cpu * 1e6 / (double)b->count, "rss_kb", (json_int_t)usage.ru_maxrss);
    (void)json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    (void)printf("\n");
    json_decref(object);
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "load|raw|naive|none|lease",
        "Loads a queue, or consumes it in one of four ways.",
        NULL,
        NULL,
        NULL};
    arguments_t a = {.prefix = "bench",
                     .body_bytes = 256,
                     .copies = 1,
                     .bench = {.table = "idem_message",
                               .prefetch = 1000,
                               .concurrency = 1,
                               .count = 20000}};
    bool done = false;

    (void)argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (!a.mode || !a.bench.url || !a.bench.address || a.copies == 0 ||
        strlen(a.prefix) > 20) {
        (void)fprintf(stderr, "bench: a mode, --url and --address, please\n");
        return EXIT_FAILURE;
    }
    if (strcmp(a.mode, "load") == 0) {
        return load(&a) ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    if (strcmp(a.mode, "raw") == 0) {
        done = bench_raw(&a.bench);
    } else if (strcmp(a.mode, "naive") == 0) {
        done = bench_naive(&a.bench);
    } else if (strcmp(a.mode, "none") == 0) {
        done = bench_idem(&a.bench, false);
    } else if (strcmp(a.mode, "lease") == 0) {
        done = bench_idem(&a.bench, true);
    }
    if (!done) {
        (void)fprintf(stderr, "bench: %s failed\n", a.mode);
        return EXIT_FAILURE;
    }
    print(&a);
    return EXIT_SUCCESS;
}
