/*
 * Channels. Of each side of one with a socket:
 *
 *   its user          fd        what happens
 *   writes            readable  data frames, within the window and while the queue has room
 *   reads             writable  straight from the received frame, what doesn't fit is `pending`
 *   closes            EOF       CH_END, after what it had written
 *   doesn't read      EPIPE     deaf: what comes is thrown away, and credited
 *
 * and of the peer: CH_END closes fd as soon as `pending` has been taken.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "providers/helper/link.h"
#include "providers/helper/link_private.h"

#define CREDIT_PART 4 /* of the window: as much is credited at once */
#define SOCKET_BYTES (256 << 10)

static struct pai_channel *find(const struct pai_link_core *c, uint32_t id)
{
	struct pai_channel *ch;

	LIST_FOREACH(ch, &c->channels[id % CHANNEL_BUCKETS], at)
	{
		if (ch->id == id) {
			return ch;
		}
	}
	return NULL;
}

static struct pai_channel *channel_new(struct pai_link_core *c, uint32_t id, uint32_t allowed)
{
	struct pai_channel *ch = calloc(1, sizeof(*ch));

	if (!ch) {
		return NULL;
	}
	ch->core = c;
	ch->id = id;
	ch->fd = -1;
	ch->allowed = allowed;
	ch->allowed_max = allowed;
	ch->pending.max = allowed;
	LIST_INSERT_HEAD(&c->channels[id % CHANNEL_BUCKETS], ch, at);
	c->count++;
	return ch;
}

void pai_link_channel_stall(struct pai_channel *ch, bool stalled)
{
	if (stalled != ch->is_stalled) {
		ch->is_stalled = stalled;
		if (stalled) {
			TAILQ_INSERT_TAIL(&ch->core->stalled, ch, stalled_at);
		} else {
			TAILQ_REMOVE(&ch->core->stalled, ch, stalled_at);
		}
	}
}

/* What has been given to a user stays readable; it sees the end behind it. */
void pai_link_channel_close_fd(struct pai_channel *ch)
{
	pai_link_channel_stall(ch, false);
	pai_loop_io_free(ch->io);
	ch->io = NULL;
	pai_auto_fd_p(&ch->fd);
	ch->fd = -1;
	if (ch->tap) {
		PAI_TAKE(ch->tap)->ended(ch->tap_arg);
	}
	pai_buf_fini(&ch->pending);
	ch->pending_at = 0;
}

static void channel_free(struct pai_channel *ch)
{
	pai_link_channel_close_fd(ch);
	LIST_REMOVE(ch, at);
	ch->core->count--;
	free(ch);
}

void pai_link_channel_free_if_over(struct pai_channel *ch)
{
	if (ch->sent_end && ch->got_end && ch->fd < 0 && !ch->user) {
		channel_free(ch);
	}
}

static void watch(struct pai_channel *ch)
{
	uint32_t interest = 0;

	if (!ch->sent_end && ch->window > 0 && !ch->is_stalled) {
		interest |= EPOLLIN;
	}
	if (ch->pending.len > ch->pending_at) {
		interest |= EPOLLOUT;
	}
	if (ch->io && interest != ch->interest) {
		ch->interest = interest;
		pai_loop_io_set(ch->io, interest);
	}
}

/* --- frames out --- */

/* For the caller to flush. */
int pai_link_channel_put_end(struct pai_channel *ch)
{
	if (ch->sent_end) {
		return 0;
	}
	ch->sent_end = true;
	return pai_link_queue_put(&ch->core->queue, PAI_MSG_CH_END, ch->id, NULL, 0);
}

int pai_link_channel_put_credit(struct pai_channel *ch, size_t bytes)
{
	uint32_t consumed;

	ch->consumed += (uint32_t)bytes;
	if (ch->sent_end || ch->got_end || ch->consumed < ch->allowed_max / CREDIT_PART + 1) {
		return 0;
	}
	consumed = htole32(ch->consumed);
	ch->allowed += ch->consumed;
	ch->consumed = 0;
	return pai_link_queue_put(
	    &ch->core->queue, PAI_MSG_CH_CREDIT, ch->id, &consumed, sizeof(consumed));
}

/* --- what the user writes --- */

/* 1: read something, 0: nothing is there or may be sent, -1: the end has been put, fd is closed;
 * what was put is for the caller to flush. */
static int read_step(struct pai_channel *ch, int *put)
{
	struct pai_link_core *c = ch->core;
	size_t len;
	char *room;
	ssize_t n;

	if (!pai_link_queue_has_room(&c->queue)) {
		pai_link_channel_stall(ch, true);
		watch(ch);
		return 0;
	}
	room = pai_link_queue_room(&c->queue, &len);
	if (!room) {
		*put = -ENOMEM;
		return 0;
	}
	len = len < ch->window ? len : ch->window;
	n = len > 0 ? recv(ch->fd, room, len, MSG_DONTWAIT) : 0;
	if (n > 0) {
		if (ch->tap) {
			ch->tap->bytes(ch->tap_arg, c->loop, (struct pai_view){room, (size_t)n});
		}
		pai_link_queue_data(&c->queue, ch->id, (size_t)n);
		ch->window -= (uint32_t)n;
		if (ch->window == 0) {
			watch(ch);
		}
		return 1;
	}
	if (len == 0 || (n < 0 && errno == EINTR) || (n < 0 && errno == EAGAIN && !c->closing)) {
		return 0;
	}
	*put = pai_link_channel_put_end(ch);
	pai_link_channel_close_fd(ch);
	return -1;
}

/* --- what the user reads --- */

/* How many of the bytes it took, or threw away: -1 the link can't go on. */
static size_t give(struct pai_channel *ch, const char *data, size_t len)
{
	ssize_t n = 0;

	while (!ch->deaf && len > 0) {
		n = send(ch->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n >= 0 || errno != EINTR) {
			break;
		}
	}
	if (n < 0 && errno != EAGAIN) {
		ch->deaf = true; /* what it wrote before is still read, up to its end */
	}
	return ch->deaf ? len : n > 0 ? (size_t)n : 0;
}

/* -1: the channel is over, and may be gone. */
static int give_pending(struct pai_channel *ch)
{
	size_t left = ch->pending.len - ch->pending_at;
	size_t n = give(ch, ch->pending.data + ch->pending_at, left);
	int r;

	ch->pending_at += n;
	if (n == left) {
		pai_buf_clear(&ch->pending);
		ch->pending_at = 0;
	} else if (ch->pending_at >= ch->pending.max / 2) {
		pai_buf_consume(&ch->pending, ch->pending_at);
		ch->pending_at = 0;
	}
	r = pai_link_channel_put_credit(ch, n);
	if (n == left && ch->got_end) {
		struct pai_link_core *c = ch->core;

		pai_link_channel_close_fd(ch);
		pai_link_channel_free_if_over(ch);
		pai_link_core_flush(c, r);
		return -1;
	}
	watch(ch);
	pai_link_core_flush(ch->core, r);
	return 0;
}

static void move(struct pai_channel *ch, uint32_t events)
{
	struct pai_link_core *c = ch->core;
	int put = 0;

	if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR) && ch->pending.len > 0 &&
	    give_pending(ch) < 0) {
		return;
	}
	if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)) || ch->sent_end) {
		/* One that got CH_END waits for its reader; a reader that has gone is EPIPE. */
		return;
	}
	if (read_step(ch, &put) < 0) {
		pai_link_channel_free_if_over(ch);
		put = put ? put : pai_link_channels_bye(c);
	}
	pai_link_core_flush(c, put);
}

static void on_channel(void *arg, uint32_t events)
{
	struct pai_channel *ch = arg;
	struct pai_link_core *c = ch->core;

	(void)pthread_mutex_lock(&c->lock);
	move(ch, events);
	(void)pthread_mutex_unlock(&c->lock);
}

bool pai_link_channel_drain(struct pai_channel *ch)
{
	char byte;
	int put = 0;

	while (read_step(ch, &put) == 1) {
		pai_link_core_flush(ch->core, 0);
	}
	pai_link_core_flush(ch->core, put);
	return ch->fd >= 0 && !ch->is_stalled && put == 0 &&
	       recv(ch->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* --- opening --- */

static int begin_splice(struct pai_channel *ch, int take_fd)
{
	ch->fd = take_fd;
	ch->io = pai_loop_io_new(ch->core->loop, take_fd, 0, on_channel, ch, PAI_ERR_IGNORED());
	if (!ch->io) {
		pai_link_channel_close_fd(ch);
		return -ENOMEM;
	}
	(void)setsockopt(take_fd, SOL_SOCKET, SO_SNDBUF, &(int){SOCKET_BYTES}, sizeof(int));
	watch(ch);
	return 0;
}

static int put_open(struct pai_link_core *c, struct pai_ch_open *open, uint32_t *ret_id)
{
	pai_auto_buf struct pai_buf frame = PAI_BUF_INIT(1024);
	struct pai_channel *ch;
	int r;

	if (c->count >= PAI_LINK_CHANNELS_MAX || c->last_id == UINT32_MAX) {
		return -EMFILE;
	}
	open->window = PAI_LINK_WINDOW;
	r = pai_link_put_open(&frame, c->last_id + 1, open);
	if (r < 0) {
		return r;
	}
	ch = channel_new(c, c->last_id + 1, open->window);
	if (!ch) {
		return -ENOMEM;
	}
	r = pai_link_queue_add(&c->queue, frame.data, frame.len);
	if (r < 0) {
		channel_free(ch);
		return -ENOMEM;
	}
	*ret_id = ++c->last_id;
	pai_link_core_flush(c, 0);
	return 0;
}

int pai_link_core_open(struct pai_link_core *c, struct pai_ch_open *open, uint32_t *ret_id)
{
	int r;

	(void)pthread_mutex_lock(&c->lock);
	r = put_open(c, open, ret_id);
	(void)pthread_mutex_unlock(&c->lock);
	return r;
}

static void close_unopened(struct pai_link_core *c, uint32_t id)
{
	struct pai_channel *ch = find(c, id);

	if (ch && !ch->sent_end) {
		int r = pai_link_channel_put_end(ch);

		pai_link_channel_close_fd(ch);
		pai_link_channel_free_if_over(ch);
		pai_link_core_flush(c, r);
	}
}

void pai_link_core_close(struct pai_link_core *c, uint32_t id)
{
	(void)pthread_mutex_lock(&c->lock);
	close_unopened(c, id);
	(void)pthread_mutex_unlock(&c->lock);
}

static int put_answer(struct pai_channel *ch, const struct pai_err *why)
{
	pai_auto_buf struct pai_buf frame = PAI_BUF_INIT(2048);
	int r = why ? pai_link_put_open_failed(&frame, ch->id, why)
		    : pai_link_put_opened(&frame, ch->id, ch->allowed);

	return r ? r : pai_link_queue_add(&ch->core->queue, frame.data, frame.len);
}

/* A user begins in here, and may be at its end at once. */
static void answer(struct pai_link_core *c, struct pai_channel *ch, struct pai_link_opened *take,
    const struct pai_err *why)
{
	struct pai_err no_memory = PAI_ERR_INIT;
	int fd = PAI_TAKE_FD(take->fd);
	bool opened = fd >= 0 || take->user;
	int r;

	if (fd >= 0 && begin_splice(ch, fd) < 0) {
		(void)pai_err_no_memory(&no_memory);
		opened = false;
		why = &no_memory;
	}
	ch->user = PAI_TAKE(take->user);
	ch->user_arg = take->arg;
	if (ch->fd >= 0) {
		ch->tap = PAI_TAKE(take->tap);
		ch->tap_arg = take->arg;
	}
	ch->answered = true;
	r = put_answer(ch, opened ? NULL : why);
	if (!opened) {
		ch->sent_end = true;
	} else if (ch->got_end) {
		r = r ? r : pai_link_channel_put_end(ch);
		pai_link_channel_close_fd(ch);
	}
	pai_link_core_flush(c, r);
	if (ch->user) {
		pai_link_direct_begun(ch);
	} else {
		pai_link_channel_free_if_over(ch);
	}
}

void pai_link_core_answer(
    struct pai_link_core *c, uint32_t id, struct pai_link_opened *take, const struct pai_err *why)
{
	struct pai_channel *ch;

	(void)pthread_mutex_lock(&c->lock);
	ch = find(c, id);
	if (ch && !ch->answered) {
		answer(c, ch, take, why);
	}
	(void)pthread_mutex_unlock(&c->lock);
	pai_link_opened_drop(take);
}

/* The user's end of a channel that is open now. */
static void tell_opened(struct pai_channel *ch)
{
	struct pai_link_core *c = ch->core;
	struct pai_err err = PAI_ERR_INIT;
	uint32_t id = ch->id;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0) {
		(void)pai_err_sys(&err, "a socket for a channel");
	} else if (begin_splice(ch, fds[0]) < 0) {
		(void)close(fds[1]);
		(void)pai_err_no_memory(&err);
	}
	if (err.code != PAI_OK) {
		close_unopened(c, id);
		c->events->opened(c->arg, id, -1, &err);
		return;
	}
	(void)setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &(int){SOCKET_BYTES}, sizeof(int));
	(void)getsockopt(
	    fds[1], SOL_SOCKET, SO_COOKIE, &ch->cookie, &(socklen_t){sizeof(ch->cookie)});
	c->events->opened(c->arg, id, fds[1], &err);
}

/* --- frames in --- */

static int take_open(struct pai_link_core *c, const struct pai_frame *f)
{
	struct pai_err why = PAI_ERR_INIT;
	struct pai_ch_open open;
	struct pai_channel *ch;
	int r = c->is_daemon ? -EPROTO : pai_link_get_open(f->payload, &open);

	if (r < 0 || f->id != c->last_id + 1 || c->count >= PAI_LINK_CHANNELS_MAX) {
		return -EPROTO;
	}
	ch = channel_new(c, f->id, PAI_LINK_WINDOW);
	if (!ch) {
		return -ENOMEM;
	}
	c->last_id = f->id;
	ch->window = open.window;
	ch->window_max = open.window;
	if (c->events->opening(c->arg, f->id, &open, &why) < 0) {
		ch->answered = true;
		ch->sent_end = true;
		return put_answer(ch, &why);
	}
	return 0;
}

static int take_opened(struct pai_channel *ch, struct pai_view payload)
{
	struct pai_link_core *c = ch->core;
	struct pai_err why;
	uint32_t window;
	int r =
	    c->is_daemon && !ch->answered ? pai_link_get_opened(payload, &window, &why) : -EPROTO;

	if (r < 0) {
		return r;
	}
	ch->answered = true;
	if (why.code == PAI_OK) {
		ch->window = window;
		ch->window_max = window;
		if (!ch->sent_end) {
			tell_opened(ch);
		}
		return 0;
	}
	ch->got_end = true;
	if (!ch->sent_end) {
		uint32_t id = ch->id;

		r = pai_link_channel_put_end(ch);
		pai_link_channel_free_if_over(ch);
		c->events->opened(c->arg, id, -1, &why);
		return r;
	}
	pai_link_channel_free_if_over(ch);
	return 0;
}

static int take_data(struct pai_channel *ch, struct pai_view payload)
{
	size_t n = payload.len;
	int r = 0;

	if (n == 0 || n > PAI_FRAME_DATA_MAX || n > ch->allowed || !ch->answered) {
		return -EPROTO;
	}
	ch->allowed -= (uint32_t)n;
	if (ch->user) {
		return pai_link_direct_bytes(ch, payload);
	}
	if (ch->fd < 0) {
		return 0; /* closed here: CH_END is on its way */
	}
	if (ch->pending.len == 0) {
		n = give(ch, payload.data, payload.len);
	} else {
		n = 0;
	}
	if (n < payload.len) {
		/* At most a window since `allowed` began as one; what has been taken from its front
		 * makes place. */
		if (ch->pending.len + payload.len - n > ch->pending.max) {
			pai_buf_consume(&ch->pending, ch->pending_at);
			ch->pending_at = 0;
		}
		r = pai_buf_add(&ch->pending, payload.data + n, payload.len - n);
		watch(ch);
	}
	return r ? r : pai_link_channel_put_credit(ch, n);
}

static int take_credit(struct pai_channel *ch, struct pai_view payload)
{
	uint32_t bytes;
	int r = pai_link_get_credit(payload, &bytes);

	if (r < 0 || !ch->answered || bytes > ch->window_max - ch->window) {
		return -EPROTO;
	}
	ch->window += bytes;
	if (ch->wants) {
		ch->wants = false;
		pai_link_channel_stall(ch, true); /* its turn comes */
	}
	watch(ch);
	return 0;
}

/* The peer wants nothing more of it and sends nothing more. */
static int end(struct pai_channel *ch)
{
	struct pai_link_core *c = ch->core;
	int r = 0;

	ch->got_end = true;
	pai_link_channel_stall(ch, false);
	if (!ch->answered) {
		if (!c->is_daemon) {
			c->events->unwanted(c->arg, ch->id); /* the answer will be its end */
			return 0;
		}
		return -EPROTO;
	}
	r = pai_link_channel_put_end(ch);
	if (ch->user) {
		pai_link_direct_ended(ch);
		return r;
	}
	if (ch->pending.len == 0) {
		pai_link_channel_close_fd(ch);
	} else {
		watch(ch);
	}
	pai_link_channel_free_if_over(ch);
	return r;
}

int pai_link_channel_take(struct pai_link_core *c, const struct pai_frame *f)
{
	struct pai_channel *ch;

	if (f->type == PAI_MSG_CH_OPEN) {
		return take_open(c, f);
	}
	ch = find(c, f->id);
	if (!ch || ch->got_end) {
		return -EPROTO;
	}
	switch (f->type) {
	case PAI_MSG_CH_OPENED:
		return take_opened(ch, f->payload);
	case PAI_MSG_CH_DATA:
		return take_data(ch, f->payload);
	case PAI_MSG_CH_CREDIT:
		return take_credit(ch, f->payload);
	default:
		return f->payload.len > 0 ? -EPROTO : end(ch);
	}
}

/* --- all of them --- */

size_t pai_link_core_channels(const struct pai_link_core *c)
{
	return c->count;
}

void pai_link_channels_resume(struct pai_link_core *c)
{
	struct pai_channel *ch;

	while (pai_link_queue_has_room(&c->queue) && (ch = TAILQ_FIRST(&c->stalled)) != NULL) {
		pai_link_channel_stall(ch, false);
		if (ch->user) {
			pai_link_direct_writable(ch);
		} else {
			watch(ch);
			move(ch, EPOLLIN);
		}
	}
}

/* `fn` may free the channel that it is given, and no other. */
static void for_each(struct pai_link_core *c, void (*fn)(struct pai_channel *ch))
{
	struct pai_channel *ch;
	struct pai_channel *next;

	for (size_t i = 0; i < CHANNEL_BUCKETS; i++) {
		for (ch = LIST_FIRST(&c->channels[i]); ch; ch = next) {
			next = LIST_NEXT(ch, at);
			fn(ch);
		}
	}
}

static void end_one(struct pai_channel *ch)
{
	if (!ch->got_end) {
		(void)end(ch); /* nobody hears of it any more */
	}
}

void pai_link_channels_end(struct pai_link_core *c)
{
	for_each(c, end_one);
}

/* What its user wrote is read, as far as it may be sent now: the rest when it may. */
static void close_one(struct pai_channel *ch)
{
	struct pai_link_core *c = ch->core;
	int put = 0;
	int r = 1;

	while (ch->fd >= 0 && !ch->sent_end && r == 1) {
		r = read_step(ch, &put);
	}
	if (ch->fd < 0) {
		put = put ? put : pai_link_channel_put_end(ch);
	}
	if (ch->user) {
		pai_link_direct_ended(ch);
	} else {
		pai_link_channel_free_if_over(ch);
	}
	pai_link_core_flush(c, put);
}

int pai_link_channels_bye(struct pai_link_core *c)
{
	struct pai_channel *ch;

	if (!c->closing || c->farewell) {
		return 0;
	}
	for (size_t i = 0; i < CHANNEL_BUCKETS; i++) {
		LIST_FOREACH(ch, &c->channels[i], at)
		{
			if (!ch->sent_end) {
				return 0;
			}
		}
	}
	c->farewell = true;
	return pai_link_queue_put(&c->queue, PAI_MSG_LINK_BYE, 0, NULL, 0);
}

void pai_link_core_bye(struct pai_link_core *c)
{
	(void)pthread_mutex_lock(&c->lock);
	c->closing = true;
	for_each(c, close_one);
	pai_link_core_flush(c, pai_link_channels_bye(c));
	(void)pthread_mutex_unlock(&c->lock);
}

static void free_one(struct pai_channel *ch)
{
	ch->sent_end = true;
	ch->got_end = true;
	if (ch->user) {
		pai_link_direct_ended(ch);
	} else {
		channel_free(ch);
	}
}

void pai_link_channels_free(struct pai_link_core *c)
{
	for_each(c, free_one);
}

struct pai_channel *pai_link_channel_by_cookie(struct pai_link_core *c, uint64_t cookie)
{
	struct pai_channel *ch;

	for (size_t i = 0; i < CHANNEL_BUCKETS; i++) {
		LIST_FOREACH(ch, &c->channels[i], at)
		{
			if (ch->cookie == cookie && ch->fd >= 0) {
				return ch;
			}
		}
	}
	return NULL;
}
