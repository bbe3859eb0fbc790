/*
 * One thread, one poll() over the socket, a signalfd, stdin and what our outputs have not taken.
 * Nothing blocks but a write to a file. Bytes from the socket are written from the buffer they
 * were received in; only what a pipe does not take at once is copied.
 *
 * States, by fields of struct run:
 *   sent      EXEC is out                     a fatal signal cancels and is died of
 *   started   STARTED has come                signals go to the command
 *   ended     EXIT, FAILED or ERROR has come  stdin is no longer read
 *   give_up   CANCEL is out                   ends by itself at that time, outcome unknown
 *   over      nothing more is heard from the  outputs drain
 *             daemon: STATUS, or its loss
 *   quit      leave at once
 */
#include "execshim/exec_run.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "execshim/caller.h"
#include "execshim/sink.h"
#include "execshim/tty.h"
#include "providers/base/clock.h"
#include "providers/base/printable.h"
#include "providers/wire/control_msg.h"

#define EXEC_ID 1u
/* Credit is returned in quarters of a window: the sender never runs dry, frames stay few. */
#define CREDIT_STEP (PAI_EXEC_WINDOW / 4)
#define SINK_MAX (3u * PAI_EXEC_WINDOW) /* a window, behind what has been written of the last */
/* Stdin waits while this much has not left. */
#define OUT_HIGH (1u << 20)
/* How long a cancelled command's end may take to be confirmed: the supervisor's kill and reap. */
#define CONFIRM_MS 10000
/* While nothing has started, whether the daemon still answers is asked this often. */
#define PROBE_MS 30000

static const int forwarded[] = {
    SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH};

struct run {
	const struct pai_exec_options *o;
	const struct pai_target *t;
	struct pai_client *c;
	struct pai_exec_result *result;
	struct pai_sink sinks[2]; /* stdout, stderr */
	uint64_t granted[2];      /* what the daemon may have sent on each so far */
	int signal_fd;
	sigset_t old_mask;
	bool reads_stdin;
	uint64_t stdin_credit;
	bool started, ended, over, quit;
	bool is_resized; /* before the start */
	bool said_int;   /* INT was ours too: a shell's loop must see that we died of it */
	unsigned fatal_count;
	struct pai_exec_exit exit;
	uint64_t give_up_ms, probe_ms;
};

void pai_exec_result_fini(struct pai_exec_result *r)
{
	free(r->status);
	r->status = NULL;
}

bool pai_exec_is_same_file(int a, int b)
{
	struct stat sa;
	struct stat sb;
	long r =
	    syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, (unsigned long)a, (unsigned long)b);

	if (r >= 0) {
		return r == 0;
	}
	/* A kernel without kcmp. Two descriptions of one pipe or terminal keep order as well; two
	 * of one file do when both append. */
	return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
	       sa.st_ino == sb.st_ino &&
	       (!S_ISREG(sa.st_mode) || (fcntl(a, F_GETFL) & fcntl(b, F_GETFL) & O_APPEND));
}

/* /dev/null is nothing to read: the command gets its own. */
static bool is_stdin_worth_reading(void)
{
	struct stat st;

	return fstat(STDIN_FILENO, &st) == 0 &&
	       !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));
}

static void fail(struct run *r, enum pai_exec_ending ending, const struct pai_err *err)
{
	r->result->ending = ending;
	r->result->code = 125;
	r->result->err = *err;
	r->over = true;
}

/* A failure of ours or of the connection while a command may be running. */
static void lose(struct run *r, const struct pai_err *err)
{
	fail(r, PAI_ENDED_UNKNOWN, err);
}

static void send_or_lose(struct run *r, int put)
{
	struct pai_err err = PAI_ERR_INIT;

	if (put < 0) {
		(void)pai_err_errno(&err, -put, "queue a message for the daemon");
		lose(r, &err);
	}
}

static void cancel(struct run *r)
{
	if (r->give_up_ms == PAI_NO_DEADLINE && !r->ended && !r->over) {
		send_or_lose(r, pai_exec_put_empty(pai_client_out(r->c), EXEC_ID, PAI_MSG_CANCEL));
		r->give_up_ms = pai_deadline_in(CONFIRM_MS);
		r->reads_stdin = false;
	}
}

/* One line of ours between the command's; a raw terminal needs the carriage return. */
static void say(const char *text)
{
	(void)dprintf(STDERR_FILENO, "pai-exec: %s%s\n", text, pai_tty_is_raw() ? "\r" : "");
}

/* ---- signals ---- */

static void send_size(struct run *r)
{
	uint16_t rows;
	uint16_t columns;

	if (!r->started || r->ended || r->over) {
		r->is_resized = true;
		return;
	}
	(void)pai_tty_size(&rows, &columns);
	send_or_lose(r, pai_exec_put_resize(pai_client_out(r->c), EXEC_ID, rows, columns));
}

static void send_signal(struct run *r, int signo)
{
	int wire = pai_signal_to_wire(signo);

	if (wire > 0 && r->started && !r->ended && !r->over) {
		send_or_lose(r, pai_exec_put_signal(pai_client_out(r->c), EXEC_ID, (uint8_t)wire));
	}
}

/* The command has been told; now we stop as any program would, and the shell sees it. */
static void stop_here(struct run *r)
{
	bool was_raw = pai_tty_is_raw();
	sigset_t stop;
	struct pai_err err = PAI_ERR_INIT;

	if (pai_client_flush(r->c, &err) < 0) {
		lose(r, &err);
		return;
	}
	pai_tty_restore();
	(void)sigemptyset(&stop);
	(void)sigaddset(&stop, SIGTSTP);
	(void)raise(SIGTSTP);
	(void)sigprocmask(SIG_UNBLOCK, &stop, NULL);
	(void)sigprocmask(SIG_BLOCK, &stop, NULL);
	if (was_raw) {
		pai_tty_raw(STDIN_FILENO);
		send_size(r);
	}
	/* Also when the kernel did not let an orphan stop: the command must not stay stopped. */
	send_signal(r, SIGCONT);
}

/* Whether the daemon still answers anybody. */
static bool is_daemon_alive(const struct run *r, struct pai_err *err)
{
	pai_auto_client struct pai_client *other = NULL;

	return pai_target_open(r->t, "pai-exec", false, &other, err) == 0;
}

static void probe(struct run *r)
{
	struct pai_err err = PAI_ERR_INIT;

	if (!is_daemon_alive(r, &err)) {
		lose(r, &err);
	}
	r->probe_ms = pai_deadline_in(PROBE_MS);
}

static void on_fatal(struct run *r, int signo)
{
	r->fatal_count++;
	r->said_int = r->said_int || signo == SIGINT;
	if (r->over) {
		/* Only our own output is left, and somebody no longer wants it. */
		r->result->die_of = signo;
		r->quit = true;
	} else if (!r->started) {
		r->result->die_of = signo;
		cancel(r);
	} else {
		send_signal(r, signo);
		/* A program may take its time, or ignore it. A daemon that is hung must not make
		 * us hang too. */
		if (r->fatal_count > 1) {
			probe(r);
		}
	}
}

/* Before the start there is nobody to tell, and the daemon would take any signal for a cancel. */
static void on_early(struct run *r, int signo)
{
	switch (signo) {
	case SIGTSTP:
		stop_here(r);
		break;
	case SIGWINCH:
		send_size(r);
		break;
	case SIGCONT:
		break;
	default:
		on_fatal(r, signo);
	}
}

static void on_signal(struct run *r, int signo)
{
	if (!r->started && !r->over) {
		on_early(r, signo);
		return;
	}
	switch (signo) {
	case SIGINT:
	case SIGTERM:
	case SIGHUP:
	case SIGQUIT:
		on_fatal(r, signo);
		break;
	case SIGTSTP:
		send_signal(r, signo);
		stop_here(r);
		break;
	case SIGWINCH:
		if (r->o->tty) {
			send_size(r);
		} else {
			send_signal(r, signo);
		}
		break;
	default:
		send_signal(r, signo);
	}
}

static void read_signals(struct run *r)
{
	struct signalfd_siginfo info;

	while (!r->quit && read(r->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		on_signal(r, (int)info.ssi_signo);
	}
}

/* Signals that were ignored stay ignored: nohup, and background jobs of plain shells. */
static int open_signals(struct run *r, struct pai_err *err)
{
	sigset_t set;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < PAI_COUNT(forwarded); i++) {
		struct sigaction now;

		if (sigaction(forwarded[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN) {
			(void)sigaddset(&set, forwarded[i]);
		}
	}
	if (sigprocmask(SIG_BLOCK, &set, &r->old_mask) < 0) {
		return pai_err_sys(err, "sigprocmask");
	}
	r->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return r->signal_fd < 0 ? pai_err_sys(err, "signalfd") : 0;
}

/* ---- frames from the daemon ---- */

static int bad_frame(struct pai_err *err, const char *what)
{
	return pai_err_set(err, PAI_E_PROTOCOL, "the daemon sent %s", what);
}

static int on_output(struct run *r, int stream, struct pai_view data, struct pai_err *err)
{
	struct pai_sink *s = &r->sinks[stream - 1];

	if (r->ended || s->received + data.len > r->granted[stream - 1]) {
		return bad_frame(err, r->ended ? "output after the end" : "more than it may");
	}
	if (pai_sink_put(s, data.data, data.len) < 0) {
		return pai_err_no_memory(err);
	}
	return 0;
}

static int on_started(struct run *r, struct pai_view payload, struct pai_err *err)
{
	uint32_t pid;
	uint32_t credit;

	if (r->ended || r->started || pai_exec_get_started(payload, &pid, &credit) < 0) {
		return bad_frame(err, "a bad STARTED");
	}
	r->started = true;
	r->stdin_credit = credit;
	if (r->o->tty && r->is_resized) {
		send_size(r);
	}
	if (r->o->detach) {
		(void)dprintf(STDOUT_FILENO, "%u\n", pid);
		r->result->ending = PAI_ENDED_DETACHED;
		r->over = true;
	}
	return 0;
}

static int on_credit(struct run *r, struct pai_view payload, struct pai_err *err)
{
	uint8_t stream;
	uint32_t bytes;

	if (pai_exec_get_credit(payload, &stream, &bytes) < 0 || stream != 0) {
		return bad_frame(err, "a bad CREDIT");
	}
	r->stdin_credit += bytes;
	return 0;
}

static void take_exit(struct run *r)
{
	struct pai_exec_result *res = r->result;

	res->ending = PAI_ENDED_EXITED;
	res->code = 125;
	switch (r->exit.kind) {
	case PAI_EXIT_CODE:
		res->code = r->exit.value & 0xff;
		break;
	case PAI_EXIT_SIGNAL:
		res->code = (128 + r->exit.value) & 0xff;
		/* A shell leaves its loop only for a child that died of ^C; $? is the same. */
		res->die_of = r->exit.value == SIGINT && r->said_int ? SIGINT : res->die_of;
		break;
	case PAI_EXIT_TIMEOUT:
		res->code = 124;
		(void)pai_err_command_timeout(&res->err, r->o->timeout_ms);
		break;
	case PAI_EXIT_OUTPUT_LIMIT:
		(void)pai_err_limit(
		    &res->err, PAI_E_OUTPUT_LIMIT, r->o->max_output_bytes, "output");
		break;
	case PAI_EXIT_CANCELLED:
		(void)pai_err_set(&res->err, PAI_E_CANCELLED, "cancelled; the command was killed");
		break;
	case PAI_EXIT_UNKNOWN:
		res->ending = PAI_ENDED_UNKNOWN;
		(void)pai_err_unavailable(
		    &res->err, PAI_REASON_TRANSPORT, NULL, "the command's end was not confirmed");
		break;
	}
}

static int on_exit_frame(struct run *r, struct pai_view payload, struct pai_err *err)
{
	if (r->ended || pai_exec_get_exit(payload, &r->exit) < 0) {
		return bad_frame(err, "a bad EXIT");
	}
	if (r->exit.kind != PAI_EXIT_UNKNOWN && (r->exit.stdout_bytes != r->sinks[0].received ||
						    r->exit.stderr_bytes != r->sinks[1].received)) {
		return bad_frame(err, "an EXIT that counts other bytes than came");
	}
	r->ended = true;
	take_exit(r);
	return 0;
}

static int on_failed(struct run *r, struct pai_view payload, struct pai_err *err)
{
	static const int codes[] = {[PAI_FAIL_NOT_FOUND] = 127,
	    [PAI_FAIL_EXEC] = 126,
	    [PAI_FAIL_CWD] = 125,
	    [PAI_FAIL_REFUSED] = 125};
	enum pai_exec_fail_phase phase;
	char message[256];
	int errnum;

	if (r->ended || pai_exec_get_failed(payload, &phase, &errnum, message) < 0) {
		return bad_frame(err, "a bad FAILED");
	}
	r->ended = true;
	/* After STARTED it is a second start that failed: the first may have left something. */
	r->result->ending = r->started ? PAI_ENDED_UNKNOWN : PAI_ENDED_NOT_STARTED;
	r->result->code = r->started ? 125 : codes[phase];
	(void)pai_err_set(&r->result->err, PAI_E_SYS, "%s: %s", r->o->argv[0],
	    phase == PAI_FAIL_NOT_FOUND ? "not found in the sandbox" : message);
	r->result->err.errnum = errnum ? errnum : EIO;
	return 0;
}

static int parse_object(struct pai_view v, struct pai_json **ret, struct pai_err *err)
{
	int r = pai_json_parse(v.data, v.len, PAI_CLIENT_JSON_DEPTH, ret, err);

	return r < 0 ? pai_err_wrap(err, "the daemon's message") : 0;
}

static int on_error(struct run *r, struct pai_view payload, struct pai_err *err)
{
	pai_auto_json struct pai_json *obj = NULL;
	const char *outcome;
	int parsed = parse_object(payload, &obj, err);

	if (parsed < 0) {
		return parsed;
	}
	if (r->ended) {
		return bad_frame(err, "an ERROR after the end");
	}
	outcome = pai_json_str(obj, "outcome");
	(void)pai_json_to_err(obj, &r->result->err);
	r->ended = true;
	r->result->code = 125;
	r->result->ending = (outcome && strcmp(outcome, "unknown") == 0) || r->started
				? PAI_ENDED_UNKNOWN
				: PAI_ENDED_NOT_STARTED;
	return 0;
}

static int on_notice(struct run *r, struct pai_view payload, struct pai_err *err)
{
	pai_auto_json struct pai_json *obj = NULL;
	int parsed = parse_object(payload, &obj, err);

	if (parsed == 0 && !r->o->quiet && pai_json_bool(obj, "environmentReset", false)) {
		say("the environment was reset: earlier files and processes of this session are "
		    "gone");
	}
	return parsed;
}

static int on_status(struct run *r, struct pai_view payload, struct pai_err *err)
{
	pai_auto_json struct pai_json *obj = NULL;
	int parsed = parse_object(payload, &obj, err);

	if (parsed < 0) {
		return parsed;
	}
	if (!r->ended) {
		return bad_frame(err, "a STATUS before the end");
	}
	r->result->status = strndup(payload.data, payload.len);
	if (!r->result->status) {
		return pai_err_no_memory(err);
	}
	r->over = true;
	return 0;
}

static int on_frame(struct run *r, const struct pai_frame *f, struct pai_err *err)
{
	uint64_t taken;

	if (f->id != EXEC_ID) {
		return bad_frame(err, "an answer to something else");
	}
	switch (f->type) {
	case PAI_MSG_STDOUT:
		return on_output(r, 1, f->payload, err);
	case PAI_MSG_STDERR:
		return on_output(r, 2, f->payload, err);
	case PAI_MSG_STARTED:
		return on_started(r, f->payload, err);
	case PAI_MSG_CREDIT:
		return on_credit(r, f->payload, err);
	case PAI_MSG_STDIN_TAKEN:
		return pai_exec_get_stdin_taken(f->payload, &taken) < 0
			   ? bad_frame(err, "a bad STDIN_TAKEN")
			   : 0;
	case PAI_MSG_EXIT:
		return on_exit_frame(r, f->payload, err);
	case PAI_MSG_FAILED:
		return on_failed(r, f->payload, err);
	case PAI_MSG_ERROR:
		return on_error(r, f->payload, err);
	case PAI_MSG_NOTICE:
		return on_notice(r, f->payload, err);
	case PAI_MSG_STATUS:
		return on_status(r, f->payload, err);
	default:
		return bad_frame(err, "a message that has no place here");
	}
}

/* ---- the loop ---- */

static void read_socket(struct run *r)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_frame frame;
	int got = pai_client_fill(r->c, &err);

	while (got > 0 && !r->over) {
		got = pai_client_next(r->c, &frame, &err);
		got = got > 0 && on_frame(r, &frame, &err) < 0 ? -1 : got;
	}
	if (got < 0 && !r->over) {
		lose(r, &err);
	}
}

static void read_stdin(struct run *r)
{
	struct pai_buf *out = pai_client_out(r->c);
	size_t room =
	    r->stdin_credit < PAI_FRAME_DATA_MAX ? (size_t)r->stdin_credit : PAI_FRAME_DATA_MAX;
	size_t before = out->len;
	ssize_t begun = pai_frame_begin(out, PAI_MSG_STDIN, EXEC_ID);
	int put = begun < 0 ? (int)begun : pai_buf_reserve(out, room);
	ssize_t n;

	if (put < 0) {
		send_or_lose(r, put);
		return;
	}
	n = read(STDIN_FILENO, out->data + out->len, room);
	if (n > 0) {
		out->len += (size_t)n;
		r->stdin_credit -= (uint64_t)n;
		r->result->stdin_bytes += (unsigned long long)n;
		send_or_lose(r, pai_frame_end(out, begun));
		return;
	}
	out->len = before;
	if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
		return;
	}
	/* The end, or a stdin that fails (EIO of a lost terminal): there will be no more. */
	r->reads_stdin = false;
	send_or_lose(r, pai_exec_put_empty(out, EXEC_ID, PAI_MSG_STDIN_EOF));
}

static void grant_credit(struct run *r)
{
	for (uint8_t i = 0; i < 2 && !r->ended && !r->over; i++) {
		uint32_t bytes = pai_sink_credit(&r->sinks[i], CREDIT_STEP);

		if (bytes > 0) {
			r->granted[i] += bytes;
			send_or_lose(r, pai_exec_put_credit(pai_client_out(r->c), EXEC_ID,
					    (uint8_t)(i + 1), bytes));
		}
	}
}

/* A reader that has gone ends the command, as SIGPIPE would. */
static void check_sinks(struct run *r)
{
	for (size_t i = 0; i < 2; i++) {
		int failed = r->sinks[i].failed;

		if (!failed || r->result->die_of) {
			continue;
		}
		if (failed == EPIPE) {
			r->result->die_of = SIGPIPE;
		}
		cancel(r);
	}
}

static void flush(struct run *r)
{
	struct pai_err err = PAI_ERR_INIT;

	if (!r->over && pai_client_flush(r->c, &err) < 0) {
		/* What the daemon said before it left may still explain it: the read side decides.
		 */
		pai_buf_clear(pai_client_out(r->c));
	}
}

static bool is_drained(const struct run *r)
{
	return pai_sink_pending(&r->sinks[0]) == 0 && pai_sink_pending(&r->sinks[1]) == 0;
}

static void check_time(struct run *r)
{
	struct pai_err err = PAI_ERR_INIT;

	if (r->over) {
		return;
	}
	if (pai_deadline_passed(r->give_up_ms)) {
		(void)pai_err_set(&err, PAI_E_TIMEOUT,
		    "the command's end was not confirmed in %d s", CONFIRM_MS / 1000);
		lose(r, &err);
	} else if (!r->started && pai_deadline_passed(r->probe_ms)) {
		probe(r);
	}
}

static int poll_timeout(const struct run *r)
{
	uint64_t wake = r->give_up_ms;

	if (!r->started && r->probe_ms < wake) {
		wake = r->probe_ms;
	}
	return r->over ? -1 : pai_deadline_poll_ms(wake);
}

static void turn(struct run *r)
{
	bool wants_stdin = r->reads_stdin && r->started && !r->ended && !r->over &&
			   r->stdin_credit > 0 && pai_client_pending(r->c) < OUT_HIGH;
	bool wants_out = pai_client_pending(r->c) > 0;
	struct pollfd fds[] = {
	    {.fd = r->over ? -1 : pai_client_fd(r->c),
		.events = (short)(POLLIN | (wants_out ? POLLOUT : 0))},
	    {.fd = r->signal_fd, .events = POLLIN},
	    {.fd = wants_stdin ? STDIN_FILENO : -1, .events = POLLIN},
	    {.fd = pai_sink_pending(&r->sinks[0]) ? r->sinks[0].fd : -1, .events = POLLOUT},
	    {.fd = pai_sink_pending(&r->sinks[1]) ? r->sinks[1].fd : -1, .events = POLLOUT},
	};

	if (poll(fds, PAI_COUNT(fds), poll_timeout(r)) < 0) {
		return; /* EINTR: a stop and continue */
	}
	if (fds[1].revents) {
		read_signals(r);
	}
	if (fds[2].revents && !r->over) {
		read_stdin(r);
	}
	for (size_t i = 0; i < 2; i++) {
		if (fds[3 + i].revents) {
			pai_sink_pump(&r->sinks[i]);
		}
	}
	if ((fds[0].revents & ~POLLOUT) && !r->over) {
		read_socket(r);
	}
	check_sinks(r);
	grant_credit(r);
	flush(r);
	check_time(r);
}

static int put_exec(struct run *r, struct pai_err *err)
{
	pai_auto_free char **env = calloc(r->o->env.count + 1, sizeof(*env));
	struct pai_control_exec e = {
	    .key = (char *)r->t->place.key,
	    .stale_cwd = r->t->place.stale_cwd,
	    .no_retry = r->o->no_retry,
	    .start = {.argv = r->o->argv,
		.cwd = r->t->place.cwd,
		.env = env,
		.timeout_ms = r->o->timeout_ms,
		.max_output_bytes = r->o->max_output_bytes},
	};
	bool is_merged = !r->o->tty && pai_exec_is_same_file(STDOUT_FILENO, STDERR_FILENO);
	int put = env ? 0 : -ENOMEM;

	for (size_t i = 0; put == 0 && i < r->o->env.count; i++) {
		if (asprintf(&env[i], "%s=%s", r->o->env.entries[i].key,
			r->o->env.entries[i].value) < 0) {
			env[i] = NULL;
			put = -ENOMEM;
		}
	}
	pai_caller_identify(&e.caller_sid, &e.caller_sid_started);
	e.start.flags = (r->o->tty ? PAI_START_PTY : 0) | (r->o->detach ? PAI_START_DETACH : 0) |
			(r->reads_stdin ? PAI_START_STDIN : 0) | (is_merged ? PAI_START_MERGED : 0);
	(void)pai_tty_size(&e.start.rows, &e.start.columns);
	put = put ? put : pai_control_put_exec(pai_client_out(r->c), EXEC_ID, &e);
	for (size_t i = 0; env && env[i]; i++) {
		free(env[i]);
	}
	return put == -EMSGSIZE ? pai_err_set(err, PAI_E_INPUT,
				      "the command, its environment and directory are too large to "
				      "pass on")
	       : put < 0        ? pai_err_errno(err, -put, "encode the command")
				: 0;
}

/* A write of ours that failed is our failure, unless it is a reader's that went away. */
static void take_sink_failure(struct run *r)
{
	for (size_t i = 0; i < 2; i++) {
		int failed = r->sinks[i].failed;

		if (failed && failed != EPIPE && r->result->ending == PAI_ENDED_EXITED) {
			r->result->code = 125;
			(void)pai_err_errno(
			    &r->result->err, failed, "write to %s", i == 0 ? "stdout" : "stderr");
			pai_exec_result_fini(r->result);
		}
	}
	r->result->stdout_bytes = r->sinks[0].received;
	r->result->stderr_bytes = r->sinks[1].received;
}

void pai_exec_run(const struct pai_exec_options *o, const struct pai_target *t,
    struct pai_client *c, struct pai_exec_result *ret)
{
	struct pai_err err = PAI_ERR_INIT;
	struct run r = {
	    .o = o,
	    .t = t,
	    .c = c,
	    .result = ret,
	    .granted = {PAI_EXEC_WINDOW, PAI_EXEC_WINDOW},
	    .signal_fd = -1,
	    .reads_stdin = !o->detach && is_stdin_worth_reading(),
	    .give_up_ms = PAI_NO_DEADLINE,
	    .probe_ms = pai_deadline_in(PROBE_MS),
	};

	*ret = (struct pai_exec_result){.ending = PAI_ENDED_NOT_STARTED};
	pai_sink_init(&r.sinks[0], STDOUT_FILENO, SINK_MAX);
	pai_sink_init(&r.sinks[1], STDERR_FILENO, SINK_MAX);
	if (open_signals(&r, &err) < 0 || put_exec(&r, &err) < 0) {
		fail(&r, PAI_ENDED_NOT_STARTED, &err);
	} else {
		if (o->tty) {
			pai_tty_raw(STDIN_FILENO);
		}
		flush(&r);
	}
	while (!r.quit && !(r.over && is_drained(&r))) {
		turn(&r);
	}
	pai_tty_restore();
	take_sink_failure(&r);
	pai_sink_fini(&r.sinks[0]);
	pai_sink_fini(&r.sinks[1]);
	if (r.signal_fd >= 0) {
		(void)close(r.signal_fd);
		(void)sigprocmask(SIG_SETMASK, &r.old_mask, NULL);
	}
}
