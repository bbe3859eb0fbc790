/*
 * Commands over the contract's run() alone: one thread of the pool per command, from its start to
 * its last event.
 *
 * run() acknowledges nothing before it ends. So STARTED comes with the first output, or with an end
 * that proves that it ran; a command that takes stdin is STARTED at once, since its stdin has to be
 * spooled to the end before run() can begin. A failure that is `retryable` did not start.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>

#include "providers/base/clock.h"
#include "providers/base/path.h"
#include "providers/base/pool.h"
#include "providers/helper/exec_line_ops.h"
#include "providers/provider.h"

#define SPOOL_MAX (64u << 20)
#define SPOOL_DIR PAI_WORKSPACE "/.pai"
#define CLEAN_UP_MS 10000
#define COMMAND_MAX (4u << 20)

struct command {
	struct pai_exec base;
	LIST_ENTRY(command) at; /* line->lock */
	struct portable *line;  /* a memory reference */
	atomic_int refs;        /* the caller's handle, the job's */
	const struct pai_exec_events *events;
	void *arg;
	uint32_t flags;
	char *text; /* the command line */
	char *cwd;
	struct pai_strmap env;
	uint64_t timeout_ms, max_output_bytes;
	struct pai_cancel *cancel;
	bool started; /* the job's thread alone */
	uint64_t sent[2];
	/* line->lock */
	pthread_cond_t changed; /* credit, stdin, or an order to end */
	struct pai_buf spool;
	bool stdin_ended, spool_over, stopped;
	int kill_signal;
	uint64_t credit[2];
};
LIST_HEAD(command_list, command);

struct portable {
	struct pai_exec_line base;
	struct pai_sandbox *sandbox;
	struct pai_pool *pool;
	atomic_int memory; /* the users' (one for all), one per command */
	void (*freed)(void *arg);
	void *freed_arg;
	pthread_mutex_t lock;
	/* lock */
	struct command_list commands;
	bool revoked, closing;
};

static const struct pai_exec_line_ops portable_ops;

static void line_drop(struct portable *l)
{
	void (*freed)(void *arg) = l->freed;
	void *arg = l->freed_arg;

	if (atomic_fetch_sub(&l->memory, 1) == 1) {
		(void)pthread_mutex_destroy(&l->lock);
		free(l);
		if (freed) {
			freed(arg);
		}
	}
}

static void command_drop(struct command *c)
{
	if (atomic_fetch_sub(&c->refs, 1) > 1) {
		return;
	}
	line_drop(c->line);
	pai_cancel_unref(c->cancel);
	(void)pthread_cond_destroy(&c->changed);
	pai_strmap_fini(&c->env);
	pai_buf_fini(&c->spool);
	free(c->text);
	free(c->cwd);
	free(c);
}

/* --- the command line --- */

static int add_quoted(struct pai_buf *b, const char *word)
{
	int r = pai_buf_add_str(b, "'");

	for (; r == 0 && *word; word++) {
		r = *word == '\'' ? pai_buf_add_str(b, "'\\''") : pai_buf_add(b, word, 1);
	}
	return r ? r : pai_buf_add_str(b, "'");
}

static bool is_shell_line(char *const argv[])
{
	return (strcmp(argv[0], "sh") == 0 || strcmp(argv[0], "/bin/sh") == 0) && argv[1] &&
	       strcmp(argv[1], "-c") == 0 && argv[2] && !argv[3];
}

/* What `sh -c` would be given is given to the provider's shell as it is. */
static char *command_text(char *const argv[])
{
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(COMMAND_MAX);
	int r = 0;

	if (is_shell_line(argv)) {
		return strdup(argv[2]);
	}
	for (size_t i = 0; r == 0 && argv[i]; i++) {
		r = i > 0 ? pai_buf_add_str(&b, " ") : 0;
		r = r ? r : add_quoted(&b, argv[i]);
	}
	return r ? NULL : pai_buf_take(&b);
}

/* --- events, on the job's thread --- */

static void say_started(struct command *c)
{
	if (!c->started) {
		c->started = true;
		c->events->started(c->arg, 0, c->flags & PAI_START_STDIN ? SPOOL_MAX : 0);
	}
}

/* Waits for credit: a consumer that doesn't read stops its own command. False: it is to end. */
static bool await_credit(struct command *c, int i, size_t *ret)
{
	bool go_on;

	(void)pthread_mutex_lock(&c->line->lock);
	while (c->credit[i] == 0 && !c->stopped) {
		(void)pthread_cond_wait(&c->changed, &c->line->lock);
	}
	go_on = !c->stopped;
	*ret = (size_t)c->credit[i];
	(void)pthread_mutex_unlock(&c->line->lock);
	return go_on;
}

static void on_output(void *arg, enum pai_stream stream, const char *data, size_t len)
{
	struct command *c = arg;
	int i = c->flags & PAI_START_MERGED ? 0 : (int)stream - 1;

	say_started(c);
	while (len > 0) {
		size_t step;

		if (!await_credit(c, i, &step)) {
			return; /* the rest is nobody's */
		}
		step = step < len ? step : len;
		(void)pthread_mutex_lock(&c->line->lock);
		c->credit[i] -= step;
		(void)pthread_mutex_unlock(&c->line->lock);
		c->sent[i] += step;
		c->events->output(c->arg, (uint8_t)(i + 1), data, step);
		data += step;
		len -= step;
	}
}

/* --- the job --- */

/* 0 when stdin has ended, else why there will be no run. */
static int await_stdin(struct command *c)
{
	int r;

	(void)pthread_mutex_lock(&c->line->lock);
	while (!c->stdin_ended && !c->spool_over && !c->stopped) {
		(void)pthread_cond_wait(&c->changed, &c->line->lock);
	}
	r = c->stopped ? -ECANCELED : c->spool_over ? -EFBIG : 0;
	(void)pthread_mutex_unlock(&c->line->lock);
	return r;
}

/* Puts the spooled stdin in front of the command; *ret_path is what has to be removed after it. */
static int spool_stdin(struct command *c, char **ret_path, struct pai_err *err)
{
	const struct pai_call call = {.deadline_ms = PAI_NO_DEADLINE, .cancel = c->cancel};
	pai_auto_free char *path = NULL;
	pai_auto_free char *text = NULL;
	bool unbound = pai_sandbox_flags(c->line->sandbox) & PAI_SANDBOX_UNBOUND_WORKSPACE;
	uint64_t random = 0;
	int r;

	if (c->spool.len == 0) {
		return 0;
	}
	(void)!getrandom(&random, sizeof(random), 0);
	if (asprintf(&path, SPOOL_DIR "/stdin-%016llx", (unsigned long long)random) < 0 ||
	    asprintf(&text, "{ %s\n} < %s%s", c->text, unbound ? "\"$PAI_WORKSPACE\"" : "",
		unbound ? path + strlen(PAI_WORKSPACE) : path) < 0) {
		return pai_err_no_memory(err);
	}
	r = pai_sandbox_write_file(c->line->sandbox, path, c->spool.data, c->spool.len, &call, err);
	if (r < 0) {
		return r;
	}
	free(c->text);
	c->text = PAI_TAKE(text);
	*ret_path = PAI_TAKE(path);
	c->events->stdin_taken(c->arg, c->spool.len);
	return 0;
}

static void remove_spool(struct command *c, const char *path)
{
	const struct pai_call call = {.deadline_ms = pai_deadline_in(CLEAN_UP_MS)};
	pai_auto_run_result struct pai_run_result result = {0};
	pai_auto_free char *text = NULL;
	struct pai_run_input input = {.no_capture = true};

	/* From where it begins: the workspace need not have that path. */
	if (path && asprintf(&text, "rm -f .%s", path + strlen(PAI_WORKSPACE)) >= 0) {
		input.command = text;
		(void)!pai_sandbox_run(c->line->sandbox, &input, &call, &result, PAI_ERR_IGNORED());
	}
}

static int run(struct command *c, struct pai_run_result *result, struct pai_err *err)
{
	const struct pai_call call = {.deadline_ms = PAI_NO_DEADLINE, .cancel = c->cancel};
	struct pai_run_input input = {
	    .cwd = c->cwd,
	    .env = &c->env,
	    .timeout_ms = c->timeout_ms,
	    .max_output_bytes = c->max_output_bytes ? c->max_output_bytes : PAI_OUTPUT_UNLIMITED,
	    .no_capture = true,
	    .on_output = on_output,
	    .on_output_arg = c,
	};
	pai_auto_free char *spooled = NULL;
	int r = 0;

	if (c->flags & PAI_START_STDIN) {
		say_started(c);
		r = await_stdin(c);
		if (r == -EFBIG) {
			return pai_err_set(err, PAI_E_INPUT,
			    "stdin is over %u MiB, more than this sandbox can be handed",
			    SPOOL_MAX >> 20);
		}
		if (r < 0) {
			return pai_err_set(err, PAI_E_CANCELLED, "cancelled");
		}
		r = spool_stdin(c, &spooled, err);
	}
	if (r == 0) {
		input.command = c->text;
		r = pai_sandbox_run(c->line->sandbox, &input, &call, result, err);
	}
	remove_spool(c, spooled);
	return r;
}

static void say_exited(struct command *c, enum pai_exec_exit_kind kind, int value)
{
	struct pai_exec_exit e = {
	    .kind = kind,
	    .value = value,
	    .stdout_bytes = c->sent[0],
	    .stderr_bytes = c->sent[1],
	    .stdin_bytes = c->spool.len,
	};

	say_started(c);
	c->events->exited(c->arg, &e);
}

static void say_failure(struct command *c, struct pai_err *err, bool revoked, int kill_signal)
{
	if (revoked) {
		(void)pai_err_set(err, PAI_E_NOT_FOUND, "the sandbox is gone");
	}
	switch (err->code) {
	case PAI_E_COMMAND_TIMEOUT:
		say_exited(c, PAI_EXIT_TIMEOUT, 0);
		return;
	case PAI_E_OUTPUT_LIMIT:
		say_exited(c, PAI_EXIT_OUTPUT_LIMIT, 0);
		return;
	case PAI_E_CANCELLED:
		say_exited(c, kill_signal ? PAI_EXIT_SIGNAL : PAI_EXIT_CANCELLED, kill_signal);
		return;
	case PAI_E_NOT_FOUND:
		break;
	default:
		if (!c->started) {
			c->events->failed(c->arg,
			    err->code == PAI_E_INPUT ? PAI_FAIL_CWD : PAI_FAIL_REFUSED, err);
			return;
		}
	}
	c->events->lost(c->arg, err);
}

static void job(void *arg)
{
	struct command *c = arg;
	struct portable *l = c->line;
	struct pai_run_result result = {0};
	struct pai_err err = PAI_ERR_INIT;
	int r = run(c, &result, &err);
	bool revoked;
	int kill_signal;

	(void)pthread_mutex_lock(&l->lock);
	LIST_REMOVE(c, at);
	revoked = l->revoked;
	kill_signal = c->kill_signal;
	(void)pthread_mutex_unlock(&l->lock);
	if (r == 0 && !revoked) {
		say_exited(c, PAI_EXIT_CODE, result.exit_code & 0xff);
	} else {
		say_failure(c, &err, revoked, kill_signal);
	}
	pai_run_result_fini(&result);
	command_drop(c);
}

/* --- the calls --- */

static struct portable *portable_of(const struct pai_exec_line *l)
{
	assert(l->ops == &portable_ops);
	return (struct portable *)(uintptr_t)l;
}

static struct command *command_of(struct pai_exec *x)
{
	assert(x->ops == &portable_ops);
	return (struct command *)x;
}

static struct command *command_new(struct portable *l, const struct pai_exec_start *start)
{
	struct command *c = calloc(1, sizeof(*c));
	int r = 0;

	if (!c) {
		return NULL;
	}
	c->base.ops = &portable_ops;
	c->line = l;
	(void)atomic_fetch_add(&l->memory, 1);
	atomic_init(&c->refs, 1);
	(void)pthread_cond_init(&c->changed, NULL);
	c->flags = start->flags;
	c->timeout_ms = start->timeout_ms;
	c->max_output_bytes = start->max_output_bytes;
	c->spool.max = SPOOL_MAX;
	c->credit[0] = PAI_EXEC_WINDOW;
	c->credit[1] = PAI_EXEC_WINDOW;
	c->text = command_text(start->argv);
	c->cwd = strdup(start->cwd);
	c->cancel = pai_cancel_new();
	for (char **e = start->env; e && *e && r == 0; e++) {
		r = pai_strmap_set_pair(&c->env, *e);
	}
	if (!c->text || !c->cwd || !c->cancel || r < 0) {
		command_drop(c);
		return NULL;
	}
	return c;
}

static int submit(struct portable *l, struct command *c, struct pai_err *err)
{
	int r = 0;

	(void)pthread_mutex_lock(&l->lock);
	if (l->revoked) {
		r = pai_err_set(err, PAI_E_NOT_FOUND, "the sandbox is gone");
	} else if (l->closing) {
		r = pai_err_unavailable(
		    err, PAI_REASON_TRANSPORT, NULL, "the line for commands ended");
	} else {
		LIST_INSERT_HEAD(&l->commands, c, at);
	}
	(void)pthread_mutex_unlock(&l->lock);
	if (r < 0) {
		return r;
	}
	(void)atomic_fetch_add(&c->refs, 1); /* the job's */
	if (pai_pool_submit(l->pool, job, c) < 0) {
		(void)pthread_mutex_lock(&l->lock);
		LIST_REMOVE(c, at);
		(void)pthread_mutex_unlock(&l->lock);
		(void)atomic_fetch_sub(&c->refs, 1);
		return pai_err_unavailable(
		    err, PAI_REASON_BACKEND, NULL, "too many commands are waiting");
	}
	return 0;
}

static int portable_start(struct pai_exec_line *base, const struct pai_exec_start *start,
    const struct pai_exec_events *events, void *arg, struct pai_exec **ret, struct pai_err *err)
{
	struct portable *l = portable_of(base);
	struct pai_exec *before = *ret;
	struct command *c;
	int r;

	if (start->flags & (PAI_START_PTY | PAI_START_DETACH | PAI_START_CONNECT)) {
		return pai_err_set(err, PAI_E_UNSUPPORTED, "no %s without a helper in the sandbox",
		    start->flags & PAI_START_PTY      ? "terminal"
		    : start->flags & PAI_START_DETACH ? "detached command"
						      : "way to a port");
	}
	c = command_new(l, start);
	if (!c) {
		return pai_err_no_memory(err);
	}
	c->events = events;
	c->arg = arg;
	*ret = &c->base;
	r = submit(l, c, err);
	if (r < 0) {
		*ret = before;
		command_drop(c);
	}
	return r;
}

static void stop_locked(struct command *c)
{
	c->stopped = true;
	pai_cancel_fire(c->cancel);
	(void)pthread_cond_broadcast(&c->changed);
}

static void stop_all(struct portable *l, bool *flag)
{
	struct command *c;

	(void)pthread_mutex_lock(&l->lock);
	*flag = true;
	LIST_FOREACH(c, &l->commands, at)
	{
		stop_locked(c);
	}
	(void)pthread_mutex_unlock(&l->lock);
}

static void portable_close(struct pai_exec_line *base)
{
	struct portable *l = portable_of(base);

	stop_all(l, &l->closing);
	line_drop(l);
}

static void portable_revoke(struct pai_exec_line *base)
{
	struct portable *l = portable_of(base);

	stop_all(l, &l->revoked);
}

/* run() itself says NOT_FOUND when the sandbox is gone. */
/* run() has deadlines of its own. */
static void portable_expect(struct pai_exec_line *base, uint64_t silence_ms)
{
	(void)base;
	(void)silence_ms;
}

static void portable_prove_by(struct pai_exec_line *base, int take_nonce_fd)
{
	(void)base;
	pai_auto_fd_p(&take_nonce_fd);
}

static bool portable_alive(const struct pai_exec_line *base)
{
	struct portable *l = portable_of(base);
	bool alive;

	(void)pthread_mutex_lock(&l->lock);
	alive = !l->revoked && !l->closing;
	(void)pthread_mutex_unlock(&l->lock);
	return alive;
}

static int portable_stdin(struct pai_exec *x, const char *data, size_t len)
{
	struct command *c = command_of(x);
	int r;

	(void)pthread_mutex_lock(&c->line->lock);
	r = c->stdin_ended ? -EINVAL : pai_buf_add(&c->spool, data, len);
	if (r == 0 && c->spool.len == SPOOL_MAX) {
		c->spool_over = true; /* no credit is left: its end could never come */
	}
	(void)pthread_cond_broadcast(&c->changed);
	(void)pthread_mutex_unlock(&c->line->lock);
	return r == -EMSGSIZE ? -EINVAL : r;
}

static void portable_stdin_eof(struct pai_exec *x)
{
	struct command *c = command_of(x);

	(void)pthread_mutex_lock(&c->line->lock);
	c->stdin_ended = true;
	(void)pthread_cond_broadcast(&c->changed);
	(void)pthread_mutex_unlock(&c->line->lock);
}

static void portable_credit(struct pai_exec *x, uint8_t stream, uint32_t bytes)
{
	struct command *c = command_of(x);

	assert(stream == 1 || stream == 2);
	(void)pthread_mutex_lock(&c->line->lock);
	c->credit[stream - 1] += bytes;
	(void)pthread_cond_broadcast(&c->changed);
	(void)pthread_mutex_unlock(&c->line->lock);
}

static void end_by(struct pai_exec *x, int kill_signal)
{
	struct command *c = command_of(x);

	(void)pthread_mutex_lock(&c->line->lock);
	c->kill_signal = kill_signal;
	stop_locked(c);
	(void)pthread_mutex_unlock(&c->line->lock);
}

/* run() carries no signals, but it can be cancelled: that is what those come to which end a program
 * that does nothing about them. Whoever sends one must not wait for a command that never hears of
 * it. */
static void portable_signal(struct pai_exec *x, int signo)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGKILL};

	for (size_t i = 0; i < PAI_COUNT(ends); i++) {
		if (signo == ends[i]) {
			end_by(x, signo);
		}
	}
}

static void portable_resize(struct pai_exec *x, uint16_t rows, uint16_t columns)
{
	(void)x;
	(void)rows;
	(void)columns;
}

static void portable_cancel(struct pai_exec *x)
{
	end_by(x, 0);
}

static void portable_free(struct pai_exec *x)
{
	command_drop(command_of(x));
}

static const struct pai_exec_line_ops portable_ops = {
    .start = portable_start,
    .close = portable_close,
    .revoke = portable_revoke,
    .prove_by = portable_prove_by,
    .expect = portable_expect,
    .alive = portable_alive,
    .write_stdin = portable_stdin,
    .stdin_eof = portable_stdin_eof,
    .credit = portable_credit,
    .signal = portable_signal,
    .resize = portable_resize,
    .cancel = portable_cancel,
    .free = portable_free,
};

int pai_exec_line_portable_new(struct pai_sandbox *sb, struct pai_pool *pool,
    void (*freed)(void *arg), void *freed_arg, struct pai_exec_line **ret, struct pai_err *err)
{
	struct portable *l = calloc(1, sizeof(*l));

	if (!l) {
		return pai_err_no_memory(err);
	}
	l->base.ops = &portable_ops;
	atomic_init(&l->base.users, 1);
	atomic_init(&l->memory, 1);
	(void)pthread_mutex_init(&l->lock, NULL);
	LIST_INIT(&l->commands);
	l->sandbox = sb;
	l->pool = pool;
	l->freed = freed;
	l->freed_arg = freed_arg;
	*ret = &l->base;
	return 0;
}
