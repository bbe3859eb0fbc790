/*
 * The transport's half. Frames that aren't counted go between frames of the queue, so that an
 * acknowledgement waits for one data frame at most; a frame that a transport cut off is sent anew
 * on the next one.
 */
#include "providers/helper/link_core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "providers/base/clock.h"
#include "providers/helper/link_private.h"

#define IN_BYTES (512u << 10)
#define CONTROL_MAX (64u << 10) /* a peer that asks and never reads the answers has no more */
#define SMALL_MAX 4096u         /* frames that aren't data */
#define ACK_BYTES (256u << 10)
#define ACK_FRAMES 1024u
#define PIECES 8
#define SOCKET_BYTES (512 << 10)

_Static_assert(IN_BYTES > PAI_FRAME_DATA_MAX + PAI_FRAME_HEADER, "a whole frame fits");

/* --- ends --- */

void pai_link_core_doom(struct pai_link_core *c, const struct pai_err *why)
{
	if (!c->doomed && !c->broken) {
		c->why = *why;
	}
	c->doomed = true;
	pai_loop_timer_set(c->doom, pai_clock_ms());
}

void pai_link_core_break(struct pai_link_core *c, const char *what)
{
	struct pai_err err = PAI_ERR_INIT;

	if (c->broken) {
		return;
	}
	(void)pai_err_set(&err, PAI_E_PROTOCOL, "%s", what);
	c->doomed = false; /* this reason counts */
	pai_link_core_doom(c, &err);
	c->broken = true;
}

static void doom_lost(struct pai_link_core *c, const char *what)
{
	struct pai_err err = PAI_ERR_INIT;

	(void)pai_err_unavailable(&err, PAI_REASON_TRANSPORT, NULL, "%s", what);
	pai_link_core_doom(c, &err);
}

/* Last in here: what is told may free the core. */
static void on_doom(void *arg)
{
	struct pai_link_core *c = arg;
	struct pai_err why = c->why;

	if (c->broken) {
		if (!c->told) {
			c->told = true;
			pai_link_core_detach(c);
			c->events->over(c->arg, &why);
		}
	} else if (c->doomed) {
		pai_link_core_detach(c);
		c->events->detached(c->arg, &why);
	} else if (c->farewell && !c->is_daemon && !c->told) {
		c->told = true;
		c->events->over(c->arg, &(struct pai_err)PAI_ERR_INIT);
	}
}

static void lock(struct pai_link_core *c)
{
	(void)pthread_mutex_lock(&c->lock);
}

static void unlock(struct pai_link_core *c)
{
	(void)pthread_mutex_unlock(&c->lock);
}

/* --- out --- */

static int gather(const struct pai_link_core *c, struct iovec iov[PIECES])
{
	int n = pai_link_queue_unsent(&c->queue, iov, 1, true);

	if (c->control.len > c->control_at) {
		/* Behind the frame that is under way; the rest of the queue comes next time. */
		iov[n++] =
		    (struct iovec){c->control.data + c->control_at, c->control.len - c->control_at};
		return n;
	}
	return pai_link_queue_unsent(&c->queue, iov, PIECES, false);
}

static void sent(struct pai_link_core *c, size_t n)
{
	size_t frame = c->queue.frame_left;
	size_t control = c->control.len - c->control_at;

	c->spoke = true;
	if (control > 0) {
		frame = n < frame ? n : frame;
		pai_link_queue_sent(&c->queue, frame);
		c->control_at += n - frame;
		if (c->control_at == c->control.len) {
			pai_buf_clear(&c->control);
			c->control_at = 0;
		}
		return;
	}
	pai_link_queue_sent(&c->queue, n);
}

/* A part of a control frame may be out: then it goes on first. */
static bool control_is_cut(const struct pai_link_core *c)
{
	return c->control_at > 0;
}

static int gather_next(const struct pai_link_core *c, struct iovec iov[PIECES])
{
	if (control_is_cut(c)) {
		iov[0] =
		    (struct iovec){c->control.data + c->control_at, c->control.len - c->control_at};
		return 1;
	}
	return gather(c, iov);
}

static ssize_t transport_write(const struct pai_link_transport *t, struct iovec *iov, int n)
{
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n};

	return t->out_is_pipe ? writev(t->out, iov, n)
			      : sendmsg(t->out, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* 0, or an errno: the transport takes nothing more now, or never again. */
static int send_all(struct pai_link_core *c)
{
	struct iovec iov[PIECES];
	int n;

	while (!c->doomed && c->t.in >= 0 && (n = gather_next(c, iov)) > 0) {
		ssize_t done = transport_write(&c->t, iov, n);

		if (done >= 0) {
			sent(c, (size_t)done);
		} else if (errno != EINTR) {
			return errno;
		}
	}
	return 0;
}

static bool all_is_sent(const struct pai_link_core *c)
{
	return c->queue.unsent == 0 && c->control.len == 0;
}

/* After sending: what is left waits for the transport. */
static void settle(struct pai_link_core *c)
{
	bool wait = !all_is_sent(c) || c->starved;

	if (c->doomed) {
		return;
	}
	if (wait == c->out_armed) {
		return;
	}
	c->out_armed = wait;
	if (c->out_io) {
		pai_loop_io_set(c->out_io, wait ? EPOLLOUT : 0);
	} else {
		pai_loop_io_set(c->in_io, wait ? EPOLLIN | EPOLLOUT : EPOLLIN);
	}
}

/* What fails here fails for the loop again, which ends the transport. */
void pai_link_core_push(struct pai_link_core *c)
{
	if (!c->doomed && c->t.in >= 0 && !c->out_armed) {
		(void)send_all(c);
		settle(c);
	}
}

void pai_link_core_flush(struct pai_link_core *c, int r)
{
	if (r < 0) {
		pai_link_core_break(
		    c, r == -ENOMEM ? "no memory for the link" : "the peer does not acknowledge");
		return;
	}
	pai_link_core_push(c);
}

static int put_ack(struct pai_link_core *c)
{
	c->unacked_bytes = 0;
	c->unacked_frames = 0;
	return pai_link_put_ack(&c->control, c->received);
}

/* --- in --- */

static int take_ping(struct pai_link_core *c, struct pai_view payload)
{
	int r = payload.len > PAI_LINK_PING_MAX ? -EPROTO : put_ack(c);

	return r ? r : pai_frame_put(&c->control, PAI_MSG_LINK_PONG, 0, payload.data, payload.len);
}

static int take_counted(struct pai_link_core *c, const struct pai_frame *f)
{
	int r;

	if (f->type == PAI_MSG_LINK_BYE) {
		if (c->is_daemon || f->id != 0 || f->payload.len > 0) {
			return -EPROTO;
		}
		c->farewell = true;
		pai_link_channels_end(c);
		pai_loop_timer_set(c->doom, pai_clock_ms());
		r = 0;
	} else {
		r = c->farewell && !c->is_daemon ? -EPROTO : pai_link_channel_take(c, f);
	}
	c->received++;
	c->unacked_bytes += PAI_FRAME_HEADER + f->payload.len;
	c->unacked_frames++;
	if (r == 0 && (c->unacked_bytes >= ACK_BYTES || c->unacked_frames >= ACK_FRAMES)) {
		r = put_ack(c);
	}
	return r;
}

static int take_frame(struct pai_link_core *c, const struct pai_frame *f)
{
	uint64_t received;
	int r;

	if (f->type != PAI_MSG_CH_DATA && f->payload.len > SMALL_MAX) {
		return -EPROTO;
	}
	if (f->type >= PAI_MSG_CH_OPEN && f->type <= PAI_MSG_LINK_BYE) {
		return take_counted(c, f);
	}
	if (f->id != 0) {
		return -EPROTO;
	}
	switch (f->type) {
	case PAI_MSG_LINK_ACK:
		r = pai_link_get_ack(f->payload, &received);
		return r ? r : pai_link_queue_ack(&c->queue, received);
	case PAI_MSG_LINK_PING:
		return take_ping(c, f->payload);
	case PAI_MSG_LINK_PONG:
		return f->payload.len > PAI_LINK_PING_MAX ? -EPROTO : 0;
	default:
		return -EPROTO;
	}
}

/* Whole frames; what follows them stays. */
static void take_all(struct pai_link_core *c)
{
	struct pai_frame f;
	size_t at = 0;
	size_t len;
	int r = 0;

	while (!c->doomed && r >= 0 && (r = pai_frame_next(&c->in, &at, &f)) == 1) {
		lock(c); /* anew for each, so that nobody waits for all of them */
		r = take_frame(c, &f);
		unlock(c);
	}
	if (r >= 0 && pai_frame_peek(&c->in, at, &f, &len) == 1 && len > PAI_FRAME_DATA_MAX) {
		r = -EPROTO;
	}
	pai_buf_consume(&c->in, at);
	lock(c);
	if (r < 0) {
		pai_link_core_break(c, r == -ENOMEM ? "no memory for the link"
						    : "the peer broke the protocol of the link");
	} else {
		pai_link_core_flush(c, c->starved ? -ENOMEM : 0);
		pai_link_channels_resume(c); /* acknowledgements have come */
	}
	unlock(c);
}

static void on_out(void *arg, uint32_t events)
{
	struct pai_link_core *c = arg;
	int error;

	(void)events;
	lock(c);
	error = send_all(c);
	if (error && error != EAGAIN) {
		doom_lost(c, "the transport ended");
	}
	if (c->starved) {
		pai_link_core_break(c, "no memory for the link");
	}
	if (!c->doomed) {
		settle(c);
		pai_link_channels_resume(c);
	}
	unlock(c);
}

static void on_in(void *arg, uint32_t events)
{
	struct pai_link_core *c = arg;
	ssize_t n;

	if (events & EPOLLOUT) {
		on_out(arg, events);
	}
	if (c->doomed || !(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
		return;
	}
	n = pai_link_transport_read(&c->t, c->in.data + c->in.len, IN_BYTES - c->in.len);
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		return;
	}
	if (n <= 0) {
		lock(c);
		doom_lost(c, "the transport ended");
		unlock(c);
		return;
	}
	c->in.len += (size_t)n;
	c->heard = true;
	take_all(c);
}

/* Nothing is said there. */
static void on_control(void *arg, uint32_t events)
{
	struct pai_link_core *c = arg;

	(void)events;
	lock(c);
	doom_lost(c, "the transport's relay ended");
	unlock(c);
}

/* --- the transport's life --- */

ssize_t pai_link_transport_read(const struct pai_link_transport *t, void *buffer, size_t len)
{
	return t->in_is_pipe ? read(t->in, buffer, len) : recv(t->in, buffer, len, MSG_DONTWAIT);
}

void pai_link_transport_close(struct pai_link_transport *t)
{
	pai_auto_fd_p(&t->in);
	if (t->out != t->in) {
		pai_auto_fd_p(&t->out);
	}
	pai_auto_fd_p(&t->control);
	*t = (struct pai_link_transport){.in = -1, .out = -1, .control = -1};
}

static void close_transport(struct pai_link_core *c)
{
	pai_loop_io_free(c->in_io);
	pai_loop_io_free(c->out_io);
	pai_loop_io_free(c->control_io);
	c->in_io = NULL;
	c->out_io = NULL;
	c->control_io = NULL;
	pai_link_transport_close(&c->t);
	c->out_armed = false;
}

static void detach(struct pai_link_core *c)
{
	close_transport(c);
	c->doomed = false;
	pai_buf_clear(&c->in); /* a frame that was cut */
	pai_buf_clear(&c->control);
	c->control_at = 0;
	c->unacked_bytes = 0;
	c->unacked_frames = 0;
	pai_loop_timer_set(c->doom, c->broken && !c->told ? pai_clock_ms() : PAI_NO_DEADLINE);
}

void pai_link_core_detach(struct pai_link_core *c)
{
	lock(c);
	detach(c);
	unlock(c);
}

static int watch_transport(struct pai_link_core *c)
{
	struct pai_err *ignored = PAI_ERR_IGNORED();
	const struct pai_link_transport *t = &c->t;

	if (!t->out_is_pipe) {
		(void)setsockopt(t->out, SOL_SOCKET, SO_SNDBUF, &(int){SOCKET_BYTES}, sizeof(int));
	}
	c->in_io = pai_loop_io_new(c->loop, t->in, EPOLLIN, on_in, c, ignored);
	if (t->out != t->in) {
		c->out_io = pai_loop_io_new(c->loop, t->out, 0, on_out, c, ignored);
	}
	if (t->control >= 0) {
		c->control_io =
		    pai_loop_io_new(c->loop, t->control, EPOLLIN, on_control, c, ignored);
	}
	return c->in_io && (t->out == t->in || c->out_io) && (t->control < 0 || c->control_io)
		   ? 0
		   : -ENOMEM;
}

static int attach(struct pai_link_core *c, const struct pai_link_transport *take, uint64_t received,
    const struct pai_buf *first, struct pai_view rest)
{
	int r;

	detach(c);
	c->t = *take;
	if (c->broken) {
		detach(c);
		return -EPROTO;
	}
	r = pai_link_queue_rewind(&c->queue, received);
	if (r < 0) {
		detach(c);
		pai_link_core_break(c, "the peer has received what was never sent");
		return r;
	}
	r = watch_transport(c);
	r = r < 0 || !first ? r : pai_buf_add(&c->control, first->data, first->len);
	r = r ? r : pai_buf_add(&c->in, rest.data, rest.len);
	if (r < 0) {
		detach(c);
		return -ENOMEM;
	}
	pai_link_core_push(c); /* before anybody else's: `first` is */
	c->heard = true;
	return 0;
}

int pai_link_core_attach(struct pai_link_core *c, const struct pai_link_transport *take,
    uint64_t received, const struct pai_buf *first, struct pai_view rest)
{
	int r;

	lock(c);
	r = attach(c, take, received, first, rest);
	unlock(c);
	if (r == 0) {
		take_all(c);
	}
	return r;
}

bool pai_link_core_attached(const struct pai_link_core *c)
{
	return c->t.in >= 0 && !c->doomed;
}

uint64_t pai_link_core_received(const struct pai_link_core *c)
{
	return c->received;
}

bool pai_link_core_tick(struct pai_link_core *c)
{
	bool heard = c->heard;
	int r = 0;

	lock(c);
	if (heard && !c->spoke) {
		r = put_ack(c);
	} else if (!heard && c->is_daemon) {
		r = pai_frame_put(&c->control, PAI_MSG_LINK_PING, 0, NULL, 0);
	}
	if (!heard && !c->spoke) {
		pai_link_queue_rest(&c->queue);
	}
	c->heard = false;
	c->spoke = false;
	/* What is full of questions that nobody takes needs no more. */
	pai_link_core_flush(c, r == -EMSGSIZE ? 0 : r);
	unlock(c);
	return heard;
}

/* --- life --- */

void pai_link_core_free(struct pai_link_core *c)
{
	if (!c) {
		return;
	}
	lock(c);
	pai_link_channels_free(c);
	close_transport(c);
	unlock(c);
	pai_loop_timer_free(c->doom);
	pai_buf_fini(&c->in);
	pai_buf_fini(&c->control);
	pai_link_queue_fini(&c->queue);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
}

struct pai_link_core *pai_link_core_new(
    struct pai_loop *loop, const struct pai_link_core_events *events, void *arg)
{
	struct pai_link_core *c = calloc(1, sizeof(*c));

	if (!c) {
		return NULL;
	}
	c->loop = loop;
	c->events = events;
	c->arg = arg;
	c->is_daemon = events->opened != NULL;
	c->t = (struct pai_link_transport){.in = -1, .out = -1, .control = -1};
	c->in.max = IN_BYTES;
	c->control.max = CONTROL_MAX;
	(void)pthread_mutex_init(&c->lock, NULL);
	pai_link_queue_init(&c->queue);
	TAILQ_INIT(&c->stalled);
	c->doom = pai_loop_timer_new(loop, PAI_NO_DEADLINE, on_doom, c, PAI_ERR_IGNORED());
	if (!c->doom || pai_buf_reserve(&c->in, IN_BYTES) < 0) {
		pai_link_core_free(c);
		return NULL;
	}
	return c;
}
