/*
 * ws_line: a workspace server (struct pai_ws) that is at the other end of a stream, which carries
 * the frames of wire/ws_msg.h. Never PAI_WS_CAP_INLINE: requests are pipelined, answered in any
 * order, and complete on the one thread of all lines (wire_line.h), pushes too, in the order in
 * which they came. Nothing that the other end says is believed past what was asked; what may not
 * be ends the stream. One that is a channel of a link in this process is used without its socket.
 *
 * When a stream ends, one PAI_WS_PUSH_ALL is pushed, and who waits for an answer, or the next
 * request, has another opened. All wait for that: it fails, and they are EIO (the next try is put
 * off, ever longer), or ESTALE, when nothing is there any more. Else what was sent before and not
 * answered is EIO: whether it was done is unknown. And files that were opened on the former stream
 * are EIO from then on, whatever is asked of them but RELEASE; so a lock that went with it is not
 * taken for held. A wait for a lock has no part in that: it is EIO at once. ws->gone is set by the
 * other end's word, by `open`, and by pai_ws_revoke().
 *
 * pai_ws_cancel(): a request that was not sent is ECANCELED. Of one that was, the wait ends with
 * ECANCELED, whatever becomes of it there; what it opens is closed again. A wait for a lock ends
 * there, and is answered from there.
 */
#ifndef PAI_HELPER_WS_LINE_H
#define PAI_HELPER_WS_LINE_H

#include "providers/workspace/workspace.h"

struct pai_ws_line_config {
	/* A new stream, a stream socket of the caller's; blocking, on the caller's thread of
	 * pai_ws_line_new() and after that on one of the pool. NOT_FOUND: the sandbox is gone. */
	int (*open)(void *arg, const struct pai_call *call, int *ret_fd, struct pai_err *err);
	void *arg;
	/* It is gone, and its last job with it, from the thread of either. NULL is fine. */
	void (*freed)(void *arg);
	/* Nothing heard for so long, though asked and something is awaited: the stream is given
	 * up. 0: 90 s, past what a line takes to come back without a loss. */
	uint64_t silence_ms;
	/* What an honest server answers at once, whatever else it does, and this one has not in so
	 * long, though it is heard: the stream is given up. Nothing that may wait (a lock) or take
	 * its time (fsync, copies); eight times as long while data is under way. 0: three times
	 * what a call may take. */
	uint64_t owed_ms;
};
/* Opens the first stream. Of `config`: on_push, push_arg, raw_ids, and the pool, which is needed;
 * call_ms bounds an opening (0: 30 s). Its caps are those of the first stream. After a failure
 * `freed` is not called. */
int pai_ws_line_new(const struct pai_ws_line_config *line, const struct pai_ws_config *config,
    const struct pai_call *call, struct pai_ws **ret, struct pai_err *err) PAI_WARN_UNUSED;

#endif
