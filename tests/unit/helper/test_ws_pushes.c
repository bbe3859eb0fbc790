/* What a server of files has to say to a client that takes nothing for a while. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "providers/helper/ws_serve.h"
#include "providers/wire/exec_msg.h"
#include "providers/wire/ws_msg.h"

static struct pai_ws_config pushing; /* where the server's pushes go */

static void nothing(struct pai_ws *ws)
{
	(void)ws;
}

static const struct pai_ws_ops quiet_ops = {.name = "quiet", .revoke = nothing, .free = nothing};
static struct pai_ws quiet = {
    .ops = &quiet_ops, .refs = 1, .caps = PAI_WS_CAP_WATCH | PAI_WS_CAP_INLINE};

static int open_quiet(
    void *arg, const struct pai_ws_config *config, struct pai_ws **ret, struct pai_err *err)
{
	(void)arg;
	(void)err;
	pushing = *config;
	*ret = &quiet;
	return 0;
}

static void *serve(void *arg)
{
	const struct pai_ws_serve s = {.take_fd = *(const int *)arg, .open = open_quiet};
	struct pai_err err = PAI_ERR_INIT;

	(void)!pai_ws_serve_run(&s, &err);
	return NULL;
}

static int count_ready(void *arg, const struct pai_frame *f)
{
	*(int *)arg += f->type == PAI_MSG_WS_READY;
	return 0;
}

static int count_push_all(void *arg, const struct pai_frame *f)
{
	struct pai_ws_pushed pushed;

	cr_assert_eq(f->type, PAI_MSG_WS_PUSH);
	cr_assert_eq(pai_ws_get_push(f->payload, &pushed), 0);
	*(int *)arg += (pushed.push.flags & PAI_WS_PUSH_ALL) != 0;
	return 0;
}

/* Reads until `take` has counted one. */
static void read_until(int fd, int (*take)(void *arg, const struct pai_frame *f))
{
	pai_auto_buf struct pai_buf in = PAI_BUF_INIT(4u << 20);
	static char some[65536];
	int count = 0;

	while (count == 0) {
		ssize_t n = read(fd, some, sizeof(some));

		cr_assert_gt(n, 0);
		cr_assert_eq(
		    pai_frame_feed(&in, (struct pai_view){some, (size_t)n}, take, &count), 0);
	}
}

Test(ws_pushes, too_many_become_one_and_nobody_has_to_ask, .timeout = 30)
{
	const struct pai_ws_hello hello = {.version = PAI_WS_VERSION, .flags = PAI_WS_HELLO_PUSHES};
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	char name[251];
	const struct pai_ws_push push = {.name = name, .flags = PAI_WS_PUSH_ENTRY};
	pthread_t server;
	int fds[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	cr_assert_eq(pthread_create(&server, NULL, serve, &fds[1]), 0);
	cr_assert_eq(pai_ws_put_hello(&out, &hello), 0);
	cr_assert_eq(write(fds[0], out.data, out.len), (ssize_t)out.len);
	read_until(fds[0], count_ready);
	for (int i = 0; i < 50000; i++) {
		(void)snprintf(name, sizeof(name), "%0250d", i);
		pushing.on_push(pushing.push_arg, &push);
	}
	read_until(fds[0], count_push_all);
	(void)close(fds[0]);
	(void)pthread_join(server, NULL);
}
