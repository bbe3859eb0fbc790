#include "providers/workspace/watch_batch.h"

#include <string.h>

#include "providers/workspace/workspace.h"

#define NAMES_BYTES_MAX (PAI_BATCH_MAX * 256u)

void pai_batch_init(struct pai_batch *b)
{
	b->names = (struct pai_buf)PAI_BUF_INIT(NAMES_BYTES_MAX);
	pai_batch_clear(b);
}

void pai_batch_fini(struct pai_batch *b)
{
	pai_buf_fini(&b->names);
}

void pai_batch_clear(struct pai_batch *b)
{
	memset(b->buckets, 0xff, sizeof(b->buckets)); /* -1 */
	b->count = 0;
	pai_buf_clear(&b->names);
}

const char *pai_batch_name(const struct pai_batch *b, const struct pai_change *c)
{
	return c->name == PAI_BATCH_SELF ? NULL : b->names.data + c->name;
}

static uint32_t hash_of(int wd, const char *name)
{
	uint32_t h = 2166136261u ^ (uint32_t)wd;

	for (; name && *name; name++) {
		h = (h ^ (unsigned char)*name) * 16777619u;
	}
	return (h ^ h >> 15) % PAI_BATCH_MAX;
}

static bool same_name(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

bool pai_batch_add(struct pai_batch *b, int wd, const char *name, uint32_t flags, bool ends_watch)
{
	uint32_t bucket = hash_of(wd, name);
	struct pai_change *c;

	for (int32_t i = b->buckets[bucket]; i >= 0; i = c->next) {
		c = &b->changes[i];
		if (c->wd == wd && same_name(pai_batch_name(b, c), name)) {
			c->flags |= flags;
			c->ends_watch |= ends_watch;
			return true;
		}
	}
	if (b->count == PAI_BATCH_MAX) {
		return false;
	}
	c = &b->changes[b->count];
	*c = (struct pai_change){
	    .wd = wd,
	    .flags = flags,
	    .name = name ? (uint32_t)b->names.len : PAI_BATCH_SELF,
	    .next = b->buckets[bucket],
	    .ends_watch = ends_watch,
	};
	if (name && pai_buf_add(&b->names, name, strlen(name) + 1) < 0) {
		return false;
	}
	b->buckets[bucket] = (int32_t)b->count++;
	return true;
}
