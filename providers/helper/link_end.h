/*
 * link_end: the worker's end of links. Takes transports, answers their ATTACH, and keeps the one
 * link that its client has: a higher epoch fences the older transport, a new link ends the older
 * one. Channels are opened by the owner's function on a pool.
 *
 * Threading: on the loop's thread, save `open`.
 */
#ifndef PAI_HELPER_LINK_END_H
#define PAI_HELPER_LINK_END_H

#include "providers/base/cancel.h"
#include "providers/base/loop.h"
#include "providers/helper/link_core.h"

struct pai_link_end;
struct pai_pool;

struct pai_link_end_config {
	struct pai_loop *loop;
	struct pai_pool *pool;
	const char *client;      /* whom it serves: others are refused */
	const char *incarnation; /* of this worker: 1-255 bytes */
	/* Connects a channel: *ret, empty before, is the link's from then on. On a pool thread,
	 * several at once; cancelled when the channel isn't wanted any more. */
	int (*open)(void *arg, enum pai_channel_kind kind, const char *sandbox,
	    const struct pai_call *call, struct pai_link_opened *ret, struct pai_err *err);
	void *arg;
};
/* NULL without memory. The strings are copied. */
struct pai_link_end *pai_link_end_new(const struct pai_link_end_config *config);
/* Ends everything at once. The pool must be freed after it, and before `arg`: opens may be under
 * way. */
void pai_link_end_free(struct pai_link_end *e);
/* A new transport, taken: ATTACH will come on it. */
void pai_link_end_transport(struct pai_link_end *e, const struct pai_link_transport *take);
/* Neither a link nor a transport that might make one. */
bool pai_link_end_is_idle(const struct pai_link_end *e);

#endif
