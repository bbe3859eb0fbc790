/*
 * keeper: the process between the supervisor and one command. It is the command's parent and the
 * subreaper of everything that the command starts, so that a kill finds also what has left the
 * process group (setsid, double forks), and what is left over after a normal exit passes on to the
 * supervisor.
 *
 *   supervisor -- fork --> keeper -- clone, setsid, exec --> command
 *
 * Of a stream to a port (CONNECT) there is no command: the keeper itself is the stream (tunnel.h).
 *
 * It reports on a pipe: STARTED or FAILED, then EXIT, and ends. SIGTERM means: kill everything
 * below, reap it all, then report. It gets SIGTERM also when the supervisor dies.
 */
#ifndef PAI_HELPER_KEEPER_H
#define PAI_HELPER_KEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "providers/base/err.h"
#include "providers/wire/exec_msg.h"

enum pai_keeper_report_kind {
	PAI_KEEPER_STARTED,  /* a: pid */
	PAI_KEEPER_FAILED,   /* a: enum pai_exec_fail_phase, b: errno */
	PAI_KEEPER_OUT_ENDS, /* of a stream: the end of its stdout is the other end's */
	PAI_KEEPER_EXIT,     /* a: the command's wait status; b: 1 when a kill left something alive
			      */
};
struct pai_keeper_report { /* one atomic write to the pipe */
	int32_t kind, a, b;
};

/* What a start needs beside the message. */
struct pai_keeper_config {
	char *const *base_env; /* the sandbox's own, NULL-terminated */
	const char *workspace; /* where /workspace is when it isn't mounted there; NULL: it is */
	struct rlimit files_limit; /* RLIMIT_NOFILE for the command */
};
struct pai_kept { /* descriptors are the caller's, non-blocking, -1 where there is none */
	pid_t keeper;
	int report_fd;
	int stdin_fd;
	int out_fd; /* stdout; both when merged; a terminal's master */
	int err_fd;
};
/* Forks: single-threaded processes only. */
int pai_keeper_start(const struct pai_keeper_config *config, const struct pai_exec_start *start,
    struct pai_kept *ret, struct pai_err *err) PAI_WARN_UNUSED;
/* Kills every descendant of this process and reaps until none is left: true; false when
 * `within_ms` passes first. SIGCHLD must be blocked. `on_reaped` (NULL: none) gets each. */
bool pai_keeper_kill_all(
    uint64_t within_ms, void (*on_reaped)(void *arg, pid_t pid, int status), void *arg);

#endif
