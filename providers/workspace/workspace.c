/*
 * The part that every server shares. A listing is one allocation: `entries` and the names they
 * point to lie in `memory`, so req_fini() frees `memory` and `data` and nothing else.
 */
#include "providers/workspace/workspace.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>

#include "providers/base/auto.h"

static const char *const op_names[PAI_WS_OP_COUNT] = {
    [PAI_WS_LOOKUP] = "lookup",
    [PAI_WS_GETATTR] = "getattr",
    [PAI_WS_SETATTR] = "setattr",
    [PAI_WS_READLINK] = "readlink",
    [PAI_WS_SYMLINK] = "symlink",
    [PAI_WS_MKNOD] = "mknod",
    [PAI_WS_MKDIR] = "mkdir",
    [PAI_WS_UNLINK] = "unlink",
    [PAI_WS_RMDIR] = "rmdir",
    [PAI_WS_RENAME] = "rename",
    [PAI_WS_LINK] = "link",
    [PAI_WS_OPEN] = "open",
    [PAI_WS_CREATE] = "create",
    [PAI_WS_TMPFILE] = "tmpfile",
    [PAI_WS_READ] = "read",
    [PAI_WS_WRITE] = "write",
    [PAI_WS_RELEASE] = "release",
    [PAI_WS_FSYNC] = "fsync",
    [PAI_WS_FALLOCATE] = "fallocate",
    [PAI_WS_LSEEK] = "lseek",
    [PAI_WS_COPY] = "copy",
    [PAI_WS_OPENDIR] = "opendir",
    [PAI_WS_READDIR] = "readdir",
    [PAI_WS_STATFS] = "statfs",
    [PAI_WS_GETXATTR] = "getxattr",
    [PAI_WS_SETXATTR] = "setxattr",
    [PAI_WS_LISTXATTR] = "listxattr",
    [PAI_WS_REMOVEXATTR] = "removexattr",
    [PAI_WS_GETLK] = "getlk",
    [PAI_WS_SETLK] = "setlk",
    [PAI_WS_FLOCK] = "flock",
    [PAI_WS_UNLOCK_OWNER] = "unlock-owner",
    [PAI_WS_WATCH] = "watch",
    [PAI_WS_UNWATCH] = "unwatch",
    [PAI_WS_BARRIER] = "barrier",
    [PAI_WS_ACCESS] = "access",
    [PAI_WS_COMPARE] = "compare",
};

const char *pai_ws_op_name(enum pai_ws_op op)
{
	return (unsigned)op < PAI_WS_OP_COUNT ? op_names[op] : "unknown";
}

void pai_ws_req_fini(struct pai_ws_req *req)
{
	if (!req) {
		return;
	}
	free(req->out.data);
	free(req->out.memory);
	memset(&req->out, 0, sizeof(req->out));
}

struct pai_ws *pai_ws_ref(struct pai_ws *ws)
{
	(void)__atomic_add_fetch(&ws->refs, 1, __ATOMIC_RELAXED);
	return ws;
}

void pai_ws_unref(struct pai_ws *ws)
{
	if (ws && __atomic_sub_fetch(&ws->refs, 1, __ATOMIC_ACQ_REL) == 0) {
		pai_ws_revoke(ws);
		ws->ops->free(ws);
	}
}

void pai_ws_submit(struct pai_ws *ws, struct pai_ws_req *req)
{
	assert((unsigned)req->op < PAI_WS_OP_COUNT && req->done);
	(void)__atomic_add_fetch(&ws->counters[req->op], 1, __ATOMIC_RELAXED);
	req->error = 0;
	memset(&req->attr, 0, sizeof(req->attr));
	memset(&req->out, 0, sizeof(req->out));
	req->server_private = NULL;
	ws->ops->submit(ws, req);
}

void pai_ws_cancel(struct pai_ws *ws, struct pai_ws_req *req)
{
	ws->ops->cancel(ws, req);
}

void pai_ws_revoke(struct pai_ws *ws)
{
	ws->ops->revoke(ws);
}

/* --- waiting --- */

struct waiter {
	pthread_mutex_t lock;
	pthread_cond_t finished;
	bool is_done;
	int event_fd; /* -1 until somebody has to wait */
};

static void waiter_done(struct pai_ws_req *req)
{
	struct waiter *w = req->arg;

	(void)pthread_mutex_lock(&w->lock);
	w->is_done = true;
	if (w->event_fd >= 0) {
		(void)eventfd_write(w->event_fd, 1);
	}
	/* Under the lock: after it the waiter's stack may be gone. */
	(void)pthread_cond_signal(&w->finished);
	(void)pthread_mutex_unlock(&w->lock);
}

static void wait_finished(struct waiter *w)
{
	(void)pthread_mutex_lock(&w->lock);
	while (!w->is_done) {
		(void)pthread_cond_wait(&w->finished, &w->lock);
	}
	(void)pthread_mutex_unlock(&w->lock);
}

/* True when the call ended before the request did. */
static bool call_ended(struct waiter *w, const struct pai_call *call, struct pai_err *err)
{
	bool is_done;

	(void)pthread_mutex_lock(&w->lock);
	is_done = w->is_done;
	if (!is_done) {
		w->event_fd = eventfd(0, EFD_CLOEXEC);
	}
	(void)pthread_mutex_unlock(&w->lock);
	/* Without a descriptor to wait on the request is let run to its end. */
	return !is_done && w->event_fd >= 0 && pai_call_poll(call, w->event_fd, POLLIN, err) < 0;
}

int pai_ws_wait(struct pai_ws *ws, struct pai_ws_req *req, const struct pai_call *call)
{
	struct waiter w = {.event_fd = -1};
	pai_ws_done_fn done = req->done;
	void *arg = req->arg;
	struct pai_err err = PAI_ERR_INIT;
	bool ended;
	int error;

	(void)pthread_mutex_init(&w.lock, NULL);
	(void)pthread_cond_init(&w.finished, NULL);
	req->done = waiter_done;
	req->arg = &w;
	pai_ws_submit(ws, req);
	ended = call_ended(&w, call, &err);
	if (ended) {
		pai_ws_cancel(ws, req);
	}
	wait_finished(&w);
	if (w.event_fd >= 0) {
		(void)close(w.event_fd);
	}
	(void)pthread_cond_destroy(&w.finished);
	(void)pthread_mutex_destroy(&w.lock);
	req->done = done;
	req->arg = arg;
	/* What it did in spite of the cancellation is its result. */
	error = req->error;
	return ended && (error == EINTR || error == ECANCELED) ? err.errnum : error;
}
