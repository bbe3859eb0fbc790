/*
 * exec_line: the daemon's end of a sandbox's exec half: one line, many commands, one loop thread
 * for the whole process, no thread per command. And the same interface over the contract's run()
 * alone.
 *
 * Threading: functions from any thread. Events come on the loop's thread, in order per command, and
 * must not block; `ended` is the last, exactly once, also when the line is lost (UNKNOWN, or not
 * started).
 */
#ifndef PAI_HELPER_EXEC_LINE_H
#define PAI_HELPER_EXEC_LINE_H

#include <pthread.h>

#include "providers/base/cancel.h"
#include "providers/base/err.h"
#include "providers/wire/exec_msg.h"

struct pai_exec_line;
struct pai_exec; /* one command; freed by pai_exec_free() after or before `ended` */
struct pai_sandbox;
struct pai_pool;

struct pai_exec_events {
	/* The supervisor acknowledged the start. Until then the command can be tried again
	 * elsewhere. */
	void (*started)(void *arg, uint32_t pid, uint32_t stdin_credit);
	void (*output)(void *arg, uint8_t stream, const char *data, size_t len);
	/* CONNECT: the other end has closed its direction, no output comes any more. NULL is fine.
	 */
	void (*stdout_ended)(void *arg);
	void (*stdin_credit)(void *arg, uint32_t bytes);
	void (*stdin_taken)(void *arg, uint64_t bytes);
	/* Did not start. `err->msg` is for people; phase decides 126/127. */
	void (*failed)(void *arg, enum pai_exec_fail_phase phase, const struct pai_err *err);
	/* LINGER: the main process has ended so, others hold its output; once. NULL is fine. A line
	 * that knows no LINGER leaves the flag aside. */
	void (*left)(void *arg, const struct pai_exec_exit *e);
	void (*exited)(void *arg, const struct pai_exec_exit *e);
	/* The line ended before an exit: err NOT_FOUND when the sandbox is proven gone, UNAVAILABLE
	 * otherwise. */
	void (*lost)(void *arg, const struct pai_err *err);
};
/* failed, exited and lost are each the last event: exactly one of them comes. */

/* Takes fd. `who` names this daemon (client id) for fencing. Waits for the handshake within `call`.
 */
int pai_exec_line_new(int take_fd, const char *who, uint64_t epoch, const struct pai_call *call,
    struct pai_exec_line **ret, struct pai_err *err) PAI_WARN_UNUSED;
/* The portable form: each start is one run() on a thread of `pool`; stdin is spooled to its end
 * before the start; -t, DETACH, CONNECT (UNSUPPORTED) and signals but KILL (ignored) are refused.
 * `sb` is borrowed until `freed` (NULL is fine) is called: after the last reference, the last event
 * of every command and the last job, from the thread of either. */
int pai_exec_line_portable_new(struct pai_sandbox *sb, struct pai_pool *pool,
    void (*freed)(void *arg), void *freed_arg, struct pai_exec_line **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
/* The sandbox's identity file: from now on a loss or an exit is NOT_FOUND when its link count is 0.
 * Takes the descriptor. */
void pai_exec_line_prove_by(struct pai_exec_line *l, int take_nonce_fd);
/* A supervisor with commands under way that is silent for so long, when asked, too, is given up:
 * they are lost (UNAVAILABLE). PAI_EXEC_SILENCE_MS unless said otherwise; before the first start.
 */
#define PAI_EXEC_SILENCE_MS 10000
void pai_exec_line_expect(struct pai_exec_line *l, uint64_t silence_ms);
struct pai_exec_line *pai_exec_line_ref(struct pai_exec_line *l);
void pai_exec_line_unref(
    struct pai_exec_line *l); /* the last one closes: commands without DETACH are killed */
/* The sandbox is gone: every command of it ends with lost(NOT_FOUND). */
void pai_exec_line_revoke(struct pai_exec_line *l);
bool pai_exec_line_alive(const struct pai_exec_line *l);

/* UNSUPPORTED: CONNECT, to a supervisor of before it.
 * `events` and `arg` live until the last event. The start is sent, not acknowledged, when this
 * returns; *ret is set before the first event comes. After a failure there is no event. */
int pai_exec_start(struct pai_exec_line *l, const struct pai_exec_start *start,
    const struct pai_exec_events *events, void *arg, struct pai_exec **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
/* At most the credit not yet used; more is INPUT. */
int pai_exec_stdin(struct pai_exec *x, const char *data, size_t len) PAI_WARN_UNUSED;
void pai_exec_stdin_eof(struct pai_exec *x);
void pai_exec_credit(struct pai_exec *x, uint8_t stream, uint32_t bytes); /* output consumed */
void pai_exec_signal(struct pai_exec *x, int signo);
void pai_exec_resize(struct pai_exec *x, uint16_t rows, uint16_t columns);
void pai_exec_cancel(struct pai_exec *x); /* kills the group; the last event still comes */
/* What a helper that looks on calls the command by (PAI_WS_PUSH_EXITED): no other of this process
 * has had it. 0: none. */
uint32_t pai_exec_number(const struct pai_exec *x);
void pai_exec_free(struct pai_exec *x); /* after the last event; NULL is fine */

/* The line of a sandbox handle's own run(). */
struct pai_exec_own {
	struct pai_sandbox *sb; /* its open_exec makes the line */
	int nonce_fd;           /* proves a loss; -1: nothing does. Borrowed */
	pthread_mutex_t *lock;
	struct pai_exec_line **line; /* lock; NULL at first, the handle's to drop */
};
/* A reference to it: to the one there is, or to a new one where that has ended. */
int pai_exec_own_line(const struct pai_exec_own *own, const struct pai_call *call,
    struct pai_exec_line **ret, struct pai_err *err) PAI_WARN_UNUSED;
/* Runs to the end with captured output, for providers whose run() goes through their supervisor. */
struct pai_run_input;
struct pai_run_result;
int pai_exec_run(struct pai_exec_line *l, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err) PAI_WARN_UNUSED;

#endif
