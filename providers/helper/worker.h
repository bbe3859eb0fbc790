/*
 * worker: the process behind the relays: holds a link's far end, and opens its channels.
 */
#ifndef PAI_HELPER_WORKER_H
#define PAI_HELPER_WORKER_H

#include "providers/helper/serve.h"

struct pai_worker_config {
	const struct pai_serve_config *serve;
	int root_fd;
	int listen_fd;         /* listening, non-blocking */
	const char *sock_name; /* in the root: removed at the end */
	const char *lock_name; /* in the root */
};
/* Takes over the process: signals, and threads of its own. Returns when it is over. */
int pai_worker_run(const struct pai_worker_config *config, struct pai_err *err) PAI_WARN_UNUSED;

#endif
