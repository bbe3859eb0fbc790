/* Opening a stream: by the first caller, and by a job of the pool whenever one has ended. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "providers/base/clock.h"
#include "providers/helper/ws_line_private.h"

#define READY_MAX 1024u
#define SOCKET_BYTES (1 << 20)

static int send_hello(
    const struct ws_line *l, int fd, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(256);
	struct pai_ws_hello hello = {
	    .version = PAI_WS_VERSION,
	    .flags = (l->config.on_push ? PAI_WS_HELLO_PUSHES : 0) |
		     (l->config.raw_ids ? PAI_WS_HELLO_RAW_IDS : 0),
	};
	size_t at = 0;
	int r = pai_ws_put_hello(&out, &hello);

	if (r < 0) {
		return pai_err_no_memory(err);
	}
	while (at < out.len) {
		ssize_t n;

		r = pai_call_poll(call, fd, POLLOUT, err);
		if (r < 0) {
			return r;
		}
		n = send(fd, out.data + at, out.len - at, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			return pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL,
			    "the helper closed the stream: %s", pai_errno_name(errno));
		}
		at += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int check_ready(const struct pai_frame *f, uint32_t *ret_caps, struct pai_err *err)
{
	struct pai_ws_ready ready;

	if (f->type != PAI_MSG_WS_READY || pai_ws_get_ready(f->payload, &ready) < 0) {
		return pai_err_set(err, PAI_E_PROTOCOL, "that is no helper's answer");
	}
	if (ready.error == ESTALE) {
		return pai_err_set(err, PAI_E_NOT_FOUND, "%s", ready.message);
	}
	if (ready.error) {
		return pai_err_errno(err, ready.error, "the helper: %s", ready.message);
	}
	if (ready.version != PAI_WS_VERSION) {
		return pai_err_set(
		    err, PAI_E_PROTOCOL, "the helper speaks version %u", ready.version);
	}
	*ret_caps = ready.caps;
	return 0;
}

/* Nothing comes behind READY before something was asked. */
static int await_ready(int fd, const struct pai_call *call, uint32_t *ret_caps, struct pai_err *err)
{
	pai_auto_buf struct pai_buf in = PAI_BUF_INIT(READY_MAX);
	struct pai_frame f;
	size_t at = 0;
	int r;

	if (pai_buf_reserve(&in, READY_MAX) < 0) {
		return pai_err_no_memory(err);
	}
	while ((r = pai_frame_next(&in, &at, &f)) == 0 && in.len < READY_MAX) {
		ssize_t n;

		r = pai_call_poll(call, fd, POLLIN, err);
		if (r < 0) {
			return r;
		}
		n = recv(fd, in.data + in.len, READY_MAX - in.len, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
			return pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL,
			    "the helper closed the stream before it was ready");
		}
		in.len += n > 0 ? (size_t)n : 0;
	}
	if (r != 1 || at != in.len) {
		return pai_err_set(err, PAI_E_PROTOCOL, "that is no helper's answer");
	}
	return check_ready(&f, ret_caps, err);
}

int pai_ws_line_open(struct ws_line *l, const struct pai_call *call, int *ret_fd,
    uint32_t *ret_caps, struct pai_err *err)
{
	pai_auto_fd int fd = -1;
	int r = l->line.open(l->line.arg, call, &fd, err);

	if (r < 0) {
		return r;
	}
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){SOCKET_BYTES}, sizeof(int));
	r = send_hello(l, fd, call, err);
	r = r < 0 ? r : await_ready(fd, call, ret_caps, err);
	if (r < 0) {
		return r;
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

void pai_ws_line_open_job(void *arg)
{
	struct ws_line *l = arg;
	struct pai_call call = {
	    .deadline_ms = pai_deadline_in(l->config.call_ms),
	    .cancel = l->stop,
	};
	struct pai_err err = PAI_ERR_INIT;
	uint32_t caps = 0;
	int fd = -1;
	int r = pai_ws_line_open(l, &call, &fd, &caps, &err);

	/* Users have seen what the first one could; watches can be refused one by one. */
	if (r == 0 && (l->base.caps & ~(caps | PAI_WS_CAP_WATCH)) != 0) {
		r = pai_err_set(&err, PAI_E_PROTOCOL, "the helper can do less than before");
		(void)close(PAI_TAKE_FD(fd));
	}
	l->opened_fd = fd;
	l->open_err = err;
	pai_ws_line_post(l, pai_ws_line_opened);
	pai_ws_line_drop(l);
	(void)r;
}
