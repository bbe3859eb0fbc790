/*
 * program: a program of the user's, run by the daemon for what it prints. It may hang or flood: its
 * output is capped, and when the call ends, every process of its group is killed.
 */
#ifndef PAI_SESSION_PROGRAM_H
#define PAI_SESSION_PROGRAM_H

#include <sys/types.h>

#include "providers/base/buf.h"
#include "providers/base/cancel.h"

struct pai_program {
	char *const *argv; /* argv[0] as a path, or a name of $PATH */
	const char *dir;   /* its working directory; NULL: ours */
	const char *input; /* its standard input; NULL: none */
	/* Told the POSIX session that the program leads, then 0 when it is dead; NULL: nobody is.
	 */
	void (*tell)(void *arg, pid_t session);
	void *arg;
};
/* *status is what waitpid() says. UNAVAILABLE: it can't be run. OUTPUT_LIMIT: it prints more than
 * `out` may hold. Whatever it was that failed, it is dead. */
int pai_program_run(const struct pai_program *p, const struct pai_call *call, struct pai_buf *out,
    int *status, struct pai_err *err) PAI_WARN_UNUSED;
/* UNAVAILABLE, saying how it ended, unless that was with exit status 0. */
int pai_program_check(int status, struct pai_err *err) PAI_WARN_UNUSED;

#endif
