/* exec_state: what exec_run.c and exec_frames.c share: one command under way. */
#ifndef PAI_EXECSHIM_EXEC_STATE_H
#define PAI_EXECSHIM_EXEC_STATE_H

#include <signal.h>
#include <sys/types.h>

#include "execshim/exec_run.h"
#include "execshim/sink.h"
#include "providers/wire/exec_msg.h"
#include "providers/wire/frame.h"

#define PAI_EXEC_ID 1u /* of the one command of a connection */

struct pai_exec_state {
	const struct pai_exec_options *o;
	const struct pai_target *t;
	struct pai_client *c;
	struct pai_exec_result *result;
	struct pai_sink sinks[2]; /* stdout, stderr */
	uint64_t granted[2];      /* what the daemon may have sent on each so far */
	int signal_fd;
	sigset_t old_mask;
	bool reads_stdin;
	int stdin_failed; /* errno, 0 */
	off_t stdin_at;   /* where a file on stdin began to be read; -1: it is none */
	uint64_t stdin_credit;
	size_t input_at; /* of the caller's input */
	bool started, left, ended, over, quit;
	bool is_resized; /* before the start */
	bool stays;      /* we are the child that goes on */
	bool said_int;   /* INT was ours too: a shell's loop must see that we died of it */
	unsigned fatal_count;
	struct pai_exec_exit exit;
	uint64_t give_up_ms, probe_ms;
};

/* A frame was put into the client's output: a failure to do so ends the run. */
void pai_exec_send_or_lose(struct pai_exec_state *r, int put);
/* The terminal's size now; before the start it is kept in mind. */
void pai_exec_send_size(struct pai_exec_state *r);
/* PROTOCOL for what has no place here, NO_MEMORY. */
int pai_exec_on_frame(
    struct pai_exec_state *r, const struct pai_frame *f, struct pai_err *err) PAI_WARN_UNUSED;

#endif
