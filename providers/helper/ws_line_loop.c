/* The loop's half of a line of files: receiving, completing, pushing, the end of a stream. */
#include "providers/helper/ws_line_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"
#include "providers/helper/link.h"
#include "providers/wire/exec_msg.h"

#define READ_BYTES (512u << 10)
#define IN_MAX (PAI_FRAME_MAX + PAI_FRAME_HEADER + READ_BYTES)
#define SILENT_TICKS 4
#define OWED_TICKS 4
#define OWED_BEHIND_DATA 8 /* times as long: a slow line carries what was asked before */
#define BACKOFF_FIRST_MS 100
#define BACKOFF_LAST_MS 5000
#define RETRY_POST_NS 10000000

/* --- memory, and the way to the loop --- */

void pai_ws_line_drop(struct ws_line *l)
{
	if (atomic_fetch_sub(&l->memory, 1) > 1) {
		return;
	}
	pai_auto_fd_p(&l->fd);
	pai_auto_fd_p(&l->opened_fd);
	pai_buf_fini(&l->in);
	pai_buf_fini(&l->out);
	free(l->slots.slots);
	pai_cancel_unref(l->stop);
	(void)pthread_mutex_destroy(&l->pushing);
	(void)pthread_mutex_destroy(&l->lock);
	if (l->line.freed) {
		l->line.freed(l->line.arg);
	}
	free(l);
}

void pai_ws_line_post(struct ws_line *l, pai_loop_fn fn)
{
	(void)atomic_fetch_add(&l->memory, 1);
	while (pai_loop_post(l->loop, fn, l) < 0) {
		(void)nanosleep(&(const struct timespec){.tv_nsec = RETRY_POST_NS}, NULL);
	}
}

/* --- out --- */

static void on_writable(struct ws_line *l)
{
	(void)pthread_mutex_lock(&l->lock);
	l->out_armed = pai_ws_line_send_locked(l);
	if (!l->out_armed && l->io) {
		pai_loop_io_set(l->io, EPOLLIN);
	}
	(void)pthread_mutex_unlock(&l->lock);
}

static void close_stream_locked(struct ws_line *l)
{
	struct pai_channel *ch = PAI_TAKE(l->channel);

	if (ch) {
		pai_channel_close(ch);
	}
	pai_loop_io_free(PAI_TAKE(l->io));
	pai_auto_fd_p(&l->fd);
	l->fd = -1;
	l->state = WS_LINE_DOWN;
	l->broken = false;
}

/* --- the end of a stream, and the next --- */

static void put_off(struct ws_line *l)
{
	l->not_before_ms = pai_deadline_in(l->backoff_ms);
	l->backoff_ms = l->backoff_ms * 2 < BACKOFF_FIRST_MS  ? BACKOFF_FIRST_MS
			: l->backoff_ms * 2 > BACKOFF_LAST_MS ? BACKOFF_LAST_MS
							      : l->backoff_ms * 2;
}

/* What was not sent waits on, unless the sandbox is gone or `waiting_too`. */
static void take_all_locked(
    struct ws_line *l, struct ws_entry_queue *ret, int error, bool waiting_too)
{
	struct ws_entry *e;

	for (size_t i = 0; i < WS_LINE_BUCKETS; i++) {
		while ((e = LIST_FIRST(&l->entries[i])) != NULL) {
			pai_ws_line_unlink_locked(l, e);
			TAILQ_INSERT_TAIL(ret, e, queue);
		}
	}
	while (waiting_too && (e = TAILQ_FIRST(&l->waiting)) != NULL) {
		TAILQ_REMOVE(&l->waiting, e, queue);
		e->req->server_private = NULL;
		TAILQ_INSERT_TAIL(ret, e, queue);
	}
	TAILQ_FOREACH(e, ret, queue)
	{
		if (e->req) {
			e->req->error = pai_ws_line_gives_back(e->op) ? 0 : error;
		}
	}
}

/* What was sent and not answered is put first among what waits; what nobody waits for, or should
 * not, is left for the caller. */
static void doubt_all_locked(struct ws_line *l, struct ws_entry_queue *ret)
{
	struct ws_entry_queue sent = TAILQ_HEAD_INITIALIZER(sent);
	struct ws_entry *e;

	take_all_locked(l, &sent, EIO, false);
	while ((e = TAILQ_FIRST(&sent)) != NULL) {
		TAILQ_REMOVE(&sent, e, queue);
		if (!e->req || l->closing || pai_ws_line_gives_back(e->op) ||
		    pai_ws_line_waits_for_lock(e->req)) {
			TAILQ_INSERT_TAIL(ret, e, queue);
			continue;
		}
		e->req->server_private = e;
		e->is_sent = e->is_sending = false;
		e->is_doubted = true;
		TAILQ_INSERT_HEAD(&l->waiting, e, queue);
	}
}

static void push(struct ws_line *l, const struct pai_ws_push *p)
{
	(void)pthread_mutex_lock(&l->pushing);
	if (!l->closing && l->config.on_push) {
		l->config.on_push(l->config.push_arg, p);
	}
	(void)pthread_mutex_unlock(&l->pushing);
}

/* An opening that is due: now, or by the timer. */
static void open_if_wanted(struct ws_line *l)
{
	bool is_wanted;

	(void)pthread_mutex_lock(&l->lock);
	is_wanted =
	    l->state == WS_LINE_DOWN && !l->closing && !l->revoked && !TAILQ_EMPTY(&l->waiting);
	if (is_wanted && (pai_deadline_passed(l->not_before_ms) || !l->retry)) {
		l->state = WS_LINE_OPENING;
	}
	is_wanted = is_wanted && l->state == WS_LINE_DOWN;
	(void)pthread_mutex_unlock(&l->lock);
	if (is_wanted) {
		pai_loop_timer_set(l->retry, l->not_before_ms);
		return;
	}
	if (l->state != WS_LINE_OPENING || l->opening) {
		return;
	}
	l->opening = true;
	(void)atomic_fetch_add(&l->memory, 1);
	if (pai_pool_submit(l->config.pool, pai_ws_line_open_job, l) < 0) {
		(void)atomic_fetch_sub(&l->memory, 1);
		(void)pai_err_no_memory(&l->open_err);
		pai_ws_line_post(l, pai_ws_line_opened);
	}
}

static void on_retry(void *arg)
{
	open_if_wanted(arg);
}

static void stream_end(struct ws_line *l, const char *why)
{
	static const struct pai_ws_push all = {.flags = PAI_WS_PUSH_ALL};
	struct ws_entry_queue ended = TAILQ_HEAD_INITIALIZER(ended);
	bool is_gone = __atomic_load_n(&l->base.gone, __ATOMIC_ACQUIRE);

	(void)pthread_mutex_lock(&l->lock);
	close_stream_locked(l);
	l->out_armed = false;
	pai_buf_fini(&l->out);
	l->out.max = PAI_WS_LINE_OUT_MAX;
	l->out_at = 0;
	l->chunk_of = NULL;
	TAILQ_INIT(&l->sending);
	if (is_gone) {
		take_all_locked(l, &ended, ESTALE, true);
	} else {
		doubt_all_locked(l, &ended);
	}
	(void)pthread_mutex_unlock(&l->lock);
	pai_buf_fini(&l->in);
	l->in.max = IN_MAX;
	if (!is_gone && !l->closing) {
		pai_log_warn("ws", "a stream of files ended%s%s", why ? ": " : "", why ? why : "");
	}
	if (l->worked) {
		l->backoff_ms = 0;
	}
	put_off(l);
	pai_ws_line_complete_all(&ended);
	push(l, &all);
	open_if_wanted(l);
}

/* --- in --- */

static void complete_entry(struct ws_line *l, struct ws_entry *e, struct pai_view payload, int *r)
{
	struct pai_ws_req *req = e->req;
	uint64_t theirs;
	uint32_t flags = 0;
	int error;

	*r = pai_ws_get_reply(payload, req, &flags);
	if (*r == 0 && e->op == PAI_WS_READ && req->error == 0 && req->out.len != e->done) {
		*r = -EPROTO;
	}
	if (*r < 0) {
		pai_ws_req_fini(req);
		pai_ws_line_complete(req, EIO);
		return;
	}
	if (flags & PAI_WS_REPLY_GONE) {
		__atomic_store_n(&l->base.gone, 1, __ATOMIC_RELEASE);
	}
	if (req->out.handle) {
		theirs = req->out.handle;
		(void)pthread_mutex_lock(&l->lock);
		error = pai_ws_line_add_handle_locked(l, theirs, &req->out.handle);
		if (error) {
			pai_ws_line_release_locked(l, theirs);
			req->out.handle = 0;
			req->error = error;
		}
		(void)pthread_mutex_unlock(&l->lock);
	}
	pai_ws_line_complete(req, req->error);
}

static bool opens(enum pai_ws_op op)
{
	return op == PAI_WS_OPEN || op == PAI_WS_CREATE || op == PAI_WS_TMPFILE ||
	       op == PAI_WS_OPENDIR;
}

/* Nobody waits for it any more: what it opened is closed. */
static int end_given_up(struct ws_line *l, const struct ws_entry *e, struct pai_view payload)
{
	struct pai_ws_req req = {.op = e->op};
	enum pai_ws_op op;
	uint32_t flags;
	int error, r = pai_ws_get_reply_head(payload, &op, &error, &flags);

	if (r < 0 || op != e->op) {
		return -EPROTO;
	}
	if (flags & PAI_WS_REPLY_GONE) {
		__atomic_store_n(&l->base.gone, 1, __ATOMIC_RELEASE);
	}
	if (error || !opens(op)) {
		return 0;
	}
	if (op == PAI_WS_OPEN) {
		req.in.open.head = PAI_WS_HEAD_BYTES;
	} else if (op == PAI_WS_OPENDIR) {
		req.in.list.max = PAI_WS_ENTRIES_MAX;
	}
	r = pai_ws_get_reply(payload, &req, &flags);
	if (r == 0) {
		(void)pthread_mutex_lock(&l->lock);
		pai_ws_line_release_locked(l, req.out.handle);
		(void)pthread_mutex_unlock(&l->lock);
		pai_ws_req_fini(&req);
	}
	return r;
}

static int take_reply(struct ws_line *l, const struct pai_frame *f)
{
	struct ws_entry_queue failed = TAILQ_HEAD_INITIALIZER(failed);
	struct ws_entry *e;
	int r = 0;

	(void)pthread_mutex_lock(&l->lock);
	e = pai_ws_line_find_locked(l, f->id);
	if (e && e->is_sending) {
		e = NULL; /* answered before it was asked */
	}
	if (e) {
		pai_ws_line_unlink_locked(l, e);
	}
	(void)pthread_mutex_unlock(&l->lock);
	if (!e) {
		return -EPROTO;
	}
	l->worked = true;
	if (e->req) {
		complete_entry(l, e, f->payload, &r);
	} else {
		r = end_given_up(l, e, f->payload);
	}
	free(e);
	if (r == 0) {
		(void)pthread_mutex_lock(&l->lock);
		pai_ws_line_send_waiting_locked(l, &failed);
		(void)pthread_mutex_unlock(&l->lock);
		pai_ws_line_complete_all(&failed);
	}
	return r;
}

/* Under the lock: who gives the request up takes its memory away. */
static int take_data(struct ws_line *l, const struct pai_frame *f)
{
	struct ws_entry *e;
	size_t len = f->payload.len;
	int r = -EPROTO;

	(void)pthread_mutex_lock(&l->lock);
	e = pai_ws_line_find_locked(l, f->id);
	if (e && e->op == PAI_WS_READ && len > 0 && len <= PAI_FRAME_DATA_MAX &&
	    len <= e->bytes - e->done) {
		if (e->req) {
			memcpy(e->req->in.io.data + e->done, f->payload.data, len);
		}
		e->done += len;
		l->moved = true;
		r = 0;
	}
	(void)pthread_mutex_unlock(&l->lock);
	return r;
}

static int take_push(struct ws_line *l, const struct pai_frame *f)
{
	struct pai_ws_pushed pushed;
	int r = l->config.on_push && f->id == 0 ? pai_ws_get_push(f->payload, &pushed) : -EPROTO;

	if (r == 0) {
		push(l, &pushed.push);
	}
	return r;
}

static int take_frame(void *arg, const struct pai_frame *f)
{
	struct ws_line *l = arg;

	switch (f->type) {
	case PAI_MSG_WS_REPLY:
		return take_reply(l, f);
	case PAI_MSG_WS_DATA:
		return take_data(l, f);
	case PAI_MSG_WS_PUSH:
		return take_push(l, f);
	case PAI_MSG_PONG:
		return f->payload.len > 0 ? -EPROTO : 0;
	default:
		return -EPROTO;
	}
}

static bool is_quiet(struct ws_line *l)
{
	bool is_quiet;

	(void)pthread_mutex_lock(&l->lock);
	is_quiet = l->count == 0;
	(void)pthread_mutex_unlock(&l->lock);
	return is_quiet;
}

static void take_bytes(struct ws_line *l, struct pai_view bytes)
{
	l->heard = true;
	if (pai_frame_feed(&l->in, bytes, take_frame, l) < 0) {
		stream_end(l, "the helper broke the protocol");
	} else if (l->in.len == 0 && is_quiet(l)) {
		pai_buf_fini(&l->in); /* a thousand quiet lines hold none */
		l->in.max = IN_MAX;
	}
}

/* The loop's own: all that is read is taken or kept before it is used again. */
static char read_buffer[READ_BYTES];

static void on_stream(void *arg, uint32_t events)
{
	struct ws_line *l = arg;
	ssize_t n;

	if (events & EPOLLOUT) {
		on_writable(l);
	}
	if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
		return;
	}
	n = recv(l->fd, read_buffer, sizeof(read_buffer), MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		return;
	}
	if (n <= 0) {
		stream_end(l, n < 0 ? pai_errno_name(errno) : NULL);
		return;
	}
	take_bytes(l, (struct pai_view){read_buffer, (size_t)n});
}

/* --- of a channel --- */

static size_t on_bytes(void *arg, struct pai_view bytes)
{
	take_bytes(arg, bytes);
	return bytes.len; /* what was asked for is what comes */
}

static void on_channel_writable(void *arg)
{
	on_writable(arg);
}

static void on_ended(void *arg)
{
	stream_end(arg, NULL);
}

static const struct pai_channel_user channel_user = {
    .bytes = on_bytes,
    .writable = on_channel_writable,
    .ended = on_ended,
};

/* --- ticks --- */

/* What takes as long as it takes, on an honest server too. */
static bool may_take_long(enum pai_ws_op op)
{
	return op == PAI_WS_SETLK || op == PAI_WS_FLOCK || op == PAI_WS_FSYNC ||
	       op == PAI_WS_FALLOCATE || op == PAI_WS_COPY;
}

/* One more tick in which the peer was heard; whether it owes an answer for too long. */
static bool count_owed_locked(struct ws_line *l)
{
	const unsigned step = l->moved ? 1 : OWED_BEHIND_DATA;
	unsigned most = 0;
	struct ws_entry *e;

	for (size_t i = 0; i < WS_LINE_BUCKETS; i++) {
		LIST_FOREACH(e, &l->entries[i], at)
		{
			e->owed += may_take_long(e->op) ? 0 : step;
			most = e->owed > most ? e->owed : most;
		}
	}
	return most > OWED_TICKS * OWED_BEHIND_DATA;
}

static uint64_t tick_ms_of(const struct ws_line *l)
{
	uint64_t silent = l->line.silence_ms / SILENT_TICKS + 1;
	uint64_t owed = l->line.owed_ms / OWED_TICKS + 1;

	return silent < owed ? silent : owed;
}

/* Counted in ticks: a time that passed while this machine slept is one, however long. */
static void on_tick(void *arg)
{
	struct ws_line *l = arg;
	const uint64_t tick_ms = tick_ms_of(l);
	const uint64_t silent_ticks = l->line.silence_ms / tick_ms + 1;
	bool owes;

	(void)pthread_mutex_lock(&l->lock);
	owes = l->heard && count_owed_locked(l);
	l->moved = false;
	l->listening = l->count > 0;
	l->silent = l->heard || !l->listening ? 0 : l->silent + 1;
	l->heard = false;
	if (l->silent > 0 && l->silent < silent_ticks) {
		pai_ws_line_flush_locked(l, pai_frame_put(&l->out, PAI_MSG_PING, 0, NULL, 0));
	}
	pai_loop_timer_set(l->tick, l->listening ? pai_deadline_in(tick_ms) : PAI_NO_DEADLINE);
	(void)pthread_mutex_unlock(&l->lock);
	if (l->silent >= silent_ticks) {
		stream_end(l, "the helper does not answer");
	} else if (owes) {
		stream_end(l, "the helper leaves a request without an answer");
	}
}

void pai_ws_line_listen(void *arg)
{
	struct ws_line *l = arg;

	if (l->tick) {
		l->heard = true; /* from now on */
		on_tick(l);
	}
	pai_ws_line_drop(l);
}

/* --- from other threads --- */

static int make_parts(struct ws_line *l)
{
	struct pai_err *err = PAI_ERR_IGNORED();

	if (!l->tick) {
		l->tick = pai_loop_timer_new(l->loop, PAI_NO_DEADLINE, on_tick, l, err);
	}
	if (!l->retry) {
		l->retry = pai_loop_timer_new(l->loop, PAI_NO_DEADLINE, on_retry, l, err);
	}
	if (!l->tick || !l->retry) {
		return -ENOMEM;
	}
	/* Nothing has been asked yet, so that nothing is on its way. */
	(void)pthread_mutex_lock(&l->lock);
	l->channel = pai_link_take_over(l->opened_fd, &channel_user, l);
	if (l->channel) {
		(void)close(PAI_TAKE_FD(l->opened_fd));
	} else {
		l->io = pai_loop_io_new(l->loop, l->opened_fd, EPOLLIN, on_stream, l, err);
	}
	(void)pthread_mutex_unlock(&l->lock);
	return l->channel || l->io ? 0 : -ENOMEM;
}

static void attach(struct ws_line *l)
{
	struct ws_entry_queue failed = TAILQ_HEAD_INITIALIZER(failed);

	l->worked = false;
	l->silent = 0;
	l->in.max = IN_MAX;
	(void)pthread_mutex_lock(&l->lock);
	l->fd = PAI_TAKE_FD(l->opened_fd);
	l->stream++;
	l->state = WS_LINE_UP;
	pai_ws_line_send_waiting_locked(l, &failed);
	(void)pthread_mutex_unlock(&l->lock);
	pai_ws_line_complete_all(&failed);
}

static void opening_failed(struct ws_line *l)
{
	struct ws_entry_queue failed = TAILQ_HEAD_INITIALIZER(failed);

	if (l->open_err.code == PAI_E_NOT_FOUND) {
		__atomic_store_n(&l->base.gone, 1, __ATOMIC_RELEASE);
	} else if (!l->closing) {
		pai_log_warn("ws", "no stream of files: %s", l->open_err.msg);
	}
	(void)pthread_mutex_lock(&l->lock);
	l->state = WS_LINE_DOWN;
	take_all_locked(
	    l, &failed, __atomic_load_n(&l->base.gone, __ATOMIC_ACQUIRE) ? ESTALE : EIO, true);
	(void)pthread_mutex_unlock(&l->lock);
	put_off(l);
	pai_ws_line_complete_all(&failed);
}

void pai_ws_line_opened(void *arg)
{
	struct ws_line *l = arg;

	l->opening = false;
	if (l->closing) {
		pai_auto_fd_p(&l->opened_fd);
		l->opened_fd = -1;
	} else if (l->opened_fd >= 0 && make_parts(l) == 0) {
		attach(l);
		if (__atomic_load_n(&l->base.gone, __ATOMIC_ACQUIRE)) {
			stream_end(l, NULL); /* revoked meanwhile */
		}
	} else {
		pai_auto_fd_p(&l->opened_fd);
		l->opened_fd = -1;
		opening_failed(l);
	}
	pai_ws_line_drop(l);
}

void pai_ws_line_kick(void *arg)
{
	struct ws_line *l = arg;
	struct ws_entry_queue ended = TAILQ_HEAD_INITIALIZER(ended);
	bool is_broken;

	(void)pthread_mutex_lock(&l->lock);
	l->kicked = false;
	is_broken = l->broken;
	(void)pthread_mutex_unlock(&l->lock);
	if (is_broken && l->state == WS_LINE_UP) {
		stream_end(l, "it can't carry what was to be sent");
	} else if (l->state == WS_LINE_UP && __atomic_load_n(&l->base.gone, __ATOMIC_ACQUIRE)) {
		stream_end(l, NULL);
	} else if (__atomic_load_n(&l->base.gone, __ATOMIC_ACQUIRE)) {
		(void)pthread_mutex_lock(&l->lock);
		take_all_locked(l, &ended, ESTALE, true);
		(void)pthread_mutex_unlock(&l->lock);
		pai_ws_line_complete_all(&ended);
	} else {
		open_if_wanted(l);
	}
	pai_ws_line_drop(l);
}

void pai_ws_line_detach(void *arg)
{
	struct ws_line *l = arg;

	pai_loop_timer_free(PAI_TAKE(l->tick));
	pai_loop_timer_free(PAI_TAKE(l->retry));
	(void)pthread_mutex_lock(&l->lock);
	close_stream_locked(l);
	(void)pthread_mutex_unlock(&l->lock);
	pai_ws_line_drop(l); /* the loop's own */
	pai_ws_line_drop(l);
}
