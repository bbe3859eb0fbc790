/*
 * seed_ledger: the text of /workspace/.pai/seed.json, which says what was copied into a sandbox:
 *
 *   {"files": [{"path": "/workspace/a", "version": "sha256:..."}, ...]}
 *
 * It lies in the sandbox, where anybody may change it: whatever is no such text is an empty one,
 * and what it claims is never more than a reason not to copy a file. Bytes only, no I/O.
 */
#ifndef PAI_LEDGER_SEED_LEDGER_H
#define PAI_LEDGER_SEED_LEDGER_H

#include <stdbool.h>
#include <stddef.h>

#include "providers/base/auto.h"
#include "providers/base/buf.h"
#include "providers/base/err.h"

#define PAI_SEED_LEDGER_PATH "/workspace/.pai/seed.json"
#define PAI_SEED_LEDGER_MAX (32u << 20) /* bytes: beyond, it is as if there were none */

struct pai_seed_record {
	char *path;
	char *version;
	bool is_void; /* no longer so: not written again */
};
struct pai_seed_ledger {
	struct pai_seed_record *records; /* by path */
	size_t count;
};
void pai_seed_ledger_fini(struct pai_seed_ledger *l);
#define pai_auto_seed_ledger PAI_AUTO(pai_seed_ledger_fini)

/* Fails without memory only; `ret` is empty then. Of two records of a path one is left. */
int pai_seed_ledger_parse(
    const char *text, size_t len, struct pai_seed_ledger *ret, struct pai_err *err) PAI_WARN_UNUSED;
/* NULL: it knows nothing of that path. */
struct pai_seed_record *pai_seed_ledger_find(struct pai_seed_ledger *l, const char *path);
/* The text, one record at a time between _begin and _end. 0, -EMSGSIZE or -ENOMEM. */
int pai_seed_ledger_begin(struct pai_buf *out) PAI_WARN_UNUSED;
int pai_seed_ledger_put(struct pai_buf *out, const char *path, const char *version) PAI_WARN_UNUSED;
int pai_seed_ledger_end(struct pai_buf *out) PAI_WARN_UNUSED;

#endif
