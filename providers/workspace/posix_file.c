/*
 * Open files. An object is opened O_PATH, its type is looked at, and only then is it opened for
 * real, through /proc/self/fd: so a FIFO or a device that a sandbox put where a file was is never
 * opened, and what is opened is what was looked at.
 *
 * Appending is per write (RWF_APPEND): O_APPEND on the descriptor would make every write append.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "providers/workspace/posix.h"
#include "providers/workspace/posix_lock.h"
#include "providers/workspace/watch.h"

#define COPY_MAX (64u << 20) /* per request: a copy answers short rather than late */
#define CREATE_RETRIES 64    /* somebody makes and removes that name all the time */
/* What a caller may ask for; the rest is ours, or means nothing for a regular file. */
#define OPEN_FLAGS (O_ACCMODE | O_TRUNC | O_SYNC | O_DSYNC)

static int open_flags(const struct pai_ws_req *req)
{
	int flags = (int)req->flags & OPEN_FLAGS;

	/* Somebody's lease makes an open wait for up to 45 s: not on the caller's thread. */
	return flags | O_CLOEXEC | O_NOCTTY | (pai_posix_may_wait(req) ? 0 : O_NONBLOCK);
}

static int check_type(const struct statx *stx)
{
	if (S_ISREG(stx->stx_mode)) {
		return 0;
	}
	if (S_ISLNK(stx->stx_mode)) {
		return ELOOP;
	}
	return S_ISDIR(stx->stx_mode) ? EISDIR : ENXIO;
}

/* A regular file's handle, or NULL. */
static struct pai_handle *file_of(struct pai_posix *ws, const struct pai_ws_req *req)
{
	struct pai_handle *h = pai_handles_get(&ws->handles, req->handle);

	if (h && h->is_dir) {
		pai_handles_put(&ws->handles, h);
		return NULL;
	}
	return h;
}

static bool names_wal_index(const char *name)
{
	size_t len = name ? strlen(name) : 0;

	return len > 4 && strcmp(name + len - 4, "-shm") == 0;
}

/* Its attributes are in req->attr. `name`: by which it was opened, its directory may come before
 * it; NULL: it has none. */
static int add_known(struct pai_posix *ws, struct pai_ws_req *req, int fd, const char *name)
{
	int error =
	    pai_handles_add(&ws->handles, fd, req->flags & O_ACCMODE, &req->attr, &req->out.handle);

	if (error == 0 && names_wal_index(name) && pai_lock_wal_index(ws, req->out.handle)) {
		req->out.open_flags |= PAI_WS_DIRECT;
	}
	return error;
}

static int add_handle(struct pai_posix *ws, struct pai_ws_req *req, int fd, const char *name)
{
	int error = pai_posix_stat_fd(ws, fd, &req->attr);

	if (error) {
		(void)close(fd);
		return error;
	}
	return add_known(ws, req, fd, name);
}

static int reopen(int path_fd, const struct pai_ws_req *req, int *ret_fd)
{
	int fd = open(pai_posix_proc_path(path_fd).text, open_flags(req));

	if (fd < 0) {
		return errno == EWOULDBLOCK ? PAI_POSIX_BLOCKS : errno;
	}
	*ret_fd = fd;
	return 0;
}

/* Where the name begins in a path: its directory is what comes before. */
static const char *name_in(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int open_parent(
    struct pai_posix *ws, const struct pai_ws_req *req, const char *name, struct pai_node *ret)
{
	size_t len = (size_t)(name - req->at.path);
	pai_auto_free char *parent = strndup(req->at.path, len ? len - 1 : 0);
	struct pai_ws_at at = {.path = parent, .id = req->to.id};
	int error = parent ? pai_posix_dir(ws, &at, ret) : ENOMEM;

	/* The path is where the client last knew it: what lies there now, a link perhaps, is not
	 * it. */
	return (error == ENOENT || error == ENOTDIR || error == ELOOP) && req->at.id.ino ? ESTALE
											 : error;
}

/* A missing file was not meant where an identity was expected. */
static int check_expected(
    const struct pai_posix *ws, const struct pai_ws_req *req, int error, const struct statx *stx)
{
	if (error) {
		return error == ENOENT && req->at.id.ino ? ESTALE : error;
	}
	return pai_posix_expect(ws, stx, &req->at.id);
}

/* What was proven before is open already: one look at the name tells that it is the same file.
 * False: it has to be opened. */
static bool open_shared(struct pai_posix *ws, struct pai_ws_req *req, const struct pai_node *dir,
    const char *name, int *ret_error)
{
	struct pai_handle *h;
	struct statx stx;
	int fd;

	/* SQLite's index tells its openers by their descriptions. */
	if (names_wal_index(name) || pai_posix_statx(dir->fd, name, &stx) != 0 ||
	    check_expected(ws, req, 0, &stx) != 0) {
		return false;
	}
	fd = pai_watch_share(ws, dir, name, &stx);
	if (fd < 0) {
		return false;
	}
	if (!req->in.open.no_proof && stx.stx_nlink == 1 &&
	    pai_watch_prove(ws, dir, name, &stx, fd)) {
		req->out.open_flags = PAI_WS_PROVEN;
	}
	pai_posix_fill_fd(ws, fd, &stx, &req->attr);
	*ret_error = add_known(ws, req, fd, NULL);
	h = *ret_error ? NULL : pai_handles_get(&ws->handles, req->out.handle);
	if (h) {
		h->is_shared = true;
		pai_handles_put(&ws->handles, h);
	}
	return true;
}

/* Through its directory, which may be able to vouch for the content. */
static int open_to_read(struct pai_posix *ws, struct pai_ws_req *req)
{
	const char *name = name_in(req->at.path);
	pai_auto_node struct pai_node dir = PAI_NODE_INIT;
	pai_auto_fd int path_fd = -1;
	struct statx stx;
	int fd, error = open_parent(ws, req, name, &dir);

	if (error || open_shared(ws, req, &dir, name, &error)) {
		return error;
	}
	error = pai_posix_child(dir.fd, name, &path_fd);
	if (error == 0) {
		error = pai_posix_statx(path_fd, "", &stx);
	}
	error = check_expected(ws, req, error, &stx);
	if (error == 0) {
		error = check_type(&stx);
	}
	if (error == 0) {
		error = reopen(path_fd, req, &fd);
	}
	if (error) {
		return error;
	}
	/* The attributes are read after the proof: nothing has changed since without a word. */
	if (!req->in.open.no_proof && stx.stx_nlink == 1 &&
	    pai_watch_prove(ws, &dir, name, &stx, fd)) {
		req->out.open_flags = PAI_WS_PROVEN;
	}
	return add_handle(ws, req, fd, name);
}

/* By an open description: what has lost its last name is opened anew through it. */
static int open_by_handle(struct pai_posix *ws, struct pai_ws_req *req)
{
	struct pai_handle *h = file_of(ws, req);
	int fd, error = h ? reopen(h->fd, req, &fd) : EBADF;

	pai_handles_put(&ws->handles, h);
	return error ? error : add_handle(ws, req, fd, NULL);
}

/* Small enough to come along: less than all of it is of no use. */
static void add_head(struct pai_posix *ws, struct pai_ws_req *req)
{
	size_t size = (size_t)req->attr.size;
	pai_auto_free char *data = NULL;
	struct pai_handle *h;

	if (size == 0 || size > req->in.open.head || size > PAI_WS_HEAD_BYTES ||
	    (req->flags & O_ACCMODE) != O_RDONLY || req->out.open_flags & PAI_WS_DIRECT) {
		return;
	}
	data = malloc(size + 1);
	h = data ? pai_handles_get(&ws->handles, req->out.handle) : NULL;
	if (h && pread(h->fd, data, size + 1, 0) == (ssize_t)size) {
		req->out.data = PAI_TAKE(data);
		req->out.len = size;
	}
	pai_handles_put(&ws->handles, h);
}

static int open_any(struct pai_posix *ws, struct pai_ws_req *req)
{
	pai_auto_node struct pai_node n = PAI_NODE_INIT;
	int fd, error;

	if (req->handle) {
		return open_by_handle(ws, req);
	}
	if (ws->watch && *req->at.path && (req->flags & (O_ACCMODE | O_TRUNC)) == O_RDONLY) {
		return open_to_read(ws, req);
	}
	error = pai_posix_object(ws, &req->at, &n);
	if (error) {
		return error;
	}
	error = n.has_stx ? check_type(&n.stx) : EISDIR;
	if (error == 0) {
		error = reopen(n.fd, req, &fd);
	}
	return error ? error : add_handle(ws, req, fd, req->at.path);
}

int pai_posix_open(struct pai_posix *ws, struct pai_ws_req *req)
{
	int error = open_any(ws, req);

	if (error == 0 && req->in.open.head) {
		add_head(ws, req);
	}
	return error;
}

/* --- creating --- */

static int open_new(int dir_fd, const struct pai_ws_req *req, mode_t mode, int *ret_fd)
{
	struct open_how how = {
	    .flags = (uint64_t)(open_flags(req) | O_CREAT | O_EXCL | O_NOFOLLOW),
	    .mode = mode & 07777,
	    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};
	int fd = (int)syscall(SYS_openat2, dir_fd, req->name, &how, sizeof(how));

	if (fd < 0) {
		return errno;
	}
	*ret_fd = fd;
	return 0;
}

static int open_existing(int dir_fd, const struct pai_ws_req *req, int *ret_fd)
{
	pai_auto_fd int path_fd = -1;
	struct statx stx;
	int error = pai_posix_child(dir_fd, req->name, &path_fd);

	if (error == 0) {
		error = pai_posix_statx(path_fd, "", &stx);
	}
	if (error == 0) {
		error = check_type(&stx);
	}
	return error ? error : reopen(path_fd, req, ret_fd);
}

/* The name may come and go between the two ways. */
static int open_or_create(struct pai_posix *ws, struct pai_ws_req *req, int dir_fd, int *ret_fd)
{
	pai_auto_cred struct pai_cred_scope cred = {.has_ids = false};
	int error = pai_posix_become(ws, req, req->in.make.mode, &cred);

	for (int i = 0; error == 0 && i < CREATE_RETRIES; i++) {
		error = open_new(dir_fd, req, cred.mode, ret_fd);
		req->out.created = error == 0;
		if (error == EAGAIN) {
			error = 0; /* openat2(): a rename went on underneath */
			continue;
		}
		if (error != EEXIST || req->flags & O_EXCL) {
			return error;
		}
		error = open_existing(dir_fd, req, ret_fd);
		if (error != ENOENT) {
			return error;
		}
		error = 0;
	}
	return error ? error : EBUSY;
}

int pai_posix_create(struct pai_posix *ws, struct pai_ws_req *req)
{
	pai_auto_node struct pai_node dir = PAI_NODE_INIT;
	int fd, error = pai_posix_check_name(req->name);

	if (error == 0) {
		error = pai_posix_dir(ws, &req->at, &dir);
	}
	if (error == 0) {
		error = open_or_create(ws, req, dir.fd, &fd);
	}
	if (error == 0) {
		pai_posix_stat_dir(ws, req, &dir);
	}
	return error ? error : add_handle(ws, req, fd, req->name);
}

int pai_posix_tmpfile(struct pai_posix *ws, struct pai_ws_req *req)
{
	pai_auto_cred struct pai_cred_scope cred = {.has_ids = false};
	pai_auto_node struct pai_node dir = PAI_NODE_INIT;
	int fd, error = pai_posix_dir(ws, &req->at, &dir);

	if (error == 0) {
		error = pai_posix_become(ws, req, req->in.make.mode, &cred);
	}
	if (error) {
		return error;
	}
	fd = openat(dir.fd, ".", open_flags(req) | O_TMPFILE | ((int)req->flags & O_EXCL),
	    cred.mode & 07777);
	return fd < 0 ? errno : add_handle(ws, req, fd, NULL);
}

/* --- with a handle --- */

int pai_posix_read(struct pai_posix *ws, struct pai_ws_req *req)
{
	struct pai_handle *h = file_of(ws, req);
	int error = EBADF;
	ssize_t n;

	/* Once: less than was asked for is the end of the file. */
	if (h) {
		n = pread(h->fd, req->in.io.data, req->in.io.len, req->in.io.offset);
		error = n < 0 ? errno : 0;
		req->out.len = n < 0 ? 0 : (size_t)n;
	}
	pai_handles_put(&ws->handles, h);
	return error;
}

/* The position of the description is used for nothing but this: it tells where the bytes went. */
static ssize_t append(struct pai_handle *h, const char *data, size_t len, int64_t *ret_offset)
{
	const struct iovec iov = {.iov_base = (char *)data, .iov_len = len};
	ssize_t n;
	off_t end;

	(void)pthread_mutex_lock(&h->lock);
	n = pwritev2(h->fd, &iov, 1, -1, RWF_APPEND);
	end = n < 0 ? 0 : lseek(h->fd, 0, SEEK_CUR);
	(void)pthread_mutex_unlock(&h->lock);
	*ret_offset = end - n;
	return n;
}

int pai_posix_write(struct pai_posix *ws, struct pai_ws_req *req)
{
	struct pai_handle *h = file_of(ws, req);
	const char *data = req->in.io.data;
	int64_t offset = req->in.io.offset;
	size_t done = 0;
	ssize_t n = 1;
	int error = 0;

	if (!h) {
		return EBADF;
	}
	if (req->flags & O_APPEND) {
		n = append(h, data, req->in.io.len, &req->out.offset);
		error = n < 0 ? errno : 0;
		req->out.len = n < 0 ? 0 : (size_t)n;
		pai_handles_put(&ws->handles, h);
		return error;
	}
	while (n > 0 && done < req->in.io.len) {
		n = pwrite(h->fd, data + done, req->in.io.len - done, offset + (off_t)done);
		error = n < 0 ? errno : 0;
		done += n > 0 ? (size_t)n : 0;
	}
	pai_handles_put(&ws->handles, h);
	req->out.len = done;
	req->out.offset = offset;
	return done ? 0 : error;
}

int pai_posix_release(struct pai_posix *ws, struct pai_ws_req *req)
{
	pai_lock_owners_release(ws->lock_owners, req->handle);
	return pai_handles_release(&ws->handles, req->handle) ? 0 : EBADF;
}

int pai_posix_fsync(struct pai_posix *ws, struct pai_ws_req *req)
{
	struct pai_handle *h = pai_handles_get(&ws->handles, req->handle);
	int r = -1, error = EBADF;

	if (h) {
		r = req->flags & 1 ? fdatasync(h->fd) : fsync(h->fd);
		error = r < 0 ? errno : 0;
	}
	pai_handles_put(&ws->handles, h);
	return error;
}

int pai_posix_fallocate(struct pai_posix *ws, struct pai_ws_req *req)
{
	struct pai_handle *h = file_of(ws, req);
	int error = EBADF;

	if (h) {
		error = fallocate(
			    h->fd, req->in.alloc.mode, req->in.alloc.offset, req->in.alloc.len) < 0
			    ? errno
			    : 0;
	}
	pai_handles_put(&ws->handles, h);
	return error;
}

int pai_posix_lseek(struct pai_posix *ws, struct pai_ws_req *req)
{
	struct pai_handle *h = file_of(ws, req);
	int error = EBADF;

	if (h && req->flags != SEEK_DATA && req->flags != SEEK_HOLE) {
		error = EINVAL;
	} else if (h) {
		(void)pthread_mutex_lock(&h->lock);
		req->out.offset = lseek(h->fd, req->in.io.offset, (int)req->flags);
		error = req->out.offset < 0 ? errno : 0;
		(void)pthread_mutex_unlock(&h->lock);
	}
	pai_handles_put(&ws->handles, h);
	return error;
}

int pai_posix_copy(struct pai_posix *ws, struct pai_ws_req *req)
{
	struct pai_handle *from = file_of(ws, req);
	struct pai_handle *to = pai_handles_get(&ws->handles, req->in.copy.to_handle);
	off_t in = req->in.copy.offset, out = req->in.copy.to_offset;
	size_t len = req->in.copy.len < COPY_MAX ? req->in.copy.len : COPY_MAX;
	int error = EBADF;
	ssize_t n;

	if (from && to && !to->is_dir) {
		n = copy_file_range(from->fd, &in, to->fd, &out, len, 0);
		error = n < 0 ? errno : 0;
		req->out.len = n < 0 ? 0 : (size_t)n;
	}
	pai_handles_put(&ws->handles, from);
	pai_handles_put(&ws->handles, to);
	return error;
}
