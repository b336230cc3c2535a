/* One part of a measurement, named by the first argument; tests/bench/run
 * starts the servers, runs the parts and verifies what they leave behind. What
 * consumes prints one JSON object at its end. */
#include "bench.h"

#include <argp.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    const char *mode;
    bool waits;
    bench_t bench;
} arguments_t;

enum { KEY_RANDOM = 256, KEY_WAIT };

static const struct argp_option options[] = {
    {"url", 'u', "URL", 0, "of the broker", 0},
    {"dsn", 'd', "DSN", 0, "of the database", 0},
    {"table", 't', "NAME", 0, "of the keys; default idem_message", 0},
    {"address", 'a', "QUEUE", 0, "to consume from, to load or to feed", 0},
    {"count", 'n', "N", 0, "of messages; default 20000", 0},
    {"rate", 'r', "N", 0, "feed, insert: a second; default 1000", 0},
    {"body", 'b', "BYTES", 0, "of a message; default 256", 0},
    {"prefix", 'i', "TEXT", 0, "of the ids; default bench", 0},
    {"random", KEY_RANDOM, NULL, 0, "ids in no order", 0},
    {"prefetch", 'p', "N", 0, "default 1000", 0},
    {"concurrency", 'c', "N", 0, "of handlers; default 1", 0},
    {"connections", 'C', "N", 0, "of the store; default its own", 0},
    {"work", 'w', "US", 0, "microseconds a handler works; default 0", 0},
    {"purge", 'P', "MS", 0, "between purges; default the store's own", 0},
    {"idle", 'I', "MS", 0, "end when nothing comes for so long", 0},
    {"wait", KEY_WAIT, NULL, 0, "begin at a line on standard input", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments_t *a = state->input;
    bench_t *b = &a->bench;
    unsigned long long number = arg ? strtoull(arg, NULL, 10) : 0;

    switch (key) {
    case 'u':
        b->url = arg;
        return 0;
    case 'd':
        b->dsn = arg;
        return 0;
    case 't':
        b->table = arg;
        return 0;
    case 'a':
        b->address = arg;
        return 0;
    case 'n':
        b->count = number;
        return 0;
    case 'r':
        b->rate = strtod(arg, NULL);
        return b->rate > 0 ? 0 : EINVAL;
    case 'b':
        b->body_bytes = (int64_t)number;
        return 0;
    case 'i':
        b->prefix = arg;
        return 0;
    case KEY_RANDOM:
        b->random_ids = true;
        return 0;
    case 'p':
        b->prefetch = (uint32_t)number;
        return 0;
    case 'c':
        b->concurrency = (uint32_t)number;
        return 0;
    case 'C':
        b->connections = (uint32_t)number;
        return 0;
    case 'w':
        b->work_us = (int64_t)number;
        return 0;
    case 'P':
        b->purge_ms = (int64_t)number;
        return 0;
    case 'I':
        b->idle_ms = (int64_t)number;
        return 0;
    case KEY_WAIT:
        a->waits = true;
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

static bool idem_none(bench_t *bench)
{
    return bench_idem(bench, false);
}

static bool idem_lease(bench_t *bench)
{
    return bench_idem(bench, true);
}

static const struct mode {
    const char *name;
    bool (*run)(bench_t *bench);
    bool needs_queue;
    bool needs_database;
    bool consumes;
} modes[] = {
    {"load", bench_load, true, false, false},
    {"feed", bench_feed, true, false, false},
    {"tap", bench_tap, false, false, false},
    {"insert", bench_insert, false, true, false},
    {"raw", bench_raw, true, false, true},
    {"naive", bench_naive, true, true, true},
    {"none", idem_none, true, false, true},
    {"lease", idem_lease, true, true, true},
};

static const struct mode *find(const char *name)
{
    for (size_t i = 0; name && i < sizeof modes / sizeof modes[0]; i++) {
        if (strcmp(name, modes[i].name) == 0) {
            return &modes[i];
        }
    }
    return NULL;
}

/* The most memory this program ever had. (What getrusage() tells may be the
 * parent's from before the exec.) */
static long peak_rss_kb(void)
{
    char line[256];
    long peak_kb = -1;
    FILE *status = fopen("/proc/self/status", "r");

    while (status && fgets(line, sizeof line, status)) {
        if (strncmp(line, "VmHWM:", 6) == 0) {
            peak_kb = strtol(line + 6, NULL, 10);
        }
    }
    if (status) {
        (void)fclose(status);
    }
    return peak_kb;
}

static void print(const bench_t *b)
{
    json_t *object = json_pack(
        "{s:I,s:I,s:f,s:f,s:f,s:I}", "settled", (json_int_t)b->settled,
        "handled", (json_int_t)b->handled, "first", b->first, "last", b->last,
        "cpu", b->cpu, "rss_kb", (json_int_t)peak_rss_kb());

    (void)json_dumpf(object, stdout, JSON_COMPACT);
    (void)printf("\n");
    json_decref(object);
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "load|feed|tap|insert|raw|naive|none|lease",
        "Loads a queue, consumes it in one of four ways, or measures beside "
        "that.",
        NULL,
        NULL,
        NULL};
    arguments_t a = {.bench = {.table = "idem_message",
                               .count = 20000,
                               .rate = 1000,
                               .body_bytes = 256,
                               .prefix = "bench",
                               .prefetch = 1000,
                               .concurrency = 1,
                               .purge_ms = -1}};
    const struct mode *mode;

    (void)argp_parse(&argp, argc, argv, 0, NULL, &a);
    mode = find(a.mode);
    if (!mode || a.bench.count == 0 ||
        strlen(a.bench.prefix) > BENCH_PREFIX_MAX ||
        (mode->run != bench_insert && !a.bench.url) ||
        (mode->needs_queue && !a.bench.address) ||
        (mode->needs_database && !a.bench.dsn)) {
        (void)fprintf(stderr, "bench: a mode and what it needs, please; "
                              "--help lists it\n");
        return EXIT_FAILURE;
    }
    if (a.waits) {
        (void)printf("{}\n");
        (void)fflush(stdout);
        (void)getchar();
    }
    if (!mode->run(&a.bench)) {
        (void)fprintf(stderr, "bench: %s failed\n", a.mode);
        return EXIT_FAILURE;
    }
    if (mode->consumes) {
        print(&a.bench);
    }
    return EXIT_SUCCESS;
}
