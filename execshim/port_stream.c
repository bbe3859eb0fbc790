/*
 * States, by fields:
 *   !started       EXEC is out; nothing is read from who is connected
 *   started        bytes go both ways, within the credit of each
 *   !is_reading    who is connected has closed its direction, and the sandbox was told
 *   far_ended      STDOUT_EOF has come; has_shut: ... and was passed on, behind what came before
 *   ended          EXIT has come: what is queued is written, then it is over
 *
 * Who goes away before the end needs no words: closing the connection to the daemon kills the
 * stream in the sandbox.
 */
#include "execshim/port_stream.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "execshim/sink.h"
#include "providers/base/clock.h"
#include "providers/wire/control_msg.h"
#include "providers/wire/exec_msg.h"

#define STREAM_ID 1u
#define CREDIT_STEP (PAI_EXEC_WINDOW / 4)
#define SINK_MAX (3u * PAI_EXEC_WINDOW)
#define OUT_HIGH (1u << 20)
/* The daemon's own deadlines (create_timeout) are shorter; this is for one that hangs. */
#define START_MS (15 * 60 * 1000)

struct pai_port_stream {
	struct pai_client *c;
	int fd; /* of who is connected */
	struct pai_sink sink;
	uint64_t granted; /* what the daemon may have sent so far */
	uint64_t credit;  /* what may be sent to it */
	uint64_t start_by_ms;
	bool started, is_reading, far_ended, has_shut, ended;
	bool is_whole; /* both directions have ended, by the far end's word */
};

static int bad_frame(struct pai_err *err, const char *what)
{
	return pai_err_set(err, PAI_E_PROTOCOL, "the daemon sent %s", what);
}

static int put(struct pai_err *err, int r)
{
	return r < 0 ? pai_err_errno(err, -r, "queue a message for the daemon") : 0;
}

/* --- the daemon's words --- */

static int on_output(struct pai_port_stream *s, struct pai_view data, struct pai_err *err)
{
	if (!s->started || s->far_ended || s->ended || s->sink.received + data.len > s->granted) {
		return bad_frame(err, "bytes that it may not send");
	}
	return pai_sink_put(&s->sink, data.data, data.len) < 0 ? pai_err_no_memory(err) : 0;
}

static int on_far_end(struct pai_port_stream *s, struct pai_err *err)
{
	if (!s->started || s->far_ended || s->ended) {
		return bad_frame(err, "an end that has no place here");
	}
	s->far_ended = true;
	return 0;
}

static int on_started(struct pai_port_stream *s, struct pai_view payload, struct pai_err *err)
{
	uint32_t pid;
	uint32_t credit;

	if (s->started || s->ended || pai_exec_get_started(payload, &pid, &credit) < 0) {
		return bad_frame(err, "a bad STARTED");
	}
	s->started = true;
	s->credit = credit;
	return 0;
}

static int on_credit(struct pai_port_stream *s, struct pai_view payload, struct pai_err *err)
{
	uint8_t stream;
	uint32_t bytes;

	if (pai_exec_get_credit(payload, &stream, &bytes) < 0 || stream != 0) {
		return bad_frame(err, "a bad CREDIT");
	}
	s->credit += bytes;
	return 0;
}

static int on_exit_frame(struct pai_port_stream *s, struct pai_view payload, struct pai_err *err)
{
	struct pai_exec_exit e;

	if (!s->started || s->ended || pai_exec_get_exit(payload, &e) < 0) {
		return bad_frame(err, "a bad EXIT");
	}
	s->ended = true;
	s->is_reading = false;
	s->is_whole = e.kind == PAI_EXIT_CODE && e.value == 0 && e.stdout_bytes == s->sink.received;
	/* A server that cuts a connection is its own business; that nobody knows is ours. */
	return e.kind == PAI_EXIT_UNKNOWN ? pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL,
						"the way to the sandbox was lost")
					  : 0;
}

static int on_failed(struct pai_view payload, struct pai_err *err)
{
	enum pai_exec_fail_phase phase;
	char message[256];
	int errnum;

	if (pai_exec_get_failed(payload, &phase, &errnum, message) < 0) {
		return bad_frame(err, "a bad FAILED");
	}
	(void)pai_err_set(err, PAI_E_SYS, "%s",
	    errnum == ECONNREFUSED ? "nothing listens there in the sandbox" : message);
	err->errnum = errnum ? errnum : EIO;
	return -err->errnum;
}

static int on_object(uint8_t type, struct pai_view payload, struct pai_err *err)
{
	pai_auto_json struct pai_json *obj = NULL;

	if (pai_json_parse(payload.data, payload.len, PAI_CLIENT_JSON_DEPTH, &obj, err) < 0) {
		return pai_err_wrap(err, "the daemon's message");
	}
	if (type == PAI_MSG_ERROR) {
		(void)pai_json_to_err(obj, err);
		return -err->errnum;
	}
	if (type == PAI_MSG_NOTICE && pai_json_bool(obj, "environmentReset", false)) {
		(void)fprintf(
		    stderr, "pai: the environment was reset: what was started in it is gone\n");
	}
	return 0;
}

static int on_frame(struct pai_port_stream *s, const struct pai_frame *f, struct pai_err *err)
{
	uint64_t taken;

	if (f->id != STREAM_ID) {
		return bad_frame(err, "an answer to something else");
	}
	switch (f->type) {
	case PAI_MSG_STDOUT:
		return on_output(s, f->payload, err);
	case PAI_MSG_STDOUT_EOF:
		return on_far_end(s, err);
	case PAI_MSG_STARTED:
		return on_started(s, f->payload, err);
	case PAI_MSG_CREDIT:
		return on_credit(s, f->payload, err);
	case PAI_MSG_STDIN_TAKEN:
		return pai_exec_get_stdin_taken(f->payload, &taken) < 0
			   ? bad_frame(err, "a bad STDIN_TAKEN")
			   : 0;
	case PAI_MSG_EXIT:
		return on_exit_frame(s, f->payload, err);
	case PAI_MSG_FAILED:
		return on_failed(f->payload, err);
	case PAI_MSG_ERROR:
	case PAI_MSG_NOTICE:
	case PAI_MSG_STATUS:
		return on_object(f->type, f->payload, err);
	default:
		return bad_frame(err, "a message that has no place here");
	}
}

static int read_daemon(struct pai_port_stream *s, struct pai_err *err)
{
	struct pai_frame frame;
	int r = pai_client_fill(s->c, err);

	while (r > 0 && !s->ended) {
		r = pai_client_next(s->c, &frame, err);
		if (r > 0 && on_frame(s, &frame, err) < 0) {
			return -err->errnum;
		}
	}
	return r < 0 ? r : 0;
}

/* --- who is connected --- */

static int read_local(struct pai_port_stream *s, struct pai_err *err)
{
	struct pai_buf *out = pai_client_out(s->c);
	size_t room = s->credit < PAI_FRAME_DATA_MAX ? (size_t)s->credit : PAI_FRAME_DATA_MAX;
	size_t before = out->len;
	ssize_t begun = pai_frame_begin(out, PAI_MSG_STDIN, STREAM_ID);
	int r = begun < 0 ? (int)begun : pai_buf_reserve(out, room);
	ssize_t n;

	if (r < 0) {
		return put(err, r);
	}
	n = recv(s->fd, out->data + out->len, room, MSG_DONTWAIT);
	if (n > 0) {
		out->len += (size_t)n;
		s->credit -= (uint64_t)n;
		return put(err, pai_frame_end(out, begun));
	}
	out->len = before;
	if (n < 0) {
		return errno == EINTR || errno == EAGAIN ? 0 : pai_err_sys(err, "recv");
	}
	s->is_reading = false;
	return put(err, pai_exec_put_empty(out, STREAM_ID, PAI_MSG_STDIN_EOF));
}

static bool wants_local(const struct pai_port_stream *s)
{
	return s->started && s->is_reading && s->credit > 0 && pai_client_pending(s->c) < OUT_HIGH;
}

static int grant_credit(struct pai_port_stream *s, struct pai_err *err)
{
	uint32_t bytes = s->ended ? 0 : pai_sink_credit(&s->sink, CREDIT_STEP);

	s->granted += bytes;
	return bytes > 0 ? put(err, pai_exec_put_credit(pai_client_out(s->c), STREAM_ID, 1, bytes))
			 : 0;
}

/* --- one of many --- */

void pai_port_stream_poll(const struct pai_port_stream *s, struct pollfd ret[2])
{
	short local =
	    (short)((wants_local(s) ? POLLIN : 0) | (pai_sink_pending(&s->sink) > 0 ? POLLOUT : 0));

	ret[0] = (struct pollfd){.fd = s->ended ? -1 : pai_client_fd(s->c), .events = POLLIN};
	ret[0].events |= pai_client_pending(s->c) > 0 ? POLLOUT : 0;
	/* Once this side is shut the other's close is a hang-up, which must not be told again and
	 * again while its bytes are not wanted. */
	ret[1] = (struct pollfd){.fd = local || !s->has_shut ? s->fd : -1, .events = local};
}

uint64_t pai_port_stream_deadline(const struct pai_port_stream *s)
{
	return s->started ? PAI_NO_DEADLINE : s->start_by_ms;
}

/* 1: goes on. 0: over. */
static int after_turn(struct pai_port_stream *s)
{
	const struct linger off = {0};

	if (s->sink.failed) {
		return 0;
	}
	if (pai_sink_pending(&s->sink) > 0) {
		return 1;
	}
	if (s->ended) {
		if (s->is_whole) {
			(void)setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &off, sizeof(off));
		}
		return 0;
	}
	if (s->far_ended && !s->has_shut) {
		s->has_shut = true;
		(void)shutdown(s->fd, SHUT_WR);
	}
	return 1;
}

int pai_port_stream_turn(struct pai_port_stream *s, const struct pollfd fds[2], struct pai_err *err)
{
	if (!s->started && pai_deadline_passed(s->start_by_ms)) {
		return pai_err_set(
		    err, PAI_E_TIMEOUT, "the daemon has not answered in %d min", START_MS / 60000);
	}
	if (fds[1].revents & POLLOUT) {
		pai_sink_pump(&s->sink);
	}
	if (wants_local(s) && fds[1].revents & (POLLIN | POLLERR | POLLHUP)) {
		struct pai_err gone = PAI_ERR_INIT;

		if (read_local(s, &gone) < 0) {
			return 0; /* reset by who was connected */
		}
	} else if (fds[1].revents & (POLLERR | POLLHUP) && !s->has_shut) {
		return 0;
	}
	if (fds[0].revents & ~POLLOUT && read_daemon(s, err) < 0) {
		return -err->errnum;
	}
	if (grant_credit(s, err) < 0 || pai_client_flush(s->c, err) < 0) {
		return -err->errnum;
	}
	return after_turn(s);
}

static int put_exec(
    struct pai_port_stream *s, const struct pai_target *t, uint16_t port, struct pai_err *err)
{
	char proto[] = "tcp";
	char text[8];
	char *argv[] = {proto, text, NULL};
	char *env[] = {NULL};
	struct pai_control_exec e = {
	    .key = (char *)t->place.key,
	    /* A caller of its own: the shell that this was started in is still told of a reset. */
	    .caller_sid = (uint32_t)getpid(),
	    .start = {.flags = PAI_START_CONNECT | PAI_START_STDIN,
		.argv = argv,
		.cwd = t->place.cwd,
		.env = env},
	};

	(void)snprintf(text, sizeof(text), "%u", port);
	return put(err, pai_control_put_exec(pai_client_out(s->c), STREAM_ID, &e));
}

int pai_port_stream_new(const struct pai_target *t, uint16_t port, int take_fd,
    struct pai_port_stream **ret, struct pai_err *err)
{
	const struct linger reset = {.l_onoff = 1};
	const int on = 1;
	struct pai_port_stream *s = calloc(1, sizeof(*s));
	int r;

	(void)setsockopt(take_fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	(void)setsockopt(take_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!s) {
		(void)close(take_fd);
		return pai_err_no_memory(err);
	}
	s->fd = take_fd;
	s->granted = PAI_EXEC_WINDOW;
	s->is_reading = true;
	s->start_by_ms = pai_deadline_in(START_MS);
	pai_sink_init(&s->sink, take_fd, SINK_MAX);
	r = pai_target_open(t, "pai", true, &s->c, err);
	r = r < 0 ? r : put_exec(s, t, port, err);
	r = r < 0 ? r : pai_client_flush(s->c, err);
	if (r < 0) {
		pai_port_stream_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void pai_port_stream_free(struct pai_port_stream *s)
{
	if (s) {
		pai_client_free(s->c);
		pai_sink_fini(&s->sink);
		(void)close(s->fd);
		free(s);
	}
}
