/*
 * fs_recheck: what no watch tells, asked at a barrier.
 *
 * A watch tells of a file under the name by which it was changed. A second name in a directory that
 * is not watched, or one that came and went before anybody looked, tells nothing: link() itself is
 * told of the file alone. But its ctime can't be put back, so the ctime of every file whose pages
 * or attributes the kernel believes is compared.
 *
 * That may be a hundred thousand files. A server elsewhere remembers what it has told of them, and
 * compares that by itself. For an inline one, or one that has forgotten, those that are not open
 * are compared first, a directory's in one request and without a lock on answers; the few that
 * differ are looked at like an open one.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/pool.h"

#define INLINE_MAX 64 /* looks that a completion may take time for */
#define BATCH_MAX 512
#define FLYING_MAX 16 /* requests under way at once, where they are */

struct look {
	struct fs_node *node;   /* referenced */
	struct fs_node *parent; /* as it was when it was collected; to sort by alone */
	uint64_t ws_handle;     /* 0: by its name */
	bool is_right;          /* nothing is to be done about it */
};
struct recheck {
	struct fs_env *env; /* referenced */
	struct pai_ws *ws;  /* referenced */
	struct look *looks;
	size_t count, cap;
	size_t compared, looked_at; /* how many of them have been asked about so far */
	pthread_mutex_t lock;
	size_t flying;   /* lock: requests under way */
	bool is_pumping; /* lock: a thread is asking */
	void (*done)(void *arg);
	void *arg;
};
/* Files of one directory, by one request. */
struct batch {
	struct pai_ws_req req; /* first */
	struct recheck *r;
	char *path;
	struct look *looks[BATCH_MAX];
	struct pai_ws_entry entries[BATCH_MAX];
	char names[BATCH_MAX][FS_NAME_MAX + 1];
	size_t count;
};
/* One file, by one request. */
struct glance {
	struct pai_ws_req req; /* first */
	struct recheck *r;
	const struct look *look;
	char *path, *name;
};

static void pump(void *recheck);

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
static bool collect_locked(struct recheck *r, unsigned what)
{
	struct fs_env *env = r->env;
	struct fs_node *opened;
	bool ok = true;

	LIST_FOREACH(opened, &env->opened, opened)
	{
		ok = ok && (!(what & FS_RECHECK_OPEN) || !is_kept_open(opened) ||
			       add_locked(r, opened, LIST_FIRST(&opened->handles)->ws_handle));
	}
	for (size_t i = 0; ok && what & FS_RECHECK_NAMED && i < env->ident_buckets; i++) {
		for (struct fs_node *n = env->idents[i]; n && ok; n = n->ident_next) {
			ok = !is_told_by_name(n) || add_locked(r, n, 0);
		}
	}
	env->epoch++; /* an answer under way is not looked at again */
	return ok;
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

/* A request has been answered: what comes next is asked by whoever asks already, or here. */
static void landed(struct recheck *r)
{
	bool is_mine;

	pthread_mutex_lock(&r->lock);
	r->flying--;
	is_mine = !r->is_pumping;
	r->is_pumping = true;
	pthread_mutex_unlock(&r->lock);
	if (is_mine) {
		pump(r);
	}
}

/* --- comparing --- */

static void compared(struct pai_ws_req *req)
{
	struct batch *b = (struct batch *)req;
	struct recheck *r = b->r;
	struct pai_fs *fs = r->env->fs;

	pthread_mutex_lock(&fs->lock);
	for (size_t i = 0; req->error == 0 && i < b->count; i++) {
		const struct pai_ws_attr *attr = &b->entries[i].attr;
		struct fs_node *n = b->looks[i]->node;

		b->looks[i]->is_right = b->entries[i].has_attr && n->flags & FS_NODE_TOLD &&
					fs_same_identity(&n->attr.id, &attr->id) &&
					fs_told_holds(n, attr);
	}
	pthread_mutex_unlock(&fs->lock);
	pai_ws_req_fini(req);
	free(b->path);
	free(b);
	landed(r);
}

/* Takes as many of the files as are in one directory; false: no request came of it. */
static bool fill_batch(struct recheck *r, struct batch *b)
{
	struct pai_fs *fs = r->env->fs;
	const struct fs_node *dir;

	b->r = r;
	pthread_mutex_lock(&fs->lock);
	dir = r->looks[r->compared].node->parent;
	while (r->compared < r->count && batch_add_locked(b, &r->looks[r->compared], dir)) {
		r->compared++;
	}
	b->req = (struct pai_ws_req){.op = PAI_WS_COMPARE, .done = compared};
	b->req.at.id = dir->env ? dir->attr.id : r->env->root_id;
	b->req.in.known.entries = b->entries;
	b->req.in.known.count = b->count;
	if (fs_node_path_locked(dir, &b->path) < 0) {
		b->count = 0; /* each by itself */
	}
	pthread_mutex_unlock(&fs->lock);
	b->req.at.path = b->path;
	return b->count > 0;
}

/* Finds those of the files that are told by name which need no look; without memory all do. */
static bool compare_next(struct recheck *r)
{
	struct batch *b;

	while (r->compared < r->count) {
		b = calloc(1, sizeof(*b));
		if (!b) {
			r->compared = r->count;
			return false;
		}
		if (fill_batch(r, b)) {
			pai_ws_submit(r->ws, &b->req);
			return true;
		}
		free(b->path);
		free(b);
	}
	return false;
}

/* --- looking --- */

static void looked(struct pai_ws_req *req)
{
	struct glance *g = (struct glance *)req;
	struct recheck *r = g->r;
	struct pai_fs *fs = r->env->fs;

	pthread_rwlock_wrlock(&r->env->session->answer_lock);
	pthread_mutex_lock(&fs->lock);
	if (req->error == 0 && !r->env->revoked) {
		fs_rechecked_locked(g->look->node, &req->attr);
	} else if (!r->env->revoked && g->look->ws_handle) {
		fs_moved_locked(g->look->node); /* that handle was closed meanwhile */
	}
	pthread_mutex_unlock(&fs->lock);
	pthread_rwlock_unlock(&r->env->session->answer_lock);
	pai_ws_req_fini(req);
	free(g->path);
	free(g->name);
	free(g);
	landed(r);
}

/* A look-up: a directory is at hand on the server, a file has to be opened to be asked. False: it
 * has lost its name, and that was told. */
static bool name_it(struct glance *g)
{
	const struct fs_node *n = g->look->node;
	struct fs_env *env = g->r->env;

	pthread_mutex_lock(&env->fs->lock);
	if (n->flags & FS_NODE_IN_NAME && fs_node_path_locked(n->parent, &g->path) == 0) {
		g->name = strdup(n->name);
		g->req.op = PAI_WS_LOOKUP;
		g->req.at.path = g->path;
		g->req.at.id = n->parent->env ? n->parent->attr.id : env->root_id;
		g->req.name = g->name;
	}
	pthread_mutex_unlock(&env->fs->lock);
	return g->name != NULL;
}

/* It changes nothing, so it asks for nothing that could wait on an inline server. */
static bool look_next(struct recheck *r)
{
	struct glance *g;

	for (; r->looked_at < r->count; r->looked_at++) {
		const struct look *l = &r->looks[r->looked_at];

		if (l->is_right) {
			continue;
		}
		g = calloc(1, sizeof(*g));
		if (!g) {
			fs_env_forget_all(r->env);
			r->looked_at = r->count;
			return false;
		}
		*g = (struct glance){.r = r, .look = l};
		g->req = (struct pai_ws_req){.op = PAI_WS_GETATTR, .at.path = "", .done = looked};
		g->req.handle = l->ws_handle;
		if (l->ws_handle || name_it(g)) {
			r->looked_at++;
			pai_ws_submit(r->ws, &g->req);
			return true;
		}
		free(g->path);
		free(g);
	}
	return false;
}

/* --- asking --- */

static void finish(struct recheck *r)
{
	struct pai_fs *fs = r->env->fs;
	void (*done)(void *arg) = r->done;
	void *arg = r->arg;

	pthread_mutex_lock(&fs->lock);
	for (size_t i = 0; i < r->count; i++) {
		fs_node_unref_locked(fs, r->looks[i].node);
	}
	fs_env_unref_locked(r->env);
	pthread_mutex_unlock(&fs->lock);
	pai_ws_unref(r->ws);
	pthread_mutex_destroy(&r->lock);
	free(r->looks);
	free(r);
	done(arg);
}

/* One thread at a time asks, with is_pumping set by it or for it; requests may be answered before
 * they have been submitted. Looking begins when all has been compared. */
static void pump(void *arg)
{
	struct recheck *r = arg;
	bool is_over = false, may_look, more = true;

	pthread_mutex_lock(&r->lock);
	while (r->flying < FLYING_MAX && more) {
		may_look = r->flying == 0 || r->looked_at > 0;
		r->flying++;
		pthread_mutex_unlock(&r->lock);
		more = compare_next(r) || (may_look && look_next(r));
		pthread_mutex_lock(&r->lock);
		if (!more) {
			/* Those that were answered since may have made room to look. */
			r->flying--;
			is_over = r->flying == 0 && may_look;
			more = r->flying == 0 && !may_look;
		}
	}
	r->is_pumping = is_over;
	pthread_mutex_unlock(&r->lock);
	if (is_over) {
		finish(r);
	}
}

void fs_recheck(
    struct fs_env *env, struct pai_ws *ws, unsigned what, void (*done)(void *arg), void *arg)
{
	struct pai_fs *fs = env->fs;
	struct recheck *r = calloc(1, sizeof(*r));
	bool ok = r != NULL;

	if (r) {
		*r = (struct recheck){.ws = pai_ws_ref(ws), .done = done, .arg = arg};
		pthread_mutex_init(&r->lock, NULL);
		r->is_pumping = true;
		pthread_mutex_lock(&fs->lock);
		r->env = fs_env_ref_locked(env);
		ok = env->revoked || collect_locked(r, what);
		pthread_mutex_unlock(&fs->lock);
	}
	if (!ok) {
		fs_env_forget_all(env);
	}
	if (!r) {
		done(arg);
		return;
	}
	if (r->looks) {
		qsort(r->looks, r->count, sizeof(*r->looks), by_parent);
	}
	while (r->compared < r->count && r->looks[r->compared].ws_handle) {
		r->compared++;
	}
	if (r->count <= INLINE_MAX || !(ws->caps & PAI_WS_CAP_INLINE) ||
	    pai_pool_submit(fs->files, pump, r) < 0) {
		pump(r);
	}
}
