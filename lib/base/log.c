#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

/* A longer line is cut: no allocation stands between an error and its log. */
#define LINE_BYTES 1024

void idemi_log(const idemi_logger_t *logger, idem_log_level_t level,
               const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;

    if (!idemi_logs(logger, level)) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    /* Text from a peer or a database may hold line breaks. */
    for (char *c = line; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = ' ';
        }
    }
    logger->handler(logger->user, level, line);
}

void idem_log_to_stderr(void *user, idem_log_level_t level, const char *message)
{
    static const char *const names[] = {"off", "error", "warning", "info",
                                        "debug"};
    struct timespec now;
    struct tm utc;
    char stamp[32] = "";

    (void)user;
    if (level < IDEM_LOG_OFF || level > IDEM_LOG_DEBUG) {
        level = IDEM_LOG_DEBUG;
    }
    if (clock_gettime(CLOCK_REALTIME, &now) == 0 &&
        gmtime_r(&now.tv_sec, &utc)) {
        (void)strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
        (void)fprintf(stderr, "%s.%03ldZ idem %s: %s\n", stamp,
                      now.tv_nsec / 1000000, names[level], message);
    }
}
