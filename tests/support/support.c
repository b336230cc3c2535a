#include "support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOOK_EVERY_MS = 5, VALUES_MAX = 32 };

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
