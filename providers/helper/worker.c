/*
 * One loop for the link; channels are opened on a pool. The idle end must not meet a relay that is
 * just connecting: connecting happens under a shared lock of a file, the end under the exclusive
 * one, and what had connected before is served.
 */
#include "providers/helper/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "providers/base/clock.h"
#include "providers/base/loop.h"
#include "providers/base/pool.h"
#include "providers/helper/far_serve.h"
#include "providers/helper/link_end.h"
#include "providers/provider_ops.h"

#define TICK_MS 500
#define IDLE_TICKS 2
#define LEAD_WITHIN_MS 10000
#define OPENS_MAX 16 /* at once */
#define OPENS_QUEUED 4096
#define PIPE_BYTES (1 << 20) /* what a user may have without privileges */

/* A relay that has not said yet how its transport comes. */
struct visitor {
	LIST_ENTRY(visitor) at;
	struct worker *worker;
	int fd;
	struct pai_loop_io *io;
	struct pai_loop_timer *late;
};

struct worker {
	struct pai_worker_config config;
	LIST_HEAD(, visitor) visitors;
	struct pai_loop *loop;
	struct pai_pool *pool;
	struct pai_link_end *end;
	struct pai_loop_io *listen_io;
	struct pai_loop_io *signal_io;
	struct pai_loop_timer *tick;
	int signal_fd;
	int idle_ticks;
	pthread_mutex_t lock;
	/* lock; NULL: not opened yet. They end with the process. */
	struct pai_provider *provider;
	struct pai_far_server *server;
};

/* --- channels --- */

/* Of the local provider of this root, opened for the first channel. */
static int server_of(struct worker *w, struct pai_far_server **ret, struct pai_err *err)
{
	pai_auto_strmap struct pai_strmap options = PAI_STRMAP_INIT;
	int r = 0;

	(void)pthread_mutex_lock(&w->lock);
	if (!w->provider) {
		r = pai_strmap_copy(&options, w->config.serve->options);
		r = r ? r : pai_strmap_set(&options, "root", w->config.serve->root);
		r = r ? pai_err_no_memory(err) : pai_local_plugin.open(&options, &w->provider, err);
	}
	if (r == 0 && !w->server) {
		r = pai_far_server_new(w->provider, &w->server, err);
	}
	*ret = w->server;
	(void)pthread_mutex_unlock(&w->lock);
	return r;
}

/* On a pool thread. */
static int open_channel(void *arg, enum pai_channel_kind kind, const char *sandbox,
    const struct pai_call *call, struct pai_link_opened *ret, struct pai_err *err)
{
	struct pai_far_server *server = NULL;
	int r = server_of(arg, &server, err);

	return r < 0 ? r : pai_far_server_open_channel(server, kind, sandbox, call, ret, err);
}

/* --- relays --- */

static void visitor_free(struct visitor *v)
{
	LIST_REMOVE(v, at);
	pai_loop_io_free(v->io);
	pai_loop_timer_free(v->late);
	pai_auto_fd_p(&v->fd);
	free(v);
}

/* Its first byte, and the descriptors that came with it (-1 where there are none). */
static ssize_t read_lead(int sock, char *lead, int fds[2])
{
	struct iovec iov = {lead, 1};
	union {
		char bytes[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} space;
	struct msghdr m = {.msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = space.bytes,
	    .msg_controllen = sizeof(space.bytes)};
	ssize_t n = recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	const struct cmsghdr *c = n == 1 ? CMSG_FIRSTHDR(&m) : NULL;

	/* Only relays reach this socket: what else they might send is a bug of ours. */
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(2 * sizeof(int))) {
		memcpy(fds, CMSG_DATA(c), 2 * sizeof(int));
	}
	return n;
}

/* One takes more than the 64 KiB that it is born with: each time that it is full or empty somebody
 * sleeps. */
static bool is_pipe(int fd)
{
	struct stat st;
	bool is = fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);

	if (is) {
		(void)fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES);
	}
	return is;
}

static void on_visitor(void *arg, uint32_t events)
{
	struct visitor *v = arg;
	struct worker *w = v->worker;
	struct pai_link_transport t = {.in = -1, .out = -1, .control = -1};
	int fds[2] = {-1, -1};
	char lead = 0;
	ssize_t n = read_lead(v->fd, &lead, fds);

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		return;
	}
	t.in = fds[0];
	t.out = fds[1];
	if (n == 1 && lead == PAI_RELAY_HANDS && fds[0] >= 0) {
		t.control = PAI_TAKE_FD(v->fd);
		t.in_is_pipe = is_pipe(t.in);
		t.out_is_pipe = is_pipe(t.out);
	} else if (n == 1 && lead == PAI_RELAY_COPIES && fds[0] < 0) {
		t.in = t.out = PAI_TAKE_FD(v->fd);
	}
	visitor_free(v);
	if (t.in < 0) {
		pai_link_transport_close(&t);
		return;
	}
	pai_link_end_transport(w->end, &t);
}

static void on_late(void *arg)
{
	visitor_free(arg);
}

static void visit(struct worker *w, int take_fd)
{
	struct visitor *v = calloc(1, sizeof(*v));

	if (!v) {
		(void)close(take_fd);
		return;
	}
	LIST_INSERT_HEAD(&w->visitors, v, at);
	v->worker = w;
	v->fd = take_fd;
	v->late = pai_loop_timer_new(
	    w->loop, pai_deadline_in(LEAD_WITHIN_MS), on_late, v, PAI_ERR_IGNORED());
	v->io = pai_loop_io_new(w->loop, v->fd, EPOLLIN, on_visitor, v, PAI_ERR_IGNORED());
	if (!v->late || !v->io) {
		visitor_free(v);
	}
}

static bool accept_one(struct worker *w)
{
	int fd = accept4(w->config.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ucred peer = {.uid = (uid_t)-1};
	socklen_t len = sizeof(peer);

	if (fd < 0) {
		return false;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 ||
	    (peer.uid != geteuid() && peer.uid != 0)) {
		(void)close(fd);
		return true;
	}
	w->idle_ticks = 0;
	visit(w, fd);
	return true;
}

static void on_listen(void *arg, uint32_t events)
{
	(void)events;
	while (accept_one(arg)) {
	}
}

/* --- the end --- */

static void end_if_nobody_comes(struct worker *w)
{
	pai_auto_fd int lock = openat(w->config.root_fd, w->config.lock_name,
	    O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0) {
		return;
	}
	if (!accept_one(w)) {
		(void)unlinkat(w->config.root_fd, w->config.sock_name, 0);
		(void)unlinkat(w->config.root_fd, w->config.lock_name, 0);
		pai_loop_stop(w->loop);
	}
}

static void on_tick(void *arg)
{
	struct worker *w = arg;
	struct statx st;

	pai_loop_timer_set(w->tick, pai_deadline_in(TICK_MS));
	/* As far as it is known here: another machine, which may have gone, is not asked. */
	if (statx(w->config.root_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_NLINK, &st) ==
		0 &&
	    st.stx_nlink == 0) {
		pai_loop_stop(w->loop);
		return;
	}
	w->idle_ticks =
	    pai_link_end_is_idle(w->end) && LIST_EMPTY(&w->visitors) ? w->idle_ticks + 1 : 0;
	if (w->idle_ticks >= IDLE_TICKS) {
		end_if_nobody_comes(w);
	}
}

static void on_signal(void *arg, uint32_t events)
{
	struct worker *w = arg;

	(void)events;
	(void)unlinkat(w->config.root_fd, w->config.sock_name, 0);
	pai_loop_stop(w->loop);
}

/* --- set-up --- */

static int take_signals(struct worker *w, struct pai_err *err)
{
	sigset_t set;

	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN); /* a limit of ours is EFBIG to whoever writes */
	(void)signal(SIGHUP, SIG_IGN);
	(void)signal(SIGINT, SIG_IGN);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)pthread_sigmask(SIG_SETMASK, &set, NULL); /* threads inherit it */
	w->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return w->signal_fd < 0 ? pai_err_sys(err, "signalfd") : 0;
}

static int open_end(struct worker *w, struct pai_err *err)
{
	uint64_t random = 0;
	char incarnation[32];

	(void)!getrandom(&random, sizeof(random), 0);
	(void)snprintf(incarnation, sizeof(incarnation), "%016llx", (unsigned long long)random);
	w->pool = pai_pool_new("pai-open", OPENS_MAX, OPENS_QUEUED);
	w->end = w->pool ? pai_link_end_new(&(const struct pai_link_end_config){
			       .loop = w->loop,
			       .pool = w->pool,
			       .client = w->config.serve->client,
			       .incarnation = incarnation,
			       .open = open_channel,
			       .arg = w,
			   })
			 : NULL;
	return w->end ? 0 : pai_err_no_memory(err);
}

static int set_up(struct worker *w, struct pai_err *err)
{
	struct pai_loop *l = w->loop = pai_loop_new(err);

	if (!l || take_signals(w, err) < 0 || open_end(w, err) < 0) {
		return -err->errnum;
	}
	w->signal_io = pai_loop_io_new(l, w->signal_fd, EPOLLIN, on_signal, w, err);
	w->listen_io = w->signal_io
			   ? pai_loop_io_new(l, w->config.listen_fd, EPOLLIN, on_listen, w, err)
			   : NULL;
	w->tick =
	    w->listen_io ? pai_loop_timer_new(l, pai_deadline_in(TICK_MS), on_tick, w, err) : NULL;
	return w->tick ? 0 : -err->errnum;
}

int pai_worker_run(const struct pai_worker_config *config, struct pai_err *err)
{
	static struct worker worker; /* the process is its own */
	struct worker *w = &worker;
	int r;

	*w = (struct worker){.config = *config, .signal_fd = -1};
	LIST_INIT(&w->visitors);
	(void)pthread_mutex_init(&w->lock, NULL);
	(void)prctl(PR_SET_NAME, "pai-worker");
	r = set_up(w, err);
	r = r < 0 ? r : pai_loop_run(w->loop, err);
	/* Channels that are being opened go with the process. */
	pai_link_end_free(w->end);
	return r;
}
