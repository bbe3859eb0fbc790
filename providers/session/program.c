#include "providers/session/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "providers/base/auto.h"

#define CHUNK 65536

extern char **environ;

/* A session of its own: nobody's terminal, a group to kill, and told from whoever else asks us. */
static int set_up(const struct pai_program *p, int in, int out, posix_spawn_file_actions_t *actions,
    posix_spawnattr_t *attr)
{
	sigset_t none, all;
	int r = in >= 0 ? posix_spawn_file_actions_adddup2(actions, in, 0)
			: posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);

	(void)sigemptyset(&none);
	(void)sigfillset(&all);
	r = r ? r : posix_spawn_file_actions_adddup2(actions, out, 1);
	r = r || !p->dir ? r : posix_spawn_file_actions_addchdir_np(actions, p->dir);
	r = r ? r : posix_spawnattr_setsigmask(attr, &none);
	r = r ? r : posix_spawnattr_setsigdefault(attr, &all);
	return r ? r
		 : posix_spawnattr_setflags(
		       attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

static int spawn(const struct pai_program *p, int in, int out, pid_t *ret, struct pai_err *err)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int r;

	if (posix_spawn_file_actions_init(&actions) != 0) {
		return pai_err_no_memory(err);
	}
	if (posix_spawnattr_init(&attr) != 0) {
		(void)posix_spawn_file_actions_destroy(&actions);
		return pai_err_no_memory(err);
	}
	r = set_up(p, in, out, &actions, &attr);
	r = r ? r : posix_spawnp(ret, p->argv[0], &actions, &attr, p->argv, environ);
	(void)posix_spawn_file_actions_destroy(&actions);
	(void)posix_spawnattr_destroy(&attr);
	return r ? pai_err_unavailable(err, PAI_REASON_BACKEND, NULL, "%s", pai_errno_name(r)) : 0;
}

/* In memory: a program that doesn't read it can't hold us up. -1 in *ret: none. */
static int make_input(const char *text, int *ret, struct pai_err *err)
{
	size_t left = text ? strlen(text) : 0;
	pai_auto_fd int fd = -1;

	if (!text) {
		return 0;
	}
	fd = memfd_create("input", MFD_CLOEXEC);
	if (fd < 0) {
		return pai_err_sys(err, "memfd_create");
	}
	while (left > 0) {
		ssize_t n = write(fd, text, left);

		if (n < 0) {
			return pai_err_sys(err, "write");
		}
		text += n;
		left -= (size_t)n;
	}
	if (lseek(fd, 0, SEEK_SET) < 0) {
		return pai_err_sys(err, "lseek");
	}
	*ret = PAI_TAKE_FD(fd);
	return 0;
}

/* Reads to the end of file. */
static int collect(int fd, struct pai_buf *out, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_free char *chunk = malloc(CHUNK);

	while (chunk) {
		ssize_t n;
		int r = pai_call_poll(call, fd, POLLIN, err);

		if (r < 0) {
			return r;
		}
		n = read(fd, chunk, CHUNK);
		if (n == 0) {
			return 0;
		}
		if (n < 0) {
			if (errno == EINTR) {
				continue;
			}
			return pai_err_sys(err, "read");
		}
		r = pai_buf_add(out, chunk, (size_t)n);
		if (r < 0) {
			return r == -EMSGSIZE ? pai_err_limit(err, PAI_E_OUTPUT_LIMIT, out->max,
						    "what it prints")
					      : pai_err_no_memory(err);
		}
	}
	return pai_err_no_memory(err);
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
static int wait_exit(pid_t pid, const struct pai_call *call, int *status, struct pai_err *err)
{
	pai_auto_fd int fd = pidfd_open(pid, 0);
	int r;

	if (fd < 0) {
		return pai_err_sys(err, "pidfd_open");
	}
	r = pai_call_poll(call, fd, POLLIN, err);
	if (r < 0) {
		return r;
	}
	return waitpid(pid, status, 0) < 0 ? pai_err_sys(err, "waitpid") : 0;
}

static void tell_session(const struct pai_program *p, pid_t pid)
{
	if (p->tell) {
		p->tell(p->arg, pid);
	}
}

int pai_program_run(const struct pai_program *p, const struct pai_call *call, struct pai_buf *out,
    int *status, struct pai_err *err)
{
	pai_auto_fd int in = -1;
	pai_auto_fd int read_end = -1;
	pai_auto_fd int write_end = -1;
	int pipe_fds[2];
	pid_t pid = -1;
	int r;

	if (make_input(p->input, &in, err) < 0) {
		return -err->errnum;
	}
	if (pipe2(pipe_fds, O_CLOEXEC) < 0) {
		return pai_err_sys(err, "pipe");
	}
	read_end = pipe_fds[0];
	write_end = pipe_fds[1];
	r = spawn(p, in, write_end, &pid, err);
	if (r < 0) {
		return r;
	}
	tell_session(p, pid);
	(void)close(PAI_TAKE_FD(write_end));
	r = collect(read_end, out, call, err);
	r = r < 0 ? r : wait_exit(pid, call, status, err);
	if (r < 0) {
		kill_group(pid);
	}
	tell_session(p, 0);
	return r;
}

int pai_program_check(int status, struct pai_err *err)
{
	bool exited = WIFEXITED(status);

	return exited && WEXITSTATUS(status) == 0
		   ? 0
		   : pai_err_unavailable(err, PAI_REASON_BACKEND, NULL, "ended with %s %d",
			 exited ? "status" : "signal",
			 exited ? WEXITSTATUS(status) : WTERMSIG(status));
}
