/*
 * Every path below the root is walked by openat2() with RESOLVE_BENEATH, _NO_SYMLINKS and
 * _NO_XDEV, so that neither a hostile link swapped in during the walk nor a mount below the
 * workspace (our own may lie there, and waiting on it would be waiting on ourselves) is ever
 * entered. A directory is then kept by its identity (posix_dirs.h); other objects are opened anew
 * for each request, which costs two microseconds and leaves nothing to go stale.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "providers/workspace/posix.h"

#define CHUNK_MAX 4000  /* below PATH_MAX: the kernel takes no longer path in one call */
#define RACE_RETRIES 64 /* openat2() says EAGAIN while somebody renames underneath */

static int open_beneath(int dir_fd, const char *path, uint64_t flags)
{
	struct open_how how = {
	    .flags = O_PATH | O_NOFOLLOW | O_CLOEXEC | flags,
	    .resolve =
		RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
	};
	int fd = -1;

	for (int i = 0; i < RACE_RETRIES; i++) {
		fd = (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
		if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) {
			break;
		}
	}
	return fd;
}

/* Longer than the kernel takes: chunk by chunk, each ending at a slash. */
static int open_long(int root_fd, const char *path, uint64_t flags)
{
	pai_auto_fd int at = -1;
	char chunk[CHUNK_MAX + 1];

	while (strlen(path) > CHUNK_MAX) {
		const char *slash = memrchr(path, '/', CHUNK_MAX);
		int next;

		if (!slash || slash == path) {
			errno = ENAMETOOLONG;
			return -1;
		}
		memcpy(chunk, path, (size_t)(slash - path));
		chunk[slash - path] = '\0';
		next = open_beneath(at >= 0 ? at : root_fd, chunk, O_DIRECTORY);
		if (next < 0) {
			return -1;
		}
		if (at >= 0) {
			(void)close(at);
		}
		at = next;
		path = slash + 1;
	}
	return open_beneath(at >= 0 ? at : root_fd, path, flags);
}

/* What a failed walk means: where an identity was expected, it is not there any more. */
static int walk_error(const struct pai_ws_at *at)
{
	bool is_missing = errno == ENOENT || errno == ENOTDIR || errno == ELOOP;

	return is_missing && at->id.ino ? ESTALE : errno;
}

void pai_node_fini(struct pai_node *n)
{
	if (n->dir) {
		pai_dirs_put(n->dirs, n->dir);
	} else if (n->fd >= 0 && !n->is_borrowed) {
		(void)close(n->fd);
	}
	*n = (struct pai_node)PAI_NODE_INIT;
}

static void hold_dir(struct pai_posix *ws, struct pai_dir *dir, struct pai_node *ret)
{
	ret->dirs = &ws->dirs;
	ret->dir = dir;
	ret->fd = dir->fd;
}

/* The root, or a directory that is known by its identity. */
static bool find_known(struct pai_posix *ws, const struct pai_ws_at *at, struct pai_node *ret)
{
	struct pai_dir *dir;

	if (at->id.ino ? pai_ws_identity_equal(&at->id, &ws->root_id) : !*at->path) {
		ret->fd = ws->root_fd;
		ret->is_borrowed = true;
		return true;
	}
	dir = at->id.ino ? pai_dirs_get(&ws->dirs, &at->id) : NULL;
	if (dir) {
		hold_dir(ws, dir, ret);
	}
	return dir != NULL;
}

static int walk(
    struct pai_posix *ws, const struct pai_ws_at *at, uint64_t flags, struct pai_node *ret)
{
	struct pai_ws_identity id;
	struct pai_dir *dir;
	int error;

	if (!*at->path) {
		return ESTALE; /* it was not the root that was meant */
	}
	ret->fd = open_long(ws->root_fd, at->path, flags);
	if (ret->fd < 0) {
		return walk_error(at);
	}
	error = pai_posix_statx(ret->fd, "", &ret->stx);
	if (error) {
		return error;
	}
	ret->has_stx = true;
	id = pai_posix_identity(ws, &ret->stx);
	if (at->id.ino && !pai_ws_identity_equal(&id, &at->id)) {
		return ESTALE;
	}
	if (S_ISDIR(ret->stx.stx_mode)) {
		dir = pai_dirs_add(&ws->dirs, &id, PAI_TAKE_FD(ret->fd));
		if (!dir) {
			return ENOMEM;
		}
		hold_dir(ws, dir, ret);
	}
	return 0;
}

int pai_posix_dir(struct pai_posix *ws, const struct pai_ws_at *at, struct pai_node *ret)
{
	return find_known(ws, at, ret) ? 0 : walk(ws, at, O_DIRECTORY, ret);
}

int pai_posix_object(struct pai_posix *ws, const struct pai_ws_at *at, struct pai_node *ret)
{
	if (!find_known(ws, at, ret)) {
		return walk(ws, at, 0, ret);
	}
	return 0;
}

int pai_posix_check_name(const char *name)
{
	if (!name || !*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, "..")) {
		return EINVAL;
	}
	return 0;
}

int pai_posix_child(int dir_fd, const char *name, int *ret_fd)
{
	int fd = open_beneath(dir_fd, name, 0);

	if (fd < 0) {
		return errno;
	}
	*ret_fd = fd;
	return 0;
}

struct pai_proc_path pai_posix_proc_path(int fd)
{
	struct pai_proc_path p;

	(void)snprintf(p.text, sizeof(p.text), "/proc/self/fd/%d", fd);
	return p;
}
