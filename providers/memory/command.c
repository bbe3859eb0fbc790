/*
 * command: one run() in a memory sandbox: a scripted answer if one matches, the shell otherwise.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/base/path.h"
#include "providers/memory/box.h"
#include "providers/memory/script.h"
#include "providers/memory/shell.h"

struct command {
	struct pai_box *box;
	struct pai_cancel *stop; /* the box's, as it was at the start */
	const struct pai_run_input *in;
	const struct pai_call *call;
	struct pai_err *err;
	uint64_t timeout_at_ms;
	uint64_t budget; /* bytes of output left */
	struct pai_buf out, err_out;
};

static int check_command(struct command *c)
{
	if (pai_call_check(c->call, "run", c->err) < 0) {
		return -c->err->errnum;
	}
	return pai_deadline_passed(c->timeout_at_ms)
		   ? pai_err_command_timeout(c->err, c->in->timeout_ms)
		   : 0;
}

/* The box with its lock, as long as it is the one that the command started in. */
static int command_lock(struct command *c)
{
	int r = pai_box_lock(c->box, c->err);

	if (r == 0 && pai_cancel_fired(c->stop)) {
		pai_box_unlock(c->box);
		r = pai_err_unavailable(c->err, PAI_REASON_BACKEND, NULL,
		    "sandbox %s was paused while the command ran", c->box->id);
	}
	if (r < 0) {
		c->err->retryable = false; /* it had started */
	}
	return r;
}

static int command_enter(void *arg)
{
	struct command *c = arg;
	int r = check_command(c);

	return r < 0 ? r : command_lock(c);
}

static void command_leave(void *arg)
{
	pai_box_unlock(((struct command *)arg)->box);
}

static int command_emit(void *arg, enum pai_stream stream, const char *data, size_t len)
{
	struct command *c = arg;
	struct pai_buf *to = stream == PAI_STDOUT ? &c->out : &c->err_out;
	const bool over = len > c->budget;

	len = over ? (size_t)c->budget : len;
	if (!c->in->no_capture && pai_buf_add(to, data, len) < 0) {
		return pai_err_no_memory(c->err);
	}
	if (c->in->on_output && len > 0) {
		c->in->on_output(c->in->on_output_arg, stream, data, len);
	}
	c->budget -= c->budget == PAI_OUTPUT_UNLIMITED ? 0 : len;
	return over ? pai_err_limit(c->err, PAI_E_OUTPUT_LIMIT, c->in->max_output_bytes, "command")
		    : 0;
}

/* Ends early, with an error, by cancel, deadline, timeout or the box's end. */
static int command_sleep(void *arg, uint64_t ms)
{
	struct command *c = arg;
	const uint64_t wake = pai_deadline_in(ms);
	const uint64_t until = wake < c->timeout_at_ms ? wake : c->timeout_at_ms;
	struct pai_call call = {.deadline_ms = until, .cancel = c->call->cancel};
	int r;

	if (call.deadline_ms > c->call->deadline_ms) {
		call.deadline_ms = c->call->deadline_ms;
	}
	if (ms > 0) {
		/* Whichever came first: command_enter() below finds it. */
		(void)!pai_call_poll(&call, pai_cancel_fd(c->stop), POLLIN, PAI_ERR_IGNORED());
	}
	r = command_enter(c);
	if (r == 0) {
		pai_box_unlock(c->box);
	}
	return r;
}

static const struct pai_shell_host command_host = {
    .enter = command_enter,
    .leave = command_leave,
    .emit = command_emit,
    .sleep = command_sleep,
};

/* What a script says for a command, copied out of the provider's lock. */
struct answer {
	char *out, *err;
	struct pai_script_files files;
	int exit_code;
	uint64_t delay_ms;
};
static void answer_fini(struct answer *a)
{
	free(a->out);
	free(a->err);
	pai_script_files_fini(&a->files);
}
#define auto_answer PAI_AUTO(answer_fini)

static int find_answer(
    struct pai_memory *m, const char *command, struct answer *ret, bool *found, struct pai_err *err)
{
	const struct pai_script_command *c;
	int r = 0;

	(void)pthread_mutex_lock(&m->lock);
	c = pai_script_match(&m->script, command);
	*found = c != NULL;
	if (c) {
		ret->exit_code = c->exit_code;
		ret->delay_ms = c->delay_ms;
		ret->out = strdup(c->out);
		ret->err = strdup(c->err);
		r = pai_script_copy_files(&ret->files, c->files.items, c->files.count);
	}
	(void)pthread_mutex_unlock(&m->lock);
	return r < 0 || (c && (!ret->out || !ret->err)) ? pai_err_no_memory(err) : 0;
}

static int play(struct command *c, const struct answer *a)
{
	int r = a->delay_ms ? command_sleep(c, a->delay_ms) : 0;
	int wrote;

	if (r < 0) {
		return r;
	}
	r = command_enter(c);
	if (r < 0) {
		return r;
	}
	wrote = pai_script_apply(&a->files, c->box->tree);
	pai_box_unlock(c->box);
	if (wrote < 0) {
		return pai_err_errno(
		    c->err, -wrote, "a file of the scripted command '%s'", c->in->command);
	}
	r = command_emit(c, PAI_STDOUT, a->out, strlen(a->out));
	r = r < 0 ? r : command_emit(c, PAI_STDERR, a->err, strlen(a->err));
	return r < 0 ? r : a->exit_code;
}

/* Takes hold of the box as it is now; INPUT when there is no such directory to start in. */
static int begin(struct command *c)
{
	struct pai_box *b = c->box;
	const char *cwd = c->in->cwd;
	struct pai_tree_node *n;
	int r = pai_box_lock(b, c->err);

	if (r < 0) {
		return r;
	}
	c->stop = pai_cancel_ref(b->stop);
	r = pai_tree_get(b->tree, cwd, true, &n);
	if (r == 0 && !S_ISDIR(n->mode)) {
		r = -ENOTDIR;
	}
	pai_box_unlock(b);
	return r < 0 ? pai_err_set(c->err, PAI_E_INPUT, "cwd '%s': %s", cwd, strerrordesc_np(-r))
		     : 0;
}

static int run_shell(struct command *c)
{
	static const char *const defaults[][2] = {
	    {"HOME", PAI_WORKSPACE},
	    {"PATH", "/usr/bin:/bin"},
	};
	pai_auto_strmap struct pai_strmap env = PAI_STRMAP_INIT;
	int r = 0;

	for (size_t i = 0; r == 0 && i < PAI_COUNT(defaults); i++) {
		r = pai_strmap_set(&env, defaults[i][0], defaults[i][1]);
	}
	for (size_t i = 0; r == 0 && i < c->box->env.count; i++) {
		r = pai_strmap_set(&env, c->box->env.entries[i].key, c->box->env.entries[i].value);
	}
	for (size_t i = 0; r == 0 && c->in->env && i < c->in->env->count; i++) {
		r = pai_strmap_set(&env, c->in->env->entries[i].key, c->in->env->entries[i].value);
	}
	r = r < 0 ? r
		  : pai_shell_run(&command_host, c, c->box->tree, c->in->cwd, &env, c->in->command);
	return r < 0 && c->err->code == PAI_OK ? pai_err_no_memory(c->err) : r;
}

int pai_memory_run(struct pai_memory *m, struct pai_box *b, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err)
{
	struct pai_run_input in = *input;
	struct command c = {
	    .box = b,
	    .in = &in,
	    .call = call,
	    .err = err,
	    .out = PAI_BUF_INIT(SIZE_MAX / 2),
	    .err_out = PAI_BUF_INIT(SIZE_MAX / 2),
	};
	auto_answer struct answer a = {0};
	bool scripted = false;
	int r;

	in.max_output_bytes = in.max_output_bytes ? in.max_output_bytes : PAI_OUTPUT_DEFAULT;
	c.budget = in.max_output_bytes;
	c.timeout_at_ms = in.timeout_ms ? pai_deadline_in(in.timeout_ms) : PAI_NO_DEADLINE;
	r = begin(&c);
	if (r == 0) {
		r = find_answer(m, in.command, &a, &scripted, err);
	}
	if (r == 0) {
		r = scripted ? play(&c, &a) : run_shell(&c);
	}
	if (r >= 0) {
		/* A result that a kill overtook is not handed out. */
		ret->exit_code = r;
		r = command_lock(&c);
	}
	if (r == 0) {
		pai_box_unlock(c.box);
		ret->out_len = c.out.len;
		ret->err_len = c.err_out.len;
		ret->out = pai_buf_take(&c.out);
		ret->err = pai_buf_take(&c.err_out);
		r = ret->out && ret->err ? 0 : pai_err_no_memory(err);
	}
	pai_cancel_unref(c.stop);
	pai_buf_fini(&c.out);
	pai_buf_fini(&c.err_out);
	return r;
}
