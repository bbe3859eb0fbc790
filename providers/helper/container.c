/*
 * The socket is bound here and listened on there, so that a connection's SO_PEERCRED names the
 * supervisor, as the local provider has it.
 */
#include "providers/helper/container.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "providers/base/auto.h"
#include "providers/base/buf.h"
#include "providers/base/clock.h"

#define START_MS 10000
#define LOCK_LOOK_MS 5
#define HIGH_FD 40 /* clear of the numbers that the launched program gets */
#define ENV_MAX (1u << 20)
#define SELF "/proc/self/exe"

/* Where descriptors lie in the supervisor: `launch` keeps those below 16. */
enum { FD_SOCKET = 3, FD_NONCE, FD_ENV, FD_READY, FD_LOCK, FD_COUNT };

struct start {
	int fds[FD_COUNT];
	int ready_read;
};

static void start_close(struct start *s)
{
	for (int i = 0; i < FD_COUNT; i++) {
		pai_auto_fd_p(&s->fds[i]);
	}
	pai_auto_fd_p(&s->ready_read);
}

static int lock(
    int dir_fd, int operation, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	pai_auto_fd int fd =
	    openat(dir_fd, "sup.lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0) {
		return pai_err_sys(err, "open the supervisor's lock");
	}
	while (flock(fd, operation | LOCK_NB) < 0) {
		int r;

		if (errno != EWOULDBLOCK && errno != EINTR) {
			return pai_err_sys(err, "lock the supervisor's lock");
		}
		r = pai_call_sleep(call, pai_deadline_in(LOCK_LOOK_MS), err);
		r = r < 0 ? r : pai_call_check(call, "waiting for the supervisor's lock", err);
		if (r < 0) {
			return r;
		}
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

static struct sockaddr_un address_of(int dir_fd)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/sup.sock", dir_fd);
	return a;
}

/* A connection, or -ECONNREFUSED or -ENOENT (err untouched) when nobody listens. */
static int connect_now(int dir_fd, int *ret_fd, struct pai_err *err)
{
	struct sockaddr_un a = address_of(dir_fd);
	pai_auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0) {
		return pai_err_sys(err, "socket");
	}
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		if (errno == ECONNREFUSED || errno == ENOENT) {
			return -errno;
		}
		return pai_err_unavailable(err, PAI_REASON_BACKEND, NULL,
		    "connect to the supervisor: %s", pai_errno_name(errno));
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

/* --- starting one --- */

static int bind_socket(int dir_fd, int *ret_fd, struct pai_err *err)
{
	struct sockaddr_un a = address_of(dir_fd);
	pai_auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (unlinkat(dir_fd, "sup.sock", 0) < 0 && errno != ENOENT) {
		return pai_err_sys(err, "unlink the supervisor's old socket");
	}
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		return pai_err_sys(err, "bind the supervisor's socket");
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

/* Appears whole: who finds it can read it. */
static int make_nonce(int dir_fd)
{
	pai_auto_fd int fd = openat(dir_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	char path[32];
	char text[40];
	uint64_t random[2];

	if (fd < 0 || getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
		return -errno;
	}
	(void)snprintf(text, sizeof(text), "%016llx%016llx\n", (unsigned long long)random[0],
	    (unsigned long long)random[1]);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text) ||
	    (linkat(AT_FDCWD, path, dir_fd, "nonce", AT_SYMLINK_FOLLOW) < 0 && errno != EEXIST)) {
		return -errno;
	}
	return 0;
}

static int open_nonce(int dir_fd, int *ret_fd, struct pai_err *err)
{
	pai_auto_fd int fd = openat(dir_fd, "nonce", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT && make_nonce(dir_fd) == 0) {
		fd = openat(dir_fd, "nonce", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	}
	if (fd < 0) {
		return pai_err_sys(err, "the nonce");
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

static int environment_file(int *ret_fd, struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(ENV_MAX);
	pai_auto_fd int fd = memfd_create("environment", MFD_CLOEXEC);

	for (char **e = environ; e && *e; e++) {
		if (pai_buf_add(&text, *e, strlen(*e) + 1) < 0) {
			return pai_err_set(err, PAI_E_INPUT, "the environment is over 1 MiB");
		}
	}
	if (fd < 0 || write(fd, text.data, text.len) != (ssize_t)text.len) {
		return pai_err_sys(err, "a file for the environment");
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

/* All of them above the numbers that they are copied to. */
static int gather(int dir_fd, struct start *s, struct pai_err *err)
{
	int pipe_fds[2];
	int r = bind_socket(dir_fd, &s->fds[FD_SOCKET], err);

	r = r < 0 ? r : open_nonce(dir_fd, &s->fds[FD_NONCE], err);
	r = r < 0 ? r : environment_file(&s->fds[FD_ENV], err);
	if (r < 0) {
		return r;
	}
	if (pipe2(pipe_fds, O_CLOEXEC) < 0) {
		return pai_err_sys(err, "pipe");
	}
	s->ready_read = pipe_fds[0];
	s->fds[FD_READY] = pipe_fds[1];
	s->fds[FD_LOCK] = openat(dir_fd, "sup.lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	s->fds[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = 0; i < FD_COUNT; i++) {
		int high = s->fds[i] < 0 ? -1 : fcntl(s->fds[i], F_DUPFD_CLOEXEC, HIGH_FD);

		if (high < 0 && i != 1 && i != 2) {
			return pai_err_sys(err, "descriptors for the supervisor");
		}
		pai_auto_fd_p(&s->fds[i]);
		s->fds[i] = high;
	}
	return 0;
}

static int spawn(const struct start *s, struct pai_err *err)
{
	struct rlimit files = {.rlim_cur = 1024};
	char limit[24];
	char *const argv[] = {(char[]){"pai-helper"}, (char[]){"launch"}, limit, (char[]){SELF},
	    (char[]){"supervise"}, (char[]){"--socket-fd"}, (char[]){"3"}, (char[]){"--nonce-fd"},
	    (char[]){"4"}, (char[]){"--env-fd"}, (char[]){"5"}, (char[]){"--ready-fd"},
	    (char[]){"6"}, (char[]){"--lock-fd"}, (char[]){"7"}, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t set;
	pid_t pid;
	int r;

	_Static_assert(FD_SOCKET == 3 && FD_LOCK == 7, "named above");
	(void)getrlimit(RLIMIT_NOFILE, &files);
	(void)snprintf(limit, sizeof(limit), "%llu", (unsigned long long)files.rlim_cur);
	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawnattr_init(&attr);
	for (int i = 0; i < FD_COUNT; i++) {
		(void)posix_spawn_file_actions_adddup2(&actions, s->fds[i < FD_SOCKET ? 0 : i], i);
	}
	(void)posix_spawn_file_actions_addchdir_np(&actions, "/");
	(void)sigemptyset(&set);
	(void)posix_spawnattr_setsigmask(&attr, &set);
	(void)sigfillset(&set);
	(void)posix_spawnattr_setsigdefault(&attr, &set);
	(void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	r = posix_spawn(&pid, SELF, &actions, &attr, argv, environ);
	(void)posix_spawn_file_actions_destroy(&actions);
	(void)posix_spawnattr_destroy(&attr);
	if (r != 0) {
		return pai_err_errno(err, r, "start the supervisor");
	}
	/* The launcher ends as soon as it has forked. */
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
	}
	return 0;
}

static int start_supervisor(int dir_fd, const struct pai_call *call, struct pai_err *err)
{
	PAI_AUTO(start_close) struct start s;
	struct pai_call within = *call;
	uint64_t own = pai_deadline_in(START_MS);
	char byte;
	int r;

	memset(&s, 0xff, sizeof(s)); /* every descriptor -1 */
	r = gather(dir_fd, &s, err);
	r = r < 0 ? r : spawn(&s, err);
	if (r < 0) {
		return r;
	}
	/* An end without a word must show. */
	pai_auto_fd_p(&s.fds[FD_READY]);
	s.fds[FD_READY] = -1;
	within.deadline_ms = own < call->deadline_ms ? own : call->deadline_ms;
	r = pai_call_poll(&within, s.ready_read, POLLIN, err);
	if (r < 0) {
		return pai_err_wrap(err, "waiting for the supervisor");
	}
	if (read(s.ready_read, &byte, 1) != 1) {
		return pai_err_unavailable(
		    err, PAI_REASON_BACKEND, NULL, "the supervisor did not start");
	}
	return 0;
}

int pai_container_open_exec(
    int dir_fd, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	pai_auto_fd int lock_fd = -1;
	int r = lock(dir_fd, LOCK_SH, call, &lock_fd, err);

	r = r < 0 ? r : connect_now(dir_fd, ret_fd, err);
	if (r >= 0 || err->code != PAI_OK) {
		return r;
	}
	(void)close(PAI_TAKE_FD(lock_fd));
	r = lock(dir_fd, LOCK_EX, call, &lock_fd, err);
	r = r < 0 ? r : connect_now(dir_fd, ret_fd, err);
	if (r >= 0 || err->code != PAI_OK) {
		return r;
	}
	r = start_supervisor(dir_fd, call, err);
	if (r < 0) {
		return r;
	}
	r = connect_now(dir_fd, ret_fd, err);
	if (r < 0 && err->code == PAI_OK) {
		return pai_err_unavailable(
		    err, PAI_REASON_BACKEND, NULL, "the supervisor ended at once");
	}
	return r;
}
