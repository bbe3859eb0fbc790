/* What the daemon may say while a command runs, and what each makes of the result. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "execshim/exec_state.h"
#include "execshim/tty.h"
#include "providers/wire/control_msg.h"

/* One line of ours between the command's; a raw terminal needs the carriage return. */
static void say(const char *text)
{
	(void)dprintf(STDERR_FILENO, "pai-exec: %s%s\n", text, pai_tty_is_raw() ? "\r" : "");
}

static int bad_frame(struct pai_err *err, const char *what)
{
	return pai_err_set(err, PAI_E_PROTOCOL, "the daemon sent %s", what);
}

static int on_output(
    struct pai_exec_state *r, int stream, struct pai_view data, struct pai_err *err)
{
	struct pai_sink *s = &r->sinks[stream - 1];

	if (r->ended || s->received + data.len > r->granted[stream - 1]) {
		return bad_frame(err, r->ended ? "output after the end" : "more than it may");
	}
	if (pai_sink_put(s, data.data, data.len) < 0) {
		return pai_err_no_memory(err);
	}
	return 0;
}

static int on_started(struct pai_exec_state *r, struct pai_view payload, struct pai_err *err)
{
	uint32_t pid;
	uint32_t credit;

	if (r->ended || r->started || pai_exec_get_started(payload, &pid, &credit) < 0) {
		return bad_frame(err, "a bad STARTED");
	}
	r->started = true;
	r->stdin_credit = credit;
	if (r->o->tty && r->is_resized) {
		pai_exec_send_size(r);
	}
	if (r->o->detach) {
		(void)dprintf(STDOUT_FILENO, "%u\n", pid);
		r->result->ending = PAI_ENDED_DETACHED;
		r->over = true;
	}
	return 0;
}

static int on_credit(struct pai_exec_state *r, struct pai_view payload, struct pai_err *err)
{
	uint8_t stream;
	uint32_t bytes;

	if (pai_exec_get_credit(payload, &stream, &bytes) < 0 || stream != 0) {
		return bad_frame(err, "a bad CREDIT");
	}
	r->stdin_credit += bytes;
	return 0;
}

static void take_exit(struct pai_exec_state *r)
{
	struct pai_exec_result *res = r->result;

	res->ending = PAI_ENDED_EXITED;
	res->code = 125;
	switch (r->exit.kind) {
	case PAI_EXIT_CODE:
		res->code = r->exit.value & 0xff;
		break;
	case PAI_EXIT_SIGNAL:
		res->code = (128 + r->exit.value) & 0xff;
		/* A shell leaves its loop only for a child that died of ^C; $? is the same. */
		res->die_of = r->o->dies_alike || (r->exit.value == SIGINT && r->said_int)
				  ? r->exit.value
				  : res->die_of;
		break;
	case PAI_EXIT_TIMEOUT:
		res->code = 124;
		(void)pai_err_command_timeout(&res->err, r->o->timeout_ms);
		break;
	case PAI_EXIT_OUTPUT_LIMIT:
		(void)pai_err_limit(
		    &res->err, PAI_E_OUTPUT_LIMIT, r->o->max_output_bytes, "output");
		break;
	case PAI_EXIT_CANCELLED:
		(void)pai_err_set(&res->err, PAI_E_CANCELLED, "cancelled; the command was killed");
		break;
	case PAI_EXIT_UNKNOWN:
		res->ending = PAI_ENDED_UNKNOWN;
		(void)pai_err_unavailable(
		    &res->err, PAI_REASON_TRANSPORT, NULL, "the command's end was not confirmed");
		break;
	}
}

static int on_exit_frame(struct pai_exec_state *r, struct pai_view payload, struct pai_err *err)
{
	if (r->ended || pai_exec_get_exit(payload, &r->exit) < 0) {
		return bad_frame(err, "a bad EXIT");
	}
	if (r->exit.kind != PAI_EXIT_UNKNOWN && (r->exit.stdout_bytes != r->sinks[0].received ||
						    r->exit.stderr_bytes != r->sinks[1].received)) {
		return bad_frame(err, "an EXIT that counts other bytes than came");
	}
	r->ended = true;
	take_exit(r);
	return 0;
}

/* The shell that called us goes on now; from here to the return of its status nothing is said. */
static int on_left(struct pai_exec_state *r, struct pai_view payload, struct pai_err *err)
{
	if (r->ended || r->left || !r->o->lingers || pai_exec_get_exit(payload, &r->exit) < 0) {
		return bad_frame(err, "a bad LEFT");
	}
	r->left = true;
	take_exit(r);
	return 0;
}

static int on_failed(struct pai_exec_state *r, struct pai_view payload, struct pai_err *err)
{
	static const int codes[] = {[PAI_FAIL_NOT_FOUND] = 127,
	    [PAI_FAIL_EXEC] = 126,
	    [PAI_FAIL_CWD] = 125,
	    [PAI_FAIL_REFUSED] = 125};
	enum pai_exec_fail_phase phase;
	char message[256];
	int errnum;

	if (r->ended || pai_exec_get_failed(payload, &phase, &errnum, message) < 0) {
		return bad_frame(err, "a bad FAILED");
	}
	r->ended = true;
	/* After STARTED it is a second start that failed: the first may have left something. */
	r->result->ending = r->started ? PAI_ENDED_UNKNOWN : PAI_ENDED_NOT_STARTED;
	r->result->no_cwd = phase == PAI_FAIL_CWD;
	r->result->code = r->started ? 125 : codes[phase];
	(void)pai_err_set(&r->result->err, PAI_E_SYS, "%s%s",
	    phase == PAI_FAIL_NOT_FOUND ? "not found in the sandbox" : message,
	    phase == PAI_FAIL_NOT_FOUND && strchr(r->o->argv[0], ' ')
		? " (a shell's line goes with -c)"
		: "");
	r->result->err.errnum = errnum ? errnum : EIO;
	(void)pai_err_wrap(&r->result->err, "%s", r->o->argv[0]);
	return 0;
}

static int parse_object(struct pai_view v, struct pai_json **ret, struct pai_err *err)
{
	int r = pai_json_parse(v.data, v.len, PAI_CLIENT_JSON_DEPTH, ret, err);

	return r < 0 ? pai_err_wrap(err, "the daemon's message") : 0;
}

static int on_error(struct pai_exec_state *r, struct pai_view payload, struct pai_err *err)
{
	pai_auto_json struct pai_json *obj = NULL;
	const char *outcome;
	int parsed = parse_object(payload, &obj, err);

	if (parsed < 0) {
		return parsed;
	}
	if (r->ended) {
		return bad_frame(err, "an ERROR after the end");
	}
	outcome = pai_json_str(obj, "outcome");
	(void)pai_json_to_err(obj, &r->result->err);
	r->ended = true;
	r->result->code = 125;
	r->result->ending = (outcome && strcmp(outcome, "unknown") == 0) || r->started
				? PAI_ENDED_UNKNOWN
				: PAI_ENDED_NOT_STARTED;
	return 0;
}

/* All bytes of the first start are granted, so that the daemon's account of them is closed; those
 * of the second have a window of their own. */
static int on_restarted(struct pai_exec_state *r, struct pai_err *err)
{
	if (!r->o->on_output || r->ended) {
		return bad_frame(err, "a restart that may not be");
	}
	for (uint8_t i = 0; i < 2; i++) {
		struct pai_sink *s = &r->sinks[i];
		uint32_t left = (uint32_t)(s->received - s->announced);

		if (left > 0) {
			pai_exec_send_or_lose(r, pai_exec_put_credit(pai_client_out(r->c),
						     PAI_EXEC_ID, (uint8_t)(i + 1), left));
		}
		s->received = s->finished = s->announced = 0;
		r->granted[i] = PAI_EXEC_WINDOW;
	}
	r->o->on_output(r->o->output_arg, 0, NULL, 0);
	return 0;
}

static int on_notice(struct pai_exec_state *r, struct pai_view payload, struct pai_err *err)
{
	pai_auto_json struct pai_json *obj = NULL;
	const char *environment;
	int parsed = parse_object(payload, &obj, err);

	if (parsed == 0 && pai_json_bool(obj, "restarted", false)) {
		return on_restarted(r, err);
	}
	if (parsed < 0 || !pai_json_bool(obj, "environmentReset", false)) {
		return parsed;
	}
	r->result->was_reset = true;
	environment = pai_json_str(obj, "environment");
	(void)snprintf(r->result->environment, sizeof(r->result->environment), "%s",
	    environment ? environment : "");
	if (!r->o->quiet) {
		say("the environment was reset: earlier files and processes of this session are "
		    "gone");
	}
	return parsed;
}

static int on_status(struct pai_exec_state *r, struct pai_view payload, struct pai_err *err)
{
	pai_auto_json struct pai_json *obj = NULL;
	int parsed = parse_object(payload, &obj, err);

	if (parsed < 0) {
		return parsed;
	}
	if (!r->ended) {
		return bad_frame(err, "a STATUS before the end");
	}
	r->result->status = strndup(payload.data, payload.len);
	if (!r->result->status) {
		return pai_err_no_memory(err);
	}
	r->over = true;
	return 0;
}

int pai_exec_on_frame(struct pai_exec_state *r, const struct pai_frame *f, struct pai_err *err)
{
	uint64_t taken;

	if (f->id != PAI_EXEC_ID) {
		return bad_frame(err, "an answer to something else");
	}
	switch (f->type) {
	case PAI_MSG_STDOUT:
		return on_output(r, 1, f->payload, err);
	case PAI_MSG_STDERR:
		return on_output(r, 2, f->payload, err);
	case PAI_MSG_STARTED:
		return on_started(r, f->payload, err);
	case PAI_MSG_CREDIT:
		return on_credit(r, f->payload, err);
	case PAI_MSG_STDIN_TAKEN:
		return pai_exec_get_stdin_taken(f->payload, &taken) < 0
			   ? bad_frame(err, "a bad STDIN_TAKEN")
			   : 0;
	case PAI_MSG_EXIT:
		return on_exit_frame(r, f->payload, err);
	case PAI_MSG_LEFT:
		return on_left(r, f->payload, err);
	case PAI_MSG_FAILED:
		return on_failed(r, f->payload, err);
	case PAI_MSG_ERROR:
		return on_error(r, f->payload, err);
	case PAI_MSG_NOTICE:
		return on_notice(r, f->payload, err);
	case PAI_MSG_STATUS:
		return on_status(r, f->payload, err);
	default:
		return bad_frame(err, "a message that has no place here");
	}
}
