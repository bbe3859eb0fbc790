/*
 * scope: what a session's key is made of (seeds: "scope"). A scope keys a session on some of the
 * ids of whoever asks; the same ids give the same key in every program and on every host, others
 * never.
 *
 *   thread      threadId, scopeKey       one conversation
 *   rootThread  rootThreadId, scopeKey   one with all that is delegated from it
 *   user        userKey, scopeKey
 *   scope       scopeKey
 *   global      none
 *   custom      whatever is given
 *
 * scopeKey, the tenant, may be left out where there is one only (not in `scope`). The key is the
 * scope's name, '-' and the first 40 hexadecimal digits of SHA-256 over the ids, each as its name,
 * a NUL, its value and a NUL, in the order of the bytes of their names. A threadId alone is its own
 * key, where it can be one and doesn't look like one of those.
 */
#ifndef PAI_BASE_SCOPE_H
#define PAI_BASE_SCOPE_H

#include <stdbool.h>

#include "providers/base/key.h"
#include "providers/base/strmap.h"

enum pai_scope {
	PAI_SCOPE_THREAD,
	PAI_SCOPE_ROOT_THREAD,
	PAI_SCOPE_USER,
	PAI_SCOPE_SCOPE,
	PAI_SCOPE_GLOBAL,
	PAI_SCOPE_CUSTOM,
	PAI_SCOPE_COUNT
};
#define PAI_SCOPE_IDS_MAX 16     /* ids of one session */
#define PAI_SCOPE_ID_MAX 1024    /* bytes of one */
#define PAI_SCOPE_ID_NAME_MAX 64 /* letters, digits, '-', '_', a letter first */

const char *pai_scope_name(enum pai_scope scope);
bool pai_scope_parse(const char *name, enum pai_scope *ret);
/* The ids that a scope needs not are left aside, where they are those of another scope; any other
 * name is INPUT, as an id that lacks, is empty, is no UTF-8 or too long. */
int pai_scope_key(enum pai_scope scope, const struct pai_strmap *ids, char ret[PAI_KEY_MAX + 1],
    struct pai_err *err) PAI_WARN_UNUSED;
/* Whether the scope keys a session on the id of that name. */
bool pai_scope_counts(enum pai_scope scope, const char *id);
/* The ids are of a thread that was delegated from the one whose session it is: its end is not the
 * session's. */
bool pai_scope_is_delegated(enum pai_scope scope, const struct pai_strmap *ids);
/* Whether `key` was made by pai_scope_key(): of which scope. False for a threadId that is one. */
bool pai_scope_of_key(const char *key, enum pai_scope *ret);

#endif
