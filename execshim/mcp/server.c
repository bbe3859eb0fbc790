#include "execshim/mcp/server.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "execshim/caller.h"
#include "execshim/mcp/outside.h"
#include "execshim/mcp/server_priv.h"
#include "execshim/tools/fixed.h"
#include "providers/base/clock.h"
#include "providers/base/log.h"

#define PROGRAM "pai-mcp"
#define READ_BYTES (256u << 10)
#define OUT_HIGH (32u << 20) /* behind a client that reads slowly nothing more is taken up */
#define PROGRESS_MS 1000     /* of a call that says nothing */
#define OUTPUT_MS 200        /* of one that says much */
#define END_MS 1500          /* that commands have to end, when we do */
#define SESSIONS_MAX 1000
#define JOBS_MAX 64

/* --- what the client reads --- */

void pai_mcp_send(struct pai_mcp *m, struct pai_buf *take_line, int r)
{
	r = r ? r : pai_buf_add_str(take_line, "\n");
	if (r == 0 && m->out.len == 0) {
		pai_buf_fini(&m->out);
		m->out = *take_line;
		*take_line = (struct pai_buf)PAI_BUF_INIT(0);
		return;
	}
	/* Behind a client that never catches up as well. */
	if (m->out_at > m->out.len / 2) {
		pai_buf_consume(&m->out, m->out_at);
		m->out_at = 0;
	}
	r = r ? r : pai_buf_add(&m->out, take_line->data, take_line->len);
	if (r < 0) {
		pai_log_error("mcp", "no memory for an answer");
		m->is_over = true;
	}
}

/* stdout is the client's too: it stays as it is, blocking, and is given what it takes at once. */
static ssize_t write_some(const char *data, size_t len)
{
	ssize_t n = send(STDOUT_FILENO, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0 && errno == ENOTSOCK) {
		struct pollfd fd = {.fd = STDOUT_FILENO, .events = POLLOUT};

		if (poll(&fd, 1, 0) <= 0) {
			errno = EAGAIN;
			return -1;
		}
		/* A pipe that is ready has room for as much. */
		n = write(STDOUT_FILENO, data, len < PIPE_BUF ? len : PIPE_BUF);
	}
	return n;
}

static void flush(struct pai_mcp *m)
{
	while (m->out_at < m->out.len) {
		ssize_t n = write_some(m->out.data + m->out_at, m->out.len - m->out_at);

		if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			return;
		}
		if (n < 0) {
			struct pai_err err = PAI_ERR_INIT;

			(void)pai_err_sys(&err, "write to the client");
			pai_log_info("mcp", "%s", err.msg);
			m->is_over = true;
			m->out_at = m->out.len;
			break;
		}
		m->out_at += (size_t)n;
	}
	pai_buf_fini(&m->out);
	m->out = (struct pai_buf)PAI_BUF_INIT(SIZE_MAX - 1);
	m->out_at = 0;
}

/* --- sessions --- */

static struct pai_mcp_session *new_session(
    struct pai_mcp *m, const char *key, const char *outside, struct pai_err *err)
{
	struct pai_mcp_session *s = calloc(1, sizeof(*s));
	struct pai_target t = m->o.target;

	t.place.cwd = strdup(PAI_TOOL_WORKSPACE);
	if (!s || !t.place.cwd) {
		free(s);
		free(t.place.cwd);
		(void)pai_err_no_memory(err);
		return NULL;
	}
	(void)snprintf(t.place.key, sizeof(t.place.key), "%s", key);
	s->outside = outside ? strdup(outside) : NULL;
	if ((outside && !s->outside) || pai_box_new(&t, PROGRAM, &s->box, err) < 0) {
		free(s->outside);
		free(s);
		return NULL;
	}
	s->next = m->sessions;
	m->sessions = s;
	return s;
}

static void free_session(struct pai_mcp_session *s)
{
	pai_box_free(s->box);
	free(s->outside);
	free(s);
}

/* A call that is answered has left its lane before its process has ended. */
static bool has_call(const struct pai_mcp *m, const struct pai_mcp_session *s)
{
	for (const struct pai_mcp_call *c = m->calls; c; c = c->next) {
		if (c->session == s) {
			return true;
		}
	}
	return false;
}

static void forget_sessions(struct pai_mcp *m)
{
	struct pai_mcp_session **at = &m->sessions;
	size_t count = 0;

	while (*at) {
		struct pai_mcp_session *s = *at;

		if (++count > SESSIONS_MAX && !has_call(m, s)) {
			*at = s->next;
			free_session(s);
		} else {
			at = &s->next;
		}
	}
}

struct pai_mcp_session *pai_mcp_session_for(
    struct pai_mcp *m, const char *path, struct pai_err *err)
{
	char key[PAI_KEY_MAX + 1];
	pai_auto_free char *dir = NULL;
	struct pai_mcp_session *s = m->sessions;

	if (!m->o.mount) {
		return s ? s : new_session(m, m->o.target.place.key, NULL, err);
	}
	if (pai_mcp_session_of(m->o.mount, path ? path : "", key, &dir, err) < 0) {
		return NULL;
	}
	while (s && strcmp(pai_box_key(s->box), key) != 0) {
		s = s->next;
	}
	if (!s) {
		forget_sessions(m);
		s = new_session(m, key, dir, err);
	}
	return s;
}

/* --- calls --- */

void pai_mcp_call_free(struct pai_mcp *m, struct pai_mcp_call *c)
{
	pai_mcp_ask_fini(m, &c->ask);
	pai_json_free(c->input);
	free(c->progress_token);
	free(c);
}

static void drop(struct pai_mcp *m, struct pai_mcp_call *c)
{
	struct pai_mcp_call **at = &m->calls;

	while (*at != c) {
		at = &(*at)->next;
	}
	*at = c->next;
	m->call_count--;
	m->held_bytes -= c->bytes;
	pai_mcp_call_free(m, c);
}

static void answer_skipped(struct pai_mcp *m, struct pai_mcp_call *c)
{
	pai_auto_json struct pai_json *answer = pai_json_object();
	int r = pai_json_set_str(answer, "status", "skipped");

	r = r ? r : pai_json_set_num(answer, "after", c->lane.after);
	r = r ? r : pai_json_set_bool(answer, "environmentReset", c->session->lane.was_reset);
	pai_mcp_answer_tool(m, c, r < 0 ? NULL : PAI_TAKE(answer), PAI_TOOL_STOPS);
}

static void answer_failed(struct pai_mcp *m, struct pai_mcp_call *c, const struct pai_err *err)
{
	c->end = PAI_TOOL_FAILED;
	c->is_answered = true;
	pai_mcp_answer_tool(m, c, pai_fixed_answer(err, NULL, false), PAI_TOOL_FAILED);
}

static void start(struct pai_mcp *m, struct pai_mcp_call *c)
{
	const struct pai_mcp_todo todo = {.spec = c->spec,
	    .input = c->input,
	    .box = c->session->box,
	    .rev = c->ask.rev,
	    .wants_output = c->ask.level == PAI_MCP_DEBUG,
	    .outside = c->session->outside};
	struct pai_err err = PAI_ERR_INIT;

	c->begun_ms = pai_clock_ms();
	if (pai_mcp_job_start(&c->job, &todo, &err) < 0) {
		pai_log_error("mcp", "%s", err.msg);
		answer_failed(m, c, &err);
		pai_lane_remove(&c->session->lane, &c->lane, true);
		drop(m, c);
		return;
	}
	pai_mcp_tell_progress(m, c);
	pai_mcp_tell_event(m, c, PAI_MCP_INFO, "begin", NULL);
}

static size_t count_jobs(const struct pai_mcp *m)
{
	size_t count = 0;

	for (const struct pai_mcp_call *c = m->calls; c; c = c->next) {
		count += c->job.pid != 0;
	}
	return count;
}

static void go_on(struct pai_mcp *m, struct pai_mcp_session *s)
{
	struct pai_lane_call *next;

	while (count_jobs(m) < JOBS_MAX && (next = pai_lane_next(&s->lane))) {
		struct pai_mcp_call *c = (struct pai_mcp_call *)next;

		if (next->after) {
			answer_skipped(m, c);
			drop(m, c);
		} else {
			start(m, c);
		}
	}
}

static void go_on_all(struct pai_mcp *m)
{
	for (struct pai_mcp_session *s = m->sessions; s; s = s->next) {
		go_on(m, s);
	}
}

void pai_mcp_take_call(struct pai_mcp *m, struct pai_mcp_call *take_call)
{
	struct pai_mcp_call **end = &m->calls;

	while (*end) {
		end = &(*end)->next;
	}
	*end = take_call;
	m->call_count++;
	m->held_bytes += take_call->bytes;
	pai_lane_add(&take_call->session->lane, &take_call->lane);
	go_on(m, take_call->session);
}

void pai_mcp_cancel(struct pai_mcp *m, const char *id)
{
	struct pai_mcp_call *c = m->calls;

	while (c && strcmp(c->ask.id, id) != 0) {
		c = c->next;
	}
	if (!c || c->is_answered) {
		return;
	}
	if (c->job.pid) {
		c->is_cancelled = true; /* its end is heard of, as any other's */
		pai_mcp_job_kill(&c->job, SIGTERM);
		pai_lane_stop(&c->session->lane, &c->lane);
	} else {
		pai_lane_remove(&c->session->lane, &c->lane, false);
		drop(m, c);
	}
	go_on_all(m);
}

/* --- what the calls say --- */

static void tell_end(struct pai_mcp *m, struct pai_mcp_call *c)
{
	static const char *const ends[] = {[PAI_TOOL_ANSWERED] = "answered",
	    [PAI_TOOL_STOPS] = "stops",
	    [PAI_TOOL_FAILED] = "failed",
	    [PAI_TOOL_BAD_INPUT] = "bad-input",
	    [PAI_TOOL_NO_MEMORY] = "failed"};
	bool is_error = c->end != PAI_TOOL_ANSWERED && c->end != PAI_TOOL_STOPS;
	pai_auto_json struct pai_json *data = pai_json_object();

	if (pai_json_set_str(data, "outcome", ends[c->end]) == 0 &&
	    pai_json_set_num(data, "milliseconds", (int64_t)(pai_clock_ms() - c->begun_ms)) == 0) {
		pai_mcp_tell_event(
		    m, c, is_error ? PAI_MCP_WARNING : PAI_MCP_INFO, "end", PAI_TAKE(data));
	}
}

static void take_result(struct pai_mcp *m, struct pai_mcp_call *c, const struct pai_mcp_word *w)
{
	c->end = w->end <= PAI_TOOL_NO_MEMORY ? w->end : PAI_TOOL_FAILED;
	c->session->lane.was_reset = c->session->lane.was_reset || w->was_reset;
	tell_end(m, c);
	if (!c->is_cancelled && !c->is_answered) {
		pai_mcp_answer(m, &c->ask, w->text);
		c->is_answered = true;
		/* What is left of it is a process that exits. */
		pai_lane_remove(&c->session->lane, &c->lane, c->end != PAI_TOOL_ANSWERED);
	}
}

static void take_output(struct pai_mcp *m, struct pai_mcp_call *c, const char *text)
{
	struct pai_json *data = NULL;

	if (pai_clock_ms() - c->told_ms >= OUTPUT_MS) {
		pai_mcp_tell_progress(m, c);
	}
	if (text &&
	    pai_json_parse(text, strlen(text), PAI_RPC_DEPTH_MAX, &data, PAI_ERR_IGNORED()) == 0) {
		pai_mcp_tell_event(m, c, PAI_MCP_DEBUG, "output", data);
	}
}

static void end_call(struct pai_mcp *m, struct pai_mcp_call *c)
{
	static const struct pai_err broken = {.code = PAI_E_INTERNAL};

	pai_mcp_job_fini(&c->job);
	if (!c->is_answered && !c->is_cancelled) {
		pai_log_error("mcp", "%s: its process ended without an answer", c->spec->name);
		answer_failed(m, c, &broken);
	}
	pai_lane_remove(&c->session->lane, &c->lane, true); /* unless it has left */
	drop(m, c);
}

/* False: the call is gone. */
static bool hear(struct pai_mcp *m, struct pai_mcp_call *c)
{
	struct pai_mcp_word w;

	pai_mcp_job_fill(&c->job);
	for (;;) {
		w = pai_mcp_job_next(&c->job);
		switch (w.heard) {
		case PAI_MCP_NOTHING:
			return true;
		case PAI_MCP_SAYS:
			take_output(m, c, w.text);
			break;
		case PAI_MCP_RESULT:
			take_result(m, c, &w);
			break;
		case PAI_MCP_ENDED:
			end_call(m, c);
			return false;
		}
	}
}

/* --- the loop --- */

static void read_client(struct pai_mcp *m)
{
	static char chunk[READ_BYTES];
	ssize_t n = read(STDIN_FILENO, chunk, sizeof(chunk));

	if (n > 0) {
		pai_rpc_lines_feed(&m->lines, chunk, (size_t)n, pai_mcp_on_line, m);
	} else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
		m->is_over = true;
	}
}

static void read_signals(struct pai_mcp *m)
{
	struct signalfd_siginfo info;

	while (read(m->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		m->signo = (int)info.ssi_signo;
		m->is_over = true;
	}
}

/* Nobody may be told for long that nothing happens. */
static int wait_ms(const struct pai_mcp *m)
{
	uint64_t wake = PAI_NO_DEADLINE;

	for (const struct pai_mcp_call *c = m->calls; c; c = c->next) {
		if (c->job.pid && c->progress_token && c->told_ms + PROGRESS_MS < wake) {
			wake = c->told_ms + PROGRESS_MS;
		}
	}
	return pai_deadline_poll_ms(wake);
}

/* Not behind what the client has not read yet: it would be old news, and without end. */
static void tell_waiting(struct pai_mcp *m)
{
	for (struct pai_mcp_call *c = m->calls; c; c = c->next) {
		if (c->job.pid && pai_deadline_passed(c->told_ms + PROGRESS_MS)) {
			if (m->out.len == 0) {
				pai_mcp_tell_progress(m, c);
			}
			c->told_ms = pai_clock_ms();
		}
	}
}

enum { AT_STDIN, AT_STDOUT, AT_SIGNALS, AT_JOBS };

static void turn(struct pai_mcp *m)
{
	struct pollfd fds[AT_JOBS + JOBS_MAX];
	struct pai_mcp_call *of[JOBS_MAX];
	bool has_room = m->out.len - m->out_at < OUT_HIGH;
	size_t count = 0;

	fds[AT_STDIN] = (struct pollfd){.fd = STDIN_FILENO, .events = has_room ? POLLIN : 0};
	fds[AT_STDOUT] = (struct pollfd){.fd = m->out.len ? STDOUT_FILENO : -1, .events = POLLOUT};
	fds[AT_SIGNALS] = (struct pollfd){.fd = m->signal_fd, .events = POLLIN};
	for (struct pai_mcp_call *c = m->calls; c; c = c->next) {
		if (c->job.pid && has_room) {
			fds[AT_JOBS + count] = (struct pollfd){.fd = c->job.fd, .events = POLLIN};
			of[count++] = c;
		}
	}
	if (poll(fds, AT_JOBS + count, wait_ms(m)) < 0) {
		return;
	}
	if (fds[AT_SIGNALS].revents) {
		read_signals(m);
	}
	for (size_t i = 0; i < count; i++) {
		if (fds[AT_JOBS + i].revents) {
			(void)hear(m, of[i]);
		}
	}
	go_on_all(m);
	if (fds[AT_STDIN].revents && (has_room || !(fds[AT_STDIN].revents & POLLIN))) {
		read_client(m);
	}
	tell_waiting(m);
	flush(m);
}

/* Commands end with us: each is asked to, then its connection is cut. */
static void end_all(struct pai_mcp *m)
{
	uint64_t until = pai_deadline_in(END_MS);

	for (struct pai_mcp_call *c = m->calls; c; c = c->next) {
		c->is_cancelled = true;
		pai_mcp_job_kill(&c->job, SIGTERM);
	}
	while (m->calls) {
		struct pai_mcp_call *c = m->calls;
		struct pollfd fd = {.fd = c->job.fd, .events = POLLIN};

		if (!c->job.pid) {
			pai_lane_remove(&c->session->lane, &c->lane, false);
			drop(m, c);
			continue;
		}
		if (poll(&fd, 1, pai_deadline_poll_ms(until)) == 0) {
			pai_mcp_job_kill(&c->job, SIGKILL);
		}
		(void)hear(m, c);
	}
	while (m->out.len > 0 && !pai_deadline_passed(until)) {
		struct pollfd fd = {.fd = STDOUT_FILENO, .events = POLLOUT};

		(void)poll(&fd, 1, pai_deadline_poll_ms(until));
		flush(m);
	}
}

static int open_signals(struct pai_mcp *m, struct pai_err *err)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	(void)signal(SIGPIPE, SIG_IGN);
	if (sigprocmask(SIG_BLOCK, &set, &m->old_mask) < 0) {
		return pai_err_sys(err, "sigprocmask");
	}
	m->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return m->signal_fd < 0 ? pai_err_sys(err, "signalfd") : 0;
}

int pai_mcp_serve(struct pai_mcp_options *take_options, struct pai_err *err)
{
	struct pai_mcp m = {.o = *take_options,
	    .rev = PAI_MCP_REVISIONS,
	    .level = PAI_MCP_WARNING,
	    .lines = PAI_RPC_LINES_INIT,
	    .out = PAI_BUF_INIT(SIZE_MAX - 1),
	    .signal_fd = -1};
	int r = open_signals(&m, err);

	pai_caller_be_self();
	while (r == 0 && !m.is_over) {
		turn(&m);
	}
	end_all(&m);
	while (m.sessions) {
		struct pai_mcp_session *s = m.sessions;

		m.sessions = s->next;
		free_session(s);
	}
	pai_rpc_lines_fini(&m.lines);
	pai_buf_fini(&m.out);
	free(m.instructions);
	free(m.o.mount);
	free(m.o.dir);
	pai_target_fini(&m.o.target);
	if (m.signal_fd >= 0) {
		(void)close(m.signal_fd);
		(void)sigprocmask(SIG_SETMASK, &m.old_mask, NULL);
	}
	return r < 0 ? r : m.signo;
}
