#include "tests/tester/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static unsigned char buffer[PAI_OP_MAX_BYTES + 1];

__attribute__((format(printf, 3, 4))) static bool differs(
    struct pai_check *c, const char *path, const char *fmt, ...)
{
	int n = snprintf(c->why, sizeof(c->why), "'%s': ", path);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(c->why + n, sizeof(c->why) - (size_t)n, fmt, ap);
	va_end(ap);
	return false;
}

static bool check_bytes(struct pai_check *c, const struct pai_node *n, const char *path,
    const char *side, const unsigned char *bytes, ssize_t got)
{
	off_t at = 0;

	if (got < 0) {
		return differs(c, path, "%s: read: %s", side, strerrorname_np(errno));
	}
	if (got == n->size && (got == 0 || memcmp(bytes, n->data, (size_t)got) == 0)) {
		return true;
	}
	while (at < got && at < n->size && bytes[at] == n->data[at]) {
		at++;
	}
	return differs(c, path,
	    "%s: content differs at byte %lld of %lld, read %lld: %02x for %02x", side,
	    (long long)at, (long long)n->size, (long long)got, at < got ? bytes[at] : 0,
	    at < n->size ? n->data[at] : 0);
}

static ssize_t read_all(int fd)
{
	ssize_t n = 1, done = 0;

	for (; n > 0 && done < (ssize_t)sizeof(buffer); done += n) {
		n = pread(fd, buffer + done, sizeof(buffer) - (size_t)done, done);
		if (n < 0) {
			return -1;
		}
	}
	return done;
}

static bool check_content(
    struct pai_check *c, const struct pai_node *n, const char *path, const char *side, int fd)
{
	void *map = NULL;
	bool same = false;

	if (!c->map || n->size == 0 || fd < 0) {
		return check_bytes(c, n, path, side, buffer, fd < 0 ? -1 : read_all(fd));
	}
	map = mmap(NULL, (size_t)n->size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		return differs(c, path, "%s: mmap: %s", side, strerrorname_np(errno));
	}
	same = check_bytes(c, n, path, side, map, n->size);
	(void)munmap(map, (size_t)n->size);
	return same;
}

static bool check_xattrs(
    struct pai_check *c, const struct pai_node *n, const char *path, const char *side, int fd)
{
	char names[1024], name[16];
	unsigned char want[PAI_MODEL_XATTR_BYTES], got[PAI_MODEL_XATTR_BYTES];
	ssize_t len = flistxattr(fd, names, sizeof(names)), size = 0;
	unsigned listed = 0, wanted = 0;

	if (len < 0) {
		return errno == EOPNOTSUPP ||
		       differs(c, path, "%s: listxattr: %s", side, strerrorname_np(errno));
	}
	for (const char *p = names; p < names + len; p += strlen(p) + 1) {
		listed += strncmp(p, "user.x", 6) == 0;
	}
	for (int i = 0; i < PAI_MODEL_XATTRS; i++) {
		if (!n->xattrs[i].set) {
			continue;
		}
		wanted++;
		(void)snprintf(name, sizeof(name), "user.x%d", i);
		size = fgetxattr(fd, name, got, sizeof(got));
		pai_op_fill(want, n->xattrs[i].len, n->xattrs[i].val);
		if (size != n->xattrs[i].len || memcmp(got, want, (size_t)size) != 0) {
			return differs(c, path, "%s: xattr %s differs: %zd bytes for %u", side,
			    name, size, n->xattrs[i].len);
		}
	}
	return listed == wanted || differs(c, path, "%s: %u xattrs for %u", side, listed, wanted);
}

static bool check_listing(
    struct pai_check *c, const struct pai_node *n, const char *path, const char *side, int dir_fd)
{
	struct pai_run_listing want = {0}, got;
	int fd = openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), err = errno;

	if (fd >= 0) {
		err = pai_run_list(fd, &got);
	}
	if (err != 0 && (fd < 0 || err != 0)) {
		return differs(c, path, "%s: readdir: %s", side, strerrorname_np(err));
	}
	for (size_t i = 0; i < n->entry_count; i++) {
		char type = n->entries[i].node->type;

		pai_run_listing_add(&want, n->entries[i].name,
		    type == 'd'   ? DT_DIR
		    : type == 'l' ? DT_LNK
				  : DT_REG);
	}
	return (want.count == got.count && want.sum == got.sum) ||
	       differs(c, path, "%s: names differ: %u for %u", side, got.count, want.count);
}

static bool check_inside(
    struct pai_check *c, const struct pai_node *n, const char *path, const char *side, int dir_fd)
{
	bool same = false;
	ssize_t len = 0;
	int fd = -1;

	if (n->type == 'l') {
		len = readlinkat(dir_fd, path, (char *)buffer, sizeof(buffer));
		return check_bytes(c, n, path, side, buffer, len);
	}
	fd = openat(dir_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		return differs(c, path, "%s: open: %s", side, strerrorname_np(errno));
	}
	same = check_xattrs(c, n, path, side, fd) &&
	       (n->type == 'd' ? check_listing(c, n, path, side, dir_fd)
			       : check_content(c, n, path, side, fd));
	(void)close(fd);
	return same;
}

static bool check_stat(struct pai_check *c, const struct pai_node *n, const char *path,
    const char *side, const struct stat *st)
{
	if (pai_run_type(st->st_mode) != n->type) {
		return differs(
		    c, path, "%s: type %c for %c", side, pai_run_type(st->st_mode), n->type);
	}
	if ((st->st_mode & 07777U) != n->mode) {
		return differs(c, path, "%s: mode %o for %o", side, st->st_mode & 07777U, n->mode);
	}
	if (n->type != 'd' && (st->st_nlink != n->nlink || st->st_size != n->size)) {
		return differs(c, path, "%s: nlink %u for %u, size %lld for %lld", side,
		    (unsigned)st->st_nlink, n->nlink, (long long)st->st_size, (long long)n->size);
	}
	if (n->has_mtime &&
	    (st->st_mtim.tv_sec != n->mtime_s || st->st_mtim.tv_nsec != n->mtime_ns)) {
		return differs(c, path, "%s: mtime %lld.%09ld for %lld.%09lld", side,
		    (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec, n->mtime_s, n->mtime_ns);
	}
	return true;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool check_sides(
    struct pai_check *c, const char *path, const struct stat *m, const struct stat *s)
{
	if (!same_time(&m->st_mtim, &s->st_mtim) || !same_time(&m->st_ctim, &s->st_ctim)) {
		return differs(c, path,
		    "the sides differ: mtime %lld.%09ld, sandbox %lld.%09ld; ctime %lld.%09ld, "
		    "sandbox %lld.%09ld",
		    (long long)m->st_mtim.tv_sec, m->st_mtim.tv_nsec, (long long)s->st_mtim.tv_sec,
		    s->st_mtim.tv_nsec, (long long)m->st_ctim.tv_sec, m->st_ctim.tv_nsec,
		    (long long)s->st_ctim.tv_sec, s->st_ctim.tv_nsec);
	}
	if (m->st_nlink != s->st_nlink) {
		return differs(c, path, "the sides differ: nlink %u, sandbox %u",
		    (unsigned)m->st_nlink, (unsigned)s->st_nlink);
	}
	/* A session's tag sits in the upper half (DESIGN 14.8). */
	return c->no_ino || (uint32_t)m->st_ino == (uint32_t)s->st_ino ||
	       differs(c, path, "the sides differ: inode %llx, sandbox %llx",
		   (unsigned long long)m->st_ino, (unsigned long long)s->st_ino);
}

static bool check_node(struct pai_check *c, const struct pai_node *n, const char *path)
{
	struct stat m, s;

	if (fstatat(c->mount->root_fd, path, &m, AT_SYMLINK_NOFOLLOW) != 0) {
		return differs(c, path, "mount: %s", strerrorname_np(errno));
	}
	if (fstatat(c->sandbox_fd, path, &s, AT_SYMLINK_NOFOLLOW) != 0) {
		return differs(c, path, "sandbox: %s", strerrorname_np(errno));
	}
	return check_stat(c, n, path, "mount", &m) && check_stat(c, n, path, "sandbox", &s) &&
	       check_sides(c, path, &m, &s) &&
	       check_inside(c, n, path, "mount", c->mount->root_fd) &&
	       check_inside(c, n, path, "sandbox", c->sandbox_fd);
}

static bool check_tree(struct pai_check *c, const struct pai_node *dir, const char *at)
{
	char path[PAI_OP_PATH];

	for (size_t i = 0; i < dir->entry_count; i++) {
		const struct pai_node *n = dir->entries[i].node;
		int len = snprintf(
		    path, sizeof(path), "%s%s%s", at, *at ? "/" : "", dir->entries[i].name);

		if (len >= (int)sizeof(path)) {
			continue;
		}
		if ((c->all || n->touched) && !check_node(c, n, path)) {
			return false;
		}
		if (n->type == 'd' && !check_tree(c, n, path)) {
			return false;
		}
	}
	return true;
}

static bool is_absent(struct pai_check *c, const char *path, const char *side, int dir_fd)
{
	struct stat st;

	if (fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		return differs(c, path, "%s: it must be absent, but is still there", side);
	}
	return errno == ENOENT ||
	       differs(c, path, "%s: it must be absent: %s", side, strerrorname_np(errno));
}

static bool check_absent(struct pai_check *c, const struct pai_touched *t)
{
	char path[PAI_OP_PATH + 258];

	if (pai_model_find(t->dir, t->name) || !pai_model_path(c->model, t->dir, path)) {
		return true;
	}
	(void)snprintf(path + strlen(path), 258, "/%s", t->name);
	return is_absent(c, path, "mount", c->mount->root_fd) &&
	       is_absent(c, path, "sandbox", c->sandbox_fd);
}

/* Open files, the unlinked ones among them, through the descriptors that the mount's side holds. */
static bool check_handles(struct pai_check *c)
{
	struct stat st;
	char what[64];

	for (int h = 0; h < PAI_OP_HANDLES; h++) {
		const struct pai_node *n = c->model->handles[PAI_SIDE_MOUNT][h].node;
		int fd = c->mount->handles[h].fd;

		if (!n || !(c->all || n->touched)) {
			continue;
		}
		(void)snprintf(what, sizeof(what), "handle %d, nlink %u", h, n->nlink);
		if (fstat(fd, &st) != 0) {
			return differs(c, what, "fstat: %s", strerrorname_np(errno));
		}
		if (!check_stat(c, n, what, "mount", &st) ||
		    !check_content(c, n, what, "mount", fd)) {
			return false;
		}
	}
	return true;
}

bool pai_check_run(struct pai_check *c)
{
	const struct pai_node *root = c->model->root;

	for (size_t i = 0; i < c->model->touched_count; i++) {
		if (!check_absent(c, &c->model->touched[i])) {
			return false;
		}
	}
	return ((!c->all && !root->touched) || check_node(c, root, ".")) &&
	       check_tree(c, root, "") && check_handles(c);
}
