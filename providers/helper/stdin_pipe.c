/* Readers can be told of by who writes alone (POLLERR), and a pipe without a writer is at its end:
 * so one that has ended is kept by a reader of ours, and looked at by a writer. */
#include "providers/helper/stdin_pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "providers/base/auto.h"

/* A keeper that has just been forked holds our ends for a moment. */
#define OTHERS_MS 10

static int reopen(int fd, int flags)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_NONBLOCK | O_CLOEXEC);
}

int pai_stdin_pipe_end(int take_fd)
{
	int kept = reopen(take_fd, O_RDONLY);

	(void)close(take_fd);
	return kept;
}

size_t pai_stdin_pipe_unread(int take_fd)
{
	pai_auto_fd int reader = take_fd;
	pai_auto_fd int writer = -1;
	struct pollfd p = {.events = 0};
	int bytes = 0;

	if (reader < 0 || ioctl(reader, FIONREAD, &bytes) < 0 || bytes <= 0) {
		return 0;
	}
	writer = (fcntl(reader, F_GETFL) & O_ACCMODE) == O_WRONLY ? PAI_TAKE_FD(reader)
								  : reopen(reader, O_WRONLY);
	pai_auto_fd_p(&reader);
	reader = -1;
	p.fd = writer;
	return writer >= 0 && poll(&p, 1, OTHERS_MS) > 0 && p.revents & POLLERR ? (size_t)bytes : 0;
}
