#ifndef IDEMI_LOG_H
#define IDEMI_LOG_H

#include <idem/status.h>

#include <stdbool.h>

/* Where one object's log lines go. Copied by value. */
typedef struct idemi_logger {
    idem_log_handler_t handler; /* NULL: nowhere */
    void *user;
    idem_log_level_t level;
} idemi_logger_t;

static inline bool idemi_logs(const idemi_logger_t *logger,
                              idem_log_level_t level)
{
    return logger->handler && level <= logger->level;
}

/* One line: a sentence, then key=value pairs. Never call it under a lock. */
void idemi_log(const idemi_logger_t *logger, idem_log_level_t level,
               const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
