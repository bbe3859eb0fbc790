/*
 * A thread for each connection, as the ssh program is a process for each: to encrypt on the loop of
 * all lines would take the time of all of them, and a session of libssh2 is one thread's anyway.
 * One poll() waits for the connection and for the user's end.
 *
 * libssh2's packets go out one after the other: a call that returned EAGAIN with a part of its
 * packet sent has to be made again before any other that may send, and reading may (a window's
 * adjustment), or libssh2 fails with BAD_USE. `stuck` is that call. The server reads whatever its
 * own output does, so that waiting for it alone comes to an end.
 *
 * What poll() has not told of is not read: each try is a system call, and libssh2's reading goes on
 * until there is nothing more. What it has taken from the connection meanwhile (while it wrote,
 * say) lies in its queue, which is asked for free.
 *
 *   user end closed for writing, out empty   EOF is sent
 *   channel's end, in empty                  the stream is over, the ending told, then closed
 *   user end closed                          the rest is sent, within LEAVE_MS
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "providers/base/buf.h"
#include "providers/base/clock.h"
#include "providers/transport/ssh_lib.h"

#define CHUNK (64u << 10)
#define ROOM (512u << 10) /* of each direction */
#define WORDS_MAX 8192
#define LEAVE_MS 2000  /* for the far side to end when its stream has been closed */
#define STATUS_MS 1000 /* for the status behind the last byte */
#define STREAM_ERR 1

/* Bytes on their way, from `at` on: moved to the front only when their room is wanted. */
struct side {
	struct pai_buf buf;
	size_t at;
};

struct pump {
	struct pai_ssh_lib lib;
	int user_fd;
	struct pai_ssh_ending *ending;
	struct side out, in;
	struct pai_buf words;
	bool user_ended, user_gone, eof_sent, net_ended;
	bool user_ready, net_ready; /* may have something to read */
	uint64_t end_by_ms;
	int (*stuck)(struct pump *p);
	int failed; /* of libssh2 */
};

static size_t waiting(const struct side *s)
{
	return s->buf.len - s->at;
}

/* Whether a chunk may come, and room for it. */
static bool has_room(const struct side *s)
{
	return waiting(s) <= ROOM - CHUNK;
}

static int make_room(struct side *s)
{
	if (s->buf.cap - s->buf.len <= CHUNK && s->at > 0) {
		pai_buf_consume(&s->buf, s->at);
		s->at = 0;
	}
	return pai_buf_reserve(&s->buf, CHUNK);
}

static void took(struct side *s, size_t n)
{
	s->at += n;
	if (s->at == s->buf.len) {
		pai_buf_clear(&s->buf);
		s->at = 0;
	}
}

static void leave(struct pump *p)
{
	if (!p->user_gone) {
		p->user_gone = true;
		p->end_by_ms = pai_deadline_in(LEAVE_MS);
	}
}

/* --- steps: 1 something moved, 0 nothing, negative: the connection is lost --- */

/* What a call of libssh2 that moved nothing means for the next. */
static int note(struct pump *p, ssize_t r, int (*step)(struct pump *p))
{
	if (r == LIBSSH2_ERROR_EAGAIN) {
		p->stuck = libssh2_session_block_directions(p->lib.session) &
				   LIBSSH2_SESSION_BLOCK_OUTBOUND
			       ? step
			       : NULL;
		return 0;
	}
	p->stuck = NULL;
	if (r < 0) {
		p->failed = (int)r;
		return -EIO;
	}
	return r > 0;
}

static int read_out(struct pump *p)
{
	ssize_t n;
	int r;

	if (p->net_ended || !has_room(&p->in) ||
	    (!p->net_ready && !libssh2_poll_channel_read(p->lib.channel, 0))) {
		return 0;
	}
	if (make_room(&p->in) < 0) {
		return -ENOMEM;
	}
	n = libssh2_channel_read(p->lib.channel, p->in.buf.data + p->in.buf.len, CHUNK);
	r = note(p, n, read_out);
	p->net_ready = p->stuck != NULL; /* to be made again, then */
	if (r > 0) {
		p->in.buf.len += p->user_gone ? 0 : (size_t)n;
	}
	return r;
}

/* It shares the channel's window: what nobody wants is dropped, or it would end all reading. */
static int read_words(struct pump *p)
{
	char piece[4096];
	ssize_t n;
	int r;

	if (p->stuck != read_words && !libssh2_poll_channel_read(p->lib.channel, STREAM_ERR)) {
		return 0;
	}
	n = libssh2_channel_read_ex(p->lib.channel, STREAM_ERR, piece, sizeof(piece));
	r = note(p, n, read_words);
	if (r > 0) {
		size_t room = p->words.max - p->words.len;

		(void)!pai_buf_add(&p->words, piece, (size_t)n < room ? (size_t)n : room);
	}
	return r;
}

static int write_out(struct pump *p)
{
	ssize_t n;
	int r;

	if (waiting(&p->out) == 0 || p->eof_sent) {
		return 0;
	}
	n = libssh2_channel_write(p->lib.channel, p->out.buf.data + p->out.at, waiting(&p->out));
	r = note(p, n, write_out);
	if (r > 0) {
		took(&p->out, (size_t)n);
	}
	return r;
}

static int send_eof(struct pump *p)
{
	int r;

	if (!p->user_ended || waiting(&p->out) > 0 || p->eof_sent) {
		return 0;
	}
	r = libssh2_channel_send_eof(p->lib.channel);
	p->eof_sent = r == 0;
	return note(p, r, send_eof);
}

static int read_user(struct pump *p)
{
	ssize_t n;

	if (!p->user_ready || p->user_ended || !has_room(&p->out)) {
		return 0;
	}
	if (make_room(&p->out) < 0) {
		return -ENOMEM;
	}
	n = recv(p->user_fd, p->out.buf.data + p->out.buf.len, CHUNK, MSG_DONTWAIT);
	p->user_ready = n == CHUNK;
	if (n > 0) {
		p->out.buf.len += (size_t)n;
		return 1;
	}
	p->user_ended = n == 0 || (errno != EAGAIN && errno != EINTR);
	return 0;
}

static int write_user(struct pump *p)
{
	ssize_t n;

	if (waiting(&p->in) == 0 || p->user_gone) {
		took(&p->in, waiting(&p->in));
		return 0;
	}
	n = send(
	    p->user_fd, p->in.buf.data + p->in.at, waiting(&p->in), MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n > 0) {
		took(&p->in, (size_t)n);
		return 1;
	}
	if (errno != EAGAIN && errno != EINTR) {
		leave(p);
	}
	return 0;
}

/* --- the thread --- */

static int move(struct pump *p)
{
	static int (*const steps[])(struct pump * p) = {
	    read_user, write_out, send_eof, read_out, write_user, read_words};
	bool moved;

	do {
		moved = false;
		for (size_t i = 0; i < PAI_COUNT(steps); i++) {
			bool ours = steps[i] == read_user || steps[i] == write_user;
			int r;

			if (p->stuck && p->stuck != steps[i] && !ours) {
				continue;
			}
			r = steps[i](p);
			if (r < 0) {
				return r;
			}
			moved = moved || r > 0;
		}
	} while (moved);
	p->net_ended = libssh2_channel_eof(p->lib.channel); /* nothing is queued before it */
	return 0;
}

/* False: the time is over. */
static bool wait(struct pump *p)
{
	struct pollfd fds[2] = {{.fd = p->lib.fd}, {.fd = p->user_gone ? -1 : p->user_fd}};

	if (p->stuck) {
		fds[0].events = POLLOUT;
		if (libssh2_session_block_directions(p->lib.session) &
		    LIBSSH2_SESSION_BLOCK_INBOUND) {
			fds[0].events |= POLLIN;
		}
	} else if (has_room(&p->in) || waiting(&p->out) > 0) {
		fds[0].events = POLLIN; /* also a window's adjustment */
	}
	if (!fds[0].events) {
		fds[0].fd = -1; /* one that has hung up would be told of for ever */
	}
	if (!p->user_ended && has_room(&p->out)) {
		fds[1].events |= POLLIN;
	}
	if (waiting(&p->in) > 0) {
		fds[1].events |= POLLOUT;
	}
	pai_ssh_lib_leave();
	(void)poll(fds, PAI_COUNT(fds), pai_deadline_poll_ms(p->end_by_ms));
	pai_ssh_lib_enter();
	p->net_ready = p->net_ready || fds[0].revents;
	p->user_ready = p->user_ready || fds[1].revents;
	if (fds[1].revents & (POLLHUP | POLLERR)) {
		leave(p);
	}
	return !pai_deadline_passed(p->end_by_ms);
}

/* Told only once the channel is closed: before, and after a loss, libssh2 says that it was 0.
 * As a step. */
static int take_status(struct pump *p)
{
	struct pai_err err = PAI_ERR_INIT;
	char signal_name[32] = "";
	char *name = NULL;
	int r = libssh2_channel_wait_closed(p->lib.channel);

	if (r < 0) {
		return note(p, r, take_status);
	}
	(void)libssh2_channel_get_exit_signal(p->lib.channel, &name, NULL, NULL, NULL, NULL, NULL);
	if (name) {
		(void)snprintf(signal_name, sizeof(signal_name), "SIG%.20s", name);
		libssh2_free(p->lib.session, name);
	}
	(void)!pai_ssh_command_error(p->lib.host, p->words.data ? p->words.data : "",
	    libssh2_channel_get_exit_status(p->lib.channel), signal_name, &err);
	pai_ssh_ending_fail(p->ending, &err);
	return 1;
}

static void tell(struct pump *p)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pollfd fd = {.fd = p->lib.fd};

	p->end_by_ms = pai_deadline_in(STATUS_MS);
	while (p->net_ended && take_status(p) == 0 && !pai_deadline_passed(p->end_by_ms)) {
		fd.events = POLLIN | (p->stuck ? POLLOUT : 0);
		pai_ssh_lib_leave();
		(void)poll(&fd, 1, pai_deadline_poll_ms(p->end_by_ms));
		pai_ssh_lib_enter();
	}
	/* The first word counts: this one for want of another. */
	(void)!pai_ssh_words_error(p->lib.host,
	    p->failed == LIBSSH2_ERROR_SOCKET_SEND ? "Broken pipe" : "closed by remote host", &err);
	pai_ssh_ending_fail(p->ending, &err);
}

/* What came before the end is the user's. */
static void flush_user(struct pump *p)
{
	struct pollfd fd = {.fd = p->user_fd, .events = POLLOUT};

	while (waiting(&p->in) > 0 && !p->user_gone) {
		if (write_user(p) == 0 && !p->user_gone) {
			pai_ssh_lib_leave();
			(void)poll(&fd, 1, -1);
			pai_ssh_lib_enter();
		}
	}
}

static void pump_free(struct pump *p)
{
	pai_ssh_lib_fini(&p->lib);
	pai_auto_fd_p(&p->user_fd);
	pai_ssh_ending_unref(p->ending);
	pai_buf_fini(&p->out.buf);
	pai_buf_fini(&p->in.buf);
	pai_buf_fini(&p->words);
	free(p);
}

static void *run(void *arg)
{
	struct pump *p = arg;

	pai_ssh_lib_enter();
	while (move(p) == 0 && !p->net_ended && wait(p)) {
	}
	flush_user(p);
	tell(p);
	pump_free(p);
	pai_ssh_lib_leave();
	return NULL;
}

int pai_ssh_pump(struct pai_ssh_lib *take_l, int take_fd, struct pai_ssh_ending *take_ending,
    struct pai_err *err)
{
	struct pump *p = calloc(1, sizeof(*p));
	pthread_t thread;
	sigset_t all;
	sigset_t old;
	int r;

	if (!p) {
		pai_ssh_lib_enter();
		pai_ssh_lib_fini(take_l);
		pai_ssh_lib_leave();
		(void)close(take_fd);
		pai_ssh_ending_unref(take_ending);
		return pai_err_no_memory(err);
	}
	*p = (struct pump){.lib = *take_l,
	    .user_fd = take_fd,
	    .ending = take_ending,
	    .out.buf = PAI_BUF_INIT(2 * ROOM),
	    .in.buf = PAI_BUF_INIT(2 * ROOM),
	    .words = PAI_BUF_INIT(WORDS_MAX),
	    .user_ready = true,
	    .net_ready = true,
	    .end_by_ms = PAI_NO_DEADLINE};
	*take_l = (struct pai_ssh_lib){.fd = -1};
	(void)sigfillset(&all); /* signals are the main thread's */
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&thread, NULL, run, p);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r) {
		pai_ssh_lib_enter();
		pump_free(p);
		pai_ssh_lib_leave();
		return pai_err_errno(err, r, "start a thread");
	}
	(void)pthread_detach(thread);
	return 0;
}
