#include "drivers/url.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <openssl/crypto.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DEFAULT_PORT "5672"
#define HOST_BYTES 255

/* A piece of the text that is parsed; not NUL-terminated. */
typedef struct span {
    const char *start;
    size_t size;
} span_t;

/* What is wrong with an entry is told by a constant sentence: an entry may
 * hold a password, so nothing of it is ever quoted. */
typedef struct parse {
    idem_error_t *err;
    size_t number; /* of the entry, from 1 */
} parse_t;

static idem_status_t refuse(const parse_t *parse, const char *why)
{
    (void)idemi_error(parse->err, IDEM_ERR_ARG, "url: entry %zu: %s",
                      parse->number, why);
    return IDEM_ERR_ARG;
}

static const char *find(span_t span, char wanted)
{
    return span.size > 0 ? memchr(span.start, wanted, span.size) : NULL;
}

/* Splits span at `at`, a character inside of it: returns what is before and
 * leaves what is behind. */
static span_t split(span_t *span, const char *at)
{
    span_t before = {span->start, (size_t)(at - span->start)};

    span->size -= before.size + 1;
    span->start = at + 1;
    return before;
}

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    if (digit >= 'a' && digit <= 'f') {
        return digit - 'a' + 10;
    }
    if (digit >= 'A' && digit <= 'F') {
        return digit - 'A' + 10;
    }
    return -1;
}

static idem_status_t unescape(const parse_t *parse, char **text, span_t span)
{
    char *copy = malloc(span.size + 1);
    size_t size = 0;

    if (!copy) {
        (void)idemi_error(parse->err, IDEM_ERR_MEMORY, "out of memory");
        return IDEM_ERR_MEMORY;
    }
    *text = copy; /* even half of it may be a password: freed by the caller */
    for (size_t i = 0; i < span.size; i++) {
        unsigned char c = (unsigned char)span.start[i];
        if (c == '%') {
            int high = -1;
            int low = -1;
            if (span.size - i > 2) {
                high = hex_value(span.start[i + 1]);
                low = hex_value(span.start[i + 2]);
            }
            if (high < 0 || low < 0) {
                copy[size] = '\0';
                return refuse(parse, "a % is not followed by two hex digits; "
                                     "write a plain % as %25");
            }
            c = (unsigned char)(high * 16 + low);
            i += 2;
        }
        if (c < 0x20 || c == 0x7f) {
            copy[size] = '\0';
            return refuse(parse, "control characters are not allowed");
        }
        copy[size++] = (char)c;
    }
    copy[size] = '\0';
    return IDEM_OK;
}

static bool is_loopback(const char *host)
{
    struct in_addr four;
    struct in6_addr six;

    if (strcasecmp(host, "localhost") == 0) {
        return true;
    }
    if (inet_pton(AF_INET, host, &four) == 1) {
        return ntohl(four.s_addr) >> 24 == 127;
    }
    return inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

static idem_status_t parse_port(const parse_t *parse, idemi_url_t *url,
                                span_t span)
{
    unsigned long port = 0;

    if (span.size == 0 || span.size > 5) {
        return refuse(parse, "the port is not a number from 1 to 65535");
    }
    for (size_t i = 0; i < span.size; i++) {
        if (!isdigit((unsigned char)span.start[i])) {
            return refuse(parse, "the port is not a number from 1 to 65535");
        }
        port = port * 10 + (unsigned long)(span.start[i] - '0');
    }
    if (port < 1 || port > UINT16_MAX) {
        return refuse(parse, "the port is not a number from 1 to 65535");
    }
    return unescape(parse, &url->port, span);
}

static idem_status_t parse_user(const parse_t *parse, idemi_url_t *url,
                                span_t span)
{
    const char *colon = find(span, ':');

    if (!colon || colon == span.start) {
        return refuse(parse, "before the @ stands user:password, both of them");
    }
    span_t user = split(&span, colon);
    if (find(span, ':')) {
        return refuse(parse, "write a colon in a password as %3A");
    }
    idem_status_t status = unescape(parse, &url->user, user);
    return status ? status : unescape(parse, &url->password, span);
}

/* An IPv6 address in brackets; leaves what is behind them in span. */
static idem_status_t parse_brackets(const parse_t *parse, idemi_url_t *url,
                                    span_t *span)
{
    struct in6_addr six;
    const char *end = find(*span, ']');

    if (!end) {
        return refuse(parse, "the closing bracket of an IPv6 address is "
                             "missing");
    }
    span->start++;
    span->size--;
    idem_status_t status = unescape(parse, &url->host, split(span, end));
    if (status) {
        return status;
    }
    if (inet_pton(AF_INET6, url->host, &six) != 1) {
        return refuse(parse, "what stands in brackets is not an IPv6 address");
    }
    if (span->size > 0 && span->start[0] != ':') {
        return refuse(parse, "behind the brackets of an IPv6 address stands "
                             "only :port");
    }
    return IDEM_OK;
}

static idem_status_t parse_host(const parse_t *parse, idemi_url_t *url,
                                span_t span)
{
    const char *colon = find(span, ':');
    span_t host = span;
    span_t port = {DEFAULT_PORT, sizeof DEFAULT_PORT - 1};

    if (colon) {
        host = split(&span, colon);
        port = span;
        if (find(port, ':')) {
            return refuse(parse, "an IPv6 address stands in brackets, as in "
                                 "amqp://[::1]:5672");
        }
    }
    if (host.size == 0) {
        return refuse(parse, "the host is missing");
    }
    idem_status_t status = unescape(parse, &url->host, host);
    if (status) {
        return status;
    }
    if (strlen(url->host) > HOST_BYTES) {
        return refuse(parse, "the host is longer than any name");
    }
    /* No name and no address has one of these, and Proton would split at some
     * of them. */
    if (strpbrk(url->host, " /:@?#[]\\")) {
        return refuse(parse, "the host has a character that no name has");
    }
    return parse_port(parse, url, port);
}

static idem_status_t parse_entry(const parse_t *parse, idemi_url_t *url,
                                 span_t span)
{
    static const char scheme[] = "amqp://";
    const size_t scheme_size = sizeof scheme - 1;
    idem_status_t status = IDEM_OK;

    if (span.size >= 8 && strncasecmp(span.start, "amqps://", 8) == 0) {
        return refuse(parse, "amqps:// (TLS) is not supported; use amqp:// to "
                             "this machine or over a protected network");
    }
    if (span.size < scheme_size ||
        strncasecmp(span.start, scheme, scheme_size) != 0) {
        return refuse(parse, "it does not begin with amqp://");
    }
    span.start += scheme_size;
    span.size -= scheme_size;
    if (span.size > 0 && span.start[span.size - 1] == '/') {
        span.size--;
    }
    const char *at = find(span, '@');
    if (at) {
        span_t login = split(&span, at);
        if (find(span, '@')) {
            return refuse(parse, "write an @ in a user or password as %40");
        }
        status = parse_user(parse, url, login);
        if (status) {
            return status;
        }
    }
    if (find(span, '/') || find(span, '?') || find(span, '#')) {
        return refuse(parse, "only amqp://[user:password@]host[:port] is "
                             "understood, with no path, ? or #");
    }
    if (span.size > 0 && span.start[0] == '[') {
        span_t port = {DEFAULT_PORT, sizeof DEFAULT_PORT - 1};
        status = parse_brackets(parse, url, &span);
        if (!status && span.size > 0) {
            port = (span_t){span.start + 1, span.size - 1};
        }
        if (!status) {
            status = parse_port(parse, url, port);
        }
    } else {
        status = parse_host(parse, url, span);
    }
    if (!status) {
        url->is_loopback = is_loopback(url->host);
    }
    return status;
}

static span_t trim(span_t span)
{
    while (span.size > 0 && isspace((unsigned char)span.start[0])) {
        span.start++;
        span.size--;
    }
    while (span.size > 0 && isspace((unsigned char)span.start[span.size - 1])) {
        span.size--;
    }
    return span;
}

idem_status_t idemi_urls_parse(idemi_url_t **urls, size_t *count,
                               const char *text, idem_error_t *err)
{
    span_t rest = {text, strlen(text)};
    parse_t parse = {err, 0};
    size_t room = 1;
    idem_status_t status = IDEM_OK;

    for (const char *c = text; *c; c++) {
        room += *c == ',';
    }
    idemi_url_t *list = calloc(room, sizeof *list);
    if (!list) {
        return idemi_error(err, IDEM_ERR_MEMORY, "out of memory");
    }
    for (size_t i = 0; i < room && !status; i++) {
        const char *comma = find(rest, ',');
        span_t entry = comma ? split(&rest, comma) : rest;
        parse.number = i + 1;
        entry = trim(entry);
        status = entry.size > 0
                     ? parse_entry(&parse, &list[i], entry)
                     : refuse(&parse, "it is empty (write a comma in a "
                                      "password as %2C)");
    }
    if (status) {
        idemi_urls_free(list, room);
        return status;
    }
    *urls = list;
    *count = room;
    return IDEM_OK;
}

void idemi_urls_free(idemi_url_t *urls, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (urls[i].password) {
            OPENSSL_cleanse(urls[i].password, strlen(urls[i].password));
        }
        free(urls[i].user);
        free(urls[i].password);
        free(urls[i].host);
        free(urls[i].port);
    }
    free(urls);
}
