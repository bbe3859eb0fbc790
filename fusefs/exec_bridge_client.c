/* The client's words, and its end. */
#include <errno.h>
#include <signal.h>

#include "fusefs/exec_bridge_priv.h"

int pai_bridge_credit(struct pai_bridge *b, uint8_t stream, uint32_t bytes)
{
	uint64_t stale = b->stale[stream] < bytes ? b->stale[stream] : bytes;

	b->stale[stream] -= stale;
	bytes -= (uint32_t)stale;
	if (bytes > b->outstanding[stream]) {
		return -EPROTO;
	}
	b->outstanding[stream] -= bytes;
	if (b->exec && bytes > 0) {
		pai_exec_credit(b->exec, stream, bytes);
	}
	return 0;
}

void pai_bridge_cancel(struct pai_bridge *b)
{
	b->cancelled = true;
	if (b->exec) {
		pai_exec_cancel(b->exec);
	}
	pai_cancel_fire(b->cancel);
}

void pai_bridge_signal(struct pai_bridge *b, int signo)
{
	if (b->exec) {
		pai_exec_signal(b->exec, signo);
		return;
	}
	/* Nothing runs yet that could catch it. */
	if (signo == SIGINT || signo == SIGTERM || signo == SIGHUP || signo == SIGQUIT ||
	    signo == SIGKILL) {
		pai_bridge_cancel(b);
	}
}

void pai_bridge_resize(struct pai_bridge *b, uint16_t rows, uint16_t columns)
{
	if (b->exec) {
		pai_exec_resize(b->exec, rows, columns);
	}
	b->start.rows = rows;
	b->start.columns = columns;
}

void pai_bridge_client_gone(struct pai_bridge *b)
{
	b->client_is_gone = true;
	b->discard_output = true;
	if (b->exec && (b->start.flags & PAI_START_DETACH) && b->started) {
		/* What it was sent and never granted again. */
		for (uint8_t stream = PAI_STDOUT; stream <= PAI_STDERR; stream++) {
			uint64_t left = b->outstanding[stream];

			b->outstanding[stream] -= left;
			if (left) {
				pai_exec_credit(b->exec, stream, (uint32_t)left);
			}
		}
		pai_bridge_stdin_eof(b);
		return;
	}
	pai_bridge_cancel(b);
}

void pai_bridge_daemon_ends(struct pai_bridge *b)
{
	if (!(b->exec && (b->start.flags & PAI_START_DETACH) && b->started)) {
		pai_bridge_cancel(b);
	}
}
