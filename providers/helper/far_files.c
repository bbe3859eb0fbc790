/*
 * The files of a sandbox that is a directory here, for one stream: a server of its own, which ends
 * with the stream; so does the thread that it has where the stream is a socket.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "providers/base/log.h"
#include "providers/base/pool.h"
#include "providers/helper/far_stream.h"
#include "providers/helper/ws_serve.h"
#include "providers/provider.h"

struct files {
	LIST_ENTRY(files) at; /* server->lock */
	struct pai_far_server *server;
	int fd;        /* a copy, to end the stream by; a channel ends with its link */
	char *sandbox; /* its id */
	void *channel; /* NULL: it is none; server->lock */
	struct pai_ws_serve serve;
	struct pai_host_files host;
};

static int open_posix(
    void *arg, const struct pai_ws_config *config, struct pai_ws **ret, struct pai_err *err)
{
	struct files *f = arg;
	struct pai_host_files host = f->host;

	/* Taken there, whatever comes of it. */
	f->host = (struct pai_host_files){.root_fd = -1, .nonce_fd = -1};
	if (host.root_fd < 0) {
		return pai_err_set(err, PAI_E_PROTOCOL, "the files were asked for twice");
	}
	return pai_ws_posix_new(&host, config, ret, err);
}

static void files_free(struct files *f)
{
	struct pai_far_server *s = f->server;

	pai_auto_fd_p(&f->host.root_fd);
	pai_auto_fd_p(&f->host.nonce_fd);
	free(f->host.state_dir);
	free(f->sandbox);
	(void)pthread_mutex_lock(&s->lock);
	LIST_REMOVE(f, at);
	pai_auto_fd_p(&f->fd);
	(void)pthread_cond_broadcast(&s->stream_gone);
	(void)pthread_mutex_unlock(&s->lock);
	free(f);
}

void pai_far_files_end_locked(struct pai_far_server *s)
{
	struct files *f;

	LIST_FOREACH(f, &s->files, at)
	{
		if (f->fd >= 0) {
			(void)shutdown(f->fd, SHUT_RDWR);
		}
	}
}

static void files_ended(void *arg, const struct pai_err *why)
{
	if (why->code != PAI_OK) {
		pai_log_warn("files", "a stream of files was ended: %s", why->msg);
	}
	files_free(arg);
}

static void *serve_files(void *arg)
{
	struct files *f = arg;
	struct pai_err err = PAI_ERR_INIT;

	(void)!pai_ws_serve_run(&f->serve, &err);
	files_ended(f, &err);
	return NULL;
}

/* Each file that is open through a stream is a descriptor here. Commands keep the limit that the
 * provider saw when it was opened. */
static void raise_files_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* Both ends of the stream: one is served, and known by a copy. */
static int connect_ends(struct files *f, int *ret_fd, struct pai_err *err)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
		return pai_err_sys(err, "socketpair");
	}
	f->fd = fcntl(ends[0], F_DUPFD_CLOEXEC, 0);
	if (f->fd < 0) {
		(void)close(ends[0]);
		(void)close(ends[1]);
		return pai_err_sys(err, "a descriptor");
	}
	f->serve.take_fd = ends[0];
	*ret_fd = ends[1];
	return 0;
}

static struct files *files_new(struct pai_far_server *s, struct pai_sandbox *sb,
    const struct pai_call *call, struct pai_err *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct files *f = calloc(1, sizeof(*f));

	if (!f) {
		(void)pai_err_no_memory(err);
		return NULL;
	}
	*f = (struct files){.server = s,
	    .fd = -1,
	    .host = {.root_fd = -1, .nonce_fd = -1},
	    .serve = {.take_fd = -1, .open = open_posix, .arg = f, .pool = s->files_pool}};
	(void)pthread_mutex_lock(&s->lock);
	LIST_INSERT_HEAD(&s->files, f, at);
	(void)pthread_mutex_unlock(&s->lock);
	f->sandbox = strdup(pai_sandbox_id(sb));
	if (f->sandbox ? pai_sandbox_host_files(sb, call, &f->host, err) < 0
		       : pai_err_no_memory(err) < 0) {
		files_free(f);
		return NULL;
	}
	(void)pthread_once(&once, raise_files_limit);
	return f;
}

int pai_far_serve_files(struct pai_far_server *s, struct pai_sandbox *sb,
    const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct files *f = files_new(s, sb, call, err);
	int ours = -1;
	int r;

	if (!f) {
		return -err->errnum;
	}
	r = connect_ends(f, &ours, err);
	if (r == 0) {
		r = pai_far_start_thread(serve_files, f);
		r = r < 0 ? pai_err_errno(err, -r, "a thread for files") : 0;
	}
	if (r < 0) {
		pai_auto_fd_p(&f->serve.take_fd);
		pai_auto_fd_p(&ours);
		files_free(f);
		return r;
	}
	*ret_fd = ours;
	return 0;
}

int pai_far_serve_files_channel(struct pai_far_server *s, struct pai_sandbox *sb,
    const struct pai_call *call, struct pai_link_opened *ret, struct pai_err *err)
{
	struct files *f = files_new(s, sb, call, err);
	int r;

	if (!f) {
		return -err->errnum;
	}
	f->serve.tells_exits = true;
	r = pai_ws_serve_channel(&f->serve, files_ended, ret, err);
	if (r < 0) {
		files_free(f);
		return r;
	}
	(void)pthread_mutex_lock(&s->lock);
	f->channel = ret->arg;
	(void)pthread_mutex_unlock(&s->lock);
	return 0;
}

void pai_far_files_exited(struct pai_far_server *s, const char *sandbox, uint32_t command)
{
	struct files *f;

	/* The lock keeps them: who has ended is taken off the list before it is freed. */
	(void)pthread_mutex_lock(&s->lock);
	LIST_FOREACH(f, &s->files, at)
	{
		if (f->channel && !strcmp(f->sandbox, sandbox)) {
			pai_ws_serve_exited(f->channel, command);
		}
	}
	(void)pthread_mutex_unlock(&s->lock);
}
