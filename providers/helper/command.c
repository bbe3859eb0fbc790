/*
 * One command's states, entered by enter() alone:
 *
 *   STARTING  the keeper has been forked; nothing is known
 *   RUNNING   STARTED was sent
 *   KILLING   the keeper was told to kill; `kind` says why. From STARTING too
 *   DRAINING  the main process has been reaped; output that is still held by others is read for
 *             DRAIN_MS more, and what lay in the pipes at the exit whatever time it takes. With
 *             LINGER it is read to its end, and LEFT is sent in place of the wait
 *   (freed)   EXIT or FAILED was sent, or nobody wanted it
 *
 * Invariants
 *   sent <= granted on each stream: the peer's window is never overrun
 *   a stream that the line has no room or credit for is not polled: its writer blocks, nobody else
 *   line == NULL: no frame is sent; the streams belong to drains
 *   stdin bytes held here + in the peer's credit <= PAI_EXEC_WINDOW
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/helper/stdin_pipe.h"
#include "providers/helper/supervise.h"

#define DRAIN_MS 200           /* a `tee` behind the shell needs a moment; a server never ends */
#define CONFIRM_MS 15000       /* past the keeper's own bound: then the outcome is unknown */
#define TAKEN_STEP (64u << 10) /* stdin taken between two credits */
#define CREDIT_MAX (1u << 30)  /* no honest peer grants more */
#define END_OF_FILE 4          /* ^D, where a terminal's settings can't be read */

enum state { STARTING, RUNNING, KILLING, DRAINING };

struct output {
	struct command *c;
	struct pai_loop_io *io;
	int fd; /* -1: at its end, or given to a drain */
	uint8_t type;
	bool is_polled;
	uint64_t sent;
	uint64_t granted;
	size_t owed; /* DRAINING: bytes that lay in the pipe at the exit and are not sent yet */
};

struct command {
	LIST_ENTRY(command) at;
	struct supervisor *sv;
	struct line *line;  /* NULL: orphaned */
	struct line *fence; /* told when this command is dead */
	char who[129];      /* whose line it was */
	uint32_t id, flags;
	enum state state;
	struct pai_exec_exit exit;
	pid_t keeper;
	pid_t pid; /* 0: not known */
	int report_fd;
	struct pai_loop_io *report_io;
	struct pai_loop_timer *timer; /* the timeout, then a kill's confirmation, then the drain */
	bool drain_over;
	bool left;            /* LEFT was sent */
	bool out_ends;        /* to be said, once stdout has been read: STDOUT_EOF */
	uint64_t output_left; /* of max_output_bytes */
	struct output out[2];
	int stdin_fd;
	struct pai_loop_io *stdin_io;
	struct pai_buf held; /* stdin that the pipe has not taken */
	bool stdin_eof;
	bool stdin_reported;   /* the peer knows that some was taken */
	uint32_t stdin_unused; /* credit that the peer still has */
};

static void finish(struct command *c);

/* --- streams --- */

static void output_close(struct output *o)
{
	pai_loop_io_free(o->io);
	o->io = NULL;
	pai_auto_fd_p(&o->fd);
	o->fd = -1;
	o->owed = 0;
}

static void output_to_drain(struct output *o)
{
	if (o->fd >= 0) {
		pai_loop_io_free(o->io);
		o->io = NULL;
		o->owed = 0;
		pai_helper_drain(o->c->sv, PAI_TAKE_FD(o->fd));
	}
}

/* --- states --- */

static void enter(struct command *c, enum state next)
{
	c->state = next;
	switch (next) {
	case KILLING:
		pai_loop_timer_set(c->timer, pai_deadline_in(CONFIRM_MS));
		break;
	case DRAINING:
		c->drain_over = c->flags & PAI_START_LINGER;
		pai_loop_timer_set(
		    c->timer, c->drain_over ? PAI_NO_DEADLINE : pai_deadline_in(DRAIN_MS));
		break;
	default:
		break;
	}
}

static void signal_group(struct command *c, int signo)
{
	if (c->pid > 0) {
		(void)kill(-c->pid, signo);
	}
}

static void kill_command(struct command *c, enum pai_exec_exit_kind kind)
{
	if (c->state == DRAINING) {
		/* It has its status; the rest of its group goes, and nobody waits any longer. */
		signal_group(c, SIGKILL);
		c->drain_over = true;
		c->flags &= ~(uint32_t)PAI_START_LINGER;
		c->out[0].owed = 0;
		c->out[1].owed = 0;
		finish(c);
		return;
	}
	if (c->state != KILLING) {
		c->exit.kind = kind;
		c->exit.value = 0;
		enter(c, KILLING);
		(void)kill(c->keeper, SIGTERM);
	}
}

static void command_free(struct command *c)
{
	LIST_REMOVE(c, at);
	if (c->fence) {
		pai_helper_line_fence_done(c->fence);
	}
	for (int i = 0; i < 2; i++) {
		output_close(&c->out[i]);
	}
	pai_loop_io_free(c->report_io);
	pai_loop_io_free(c->stdin_io);
	pai_loop_timer_free(c->timer);
	pai_auto_fd_p(&c->report_fd);
	pai_auto_fd_p(&c->stdin_fd);
	pai_buf_fini(&c->held);
	free(c);
}

/* --- stdin --- */

/* The first byte that is taken is said at once. */
static void report_stdin(struct command *c)
{
	uint32_t grant = PAI_EXEC_WINDOW - c->stdin_unused - (uint32_t)c->held.len;
	bool is_first = c->exit.stdin_bytes > 0 && !c->stdin_reported;
	struct pai_buf *out;
	int r;

	if (c->held.len > 0 && grant < TAKEN_STEP) {
		grant = 0;
	}
	if (!c->line || c->state == STARTING || (grant == 0 && !is_first)) {
		return;
	}
	out = pai_helper_line_out(c->line);
	r = pai_exec_put_stdin_taken(out, c->id, c->exit.stdin_bytes);
	c->stdin_reported = c->exit.stdin_bytes > 0;
	if (r == 0 && grant > 0) {
		r = pai_exec_put_credit(out, c->id, 0, grant);
		c->stdin_unused += grant;
	}
	pai_helper_line_flush(c->line, r);
}

static void stdin_close(struct command *c)
{
	pai_loop_io_free(c->stdin_io);
	c->stdin_io = NULL;
	pai_auto_fd_p(&c->stdin_fd);
	c->stdin_fd = -1;
	pai_buf_clear(&c->held);
}

/* A terminal has no end of file but the character for it. */
static void stdin_end(struct command *c)
{
	struct termios t;
	char eof = END_OF_FILE;

	if (!c->stdin_io) {
		return;
	}
	if (c->flags & PAI_START_PTY) {
		eof = tcgetattr(c->stdin_fd, &t) == 0 ? (char)t.c_cc[VEOF] : eof;
		(void)!write(c->stdin_fd, &eof, 1);
		stdin_close(c);
		return;
	}
	pai_loop_io_free(c->stdin_io);
	c->stdin_io = NULL;
	c->stdin_fd = pai_stdin_pipe_end(PAI_TAKE_FD(c->stdin_fd));
}

/* The command reads no more: what it has left in the pipe counts as not taken. */
static void stdin_over(struct command *c)
{
	uint64_t rest = 0;

	if (!(c->flags & PAI_START_PTY)) {
		pai_loop_io_free(c->stdin_io);
		c->stdin_io = NULL;
		rest = pai_stdin_pipe_unread(PAI_TAKE_FD(c->stdin_fd));
	}
	c->exit.stdin_bytes -= rest < c->exit.stdin_bytes ? rest : c->exit.stdin_bytes;
	stdin_close(c);
}

static void stdin_push(struct command *c)
{
	size_t at = 0;

	while (c->stdin_fd >= 0 && at < c->held.len) {
		ssize_t n = write(c->stdin_fd, c->held.data + at, c->held.len - at);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0 && errno == EAGAIN) {
			break;
		}
		if (n < 0) {
			/* What still comes is thrown away, so that nobody blocks. */
			c->exit.stdin_bytes += at;
			stdin_over(c);
			at = 0;
			break;
		}
		at += (size_t)n;
	}
	c->exit.stdin_bytes += at;
	pai_buf_consume(&c->held, at);
	if (c->held.len == 0 && c->stdin_eof) {
		stdin_end(c);
	}
	if (c->stdin_io) {
		pai_loop_io_set(c->stdin_io, c->held.len > 0 ? EPOLLOUT : 0);
	}
	report_stdin(c);
}

static void on_stdin(void *arg, uint32_t events)
{
	(void)events;
	stdin_push(arg);
}

int pai_command_stdin(struct command *c, const char *data, size_t len)
{
	if (len > c->stdin_unused || c->stdin_eof) {
		return -EPROTO;
	}
	c->stdin_unused -= (uint32_t)len;
	if (c->stdin_fd >= 0) {
		int r = pai_buf_add(&c->held, data, len);

		if (r < 0) {
			return r;
		}
	}
	stdin_push(c);
	return 0;
}

void pai_command_stdin_eof(struct command *c)
{
	c->stdin_eof = true;
	stdin_push(c);
}

/* --- output --- */

/* Polled only while what is read can be sent on, and not before STARTED. */
static void output_arm(struct output *o)
{
	if (o->io) {
		bool wanted =
		    o->c->line && o->sent < o->granted && pai_helper_line_has_room(o->c->line);

		if (wanted != o->is_polled) {
			o->is_polled = wanted;
			pai_loop_io_set(o->io, wanted ? EPOLLIN : 0);
		}
	}
}

/* The command may have ended before its output was read: that changes nothing. */
static void output_over_limit(struct command *c)
{
	if (c->state == DRAINING) {
		c->exit.kind = PAI_EXIT_OUTPUT_LIMIT;
		c->exit.value = 0;
	}
	for (int i = 0; i < 2; i++) {
		output_to_drain(&c->out[i]);
	}
	kill_command(c, PAI_EXIT_OUTPUT_LIMIT);
}

/* Reads straight into the line's buffer, behind the place of the header. */
static ssize_t output_move(struct output *o)
{
	struct command *c = o->c;
	struct pai_buf *out = pai_helper_line_out(c->line);
	size_t want = PAI_FRAME_DATA_MAX;
	size_t take;
	ssize_t n;
	int r;

	want = want > o->granted - o->sent ? o->granted - o->sent : want;
	/* One byte past the limit tells whether it is passed. */
	want = want > c->output_left ? c->output_left + 1 : want;
	r = pai_buf_reserve(out, PAI_FRAME_HEADER + want);
	if (r < 0) {
		pai_helper_line_flush(c->line, r);
		return -EAGAIN;
	}
	n = read(o->fd, out->data + out->len + PAI_FRAME_HEADER, want);
	if (n <= 0) {
		return n < 0 ? -errno : 0;
	}
	take = (uint64_t)n > c->output_left ? (size_t)c->output_left : (size_t)n;
	if (take > 0) {
		pai_frame_header(out->data + out->len, o->type, c->id, take);
		out->len += PAI_FRAME_HEADER + take;
		o->sent += take;
		c->output_left -= take;
		o->owed -= o->owed < take ? o->owed : take;
		pai_helper_line_flush(c->line, 0);
	}
	if (take < (size_t)n) {
		output_over_limit(c);
		return -EFBIG;
	}
	return n;
}

/* Of a stream: once all has been read, and the end is the other end's, not its process's. */
static void say_stdout_ended(struct command *c)
{
	if (c->out_ends && c->out[0].fd < 0 && c->line && c->state == RUNNING) {
		c->out_ends = false;
		pai_helper_line_flush(c->line,
		    pai_exec_put_empty(pai_helper_line_out(c->line), c->id, PAI_MSG_STDOUT_EOF));
	}
}

static void on_output(void *arg, uint32_t events)
{
	struct output *o = arg;
	struct command *c = o->c;
	ssize_t n;

	(void)events;
	n = output_move(o);
	if (n == -EFBIG) {
		return; /* c may be gone */
	}
	if (n == 0 || (n < 0 && n != -EAGAIN && n != -EINTR)) {
		output_close(o); /* a terminal's end is EIO */
		say_stdout_ended(c);
	}
	output_arm(o);
	if (c->state == DRAINING) {
		finish(c);
	}
}

int pai_command_credit(struct command *c, uint8_t stream, uint32_t bytes)
{
	struct output *o;

	if (stream == 0 || bytes > CREDIT_MAX) {
		return -EPROTO;
	}
	o = &c->out[stream - 1];
	if (o->granted - o->sent > CREDIT_MAX) {
		return -EPROTO;
	}
	o->granted += bytes;
	output_arm(o);
	return 0;
}

void pai_command_resume_all(struct supervisor *sv, const struct line *l)
{
	struct command *c;

	LIST_FOREACH(c, &sv->commands, at)
	{
		if (c->line == l) {
			output_arm(&c->out[0]);
			output_arm(&c->out[1]);
		}
	}
}

/* --- the end --- */

/* The caller goes on as after EXIT; what others still say comes behind it. */
static void say_left(struct command *c)
{
	if (!c->left) {
		c->left = true;
		c->exit.stdout_bytes = c->out[0].sent;
		c->exit.stderr_bytes = c->out[1].sent;
		pai_helper_line_flush(
		    c->line, pai_exec_put_left(pai_helper_line_out(c->line), c->id, &c->exit));
	}
}

/* Sends EXIT when nothing more is to come, and frees. */
static void finish(struct command *c)
{
	bool waits = false;
	bool lingers = false;

	for (int i = 0; i < 2 && c->line; i++) {
		struct output *o = &c->out[i];

		waits = waits || (o->fd >= 0 && (!c->drain_over || o->owed > 0));
		lingers = lingers || (o->fd >= 0 && c->flags & PAI_START_LINGER);
	}
	if (waits) {
		return;
	}
	if (lingers) {
		say_left(c);
		return;
	}
	for (int i = 0; i < 2; i++) {
		c->exit.cut = c->exit.cut || c->out[i].fd >= 0;
		output_to_drain(&c->out[i]);
	}
	if (c->line) {
		c->exit.stdout_bytes = c->out[0].sent;
		c->exit.stderr_bytes = c->out[1].sent;
		pai_helper_line_flush(
		    c->line, pai_exec_put_exit(pai_helper_line_out(c->line), c->id, &c->exit));
	}
	command_free(c);
}

static void exited(struct command *c, int status, bool confirmed)
{
	if (!confirmed) {
		c->exit.kind = PAI_EXIT_UNKNOWN;
		c->exit.value = 0;
	} else if (c->state != KILLING) {
		c->exit.kind = WIFSIGNALED(status) ? PAI_EXIT_SIGNAL : PAI_EXIT_CODE;
		c->exit.value = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
	}
	stdin_over(c);
	/* Whoever had it killed may not be reading any more: then the drain's bound is all. */
	for (int i = 0; i < 2 && c->state != KILLING; i++) {
		int owed = 0;

		if (c->out[i].fd >= 0 && ioctl(c->out[i].fd, FIONREAD, &owed) == 0 && owed > 0) {
			c->out[i].owed = (size_t)owed;
		}
	}
	pai_loop_io_free(c->report_io);
	c->report_io = NULL;
	if (c->state == KILLING) {
		c->flags &= ~(uint32_t)PAI_START_LINGER;
	}
	enter(c, DRAINING);
	/* What is there goes out now, so that a short command ends in one round. */
	for (int i = 0; i < 2; i++) {
		struct output *o = &c->out[i];
		ssize_t n = 1;

		while (n > 0 && c->line && o->fd >= 0 && o->sent < o->granted &&
		       pai_helper_line_has_room(c->line)) {
			n = output_move(o);
		}
		if (n == -EFBIG) {
			return;
		}
		if (n == 0 || (n < 0 && n != -EAGAIN && n != -EINTR)) {
			output_close(o);
		}
		output_arm(o);
	}
	finish(c);
}

static const char *describe(int errnum)
{
	const char *text = strerrordesc_np(errnum);

	return text ? text : "unknown error";
}

static void failed(struct command *c, enum pai_exec_fail_phase phase, int errnum)
{
	if (c->line) {
		pai_helper_line_flush(c->line, pai_exec_put_failed(pai_helper_line_out(c->line),
						   c->id, phase, errnum, describe(errnum)));
	}
	command_free(c);
}

static void started(struct command *c, pid_t pid)
{
	uint32_t credit = c->flags & PAI_START_STDIN ? PAI_EXEC_WINDOW : 0;

	c->pid = pid;
	c->stdin_unused = credit;
	if (c->state == STARTING) {
		enter(c, RUNNING);
	}
	if (c->line) {
		pai_helper_line_flush(c->line, pai_exec_put_started(pai_helper_line_out(c->line),
						   c->id, (uint32_t)pid, credit));
	}
	output_arm(&c->out[0]);
	output_arm(&c->out[1]);
}

static void on_report(void *arg, uint32_t events)
{
	struct command *c = arg;
	struct pai_keeper_report r;
	ssize_t n;

	(void)events;
	while ((n = read(c->report_fd, &r, sizeof(r))) == (ssize_t)sizeof(r)) {
		if (r.kind == PAI_KEEPER_STARTED) {
			started(c, r.a);
		} else if (r.kind == PAI_KEEPER_OUT_ENDS) {
			c->out_ends = true;
			say_stdout_ended(c);
		} else if (r.kind == PAI_KEEPER_FAILED) {
			failed(c, (enum pai_exec_fail_phase)r.a, r.b);
			return;
		} else {
			exited(c, r.a, r.b == 0);
			return;
		}
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		return;
	}
	/* The keeper died without a word: what it kept is ours now, its status nobody's. */
	signal_group(c, SIGKILL);
	if (c->pid > 0) {
		exited(c, 0, false);
	} else {
		failed(c, PAI_FAIL_REFUSED, EIO);
	}
}

static void on_timer(void *arg)
{
	struct command *c = arg;

	switch (c->state) {
	case STARTING:
	case RUNNING:
		kill_command(c, PAI_EXIT_TIMEOUT);
		break;
	case KILLING:
		exited(c, 0, false);
		break;
	case DRAINING:
		c->drain_over = true;
		finish(c);
		break;
	}
}

/* --- the start --- */

static int watch_output(struct command *c, int i, int take_fd, struct pai_err *err)
{
	struct output *o = &c->out[i];

	o->c = c;
	o->fd = take_fd;
	o->type = i == 0 ? PAI_MSG_STDOUT : PAI_MSG_STDERR;
	o->granted = PAI_EXEC_WINDOW;
	if (take_fd >= 0) {
		o->io = pai_loop_io_new(c->sv->loop, take_fd, 0, on_output, o, err);
	}
	return take_fd >= 0 && !o->io ? -err->errnum : 0;
}

static int watch_all(
    struct command *c, struct pai_kept *kept, uint64_t timeout_ms, struct pai_err *err)
{
	int r;

	c->keeper = kept->keeper;
	c->report_fd = kept->report_fd;
	c->stdin_fd = c->flags & PAI_START_STDIN || kept->stdin_fd < 0
			  ? kept->stdin_fd
			  : (close(kept->stdin_fd), -1);
	c->held.max = PAI_EXEC_WINDOW;
	r = watch_output(c, 0, kept->out_fd, err);
	r = watch_output(c, 1, kept->err_fd, err) < 0 ? -err->errnum : r;
	c->report_io = pai_loop_io_new(c->sv->loop, c->report_fd, EPOLLIN, on_report, c, err);
	c->timer = pai_loop_timer_new(c->sv->loop,
	    timeout_ms ? pai_deadline_in(timeout_ms) : PAI_NO_DEADLINE, on_timer, c, err);
	if (c->stdin_fd >= 0) {
		c->stdin_io = pai_loop_io_new(c->sv->loop, c->stdin_fd, 0, on_stdin, c, err);
	}
	if (r < 0 || !c->report_io || !c->timer || (c->stdin_fd >= 0 && !c->stdin_io)) {
		return -err->errnum;
	}
	return 0;
}

void pai_command_start(
    struct supervisor *sv, struct line *l, uint32_t id, const struct pai_exec_start *start)
{
	struct command *c = calloc(1, sizeof(*c));
	struct pai_err err = PAI_ERR_INIT;
	struct pai_kept kept;
	int r = c ? pai_keeper_start(&sv->keeper, start, &kept, &err) : pai_err_no_memory(&err);

	if (r < 0) {
		free(c);
		pai_helper_line_flush(l, pai_exec_put_failed(pai_helper_line_out(l), id,
					     PAI_FAIL_REFUSED, err.errnum, err.msg));
		return;
	}
	c->sv = sv;
	c->line = l;
	(void)snprintf(c->who, sizeof(c->who), "%s", pai_helper_line_who(l));
	c->id = id;
	c->flags = start->flags;
	c->output_left = start->max_output_bytes ? start->max_output_bytes : UINT64_MAX - 1;
	LIST_INSERT_HEAD(&sv->commands, c, at);
	if (watch_all(c, &kept, start->timeout_ms, &err) < 0) {
		(void)kill(c->keeper, SIGTERM);
		failed(c, PAI_FAIL_REFUSED, err.errnum);
	}
}

struct command *pai_command_find(struct supervisor *sv, const struct line *l, uint32_t id)
{
	struct command *c;

	LIST_FOREACH(c, &sv->commands, at)
	{
		if (c->line == l && c->id == id) {
			return c;
		}
	}
	return NULL;
}

/* --- orders --- */

/* In a terminal the foreground job gets it, as from the keyboard. */
void pai_command_signal(struct command *c, int signo)
{
	pid_t foreground = -1;

	if (c->flags & PAI_START_PTY && c->out[0].fd >= 0) {
		foreground = tcgetpgrp(c->out[0].fd);
	}
	if (foreground > 0) {
		(void)kill(-foreground, signo);
		return;
	}
	signal_group(c, signo);
	if (signo == SIGTSTP) {
		/* The group is an orphan (no parent in its session), whose default stop the kernel
		 * ignores: what didn't stop by itself is stopped. */
		signal_group(c, SIGSTOP);
	}
}

void pai_command_resize(struct command *c, uint16_t rows, uint16_t columns)
{
	struct winsize size = {.ws_row = rows, .ws_col = columns};

	if (c->flags & PAI_START_PTY && c->out[0].fd >= 0) {
		(void)ioctl(c->out[0].fd, TIOCSWINSZ, &size); /* sends SIGWINCH itself */
	}
}

void pai_command_cancel(struct command *c)
{
	kill_command(c, PAI_EXIT_CANCELLED);
}

static void orphan(struct command *c)
{
	c->line = NULL;
	stdin_close(c);
	output_to_drain(&c->out[0]);
	output_to_drain(&c->out[1]);
}

size_t pai_command_orphan_all(struct supervisor *sv, const struct line *l, struct line *fence)
{
	struct command *c;
	struct command *next;
	size_t killed = 0;

	for (c = LIST_FIRST(&sv->commands); c; c = next) {
		next = LIST_NEXT(c, at);
		if (fence && c->fence == l) {
			c->fence = fence;
			killed++;
		}
		if (c->line != l) {
			continue;
		}
		orphan(c);
		if (c->state == DRAINING) {
			finish(c);
		} else if (!(c->flags & PAI_START_DETACH)) {
			c->fence = fence;
			killed += fence != NULL;
			kill_command(c, PAI_EXIT_CANCELLED);
		}
	}
	return killed;
}

size_t pai_command_fence_orphans(struct supervisor *sv, struct line *fence)
{
	struct command *c;
	size_t killed = 0;

	LIST_FOREACH(c, &sv->commands, at)
	{
		if (!c->line && !c->fence && c->state == KILLING &&
		    strcmp(c->who, pai_helper_line_who(fence)) == 0) {
			c->fence = fence;
			killed++;
		}
	}
	return killed;
}

void pai_command_forget_fence(struct supervisor *sv, const struct line *fence)
{
	struct command *c;

	LIST_FOREACH(c, &sv->commands, at)
	{
		if (c->fence == fence) {
			c->fence = NULL;
		}
	}
}
