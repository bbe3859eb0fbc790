/*
 * Invariants
 *   nothing but HELLO is accepted first, nothing is sent before READY
 *   READY is sent after every command of the older line of the same client is dead
 *   data frames are added only below DATA_ROOM; control frames always, up to OUT_MAX
 *   `doomed` lines send and accept nothing; they are freed by their own timer, never inside a call
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "providers/base/clock.h"
#include "providers/helper/supervise.h"

#define READ_STEP (256u << 10)
#define IN_MAX (PAI_FRAME_HEADER + PAI_FRAME_MAX + READ_STEP)
#define DATA_ROOM (512u << 10)
#define OUT_MAX (8u << 20)     /* control frames of a peer that never reads */
#define HELLO_WITHIN_MS 90000  /* past what a link takes to come back without a loss */
#define SOCKET_BYTES (1 << 20) /* best effort: the kernel caps it */

struct line {
	LIST_ENTRY(line) at;
	struct supervisor *sv;
	struct pai_loop_io *io;
	struct pai_loop_timer *end; /* armed when doomed */
	int fd;
	bool said_hello, is_ready, doomed;
	bool waits_to_send;
	size_t fencing; /* commands of the older line that are not dead yet */
	uint64_t hello_by_ms;
	uint64_t epoch;
	char who[129];
	struct pai_buf in;
	struct pai_buf out;
	size_t out_at; /* sent so far */
};

static void doom(struct line *l)
{
	if (!l->doomed) {
		l->doomed = true;
		pai_loop_io_set(l->io, 0);
		pai_loop_timer_set(l->end, 0);
	}
}

/* --- out --- */

struct pai_buf *pai_helper_line_out(struct line *l)
{
	return &l->out;
}

bool pai_helper_line_has_room(const struct line *l)
{
	return !l->doomed && l->out.len - l->out_at < DATA_ROOM;
}

static void send_some(struct line *l)
{
	while (l->out_at < l->out.len) {
		ssize_t n =
		    send(l->fd, l->out.data + l->out_at, l->out.len - l->out_at, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			if (errno != EAGAIN) {
				doom(l);
			}
			return;
		}
		l->out_at += (size_t)n;
	}
	pai_buf_clear(&l->out);
	l->out_at = 0;
}

void pai_helper_line_flush(struct line *l, int put_result)
{
	bool was_full = !pai_helper_line_has_room(l);

	if (l->doomed) {
		return;
	}
	if (put_result < 0) {
		doom(l);
		return;
	}
	send_some(l);
	/* Here, whoever flushes: a frame for another command may be what empties the buffer, and
	 * then no EPOLLOUT comes for those that wait for room. */
	if (was_full && pai_helper_line_has_room(l)) {
		pai_command_resume_all(l->sv, l);
	}
	if (!l->doomed && l->waits_to_send != (l->out.len > 0)) {
		l->waits_to_send = l->out.len > 0;
		pai_loop_io_set(l->io, l->waits_to_send ? EPOLLIN | EPOLLOUT : EPOLLIN);
	}
	/* What was sent in part makes place at the front before the buffer grows for it. */
	if (l->out_at > DATA_ROOM) {
		pai_buf_consume(&l->out, l->out_at);
		l->out_at = 0;
	}
}

const char *pai_helper_line_who(const struct line *l)
{
	return l->who;
}

static void say_ready(struct line *l)
{
	struct pai_line_hello ready = {
	    .version = PAI_LINE_VERSION,
	    .features = PAI_LINE_CONNECT | PAI_LINE_LINGER,
	};

	l->is_ready = true;
	memcpy(ready.who, l->sv->incarnation, sizeof(ready.who));
	pai_helper_line_flush(l, pai_line_put_hello(&l->out, PAI_MSG_LINE_READY, &ready));
}

void pai_helper_line_fence_done(struct line *l)
{
	if (--l->fencing == 0) {
		say_ready(l);
	}
}

/* --- in --- */

static int take_hello(struct line *l, struct pai_view payload)
{
	struct pai_line_hello hello;
	struct line *other;
	struct line *next;
	int r = pai_line_get_hello(PAI_MSG_LINE_HELLO, payload, &hello);

	if (r < 0 || hello.who[0] == '\0') {
		return -EPROTO;
	}
	l->said_hello = true;
	l->epoch = hello.epoch;
	memcpy(l->who, hello.who, sizeof(l->who));
	for (other = LIST_FIRST(&l->sv->lines); other; other = next) {
		next = LIST_NEXT(other, at);
		if (other == l || !other->said_hello || strcmp(other->who, l->who) != 0) {
			continue;
		}
		if (other->epoch >= l->epoch) {
			return -EPROTO; /* this one is the older */
		}
		/* Whoever it was waiting for, this line waits for too. */
		l->fencing += pai_command_orphan_all(l->sv, other, l);
		doom(other);
	}
	l->fencing += pai_command_fence_orphans(l->sv, l);
	if (l->fencing == 0) {
		say_ready(l);
	}
	return 0;
}

static int take_start(struct line *l, const struct pai_frame *f)
{
	struct pai_exec_start start = {0};
	int r;

	if (pai_command_find(l->sv, l, f->id)) {
		return -EPROTO;
	}
	r = pai_exec_get_start(f->payload, &start);
	if (r < 0) {
		return r;
	}
	pai_command_start(l->sv, l, f->id, &start);
	pai_exec_start_fini(&start);
	return 0;
}

/* A command that has just ended is no error: the frames crossed. */
static int take_command_frame(struct command *c, const struct pai_frame *f)
{
	uint16_t rows;
	uint16_t columns;
	uint32_t bytes;
	uint8_t stream;
	int signo;
	int r = 0;

	switch (f->type) {
	case PAI_MSG_STDIN:
		return c ? pai_command_stdin(c, f->payload.data, f->payload.len) : 0;
	case PAI_MSG_CREDIT:
		r = pai_exec_get_credit(f->payload, &stream, &bytes);
		return r < 0 || !c ? r : pai_command_credit(c, stream, bytes);
	case PAI_MSG_SIGNAL:
		r = pai_exec_get_signal(f->payload, &signo);
		if (r == 0 && c) {
			pai_command_signal(c, signo);
		}
		return r;
	case PAI_MSG_RESIZE:
		r = pai_exec_get_resize(f->payload, &rows, &columns);
		if (r == 0 && c) {
			pai_command_resize(c, rows, columns);
		}
		return r;
	case PAI_MSG_STDIN_EOF:
	case PAI_MSG_CANCEL:
		if (f->payload.len > 0) {
			return -EPROTO;
		}
		if (c) {
			(f->type == PAI_MSG_CANCEL ? pai_command_cancel : pai_command_stdin_eof)(c);
		}
		return 0;
	default:
		return -EPROTO;
	}
}

static int take_frame(struct line *l, const struct pai_frame *f)
{
	if (!l->said_hello) {
		return f->type == PAI_MSG_LINE_HELLO ? take_hello(l, f->payload) : -EPROTO;
	}
	if (!l->is_ready) {
		return -EPROTO;
	}
	switch (f->type) {
	case PAI_MSG_PING:
		if (f->payload.len > 64) {
			return -EPROTO;
		}
		pai_helper_line_flush(l,
		    pai_frame_put(&l->out, PAI_MSG_PONG, f->id, f->payload.data, f->payload.len));
		return 0;
	case PAI_MSG_START:
		return take_start(l, f);
	default:
		return take_command_frame(pai_command_find(l->sv, l, f->id), f);
	}
}

static void take_frames(struct line *l)
{
	struct pai_frame frame;
	size_t at = 0;
	int r = 0;

	while (!l->doomed && r >= 0 && (r = pai_frame_next(&l->in, &at, &frame)) == 1) {
		r = take_frame(l, &frame);
	}
	if (r < 0) {
		doom(l);
		return;
	}
	pai_buf_consume(&l->in, at);
}

static void on_line(void *arg, uint32_t events)
{
	struct line *l = arg;
	ssize_t n;

	if (events & EPOLLOUT) {
		pai_helper_line_flush(l, 0);
	}
	if (l->doomed || !(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
		return;
	}
	if (pai_buf_reserve(&l->in, READ_STEP) < 0) {
		doom(l);
		return;
	}
	n = recv(l->fd, l->in.data + l->in.len, READ_STEP, 0);
	if (n > 0) {
		l->in.len += (size_t)n;
		take_frames(l);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		doom(l);
	}
}

/* --- life --- */

static void on_end(void *arg)
{
	pai_helper_line_free(arg);
}

void pai_helper_line_free(struct line *l)
{
	LIST_REMOVE(l, at);
	(void)pai_command_orphan_all(l->sv, l, NULL);
	pai_command_forget_fence(l->sv, l);
	pai_loop_io_free(l->io);
	pai_loop_timer_free(l->end);
	pai_auto_fd_p(&l->fd);
	pai_buf_fini(&l->in);
	pai_buf_fini(&l->out);
	free(l);
}

void pai_helper_line_new(struct supervisor *sv, int take_fd)
{
	struct line *l = calloc(1, sizeof(*l));

	if (!l) {
		(void)close(take_fd);
		return;
	}
	LIST_INSERT_HEAD(&sv->lines, l, at);
	l->sv = sv;
	l->fd = take_fd;
	l->in.max = IN_MAX;
	l->out.max = OUT_MAX;
	l->hello_by_ms = pai_deadline_in(HELLO_WITHIN_MS);
	(void)setsockopt(
	    l->fd, SOL_SOCKET, SO_SNDBUF, &(int){SOCKET_BYTES}, sizeof(int)); /* best effort */
	l->end = pai_loop_timer_new(sv->loop, PAI_NO_DEADLINE, on_end, l, PAI_ERR_IGNORED());
	l->io = pai_loop_io_new(sv->loop, l->fd, EPOLLIN, on_line, l, PAI_ERR_IGNORED());
	if (!l->end || !l->io) {
		pai_helper_line_free(l);
	}
}

void pai_helper_line_expire(struct supervisor *sv)
{
	struct line *l;

	LIST_FOREACH(l, &sv->lines, at)
	{
		if (!l->said_hello && pai_deadline_passed(l->hello_by_ms)) {
			doom(l);
		}
	}
}
