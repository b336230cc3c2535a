#ifndef IDEMI_UTF8_H
#define IDEMI_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* UTF-8 as RFC 3629 has it and PostgreSQL takes it: shortest forms, no
 * surrogates, nothing above U+10FFFF. */

/* The bytes of the character at the start, or 0 when none stands there. NUL is
 * none, since no text column holds it. room is not 0. */
size_t idemi_utf8_character(const void *bytes, size_t room);

/* Whether all of it is such characters. */
bool idemi_utf8_is_text(const void *bytes, size_t size);

#endif
