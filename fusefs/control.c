/*
 * The server: a listening socket, the loop's thread, two pools. `quick` is apart so that `pai
 * status` never waits behind calls to a provider that doesn't answer.
 */
#include "fusefs/control.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include "fusefs/control_conn.h"
#include "fusefs/exec_bridge.h"
#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/base/log.h"

#define CONNS_MAX 4096
#define ACCEPT_AGAIN_MS 100 /* without descriptors, or with too many clients */
#define POOL_THREADS 64     /* calls that may wait for a provider at a time */
#define POOL_QUEUED 4096
#define QUICK_THREADS 2
#define FORCED_END_MS 500 /* for the loop to close what the deadline left */

void pai_control_hold(struct pai_control *c)
{
	(void)pthread_mutex_lock(&c->lock);
	c->alive++;
	(void)pthread_mutex_unlock(&c->lock);
}

void pai_control_release(struct pai_control *c)
{
	(void)pthread_mutex_lock(&c->lock);
	if (--c->alive == 0) {
		(void)pthread_cond_broadcast(&c->all_done);
	}
	(void)pthread_mutex_unlock(&c->lock);
}

int pai_control_submit(struct pai_control *c, pai_work_fn fn, void *arg)
{
	return pai_pool_submit(c->pool, fn, arg);
}

/* --- accepting --- */

/* Half of the descriptors are for what the clients ask for: one that can't be served waits to be
 * accepted, and is not turned away in the middle. */
static size_t conns_max(void)
{
	struct rlimit files;
	size_t half = CONNS_MAX;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur / 2 < half) {
		half = (size_t)files.rlim_cur / 2;
	}
	return half;
}

static void pause_accepting(struct pai_control *c)
{
	pai_loop_io_set(c->listen_io, 0);
	pai_loop_timer_set(c->accept_again, pai_deadline_in(ACCEPT_AGAIN_MS));
}

static void on_accept_again(void *arg)
{
	struct pai_control *c = arg;

	if (c->listen_io) {
		pai_loop_io_set(c->listen_io, EPOLLIN);
	}
}

static void on_listen(void *arg, uint32_t events)
{
	struct pai_control *c = arg;

	(void)events;
	for (;;) {
		struct pai_err err = PAI_ERR_INIT;
		int fd = -1;

		if (c->conn_count >= c->conns_max) {
			pause_accepting(c);
			return;
		}
		fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) {
			continue;
		}
		if (fd < 0) {
			if (errno != EAGAIN) {
				pai_log_warn("control", "accept: %s", pai_errno_name(errno));
				pause_accepting(c);
			}
			return;
		}
		if (pai_conn_new(c, fd, &err) < 0) {
			pai_log_warn("control", "new client: %s", err.msg);
			return;
		}
	}
}

/* --- closing --- */

static void stop_accepting(struct pai_control *c)
{
	if (c->listen_io) {
		pai_loop_io_free(PAI_TAKE(c->listen_io));
	}
}

/* Idle clients are closed, the others get their answers. */
static void on_closing(void *arg)
{
	struct pai_control *c = arg;
	struct pai_conn *conn = LIST_FIRST(&c->conns);

	c->is_closing = true;
	stop_accepting(c);
	while (conn) {
		struct pai_conn *next = LIST_NEXT(conn, at);

		if (conn->bridge) {
			pai_bridge_daemon_ends(conn->bridge);
		} else if (conn->in_flight > 0) {
			pai_cancel_fire(conn->cancel);
		} else {
			pai_conn_end(conn);
		}
		conn = next;
	}
}

static void on_forced(void *arg)
{
	struct pai_control *c = arg;

	while (!LIST_EMPTY(&c->conns)) {
		pai_conn_close(LIST_FIRST(&c->conns));
	}
}

static bool wait_done(struct pai_control *c, uint64_t deadline_ms)
{
	struct timespec until = pai_deadline_monotonic(deadline_ms);
	bool is_done = false;

	(void)pthread_mutex_lock(&c->lock);
	while (c->alive > 0 &&
	       pthread_cond_clockwait(&c->all_done, &c->lock, CLOCK_MONOTONIC, &until) == 0) {
	}
	is_done = c->alive == 0;
	(void)pthread_mutex_unlock(&c->lock);
	return is_done;
}

static void control_free(struct pai_control *c)
{
	if (c->is_running) {
		pai_loop_stop(c->loop);
		(void)pthread_join(c->thread, NULL);
	}
	stop_accepting(c);
	if (c->accept_again) {
		pai_loop_timer_free(c->accept_again);
	}
	pai_pool_free(c->pool);
	pai_pool_free(c->quick);
	pai_loop_free(c->loop);
	pai_auto_fd_p(&c->listen_fd);
	(void)pthread_cond_destroy(&c->all_done);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
}

bool pai_control_close(struct pai_control *c, uint64_t deadline_ms)
{
	if (!c) {
		return true;
	}
	if (pai_loop_post(c->loop, on_closing, c) < 0 || !wait_done(c, deadline_ms)) {
		if (pai_loop_post(c->loop, on_forced, c) < 0 ||
		    !wait_done(c, pai_deadline_in(FORCED_END_MS))) {
			return false;
		}
	}
	control_free(c);
	return true;
}

/* --- making one --- */

static void *run(void *arg)
{
	struct pai_control *c = arg;
	struct pai_err err = PAI_ERR_INIT;

	(void)pthread_setname_np(pthread_self(), "control");
	if (pai_loop_run(c->loop, &err) < 0) {
		pai_log_error("control", "%s", err.msg);
	}
	return NULL;
}

static int start(struct pai_control *c, struct pai_err *err)
{
	sigset_t all;
	sigset_t old;
	int r = 0;

	c->loop = pai_loop_new(err);
	if (!c->loop) {
		return -err->errnum;
	}
	c->listen_io = pai_loop_io_new(c->loop, c->listen_fd, EPOLLIN, on_listen, c, err);
	if (!c->listen_io) {
		return -err->errnum;
	}
	c->accept_again = pai_loop_timer_new(c->loop, PAI_NO_DEADLINE, on_accept_again, c, err);
	if (!c->accept_again) {
		return -err->errnum;
	}
	c->pool = pai_pool_new("calls", POOL_THREADS, POOL_QUEUED);
	c->quick = pai_pool_new("quick", QUICK_THREADS, POOL_QUEUED);
	if (!c->pool || !c->quick) {
		return pai_err_no_memory(err);
	}
	/* Signals are the main thread's. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&c->thread, NULL, run, c);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != 0) {
		return pai_err_errno(err, r, "control thread");
	}
	c->is_running = true;
	return 0;
}

int pai_control_new(const struct pai_control_config *config, int take_listen_fd,
    struct pai_control **ret, struct pai_err *err)
{
	struct pai_control *c = calloc(1, sizeof(*c));

	if (!c) {
		(void)close(take_listen_fd);
		return pai_err_no_memory(err);
	}
	c->config = *config;
	c->listen_fd = take_listen_fd;
	c->conns_max = conns_max();
	LIST_INIT(&c->conns);
	(void)pthread_mutex_init(&c->lock, NULL);
	(void)pthread_cond_init(&c->all_done, NULL);
	if (start(c, err) < 0) {
		control_free(c);
		return -err->errnum;
	}
	*ret = c;
	return 0;
}
