/*
 * wait: waiting for a change of something under a mutex, within a pai_call. A condition variable
 * knows no cancel token; this polls one descriptor per waiter beside the token's.
 */
#ifndef PAI_SESSION_WAIT_H
#define PAI_SESSION_WAIT_H

#include <pthread.h>

#include "providers/base/cancel.h"
#include "providers/base/err.h"

struct pai_waiter {
	int fd;
	struct pai_waiter *next;
};
struct pai_waitq {
	struct pai_waiter *first; /* under the mutex of what is waited for */
};
/* `lock` is held on entry and on return, not in between. Ends with the next wake; the caller looks
 * at its condition again. CANCELLED or TIMEOUT, naming `what`. */
int pai_waitq_wait(struct pai_waitq *q, pthread_mutex_t *lock, const struct pai_call *call,
    const char *what, struct pai_err *err) PAI_WARN_UNUSED;
/* Wakes every waiter; the mutex is held. */
void pai_waitq_wake(struct pai_waitq *q);

#endif
