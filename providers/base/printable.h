/*
 * printable: the one way in which bytes from off the host (names, keys, errors, logs, tables) reach
 * a terminal. C0, DEL, C1, the bidirectional controls, line and paragraph separators, and every
 * byte of invalid UTF-8 come out as \xNN (per byte); a backslash as \\. All else is unchanged.
 */
#ifndef PAI_BASE_PRINTABLE_H
#define PAI_BASE_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "providers/base/buf.h"

/* Appends the printable form. 0, -EMSGSIZE, -ENOMEM. */
int pai_printable_add(struct pai_buf *b, const char *data, size_t len) PAI_WARN_UNUSED;
/* Writes it into out[cap], NUL-terminated, cut at a whole escape or character; returns out. */
const char *pai_printable_into(char *out, size_t cap, const char *data, size_t len);
/* For printf arguments: a local buffer of 1024 bytes per use. */
#define pai_printable(text) pai_printable_into((char[1024]){0}, 1024, (text), strlen(text))

/* Length in bytes of the valid UTF-8 sequence at the start of data (1-4), 0 when invalid or empty.
 */
size_t pai_utf8_len(const char *data, size_t len);
bool pai_utf8_valid(const char *data, size_t len);

#endif
