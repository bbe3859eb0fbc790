/*
 * cancel: a token that one side fires, once, and others watch. Reference counted; any thread.
 * Every blocking call of the project takes one (NULL: cannot be cancelled) beside its deadline.
 */
#ifndef PAI_BASE_CANCEL_H
#define PAI_BASE_CANCEL_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/base/auto.h"
#include "providers/base/err.h"

struct pai_cancel;

/* NULL without memory. */
struct pai_cancel *pai_cancel_new(void);
struct pai_cancel *pai_cancel_ref(struct pai_cancel *c);
void pai_cancel_unref(struct pai_cancel *c);
PAI_DEFINE_AUTO(struct pai_cancel, pai_cancel_unref)
#define pai_auto_cancel PAI_AUTO(pai_cancel_unref_p)

/* Async-signal-safe and idempotent. */
void pai_cancel_fire(struct pai_cancel *c);
/* False for NULL. */
bool pai_cancel_fired(const struct pai_cancel *c);
/* Becomes readable when fired and stays so; -1 for NULL, or without descriptors. Borrowed: never
 * read or close it. */
int pai_cancel_fd(struct pai_cancel *c);

/* What every blocking call of the contract is bounded by. */
struct pai_call {
	uint64_t deadline_ms;      /* absolute, pai_clock_ms() scale; PAI_NO_DEADLINE */
	struct pai_cancel *cancel; /* borrowed; may be NULL */
};
#define PAI_CALL_UNBOUNDED                                                                         \
	(&(const struct pai_call){                                                                 \
	    .deadline_ms = UINT64_MAX,                                                             \
	})
/* 0, or CANCELLED, or TIMEOUT with `what` in the message. */
int pai_call_check(
    const struct pai_call *call, const char *what, struct pai_err *err) PAI_WARN_UNUSED;
/* Sleeps until `wake_ms`, the deadline or the cancellation, whichever is first; as above. */
int pai_call_sleep(
    const struct pai_call *call, uint64_t wake_ms, struct pai_err *err) PAI_WARN_UNUSED;
/* poll() for `events` on fd within the call: 0 ready, else as above. */
int pai_call_poll(
    const struct pai_call *call, int fd, short events, struct pai_err *err) PAI_WARN_UNUSED;

#endif
