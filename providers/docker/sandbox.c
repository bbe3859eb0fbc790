/* What one sandbox answers, save commands. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/base/path.h"
#include "providers/docker/docker.h"

#define LEAVING_LOOK_MS 20

struct pai_docker_sandbox *pai_docker_sandbox_of(struct pai_sandbox *sb)
{
	assert(sb->ops == &pai_docker_sandbox_ops || sb->ops == &pai_docker_far_ops);
	return (struct pai_docker_sandbox *)sb;
}

void pai_docker_sandbox_free(struct pai_sandbox *base)
{
	struct pai_docker_sandbox *sb = pai_docker_sandbox_of(base);

	pai_exec_line_unref(sb->line);
	pai_docker_far_close(sb->far);
	pai_auto_fd_p(&sb->dir_fd);
	pai_auto_fd_p(&sb->nonce_fd);
	pai_auto_fd_p(&sb->workspace_fd);
	pai_auto_fd_p(&sb->tmp_fd);
	(void)pthread_mutex_destroy(&sb->lock);
	free(sb->base.id);
	free(sb->base.incarnation);
	free(sb);
}

/* --- the end --- */

/* The identity goes first: from then on nothing that runs in it can end in a success, and process 1
 * ends by itself even where the engine doesn't answer. The directory goes last: it is how a kill
 * that was interrupted is found. */
int pai_docker_bury(struct pai_docker *d, int root_fd, const char *dir, const char *id,
    const struct pai_call *call, struct pai_err *err)
{
	int r = pai_docker_dir_revoke(root_fd, dir, err);

	r = r < 0 || !id[0] ? r : pai_docker_remove(d, id, call, err);
	r = r < 0 ? r : pai_docker_dir_remove(root_fd, dir, call, err);
	if (r == 0) {
		pai_docker_unshield(d);
	}
	return r;
}

int pai_docker_kill(struct pai_sandbox *base, const struct pai_call *call, struct pai_err *err)
{
	struct pai_docker_sandbox *sb = pai_docker_sandbox_of(base);
	pai_auto_fd int root_fd = -1;
	int r;

	if (sb->docker->far) {
		atomic_store(&sb->gone, true); /* nothing ends in a success from here on */
		return pai_docker_remove(sb->docker, sb->base.id, call, err);
	}
	r = pai_docker_root(sb->docker, false, &root_fd, err);

	return r < 0 ? r : pai_docker_bury(sb->docker, root_fd, sb->dir, sb->base.id, call, err);
}

/* The engine has no such container any more. */
static int is_gone(struct pai_docker_sandbox *sb, struct pai_err *err)
{
	atomic_store(&sb->gone, true);
	if (!sb->docker->far) {
		(void)unlinkat(sb->dir_fd, "ctl/nonce", 0);
	}
	return pai_err_set(err, PAI_E_NOT_FOUND, "container %.12s was removed", sb->base.id);
}

/* --- life --- */

/* One look: 1 it runs, 0 look again. */
static int wake_once(
    struct pai_docker_sandbox *sb, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_docker_info struct pai_docker_info info = {0};
	bool found = false;
	int r = pai_docker_check_alive(sb, err);

	r = r < 0 ? r : pai_docker_inspect(sb->docker, sb->base.id, call, &found, &info, err);
	if (r < 0) {
		return r;
	}
	if (!found) {
		return is_gone(sb, err);
	}
	if (sb->docker->far && pai_docker_has_expired(&info)) {
		r = pai_docker_remove(sb->docker, sb->base.id, call, err);
		return r < 0 ? r : is_gone(sb, err);
	}
	switch (info.state) {
	case PAI_DOCKER_RUNNING:
		return 1;
	case PAI_DOCKER_PAUSED:
		r = pai_docker_pause(sb->docker, sb->base.id, false, call, &found, err);
		break;
	case PAI_DOCKER_MADE:
	case PAI_DOCKER_STOPPED:
		r = pai_docker_start(sb->docker, sb->base.id, call, &found, err);
		break;
	case PAI_DOCKER_LEAVING:
		r = pai_call_sleep(call, pai_deadline_in(LEAVING_LOOK_MS), err);
		return r < 0 ? r : pai_call_check(call, "a container that is being removed", err);
	}
	return r < 0 ? r : found ? 1 : is_gone(sb, err);
}

int pai_docker_wake(struct pai_docker_sandbox *sb, const struct pai_call *call, struct pai_err *err)
{
	int r;

	do {
		r = wake_once(sb, call, err);
	} while (r == 0);
	return r < 0 ? r : 0;
}

int pai_docker_pause_sandbox(
    struct pai_sandbox *base, const struct pai_call *call, struct pai_err *err)
{
	struct pai_docker_sandbox *sb = pai_docker_sandbox_of(base);
	bool found = false;
	int r = pai_docker_check_alive(sb, err);

	r = r < 0 ? r : pai_docker_pause(sb->docker, sb->base.id, true, call, &found, err);
	return r < 0 ? r : found ? 0 : is_gone(sb, err);
}

static int docker_keep_alive(
    struct pai_sandbox *base, uint64_t ttl_ms, const struct pai_call *call, struct pai_err *err)
{
	return pai_docker_extend(pai_docker_sandbox_of(base), ttl_ms, call, err);
}

/* --- files --- */

static int docker_host_files(struct pai_sandbox *base, const struct pai_call *call,
    struct pai_host_files *ret, struct pai_err *err)
{
	struct pai_docker_sandbox *sb = pai_docker_sandbox_of(base);
	pai_auto_free char *state_dir = pai_path_join(sb->docker->root, sb->dir);
	pai_auto_fd int root_fd = -1;
	pai_auto_fd int nonce_fd = -1;
	int r = pai_docker_check_alive(sb, err);

	(void)call;
	if (r < 0) {
		return r;
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
	    .reserve_bytes = sb->docker->reserve_bytes,
	    .maker_uid = sb->docker->uid,
	    .maker_gid = sb->docker->gid,
	};
	return 0;
}

static int docker_read_file(struct pai_sandbox *base, const char *path, uint64_t max_bytes,
    const struct pai_call *call, bool *found, struct pai_buf *ret, struct pai_err *err)
{
	return pai_contract_read_file(
	    &pai_docker_sandbox_of(base)->files, path, max_bytes, call, found, ret, err);
}

static int docker_write_file(struct pai_sandbox *base, const char *path, const void *data,
    size_t len, const struct pai_call *call, struct pai_err *err)
{
	return pai_contract_write_file(
	    &pai_docker_sandbox_of(base)->files, path, data, len, call, err);
}

static int docker_list_dir(struct pai_sandbox *base, const char *path, const struct pai_call *call,
    bool *found, struct pai_dir_list *ret, struct pai_err *err)
{
	return pai_contract_list_dir(
	    &pai_docker_sandbox_of(base)->files, path, call, found, ret, err);
}

const struct pai_sandbox_ops pai_docker_sandbox_ops = {
    .free = pai_docker_sandbox_free,
    .run = pai_docker_run,
    .read_file = docker_read_file,
    .write_file = docker_write_file,
    .list_dir = docker_list_dir,
    .keep_alive = docker_keep_alive,
    .kill = pai_docker_kill,
    .pause = pai_docker_pause_sandbox,
    .open_line = pai_docker_open_line,
    .host_files = docker_host_files,
    .open_exec = pai_docker_open_exec,
};
