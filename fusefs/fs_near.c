/*
 * fs_near: names of directories elsewhere, at hand.
 *
 * A round trip for each name of a walk is what makes distance felt. So of a server elsewhere a
 * directory's names and their attributes are asked for by the thousand, and looked up and listed
 * here until a push, or a change of our own, says otherwise of one. What is answered from here
 * rests on what is known now, as if the server had been asked now: the directory was watched before
 * the names were read, and every push about one of them has been marked by then.
 *
 *   a name is `known`   it is there, and `attr` is what it was when it was read
 *           not known   something was said of it since: the server is asked
 *           missing     from a directory that is `whole`: there is no such name
 *
 * Attributes of what the kernel has, by a node, are used only when nothing of it was told or
 * changed since they were read. All under fs->lock.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NEAR_MAX (128u << 10) /* names of all directories; the oldest directories give way */
#define FIRST_BUCKETS 64u
#define LOOKS_UNTIL_LISTED 2

struct fs_near_name {
	struct fs_near_name *next; /* in its bucket */
	uint64_t cookie;
	uint8_t d_type;
	bool known;
	struct pai_ws_attr attr;
	char name[];
};
struct fs_near {
	struct fs_node *dir;
	TAILQ_ENTRY(fs_near) at;
	struct fs_near_name **buckets; /* by name */
	size_t bucket_count, count;
	struct fs_near_name **listed; /* while `is_exact`: by cookie, as the server lists them */
	size_t listed_count, listed_cap;
	uint64_t cookie;  /* where the server's listing goes on */
	uint64_t started; /* fs->sequence before the oldest of it was asked for */
	bool is_whole;    /* every name is here */
	bool is_exact;    /* all are known, and none came or went: walks are answered from here */
};

/* --- the table --- */

static struct fs_near_name **bucket_of(const struct fs_near *l, const char *name)
{
	uint64_t h = 0xcbf29ce484222325ULL;

	for (; *name; name++) {
		h = (h ^ (uint8_t)*name) * 0x100000001b3ULL;
	}
	return &l->buckets[(h ^ h >> 32) & (l->bucket_count - 1)];
}

static struct fs_near_name *find(const struct fs_near *l, const char *name)
{
	struct fs_near_name *e = *bucket_of(l, name);

	while (e && strcmp(e->name, name) != 0) {
		e = e->next;
	}
	return e;
}

void fs_near_drop_locked(struct fs_node *dir)
{
	struct fs_near *l = dir->near;

	if (!l) {
		return;
	}
	dir->near = NULL;
	TAILQ_REMOVE(&dir->session->fs->nears, l, at);
	dir->session->fs->near_count -= l->count;
	for (size_t i = 0; i < l->bucket_count; i++) {
		while (l->buckets[i]) {
			struct fs_near_name *e = l->buckets[i];

			l->buckets[i] = e->next;
			free(e);
		}
	}
	free(l->buckets);
	free(l->listed);
	free(l);
}

void fs_near_drop_all_locked(struct fs_env *env)
{
	struct fs_near *l, *next;

	for (l = TAILQ_FIRST(&env->fs->nears); l; l = next) {
		next = TAILQ_NEXT(l, at);
		if (l->dir->session == env->session) {
			fs_near_drop_locked(l->dir);
		}
	}
}

static bool grow(struct fs_near *l)
{
	size_t count = l->bucket_count * 2;
	struct fs_near_name **old = l->buckets, **buckets = calloc(count, sizeof(*buckets));
	size_t old_count = l->bucket_count;

	if (!buckets) {
		return false;
	}
	l->buckets = buckets;
	l->bucket_count = count;
	for (size_t i = 0; i < old_count; i++) {
		for (struct fs_near_name *e = old[i], *next; e; e = next) {
			struct fs_near_name **at = bucket_of(l, e->name);

			next = e->next;
			e->next = *at;
			*at = e;
		}
	}
	free(old);
	return true;
}

/* NULL without memory: then nothing may be missing from here. */
static struct fs_near_name *add(struct fs_near *l, const char *name)
{
	size_t len = strlen(name) + 1;
	struct fs_near_name **at, *e = NULL;

	if (l->count < l->bucket_count || grow(l)) {
		e = malloc(sizeof(*e) + len);
	}
	if (e) {
		at = bucket_of(l, name);
		*e = (struct fs_near_name){.next = *at};
		memcpy(e->name, name, len);
		*at = e;
		l->count++;
		l->dir->session->fs->near_count++;
	}
	return e;
}

static void end_listing(struct fs_near *l)
{
	l->is_exact = false;
	free(PAI_TAKE(l->listed));
	l->listed_count = 0;
	l->listed_cap = 0;
}

static struct fs_near *near_new(struct fs_node *dir)
{
	struct fs_near *l = calloc(1, sizeof(*l));

	if (l) {
		l->buckets = calloc(FIRST_BUCKETS, sizeof(struct fs_near_name *));
	}
	if (!l || !l->buckets) {
		free(l);
		return NULL;
	}
	l->bucket_count = FIRST_BUCKETS;
	l->dir = dir;
	l->is_exact = true;
	l->started = UINT64_MAX;
	TAILQ_INSERT_TAIL(&dir->session->fs->nears, l, at);
	dir->near = l;
	return l;
}

/* --- what is heard --- */

void fs_near_ask_locked(struct fs_node *dir, const char *name)
{
	struct fs_near *l = dir->near;
	struct fs_near_name *e = l ? find(l, name) : NULL;

	if (!l) {
		return;
	}
	end_listing(l);
	e = e ? e : add(l, name);
	if (!e) {
		fs_near_drop_locked(dir);
		return;
	}
	e->known = false;
}

void fs_near_ask_of_locked(struct fs_node *n)
{
	if (n->parent && n->flags & FS_NODE_IN_NAME) {
		fs_near_ask_locked(n->parent, n->name);
	}
}

void fs_near_gone_locked(struct fs_node *dir, const char *name)
{
	struct fs_near *l = dir->near;
	struct fs_near_name **at = l ? bucket_of(l, name) : NULL, *e;

	while (at && *at && strcmp((*at)->name, name) != 0) {
		at = &(*at)->next;
	}
	e = at ? *at : NULL;
	if (e) {
		end_listing(l);
		*at = e->next;
		free(e);
		l->count--;
		dir->session->fs->near_count--;
	}
}

static bool same_attr(const struct pai_ws_attr *a, struct pai_ws_attr b)
{
	b.atime_ns = a->atime_ns;
	return memcmp(a, &b, sizeof(b)) == 0;
}

void fs_near_push_locked(struct fs_node *dir, const struct pai_ws_push *push)
{
	const struct fs_near_name *e = dir->near ? find(dir->near, push->name) : NULL;

	if (dir->near && (e || push->exists) &&
	    !(e && e->known && push->exists && same_attr(&e->attr, push->attr))) {
		fs_near_ask_locked(dir, push->name);
	}
}

/* --- what is read --- */

bool fs_near_keeps(const struct fs_call *c, const struct fs_node *dir)
{
	return c->server && !(c->server->caps & PAI_WS_CAP_INLINE) &&
	       c->server->caps & PAI_WS_CAP_WATCH && c->fs->options.coherence == PAI_FS_PUSH &&
	       !(dir->flags & (FS_NODE_UNWATCHABLE | FS_NODE_GONE));
}

static bool list(struct fs_near *l, struct fs_near_name *e)
{
	size_t cap = l->listed_cap ? l->listed_cap * 2 : 64;
	struct fs_near_name **grown;

	if (l->listed_count == l->listed_cap) {
		grown = reallocarray(l->listed, cap, sizeof(struct fs_near_name *));
		if (!grown) {
			return false;
		}
		l->listed = grown;
		l->listed_cap = cap;
	}
	l->listed[l->listed_count++] = e;
	return true;
}

static bool put(struct fs_near *l, const struct pai_ws_entry *from)
{
	struct fs_near_name *e = find(l, from->name);

	if (e || !from->has_attr) {
		end_listing(l); /* something was said of it meanwhile; or it went as it was read */
		return true;
	}
	e = add(l, from->name);
	if (!e) {
		return false;
	}
	e->cookie = from->cookie;
	e->d_type = from->d_type;
	e->attr = from->attr;
	/* What is done under another name is not told of this one. */
	e->known = S_ISDIR(e->attr.mode) || e->attr.nlink == 1;
	return !l->is_exact || list(l, e);
}

static void make_room(struct pai_fs *fs, const struct fs_near *keep)
{
	struct fs_near *l;

	while (fs->near_count > NEAR_MAX && (l = TAILQ_FIRST(&fs->nears)) != NULL && l != keep) {
		fs_near_drop_locked(l->dir);
	}
}

bool fs_near_wants_locked(const struct fs_call *c, const struct fs_node *dir, uint64_t cookie)
{
	const struct fs_near *l = dir->near;

	return fs_near_keeps(c, dir) && (cookie == 0 || (l && l->is_exact && l->cookie == cookie));
}

/* Since it was asked. */
static bool is_changed(const struct fs_call *c, const struct fs_node *dir)
{
	return c->changes != (uint64_t)c->env->epoch + dir->changes;
}

void fs_near_take_locked(struct fs_call *c, struct fs_node *dir, uint64_t cookie)
{
	struct fs_near *l = dir->near;
	uint64_t read_at = c->ws.op == PAI_WS_READDIR ? c->handle->listed_at : c->asked;
	bool ok = fs_near_keeps(c, dir) && fs_may_cache_locked(c, dir, NULL);

	/* To begin anew is to forget what was said of names: our own changes raise no epoch. To go
	 * on in what the server had read before the beginning is to miss what came in between. */
	ok = ok && (cookie ? l && !l->is_whole && l->cookie == cookie && read_at >= l->started
			   : !is_changed(c, dir));
	if (!ok) {
		dir->looks = 0; /* it changes all the time */
		return;
	}
	if (cookie == 0) {
		fs_near_drop_locked(dir);
		l = near_new(dir);
	}
	for (size_t i = 0; ok && i < c->ws.out.count; i++) {
		ok = l && put(l, &c->ws.out.entries[i]);
	}
	if (!ok || !l || c->fs->near_count > 2 * NEAR_MAX) {
		fs_near_drop_locked(dir);
		return;
	}
	if (c->ws.out.count) {
		l->cookie = c->ws.out.entries[c->ws.out.count - 1].cookie;
	}
	l->started = c->asked < l->started ? c->asked : l->started;
	l->is_whole = c->ws.out.end;
	make_room(c->fs, l);
}

/* --- what is answered --- */

/* Only its own watch tells of what a directory holds: one from after the listing was not there to
 * tell of what came between, and would have the old attributes believed. */
static bool is_told_since(const struct fs_near *l, const struct fs_node *n)
{
	return !S_ISDIR(n->attr.mode) || !(n->flags & (FS_NODE_WATCHED | FS_NODE_WATCHING)) ||
	       n->watched_at < l->started;
}

/* Nothing of it was told or changed here since it was read. */
static bool is_usable(const struct fs_near *l, const struct fs_near_name *e)
{
	const struct fs_node *n = fs_node_by_name_locked(l->dir->session->fs, l->dir, e->name);
	const uint32_t changed = FS_NODE_WRITTEN | FS_NODE_ASKS_DATA | FS_NODE_ASKS_CTIME;

	return e->known && (!n || (fs_same_identity(&n->attr.id, &e->attr.id) &&
				      n->told_at < l->started && !(n->flags & changed) &&
				      n->stale_pages == 0 && !n->writers && is_told_since(l, n)));
}

static bool is_listable_by_names(const struct fs_node *dir)
{
	const struct fs_near *l = dir->near;

	return !l || (!l->is_whole && l->cookie);
}

enum fs_near_word fs_near_find_locked(
    struct fs_call *c, struct fs_node *dir, const char *name, struct pai_ws_attr *ret)
{
	const struct fs_near *l = dir->near;
	const struct fs_near_name *e = l ? find(l, name) : NULL;

	if (!fs_near_keeps(c, dir)) {
		return FS_NEAR_ASK;
	}
	if (e && is_usable(l, e)) {
		*ret = e->attr;
		return FS_NEAR_FOUND;
	}
	if (l && !e && l->is_whole) {
		return FS_NEAR_MISSING;
	}
	if (e || !is_listable_by_names(dir) || (l && l->count >= NEAR_MAX / 4)) {
		return FS_NEAR_ASK;
	}
	return dir->looks < UINT8_MAX && ++dir->looks >= LOOKS_UNTIL_LISTED ? FS_NEAR_LIST
									    : FS_NEAR_ASK;
}

uint64_t fs_near_cookie_locked(const struct fs_node *dir)
{
	return dir->near ? dir->near->cookie : 0;
}

void fs_near_unlistable_locked(struct fs_node *dir)
{
	dir->looks = UINT8_MAX;
}

bool fs_near_is_listed_locked(const struct fs_call *c, const struct fs_node *dir)
{
	return fs_near_keeps(c, dir) && dir->near && dir->near->is_whole && dir->near->is_exact;
}

static size_t place_behind(const struct fs_near *l, uint64_t cookie)
{
	size_t low = 0, high = l->listed_count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (l->listed[mid]->cookie > cookie) {
			high = mid;
		} else {
			low = mid + 1;
		}
	}
	return low;
}

/* What the kernel believes already is listed without its attributes; reading a file makes its
 * access time worth telling. False: what is here won't do. */
static bool fill(const struct fs_call *c, const struct fs_near *l, const struct fs_near_name *from,
    struct pai_ws_entry *to)
{
	const struct fs_node *n = fs_node_by_name_locked(c->fs, l->dir, from->name);

	to->cookie = from->cookie;
	to->d_type = from->d_type;
	to->attr = from->attr;
	to->is_skipped = n && (n->flags & (FS_NODE_TOLD | FS_NODE_PAGES)) == FS_NODE_TOLD;
	to->has_attr = !to->is_skipped;
	return to->is_skipped || !c->plus || is_usable(l, from);
}

bool fs_near_page_locked(struct fs_call *c, struct fs_node *dir, uint64_t cookie, size_t max)
{
	const struct fs_near *l = dir->near;
	struct pai_ws_entry *entries;
	size_t first, count, bytes = 0;
	char *name;

	if (!fs_near_keeps(c, dir) || !l || !l->is_exact || (!l->is_whole && cookie >= l->cookie)) {
		return false;
	}
	first = place_behind(l, cookie);
	count = l->listed_count - first < max ? l->listed_count - first : max;
	for (size_t i = 0; i < count; i++) {
		bytes += strlen(l->listed[first + i]->name) + 1;
	}
	entries = calloc(1, count * sizeof(*entries) + bytes + 1);
	if (!entries) {
		return false;
	}
	name = (char *)(entries + count);
	for (size_t i = 0; i < count; i++) {
		const struct fs_near_name *e = l->listed[first + i];

		if (!fill(c, l, e, &entries[i])) {
			free(entries);
			return false;
		}
		entries[i].name = name;
		name = stpcpy(name, e->name) + 1;
	}
	c->ws.out.memory = entries;
	c->ws.out.entries = entries;
	c->ws.out.count = count;
	c->ws.out.end = l->is_whole && first + count == l->listed_count;
	return true;
}
