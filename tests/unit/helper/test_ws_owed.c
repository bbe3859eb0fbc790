/* A server of files that answers when it is asked whether it is there, and nothing else. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/base/pool.h"
#include "providers/helper/ws_line.h"
#include "providers/wire/exec_msg.h"
#include "providers/wire/ws_msg.h"

struct world {
	struct pai_pool *pool;
	struct pai_ws *ws;
	pthread_t peer;
	atomic_int fd, opened, freed, answered, pongs;
};
static struct world w;

static void answer(const struct pai_frame *f, int fd)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	const struct pai_ws_ready ready = {.version = PAI_WS_VERSION};

	if (f->type == PAI_MSG_WS_HELLO) {
		cr_assert_eq(pai_ws_put_ready(&out, &ready), 0);
	} else if (f->type == PAI_MSG_PING) {
		cr_assert_eq(pai_frame_put(&out, PAI_MSG_PONG, f->id, NULL, 0), 0);
		(void)atomic_fetch_add(&w.pongs, 1);
	}
	(void)!send(fd, out.data, out.len, MSG_NOSIGNAL);
}

static void *peer(void *arg)
{
	pai_auto_buf struct pai_buf in = PAI_BUF_INIT(1u << 20);
	int fd = *(const int *)arg;
	ssize_t n;

	do {
		struct pai_frame f;
		size_t at = 0;

		cr_assert_eq(pai_buf_reserve(&in, 65536), 0);
		n = read(fd, in.data + in.len, 65536);
		in.len += n > 0 ? (size_t)n : 0;
		while (pai_frame_next(&in, &at, &f) == 1) {
			answer(&f, fd);
		}
		pai_buf_consume(&in, at);
	} while (n > 0);
	return NULL;
}

/* Once: after that the sandbox has gone. */
static int open_stream(void *arg, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	static int fds[2];

	(void)arg;
	(void)call;
	if (atomic_fetch_add(&w.opened, 1) > 0) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "gone");
	}
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	cr_assert_eq(pthread_create(&w.peer, NULL, peer, &fds[1]), 0);
	atomic_store(&w.fd, fds[1]);
	*ret_fd = fds[0];
	return 0;
}

static void on_freed(void *arg)
{
	(void)arg;
	atomic_store(&w.freed, 1);
}

static void on_done(struct pai_ws_req *req)
{
	(void)req;
	atomic_store(&w.answered, 1);
}

static void await(atomic_int *what, int least)
{
	for (int i = 0; i < 10000 && atomic_load(what) < least; i++) {
		(void)poll(NULL, 0, 1);
	}
	cr_assert_geq(atomic_load(what), least);
}

static void start(uint64_t owed_ms)
{
	const struct pai_ws_line_config line = {
	    .open = open_stream, .freed = on_freed, .silence_ms = 60000, .owed_ms = owed_ms};
	struct pai_ws_config config = {.call_ms = 2000};
	const struct pai_call call = {.deadline_ms = pai_deadline_in(5000)};
	struct pai_err err = PAI_ERR_INIT;

	w.pool = config.pool = pai_pool_new("test", 4, 64);
	cr_assert_eq(pai_ws_line_new(&line, &config, &call, &w.ws, &err), 0, "%s", err.msg);
}

static void stop(void)
{
	(void)shutdown(atomic_load(&w.fd), SHUT_RDWR);
	(void)pthread_join(w.peer, NULL);
	(void)close(atomic_load(&w.fd));
	pai_ws_unref(w.ws);
	await(&w.freed, 1);
	pai_pool_free(w.pool);
}

TestSuite(ws_owed, .timeout = 30);

Test(ws_owed, a_request_that_is_never_answered_ends_the_stream)
{
	struct pai_ws_req req = {.op = PAI_WS_BARRIER, .at.path = "", .done = on_done};

	start(200);
	pai_ws_submit(w.ws, &req);
	await(&w.answered, 1);
	cr_assert_eq(req.error, ESTALE); /* as the next opening says */
	stop();
}

Test(ws_owed, who_waits_for_a_lock_may_wait)
{
	struct pai_ws_req req = {
	    .op = PAI_WS_FLOCK, .at.path = "", .handle = 0, .flags = LOCK_EX, .done = on_done};

	start(40);
	pai_ws_submit(w.ws, &req);
	await(&w.pongs, 20); /* many times what an answer is owed in */
	cr_assert_eq(atomic_load(&w.answered), 0);
	(void)shutdown(atomic_load(&w.fd), SHUT_RDWR);
	await(&w.answered, 1);
	stop();
}
