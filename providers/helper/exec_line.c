/*
 * The daemon's end of a supervisor's line. Reading happens on the one loop thread (wire_line.c);
 * writing where the call is made, so that a start costs no change of threads.
 */
#include "providers/helper/exec_line.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "providers/helper/wire_line.h"

#define OUT_MAX (64u << 20)
#define CREDIT_STEP (PAI_EXEC_WINDOW / 4)
#define SOCKET_BYTES (1 << 20)

static const struct pai_exec_line_ops wire_ops;

/* --- out --- */

static void arm_out(void *arg)
{
	struct wire_line *l = arg;

	if (l->io) {
		pai_loop_io_set(l->io, EPOLLIN | EPOLLOUT);
	}
	pai_wire_line_drop(l);
}

int pai_wire_send_locked(struct wire_line *l)
{
	int r = 0;

	while (l->fd >= 0 && l->out_at < l->out.len) {
		ssize_t n = send(l->fd, l->out.data + l->out_at, l->out.len - l->out_at,
		    MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			r = -errno;
			break;
		}
		l->out_at += (size_t)n;
	}
	if (l->out_at == l->out.len) {
		pai_buf_clear(&l->out);
		l->out_at = 0;
	} else if (l->out_at >= PAI_EXEC_WINDOW) {
		pai_buf_consume(&l->out, l->out_at);
		l->out_at = 0;
	}
	return r;
}

void pai_wire_flush_locked(struct wire_line *l, int r)
{
	if (l->fd < 0) {
		pai_buf_clear(&l->out);
		return;
	}
	if (r < 0) {
		(void)shutdown(l->fd, SHUT_RDWR);
		return;
	}
	if (l->out_armed) {
		return; /* the loop sends */
	}
	(void)pai_wire_send_locked(l);
	if (l->out.len > 0) {
		l->out_armed = true;
		(void)atomic_fetch_add(&l->memory, 1);
		if (pai_loop_post(l->loop, arm_out, l) < 0) {
			(void)atomic_fetch_sub(&l->memory, 1); /* the loop holds one too */
			(void)shutdown(l->fd, SHUT_RDWR);
		}
	}
}

/* --- a new line --- */

static int send_hello(struct wire_line *l, const char *who, uint64_t epoch,
    const struct pai_call *call, struct pai_err *err)
{
	struct pai_line_hello hello = {.version = PAI_LINE_VERSION, .epoch = epoch};
	int r;

	if (strlen(who) >= sizeof(hello.who) || who[0] == '\0') {
		return pai_err_set(err, PAI_E_INPUT, "a client id has 1-128 bytes");
	}
	memcpy(hello.who, who, strlen(who) + 1);
	r = pai_line_put_hello(&l->out, PAI_MSG_LINE_HELLO, &hello);
	if (r < 0) {
		return pai_err_no_memory(err);
	}
	while (l->out.len > 0) {
		r = pai_call_poll(call, l->fd, POLLOUT, err);
		if (r < 0) {
			return r;
		}
		r = pai_wire_send_locked(l);
		if (r < 0 && r != -EAGAIN) {
			return pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL,
			    "the supervisor closed the line: %s", pai_errno_name(-r));
		}
	}
	return 0;
}

static int await_ready(struct wire_line *l, const struct pai_call *call, struct pai_err *err)
{
	struct pai_line_hello ready;
	struct pai_frame f;
	size_t at = 0;
	int r;

	while ((r = pai_frame_next(&l->in, &at, &f)) == 0 && l->in.len < PAI_WIRE_SMALL_MAX) {
		ssize_t n;

		r = pai_call_poll(call, l->fd, POLLIN, err);
		if (r < 0) {
			return r;
		}
		n = recv(
		    l->fd, l->in.data + l->in.len, PAI_WIRE_SMALL_MAX - l->in.len, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
			return pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL,
			    "the supervisor closed the line before it was ready");
		}
		l->in.len += n > 0 ? (size_t)n : 0;
	}
	if (r != 1 || f.type != PAI_MSG_LINE_READY ||
	    pai_line_get_hello(PAI_MSG_LINE_READY, f.payload, &ready) < 0 ||
	    ready.version != PAI_LINE_VERSION) {
		return pai_err_set(err, PAI_E_PROTOCOL, "not a supervisor of this version");
	}
	l->features = ready.features;
	pai_buf_consume(&l->in, at);
	return 0;
}

static void line_free_p(struct wire_line **l)
{
	if (*l) {
		pai_wire_line_drop(*l);
	}
}

int pai_exec_line_new(int take_fd, const char *who, uint64_t epoch, const struct pai_call *call,
    struct pai_exec_line **ret, struct pai_err *err)
{
	PAI_AUTO(line_free_p) struct wire_line *l = calloc(1, sizeof(*l));
	pai_auto_fd int fd = take_fd;
	struct pai_loop *loop = l ? pai_wire_loop(err) : NULL;
	int r;

	if (!l) {
		return pai_err_no_memory(err);
	}
	l->base.ops = &wire_ops;
	atomic_init(&l->base.users, 1);
	atomic_init(&l->memory, 1);
	(void)pthread_mutex_init(&l->lock, NULL);
	LIST_INIT(&l->commands);
	l->fd = PAI_TAKE_FD(fd);
	l->nonce_fd = -1;
	l->silence_ms = PAI_EXEC_SILENCE_MS;
	l->in.max = PAI_WIRE_READ_BYTES + PAI_WIRE_SMALL_MAX + PAI_FRAME_HEADER;
	l->out.max = OUT_MAX;
	if (!loop) {
		return -err->errnum;
	}
	l->loop = loop;
	if (pai_buf_reserve(&l->in, l->in.max) < 0) {
		return pai_err_no_memory(err);
	}
	(void)setsockopt(l->fd, SOL_SOCKET, SO_SNDBUF, &(int){SOCKET_BYTES}, sizeof(int));
	r = send_hello(l, who, epoch, call, err);
	r = r < 0 ? r : await_ready(l, call, err);
	if (r < 0) {
		return r;
	}
	(void)atomic_fetch_add(&l->memory, 1); /* the loop's */
	if (pai_loop_post(loop, pai_wire_line_attach, l) < 0) {
		(void)atomic_fetch_sub(&l->memory, 1);
		return pai_err_no_memory(err);
	}
	*ret = &PAI_TAKE(l)->base;
	return 0;
}

/* --- the calls --- */

static struct wire_line *line_of(const struct pai_exec_line *l)
{
	assert(l->ops == &wire_ops);
	return (struct wire_line *)(uintptr_t)l;
}

static struct command *command_of(struct pai_exec *x)
{
	assert(x->ops == &wire_ops);
	return (struct command *)x;
}

/* The loop sees the hang-up and ends the line on its own thread. */
static void line_shut(struct wire_line *l, bool *flag)
{
	(void)pthread_mutex_lock(&l->lock);
	*flag = true;
	if (l->fd >= 0) {
		(void)shutdown(l->fd, SHUT_RDWR);
	}
	(void)pthread_mutex_unlock(&l->lock);
}

static void wire_close(struct pai_exec_line *base)
{
	struct wire_line *l = line_of(base);

	line_shut(l, &l->closing);
	pai_wire_line_drop(l);
}

static void wire_revoke(struct pai_exec_line *base)
{
	struct wire_line *l = line_of(base);

	line_shut(l, &l->revoked);
}

static void wire_prove_by(struct pai_exec_line *base, int take_nonce_fd)
{
	struct wire_line *l = line_of(base);

	(void)pthread_mutex_lock(&l->lock);
	pai_auto_fd_p(&l->nonce_fd);
	l->nonce_fd = take_nonce_fd;
	(void)pthread_mutex_unlock(&l->lock);
}

static void wire_expect(struct pai_exec_line *base, uint64_t silence_ms)
{
	struct wire_line *l = line_of(base);

	(void)pthread_mutex_lock(&l->lock);
	l->silence_ms = silence_ms;
	(void)pthread_mutex_unlock(&l->lock);
}

static bool wire_alive(const struct pai_exec_line *base)
{
	struct wire_line *l = line_of(base);
	bool alive;

	(void)pthread_mutex_lock(&l->lock);
	alive = !l->dead && !l->revoked && !l->closing;
	(void)pthread_mutex_unlock(&l->lock);
	return alive;
}

/* A peer that has stopped keeps the line open and says nothing: without memory for this its
 * commands wait as long as it does. */
static void listen_locked(struct wire_line *l)
{
	if (l->listening) {
		return;
	}
	(void)atomic_fetch_add(&l->memory, 1);
	l->listening = pai_loop_post(l->loop, pai_wire_line_listen, l) == 0;
	if (!l->listening) {
		(void)atomic_fetch_sub(&l->memory, 1); /* the caller has one too */
	}
}

/* Of all lines: what is said of one of an earlier line is not taken for this one's. */
static atomic_uint last_id;

static int start_locked(
    struct wire_line *l, struct command *c, const struct pai_exec_start *start, struct pai_err *err)
{
	int r;

	if (l->dead || l->revoked || l->closing) {
		(void)pai_wire_lost_locked(l, err);
		err->retryable = err->code == PAI_E_UNAVAILABLE; /* nothing was sent */
		return -err->errnum;
	}
	c->id = atomic_fetch_add(&last_id, 1) + 1;
	c->base.number = c->id;
	r = pai_exec_put_start(&l->out, c->id, start);
	if (r < 0) {
		return r == -ENOMEM ? pai_err_no_memory(err)
				    : pai_err_set(err, PAI_E_INPUT,
					  "arguments and environment are over 1 MiB");
	}
	LIST_INSERT_HEAD(&l->commands, c, at);
	pai_wire_flush_locked(l, 0);
	listen_locked(l);
	return 0;
}

static int wire_start(struct pai_exec_line *base, const struct pai_exec_start *start,
    const struct pai_exec_events *events, void *arg, struct pai_exec **ret, struct pai_err *err)
{
	struct wire_line *l = line_of(base);
	struct command *c = calloc(1, sizeof(*c));
	struct pai_exec *before = *ret;
	struct pai_exec_start plain = *start;
	int r;

	if (!c) {
		return pai_err_no_memory(err);
	}
	if (!(l->features & PAI_LINE_LINGER)) {
		plain.flags &= ~(uint32_t)PAI_START_LINGER; /* as it was before there was such */
	}
	c->is_stream = start->flags & PAI_START_CONNECT;
	c->lingers = plain.flags & PAI_START_LINGER;
	if (c->is_stream && !(l->features & PAI_LINE_CONNECT)) {
		free(c);
		return pai_err_set(err, PAI_E_UNSUPPORTED,
		    "the supervisor in the sandbox is older than ways to its ports");
	}
	c->base.ops = &wire_ops;
	c->line = l;
	c->events = events;
	c->arg = arg;
	c->window[0] = PAI_EXEC_WINDOW;
	c->window[1] = PAI_EXEC_WINDOW;
	atomic_init(&c->refs, 2);
	(void)atomic_fetch_add(&l->memory, 1);
	*ret = &c->base;
	(void)pthread_mutex_lock(&l->lock);
	r = start_locked(l, c, &plain, err);
	(void)pthread_mutex_unlock(&l->lock);
	if (r < 0) {
		*ret = before;
		pai_wire_line_drop(l);
		free(c);
	}
	return r;
}

static int wire_stdin(struct pai_exec *x, const char *data, size_t len)
{
	struct command *c = command_of(x);
	struct wire_line *l = c->line;
	int r = 0;

	(void)pthread_mutex_lock(&l->lock);
	if (len > c->stdin_credit || c->stdin_ended) {
		(void)pthread_mutex_unlock(&l->lock);
		return -EINVAL;
	}
	c->stdin_credit -= (uint32_t)len;
	while (r == 0 && len > 0 && !c->ended) {
		size_t step = len > PAI_FRAME_DATA_MAX ? PAI_FRAME_DATA_MAX : len;

		r = pai_exec_put_data(&l->out, c->id, PAI_MSG_STDIN, data, step);
		data += step;
		len -= step;
	}
	pai_wire_flush_locked(l, r);
	(void)pthread_mutex_unlock(&l->lock);
	return r;
}

static void wire_stdin_eof(struct pai_exec *x)
{
	struct command *c = command_of(x);

	(void)pthread_mutex_lock(&c->line->lock);
	if (!c->ended && !c->stdin_ended) {
		c->stdin_ended = true;
		pai_wire_flush_locked(
		    c->line, pai_exec_put_empty(&c->line->out, c->id, PAI_MSG_STDIN_EOF));
	}
	(void)pthread_mutex_unlock(&c->line->lock);
}

static void wire_credit(struct pai_exec *x, uint8_t stream, uint32_t bytes)
{
	struct command *c = command_of(x);
	int i = stream - 1;

	assert(stream == 1 || stream == 2);
	(void)pthread_mutex_lock(&c->line->lock);
	c->consumed[i] += bytes;
	if (!c->ended && c->consumed[i] >= CREDIT_STEP) {
		c->window[i] += c->consumed[i];
		pai_wire_flush_locked(
		    c->line, pai_exec_put_credit(&c->line->out, c->id, stream, c->consumed[i]));
		c->consumed[i] = 0;
	}
	(void)pthread_mutex_unlock(&c->line->lock);
}

static void wire_signal(struct pai_exec *x, int signo)
{
	struct command *c = command_of(x);
	int wire = pai_signal_to_wire(signo);

	(void)pthread_mutex_lock(&c->line->lock);
	if (!c->ended && wire > 0) {
		pai_wire_flush_locked(
		    c->line, pai_exec_put_signal(&c->line->out, c->id, (uint8_t)wire));
	}
	(void)pthread_mutex_unlock(&c->line->lock);
}

static void wire_resize(struct pai_exec *x, uint16_t rows, uint16_t columns)
{
	struct command *c = command_of(x);

	(void)pthread_mutex_lock(&c->line->lock);
	if (!c->ended) {
		pai_wire_flush_locked(
		    c->line, pai_exec_put_resize(&c->line->out, c->id, rows, columns));
	}
	(void)pthread_mutex_unlock(&c->line->lock);
}

static void wire_cancel(struct pai_exec *x)
{
	struct command *c = command_of(x);

	(void)pthread_mutex_lock(&c->line->lock);
	if (!c->ended) {
		pai_wire_flush_locked(
		    c->line, pai_exec_put_empty(&c->line->out, c->id, PAI_MSG_CANCEL));
	}
	(void)pthread_mutex_unlock(&c->line->lock);
}

static void wire_free(struct pai_exec *x)
{
	pai_wire_command_drop(command_of(x));
}

static const struct pai_exec_line_ops wire_ops = {
    .start = wire_start,
    .close = wire_close,
    .revoke = wire_revoke,
    .prove_by = wire_prove_by,
    .expect = wire_expect,
    .alive = wire_alive,
    .write_stdin = wire_stdin,
    .stdin_eof = wire_stdin_eof,
    .credit = wire_credit,
    .signal = wire_signal,
    .resize = wire_resize,
    .cancel = wire_cancel,
    .free = wire_free,
};
