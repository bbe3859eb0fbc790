/*
 * exec_run: one command, from EXEC to its last byte. The caller's descriptors 0, 1, 2 and its
 * signals belong to the command meanwhile.
 */
#ifndef PAI_EXECSHIM_EXEC_RUN_H
#define PAI_EXECSHIM_EXEC_RUN_H

#include <stdbool.h>

#include "execshim/exec_options.h"
#include "execshim/target.h"

enum pai_exec_ending {
	PAI_ENDED_NOT_STARTED, /* nothing ran */
	PAI_ENDED_EXITED,      /* as `code` says */
	PAI_ENDED_DETACHED,    /* it runs on */
	PAI_ENDED_UNKNOWN,     /* it may have run, wholly or in part, and may still run */
};
struct pai_exec_result {
	enum pai_exec_ending ending;
	int code;           /* our exit status */
	int die_of;         /* a signal to die of instead; 0: none */
	struct pai_err err; /* what to tell the user; PAI_OK: nothing */
	char *status;       /* the daemon's STATUS, or NULL: it said none */
	bool was_reset;     /* it ran, or was to run, in an environment that is new to us */
	char environment[PAI_ENVIRONMENT_TAG + 1]; /* that one; "": no such news */
	bool no_cwd; /* nothing ran: its working directory is not there */
	unsigned long long stdin_bytes, stdout_bytes, stderr_bytes; /* as far as we saw */
};
void pai_exec_result_fini(struct pai_exec_result *r);

/* Runs what the options say. Always ends with a result; `c` is only good for closing then. */
void pai_shim_run(const struct pai_exec_options *o, const struct pai_target *t,
    struct pai_client *c, struct pai_exec_result *ret);

/* Whether descriptors a and b are one open file, or write to the same place in order. */
bool pai_exec_is_same_file(int a, int b);

#endif
