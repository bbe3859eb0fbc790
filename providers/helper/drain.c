#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "providers/helper/supervise.h"

struct drain {
	LIST_ENTRY(drain) at;
	struct pai_loop_io *io;
	int fd;
};

static void on_drain(void *arg, uint32_t events)
{
	static char nowhere[65536];
	struct drain *d = arg;
	ssize_t n = read(d->fd, nowhere, sizeof(nowhere));

	(void)events;
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) {
		return;
	}
	LIST_REMOVE(d, at);
	pai_loop_io_free(d->io);
	(void)close(d->fd);
	free(d);
}

void pai_helper_drain(struct supervisor *sv, int take_fd)
{
	struct drain *d = calloc(1, sizeof(*d));

	if (d) {
		d->fd = take_fd;
		d->io = pai_loop_io_new(sv->loop, take_fd, EPOLLIN, on_drain, d, PAI_ERR_IGNORED());
	}
	if (!d || !d->io) {
		(void)close(take_fd);
		free(d);
		return;
	}
	LIST_INSERT_HEAD(&sv->drains, d, at);
}
