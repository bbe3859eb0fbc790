/*
 * Each direction is a lane with one buffer, read only when it is empty: what a slow end does not
 * take stays in the kernel's buffers, and its sender waits.
 *
 * A connection that fails while sending may still hold what the other end said before: that is
 * delivered first.
 */
#include "providers/helper/tunnel.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "providers/base/auto.h"
#include "providers/base/clock.h"

#define CONNECT_MS 10000 /* loopback answers at once, save a listener whose queue is full */
#define LANE_BYTES (64u << 10)

/* --- opening --- */

static int block_signals(int *ret_fd)
{
	sigset_t all;
	sigset_t term;

	(void)sigfillset(&all);
	(void)sigemptyset(&term);
	(void)sigaddset(&term, SIGTERM);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
	*ret_fd = signalfd(-1, &term, SFD_CLOEXEC | SFD_NONBLOCK);
	return *ret_fd < 0 ? -errno : 0;
}

static int await_connected(int fd, int signal_fd, uint64_t deadline_ms)
{
	struct pollfd fds[] = {{.fd = fd, .events = POLLOUT}, {.fd = signal_fd, .events = POLLIN}};
	int failed = 0;
	socklen_t len = sizeof(failed);
	int n = poll(fds, 2, pai_deadline_poll_ms(deadline_ms));

	if (n <= 0) {
		return n < 0 ? -errno : -ETIMEDOUT;
	}
	if (fds[1].revents) {
		return -ECANCELED;
	}
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len) < 0 ? -errno : -failed;
}

/* Where nobody listens on a port that the kernel hands out itself, a socket may meet itself. */
static bool is_connected_to_itself(int fd, const struct sockaddr *to, socklen_t len)
{
	struct sockaddr_storage own;
	socklen_t own_len = sizeof(own);

	/* Flow and scope of a v6 address are 0 in both. */
	return getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 && own_len == len &&
	       memcmp(&own, to, len) == 0;
}

/* The descriptor, or -errno. */
static int connect_to(const struct sockaddr *to, socklen_t len, int signal_fd, uint64_t deadline_ms)
{
	const struct linger reset = {.l_onoff = 1};
	const int on = 1;
	pai_auto_fd int fd =
	    socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
	int r = 0;

	if (fd < 0) {
		return -errno;
	}
	/* Until the end is a clean one, closing resets: also when this process is killed. */
	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, to, len) < 0) {
		r = errno == EINPROGRESS ? await_connected(fd, signal_fd, deadline_ms) : -errno;
	}
	if (r == 0 && is_connected_to_itself(fd, to, len)) {
		r = -ECONNREFUSED;
	}
	return r < 0 ? r : PAI_TAKE_FD(fd);
}

static int parse_port(const char *text, uint16_t *ret)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (text[0] < '0' || text[0] > '9' || *end || n < 1 || n > UINT16_MAX) {
		return -EINVAL;
	}
	*ret = (uint16_t)n;
	return 0;
}

static int set_nonblocking(int fd)
{
	return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0 ? -errno : 0;
}

int pai_tunnel_open(struct pai_tunnel *t, const char *port)
{
	uint64_t deadline_ms = pai_deadline_in(CONNECT_MS);
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	uint16_t number = 0;
	int r = parse_port(port, &number);

	r = r < 0 ? r : block_signals(&t->signal_fd);
	r = r < 0 ? r : set_nonblocking(t->in_fd);
	r = r < 0 ? r : set_nonblocking(t->out_fd);
	if (r < 0) {
		return r;
	}
	v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	v4.sin_port = htons(number);
	v6.sin6_port = v4.sin_port;
	r = connect_to((struct sockaddr *)&v4, sizeof(v4), t->signal_fd, deadline_ms);
	if (r < 0 && r != -ECANCELED && r != -ETIMEDOUT) {
		int second =
		    connect_to((struct sockaddr *)&v6, sizeof(v6), t->signal_fd, deadline_ms);

		r = second < 0 ? r : second;
	}
	t->socket_fd = r;
	return r < 0 ? r : 0;
}

/* --- copying --- */

struct lane {
	int from, to;
	size_t at, len;
	bool ended; /* no more comes from `from` */
	bool done;  /* and all of it has been passed on, or never will be */
	char data[LANE_BYTES];
};

static bool is_later(void)
{
	return errno == EAGAIN || errno == EINTR;
}

static bool has_data(const struct lane *l)
{
	return l->at < l->len;
}

static bool wants_data(const struct lane *l)
{
	return !l->ended && !has_data(l);
}

/* One read and one write at most. 0, or -errno: `*is_reading` says of which. */
static int lane_move(struct lane *l, bool *is_reading)
{
	ssize_t n;

	if (wants_data(l)) {
		*is_reading = true;
		n = read(l->from, l->data, sizeof(l->data));
		if (n < 0) {
			return is_later() ? 0 : -errno;
		}
		l->ended = n == 0;
		l->at = 0;
		l->len = (size_t)n;
	}
	if (has_data(l)) {
		*is_reading = false;
		n = write(l->to, l->data + l->at, l->len - l->at);
		if (n < 0) {
			return is_later() ? 0 : -errno;
		}
		l->at += (size_t)n;
	}
	return 0;
}

static void lane_give_up(struct lane *l)
{
	l->ended = true;
	l->done = true;
	l->len = 0;
}

struct copy {
	struct pai_tunnel *t;
	struct lane *send, *take;
	bool is_cut; /* one direction failed: the end is no clean one */
};

/* False: nothing more can be done. */
static bool move_send(struct copy *c)
{
	bool is_reading;
	int r = lane_move(c->send, &is_reading);

	if (r < 0 && is_reading) {
		return false;
	}
	if (r < 0) {
		/* Closed, so that what still comes for it is thrown away. */
		c->is_cut = true;
		lane_give_up(c->send);
		pai_auto_fd_p(&c->t->in_fd);
		c->t->in_fd = -1;
	} else if (c->send->ended && !has_data(c->send)) {
		c->send->done = true;
		(void)shutdown(c->t->socket_fd, SHUT_WR);
	}
	return true;
}

static bool move_take(struct copy *c)
{
	bool is_reading;

	if (lane_move(c->take, &is_reading) < 0) {
		return false;
	}
	if (c->take->ended && !has_data(c->take)) {
		c->take->done = true;
		c->t->out_ends();
		pai_auto_fd_p(&c->t->out_fd);
		c->t->out_fd = -1;
	}
	return true;
}

/* False: the end, and no clean one. */
static bool turn(struct copy *c)
{
	short wanted =
	    (short)((has_data(c->send) ? POLLOUT : 0) | (wants_data(c->take) ? POLLIN : 0));
	/* Asked for nothing, a broken connection would still be told of, again and again: it is
	 * left alone while what came is not passed on yet. */
	bool looks = wanted || c->take->done;
	struct pollfd fds[] = {
	    {.fd = looks ? c->t->socket_fd : -1, .events = wanted},
	    {.fd = wants_data(c->send) ? c->t->in_fd : -1, .events = POLLIN},
	    {.fd = has_data(c->take) ? c->t->out_fd : -1, .events = POLLOUT},
	    {.fd = c->t->signal_fd, .events = POLLIN},
	};

	if (poll(fds, 4, -1) < 0) {
		return errno == EINTR;
	}
	if (fds[3].revents) {
		return false;
	}
	if (!c->send->done && (fds[0].revents || fds[1].revents) && !move_send(c)) {
		return false;
	}
	if (!c->take->done && (fds[0].revents || fds[2].revents) && !move_take(c)) {
		return false;
	}
	return !(c->take->done && !c->send->done && fds[0].revents & (POLLERR | POLLHUP));
}

int pai_tunnel_run(struct pai_tunnel *t)
{
	static struct lane send; /* too large for some stacks, and there is one per process */
	static struct lane take;
	struct copy c = {.t = t, .send = &send, .take = &take};
	const struct linger off = {0};
	bool is_well = true;

	send = (struct lane){.from = t->in_fd, .to = t->socket_fd};
	take = (struct lane){.from = t->socket_fd, .to = t->out_fd};
	while (is_well && !(send.done && take.done)) {
		is_well = turn(&c);
	}
	if (is_well && !c.is_cut) {
		(void)setsockopt(t->socket_fd, SOL_SOCKET, SO_LINGER, &off, sizeof(off));
	}
	pai_auto_fd_p(&t->socket_fd);
	pai_auto_fd_p(&t->in_fd);
	pai_auto_fd_p(&t->out_fd);
	pai_auto_fd_p(&t->signal_fd);
	return is_well && !c.is_cut ? 0 : 1;
}
