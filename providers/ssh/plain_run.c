/*
 * run(): stdout is passed on as it comes, but for what may be the beginning of a line of ours,
 * which is held back until it is told. The status is the last line in the bytes of stderr.
 *
 * Whoever ends early (time, output, the caller) shuts the stream for writing: the group there is
 * killed by who waits for that, and its end is waited for, bounded.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "providers/base/clock.h"
#include "providers/base/path.h"
#include "providers/ssh/plain.h"

#define IN_MAX (256u << 10)
#define KILL_MS 5000
#define ENV_MAX (1u << 20)

struct run {
	struct pai_ssh_talk t;
	const struct pai_run_input *input;
	char mark[PAI_SSH_PLAIN_TOKEN + 16]; /* "\001TOKEN err " */
	size_t mark_len;
	uint64_t limit, total;
	struct pai_buf captured[2];
	struct pai_buf tail; /* of stderr: may be the status */
	bool over, ended;
	int status; /* -1: the sandbox is gone */
};

static void run_fini(struct run *r)
{
	pai_ssh_talk_fini(&r->t);
	pai_buf_fini(&r->captured[0]);
	pai_buf_fini(&r->captured[1]);
	pai_buf_fini(&r->tail);
}

static int emit(struct run *r, enum pai_stream stream, const char *data, size_t len)
{
	size_t left = r->limit - r->total < len ? (size_t)(r->limit - r->total) : len;

	r->over = r->over || left < len;
	r->total += left;
	if (left == 0) {
		return 0;
	}
	if (r->input->on_output) {
		r->input->on_output(r->input->on_output_arg, stream, data, left);
	}
	return r->input->no_capture ? 0
				    : pai_buf_add(&r->captured[stream == PAI_STDERR], data, left);
}

/* How much of the end of `data` may be the beginning of `mark`. */
static size_t held(const char *data, size_t len, const char *mark, size_t mark_len)
{
	size_t n = len < mark_len - 1 ? len : mark_len - 1;

	while (n > 0 && memcmp(data + len - n, mark, n) != 0) {
		n--;
	}
	return n;
}

/* "gone" or a number, and the end of the line. */
static int take_status(struct run *r, const char *text)
{
	char *end;
	long status = strtol(text, &end, 10);

	if (strncmp(text, "gone\n", 5) == 0) {
		r->status = -1;
		return 0;
	}
	if (end == text || *end != '\n' || status < 0 || status > 255) {
		return -EPROTO;
	}
	r->status = (int)status;
	return 0;
}

/* Bytes of stderr; the mark of its end is that of a line of ours, too. */
static int take_stderr(struct run *r, const char *data, size_t len)
{
	char mark[PAI_SSH_PLAIN_TOKEN + 16];
	size_t n = (size_t)snprintf(mark, sizeof(mark), "\001%s exit ", r->t.token);
	size_t keep;
	char *at;
	int e = pai_buf_add(&r->tail, data, len);

	if (e || r->tail.len == 0) {
		return e;
	}
	at = memmem(r->tail.data, r->tail.len, mark, n);
	if (at && strchr(at + 1, '\n')) {
		r->ended = true;
		e = take_status(r, at + n);
		return e ? e : emit(r, PAI_STDERR, r->tail.data, (size_t)(at - r->tail.data));
	}
	keep = at ? r->tail.len - (size_t)(at - r->tail.data)
		  : held(r->tail.data, r->tail.len, mark, n);
	e = emit(r, PAI_STDERR, r->tail.data, r->tail.len - keep);
	pai_buf_consume(&r->tail, r->tail.len - keep);
	return e;
}

static int from_hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int take_hex(struct run *r, const char *hex, size_t len)
{
	char bytes[2048];
	size_t n = 0;

	if (len % 2 || len > 2 * sizeof(bytes)) {
		return -EPROTO;
	}
	for (size_t i = 0; i < len; i += 2) {
		int high = from_hex(hex[i]);
		int low = from_hex(hex[i + 1]);

		if (high < 0 || low < 0) {
			return -EPROTO;
		}
		bytes[n++] = (char)(high << 4 | low);
	}
	return take_stderr(r, bytes, n);
}

/* All that t.in has, but for what is not told yet. */
static int take(struct run *r)
{
	struct pai_buf *in = &r->t.in;

	while (in->len > 0 && !r->over && !r->ended) {
		char *at = memmem(in->data, in->len, r->mark, r->mark_len);
		char *start = at ? at + r->mark_len : NULL;
		char *end = at ? memchr(start, '\n', in->len - (size_t)(start - in->data)) : NULL;
		size_t plain = at ? (size_t)(at - in->data)
				  : in->len - held(in->data, in->len, r->mark, r->mark_len);
		int e = emit(r, PAI_STDOUT, in->data, plain);

		if (e) {
			return e;
		}
		if (!end) {
			pai_buf_consume(in, plain);
			return 0;
		}
		e = take_hex(r, start, (size_t)(end - start));
		pai_buf_consume(in, (size_t)(end + 1 - in->data));
		if (e) {
			return e;
		}
	}
	return 0;
}

/* The group there is killed; its end shows at the stream. */
static void stop(struct run *r)
{
	const struct pai_call within = {.deadline_ms = pai_deadline_in(KILL_MS)};

	(void)shutdown(pai_ssh_stream_fd(r->t.stream), SHUT_WR);
	r->t.call = &within;
	do {
		pai_buf_clear(&r->t.in);
	} while (pai_ssh_talk_read(&r->t, PAI_ERR_IGNORED()) > 0);
}

static int move(struct run *r, const struct pai_call *call, struct pai_err *err)
{
	const struct pai_run_input *input = r->input;
	uint64_t by_ms = input->timeout_ms ? pai_deadline_in(input->timeout_ms) : PAI_NO_DEADLINE;
	bool ours = by_ms < call->deadline_ms;
	const struct pai_call within = {
	    .deadline_ms = ours ? by_ms : call->deadline_ms, .cancel = call->cancel};

	r->t.call = &within;
	while (!r->ended) {
		int e = take(r);

		if (e == -EPROTO) {
			return pai_err_set(err, PAI_E_PROTOCOL,
			    "the shell on %s says what it may not say", r->t.p->target.host);
		}
		if (e) {
			return pai_err_no_memory(err);
		}
		if (r->over) {
			return pai_err_limit(err, PAI_E_OUTPUT_LIMIT, r->limit, "the output");
		}
		e = r->ended ? 1 : pai_ssh_talk_read(&r->t, err);
		if (e < 0) {
			return ours && err->code == PAI_E_TIMEOUT
				   ? pai_err_command_timeout(err, input->timeout_ms)
				   : e;
		}
		if (e == 0) {
			r->t.call = call;
			return pai_ssh_talk_broken(&r->t, err);
		}
	}
	return 0;
}

static int begin(struct run *r, struct pai_ssh_plain_sandbox *sb, struct pai_err *err)
{
	pai_auto_strmap struct pai_strmap vars = PAI_STRMAP_INIT;
	pai_auto_buf struct pai_buf env = PAI_BUF_INIT(ENV_MAX);
	const char *cwd = r->input->cwd ? r->input->cwd : PAI_WORKSPACE;
	const char *inside = pai_path_in_workspace(cwd);
	char line[512];
	int e;

	e = pai_strmap_set(&vars, "dir", sb->dir);
	e = e ? e : pai_strmap_set(&vars, "nonce", sb->nonce);
	e = e ? e : pai_strmap_set(&vars, "cwd", inside ? inside : cwd);
	e = e ? e : pai_strmap_set(&vars, "command", r->input->command);
	e = e ? e : pai_ssh_plain_env(r->input->env, &env);
	e = e ? e : pai_strmap_set(&vars, "env", env.data);
	if (e) {
		return pai_err_no_memory(err);
	}
	e = pai_ssh_talk_begin(&r->t, PAI_SSH_PLAIN_RUN, &vars, NULL, err);
	e = e < 0 ? e : pai_ssh_talk_hear(&r->t, line, sizeof(line), err);
	return e < 0 ? e : pai_ssh_talk_failed(&r->t, line, err);
}

int pai_ssh_plain_run(struct pai_sandbox *base, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err)
{
	PAI_AUTO(run_fini)
	struct run r = {.t = {.p = (struct pai_ssh_plain *)base->provider,
			    .call = call,
			    .in = PAI_BUF_INIT(IN_MAX)},
	    .input = input,
	    .limit = input->max_output_bytes ? input->max_output_bytes : PAI_OUTPUT_DEFAULT,
	    .captured = {PAI_BUF_INIT(SIZE_MAX / 2), PAI_BUF_INIT(SIZE_MAX / 2)},
	    .tail = PAI_BUF_INIT(8192)};
	int e = begin(&r, (struct pai_ssh_plain_sandbox *)base, err);

	if (e < 0) {
		return e;
	}
	r.mark_len = (size_t)snprintf(r.mark, sizeof(r.mark), "\001%s err ", r.t.token);
	e = move(&r, call, err);
	if (e < 0) {
		stop(&r);
		return e;
	}
	if (r.status < 0) {
		return pai_err_set(
		    err, PAI_E_NOT_FOUND, "the sandbox on %s is gone", r.t.p->target.host);
	}
	ret->exit_code = r.status;
	ret->out_len = r.captured[0].len;
	ret->err_len = r.captured[1].len;
	ret->out = pai_buf_take(&r.captured[0]);
	ret->err = pai_buf_take(&r.captured[1]);
	if (!ret->out || !ret->err) {
		pai_run_result_fini(ret);
		*ret = (struct pai_run_result){0};
		return pai_err_no_memory(err);
	}
	return 0;
}
