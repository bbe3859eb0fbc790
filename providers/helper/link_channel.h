/*
 * link_channel: a channel of a link whose user is called, instead of having a socket: what it sends
 * is framed and written into the transport by its own thread, and what comes is handed to it on the
 * loop's. Each saves a copy through the kernel and a change of threads.
 */
#ifndef PAI_HELPER_LINK_CHANNEL_H
#define PAI_HELPER_LINK_CHANNEL_H

#include <sys/uio.h>

#include "providers/base/buf.h"
#include "providers/base/loop.h"

struct pai_channel;

/* All on the loop's thread, in order and without a lock; none may block. */
struct pai_channel_user {
	/* First, at the end that didn't ask for it. It need not come before `ended`. */
	void (*begun)(void *arg, struct pai_channel *ch);
	/* Bytes have come. All are taken; how many of them are credited at once. Who never credits
	 * the others gets a window of them and no more. */
	size_t (*bytes)(void *arg, struct pai_view bytes);
	/* After a send that fell short. */
	void (*writable)(void *arg);
	/* Last: the peer or the link has ended it. A channel that has begun is closed in here. */
	void (*ended)(void *arg);
};

/* How many of the bytes were taken; if not all, `writable` follows when more will be. Any thread,
 * but one at a time for a channel, and not beside its close: under a lock of the user's, then, that
 * no call of these waits for. */
size_t pai_channel_send(struct pai_channel *ch, const struct iovec *iov, int count);
/* Of bytes that were not credited when they came. Any thread, as above. */
void pai_channel_credit(struct pai_channel *ch, size_t bytes);
/* The one on whose thread the user is called, for timers of its own. */
struct pai_loop *pai_channel_loop(const struct pai_channel *ch);
/* On the loop's thread. What was sent is delivered; nothing is called any more. */
void pai_channel_close(struct pai_channel *ch);

/* Who looks on at what comes out of a channel's socket, on the loop's thread. */
struct pai_channel_tap {
	/* Under locks of the link's, none of whose functions it may call. */
	void (*bytes)(void *arg, struct pai_loop *loop, struct pai_view bytes);
	void (*ended)(void *arg); /* last */
};

/* What an opened channel leads to: a stream socket, or a user. */
struct pai_link_opened {
	int fd;                            /* -1 with a user */
	const struct pai_channel_tap *tap; /* of the socket; NULL: nobody */
	const struct pai_channel_user *user;
	void *arg; /* the user's, or the tap's */
};
#define PAI_LINK_OPENED_INIT                                                                       \
	{                                                                                          \
		.fd = -1                                                                           \
	}
/* It is not wanted: closed, or told that it has ended. On the loop's thread. */
void pai_link_opened_drop(struct pai_link_opened *o);

#endif
