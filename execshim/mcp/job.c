#include "execshim/mcp/job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "execshim/mcp/outside.h"
#include "providers/base/log.h"

#define WORDS_MAX (256u << 20) /* of a result: a page or a picture, and what JSON adds */
#define FILL_BYTES (256u << 10)

/* Lines of: 't', 'o' and JSON, or 'r', how it ended and whether in a new environment, and JSON. */

/* --- the child --- */

struct child {
	const struct pai_mcp_todo *todo;
	int fd;
};

static void say(int fd, const char *kind, const char *text)
{
	pai_auto_buf struct pai_buf line = PAI_BUF_INIT(WORDS_MAX);
	size_t at = 0;

	if (pai_buf_add_str(&line, kind) < 0 || pai_buf_add_str(&line, text) < 0 ||
	    pai_buf_add_str(&line, "\n") < 0) {
		_exit(1);
	}
	while (at < line.len) {
		ssize_t n = write(fd, line.data + at, line.len - at);

		if (n < 0 && errno != EINTR) {
			_exit(1); /* nobody listens */
		}
		at += n > 0 ? (size_t)n : 0;
	}
}

static void on_event(void *arg, const char *channel, const char *text, bool final)
{
	struct child *c = arg;
	pai_auto_json struct pai_json *data = NULL;
	pai_auto_free char *line = NULL;

	if (final) {
		return; /* it is in the answer */
	}
	if (!c->todo->wants_output) {
		say(c->fd, "t", "");
		return;
	}
	data = pai_json_object();
	if (pai_json_set_str(data, "channel", channel) == 0 &&
	    pai_json_set_str(data, "text", text) == 0) {
		line = pai_json_print(data, false);
	}
	if (line) {
		say(c->fd, "o", line);
	}
}

static _Noreturn void run(struct child *c)
{
	struct pai_tool_call call = {.spec = c->todo->spec,
	    .input = c->todo->input,
	    .box = c->todo->box,
	    .on_event = on_event,
	    .arg = c,
	    .in_workspace = c->todo->outside != NULL};
	struct pai_json *answer = NULL;
	enum pai_tool_end end = pai_tool_run(&call, &answer);
	pai_auto_json struct pai_json *result = NULL;
	pai_auto_free char *text = NULL;
	bool was_reset = pai_json_bool(answer, "environmentReset", false);
	char head[] = {'r', (char)('0' + end), was_reset ? '1' : '0', '\0'};

	if (c->todo->outside && pai_mcp_outside(answer, c->todo->outside) < 0) {
		_exit(1);
	}
	result = pai_mcp_call_result(answer, end, c->todo->rev);
	text = result ? pai_json_print(result, false) : NULL;
	if (!text) {
		_exit(1);
	}
	say(c->fd, head, text);
	_exit(0);
}

/* The server's stdin and stdout are the client's. */
static _Noreturn void begin(const struct pai_mcp_todo *todo, int fd, pid_t parent)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE};
	struct child c = {.todo = todo, .fd = fd};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;

	for (size_t i = 0; i < PAI_COUNT(signals); i++) {
		(void)signal(signals[i], SIG_DFL);
	}
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
	    prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent) {
		_exit(1);
	}
	run(&c);
}

/* --- the server's end --- */

int pai_mcp_job_start(struct pai_mcp_job *j, const struct pai_mcp_todo *todo, struct pai_err *err)
{
	pid_t parent = getpid();
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0) {
		return pai_err_sys(err, "pipe");
	}
	*j = (struct pai_mcp_job){.pid = fork(), .fd = fds[0], .in = PAI_BUF_INIT(WORDS_MAX)};
	if (j->pid == 0) {
		(void)close(fds[0]);
		begin(todo, fds[1], parent);
	}
	(void)close(fds[1]);
	if (j->pid < 0) {
		j->pid = 0;
		(void)close(fds[0]);
		return pai_err_sys(err, "fork");
	}
	(void)fcntl(j->fd, F_SETFL, O_NONBLOCK);
	return 0;
}

void pai_mcp_job_fill(struct pai_mcp_job *j)
{
	ssize_t n;

	pai_buf_consume(&j->in, j->at);
	j->at = 0;
	if (pai_buf_reserve(&j->in, FILL_BYTES) < 0) {
		pai_mcp_job_kill(j, SIGKILL);
		j->is_over = true;
		return;
	}
	n = read(j->fd, j->in.data + j->in.len, FILL_BYTES);
	if (n > 0) {
		j->in.len += (size_t)n;
		j->in.data[j->in.len] = '\0';
	} else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
		j->is_over = true;
	}
}

struct pai_mcp_word pai_mcp_job_next(struct pai_mcp_job *j)
{
	char *line = j->in.len > j->at ? j->in.data + j->at : NULL;
	char *end = line ? memchr(line, '\n', j->in.len - j->at) : NULL;
	struct pai_mcp_word w = {.heard = j->is_over ? PAI_MCP_ENDED : PAI_MCP_NOTHING};

	if (!end) {
		return w;
	}
	*end = '\0';
	j->at += (size_t)(end - line) + 1;
	if (line[0] != 'r') {
		w.heard = PAI_MCP_SAYS;
		w.text = line[0] == 'o' ? line + 1 : NULL;
		return w;
	}
	w.heard = PAI_MCP_RESULT;
	w.end = (enum pai_tool_end)(line[1] - '0');
	w.was_reset = line[2] == '1';
	w.text = line + 3;
	return w;
}

void pai_mcp_job_fini(struct pai_mcp_job *j)
{
	if (j->pid == 0) {
		return;
	}
	while (waitpid(j->pid, NULL, 0) < 0 && errno == EINTR) {
	}
	(void)close(j->fd);
	pai_buf_fini(&j->in);
	*j = (struct pai_mcp_job){.pid = 0};
}

void pai_mcp_job_kill(const struct pai_mcp_job *j, int signo)
{
	if (j->pid > 0) {
		(void)kill(j->pid, signo);
	}
}
