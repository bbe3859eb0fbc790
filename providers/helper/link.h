/*
 * link: the daemon's end of a link to a helper's worker: one reliable, resumable, multiplexed
 * stream over transports that come and go ("The link" in wire/PROTOCOL.md). Each channel is a
 * connected stream socket of its user's, and behaves as one to the far side's end of it would:
 * bytes in order, back-pressure for that channel alone, EOF or ECONNRESET at the end. A transport
 * that drops and comes back within the grace loses nothing and repeats nothing; nobody but the
 * status notices.
 *
 * One client id has one link at a time: a second one takes the first one's place, whose channels
 * end.
 *
 * Threading: every function from any thread, save pai_link_take_over(). Sockets are moved on the
 * one loop thread of the process's lines (pai_wire_loop()); opening and waiting happen on the pool.
 */
#ifndef PAI_HELPER_LINK_H
#define PAI_HELPER_LINK_H

#include "providers/base/cancel.h"
#include "providers/base/err.h"
#include "providers/helper/link_channel.h"
#include "providers/wire/link_msg.h"

struct pai_link; /* reference counted */
struct pai_pool;

#define PAI_LINK_SILENCE_MS 10000
#define PAI_LINK_GRACE_MS 60000
#define PAI_LINK_CHANNELS_MAX 4096 /* at once; each may hold a window of bytes on either side */

struct pai_link_config {
	/*
	 * A new byte stream whose other end is a relay of pai-helper: a stream socket, the link's
	 * from then on. Blocking; the first one on the thread of pai_link_new(), the others on one
	 * of `pool`, never two at once. NOT_FOUND: what it leads to is gone for good, the link
	 * ends. Other errors: of the first one they are pai_link_new()'s, later it is tried again,
	 * with backoff, while the grace lasts.
	 */
	int (*open)(void *arg, const struct pai_call *call, int *ret_fd, struct pai_err *err);
	void *arg;
	/* Of opens alone, borrowed until `freed`: whoever waits for a channel on one of its threads
	 * keeps the transport from coming back. */
	struct pai_pool *pool;
	const char *client;  /* 1-128 bytes: names this daemon; copied */
	uint64_t silence_ms; /* nothing heard for so long, though asked: the transport is given
				up. 0: PAI_LINK_SILENCE_MS */
	uint64_t grace_ms;   /* how long a transport may stay lost before the channels end. 0:
				PAI_LINK_GRACE_MS */
	/* After the last reference, the last open and the last event, from the thread of either;
	 * also when pai_link_new() fails. NULL is fine. */
	void (*freed)(void *arg);
};
/* Waits for the first attach. UNAVAILABLE, PROTOCOL (what answers is no worker, or one of another
 * version), or what `open` said. */
int pai_link_new(const struct pai_link_config *c, const struct pai_call *call,
    struct pai_link **ret, struct pai_err *err) PAI_WARN_UNUSED;

/*
 * A channel of that kind to that sandbox (its id; "" where there is only one): *ret_fd is a
 * connected, non-blocking stream socket, the caller's. The answer to the open comes within `call`:
 * NOT_FOUND, POLICY_MISMATCH, UNAVAILABLE, UNSUPPORTED... as the far side said. It waits for a
 * transport that is lost. Closing the socket ends the channel, and what was written before is
 * delivered. It ends with its far end (what came before is still read), or with the link.
 */
int pai_link_channel(struct pai_link *l, enum pai_channel_kind kind, const char *sandbox,
    const struct pai_call *call, int *ret_fd, struct pai_err *err) PAI_WARN_UNUSED;

/*
 * On the loop's thread: a socket that some link's pai_link_channel() gave, and that has come here
 * unchanged by whatever way, is not needed any more; the channel goes on without. What had been
 * written to it has been sent; the caller reads what is left in it, and closes it. NULL: no link of
 * this process has that socket, or more is under way than can be sent now: it goes on as it is.
 */
struct pai_channel *pai_link_take_over(
    int fd, const struct pai_channel_user *user, void *arg) PAI_WARN_UNUSED;

/* False: ended for good, with every channel; open another. */
bool pai_link_alive(const struct pai_link *l);

struct pai_link_status {
	bool attached;
	uint64_t attaches;      /* transports so far */
	uint64_t lost_ms;       /* for how long there has been none; 0 when attached or ended */
	int64_t clock_ahead_ns; /* the far clock minus this one, when it last attached */
	char incarnation[PAI_LINK_TEXT_MAX + 1]; /* the worker's */
	struct pai_err last; /* why the last transport, or the link, ended, or could not be had;
				code PAI_OK: nothing yet. Bytes from the far side may be in it */
};
void pai_link_status(const struct pai_link *l, struct pai_link_status *ret);

struct pai_link *pai_link_ref(struct pai_link *l);
/* The last one ends the link: what its users wrote before they closed is sent, then the worker is
 * told, for at most two seconds, in the background. NULL is fine. */
void pai_link_unref(struct pai_link *l);

#endif
