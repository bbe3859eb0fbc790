/*
 * fs_recheck: what no watch tells, asked at a barrier.
 *
 * A watch tells of a file under the name by which it was changed. A second name in a directory that
 * is not watched, or one that came and went before anybody looked, tells nothing: link() itself is
 * told of the file alone. But its ctime can't be put back, so the ctime of every file whose pages
 * or attributes the kernel believes is compared.
 *
 * That may be a hundred thousand files. So those that are not open are compared first, a
 * directory's in one request and without a lock on answers; the few that differ are looked at like
 * an open one.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/pool.h"

#define INLINE_MAX 64 /* looks that a completion may take time for */
#define BATCH_MAX 128

struct look {
	struct fs_node *node;   /* referenced */
	struct fs_node *parent; /* as it was when it was collected; to sort by alone */
	uint64_t ws_handle;     /* 0: by its name */
	bool is_right;          /* nothing is to be done about it */
};
/* Files of one directory. */
struct batch {
	struct pai_ws_req req;
	struct look *looks[BATCH_MAX];
	struct pai_ws_entry entries[BATCH_MAX];
	char names[BATCH_MAX][FS_NAME_MAX + 1];
	size_t count;
};
struct recheck {
	struct fs_env *env; /* referenced */
	struct pai_ws *ws;  /* referenced */
	struct look *looks;
	size_t count, cap;
	void (*done)(void *arg);
	void *arg;
};

/* Those in the other list, and those that are written, lose their pages anyway. */
static bool is_kept_open(const struct fs_node *n)
{
	return n->flags & FS_NODE_PAGES && !S_ISDIR(n->attr.mode) && !n->unproven.le_prev &&
	       !n->writers;
}

static bool is_told_by_name(const struct fs_node *n)
{
	return (n->flags & (FS_NODE_TOLD | FS_NODE_IN_NAME | FS_NODE_WATCHED)) ==
		   (FS_NODE_TOLD | FS_NODE_IN_NAME) &&
	       !S_ISDIR(n->attr.mode) && !(!LIST_EMPTY(&n->handles) && is_kept_open(n));
}

static bool add_locked(struct recheck *r, struct fs_node *n, uint64_t ws_handle)
{
	size_t cap = r->cap ? r->cap * 2 : 64;
	struct look *grown;

	if (r->count == r->cap) {
		grown = realloc(r->looks, cap * sizeof(*grown));
		if (!grown) {
			return false;
		}
		r->looks = grown;
		r->cap = cap;
	}
	r->looks[r->count++] =
	    (struct look){.node = n, .parent = n->parent, .ws_handle = ws_handle};
	fs_node_ref_locked(n);
	return true;
}

/* False without memory. */
static bool collect_locked(struct recheck *r)
{
	struct fs_env *env = r->env;
	struct fs_node *opened;
	bool ok = true;

	LIST_FOREACH(opened, &env->opened, opened)
	{
		ok = ok && (!is_kept_open(opened) ||
			       add_locked(r, opened, LIST_FIRST(&opened->handles)->ws_handle));
	}
	for (size_t i = 0; ok && i < env->ident_buckets; i++) {
		for (struct fs_node *n = env->idents[i]; n && ok; n = n->ident_next) {
			ok = !is_told_by_name(n) || add_locked(r, n, 0);
		}
	}
	env->epoch++; /* an answer under way is not looked at again */
	return ok;
}

static void looked(struct pai_ws_req *req)
{
	(void)req;
}

/* Those with a handle come first. */
static int by_parent(const void *a, const void *b)
{
	const struct look *x = a, *y = b;

	if (!x->ws_handle != !y->ws_handle) {
		return x->ws_handle ? -1 : 1;
	}
	return (x->parent > y->parent) - (x->parent < y->parent);
}

/* False: it is not for this batch. */
static bool batch_add_locked(struct batch *b, struct look *l, const struct fs_node *dir)
{
	const struct fs_node *n = l->node;
	struct pai_ws_entry *e = &b->entries[b->count];

	if (n->parent != dir || b->count == BATCH_MAX) {
		return false;
	}
	if ((n->flags & (FS_NODE_TOLD | FS_NODE_IN_NAME)) != (FS_NODE_TOLD | FS_NODE_IN_NAME)) {
		l->is_right = true; /* nobody believes it any more: that was told */
		return true;
	}
	(void)snprintf(b->names[b->count], sizeof(*b->names), "%s", n->name);
	*e = (struct pai_ws_entry){.name = b->names[b->count], .attr = n->attr};
	if (n->flags & (FS_NODE_ASKS_DATA | FS_NODE_ASKS_CTIME)) {
		e->attr.ctime_ns = 0; /* it tells of nothing */
	}
	b->looks[b->count++] = l;
	return true;
}

/* Returns how many of `looks` it has taken; their directory's path is the caller's to free. */
static size_t fill_batch(
    struct recheck *r, struct batch *b, struct look *looks, size_t count, char **path)
{
	struct pai_fs *fs = r->env->fs;
	const struct fs_node *dir;
	size_t taken = 0;

	b->count = 0;
	pthread_mutex_lock(&fs->lock);
	dir = looks->node->parent;
	while (taken < count && batch_add_locked(b, &looks[taken], dir)) {
		taken++;
	}
	b->req = (struct pai_ws_req){.op = PAI_WS_COMPARE, .done = looked, .error = EINPROGRESS};
	b->req.at.id = dir->env ? dir->attr.id : r->env->root_id;
	b->req.in.known.entries = b->entries;
	b->req.in.known.count = b->count;
	if (fs_node_path_locked(dir, path) < 0) {
		b->count = 0; /* each by itself */
	}
	pthread_mutex_unlock(&fs->lock);
	b->req.at.path = *path;
	return taken;
}

static void compare(struct recheck *r, struct batch *b)
{
	struct pai_fs *fs = r->env->fs;

	pai_ws_submit(r->ws, &b->req);
	pthread_mutex_lock(&fs->lock);
	for (size_t i = 0; b->req.error == 0 && i < b->count; i++) {
		const struct pai_ws_attr *attr = &b->entries[i].attr;
		struct fs_node *n = b->looks[i]->node;

		b->looks[i]->is_right = b->entries[i].has_attr && n->flags & FS_NODE_TOLD &&
					fs_same_identity(&n->attr.id, &attr->id) &&
					fs_told_holds(n, attr);
	}
	pthread_mutex_unlock(&fs->lock);
	pai_ws_req_fini(&b->req);
}

/* Finds those of the files that are told by name which need no look. */
static void compare_all(struct recheck *r)
{
	struct batch *b = calloc(1, sizeof(*b));
	size_t first = 0;

	if (r->looks) {
		qsort(r->looks, r->count, sizeof(*r->looks), by_parent);
	}
	while (first < r->count && r->looks[first].ws_handle) {
		first++;
	}
	while (b && first < r->count) {
		pai_auto_free char *path = NULL;

		first += fill_batch(r, b, &r->looks[first], r->count - first, &path);
		if (b->count) {
			compare(r, b);
		}
	}
	free(b);
}

/* A look-up: a directory is at hand on the server, a file has to be opened to be asked. */
static bool name_it(
    struct recheck *r, const struct look *l, struct pai_ws_req *req, char **path, char **name)
{
	const struct fs_node *n = l->node;

	pthread_mutex_lock(&r->env->fs->lock);
	if (n->flags & FS_NODE_IN_NAME && fs_node_path_locked(n->parent, path) == 0) {
		*name = strdup(n->name);
		req->op = PAI_WS_LOOKUP;
		req->at.path = *path;
		req->at.id = n->parent->env ? n->parent->attr.id : r->env->root_id;
		req->name = *name;
	}
	pthread_mutex_unlock(&r->env->fs->lock);
	return *name != NULL;
}

/* It changes nothing, so it asks for nothing that could wait on an inline server. */
static void look_at(struct recheck *r, const struct look *l)
{
	struct pai_ws_req req = {.op = PAI_WS_GETATTR, .done = looked, .error = EINPROGRESS};
	struct pai_fs *fs = r->env->fs;
	pai_auto_free char *path = NULL, *name = NULL;

	req.at.path = "";
	req.handle = l->ws_handle;
	if (!req.handle && !name_it(r, l, &req, &path, &name)) {
		return; /* it has lost its name: that was told */
	}
	pai_ws_submit(r->ws, &req);
	pthread_rwlock_wrlock(&r->env->session->answer_lock);
	pthread_mutex_lock(&fs->lock);
	if (req.error == 0 && !r->env->revoked) {
		fs_rechecked_locked(l->node, &req.attr);
	} else if (!r->env->revoked && l->ws_handle) {
		fs_moved_locked(l->node); /* that handle was closed meanwhile */
	}
	pthread_mutex_unlock(&fs->lock);
	pthread_rwlock_unlock(&r->env->session->answer_lock);
	pai_ws_req_fini(&req);
}

static void run(void *arg)
{
	struct recheck *r = arg;
	struct pai_fs *fs = r->env->fs;
	void (*done)(void *arg) = r->done;

	compare_all(r);
	for (size_t i = 0; i < r->count; i++) {
		if (!r->looks[i].is_right) {
			look_at(r, &r->looks[i]);
		}
	}
	pthread_mutex_lock(&fs->lock);
	for (size_t i = 0; i < r->count; i++) {
		fs_node_unref_locked(fs, r->looks[i].node);
	}
	fs_env_unref_locked(r->env);
	pthread_mutex_unlock(&fs->lock);
	pai_ws_unref(r->ws);
	arg = r->arg;
	free(r->looks);
	free(r);
	done(arg);
}

void fs_recheck(struct fs_env *env, struct pai_ws *ws, void (*done)(void *arg), void *arg)
{
	struct pai_fs *fs = env->fs;
	struct recheck *r = calloc(1, sizeof(*r));
	bool ok = r != NULL;

	if (r) {
		*r = (struct recheck){.ws = pai_ws_ref(ws), .done = done, .arg = arg};
		pthread_mutex_lock(&fs->lock);
		r->env = fs_env_ref_locked(env);
		ok = env->revoked || collect_locked(r);
		pthread_mutex_unlock(&fs->lock);
	}
	if (!ok) {
		fs_env_forget_all(env);
	}
	if (!r) {
		done(arg);
	} else if (r->count <= INLINE_MAX || pai_pool_submit(fs->files, run, r) < 0) {
		run(r);
	}
}
