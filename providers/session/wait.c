#include "providers/session/wait.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

int pai_waitq_wait(struct pai_waitq *q, pthread_mutex_t *lock, const struct pai_call *call,
    const char *what, struct pai_err *err)
{
	struct pai_waiter me = {.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .next = q->first};
	int r;

	if (me.fd < 0) {
		return pai_err_sys(err, "eventfd");
	}
	q->first = &me;
	(void)pthread_mutex_unlock(lock);
	r = pai_call_poll(call, me.fd, POLLIN, err);
	(void)pthread_mutex_lock(lock);
	for (struct pai_waiter **at = &q->first; *at; at = &(*at)->next) {
		if (*at == &me) {
			*at = me.next;
			break;
		}
	}
	(void)close(me.fd);
	return r < 0 ? pai_err_wrap(err, "%s", what) : 0;
}

void pai_waitq_wake(struct pai_waitq *q)
{
	for (struct pai_waiter *w = q->first; w; w = w->next) {
		/* Cannot fail but for a full counter, which wakes as well. */
		(void)!write(w->fd, &(uint64_t){1}, sizeof(uint64_t));
	}
}
