/*
 * A transport that the worker itself can read and write costs no copy and no change of processes
 * here. Else the relay copies with a thread each way, so that neither direction waits for the
 * other, and descriptors that others share (a shell's) keep their modes.
 */
#include "providers/helper/serve.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "providers/base/auto.h"
#include "providers/base/cancel.h"
#include "providers/base/clock.h"
#include "providers/helper/worker.h"

#define START_MS 10000
#define LOCK_LOOK_MS 5
#define BACKLOG 16
#define COPY_BYTES (256u << 10)
#define LAST_WORDS_MS 5000 /* for what is on its way when the other direction has ended */

/* Where descriptors lie in the worker. */
enum { FD_ROOT = 3, FD_LISTEN, FD_COUNT };

struct place {
	int root_fd;
	char sock[48], lock[48];
};

/* --- the root --- */

/* FNV-1a; ATTACH's client is compared, so that chance can only refuse. */
static uint64_t hash_bytes(uint64_t h, const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		h = (h ^ (uint8_t)bytes[i]) * 1099511628211ull;
	}
	return h;
}

static uint64_t hash_text(uint64_t h, const char *text)
{
	return hash_bytes(h, text, strlen(text) + 1);
}

/* This program, byte for byte: two of one version need not understand each other. */
static int hash_build(uint64_t *h, struct pai_err *err)
{
	pai_auto_fd int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	char bytes[16384];
	ssize_t n = -1;

	while (fd >= 0 && (n = read(fd, bytes, sizeof(bytes))) > 0) {
		*h = hash_bytes(*h, bytes, (size_t)n);
	}
	return n < 0 ? pai_err_sys(err, "read this program") : 0;
}

/* A worker of another build, or with other options, is another one. */
static int name_files(const struct pai_serve_config *c, struct place *p, struct pai_err *err)
{
	uint64_t h = hash_text(14695981039346656037ull, c->client);
	int r = hash_build(&h, err);

	for (size_t i = 0; c->options && i < c->options->count; i++) {
		h = hash_text(
		    hash_text(h, c->options->entries[i].key), c->options->entries[i].value);
	}
	(void)snprintf(p->sock, sizeof(p->sock), ".work-%016llx.sock", (unsigned long long)h);
	(void)snprintf(p->lock, sizeof(p->lock), ".work-%016llx.lock", (unsigned long long)h);
	return r;
}

/* mkdir -p: the path is the user's own word, links in it included. */
static int make_root(const char *path, struct pai_err *err)
{
	pai_auto_free char *part = strdup(path);

	if (!part) {
		return pai_err_no_memory(err);
	}
	for (char *slash = part; slash; *slash = '/') {
		slash = strchr(slash + 1, '/');
		if (slash) {
			*slash = '\0';
		}
		if (mkdir(part, 0700) < 0 && errno != EEXIST) {
			return pai_err_sys(err, "mkdir '%s'", part);
		}
		if (!slash) {
			break;
		}
	}
	return 0;
}

static int open_root(const char *path, bool make, int *ret_fd, struct pai_err *err)
{
	pai_auto_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 && errno == ENOENT && make) {
		if (make_root(path, err) < 0) {
			return -err->errnum;
		}
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	if (fd < 0 || fstat(fd, &st) < 0) {
		return pai_err_sys(err, "root '%s'", path);
	}
	if (st.st_uid != geteuid() || (st.st_mode & 022) != 0) {
		return pai_err_set(err, PAI_E_POLICY_MISMATCH,
		    "root '%s' must belong to uid %u and be writable by nobody else", path,
		    (unsigned)geteuid());
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

/* --- the worker --- */

static struct sockaddr_un address_of(const struct place *p)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	/* By descriptor: a root's path may be longer than an address. */
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s", p->root_fd, p->sock);
	return a;
}

/* A worker takes its lock's file along: who waited for that one begins again with the new. */
static bool is_current(const struct place *p, int fd)
{
	struct stat ours;
	struct stat named;

	return fstat(fd, &ours) == 0 &&
	       fstatat(p->root_fd, p->lock, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

/* -EAGAIN, err untouched: it is another's, or no longer the file of that name. */
static int try_lock(const struct place *p, int operation, int *ret, struct pai_err *err)
{
	pai_auto_fd int fd =
	    openat(p->root_fd, p->lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0) {
		return pai_err_sys(err, "open '%s'", p->lock);
	}
	if (flock(fd, operation | LOCK_NB) < 0) {
		return errno == EWOULDBLOCK || errno == EINTR
			   ? -EAGAIN
			   : pai_err_sys(err, "lock '%s'", p->lock);
	}
	if (!is_current(p, fd)) {
		return -EAGAIN;
	}
	*ret = PAI_TAKE_FD(fd);
	return 0;
}

static int take_lock(const struct place *p, int operation, const struct pai_call *call, int *ret,
    struct pai_err *err)
{
	int r;

	while ((r = try_lock(p, operation, ret, err)) == -EAGAIN) {
		r = pai_call_sleep(call, pai_deadline_in(LOCK_LOOK_MS), err);
		r = r < 0 ? r : pai_call_check(call, "waiting for the worker's lock", err);
		if (r < 0) {
			return r;
		}
	}
	return r;
}

/* A connection, or -ECONNREFUSED or -ENOENT (err untouched) when nobody listens. */
static int connect_now(const struct place *p, int *ret_fd, struct pai_err *err)
{
	struct sockaddr_un a = address_of(p);
	pai_auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		return pai_err_sys(err, "socket");
	}
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		if (errno == ECONNREFUSED || errno == ENOENT) {
			return -errno;
		}
		return pai_err_sys(err, "connect to the worker");
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

static int bind_socket(const struct place *p, int *ret_fd, struct pai_err *err)
{
	struct sockaddr_un a = address_of(p);
	pai_auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t before = umask(0177);
	int r;

	(void)unlinkat(p->root_fd, p->sock, 0);
	r = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&a, sizeof(a));
	(void)umask(before);
	if (r < 0 || listen(fd, BACKLOG) < 0) {
		return pai_err_sys(err, "the worker's socket");
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

/* Nobody's child, with nothing of the relay's but the root and its socket. */
static _Noreturn void become_worker(
    const struct pai_serve_config *c, const struct place *p, int listen_fd)
{
	struct pai_worker_config config = {.serve = c, .sock_name = p->sock, .lock_name = p->lock};
	struct pai_err err = PAI_ERR_INIT;
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	int root_fd;
	int r;

	(void)setsid();
	if (fork() != 0) {
		_exit(0);
	}
	root_fd = fcntl(p->root_fd, F_DUPFD_CLOEXEC, FD_COUNT);
	listen_fd = fcntl(listen_fd, F_DUPFD_CLOEXEC, FD_COUNT);
	null_fd = fcntl(null_fd, F_DUPFD_CLOEXEC, FD_COUNT);
	if (dup3(root_fd, FD_ROOT, O_CLOEXEC) < 0 || dup3(listen_fd, FD_LISTEN, O_CLOEXEC) < 0 ||
	    chdir("/") < 0) {
		_exit(1);
	}
	for (int fd = 0; fd <= 2; fd++) {
		(void)dup2(null_fd, fd);
	}
	(void)close_range(FD_COUNT, ~0u, 0);
	config.root_fd = FD_ROOT;
	config.listen_fd = FD_LISTEN;
	r = pai_worker_run(&config, &err);
	_exit(r < 0);
}

/* Whose socket nobody listens on was killed: a worker that ends takes it along. */
static void sweep_one(const struct place *other)
{
	pai_auto_fd int lock_fd = -1;
	pai_auto_fd int fd = -1;

	/* Who is about to start a worker of that name holds the lock. */
	if (try_lock(other, LOCK_EX, &lock_fd, PAI_ERR_IGNORED()) == 0 &&
	    connect_now(other, &fd, PAI_ERR_IGNORED()) < 0) {
		(void)unlinkat(other->root_fd, other->sock, 0);
		(void)unlinkat(other->root_fd, other->lock, 0);
	}
}

static void sweep_dead(const struct place *p)
{
	pai_auto_dir DIR *dir = NULL;
	pai_auto_fd int fd = openat(p->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct dirent *e;

	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		return;
	}
	(void)PAI_TAKE_FD(fd);
	while ((e = readdir(dir)) != NULL) {
		struct place other = {.root_fd = p->root_fd};
		const char *dot = strrchr(e->d_name, '.');

		if (strncmp(e->d_name, ".work-", 6) != 0 || strlen(e->d_name) != strlen(p->sock) ||
		    strncmp(e->d_name, p->sock, strlen(p->sock) - 5) == 0 ||
		    (strcmp(dot, ".sock") != 0 && strcmp(dot, ".lock") != 0)) {
			continue;
		}
		(void)snprintf(other.sock, sizeof(other.sock), "%.22s.sock", e->d_name);
		(void)snprintf(other.lock, sizeof(other.lock), "%.22s.lock", e->d_name);
		sweep_one(&other);
	}
}

/* The lock is held exclusively. */
static int start_worker(
    const struct pai_serve_config *c, const struct place *p, struct pai_err *err)
{
	pai_auto_fd int listen_fd = -1;
	int r = bind_socket(p, &listen_fd, err);
	pid_t pid;

	if (r < 0) {
		return r;
	}
	pid = fork();
	if (pid < 0) {
		return pai_err_sys(err, "fork");
	}
	if (pid == 0) {
		become_worker(c, p, listen_fd);
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
	}
	return 0;
}

static int reach_worker(
    const struct pai_serve_config *c, const struct place *p, int *ret_fd, struct pai_err *err)
{
	const struct pai_call call = {.deadline_ms = pai_deadline_in(START_MS)};
	pai_auto_fd int lock_fd = -1;
	int r = take_lock(p, LOCK_SH, &call, &lock_fd, err);

	r = r < 0 ? r : connect_now(p, ret_fd, err);
	if (r >= 0 || err->code != PAI_OK) {
		return r;
	}
	(void)close(PAI_TAKE_FD(lock_fd));
	r = take_lock(p, LOCK_EX, &call, &lock_fd, err);
	r = r < 0 ? r : connect_now(p, ret_fd, err);
	if (r >= 0 || err->code != PAI_OK) {
		return r;
	}
	sweep_dead(p);
	r = start_worker(c, p, err);
	r = r < 0 ? r : connect_now(p, ret_fd, err);
	if (r < 0 && err->code == PAI_OK) {
		return pai_err_unavailable(
		    err, PAI_REASON_BACKEND, NULL, "the worker ended at once");
	}
	return r;
}

/* --- the relay --- */

/* Copies until either ends; the reader's end is its own (0), the writer's is -1. */
static int copy(int from, int to)
{
	char *buffer = malloc(COPY_BYTES);
	ssize_t n;
	int r = 0;

	while (buffer && r == 0) {
		ssize_t at = 0;

		n = read(from, buffer, COPY_BYTES);
		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0 && errno == EAGAIN) {
			(void)poll(&(struct pollfd){.fd = from, .events = POLLIN}, 1, -1);
			continue;
		}
		if (n <= 0) {
			break;
		}
		while (at < n && r == 0) {
			ssize_t m = write(to, buffer + at, (size_t)(n - at));

			if (m < 0 && errno == EAGAIN) {
				(void)poll(&(struct pollfd){.fd = to, .events = POLLOUT}, 1, -1);
			} else if (m < 0 && errno != EINTR) {
				r = -1;
			}
			at += m > 0 ? m : 0;
		}
	}
	free(buffer);
	return r;
}

/* What the worker says. When it has said its last the relay is over; when nobody listens any more,
 * what comes from there has yet to reach the worker. */
static void *copy_back(void *arg)
{
	int sock = (int)(intptr_t)arg;

	if (copy(sock, STDOUT_FILENO) < 0) {
		(void)poll(NULL, 0, LAST_WORDS_MS);
	}
	_exit(0);
}

static int relay_by_copying(int sock, struct pai_err *err)
{
	const char lead = PAI_RELAY_COPIES;
	pthread_t back;
	int r;

	if (send(sock, &lead, 1, MSG_NOSIGNAL) != 1) {
		return pai_err_sys(err, "greet the worker");
	}
	(void)setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &(int){2 * COPY_BYTES}, sizeof(int));
	r = pthread_create(&back, NULL, copy_back, (void *)(intptr_t)sock);
	if (r != 0) {
		return pai_err_errno(err, r, "start a thread");
	}
	/* Its end is everyone's: the worker reads what has been sent, and sees the end behind it.
	 */
	(void)copy(STDIN_FILENO, sock);
	return 0;
}

/* A descriptor for the worker: of a pipe an own open file, which does not block, while that of
 * those who share this one does; -1: none is to be had. */
static int usable(int fd, int flags)
{
	char path[32];
	struct stat st;

	if (fstat(fd, &st) < 0) {
		return -1;
	}
	if (S_ISSOCK(st.st_mode)) {
		return fcntl(fd, F_DUPFD_CLOEXEC, 0);
	}
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return S_ISFIFO(st.st_mode) ? open(path, flags | O_NONBLOCK | O_CLOEXEC) : -1;
}

static bool send_both(int sock, const int fds[2])
{
	char lead = PAI_RELAY_HANDS;
	struct iovec iov = {&lead, 1};
	union {
		char bytes[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} space = {{0}};
	struct msghdr m = {.msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = space.bytes,
	    .msg_controllen = sizeof(space.bytes)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(2 * sizeof(int));
	memcpy(CMSG_DATA(c), fds, 2 * sizeof(int));
	return sendmsg(sock, &m, MSG_NOSIGNAL) == 1;
}

/* 1: done, 0: it can't be. */
static int relay_by_handing(int sock, struct pai_err *err)
{
	pai_auto_fd int in = usable(STDIN_FILENO, O_RDONLY);
	pai_auto_fd int out = usable(STDOUT_FILENO, O_WRONLY);
	const int fds[2] = {in, out};
	char byte;

	if (in < 0 || out < 0) {
		return 0;
	}
	if (!send_both(sock, fds)) {
		return pai_err_sys(err, "greet the worker");
	}
	while (recv(sock, &byte, 1, 0) < 0 && errno == EINTR) {
	}
	return 1;
}

int pai_serve_run(const struct pai_serve_config *c, struct pai_err *err)
{
	struct place p = {.root_fd = -1};
	int sock = -1;
	int r = open_root(c->root, c->make_root, &p.root_fd, err);

	if (r < 0) {
		return r;
	}
	r = name_files(c, &p, err);
	r = r < 0 ? r : reach_worker(c, &p, &sock, err);
	(void)close(p.root_fd);
	if (r < 0) {
		return r;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	r = relay_by_handing(sock, err);
	return r != 0 ? (r < 0 ? r : 0) : relay_by_copying(sock, err);
}
