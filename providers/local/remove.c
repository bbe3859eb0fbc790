/*
 * A hostile tree may be deeper than any path or descriptor limit. So a directory that is not empty
 * is moved up to the top under a fresh name and emptied later: two descriptors at any depth.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "providers/local/local.h"

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

struct removal {
	int top_fd;
	unsigned long next; /* number of the next directory to move up */
};

static int remove_entry(struct removal *r, int dirfd, const char *name)
{
	char fresh[40];
	int fd;

	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT) {
		return 0;
	}
	if (errno != EISDIR && errno != EPERM) {
		return -errno;
	}
	if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT) {
		return 0;
	}
	if (errno != ENOTEMPTY && errno != EEXIST) {
		return -errno;
	}
	/* Moving a directory needs the right to write in it: its ".." changes. */
	fd = open_to_empty(dirfd, name);
	if (fd < 0) {
		return -errno;
	}
	(void)close(fd);
	(void)snprintf(fresh, sizeof(fresh), ".pai-rm-%lu", r->next++);
	return renameat(dirfd, name, r->top_fd, fresh) < 0 ? -errno : 0;
}

/* Empties one directory save what had to be moved to the top. Takes fd. */
static int empty_one(struct removal *r, int take_fd, bool is_top, unsigned long upto)
{
	pai_auto_dir DIR *dir = fdopendir(take_fd);
	struct dirent *e;
	int r1 = 0;

	if (!dir) {
		(void)close(take_fd);
		return -ENOMEM;
	}
	while (r1 == 0 && (e = readdir(dir)) != NULL) {
		unsigned long number;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
			continue;
		}
		if (is_top && sscanf(e->d_name, ".pai-rm-%lu", &number) == 1 && number >= upto) {
			continue; /* moved here by us: its turn comes */
		}
		r1 = remove_entry(r, dirfd(dir), e->d_name);
	}
	return r1;
}

static int empty_tree(struct removal *r)
{
	unsigned long done = 0;
	int rc;

	rc = empty_one(r, openat(r->top_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), true, done);
	while (rc == 0 && done < r->next) {
		char name[40];
		int fd;

		(void)snprintf(name, sizeof(name), ".pai-rm-%lu", done++);
		fd = open_to_empty(r->top_fd, name);
		if (fd < 0 && errno == ENOENT) {
			continue;
		}
		rc = fd < 0 ? -errno : empty_one(r, fd, false, 0);
		if (rc == 0 && unlinkat(r->top_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT) {
			rc = -errno;
		}
	}
	return rc;
}

int pai_local_remove_tree(int dirfd, const char *name, struct pai_err *err)
{
	struct removal r = {.top_fd = -1};
	int rc;

	r.top_fd = open_to_empty(dirfd, name);
	if (r.top_fd < 0) {
		return errno == ENOENT ? 0 : pai_err_sys(err, "remove '%s'", name);
	}
	rc = empty_tree(&r);
	(void)close(r.top_fd);
	if (rc == 0 && unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT) {
		rc = -errno;
	}
	return rc < 0 ? pai_err_errno(err, -rc, "remove '%s'", name) : 0;
}
