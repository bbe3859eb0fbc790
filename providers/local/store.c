/*
 * A sandbox appears whole, by the rename of its directory, and disappears with its nonce: there is
 * no state between that anyone has to repair. A directory without a nonce is what a kill left.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"
#include "providers/base/path.h"
#include "providers/base/printable.h"
#include "providers/local/local.h"

#define LOCK_LOOK_MS 5

/* --- root and locks --- */

static int check_root(int fd, const char *path, struct pai_err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0) {
		return pai_err_sys(err, "stat '%s'", path);
	}
	if (st.st_uid != geteuid() || (st.st_mode & 022) != 0) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "root '%s' must belong to uid %u and be writable by nobody else", path,
		    (unsigned)geteuid());
	}
	return 0;
}

/* mkdir -p: the path is the user's own word, links in it included. */
static int make_root(const char *path, struct pai_err *err)
{
	pai_auto_free char *part = strdup(path);

	if (!part) {
		return pai_err_no_memory(err);
	}
	for (char *slash = part; slash; *slash = '/') {
		slash = strchr(slash + 1, '/');
		if (slash) {
			*slash = '\0';
		}
		if (mkdir(part, 0700) < 0 && errno != EEXIST) {
			return pai_err_sys(err, "mkdir '%s'", part);
		}
		if (!slash) {
			break;
		}
	}
	return 0;
}

int pai_local_root(const struct pai_local *l, bool make, int *ret_fd, struct pai_err *err)
{
	pai_auto_fd int fd = open(l->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (fd < 0 && errno == ENOENT && make) {
		r = make_root(l->root, err);
		if (r < 0) {
			return r;
		}
		fd = open(l->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	if (fd < 0) {
		return pai_err_sys(err, "root '%s'", l->root);
	}
	r = check_root(fd, l->root, err);
	if (r == 0) {
		*ret_fd = PAI_TAKE_FD(fd);
	}
	return r;
}

int pai_local_lock(int dirfd, const char *name, int operation, const struct pai_call *call,
    int *ret_fd, struct pai_err *err)
{
	pai_auto_fd int fd = openat(dirfd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0) {
		return pai_err_sys(err, "open '%s'", name);
	}
	while (flock(fd, operation | LOCK_NB) < 0) {
		int r;

		if (errno != EWOULDBLOCK && errno != EINTR) {
			return pai_err_sys(err, "lock '%s'", name);
		}
		r = pai_call_sleep(call, pai_deadline_in(LOCK_LOOK_MS), err);
		r = r < 0 ? r : pai_call_check(call, "waiting for a lock", err);
		if (r < 0) {
			return r;
		}
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

/* --- files of ours --- */

static int write_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno != EINTR) {
			return -errno;
		}
		data += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

int pai_local_put_file(
    int dirfd, const char *name, const char *data, size_t len, struct pai_err *err)
{
	pai_auto_fd int fd = -1;
	char temp[32];
	int r;

	(void)snprintf(temp, sizeof(temp), "%s.new", name);
	(void)unlinkat(dirfd, temp, 0);
	fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		return pai_err_sys(err, "create '%s'", temp);
	}
	r = write_all(fd, data, len);
	if (r == 0 && renameat(dirfd, temp, dirfd, name) < 0) {
		r = -errno;
	}
	if (r < 0) {
		(void)unlinkat(dirfd, temp, 0);
		return pai_err_errno(err, -r, "write '%s'", name);
	}
	return 0;
}

/* --- making one --- */

static void random_hex(char *out, size_t bytes)
{
	unsigned char raw[32];

	/* Up to 256 bytes are never cut short once the pool is initialised. */
	(void)!getrandom(raw, bytes, 0);
	for (size_t i = 0; i < bytes; i++) {
		(void)snprintf(out + 2 * i, 3, "%02x", raw[i]);
	}
}

bool pai_local_id_can_expire(const char *id)
{
	return id[0] == 't';
}

bool pai_local_id_is_valid(const char *id)
{
	size_t n = strlen(id);

	return n > 1 && n <= PAI_LOCAL_ID_MAX && (id[0] == 'l' || pai_local_id_can_expire(id)) &&
	       strspn(id + 1, "0123456789abcdef") == n - 1;
}

static int map_is_text(const struct pai_strmap *m, const char *what, struct pai_err *err)
{
	for (size_t i = 0; m && i < m->count; i++) {
		const struct pai_strmap_entry *e = &m->entries[i];

		if (!pai_utf8_valid(e->key, strlen(e->key)) ||
		    !pai_utf8_valid(e->value, strlen(e->value))) {
			return pai_err_set(err, PAI_E_INPUT, "%s is not UTF-8", what);
		}
	}
	return 0;
}

static int meta_of(const struct pai_create_input *in, struct pai_local_meta *m, struct pai_err *err)
{
	int64_t now = pai_clock_wall_ms();
	int r = map_is_text(in->metadata, "metadata", err);

	r = r < 0 ? r : map_is_text(in->env, "env", err);
	if (r < 0) {
		return r;
	}
	m->network = in->network.access;
	m->created_ms = now;
	if (in->ttl_ms > 0) {
		m->deadline_ms =
		    in->ttl_ms < (uint64_t)(INT64_MAX / 2 - now) ? now + (int64_t)in->ttl_ms : 0;
	}
	m->template_dir = in->template_name ? strdup(in->template_name) : NULL;
	m->binding_key = in->binding_key ? strdup(in->binding_key) : NULL;
	if ((in->template_name && !m->template_dir) || (in->binding_key && !m->binding_key) ||
	    (in->metadata && pai_strmap_copy(&m->metadata, in->metadata) < 0) ||
	    (in->env && pai_strmap_copy(&m->env, in->env) < 0)) {
		return pai_err_no_memory(err);
	}
	return 0;
}

static int fill_dir(int dir_fd, const struct pai_local_meta *m, struct pai_err *err)
{
	static const char *const own[] = {"tmp", "home", "watch"};
	char nonce[33 + 1];
	int r = 0;

	for (size_t i = 0; r == 0 && i < PAI_COUNT(own); i++) {
		r = mkdirat(dir_fd, own[i], 0700);
	}
	/* The sandbox's /tmp is everybody's in there; out here its parent lets nobody in. */
	if (r == 0 && m->network != PAI_NETWORK_FULL) {
		r = fchmodat(dir_fd, "tmp", 01777, 0);
	}
	if (r == 0 && !m->template_dir) {
		r = mkdirat(dir_fd, "workspace", 0755);
	}
	if (r < 0) {
		return pai_err_sys(err, "mkdir");
	}
	random_hex(nonce, 16);
	memcpy(nonce + 32, "\n", 2);
	r = pai_local_save_meta(dir_fd, m, err);
	return r < 0 ? r : pai_local_put_file(dir_fd, "nonce", nonce, strlen(nonce), err);
}

static int bind_key(int key_fd, const char *id, struct pai_err *err)
{
	size_t n = strlen(id);

	if (ftruncate(key_fd, 0) < 0 || pwrite(key_fd, id, n, 0) != (ssize_t)n) {
		return pai_err_sys(err, "bind the key");
	}
	return 0;
}

int pai_local_make(int root_fd, const struct pai_create_input *input, int key_fd,
    char id[PAI_LOCAL_ID_MAX + 1], struct pai_err *err)
{
	PAI_AUTO(pai_local_meta_fini) struct pai_local_meta m = {0};
	pai_auto_fd int dir_fd = -1;
	char made[PAI_LOCAL_ID_MAX + 1] = "l";
	char temp[PAI_LOCAL_ID_MAX + 8];
	int r = meta_of(input, &m, err);

	if (r < 0) {
		return r;
	}
	made[0] = input->ttl_ms > 0 ? 't' : 'l';
	random_hex(made + 1, 10);
	(void)snprintf(temp, sizeof(temp), ".new-%s", made);
	if (mkdirat(root_fd, temp, 0700) < 0) {
		return pai_err_sys(err, "mkdir");
	}
	dir_fd = openat(root_fd, temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = dir_fd < 0 ? pai_err_sys(err, "open") : fill_dir(dir_fd, &m, err);
	if (r == 0 && key_fd >= 0) {
		r = bind_key(key_fd, made, err);
	}
	if (r == 0 && renameat(root_fd, temp, root_fd, made) < 0) {
		r = pai_err_sys(err, "rename");
	}
	if (r < 0) {
		(void)pai_remove_tree(root_fd, temp, PAI_CALL_UNBOUNDED, PAI_ERR_IGNORED());
		return r;
	}
	(void)snprintf(id, PAI_LOCAL_ID_MAX + 1, "%s", made);
	return 0;
}

/* --- opening one --- */

/* Of the file itself: a copy, as a backup that was put back, is another one. Its birth, and where
 * there is none its last change, which nobody makes. Not its inode: an overlay gives others each
 * time that it is mounted. */
static int born(int fd, uint64_t *ret_ns)
{
	struct statx stx;
	const struct statx_timestamp *at = &stx.stx_btime;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME | STATX_CTIME, &stx) < 0) {
		return -1;
	}
	at = stx.stx_mask & STATX_BTIME ? at : &stx.stx_ctime;
	*ret_ns = (uint64_t)at->tv_sec * 1000000000u + at->tv_nsec;
	return 0;
}

static int read_nonce(int dir_fd, int *ret_fd, char **ret, struct pai_err *err)
{
	pai_auto_fd int fd =
	    openat(dir_fd, "nonce", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char text[129];
	uint64_t born_ns = 0;
	struct stat st;
	ssize_t n;

	if (fd < 0) {
		return pai_err_sys(err, "nonce");
	}
	n = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? pread(fd, text, sizeof(text) - 1, 0) : -1;
	if (n <= 1 || born(fd, &born_ns) < 0) {
		(void)pai_err_unavailable(err, PAI_REASON_BACKEND, NULL, "the nonce is damaged");
		err->retryable = false;
		return -err->errnum;
	}
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (asprintf(ret, "%s-%llx", text, (unsigned long long)born_ns) < 0) {
		*ret = NULL;
		return pai_err_no_memory(err);
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

static int check_alive(void *sb, struct pai_err *err)
{
	return pai_local_check_alive(sb, err);
}

static int open_parts(struct pai_local_sandbox *sb, struct pai_err *err)
{
	int r = read_nonce(sb->dir_fd, &sb->nonce_fd, &sb->base.incarnation, err);

	r = r < 0 ? r : pai_local_load_meta(sb->dir_fd, &sb->meta, err);
	if (r < 0) {
		return r;
	}
	sb->workspace_fd =
	    sb->meta.template_dir
		? open(sb->meta.template_dir, O_PATH | O_DIRECTORY | O_CLOEXEC)
		: openat(sb->dir_fd, "workspace", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (sb->workspace_fd < 0) {
		(void)pai_err_unavailable(err, PAI_REASON_BACKEND, NULL,
		    "the workspace '%s' can't be opened: %s",
		    sb->meta.template_dir ? sb->meta.template_dir : sb->path,
		    pai_errno_name(errno));
		err->retryable = false;
		return -err->errnum;
	}
	sb->tmp_fd = sb->local->tmp && sb->meta.network == PAI_NETWORK_FULL
			 ? open(sb->local->tmp, O_PATH | O_DIRECTORY | O_CLOEXEC)
			 : openat(sb->dir_fd, "tmp", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (sb->tmp_fd < 0) {
		return pai_err_sys(err, "tmp");
	}
	sb->files = (struct pai_contract_files){
	    .workspace_fd = sb->workspace_fd,
	    .tmp_fd = sb->tmp_fd,
	    .check = check_alive,
	    .arg = sb,
	};
	return 0;
}

static void sandbox_free_p(struct pai_local_sandbox **sb)
{
	if (*sb) {
		pai_local_sandbox_free(&(*sb)->base);
	}
}

/* Once: they may be many, and are met at every sweep. */
static void tell_of_older(struct pai_local *l, const char *id)
{
	if (!atomic_exchange(&l->older_told, true)) {
		pai_log_warn("local",
		    "'%s' holds sandboxes of an earlier build (%s and maybe more), which this one "
		    "doesn't use: their files are still there, in */workspace",
		    l->root, id);
	}
}

int pai_local_open_sandbox(struct pai_local *l, int root_fd, const char *id,
    struct pai_local_sandbox **ret, struct pai_err *err)
{
	PAI_AUTO(sandbox_free_p) struct pai_local_sandbox *sb = calloc(1, sizeof(*sb));
	struct pai_err inner = PAI_ERR_INIT;
	int r;

	if (!sb) {
		return pai_err_no_memory(err);
	}
	sb->dir_fd = sb->nonce_fd = sb->workspace_fd = sb->tmp_fd = -1;
	sb->local = l;
	sb->base.ops = &pai_local_sandbox_ops;
	sb->base.provider = &l->base;
	(void)pthread_mutex_init(&sb->lock, NULL);
	sb->base.id = strdup(id);
	sb->path = pai_path_join(l->root, id);
	if (!sb->base.id || !sb->path) {
		return pai_err_no_memory(err);
	}
	sb->dir_fd = openat(root_fd, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (sb->dir_fd < 0) {
		*ret = NULL;
		return errno == ENOENT ? 0 : pai_err_sys(err, "open sandbox %s", id);
	}
	if (pai_local_is_older(sb->dir_fd)) {
		tell_of_older(l, id);
		*ret = NULL;
		return 0;
	}
	r = open_parts(sb, &inner);
	if (r < 0 && faccessat(sb->dir_fd, "nonce", F_OK, 0) < 0 && errno == ENOENT) {
		*ret = NULL; /* killed; what is left of it is the sweep's */
		return 0;
	}
	if (r < 0) {
		*err = inner;
		return pai_err_wrap(err, "sandbox %s", id);
	}
	if (sb->meta.template_dir) {
		sb->base.flags |= PAI_SANDBOX_BORROWED_WORKSPACE;
	}
	*ret = PAI_TAKE(sb);
	return 0;
}

bool pai_local_expired(const struct pai_local_meta *m)
{
	return m->deadline_ms != 0 && pai_clock_wall_ms() >= m->deadline_ms;
}

/* Another process may have extended it: its file is read again before it is given up. */
static bool deadline_passed(struct pai_local_sandbox *sb)
{
	PAI_AUTO(pai_local_meta_fini) struct pai_local_meta now = {0};
	bool passed;

	(void)pthread_mutex_lock(&sb->lock);
	passed = pai_local_expired(&sb->meta);
	if (passed && pai_local_load_meta(sb->dir_fd, &now, PAI_ERR_IGNORED()) == 0) {
		sb->meta.deadline_ms = now.deadline_ms;
		passed = pai_local_expired(&sb->meta);
	}
	(void)pthread_mutex_unlock(&sb->lock);
	return passed;
}

int pai_local_check_alive(struct pai_local_sandbox *sb, struct pai_err *err)
{
	struct stat st;

	if (fstat(sb->nonce_fd, &st) < 0 || st.st_nlink == 0) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "sandbox %s is gone", sb->base.id);
	}
	if (deadline_passed(sb)) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "sandbox %s has expired", sb->base.id);
	}
	return 0;
}
