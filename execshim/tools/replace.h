/*
 * replace: exact-match replacement (the engine of `edit`), on bytes. The one concession: a text
 * that is not there as given is looked for with the line ends that the file has, CRLF where most
 * of its lines end so, else LF.
 */
#ifndef PAI_EXECSHIM_TOOLS_REPLACE_H
#define PAI_EXECSHIM_TOOLS_REPLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "providers/base/buf.h"

enum pai_replace_end {
	PAI_REPLACED,
	PAI_REPLACE_NO_MATCH,
	PAI_REPLACE_NOT_UNIQUE, /* and not `all` */
	PAI_REPLACE_SAME,       /* nothing would change: equal once line ends are the file's */
};
struct pai_replace {
	const char *data;
	size_t len;
	const char *old_text; /* not empty */
	const char *new_text;
	bool all;
	/* What came of it: */
	uint64_t count;      /* occurrences; those replaced */
	uint64_t first_line; /* of the first replacement, from 1 */
	uint64_t line_count; /* that the first replacement lies in, at least 1 */
};
/* Whether more of the lines end in CRLF than in LF alone. */
bool pai_replace_is_crlf(const char *data, size_t len);
/* `out` gets the new content where the end is PAI_REPLACED. 0, -EMSGSIZE, -ENOMEM. */
int pai_replace(
    struct pai_replace *p, struct pai_buf *out, enum pai_replace_end *ret) PAI_WARN_UNUSED;

#endif
