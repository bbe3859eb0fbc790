/*
 * A daemon that says anything: the bytes are a transport to a worker's end whose channels answer or
 * refuse by their sandbox's first letter. Nothing of it may be left when the transport has gone.
 */
#include <assert.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/base/pool.h"
#include "providers/helper/link_end.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SIZE_MAX_HERE 60000 /* fits the socket's buffer */
#define ROUND_MS 1

struct game {
	struct pai_loop *loop;
	struct pai_link_end *end;
	struct pai_loop_timer *timer;
	int fd;
	int rounds;
};

static int open_channel(void *arg, enum pai_channel_kind kind, const char *sandbox,
    const struct pai_call *call, struct pai_link_opened *ret, struct pai_err *err)
{
	int fds[2];

	(void)arg;
	(void)kind;
	(void)call;
	if (sandbox[0] == 'n') {
		return pai_err_set(err, PAI_E_NOT_FOUND, "no");
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) {
		return pai_err_sys(err, "socketpair");
	}
	(void)!send(fds[1], "hello", 5, MSG_NOSIGNAL);
	(void)close(fds[1]);
	ret->fd = fds[0];
	return 0;
}

/* Lets it read, hangs up, lets it see that, ends. */
static void on_round(void *arg)
{
	struct game *g = arg;

	if (++g->rounds == 2) {
		(void)shutdown(g->fd, SHUT_RDWR);
	}
	if (g->rounds >= 3) {
		pai_loop_stop(g->loop);
		return;
	}
	pai_loop_timer_set(g->timer, pai_deadline_in(ROUND_MS));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct game g = {.loop = pai_loop_new(PAI_ERR_IGNORED())};
	struct pai_pool *pool = pai_pool_new("fuzz", 2, 16);
	const struct pai_link_end_config config = {.loop = g.loop,
	    .pool = pool,
	    .client = "fuzz",
	    .incarnation = "x",
	    .open = open_channel};
	int fds[2];
	int r = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds);

	assert(r == 0 && g.loop && pool);
	g.end = pai_link_end_new(&config);
	g.fd = fds[0];
	g.timer =
	    pai_loop_timer_new(g.loop, pai_deadline_in(ROUND_MS), on_round, &g, PAI_ERR_IGNORED());
	assert(g.end && g.timer);
	if (size <= SIZE_MAX_HERE) {
		(void)!send(fds[0], data, size, MSG_NOSIGNAL);
	}
	pai_link_end_transport(
	    g.end, &(const struct pai_link_transport){.in = fds[1], .out = fds[1], .control = -1});
	r = pai_loop_run(g.loop, PAI_ERR_IGNORED());
	assert(r == 0);
	pai_link_end_free(g.end);
	pai_pool_free(pool);
	/* Its last answers are posted. */
	pai_loop_timer_set(g.timer, pai_clock_ms());
	r = pai_loop_run(g.loop, PAI_ERR_IGNORED());
	assert(r == 0);
	pai_loop_timer_free(g.timer);
	pai_loop_free(g.loop);
	(void)close(fds[0]);
	return 0;
}
