#ifndef IDEM_STATUS_H
#define IDEM_STATUS_H

#include <idem/export.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Wait without a limit, wherever a time limit in milliseconds is asked for. */
#define IDEM_WAIT_FOREVER INT64_C(-1)

/**
 * What a call came to. Statuses are told apart by what to do next.
 */
typedef enum idem_status {
    IDEM_OK = 0,
    /** An argument or an option is wrong: mend the call. The message names the
     * field, its value and the remedy. */
    IDEM_ERR_ARG,
    /** The call does not fit the object's state or the calling thread. */
    IDEM_ERR_STATE,
    /** Out of memory. Nothing was changed. */
    IDEM_ERR_MEMORY,
    /** The operating system refused a thread, a descriptor or the like. */
    IDEM_ERR_SYSTEM,
    /** The time limit passed. Nothing is lost; the call says what goes on. */
    IDEM_ERR_TIMEOUT,
    /** The store cannot be reached at present: try again later. */
    IDEM_ERR_STORE_UNAVAILABLE,
    /** The store refuses for good: a wrong table, missing rights, a failing
     * constraint. Mend the database; sqlstate tells the class. */
    IDEM_ERR_STORE,
    /** A COMMIT was sent and its answer was lost. Repeat the same call with the
     * same claim: every operation of a store settles the question by token. */
    IDEM_ERR_COMMIT_UNKNOWN,
    /** The claim is no longer ours: it expired and another owner took the key
     * over. Do not report the work as done. */
    IDEM_ERR_LEASE_LOST,
    /** The broker cannot be reached or ended the connection. */
    IDEM_ERR_CONNECTION,
    /** The broker refused the credentials, or asks for others. */
    IDEM_ERR_AUTHENTICATION,
    /** The broker knows the user but does not allow the operation. */
    IDEM_ERR_PERMISSION,
    /** The address does not exist at the broker, or has another routing. */
    IDEM_ERR_ADDRESS
} idem_status_t;

/** Bytes of idem_error_t::message, with its NUL. */
#define IDEM_ERROR_MESSAGE_BYTES 512

/**
 * The detail behind a status. The caller owns it; its layout is fixed and no
 * call allocates for it. Written only by a call that does not return IDEM_OK.
 */
typedef struct idem_error {
    idem_status_t status;
    /** SQLSTATE of a database error (PostgreSQL, appendix A), else "". */
    char sqlstate[6];
    /** AMQP error condition (AMQP 1.0, section 2.8.14 on), else "". */
    char condition[96];
    /** One sentence for a human: what is wrong and what to do about it. */
    char message[IDEM_ERROR_MESSAGE_BYTES];
} idem_error_t;

/**
 * The name of a status, such as "IDEM_ERR_TIMEOUT".
 *
 * Threads:   any.
 * Ownership: a constant string; never NULL.
 */
IDEM_API const char *idem_status_name(idem_status_t status);

/**
 * The library's version, such as "0.1.0".
 *
 * Threads:   any.
 * Ownership: a constant string.
 */
IDEM_API const char *idem_version(void);

/** How much a log line matters; a logger takes its level and those above. */
typedef enum idem_log_level {
    IDEM_LOG_OFF = 0,
    IDEM_LOG_ERROR,   /**< needs a human: idem cannot go on by itself */
    IDEM_LOG_WARNING, /**< something was lost, refused or is unavailable */
    IDEM_LOG_INFO,    /**< state changes: connected, attached, stopped */
    IDEM_LOG_DEBUG    /**< single deliveries and retries */
} idem_log_level_t;

/**
 * Receives log lines.
 *
 * Threads:   any thread of the library, several at once; no lock is held.
 * Blocks:    should not: the caller may be the I/O thread.
 * Ownership: message is valid until the callback returns. It is one line
 *            without a newline: a sentence, then key=value pairs. Passwords
 *            and message bodies never appear in it.
 */
typedef void (*idem_log_handler_t)(void *user, idem_log_level_t level,
                                   const char *message);

/** A log handler that writes to standard error; user is ignored. */
IDEM_API void idem_log_to_stderr(void *user, idem_log_level_t level,
                                 const char *message);

#ifdef __cplusplus
}
#endif

#endif
