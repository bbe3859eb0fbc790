/*
 * Readers can be told of by who writes alone (POLLERR), and a pipe without a writer is at its end:
 * so one that has ended is kept by a reader of ours, and looked at by a writer. That reader lies in
 * the queue of a socket: a keeper that is forked meanwhile gets a copy of every descriptor and
 * holds it for a moment, in which it would pass for somebody who reads.
 */
#include "providers/helper/stdin_pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "providers/base/auto.h"

/* A message of one byte and a descriptor. */
struct parcel {
	char byte;
	struct iovec iov;
	struct msghdr msg;
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
};

static void parcel_init(struct parcel *p)
{
	*p = (struct parcel){.byte = 0};
	p->iov = (struct iovec){.iov_base = &p->byte, .iov_len = 1};
	p->msg.msg_iov = &p->iov;
	p->msg.msg_iovlen = 1;
	p->msg.msg_control = p->control.room;
	p->msg.msg_controllen = sizeof(p->control.room);
}

static int reopen(int fd, int flags)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_NONBLOCK | O_CLOEXEC);
}

int pai_stdin_pipe_end(int take_fd)
{
	pai_auto_fd int writer = take_fd;
	pai_auto_fd int reader = reopen(writer, O_RDONLY);
	pai_auto_fd int to = -1;
	pai_auto_fd int kept = -1;
	struct parcel p;
	struct cmsghdr *c;
	int ends[2];

	if (reader < 0 ||
	    socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
		return -1;
	}
	to = ends[0];
	kept = ends[1];
	parcel_init(&p);
	c = CMSG_FIRSTHDR(&p.msg);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &reader, sizeof(reader));
	return sendmsg(to, &p.msg, MSG_NOSIGNAL) == 1 ? PAI_TAKE_FD(kept) : -1;
}

/* What pai_stdin_pipe_end() has put there; -1. */
static int unpack(int kept)
{
	struct parcel p;
	const struct cmsghdr *c;
	int fd = -1;

	parcel_init(&p);
	if (recvmsg(kept, &p.msg, MSG_CMSG_CLOEXEC) == 1 && (c = CMSG_FIRSTHDR(&p.msg)) &&
	    c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int))) {
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	}
	return fd;
}

/* A writer is all that is left of us. */
static size_t unread(int writer)
{
	struct pollfd p = {.fd = writer};
	int bytes = 0;

	return writer >= 0 && poll(&p, 1, 0) > 0 && p.revents & POLLERR &&
		       ioctl(writer, FIONREAD, &bytes) == 0 && bytes > 0
		   ? (size_t)bytes
		   : 0;
}

size_t pai_stdin_pipe_unread(int take_fd)
{
	pai_auto_fd int kept = take_fd;
	pai_auto_fd int reader = -1;
	pai_auto_fd int writer = -1;

	if (kept < 0) {
		return 0;
	}
	if ((fcntl(kept, F_GETFL) & O_ACCMODE) == O_WRONLY) {
		return unread(kept);
	}
	reader = unpack(kept);
	writer = reader < 0 ? -1 : reopen(reader, O_WRONLY);
	pai_auto_fd_p(&reader);
	reader = -1;
	return unread(writer);
}
