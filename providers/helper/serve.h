/*
 * serve: `pai-helper serve`: the far end of a link's transports, in two processes.
 *
 * The *relay* has a transport as its stdio. It hands that to the worker and waits for its end; what
 * can't be used there (a terminal, a pipe of another user's) it copies to the worker's socket and
 * back, and ends when either ends.
 *
 * The *worker* serves the local provider of its root. There is one per root, build, client and
 * options: the first relay starts it, and it survives them. It ends when its link has been said BYE
 * to or has been without a transport for its grace, on SIGTERM, and when its root has gone.
 *
 *   ROOT/.work-HASH.sock   the worker's, 0600
 *   ROOT/.work-HASH.lock   flock: shared to connect, exclusive to start or end a worker
 */
#ifndef PAI_HELPER_SERVE_H
#define PAI_HELPER_SERVE_H

#include <stdbool.h>

#include "providers/base/err.h"
#include "providers/base/strmap.h"

/* The first byte on the worker's socket. */
enum pai_relay_lead {
	PAI_RELAY_COPIES = 'C', /* this socket is the transport */
	PAI_RELAY_HANDS = 'H',  /* two descriptors come with it (in, out); the socket's hang-up is
				   the relay's end */
};

struct pai_serve_config {
	const char *root;   /* ours, and nobody else's to write; SYS with ENOENT: it isn't there */
	bool make_root;     /* then it is made, 0700, and the directories above it */
	const char *client; /* whom the worker serves */
	const struct pai_strmap *options; /* of the local provider, save `root` */
};
/* The relay; in the process that becomes the worker it does not return. Single-threaded before. */
int pai_serve_run(const struct pai_serve_config *config, struct pai_err *err) PAI_WARN_UNUSED;

#endif
