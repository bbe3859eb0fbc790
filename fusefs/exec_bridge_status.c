/* What is told of a command: that it begins anew, how it ended (STATUS), the ledger's row. */
#include <signal.h>
#include <string.h>

#include "fusefs/exec_bridge_priv.h"
#include "providers/base/clock.h"
#include "providers/base/log.h"

static const char *outcome_of(const struct pai_bridge *b)
{
	switch (b->end) {
	case PAI_BRIDGE_EXITED:
		return b->exit.kind == PAI_EXIT_UNKNOWN ? "unknown" : "exited";
	case PAI_BRIDGE_FAILED:
	case PAI_BRIDGE_REFUSED:
		return b->is_unknown ? "unknown" : "not-started";
	default:
		return "unknown";
	}
}

/* Whether the command itself ended so, rather than paifs ending it or failing. */
static bool is_own(const struct pai_bridge *b)
{
	return b->end == PAI_BRIDGE_EXITED &&
	       (b->exit.kind == PAI_EXIT_CODE || b->exit.kind == PAI_EXIT_SIGNAL);
}

/* Why there is no exit of the command's own; false when there is one. */
static bool error_of(const struct pai_bridge *b, struct pai_err *ret)
{
	if (b->end != PAI_BRIDGE_EXITED) {
		*ret = b->error;
		return true;
	}
	switch (b->exit.kind) {
	case PAI_EXIT_TIMEOUT:
		(void)pai_err_command_timeout(ret, b->start.timeout_ms);
		return true;
	case PAI_EXIT_OUTPUT_LIMIT:
		(void)pai_err_limit(
		    ret, PAI_E_OUTPUT_LIMIT, b->start.max_output_bytes, "command output");
		return true;
	case PAI_EXIT_CANCELLED:
		(void)pai_err_set(ret, PAI_E_CANCELLED, "the command was cancelled");
		return true;
	case PAI_EXIT_UNKNOWN:
		(void)pai_err_unavailable(
		    ret, PAI_REASON_TRANSPORT, NULL, "nobody can tell how the command ended");
		return true;
	default:
		return false;
	}
}

struct pai_json *pai_bridge_error(const struct pai_bridge *b, const struct pai_err *err)
{
	pai_auto_json struct pai_json *json = pai_json_from_err(err);
	struct pai_json *missing = NULL;

	if (err->code == PAI_E_SEED && b->session) {
		missing = pai_session_missing(b->session);
	}
	return missing && pai_json_set(json, "missingPaths", missing) < 0 ? NULL : PAI_TAKE(json);
}

static int set_bytes(const struct pai_bridge *b, struct pai_json *status)
{
	struct pai_json *bytes = pai_json_object();
	uint64_t in = b->end == PAI_BRIDGE_EXITED ? b->exit.stdin_bytes : b->stdin_taken;

	if (pai_json_set_num(bytes, "stdin", (int64_t)in) < 0 ||
	    pai_json_set_num(bytes, "stdout", (int64_t)b->delivered[PAI_STDOUT]) < 0 ||
	    pai_json_set_num(bytes, "stderr", (int64_t)b->delivered[PAI_STDERR]) < 0) {
		pai_json_free(bytes);
		return -1;
	}
	return pai_json_set(status, "bytes", bytes);
}

static int set_ending(const struct pai_bridge *b, struct pai_json *status)
{
	bool has_code = is_own(b) && b->exit.kind == PAI_EXIT_CODE;
	const char *abbrev =
	    is_own(b) && b->exit.kind == PAI_EXIT_SIGNAL ? sigabbrev_np(b->exit.value) : NULL;
	char name[32];
	struct pai_err error = PAI_ERR_INIT;
	int r = has_code ? pai_json_set_num(status, "exitCode", b->exit.value)
			 : pai_json_set_null(status, "exitCode");

	(void)snprintf(name, sizeof(name), "SIG%s", abbrev ? abbrev : "");
	if (is_own(b) && b->exit.kind == PAI_EXIT_SIGNAL && !abbrev) {
		(void)snprintf(name, sizeof(name), "SIG%d", (int)b->exit.value);
		abbrev = name;
	}
	r = r ? r : pai_json_set_str(status, "signal", abbrev ? name : NULL);
	r = r ? r
	      : pai_json_set_bool(status, "timedOut",
		    b->end == PAI_BRIDGE_EXITED && b->exit.kind == PAI_EXIT_TIMEOUT);
	r = r ? r : pai_json_set_str(status, "outcome", outcome_of(b));
	if (r == 0 && error_of(b, &error)) {
		return pai_json_set(status, "error", pai_bridge_error(b, &error));
	}
	return r ? r : pai_json_set_null(status, "error");
}

void pai_bridge_tell_reset(struct pai_bridge *b)
{
	pai_auto_json struct pai_json *notice = NULL;
	char tag[PAI_IDENTITY_TAG + 1];

	if (!b->env || !b->was_reset || b->told_reset) {
		return;
	}
	b->told_reset = true;
	notice = pai_json_object();
	pai_session_identity_tag(pai_env_identity(b->env), tag);
	if (pai_json_set_bool(notice, "environmentReset", true) == 0 &&
	    pai_json_set_num(notice, "generation", (int64_t)pai_env_generation(b->env)) == 0 &&
	    pai_json_set_str(notice, "sandboxId", pai_env_identity(b->env)->sandbox_id) == 0 &&
	    pai_json_set_str(notice, "environment", tag) == 0) {
		pai_conn_send_json(b->conn, PAI_MSG_NOTICE, b->id, notice);
	}
}

void pai_bridge_restart_output(struct pai_bridge *b)
{
	pai_auto_json struct pai_json *notice = pai_json_object();

	for (uint8_t stream = PAI_STDOUT; stream <= PAI_STDERR; stream++) {
		b->stale[stream] = b->outstanding[stream];
		b->outstanding[stream] = 0;
		b->delivered[stream] = 0;
	}
	pai_conn_send_json(b->conn, PAI_MSG_NOTICE, b->id,
	    pai_json_set_bool(notice, "restarted", true) < 0 ? NULL : notice);
}

void pai_bridge_send_status(struct pai_bridge *b)
{
	pai_auto_json struct pai_json *status = pai_json_object();
	const char *id = b->env ? pai_env_identity(b->env)->sandbox_id : NULL;
	uint64_t generation = b->env ? pai_env_generation(b->env) : 0;
	int r = pai_json_set_str(status, "source", is_own(b) ? "command" : "pai");

	r = r ? r : set_ending(b, status);
	r = r ? r : pai_json_set_num(status, "attempts", b->attempts);
	r = r ? r : pai_json_set_bool(status, "environmentReset", b->was_reset);
	r = r ? r : pai_json_set_num(status, "generation", (int64_t)generation);
	r = r ? r : pai_json_set_str(status, "sandboxId", id);
	r = r ? r : set_bytes(b, status);
	r = r ? r : pai_json_set_bool(status, "cut", b->end == PAI_BRIDGE_EXITED && b->exit.cut);
	r = r ? r : pai_json_set_null(status, "spool");
	r = r ? r
	      : pai_json_set(status, "lostWrites",
		    b->lost_writes ? PAI_TAKE(b->lost_writes) : pai_json_array());
	pai_conn_send_json(b->conn, PAI_MSG_STATUS, b->id, r < 0 ? NULL : status);
}

/* For people who read the log: as outcome_of(), and who ended it. */
static const char *ended_of(const struct pai_bridge *b)
{
	if (b->end == PAI_BRIDGE_EXITED) {
		switch (b->exit.kind) {
		case PAI_EXIT_TIMEOUT:
			return "timed-out";
		case PAI_EXIT_OUTPUT_LIMIT:
			return "output-limit";
		case PAI_EXIT_CANCELLED:
			return "cancelled";
		default:
			break;
		}
	}
	return outcome_of(b);
}

/* All words, one blank between them: for a person who reads the log. */
static char *command_line(char *const *argv)
{
	pai_auto_buf struct pai_buf line = PAI_BUF_INIT(64u << 10);

	for (size_t i = 0; argv[i]; i++) {
		if ((i && pai_buf_add_str(&line, " ") < 0) || pai_buf_add_str(&line, argv[i]) < 0) {
			break; /* longer than the log keeps */
		}
	}
	return pai_buf_take(&line);
}

bool pai_bridge_queue_ledger(struct pai_bridge *b)
{
	const struct pai_control_config *config = &b->control->config;
	pai_auto_free char *all =
	    config->options->log_arguments ? command_line(b->start.argv) : NULL;
	struct pai_err err = PAI_ERR_INIT;
	int code = -1;

	if (is_own(b)) {
		code = b->exit.kind == PAI_EXIT_SIGNAL ? 128 + b->exit.value : b->exit.value;
	}
	if (pai_ledger_command_queue(config->ledger,
		&(struct pai_ledger_command){
		    .key = b->key,
		    .identity = pai_env_identity(b->env),
		    .generation = pai_env_generation(b->env),
		    .cwd = b->start.cwd,
		    .command = all ? all : b->start.argv[0],
		    .started_ms = b->started_wall_ms,
		    .duration_ms = (int64_t)(pai_clock_ms() - b->started_ms),
		    .source = is_own(b) ? "command" : "pai",
		    .outcome = ended_of(b),
		    .exit_code = code,
		    .stdin_bytes =
			b->end == PAI_BRIDGE_EXITED ? b->exit.stdin_bytes : b->stdin_taken,
		    .stdout_bytes = b->delivered[PAI_STDOUT],
		    .stderr_bytes = b->delivered[PAI_STDERR],
		},
		&err) < 0) {
		pai_log_warn("exec", "not recorded: %s", err.msg);
		return false;
	}
	return true;
}
