/* pai tool: one call, or the calls of one step; JSON in, JSON out. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "execshim/pai_cmd.h"
#include "execshim/print.h"
#include "execshim/tools/fixed.h"
#include "execshim/tools/step.h"
#include "providers/base/buf.h"
#include "providers/base/printable.h"

#define PROGRAM "pai-tool"
#define INPUT_MAX (64u << 20)
#define DEPTH_MAX 16

/* Beside 0: answered. The same numbers as of every command of pai. */
enum {
	EXIT_TOOL_ERROR = 1,
	EXIT_BAD_INPUT = 2,
	EXIT_STOPS = 3,
};

static int exit_of(enum pai_tool_end end)
{
	switch (end) {
	case PAI_TOOL_ANSWERED:
		return 0;
	case PAI_TOOL_STOPS:
		return EXIT_STOPS;
	case PAI_TOOL_BAD_INPUT:
		return EXIT_BAD_INPUT;
	default:
		return EXIT_TOOL_ERROR;
	}
}

/* A failure before any call: as that of any command, and for a model as a tool's, in the caller's
 * words only where they are about what the caller has said. */
static int refuse(const struct pai_err *err)
{
	bool is_input = err->code == PAI_E_INPUT || err->code == PAI_E_PROTOCOL;
	struct pai_err shown = {.code = is_input ? PAI_E_INPUT : err->code};
	pai_auto_json struct pai_json *answer =
	    pai_fixed_answer(&shown, is_input ? err->msg : NULL, false);

	(void)fprintf(
	    stderr, "pai: %s (%s)\n", pai_printable(err->msg), pai_errcode_name(err->code));
	if (answer) {
		(void)!pai_print_json(answer, stdout);
	}
	return is_input ? EXIT_BAD_INPUT : EXIT_TOOL_ERROR;
}

static int find_box(const struct pai_args *a, struct pai_box **ret, struct pai_err *err)
{
	struct pai_target t;
	int r = pai_target_find(
	    &(struct pai_target_options){.key = a->key, .daemon = a->daemon}, &t, err);

	if (r < 0) {
		return r;
	}
	if (t.place.key[0] == '\0') {
		pai_target_fini(&t);
		return pai_err_set(err, PAI_E_INPUT,
		    "which session? name it with -s KEY, or stand in its directory");
	}
	if (a->batch && pai_target_begin_run(&t, err) < 0) {
		pai_target_fini(&t);
		return -err->errnum;
	}
	return pai_box_new(&t, PROGRAM, ret, err);
}

static int read_input(const struct pai_args *a, struct pai_buf *ret, struct pai_err *err)
{
	int r = a->input ? pai_buf_add_str(ret, a->input) : pai_buf_fill(ret, STDIN_FILENO, err);

	return r == -EFBIG || r == -EMSGSIZE
		   ? pai_err_set(err, PAI_E_INPUT, "the input is over 64 MiB")
	       : r < 0 && err->code == PAI_OK ? pai_err_no_memory(err)
					      : r;
}

/* --- one call --- */

static void print_event(const char *event, const char *channel, const char *text, bool final)
{
	pai_auto_json struct pai_json *line = pai_json_object();

	if (pai_json_set_str(line, "event", event) == 0 &&
	    pai_json_set_str(line, "id", channel) == 0 &&
	    pai_json_set_str(line, "text", text) == 0 &&
	    pai_json_set_bool(line, "transient", !final) == 0) {
		(void)!pai_print_json(line, stdout);
		(void)fflush(stdout);
	}
}

static void on_event(void *arg, const char *channel, const char *text, bool final)
{
	(void)arg;
	print_event("output", channel, text, final);
}

static int print_result(bool is_stream, struct pai_json *take_answer)
{
	pai_auto_json struct pai_json *answer = take_answer;
	pai_auto_json struct pai_json *line = is_stream ? pai_json_object() : NULL;

	if (!is_stream) {
		return pai_print_json(answer, stdout);
	}
	return pai_json_set_str(line, "event", "result") < 0 ||
		       pai_json_set(line, "result", PAI_TAKE(answer)) < 0
		   ? -ENOMEM
		   : pai_print_json(line, stdout);
}

static void end_by(int signo)
{
	(void)fflush(stdout);
	(void)signal(signo, SIG_DFL);
	(void)raise(signo);
}

static int call_one(const struct pai_args *a, const struct pai_tool_spec *spec, struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(INPUT_MAX);
	pai_auto_json struct pai_json *input = NULL;
	pai_auto_box struct pai_box *box = NULL;
	struct pai_tool_call c = {.spec = spec, .on_event = a->stream ? on_event : NULL};
	struct pai_json *answer = NULL;
	enum pai_tool_end end;
	int r = read_input(a, &text, err);

	r = r < 0 ? r
		  : pai_json_parse(text.data ? text.data : "", text.len, DEPTH_MAX, &input, err);
	r = r < 0 ? r : find_box(a, &box, err);
	if (r < 0) {
		return refuse(err);
	}
	c.input = input;
	c.box = box;
	end = pai_tool_run(&c, &answer);
	if (end == PAI_TOOL_NO_MEMORY || print_result(a->stream, answer) < 0) {
		return pai_err_no_memory(err);
	}
	if (pai_box_died_of(box)) {
		end_by(pai_box_died_of(box));
	}
	return exit_of(end);
}

/* --- a step --- */

static void print_call(const struct pai_step *b, size_t i)
{
	const struct pai_step_call *call = &b->calls[i];

	printf("{\"call\":%zu,\"tool\":", i + 1);
	if (call->spec) {
		printf("\"%s\"", call->spec->name);
	} else {
		printf("null");
	}
	printf(",\"result\":%s}\n", call->answer ? call->answer : "null");
	(void)fflush(stdout);
}

static int call_batch(const struct pai_args *a, struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(INPUT_MAX);
	pai_auto_box struct pai_box *box = NULL;
	struct pai_step b = {.count = 0};
	int signo = 0;
	int code = 0;
	int r = read_input(a, &text, err);

	r = r < 0 ? r : find_box(a, &box, err);
	r = r < 0 ? r : pai_step_parse(&b, text.data ? text.data : "", text.len, err);
	if (r < 0) {
		code = refuse(err);
	} else {
		signo = pai_step_run(&b, box, print_call);
		code = b.stopped_by ? exit_of(b.calls[b.stopped_by - 1].end) : 0;
	}
	pai_step_fini(&b);
	if (signo) {
		end_by(signo);
	}
	return code;
}

/* --- schemas --- */

static int print_schemas(const struct pai_tool_spec *only, struct pai_err *err)
{
	for (size_t i = 0; i < PAI_TOOL_COUNT; i++) {
		pai_auto_json struct pai_json *s = NULL;

		if (only && only != &pai_tool_specs[i]) {
			continue;
		}
		s = pai_tool_schema(&pai_tool_specs[i]);
		if (!s || pai_print_json(s, stdout) < 0) {
			return pai_err_no_memory(err);
		}
	}
	return 0;
}

int pai_cmd_tool(const struct pai_args *a, struct pai_err *err)
{
	const struct pai_tool_spec *spec = a->word_count ? pai_tool_find(a->words[0]) : NULL;

	if (a->word_count && !spec) {
		(void)pai_err_set(err, PAI_E_INPUT,
		    "no tool '%.40s': expected bash, read, write, edit, grep, glob or "
		    "listDirectory",
		    a->words[0]);
		return refuse(err);
	}
	if (a->schema) {
		return print_schemas(spec, err);
	}
	if (!spec == !a->batch) {
		(void)pai_err_set(err, PAI_E_INPUT, "expected the name of one tool, or --batch");
		return refuse(err);
	}
	return a->batch ? call_batch(a, err) : call_one(a, spec, err);
}
