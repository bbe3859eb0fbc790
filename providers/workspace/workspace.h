/*
 * workspace: files of one sandbox, as requests that are data. The filesystem and the tools know
 * only these; three servers answer them: posix (a directory of this host, in-process), the same
 * posix server inside a sandbox behind a line, and portable (the contract's run/read/write/list and
 * nothing else).
 *
 * A request names its object as (path, expected identity), never by path alone: `path` is where the
 * client last knew it, relative to the workspace ("" is the workspace itself); a server that finds
 * another identity there answers ESTALE. A server keeps no per-file state save open handles and
 * watches.
 *
 * Threading: pai_ws_submit() from any thread; the completion is called exactly once, from any
 * thread, possibly before submit returns, also after a cancel. A request and everything it points
 * to stays valid until then. Completions must not block. After pai_ws_unref() of the last reference
 * no completion is pending: whoever submits holds a reference until its request is done.
 */
#ifndef PAI_WORKSPACE_WORKSPACE_H
#define PAI_WORKSPACE_WORKSPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "providers/base/cancel.h"
#include "providers/base/err.h"
#include "providers/wire/ws_req.h"

const char *pai_ws_op_name(enum pai_ws_op op);
/* Frees what a server allocated into `out`; the request can be used again after it. */
void pai_ws_req_fini(struct pai_ws_req *req);
/* Called on the server's watch thread, one at a time, in order; must not block. */
typedef void (*pai_ws_push_fn)(void *arg, const struct pai_ws_push *push);

/* --- servers --- */

struct pai_ws;
struct pai_ws_ops {
	const char *name;
	void (*submit)(struct pai_ws *ws, struct pai_ws_req *req);
	/* Hurries the completion of a request that waits (a lock: EINTR; in a queue: ECANCELED, and
	 * nothing was done). Others and unknown ones are ignored. */
	void (*cancel)(struct pai_ws *ws, struct pai_ws_req *req);
	/* The sandbox is gone or replaced: every later request, and those that wait, answer ESTALE.
	 * Idempotent. */
	void (*revoke)(struct pai_ws *ws);
	void (*free)(struct pai_ws *ws);
};
enum pai_ws_caps {
	PAI_WS_CAP_WATCH = 1 << 0,   /* pushes come */
	PAI_WS_CAP_HANDLES = 1 << 1, /* open files live on when unlinked */
	PAI_WS_CAP_INLINE = 1 << 2,  /* completes inside submit, save locks, fsync and fallocate */
	PAI_WS_CAP_LOCKS = 1 << 3,
	PAI_WS_CAP_POSIX = 1 << 4, /* links, modes, times, xattrs, special files: all of it */
	PAI_WS_CAP_EXITS = 1 << 5, /* a barrier is made, and told of, when a command ends */
};
struct pai_ws {
	const struct pai_ws_ops *ops;
	uint32_t caps;
	int refs; /* atomic */
	/* Atomic, set for good by the server: the sandbox is gone (its nonce lost its last link, or
	 * revoke). Every request is checked against it after it ran, looking as well as changing,
	 * and answers ESTALE. */
	int gone;
	uint64_t counters[PAI_WS_OP_COUNT]; /* requests by op, atomic: "count requests, not
					       instructions" */
};
struct pai_ws *pai_ws_ref(struct pai_ws *ws);
void pai_ws_unref(struct pai_ws *ws); /* NULL is fine; the last one revokes and frees */
void pai_ws_submit(struct pai_ws *ws, struct pai_ws_req *req);
void pai_ws_cancel(struct pai_ws *ws, struct pai_ws_req *req);
void pai_ws_revoke(struct pai_ws *ws);
/* Submits and waits, for tools and tests: 0 or the request's positive error; ETIMEDOUT, ECANCELED
 * by `call` only after the request has been cancelled and is done. Never on a FUSE thread with a
 * remote server. */
int pai_ws_wait(struct pai_ws *ws, struct pai_ws_req *req, const struct pai_call *call);

struct pai_host_files;
struct pai_sandbox;
struct pai_pool;
struct pai_ws_config {
	pai_ws_push_fn on_push; /* NULL: no watching */
	void *push_arg;
	struct pai_pool *pool; /* for what may block; borrowed, outlives the server */
	bool raw_ids;          /* requests carry the caller's ids, honoured when we are root */
	/* Of posix: who submits has others to serve. On a file system that may wait for another
	 * machine or program (NFS, FUSE) everything but locks goes to the pool then. */
	bool is_shared;
	uint64_t call_ms; /* of portable: for one call of the contract; 0: 30 s */
	/* Of portable: it is gone, and its last job with it, from the thread of either. */
	void (*freed)(void *arg);
	void *freed_arg;
};
/* Takes the descriptors in *take_files (also on failure). One inotify instance and thread serves
 * all posix servers of the process. Every mutation checks the nonce's link count before it is
 * answered: 0 is ESTALE. */
int pai_ws_posix_new(struct pai_host_files *take_files, const struct pai_ws_config *config,
    struct pai_ws **ret, struct pai_err *err) PAI_WARN_UNUSED;
/* Over the contract's calls alone. `sb` is borrowed until config->freed: a job that hangs in
 * it outlives the last reference. */
int pai_ws_portable_new(struct pai_sandbox *sb, const struct pai_ws_config *config,
    struct pai_ws **ret, struct pai_err *err) PAI_WARN_UNUSED;

#endif
