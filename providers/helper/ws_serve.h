/*
 * ws_serve: serves one stream of the frames of wire/ws_msg.h with a workspace server.
 *
 * Requests run in the order in which they came, on the caller's thread, as far as the server
 * completes inside submit; what it completes later is answered then. Pushes go out in order with
 * the replies: a reply that was written before a push is read before it, and a barrier's reply
 * after all that came before. A client that doesn't read loses no change: past a bound its pushes
 * become PUSH_ALL.
 */
#ifndef PAI_HELPER_WS_SERVE_H
#define PAI_HELPER_WS_SERVE_H

#include "providers/helper/link_channel.h"
#include "providers/workspace/workspace.h"

struct pai_ws_serve {
	int take_fd; /* a stream socket; a channel has none */
	/* Makes the server once the client has said what it wants: config has on_push, push_arg and
	 * raw_ids; the pool is the one below. Its error is told to the client. */
	int (*open)(void *arg, const struct pai_ws_config *config, struct pai_ws **ret,
	    struct pai_err *err);
	void *arg;
	struct pai_pool *pool; /* for what may block; borrowed */
	bool tells_exits;      /* pai_ws_serve_exited() will be called */
};
/* Returns when the stream has ended, and its server with it: 0 when the client closed it, PROTOCOL
 * when it broke the rules. Any thread; one for each stream. */
int pai_ws_serve_run(const struct pai_ws_serve *s, struct pai_err *err) PAI_WARN_UNUSED;

/*
 * The same for a channel of a link, as a user of it: the loop's thread is what runs requests, and
 * what blocks in them blocks the link (pai_ws_config.is_shared). `ended`, on a thread of its own,
 * is the last of it, with what pai_ws_serve_run() would have answered.
 */
int pai_ws_serve_channel(const struct pai_ws_serve *s,
    void (*ended)(void *arg, const struct pai_err *why), struct pai_link_opened *ret,
    struct pai_err *err) PAI_WARN_UNUSED;
/* A command of the sandbox has ended. The client is told, once it has been told all that was done
 * before. `channel` is the `arg` of what that returned, until `ended` has been called. On the
 * loop's thread. */
void pai_ws_serve_exited(void *channel, uint32_t command);

#endif
