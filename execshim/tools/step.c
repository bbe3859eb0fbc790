#include "execshim/tools/step.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "execshim/tools/fixed.h"

#define CALLS_MAX 1000
#define TOGETHER_MAX 16
#define DEPTH_MAX 16
#define ANSWER_MAX (64u << 20)

/* --- lines --- */

static int wrong_line(struct pai_step_call *call, const char *text)
{
	call->wrong = strdup(text);
	return call->wrong ? 0 : -ENOMEM;
}

static int parse_line(struct pai_step_call *call, const char *line, size_t len)
{
	pai_auto_json struct pai_json *object = NULL;
	struct pai_err err = PAI_ERR_INIT;
	const struct pai_json *input;
	const char *name;
	pai_auto_free char *text = NULL;

	if (pai_json_parse(line, len, DEPTH_MAX, &object, &err) < 0) {
		return wrong_line(call, err.msg);
	}
	name = pai_json_str(object, "tool");
	input = pai_json_get(object, "input");
	if (!name || !pai_json_is_object(input) || pai_json_count(object) != 2) {
		return wrong_line(
		    call, "expected {\"tool\": NAME, \"input\": {...}} and nothing else");
	}
	call->spec = pai_tool_find(name);
	if (!call->spec) {
		return wrong_line(
		    call, "tool: expected bash, read, write, edit, grep, glob or listDirectory");
	}
	/* A tree of its own. */
	text = pai_json_print(input, false);
	return text ? pai_json_parse(text, strlen(text), DEPTH_MAX, &call->input, &err) : -ENOMEM;
}

static bool is_blank(const char *line, size_t len)
{
	while (len > 0 && strchr(" \t\r", line[len - 1]) && line[len - 1]) {
		len--;
	}
	return len == 0;
}

int pai_step_parse(struct pai_step *b, const char *text, size_t len, struct pai_err *err)
{
	const char *end = text + len;

	*b = (struct pai_step){.calls = calloc(CALLS_MAX, sizeof(*b->calls))};
	if (!b->calls) {
		return pai_err_no_memory(err);
	}
	while (text < end) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		size_t n = newline ? (size_t)(newline - text) : (size_t)(end - text);

		if (!is_blank(text, n) && b->count == CALLS_MAX) {
			return pai_err_set(
			    err, PAI_E_INPUT, "at most %d calls in one step", CALLS_MAX);
		}
		if (!is_blank(text, n) && parse_line(&b->calls[b->count++], text, n) < 0) {
			return pai_err_no_memory(err);
		}
		text += n + (newline != NULL);
	}
	return 0;
}

void pai_step_fini(struct pai_step *b)
{
	for (size_t i = 0; i < b->count; i++) {
		pai_json_free(b->calls[i].input);
		free(b->calls[i].wrong);
		free(b->calls[i].answer);
	}
	free(b->calls);
	*b = (struct pai_step){.count = 0};
}

/* --- calls --- */

static char *error_line(enum pai_errcode code, const char *said)
{
	struct pai_err err = {.code = code};
	pai_auto_json struct pai_json *answer = pai_fixed_answer(&err, said, false);

	return answer ? pai_json_print_ascii(answer) : NULL;
}

static void call_here(struct pai_step_call *call, struct pai_box *box)
{
	struct pai_tool_call c = {.spec = call->spec, .input = call->input, .box = box};
	pai_auto_json struct pai_json *answer = NULL;

	if (call->wrong) {
		call->end = PAI_TOOL_BAD_INPUT;
		call->answer = error_line(PAI_E_INPUT, call->wrong);
		return;
	}
	call->end = pai_tool_run(&c, &answer);
	call->answer = answer ? pai_json_print_ascii(answer) : NULL;
}

/* In the child: the answer goes to fd, how it ended is the exit status. It ends with its parent, as
 * the commands of a call that is made there do. */
static _Noreturn void call_in_child(
    struct pai_step_call *call, struct pai_box *box, int fd, pid_t parent)
{
	size_t len, at = 0;

	if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent) {
		_exit(PAI_TOOL_NO_MEMORY);
	}
	pai_box_disconnect(box); /* the parent's connection is not ours */
	call_here(call, box);
	len = call->answer ? strlen(call->answer) : 0;
	while (at < len) {
		ssize_t n = write(fd, call->answer + at, len - at);

		if (n < 0 && errno != EINTR) {
			break;
		}
		at += n > 0 ? (size_t)n : 0;
	}
	_exit(at == len && len > 0 ? (int)call->end : PAI_TOOL_NO_MEMORY);
}

struct child {
	pid_t pid; /* 0: none */
	int fd;
};

static struct child start(struct pai_step_call *call, struct pai_box *box)
{
	struct child child = {.fd = memfd_create("answer", MFD_CLOEXEC)};
	pid_t parent = getpid();

	child.pid = child.fd < 0 ? -1 : fork();
	if (child.pid == 0) {
		call_in_child(call, box, child.fd, parent);
	}
	return child;
}

static void finish(struct pai_step_call *call, struct child *child, struct pai_box *box)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(ANSWER_MAX);
	int status = 0;

	if (child->pid < 0) {
		call_here(call, box); /* no process for it */
	} else {
		while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {
		}
		call->end =
		    WIFEXITED(status) ? (enum pai_tool_end)WEXITSTATUS(status) : PAI_TOOL_FAILED;
		if (WIFEXITED(status) && lseek(child->fd, 0, SEEK_SET) == 0 &&
		    pai_buf_fill(&text, child->fd, PAI_ERR_IGNORED()) == 0 && text.len > 0) {
			call->answer = pai_buf_take(&text);
		}
	}
	if (child->fd >= 0) {
		(void)close(child->fd);
	}
}

static void settle(struct pai_step *b, size_t i, void (*tell)(const struct pai_step *b, size_t i))
{
	struct pai_step_call *call = &b->calls[i];

	if (!call->answer) {
		call->end = PAI_TOOL_FAILED;
		call->answer = error_line(PAI_E_INTERNAL, NULL);
	}
	b->was_reset =
	    b->was_reset || (call->answer && strstr(call->answer, "\"environmentReset\":true"));
	if (call->end != PAI_TOOL_ANSWERED && b->stopped_by == 0) {
		b->stopped_by = i + 1;
	}
	tell(b, i);
}

static void skip(struct pai_step *b, size_t i, void (*tell)(const struct pai_step *b, size_t i))
{
	pai_auto_json struct pai_json *answer = pai_json_object();
	int r = pai_json_set_str(answer, "status", "skipped");

	r = r ? r : pai_json_set_num(answer, "after", (int64_t)b->stopped_by);
	r = r ? r : pai_json_set_bool(answer, "environmentReset", b->was_reset);
	b->calls[i].answer = r < 0 ? NULL : pai_json_print_ascii(answer);
	b->calls[i].end = PAI_TOOL_STOPS;
	tell(b, i);
}

static bool runs_alone(const struct pai_step_call *call)
{
	return !call->spec || call->spec->is_sequential;
}

/* Those from `from` on that run together; returns where the next begins. */
static size_t run_together(struct pai_step *b, size_t from, struct pai_box *box,
    void (*tell)(const struct pai_step *b, size_t i))
{
	struct child children[TOGETHER_MAX];
	size_t to = from;

	while (to < b->count && to - from < TOGETHER_MAX && !runs_alone(&b->calls[to])) {
		children[to - from] = start(&b->calls[to], box);
		to++;
	}
	for (size_t i = from; i < to; i++) {
		finish(&b->calls[i], &children[i - from], box);
	}
	for (size_t i = from; i < to; i++) {
		settle(b, i, tell);
	}
	return to;
}

int pai_step_run(
    struct pai_step *b, struct pai_box *box, void (*tell)(const struct pai_step *b, size_t i))
{
	for (size_t i = 0; i < b->count;) {
		bool has_neighbour = i + 1 < b->count && !runs_alone(&b->calls[i + 1]);

		if (b->stopped_by) {
			skip(b, i++, tell);
		} else if (!runs_alone(&b->calls[i]) && has_neighbour) {
			i = run_together(b, i, box, tell);
		} else {
			call_here(&b->calls[i], box);
			settle(b, i++, tell);
		}
		if (pai_box_died_of(box)) {
			return pai_box_died_of(box);
		}
	}
	return 0;
}
