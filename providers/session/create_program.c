/*
 * The create program: `program KEY`, whose standard output is JSON. It is the user's own and runs
 * as the daemon does, but it may hang or flood: its output is capped, and at the deadline its
 * process group is killed.
 */
#include "providers/session/options.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "providers/base/buf.h"

#define OUTPUT_MAX (256u << 10)
#define CHUNK 4096

extern char **environ;

static int spawn(const char *program, const char *key, int out, pid_t *ret, struct pai_err *err)
{
	char *const argv[] = {(char *)program, (char *)key, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int r;

	(void)sigemptyset(&none);
	(void)sigfillset(&all);
	if (posix_spawn_file_actions_init(&actions) != 0) {
		return pai_err_no_memory(err);
	}
	if (posix_spawnattr_init(&attr) != 0) {
		(void)posix_spawn_file_actions_destroy(&actions);
		return pai_err_no_memory(err);
	}
	r = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	r = r ? r : posix_spawn_file_actions_adddup2(&actions, out, 1);
	r = r ? r : posix_spawnattr_setpgroup(&attr, 0);
	r = r ? r : posix_spawnattr_setsigmask(&attr, &none);
	r = r ? r : posix_spawnattr_setsigdefault(&attr, &all);
	r = r ? r
	      : posix_spawnattr_setflags(
		    &attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	r = r ? r : posix_spawn(ret, program, &actions, &attr, argv, environ);
	(void)posix_spawn_file_actions_destroy(&actions);
	(void)posix_spawnattr_destroy(&attr);
	return r ? pai_err_unavailable(err, PAI_REASON_BACKEND, NULL, "create program %s: %s",
		       program, pai_errno_name(r))
		 : 0;
}

/* Reads to the end of file. */
static int collect(int fd, struct pai_buf *out, const struct pai_call *call, struct pai_err *err)
{
	for (;;) {
		char chunk[CHUNK];
		ssize_t n;
		int r = pai_call_poll(call, fd, POLLIN, err);

		if (r < 0) {
			return r;
		}
		n = read(fd, chunk, sizeof(chunk));
		if (n == 0) {
			return 0;
		}
		if (n < 0) {
			if (errno == EINTR) {
				continue;
			}
			return pai_err_sys(err, "read");
		}
		if (pai_buf_add(out, chunk, (size_t)n) < 0) {
			return pai_err_set(
			    err, PAI_E_INPUT, "prints more than %u bytes", OUTPUT_MAX);
		}
	}
}

static void kill_group(pid_t pid)
{
	int status;

	(void)kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
		continue;
	}
}

/* It has closed its output; that it ends as well is waited for within the call. */
static int wait_exit(pid_t pid, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_fd int fd = pidfd_open(pid, 0);
	int status = 0;
	int r;

	if (fd < 0) {
		r = pai_err_sys(err, "pidfd_open");
		kill_group(pid);
		return r;
	}
	r = pai_call_poll(call, fd, POLLIN, err);
	if (r < 0) {
		kill_group(pid);
		return r;
	}
	if (waitpid(pid, &status, 0) < 0) {
		return pai_err_sys(err, "waitpid");
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		return pai_err_unavailable(err, PAI_REASON_BACKEND, NULL, "ended with %s %d",
		    WIFEXITED(status) ? "status" : "signal",
		    WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	}
	return 0;
}

int pai_create_program_run(const char *program, const char *key, const char *key_metadata,
    struct pai_create_options *o, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(OUTPUT_MAX);
	int pipe_fds[2];
	pid_t pid = -1;
	int r;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0) {
		return pai_err_sys(err, "pipe");
	}
	r = spawn(program, key, pipe_fds[1], &pid, err);
	(void)close(pipe_fds[1]);
	if (r < 0) {
		(void)close(pipe_fds[0]);
		return r;
	}
	r = collect(pipe_fds[0], &out, call, err);
	(void)close(pipe_fds[0]);
	if (r < 0) {
		kill_group(pid);
	} else {
		r = wait_exit(pid, call, err);
	}
	if (r < 0) {
		return pai_err_wrap(err, "create program %s", program);
	}
	r = pai_create_options_parse(o, out.data ? out.data : "", out.len, key_metadata, err);
	return r < 0 ? pai_err_wrap(err, "create program %s", program) : 0;
}
