/*
 * control: the daemon's socket (PROTOCOL.md). One loop thread owns every connection; requests that
 * ask a provider run on the pool within a deadline, those answered from memory never wait behind
 * them.
 *
 * Threading: _new and _close from the daemon's main thread.
 */
#ifndef PAI_FUSEFS_CONTROL_H
#define PAI_FUSEFS_CONTROL_H

#include "fusefs/fs.h"
#include "fusefs/options.h"
#include "ledger/ledger.h"
#include "providers/base/pool.h"
#include "providers/session/session.h"

struct pai_control;

struct pai_control_config {
	const struct pai_options *options;
	struct pai_sessions *sessions;
	struct pai_ledger *ledger;
	struct pai_fs *fs; /* NULL: not mounted */
	/* Asks the daemon to end; from the loop's thread, must not block. */
	void (*shutdown)(void *arg);
	void *arg;
};
/* Takes listen_fd, also on failure. Everything in `config` is borrowed and outlives it. */
int pai_control_new(const struct pai_control_config *config, int take_listen_fd,
    struct pai_control **ret, struct pai_err *err) PAI_WARN_UNUSED;
/* Runs fn(arg) on the pool for calls that may block. 0, -EAGAIN, -ENOMEM. */
int pai_control_submit(struct pai_control *c, pai_work_fn fn, void *arg) PAI_WARN_UNUSED;
/* Accepts no more, cancels what runs (detached commands are left to the sandbox), waits for it
 * until deadline_ms and ends every connection. False: something still ran; then nothing was freed,
 * and the process had better end. */
bool pai_control_close(struct pai_control *c, uint64_t deadline_ms);

#endif
