/*
 * Commands go through the sandbox's supervisor, which is started here when it is wanted and not
 * running. The socket is bound here and listened on there: SO_PEERCRED of a connection names the
 * process that listens, so whoever holds a connection can end the supervisor by a pidfd that can't
 * mean another process.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "providers/base/clock.h"
#include "providers/base/path.h"
#include "providers/local/local.h"

#define START_MS 10000
#define TERM_MS 7000 /* past the supervisor's own bound for killing what is in it */
#define KILL_MS 5000
#define TEXT_MAX (4u << 20)

/* --- the socket --- */

static struct sockaddr_un address_of(int dir_fd)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	/* By descriptor: a root's path may be longer than an address. */
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
		/* EAGAIN: its backlog is full. */
		return pai_err_unavailable(err, PAI_REASON_BACKEND, NULL,
		    "connect to the supervisor: %s", pai_errno_name(errno));
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

static int bind_socket(const struct pai_local_sandbox *sb, int *ret_fd, struct pai_err *err)
{
	struct sockaddr_un a = address_of(sb->dir_fd);
	pai_auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (unlinkat(sb->dir_fd, "sup.sock", 0) < 0 && errno != ENOENT) {
		return pai_err_sys(err, "unlink the supervisor's old socket");
	}
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		return pai_err_sys(err, "bind the supervisor's socket");
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

/* --- starting one --- */

struct launch {
	int fds[PAI_LOCAL_FD_END]; /* what lies at 0-2 and at each enum pai_local_fd; -1: nothing */
	int ready_read;
	int words_read; /* its standard error until it is ready */
};

static void launch_close(struct launch *x)
{
	for (int i = 0; i < PAI_LOCAL_FD_END; i++) {
		pai_auto_fd_p(&x->fds[i]);
	}
	pai_auto_fd_p(&x->ready_read);
	pai_auto_fd_p(&x->words_read);
}

int pai_local_text_file(const struct pai_buf *text, struct pai_err *err)
{
	pai_auto_fd int fd = memfd_create("paifs", MFD_CLOEXEC);

	if (fd < 0 || (text->len > 0 && write(fd, text->data, text->len) != (ssize_t)text->len) ||
	    lseek(fd, 0, SEEK_SET) < 0) {
		return pai_err_sys(err, "memfd");
	}
	return PAI_TAKE_FD(fd);
}

static int open_pipe(int *read_end, int *write_end, struct pai_err *err)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0) {
		return pai_err_sys(err, "pipe");
	}
	*read_end = fds[0];
	*write_end = fds[1];
	return 0;
}

static int gather_texts(
    const struct pai_local_sandbox *sb, bool bound, struct launch *x, struct pai_err *err)
{
	pai_auto_buf struct pai_buf env = PAI_BUF_INIT(TEXT_MAX);
	pai_auto_buf struct pai_buf args = PAI_BUF_INIT(TEXT_MAX);
	int r = pai_local_environment(sb, &env, err);

	if (r == 0) {
		r = x->fds[PAI_LOCAL_FD_ENV] = pai_local_text_file(&env, err);
	}
	if (r >= 0 && bound) {
		r = pai_local_isolator_args(sb, &args, err);
		if (r == 0) {
			r = x->fds[PAI_LOCAL_FD_ARGS] = pai_local_text_file(&args, err);
		}
	}
	return r < 0 ? r : 0;
}

/* Everything that the supervisor is given, well above the numbers at which it gets it. */
static int gather(
    const struct pai_local_sandbox *sb, bool bound, struct launch *x, struct pai_err *err)
{
	int r = bind_socket(sb, &x->fds[PAI_LOCAL_FD_SOCKET], err);

	r = r < 0 ? r : open_pipe(&x->ready_read, &x->fds[PAI_LOCAL_FD_READY], err);
	r = r < 0 ? r : open_pipe(&x->words_read, &x->fds[2], err);
	r = r < 0 ? r : gather_texts(sb, bound, x, err);
	if (r < 0) {
		return r;
	}
	x->fds[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
	x->fds[1] = open("/dev/null", O_RDWR | O_CLOEXEC);
	x->fds[PAI_LOCAL_FD_NONCE] = fcntl(sb->nonce_fd, F_DUPFD_CLOEXEC, 0);
	x->fds[PAI_LOCAL_FD_LOCK] =
	    openat(sb->dir_fd, "sup.lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	x->fds[PAI_LOCAL_FD_HELPER] = open(sb->local->helper, O_RDONLY | O_CLOEXEC);
	x->fds[PAI_LOCAL_FD_WORKSPACE] = fcntl(sb->workspace_fd, F_DUPFD_CLOEXEC, 0);
	x->fds[PAI_LOCAL_FD_TMP] = fcntl(sb->tmp_fd, F_DUPFD_CLOEXEC, 0);
	x->fds[PAI_LOCAL_FD_HOME] =
	    openat(sb->dir_fd, "home", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	for (int i = 0; i < PAI_LOCAL_FD_END; i++) {
		int high =
		    x->fds[i] < 0 ? -1 : fcntl(x->fds[i], F_DUPFD_CLOEXEC, PAI_LOCAL_HIGH_FD);

		if (high < 0 && (i != PAI_LOCAL_FD_ARGS || bound)) {
			return pai_err_sys(err, "descriptors for the supervisor");
		}
		pai_auto_fd_p(&x->fds[i]);
		x->fds[i] = high;
	}
	return 0;
}

int pai_local_spawn(
    const char *helper, char *const argv[], const int *fds, size_t count, struct pai_err *err)
{
	char path_env[] = "PATH=/usr/bin:/bin";
	char *env[] = {path_env, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t set;
	pid_t pid;
	int r;

	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawnattr_init(&attr);
	for (size_t i = 0; i < count; i++) {
		if (fds[i] >= 0) {
			(void)posix_spawn_file_actions_adddup2(&actions, fds[i], (int)i);
		}
	}
	/* It outlives us, and would keep the file system busy that we happen to stand in. */
	(void)posix_spawn_file_actions_addchdir_np(&actions, "/");
	(void)sigemptyset(&set);
	(void)posix_spawnattr_setsigmask(&attr, &set);
	(void)sigfillset(&set);
	(void)posix_spawnattr_setsigdefault(&attr, &set);
	(void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	r = posix_spawn(&pid, helper, &actions, &attr, argv, env);
	(void)posix_spawn_file_actions_destroy(&actions);
	(void)posix_spawnattr_destroy(&attr);
	if (r != 0) {
		return pai_err_errno(err, r, "'%s'", helper);
	}
	/* The launcher ends as soon as it has forked. */
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
	}
	return 0;
}

static int launch(
    const struct pai_local_sandbox *sb, bool bound, struct launch *x, struct pai_err *err)
{
	const char *helper = sb->local->helper;
	pai_auto_free char *workspace = sb->meta.template_dir
					    ? strdup(sb->meta.template_dir)
					    : pai_path_join(sb->path, "workspace");
	char numbers[5][8];
	char files[24];
	const char *argv[24];
	size_t n = 0;

	if (!workspace) {
		return pai_err_no_memory(err);
	}
	for (int i = 0; i < 5; i++) {
		(void)snprintf(numbers[i], sizeof(numbers[i]), "%d", PAI_LOCAL_FD_SOCKET + i);
	}
	(void)snprintf(files, sizeof(files), "%llu", (unsigned long long)sb->local->files_limit);
	argv[n++] = helper;
	argv[n++] = "launch";
	argv[n++] = files;
	if (bound) {
		argv[n++] = sb->local->isolator[0];
		if (sb->local->isolator[1]) {
			argv[n++] = sb->local->isolator[1];
		}
		argv[n++] = "--args";
		argv[n++] = "9";
		argv[n++] = "--";
		argv[n++] = "/proc/self/fd/8";
	} else {
		argv[n++] = helper;
	}
	argv[n++] = "supervise";
	argv[n++] = "--socket-fd";
	argv[n++] = numbers[0];
	argv[n++] = "--nonce-fd";
	argv[n++] = numbers[1];
	argv[n++] = "--env-fd";
	argv[n++] = numbers[2];
	argv[n++] = "--ready-fd";
	argv[n++] = numbers[3];
	argv[n++] = "--lock-fd";
	argv[n++] = numbers[4];
	if (!bound) {
		argv[n++] = "--workspace";
		argv[n++] = workspace;
	}
	argv[n] = NULL;
	_Static_assert(PAI_LOCAL_FD_HELPER == 8 && PAI_LOCAL_FD_ARGS == 9, "named above");
	return pai_local_spawn(
	    helper, (char *const *)(uintptr_t)argv, x->fds, PAI_LOCAL_FD_END, err);
}

/* Its one byte, or its last words. */
static int await_ready(struct launch *x, const struct pai_call *call, struct pai_err *err)
{
	struct pai_call within = *call;
	uint64_t own = pai_deadline_in(START_MS);
	char words[200];
	char byte;
	ssize_t n;
	int r;

	/* Our own copies of its ends go: an end without a word must show. */
	for (int i = 0; i < PAI_LOCAL_FD_END; i++) {
		pai_auto_fd_p(&x->fds[i]);
		x->fds[i] = -1;
	}
	within.deadline_ms = own < call->deadline_ms ? own : call->deadline_ms;
	r = pai_call_poll(&within, x->ready_read, POLLIN, err);
	if (r < 0) {
		return pai_err_wrap(err, "waiting for the supervisor");
	}
	if (read(x->ready_read, &byte, 1) == 1) {
		return 0;
	}
	(void)fcntl(x->words_read, F_SETFL, O_NONBLOCK);
	n = read(x->words_read, words, sizeof(words) - 1);
	words[n > 0 ? n : 0] = '\0';
	words[strcspn(words, "\n")] = '\0';
	return pai_err_unavailable(err, PAI_REASON_BACKEND, NULL,
	    "the supervisor did not start: %s", words[0] ? words : "no reason given");
}

static int start_supervisor(
    struct pai_local_sandbox *sb, const struct pai_call *call, struct pai_err *err)
{
	bool bound = sb->local->why_not_isolated[0] == '\0';
	PAI_AUTO(launch_close) struct launch x;
	int r;

	memset(&x, 0xff, sizeof(x)); /* every descriptor -1 */
	r = gather(sb, bound, &x, err);
	r = r < 0 ? r : launch(sb, bound, &x, err);
	return r < 0 ? r : await_ready(&x, call, err);
}

static int may_run(const struct pai_local_sandbox *sb, struct pai_err *err)
{
	const struct pai_local *l = sb->local;

	if (!l->host_commands) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "commands run on this host only with -o host_commands");
	}
	if (sb->meta.network != PAI_NETWORK_FULL && l->why_not_isolated[0]) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "network none can't be enforced (%s); network=full can be asked for",
		    l->why_not_isolated);
	}
	if (!l->helper) {
		return pai_err_set(
		    err, PAI_E_POLICY_MISMATCH, "pai-helper was not found beside this program");
	}
	return 0;
}

static int open_exec(
    struct pai_local_sandbox *sb, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	pai_auto_fd int lock_fd = -1;
	int r = pai_local_lock(sb->dir_fd, "sup.lock", LOCK_SH, call, &lock_fd, err);
	r = r < 0 ? r : connect_now(sb->dir_fd, ret_fd, err);
	if (r >= 0 || err->code != PAI_OK) {
		return r;
	}
	(void)close(PAI_TAKE_FD(lock_fd));
	r = pai_local_lock(sb->dir_fd, "sup.lock", LOCK_EX, call, &lock_fd, err);
	/* Now that nobody else starts or kills one: is there still none, and still a sandbox? */
	r = r < 0 ? r : pai_local_check_alive(sb, err);
	r = r < 0 ? r : connect_now(sb->dir_fd, ret_fd, err);
	if (r >= 0 || err->code != PAI_OK) {
		return r;
	}
	r = start_supervisor(sb, call, err);
	if (r < 0) {
		return r;
	}
	r = connect_now(sb->dir_fd, ret_fd, err);
	if (r < 0 && err->code == PAI_OK) {
		return pai_err_unavailable(
		    err, PAI_REASON_BACKEND, NULL, "the supervisor ended at once");
	}
	return r;
}

int pai_local_open_exec(
    struct pai_sandbox *base, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct pai_local_sandbox *sb = pai_local_sandbox_of(base);
	struct pai_err inner = PAI_ERR_INIT;
	int r = pai_local_check_alive(sb, err);

	r = r < 0 ? r : may_run(sb, err);
	if (r < 0) {
		return r;
	}
	r = open_exec(sb, call, ret_fd, &inner);
	if (r < 0 && pai_local_check_alive(sb, err) == 0) {
		*err = inner; /* else what a kill meanwhile took away is no failure of its own */
	}
	return r < 0 ? -err->errnum : 0;
}

/* --- the fence --- */

static int pidfd_of(int connection)
{
	struct pollfd p = {.fd = connection, .events = 0};
	struct ucred peer;
	socklen_t len = sizeof(peer);
	int fd;

	if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.pid <= 0) {
		return -1;
	}
	fd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
	/* While the connection stands its listener lives: the pid is still its own. */
	if (fd >= 0 && poll(&p, 1, 0) == 1 && p.revents & (POLLHUP | POLLERR)) {
		(void)close(fd);
		return -1;
	}
	return fd;
}

/* Whether it has ended: in its process namespace it is the last to go. */
static bool ends_after(int pidfd, int signo, int within_ms)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	if (syscall(SYS_pidfd_send_signal, pidfd, signo, NULL, 0) < 0 && errno == ESRCH) {
		return true;
	}
	return poll(&p, 1, within_ms) == 1;
}

void pai_local_fence_fini(struct pai_local_fence *f)
{
	pai_auto_fd_p(&f->lock_fd);
	pai_auto_fd_p(&f->connection);
	pai_auto_fd_p(&f->pidfd);
}

int pai_local_fence_begin(
    int dir_fd, const struct pai_call *call, struct pai_local_fence *f, struct pai_err *err)
{
	struct pai_err inner = PAI_ERR_INIT;
	int r;

	*f = (struct pai_local_fence){.lock_fd = -1, .connection = -1, .pidfd = -1};
	r = pai_local_lock(dir_fd, "sup.lock", LOCK_EX, call, &f->lock_fd, &inner);
	if (r == -ENOENT) {
		return 0; /* the directory is unlinked: another has done it all */
	}
	r = r < 0 ? r : connect_now(dir_fd, &f->connection, &inner);
	if (r == 0) {
		f->pidfd = pidfd_of(f->connection);
	} else if (inner.code != PAI_OK) {
		*err = inner;
		return r;
	}
	return 0; /* nobody listens: nothing runs */
}

int pai_local_fence_end(struct pai_local_fence *f, struct pai_err *err)
{
	if (f->pidfd < 0 || ends_after(f->pidfd, SIGTERM, TERM_MS) ||
	    ends_after(f->pidfd, SIGKILL, KILL_MS)) {
		return 0;
	}
	return pai_err_unavailable(
	    err, PAI_REASON_BACKEND, NULL, "the sandbox's supervisor can't be ended");
}

/* --- run() --- */

int pai_local_run(struct pai_sandbox *base, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err)
{
	struct pai_local_sandbox *sb = pai_local_sandbox_of(base);
	struct pai_exec_line *l = NULL;
	int r = pai_local_check_alive(sb, err);

	r = r < 0 ? r : may_run(sb, err);
	r = r < 0 ? r
		  : pai_exec_own_line(
			&(struct pai_exec_own){&sb->base, sb->nonce_fd, &sb->lock, &sb->line}, call,
			&l, err);
	if (r < 0) {
		return r;
	}
	r = pai_exec_run(l, input, call, ret, err);
	pai_exec_line_unref(l);
	return r;
}
