/*
 * link_world: both ends of links in one process, and transports between them that do as a plan
 * says: cut, stall, slow, half open. The worker's channels are echoes, or as their sandbox's name
 * says: "called" is an echo without a socket, "files" serves a workspace.
 */
#ifndef PAI_TESTS_LINK_WORLD_H
#define PAI_TESTS_LINK_WORLD_H

#include <pthread.h>
#include <stdatomic.h>

#include "providers/base/loop.h"
#include "providers/base/pool.h"
#include "providers/helper/link.h"
#include "providers/helper/link_end.h"
#include "providers/helper/ws_serve.h"

#define TRANSPORTS_MAX 64
#define NEVER UINT64_MAX

/* What becomes of one transport: what is said of a direction happens before its byte `at`. */
struct plan {
	enum { CUT, STALL, HALF, SLOW } how; /* HALF: that direction swallows everything */
	int direction;                       /* 0 towards the worker, 1 back */
	uint64_t at;
};
struct transport {
	struct world *w;
	struct plan plan;
	int fds[2]; /* the daemon's side, the worker's */
	pthread_t thread;
	uint64_t bytes[2];
	/* Recorded: where frames of this direction end. */
	uint64_t frame_ends[2][4096];
	size_t frames[2];
	struct pai_buf seen[2];
};
struct world {
	struct pai_loop *loop;
	pthread_t thread;
	struct pai_pool *pool;     /* the daemon's */
	struct pai_pool *end_pool; /* the worker's */
	struct pai_link_end *end;
	struct pai_link *link;
	struct plan plans[TRANSPORTS_MAX]; /* of transport 0, 1...; all zero: never cut */
	struct transport *transports[TRANSPORTS_MAX];
	atomic_uint count;
	atomic_bool records;
	atomic_uint refuse; /* so many opens fail, UNAVAILABLE */
	atomic_bool gone;   /* opens answer NOT_FOUND */
	atomic_uint freed;
	uint64_t silence_ms, grace_ms;
	struct pai_ws_serve serve; /* "files" */
	void (*served)(void *arg, const struct pai_err *why);
};

void world_start(struct world *w);   /* the fields above that the test has set stay */
void world_connect(struct world *w); /* w->link */
void world_stop(struct world *w);
/* Runs fn(arg) on the worker's loop and waits. */
void world_on_loop(struct world *w, pai_loop_fn fn, void *arg);
bool world_end_is_idle(struct world *w);
int world_channel(struct world *w, const char *sandbox); /* must succeed */
/* Channel i sends `bytes` of its own pattern in pieces of `piece` and must get them back; then it
 * is closed. All at once; every second one has users at both ends, the others have sockets. */
void world_echo(struct world *w, size_t channels, size_t bytes, size_t piece);

#endif
