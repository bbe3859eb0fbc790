/*
 * Directories that the client watches, by identity, and in each the names that it was told of, with
 * a stamp of what it was told. A comparison goes round: what was compared moves to the end of its
 * list, and bears the number of the round.
 */
#include "providers/helper/ws_told.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include "providers/wire/ws_msg.h"

#define DIR_BUCKETS 1024u
#define NAME_BUCKETS 65536u
#define BATCH_MAX 512u

struct told {
	struct told *next; /* in its bucket */
	TAILQ_ENTRY(told) at;
	struct dir *dir;
	uint64_t stamp;
	int64_t ctime_ns;
	uint32_t flags, round;
	char name[];
};
TAILQ_HEAD(told_list, told);
struct dir {
	struct dir *next; /* in its bucket */
	TAILQ_ENTRY(dir) at;
	struct pai_ws_identity id;
	char *path; /* as the client named it last */
	uint32_t round;
	struct told_list names;
};
TAILQ_HEAD(dir_list, dir);
/* An open directory. */
struct opened {
	struct opened *next;
	uint64_t handle;
	struct pai_ws_identity id;
};
struct pai_ws_told {
	struct dir *dirs[DIR_BUCKETS];
	struct told *names[NAME_BUCKETS];
	struct dir_list all;
	struct opened *opened;
	struct pai_ws_identity root; /* of the directory that has no path */
	size_t count;
	uint32_t round;
	bool forgot;
};
struct batch {
	struct pai_ws_req req; /* first */
	struct pai_ws_identity dir;
	char *path;
	struct pai_ws_entry entries[BATCH_MAX];
	char names[BATCH_MAX][PAI_WS_NAME_BYTES + 1];
};

/* --- tables --- */

static struct dir **dir_bucket(struct pai_ws_told *t, const struct pai_ws_identity *id)
{
	return &t->dirs[(size_t)((id->ino ^ id->btime_ns) * 0x9e3779b97f4a7c15u >> 50) %
			DIR_BUCKETS];
}

static struct dir *dir_find(struct pai_ws_told *t, const struct pai_ws_identity *id)
{
	struct dir *d = *dir_bucket(t, id);

	while (d && !pai_ws_identity_equal(&d->id, id)) {
		d = d->next;
	}
	return d;
}

static struct told **name_bucket(struct pai_ws_told *t, const struct dir *d, const char *name)
{
	uint64_t h = (uint64_t)(uintptr_t)d * 0x9e3779b97f4a7c15u;

	for (; *name; name++) {
		h = (h ^ (unsigned char)*name) * 1099511628211u;
	}
	return &t->names[(h ^ h >> 32) % NAME_BUCKETS];
}

static struct told *name_find(struct pai_ws_told *t, const struct dir *d, const char *name)
{
	struct told *n = *name_bucket(t, d, name);

	while (n && (n->dir != d || strcmp(n->name, name) != 0)) {
		n = n->next;
	}
	return n;
}

static void name_free(struct pai_ws_told *t, struct told *n)
{
	struct told **at = name_bucket(t, n->dir, n->name);

	while (*at != n) {
		at = &(*at)->next;
	}
	*at = n->next;
	TAILQ_REMOVE(&n->dir->names, n, at);
	t->count--;
	free(n);
}

static void dir_clear(struct pai_ws_told *t, struct dir *d)
{
	while (!TAILQ_EMPTY(&d->names)) {
		name_free(t, TAILQ_FIRST(&d->names));
	}
}

static void dir_free(struct pai_ws_told *t, struct dir *d)
{
	struct dir **at = dir_bucket(t, &d->id);

	while (*at != d) {
		at = &(*at)->next;
	}
	*at = d->next;
	dir_clear(t, d);
	TAILQ_REMOVE(&t->all, d, at);
	free(d->path);
	free(d);
}

static void clear(struct pai_ws_told *t)
{
	struct dir *d;

	while ((d = TAILQ_FIRST(&t->all)) != NULL) {
		dir_free(t, d);
	}
}

/* The directories stay: what is told from now on is remembered again. */
static void forget(struct pai_ws_told *t)
{
	struct dir *d;

	TAILQ_FOREACH(d, &t->all, at)
	{
		dir_clear(t, d);
	}
	t->forgot = true;
}

struct pai_ws_told *pai_ws_told_new(void)
{
	struct pai_ws_told *t = calloc(1, sizeof(*t));

	if (t) {
		TAILQ_INIT(&t->all);
	}
	return t;
}

void pai_ws_told_free(struct pai_ws_told *t)
{
	if (!t) {
		return;
	}
	clear(t);
	while (t->opened) {
		struct opened *o = t->opened;

		t->opened = o->next;
		free(o);
	}
	free(t);
}

/* --- what is told --- */

/* A client knows no identity of the top. */
static struct dir *dir_at(struct pai_ws_told *t, const struct pai_ws_at *at)
{
	struct dir *d = dir_find(t, at->id.ino || *at->path ? &at->id : &t->root);
	char *path;

	if (d && strcmp(d->path, at->path) != 0) {
		path = strdup(at->path);
		if (path) {
			free(d->path);
			d->path = path;
		}
	}
	return d;
}

static void told(
    struct pai_ws_told *t, struct dir *d, const char *name, const struct pai_ws_attr *attr)
{
	struct told *n = d && name && !S_ISDIR(attr->mode) ? name_find(t, d, name) : NULL;
	size_t len = name ? strlen(name) + 1 : 0;
	struct told **at;

	if (!d || !name || S_ISDIR(attr->mode)) {
		return; /* a directory's own watch tells all of it */
	}
	if (!n && t->count == PAI_WS_TOLD_MAX) {
		forget(t);
	}
	if (!n) {
		n = malloc(sizeof(*n) + len);
		if (!n) {
			forget(t);
			return;
		}
		at = name_bucket(t, d, name);
		*n = (struct told){.next = *at, .dir = d};
		memcpy(n->name, name, len);
		*at = n;
		TAILQ_INSERT_TAIL(&d->names, n, at);
		t->count++;
		n->round = t->round;
	}
	n->stamp = pai_ws_attr_stamp(attr);
	n->ctime_ns = attr->ctime_ns;
	n->flags = attr->flags;
}

static void watched(struct pai_ws_told *t, const struct pai_ws_req *req)
{
	struct dir **at = dir_bucket(t, &req->attr.id);
	struct dir *d = S_ISDIR(req->attr.mode) ? dir_find(t, &req->attr.id) : NULL;

	if (!S_ISDIR(req->attr.mode)) {
		return;
	}
	if (!*req->at.path) {
		t->root = req->attr.id;
	}
	if (d) {
		(void)dir_at(t, &(struct pai_ws_at){.path = req->at.path, .id = d->id});
		return;
	}
	d = calloc(1, sizeof(*d));
	if (d) {
		d->path = strdup(req->at.path);
	}
	if (!d || !d->path) {
		free(d);
		t->forgot = true;
		return;
	}
	d->id = req->attr.id;
	d->next = *at;
	d->round = t->round;
	TAILQ_INIT(&d->names);
	*at = d;
	TAILQ_INSERT_TAIL(&t->all, d, at);
}

static void unwatched(struct pai_ws_told *t, const struct pai_ws_identity *id)
{
	struct dir *d = dir_find(t, id);

	if (d) {
		dir_free(t, d);
	}
}

static void listed(
    struct pai_ws_told *t, const struct pai_ws_identity *dir, const struct pai_ws_req *req)
{
	struct dir *d = dir_find(t, dir);

	for (size_t i = 0; d && i < req->out.count; i++) {
		const struct pai_ws_entry *e = &req->out.entries[i];

		if (e->has_attr) {
			told(t, d, e->name, &e->attr);
		}
	}
}

static void opened(struct pai_ws_told *t, const struct pai_ws_req *req)
{
	struct opened *o = malloc(sizeof(*o));

	if (!o) {
		t->forgot = true;
		return;
	}
	*o = (struct opened){.next = t->opened, .handle = req->out.handle, .id = req->attr.id};
	t->opened = o;
	listed(t, &o->id, req);
}

static struct opened **opened_find(struct pai_ws_told *t, uint64_t handle)
{
	struct opened **at = &t->opened;

	while (*at && (*at)->handle != handle) {
		at = &(*at)->next;
	}
	return at;
}

static void released(struct pai_ws_told *t, uint64_t handle)
{
	struct opened **at = opened_find(t, handle);
	struct opened *o = *at;

	if (o) {
		*at = o->next;
		free(o);
	}
}

static void compared(struct pai_ws_told *t, const struct pai_ws_req *req)
{
	struct dir *d = dir_at(t, &req->at);

	for (size_t i = 0; d && i < req->in.known.count; i++) {
		const struct pai_ws_entry *e = &req->in.known.entries[i];

		if (e->has_attr) {
			told(t, d, e->name, &e->attr);
		}
	}
}

void pai_ws_told_reply(struct pai_ws_told *t, const struct pai_ws_req *req)
{
	const struct opened *o;

	if (!t || req->error) {
		return;
	}
	switch (req->op) {
	case PAI_WS_WATCH:
		watched(t, req);
		break;
	case PAI_WS_UNWATCH:
		unwatched(t, &req->at.id);
		break;
	case PAI_WS_LOOKUP:
	case PAI_WS_SYMLINK:
	case PAI_WS_MKNOD:
	case PAI_WS_CREATE:
		told(t, dir_at(t, &req->at), req->name, &req->attr);
		break;
	case PAI_WS_LINK:
		told(t, dir_at(t, &req->to), req->to_name, &req->attr);
		break;
	case PAI_WS_OPENDIR:
		opened(t, req);
		break;
	case PAI_WS_READDIR:
		o = *opened_find(t, req->handle);
		if (o) {
			listed(t, &o->id, req);
		}
		break;
	case PAI_WS_RELEASE:
		released(t, req->handle);
		break;
	case PAI_WS_COMPARE:
		compared(t, req);
		break;
	default: /* what they tell by handle or path is older here than there, at worst */
		break;
	}
}

void pai_ws_told_push(struct pai_ws_told *t, const struct pai_ws_push *push)
{
	struct dir *d = t ? dir_find(t, &push->dir) : NULL;
	struct told *n = d && push->name ? name_find(t, d, push->name) : NULL;

	if (t && push->flags & PAI_WS_PUSH_ALL) {
		clear(t);
	} else if (d && push->flags & PAI_WS_PUSH_DIR_GONE) {
		dir_free(t, d);
	} else if (n && push->exists && !S_ISDIR(push->attr.mode)) {
		told(t, d, push->name, &push->attr);
	} else if (n) {
		name_free(t, n);
	}
}

/* --- comparing --- */

size_t pai_ws_told_count(const struct pai_ws_told *t)
{
	return t->count;
}

bool pai_ws_told_begin(struct pai_ws_told *t)
{
	bool all = !t->forgot;

	t->forgot = false;
	t->round++;
	return all;
}

static struct dir *next_dir(struct pai_ws_told *t)
{
	struct dir *d;

	while ((d = TAILQ_FIRST(&t->all)) != NULL && d->round != t->round) {
		const struct told *n = TAILQ_FIRST(&d->names);

		if (n && n->round != t->round) {
			return d;
		}
		d->round = t->round;
		TAILQ_REMOVE(&t->all, d, at);
		TAILQ_INSERT_TAIL(&t->all, d, at);
	}
	return NULL;
}

struct pai_ws_req *pai_ws_told_next(struct pai_ws_told *t, bool *all)
{
	struct dir *d = next_dir(t);
	struct batch *b = d ? malloc(sizeof(*b)) : NULL;
	struct told *n;
	size_t count = 0;

	if (b) {
		b->path = strdup(d->path);
	}
	if (!b || !b->path) {
		*all = *all && !d;
		free(b);
		return NULL;
	}
	while (count < BATCH_MAX && (n = TAILQ_FIRST(&d->names))->round != t->round) {
		struct pai_ws_entry *e = &b->entries[count];

		(void)snprintf(b->names[count], sizeof(b->names[count]), "%s", n->name);
		*e = (struct pai_ws_entry){.name = b->names[count]};
		e->attr.ctime_ns = n->ctime_ns;
		e->attr.flags = n->flags;
		n->round = t->round;
		TAILQ_REMOVE(&d->names, n, at);
		TAILQ_INSERT_TAIL(&d->names, n, at);
		count++;
	}
	b->dir = d->id;
	b->req = (struct pai_ws_req){.op = PAI_WS_COMPARE, .at = {b->path, d->id}};
	b->req.in.known.entries = b->entries;
	b->req.in.known.count = count;
	return &b->req;
}

void pai_ws_told_compared(struct pai_ws_told *t, struct pai_ws_req *req, bool *all,
    void (*found)(void *arg, const struct pai_ws_push *push), void *arg)
{
	struct batch *b = (struct batch *)req;
	struct dir *d = dir_find(t, &b->dir);

	for (size_t i = 0; d && !req->error && i < req->in.known.count; i++) {
		const struct pai_ws_entry *e = &b->entries[i];
		struct told *n = name_find(t, d, e->name);

		if (n && !e->has_attr) {
			name_free(t, n); /* it went: its directory's watch says so */
		} else if (n && n->stamp != pai_ws_attr_stamp(&e->attr)) {
			const struct pai_ws_push push = {.dir = b->dir,
			    .name = e->name,
			    .flags = PAI_WS_PUSH_FOUND,
			    .exists = true,
			    .attr = e->attr};

			told(t, d, e->name, &e->attr);
			found(arg, &push);
		}
	}
	if (d && req->error) {
		dir_clear(t, d); /* it is not where the client knew it, who may know more by now */
		*all = false;
	}
	pai_ws_req_fini(req);
	free(b->path);
	free(b);
}
