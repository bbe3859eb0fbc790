/*
 * posix: a directory of this host, served in-process.
 *
 * A request is run on its submitter's thread; what may block for long (fsync, fallocate, copies, an
 * open that meets somebody's lease) goes to the pool, and waiting for a lock to a queue of its own.
 * After each request the nonce's link count is looked at (0.4 us): kill unlinks it first, so that
 * nothing that was answered with success after a kill had returned was done to the dead sandbox.
 */
#include "providers/workspace/posix.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include "providers/base/log.h"
#include "providers/base/pool.h"
#include "providers/provider.h"
#include "providers/workspace/posix_lock.h"
#include "providers/workspace/watch.h"

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

struct handler {
	pai_posix_fn fn;
	bool blocks; /* always on the pool */
	bool waits;  /* never: what waits can be cancelled from the moment it was submitted */
	bool always; /* gives something back: runs and succeeds even when the sandbox is gone */
	bool grows;  /* takes space: refused below the floor */
};

static const struct handler handlers[PAI_WS_OP_COUNT] = {
    [PAI_WS_LOOKUP] = {.fn = pai_posix_lookup},
    [PAI_WS_COMPARE] = {.fn = pai_posix_compare},
    [PAI_WS_GETATTR] = {.fn = pai_posix_getattr},
    [PAI_WS_SETATTR] = {.fn = pai_posix_setattr},
    [PAI_WS_READLINK] = {.fn = pai_posix_readlink},
    [PAI_WS_SYMLINK] = {.fn = pai_posix_symlink, .grows = true},
    [PAI_WS_MKNOD] = {.fn = pai_posix_mknod, .grows = true},
    [PAI_WS_MKDIR] = {.fn = pai_posix_mkdir, .grows = true},
    [PAI_WS_UNLINK] = {.fn = pai_posix_unlink},
    [PAI_WS_RMDIR] = {.fn = pai_posix_rmdir},
    [PAI_WS_RENAME] = {.fn = pai_posix_rename},
    [PAI_WS_LINK] = {.fn = pai_posix_link},
    [PAI_WS_OPEN] = {.fn = pai_posix_open},
    [PAI_WS_CREATE] = {.fn = pai_posix_create, .grows = true},
    [PAI_WS_TMPFILE] = {.fn = pai_posix_tmpfile, .grows = true},
    [PAI_WS_READ] = {.fn = pai_posix_read},
    [PAI_WS_WRITE] = {.fn = pai_posix_write, .grows = true},
    [PAI_WS_RELEASE] = {.fn = pai_posix_release, .always = true},
    [PAI_WS_FSYNC] = {.fn = pai_posix_fsync, .blocks = true},
    [PAI_WS_FALLOCATE] = {.fn = pai_posix_fallocate, .blocks = true, .grows = true},
    [PAI_WS_LSEEK] = {.fn = pai_posix_lseek},
    [PAI_WS_COPY] = {.fn = pai_posix_copy, .blocks = true, .grows = true},
    [PAI_WS_OPENDIR] = {.fn = pai_posix_opendir},
    [PAI_WS_READDIR] = {.fn = pai_posix_readdir},
    [PAI_WS_STATFS] = {.fn = pai_posix_statfs},
    [PAI_WS_GETXATTR] = {.fn = pai_posix_getxattr},
    [PAI_WS_SETXATTR] = {.fn = pai_posix_setxattr, .grows = true},
    [PAI_WS_LISTXATTR] = {.fn = pai_posix_listxattr},
    [PAI_WS_REMOVEXATTR] = {.fn = pai_posix_removexattr},
    [PAI_WS_GETLK] = {.fn = pai_posix_getlk, .waits = true},
    [PAI_WS_SETLK] = {.fn = pai_posix_setlk, .waits = true},
    [PAI_WS_FLOCK] = {.fn = pai_posix_flock, .waits = true},
    [PAI_WS_UNLOCK_OWNER] = {.fn = pai_posix_unlock_owner, .always = true, .waits = true},
    [PAI_WS_WATCH] = {.fn = pai_posix_watch},
    [PAI_WS_UNWATCH] = {.fn = pai_posix_unwatch, .always = true},
    [PAI_WS_BARRIER] = {.fn = pai_posix_barrier},
    [PAI_WS_ACCESS] = {.fn = pai_posix_access},
};

static const struct pai_ws_ops posix_ops;

static struct pai_posix *posix_of(struct pai_ws *ws)
{
	assert(ws->ops == &posix_ops);
	return (struct pai_posix *)ws;
}

bool pai_posix_is_gone(struct pai_posix *ws)
{
	struct stat st;

	if (__atomic_load_n(&ws->base.gone, __ATOMIC_ACQUIRE)) {
		return true;
	}
	if (fstat(ws->nonce_fd, &st) == 0 && st.st_nlink > 0) {
		return false;
	}
	__atomic_store_n(&ws->base.gone, 1, __ATOMIC_RELEASE);
	return true;
}

void pai_posix_finish(struct pai_posix *ws, struct pai_ws_req *req, int error)
{
	if (!handlers[req->op].always && pai_posix_is_gone(ws)) {
		if (error == 0 && req->out.handle) {
			(void)pai_handles_release(&ws->handles, req->out.handle);
		}
		pai_ws_req_fini(req);
		error = ESTALE;
	}
	req->error = error;
	req->done(req);
}

static void run_on_pool(void *arg)
{
	struct pai_ws_req *req = arg;
	struct pai_posix *ws = req->server_private;
	int error = handlers[req->op].fn(ws, req);

	if (error != PAI_POSIX_PENDING) {
		pai_posix_finish(ws, req, error);
	}
}

/* Without a pool, or with a full one, it blocks here: late is better than never. */
static void run_waiting(struct pai_posix *ws, struct pai_ws_req *req)
{
	req->server_private = ws;
	if (!ws->config.pool || pai_pool_submit(ws->config.pool, run_on_pool, req) < 0) {
		run_on_pool(req);
	}
}

/* A writer through the mount stops before it fills the disk that others use too. What takes a hole
 * out of a file gives space back. */
static bool is_below_floor(const struct pai_posix *ws, const struct pai_ws_req *req)
{
	struct statfs fs;

	if (req->op == PAI_WS_FALLOCATE && req->in.alloc.mode & FALLOC_FL_PUNCH_HOLE) {
		return false;
	}
	return fstatfs(ws->root_fd, &fs) == 0 &&
	       (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < ws->reserve_bytes;
}

static void posix_submit(struct pai_ws *base, struct pai_ws_req *req)
{
	struct pai_posix *ws = posix_of(base);
	const struct handler *h = &handlers[req->op];
	bool blocks = h->blocks || (ws->config.is_shared && ws->may_stall && !h->waits);
	int error = h->fn ? 0 : EOPNOTSUPP;

	if (error == 0 && !h->always && __atomic_load_n(&base->gone, __ATOMIC_ACQUIRE)) {
		error = ESTALE;
	}
	if (error == 0 && h->grows && ws->reserve_bytes && is_below_floor(ws, req)) {
		error = ENOSPC;
	}
	if (error == 0 && !blocks) {
		error = h->fn(ws, req);
	}
	if (error == PAI_POSIX_BLOCKS || (error == 0 && blocks)) {
		run_waiting(ws, req);
	} else if (error != PAI_POSIX_PENDING) {
		pai_posix_finish(ws, req, error);
	}
}

static void posix_cancel(struct pai_ws *base, struct pai_ws_req *req)
{
	pai_lock_cancel(posix_of(base), req);
}

static void posix_revoke(struct pai_ws *base)
{
	__atomic_store_n(&base->gone, 1, __ATOMIC_RELEASE);
	pai_lock_revoke(posix_of(base));
}

static void posix_free(struct pai_ws *base)
{
	struct pai_posix *ws = posix_of(base);

	pai_watch_leave(ws->watch);
	pai_lock_owners_free(ws->lock_owners);
	pai_handles_fini(&ws->handles);
	pai_dirs_fini(&ws->dirs);
	free(ws->own_groups);
	if (ws->root_fd >= 0) {
		(void)close(ws->root_fd);
	}
	if (ws->nonce_fd >= 0) {
		(void)close(ws->nonce_fd);
	}
	free(ws);
}

static const struct pai_ws_ops posix_ops = {
    .name = "posix",
    .submit = posix_submit,
    .cancel = posix_cancel,
    .revoke = posix_revoke,
    .free = posix_free,
};

/* --- making one --- */

/* Where inotify tells of everything that happens: not where other machines write too. */
static bool is_truthful(int root_fd)
{
	struct statfs s;

	if (fstatfs(root_fd, &s) < 0) {
		return false;
	}
	return s.f_type == EXT4_SUPER_MAGIC || s.f_type == XFS_SUPER_MAGIC ||
	       s.f_type == BTRFS_SUPER_MAGIC || s.f_type == TMPFS_MAGIC ||
	       s.f_type == OVERLAYFS_SUPER_MAGIC;
}

static int read_own_groups(struct pai_posix *ws, struct pai_err *err)
{
	int n = getgroups(0, NULL);

	if (n < 0) {
		return pai_err_sys(err, "own groups");
	}
	ws->own_groups = calloc((size_t)n + 1, sizeof(*ws->own_groups));
	if (!ws->own_groups) {
		return pai_err_no_memory(err);
	}
	ws->own_group_count = getgroups(n, ws->own_groups);
	return ws->own_group_count < 0 ? pai_err_sys(err, "own groups") : 0;
}

static bool config_watches(const struct pai_posix *ws)
{
	return ws->config.on_push && ws->is_truthful;
}

/* A user's inotify instances may all be taken: slower then, not wrong. */
static int join_watch(struct pai_posix *ws, struct pai_err *err)
{
	struct pai_err why = PAI_ERR_INIT;
	int r = pai_watch_join(ws, &ws->watch, &why);

	if (r == -EMFILE) {
		pai_log_warn("watch",
		    "%s (fs.inotify.max_user_instances): nothing is cached of this workspace",
		    why.msg);
		ws->is_truthful = false;
		return 0;
	}
	if (r < 0) {
		*err = why;
	}
	return r;
}

static int open_parts(struct pai_posix *ws, struct pai_err *err)
{
	struct statx stx;
	int r, error = pai_posix_statx(ws->root_fd, "", &stx);

	if (error) {
		return pai_err_errno(err, error, "stat the workspace");
	}
	ws->root_dev = makedev(stx.stx_dev_major, stx.stx_dev_minor);
	ws->root_id = pai_posix_identity(ws, &stx);
	ws->is_truthful = is_truthful(ws->root_fd);
	ws->may_stall = !ws->is_truthful;
	ws->lock_owners = pai_lock_owners_new();
	if (!ws->lock_owners) {
		return pai_err_no_memory(err);
	}
	r = read_own_groups(ws, err);
	if (r == 0 && config_watches(ws)) {
		r = join_watch(ws, err);
	}
	ws->attr_flags = config_watches(ws) ? 0 : PAI_WS_UNWATCHED;
	return r;
}

int pai_ws_posix_new(struct pai_host_files *take_files, const struct pai_ws_config *config,
    struct pai_ws **ret, struct pai_err *err)
{
	struct pai_posix *ws = calloc(1, sizeof(*ws));
	int r;

	if (!ws) {
		(void)close(take_files->root_fd);
		(void)close(take_files->nonce_fd);
		free(PAI_TAKE(take_files->state_dir));
		return pai_err_no_memory(err);
	}
	ws->base.ops = &posix_ops;
	ws->base.refs = 1;
	ws->base.caps =
	    PAI_WS_CAP_HANDLES | PAI_WS_CAP_INLINE | PAI_WS_CAP_LOCKS | PAI_WS_CAP_POSIX;
	ws->root_fd = PAI_TAKE_FD(take_files->root_fd);
	ws->nonce_fd = PAI_TAKE_FD(take_files->nonce_fd);
	ws->reserve_bytes = take_files->reserve_bytes;
	ws->maker_uid = take_files->maker_uid;
	ws->maker_gid = take_files->maker_gid;
	/* Nothing of ours lies there: the barrier needs no sentinel file (watch_thread.c). */
	free(PAI_TAKE(take_files->state_dir));
	ws->config = *config;
	ws->switches_ids = config->raw_ids && geteuid() == 0;
	pai_dirs_init(&ws->dirs);
	pai_handles_init(&ws->handles);
	r = open_parts(ws, err);
	if (r < 0) {
		posix_free(&ws->base);
		return r;
	}
	ws->base.caps |= ws->watch ? PAI_WS_CAP_WATCH : 0;
	*ret = &ws->base;
	return 0;
}
