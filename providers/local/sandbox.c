/* What one sandbox answers, save files and commands. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "providers/base/clock.h"
#include "providers/local/local.h"

struct pai_local_sandbox *pai_local_sandbox_of(struct pai_sandbox *sb)
{
	assert(sb->ops == &pai_local_sandbox_ops);
	return (struct pai_local_sandbox *)sb;
}

void pai_local_sandbox_free(struct pai_sandbox *base)
{
	struct pai_local_sandbox *sb = pai_local_sandbox_of(base);

	pai_exec_line_unref(sb->line);
	pai_auto_fd_p(&sb->dir_fd);
	pai_auto_fd_p(&sb->nonce_fd);
	pai_auto_fd_p(&sb->workspace_fd);
	pai_auto_fd_p(&sb->tmp_fd);
	pai_local_meta_fini(&sb->meta);
	(void)pthread_mutex_destroy(&sb->lock);
	free(sb->path);
	free(sb->base.id);
	free(sb->base.incarnation);
	free(sb);
}

static int local_keep_alive(
    struct pai_sandbox *base, uint64_t ttl_ms, const struct pai_call *call, struct pai_err *err)
{
	struct pai_local_sandbox *sb = pai_local_sandbox_of(base);
	PAI_AUTO(pai_local_meta_fini) struct pai_local_meta m = {0};
	int64_t now = pai_clock_wall_ms();
	int64_t wanted = ttl_ms < (uint64_t)(INT64_MAX / 2 - now) ? now + (int64_t)ttl_ms : 0;
	pai_auto_fd int lock_fd = -1;
	int r = pai_local_check_alive(sb, err);

	r = r < 0 ? r : pai_local_lock(sb->dir_fd, "lock", LOCK_EX, call, &lock_fd, err);
	/* Again, now that no kill or sweep can come between. */
	r = r < 0 ? r : pai_local_check_alive(sb, err);
	r = r < 0 ? r : pai_local_load_meta(sb->dir_fd, &m, err);
	if (r < 0 || m.deadline_ms == 0 || (wanted != 0 && wanted <= m.deadline_ms)) {
		return r;
	}
	m.deadline_ms = wanted;
	r = pai_local_save_meta(sb->dir_fd, &m, err);
	if (r == 0) {
		(void)pthread_mutex_lock(&sb->lock);
		sb->meta.deadline_ms = wanted;
		(void)pthread_mutex_unlock(&sb->lock);
	}
	return r;
}

static bool still_expired(struct pai_local_sandbox *sb)
{
	PAI_AUTO(pai_local_meta_fini) struct pai_local_meta now = {0};

	return pai_local_load_meta(sb->dir_fd, &now, PAI_ERR_IGNORED()) == 0 &&
	       pai_local_expired(&now);
}

int pai_local_bury(int root_fd, const char *id, struct pai_local_fence *f,
    const struct pai_call *call, struct pai_err *err)
{
	char gone[sizeof(PAI_LOCAL_GONE) + PAI_LOCAL_ID_MAX];
	int r = pai_local_fence_end(f, err);

	if (r < 0) {
		return r;
	}
	(void)snprintf(gone, sizeof(gone), PAI_LOCAL_GONE "%s", id);
	if (renameat(root_fd, id, root_fd, gone) < 0 && errno != ENOENT) {
		return pai_err_sys(err, "remove '%s'", id);
	}
	return pai_remove_tree(root_fd, gone, call, err);
}

/* The nonce goes first: from then on nothing that runs in it can end in a success. */
int pai_local_kill(
    struct pai_local_sandbox *sb, unsigned flags, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_fd int root_fd = -1;
	pai_auto_fd int lock_fd = -1;
	PAI_AUTO(pai_local_fence_fini) struct pai_local_fence fence = {-1, -1, -1};
	int r = pai_local_root(sb->local, false, &root_fd, err);

	r = r < 0 ? r : pai_local_lock(sb->dir_fd, "lock", LOCK_EX, call, &lock_fd, err);
	if (r == -ENOENT) {
		*err = (struct pai_err)PAI_ERR_INIT;
		return 0; /* its directory is unlinked: it is gone already */
	}
	if (r < 0) {
		return r;
	}
	if (flags & PAI_LOCAL_KILL_IF_EXPIRED && !still_expired(sb)) {
		return 0;
	}
	r = pai_local_fence_begin(sb->dir_fd, call, &fence, err);
	if (r < 0) {
		return r;
	}
	if (unlinkat(sb->dir_fd, "nonce", 0) < 0 && errno != ENOENT) {
		return pai_err_sys(err, "unlink the nonce of %s", sb->base.id);
	}
	if (sb->meta.binding_key && !(flags & PAI_LOCAL_KILL_KEY_HELD)) {
		pai_local_key_unbind(root_fd, sb->meta.binding_key, sb->base.id, call);
	}
	return pai_local_bury(root_fd, sb->base.id, &fence, call, err);
}

static int local_kill(struct pai_sandbox *base, const struct pai_call *call, struct pai_err *err)
{
	return pai_local_kill(pai_local_sandbox_of(base), 0, call, err);
}

static int local_host_files(struct pai_sandbox *base, const struct pai_call *call,
    struct pai_host_files *ret, struct pai_err *err)
{
	struct pai_local_sandbox *sb = pai_local_sandbox_of(base);
	pai_auto_fd int root_fd = -1;
	pai_auto_fd int nonce_fd = -1;
	pai_auto_free char *state_dir = strdup(sb->path);
	int r = pai_local_check_alive(sb, err);

	(void)call;
	if (r < 0) {
		return r;
	}
	if (sb->local->far_files) {
		return pai_err_set(err, PAI_E_UNSUPPORTED, "the workspace is a helper's");
	}
	root_fd = fcntl(sb->workspace_fd, F_DUPFD_CLOEXEC, 0);
	nonce_fd = fcntl(sb->nonce_fd, F_DUPFD_CLOEXEC, 0);
	if (root_fd < 0 || nonce_fd < 0) {
		return pai_err_sys(err, "descriptors");
	}
	if (!state_dir) {
		return pai_err_no_memory(err);
	}
	*ret = (struct pai_host_files){
	    .root_fd = PAI_TAKE_FD(root_fd),
	    .nonce_fd = PAI_TAKE_FD(nonce_fd),
	    .state_dir = PAI_TAKE(state_dir),
	};
	return 0;
}

static int local_read_file(struct pai_sandbox *base, const char *path, uint64_t max_bytes,
    const struct pai_call *call, bool *found, struct pai_buf *ret, struct pai_err *err)
{
	return pai_contract_read_file(
	    &pai_local_sandbox_of(base)->files, path, max_bytes, call, found, ret, err);
}

static int local_write_file(struct pai_sandbox *base, const char *path, const void *data,
    size_t len, const struct pai_call *call, struct pai_err *err)
{
	return pai_contract_write_file(
	    &pai_local_sandbox_of(base)->files, path, data, len, call, err);
}

static int local_list_dir(struct pai_sandbox *base, const char *path, const struct pai_call *call,
    bool *found, struct pai_dir_list *ret, struct pai_err *err)
{
	return pai_contract_list_dir(
	    &pai_local_sandbox_of(base)->files, path, call, found, ret, err);
}

const struct pai_sandbox_ops pai_local_sandbox_ops = {
    .free = pai_local_sandbox_free,
    .run = pai_local_run,
    .read_file = local_read_file,
    .write_file = local_write_file,
    .list_dir = local_list_dir,
    .keep_alive = local_keep_alive,
    .kill = local_kill,
    .host_files = local_host_files,
    .open_exec = pai_local_open_exec,
    .open_files = pai_local_open_files,
};
