/*
 * A sandbox whose files are not on this host: the engine is elsewhere, or was said to be. What is
 * needed in the container is put there through the engine before it is started; then a link leads
 * to a worker in it, over a program of the engine's (docker exec), and the *local provider* at the
 * other end does the rest: its one sandbox there has /workspace as its directory.
 *
 *   /run/pai/pai-helper  nonce  lease  sock/     as where files are on this host (docker.h), in the
 *                                                container's own file system
 *   /run/pai/far/                                the worker's root; this and sock/ alone are
 *                                                the user's
 *
 * One link per handle, each with a client id of its own, made when it is wanted.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "providers/base/clock.h"
#include "providers/base/path.h"
#include "providers/base/pool.h"
#include "providers/docker/docker.h"
#include "providers/helper/far.h"
#include "providers/helper/link.h"

#define THREADS 4 /* transports that are being opened at once, of all links */
#define QUEUED 1024
#define FAR_KEY "sandbox"

struct pai_docker_far {
	atomic_int refs; /* the handle's, the calls' and the link's */
	struct pai_docker *docker;
	char id[PAI_DOCKER_CONTAINER + 1];
	char client[40];
	struct pai_link *link;
	struct pai_provider *provider;
	struct pai_sandbox *sandbox;
	struct pai_docker_far *older; /* whose link has ended */
};

/* A link's last event may come on a thread of the pool, which therefore is nobody's to free. */
static struct pai_pool *pool;

static void make_pool(void)
{
	pool = pai_pool_new("docker", THREADS, QUEUED);
}

static void drop(void *arg)
{
	struct pai_docker_far *f = arg;

	if (atomic_fetch_sub(&f->refs, 1) == 1) {
		pai_docker_unref(f->docker);
		free(f);
	}
}

/* The handle's references: what a link still does goes on without. */
void pai_docker_far_close(struct pai_docker_far *f)
{
	while (f) {
		struct pai_docker_far *older = f->older;

		pai_sandbox_free(PAI_TAKE(f->sandbox));
		pai_provider_free(PAI_TAKE(f->provider));
		pai_link_unref(PAI_TAKE(f->link));
		drop(f);
		f = older;
	}
}

static int open_transport(void *arg, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct pai_docker_far *f = arg;
	const char *const argv[] = {PAI_DOCKER_RUN "/pai-helper", "serve", "--root",
	    PAI_DOCKER_RUN "/far", "--client", f->client, "-o", "host_commands=yes", "-o",
	    "tmp=/tmp", NULL};

	pai_auto_docker_info struct pai_docker_info info = {0};
	bool found = true;
	int r = pai_docker_exec(
	    f->docker, f->id, &(const struct pai_docker_exec){.argv = argv}, call, ret_fd, err);

	/* One that has stopped doesn't come back by itself: the link ends, and who wants another
	 * starts the container first. */
	if (r < 0 && err->code == PAI_E_UNAVAILABLE &&
	    pai_docker_inspect(f->docker, f->id, call, &found, &info, PAI_ERR_IGNORED()) == 0 &&
	    (!found || info.state == PAI_DOCKER_STOPPED)) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "container %.12s has stopped", f->id);
	}
	return r;
}

static int open_channel(void *arg, enum pai_channel_kind kind, const char *sandbox,
    const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct pai_docker_far *f = arg;

	return pai_link_channel(f->link, kind, sandbox, call, ret_fd, err);
}

static int open_link(struct pai_docker_far *f, const struct pai_call *call, struct pai_err *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const struct pai_link_config config = {
	    .open = open_transport,
	    .arg = f,
	    .client = f->client,
	    .grace_ms = f->docker->grace_ms,
	    .freed = drop,
	};
	struct pai_link_config with_pool = config;

	(void)pthread_once(&once, make_pool);
	if (!pool) {
		return pai_err_no_memory(err);
	}
	with_pool.pool = pool;
	(void)atomic_fetch_add(&f->refs, 1); /* `freed` is called also when it fails */
	return pai_link_new(&with_pool, call, &f->link, err);
}

/* The sandbox there: whoever comes first makes it, and says what its commands' environment is. */
static int open_sandbox(struct pai_docker_far *f, const struct pai_strmap *env,
    const struct pai_call *call, struct pai_err *err)
{
	const struct pai_far_config config = {
	    .name = "docker",
	    .caps = f->docker->base.caps,
	    .hold_ms = f->docker->grace_ms,
	    .open = open_channel,
	    .arg = f,
	};
	pai_auto_strmap struct pai_strmap own = {0};
	const struct pai_create_input input = {
	    .template_name = PAI_WORKSPACE,
	    .binding_key = FAR_KEY,
	    /* No ttl: process 1 ends the container by the lease, which commands can't reach. */
	    .env = &own,
	    /* Of what the container has. */
	    .network = {.access = PAI_NETWORK_FULL},
	};
	int r = env ? pai_strmap_copy(&own, env) : 0;

	if (r == 0 && !pai_strmap_get(&own, "HOME")) {
		r = pai_strmap_set(&own, "HOME", PAI_DOCKER_HOME);
	}
	if (r < 0) {
		return pai_err_no_memory(err);
	}
	r = pai_far_new(&config, &f->provider, err);
	return r < 0 ? r : pai_provider_create(f->provider, &input, call, &f->sandbox, err);
}

static int far_new(struct pai_docker_sandbox *sb, const struct pai_strmap *env,
    const struct pai_call *call, struct pai_docker_far **ret, struct pai_err *err)
{
	struct pai_docker_far *f = calloc(1, sizeof(*f));
	uint64_t random = 0;
	int r;

	if (!f) {
		return pai_err_no_memory(err);
	}
	atomic_init(&f->refs, 1);
	f->docker = pai_docker_ref(sb->docker);
	memcpy(f->id, sb->base.id, sizeof(f->id));
	(void)!getrandom(&random, sizeof(random), 0);
	(void)snprintf(f->client, sizeof(f->client), "docker-%016llx", (unsigned long long)random);
	r = open_link(f, call, err);
	r = r < 0 ? r : open_sandbox(f, env, call, err);
	if (r < 0) {
		pai_docker_far_close(f);
		return pai_err_wrap(err, "the helper in container %.12s", sb->base.id);
	}
	*ret = f;
	return 0;
}

static struct pai_docker_far *current(struct pai_docker_sandbox *sb)
{
	struct pai_docker_far *f;

	(void)pthread_mutex_lock(&sb->lock);
	f = sb->far && pai_link_alive(sb->far->link) ? sb->far : NULL;
	(void)pthread_mutex_unlock(&sb->lock);
	return f;
}

/* Whether what was asked of `far` was asked of a link that still stands. */
static bool is_linked(struct pai_docker_sandbox *sb, const struct pai_sandbox *far)
{
	struct pai_docker_far *f;
	bool linked;

	(void)pthread_mutex_lock(&sb->lock);
	f = sb->far;
	while (f && f->sandbox != far) {
		f = f->older;
	}
	linked = f && pai_link_alive(f->link);
	(void)pthread_mutex_unlock(&sb->lock);
	return linked;
}

/* A stream that broke off may be a container that was removed: then nothing goes on. And where the
 * link has ended, "not found" is said of the link: the container may only have been stopped. There
 * may be another link by now, of somebody else who asked. */
static int judge(struct pai_docker_sandbox *sb, const struct pai_sandbox *far, int r,
    const struct pai_call *call, struct pai_err *err)
{
	struct pai_err why = PAI_ERR_INIT;

	if (r == 0 || (err->code != PAI_E_UNAVAILABLE && err->code != PAI_E_NOT_FOUND)) {
		return r;
	}
	if (pai_docker_wake(sb, call, &why) < 0 && why.code == PAI_E_NOT_FOUND) {
		*err = why;
	} else if (err->code == PAI_E_NOT_FOUND && !is_linked(sb, far)) {
		(void)pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL,
		    "the link to container %.12s has ended", sb->base.id);
		err->retryable = false;
	}
	return -err->errnum;
}

int pai_docker_far_open(struct pai_docker_sandbox *sb, const struct pai_strmap *env,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err)
{
	struct pai_docker_far *f = NULL;
	int r = pai_docker_wake(sb, call, err);

	if (r < 0) {
		return r;
	}
	f = current(sb);
	if (!f) {
		r = far_new(sb, env, call, &f, err);
		if (r < 0) {
			return judge(sb, NULL, r, call, err);
		}
		/* Calls may be under way in the one before: it stays until the handle goes. */
		(void)pthread_mutex_lock(&sb->lock);
		f->older = sb->far;
		sb->far = f;
		(void)pthread_mutex_unlock(&sb->lock);
	}
	*ret = f->sandbox;
	return 0;
}

/* --- what a sandbox answers --- */

static int far_run(struct pai_sandbox *base, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err)
{
	struct pai_docker_sandbox *sb = pai_docker_sandbox_of(base);
	struct pai_sandbox *far = NULL;
	int r = pai_docker_far_open(sb, NULL, call, &far, err);

	return r < 0 ? r : judge(sb, far, pai_sandbox_run(far, input, call, ret, err), call, err);
}

static int far_read_file(struct pai_sandbox *base, const char *path, uint64_t max_bytes,
    const struct pai_call *call, bool *found, struct pai_buf *ret, struct pai_err *err)
{
	struct pai_docker_sandbox *sb = pai_docker_sandbox_of(base);
	struct pai_sandbox *far = NULL;
	int r = pai_docker_far_open(sb, NULL, call, &far, err);

	return r < 0 ? r
		     : judge(sb, far,
			   pai_sandbox_read_file(far, path, max_bytes, call, found, ret, err), call,
			   err);
}

static int far_write_file(struct pai_sandbox *base, const char *path, const void *data, size_t len,
    const struct pai_call *call, struct pai_err *err)
{
	struct pai_docker_sandbox *sb = pai_docker_sandbox_of(base);
	struct pai_sandbox *far = NULL;
	int r = pai_docker_far_open(sb, NULL, call, &far, err);

	return r < 0 ? r
		     : judge(sb, far, pai_sandbox_write_file(far, path, data, len, call, err), call,
			   err);
}

static int far_list_dir(struct pai_sandbox *base, const char *path, const struct pai_call *call,
    bool *found, struct pai_dir_list *ret, struct pai_err *err)
{
	struct pai_docker_sandbox *sb = pai_docker_sandbox_of(base);
	struct pai_sandbox *far = NULL;
	int r = pai_docker_far_open(sb, NULL, call, &far, err);

	return r < 0 ? r
		     : judge(sb, far, pai_sandbox_list_dir(far, path, call, found, ret, err), call,
			   err);
}

typedef int (*stream_fn)(
    struct pai_sandbox *sb, const struct pai_call *call, int *ret_fd, struct pai_err *err);

/* Opening does nothing by itself: when the link has ended under it, it is done over another. */
static int open_stream(struct pai_sandbox *base, stream_fn fn, const struct pai_call *call,
    int *ret_fd, struct pai_err *err)
{
	struct pai_docker_sandbox *sb = pai_docker_sandbox_of(base);
	int r = -EIO;

	for (int tries = 0; tries < 2; tries++) {
		struct pai_sandbox *far = NULL;

		*err = (struct pai_err)PAI_ERR_INIT;
		r = pai_docker_far_open(sb, NULL, call, &far, err);
		r = r < 0 ? r : judge(sb, far, fn(far, call, ret_fd, err), call, err);
		if (r == 0 || err->code != PAI_E_UNAVAILABLE || is_linked(sb, far)) {
			break;
		}
	}
	return r;
}

static int far_open_exec(
    struct pai_sandbox *base, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	return open_stream(base, pai_sandbox_open_exec, call, ret_fd, err);
}

static int far_open_files(
    struct pai_sandbox *base, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	return open_stream(base, pai_sandbox_open_files, call, ret_fd, err);
}

static int far_keep_alive(
    struct pai_sandbox *base, uint64_t ttl_ms, const struct pai_call *call, struct pai_err *err)
{
	struct pai_docker_sandbox *sb = pai_docker_sandbox_of(base);
	int r = pai_docker_wake(sb, call, err);

	r = r < 0 ? r : pai_docker_far_lease(sb->docker, sb->base.id, ttl_ms, call, err);
	return judge(sb, NULL, r, call, err);
}

const struct pai_sandbox_ops pai_docker_far_ops = {
    .free = pai_docker_sandbox_free,
    .run = far_run,
    .read_file = far_read_file,
    .write_file = far_write_file,
    .list_dir = far_list_dir,
    .keep_alive = far_keep_alive,
    .kill = pai_docker_kill,
    .pause = pai_docker_pause_sandbox,
    .open_line = pai_docker_open_line,
    .open_exec = far_open_exec,
    .open_files = far_open_files,
};
