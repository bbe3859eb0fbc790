/*
 * link_private: what link_core.c, link_channel.c and link_direct.c share.
 *
 * `lock` guards everything that a user's thread touches when it sends: the way out of the
 * transport, the queue, the windows. The loop's thread alone changes the rest, and holds the lock
 * in all of it but reading from the transport and calling users and owners.
 *
 * Invariants
 *   a transport is there or not: t.in >= 0 exactly when in_io is set; a doomed one is neither read
 *     nor written any more
 *   a channel is in the table until both sides have sent CH_END and its socket is closed
 *   `allowed` and `window` never exceed what the channel was opened with
 *   bytes of a channel: in its socket, in `pending` (at most one window), or in the queue
 *   a channel has a socket or a user, or neither when it is closed on this side
 *   who is in `stalled` is served when there is room, in turn; while somebody is, nobody else sends
 */
#ifndef PAI_HELPER_LINK_PRIVATE_H
#define PAI_HELPER_LINK_PRIVATE_H

#include <pthread.h>

#include "providers/base/buf.h"
#include "providers/helper/link_core.h"

#define CHANNEL_BUCKETS 64

struct pai_channel {
	LIST_ENTRY(pai_channel) at;
	TAILQ_ENTRY(pai_channel) stalled_at;
	struct pai_link_core *core;
	uint32_t id;
	int fd; /* -1: not answered yet, or closed */
	struct pai_loop_io *io;
	uint32_t interest;
	uint64_t cookie; /* of the socket's other end, where that is in this process */
	const struct pai_channel_tap *tap;
	void *tap_arg;
	const struct pai_channel_user *user;
	void *user_arg;
	bool wants;    /* the user has more to send than the window lets it */
	bool answered; /* OPENED was sent, or came */
	bool sent_end, got_end;
	bool deaf;       /* its user doesn't read any more */
	bool is_stalled; /* in core->stalled: has something to send, but the queue had no room */
	uint32_t window; /* what we may send */
	uint32_t window_max;
	uint32_t allowed; /* what the peer may send */
	uint32_t allowed_max;
	uint32_t consumed;      /* taken by the user, not credited yet */
	struct pai_buf pending; /* for the user */
	size_t pending_at;
};
LIST_HEAD(channel_list, pai_channel);
TAILQ_HEAD(stalled_list, pai_channel);

struct pai_link_core {
	struct pai_loop *loop;
	const struct pai_link_core_events *events;
	void *arg;
	bool is_daemon;
	pthread_mutex_t lock;
	/* transport */
	struct pai_link_transport t;
	struct pai_loop_io *in_io, *out_io, *control_io; /* one that is two in one: in_io */
	bool out_armed;
	struct pai_buf in;
	struct pai_buf control; /* frames that aren't counted, to be sent */
	size_t control_at;
	bool heard, spoke; /* since the last tick */
	/* the end of the transport, or of all, is told from here */
	struct pai_loop_timer *doom;
	bool doomed, broken, told;
	bool closing;  /* the daemon leaves */
	bool farewell; /* BYE was put, or has come */
	struct pai_err why;
	/* counted frames */
	struct link_queue queue;
	uint64_t received;
	size_t unacked_bytes, unacked_frames;
	/* channels */
	uint32_t last_id;
	size_t count;
	struct channel_list channels[CHANNEL_BUCKETS];
	struct stalled_list stalled;
	struct pai_channel *turn; /* whose user is being asked for more */
	bool starved;             /* no memory for what a user sent */
};

/* --- link_core.c --- */

/* With the lock, all below. */

/* The transport ends in the next round; the first reason counts. On the loop's thread. */
void pai_link_core_doom(struct pai_link_core *c, const struct pai_err *why);
/* The link does: the peer broke the protocol, or memory ran out. The same. */
void pai_link_core_break(struct pai_link_core *c, const char *what);
/* Sends what goes; what doesn't is left to the loop. Any thread. */
void pai_link_core_push(struct pai_link_core *c);
/* The same on the loop's thread; `r` is how putting it went: a link that can't carry a frame is
 * over. */
void pai_link_core_flush(struct pai_link_core *c, int r);

/* --- link_channel.c --- */

void pai_link_channel_stall(struct pai_channel *ch, bool stalled);
void pai_link_channel_free_if_over(struct pai_channel *ch);
/* What is put by these is for the caller to flush. */
int pai_link_channel_put_end(struct pai_channel *ch) PAI_WARN_UNUSED;
int pai_link_channel_put_credit(struct pai_channel *ch, size_t bytes) PAI_WARN_UNUSED;
/* Its socket is the user's no more, and ours neither. */
void pai_link_channel_close_fd(struct pai_channel *ch);
/* What its user has written so far is in the queue; false: not all of it. */
bool pai_link_channel_drain(struct pai_channel *ch);

/* Counted frames of a channel; 0, or -EPROTO. */
int pai_link_channel_take(struct pai_link_core *c, const struct pai_frame *f) PAI_WARN_UNUSED;
/* Those that wait for room in the queue, if there is. */
void pai_link_channels_resume(struct pai_link_core *c);
/* Every one as if the peer had sent CH_END. */
void pai_link_channels_end(struct pai_link_core *c);
/* Once no channel has anything to say, a daemon that is leaving says so; 0, or as a put. */
int pai_link_channels_bye(struct pai_link_core *c) PAI_WARN_UNUSED;
void pai_link_channels_free(struct pai_link_core *c);
/* The one whose user's socket has it; NULL. */
struct pai_channel *pai_link_channel_by_cookie(struct pai_link_core *c, uint64_t cookie);

/* --- link_direct.c: of a channel with a user; the lock is given up while that is called --- */

void pai_link_direct_begun(struct pai_channel *ch);
int pai_link_direct_bytes(struct pai_channel *ch, struct pai_view bytes) PAI_WARN_UNUSED;
void pai_link_direct_writable(struct pai_channel *ch);
/* The channel is freed. */
void pai_link_direct_ended(struct pai_channel *ch);

#endif
