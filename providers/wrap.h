/*
 * wrap: the pass-through decorator that trace, fault and the broken providers of the conformance
 * tests are made of. It forwards every call to an inner provider by way of the wrappers in
 * provider.h and tells a hook before and after.
 *
 * Both hooks get the same event. `before` may refuse the call (a negative errno with err filled):
 * the inner one isn't called. `after` sees the outcome in `result` and may turn it into a failure;
 * it returns the final one.
 */
#ifndef PAI_PROVIDERS_WRAP_H
#define PAI_PROVIDERS_WRAP_H

#include "providers/provider_ops.h"

enum pai_wrap_call {
	PAI_WRAP_PROBE,
	PAI_WRAP_CREATE,
	PAI_WRAP_CONNECT,
	PAI_WRAP_LIST,
	PAI_WRAP_RUN,
	PAI_WRAP_READ_FILE,
	PAI_WRAP_WRITE_FILE,
	PAI_WRAP_LIST_DIR,
	PAI_WRAP_KEEP_ALIVE,
	PAI_WRAP_KILL,
	PAI_WRAP_PAUSE,
	PAI_WRAP_OPEN_LINE,
	PAI_WRAP_HOST_FILES,
	PAI_WRAP_OPEN_EXEC,
	PAI_WRAP_OPEN_FILES,
	PAI_WRAP_CALL_COUNT
};
/* "read_file", as the function is called. */
const char *pai_wrap_call_name(enum pai_wrap_call call);

/* What is known of one call; what a call doesn't have is zero. */
struct pai_wrap_event {
	enum pai_wrap_call call;
	const struct pai_call *bounds;
	struct pai_sandbox *sandbox; /* the inner one; after a create or connect the new one */
	const char *sandbox_id;
	const struct pai_create_input *create;
	const struct pai_strmap *metadata;
	const struct pai_run_input *run;
	const char *path;
	const char *program; /* open_line */
	uint64_t limit;      /* max_bytes or ttl_ms */
	uint64_t bytes_in;
	/* after */
	uint64_t bytes_out, bytes_err;
	int exit_code;
	bool found;
	size_t count;
};

struct pai_wrap;
struct pai_wrap_hooks {
	int (*before)(struct pai_wrap *w, const struct pai_wrap_event *e, struct pai_err *err);
	int (*after)(struct pai_wrap *w, const struct pai_wrap_event *e, int result,
	    uint64_t started_ms, struct pai_err *err);
	void (*free)(struct pai_wrap *w); /* frees `w` itself and what is the decorator's */
};
/* Embedded first in a decorator's struct. The tables are its own copies: a decorator may replace a
 * slot, and reach the inner objects by the functions below. */
struct pai_wrap {
	struct pai_provider base;
	struct pai_provider_ops ops;
	struct pai_sandbox_ops sandbox_ops;
	struct pai_provider *inner;
	const struct pai_wrap_hooks *hooks;
};

/* Fills `w`, which takes the inner provider. */
void pai_wrap_init(
    struct pai_wrap *w, struct pai_provider *take_inner, const struct pai_wrap_hooks *hooks);
/* For hooks->free: ends the inner provider. */
void pai_wrap_fini(struct pai_wrap *w);
struct pai_sandbox *pai_wrap_inner(struct pai_sandbox *sb);
/* A handle of ours over an inner one, which it takes, also on failure. */
int pai_wrap_sandbox(struct pai_wrap *w, struct pai_sandbox *take_inner, struct pai_sandbox **ret,
    struct pai_err *err) PAI_WARN_UNUSED;

#endif
