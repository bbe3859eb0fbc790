/*
 * far_calls: one stream of calls, from the asking end: many calls at once, one thread that reads.
 *
 *   far_calls.c  the stream: sends requests, hands replies to who waits
 *   far.c        the provider and its sandboxes, made of calls
 */
#ifndef PAI_HELPER_FAR_CALLS_H
#define PAI_HELPER_FAR_CALLS_H

#include "providers/base/buf.h"
#include "providers/base/cancel.h"
#include "providers/provider.h"
#include "providers/wire/call_msg.h"

struct pai_far_calls; /* reference counted */

/* What a call gave. */
struct pai_far_reply {
	struct pai_call_result result;
	struct pai_buf data;          /* READ_FILE; `max` is set before */
	struct pai_sandbox_list list; /* LIST */
	struct pai_dir_list names;    /* LIST_DIR */
};
void pai_far_reply_fini(struct pai_far_reply *r);

/* Takes fd. Waits for READY within `call`; PROTOCOL when what answers is of another version. */
int pai_far_calls_new(int take_fd, const struct pai_call *call, struct pai_far_calls **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
const struct pai_calls_ready *pai_far_calls_ready(const struct pai_far_calls *c);
bool pai_far_calls_alive(const struct pai_far_calls *c);
struct pai_far_calls *pai_far_calls_ref(struct pai_far_calls *c);
void pai_far_calls_unref(struct pai_far_calls *c); /* NULL is fine */
/* Ends the stream: what waits fails. */
void pai_far_calls_end(struct pai_far_calls *c);

/* Asks, with `data` behind it (WRITE_FILE; len is q->number), and waits. q->within_ms is set here.
 * *sent says whether the request left: only then may it have been carried out. */
int pai_far_call(struct pai_far_calls *c, struct pai_call_request *q, const void *data,
    const struct pai_call *call, struct pai_far_reply *reply, bool *sent,
    struct pai_err *err) PAI_WARN_UNUSED;
/* Asks and waits for nothing: FORGET. */
void pai_far_tell(struct pai_far_calls *c, struct pai_call_request *q);

#endif
