/* Providers that break one promise about commands. */
#include <pthread.h>
#include <stdio.h>

#include "providers/base/cancel.h"
#include "tests/plugins/broken.h"

#define CUT 65536

/* --- results --- */

static int stdout_lost(RUN_ARGS)
{
	int r = forward_run(sb, input, call, ret, err);

	ret->out_len = 0;
	return r;
}
BREAK_SANDBOX(stdout_lost, run)

static int exit_status_lost(RUN_ARGS)
{
	int r = forward_run(sb, input, call, ret, err);

	ret->exit_code = 0;
	return r;
}
BREAK_SANDBOX(exit_status_lost, run)

static int missing_program_is_1(RUN_ARGS)
{
	int r = forward_run(sb, input, call, ret, err);

	ret->exit_code = ret->exit_code == 127 ? 1 : ret->exit_code;
	return r;
}
BREAK_SANDBOX(missing_program_is_1, run)

/* Memory has no processes to signal: answers for a shell that has. */
static int signal_is_0(RUN_ARGS)
{
	(void)sb, (void)input, (void)call, (void)err;
	ret->exit_code = 0;
	return 0;
}
BREAK_SANDBOX(signal_is_0, run)

static int output_ends_at_nul(RUN_ARGS)
{
	int r = forward_run(sb, input, call, ret, err);

	ret->out_len = r == 0 ? strlen(ret->out) : 0;
	return r;
}
BREAK_SANDBOX(output_ends_at_nul, run)

static int output_cut(RUN_ARGS)
{
	int r = forward_run(sb, input, call, ret, err);

	ret->out_len = ret->out_len > CUT ? CUT : ret->out_len;
	return r;
}
BREAK_SANDBOX(output_cut, run)

/* --- streaming --- */

struct relay {
	const struct pai_run_input *to;
	size_t sent;
	struct pai_buf held;
};
static int run_through(RUN_ARGS, pai_output_fn fn, struct relay *relay)
{
	struct pai_run_input in = *input;

	relay->to = input;
	in.on_output = input->on_output ? fn : NULL;
	in.on_output_arg = relay;
	return forward_run(sb, &in, call, ret, err);
}

static void send_twice(void *arg, enum pai_stream stream, const char *data, size_t len)
{
	const struct relay *r = arg;

	r->to->on_output(r->to->on_output_arg, stream, data, len);
	r->to->on_output(r->to->on_output_arg, stream, data, len);
}
static int chunks_come_twice(RUN_ARGS)
{
	return run_through(sb, input, call, ret, err, send_twice, &(struct relay){0});
}
BREAK_SANDBOX(chunks_come_twice, run)

static void send_some(void *arg, enum pai_stream stream, const char *data, size_t len)
{
	struct relay *r = arg;

	len = r->sent + len > CUT ? CUT - r->sent : len;
	r->sent += len;
	if (len > 0) {
		r->to->on_output(r->to->on_output_arg, stream, data, len);
	}
}
static int late_chunks_lost(RUN_ARGS)
{
	return run_through(sb, input, call, ret, err, send_some, &(struct relay){0});
}
BREAK_SANDBOX(late_chunks_lost, run)

static void hold(void *arg, enum pai_stream stream, const char *data, size_t len)
{
	(void)stream;
	(void)!pai_buf_add(&((struct relay *)arg)->held, data, len);
}
static int chunks_come_at_the_end(RUN_ARGS)
{
	struct relay relay = {.held = PAI_BUF_INIT(1u << 20)};
	int r = run_through(sb, input, call, ret, err, hold, &relay);

	if (relay.held.len > 0) {
		input->on_output(input->on_output_arg, PAI_STDOUT, relay.held.data, relay.held.len);
	}
	pai_buf_fini(&relay.held);
	return r;
}
BREAK_SANDBOX(chunks_come_at_the_end, run)

static int captures_always(RUN_ARGS)
{
	struct pai_run_input in = *input;

	in.no_capture = false;
	return forward_run(sb, &in, call, ret, err);
}
BREAK_SANDBOX(captures_always, run)

/* --- directory and environment --- */

static int cwd_ignored(RUN_ARGS)
{
	struct pai_run_input in = *input;

	in.cwd = NULL;
	return forward_run(sb, &in, call, ret, err);
}
BREAK_SANDBOX(cwd_ignored, run)

static int runs_elsewhere_without_cwd(RUN_ARGS)
{
	int r = forward_run(sb, input, call, ret, err);

	if (r < 0 && err->code == PAI_E_INPUT) {
		*err = (struct pai_err)PAI_ERR_INIT;
		return cwd_ignored(sb, input, call, ret, err);
	}
	return r;
}
BREAK_SANDBOX(runs_elsewhere_without_cwd, run)

static int env_ignored(RUN_ARGS)
{
	struct pai_run_input in = *input;

	in.env = NULL;
	return forward_run(sb, &in, call, ret, err);
}
BREAK_SANDBOX(env_ignored, run)

static int create_env_ignored(CREATE_ARGS)
{
	struct pai_create_input in = *input;

	in.env = NULL;
	return forward_create(p, &in, call, ret, err);
}
BREAK_PROVIDER(create_env_ignored, create)

static int host_environment_leaks(RUN_ARGS)
{
	struct pai_strmap env = PAI_STRMAP_INIT;
	struct pai_run_input in = *input;
	const char *value = getenv("PAI_CONFORMANCE");
	int r = pai_strmap_set(&env, "PAI_CONFORMANCE", value ? value : "");

	in.env = &env;
	r = r < 0 ? r : forward_run(sb, &in, call, ret, err);
	pai_strmap_fini(&env);
	return r;
}
BREAK_SANDBOX(host_environment_leaks, run)

/* --- ends --- */

static int timeout_without_its_limit(RUN_ARGS)
{
	int r = forward_run(sb, input, call, ret, err);

	err->timeout_ms = 0;
	return r;
}
BREAK_SANDBOX(timeout_without_its_limit, run)

static int timeout_is_waited_for(RUN_ARGS)
{
	const uint64_t until = pai_deadline_in(input->timeout_ms);
	int r = forward_run(sb, input, call, ret, err);
	const struct pai_call unbounded = *PAI_CALL_UNBOUNDED;

	return r < 0 ? r : pai_call_sleep(&unbounded, until, err);
}
BREAK_SANDBOX(timeout_is_waited_for, run)

/* As a grandchild would that nobody killed. */
static int leaves_the_group(RUN_ARGS, enum pai_errcode code)
{
	int r = forward_run(sb, input, call, ret, err);

	if (r < 0 && err->code == code) {
		(void)!forward_write(
		    sb, "late", "late\n", 5, PAI_CALL_UNBOUNDED, PAI_ERR_IGNORED());
	}
	return r;
}
static int timeout_leaves_the_group(RUN_ARGS)
{
	return leaves_the_group(sb, input, call, ret, err, PAI_E_COMMAND_TIMEOUT);
}
BREAK_SANDBOX(timeout_leaves_the_group, run)
static int cancel_leaves_the_group(RUN_ARGS)
{
	return leaves_the_group(sb, input, call, ret, err, PAI_E_CANCELLED);
}
BREAK_SANDBOX(cancel_leaves_the_group, run)

static int cancel_is_unavailable(RUN_ARGS)
{
	int r = forward_run(sb, input, call, ret, err);

	if (r < 0 && err->code == PAI_E_CANCELLED) {
		return pai_err_unavailable(err, PAI_REASON_TRANSPORT, NULL, "cut");
	}
	return r;
}
BREAK_SANDBOX(cancel_is_unavailable, run)

static int deadline_is_command_timeout(RUN_ARGS)
{
	int r = forward_run(sb, input, call, ret, err);

	return r < 0 && err->code == PAI_E_TIMEOUT ? pai_err_command_timeout(err, 1) : r;
}
BREAK_SANDBOX(deadline_is_command_timeout, run)

/* --- limits --- */

static int run_with_limit(RUN_ARGS, uint64_t limit)
{
	struct pai_run_input in = *input;

	in.max_output_bytes = limit;
	in.no_capture = limit == PAI_OUTPUT_UNLIMITED && input->max_output_bytes == 1u << 16;
	return forward_run(sb, &in, call, ret, err);
}

static int limit_ignored(RUN_ARGS)
{
	return run_with_limit(sb, input, call, ret, err, PAI_OUTPUT_UNLIMITED);
}
BREAK_SANDBOX(limit_ignored, run)

static int limit_is_one_less(RUN_ARGS)
{
	return run_with_limit(
	    sb, input, call, ret, err, input->max_output_bytes ? input->max_output_bytes - 1 : 0);
}
BREAK_SANDBOX(limit_is_one_less, run)

static int limit_is_per_stream(RUN_ARGS)
{
	int r = run_with_limit(sb, input, call, ret, err, PAI_OUTPUT_UNLIMITED);

	if (r == 0 &&
	    (ret->out_len > input->max_output_bytes || ret->err_len > input->max_output_bytes)) {
		return pai_err_limit(err, PAI_E_OUTPUT_LIMIT, input->max_output_bytes, "command");
	}
	return r;
}
BREAK_SANDBOX(limit_is_per_stream, run)

/* --- together --- */

static int one_at_a_time(RUN_ARGS)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int r;

	(void)pthread_mutex_lock(&lock);
	r = forward_run(sb, input, call, ret, err);
	(void)pthread_mutex_unlock(&lock);
	return r;
}
BREAK_SANDBOX(one_at_a_time, run)

static int write_to_the_shadow(WRITE_ARGS)
{
	char other[256];

	(void)snprintf(other, sizeof(other), "/shadow%s", path);
	return forward_write(sb, other, data, len, call, err);
}
static int read_from_the_shadow(READ_ARGS)
{
	char other[256];

	(void)snprintf(other, sizeof(other), "/shadow%s", path);
	return forward_read(sb, other, max_bytes, call, found, ret, err);
}
static void inject_files_are_apart(struct pai_wrap *w)
{
	w->sandbox_ops.write_file = write_to_the_shadow;
	w->sandbox_ops.read_file = read_from_the_shadow;
}

static void inject_commands_not_claimed(struct pai_wrap *w)
{
	w->base.caps &= ~(uint32_t)PAI_CAP_COMMANDS;
}

static const struct fault faults[] = {
    FAULT(stdout_lost),
    FAULT(exit_status_lost),
    FAULT(missing_program_is_1),
    FAULT(signal_is_0),
    FAULT(output_ends_at_nul),
    FAULT(output_cut),
    FAULT(chunks_come_twice),
    FAULT(late_chunks_lost),
    FAULT(chunks_come_at_the_end),
    FAULT(captures_always),
    FAULT(cwd_ignored),
    FAULT(runs_elsewhere_without_cwd),
    FAULT(env_ignored),
    FAULT(create_env_ignored),
    FAULT(host_environment_leaks),
    FAULT(timeout_without_its_limit),
    FAULT(timeout_is_waited_for),
    FAULT(timeout_leaves_the_group),
    FAULT(cancel_leaves_the_group),
    FAULT(cancel_is_unavailable),
    FAULT(deadline_is_command_timeout),
    FAULT(limit_ignored),
    FAULT(limit_is_one_less),
    FAULT(limit_is_per_stream),
    FAULT(one_at_a_time),
    FAULT(files_are_apart),
    FAULT(commands_not_claimed),
    {NULL, NULL},
};
BROKEN_PLUGIN("broken_commands", faults);
