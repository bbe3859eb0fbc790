/* The loop's half of the daemon's end: receiving, events, the end. */
#include "providers/helper/wire_line.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"

#define SILENT_TICKS 4

/* --- the loop of the process --- */

static pthread_mutex_t loop_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pai_loop *the_loop; /* never ends: lines come and go */

static void *run_loop(void *arg)
{
	struct pai_err err = PAI_ERR_INIT;

	(void)pthread_setname_np(pthread_self(), "pai-exec-line");
	if (pai_loop_run(arg, &err) < 0) {
		pai_log_error("exec", "the loop of the lines ended: %s", err.msg);
	}
	return NULL;
}

struct pai_loop *pai_wire_loop(struct pai_err *err)
{
	struct pai_loop *l;
	pthread_t thread;

	(void)pthread_mutex_lock(&loop_lock);
	l = the_loop;
	if (!l) {
		l = pai_loop_new(err);
		if (l && pthread_create(&thread, NULL, run_loop, l) != 0) {
			(void)pai_err_errno(err, EAGAIN, "start a thread");
			pai_loop_free(l);
			l = NULL;
		}
		if (l) {
			(void)pthread_detach(thread);
		}
		the_loop = l;
	}
	(void)pthread_mutex_unlock(&loop_lock);
	return l;
}

/* --- memory --- */

void pai_wire_line_drop(struct wire_line *l)
{
	if (atomic_fetch_sub(&l->memory, 1) > 1) {
		return;
	}
	pai_auto_fd_p(&l->fd);
	pai_auto_fd_p(&l->nonce_fd);
	pai_buf_fini(&l->in);
	pai_buf_fini(&l->out);
	(void)pthread_mutex_destroy(&l->lock);
	free(l);
}

void pai_wire_command_drop(struct command *c)
{
	if (c && atomic_fetch_sub(&c->refs, 1) == 1) {
		pai_wire_line_drop(c->line);
		free(c);
	}
}

static struct command *command_find_locked(struct wire_line *l, uint32_t id)
{
	struct command *c;

	LIST_FOREACH(c, &l->commands, at)
	{
		if (c->id == id) {
			return c;
		}
	}
	return NULL;
}

/* A reference, or NULL. */
static struct command *command_get(struct wire_line *l, uint32_t id)
{
	struct command *c;

	(void)pthread_mutex_lock(&l->lock);
	c = command_find_locked(l, id);
	if (c) {
		(void)atomic_fetch_add(&c->refs, 1);
	}
	(void)pthread_mutex_unlock(&l->lock);
	return c;
}

/* Out of the table, whose reference goes: the caller holds its own. */
static void command_end(struct command *c)
{
	struct wire_line *l = c->line;

	(void)pthread_mutex_lock(&l->lock);
	assert(!c->ended);
	c->ended = true;
	LIST_REMOVE(c, at);
	(void)pthread_mutex_unlock(&l->lock);
	pai_wire_command_drop(c);
}

/* --- writable again --- */

static void on_writable(struct wire_line *l)
{
	(void)pthread_mutex_lock(&l->lock);
	(void)pai_wire_send_locked(l);
	if (l->out.len == 0) {
		l->out_armed = false;
		pai_loop_io_set(l->io, EPOLLIN);
	}
	(void)pthread_mutex_unlock(&l->lock);
}

/* --- the end of a line --- */

static bool sandbox_gone_locked(const struct wire_line *l)
{
	struct stat st;

	return l->revoked || (l->nonce_fd >= 0 && fstat(l->nonce_fd, &st) == 0 && st.st_nlink == 0);
}

int pai_wire_lost_locked(const struct wire_line *l, struct pai_err *err)
{
	if (sandbox_gone_locked(l)) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "the sandbox is gone");
	}
	(void)pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL, "the line for commands ended");
	err->retryable = false; /* whoever has sent a start can't know what became of it */
	return -err->errnum;
}

/* On the loop's thread, once. */
static void line_die(struct wire_line *l, const char *why)
{
	struct pai_err err = PAI_ERR_INIT;
	struct command *c;

	(void)pthread_mutex_lock(&l->lock);
	l->dead = true;
	(void)pai_wire_lost_locked(l, &err);
	pai_loop_io_free(l->io);
	l->io = NULL;
	pai_loop_timer_free(l->tick);
	l->tick = NULL;
	pai_auto_fd_p(&l->fd);
	l->fd = -1;
	(void)pthread_mutex_unlock(&l->lock);
	if (why) {
		(void)pai_err_wrap(&err, "%s", why);
	}
	pai_wire_command_drop(PAI_TAKE(l->data_for));
	for (;;) {
		(void)pthread_mutex_lock(&l->lock);
		c = LIST_FIRST(&l->commands);
		if (c) {
			(void)atomic_fetch_add(&c->refs, 1);
		}
		(void)pthread_mutex_unlock(&l->lock);
		if (!c) {
			break;
		}
		command_end(c);
		c->events->lost(c->arg, &err);
		pai_wire_command_drop(c);
	}
	pai_wire_line_drop(l);
}

/* --- in --- */

static int take_started(struct command *c, struct pai_view payload)
{
	uint32_t credit;
	uint32_t pid;
	int r = pai_exec_get_started(payload, &pid, &credit);

	if (r < 0 || c->started || credit > PAI_EXEC_WINDOW) {
		return -EPROTO;
	}
	c->started = true;
	(void)pthread_mutex_lock(&c->line->lock);
	c->stdin_credit = credit;
	(void)pthread_mutex_unlock(&c->line->lock);
	c->events->started(c->arg, pid, credit);
	return 0;
}

static int take_failed(struct command *c, struct pai_view payload)
{
	enum pai_exec_fail_phase phase;
	struct pai_err err = PAI_ERR_INIT;
	char message[256];
	int errnum;
	int r = pai_exec_get_failed(payload, &phase, &errnum, message);

	if (r < 0 || c->started) {
		return -EPROTO;
	}
	/* The message says what errnum means. */
	(void)pai_err_set(&err, errnum == ENOMEM ? PAI_E_NO_MEMORY : PAI_E_SYS, "%s", message);
	err.errnum = errnum ? errnum : EIO;
	command_end(c);
	c->events->failed(c->arg, phase, &err);
	return 0;
}

static int take_exit(struct command *c, struct pai_view payload)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_exec_exit e;
	int r = pai_exec_get_exit(payload, &e);
	bool gone;

	if (r < 0 || !c->started || e.stdout_bytes != c->received[0] ||
	    e.stderr_bytes != c->received[1]) {
		return -EPROTO;
	}
	(void)pthread_mutex_lock(&c->line->lock);
	gone = sandbox_gone_locked(c->line);
	(void)pthread_mutex_unlock(&c->line->lock);
	command_end(c);
	if (gone) {
		(void)pai_err_set(&err, PAI_E_NOT_FOUND, "the sandbox is gone");
		c->events->lost(c->arg, &err);
	} else {
		c->events->exited(c->arg, &e);
	}
	return 0;
}

static int take_left(struct command *c, struct pai_view payload)
{
	struct pai_exec_exit e;
	int r = pai_exec_get_exit(payload, &e);

	if (r < 0 || !c->started || !c->lingers) {
		return -EPROTO;
	}
	c->lingers = false;
	if (c->events->left) {
		c->events->left(c->arg, &e);
	}
	return 0;
}

static int take_stdin_credit(struct command *c, struct pai_view payload)
{
	uint32_t bytes;
	uint8_t stream;
	int r = pai_exec_get_credit(payload, &stream, &bytes);

	if (r < 0 || stream != 0 || !c->started) {
		return -EPROTO;
	}
	(void)pthread_mutex_lock(&c->line->lock);
	r = bytes > PAI_EXEC_WINDOW - c->stdin_credit ? -EPROTO : 0;
	if (r == 0) {
		c->stdin_credit += bytes;
	}
	(void)pthread_mutex_unlock(&c->line->lock);
	if (r == 0) {
		c->events->stdin_credit(c->arg, bytes);
	}
	return r;
}

static int take_stdin_taken(struct command *c, struct pai_view payload)
{
	uint64_t bytes;
	int r = pai_exec_get_stdin_taken(payload, &bytes);

	if (r == 0) {
		c->events->stdin_taken(c->arg, bytes);
	}
	return r;
}

static int take_stdout_eof(struct command *c, struct pai_view payload)
{
	if (payload.len > 0 || !c->is_stream || !c->started || c->stdout_ended) {
		return -EPROTO;
	}
	c->stdout_ended = true;
	if (c->events->stdout_ended) {
		c->events->stdout_ended(c->arg);
	}
	return 0;
}

static int take_small(struct wire_line *l, const struct pai_frame *f)
{
	struct command *c;
	int r;

	if (f->type == PAI_MSG_PONG) {
		return 0;
	}
	c = command_get(l, f->id);
	if (!c) {
		return -EPROTO; /* an id has one last frame */
	}
	switch (f->type) {
	case PAI_MSG_STARTED:
		r = take_started(c, f->payload);
		break;
	case PAI_MSG_FAILED:
		r = take_failed(c, f->payload);
		break;
	case PAI_MSG_EXIT:
		r = take_exit(c, f->payload);
		break;
	case PAI_MSG_LEFT:
		r = take_left(c, f->payload);
		break;
	case PAI_MSG_CREDIT:
		r = take_stdin_credit(c, f->payload);
		break;
	case PAI_MSG_STDIN_TAKEN:
		r = take_stdin_taken(c, f->payload);
		break;
	case PAI_MSG_STDOUT_EOF:
		r = take_stdout_eof(c, f->payload);
		break;
	default:
		r = -EPROTO;
	}
	pai_wire_command_drop(c);
	return r;
}

/* The header of a data frame: its bytes are handed on as they come. */
static int begin_data(struct wire_line *l, const struct pai_frame *f, size_t len)
{
	struct command *c = command_get(l, f->id);
	int stream = f->type == PAI_MSG_STDOUT ? 0 : 1;
	bool fits = false;

	if (c) {
		(void)pthread_mutex_lock(&l->lock);
		fits = len <= c->window[stream];
		c->window[stream] -= fits ? (uint32_t)len : 0;
		(void)pthread_mutex_unlock(&l->lock);
	}
	if (!fits || !c->started || (c->stdout_ended && stream == 0) || len > PAI_FRAME_DATA_MAX) {
		pai_wire_command_drop(c);
		return -EPROTO;
	}
	c->received[stream] += len;
	l->data_for = c;
	l->data_left = len;
	l->data_stream = stream;
	return 0;
}

static size_t take_data(struct wire_line *l, const char *data, size_t len)
{
	struct command *c = l->data_for;

	len = len > l->data_left ? l->data_left : len;
	if (len > 0) {
		c->events->output(c->arg, (uint8_t)(l->data_stream + 1), data, len);
	}
	l->data_left -= len;
	if (l->data_left == 0) {
		pai_wire_command_drop(PAI_TAKE(l->data_for));
	}
	return len;
}

/* One step: 1 moved on, 0 more bytes are needed, -EPROTO. */
static int take_next(struct wire_line *l, size_t *at)
{
	struct pai_frame f;
	size_t len;
	int r;

	if (l->data_for) {
		if (*at == l->in.len && l->data_left > 0) {
			return 0;
		}
		*at += take_data(l, l->in.data + *at, l->in.len - *at);
		return 1;
	}
	r = pai_frame_peek(&l->in, *at, &f, &len);
	if (r <= 0) {
		return r;
	}
	if (f.type == PAI_MSG_STDOUT || f.type == PAI_MSG_STDERR) {
		*at += PAI_FRAME_HEADER;
		r = begin_data(l, &f, len);
		return r < 0 ? r : 1;
	}
	if (len > PAI_WIRE_SMALL_MAX) {
		return -EPROTO;
	}
	r = pai_frame_next(&l->in, at, &f);
	if (r == 1 && take_small(l, &f) < 0) {
		return -EPROTO;
	}
	return r;
}

static int take_all(struct wire_line *l)
{
	size_t at = 0;
	int r;

	do {
		r = take_next(l, &at);
	} while (r == 1);
	pai_buf_consume(&l->in, at);
	return r;
}

static void on_line(void *arg, uint32_t events)
{
	struct wire_line *l = arg;
	bool over;
	ssize_t n;

	(void)pthread_mutex_lock(&l->lock);
	over = l->revoked || l->closing;
	(void)pthread_mutex_unlock(&l->lock);
	if (over) {
		line_die(l, NULL);
		return;
	}
	if (events & EPOLLOUT) {
		on_writable(l);
	}
	if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
		return;
	}
	n = recv(l->fd, l->in.data + l->in.len, PAI_WIRE_READ_BYTES, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		return;
	}
	if (n <= 0) {
		line_die(l, NULL);
		return;
	}
	l->in.len += (size_t)n;
	l->heard = true;
	if (take_all(l) < 0) {
		line_die(l, "the supervisor broke the protocol");
	}
}

/* Counted in ticks: a time that passed while this machine slept is one, however long. */
static void on_tick(void *arg)
{
	struct wire_line *l = arg;
	uint64_t tick_ms;

	(void)pthread_mutex_lock(&l->lock);
	tick_ms = l->silence_ms / SILENT_TICKS + 1;
	l->listening = !LIST_EMPTY(&l->commands);
	l->silent = l->heard || !l->listening ? 0 : l->silent + 1;
	l->heard = false;
	if (l->silent > 0 && l->silent < SILENT_TICKS) {
		pai_wire_flush_locked(l, pai_frame_put(&l->out, PAI_MSG_PING, 0, NULL, 0));
	}
	pai_loop_timer_set(l->tick, l->listening ? pai_deadline_in(tick_ms) : PAI_NO_DEADLINE);
	(void)pthread_mutex_unlock(&l->lock);
	if (l->silent >= SILENT_TICKS) {
		line_die(l, "the supervisor does not answer");
	}
}

void pai_wire_line_listen(void *arg)
{
	struct wire_line *l = arg;

	if (l->tick) {
		l->heard = true; /* from now on */
		on_tick(l);
	}
	pai_wire_line_drop(l);
}

void pai_wire_line_attach(void *arg)
{
	struct wire_line *l = arg;

	l->io = pai_loop_io_new(l->loop, l->fd, EPOLLIN, on_line, l, PAI_ERR_IGNORED());
	l->tick = pai_loop_timer_new(l->loop, PAI_NO_DEADLINE, on_tick, l, PAI_ERR_IGNORED());
	if (!l->io || !l->tick) {
		line_die(l, "no memory");
	}
}
