/*
 * One thread reads a stream of calls and hands each call to the pool; its replies are put by
 * whatever thread has them, whole frames at a time. A stream and what it holds live until its
 * reader and its last call have gone.
 */
#include "providers/helper/far_serve.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"
#include "providers/base/pool.h"
#include "providers/helper/far_stream.h"
#include "providers/provider.h"

#define THREADS 16
#define FILES_THREADS 64
#define READ_BYTES (64u << 10)
#define UPLOADS_MAX (2ull * PAI_CALL_FILE_MAX) /* bytes announced at once, by one stream */

_Static_assert((int)PAI_CALLS_CAP_ALONE == (int)PAI_CAP_ALONE &&
		   (int)PAI_CALLS_CAP_COMMANDS == (int)PAI_CAP_COMMANDS &&
		   (int)PAI_CALLS_CAP_ALLOWLIST == (int)PAI_CAP_ALLOWLIST,
    "the wire's numbers are provider.h's");

void pai_far_stream_unref(struct stream *st)
{
	struct pai_far_server *s = st->server;

	if (atomic_fetch_sub(&st->refs, 1) > 1) {
		return;
	}
	pai_far_held_free_all(st);
	(void)pthread_mutex_destroy(&st->send_lock);
	(void)pthread_mutex_destroy(&st->lock);
	(void)pthread_mutex_lock(&s->lock);
	LIST_REMOVE(st, at);
	(void)close(st->fd);
	(void)pthread_cond_broadcast(&s->stream_gone);
	(void)pthread_mutex_unlock(&s->lock);
	free(st);
}

/* --- reading --- */

static void submit(struct job *j)
{
	struct pai_err err = PAI_ERR_INIT;

	if (j->refused || pai_pool_submit(j->stream->server->pool, pai_far_job_run, j) < 0) {
		(void)pai_err_unavailable(
		    &err, PAI_REASON_BACKEND, NULL, "too much is asked at once");
		pai_far_job_fail(j, &err);
		pai_far_job_free(j);
	}
}

static struct job *find_job_locked(struct stream *st, uint32_t id)
{
	struct job *j;

	LIST_FOREACH(j, &st->jobs, at)
	{
		if (j->id == id) {
			return j;
		}
	}
	return NULL;
}

static int add_job(struct stream *st, struct job *j)
{
	const struct pai_call_request *q = &j->request;
	uint64_t bytes = q->op == PAI_CALL_WRITE_FILE ? q->number : 0;
	int r = 0;

	if (bytes > PAI_CALL_FILE_MAX) {
		return -EPROTO;
	}
	(void)pthread_mutex_lock(&st->lock);
	if (st->job_count >= PAI_CALLS_AT_ONCE || find_job_locked(st, j->id)) {
		r = -EPROTO;
	} else {
		j->refused = st->uploads + bytes > UPLOADS_MAX;
		st->uploads += bytes;
		st->job_count++;
		(void)atomic_fetch_add(&st->refs, 1);
		LIST_INSERT_HEAD(&st->jobs, j, at);
	}
	(void)pthread_mutex_unlock(&st->lock);
	return r;
}

static int take_call(struct stream *st, const struct pai_frame *f)
{
	struct job *j = calloc(1, sizeof(*j));
	int r = j ? pai_call_get_request(f->payload, &j->request) : -ENOMEM;

	if (r == 0) {
		j->stream = st;
		j->id = f->id;
		j->data.max = PAI_CALL_FILE_MAX;
		j->missing = j->request.op == PAI_CALL_WRITE_FILE ? j->request.number : 0;
		j->call.deadline_ms = pai_deadline_in(j->request.within_ms);
		j->call.cancel = pai_cancel_new();
		r = j->call.cancel ? add_job(st, j) : -ENOMEM;
	}
	if (r < 0) {
		if (j) {
			pai_cancel_unref(j->call.cancel);
			pai_call_request_fini(&j->request);
		}
		free(j);
		return r;
	}
	if (j->missing == 0) {
		submit(j);
	}
	return 0;
}

/* The job is the reader's as long as bytes are missing. */
static int take_data(struct stream *st, const struct pai_frame *f)
{
	struct job *j;
	bool expected;
	int r = 0;

	(void)pthread_mutex_lock(&st->lock);
	j = find_job_locked(st, f->id);
	expected = j && f->payload.len > 0 && f->payload.len <= PAI_FRAME_DATA_MAX &&
		   f->payload.len <= j->missing;
	(void)pthread_mutex_unlock(&st->lock);
	if (!expected) {
		return -EPROTO;
	}
	if (!j->refused) {
		r = pai_buf_add(&j->data, f->payload.data, f->payload.len);
	}
	j->missing -= f->payload.len;
	if (r == 0 && j->missing == 0) {
		submit(j);
	}
	return r;
}

static int take_cancel(struct stream *st, const struct pai_frame *f)
{
	struct job *j;

	if (f->payload.len > 0) {
		return -EPROTO;
	}
	(void)pthread_mutex_lock(&st->lock);
	j = find_job_locked(st, f->id);
	if (j) {
		pai_cancel_fire(j->call.cancel);
	}
	(void)pthread_mutex_unlock(&st->lock);
	return 0; /* none: its DONE crossed the frame */
}

static int take_hello(struct stream *st, const struct pai_frame *f)
{
	const struct pai_provider *p = st->server->provider;
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(PAI_FAR_OUT_MAX);
	struct pai_calls_ready ready = {.caps = pai_provider_caps(p) & PAI_CALLS_CAP_ALL};
	const char *isolation = pai_provider_isolation(p);
	uint16_t version;
	int r = f->type == PAI_MSG_CALLS_HELLO && f->id == 0
		    ? pai_calls_get_hello(f->payload, &version)
		    : -EPROTO;

	if (r < 0 && r != -EPROTONOSUPPORT) {
		return r;
	}
	(void)snprintf(ready.name, sizeof(ready.name), "%s", pai_provider_name(p));
	(void)snprintf(ready.isolation, sizeof(ready.isolation), "%s", isolation ? isolation : "");
	pai_far_send(st, &out, pai_calls_put_ready(&out, &ready)); /* tells our version, too */
	return r;
}

static int take_frame(struct stream *st, const struct pai_frame *f)
{
	switch (f->type) {
	case PAI_MSG_CALL:
		return take_call(st, f);
	case PAI_MSG_CALL_DATA:
		return take_data(st, f);
	case PAI_MSG_CALL_CANCEL:
		return take_cancel(st, f);
	default:
		return -EPROTO;
	}
}

static int take_frames(struct stream *st, struct pai_buf *in, bool *greeted)
{
	struct pai_frame f;
	size_t at = 0;
	int r;

	while ((r = pai_frame_next(in, &at, &f)) == 1) {
		r = *greeted ? take_frame(st, &f) : take_hello(st, &f);
		if (r < 0) {
			return r;
		}
		*greeted = true;
	}
	pai_buf_consume(in, at);
	return r;
}

/* What still runs is nobody's any more; what was never whole is freed here. */
static void end_jobs(struct stream *st)
{
	for (;;) {
		struct job *j;

		(void)pthread_mutex_lock(&st->lock);
		LIST_FOREACH(j, &st->jobs, at)
		{
			pai_cancel_fire(j->call.cancel);
			if (j->missing > 0) {
				break;
			}
		}
		(void)pthread_mutex_unlock(&st->lock);
		if (!j) {
			return;
		}
		pai_far_job_free(j);
	}
}

static void *read_stream(void *arg)
{
	pai_auto_buf struct pai_buf in =
	    PAI_BUF_INIT(PAI_FRAME_MAX + PAI_FRAME_HEADER + READ_BYTES);
	struct stream *st = arg;
	bool greeted = false;
	int r = 0;

	while (r >= 0) {
		ssize_t n;

		r = pai_buf_reserve(&in, READ_BYTES);
		if (r < 0) {
			break;
		}
		n = recv(st->fd, in.data + in.len, READ_BYTES, 0);
		if (n < 0 && errno == EAGAIN) {
			/* Idle is no fault: the stream's end is what ends the wait. */
			r = pai_call_poll(PAI_CALL_UNBOUNDED, st->fd, POLLIN, PAI_ERR_IGNORED());
			continue;
		}
		if (n == 0 || (n < 0 && errno != EINTR)) {
			break;
		}
		in.len += n > 0 ? (size_t)n : 0;
		r = take_frames(st, &in, &greeted);
	}
	if (r < 0) {
		pai_log_warn("calls", "a stream of calls was ended: %s", pai_errno_name(-r));
	}
	(void)shutdown(st->fd, SHUT_RDWR);
	end_jobs(st);
	pai_far_stream_unref(st);
	return NULL;
}
/* --- the server --- */

int pai_far_server_new(
    struct pai_provider *provider, struct pai_far_server **ret, struct pai_err *err)
{
	struct pai_far_server *s = calloc(1, sizeof(*s));

	if (s) {
		s->pool = pai_pool_new("calls", THREADS, SIZE_MAX);
		s->files_pool = pai_pool_new("files", FILES_THREADS, SIZE_MAX);
	}
	if (!s || !s->pool || !s->files_pool) {
		if (s) {
			pai_pool_free(s->pool);
			pai_pool_free(s->files_pool);
		}
		free(s);
		return pai_err_no_memory(err);
	}
	s->provider = provider;
	(void)pthread_mutex_init(&s->lock, NULL);
	(void)pthread_cond_init(&s->stream_gone, NULL);
	LIST_INIT(&s->streams);
	LIST_INIT(&s->files);
	*ret = s;
	return 0;
}

void pai_far_server_free(struct pai_far_server *s)
{
	struct stream *st;

	if (!s) {
		return;
	}
	(void)pthread_mutex_lock(&s->lock);
	LIST_FOREACH(st, &s->streams, at)
	{
		(void)shutdown(st->fd, SHUT_RDWR);
	}
	pai_far_files_end_locked(s);
	while (!LIST_EMPTY(&s->streams) || !LIST_EMPTY(&s->files)) {
		(void)pthread_cond_wait(&s->stream_gone, &s->lock);
	}
	(void)pthread_mutex_unlock(&s->lock);
	pai_pool_free(s->pool);
	pai_pool_free(s->files_pool);
	(void)pthread_mutex_destroy(&s->lock);
	(void)pthread_cond_destroy(&s->stream_gone);
	free(s);
}

int pai_far_start_thread(void *(*run)(void *), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all;
	sigset_t old;
	int r;

	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)sigfillset(&all); /* signals are the main thread's */
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&thread, &attr, run, arg);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	return -r;
}

static int serve_calls(struct pai_far_server *s, int *ret_fd, struct pai_err *err)
{
	struct stream *st = calloc(1, sizeof(*st));
	int ends[2];
	int r;

	if (!st) {
		return pai_err_no_memory(err);
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
		free(st);
		return pai_err_sys(err, "socketpair");
	}
	st->server = s;
	st->fd = ends[0];
	atomic_init(&st->refs, 1);
	LIST_INIT(&st->jobs);
	LIST_INIT(&st->held);
	(void)pthread_mutex_init(&st->lock, NULL);
	(void)pthread_mutex_init(&st->send_lock, NULL);
	(void)pthread_mutex_lock(&s->lock);
	LIST_INSERT_HEAD(&s->streams, st, at);
	(void)pthread_mutex_unlock(&s->lock);
	r = pai_far_start_thread(read_stream, st);
	if (r < 0) {
		pai_far_stream_unref(st);
		(void)close(ends[1]);
		return pai_err_errno(err, -r, "a thread for calls");
	}
	*ret_fd = ends[1];
	return 0;
}

/* `name` is "ID" or "ID/INCARNATION". */
static int connect_sandbox(struct pai_far_server *s, const char *name, const struct pai_call *call,
    struct pai_sandbox **ret, struct pai_err *err)
{
	const char *incarnation = strchr(name, '/');
	pai_auto_free char *id =
	    strndup(name, incarnation ? (size_t)(incarnation - name) : SIZE_MAX);
	pai_auto_sandbox struct pai_sandbox *sb = NULL;
	int r = id ? pai_provider_connect(s->provider, id, call, &sb, err) : pai_err_no_memory(err);

	if (r < 0) {
		return r;
	}
	if (!sb || (incarnation && strcmp(incarnation + 1, pai_sandbox_incarnation(sb)) != 0)) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "no sandbox %s", id);
	}
	*ret = PAI_TAKE(sb);
	return 0;
}

static int open_on_sandbox(struct pai_far_server *s, enum pai_channel_kind kind, const char *name,
    const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	pai_auto_sandbox struct pai_sandbox *sb = NULL;
	int r = connect_sandbox(s, name, call, &sb, err);

	if (r < 0) {
		return r;
	}
	if (kind == PAI_CHANNEL_EXEC) {
		return pai_sandbox_open_exec(sb, call, ret_fd, err);
	}
	return kind == PAI_CHANNEL_FILES
		   ? pai_far_serve_files(s, sb, call, ret_fd, err)
		   : pai_err_set(err, PAI_E_UNSUPPORTED, "no channel of that kind");
}

int pai_far_server_open(struct pai_far_server *s, enum pai_channel_kind kind, const char *sandbox,
    const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	return kind == PAI_CHANNEL_CALLS ? serve_calls(s, ret_fd, err)
					 : open_on_sandbox(s, kind, sandbox, call, ret_fd, err);
}

int pai_far_server_open_channel(struct pai_far_server *s, enum pai_channel_kind kind,
    const char *sandbox, const struct pai_call *call, struct pai_link_opened *ret,
    struct pai_err *err)
{
	pai_auto_sandbox struct pai_sandbox *sb = NULL;
	int r;

	if (kind != PAI_CHANNEL_FILES) {
		r = pai_far_server_open(s, kind, sandbox, call, &ret->fd, err);
		if (r == 0 && kind == PAI_CHANNEL_EXEC) {
			pai_far_watch_exits(s, sandbox, ret);
		}
		return r;
	}
	r = connect_sandbox(s, sandbox, call, &sb, err);
	return r < 0 ? r : pai_far_serve_files_channel(s, sb, call, ret, err);
}
