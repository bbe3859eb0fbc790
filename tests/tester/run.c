#include "tests/tester/run.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* One thread per process runs operations; a mapped access that the file system can't serve comes
 * back here and is a result like any other. */
static sigjmp_buf bus;
static volatile sig_atomic_t bus_armed;
static unsigned char buffer[PAI_OP_MAX_BYTES];

/* What follows "OK" in a result. */
#define OUT_BYTES (PAI_OP_RESULT - 2)

static void on_bus(int sig)
{
	if (bus_armed) {
		siglongjmp(bus, 1);
	}
	(void)signal(sig, SIG_DFL);
	(void)raise(sig);
}

void pai_run_init(struct pai_run *r)
{
	struct sigaction sa = {.sa_handler = on_bus};

	(void)sigaction(SIGBUS, &sa, NULL);
	r->root_fd = -1;
	for (int h = 0; h < PAI_OP_HANDLES; h++) {
		r->handles[h].fd = -1;
		r->handles[h].map = NULL;
	}
}

static void drop_map(struct pai_run *r, int h)
{
	if (r->handles[h].map) {
		(void)munmap(r->handles[h].map, PAI_OP_MAP_BYTES);
		r->handles[h].map = NULL;
	}
}

static int drop_handle(struct pai_run *r, int h)
{
	int rc = 0;

	drop_map(r, h);
	if (r->handles[h].fd >= 0) {
		rc = close(r->handles[h].fd);
		r->handles[h].fd = -1;
	}
	return rc;
}

void pai_run_fini(struct pai_run *r)
{
	for (int h = 0; h < PAI_OP_HANDLES; h++) {
		(void)drop_handle(r, h);
	}
	if (r->root_fd >= 0) {
		(void)close(r->root_fd);
	}
	r->root_fd = -1;
}

int pai_run_set_root(struct pai_run *r, const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0) {
		return errno;
	}
	pai_run_fini(r);
	r->root_fd = fd;
	return 0;
}

char pai_run_type(unsigned mode)
{
	return S_ISREG(mode) ? 'f' : S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' : '?';
}

void pai_run_listing_add(struct pai_run_listing *l, const char *name, unsigned char d_type)
{
	l->count++;
	l->sum += pai_op_hash(d_type + 1U, name, strlen(name));
}

int pai_run_list(int fd, struct pai_run_listing *ret)
{
	struct dirent *e = NULL;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	int err = errno;

	memset(ret, 0, sizeof(*ret));
	if (!dir) {
		if (fd >= 0) {
			(void)close(fd);
		}
		return err;
	}
	errno = 0;
	while ((e = readdir(dir)) != NULL) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
			pai_run_listing_add(ret, e->d_name, e->d_type);
		}
	}
	err = errno;
	(void)closedir(dir);
	return err;
}

/* Each of the following returns 0, or -1 with errno; text beyond "OK" goes to `out`. */

static int write_all(int fd, long long off, long long len, unsigned val)
{
	ssize_t n = 0;

	pai_op_fill(buffer, (size_t)len, val);
	for (long long done = 0; done < len; done += n) {
		n = pwrite(fd, buffer + done, (size_t)(len - done), off + done);
		if (n <= 0) {
			return -1;
		}
	}
	return 0;
}

static int read_hash(int fd, long long off, long long len, char *out)
{
	long long done = 0;
	ssize_t n = 1;

	while (done < len && n > 0) {
		n = pread(fd, buffer + done, (size_t)(len - done), off + done);
		if (n < 0) {
			return -1;
		}
		done += n;
	}
	(void)snprintf(out, OUT_BYTES, " %lld %016llx", done,
	    (unsigned long long)pai_op_hash(0, buffer, (size_t)done));
	return 0;
}

static int say_stat(const struct stat *st, char *out)
{
	(void)snprintf(out, OUT_BYTES, " %c %o", pai_run_type(st->st_mode), st->st_mode & 07777U);
	/* Link counts and sizes of directories are the file system's own business. */
	if (!S_ISDIR(st->st_mode)) {
		(void)snprintf(out + strlen(out), OUT_BYTES - strlen(out), " %u %lld",
		    (unsigned)st->st_nlink, (long long)st->st_size);
	}
	return 0;
}

static int open_for(const struct pai_run *r, const struct pai_op *op, int flags)
{
	return openat(r->root_fd, op->path, flags | O_NOFOLLOW | O_CLOEXEC, 0666);
}

static int falloc(int fd, const struct pai_op *op)
{
	static const int modes[] = {0, FALLOC_FL_KEEP_SIZE,
	    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE};

	return fallocate(fd, modes[op->val & 3], op->off, op->len);
}

static int swap_bytes(int fd, unsigned val)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};
	struct stat st;

	if (fstat(fd, &st) != 0 || write_all(fd, 0, st.st_size, val) != 0) {
		return -1;
	}
	times[1] = st.st_mtim;
	return futimens(fd, times);
}

/* Verbs that open the path, do one thing and close. */
static int run_opened(struct pai_run *r, const struct pai_op *op, char *out)
{
	char name[16];
	int flags = O_WRONLY, rc = 0, fd = -1, err = 0;

	switch (op->verb) {
	case PAI_OP_CREATE:
		flags |= O_CREAT | O_EXCL;
		break;
	case PAI_OP_PUT:
		flags |= O_CREAT | O_TRUNC;
		break;
	case PAI_OP_APPEND:
		flags |= O_APPEND;
		break;
	case PAI_OP_READ:
	case PAI_OP_SETX:
	case PAI_OP_RMX:
		flags = O_RDONLY;
		break;
	default:
		break;
	}
	fd = open_for(r, op, flags);
	if (fd < 0) {
		return -1;
	}
	(void)snprintf(name, sizeof(name), "user.x%d", op->h);
	switch (op->verb) {
	case PAI_OP_PUT:
	case PAI_OP_PWRITE:
	case PAI_OP_APPEND:
		rc = write_all(fd, op->off, op->len, op->val);
		break;
	case PAI_OP_SWAP:
		rc = swap_bytes(fd, op->val);
		break;
	case PAI_OP_FALLOC:
		rc = falloc(fd, op);
		break;
	case PAI_OP_READ:
		rc = read_hash(fd, 0, PAI_OP_MAX_BYTES, out);
		break;
	case PAI_OP_SETX:
		pai_op_fill(buffer, (size_t)op->len, op->val);
		rc = fsetxattr(fd, name, buffer, (size_t)op->len, 0);
		break;
	case PAI_OP_RMX:
		rc = fremovexattr(fd, name);
		break;
	default:
		break;
	}
	err = errno;
	if (close(fd) != 0 && rc == 0) {
		return -1;
	}
	errno = err;
	return rc;
}

static int run_truncate(struct pai_run *r, const struct pai_op *op)
{
	int fd = open_for(r, op, O_WRONLY), rc = 0, err = 0;

	if (fd < 0) {
		return -1;
	}
	rc = ftruncate(fd, op->len);
	err = errno;
	(void)close(fd);
	errno = err;
	return rc;
}

static int run_path(struct pai_run *r, const struct pai_op *op, char *out)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {op->off, (long)op->len}};
	struct pai_run_listing listing;
	struct stat st;
	ssize_t n = 0;
	int root = r->root_fd;

	switch (op->verb) {
	case PAI_OP_TRUNC:
		return run_truncate(r, op);
	case PAI_OP_RENAME:
		return renameat2(root, op->path, root, op->path2, op->val);
	case PAI_OP_LINK:
		return linkat(root, op->path, root, op->path2, 0);
	case PAI_OP_SYMLINK:
		return symlinkat(op->path2, root, op->path);
	case PAI_OP_READLINK:
		n = readlinkat(root, op->path, (char *)buffer, sizeof(buffer));
		if (n < 0) {
			return -1;
		}
		(void)snprintf(out, OUT_BYTES, " %016llx",
		    (unsigned long long)pai_op_hash(0, buffer, (size_t)n));
		return 0;
	case PAI_OP_UNLINK:
		return unlinkat(root, op->path, 0);
	case PAI_OP_RMDIR:
		return unlinkat(root, op->path, AT_REMOVEDIR);
	case PAI_OP_MKDIR:
		return mkdirat(root, op->path, 0777);
	case PAI_OP_CHMOD:
		return fchmodat(root, op->path, op->val, 0);
	case PAI_OP_UTIMENS:
		return utimensat(root, op->path, times, AT_SYMLINK_NOFOLLOW);
	case PAI_OP_STAT:
		return fstatat(root, op->path, &st, AT_SYMLINK_NOFOLLOW) == 0 ? say_stat(&st, out)
									      : -1;
	case PAI_OP_LS:
		errno = pai_run_list(open_for(r, op, O_RDONLY | O_DIRECTORY), &listing);
		(void)snprintf(
		    out, OUT_BYTES, " %u %016llx", listing.count, (unsigned long long)listing.sum);
		return errno ? -1 : 0;
	default:
		return run_opened(r, op, out);
	}
}

static int run_open(struct pai_run *r, const struct pai_op *op)
{
	int flags = op->val & PAI_OPEN_WRITE ? O_RDWR : O_RDONLY;

	flags |= op->val & PAI_OPEN_APPEND ? O_APPEND : 0;
	flags |= op->val & PAI_OPEN_CREATE ? O_CREAT : 0;
	flags |= op->val & PAI_OPEN_TRUNC ? O_TRUNC : 0;
	(void)drop_handle(r, op->h);
	r->handles[op->h].fd = open_for(r, op, flags);
	return r->handles[op->h].fd < 0 ? -1 : 0;
}

static int run_map(struct pai_run *r, int h)
{
	int mode = fcntl(r->handles[h].fd, F_GETFL), prot = PROT_READ;
	void *map = NULL;

	drop_map(r, h);
	if (mode >= 0 && (mode & O_ACCMODE) == O_RDWR) {
		prot |= PROT_WRITE;
	}
	map = mmap(NULL, PAI_OP_MAP_BYTES, prot, MAP_SHARED, r->handles[h].fd, 0);
	if (map == MAP_FAILED) {
		return -1;
	}
	r->handles[h].map = map;
	return 0;
}

static int run_mapped(struct pai_run *r, const struct pai_op *op, char *out)
{
	unsigned char *at = r->handles[op->h].map;

	if (!at) {
		errno = EBADF;
		return -1;
	}
	at += op->off;
	if (sigsetjmp(bus, 1) != 0) {
		bus_armed = 0;
		errno = EFAULT;
		return -1;
	}
	bus_armed = 1;
	if (op->verb == PAI_OP_HSTORE) {
		pai_op_fill(at, (size_t)op->len, op->val);
	} else {
		(void)snprintf(out, OUT_BYTES, " %016llx",
		    (unsigned long long)pai_op_hash(0, at, (size_t)op->len));
	}
	bus_armed = 0;
	return 0;
}

static int run_copy(struct pai_run *r, const struct pai_op *op, char *out)
{
	int to = r->handles[op->val % PAI_OP_HANDLES].fd;
	long long from_off = op->off, to_off = op->off, done = 0;
	ssize_t n = 1;

	for (; done < op->len && n > 0; done += n) {
		n = copy_file_range(r->handles[op->h].fd, (off64_t *)&from_off, to,
		    (off64_t *)&to_off, (size_t)(op->len - done), 0);
		if (n < 0) {
			return -1;
		}
	}
	(void)snprintf(out, OUT_BYTES, " %lld", done);
	return 0;
}

static int run_handle(struct pai_run *r, const struct pai_op *op, char *out)
{
	int fd = r->handles[op->h].fd;
	struct stat st;

	switch (op->verb) {
	case PAI_OP_HWRITE:
		return write_all(fd, op->off, op->len, op->val);
	case PAI_OP_HREAD:
		return read_hash(fd, op->off, op->len, out);
	case PAI_OP_HTRUNC:
		return ftruncate(fd, op->len);
	case PAI_OP_HSTAT:
		return fstat(fd, &st) == 0 ? say_stat(&st, out) : -1;
	case PAI_OP_HCHMOD:
		return fchmod(fd, op->val);
	case PAI_OP_HSYNC:
		if (r->handles[op->h].map &&
		    msync(r->handles[op->h].map, PAI_OP_MAP_BYTES, MS_SYNC) != 0) {
			return -1;
		}
		return fsync(fd);
	case PAI_OP_HMAP:
		return run_map(r, op->h);
	case PAI_OP_HUNMAP:
		drop_map(r, op->h);
		return 0;
	case PAI_OP_HCOPY:
		return run_copy(r, op, out);
	default:
		return run_mapped(r, op, out);
	}
}

void pai_run_op(struct pai_run *r, const struct pai_op *op, char result[PAI_OP_RESULT])
{
	char *out = result + 2;
	const char *name = NULL;
	int rc = 0;

	(void)snprintf(result, PAI_OP_RESULT, "OK");
	switch (op->verb) {
	case PAI_OP_ROOT:
		errno = pai_run_set_root(r, op->path);
		rc = errno ? -1 : 0;
		break;
	case PAI_OP_OPEN:
		rc = run_open(r, op);
		break;
	case PAI_OP_CLOSE:
		rc = drop_handle(r, op->h);
		break;
	default:
		rc = op->verb >= PAI_OP_HWRITE ? run_handle(r, op, out) : run_path(r, op, out);
		break;
	}
	if (rc != 0) {
		name = strerrorname_np(errno);
		(void)snprintf(result, PAI_OP_RESULT, "%s", name ? name : "EUNKNOWN");
	}
}
