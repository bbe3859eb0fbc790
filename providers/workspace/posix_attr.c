/*
 * Attributes and extended attributes. Whether an object has any of the latter that are served is
 * part of its attributes, so that a client need not ask for what isn't there (each write() and each
 * line of `ls -l` asks); listxattrat() (Linux 6.13) tells in one call, a path through /proc before.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "providers/base/clock.h"
#include "providers/workspace/posix.h"

#ifndef SYS_listxattrat
#define SYS_listxattrat 465 /* the same on every architecture */
#endif

#define XATTR_BYTES 65536 /* XATTR_SIZE_MAX and XATTR_LIST_MAX of the kernel */
#define NS_PER_S 1000000000ll

static int64_t time_ns(const struct statx_timestamp *t)
{
	return pai_clock_join(t->tv_sec, t->tv_nsec);
}

struct pai_ws_identity pai_posix_identity(const struct pai_posix *ws, const struct statx *stx)
{
	return (struct pai_ws_identity){
	    .ino = stx->stx_ino,
	    .btime_ns = stx->stx_mask & STATX_BTIME ? (uint64_t)time_ns(&stx->stx_btime) : 0,
	    .dev = makedev(stx->stx_dev_major, stx->stx_dev_minor) ^ ws->root_dev,
	};
}

int pai_posix_expect(
    const struct pai_posix *ws, const struct statx *stx, const struct pai_ws_identity *expect)
{
	struct pai_ws_identity id = pai_posix_identity(ws, stx);

	return !expect->ino || pai_ws_identity_equal(&id, expect) ? 0 : ESTALE;
}

int pai_posix_statx(int dir_fd, const char *path, struct statx *ret)
{
	/* DONT_SYNC: a FUSE mount that lies at this name is not asked, it might be ours. */
	int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC |
		    (*path ? 0 : AT_EMPTY_PATH);

	if (statx(dir_fd, path, flags, STATX_BASIC_STATS | STATX_BTIME, ret) < 0) {
		return errno;
	}
	return *path && ret->stx_attributes & STATX_ATTR_MOUNT_ROOT ? EXDEV : 0;
}

/* --- which extended attributes are served --- */

bool pai_posix_serves_xattr(const char *name)
{
	return !strncmp(name, "user.", 5) && strncmp(name, "user.pai.", 9) != 0;
}

size_t pai_posix_filter_xattrs(char *names, size_t len)
{
	size_t kept = 0;

	for (size_t i = 0; i < len;) {
		size_t n = strnlen(names + i, len - i) + 1;

		if (i + n > len) {
			break;
		}
		if (pai_posix_serves_xattr(names + i)) {
			memmove(names + kept, names + i, n);
			kept += n;
		}
		i += n;
	}
	return kept;
}

/* A list that is longer than the buffer counts as having some: the client then asks. */
static bool has_served(char *names, ssize_t len)
{
	return len < 0 ? errno == ERANGE : pai_posix_filter_xattrs(names, (size_t)len) > 0;
}

static bool has_xattrs_at(int dir_fd, const char *name)
{
	static int is_missing; /* atomic: this kernel has no listxattrat() */
	struct pai_proc_path proc;
	char path[sizeof(proc.text) + NAME_MAX + 2];
	char names[1024];
	ssize_t n;

	if (!__atomic_load_n(&is_missing, __ATOMIC_RELAXED)) {
		n = syscall(
		    SYS_listxattrat, dir_fd, name, AT_SYMLINK_NOFOLLOW, names, sizeof(names));
		if (n >= 0 || errno != ENOSYS) {
			return has_served(names, n);
		}
		__atomic_store_n(&is_missing, 1, __ATOMIC_RELAXED);
	}
	proc = pai_posix_proc_path(dir_fd);
	(void)snprintf(path, sizeof(path), "%s/%s", proc.text, name);
	n = llistxattr(path, names, sizeof(names));
	return has_served(names, n);
}

static bool may_have_xattrs(const struct statx *stx)
{
	return S_ISREG(stx->stx_mode) || S_ISDIR(stx->stx_mode);
}

static void fill(
    const struct pai_posix *ws, const struct statx *stx, bool has_xattrs, struct pai_ws_attr *ret)
{
	*ret = (struct pai_ws_attr){
	    .id = pai_posix_identity(ws, stx),
	    .mode = stx->stx_mode,
	    .nlink = stx->stx_nlink,
	    .uid = stx->stx_uid,
	    .gid = stx->stx_gid,
	    .rdev_major = stx->stx_rdev_major,
	    .rdev_minor = stx->stx_rdev_minor,
	    .flags = ws->attr_flags | (has_xattrs ? PAI_WS_HAS_XATTRS : 0),
	    .blksize = stx->stx_blksize,
	    .size = (int64_t)stx->stx_size,
	    .blocks = (int64_t)stx->stx_blocks,
	    .atime_ns = time_ns(&stx->stx_atime),
	    .mtime_ns = time_ns(&stx->stx_mtime),
	    .ctime_ns = time_ns(&stx->stx_ctime),
	};
}

int pai_posix_stat_at(
    const struct pai_posix *ws, int dir_fd, const char *name, struct pai_ws_attr *ret)
{
	struct statx stx;
	int error = pai_posix_statx(dir_fd, name, &stx);

	if (error == 0) {
		fill(ws, &stx, may_have_xattrs(&stx) && has_xattrs_at(dir_fd, name), ret);
	}
	return error;
}

int pai_posix_compare_at(
    const struct pai_posix *ws, int dir_fd, const char *name, struct pai_ws_attr *attr)
{
	struct statx stx;
	int error = pai_posix_statx(dir_fd, name, &stx);
	bool has_xattrs = attr->flags & PAI_WS_HAS_XATTRS;

	if (error == 0) {
		if (attr->ctime_ns != time_ns(&stx.stx_ctime)) {
			has_xattrs = may_have_xattrs(&stx) && has_xattrs_at(dir_fd, name);
		}
		fill(ws, &stx, has_xattrs, attr);
	}
	return error;
}

int pai_posix_stat_node(const struct pai_posix *ws, struct pai_node *n, struct pai_ws_attr *ret)
{
	int error = n->has_stx ? 0 : pai_posix_statx(n->fd, "", &n->stx);
	bool has_xattrs = false;
	char names[1024];

	if (error) {
		return error;
	}
	n->has_stx = true;
	if (n->stx.stx_nlink == 0) {
		return ESTALE; /* a directory that was removed and is still held */
	}
	if (S_ISDIR(n->stx.stx_mode)) {
		has_xattrs = has_xattrs_at(n->fd, ".");
	} else if (S_ISREG(n->stx.stx_mode)) {
		has_xattrs = has_served(
		    names, listxattr(pai_posix_proc_path(n->fd).text, names, sizeof(names)));
	}
	fill(ws, &n->stx, has_xattrs, ret);
	return 0;
}

void pai_posix_fill_fd(
    const struct pai_posix *ws, int fd, const struct statx *stx, struct pai_ws_attr *ret)
{
	char names[1024];

	fill(ws, stx, fd >= 0 && has_served(names, flistxattr(fd, names, sizeof(names))), ret);
}

int pai_posix_stat_fd(const struct pai_posix *ws, int fd, struct pai_ws_attr *ret)
{
	struct statx stx;
	int error = pai_posix_statx(fd, "", &stx);

	if (error == 0) {
		pai_posix_fill_fd(ws, fd, &stx, ret);
	}
	return error;
}

int pai_posix_getattr(struct pai_posix *ws, struct pai_ws_req *req)
{
	pai_auto_node struct pai_node n = PAI_NODE_INIT;
	struct pai_handle *h;
	int error;

	if (req->handle) {
		h = pai_handles_get(&ws->handles, req->handle);
		error = h ? pai_posix_stat_fd(ws, h->fd, &req->attr) : EBADF;
		pai_handles_put(&ws->handles, h);
		return error;
	}
	error = pai_posix_object(ws, &req->at, &n);
	return error ? error : pai_posix_stat_node(ws, &n, &req->attr);
}

/* --- setattr --- */

/* What is changed: `fd` for calls that take AT_EMPTY_PATH, `path` for those that have none. */
struct target {
	int fd;
	bool is_writable; /* fd can be truncated through */
	struct pai_proc_path path;
};

static int set_size(const struct target *t, const struct pai_ws_req *req)
{
	pai_auto_fd int fd = -1;
	struct statx stx;

	if (t->is_writable) {
		return ftruncate(t->fd, req->in.set.size) < 0 ? errno : 0;
	}
	if (statx(t->fd, "", AT_EMPTY_PATH, STATX_TYPE, &stx) < 0) {
		return errno;
	}
	if (!S_ISREG(stx.stx_mode)) {
		return S_ISDIR(stx.stx_mode) ? EISDIR : EINVAL;
	}
	/* Somebody's lease makes an open wait for up to 45 s: not on the caller's thread. */
	fd = open(t->path.text,
	    O_WRONLY | O_CLOEXEC | O_NOCTTY | (pai_posix_may_wait(req) ? 0 : O_NONBLOCK));
	if (fd < 0) {
		return errno == EWOULDBLOCK ? PAI_POSIX_BLOCKS : errno;
	}
	return ftruncate(fd, req->in.set.size) < 0 ? errno : 0;
}

static int kill_set_ids(const struct target *t)
{
	struct statx stx;
	mode_t mode;

	if (statx(t->fd, "", AT_EMPTY_PATH, STATX_MODE | STATX_TYPE, &stx) < 0) {
		return errno;
	}
	mode = stx.stx_mode & 07777 & ~S_ISUID;
	if (stx.stx_mode & S_IXGRP) {
		mode &= ~(mode_t)S_ISGID;
	}
	return mode != (stx.stx_mode & 07777) && chmod(t->path.text, mode) < 0 ? errno : 0;
}

static struct timespec time_of(uint32_t valid, uint32_t set, uint32_t now, int64_t ns)
{
	struct timespec t = {.tv_nsec = UTIME_OMIT};

	if (valid & now) {
		t.tv_nsec = UTIME_NOW;
	} else if (valid & set) {
		t.tv_sec = ns / NS_PER_S;
		t.tv_nsec = ns % NS_PER_S;
		if (t.tv_nsec < 0) {
			t.tv_sec--;
			t.tv_nsec += NS_PER_S;
		}
	}
	return t;
}

/* Owner before mode, since chown() clears set-id bits; times last, since the others move them. */
static int apply(const struct target *t, const struct pai_ws_req *req)
{
	uint32_t v = req->in.set.valid;
	uid_t uid = v & PAI_WS_SET_UID ? req->in.set.uid : (uid_t)-1;
	gid_t gid = v & PAI_WS_SET_GID ? req->in.set.gid : (gid_t)-1;
	const struct timespec times[2] = {
	    time_of(v, PAI_WS_SET_ATIME, PAI_WS_SET_ATIME_NOW, req->in.set.atime_ns),
	    time_of(v, PAI_WS_SET_MTIME, PAI_WS_SET_MTIME_NOW, req->in.set.mtime_ns),
	};
	int error = v & PAI_WS_SET_SIZE ? set_size(t, req) : 0;

	if (error == 0 && v & PAI_WS_SET_KILL_SUIDGID) {
		error = kill_set_ids(t);
	}
	if (error == 0 && v & (PAI_WS_SET_UID | PAI_WS_SET_GID) &&
	    fchownat(t->fd, "", uid, gid, AT_EMPTY_PATH) < 0) {
		error = errno;
	}
	if (error == 0 && v & PAI_WS_SET_MODE &&
	    chmod(t->path.text, req->in.set.mode & 07777) < 0) {
		error = errno;
	}
	if (error == 0 && (times[0].tv_nsec != UTIME_OMIT || times[1].tv_nsec != UTIME_OMIT) &&
	    utimensat(t->fd, "", times, AT_EMPTY_PATH) < 0) {
		error = errno;
	}
	return error;
}

int pai_posix_setattr(struct pai_posix *ws, struct pai_ws_req *req)
{
	pai_auto_node struct pai_node n = PAI_NODE_INIT;
	struct pai_handle *h = NULL;
	struct target t = {.fd = -1};
	int error = 0;

	if (req->handle) {
		h = pai_handles_get(&ws->handles, req->handle);
		if (!h) {
			return EBADF;
		}
		t.fd = h->fd;
		t.is_writable = h->access != O_RDONLY;
	} else {
		error = pai_posix_object(ws, &req->at, &n);
		t.fd = n.fd;
	}
	if (error == 0) {
		t.path = pai_posix_proc_path(t.fd);
		error = apply(&t, req);
	}
	if (error == 0) {
		n.has_stx = false;
		error = h ? pai_posix_stat_fd(ws, h->fd, &req->attr)
			  : pai_posix_stat_node(ws, &n, &req->attr);
	}
	pai_handles_put(&ws->handles, h);
	return error;
}

static int access_fd(int fd, uint32_t mask)
{
	return faccessat(fd, "", (int)mask & 7, AT_EACCESS | AT_EMPTY_PATH) < 0 ? errno : 0;
}

int pai_posix_access(struct pai_posix *ws, struct pai_ws_req *req)
{
	pai_auto_node struct pai_node n = PAI_NODE_INIT;
	struct pai_handle *h;
	int error;

	if (req->handle) {
		h = pai_handles_get(&ws->handles, req->handle);
		error = h ? access_fd(h->fd, req->flags) : EBADF;
		pai_handles_put(&ws->handles, h);
		return error;
	}
	error = pai_posix_object(ws, &req->at, &n);
	return error ? error : access_fd(n.fd, req->flags);
}

int pai_posix_statfs(struct pai_posix *ws, struct pai_ws_req *req)
{
	struct statfs s;

	if (fstatfs(ws->root_fd, &s) < 0) {
		return errno;
	}
	req->out.statfs = (struct pai_ws_statfs){
	    .block_size = (uint64_t)(s.f_frsize ? s.f_frsize : s.f_bsize),
	    .blocks = s.f_blocks,
	    .blocks_free = s.f_bfree,
	    .blocks_available = s.f_bavail,
	    .files = s.f_files,
	    .files_free = s.f_ffree,
	    .name_max = (uint32_t)s.f_namelen,
	};
	return 0;
}

/* --- extended attributes --- */

/* The object of an xattr request as a path that names exactly it. */
struct xattr_target {
	struct pai_node node;
	struct pai_handle *handle;
	struct pai_proc_path path;
};

static int xattr_open(struct pai_posix *ws, const struct pai_ws_req *req, struct xattr_target *t)
{
	int error = 0;

	*t = (struct xattr_target){.node = PAI_NODE_INIT};
	if (req->handle) {
		t->handle = pai_handles_get(&ws->handles, req->handle);
		error = t->handle ? 0 : EBADF;
	} else {
		error = pai_posix_object(ws, &req->at, &t->node);
	}
	if (error == 0) {
		t->path = pai_posix_proc_path(t->handle ? t->handle->fd : t->node.fd);
	}
	return error;
}

static int xattr_attr(struct pai_posix *ws, struct xattr_target *t, struct pai_ws_attr *ret)
{
	t->node.has_stx = false;
	return t->handle ? pai_posix_stat_fd(ws, t->handle->fd, ret)
			 : pai_posix_stat_node(ws, &t->node, ret);
}

static void xattr_close(struct pai_posix *ws, struct xattr_target *t)
{
	pai_handles_put(&ws->handles, t->handle);
	pai_node_fini(&t->node);
}

/* `name` NULL lists. The answer is copied to its size. */
static int xattr_read(struct pai_posix *ws, struct pai_ws_req *req, const char *name)
{
	pai_auto_free char *buf = malloc(XATTR_BYTES);
	struct xattr_target t;
	ssize_t n = -1;
	int error = buf ? xattr_open(ws, req, &t) : ENOMEM;

	if (!buf) {
		return error;
	}
	if (error == 0) {
		n = name ? getxattr(t.path.text, name, buf, XATTR_BYTES)
			 : listxattr(t.path.text, buf, XATTR_BYTES);
		error = n < 0 ? errno : 0;
	}
	if (error == 0) {
		size_t len = name ? (size_t)n : pai_posix_filter_xattrs(buf, (size_t)n);

		req->out.data = malloc(len + 1);
		if (req->out.data) {
			memcpy(req->out.data, buf, len);
			req->out.len = len;
		}
		error = req->out.data ? 0 : ENOMEM;
	}
	xattr_close(ws, &t);
	return error;
}

int pai_posix_getxattr(struct pai_posix *ws, struct pai_ws_req *req)
{
	return pai_posix_serves_xattr(req->name) ? xattr_read(ws, req, req->name) : ENODATA;
}

int pai_posix_listxattr(struct pai_posix *ws, struct pai_ws_req *req)
{
	return xattr_read(ws, req, NULL);
}

int pai_posix_setxattr(struct pai_posix *ws, struct pai_ws_req *req)
{
	struct xattr_target t;
	int error;

	if (!pai_posix_serves_xattr(req->name)) {
		return EOPNOTSUPP;
	}
	error = xattr_open(ws, req, &t);
	if (error == 0 && setxattr(t.path.text, req->name, req->in.io.data, req->in.io.len,
			      (int)req->flags) < 0) {
		error = errno;
	}
	if (error == 0) {
		error = xattr_attr(ws, &t, &req->attr);
	}
	xattr_close(ws, &t);
	return error;
}

int pai_posix_removexattr(struct pai_posix *ws, struct pai_ws_req *req)
{
	struct xattr_target t;
	int error;

	if (!pai_posix_serves_xattr(req->name)) {
		return EOPNOTSUPP;
	}
	error = xattr_open(ws, req, &t);
	if (error == 0 && removexattr(t.path.text, req->name) < 0) {
		error = errno;
	}
	if (error == 0) {
		error = xattr_attr(ws, &t, &req->attr);
	}
	xattr_close(ws, &t);
	return error;
}
