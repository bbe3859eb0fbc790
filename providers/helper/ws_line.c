/*
 * The calls. Sending happens where the call is made, so that a request costs no change of threads;
 * what the stream doesn't take goes out by the loop. The bytes of a WRITE are sent from the
 * request's own memory, one chunk at a time between the other frames.
 */
#include "providers/helper/ws_line_private.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>

#include "providers/base/clock.h"
#include "providers/helper/wire_line.h"

#define OUT_STEP (256u << 10)
#define HANDLES_MAX (1u << 20)
#define NO_SLOT UINT32_MAX
#define CAPS                                                                                       \
	(PAI_WS_CAP_WATCH | PAI_WS_CAP_HANDLES | PAI_WS_CAP_LOCKS | PAI_WS_CAP_POSIX |             \
	    PAI_WS_CAP_EXITS)
#define CALL_MS 30000
#define SILENCE_MS 90000
#define OWED_CALLS 3
#define DONE_ALREADY (-1) /* no errno: it is done, and well */

static const struct pai_ws_ops line_ops;

static struct ws_line *line_of(struct pai_ws *ws)
{
	assert(ws->ops == &line_ops);
	return (struct ws_line *)ws;
}

/* --- open files --- */

static struct ws_slot *slot_of(const struct ws_slots *t, uint64_t ours)
{
	uint32_t i = (uint32_t)ours - 1;
	struct ws_slot *s = ours && i < t->count ? &t->slots[i] : NULL;

	return s && s->stream && s->generation == ours >> 32 ? s : NULL;
}

int pai_ws_line_add_handle_locked(struct ws_line *l, uint64_t theirs, uint64_t *ret_ours)
{
	struct ws_slots *t = &l->slots;
	uint32_t i = t->first_free;

	if (i != NO_SLOT) {
		t->first_free = t->slots[i].next_free;
	} else if (t->count == t->cap) {
		uint32_t cap = t->cap ? t->cap * 2 : 64;
		struct ws_slot *grown =
		    cap > HANDLES_MAX ? NULL : reallocarray(t->slots, cap, sizeof(*grown));

		if (!grown) {
			return cap > HANDLES_MAX ? ENFILE : ENOMEM;
		}
		t->slots = grown;
		t->cap = cap;
	}
	if (i == NO_SLOT) {
		i = t->count++;
		t->slots[i].generation = 0;
	}
	t->slots[i].theirs = theirs;
	t->slots[i].stream = l->stream;
	*ret_ours = (uint64_t)t->slots[i].generation << 32 | (i + 1);
	return 0;
}

static void free_slot(struct ws_slots *t, struct ws_slot *s)
{
	s->stream = 0;
	s->generation++;
	s->next_free = t->first_free;
	t->first_free = (uint32_t)(s - t->slots);
}

/* From our number to theirs. EBADF; EIO: it went with its stream. */
static int map_handle(const struct ws_line *l, uint64_t *handle)
{
	const struct ws_slot *s;

	if (*handle == 0) {
		return 0;
	}
	s = slot_of(&l->slots, *handle);
	if (!s) {
		return EBADF;
	}
	if (l->state != WS_LINE_UP || s->stream != l->stream) {
		return EIO;
	}
	*handle = s->theirs;
	return 0;
}

/* --- out --- */

static void begin_chunk_locked(struct ws_line *l)
{
	struct ws_entry *e = TAILQ_FIRST(&l->sending);
	size_t left = e->bytes - e->done;

	l->chunk_of = e;
	l->chunk_left = left < PAI_FRAME_DATA_MAX ? left : PAI_FRAME_DATA_MAX;
	l->chunk_header_at = 0;
	pai_frame_header(l->chunk_header, PAI_MSG_WS_DATA, e->id, l->chunk_left);
}

static void end_chunk_locked(struct ws_line *l)
{
	struct ws_entry *e = l->chunk_of;

	l->chunk_of = NULL;
	TAILQ_REMOVE(&l->sending, e, queue);
	e->is_sending = e->done < e->bytes;
	if (e->is_sending) {
		TAILQ_INSERT_TAIL(&l->sending, e, queue);
	}
}

static int next_pieces_locked(struct ws_line *l, struct iovec iov[2])
{
	if (!l->chunk_of && l->out_at == l->out.len && !TAILQ_EMPTY(&l->sending)) {
		begin_chunk_locked(l);
	}
	if (l->chunk_of) {
		iov[0].iov_base = l->chunk_header + l->chunk_header_at;
		iov[0].iov_len = PAI_FRAME_HEADER - l->chunk_header_at;
		iov[1].iov_base = l->chunk_of->req->in.io.data + l->chunk_of->done;
		iov[1].iov_len = l->chunk_left;
		return 2;
	}
	iov[0].iov_base = l->out.data + l->out_at;
	iov[0].iov_len = l->out.len - l->out_at;
	return iov[0].iov_len > 0;
}

static void sent_locked(struct ws_line *l, size_t n)
{
	size_t of_header;

	if (!l->chunk_of) {
		l->out_at += n;
		if (l->out_at == l->out.len) {
			pai_buf_clear(&l->out);
			l->out_at = 0;
		} else if (l->out_at >= OUT_STEP) {
			pai_buf_consume(&l->out, l->out_at);
			l->out_at = 0;
		}
		return;
	}
	of_header = PAI_FRAME_HEADER - l->chunk_header_at;
	of_header = of_header < n ? of_header : n;
	l->chunk_header_at += of_header;
	l->chunk_of->done += n - of_header;
	l->moved = true;
	l->chunk_left -= n - of_header;
	if (l->chunk_left == 0 && l->chunk_header_at == PAI_FRAME_HEADER) {
		end_chunk_locked(l);
	}
}

static bool has_unsent_locked(const struct ws_line *l)
{
	return l->out_at < l->out.len || l->chunk_of || !TAILQ_EMPTY(&l->sending);
}

/* As sendmsg(). What fails is seen by the reading side too. */
static ssize_t send_pieces_locked(struct ws_line *l, struct iovec iov[2], int count)
{
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)count};
	size_t n;

	if (!l->channel) {
		return sendmsg(l->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	n = pai_channel_send(l->channel, iov, count);
	if (n == 0) {
		errno = EAGAIN;
	}
	return n > 0 ? (ssize_t)n : -1;
}

bool pai_ws_line_send_locked(struct ws_line *l)
{
	struct iovec iov[2];
	int count;

	while ((l->fd >= 0 || l->channel) && (count = next_pieces_locked(l, iov)) > 0) {
		ssize_t n = send_pieces_locked(l, iov, count);

		if (n >= 0) {
			sent_locked(l, (size_t)n);
		} else if (errno != EINTR) {
			break;
		}
	}
	return has_unsent_locked(l);
}

void pai_ws_line_flush_locked(struct ws_line *l, int r)
{
	if ((l->fd < 0 && !l->channel) || l->broken) {
		return;
	}
	if (r < 0) {
		l->broken = true;
		pai_ws_line_post(l, pai_ws_line_kick);
		return;
	}
	if (l->out_armed) {
		return; /* the loop sends */
	}
	l->out_armed = pai_ws_line_send_locked(l);
	if (l->out_armed && l->io) {
		pai_loop_io_set(l->io, EPOLLIN | EPOLLOUT);
	}
}

/* --- requests --- */

void pai_ws_line_complete(struct pai_ws_req *req, int error)
{
	req->error = error;
	req->done(req);
}

void pai_ws_line_complete_all(struct ws_entry_queue *failed)
{
	struct ws_entry *e;

	while ((e = TAILQ_FIRST(failed)) != NULL) {
		TAILQ_REMOVE(failed, e, queue);
		if (e->req) {
			pai_ws_line_complete(e->req, e->req->error);
		}
		free(e);
	}
}

struct ws_entry *pai_ws_line_find_locked(struct ws_line *l, uint32_t id)
{
	struct ws_entry *e;

	LIST_FOREACH(e, &l->entries[id % WS_LINE_BUCKETS], at)
	{
		if (e->id == id) {
			return e;
		}
	}
	return NULL;
}

static void link_locked(struct ws_line *l, struct ws_entry *e)
{
	e->is_sent = true;
	LIST_INSERT_HEAD(&l->entries[e->id % WS_LINE_BUCKETS], e, at);
	l->count++;
	l->bytes += e->bytes;
}

void pai_ws_line_unlink_locked(struct ws_line *l, struct ws_entry *e)
{
	LIST_REMOVE(e, at);
	l->count--;
	l->bytes -= e->bytes;
	if (e->req) {
		e->req->server_private = NULL;
	}
}

static uint32_t new_id_locked(struct ws_line *l)
{
	do {
		l->next_id++;
	} while (l->next_id == 0 || pai_ws_line_find_locked(l, l->next_id));
	return l->next_id;
}

/* A peer that has stopped keeps the stream open and says nothing. */
static void listen_locked(struct ws_line *l)
{
	if (!l->listening) {
		l->listening = true;
		pai_ws_line_post(l, pai_ws_line_listen);
	}
}

/* 0, or what the request is answered with: nothing was sent. */
static int put_locked(struct ws_line *l, struct ws_entry *e)
{
	struct pai_ws_req wire = *e->req;
	int r, error = map_handle(l, &wire.handle);

	if (error == 0 && e->op == PAI_WS_COPY) {
		error = map_handle(l, &wire.in.copy.to_handle);
	}
	if (error == EIO && e->op == PAI_WS_RELEASE) {
		free_slot(&l->slots, slot_of(&l->slots, e->req->handle));
		error = DONE_ALREADY;
	}
	if (error) {
		return error;
	}
	e->id = new_id_locked(l);
	r = pai_ws_put_request(&l->out, e->id, &wire);
	if (r < 0) {
		return r == -EMSGSIZE ? ENAMETOOLONG : -r;
	}
	if (e->op == PAI_WS_RELEASE) {
		free_slot(&l->slots, slot_of(&l->slots, e->req->handle));
	}
	link_locked(l, e);
	if (e->op == PAI_WS_WRITE && e->bytes > 0) {
		e->is_sending = true;
		TAILQ_INSERT_TAIL(&l->sending, e, queue);
	}
	return 0;
}

static bool fits_locked(const struct ws_line *l, const struct ws_entry *e)
{
	return l->count < PAI_WS_WINDOW_REQUESTS && e->bytes <= PAI_WS_WINDOW_BYTES - l->bytes;
}

void pai_ws_line_send_waiting_locked(struct ws_line *l, struct ws_entry_queue *failed)
{
	struct ws_entry *e;
	bool any = false;

	while (
	    l->state == WS_LINE_UP && (e = TAILQ_FIRST(&l->waiting)) != NULL && fits_locked(l, e)) {
		int error;

		TAILQ_REMOVE(&l->waiting, e, queue);
		error = e->is_doubted ? EIO : put_locked(l, e);
		if (error) {
			e->req->error = error == DONE_ALREADY ? 0 : error;
			e->req->server_private = NULL;
			TAILQ_INSERT_TAIL(failed, e, queue);
		}
		any = true;
	}
	if (any) {
		pai_ws_line_flush_locked(l, 0);
		listen_locked(l);
	}
}

void pai_ws_line_release_locked(struct ws_line *l, uint64_t theirs)
{
	struct pai_ws_req req = {.op = PAI_WS_RELEASE, .handle = theirs};
	struct ws_entry *e = calloc(1, sizeof(*e));
	int r = -ENOMEM;

	if (e) {
		e->op = PAI_WS_RELEASE;
		e->id = new_id_locked(l);
		r = pai_ws_put_request(&l->out, e->id, &req);
	}
	if (r < 0) {
		free(e);
	} else {
		link_locked(l, e);
	}
	pai_ws_line_flush_locked(l, r); /* without it there would be ever more of them */
}

bool pai_ws_line_gives_back(enum pai_ws_op op)
{
	return op == PAI_WS_RELEASE || op == PAI_WS_UNLOCK_OWNER || op == PAI_WS_UNWATCH;
}

/* True with *error: it needs no stream. */
static bool is_settled_locked(struct ws_line *l, const struct pai_ws_req *req, int *error)
{
	struct ws_slot *s = req->handle ? slot_of(&l->slots, req->handle) : NULL;
	bool is_gone = __atomic_load_n(&l->base.gone, __ATOMIC_ACQUIRE);
	bool is_lost = s && (l->state != WS_LINE_UP || s->stream != l->stream);
	bool gives_back = pai_ws_line_gives_back(req->op);

	if (s && req->op == PAI_WS_RELEASE && (is_gone || is_lost)) {
		free_slot(&l->slots, s);
	}
	if (is_gone) {
		*error = gives_back ? 0 : ESTALE;
	} else if (req->handle && !s) {
		*error = EBADF;
	} else if (gives_back &&
		   (is_lost || (req->op == PAI_WS_UNWATCH && l->state != WS_LINE_UP))) {
		*error = 0;
	} else if (is_lost && l->state == WS_LINE_UP) {
		*error = EIO;
	} else {
		return false; /* of a lost file the next stream tells whether all is gone */
	}
	return true;
}

static struct ws_entry *entry_new(struct pai_ws_req *req)
{
	struct ws_entry *e = calloc(1, sizeof(*e));

	if (e) {
		e->req = req;
		e->op = req->op;
		e->bytes = req->op == PAI_WS_READ || req->op == PAI_WS_WRITE ? req->in.io.len : 0;
	}
	return e;
}

static void line_submit(struct pai_ws *base, struct pai_ws_req *req)
{
	struct ws_line *l = line_of(base);
	struct ws_entry_queue failed = TAILQ_HEAD_INITIALIZER(failed);
	struct ws_entry *e = entry_new(req);
	int error = !e ? ENOMEM : e->bytes > PAI_WS_IO_BYTES ? EINVAL : 0;
	bool is_settled;

	(void)pthread_mutex_lock(&l->lock);
	is_settled = error || is_settled_locked(l, req, &error);
	if (!is_settled) {
		req->server_private = e;
		TAILQ_INSERT_TAIL(&l->waiting, e, queue);
		pai_ws_line_send_waiting_locked(l, &failed);
		if (l->state == WS_LINE_DOWN && !l->kicked) {
			l->kicked = true;
			pai_ws_line_post(l, pai_ws_line_kick);
		}
	}
	(void)pthread_mutex_unlock(&l->lock);
	if (is_settled) {
		free(e);
		pai_ws_line_complete(req, error);
	}
	pai_ws_line_complete_all(&failed);
}

bool pai_ws_line_waits_for_lock(const struct pai_ws_req *req)
{
	return (req->op == PAI_WS_SETLK && req->flags & 1) ||
	       (req->op == PAI_WS_FLOCK && !(req->flags & LOCK_NB));
}

/* The request has nobody who waits for it from here on; NULL: it has, as before. */
static struct pai_ws_req *give_up_locked(struct ws_line *l, struct ws_entry *e)
{
	struct pai_ws_req *req = e->req;

	if (!e->is_sent) {
		TAILQ_REMOVE(&l->waiting, e, queue);
		req->server_private = NULL;
		free(e);
		return req;
	}
	if (pai_ws_line_waits_for_lock(req)) {
		if (!e->is_cancelled) {
			e->is_cancelled = true;
			pai_ws_line_flush_locked(
			    l, pai_frame_put(&l->out, PAI_MSG_WS_CANCEL, e->id, NULL, 0));
		}
		return NULL;
	}
	if (e->is_sending) {
		return NULL; /* its bytes are its own memory */
	}
	req->server_private = NULL;
	e->req = NULL;
	return req;
}

static void line_cancel(struct pai_ws *base, struct pai_ws_req *req)
{
	struct ws_line *l = line_of(base);
	struct pai_ws_req *ended = NULL;
	bool is_lock = pai_ws_line_waits_for_lock(req);

	(void)pthread_mutex_lock(&l->lock);
	if (req->server_private) {
		ended = give_up_locked(l, req->server_private);
	}
	(void)pthread_mutex_unlock(&l->lock);
	if (ended) {
		pai_ws_line_complete(ended, is_lock ? EINTR : ECANCELED);
	}
}

static void line_revoke(struct pai_ws *base)
{
	struct ws_line *l = line_of(base);

	__atomic_store_n(&l->base.gone, 1, __ATOMIC_RELEASE);
	pai_cancel_fire(l->stop);
	(void)pthread_mutex_lock(&l->lock);
	if (!l->revoked) {
		l->revoked = true;
		pai_ws_line_post(l, pai_ws_line_kick);
	}
	(void)pthread_mutex_unlock(&l->lock);
}

/* The last reference is gone: nothing waits, and nothing may be pushed any more. */
static void line_free(struct pai_ws *base)
{
	struct ws_line *l = line_of(base);

	(void)pthread_mutex_lock(&l->pushing);
	(void)pthread_mutex_lock(&l->lock);
	atomic_store(&l->closing, true);
	(void)pthread_mutex_unlock(&l->lock);
	(void)pthread_mutex_unlock(&l->pushing);
	pai_cancel_fire(l->stop);
	pai_ws_line_post(l, pai_ws_line_detach);
	pai_ws_line_drop(l);
}

static const struct pai_ws_ops line_ops = {
    .name = "line",
    .submit = line_submit,
    .cancel = line_cancel,
    .revoke = line_revoke,
    .free = line_free,
};

/* --- making one --- */

static struct ws_line *line_new(
    const struct pai_ws_line_config *line, const struct pai_ws_config *config)
{
	struct ws_line *l = calloc(1, sizeof(*l));

	if (!l) {
		return NULL;
	}
	l->stop = pai_cancel_new();
	if (!l->stop) {
		free(l);
		return NULL;
	}
	l->base.ops = &line_ops;
	l->base.refs = 1;
	l->line = *line;
	l->config = *config;
	l->config.call_ms = config->call_ms ? config->call_ms : CALL_MS;
	l->line.silence_ms = line->silence_ms ? line->silence_ms : SILENCE_MS;
	l->line.owed_ms = line->owed_ms ? line->owed_ms : OWED_CALLS * l->config.call_ms;
	l->fd = -1;
	l->opened_fd = -1;
	l->out.max = PAI_WS_LINE_OUT_MAX;
	l->slots.first_free = NO_SLOT;
	atomic_init(&l->memory, 2); /* the users' and the loop's */
	(void)pthread_mutex_init(&l->pushing, NULL);
	(void)pthread_mutex_init(&l->lock, NULL);
	TAILQ_INIT(&l->waiting);
	TAILQ_INIT(&l->sending);
	return l;
}

int pai_ws_line_new(const struct pai_ws_line_config *line, const struct pai_ws_config *config,
    const struct pai_call *call, struct pai_ws **ret, struct pai_err *err)
{
	struct ws_line *l = line_new(line, config);
	uint32_t caps = 0;
	int r;

	if (!l) {
		return pai_err_no_memory(err);
	}
	l->loop = pai_wire_loop(err);
	r = l->loop ? pai_ws_line_open(l, call, &l->opened_fd, &caps, err) : -err->errnum;
	if (r < 0) {
		l->line.freed = NULL;
		atomic_store(&l->memory, 1);
		pai_ws_line_drop(l);
		return r;
	}
	l->base.caps = caps & CAPS & (config->on_push ? ~0u : ~(uint32_t)PAI_WS_CAP_WATCH);
	l->state = WS_LINE_OPENING;
	pai_ws_line_post(l, pai_ws_line_opened);
	*ret = &l->base;
	return 0;
}
