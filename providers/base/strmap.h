/*
 * strmap: a small ordered list of (key, value) strings with unique keys: metadata, environment,
 * labels. Linear: at most PAI_STRMAP_MAX entries.
 */
#ifndef PAI_BASE_STRMAP_H
#define PAI_BASE_STRMAP_H

#include <stdbool.h>
#include <stddef.h>

#include "providers/base/auto.h"
#include "providers/base/err.h"

#define PAI_STRMAP_MAX 4096 /* entries: metadata and environments are far smaller */

struct pai_strmap_entry {
	char *key;
	char *value;
};
struct pai_strmap {
	struct pai_strmap_entry *entries;
	size_t count;
};
#define PAI_STRMAP_INIT                                                                            \
	{                                                                                          \
		.entries = NULL                                                                    \
	}
void pai_strmap_fini(struct pai_strmap *m);
#define pai_auto_strmap PAI_AUTO(pai_strmap_fini)

/* Adds or replaces. 0, -EMSGSIZE or -ENOMEM. */
int pai_strmap_set(struct pai_strmap *m, const char *key, const char *value) PAI_WARN_UNUSED;
/* "KEY=VALUE"; -EINVAL without '=' or with an empty key. */
int pai_strmap_set_pair(struct pai_strmap *m, const char *pair) PAI_WARN_UNUSED;
/* The value, borrowed, or NULL. A NULL map is empty. */
const char *pai_strmap_get(const struct pai_strmap *m, const char *key);
/* Replaces what `to` held; a NULL `from` is empty. */
int pai_strmap_copy(struct pai_strmap *to, const struct pai_strmap *from) PAI_WARN_UNUSED;
/* Whether every entry of `wanted` is in `m` with the same value. NULL `wanted`: true. */
bool pai_strmap_includes(const struct pai_strmap *m, const struct pai_strmap *wanted);

#endif
