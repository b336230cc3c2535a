#include "support.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_EVERY_MS = 5,
    VALUES_MAX = 32,
    BACKLOG = 64,
    PORT_FIRST = 20000,
    PORT_COUNT = 12000,
    PORT_TRIES = 200
};

int test_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);

    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Values read from the file, kept since callers keep pointers to them. */
static char *values[VALUES_MAX];
static size_t values_count;

static const char *remember(const char *value)
{
    char *copy = strdup(value);

    ck_assert_ptr_nonnull(copy);
    ck_assert_uint_lt(values_count, VALUES_MAX);
    values[values_count++] = copy;
    return copy;
}

const char *test_env(const char *name)
{
    const char *value = getenv(name);
    const char *path = getenv("IDEM_TEST_ENV");
    const char *found = NULL;
    char line[1024];
    FILE *file = NULL;
    size_t length = strlen(name);

    if (value != NULL && value[0] != '\0') {
        return value;
    }
    ck_assert_msg(path != NULL, "neither %s nor IDEM_TEST_ENV is set", name);
    file = fopen(path, "re");
    ck_assert_msg(file != NULL, "cannot read %s: are the servers up?", path);
    while (found == NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, name, length) == 0 && line[length] == '=') {
            found = remember(line + length + 1);
        }
    }
    fclose(file);
    ck_assert_msg(found != NULL, "%s is not in %s", name, path);
    return found;
}

void test_expect_words(const char *text, const char *first, const char *second)
{
    ck_assert_msg(strstr(text, first) != NULL, "no '%s' in: %s", first, text);
    ck_assert_msg(strstr(text, second) != NULL, "no '%s' in: %s", second, text);
}

int64_t test_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t test_scaled_ms(int64_t timeout_ms)
{
    const char *text = getenv("CK_TIMEOUT_MULTIPLIER");
    double factor = text != NULL ? strtod(text, NULL) : 1.0;

    return (int64_t)((double)timeout_ms * (factor > 0.0 ? factor : 1.0));
}

bool test_wait(bool (*condition)(void *user), void *user, int64_t timeout_ms)
{
    const struct timespec pause = {0, LOOK_EVERY_MS * 1000000L};
    int64_t end = test_now_ms() + test_scaled_ms(timeout_ms);
    bool holds = condition(user);

    while (!holds && test_now_ms() < end) {
        nanosleep(&pause, NULL);
        holds = condition(user);
    }
    return holds;
}

char *test_unique(char *name, size_t size, const char *prefix)
{
    static atomic_uint count;
    struct timespec now;

    /* The process and its clock differ between tests, the count within. */
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(name, size, "%s_%lx_%lx_%u", prefix, (long)getpid(),
             (long)(now.tv_sec % 1000000) * 1000 + now.tv_nsec / 1000000,
             atomic_fetch_add(&count, 1U));
    return name;
}

bool test_thread_start(pthread_t *thread, void *(*run)(void *user), void *user)
{
    sigset_t all;
    sigset_t before;
    bool is_started = false;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    is_started = pthread_create(thread, NULL, run, user) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_started;
}

static bool bind_to(int fd, int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)port);
    return bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
           listen(fd, BACKLOG) == 0;
}

static int guess_port(void)
{
    static atomic_uint count;
    struct timespec now;
    uint64_t mixed = 0;

    clock_gettime(CLOCK_MONOTONIC, &now);
    mixed = ((uint64_t)now.tv_nsec ^ ((uint64_t)getpid() << 20)) +
            atomic_fetch_add(&count, 1U);
    mixed *= 0x9e3779b97f4a7c15U; /* Fibonacci hashing */
    return PORT_FIRST + (int)((mixed >> 33) % PORT_COUNT);
}

int test_listen(int *port)
{
    const int on = 1;
    int fd = -1;
    int tries = *port != 0 ? 1 : PORT_TRIES;

    for (int i = 0; i < tries; i++) {
        int wanted = *port != 0 ? *port : guess_port();

        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0) {
            break;
        }
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind_to(fd, wanted)) {
            *port = wanted;
            return fd;
        }
        close(fd);
    }
    perror("test_listen");
    return -1;
}
