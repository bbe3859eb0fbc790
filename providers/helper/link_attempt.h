/*
 * link_attempt: what blocks in a link's life: opening a transport and shaking hands on it.
 */
#ifndef PAI_HELPER_LINK_ATTEMPT_H
#define PAI_HELPER_LINK_ATTEMPT_H

#include "providers/base/buf.h"
#include "providers/base/cancel.h"
#include "providers/wire/link_msg.h"

struct pai_link_attempt {
	int (*open)(void *arg, const struct pai_call *call, int *ret_fd, struct pai_err *err);
	void *arg;
	struct pai_link_attach hello; /* the challenge is chosen anew each time, and the epoch
					 raised when the worker has seen a higher one */
	/* the result */
	int fd; /* -1: none */
	struct pai_link_attached attached;
	struct pai_buf in;
	size_t rest; /* where what follows the handshake begins in `in` */
	bool final;  /* it failed, and trying again won't help */
};
int pai_link_attempt_run(
    struct pai_link_attempt *a, const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;
void pai_link_attempt_fini(struct pai_link_attempt *a);

#endif
