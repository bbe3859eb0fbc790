/*
 * container: a worker whose sandbox is where it runs: files are /workspace, commands run beside it,
 * without namespaces of their own.
 *
 *   DIR/nonce      the identity of what runs here, made by the first worker; unlinked: it is over
 *   DIR/sup.lock   flock: shared to connect to the supervisor, exclusive to start one
 *   DIR/sup.sock   the supervisor's
 */
#ifndef PAI_HELPER_CONTAINER_H
#define PAI_HELPER_CONTAINER_H

#include "providers/base/cancel.h"
#include "providers/base/err.h"

/* A connection to the supervisor, which is started when it isn't running: commands get this
 * process's environment. */
int pai_container_open_exec(
    int dir_fd, const struct pai_call *call, int *ret_fd, struct pai_err *err) PAI_WARN_UNUSED;

#endif
