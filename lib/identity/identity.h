#ifndef IDEMI_IDENTITY_H
#define IDEMI_IDENTITY_H

#include "identity/walk.h"

#include <idem/consumer.h>

#include <stdbool.h>
#include <stddef.h>

/* The key of a message: scope and id as text, for a column of 255 characters
 * that compares byte for byte.
 *
 *     key   = [scope "/"] text
 *     text  = the string itself
 *           | "ID:AMQP_UUID:"   8-4-4-4-12 lower-case hex digits
 *           | "ID:AMQP_ULONG:"  decimal
 *           | "ID:AMQP_BINARY:" upper-case hex digits
 *           | "ID:AMQP_STRING:" a string that begins like one of these forms
 *           | "ID:IDEM_HEX:"    upper-case hex digits of a string that is no
 *                               text: not UTF-8, or with a NUL inside
 *           | "ID:IDEM_SHA256:" 64 digits ":" what fits of the text, for a
 *                               key that would be longer than 255 bytes
 *
 * The first five are the AMQP-JMS mapping's (JMSCorrelationID, section
 * 3.2.1.1), the last two ours. Text can be read back, so two different ids of
 * one scope have two texts: a string that begins with any of these forms, or
 * with "ID:AMQP_NO_PREFIX:", is written with "ID:AMQP_STRING:" before it,
 * however much it looks like another's. The hash is over type and bytes of the
 * whole id.
 *
 * The scope ends at the first "/" of a key, since in the scope itself that
 * byte is written "%2F", "%" is "%25", and a byte that is no UTF-8 is "%" and
 * its two digits. So scope "a" with id "b/c" is "a/b/c", and scope "a/b" with
 * id "c" is "a%2Fb/c". The scope "" leaves the id alone; what such a consumer
 * sees as "a/b" is the key of "b" in scope "a". A table that is shared by bare
 * ids is for bare ids only.
 *
 * These forms are stored: they never change. */

#define IDEMI_KEY_MAX 255
#define IDEMI_SCOPE_MAX 128

typedef enum idemi_identity {
    IDEMI_IDENTITY_KEY,        /* the key was written */
    IDEMI_IDENTITY_NONE,       /* the message has no id */
    IDEMI_IDENTITY_OTHER_TYPE, /* nor has it, but something in an id's place */
    IDEMI_IDENTITY_FAILED      /* no memory for the hash of a long id */
} idemi_identity_t;

/* The scope as it stands in keys, with its "/". */
typedef struct idemi_scope {
    char text[IDEMI_SCOPE_MAX];
    size_t size;
} idemi_scope_t;

/**
 * Prepare the scope of a consumer, once.
 *
 * Any name will do. One that fills more than IDEMI_SCOPE_MAX bytes becomes its
 * beginning, "%_" and its SHA-256.
 *
 * @param name  NULL is as ""
 *
 * @return false when there is no memory for the hash of a long name
 */
bool idemi_scope_init(idemi_scope_t *scope, const char *name);

/**
 * The key of a message that was walked.
 *
 * An empty id, and one of a type that is no id, count as none: the next source
 * is asked. Both sources name the message in one namespace: a message-id and
 * a _AMQ_DUPL_ID of the same type and bytes have the same key.
 *
 * @param key       gets at most IDEMI_KEY_MAX bytes of UTF-8 without a NUL
 *                  inside, and a NUL after them
 * @param key_size  its size without that NUL
 *
 * Both are written only for IDEMI_IDENTITY_KEY.
 */
idemi_identity_t idemi_identity_key(const idemi_scope_t *scope,
                                    idem_id_source_t source,
                                    const idemi_walk_t *walk,
                                    char key[IDEMI_KEY_MAX + 1],
                                    size_t *key_size);

/**
 * The key for an id that the user's own function supplied.
 *
 * The bytes are taken as a string id: UTF-8 text stays itself, anything else
 * is encoded, no bytes are no id.
 */
idemi_identity_t idemi_identity_key_from(const idemi_scope_t *scope,
                                         const void *id, size_t size,
                                         char key[IDEMI_KEY_MAX + 1],
                                         size_t *key_size);

#endif
