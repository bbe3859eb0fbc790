/*
 * The directories. A sandbox's own is made whole, bound to its container once that has an id, and
 * is nobody's any more when its nonce is unlinked: what is left of it then is swept by whoever
 * comes next.
 *
 * sock/, workspace/, tmp/ and home/ are the sandbox's to write: nothing in there is followed, and
 * nothing else is.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "providers/base/clock.h"
#include "providers/base/key.h"
#include "providers/base/path.h"
#include "providers/docker/docker.h"
#include "providers/workspace/remove_tree.h"

#define TEXT_MAX 128
#define LOCK_LOOK_MS 5

bool pai_docker_hex_is_valid(const char *text, size_t digits)
{
	return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

/* --- small files --- */

static int read_text(int dirfd, const char *name, char text[TEXT_MAX])
{
	pai_auto_fd int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, TEXT_MAX - 1);

	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return n < 0 ? -errno : 0;
}

/* Whole or not at all. */
static int put_text(int dirfd, const char *name, const char *text, mode_t mode, struct pai_err *err)
{
	pai_auto_fd int fd = -1;
	size_t len = strlen(text);
	char temp[64];
	int r = 0;

	(void)snprintf(temp, sizeof(temp), "%s.new", name);
	(void)unlinkat(dirfd, temp, 0);
	fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		return pai_err_sys(err, "create '%s'", name);
	}
	if (write(fd, text, len) != (ssize_t)len || fchmod(fd, mode) < 0 ||
	    renameat(dirfd, temp, dirfd, name) < 0) {
		r = pai_err_sys(err, "write '%s'", name);
		(void)unlinkat(dirfd, temp, 0);
	}
	return r;
}

static int sub(char path[64], const char *dir, const char *name)
{
	return snprintf(path, 64, "%s/%s", dir, name);
}

/* --- root --- */

static int check_root(int fd, const char *path, struct pai_err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0) {
		return pai_err_sys(err, "stat '%s'", path);
	}
	if (st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "root '%s' must belong to uid %u and be open to nobody else (chmod 700)", path,
		    (unsigned)geteuid());
	}
	return 0;
}

int pai_docker_root(const struct pai_docker *d, bool make, int *ret_fd, struct pai_err *err)
{
	pai_auto_free char *part = make ? strdup(d->root) : NULL;
	pai_auto_fd int fd = -1;
	int r;

	if (make && !part) {
		return pai_err_no_memory(err);
	}
	for (char *slash = part; slash && (slash = strchr(slash + 1, '/')) != NULL; *slash = '/') {
		*slash = '\0';
		(void)mkdir(part, 0700);
	}
	if (make && mkdir(d->root, 0700) < 0 && errno != EEXIST) {
		return pai_err_sys(err, "mkdir '%s'", d->root);
	}
	pai_docker_shield(d, make);
	fd = open(d->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		return pai_err_sys(err, "root '%s'", d->root);
	}
	r = check_root(fd, d->root, err);
	if (r == 0) {
		*ret_fd = PAI_TAKE_FD(fd);
	}
	return r;
}

/* --- a sandbox's directory --- */

void pai_docker_random_hex(char *out, size_t bytes)
{
	unsigned char raw[32];

	(void)!getrandom(raw, bytes, 0);
	for (size_t i = 0; i < bytes; i++) {
		(void)snprintf(out + 2 * i, 3, "%02x", raw[i]);
	}
}

static int64_t expiry(uint64_t ttl_ms)
{
	int64_t now = pai_clock_wall_ms();

	return ttl_ms > 0 && ttl_ms < (uint64_t)(INT64_MAX / 2 - now) ? now + (int64_t)ttl_ms : 0;
}

static int put_lease(int ctl_fd, int64_t expires_ms, struct pai_err *err)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%lld\n", (long long)expires_ms);
	return put_text(ctl_fd, "lease", text, 0444, err);
}

/* Owned by the sandbox's user; its own /tmp is everybody's in there, out here its parent lets
 * nobody in. */
static int make_users(const struct pai_docker *d, int dir_fd, struct pai_err *err)
{
	static const struct {
		const char *name;
		mode_t mode;
	} own[] = {{"workspace", 0755}, {"tmp", 01777}, {"home", 0700}, {"sock", 0700}};

	for (size_t i = 0; i < PAI_COUNT(own); i++) {
		if (mkdirat(dir_fd, own[i].name, 0700) < 0 ||
		    (d->uid != geteuid() && fchownat(dir_fd, own[i].name, d->uid, d->gid, 0) < 0) ||
		    fchmodat(dir_fd, own[i].name, own[i].mode, 0) < 0) {
			return pai_err_sys(err, "make '%s'", own[i].name);
		}
	}
	return mkdirat(dir_fd, "watch", 0700) < 0 ? pai_err_sys(err, "make 'watch'") : 0;
}

/* What docker needs to be there to bind over it: the directory is read-only in the container. */
static int make_ctl(int dir_fd, uint64_t ttl_ms, struct pai_err *err)
{
	pai_auto_fd int ctl_fd = -1;
	char nonce[33 + 1];
	int r;

	if (mkdirat(dir_fd, "ctl", 0700) < 0 || fchmodat(dir_fd, "ctl", 0755, 0) < 0) {
		return pai_err_sys(err, "make 'ctl'");
	}
	ctl_fd = openat(dir_fd, "ctl", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (ctl_fd < 0 || mkdirat(ctl_fd, "sock", 0755) < 0) {
		return pai_err_sys(err, "make 'ctl/sock'");
	}
	pai_docker_random_hex(nonce, 16);
	memcpy(nonce + 32, "\n", 2);
	r = put_text(ctl_fd, "pai-helper", "", 0555, err);
	r = r < 0 ? r : put_lease(ctl_fd, expiry(ttl_ms), err);
	return r < 0 ? r : put_text(ctl_fd, "nonce", nonce, 0444, err);
}

int pai_docker_dir_lease(int root_fd, const char *dir, uint64_t ttl_ms, struct pai_err *err)
{
	pai_auto_fd int ctl_fd = -1;
	char path[64];

	(void)sub(path, dir, "ctl");
	ctl_fd = openat(root_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return ctl_fd < 0 ? pai_err_sys(err, "open '%s'", path)
			  : put_lease(ctl_fd, expiry(ttl_ms), err);
}

int pai_docker_dir_make(const struct pai_docker *d, int root_fd, uint64_t ttl_ms,
    char dir[PAI_DOCKER_ID + 1], struct pai_err *err)
{
	pai_auto_fd int dir_fd = -1;
	char made[PAI_DOCKER_ID + 1];
	int r;

	pai_docker_random_hex(made, PAI_DOCKER_ID / 2);
	if (mkdirat(root_fd, made, 0700) < 0) {
		return pai_err_sys(err, "mkdir");
	}
	dir_fd = openat(root_fd, made, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = dir_fd < 0 ? pai_err_sys(err, "open") : make_users(d, dir_fd, err);
	r = r < 0 ? r : make_ctl(dir_fd, ttl_ms, err);
	if (r < 0) {
		(void)pai_docker_dir_remove(root_fd, made, PAI_CALL_UNBOUNDED, PAI_ERR_IGNORED());
		return pai_err_wrap(err, "a sandbox's directory");
	}
	memcpy(dir, made, sizeof(made));
	return 0;
}

int pai_docker_dir_bind(int root_fd, const char *dir, const char *id, struct pai_err *err)
{
	pai_auto_fd int dir_fd =
	    openat(root_fd, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return dir_fd < 0 ? pai_err_sys(err, "open '%s'", dir)
			  : put_text(dir_fd, "container", id, 0600, err);
}

void pai_docker_dir_container(int root_fd, const char *dir, char id[PAI_DOCKER_CONTAINER + 1])
{
	char text[TEXT_MAX];
	char path[64];

	(void)sub(path, dir, "container");
	id[0] = '\0';
	if (read_text(root_fd, path, text) == 0 &&
	    pai_docker_hex_is_valid(text, PAI_DOCKER_CONTAINER)) {
		memcpy(id, text, PAI_DOCKER_CONTAINER + 1);
	}
}

int pai_docker_dir_revoke(int root_fd, const char *dir, struct pai_err *err)
{
	char path[64];

	(void)sub(path, dir, "ctl/nonce");
	return unlinkat(root_fd, path, 0) == 0 || errno == ENOENT
		   ? 0
		   : pai_err_sys(err, "unlink the nonce of %s", dir);
}

bool pai_docker_dir_is_revoked(int root_fd, const char *dir)
{
	char path[64];

	(void)sub(path, dir, "ctl/nonce");
	return faccessat(root_fd, path, F_OK, 0) < 0 && errno == ENOENT;
}

static int64_t read_lease(int root_fd, const char *dir)
{
	char text[TEXT_MAX];
	char path[64];

	(void)sub(path, dir, "ctl/lease");
	return read_text(root_fd, path, text) == 0 ? strtoll(text, NULL, 10) : 0;
}

static bool is_past(int64_t expires_ms)
{
	return expires_ms > 0 && pai_clock_wall_ms() >= expires_ms;
}

bool pai_docker_dir_is_expired(int root_fd, const char *dir)
{
	return is_past(read_lease(root_fd, dir));
}

int pai_docker_dir_remove(
    int root_fd, const char *dir, const struct pai_call *call, struct pai_err *err)
{
	char gone[sizeof(PAI_DOCKER_GONE) + PAI_DOCKER_ID];

	(void)snprintf(gone, sizeof(gone), PAI_DOCKER_GONE "%s", dir);
	if (renameat(root_fd, dir, root_fd, gone) < 0 && errno != ENOENT) {
		return pai_err_sys(err, "remove '%s'", dir);
	}
	return pai_remove_tree(root_fd, gone, call, err);
}

/* --- a handle --- */

static int check(void *arg, struct pai_err *err)
{
	return pai_docker_check_alive(arg, err);
}

static int open_parts(struct pai_docker_sandbox *sb, int root_fd, struct pai_err *err)
{
	const int how = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	char nonce[TEXT_MAX];

	sb->dir_fd = openat(root_fd, sb->dir, O_RDONLY | how);
	sb->nonce_fd = sb->dir_fd < 0
			   ? -1
			   : openat(sb->dir_fd, "ctl/nonce", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (sb->nonce_fd < 0 || read_text(sb->dir_fd, "ctl/nonce", nonce) < 0) {
		return pai_err_sys(err, "nonce");
	}
	sb->workspace_fd = openat(sb->dir_fd, "workspace", O_PATH | how);
	sb->tmp_fd = openat(sb->dir_fd, "tmp", O_PATH | how);
	if (sb->workspace_fd < 0 || sb->tmp_fd < 0) {
		return pai_err_sys(err, "its directories");
	}
	sb->base.incarnation = strdup(nonce);
	return sb->base.incarnation ? 0 : pai_err_no_memory(err);
}

static void sandbox_free_p(struct pai_docker_sandbox **sb)
{
	if (*sb) {
		pai_docker_sandbox_free(&(*sb)->base);
	}
}

static struct pai_docker_sandbox *new_handle(
    struct pai_docker *d, const struct pai_docker_info *info, const struct pai_sandbox_ops *ops)
{
	PAI_AUTO(sandbox_free_p) struct pai_docker_sandbox *sb = calloc(1, sizeof(*sb));

	if (!sb) {
		return NULL;
	}
	sb->dir_fd = sb->nonce_fd = sb->workspace_fd = sb->tmp_fd = -1;
	sb->docker = d;
	sb->base.ops = ops;
	sb->base.provider = &d->base;
	(void)pthread_mutex_init(&sb->lock, NULL);
	memcpy(sb->dir, info->dir, sizeof(sb->dir));
	sb->base.id = strdup(info->id);
	return sb->base.id ? PAI_TAKE(sb) : NULL;
}

/* No directory of ours: the container is all there is. */
static int open_far(struct pai_docker *d, const struct pai_docker_info *info,
    struct pai_docker_sandbox **ret, struct pai_err *err)
{
	PAI_AUTO(sandbox_free_p)
	struct pai_docker_sandbox *sb = new_handle(d, info, &pai_docker_far_ops);

	if (sb) {
		sb->base.incarnation = strdup(info->dir);
		sb->base.hold_ms = d->grace_ms;
	}
	if (!sb || !sb->base.incarnation) {
		return pai_err_no_memory(err);
	}
	*ret = PAI_TAKE(sb);
	return 0;
}

int pai_docker_open_sandbox(struct pai_docker *d, int root_fd, const struct pai_docker_info *info,
    struct pai_docker_sandbox **ret, struct pai_err *err)
{
	PAI_AUTO(sandbox_free_p) struct pai_docker_sandbox *sb = NULL;
	char id[PAI_DOCKER_CONTAINER + 1];
	int r;

	*ret = NULL;
	if (!info->dir[0] || strcmp(info->mark, d->mark) != 0) {
		return 0;
	}
	if (d->far) {
		return open_far(d, info, ret, err);
	}
	pai_docker_dir_container(root_fd, info->dir, id);
	if (strcmp(id, info->id) != 0) {
		return 0;
	}
	sb = new_handle(d, info, &pai_docker_sandbox_ops);
	r = sb ? open_parts(sb, root_fd, err) : pai_err_no_memory(err);
	if (r == -ENOENT) {
		*err = (struct pai_err)PAI_ERR_INIT;
		return 0; /* killed */
	}
	if (r < 0) {
		return pai_err_wrap(err, "sandbox %.12s", id);
	}
	sb->expires_ms = read_lease(root_fd, sb->dir);
	sb->files = (struct pai_contract_files){
	    .workspace_fd = sb->workspace_fd,
	    .tmp_fd = sb->tmp_fd,
	    .check = check,
	    .arg = sb,
	    .has_owner = d->uid != geteuid(),
	    .uid = d->uid,
	    .gid = d->gid,
	    .reserve_bytes = d->reserve_bytes,
	};
	*ret = PAI_TAKE(sb);
	return 0;
}

int pai_docker_check_alive(struct pai_docker_sandbox *sb, struct pai_err *err)
{
	struct stat st;
	bool expired;

	if (atomic_load(&sb->gone)) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "sandbox %.12s is gone", sb->base.id);
	}
	if (sb->docker->far) {
		return 0; /* what the container says */
	}
	if (fstat(sb->nonce_fd, &st) < 0 || st.st_nlink == 0) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "sandbox %.12s is gone", sb->base.id);
	}
	(void)pthread_mutex_lock(&sb->lock);
	/* Another process may have extended it. */
	if (is_past(sb->expires_ms)) {
		sb->expires_ms = read_lease(sb->dir_fd, ".");
	}
	expired = is_past(sb->expires_ms);
	(void)pthread_mutex_unlock(&sb->lock);
	return expired ? pai_err_set(err, PAI_E_NOT_FOUND, "sandbox %.12s has expired", sb->base.id)
		       : 0;
}

static int lock_dir(int dir_fd, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	pai_auto_fd int fd =
	    openat(dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0) {
		return pai_err_sys(err, "open the lock");
	}
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		int r = errno == EWOULDBLOCK || errno == EINTR ? 0 : pai_err_sys(err, "lock");

		r = r < 0 ? r : pai_call_sleep(call, pai_deadline_in(LOCK_LOOK_MS), err);
		r = r < 0 ? r : pai_call_check(call, "waiting for a lock", err);
		if (r < 0) {
			return r;
		}
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

int pai_docker_extend(struct pai_docker_sandbox *sb, uint64_t ttl_ms, const struct pai_call *call,
    struct pai_err *err)
{
	int64_t wanted = expiry(ttl_ms);
	pai_auto_fd int lock_fd = -1;
	int64_t now;
	int r = pai_docker_check_alive(sb, err);

	r = r < 0 ? r : lock_dir(sb->dir_fd, call, &lock_fd, err);
	if (r < 0) {
		return pai_docker_check_alive(sb, PAI_ERR_IGNORED()) < 0
			   ? pai_docker_check_alive(sb, err)
			   : r;
	}
	now = read_lease(sb->dir_fd, ".");
	if (now == 0 || (wanted != 0 && wanted <= now)) {
		return pai_docker_check_alive(sb, err);
	}
	r = pai_docker_dir_lease(sb->dir_fd, ".", ttl_ms, err);
	if (r == 0) {
		(void)pthread_mutex_lock(&sb->lock);
		sb->expires_ms = wanted;
		(void)pthread_mutex_unlock(&sb->lock);
	}
	return r;
}
