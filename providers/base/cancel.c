#include "providers/base/cancel.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/eventfd.h>

#include "providers/base/clock.h"

/* poll() counts time awake only, deadlines count suspend too: look at the clock this often. */
#define SLICE_MS 5000
/* ... and at a token that could have no descriptor. */
#define BLIND_SLICE_MS 20

struct pai_cancel {
	atomic_uint refs;
	atomic_bool fired;
	atomic_int fd; /* -1 until somebody waits: most tokens are only looked at */
};

struct pai_cancel *pai_cancel_new(void)
{
	pai_auto_free struct pai_cancel *c = calloc(1, sizeof(*c));

	if (!c) {
		return NULL;
	}
	atomic_init(&c->fd, -1);
	atomic_init(&c->refs, 1);
	return PAI_TAKE(c);
}

struct pai_cancel *pai_cancel_ref(struct pai_cancel *c)
{
	if (c) {
		(void)atomic_fetch_add(&c->refs, 1);
	}
	return c;
}

void pai_cancel_unref(struct pai_cancel *c)
{
	if (c && atomic_fetch_sub(&c->refs, 1) == 1) {
		if (c->fd >= 0) {
			(void)close(c->fd);
		}
		free(c);
	}
}

static void make_readable(int fd)
{
	if (fd >= 0) {
		(void)!write(fd, &(uint64_t){1}, sizeof(uint64_t)); /* more than once is fine */
	}
}

void pai_cancel_fire(struct pai_cancel *c)
{
	int saved = errno;

	/* Either this sees the descriptor, or who makes it sees this. */
	if (!atomic_exchange(&c->fired, true)) {
		make_readable(atomic_load(&c->fd));
	}
	errno = saved;
}

bool pai_cancel_fired(const struct pai_cancel *c)
{
	return c && atomic_load(&c->fired);
}

int pai_cancel_fd(struct pai_cancel *c)
{
	int none = -1;
	int fd;

	if (!c || atomic_load(&c->fd) >= 0) {
		return c ? atomic_load(&c->fd) : -1;
	}
	fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0) {
		return -1;
	}
	if (!atomic_compare_exchange_strong(&c->fd, &none, fd)) {
		(void)close(fd);
		return none; /* another's, who was first */
	}
	if (atomic_load(&c->fired)) {
		make_readable(fd);
	}
	return fd;
}

int pai_call_check(const struct pai_call *call, const char *what, struct pai_err *err)
{
	if (pai_cancel_fired(call->cancel)) {
		return pai_err_set(err, PAI_E_CANCELLED, "%s: cancelled", what);
	}
	if (pai_deadline_passed(call->deadline_ms)) {
		return pai_err_set(err, PAI_E_TIMEOUT, "%s: deadline passed", what);
	}
	return 0;
}

/* Polls the caller's descriptor (-1: none) and the token once, until until_ms at the latest. */
static int poll_slice(
    const struct pai_call *call, struct pollfd *wanted, uint64_t until_ms, struct pai_err *err)
{
	struct pollfd fds[2] = {*wanted, {.fd = pai_cancel_fd(call->cancel), .events = POLLIN}};
	int slice = call->cancel && fds[1].fd < 0 ? BLIND_SLICE_MS : SLICE_MS;
	int timeout = pai_deadline_poll_ms(until_ms);

	if (timeout < 0 || timeout > slice) {
		timeout = slice;
	}
	if (poll(fds, 2, timeout) < 0 && errno != EINTR) {
		return pai_err_sys(err, "poll");
	}
	wanted->revents = fds[0].revents;
	return 0;
}

int pai_call_sleep(const struct pai_call *call, uint64_t wake_ms, struct pai_err *err)
{
	uint64_t until = wake_ms < call->deadline_ms ? wake_ms : call->deadline_ms;
	struct pollfd none = {.fd = -1};

	for (;;) {
		int r;

		if (!pai_cancel_fired(call->cancel) && wake_ms <= call->deadline_ms &&
		    pai_deadline_passed(wake_ms)) {
			return 0;
		}
		r = pai_call_check(call, "wait", err);
		r = r < 0 ? r : poll_slice(call, &none, until, err);
		if (r < 0) {
			return r;
		}
	}
}

int pai_call_poll(const struct pai_call *call, int fd, short events, struct pai_err *err)
{
	struct pollfd wanted = {.fd = fd, .events = events};

	for (;;) {
		/* First, so that a peer that never pauses cannot outlast the deadline. */
		int r = pai_call_check(call, "wait", err);

		r = r < 0 ? r : poll_slice(call, &wanted, call->deadline_ms, err);
		if (r < 0) {
			return r;
		}
		if (wanted.revents & POLLNVAL) {
			return pai_err_errno(err, EBADF, "poll");
		}
		if (wanted.revents) {
			return 0;
		}
	}
}
