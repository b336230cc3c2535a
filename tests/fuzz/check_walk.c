#include "check_walk.h"

#include "identity/identity.h"
#include "identity/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "check_walk: %s\n", what);
        abort();
    }
}

static void check_span(idemi_span_t span, const uint8_t *data, size_t size)
{
    if (span.data == NULL) {
        require(span.size == 0, "bytes at NULL");
        return;
    }
    require(span.data >= data && span.data <= data + size,
            "a span starts outside of the message");
    require(span.size <= (size_t)(data + size - span.data),
            "a span ends outside of the message");
}

static void check_key(const idemi_walk_t *walk, idem_id_source_t source)
{
    char key[IDEMI_KEY_MAX + 1];
    char again[IDEMI_KEY_MAX + 1];
    size_t key_size = 0;
    size_t again_size = 0;
    idemi_scope_t scope;

    require(idemi_scope_init(&scope, "fuzz"), "no scope");
    idemi_identity_t identity =
        idemi_identity_key(&scope, source, walk, key, &key_size);
    require(identity != IDEMI_IDENTITY_FAILED, "no hash");
    if (identity != IDEMI_IDENTITY_KEY) {
        return;
    }
    require(key_size > 5 && key_size <= IDEMI_KEY_MAX, "the key's size");
    require(strlen(key) == key_size, "a NUL in the key");
    require(memcmp(key, "fuzz/", 5) == 0, "the key's scope");
    require(idemi_utf8_is_text(key, key_size), "the key is no text");
    idemi_identity_key(&scope, source, walk, again, &again_size);
    require(again_size == key_size && memcmp(again, key, key_size) == 0,
            "one id with two keys");
}

bool check_walk(const uint8_t *data, size_t size)
{
    idemi_walk_t walk;

    if (!idemi_walk(data, size, &walk)) {
        require(walk.problem != NULL, "refused without a word");
        return false;
    }
    require(walk.problem == NULL, "passed with a problem");
    check_span(walk.message_id.bytes, data, size);
    check_span(walk.duplicate_id.bytes, data, size);
    check_span(walk.group_id, data, size);
    check_span(walk.traceparent, data, size);
    check_span(walk.bare, data, size);
    require(walk.bare.size > 0, "a message of nothing");
    require(walk.values <= 3 * size, "more values than bytes allow");
    for (unsigned source = 0; source < 4; source++) {
        check_key(&walk, (idem_id_source_t)source);
    }

    /* The bare message is a message, with the same ids. */
    idemi_walk_t bare;
    require(idemi_walk(walk.bare.data, walk.bare.size, &bare),
            "the bare message is none");
    require(bare.message_id.bytes.data == walk.message_id.bytes.data &&
                bare.message_id.type == walk.message_id.type &&
                bare.duplicate_id.bytes.data == walk.duplicate_id.bytes.data &&
                bare.duplicate_id.type == walk.duplicate_id.type &&
                bare.bare.size == walk.bare.size,
            "the bare message is another");
    return true;
}
