/*
 * terms: what `pai create` fixed for one key, where it differs from the mount. Kept in the store as
 * JSON until the key is killed, so that a session is found again, and made again, as it was asked
 * for. Laid over the manager's options and over what the create program prints.
 */
#ifndef PAI_SESSION_TERMS_H
#define PAI_SESSION_TERMS_H

#include <stdint.h>

#include "providers/base/auto.h"
#include "providers/base/err.h"

/* What the manager has, for keys that say nothing else; borrowed. */
struct pai_terms_default {
	uint64_t keepalive_ttl_ms, create_timeout_ms;
	const char *key_metadata, *program;
};
struct pai_terms {
	char *text;   /* the whole, as it is kept; NULL: nothing was fixed */
	char *create; /* of it, what pai_create_options_parse() takes; NULL: nothing */
	uint64_t keepalive_ttl_ms, create_timeout_ms;
	char *key_metadata;
	char *program; /* absolute; NULL: none */
};
/*
 * `kept` with `given` laid over it, either may be NULL; `ret` is zeroed. JSON objects with the
 * members that a create program prints (options.h) and
 *   "keepaliveTtl", "createTimeout" (ms), "sessionKeyMetadata", "create" (an absolute path).
 * Maps and resources are merged by member; "network" takes an older "allow" away. INPUT for what
 * is none of these; what `create` says is checked where it is used.
 */
int pai_terms_read(struct pai_terms *ret, const char *kept, const char *given,
    const struct pai_terms_default *d, struct pai_err *err) PAI_WARN_UNUSED;
void pai_terms_fini(struct pai_terms *t);
#define pai_auto_terms PAI_AUTO(pai_terms_fini)

#endif
