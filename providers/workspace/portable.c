/*
 * portable: the workspace through the contract's run, read, write and list, and nothing else: for
 * sandboxes in which no helper can run. Slower, never wrong: nothing is pushed (attributes carry
 * UNWATCHED, so nothing is cached), each request asks the sandbox, on the pool.
 *
 * What can't be had this way answers EOPNOTSUPP: locks, watches, extended attributes, special
 * files, owners, and without a shell everything but reading and writing. An exclusive create, and a
 * rename without replacing, look first and then do: two that race both succeed. Where stat knows no
 * birth time (busybox), another file that got the number of a removed one is taken for it; where
 * touch takes no fraction, times that are set are cut to seconds, as by a file system that has no
 * finer ones.
 */
#include "providers/workspace/portable.h"

#include <assert.h>
#include <errno.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/stat.h>

#include "providers/base/path.h"
#include "providers/base/pool.h"

#define NS_PER_S 1000000000ll

typedef int (*handler_fn)(struct pai_portable *p, struct pai_ws_req *req);

/* No component may be empty, "." or "..": the text goes into a command and into file calls. */
static bool is_clean(const char *rel)
{
	while (*rel) {
		size_t n = strcspn(rel, "/");

		if (n == 0 || (n == 1 && *rel == '.') || (n == 2 && !strncmp(rel, "..", 2)) ||
		    (rel[n] && !rel[n + 1])) {
			return false;
		}
		rel += n + (rel[n] == '/');
	}
	return true;
}

static int check_name(const char *name)
{
	if (!name || !*name || strchr(name, '/') || !is_clean(name)) {
		return EINVAL;
	}
	return strlen(name) > 255 ? ENAMETOOLONG : 0;
}

static int no_op(struct pai_portable *p, struct pai_ws_req *req)
{
	(void)p;
	(void)req;
	return 0;
}

static int no_xattr(struct pai_portable *p, struct pai_ws_req *req)
{
	(void)p;
	if (req->op == PAI_WS_GETXATTR) {
		return ENODATA;
	}
	req->out.data = strdup("");
	return req->out.data ? 0 : ENOMEM;
}

/* --- looking --- */

static int lookup(struct pai_portable *p, struct pai_ws_req *req)
{
	pai_auto_free char *rel = pai_path_join(req->at.path, req->name);
	const char *rels[2] = {req->at.path, rel};
	struct pai_ws_attr attrs[2];
	bool found[2];
	int error = rel ? pai_portable_stat_many(p, rels, 2, attrs, found) : ENOMEM;

	if (error) {
		return error;
	}
	if (!found[0] || (req->at.id.ino && !pai_ws_identity_equal(&attrs[0].id, &req->at.id))) {
		return req->at.id.ino ? ESTALE : ENOENT;
	}
	req->attr = attrs[1];
	return found[1] ? 0 : ENOENT;
}

/* The path of what a request is about, by handle or by place. The caller frees. */
static int path_of(struct pai_portable *p, const struct pai_ws_req *req, char **ret)
{
	*ret = req->handle ? pai_portable_path_of(p, req->handle) : strdup(req->at.path);
	if (!*ret) {
		return req->handle ? EBADF : ENOMEM;
	}
	return 0;
}

static int getattr(struct pai_portable *p, struct pai_ws_req *req)
{
	pai_auto_free char *rel = NULL;
	struct pai_ws_at at = req->at;
	int error = path_of(p, req, &rel);

	at.path = rel;
	return error ? error : pai_portable_check(p, &at, &req->attr);
}

static int read_link(struct pai_portable *p, struct pai_ws_req *req)
{
	pai_auto_free char *path = pai_portable_shell_path(req->at.path);
	const char *operands[1] = {path};
	int error = path ? pai_portable_check(p, &req->at, &req->attr) : ENOMEM;

	if (error == 0 && !S_ISLNK(req->attr.mode)) {
		return EINVAL;
	}
	if (error == 0) {
		error = pai_portable_recipe(p, PAI_RECIPE_READLINK, operands, 1, &req->out.data);
	}
	req->out.len = req->out.data ? strlen(req->out.data) : 0;
	return error;
}

static int access_it(struct pai_portable *p, struct pai_ws_req *req)
{
	return getattr(p, req);
}

/* --- changing names --- */

/* The directory is still the one that was meant. */
static int check_dir(struct pai_portable *p, const struct pai_ws_at *at)
{
	struct pai_ws_attr attr;
	int error = pai_portable_check(p, at, &attr);

	return error == 0 && !S_ISDIR(attr.mode) ? ENOTDIR : error;
}

static int check_child(struct pai_portable *p, struct pai_ws_req *req, const char *rel)
{
	const struct pai_ws_at at = {rel, req->expect};
	int error = check_dir(p, &req->at);

	return error ? error : pai_portable_check(p, &at, &req->attr);
}

static int recipe_on(
    struct pai_portable *p, enum pai_recipe recipe, const char *first, const char *second)
{
	const char *operands[2] = {first, second};

	return pai_portable_recipe(p, recipe, operands, second ? 2 : 1, NULL);
}

static int make_dir(struct pai_portable *p, struct pai_ws_req *req)
{
	pai_auto_free char *rel = pai_path_join(req->at.path, req->name);
	pai_auto_free char *path = rel ? pai_portable_shell_path(rel) : NULL;
	char mode[16];
	uint32_t bits = req->in.make.mode & 07777 & ~req->cred.umask;
	int error = path ? pai_portable_check(p, &req->at, &req->attr) : ENOMEM;

	if (error == 0 && !S_ISDIR(req->attr.mode)) {
		return ENOTDIR;
	}
	if (error == 0) {
		/* mkdir(2) hands it down; the command sets what it is told. */
		(void)snprintf(
		    mode, sizeof(mode), "%05o", bits | (req->attr.mode & (uint32_t)S_ISGID));
		error = recipe_on(p, PAI_RECIPE_MKDIR, mode, path);
	}
	return error ? error : pai_portable_stat(p, rel, &req->attr);
}

static int make_node(struct pai_portable *p, struct pai_ws_req *req)
{
	pai_auto_free char *rel = pai_path_join(req->at.path, req->name);
	int error = rel ? check_dir(p, &req->at) : ENOMEM;

	if (error == 0 && !S_ISREG(req->in.make.mode)) {
		return EOPNOTSUPP;
	}
	if (error == 0) {
		error = pai_portable_stat(p, rel, &req->attr);
		error = error == 0 ? EEXIST : error == ENOENT ? 0 : error;
	}
	if (error == 0) {
		error = pai_portable_make_file(p, rel, req->in.make.mode & ~req->cred.umask);
	}
	return error ? error : pai_portable_stat(p, rel, &req->attr);
}

static int make_link(struct pai_portable *p, struct pai_ws_req *req)
{
	pai_auto_free char *rel = pai_path_join(req->at.path, req->name);
	pai_auto_free char *path = rel ? pai_portable_shell_path(rel) : NULL;
	int error = path ? check_dir(p, &req->at) : ENOMEM;

	if (error == 0) {
		error = recipe_on(p, PAI_RECIPE_SYMLINK, req->in.target, path);
	}
	return error ? error : pai_portable_stat(p, rel, &req->attr);
}

static int hard_link(struct pai_portable *p, struct pai_ws_req *req)
{
	pai_auto_free char *rel = pai_path_join(req->to.path, req->to_name);
	pai_auto_free char *to = rel ? pai_portable_shell_path(rel) : NULL;
	pai_auto_free char *from = pai_portable_shell_path(req->at.path);
	int error = to && from ? check_dir(p, &req->to) : ENOMEM;

	if (error == 0) {
		error = pai_portable_check(p, &req->at, &req->attr);
	}
	if (error == 0) {
		error = recipe_on(p, PAI_RECIPE_LN, from, to);
	}
	return error ? error : pai_portable_stat(p, rel, &req->attr);
}

static int remove_it(struct pai_portable *p, struct pai_ws_req *req)
{
	pai_auto_free char *rel = pai_path_join(req->at.path, req->name);
	pai_auto_free char *path = rel ? pai_portable_shell_path(rel) : NULL;
	bool is_rmdir = req->op == PAI_WS_RMDIR;
	int error = path ? check_child(p, req, rel) : ENOMEM;

	if (error) {
		return error;
	}
	if (S_ISDIR(req->attr.mode) != is_rmdir) {
		return is_rmdir ? ENOTDIR : EISDIR;
	}
	req->attr.nlink -= req->attr.nlink > 0;
	return recipe_on(p, is_rmdir ? PAI_RECIPE_RMDIR : PAI_RECIPE_RM, path, NULL);
}

static int rename_it(struct pai_portable *p, struct pai_ws_req *req)
{
	pai_auto_free char *from_rel = pai_path_join(req->at.path, req->name);
	pai_auto_free char *to_rel = pai_path_join(req->to.path, req->to_name);
	pai_auto_free char *from = from_rel ? pai_portable_shell_path(from_rel) : NULL;
	pai_auto_free char *to = to_rel ? pai_portable_shell_path(to_rel) : NULL;
	struct pai_ws_attr there;
	int error = from && to ? 0 : ENOMEM;

	if (req->flags & ~RENAME_NOREPLACE) {
		return EINVAL;
	}
	if (error == 0) {
		error = check_child(p, req, from_rel);
	}
	if (error == 0) {
		error = check_dir(p, &req->to);
	}
	if (error == 0 && req->flags & RENAME_NOREPLACE) {
		error = pai_portable_stat(p, to_rel, &there);
		error = error == 0 ? EEXIST : error == ENOENT ? 0 : error;
	}
	if (error == 0) {
		error = recipe_on(p, PAI_RECIPE_MV, from, to);
	}
	if (error) {
		return error;
	}
	pai_portable_moved(p, from_rel, to_rel);
	return pai_portable_stat(p, to_rel, &req->attr);
}

/* --- attributes --- */

static int set_mode(struct pai_portable *p, const struct pai_ws_req *req, const char *path)
{
	char mode[16];

	(void)snprintf(mode, sizeof(mode), "%05o", req->in.set.mode & 07777);
	return recipe_on(p, PAI_RECIPE_CHMOD, mode, path);
}

static int set_time(struct pai_portable *p, enum pai_recipe recipe, int64_t ns, const char *path)
{
	const uint64_t away = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
	const long long whole = ns / NS_PER_S - (ns % NS_PER_S < 0);
	char text[40];
	int error = EINVAL;

	if (ns % NS_PER_S) {
		(void)snprintf(text, sizeof(text), "@%s%llu.%09llu", ns < 0 ? "-" : "",
		    (unsigned long long)(away / NS_PER_S), (unsigned long long)(away % NS_PER_S));
		error = recipe_on(p, recipe, text, path);
	}
	if (error == EINVAL) {
		(void)snprintf(text, sizeof(text), "@%lld", whole);
		error = recipe_on(p, recipe, text, path);
	}
	return error;
}

static int set_times(struct pai_portable *p, const struct pai_ws_req *req, const char *path)
{
	uint32_t v = req->in.set.valid;
	int error = 0;

	if (v & PAI_WS_SET_ATIME_NOW) {
		error = recipe_on(p, PAI_RECIPE_TOUCH_ACCESS_NOW, path, NULL);
	} else if (v & PAI_WS_SET_ATIME) {
		error = set_time(p, PAI_RECIPE_TOUCH_ACCESS, req->in.set.atime_ns, path);
	}
	if (error == 0 && v & PAI_WS_SET_MTIME_NOW) {
		error = recipe_on(p, PAI_RECIPE_TOUCH_MODIFY_NOW, path, NULL);
	} else if (error == 0 && v & PAI_WS_SET_MTIME) {
		error = set_time(p, PAI_RECIPE_TOUCH_MODIFY, req->in.set.mtime_ns, path);
	}
	return error;
}

static int setattr(struct pai_portable *p, struct pai_ws_req *req)
{
	pai_auto_free char *rel = NULL;
	pai_auto_free char *path = NULL;
	struct pai_ws_at at = req->at;
	uint32_t v = req->in.set.valid;
	int error = path_of(p, req, &rel);

	at.path = rel;
	if (error == 0) {
		path = pai_portable_shell_path(rel);
		error = path ? pai_portable_check(p, &at, &req->attr) : ENOMEM;
	}
	if (error) {
		return error;
	}
	if ((v & PAI_WS_SET_UID && req->in.set.uid != req->attr.uid) ||
	    (v & PAI_WS_SET_GID && req->in.set.gid != req->attr.gid)) {
		return EPERM;
	}
	if (v & PAI_WS_SET_SIZE) {
		struct pai_ws_identity id = req->attr.id;

		error = S_ISREG(req->attr.mode) ? pai_portable_resize(p, rel, req->in.set.size)
						: EISDIR;
		if (error == 0) {
			pai_portable_replaced(p, rel, &id);
		}
	}
	if (error == 0 && v & PAI_WS_SET_MODE) {
		error = set_mode(p, req, path);
	}
	if (error == 0) {
		error = set_times(p, req, path);
	}
	return error ? error : pai_portable_stat(p, rel, &req->attr);
}

static int barrier(struct pai_portable *p, struct pai_ws_req *req)
{
	(void)req;
	pai_portable_forget(p);
	return 0;
}

/* --- the server --- */

struct handler {
	handler_fn fn;
	bool has_name, has_to;
	bool always; /* gives something back */
};

static const struct handler handlers[PAI_WS_OP_COUNT] = {
    [PAI_WS_LOOKUP] = {.fn = lookup, .has_name = true},
    [PAI_WS_GETATTR] = {.fn = getattr},
    [PAI_WS_SETATTR] = {.fn = setattr},
    [PAI_WS_READLINK] = {.fn = read_link},
    [PAI_WS_SYMLINK] = {.fn = make_link, .has_name = true},
    [PAI_WS_MKNOD] = {.fn = make_node, .has_name = true},
    [PAI_WS_MKDIR] = {.fn = make_dir, .has_name = true},
    [PAI_WS_UNLINK] = {.fn = remove_it, .has_name = true},
    [PAI_WS_RMDIR] = {.fn = remove_it, .has_name = true},
    [PAI_WS_RENAME] = {.fn = rename_it, .has_name = true, .has_to = true},
    [PAI_WS_LINK] = {.fn = hard_link, .has_to = true},
    [PAI_WS_OPEN] = {.fn = pai_portable_open},
    [PAI_WS_CREATE] = {.fn = pai_portable_create, .has_name = true},
    [PAI_WS_READ] = {.fn = pai_portable_read},
    [PAI_WS_WRITE] = {.fn = pai_portable_write},
    [PAI_WS_RELEASE] = {.fn = pai_portable_release, .always = true},
    [PAI_WS_FSYNC] = {.fn = no_op}, /* each write was written through */
    [PAI_WS_LSEEK] = {.fn = pai_portable_lseek},
    [PAI_WS_OPENDIR] = {.fn = pai_portable_opendir},
    [PAI_WS_READDIR] = {.fn = pai_portable_readdir},
    [PAI_WS_GETXATTR] = {.fn = no_xattr},
    [PAI_WS_LISTXATTR] = {.fn = no_xattr},
    [PAI_WS_UNLOCK_OWNER] = {.fn = no_op, .always = true},
    [PAI_WS_UNWATCH] = {.fn = no_op, .always = true},
    [PAI_WS_BARRIER] = {.fn = barrier},
    [PAI_WS_ACCESS] = {.fn = access_it},
};

static const struct pai_ws_ops portable_ops;

static struct pai_portable *portable_of(struct pai_ws *ws)
{
	assert(ws->ops == &portable_ops);
	return (struct pai_portable *)ws;
}

static void finish(struct pai_portable *p, struct pai_ws_req *req, int error)
{
	if (!handlers[req->op].always && __atomic_load_n(&p->base.gone, __ATOMIC_ACQUIRE)) {
		if (error == 0 && req->out.handle) {
			struct pai_ws_req release = {.handle = req->out.handle};

			(void)pai_portable_release(p, &release);
		}
		pai_ws_req_fini(req);
		error = ESTALE;
	}
	req->error = error;
	req->done(req);
}

static int check_request(const struct pai_portable *p, const struct pai_ws_req *req)
{
	const struct handler *h = &handlers[req->op];
	int error = h->fn ? 0 : EOPNOTSUPP;

	if (error == 0 && !h->always && __atomic_load_n(&p->base.gone, __ATOMIC_ACQUIRE)) {
		return ESTALE;
	}
	if (error == 0 &&
	    ((req->at.path && !is_clean(req->at.path)) || (h->has_to && !is_clean(req->to.path)))) {
		return EINVAL;
	}
	if (error == 0 && h->has_name) {
		error = check_name(req->name);
	}
	return error == 0 && h->has_to ? check_name(req->to_name) : error;
}

/* Takes the next from the queue, or gives the thread back. */
static struct pai_ws_req *next_queued(struct pai_portable *p)
{
	struct pai_ws_req *req;

	(void)pthread_mutex_lock(&p->lock);
	req = p->queue;
	if (!req) {
		p->running--;
	} else {
		p->queue = req->server_next;
		p->queue_end = p->queue ? p->queue_end : &p->queue;
	}
	(void)pthread_mutex_unlock(&p->lock);
	return req;
}

static void run_queue(void *arg)
{
	struct pai_portable *p = arg;
	struct pai_ws_req *req;

	while ((req = next_queued(p))) {
		finish(p, req, handlers[req->op].fn(p, req));
	}
	pai_ws_unref(&p->base);
}

/* The pool takes nothing more: when no thread is at the queue, what is in it fails, clearly. */
static void give_up(struct pai_portable *p)
{
	struct pai_ws_req *failed = NULL;

	(void)pthread_mutex_lock(&p->lock);
	if (--p->running == 0) {
		failed = p->queue;
		p->queue = NULL;
		p->queue_end = &p->queue;
	}
	(void)pthread_mutex_unlock(&p->lock);
	while (failed) {
		struct pai_ws_req *next = failed->server_next;

		finish(p, failed, EIO);
		failed = next;
	}
}

/* In order, on as many threads as one sandbox may hold. */
static void enqueue(struct pai_portable *p, struct pai_ws_req *req)
{
	bool wants_thread;

	req->server_next = NULL;
	(void)pthread_mutex_lock(&p->lock);
	*p->queue_end = req;
	p->queue_end = &req->server_next;
	wants_thread = p->running < PAI_PORTABLE_RUNNING;
	p->running += wants_thread;
	(void)pthread_mutex_unlock(&p->lock);
	if (wants_thread) {
		(void)pai_ws_ref(&p->base);
		if (pai_pool_submit(p->config.pool, run_queue, p) < 0) {
			give_up(p);
			pai_ws_unref(&p->base);
		}
	}
}

static void portable_submit(struct pai_ws *ws, struct pai_ws_req *req)
{
	struct pai_portable *p = portable_of(ws);
	int error = check_request(p, req);

	if (error) {
		finish(p, req, error);
	} else if (handlers[req->op].always || !p->config.pool) {
		/* Does not ask the sandbox; or there is nowhere else. */
		finish(p, req, handlers[req->op].fn(p, req));
	} else {
		enqueue(p, req);
	}
}

static void portable_cancel(struct pai_ws *ws, struct pai_ws_req *req)
{
	struct pai_portable *p = portable_of(ws);
	struct pai_ws_req **at = &p->queue;

	(void)pthread_mutex_lock(&p->lock);
	while (*at && *at != req) {
		at = &(*at)->server_next;
	}
	if (*at) {
		*at = req->server_next;
		p->queue_end = p->queue_end == &req->server_next ? at : p->queue_end;
	} else {
		req = NULL; /* one that runs ends by its call's deadline */
	}
	(void)pthread_mutex_unlock(&p->lock);
	if (req) {
		finish(p, req, ECANCELED);
	}
}

static void portable_revoke(struct pai_ws *ws)
{
	struct pai_portable *p = portable_of(ws);

	__atomic_store_n(&ws->gone, 1, __ATOMIC_RELEASE);
	pai_cancel_fire(p->cancel);
}

static void portable_free(struct pai_ws *ws)
{
	struct pai_portable *p = portable_of(ws);
	struct pai_ws_config config = p->config;

	pai_portable_files_free(p);
	pai_cancel_unref(p->cancel);
	(void)pthread_mutex_destroy(&p->lock);
	free(p);
	if (config.freed) {
		config.freed(config.freed_arg);
	}
}

static const struct pai_ws_ops portable_ops = {
    .name = "portable",
    .submit = portable_submit,
    .cancel = portable_cancel,
    .revoke = portable_revoke,
    .free = portable_free,
};

int pai_ws_portable_new(struct pai_sandbox *sb, const struct pai_ws_config *config,
    struct pai_ws **ret, struct pai_err *err)
{
	struct pai_portable *p = calloc(1, sizeof(*p));

	if (!p) {
		return pai_err_no_memory(err);
	}
	p->cancel = pai_cancel_new();
	if (!p->cancel) {
		free(p);
		return pai_err_no_memory(err);
	}
	(void)pthread_mutex_init(&p->lock, NULL);
	p->queue_end = &p->queue;
	p->base.ops = &portable_ops;
	p->base.refs = 1;
	p->sb = sb;
	p->config = *config;
	*ret = &p->base;
	return 0;
}
