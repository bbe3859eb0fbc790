#include "execshim/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* A pipe of this size takes a few data frames at a go. The owner may not be allowed: then not. */
#define PIPE_BYTES (1 << 20)

static bool is_pty_master(int fd)
{
	unsigned number;

	return ioctl(fd, TIOCGPTN, &number) == 0;
}

/* A second description of the same pipe or terminal. */
static int reopen_nowait(int fd)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

void pai_sink_init(struct pai_sink *s, int fd, size_t max_queued)
{
	struct stat st;
	int own;

	*s = (struct pai_sink){.kind = PAI_SINK_FILE, .fd = fd, .queue = PAI_BUF_INIT(max_queued)};
	if (fstat(fd, &st) < 0) {
		return; /* the first write says why */
	}
	if (S_ISSOCK(st.st_mode)) {
		s->kind = PAI_SINK_SOCKET;
		return;
	}
	if (!S_ISFIFO(st.st_mode) && !isatty(fd)) {
		return;
	}
	own = is_pty_master(fd) ? -1 : reopen_nowait(fd);
	s->kind = own < 0 ? PAI_SINK_POLLED : PAI_SINK_NOWAIT;
	s->owns_fd = own >= 0;
	s->fd = own < 0 ? fd : own;
	if (S_ISFIFO(st.st_mode)) {
		(void)fcntl(s->fd, F_SETPIPE_SZ, PIPE_BYTES);
	}
}

void pai_sink_init_call(struct pai_sink *s, int stream, pai_sink_fn fn, void *arg)
{
	*s = (struct pai_sink){
	    .kind = PAI_SINK_CALL, .fd = -1, .fn = fn, .arg = arg, .stream = stream};
}

void pai_sink_fini(struct pai_sink *s)
{
	if (s->owns_fd) {
		(void)close(s->fd);
		s->owns_fd = false;
	}
	pai_buf_fini(&s->queue);
}

static ssize_t write_some(const struct pai_sink *s, const char *data, size_t len)
{
	struct pollfd p = {.fd = s->fd, .events = POLLOUT};

	switch (s->kind) {
	case PAI_SINK_SOCKET:
		return send(s->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	case PAI_SINK_POLLED:
		if (poll(&p, 1, 0) <= 0) {
			errno = EAGAIN;
			return -1;
		}
		return write(s->fd, data, len < PIPE_BUF ? len : PIPE_BUF);
	case PAI_SINK_CALL:
		s->fn(s->arg, s->stream, data, len);
		return (ssize_t)len;
	default:
		return write(s->fd, data, len);
	}
}

/* Bytes taken by the descriptor now, or dropped after a failure. */
static size_t write_all(struct pai_sink *s, const char *data, size_t len)
{
	size_t done = 0;

	while (done < len && !s->failed) {
		ssize_t n = write_some(s, data + done, len - done);

		if (n >= 0) {
			done += (size_t)n;
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			break;
		} else if (errno != EINTR) {
			s->failed = errno;
		}
	}
	done = s->failed ? len : done;
	s->finished += done;
	return done;
}

int pai_sink_put(struct pai_sink *s, const void *data, size_t len)
{
	size_t done = 0;

	s->received += len;
	if (pai_sink_pending(s) == 0) {
		done = write_all(s, data, len);
	}
	return pai_buf_add(&s->queue, (const char *)data + done, len - done);
}

size_t pai_sink_pending(const struct pai_sink *s)
{
	return s->queue.len - s->at;
}

void pai_sink_pump(struct pai_sink *s)
{
	if (pai_sink_pending(s) == 0) {
		return;
	}
	s->at += write_all(s, s->queue.data + s->at, pai_sink_pending(s));
	if (pai_sink_pending(s) == 0) {
		pai_buf_clear(&s->queue);
		s->at = 0;
	} else if (s->at > s->queue.max / 2) {
		pai_buf_consume(&s->queue, s->at);
		s->at = 0;
	}
}

uint32_t pai_sink_credit(struct pai_sink *s, uint32_t least)
{
	uint64_t news = s->finished - s->announced;

	if (news < least || news > UINT32_MAX) {
		return 0;
	}
	s->announced = s->finished;
	return (uint32_t)news;
}
