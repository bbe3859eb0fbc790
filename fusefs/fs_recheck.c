/*
 * fs_recheck: what no watch tells, asked at a barrier.
 *
 * A watch tells of a file under the name by which it was changed. A file that got a second name,
 * was changed through it and lost it again before anybody looked has changed in silence. Its ctime
 * can't be put back, so it is compared: of every file that is open, each time (nobody will ask when
 * it is opened); of every file whose attributes the kernel believes, when a name came and went that
 * could have been such a second name (PAI_WS_PUSH_UNSEEN). A second name in a directory that was
 * never looked at says nothing at all: such a file is right once it is opened.
 */
#include "fusefs/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/pool.h"

#define INLINE_MAX 64 /* looks that a completion may take time for */

struct look {
	struct fs_node *node; /* referenced */
	uint64_t ws_handle;   /* 0: by its name */
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
	return n->flags & FS_NODE_PAGES && !S_ISDIR(n->attr.mode) && !n->unproven_link &&
	       !n->writers;
}

static bool is_told_by_name(const struct fs_node *n)
{
	return (n->flags & (FS_NODE_TOLD | FS_NODE_IN_NAME | FS_NODE_WATCHED)) ==
		   (FS_NODE_TOLD | FS_NODE_IN_NAME) &&
	       !S_ISDIR(n->attr.mode) && !(n->handles && is_kept_open(n));
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
	r->looks[r->count++] = (struct look){.node = n, .ws_handle = ws_handle};
	fs_node_ref_locked(n);
	return true;
}

/* False without memory. */
static bool collect_locked(struct recheck *r)
{
	struct fs_env *env = r->env;
	bool ok = true;

	for (struct fs_node *n = env->opened; n && ok; n = n->opened_next) {
		ok = !is_kept_open(n) || add_locked(r, n, n->handles->ws_handle);
	}
	for (size_t i = 0; env->unseen && i < env->ident_buckets; i++) {
		for (struct fs_node *n = env->idents[i]; n && ok; n = n->ident_next) {
			ok = !is_told_by_name(n) || add_locked(r, n, 0);
		}
	}
	env->unseen = false;
	return ok;
}

static void looked(struct pai_ws_req *req)
{
	(void)req;
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

	for (size_t i = 0; i < r->count; i++) {
		look_at(r, &r->looks[i]);
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
