/*
 * A channel of a link beside plain sockets: a stream of 1 GiB each way, and how long 64 bytes take
 * there and back. The worker's end is a process of its own; its channels read, write or echo.
 *
 *   plain     one socket between the two
 *   relayed   a process copies between two sockets, as a relay of ssh or of pai-helper does
 *   link      a channel; the transport is one socket
 *   link+     a channel; the transport is relayed
 *
 * All take turns; the best of the rounds counts.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/base/pool.h"
#include "providers/helper/link.h"
#include "providers/helper/link_end.h"

#define STREAM_BYTES (1024ull << 20)
#define PIECE (256u << 10)
#define PINGS 5000
#define PING_BYTES 64
#define ROUNDS 3

enum way { PLAIN, RELAYED, LINK, LINK_RELAYED, WAYS };
static const char *const way_names[WAYS] = {"plain", "relayed", "link", "link+"};

static char piece[PIECE];

static _Noreturn void die(const char *what)
{
	(void)fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void pair(int fds[2])
{
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) {
		die("socketpair");
	}
	for (int i = 0; i < 2; i++) {
		(void)setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &(int){512 << 10}, sizeof(int));
	}
}

/* --- what is done with a stream --- */

static uint64_t read_bytes(int fd, uint64_t bytes)
{
	static _Thread_local char buffer[PIECE];
	uint64_t got = 0;

	while (got < bytes) {
		uint64_t left = bytes - got;
		ssize_t n = recv(fd, buffer, left < sizeof(buffer) ? left : sizeof(buffer), 0);

		if (n <= 0 && !(n < 0 && errno == EAGAIN)) {
			break;
		}
		got += n > 0 ? (uint64_t)n : 0;
		if (n < 0) {
			(void)poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1);
		}
	}
	return got;
}

static bool write_bytes(int fd, uint64_t bytes)
{
	while (bytes > 0) {
		ssize_t n =
		    send(fd, piece, bytes < sizeof(piece) ? bytes : sizeof(piece), MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN) {
			(void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
		} else if (n <= 0) {
			return false;
		}
		bytes -= n > 0 ? (uint64_t)n : 0;
	}
	return true;
}

/* The far end of a stream: "sink" reads a stream and says so with one byte, "source" writes one,
 * "echo" sends back. */
static void serve_stream(int fd, const char *what)
{
	if (what[1] == 'i') {
		(void)read_bytes(fd, STREAM_BYTES);
		(void)write_bytes(fd, 1);
		(void)read_bytes(fd, 1); /* its end */
	} else if (what[1] == 'o') {
		(void)write_bytes(fd, STREAM_BYTES);
		(void)read_bytes(fd, 1);
	} else {
		while (read_bytes(fd, PING_BYTES) == PING_BYTES && write_bytes(fd, PING_BYTES)) {
		}
	}
	(void)close(fd);
}

struct service {
	int fd;
	char what[8];
};

static void *run_service(void *arg)
{
	struct service *s = arg;

	serve_stream(s->fd, s->what);
	free(s);
	return NULL;
}

/* --- processes --- */

static pid_t spawn_child(void)
{
	pid_t pid = fork();

	if (pid < 0) {
		die("fork");
	}
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	}
	return pid;
}

static void *copy_one_way(void *arg)
{
	const int *fds = arg;
	static _Thread_local char buffer[PIECE];
	ssize_t n;

	while ((n = read(fds[0], buffer, sizeof(buffer))) > 0) {
		for (ssize_t at = 0, m; at < n; at += m) {
			m = write(fds[1], buffer + at, (size_t)(n - at));
			if (m <= 0) {
				_exit(0);
			}
		}
	}
	_exit(0);
}

/* A process between fds[0] and what is returned. */
static int relay(int take_fd)
{
	pthread_t thread;
	int fds[2];

	pair(fds);
	if (spawn_child() == 0) {
		int back[2] = {fds[1], take_fd};
		int there[2] = {take_fd, fds[1]};

		(void)close(fds[0]);
		if (pthread_create(&thread, NULL, copy_one_way, back) != 0) {
			_exit(1);
		}
		(void)copy_one_way(there);
	}
	(void)close(fds[1]);
	(void)close(take_fd);
	return fds[0];
}

static int open_channel(void *arg, enum pai_channel_kind kind, const char *sandbox,
    const struct pai_call *call, struct pai_link_opened *ret, struct pai_err *err)
{
	struct service *s = calloc(1, sizeof(*s));
	pthread_t thread;
	int fds[2];

	(void)arg;
	(void)kind;
	(void)call;
	if (!s) {
		return pai_err_no_memory(err);
	}
	pair(fds);
	s->fd = fds[1];
	(void)snprintf(s->what, sizeof(s->what), "%s", sandbox);
	if (pthread_create(&thread, NULL, run_service, s) != 0) {
		return pai_err_sys(err, "thread");
	}
	(void)pthread_detach(thread);
	ret->fd = fds[0];
	return 0;
}

static _Noreturn void be_worker(int fd)
{
	struct pai_loop *loop = pai_loop_new(PAI_ERR_IGNORED());
	struct pai_pool *pool = pai_pool_new("bench", 4, 16);
	struct pai_link_end *end = pai_link_end_new(&(const struct pai_link_end_config){
	    .loop = loop,
	    .pool = pool,
	    .client = "bench",
	    .incarnation = "bench",
	    .open = open_channel,
	});

	if (!end) {
		die("worker");
	}
	pai_link_end_transport(
	    end, &(const struct pai_link_transport){.in = fd, .out = fd, .control = -1});
	_exit(pai_loop_run(loop, PAI_ERR_IGNORED()) < 0);
}

static int open_transport(void *arg, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	int *fd = arg;

	(void)call;
	if (*fd < 0) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "once");
	}
	*ret_fd = *fd;
	*fd = -1;
	return 0;
}

static struct pai_link *connect_link(bool relayed)
{
	static int fd;
	struct pai_link_config c = {.open = open_transport, .arg = &fd, .client = "bench"};
	struct pai_link *l = NULL;
	struct pai_err err = PAI_ERR_INIT;
	int fds[2];

	pair(fds);
	if (spawn_child() == 0) {
		(void)close(fds[0]);
		be_worker(fds[1]);
	}
	(void)close(fds[1]);
	fd = relayed ? relay(fds[0]) : fds[0];
	c.pool = pai_pool_new("bench", 2, 16);
	if (pai_link_new(&c, PAI_CALL_UNBOUNDED, &l, &err) < 0) {
		(void)fprintf(stderr, "%s\n", err.msg);
		exit(1);
	}
	return l;
}

static int connect_plain(bool relayed, const char *what)
{
	int fds[2];

	pair(fds);
	if (spawn_child() == 0) {
		(void)close(fds[0]);
		serve_stream(fds[1], what);
		_exit(0);
	}
	(void)close(fds[1]);
	return relayed ? relay(fds[0]) : fds[0];
}

/* --- measuring --- */

static struct pai_link *links[2];

static int connect_way(enum way way, const char *what)
{
	struct pai_err err = PAI_ERR_INIT;
	int fd = -1;

	if (way == PLAIN || way == RELAYED) {
		return connect_plain(way == RELAYED, what);
	}
	if (pai_link_channel(links[way == LINK_RELAYED], PAI_CHANNEL_FILES, what,
		PAI_CALL_UNBOUNDED, &fd, &err) < 0) {
		(void)fprintf(stderr, "%s\n", err.msg);
		exit(1);
	}
	return fd;
}

static double stream_gb_s(enum way way, bool there)
{
	int fd = connect_way(way, there ? "sink" : "source");
	uint64_t began = pai_clock_ns();
	bool ok = there ? write_bytes(fd, STREAM_BYTES) && read_bytes(fd, 1) == 1
			: read_bytes(fd, STREAM_BYTES) == STREAM_BYTES;
	double s = (double)(pai_clock_ns() - began) / 1e9;

	(void)close(fd);
	if (!ok) {
		die("a stream was cut");
	}
	return (double)STREAM_BYTES / s / 1e9;
}

static double ping_us(enum way way)
{
	int fd = connect_way(way, "echo");
	uint64_t began = pai_clock_ns();
	double us;

	for (int i = 0; i < PINGS; i++) {
		if (!write_bytes(fd, PING_BYTES) || read_bytes(fd, PING_BYTES) != PING_BYTES) {
			die("an echo was cut");
		}
	}
	us = (double)(pai_clock_ns() - began) / PINGS / 1e3;
	(void)close(fd);
	return us;
}

int main(void)
{
	double there[WAYS] = {0};
	double back[WAYS] = {0};
	double ping[WAYS] = {0};

	links[0] = connect_link(false);
	links[1] = connect_link(true);
	for (int round = 0; round < ROUNDS; round++) {
		for (enum way w = PLAIN; w < WAYS; w++) {
			double t = stream_gb_s(w, true);
			double b = stream_gb_s(w, false);
			double p = ping_us(w);

			there[w] = t > there[w] ? t : there[w];
			back[w] = b > back[w] ? b : back[w];
			ping[w] = p < ping[w] || ping[w] == 0 ? p : ping[w];
		}
		while (waitpid(-1, NULL, WNOHANG) > 0) {
		}
	}
	for (enum way w = PLAIN; w < WAYS; w++) {
		(void)printf("%-8s there %5.2f GB/s (%.2f of plain)   back %5.2f GB/s (%.2f of "
			     "plain)   64 bytes there and back %6.1f us\n",
		    way_names[w], there[w], there[w] / there[PLAIN], back[w], back[w] / back[PLAIN],
		    ping[w]);
	}
	pai_link_unref(links[0]);
	pai_link_unref(links[1]);
	return 0;
}
