/*
 * A `pending` call is in the stream's list from before its request is sent until its DONE has come
 * or the stream has ended: its id and its place among PAI_CALLS_AT_ONCE are in use so long, also
 * when nobody waits any more (then `waiter` is false and what comes is dropped).
 *
 * Replies are gathered on the reading thread, into the pending call, with caps: a far side may send
 * no more than was asked for, however it answers. Whatever may not be ends the stream.
 */
#include "providers/helper/far_calls.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "providers/base/clock.h"

#define READ_BYTES (64u << 10)
#define SEND_MS 60000              /* a peer that takes nothing for so long is given up */
#define LAST_WORD_MS 500           /* for the DONE of a call that was cancelled */
#define LIST_BYTES_MAX (64u << 20) /* of a LIST or a LIST_DIR, with what its items take here */
#define STRING_BYTES 32u           /* what the heap takes for a small one */
#define SLOT_LOOK_MS 5

struct pending {
	LIST_ENTRY(pending) at;
	uint32_t id;
	enum pai_call_op op;
	atomic_int refs; /* the stream's, the waiter's */
	int done_fd;     /* readable with `done`; -1: nobody waits */
	/* stream->lock */
	bool waiter, done;
	size_t bytes; /* of list and names, about */
	struct pai_far_reply reply;
	struct pai_err err; /* PAI_OK: it succeeded */
};

struct pai_far_calls {
	atomic_int refs; /* the users', the reader's */
	int fd;
	atomic_bool dead;
	struct pai_calls_ready ready;
	pthread_mutex_t send_lock;
	pthread_mutex_t lock;
	/* lock */
	LIST_HEAD(, pending) pending;
	size_t count;
	uint32_t next_id;
	struct pai_err why; /* it ended */
};

void pai_far_reply_fini(struct pai_far_reply *r)
{
	pai_buf_fini(&r->data);
	pai_sandbox_list_fini(&r->list);
	pai_dir_list_fini(&r->names);
}

static void pending_unref(struct pending *p)
{
	if (atomic_fetch_sub(&p->refs, 1) > 1) {
		return;
	}
	pai_auto_fd_p(&p->done_fd);
	pai_far_reply_fini(&p->reply);
	free(p);
}

struct pai_far_calls *pai_far_calls_ref(struct pai_far_calls *c)
{
	(void)atomic_fetch_add(&c->refs, 1);
	return c;
}

static void drop(struct pai_far_calls *c)
{
	if (atomic_fetch_sub(&c->refs, 1) > 1) {
		return;
	}
	(void)close(c->fd);
	(void)pthread_mutex_destroy(&c->send_lock);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
}

void pai_far_calls_unref(struct pai_far_calls *c)
{
	if (c) {
		drop(c);
	}
}

void pai_far_calls_end(struct pai_far_calls *c)
{
	(void)shutdown(c->fd, SHUT_RDWR); /* the reader does the rest */
}

bool pai_far_calls_alive(const struct pai_far_calls *c)
{
	return !atomic_load(&c->dead);
}

const struct pai_calls_ready *pai_far_calls_ready(const struct pai_far_calls *c)
{
	return &c->ready;
}

/* --- replies, on the reading thread --- */

static struct pending *find_locked(struct pai_far_calls *c, uint32_t id)
{
	struct pending *p;

	LIST_FOREACH(p, &c->pending, at)
	{
		if (p->id == id) {
			return p;
		}
	}
	return NULL;
}

static void finish_locked(struct pai_far_calls *c, struct pending *p)
{
	p->done = true;
	LIST_REMOVE(p, at);
	c->count--;
	if (p->done_fd >= 0) {
		(void)!write(p->done_fd, &(uint64_t){1}, sizeof(uint64_t));
	}
	pending_unref(p);
}

/* Memory for one more; it doubles whenever the count is a power of two. */
static void *grown(void *items, size_t count, size_t size)
{
	if ((count & (count - 1)) != 0) {
		return items;
	}
	return reallocarray(items, count ? count * 2 : 1, size);
}

static int add_sandbox(struct pending *p, struct pai_view payload)
{
	struct pai_sandbox_list *list = &p->reply.list;
	struct pai_call_sandbox s;
	struct pai_sandbox_info *items;
	int r = pai_call_get_sandbox(payload, &s);

	if (r < 0) {
		return r;
	}
	items = grown(list->items, list->count, sizeof(*items));
	if (!items) {
		pai_strmap_fini(&s.metadata);
		return -ENOMEM;
	}
	list->items = items;
	p->bytes += sizeof(*items) + 2 * STRING_BYTES;
	items[list->count] = (struct pai_sandbox_info){
	    .sandbox_id = strdup(s.id),
	    .incarnation = strdup(s.incarnation),
	    .metadata = s.metadata,
	    .state = s.paused ? PAI_SANDBOX_PAUSED : PAI_SANDBOX_RUNNING,
	    .created_wall_ms = s.created_wall_ms,
	};
	list->count++;
	return items[list->count - 1].sandbox_id && items[list->count - 1].incarnation ? 0
										       : -ENOMEM;
}

static int add_names(struct pending *p, struct pai_view payload)
{
	struct pai_dir_list *list = &p->reply.names;
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	struct pai_dir_item item;
	int r;

	while ((r = pai_call_get_name(&in, &item.is_directory, &item.name)) == 1) {
		struct pai_dir_item *items = grown(list->items, list->count, sizeof(*items));

		if (!items) {
			free(item.name);
			return -ENOMEM;
		}
		list->items = items;
		items[list->count++] = item;
		p->bytes += sizeof(*items) + STRING_BYTES;
	}
	return r;
}

static int add_part_locked(struct pending *p, const struct pai_frame *f)
{
	int r;

	if (f->type == PAI_MSG_CALL_DATA) {
		if (p->op != PAI_CALL_READ_FILE || f->payload.len == 0) {
			return -EPROTO;
		}
		r = p->waiter ? pai_buf_add(&p->reply.data, f->payload.data, f->payload.len) : 0;
		return r == -EMSGSIZE ? -EPROTO : r;
	}
	if (p->op != (f->type == PAI_MSG_CALL_SANDBOX ? PAI_CALL_LIST : PAI_CALL_LIST_DIR)) {
		return -EPROTO;
	}
	p->bytes += f->payload.len;
	if (f->payload.len == 0 || p->bytes > LIST_BYTES_MAX) {
		return -EPROTO;
	}
	if (!p->waiter) {
		return 0;
	}
	return f->type == PAI_MSG_CALL_SANDBOX ? add_sandbox(p, f->payload)
					       : add_names(p, f->payload);
}

static bool gives_sandbox(enum pai_call_op op, bool found)
{
	return op == PAI_CALL_CREATE || (op == PAI_CALL_CONNECT && found);
}

static int take_done_locked(struct pai_far_calls *c, struct pending *p, struct pai_view payload)
{
	struct pai_call_result result;
	struct pai_err err;
	int r = pai_call_get_done(payload, &result, &err);

	if (r == 0 && err.code == PAI_OK &&
	    gives_sandbox(p->op, result.found) != (result.sandbox.id[0] != '\0')) {
		r = -EPROTO;
	}
	if (r < 0) {
		return r;
	}
	p->reply.result = result;
	p->err = err;
	finish_locked(c, p);
	return 0;
}

static int take_frame(struct pai_far_calls *c, const struct pai_frame *f)
{
	struct pending *p;
	int r = -EPROTO;

	(void)pthread_mutex_lock(&c->lock);
	p = find_locked(c, f->id);
	switch (p ? f->type : 0) {
	case PAI_MSG_CALL_DATA:
	case PAI_MSG_CALL_SANDBOX:
	case PAI_MSG_CALL_NAMES:
		r = add_part_locked(p, f);
		break;
	case PAI_MSG_CALL_DONE:
		r = take_done_locked(c, p, f->payload);
		break;
	default:
		break;
	}
	(void)pthread_mutex_unlock(&c->lock);
	return r;
}

static int take_frames(struct pai_far_calls *c, struct pai_buf *in)
{
	struct pai_frame f;
	size_t at = 0;
	int r;

	while ((r = pai_frame_next(in, &at, &f)) == 1) {
		r = take_frame(c, &f);
		if (r < 0) {
			return r;
		}
	}
	pai_buf_consume(in, at);
	return r;
}

/* 0 with more in `in`, 1 at the end, a negative errno. */
static int read_more(int fd, struct pai_buf *in, const struct pai_call *call, struct pai_err *err)
{
	int r = pai_buf_reserve(in, READ_BYTES);

	while (r == 0) {
		ssize_t n = recv(fd, in->data + in->len, READ_BYTES, MSG_DONTWAIT);

		if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			r = pai_call_poll(call, fd, POLLIN, err);
			continue;
		}
		if (n <= 0) {
			return n == 0 ? 1 : -errno;
		}
		in->len += (size_t)n;
		in->data[in->len] = '\0';
		return 0;
	}
	return r;
}

static void over(struct pai_far_calls *c, int r)
{
	struct pending *p;

	(void)pthread_mutex_lock(&c->lock);
	atomic_store(&c->dead, true);
	if (r == -EPROTO) {
		(void)pai_err_set(
		    &c->why, PAI_E_PROTOCOL, "the far side sent what it may not send");
	} else {
		(void)pai_err_unavailable(&c->why, PAI_REASON_TRANSPORT, NULL,
		    "the stream of calls ended%s%s", r < 0 ? ": " : "",
		    r < 0 ? pai_errno_name(-r) : "");
	}
	while ((p = LIST_FIRST(&c->pending)) != NULL) {
		p->err = c->why;
		finish_locked(c, p);
	}
	(void)pthread_mutex_unlock(&c->lock);
	(void)shutdown(c->fd, SHUT_RDWR);
	drop(c);
}

static void *read_stream(void *arg)
{
	pai_auto_buf struct pai_buf in =
	    PAI_BUF_INIT(PAI_FRAME_MAX + PAI_FRAME_HEADER + READ_BYTES);
	struct pai_far_calls *c = arg;
	int r = 0;

	/* An idle stream is no fault: what is asked has deadlines, and its end is seen. */
	while (r == 0) {
		r = read_more(c->fd, &in, PAI_CALL_UNBOUNDED, PAI_ERR_IGNORED());
		r = r == 0 ? take_frames(c, &in) : r;
	}
	over(c, r);
	return NULL;
}

/* --- sending --- */

static int send_bytes(struct pai_far_calls *c, const char *data, size_t len)
{
	const struct pai_call within = {.deadline_ms = pai_deadline_in(SEND_MS)};

	while (len > 0) {
		ssize_t n = send(c->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN &&
		    pai_call_poll(&within, c->fd, POLLOUT, PAI_ERR_IGNORED()) == 0) {
			continue;
		}
		if (n < 0 && errno != EINTR) {
			pai_far_calls_end(c);
			return -EPIPE;
		}
		data += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int send_frames(struct pai_far_calls *c, struct pai_buf *frames)
{
	int r;

	(void)pthread_mutex_lock(&c->send_lock);
	r = send_bytes(c, frames->data, frames->len);
	(void)pthread_mutex_unlock(&c->send_lock);
	pai_buf_clear(frames);
	return r;
}

/* In the list, with an id; or -EAGAIN: too many at once, or the stream's end. */
static int enlist(struct pai_far_calls *c, struct pending *p, struct pai_err *err)
{
	int r = 0;

	(void)pthread_mutex_lock(&c->lock);
	if (atomic_load(&c->dead)) {
		*err = c->why;
		r = -err->errnum;
	} else if (c->count >= PAI_CALLS_AT_ONCE) {
		r = -EAGAIN;
	} else {
		do {
			p->id = ++c->next_id ? c->next_id : ++c->next_id;
		} while (find_locked(c, p->id));
		(void)atomic_fetch_add(&p->refs, 1);
		LIST_INSERT_HEAD(&c->pending, p, at);
		c->count++;
	}
	(void)pthread_mutex_unlock(&c->lock);
	return r;
}

static struct pending *pending_new(enum pai_call_op op, bool waiter)
{
	struct pending *p = calloc(1, sizeof(*p));

	if (!p) {
		return NULL;
	}
	atomic_init(&p->refs, 1);
	p->op = op;
	p->waiter = waiter;
	p->done_fd = waiter ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
	if (waiter && p->done_fd < 0) {
		free(p);
		return NULL;
	}
	return p;
}

static uint64_t left_ms(const struct pai_call *call)
{
	uint64_t now = pai_clock_ms();

	if (call->deadline_ms == PAI_NO_DEADLINE) {
		return UINT64_MAX;
	}
	return call->deadline_ms > now ? call->deadline_ms - now : 0;
}

static int send_request(struct pai_far_calls *c, const struct pending *p,
    const struct pai_call_request *q, const char *data, bool *sent, struct pai_err *err)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(2 * (PAI_FRAME_MAX + PAI_FRAME_HEADER));
	uint64_t len = q->op == PAI_CALL_WRITE_FILE ? q->number : 0;
	int r = pai_call_put_request(&out, p->id, q);

	if (r < 0) {
		return r == -ENOMEM
			   ? pai_err_no_memory(err)
			   : pai_err_set(err, PAI_E_INPUT, "more than a request may hold (1 MiB)");
	}
	*sent = true;
	r = send_frames(c, &out);
	for (uint64_t at = 0; r == 0 && at < len;) {
		size_t n = len - at < PAI_FRAME_DATA_MAX ? (size_t)(len - at) : PAI_FRAME_DATA_MAX;

		r = pai_frame_put(&out, PAI_MSG_CALL_DATA, p->id, data + at, n);
		r = r ? r : send_frames(c, &out);
		at += n;
	}
	if (r < 0) {
		/* Half a request is on its way: nothing more can follow. */
		pai_far_calls_end(c);
		(void)pai_err_unavailable(
		    err, PAI_REASON_TRANSPORT, NULL, "the stream of calls ended");
	}
	return r < 0 ? -err->errnum : 0;
}

static void give_up(struct pai_far_calls *c, struct pending *p)
{
	const struct pai_call last = {.deadline_ms = pai_deadline_in(LAST_WORD_MS)};
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(64);

	if (pai_frame_put(&out, PAI_MSG_CALL_CANCEL, p->id, NULL, 0) == 0) {
		(void)send_frames(c, &out);
	}
	(void)!pai_call_poll(&last, p->done_fd, POLLIN, PAI_ERR_IGNORED());
}

/* What was sent on the stream is no longer this call's. */
static void unlist(struct pai_far_calls *c, struct pending *p)
{
	(void)pthread_mutex_lock(&c->lock);
	if (!p->done) {
		p->waiter = false;
		finish_locked(c, p);
	}
	(void)pthread_mutex_unlock(&c->lock);
}

/* 0: it is done, its outcome in p->err. */
static int await(
    struct pai_far_calls *c, struct pending *p, const struct pai_call *call, struct pai_err *err)
{
	int r = pai_call_poll(call, p->done_fd, POLLIN, err);

	if (r < 0) {
		give_up(c, p); /* its answer, if it comes now, is better than none */
		(void)pthread_mutex_lock(&c->lock);
		r = p->done ? 0 : r;
		p->waiter = p->done;
		(void)pthread_mutex_unlock(&c->lock);
	}
	return r;
}

/* The far wrapper's "local: create: " tells nothing here. */
static void strip_prefix(const struct pai_far_calls *c, struct pai_err *err)
{
	size_t n = strlen(c->ready.name);
	const char *rest;

	if (strncmp(err->msg, c->ready.name, n) != 0 || strncmp(err->msg + n, ": ", 2) != 0) {
		return;
	}
	rest = strstr(err->msg + n + 2, ": ");
	if (rest) {
		memmove(err->msg, rest + 2, strlen(rest + 2) + 1);
	}
}

int pai_far_call(struct pai_far_calls *c, struct pai_call_request *q, const void *data,
    const struct pai_call *call, struct pai_far_reply *reply, bool *sent, struct pai_err *err)
{
	struct pending *p = pending_new(q->op, true);
	struct pai_err why = PAI_ERR_INIT;
	int r;

	if (!p) {
		return pai_err_no_memory(err);
	}
	p->reply.data.max = reply->data.max;
	while ((r = enlist(c, p, err)) == -EAGAIN) {
		r = pai_call_sleep(call, pai_deadline_in(SLOT_LOOK_MS), err);
		if (r < 0) {
			break;
		}
	}
	q->within_ms = left_ms(call);
	if (r == 0) {
		r = send_request(c, p, q, data, sent, err);
		if (r < 0) {
			unlist(c, p);
		}
	}
	r = r < 0 ? r : await(c, p, call, &why);
	if (r == 0 && p->err.code != PAI_OK) {
		why = p->err;
		strip_prefix(c, &why);
		r = -why.errnum;
	}
	if (r == 0) {
		*reply = p->reply;
		p->reply = (struct pai_far_reply){0};
	} else if (why.code != PAI_OK) {
		*err = why;
	}
	pending_unref(p);
	return r;
}

void pai_far_tell(struct pai_far_calls *c, struct pai_call_request *q)
{
	struct pending *p = pending_new(q->op, false);
	bool sent = false;

	q->within_ms = UINT64_MAX;
	if (p && enlist(c, p, PAI_ERR_IGNORED()) == 0 &&
	    send_request(c, p, q, NULL, &sent, PAI_ERR_IGNORED()) < 0) {
		unlist(c, p);
	}
	if (p) {
		pending_unref(p);
	}
}

/* --- the opening --- */

static int greet(struct pai_far_calls *c, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(64);
	pai_auto_buf struct pai_buf in = PAI_BUF_INIT(READ_BYTES * 2);
	struct pai_err why = PAI_ERR_INIT;
	struct pai_frame f;
	size_t at = 0;
	int r = pai_calls_put_hello(&out);

	if (r < 0) {
		return pai_err_no_memory(err);
	}
	r = send_frames(c, &out);
	while (r == 0 && (r = pai_frame_next(&in, &at, &f)) == 0) {
		r = read_more(c->fd, &in, call, &why);
	}
	if (why.code != PAI_OK) {
		*err = why;
		return -err->errnum;
	}
	if (r != 1 || at == 0) {
		return pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL,
		    "the far side ended before it was ready for calls");
	}
	r = f.type == PAI_MSG_CALLS_READY && f.id == 0 ? pai_calls_get_ready(f.payload, &c->ready)
						       : -EPROTO;
	if (r < 0 || at < in.len) {
		return r == -EPROTONOSUPPORT
			   ? pai_err_set(err, PAI_E_PROTOCOL,
				 "the far side speaks version %u of calls, this program %u",
				 c->ready.version, PAI_CALLS_VERSION)
			   : pai_err_set(err, PAI_E_PROTOCOL,
				 "what answers is no provider: it sent what it may not send");
	}
	return 0;
}

static int start_reader(struct pai_far_calls *c)
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
	r = pthread_create(&thread, &attr, read_stream, c);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	return -r;
}

int pai_far_calls_new(
    int take_fd, const struct pai_call *call, struct pai_far_calls **ret, struct pai_err *err)
{
	struct pai_far_calls *c = calloc(1, sizeof(*c));
	int r;

	if (!c) {
		(void)close(take_fd);
		return pai_err_no_memory(err);
	}
	c->fd = take_fd;
	atomic_init(&c->refs, 1);
	LIST_INIT(&c->pending);
	(void)pthread_mutex_init(&c->lock, NULL);
	(void)pthread_mutex_init(&c->send_lock, NULL);
	r = greet(c, call, err);
	if (r == 0) {
		(void)pai_far_calls_ref(c);
		r = start_reader(c);
		if (r < 0) {
			drop(c);
			r = pai_err_errno(err, -r, "a thread for calls");
		}
	}
	if (r < 0) {
		drop(c);
		return r;
	}
	*ret = c;
	return 0;
}
