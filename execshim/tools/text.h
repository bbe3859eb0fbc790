/*
 * text: what a model is shown. Characters are Unicode code points; a byte that is no UTF-8, and a
 * NUL, which JSON texts here can't hold, show as U+FFFD.
 */
#ifndef PAI_EXECSHIM_TOOLS_TEXT_H
#define PAI_EXECSHIM_TOOLS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "providers/base/buf.h"

/* Appends it, repaired. 0, -EMSGSIZE, -ENOMEM. */
int pai_text_add(struct pai_buf *out, const char *data, size_t len) PAI_WARN_UNUSED;
/* Characters that pai_text_add() would append. */
size_t pai_text_count(const char *data, size_t len);
/* Bytes of the first `chars` characters; len when there are no more. */
size_t pai_text_head(const char *data, size_t len, size_t chars);
/* Where the last `chars` characters begin; 0 when there are no more. */
size_t pai_text_tail(const char *data, size_t len, size_t chars);
/* At most `chars` characters; then how many follow. */
int pai_text_add_clipped(
    struct pai_buf *out, const char *data, size_t len, size_t chars) PAI_WARN_UNUSED;
/* "12,345". */
const char *pai_text_number(uint64_t n, char ret[32]);

/* A NUL among the first 8,192 bytes. */
bool pai_text_is_binary(const char *data, size_t len);

/* Lines of a file with their numbers, "N: text" from 1, within budgets. */
struct pai_text_page {
	const char *data;
	size_t len;
	uint64_t offset;  /* first line wanted, from 1 */
	uint64_t limit;   /* lines */
	size_t max_chars; /* of the page, save that it holds one line at least */
	size_t max_line;  /* characters of a line, which says then how many follow */
	bool is_part;     /* lines behind `limit` are not missed: no banner for them */
	/* What came of it: */
	uint64_t total;       /* lines of the file; the last one need not end */
	uint64_t next_offset; /* 0: the end was reached */
	bool is_beyond;       /* offset lies behind the last line */
};
/* What is left out announces itself in a last line in brackets. */
int pai_text_number_lines(struct pai_buf *out, struct pai_text_page *p) PAI_WARN_UNUSED;

#endif
