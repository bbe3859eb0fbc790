/*
 * One thread, one poll() over the socket, a signalfd, stdin and what our outputs have not taken.
 * Nothing blocks but a write to a file. Bytes from the socket are written from the buffer they
 * were received in; only what a pipe does not take at once is copied.
 *
 * States, by fields of struct pai_exec_state:
 *   sent      EXEC is out                     a fatal signal cancels and is died of
 *   started   STARTED has come                signals go to the command
 *   left      LEFT has come                   once our output is out, the parent returns; a child
 *                                             of ours goes on, for those who hold our output
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
#include "execshim/exec_state.h"
#include "execshim/tty.h"
#include "providers/base/clock.h"
#include "providers/wire/control_msg.h"

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

/* /dev/null is nothing to read, nor is what is open for writing alone: the command gets a /dev/null
 * of its own. A directory is a mistake, which a command that reads nothing from it could not tell.
 */
static int look_at_stdin(struct pai_exec_state *r, struct pai_err *err)
{
	struct stat st;
	int flags = fcntl(STDIN_FILENO, F_GETFL);

	r->reads_stdin = false;
	if (flags < 0 || (flags & O_PATH) || (flags & O_ACCMODE) == O_WRONLY ||
	    fstat(STDIN_FILENO, &st) < 0 || (S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3))) {
		return 0;
	}
	r->reads_stdin = true;
	r->stdin_at =
	    S_ISREG(st.st_mode) || S_ISBLK(st.st_mode) ? lseek(STDIN_FILENO, 0, SEEK_CUR) : -1;
	return S_ISDIR(st.st_mode) ? pai_err_set(err, PAI_E_INPUT, "stdin is a directory") : 0;
}

static void fail(struct pai_exec_state *r, enum pai_exec_ending ending, const struct pai_err *err)
{
	r->result->ending = ending;
	r->result->code = 125;
	r->result->err = *err;
	r->over = true;
}

/* A failure of ours or of the connection while a command may be running. */
static void lose(struct pai_exec_state *r, const struct pai_err *err)
{
	fail(r, PAI_ENDED_UNKNOWN, err);
}

void pai_exec_send_or_lose(struct pai_exec_state *r, int put)
{
	struct pai_err err = PAI_ERR_INIT;

	if (put < 0) {
		(void)pai_err_errno(&err, -put, "queue a message for the daemon");
		lose(r, &err);
	}
}

static void cancel(struct pai_exec_state *r)
{
	if (r->give_up_ms == PAI_NO_DEADLINE && !r->ended && !r->over) {
		pai_exec_send_or_lose(
		    r, pai_exec_put_empty(pai_client_out(r->c), PAI_EXEC_ID, PAI_MSG_CANCEL));
		r->give_up_ms = pai_deadline_in(CONFIRM_MS);
		r->reads_stdin = false;
	}
}

/* ---- signals ---- */

void pai_exec_send_size(struct pai_exec_state *r)
{
	uint16_t rows;
	uint16_t columns;

	if (!r->started || r->ended || r->over) {
		r->is_resized = true;
		return;
	}
	(void)pai_tty_size(&rows, &columns);
	pai_exec_send_or_lose(
	    r, pai_exec_put_resize(pai_client_out(r->c), PAI_EXEC_ID, rows, columns));
}

static void send_signal(struct pai_exec_state *r, int signo)
{
	int wire = pai_signal_to_wire(signo);

	if (wire > 0 && r->started && !r->ended && !r->over) {
		pai_exec_send_or_lose(
		    r, pai_exec_put_signal(pai_client_out(r->c), PAI_EXEC_ID, (uint8_t)wire));
	}
}

/* The command has been told; now we stop as any program would, and the shell sees it. */
static void stop_here(struct pai_exec_state *r)
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
		pai_exec_send_size(r);
	}
	/* Also when the kernel did not let an orphan stop: the command must not stay stopped. */
	send_signal(r, SIGCONT);
}

/* Whether the daemon still answers anybody. */
static bool is_daemon_alive(const struct pai_exec_state *r, struct pai_err *err)
{
	pai_auto_client struct pai_client *other = NULL;

	return pai_target_open(r->t, "pai-exec", false, &other, err) == 0;
}

static void probe(struct pai_exec_state *r)
{
	struct pai_err err = PAI_ERR_INIT;

	if (!is_daemon_alive(r, &err)) {
		lose(r, &err);
	}
	r->probe_ms = pai_deadline_in(PROBE_MS);
}

static void on_fatal(struct pai_exec_state *r, int signo)
{
	struct pai_err err = PAI_ERR_INIT;

	r->fatal_count++;
	r->said_int = r->said_int || signo == SIGINT;
	if (r->over) {
		/* Only our own output is left, and somebody no longer wants it. */
		r->result->die_of = signo;
		r->quit = true;
	} else if (r->give_up_ms != PAI_NO_DEADLINE) {
		/* Asked twice: the end is on its way, but not waited for. */
		(void)pai_err_set(&err, PAI_E_CANCELLED, "the command's end was not waited for");
		lose(r, &err);
		r->result->die_of = signo;
		r->quit = true;
	} else if (!r->started || r->o->on_output) {
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
static void on_early(struct pai_exec_state *r, int signo)
{
	switch (signo) {
	case SIGTSTP:
		stop_here(r);
		break;
	case SIGWINCH:
		pai_exec_send_size(r);
		break;
	case SIGCONT:
		break;
	default:
		on_fatal(r, signo);
	}
}

static void on_signal(struct pai_exec_state *r, int signo)
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
			pai_exec_send_size(r);
		} else {
			send_signal(r, signo);
		}
		break;
	default:
		send_signal(r, signo);
	}
}

static void read_signals(struct pai_exec_state *r)
{
	struct signalfd_siginfo info;

	while (!r->quit && read(r->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		on_signal(r, (int)info.ssi_signo);
	}
}

/* Signals that were ignored stay ignored: nohup, and background jobs of plain shells. */
static int open_signals(struct pai_exec_state *r, struct pai_err *err)
{
	sigset_t set;

	if (r->o->cancel) {
		return 0;
	}
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

/* ---- the loop ---- */

static void read_socket(struct pai_exec_state *r)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_frame frame;
	int got = pai_client_fill(r->c, &err);

	while (got > 0 && !r->over) {
		got = pai_client_next(r->c, &frame, &err);
		got = got > 0 && pai_exec_on_frame(r, &frame, &err) < 0 ? -1 : got;
	}
	if (got < 0 && !r->over) {
		lose(r, &err);
	}
}

static ssize_t take_input(struct pai_exec_state *r, char *to, size_t room)
{
	size_t left = r->o->input_len - r->input_at;
	size_t n = left < room ? left : room;

	memcpy(to, r->o->input + r->input_at, n);
	r->input_at += n;
	return (ssize_t)n;
}

static void read_stdin(struct pai_exec_state *r)
{
	struct pai_buf *out = pai_client_out(r->c);
	size_t room =
	    r->stdin_credit < PAI_FRAME_DATA_MAX ? (size_t)r->stdin_credit : PAI_FRAME_DATA_MAX;
	size_t before = out->len;
	ssize_t begun = pai_frame_begin(out, PAI_MSG_STDIN, PAI_EXEC_ID);
	int put = begun < 0 ? (int)begun : pai_buf_reserve(out, room);
	int failed;
	ssize_t n;

	if (put < 0) {
		pai_exec_send_or_lose(r, put);
		return;
	}
	n = r->o->on_output ? take_input(r, out->data + out->len, room)
			    : read(STDIN_FILENO, out->data + out->len, room);
	if (n > 0) {
		out->len += (size_t)n;
		r->stdin_credit -= (uint64_t)n;
		r->result->stdin_bytes += (unsigned long long)n;
		pai_exec_send_or_lose(r, pai_frame_end(out, begun));
		return;
	}
	failed = n < 0 ? errno : 0;
	out->len = before;
	if (failed == EINTR || failed == EAGAIN) {
		return;
	}
	/* A terminal that is lost has ended. Any other stdin that fails is cut off, which the
	 * command would take for its end. */
	if (failed && !(failed == EIO && isatty(STDIN_FILENO))) {
		r->stdin_failed = failed;
		cancel(r);
		return;
	}
	r->reads_stdin = false;
	pai_exec_send_or_lose(r, pai_exec_put_empty(out, PAI_EXEC_ID, PAI_MSG_STDIN_EOF));
}

/* We read ahead of the command. What it has left of a file is there for the next who reads it, as
 * in a shell's loop over its lines; unless somebody else has moved on in it meanwhile. */
static void give_back_stdin(const struct pai_exec_state *r)
{
	off_t taken = (off_t)r->exit.stdin_bytes;
	off_t had = (off_t)r->result->stdin_bytes;

	if (r->stdin_at >= 0 && r->result->ending == PAI_ENDED_EXITED && taken >= 0 &&
	    taken < had && lseek(STDIN_FILENO, 0, SEEK_CUR) == r->stdin_at + had) {
		(void)lseek(STDIN_FILENO, r->stdin_at + taken, SEEK_SET);
	}
}

static void grant_credit(struct pai_exec_state *r)
{
	for (uint8_t i = 0; i < 2 && !r->ended && !r->over; i++) {
		uint32_t bytes = pai_sink_credit(&r->sinks[i], CREDIT_STEP);

		if (bytes > 0) {
			r->granted[i] += bytes;
			pai_exec_send_or_lose(r, pai_exec_put_credit(pai_client_out(r->c),
						     PAI_EXEC_ID, (uint8_t)(i + 1), bytes));
		}
	}
}

/* A reader that has gone ends the command, as SIGPIPE would. */
static void check_sinks(struct pai_exec_state *r)
{
	for (size_t i = 0; i < 2 && !r->stays; i++) {
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

static void flush(struct pai_exec_state *r)
{
	struct pai_err err = PAI_ERR_INIT;

	if (!r->over && pai_client_flush(r->c, &err) < 0) {
		/* What the daemon said before it left may still explain it: the read side decides.
		 */
		pai_buf_clear(pai_client_out(r->c));
	}
}

static bool is_drained(const struct pai_exec_state *r)
{
	return pai_sink_pending(&r->sinks[0]) == 0 && pai_sink_pending(&r->sinks[1]) == 0;
}

static void check_time(struct pai_exec_state *r)
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

static int poll_timeout(const struct pai_exec_state *r)
{
	uint64_t wake = r->give_up_ms;

	if (!r->started && r->probe_ms < wake) {
		wake = r->probe_ms;
	}
	return r->over ? -1 : pai_deadline_poll_ms(wake);
}

static void turn(struct pai_exec_state *r)
{
	bool wants_stdin = r->reads_stdin && r->started && !r->left && !r->ended && !r->over &&
			   r->stdin_credit > 0 && pai_client_pending(r->c) < OUT_HIGH;
	bool has_input = wants_stdin && r->o->on_output;
	bool wants_out = pai_client_pending(r->c) > 0;
	struct pollfd fds[] = {
	    {.fd = r->over ? -1 : pai_client_fd(r->c),
		.events = (short)(POLLIN | (wants_out ? POLLOUT : 0))},
	    {.fd = r->signal_fd, .events = POLLIN},
	    {.fd = wants_stdin && !has_input ? STDIN_FILENO : -1, .events = POLLIN},
	    {.fd = pai_sink_pending(&r->sinks[0]) ? r->sinks[0].fd : -1, .events = POLLOUT},
	    {.fd = pai_sink_pending(&r->sinks[1]) ? r->sinks[1].fd : -1, .events = POLLOUT},
	    {.fd = r->give_up_ms == PAI_NO_DEADLINE ? pai_cancel_fd(r->o->cancel) : -1,
		.events = POLLIN},
	};

	if (poll(fds, PAI_COUNT(fds), has_input ? 0 : poll_timeout(r)) < 0) {
		return; /* EINTR: a stop and continue */
	}
	if (fds[1].revents) {
		read_signals(r);
	}
	if (pai_cancel_fired(r->o->cancel)) {
		cancel(r);
	}
	if ((fds[2].revents || has_input) && !r->over) {
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

/*
 * Who stays behind writes into pipes of the sandbox. The child that goes on for them is in the
 * caller's process group as they would be, and takes them along when it is killed. What can't be
 * written any more is thrown away, so that nobody blocks.
 */
static void linger(struct pai_exec_state *r)
{
	pid_t pid = fork();
	int nowhere;

	if (pid != 0) {
		/* Without a child they lose their reader, as whoever outlives a pai-exec does. */
		r->over = true;
		return;
	}
	nowhere = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (nowhere < 0 || dup2(nowhere, STDIN_FILENO) < 0 || chdir("/") < 0) {
		_exit(0);
	}
	r->stays = true;
	r->reads_stdin = false;
	while (!r->over && !r->quit) {
		turn(r);
	}
	_exit(0);
}

static int put_exec(struct pai_exec_state *r, struct pai_err *err)
{
	pai_auto_free char **env = calloc(r->o->env.count + 1, sizeof(*env));
	struct pai_control_exec e = {
	    .key = (char *)r->t->place.key,
	    .no_retry = r->o->no_retry,
	    .keeps_output = r->o->on_output != NULL,
	    .pinned = r->t->environment[0] != '\0',
	    .start = {.argv = r->o->argv,
		.cwd = r->t->place.cwd,
		.env = env,
		.timeout_ms = r->o->timeout_ms,
		.max_output_bytes = r->o->max_output_bytes},
	};
	bool is_merged =
	    !r->o->tty && !r->o->on_output && pai_exec_is_same_file(STDOUT_FILENO, STDERR_FILENO);
	int put = env ? 0 : -ENOMEM;

	for (size_t i = 0; put == 0 && i < r->o->env.count; i++) {
		if (asprintf(&env[i], "%s=%s", r->o->env.entries[i].key,
			r->o->env.entries[i].value) < 0) {
			env[i] = NULL;
			put = -ENOMEM;
		}
	}
	if (r->t->environment[0] || r->o->known) {
		(void)snprintf(e.cwd_environment, sizeof(e.cwd_environment), "%s",
		    r->t->environment[0] ? r->t->environment : r->o->known);
	} else if (r->t->place.stands_in) {
		pai_locate_environment(e.cwd_environment);
	}
	(void)snprintf(e.run, sizeof(e.run), "%s", r->t->run);
	pai_caller_identify(&e.caller_sid, &e.caller_sid_started);
	e.start.flags = (r->o->tty ? PAI_START_PTY : 0) | (r->o->detach ? PAI_START_DETACH : 0) |
			(r->reads_stdin ? PAI_START_STDIN : 0) |
			(is_merged ? PAI_START_MERGED : 0) |
			(r->o->lingers && !r->o->tty ? PAI_START_LINGER : 0);
	(void)pai_tty_size(&e.start.rows, &e.start.columns);
	put = put ? put : pai_control_put_exec(pai_client_out(r->c), PAI_EXEC_ID, &e);
	for (size_t i = 0; env && env[i]; i++) {
		free(env[i]);
	}
	if (put == -EMSGSIZE) {
		(void)pai_err_set(
		    err, PAI_E_INPUT, "the command, its environment and directory are over 1 MiB");
		err->errnum = E2BIG;
		return -E2BIG;
	}
	return put < 0 ? pai_err_errno(err, -put, "encode the command") : 0;
}

static void take_failure(struct pai_exec_state *r, int failed, const char *what)
{
	if (failed && r->result->ending == PAI_ENDED_EXITED) {
		r->result->code = 125;
		(void)pai_err_errno(&r->result->err, failed, "%s", what);
		pai_exec_result_fini(r->result);
	}
}

/* A stream of ours that failed is our failure, unless it is a reader's that went away. */
static void take_failures(struct pai_exec_state *r)
{
	take_failure(r, r->stdin_failed, "read from stdin");
	for (size_t i = 0; i < 2; i++) {
		int failed = r->sinks[i].failed;

		take_failure(r, failed == EPIPE ? 0 : failed,
		    i == 0 ? "write to stdout" : "write to stderr");
	}
	r->result->stdout_bytes = r->sinks[0].received;
	r->result->stderr_bytes = r->sinks[1].received;
}

void pai_shim_run(const struct pai_exec_options *o, const struct pai_target *t,
    struct pai_client *c, struct pai_exec_result *ret)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_exec_state r = {
	    .o = o,
	    .t = t,
	    .c = c,
	    .result = ret,
	    .granted = {PAI_EXEC_WINDOW, PAI_EXEC_WINDOW},
	    .signal_fd = -1,
	    .reads_stdin = o->on_output && o->input,
	    .stdin_at = -1,
	    .give_up_ms = PAI_NO_DEADLINE,
	    .probe_ms = pai_deadline_in(PROBE_MS),
	};

	*ret = (struct pai_exec_result){.ending = PAI_ENDED_NOT_STARTED};
	for (int i = 0; i < 2; i++) {
		if (o->on_output) {
			pai_sink_init_call(&r.sinks[i], i + 1, o->on_output, o->output_arg);
		} else {
			pai_sink_init(&r.sinks[i], i + 1, SINK_MAX); /* stdout, stderr */
		}
	}
	if ((!o->detach && !o->on_output && look_at_stdin(&r, &err) < 0) ||
	    open_signals(&r, &err) < 0 || put_exec(&r, &err) < 0) {
		fail(&r, PAI_ENDED_NOT_STARTED, &err);
	} else {
		if (o->tty) {
			pai_tty_raw(STDIN_FILENO);
		}
		flush(&r);
	}
	while (!r.quit && !(r.over && is_drained(&r))) {
		turn(&r);
		if (r.left && !r.over && is_drained(&r)) {
			linger(&r);
		}
	}
	pai_tty_restore();
	give_back_stdin(&r);
	take_failures(&r);
	pai_sink_fini(&r.sinks[0]);
	pai_sink_fini(&r.sinks[1]);
	if (r.signal_fd >= 0) {
		(void)close(r.signal_fd);
		(void)sigprocmask(SIG_SETMASK, &r.old_mask, NULL);
	}
}
