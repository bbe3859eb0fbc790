/*
 * told: which environment a caller was told about last (DESIGN 14.5). Capped, the least recently
 * asked is forgotten first. Not threadsafe: its owner locks.
 */
#ifndef PAI_SESSION_TOLD_H
#define PAI_SESSION_TOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "providers/base/key.h"
#include "providers/session/store.h"

/* Callers are shells of one user: more than this many are not alive at once. */
#define PAI_TOLD_MAX 1024

struct pai_told_entry {
	TAILQ_ENTRY(pai_told_entry) link;
	char key[PAI_KEY_MAX + 1];
	uint32_t sid;
	uint64_t sid_started;
	struct pai_session_identity identity;
};
struct pai_told {
	TAILQ_HEAD(pai_told_list, pai_told_entry) list; /* newest first */
	size_t count;
};
void pai_told_init(struct pai_told *t);
void pai_told_fini(struct pai_told *t);
/* Whether `identity` is another than the caller knew, and remembers it. A caller never seen is
 * compared with `before` (NULL: none). Without memory: forgets, which says it twice, not never. */
bool pai_told_ask(struct pai_told *t, const struct pai_told_entry *caller,
    const struct pai_session_identity *before);

#endif
