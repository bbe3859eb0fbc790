/*
 * Lifetime: the supervisor ends with its sandbox, or when nobody needs it. In a PID namespace it is
 * process 1 and its end kills what is left; elsewhere it kills its descendants itself, all of which
 * are its own by PR_SET_CHILD_SUBREAPER. As process 1 it takes no orders from inside.
 *
 * The idle end must not meet a daemon that is just connecting: connecting happens under a shared
 * lock of a file, the end under the exclusive one, and what had connected before is served.
 */
#include "providers/helper/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/helper/lease.h"
#include "providers/helper/supervise.h"

#define BACKLOG 64
#define TICK_MS 500
#define IDLE_TICKS 2
#define ENV_MAX (1u << 20)
#define KILL_ALL_MS 5000

struct root {
	struct supervisor sv;
	struct pai_supervisor_config config;
	struct pai_loop_io *socket_io;
	struct pai_loop_io *signal_io;
	struct pai_loop_timer *tick;
	int signal_fd;
	int idle_ticks;
	char *env_text;
	char **env;
};

/* --- set-up --- */

static int read_incarnation(struct root *r, struct pai_err *err)
{
	ssize_t n = pread(r->config.nonce_fd, r->sv.incarnation, sizeof(r->sv.incarnation) - 1, 0);

	if (n <= 0) {
		return n < 0 ? pai_err_sys(err, "read the nonce")
			     : pai_err_set(err, PAI_E_INPUT, "the nonce is empty");
	}
	r->sv.incarnation[n] = '\0';
	r->sv.incarnation[strcspn(r->sv.incarnation, "\n")] = '\0';
	return 0;
}

static int read_env(struct root *r, struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(ENV_MAX);
	size_t count = 0;
	size_t n = 0;

	if (r->config.env) {
		return 0;
	}
	if (r->config.env_fd >= 0) {
		if (lseek(r->config.env_fd, 0, SEEK_SET) < 0 ||
		    pai_buf_fill(&text, r->config.env_fd, err) < 0) {
			return pai_err_sys(err, "read the environment");
		}
		(void)close(r->config.env_fd);
		r->config.env_fd = -1;
	}
	for (size_t i = 0; i < text.len; i++) {
		count += text.data[i] == '\0';
	}
	r->env = calloc(count + 1, sizeof(*r->env));
	r->env_text = pai_buf_take(&text);
	if (!r->env || !r->env_text) {
		return pai_err_no_memory(err);
	}
	for (char *at = r->env_text; n < count; at += strlen(at) + 1) {
		r->env[n++] = at;
	}
	return 0;
}

static int take_signals(struct root *r, struct pai_err *err)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigaddset(&set, SIGTERM);
	(void)sigprocmask(SIG_SETMASK, &set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN); /* a limit of ours is EFBIG to whoever writes */
	(void)signal(SIGHUP, SIG_IGN);
	r->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return r->signal_fd < 0 ? pai_err_sys(err, "signalfd") : 0;
}

/* Each command takes four descriptors here; the commands themselves keep the limit that was. */
static void raise_files_limit(struct root *r)
{
	struct rlimit limit = {.rlim_cur = 1024, .rlim_max = 1024};

	(void)getrlimit(RLIMIT_NOFILE, &limit);
	r->sv.keeper.files_limit = limit;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* --- the end --- */

/* As process 1 of a namespace ending is enough. */
static void end(struct root *r)
{
	if (getpid() != 1) {
		(void)pai_keeper_kill_all(KILL_ALL_MS, NULL, NULL);
	}
	pai_loop_stop(r->sv.loop);
}

static bool accept_one(struct root *r)
{
	int fd = accept4(r->config.socket_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0) {
		r->idle_ticks = 0;
		pai_helper_line_new(&r->sv, fd);
	}
	return fd >= 0;
}

static bool has_children(void)
{
	siginfo_t info;

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

static void end_if_nobody_comes(struct root *r)
{
	int lock = r->config.lock_fd;

	if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) < 0) {
		return;
	}
	if (!accept_one(r)) {
		end(r); /* the lock goes with the process */
	} else if (lock >= 0) {
		(void)flock(lock, LOCK_UN);
	}
}

static void on_tick(void *arg)
{
	struct root *r = arg;
	struct stat st;

	pai_loop_timer_set(r->tick, pai_deadline_in(TICK_MS));
	if ((fstat(r->config.nonce_fd, &st) == 0 && st.st_nlink == 0) ||
	    (r->config.lease && pai_lease_expired(r->config.lease))) {
		end(r);
		return;
	}
	pai_helper_line_expire(&r->sv);
	if (!LIST_EMPTY(&r->sv.lines) || !LIST_EMPTY(&r->sv.commands) || has_children()) {
		r->idle_ticks = 0;
		return;
	}
	if (!r->config.stays && ++r->idle_ticks >= IDLE_TICKS) {
		end_if_nobody_comes(r);
	}
}

static void on_socket(void *arg, uint32_t events)
{
	(void)events;
	while (accept_one(arg)) {
	}
}

static void on_signal(void *arg, uint32_t events)
{
	struct root *r = arg;
	struct signalfd_siginfo info;

	(void)events;
	while (read(r->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		/* A signal from the same process namespace has a sender there. */
		if (info.ssi_signo == SIGTERM && (getpid() != 1 || info.ssi_pid == 0)) {
			end(r);
			return;
		}
		/* Keepers, and what was left over by commands. */
		while (waitpid(-1, NULL, WNOHANG) > 0) {
		}
	}
}

static int open_loop(struct root *r, struct pai_err *err)
{
	struct pai_loop *l = r->sv.loop = pai_loop_new(err);

	if (!l) {
		return -err->errnum;
	}
	r->signal_io = pai_loop_io_new(l, r->signal_fd, EPOLLIN, on_signal, r, err);
	r->socket_io = r->signal_io
			   ? pai_loop_io_new(l, r->config.socket_fd, EPOLLIN, on_socket, r, err)
			   : NULL;
	r->tick =
	    r->socket_io ? pai_loop_timer_new(l, pai_deadline_in(TICK_MS), on_tick, r, err) : NULL;
	return r->tick ? 0 : -err->errnum;
}

static int start_listening(struct root *r, struct pai_err *err)
{
	int fd = r->config.socket_fd;

	if (listen(fd, BACKLOG) < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0) {
		return pai_err_sys(err, "listen");
	}
	if (r->config.ready_fd >= 0) {
		(void)!write(r->config.ready_fd, "R", 1);
		(void)close(r->config.ready_fd);
		r->config.ready_fd = -1;
	}
	return 0;
}

/* Nothing of ours may reach a keeper's other descendants. */
static void close_on_exec(const struct pai_supervisor_config *c)
{
	const int fds[] = {c->socket_fd, c->nonce_fd, c->ready_fd, c->lock_fd, c->env_fd};

	for (size_t i = 0; i < PAI_COUNT(fds); i++) {
		if (fds[i] >= 0) {
			(void)fcntl(fds[i], F_SETFD, FD_CLOEXEC);
		}
	}
}

int pai_supervisor_run(const struct pai_supervisor_config *config, struct pai_err *err)
{
	static struct root root; /* the process is its own */
	struct root *r = &root;
	int rc;

	*r = (struct root){.config = *config, .signal_fd = -1};
	LIST_INIT(&r->sv.lines);
	LIST_INIT(&r->sv.commands);
	LIST_INIT(&r->sv.drains);
	close_on_exec(config);
	(void)prctl(PR_SET_NAME, "pai-supervisor");
	/* The commands may have its uid: what it holds open is not theirs to reach through /proc.
	 */
	(void)prctl(PR_SET_DUMPABLE, 0);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	raise_files_limit(r);
	rc = read_incarnation(r, err);
	rc = rc < 0 ? rc : read_env(r, err);
	rc = rc < 0 ? rc : take_signals(r, err);
	rc = rc < 0 ? rc : open_loop(r, err);
	rc = rc < 0 ? rc : start_listening(r, err);
	if (rc < 0) {
		return rc;
	}
	r->sv.keeper.base_env = r->config.env ? r->config.env : r->env;
	r->sv.keeper.workspace = config->workspace;
	return pai_loop_run(r->sv.loop, err);
}
