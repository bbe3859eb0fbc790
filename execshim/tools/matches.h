/* matches: what grep and ripgrep print, "path:line:text" lines, within the budgets of an answer. */
#ifndef PAI_EXECSHIM_TOOLS_MATCHES_H
#define PAI_EXECSHIM_TOOLS_MATCHES_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/base/buf.h"

struct pai_matches {
	struct pai_buf text; /* repaired; lines are clipped */
	int64_t count;       /* lines in it */
	bool is_cut;         /* there were more */
};
/* Appends at most `limit` lines of `data`, and as many as the budget has room for, at least one;
 * what is no such line is passed over. 0, -EMSGSIZE, -ENOMEM. */
int pai_matches_take(
    const char *data, size_t len, int64_t limit, struct pai_matches *m) PAI_WARN_UNUSED;

#endif
