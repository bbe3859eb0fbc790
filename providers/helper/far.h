/*
 * far: a provider whose calls are answered elsewhere, by far_serve.h at the other end of streams:
 * the channels of a link, or a socketpair's ends in tests. Its sandboxes' files and commands go
 * over streams of their own.
 *
 * One stream carries all calls. When it has ended the next call opens another; a call that was
 * under way then fails (UNAVAILABLE; retryable where doing it twice is as doing it once).
 *
 * Threading: as provider.h says. One thread more reads the stream of calls.
 */
#ifndef PAI_HELPER_FAR_H
#define PAI_HELPER_FAR_H

#include "providers/provider_ops.h"
#include "providers/wire/link_msg.h"

struct pai_far_config {
	const char *name; /* the provider's, for people; static */
	/* What is claimed before the far side has said what it has: from then on what both say. */
	uint32_t caps;
	const char *isolation; /* the same: of the far side's own word nothing is left out */
	uint64_t hold_ms;      /* of its sandboxes: pai_sandbox_hold_ms() */
	/* A stream to what such a channel leads to (far_serve.h), connected, the provider's from
	 * then on. Any thread, several at once. */
	int (*open)(void *arg, enum pai_channel_kind kind, const char *sandbox,
	    const struct pai_call *call, int *ret_fd, struct pai_err *err);
	/* NULL: asked over the stream of calls. */
	int (*probe)(void *arg, const struct pai_call *call, struct pai_err *err);
	int (*describe)(void *arg, struct pai_strmap *ret, struct pai_err *err); /* NULL is fine */
	void (*freed)(void *arg); /* with the provider; NULL is fine */
	void *arg;
};
/* On failure `freed` has not been called. */
int pai_far_new(const struct pai_far_config *config, struct pai_provider **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
/* The option line_grace, or the default: milliseconds, for a link and for hold_ms. */
int pai_far_take_grace(
    const struct pai_strmap *options, uint64_t *ret_ms, struct pai_err *err) PAI_WARN_UNUSED;
/* The `arg` of a provider that pai_far_new() made. */
void *pai_far_arg(const struct pai_provider *p);
/* Opens the stream of calls unless there is one: from then on caps and isolation are known. */
int pai_far_connect(
    struct pai_provider *p, const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;

#endif
