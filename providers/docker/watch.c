/*
 * Who is gone. The engine is shared: somebody may remove a container of ours, and nobody asks us.
 * The events tell, and when they could not be followed for a while, a look at the list does. What
 * is found gone loses its nonce and its files, so every daemon that has it open knows.
 *
 * Nothing is removed on a guess: a container counts as gone when the engine says of its id that
 * there is none.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"
#include "providers/docker/docker.h"
#include "providers/workspace/remove_tree.h"

#define UNFINISHED_S                                                                               \
	600 /* a create takes seconds, a pull before it longer: it has no directory                \
	     */
#define BACKOFF_MIN_MS 100
#define BACKOFF_MAX_MS 5000
#define OVERLAP_S 2 /* events come with seconds; those that were seen already do nothing */
#define BACKGROUND_MS 30000

struct pai_docker_watch {
	struct pai_docker *docker;
	struct pai_cancel *cancel;
	pthread_t thread;
};

/* --- sweeping --- */

static const struct pai_docker_info *listed_as(
    const struct pai_docker_infos *l, const char *id, const char *dir)
{
	for (size_t i = 0; i < l->count; i++) {
		if (id[0] ? strcmp(l->items[i].id, id) == 0 : strcmp(l->items[i].dir, dir) == 0) {
			return &l->items[i];
		}
	}
	return NULL;
}

static bool is_removed(struct pai_docker *d, const char *id, const struct pai_call *call)
{
	pai_auto_docker_info struct pai_docker_info info = {0};
	bool found = true;

	return pai_docker_inspect(d, id, call, &found, &info, PAI_ERR_IGNORED()) == 0 && !found;
}

static bool is_old(int root_fd, const char *dir)
{
	struct stat st;

	return fstatat(root_fd, dir, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       (int64_t)(st.st_ctime + UNFINISHED_S) * 1000 < pai_clock_wall_ms();
}

static void sweep_dir(struct pai_docker *d, int root_fd, const char *dir,
    const struct pai_docker_infos *listed, const struct pai_call *call)
{
	char id[PAI_DOCKER_CONTAINER + 1];
	const struct pai_docker_info *info;
	struct pai_err err = PAI_ERR_INIT;

	pai_docker_dir_container(root_fd, dir, id);
	info = listed_as(listed, id, dir);
	if (id[0]
		? !pai_docker_dir_is_revoked(root_fd, dir) &&
		      !pai_docker_dir_is_expired(root_fd, dir) && (info || !is_removed(d, id, call))
		: !is_old(root_fd, dir)) {
		return;
	}
	/* Without an id: made, and not bound any more before somebody was killed over it. */
	if (pai_docker_bury(d, root_fd, dir, id[0] ? id : info ? info->id : "", call, &err) < 0) {
		pai_log_warn("docker", "sandbox %s, which is over: %s", dir, err.msg);
	}
}

static bool is_gone_name(const char *name)
{
	return strncmp(name, PAI_DOCKER_GONE, sizeof(PAI_DOCKER_GONE) - 1) == 0;
}

void pai_docker_sweep(struct pai_docker *d, int root_fd, const struct pai_docker_infos *listed,
    const struct pai_call *call)
{
	int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	pai_auto_dir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		pai_auto_fd_p(&fd);
		return;
	}
	while ((e = readdir(dir)) != NULL) {
		if (pai_docker_hex_is_valid(e->d_name, PAI_DOCKER_ID)) {
			sweep_dir(d, root_fd, e->d_name, listed, call);
		} else if (is_gone_name(e->d_name)) {
			(void)pai_remove_tree(root_fd, e->d_name, call, PAI_ERR_IGNORED());
		}
	}
}

/* --- watching --- */

/* The files go at once: what the kernel has cached of them is told so by their watches. */
static void take_back(struct pai_docker *d, const char *id, const char *dir)
{
	const struct pai_call call = {.deadline_ms = pai_deadline_in(BACKGROUND_MS)};
	struct pai_err err = PAI_ERR_INIT;
	pai_auto_fd int root_fd = -1;
	char bound[PAI_DOCKER_CONTAINER + 1];

	if (pai_docker_root(d, false, &root_fd, &err) < 0) {
		return;
	}
	pai_docker_dir_container(root_fd, dir, bound);
	if (strcmp(bound, id) != 0) {
		return;
	}
	pai_log_debug("docker", "container %.12s was removed", id);
	if (pai_docker_bury(d, root_fd, dir, "", &call, &err) < 0) {
		pai_log_warn("docker", "sandbox %s, whose container was removed: %s", dir, err.msg);
	}
}

static void on_removed(void *d, const char *id, const char *dir)
{
	take_back(d, id, dir);
}

/* What was removed while nobody listened. */
static int catch_up(struct pai_docker *d, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_docker_infos struct pai_docker_infos listed = {0};
	pai_auto_fd int root_fd = -1;
	pai_auto_dir DIR *dir = NULL;
	struct dirent *e;
	int fd;
	int r = pai_docker_root(d, false, &root_fd, err);

	r = r < 0 ? r : pai_docker_containers(d, call, &listed, err);
	if (r < 0) {
		return r;
	}
	fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		pai_auto_fd_p(&fd);
		return pai_err_sys(err, "read '%s'", d->root);
	}
	while ((e = readdir(dir)) != NULL) {
		char id[PAI_DOCKER_CONTAINER + 1] = "";

		if (pai_docker_hex_is_valid(e->d_name, PAI_DOCKER_ID)) {
			pai_docker_dir_container(root_fd, e->d_name, id);
		}
		if (id[0] && !listed_as(&listed, id, "") && is_removed(d, id, call)) {
			take_back(d, id, e->d_name);
		}
	}
	return 0;
}

static void *watch(void *arg)
{
	struct pai_docker_watch *w = arg;
	const struct pai_call follow = {.deadline_ms = PAI_NO_DEADLINE, .cancel = w->cancel};
	uint64_t backoff_ms = BACKOFF_MIN_MS;

	(void)pthread_setname_np(pthread_self(), "pai-docker");
	while (!pai_cancel_fired(w->cancel)) {
		const struct pai_call look = {
		    .deadline_ms = pai_deadline_in(BACKGROUND_MS), .cancel = w->cancel};
		int64_t since_s = pai_clock_wall_ms() / 1000 - OVERLAP_S;
		uint64_t began_ms = pai_clock_ms();
		struct pai_err err = PAI_ERR_INIT;
		int r = catch_up(w->docker, &look, &err);

		r = r < 0 ? r
			  : pai_docker_events(
				w->docker, since_s, &follow, on_removed, w->docker, &err);
		if (r < 0) {
			pai_log_debug("docker", "the engine's events: %s", err.msg);
		}
		if (pai_clock_ms() - began_ms > BACKOFF_MAX_MS) {
			backoff_ms = BACKOFF_MIN_MS; /* it was followed */
		}
		(void)!pai_call_sleep(&follow, pai_deadline_in(backoff_ms), PAI_ERR_IGNORED());
		backoff_ms = 2 * backoff_ms > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : 2 * backoff_ms;
	}
	return NULL;
}

/* Without memory for it a removal is noticed by the next command. */
void pai_docker_watch_start(struct pai_docker *d)
{
	struct pai_docker_watch *w = NULL;

	(void)pthread_mutex_lock(&d->lock);
	if (!d->watch && !d->far) {
		w = calloc(1, sizeof(*w));
	}
	if (w) {
		w->docker = d;
		w->cancel = pai_cancel_new();
	}
	if (w && w->cancel && pthread_create(&w->thread, NULL, watch, w) == 0) {
		d->watch = w;
	} else if (w) {
		pai_cancel_unref(w->cancel);
		free(w);
	}
	(void)pthread_mutex_unlock(&d->lock);
}

void pai_docker_watch_stop(struct pai_docker *d)
{
	struct pai_docker_watch *w = d->watch;

	if (w) {
		pai_cancel_fire(w->cancel);
		(void)pthread_join(w->thread, NULL);
		pai_cancel_unref(w->cancel);
		free(w);
		d->watch = NULL;
	}
}
