/*
 * supervisor: the exec half of the helper. Holds a sandbox's namespaces, serves the exec frames of
 * wire/exec_msg.h to one line per daemon, and outlives the daemons while something runs.
 */
#ifndef PAI_HELPER_SUPERVISOR_H
#define PAI_HELPER_SUPERVISOR_H

#include <stdbool.h>

#include "providers/base/err.h"

struct pai_supervisor_config {
	int socket_fd; /* a bound Unix stream socket: listening starts here, so that SO_PEERCRED of
			  a connection names the supervisor */
	int nonce_fd;  /* the identity file: its text is the incarnation; unlinked: it is over */
	int ready_fd;  /* gets one byte once the socket listens, then is closed; -1: none */
	int lock_fd;   /* exclusively locked before an idle end, so that nobody is just connecting;
			  -1: none */
	int env_fd; /* "K=V" strings, each with its NUL: the commands' own environment; -1: empty */
	char *const *env;  /* the same as strings, instead; NULL: env_fd says */
	const char *lease; /* a file, replaced whole, that says in wall ms when the sandbox expires
			      (0: never): it is over then; NULL: it doesn't expire by itself */
	bool stays;        /* no end for want of work: the sandbox lives as long as this does */
	const char *workspace; /* where /workspace is when it isn't mounted there; NULL: it is */
};
/*
 * Runs until the sandbox is over (nonce unlinked, lease run out, SIGTERM): then everything in it is
 * killed first; or, unless it stays, until there has been no line, no command and no child for a
 * second. Takes over the process: signals, descriptors, children. Single-threaded.
 */
int pai_supervisor_run(
    const struct pai_supervisor_config *config, struct pai_err *err) PAI_WARN_UNUSED;

#endif
