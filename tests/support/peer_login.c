#include "peer_internal.h"

#include <stdio.h>
#include <string.h>

/* AMQP 1.0 part 5.3: protocol id 3 is the SASL layer, 0 is AMQP itself. */
static const char sasl_header[8] = {'A', 'M', 'Q', 'P', 3, 1, 0, 0};
static const char amqp_header[8] = {'A', 'M', 'Q', 'P', 0, 1, 0, 0};

enum {
    OUTCOME_OK = 0,
    OUTCOME_AUTH = 1,
    FRAME_HEADER = 8,
    MECHANISM_MAX = 64,
    USER_MAX = 256
};

static size_t big_endian32(const unsigned char *p)
{
    return (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
}

static void send_frame(connection_t *connection, const unsigned char *body,
                       size_t size)
{
    size_t total = FRAME_HEADER + size;
    const unsigned char header[FRAME_HEADER] = {
        (unsigned char)(total >> 24),
        (unsigned char)(total >> 16),
        (unsigned char)(total >> 8),
        (unsigned char)total,
        2,
        1,
        0,
        0,
    };

    connection_append(connection, header, sizeof header);
    connection_append(connection, body, size);
}

static const char *mechanisms(const peer_options_t *options)
{
    if (options->mechanisms != NULL) {
        return options->mechanisms;
    }
    return options->user != NULL ? "PLAIN" : "ANONYMOUS";
}

/* sasl-mechanisms (0x40) with an array8 of sym8. */
static void send_mechanisms(connection_t *connection)
{
    const char *text = mechanisms(&connection->peer->options);
    unsigned char body[256] = {0x00, 0x53, 0x40, 0xc0, 0, 1, 0xe0, 0, 0, 0xa3};
    size_t size = 10;
    unsigned char count = 0;

    while (*text != '\0') {
        size_t length = strcspn(text, " ");
        if (size + 1 + length > sizeof body) {
            break;
        }
        body[size++] = (unsigned char)length;
        memcpy(body + size, text, length);
        size += length;
        count++;
        text += length + strspn(text + length, " ");
    }
    body[8] = count;
    body[7] = (unsigned char)(size - 8);
    body[4] = (unsigned char)(size - 5);
    send_frame(connection, body, size);
}

static void send_outcome(connection_t *connection, int code)
{
    const unsigned char body[] = {0x00, 0x53, 0x44, 0xc0,
                                  3,    1,    0x50, (unsigned char)code};

    send_frame(connection, body, sizeof body);
}

/* One binary or symbol of sasl-init at *at; false when there is none. */
static bool next_bytes(const unsigned char *frame, size_t size, size_t *at,
                       const unsigned char **bytes, size_t *length)
{
    size_t head = 0;

    if (*at >= size) {
        return false;
    }
    switch (frame[*at]) {
    case 0xa0:
    case 0xa3:
        head = 2;
        *length = *at + 2 <= size ? frame[*at + 1] : size;
        break;
    case 0xb0:
    case 0xb3:
        head = 5;
        *length = *at + 5 <= size ? big_endian32(frame + *at + 1) : size;
        break;
    default:
        return false;
    }
    if (*length > size - *at || head > size - *at - *length) {
        return false;
    }
    *bytes = frame + *at + head;
    *at += head + *length;
    return true;
}

/* PLAIN is authzid NUL user NUL password. */
static int check_plain(const peer_options_t *options,
                       const unsigned char *response, size_t length,
                       char user[USER_MAX])
{
    const unsigned char *end = response + length;
    const unsigned char *name = memchr(response, 0, length);
    const unsigned char *secret = NULL;
    const char *password = options->password != NULL ? options->password : "";

    if (name != NULL) {
        name++;
        secret = memchr(name, 0, (size_t)(end - name));
    }
    if (secret == NULL) {
        return OUTCOME_AUTH;
    }
    secret++;
    snprintf(user, USER_MAX, "%.*s", (int)(secret - 1 - name),
             (const char *)name);
    if (options->user == NULL || strcmp(user, options->user) != 0 ||
        (size_t)(end - secret) != strlen(password) ||
        memcmp(secret, password, strlen(password)) != 0) {
        return OUTCOME_AUTH;
    }
    return OUTCOME_OK;
}

static void read_init(connection_t *connection, const unsigned char *frame,
                      size_t size)
{
    const peer_options_t *options = &connection->peer->options;
    const unsigned char *name = NULL;
    const unsigned char *response = NULL;
    size_t name_bytes = 0;
    size_t response_bytes = 0;
    /* After the frame header: 00 53 41, then list8 or list32. */
    size_t at = FRAME_HEADER + (size > 11 && frame[11] == 0xd0 ? 12 : 6);
    char mechanism[MECHANISM_MAX] = "";
    char user[USER_MAX] = "";
    int outcome = OUTCOME_AUTH;
    peer_event_t event = {.kind = PEER_SASL};

    if (next_bytes(frame, size, &at, &name, &name_bytes)) {
        snprintf(mechanism, sizeof mechanism, "%.*s", (int)name_bytes,
                 (const char *)name);
    }
    if (!next_bytes(frame, size, &at, &response, &response_bytes)) {
        response = (const unsigned char *)"";
        response_bytes = 0;
    }
    if (strcmp(mechanism, "PLAIN") == 0) {
        outcome = check_plain(options, response, response_bytes, user);
    } else if (strstr(mechanisms(options), mechanism) != NULL &&
               mechanism[0] != '\0') {
        outcome = OUTCOME_OK;
    }
    if (options->sasl_outcome != 0) {
        outcome = options->sasl_outcome;
    }
    event.sasl.mechanism = record_string(connection->peer, mechanism);
    event.sasl.user = record_string(connection->peer, user);
    event.sasl.outcome = outcome;
    record_event(connection, 0, &event);
    send_outcome(connection, outcome);
    if (outcome == OUTCOME_OK) {
        connection->login = LOGIN_DONE;
    } else {
        connection->ends_when_sent = true;
    }
}

static void consume(connection_t *connection, size_t size)
{
    connection->in_bytes -= size;
    memmove(connection->in, connection->in + size, connection->in_bytes);
}

void login_input(connection_t *connection)
{
    const peer_options_t *options = &connection->peer->options;

    if (connection->login == LOGIN_HEADER && connection->in_bytes >= 8) {
        bool is_sasl = memcmp(connection->in, sasl_header, 8) == 0;
        bool is_amqp = memcmp(connection->in, amqp_header, 8) == 0;

        if (is_sasl && !options->no_sasl) {
            consume(connection, 8);
            connection_append(connection, sasl_header, 8);
            send_mechanisms(connection);
            connection->login = LOGIN_INIT;
            connection->ends_when_sent = options->cut_after_mechanisms;
        } else if (is_amqp && options->user == NULL) {
            connection->login = LOGIN_DONE; /* Proton reads the header */
        } else {
            connection_append(connection, is_sasl ? amqp_header : sasl_header,
                              8);
            connection->ends_when_sent = true;
        }
    }
    if (connection->login == LOGIN_INIT && connection->in_bytes >= 4 &&
        !connection->ends_when_sent) {
        size_t size = big_endian32(connection->in);

        if (size < FRAME_HEADER || size > sizeof connection->in) {
            connection->ends_when_sent = true;
        } else if (connection->in_bytes >= size) {
            read_init(connection, connection->in, size);
            consume(connection, size);
        }
    }
}
