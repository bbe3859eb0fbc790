/*
 * A sandbox path names one of two trees, /workspace and /tmp, and never
 * leaves it: openat2 does the walking. What it refuses as leading out may be a link whose text is
 * an absolute sandbox path: that one is replaced by its text and the walk begins again.
 */
#include "providers/workspace/contract_files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#include "providers/base/path.h"

#define LINKS_MAX 40
#define READ_MAX                                                                                   \
	(256u << 20) /* what one call may bring into memory when the caller names nothing */
#define READ_STEP (256u << 10)
#define FILE_MODE 0644
#define DIR_MODE 0755

static int open_beneath(int area_fd, const char *rel, int flags, mode_t mode)
{
	struct open_how how = {
	    .flags = (uint64_t)(flags | O_CLOEXEC),
	    .mode = mode,
	    .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, area_fd, *rel ? rel : ".", &how, sizeof(how));
}

/* The tree a normalised path lies in and the part below; -1: neither. */
static int area_of(const struct pai_contract_files *f, const char *path, const char **rel)
{
	*rel = pai_path_in_workspace(path);
	if (*rel) {
		return f->workspace_fd;
	}
	if (f->tmp_fd >= 0 && strncmp(path, "/tmp", 4) == 0 &&
	    (path[4] == '/' || path[4] == '\0')) {
		*rel = path + 4 + (path[4] == '/');
		return f->tmp_fd;
	}
	return -1;
}

static int outside(const char *path, struct pai_err *err)
{
	return pai_err_set(
	    err, PAI_E_INPUT, "'%s' lies outside /workspace and /tmp, which are served", path);
}

/* The first prefix of rel that is a link with an absolute text gives a new path: text + the rest.
 * 1 done, 0 no such link. */
static int expand_first_link(int area_fd, const char *rel, char **ret, struct pai_err *err)
{
	pai_auto_free char *prefix = strdup(rel);
	size_t at = 0;

	if (!prefix) {
		return pai_err_no_memory(err);
	}
	while (rel[at] != '\0') {
		pai_auto_fd int fd = -1;
		char text[PATH_MAX];
		ssize_t n;

		at += strcspn(rel + at, "/");
		prefix[at] = '\0';
		fd = open_beneath(area_fd, prefix, O_PATH | O_NOFOLLOW, 0);
		prefix[at] = rel[at];
		n = fd < 0 ? -1 : readlinkat(fd, "", text, sizeof(text) - 1);
		if (n > 0 && text[0] == '/') {
			text[n] = '\0';
			/* Any ".." in the text is left to the walk, which knows what it leaves. */
			*ret = rel[at] ? pai_path_join(text, rel + at + 1) : strdup(text);
			return *ret ? 1 : pai_err_no_memory(err);
		}
		at += rel[at] == '/';
	}
	return 0;
}

/* An open that leads to a link's target inside. The descriptor, -ENOENT and the like with err
 * untouched (the caller decides), or a failure with err. */
static int open_path(const struct pai_contract_files *f, const char *path, int flags, int *ret_fd,
    struct pai_err *err)
{
	pai_auto_free char *now = strdup(path);

	if (!now) {
		return pai_err_no_memory(err);
	}
	for (int links = 0; links < LINKS_MAX; links++) {
		pai_auto_free char *next = NULL;
		const char *rel;
		int area = area_of(f, now, &rel);
		int r;

		if (area < 0) {
			return outside(now, err);
		}
		*ret_fd = open_beneath(area, rel, flags, 0);
		if (*ret_fd >= 0 || errno != EXDEV) {
			return *ret_fd < 0 ? -errno : 0;
		}
		r = expand_first_link(area, rel, &next, err);
		if (r <= 0) {
			return r < 0 ? r : outside(now, err);
		}
		free(now);
		now = PAI_TAKE(next);
	}
	return pai_err_errno(err, ELOOP, "'%s'", path);
}

static bool is_missing(int r, const struct pai_err *err)
{
	return err->code == PAI_OK && (r == -ENOENT || r == -ENOTDIR);
}

static int file_error(int r, const char *path, struct pai_err *err)
{
	if (err->code == PAI_OK && r == -ENOTDIR) {
		return pai_err_set(err, PAI_E_INPUT, "'%s' lies below what is no directory", path);
	}
	return err->code == PAI_OK ? pai_err_errno(err, -r, "'%s'", path) : r;
}

/* --- reading --- */

static int reopen(int path_fd, int flags)
{
	char self[32];

	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", path_fd);
	return open(self, flags | O_CLOEXEC);
}

static int fill(int fd, uint64_t max_bytes, const struct pai_call *call, struct pai_buf *ret,
    struct pai_err *err)
{
	uint64_t left = max_bytes;

	for (;;) {
		size_t want = left < READ_STEP ? (size_t)left + 1 : READ_STEP;
		ssize_t n;
		int r = pai_call_check(call, "reading a file", err);

		if (r < 0) {
			return r;
		}
		/* No more than max_bytes is brought in: the one byte past it only tells. */
		want = want > ret->max - ret->len ? ret->max - ret->len + 1 : want;
		r = pai_buf_reserve(ret, want > ret->max - ret->len ? want - 1 : want);
		if (r < 0) {
			return pai_err_no_memory(err);
		}
		/* A buffer's spare NUL has room for the byte that only tells. */
		n = read(fd, ret->data + ret->len, want);
		if (n < 0 && errno != EINTR) {
			return pai_err_sys(err, "read");
		}
		if (n == 0) {
			ret->data[ret->len] = '\0';
			return 0;
		}
		if (n > 0 && ((uint64_t)n > left || (size_t)n > ret->max - ret->len)) {
			return pai_err_limit(err, PAI_E_FILE_TOO_LARGE, max_bytes, "the file");
		}
		ret->len += n > 0 ? (size_t)n : 0;
		left -= n > 0 ? (uint64_t)n : 0;
		ret->data[ret->len] = '\0';
	}
}

int pai_contract_read_file(const struct pai_contract_files *f, const char *path, uint64_t max_bytes,
    const struct pai_call *call, bool *found, struct pai_buf *ret, struct pai_err *err)
{
	uint64_t limit = max_bytes == UINT64_MAX ? READ_MAX : max_bytes;
	pai_auto_fd int path_fd = -1;
	pai_auto_fd int fd = -1;
	struct stat st;
	int r = f->check(f->arg, err);

	if (r < 0) {
		return r;
	}
	r = open_path(f, path, O_PATH, &path_fd, err);
	if (r < 0) {
		if (is_missing(r, err)) {
			*found = false;
			return 0;
		}
		return file_error(r, path, err);
	}
	if (fstat(path_fd, &st) < 0) {
		return pai_err_sys(err, "'%s'", path);
	}
	if (!S_ISREG(st.st_mode)) {
		return pai_err_set(err, PAI_E_INPUT, "'%s' is %s", path,
		    S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
	}
	if ((uint64_t)st.st_size > limit) {
		return pai_err_limit(err, PAI_E_FILE_TOO_LARGE, limit, "the file");
	}
	fd = reopen(path_fd, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	if (fd < 0) {
		return pai_err_sys(err, "'%s'", path);
	}
	r = fill(fd, limit, call, ret, err);
	r = r < 0 ? r : f->check(f->arg, err);
	*found = r == 0 ? true : *found;
	return r;
}

/* --- listing --- */

static int add_item(struct pai_dir_list *list, const struct dirent *e, int dir_fd)
{
	struct pai_dir_item *grown;
	struct stat st;
	bool is_directory = e->d_type == DT_DIR;

	if (e->d_type == DT_UNKNOWN) {
		is_directory = fstatat(dir_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			       S_ISDIR(st.st_mode);
	}
	/* Doubling: a directory may have millions. */
	if ((list->count & (list->count - 1)) == 0) {
		size_t cap = list->count ? list->count * 2 : 1;

		grown = reallocarray(list->items, cap, sizeof(*grown));
		if (!grown) {
			return -ENOMEM;
		}
		list->items = grown;
	}
	list->items[list->count].is_directory = is_directory;
	list->items[list->count].name = strdup(e->d_name);
	if (!list->items[list->count].name) {
		return -ENOMEM;
	}
	list->count++;
	return 0;
}

int pai_contract_list_dir(const struct pai_contract_files *f, const char *path,
    const struct pai_call *call, bool *found, struct pai_dir_list *ret, struct pai_err *err)
{
	pai_auto_dir_list struct pai_dir_list list = {0};
	pai_auto_dir DIR *dir = NULL;
	struct dirent *e;
	int fd = -1;
	int r = f->check(f->arg, err);

	if (r < 0) {
		return r;
	}
	r = open_path(f, path, O_RDONLY | O_DIRECTORY, &fd, err);
	if (is_missing(r, err) && r == -ENOENT) {
		*found = false;
		return 0;
	}
	if (is_missing(r, err)) {
		return pai_err_set(err, PAI_E_INPUT, "'%s' is not a directory", path);
	}
	if (r < 0) {
		return file_error(r, path, err);
	}
	dir = fdopendir(fd);
	if (!dir) {
		(void)close(fd);
		return pai_err_no_memory(err);
	}
	while ((e = readdir(dir)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
			continue;
		}
		r = pai_call_check(call, "listing a directory", err);
		if (r < 0) {
			return r;
		}
		if (add_item(&list, e, fd) < 0) {
			return pai_err_no_memory(err);
		}
	}
	r = f->check(f->arg, err);
	if (r < 0) {
		return r;
	}
	*found = true;
	*ret = list;
	list = (struct pai_dir_list){0};
	return 0;
}

/* --- writing --- */

struct text {
	const void *data;
	size_t len;
};

/* Root makes files on behalf of the sandbox's user. */
static int give(const struct pai_contract_files *f, int fd)
{
	return !f->has_owner || fchown(fd, f->uid, f->gid) == 0 ? 0 : -errno;
}

static int make_dir(const struct pai_contract_files *f, int above, const char *name)
{
	pai_auto_fd int fd = -1;

	if (mkdirat(above, name, DIR_MODE) < 0) {
		return errno == EEXIST ? 0 : -errno;
	}
	if (!f->has_owner) {
		return 0;
	}
	fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : give(f, fd);
}

/* From the top: what exists stays, links included; what doesn't is made. */
static int make_dirs(const struct pai_contract_files *f, const char *dir, struct pai_err *err)
{
	for (const char *end = dir + 1; *(end - 1) != '\0'; end++) {
		pai_auto_fd int above = -1;
		pai_auto_free char *here = NULL;
		const char *rel;
		char *name;
		int r;

		end += strcspn(end, "/");
		here = strndup(dir, (size_t)(end - dir));
		if (!here) {
			return pai_err_no_memory(err);
		}
		if (area_of(f, here, &rel) < 0 || *rel == '\0') {
			continue; /* the tree itself */
		}
		name = strrchr(here, '/');
		*name++ = '\0';
		r = open_path(f, here, O_PATH | O_DIRECTORY, &above, err);
		if (r == 0) {
			r = make_dir(f, above, name);
		}
		if (r < 0) {
			return r;
		}
	}
	return 0;
}

/* The directory that holds `path`, made with its parents where missing; *ret_name points into
 * path. */
static int open_parent(const struct pai_contract_files *f, const char *path, int *ret_fd,
    const char **ret_name, struct pai_err *err)
{
	pai_auto_free char *dir = strdup(path);
	char *slash;
	int r;

	*ret_name = path;
	if (!dir) {
		return pai_err_no_memory(err);
	}
	slash = strrchr(dir, '/');
	*ret_name = path + (slash - dir) + 1;
	*slash = '\0';
	r = open_path(f, dir, O_PATH | O_DIRECTORY, ret_fd, err);
	if (r != -ENOENT || err->code != PAI_OK) {
		return r < 0 ? file_error(r, path, err) : 0;
	}
	r = make_dirs(f, dir, err);
	r = r < 0 ? r : open_path(f, dir, O_PATH | O_DIRECTORY, ret_fd, err);
	return r < 0 ? file_error(r, path, err) : 0;
}

/* Where a write to `path` goes: a link at its end is followed inside. */
static int final_path(
    const struct pai_contract_files *f, const char *path, char **ret, struct pai_err *err)
{
	pai_auto_free char *now = strdup(path);

	for (int links = 0; now && links < LINKS_MAX; links++) {
		pai_auto_free char *dir = strdup(now);
		pai_auto_fd int fd = -1;
		char text[PATH_MAX];
		const char *rel;
		ssize_t n = -1;
		char *slash;

		if (!dir) {
			break;
		}
		if (area_of(f, now, &rel) < 0) {
			return outside(now, err);
		}
		slash = strrchr(dir, '/');
		*slash = '\0';
		if (*rel && open_path(f, dir, O_PATH | O_DIRECTORY, &fd, err) == 0) {
			n = readlinkat(fd, slash + 1, text, sizeof(text) - 1);
		}
		if (err->code != PAI_OK) {
			return -err->errnum;
		}
		if (n < 0) {
			*ret = PAI_TAKE(now);
			return 0;
		}
		text[n] = '\0';
		free(now);
		now = text[0] == '/' ? strdup(text) : pai_path_join(dir, text);
	}
	return now ? pai_err_errno(err, ELOOP, "'%s'", path) : pai_err_no_memory(err);
}

static int write_temp(
    int fd, const void *data, size_t len, const struct pai_call *call, struct pai_err *err)
{
	const char *at = data;

	while (len > 0) {
		size_t step = len < READ_STEP ? len : READ_STEP;
		ssize_t n = write(fd, at, step);
		int r = pai_call_check(call, "writing a file", err);

		if (r < 0) {
			return r;
		}
		if (n < 0 && errno != EINTR) {
			return pai_err_sys(err, "write");
		}
		at += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* Mode and owner of the file that is replaced; a plain user can't give a file away. */
static int keep_identity(int fd, const struct stat *old, struct pai_err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0) {
		return pai_err_sys(err, "stat");
	}
	if ((st.st_uid != old->st_uid || st.st_gid != old->st_gid) &&
	    fchown(fd, old->st_uid, old->st_gid) < 0) {
		return pai_err_sys(err, "keep the owner");
	}
	return fchmod(fd, old->st_mode & 07777) < 0 ? pai_err_sys(err, "keep the mode") : 0;
}

static int replace(const struct pai_contract_files *f, int dir_fd, const char *name,
    const struct text *text, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_fd int fd = -1;
	char temp[40];
	struct stat old;
	struct statfs fs;
	uint64_t random = 0;
	bool exists = fstatat(dir_fd, name, &old, AT_SYMLINK_NOFOLLOW) == 0;
	int r;

	if (exists && !S_ISREG(old.st_mode)) {
		return pai_err_set(err, PAI_E_INPUT, "'%s' is %s", name,
		    S_ISDIR(old.st_mode) ? "a directory" : "not a regular file");
	}
	if (f->reserve_bytes && fstatfs(dir_fd, &fs) == 0 &&
	    (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < f->reserve_bytes + text->len) {
		return pai_err_errno(err, ENOSPC, "write");
	}
	(void)!getrandom(&random, sizeof(random), 0);
	(void)snprintf(temp, sizeof(temp), ".pai-write-%016llx", (unsigned long long)random);
	fd = openat(dir_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
	if (fd < 0) {
		return pai_err_sys(err, "create");
	}
	r = write_temp(fd, text->data, text->len, call, err);
	if (r == 0 && exists) {
		r = keep_identity(fd, &old, err);
	} else if (r == 0 && give(f, fd) < 0) {
		r = pai_err_sys(err, "give it to its owner");
	}
	if (r == 0 && renameat(dir_fd, temp, dir_fd, name) < 0) {
		r = pai_err_sys(err, "rename");
	}
	if (r < 0) {
		(void)unlinkat(dir_fd, temp, 0);
	}
	return r;
}

int pai_contract_write_file(const struct pai_contract_files *f, const char *path, const void *data,
    size_t len, const struct pai_call *call, struct pai_err *err)
{
	const struct text text = {data, len};
	pai_auto_free char *target = NULL;
	pai_auto_fd int dir_fd = -1;
	const char *name = NULL;
	const char *rel;
	int r = f->check(f->arg, err);

	r = r < 0 ? r : final_path(f, path, &target, err);
	if (r < 0) {
		return r;
	}
	if (area_of(f, target, &rel) < 0) {
		return outside(target, err);
	}
	if (*rel == '\0') {
		return pai_err_set(err, PAI_E_INPUT, "'%s' is a directory", target);
	}
	r = open_parent(f, target, &dir_fd, &name, err);
	if (r < 0) {
		return r;
	}
	r = replace(f, dir_fd, name, &text, call, err);
	if (r < 0) {
		return pai_err_wrap(err, "'%s'", path);
	}
	return f->check(f->arg, err);
}
