/*
 * One command, as a walk along these stages; only one is under way at a time, and each ends with a
 * step on the control loop's thread:
 *
 *   stage      runs on          ends in
 *   attempt    pool             on_attempt: refused, or the barrier
 *   barrier    filesystem       on_barrier: refused, or the start
 *   running    the line         on_events: exited -> the barrier after; failed; lost -> attempt
 *                               again (once), or refused
 *   after      filesystem       on_visible: EXIT and STATUS are sent, the bridge is freed
 *
 * With LINGER there is a barrier within "running", when the main process has ended: on_left_visible
 * sends LEFT. An end that comes meanwhile is looked at after it.
 *
 * Output doesn't take a step: it goes from the line's thread to the client's socket. What the line
 * tells besides is gathered in `events` and absorbed by one posted call.
 *
 * Retry: before the start was acknowledged; after it only when the sandbox is proven gone, no
 * output was delivered (save to a client that keeps it to the end), no stdin byte was sent (who
 * sends can't know that it was not taken) and there is no terminal and no stream to a port.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "fusefs/exec_bridge_priv.h"
#include "providers/base/clock.h"
#include "providers/base/log.h"

/* What a client may have sent before the first grant, twice: the line's second grant can be less.
 */
#define NO_MEMORY_WAIT_MS 10
#define INPUT_MAX (2 * (size_t)PAI_EXEC_WINDOW)

static void on_events(void *arg);
static void begin_attempt(struct pai_bridge *b);
static void leave(struct pai_bridge *b);

/* --- ends --- */

static void bridge_free(struct pai_bridge *b)
{
	struct pai_control *c = b->control;

	if (b->env) {
		pai_env_busy(b->env, -1);
		pai_env_unref(b->env);
	}
	if (b->session) {
		pai_session_unref(b->session);
	}
	free(b->key);
	pai_json_free(b->lost_writes);
	pai_exec_start_fini(&b->start);
	pai_cancel_unref(b->cancel);
	pai_buf_fini(&b->input);
	(void)pthread_mutex_destroy(&b->lock);
	if (b->conn) {
		pai_conn_unref(b->conn);
	}
	free(b);
	pai_control_release(c);
}

/* From here on the loop runs `fn`. The few bytes that it takes are waited for: a command whose end
 * nobody is told of would hang its client. */
static void step(struct pai_bridge *b, pai_loop_fn fn)
{
	while (pai_loop_post(b->control->loop, fn, b) < 0) {
		(void)!pai_call_sleep(
		    PAI_CALL_UNBOUNDED, pai_deadline_in(NO_MEMORY_WAIT_MS), PAI_ERR_IGNORED());
	}
}

static void ledger_job(void *arg)
{
	struct pai_control *c = arg;

	pai_ledger_flush(c->config.ledger);
	pai_control_release(c);
}

/* Nobody waits for the ledger's file: `pai log` right after the command writes first what is
 * queued. Whatever uses the ledger next does, so the job is no more than haste. */
static void finish(struct pai_bridge *b)
{
	struct pai_control *c = b->control;
	/* A stream is no command, and a browser's hundreds would push the commands out of the log.
	 */
	bool is_queued =
	    b->env && !(b->start.flags & PAI_START_CONNECT) && pai_bridge_queue_ledger(b);

	pai_bridge_send_status(b);
	if (!b->client_is_gone) {
		b->conn->bridge = NULL;
		pai_conn_end(b->conn);
	}
	if (is_queued) {
		pai_control_hold(c);
		if (pai_control_submit(c, ledger_job, c) < 0) {
			pai_control_release(c);
		}
	}
	bridge_free(b);
}

static void send_exit(struct pai_bridge *b)
{
	pai_auto_buf struct pai_buf frame = PAI_BUF_INIT(PAI_FRAME_HEADER + PAI_FRAME_MAX);

	if (pai_exec_put_exit(&frame, b->id, &b->exit) == 0) {
		pai_conn_send(b->conn, &frame);
	}
	finish(b);
}

/* Nothing runs, or nobody knows. `b->error` says why. */
static void refuse(struct pai_bridge *b)
{
	pai_auto_json struct pai_json *json = NULL;

	b->end = PAI_BRIDGE_REFUSED;
	b->is_unknown = b->is_unknown || b->start_sent;
	if (b->told_started) {
		b->is_unknown = true;
		b->exit = (struct pai_exec_exit){
		    .kind = PAI_EXIT_UNKNOWN,
		    .stdout_bytes = b->delivered[PAI_STDOUT],
		    .stderr_bytes = b->delivered[PAI_STDERR],
		    .stdin_bytes = b->stdin_taken,
		};
		send_exit(b);
		return;
	}
	json = pai_bridge_error(b, &b->error);
	if (json && b->is_unknown && pai_json_set_str(json, "outcome", "unknown") < 0) {
		pai_json_free(PAI_TAKE(json));
	}
	pai_conn_send_json(b->conn, PAI_MSG_ERROR, b->id, json);
	finish(b);
}

/* --- stdin --- */

/* What is sent may have been taken: it is not kept. */
static int send_input(struct pai_bridge *b, const char *data, size_t len)
{
	b->stdin_sent = true;
	b->line_credit -= len;
	return pai_exec_stdin(b->exec, data, len);
}

static void pump_input(struct pai_bridge *b)
{
	size_t sent = 0;

	while (b->exec && sent < b->input.len && b->line_credit > 0) {
		size_t n = b->input.len - sent;

		n = n < b->line_credit ? n : (size_t)b->line_credit;
		n = n < PAI_FRAME_DATA_MAX ? n : PAI_FRAME_DATA_MAX;
		if (send_input(b, b->input.data + sent, n) < 0) {
			break; /* the line is ending: its last event says so */
		}
		sent += n;
	}
	if (sent > 0) {
		pai_buf_consume(&b->input, sent);
	}
	if (b->input.len > 0) {
		return;
	}
	pai_buf_fini(&b->input);
	if (b->exec && b->input_ended && !b->input_end_sent) {
		b->input_end_sent = true;
		pai_exec_stdin_eof(b->exec);
	}
}

static void grant_stdin(struct pai_bridge *b, uint64_t bytes)
{
	pai_auto_buf struct pai_buf frame = PAI_BUF_INIT(PAI_FRAME_HEADER + 16);

	b->client_credit += bytes;
	if (pai_exec_put_credit(&frame, b->id, 0, (uint32_t)bytes) == 0) {
		pai_conn_send(b->conn, &frame);
	}
}

/* Takes over what the line's thread has gathered. The posted call is over in the same moment: were
 * it so before, the last event could be absorbed here and announced again. */
static void absorb(struct pai_bridge *b, bool is_posted_call)
{
	struct pai_bridge_events e;

	(void)pthread_mutex_lock(&b->lock);
	b->is_posted = b->is_posted && !is_posted_call;
	e = b->events;
	b->events = (struct pai_bridge_events){.stdin_taken = e.stdin_taken};
	if (e.end != PAI_BRIDGE_RUNNING) {
		b->end = e.end;
		b->exit = e.exit;
		b->phase = e.phase;
		b->error = e.error;
	}
	(void)pthread_mutex_unlock(&b->lock);
	if (e.has_left) {
		b->left = e.left;
		b->has_left = true;
		b->leaving = true;
		leave(b);
	}
	b->stdin_taken = e.stdin_taken > b->stdin_taken ? e.stdin_taken : b->stdin_taken;
	b->line_credit += e.start_credit + e.stdin_credit;
	if (e.started && !b->told_started) {
		b->told_started = true;
		b->client_credit = e.start_credit;
	}
	if (e.stdin_credit > 0) {
		grant_stdin(b, e.stdin_credit);
	}
	b->started = b->started || e.started;
	if (b->exec && e.stdout_discarded) {
		pai_exec_credit(b->exec, PAI_STDOUT, (uint32_t)e.stdout_discarded);
	}
	if (b->exec && e.stderr_discarded) {
		pai_exec_credit(b->exec, PAI_STDERR, (uint32_t)e.stderr_discarded);
	}
}

int pai_bridge_stdin(struct pai_bridge *b, struct pai_view data)
{
	absorb(b, false);
	if (data.len > b->client_credit || !(b->start.flags & PAI_START_STDIN)) {
		return -EPROTO;
	}
	b->client_credit -= data.len;
	b->stdin_bytes += data.len;
	if (b->exec && b->input.len == 0 && data.len <= b->line_credit) {
		/* A failure means that the line is ending: its last event says so. */
		(void)!send_input(b, data.data, data.len);
		return 0;
	}
	if (pai_buf_add(&b->input, data.data, data.len) < 0) {
		return -ENOMEM;
	}
	pump_input(b);
	return 0;
}

void pai_bridge_stdin_eof(struct pai_bridge *b)
{
	absorb(b, false);
	b->input_ended = true;
	pump_input(b);
}

/* --- the line's events: its thread --- */

/* `b->lock` is held. One posted call absorbs whatever has gathered until it runs. */
static void wake_locked(struct pai_bridge *b)
{
	if (!b->is_posted) {
		b->is_posted = true;
		step(b, on_events);
	}
}

static void on_started(void *arg, uint32_t pid, uint32_t stdin_credit)
{
	struct pai_bridge *b = arg;
	pai_auto_buf struct pai_buf frame = PAI_BUF_INIT(PAI_FRAME_HEADER + 64);

	/* Before the client can answer: its first STDIN finds its credit. */
	(void)pthread_mutex_lock(&b->lock);
	b->events.started = true;
	b->events.start_credit = stdin_credit;
	wake_locked(b);
	(void)pthread_mutex_unlock(&b->lock);
	/* Once: that it was started again is in STATUS. */
	if (!b->sent_started && pai_exec_put_started(&frame, b->id, pid, stdin_credit) == 0) {
		b->sent_started = true;
		pai_conn_send(b->conn, &frame);
	}
}

static void on_output(void *arg, uint8_t stream, const char *data, size_t len)
{
	struct pai_bridge *b = arg;
	uint64_t *discarded = NULL;

	if (stream != PAI_STDOUT && stream != PAI_STDERR) {
		return;
	}
	b->delivered[stream] += len;
	if (b->discard_output) {
		(void)pthread_mutex_lock(&b->lock);
		discarded = stream == PAI_STDOUT ? &b->events.stdout_discarded
						 : &b->events.stderr_discarded;
		*discarded += len;
		wake_locked(b);
		(void)pthread_mutex_unlock(&b->lock);
		return;
	}
	b->outstanding[stream] += len;
	pai_conn_send_data(
	    b->conn, b->id, stream == PAI_STDOUT ? PAI_MSG_STDOUT : PAI_MSG_STDERR, data, len);
}

/* Behind the output, from the same thread. */
static void on_stdout_ended(void *arg)
{
	struct pai_bridge *b = arg;
	pai_auto_buf struct pai_buf frame = PAI_BUF_INIT(PAI_FRAME_HEADER);

	if (!b->discard_output && pai_exec_put_empty(&frame, b->id, PAI_MSG_STDOUT_EOF) == 0) {
		pai_conn_send(b->conn, &frame);
	}
}

static void on_stdin_credit(void *arg, uint32_t bytes)
{
	struct pai_bridge *b = arg;

	(void)pthread_mutex_lock(&b->lock);
	b->events.stdin_credit += bytes;
	wake_locked(b);
	(void)pthread_mutex_unlock(&b->lock);
}

static void on_stdin_taken(void *arg, uint64_t bytes)
{
	struct pai_bridge *b = arg;

	(void)pthread_mutex_lock(&b->lock);
	b->events.stdin_taken = bytes;
	wake_locked(b);
	(void)pthread_mutex_unlock(&b->lock);
}

static void on_failed(void *arg, enum pai_exec_fail_phase phase, const struct pai_err *err)
{
	struct pai_bridge *b = arg;

	(void)pthread_mutex_lock(&b->lock);
	b->events.end = PAI_BRIDGE_FAILED;
	b->events.phase = phase;
	b->events.error = *err;
	wake_locked(b);
	(void)pthread_mutex_unlock(&b->lock);
}

static void on_exited(void *arg, const struct pai_exec_exit *e)
{
	struct pai_bridge *b = arg;

	(void)pthread_mutex_lock(&b->lock);
	b->events.end = PAI_BRIDGE_EXITED;
	b->events.exit = *e;
	wake_locked(b);
	(void)pthread_mutex_unlock(&b->lock);
}

static void on_left(void *arg, const struct pai_exec_exit *e)
{
	struct pai_bridge *b = arg;

	(void)pthread_mutex_lock(&b->lock);
	b->events.has_left = true;
	b->events.left = *e;
	wake_locked(b);
	(void)pthread_mutex_unlock(&b->lock);
}

static void on_lost(void *arg, const struct pai_err *err)
{
	struct pai_bridge *b = arg;

	(void)pthread_mutex_lock(&b->lock);
	b->events.end = PAI_BRIDGE_LOST;
	b->events.error = *err;
	wake_locked(b);
	(void)pthread_mutex_unlock(&b->lock);
}

static const struct pai_exec_events line_events = {
    .started = on_started,
    .output = on_output,
    .stdout_ended = on_stdout_ended,
    .stdin_credit = on_stdin_credit,
    .stdin_taken = on_stdin_taken,
    .failed = on_failed,
    .left = on_left,
    .exited = on_exited,
    .lost = on_lost,
};

/* --- the end of a run: loop thread --- */

static void on_visible(void *arg)
{
	send_exit(arg);
}

/* Not proven in time: nothing of this environment stays cached, so it is visible all the same. */
static void after_done(void *arg, int errnum)
{
	if (errnum) {
		pai_log_debug("exec", "barrier after a command: %s", pai_errno_name(errnum));
	}
	step(arg, on_visible);
}

static void ended_exited(struct pai_bridge *b)
{
	struct pai_fs *fs = b->control->config.fs;

	if (b->exit.stdout_bytes != b->delivered[PAI_STDOUT] ||
	    b->exit.stderr_bytes != b->delivered[PAI_STDERR]) {
		/* Bytes that were announced didn't come, or the other way round. */
		b->exit.kind = PAI_EXIT_UNKNOWN;
		b->exit.stdout_bytes = b->delivered[PAI_STDOUT];
		b->exit.stderr_bytes = b->delivered[PAI_STDERR];
	}
	if (fs) {
		pai_fs_barrier_exited(fs, b->env, b->number, after_done, b);
	} else {
		send_exit(b);
	}
}

static void ended_failed(struct pai_bridge *b)
{
	pai_auto_buf struct pai_buf frame = PAI_BUF_INIT(PAI_FRAME_HEADER + 1024);

	/* The first attempt had begun, in an environment that is gone. */
	b->is_unknown = b->told_started;
	if (b->phase == PAI_FAIL_CWD) {
		(void)pai_err_errno(
		    &b->error, b->error.errnum, "working directory '%s'", b->start.cwd);
	}
	if (pai_exec_put_failed(&frame, b->id, b->phase, b->error.errnum, b->error.msg) == 0) {
		pai_conn_send(b->conn, &frame);
	}
	finish(b);
}

/* DESIGN 5, "Retry once". Whether a start that had been acknowledged was in a sandbox that is
 * proven gone is asked by the next attempt. */
static bool may_retry(const struct pai_bridge *b)
{
	if (b->attempts > 1 || b->no_retry || b->cancelled || b->client_is_gone || b->has_left ||
	    b->control->is_closing) {
		return false;
	}
	return !b->started ||
	       (!b->stdin_sent && !(b->start.flags & (PAI_START_PTY | PAI_START_CONNECT)) &&
		   (b->keeps_output || b->delivered[PAI_STDOUT] + b->delivered[PAI_STDERR] == 0));
}

static void ended_lost(struct pai_bridge *b)
{
	if (may_retry(b)) {
		begin_attempt(b);
		return;
	}
	refuse(b);
}

/* The last event has come: nothing is posted after it. */
static void ended(struct pai_bridge *b)
{
	b->number = b->exec ? pai_exec_number(b->exec) : 0;
	pai_exec_free(PAI_TAKE(b->exec));
	switch (b->end) {
	case PAI_BRIDGE_EXITED:
		ended_exited(b);
		break;
	case PAI_BRIDGE_FAILED:
		ended_failed(b);
		break;
	default:
		ended_lost(b);
		break;
	}
}

static void on_events(void *arg)
{
	struct pai_bridge *b = arg;

	absorb(b, true);
	if (b->end == PAI_BRIDGE_RUNNING) {
		pump_input(b);
	} else if (!b->leaving) {
		ended(b);
	}
}

static void on_left_visible(void *arg)
{
	struct pai_bridge *b = arg;
	pai_auto_buf struct pai_buf frame = PAI_BUF_INIT(PAI_FRAME_HEADER + PAI_FRAME_MAX);
	bool is_posted;

	b->leaving = false;
	(void)pthread_mutex_lock(&b->lock);
	is_posted = b->is_posted; /* then on_events() is still to run */
	(void)pthread_mutex_unlock(&b->lock);
	if (pai_exec_put_left(&frame, b->id, &b->left) == 0) {
		pai_conn_send(b->conn, &frame);
	}
	if (b->end != PAI_BRIDGE_RUNNING && !is_posted) {
		ended(b);
	}
}

static void left_done(void *arg, int errnum)
{
	(void)errnum; /* as after_done() */
	step(arg, on_left_visible);
}

static void leave(struct pai_bridge *b)
{
	struct pai_fs *fs = b->control->config.fs;

	if (fs) {
		pai_fs_barrier_after(fs, b->env, left_done, b);
	} else {
		left_done(b, 0);
	}
}

/* --- an attempt --- */

static bool is_lost(const struct pai_err *err)
{
	return err->code == PAI_E_NOT_FOUND || err->code == PAI_E_RESET;
}

/* What is to be seen by this command was written and then lost: each loss refuses one command. */
static bool lacks_writes(struct pai_bridge *b)
{
	struct pai_fs *fs = b->control->config.fs;
	struct pai_json *lost = fs ? pai_fs_lost_writes(fs, b->env, true) : NULL;

	if (pai_json_count(lost) == 0) {
		pai_json_free(lost);
		return false;
	}
	pai_json_free(b->lost_writes);
	b->lost_writes = lost;
	return true;
}

static void on_barrier(void *arg)
{
	struct pai_bridge *b = arg;
	struct pai_err err = PAI_ERR_INIT;

	pai_bridge_tell_reset(b);
	if (b->cancelled || b->client_is_gone) {
		(void)pai_err_set(&b->error, PAI_E_CANCELLED, "cancelled before the start");
		refuse(b);
		return;
	}
	if (b->barrier_errnum) {
		(void)pai_err_errno(&err, b->barrier_errnum,
		    "what was written through the mount did not reach the sandbox");
		err.code = b->barrier_errnum == ESTALE ? PAI_E_RESET : err.code;
	} else if (lacks_writes(b)) {
		(void)pai_err_set(&err, PAI_E_WRITE_FAILED,
		    "what was stored through a mapping could not be written");
	} else if (pai_exec_start(b->line, &b->start, &line_events, b, &b->exec, &err) == 0) {
		b->start_sent = true;
		pump_input(b);
		return;
	}
	b->error = err;
	if ((is_lost(&err) || err.code == PAI_E_UNAVAILABLE) && may_retry(b)) {
		begin_attempt(b);
		return;
	}
	refuse(b);
}

static void before_done(void *arg, int errnum)
{
	struct pai_bridge *b = arg;

	b->barrier_errnum = errnum;
	step(b, on_barrier);
}

static void on_attempt(void *arg)
{
	struct pai_bridge *b = arg;

	b->error = b->job_error;
	pai_bridge_tell_reset(b);
	/* The sandbox went between its acquisition and its line. */
	if (b->env && is_lost(&b->job_error) && may_retry(b)) {
		begin_attempt(b);
		return;
	}
	refuse(b);
}

/* The environment of the attempt before is given up. False: its command may live on there, so it
 * must not be started again. */
static bool leave_lost(struct pai_bridge *b, const struct pai_call *call)
{
	struct pai_err err = PAI_ERR_INIT;
	bool is_gone = is_lost(&b->error);

	if (is_gone) {
		pai_session_lost(b->session, b->env, b->error.msg);
	} else {
		/* Whoever verifies and finds it gone detaches it. */
		is_gone = pai_session_verify(b->session, b->env, call, &err) < 0 && is_lost(&err);
	}
	if (b->started && !is_gone) {
		return false;
	}
	pai_env_busy(b->env, -1);
	pai_env_unref(PAI_TAKE(b->env));
	return true;
}

static int check_unreset(const struct pai_bridge *b, struct pai_err *err)
{
	if (pai_session_is_unreset(b->session, &b->mark)) {
		return 0;
	}
	return pai_err_set(err, PAI_E_RESET,
	    "the session was reset or killed meanwhile: the command is not started again");
}

/* Whether the caller stands in, or knows, what another environment has left. */
static bool stands_elsewhere(const struct pai_bridge *b)
{
	char tag[PAI_IDENTITY_TAG + 1];

	pai_session_identity_tag(pai_env_identity(b->env), tag);
	return b->cwd_environment[0] && strcmp(b->cwd_environment, tag) != 0;
}

static int seed(struct pai_bridge *b, const struct pai_call *call, struct pai_err *err)
{
	pid_t session = b->conn->pid > 0 ? getsid(b->conn->pid) : 0;
	struct pai_seed_ask ask = {.run = b->run, .sid = session > 0 ? (uint32_t)session : 0};

	return pai_session_seed(b->session, b->env, &ask, call, err);
}

/* As long as a sandbox may take to come up, however long the seeds took. */
static int open_line(struct pai_bridge *b, struct pai_err *err)
{
	struct pai_call call = {.cancel = b->cancel,
	    .deadline_ms = pai_deadline_in(pai_session_create_timeout(b->session, NULL) +
					   b->control->config.options->timeout_ms)};

	return pai_env_exec(b->env, &call, &b->line, err);
}

/* In the first attempt a killed key is made anew: the user asks for it. Not in the second: the kill
 * may be what ended the first. */
static int acquire(struct pai_bridge *b, const struct pai_call *call, struct pai_err *err)
{
	struct pai_control *c = b->control;
	struct pai_session_identity last;
	bool has_last = false;

	/* Asked before, so that no sandbox is made in vain, and after: another daemon's reset that
	 * was under way has ended then. */
	if (b->attempts == 1 ? pai_session_mark(b->session, &b->mark, err) < 0
			     : check_unreset(b, err) < 0) {
		return -err->errnum;
	}
	if (pai_session_acquire(b->session, b->attempts == 1 && !b->pinned ? PAI_ACQUIRE_REVIVE : 0,
		NULL, call, &b->env, err) < 0) {
		return -err->errnum;
	}
	pai_env_busy(b->env, 1);
	if (b->attempts > 1 && check_unreset(b, err) < 0) {
		return -err->errnum;
	}
	if (b->attempts == 1) {
		b->first = *pai_env_identity(b->env);
	}
	has_last = pai_ledger_last_command(c->config.ledger, b->key, &last);
	if (pai_session_tell_reset(b->session, b->caller_sid, b->caller_sid_started, b->env,
		has_last ? &last : NULL) ||
	    stands_elsewhere(b) ||
	    !pai_session_identity_equal(&b->first, pai_env_identity(b->env))) {
		b->was_reset = true;
	}
	if (b->pinned && stands_elsewhere(b)) {
		return pai_err_set(err, PAI_E_RESET, "another environment answers now");
	}
	return seed(b, call, err) < 0 ? -err->errnum : open_line(b, err);
}

static void attempt_job(void *arg)
{
	struct pai_bridge *b = arg;
	struct pai_fs *fs = b->control->config.fs;
	const struct pai_options *o = b->control->config.options;
	struct pai_call call = {.cancel = b->cancel};

	b->job_error = (struct pai_err)PAI_ERR_INIT;
	if (!b->session && pai_sessions_handle(b->control->config.sessions, b->key, &b->session,
			       &b->job_error) < 0) {
		step(b, on_attempt);
		return;
	}
	call.deadline_ms = pai_deadline_in(pai_session_create_timeout(b->session, NULL) +
					   pai_session_seed_timeout(b->session) + o->timeout_ms);
	if (b->env && !leave_lost(b, &call)) {
		b->job_error = b->error;
		step(b, on_attempt);
		return;
	}
	if (acquire(b, &call, &b->job_error) < 0) {
		step(b, on_attempt);
		return;
	}
	if (fs) {
		pai_fs_barrier_before(fs, b->env, before_done, b);
	} else {
		before_done(b, 0);
	}
}

static void begin_attempt(struct pai_bridge *b)
{
	if (b->delivered[PAI_STDOUT] + b->delivered[PAI_STDERR] > 0) {
		pai_bridge_restart_output(b);
	}
	b->attempts++;
	b->end = PAI_BRIDGE_RUNNING;
	b->line_credit = 0; /* a new line begins without */
	b->input_end_sent = false;
	if (pai_control_submit(b->control, attempt_job, b) < 0) {
		(void)pai_err_unavailable(
		    &b->error, PAI_REASON_BACKEND, NULL, "the daemon has too many calls under way");
		refuse(b);
	}
}

int pai_bridge_new(
    struct pai_conn *conn, uint32_t id, struct pai_control_exec *take_exec, struct pai_bridge **ret)
{
	struct pai_bridge *b = calloc(1, sizeof(*b));

	if (!b || !(b->cancel = pai_cancel_new())) {
		free(b);
		pai_control_exec_fini(take_exec);
		return -ENOMEM;
	}
	b->control = conn->control;
	b->conn = pai_conn_ref(conn);
	pai_control_hold(b->control);
	b->id = id;
	b->key = take_exec->key;
	memcpy(b->cwd_environment, take_exec->cwd_environment, sizeof(b->cwd_environment));
	b->no_retry = take_exec->no_retry;
	b->keeps_output = take_exec->keeps_output;
	b->pinned = take_exec->pinned;
	memcpy(b->run, take_exec->run, sizeof(b->run));
	b->caller_sid = take_exec->caller_sid;
	b->caller_sid_started = take_exec->caller_sid_started;
	b->start = take_exec->start;
	b->input = (struct pai_buf)PAI_BUF_INIT(INPUT_MAX);
	b->started_wall_ms = pai_clock_wall_ms();
	b->started_ms = pai_clock_ms();
	(void)pthread_mutex_init(&b->lock, NULL);
	*ret = b; /* a refusal clears it again */
	begin_attempt(b);
	return 0;
}
