/*
 * A worker that says anything: the bytes are what it sends after ATTACHED to a daemon that waits
 * for two channels. Both opens must be answered, whatever comes, and the link must end.
 */
#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/base/pool.h"
#include "providers/helper/link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SIZE_MAX_HERE 60000 /* fits the socket's buffer */

struct peer {
	int fds[2];
	bool opened;
	const uint8_t *data;
	size_t size;
	atomic_bool freed;
};

/* One transport: when it has ended the link has nothing to come back to. */
static int open_once(void *arg, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct peer *p = arg;

	(void)call;
	if (p->opened) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "once");
	}
	p->opened = true;
	*ret_fd = p->fds[0];
	return 0;
}

static void on_freed(void *arg)
{
	struct peer *p = arg;

	atomic_store(&p->freed, true);
}

/* Answers ATTACH, says what it has to say when both opens have come, and leaves. */
static void *play(void *arg)
{
	struct peer *p = arg;
	pai_auto_buf struct pai_buf in = PAI_BUF_INIT(4096);
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	struct pai_link_attached answer = {
	    .version = 1, .status = PAI_LINK_NEW, .text = "fuzz", .epoch = 1, .link = 1};
	struct pai_link_attach attach;
	struct pai_frame f;
	size_t at = 0;
	int opens = 0;
	char byte;

	while (opens < 2 && recv(p->fds[1], &byte, 1, 0) == 1) {
		at = 0;
		if (pai_buf_add(&in, &byte, 1) < 0 || pai_frame_next(&in, &at, &f) != 1) {
			continue;
		}
		if (f.type == PAI_MSG_LINK_ATTACH && pai_link_get_attach(f.payload, &attach) == 0) {
			memcpy(answer.challenge, attach.challenge, sizeof(answer.challenge));
			assert(pai_link_put_attached(&out, &answer) == 0);
			(void)!send(p->fds[1], out.data, out.len, MSG_NOSIGNAL);
		}
		opens += f.type == PAI_MSG_CH_OPEN;
		in.len = 0;
	}
	(void)!send(p->fds[1], p->data, p->size, MSG_NOSIGNAL);
	(void)shutdown(p->fds[1], SHUT_WR);
	while (recv(p->fds[1], &byte, 1, 0) == 1) {
	}
	(void)close(p->fds[1]);
	return NULL;
}

static void *open_channel(void *arg)
{
	struct pai_link *l = arg;
	int fd = -1;

	if (pai_link_channel(
		l, PAI_CHANNEL_EXEC, "x", PAI_CALL_UNBOUNDED, &fd, PAI_ERR_IGNORED()) == 0) {
		(void)close(fd);
	}
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct pai_pool *pool;
	struct peer p = {.data = data, .size = size};
	const struct pai_link_config c = {
	    .open = open_once, .arg = &p, .client = "fuzz", .freed = on_freed};
	struct pai_link_config config = c;
	struct pai_link *l = NULL;
	pthread_t threads[3];
	int r;

	if (size > SIZE_MAX_HERE) {
		return 0;
	}
	pool = pool ? pool : pai_pool_new("fuzz", 2, 16);
	config.pool = pool;
	r = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p.fds);
	assert(r == 0);
	r = pthread_create(&threads[0], NULL, play, &p);
	assert(r == 0);
	r = pai_link_new(&config, PAI_CALL_UNBOUNDED, &l, PAI_ERR_IGNORED());
	assert(r == 0);
	r = pthread_create(&threads[1], NULL, open_channel, l);
	assert(r == 0);
	r = pthread_create(&threads[2], NULL, open_channel, l);
	assert(r == 0);
	for (int i = 0; i < 3; i++) {
		(void)pthread_join(threads[i], NULL);
	}
	pai_link_unref(l);
	while (!atomic_load(&p.freed)) {
		(void)poll(NULL, 0, 1);
	}
	return 0;
}
