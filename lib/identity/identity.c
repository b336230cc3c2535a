#include "identity/identity.h"

#include "identity/utf8.h"

#include <openssl/evp.h>

#include <assert.h>
#include <stdint.h>
#include <string.h>

#define HASH_BYTES 32
#define HASH_DIGITS 64

/* An id as text: a prefix, then bytes as they are or as hex digits. Nothing is
 * copied, since an id can be as long as a message. */
typedef struct text {
    const char *prefix;
    const uint8_t *bytes;
    size_t size;
    bool is_hex;
} text_t;

static size_t append(char *out, size_t size, const void *bytes, size_t count)
{
    if (count > 0) {
        memcpy(out + size, bytes, count);
    }
    return size + count;
}

static size_t append_string(char *out, size_t size, const char *string)
{
    return append(out, size, string, strlen(string));
}

static size_t append_hex(char *out, size_t size, const uint8_t *bytes,
                         size_t count, const char digits[17])
{
    for (size_t i = 0; i < count; i++) {
        out[size++] = digits[bytes[i] >> 4];
        out[size++] = digits[bytes[i] & 0x0f];
    }
    return size;
}

static const char upper[17] = "0123456789ABCDEF";
static const char lower[17] = "0123456789abcdef";

/* Appends HASH_DIGITS digits: the SHA-256 of a tag and the bytes. */
static bool append_hash(char *out, size_t *size, char tag, const void *bytes,
                        size_t count)
{
    uint8_t hash[HASH_BYTES];
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool done = context != NULL &&
                EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1 &&
                EVP_DigestUpdate(context, &tag, 1) == 1 &&
                EVP_DigestUpdate(context, bytes, count) == 1 &&
                EVP_DigestFinal_ex(context, hash, NULL) == 1;

    EVP_MD_CTX_free(context);
    if (done) {
        *size = append_hex(out, *size, hash, HASH_BYTES, lower);
    }
    return done;
}

bool idemi_scope_init(idemi_scope_t *scope, const char *name)
{
    /* What of a long scope stands before its hash. */
    const size_t head_max = IDEMI_SCOPE_MAX - 2 - HASH_DIGITS - 1;
    size_t left = name != NULL ? strlen(name) : 0;
    const char *at = name;
    size_t size = 0;
    size_t head = 0;

    while (left > 0) {
        size_t step = idemi_utf8_character(at, left);
        bool is_kept = step > 0 && *at != '/' && *at != '%';
        size_t width = is_kept ? step : 3;

        if (size + width > IDEMI_SCOPE_MAX - 1) {
            size = append_string(scope->text, head, "%_");
            if (!append_hash(scope->text, &size, 'n', name, strlen(name))) {
                return false;
            }
            break;
        }
        if (is_kept) {
            size = append(scope->text, size, at, step);
        } else {
            step = 1;
            scope->text[size] = '%';
            size = append_hex(scope->text, size + 1, (const uint8_t *)at, 1,
                              upper);
        }
        head = size <= head_max ? size : head;
        at += step;
        left -= step;
    }
    if (size > 0) {
        scope->text[size++] = '/';
    }
    scope->size = size;
    return true;
}

static bool begins(const uint8_t *bytes, size_t size, const char *prefix)
{
    size_t prefix_size = strlen(prefix);

    return size >= prefix_size && memcmp(bytes, prefix, prefix_size) == 0;
}

/* Whether a string begins like a form that is not a string's own. */
static bool needs_escape(const uint8_t *bytes, size_t size)
{
    if (!begins(bytes, size, "ID:")) {
        return false;
    }
    return begins(bytes, size, "ID:AMQP_BINARY:") ||
           begins(bytes, size, "ID:AMQP_UUID:") ||
           begins(bytes, size, "ID:AMQP_ULONG:") ||
           begins(bytes, size, "ID:AMQP_STRING:") ||
           begins(bytes, size, "ID:AMQP_NO_PREFIX:") ||
           begins(bytes, size, "ID:IDEM_");
}

static text_t string_text(const uint8_t *bytes, size_t size)
{
    text_t text = {.prefix = "", .bytes = bytes, .size = size};

    if (!idemi_utf8_is_text(bytes, size)) {
        text.prefix = "ID:IDEM_HEX:";
        text.is_hex = true;
    } else if (needs_escape(bytes, size)) {
        text.prefix = "ID:AMQP_STRING:";
    }
    return text;
}

static text_t uuid_text(const uint8_t *uuid, char room[36])
{
    static const size_t groups[] = {4, 2, 2, 2, 6};
    size_t size = 0;

    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        if (i > 0) {
            room[size++] = '-';
        }
        size = append_hex(room, size, uuid, groups[i], lower);
        uuid += groups[i];
    }
    return (text_t){.prefix = "ID:AMQP_UUID:",
                    .bytes = (const uint8_t *)room,
                    .size = size};
}

static text_t ulong_text(uint64_t number, char room[36])
{
    char *at = room + 36;

    do {
        *--at = upper[number % 10];
        number /= 10;
    } while (number > 0);
    return (text_t){.prefix = "ID:AMQP_ULONG:",
                    .bytes = (const uint8_t *)at,
                    .size = (size_t)(room + 36 - at)};
}

/* The start of the text that fits the room, without half a character. */
static size_t append_head(char *out, size_t size, const text_t *text,
                          size_t room)
{
    size_t prefix_size = strlen(text->prefix);
    size_t count = text->size;

    assert(prefix_size < room);
    size = append_string(out, size, text->prefix);
    room -= prefix_size;
    if (text->is_hex) {
        count = count < room / 2 ? count : room / 2;
        return append_hex(out, size, text->bytes, count, upper);
    }
    if (count > room) {
        count = room;
        while (count > 0 && (text->bytes[count] & 0xc0) == 0x80) {
            count--;
        }
    }
    return append(out, size, text->bytes, count);
}

/* Tells the types apart in the hash of a long id; stored, so never changed. */
static char hash_tag(idemi_id_type_t type)
{
    return type == IDEMI_ID_BINARY ? 'b' : 's';
}

static idemi_identity_t write_key(const idemi_scope_t *scope,
                                  const idemi_id_t *id, char *key,
                                  size_t *key_size)
{
    char room[36];
    char out[IDEMI_KEY_MAX + 1];
    size_t size = append(out, 0, scope->text, scope->size);
    text_t text;

    switch (id->type) {
    case IDEMI_ID_STRING:
        text = string_text(id->bytes.data, id->bytes.size);
        break;
    case IDEMI_ID_BINARY:
        text = (text_t){.prefix = "ID:AMQP_BINARY:",
                        .bytes = id->bytes.data,
                        .size = id->bytes.size,
                        .is_hex = true};
        break;
    case IDEMI_ID_UUID:
        text = uuid_text(id->bytes.data, room);
        break;
    default:
        assert(id->type == IDEMI_ID_ULONG);
        text = ulong_text(id->number, room);
        break;
    }
    /* Only a message's own bytes can be too many, and they fill less than
     * half of the address space, so that the doubling does not overflow. */
    size_t width = strlen(text.prefix) + text.size * (text.is_hex ? 2 : 1);
    if (width > IDEMI_KEY_MAX - size) {
        size = append_string(out, size, "ID:IDEM_SHA256:");
        if (!append_hash(out, &size, hash_tag(id->type), id->bytes.data,
                         id->bytes.size)) {
            return IDEMI_IDENTITY_FAILED;
        }
        out[size++] = ':';
    }
    size = append_head(out, size, &text, IDEMI_KEY_MAX - size);
    out[size] = '\0';
    memcpy(key, out, size + 1);
    *key_size = size;
    return IDEMI_IDENTITY_KEY;
}

/* Whether it can name a message. */
static bool is_id(const idemi_id_t *id)
{
    switch (id->type) {
    case IDEMI_ID_STRING:
    case IDEMI_ID_BINARY:
        return id->bytes.size > 0;
    case IDEMI_ID_ULONG:
    case IDEMI_ID_UUID:
        return true;
    default:
        return false;
    }
}

idemi_identity_t idemi_identity_key(const idemi_scope_t *scope,
                                    idem_id_source_t source,
                                    const idemi_walk_t *walk,
                                    char key[IDEMI_KEY_MAX + 1],
                                    size_t *key_size)
{
    bool is_duplicate_first =
        source == IDEM_ID_DUPLICATE_FIRST || source == IDEM_ID_DUPLICATE_ONLY;
    bool is_only =
        source == IDEM_ID_MESSAGE_ONLY || source == IDEM_ID_DUPLICATE_ONLY;
    const idemi_id_t *first =
        is_duplicate_first ? &walk->duplicate_id : &walk->message_id;
    const idemi_id_t *second =
        is_duplicate_first ? &walk->message_id : &walk->duplicate_id;

    if (is_id(first)) {
        return write_key(scope, first, key, key_size);
    }
    if (!is_only && is_id(second)) {
        return write_key(scope, second, key, key_size);
    }
    if (first->type == IDEMI_ID_OTHER ||
        (!is_only && second->type == IDEMI_ID_OTHER)) {
        return IDEMI_IDENTITY_OTHER_TYPE;
    }
    return IDEMI_IDENTITY_NONE;
}

idemi_identity_t idemi_identity_key_from(const idemi_scope_t *scope,
                                         const void *id, size_t size,
                                         char key[IDEMI_KEY_MAX + 1],
                                         size_t *key_size)
{
    idemi_id_t string = {.type = IDEMI_ID_STRING,
                         .bytes = {.data = id, .size = size}};

    if (size == 0) {
        return IDEMI_IDENTITY_NONE;
    }
    return write_key(scope, &string, key, key_size);
}
