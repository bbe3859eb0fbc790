/*
 * A hostile tree may be deeper than any path or descriptor limit. So a directory that is not empty
 * is moved up to the top under a fresh name and emptied in a later pass: two descriptors at any
 * depth. Others may be at the same tree, to remove it or, with a descriptor from before, to write
 * into it: what has gone meanwhile is done, what has come is the next pass's.
 */
#include "providers/workspace/remove_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "providers/base/auto.h"

struct removal {
	int top_fd;
	unsigned long next; /* number of the next directory to move up */
};

/* Opens a directory so that it can be emptied, whatever its mode; never through a link. */
static int open_to_empty(int dirfd, const char *name)
{
	char self[32];
	struct stat st;
	pai_auto_fd int path_fd =
	    openat(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (path_fd < 0 || fstat(path_fd, &st) < 0) {
		return -1;
	}
	if ((st.st_mode & 0700) != 0700) {
		(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", path_fd);
		(void)chmod(self, 0700); /* not ours: the open says so */
	}
	return openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* 1: removed, or gone; 0: a directory that is not empty. */
static int remove_one(int dirfd, const char *name)
{
	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT) {
		return 1;
	}
	if (errno != EISDIR && errno != EPERM) {
		return -errno;
	}
	if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT) {
		return 1;
	}
	return errno == ENOTEMPTY || errno == EEXIST ? 0 : -errno;
}

static int move_up(struct removal *r, int dirfd, const char *name)
{
	char fresh[40];
	/* Moving a directory needs the right to write in it: its ".." changes. */
	int fd = open_to_empty(dirfd, name);

	if (fd < 0) {
		return errno == ENOENT ? 0 : -errno;
	}
	(void)close(fd);
	do {
		(void)snprintf(fresh, sizeof(fresh), ".pai-rm-%lu", r->next++);
		if (renameat(dirfd, name, r->top_fd, fresh) == 0 || errno == ENOENT) {
			return 0;
		}
	} while (errno == ENOTEMPTY || errno == EEXIST); /* of another's removal */
	return -errno;
}

typedef int (*entry_fn)(struct removal *r, int dirfd, const char *name);

/* Takes fd. */
static int each_entry(struct removal *r, int take_fd, entry_fn fn)
{
	pai_auto_dir DIR *dir = fdopendir(take_fd);
	struct dirent *e;
	int rc = 0;

	if (!dir) {
		(void)close(take_fd);
		return -ENOMEM;
	}
	while (rc >= 0 && (e = readdir(dir)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
			continue;
		}
		rc = remove_one(dirfd(dir), e->d_name);
		rc = rc == 0 ? fn(r, dirfd(dir), e->d_name) : rc;
	}
	return rc < 0 ? rc : 0;
}

/* Empties a directory in the top, save of its own directories that are not empty. */
static int empty_in_top(struct removal *r, int dirfd, const char *name)
{
	int fd = open_to_empty(dirfd, name);
	int rc;

	if (fd < 0) {
		return errno == ENOENT ? 0 : -errno;
	}
	rc = each_entry(r, fd, move_up);
	return rc < 0 ? rc : remove_one(dirfd, name);
}

int pai_remove_tree(int dirfd, const char *name, const struct pai_call *call, struct pai_err *err)
{
	struct removal r = {.next = 0};

	for (;;) {
		pai_auto_fd int top_fd = open_to_empty(dirfd, name);
		int fd = top_fd < 0 ? -1 : openat(top_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		int rc;

		if (fd < 0) {
			return errno == ENOENT ? 0 : pai_err_sys(err, "remove '%s'", name);
		}
		r.top_fd = top_fd;
		rc = each_entry(&r, fd, empty_in_top);
		if (rc == 0 && (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)) {
			return 0;
		}
		rc = rc < 0 ? rc : -errno;
		if (rc != -ENOTEMPTY && rc != -EEXIST) {
			return pai_err_errno(err, -rc, "remove '%s'", name);
		}
		rc = pai_call_check(call, "removing a sandbox's files", err);
		if (rc < 0) {
			return rc;
		}
	}
}
