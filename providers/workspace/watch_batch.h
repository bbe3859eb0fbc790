/*
 * watch_batch: what has happened since the last delivery, one entry per (watch, name), in the order
 * of first mention. Events of one kind come in hundreds (a file being written); what is pushed is
 * the state at the time of the push, so nothing is lost by merging them.
 *
 * Threading: one thread.
 */
#ifndef PAI_WORKSPACE_WATCH_BATCH_H
#define PAI_WORKSPACE_WATCH_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/base/buf.h"

#define PAI_BATCH_MAX 4096 /* entries; then it is delivered */

struct pai_change {
	int wd;
	uint32_t flags; /* PAI_WS_PUSH_* */
	uint32_t name;  /* offset into names; PAI_BATCH_SELF: the watched object itself */
	int32_t next;   /* in its hash chain, -1 */
	bool ends_watch;
};
#define PAI_BATCH_SELF UINT32_MAX
struct pai_batch {
	struct pai_change changes[PAI_BATCH_MAX];
	int32_t buckets[PAI_BATCH_MAX];
	uint32_t count;
	struct pai_buf names;
};

void pai_batch_init(struct pai_batch *b);
void pai_batch_fini(struct pai_batch *b);
void pai_batch_clear(struct pai_batch *b);
/* `name` NULL: the watched object itself. False: full, or no memory; nothing was added. */
bool pai_batch_add(struct pai_batch *b, int wd, const char *name, uint32_t flags, bool ends_watch);
/* NULL: the watched object itself. Valid until the next add or clear. */
const char *pai_batch_name(const struct pai_batch *b, const struct pai_change *c);

#endif
