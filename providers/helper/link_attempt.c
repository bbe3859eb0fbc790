#include "providers/helper/link_attempt.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#define STALE_MAX 3
#define HANDSHAKE_BYTES (PAI_LINK_BANNER_MAX + (64u << 10))
#define WORDS_MAX 160

void pai_link_attempt_fini(struct pai_link_attempt *a)
{
	pai_auto_fd_p(&a->fd);
	a->fd = -1;
	pai_buf_fini(&a->in);
}

static int send_hello(struct pai_link_attempt *a, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1024);
	size_t at = 0;

	if (getrandom(a->hello.challenge, sizeof(a->hello.challenge), 0) !=
	    (ssize_t)sizeof(a->hello.challenge)) {
		return pai_err_sys(err, "getrandom");
	}
	if (pai_link_put_attach(&out, &a->hello) < 0) {
		return pai_err_no_memory(err);
	}
	while (at < out.len) {
		ssize_t n;
		int r = pai_call_poll(call, a->fd, POLLOUT, err);

		if (r < 0) {
			return r;
		}
		n = send(a->fd, out.data + at, out.len - at, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			return pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL,
			    "the transport to the helper ended at once");
		}
		at += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* What a shell said instead of a helper is the best reason there is. */
static int ended_early(const struct pai_link_attempt *a, struct pai_err *err)
{
	size_t len = a->in.len < WORDS_MAX ? a->in.len : WORDS_MAX;

	while (len > 0 && strchr(" \r\n", a->in.data[len - 1])) {
		len--;
	}
	return pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL,
	    len > 0 ? "the helper did not start: %.*s" : "the helper did not start%.*s", (int)len,
	    len > 0 ? a->in.data : "");
}

static int await_attached(
    struct pai_link_attempt *a, const struct pai_call *call, struct pai_err *err)
{
	int r;

	while (
	    (r = pai_link_find_attached(&a->in, a->hello.challenge, &a->rest, &a->attached)) == 0) {
		ssize_t n;

		r = pai_call_poll(call, a->fd, POLLIN, err);
		if (r < 0) {
			return pai_err_wrap(err, "waiting for the helper");
		}
		n = recv(a->fd, a->in.data + a->in.len, a->in.max - a->in.len, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
			return ended_early(a, err);
		}
		a->in.len += n > 0 ? (size_t)n : 0;
	}
	if (r == -EPROTONOSUPPORT) {
		a->final = true;
		return pai_err_set(err, PAI_E_PROTOCOL,
		    "the helper speaks version %u of the link, this is version %u",
		    a->attached.version, PAI_LINK_VERSION);
	}
	if (r < 0) {
		a->final = true;
		return pai_err_set(err, PAI_E_PROTOCOL, "what answers is no helper");
	}
	return 0;
}

/* What the worker said, as an error where it is one. */
static int judge(struct pai_link_attempt *a, struct pai_err *err)
{
	const struct pai_link_attached *got = &a->attached;

	switch (got->status) {
	case PAI_LINK_STALE:
		if (got->epoch == UINT64_MAX) {
			break;
		}
		a->hello.epoch = got->epoch + 1 > a->hello.epoch ? got->epoch + 1 : a->hello.epoch;
		return pai_err_unavailable(
		    err, PAI_REASON_TRANSPORT, NULL, "the helper has seen a later transport");
	case PAI_LINK_LOST:
		a->final = true;
		return pai_err_unavailable(
		    err, PAI_REASON_BACKEND, NULL, "the helper was started anew");
	case PAI_LINK_REFUSED:
		a->final = true;
		return pai_err_unavailable(
		    err, PAI_REASON_NOT_SERVED, NULL, "the helper refuses: %s", got->text);
	case PAI_LINK_NEW:
	case PAI_LINK_RESUMED:
		if ((got->status == PAI_LINK_NEW) == (a->hello.link == 0) &&
		    (a->hello.link == 0 || got->link == a->hello.link)) {
			return 0;
		}
	}
	a->final = true;
	return pai_err_set(err, PAI_E_PROTOCOL, "the helper's answer is about another link");
}

static int attempt_once(
    struct pai_link_attempt *a, const struct pai_call *call, struct pai_err *err)
{
	int r = a->open(a->arg, call, &a->fd, err);

	if (r < 0) {
		a->final = err->code == PAI_E_NOT_FOUND;
		return r;
	}
	a->in.max = HANDSHAKE_BYTES;
	a->in.len = 0;
	a->rest = 0;
	if (pai_buf_reserve(&a->in, HANDSHAKE_BYTES) < 0) {
		return pai_err_no_memory(err);
	}
	r = send_hello(a, call, err);
	r = r < 0 ? r : await_attached(a, call, err);
	return r < 0 ? r : judge(a, err);
}

int pai_link_attempt_run(
    struct pai_link_attempt *a, const struct pai_call *call, struct pai_err *err)
{
	int r = -1;

	for (int i = 0; i < STALE_MAX; i++) {
		a->attached.status = PAI_LINK_NEW;
		*err = (struct pai_err)PAI_ERR_INIT;
		r = attempt_once(a, call, err);
		if (r == 0) {
			return 0;
		}
		pai_auto_fd_p(&a->fd);
		a->fd = -1;
		if (a->attached.status != PAI_LINK_STALE || a->final) {
			return r;
		}
	}
	return r;
}
