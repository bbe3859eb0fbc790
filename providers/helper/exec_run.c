/*
 * run() over a line. Events come on the loop's thread and must not block, while a caller's
 * callbacks may: output waits in `pending` (bounded by the window, since credit is granted only for
 * what was handed on) for the calling thread. What both use is counted, so that a caller whose time
 * is up can leave before the last event has come.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include "providers/base/clock.h"
#include "providers/helper/exec_line.h"
#include "providers/provider_ops.h"

#define LAST_WORD_MS 2000 /* for the end of a command that was cancelled */
#define SIGNAL_BASE 128

enum outcome { GOING, EXITED, FAILED, LOST };

struct run {
	atomic_int refs; /* the caller's, the events' */
	int wake_fd;
	pthread_mutex_t lock;
	/* lock */
	struct pai_buf pending[2];
	bool no_memory;
	enum outcome outcome;
	struct pai_exec_exit exit;
	enum pai_exec_fail_phase phase;
	struct pai_err err;
};

static void run_drop(struct run *r)
{
	if (atomic_fetch_sub(&r->refs, 1) > 1) {
		return;
	}
	pai_auto_fd_p(&r->wake_fd);
	pai_buf_fini(&r->pending[0]);
	pai_buf_fini(&r->pending[1]);
	(void)pthread_mutex_destroy(&r->lock);
	free(r);
}

static void wake(struct run *r)
{
	(void)!write(r->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
}

/* --- events --- */

static void on_started(void *arg, uint32_t pid, uint32_t stdin_credit)
{
	(void)arg;
	(void)pid;
	(void)stdin_credit;
}

static void on_output(void *arg, uint8_t stream, const char *data, size_t len)
{
	struct run *r = arg;

	(void)pthread_mutex_lock(&r->lock);
	if (pai_buf_add(&r->pending[stream - 1], data, len) < 0) {
		r->no_memory = true;
	}
	(void)pthread_mutex_unlock(&r->lock);
	wake(r);
}

static void on_stdin_credit(void *arg, uint32_t bytes)
{
	(void)arg;
	(void)bytes;
}

static void on_stdin_taken(void *arg, uint64_t bytes)
{
	(void)arg;
	(void)bytes;
}

static void run_over(struct run *r, enum outcome outcome)
{
	(void)pthread_mutex_lock(&r->lock);
	r->outcome = outcome;
	(void)pthread_mutex_unlock(&r->lock);
	wake(r);
	run_drop(r);
}

static void on_failed(void *arg, enum pai_exec_fail_phase phase, const struct pai_err *err)
{
	struct run *r = arg;

	r->phase = phase;
	r->err = *err;
	run_over(r, FAILED);
}

static void on_exited(void *arg, const struct pai_exec_exit *e)
{
	struct run *r = arg;

	r->exit = *e;
	run_over(r, EXITED);
}

static void on_lost(void *arg, const struct pai_err *err)
{
	struct run *r = arg;

	r->err = *err;
	run_over(r, LOST);
}

static const struct pai_exec_events run_events = {
    .started = on_started,
    .output = on_output,
    .stdin_credit = on_stdin_credit,
    .stdin_taken = on_stdin_taken,
    .failed = on_failed,
    .exited = on_exited,
    .lost = on_lost,
};

static struct run *run_new(struct pai_err *err)
{
	struct run *r = calloc(1, sizeof(*r));

	if (!r) {
		(void)pai_err_no_memory(err);
		return NULL;
	}
	r->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->wake_fd < 0) {
		(void)pai_err_sys(err, "eventfd");
		free(r);
		return NULL;
	}
	atomic_init(&r->refs, 1);
	(void)pthread_mutex_init(&r->lock, NULL);
	r->pending[0].max = PAI_EXEC_WINDOW;
	r->pending[1].max = PAI_EXEC_WINDOW;
	return r;
}

/* --- the caller's side --- */

struct caller {
	struct run *run;
	struct pai_exec *exec;
	const struct pai_run_input *input;
	struct pai_buf captured[2];
	struct pai_buf spare[2]; /* empty, with its memory: changes places with `pending` */
};

static void caller_fini(struct caller *c)
{
	pai_exec_free(c->exec);
	pai_buf_fini(&c->captured[0]);
	pai_buf_fini(&c->captured[1]);
	pai_buf_fini(&c->spare[0]);
	pai_buf_fini(&c->spare[1]);
	if (c->run) {
		run_drop(c->run);
	}
}

/* What has come is captured and shown, then granted again. */
static int hand_on(struct caller *c, int i, struct pai_err *err)
{
	struct run *r = c->run;
	struct pai_buf *now = &c->spare[i];
	struct pai_buf empty = *now;
	bool no_memory;

	(void)pthread_mutex_lock(&r->lock);
	*now = r->pending[i];
	r->pending[i] = empty;
	no_memory = r->no_memory;
	(void)pthread_mutex_unlock(&r->lock);
	if (no_memory ||
	    (!c->input->no_capture && pai_buf_add(&c->captured[i], now->data, now->len) < 0)) {
		return pai_err_no_memory(err);
	}
	if (now->len > 0 && c->input->on_output) {
		c->input->on_output(
		    c->input->on_output_arg, i == 0 ? PAI_STDOUT : PAI_STDERR, now->data, now->len);
	}
	if (now->len > 0) {
		pai_exec_credit(c->exec, (uint8_t)(i + 1), (uint32_t)now->len);
	}
	pai_buf_clear(now);
	return 0;
}

static enum outcome outcome_of(struct run *r)
{
	enum outcome outcome;

	(void)pthread_mutex_lock(&r->lock);
	outcome = r->outcome;
	(void)pthread_mutex_unlock(&r->lock);
	return outcome;
}

static int wait_for_end(struct caller *c, const struct pai_call *call, struct pai_err *err)
{
	for (;;) {
		/* First: output that came before the end is all there when the end is seen. */
		enum outcome outcome = outcome_of(c->run);
		uint64_t count;
		int r = hand_on(c, 0, err);

		r = r < 0 ? r : hand_on(c, 1, err);
		if (r < 0 || outcome != GOING) {
			return r;
		}
		r = pai_call_poll(call, c->run->wake_fd, POLLIN, err);
		if (r < 0) {
			return r;
		}
		(void)!read(c->run->wake_fd, &count, sizeof(count));
	}
}

/* The group dies; its death is waited for, so that nothing of it runs on unseen. */
static void give_up(struct caller *c)
{
	const struct pai_call last = {.deadline_ms = pai_deadline_in(LAST_WORD_MS)};

	pai_exec_cancel(c->exec);
	(void)!wait_for_end(c, &last, PAI_ERR_IGNORED());
}

static uint64_t limit_of(const struct pai_run_input *input)
{
	return input->max_output_bytes ? input->max_output_bytes : PAI_OUTPUT_DEFAULT;
}

static int exited(const struct caller *c, struct pai_run_result *result, struct pai_err *err)
{
	const struct pai_exec_exit *e = &c->run->exit;

	switch (e->kind) {
	case PAI_EXIT_CODE:
		result->exit_code = e->value;
		return 0;
	case PAI_EXIT_SIGNAL:
		result->exit_code = SIGNAL_BASE + e->value;
		return 0;
	case PAI_EXIT_TIMEOUT:
		return pai_err_command_timeout(err, c->input->timeout_ms);
	case PAI_EXIT_OUTPUT_LIMIT:
		return pai_err_limit(err, PAI_E_OUTPUT_LIMIT, limit_of(c->input), "the output");
	case PAI_EXIT_CANCELLED:
		return pai_err_set(err, PAI_E_CANCELLED, "the command was cancelled");
	case PAI_EXIT_UNKNOWN:
		break;
	}
	(void)pai_err_unavailable(
	    err, PAI_REASON_BACKEND, NULL, "how the command ended is unknown");
	err->retryable = false;
	return -err->errnum;
}

static int conclude(const struct caller *c, struct pai_run_result *result, struct pai_err *err)
{
	struct run *r = c->run;

	switch (r->outcome) {
	case EXITED:
		return exited(c, result, err);
	case FAILED:
		if (r->phase == PAI_FAIL_CWD) {
			return pai_err_set(err, PAI_E_INPUT, "cwd '%s': %s",
			    c->input->cwd ? c->input->cwd : "/workspace", r->err.msg);
		}
		/* Nothing ran: asking again may help where it was for want of something. */
		(void)pai_err_unavailable(
		    err, PAI_REASON_BACKEND, NULL, "the shell did not start: %s", r->err.msg);
		err->retryable = r->phase == PAI_FAIL_REFUSED;
		return -err->errnum;
	default:
		*err = r->err;
		return -err->errnum;
	}
}

static void free_env(char ***env)
{
	for (char **e = *env; e && *e; e++) {
		free(*e);
	}
	free(*env);
}

static char **env_of(const struct pai_strmap *map)
{
	size_t count = map ? map->count : 0;
	PAI_AUTO(free_env) char **env = calloc(count + 1, sizeof(*env));

	for (size_t i = 0; env && i < count; i++) {
		if (asprintf(&env[i], "%s=%s", map->entries[i].key, map->entries[i].value) < 0) {
			env[i] = NULL;
			return NULL;
		}
	}
	return PAI_TAKE(env);
}

static int start(struct caller *c, struct pai_exec_line *l, struct pai_err *err)
{
	const struct pai_run_input *input = c->input;
	char shell[] = "/bin/sh";
	char dash_c[] = "-c";
	char workspace[] = "/workspace";
	pai_auto_free char *command = strdup(input->command);
	pai_auto_free char *cwd = input->cwd ? strdup(input->cwd) : NULL;
	PAI_AUTO(free_env) char **env = env_of(input->env);
	char *argv[] = {shell, dash_c, command, NULL};
	uint64_t limit = limit_of(input);
	struct pai_exec_start s = {
	    .argv = argv,
	    .cwd = cwd ? cwd : workspace,
	    .env = env,
	    .timeout_ms = input->timeout_ms,
	    .max_output_bytes = limit == PAI_OUTPUT_UNLIMITED ? 0 : limit,
	};
	int r;

	if (!command || !env || (input->cwd && !cwd)) {
		return pai_err_no_memory(err);
	}
	(void)atomic_fetch_add(&c->run->refs, 1);
	r = pai_exec_start(l, &s, &run_events, c->run, &c->exec, err);
	if (r < 0) {
		run_drop(c->run);
	}
	return r;
}

int pai_exec_run(struct pai_exec_line *l, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err)
{
	PAI_AUTO(caller_fini) struct caller c = {.run = run_new(err), .input = input};
	uint64_t limit = limit_of(input);
	pai_auto_run_result struct pai_run_result result = {0};
	int r;

	if (!c.run) {
		return -err->errnum;
	}
	c.spare[0].max = PAI_EXEC_WINDOW;
	c.spare[1].max = PAI_EXEC_WINDOW;
	c.captured[0].max = limit > SIZE_MAX / 2 ? SIZE_MAX / 2 : (size_t)limit;
	c.captured[1].max = c.captured[0].max;
	r = start(&c, l, err);
	if (r < 0) {
		return r;
	}
	r = wait_for_end(&c, call, err);
	if (r < 0) {
		give_up(&c);
		return r;
	}
	r = conclude(&c, &result, err);
	if (r < 0) {
		return r;
	}
	result.out_len = c.captured[0].len;
	result.err_len = c.captured[1].len;
	result.out = pai_buf_take(&c.captured[0]);
	result.err = pai_buf_take(&c.captured[1]);
	if (!result.out || !result.err) {
		return pai_err_no_memory(err);
	}
	*ret = result;
	result = (struct pai_run_result){0};
	return 0;
}

/* --- a handle's own line --- */

static int open_own(const struct pai_exec_own *own, const struct pai_call *call,
    struct pai_exec_line **ret, struct pai_err *err)
{
	uint64_t random = 0;
	char who[48];
	int fd = -1;
	int r = own->sb->ops->open_exec(own->sb, call, &fd, err);

	if (r < 0) {
		return r;
	}
	(void)!getrandom(&random, sizeof(random), 0);
	(void)snprintf(who, sizeof(who), "run-%016llx", (unsigned long long)random);
	r = pai_exec_line_new(fd, who, 1, call, ret, err);
	if (r == 0) {
		if (own->nonce_fd >= 0) {
			pai_exec_line_prove_by(*ret, fcntl(own->nonce_fd, F_DUPFD_CLOEXEC, 0));
		}
		pai_exec_line_expect(*ret, PAI_EXEC_SILENCE_MS + own->sb->hold_ms);
	}
	return r;
}

int pai_exec_own_line(const struct pai_exec_own *own, const struct pai_call *call,
    struct pai_exec_line **ret, struct pai_err *err)
{
	struct pai_exec_line *l = NULL;
	struct pai_exec_line *old;
	int r;

	(void)pthread_mutex_lock(own->lock);
	if (*own->line && pai_exec_line_alive(*own->line)) {
		l = pai_exec_line_ref(*own->line);
	}
	(void)pthread_mutex_unlock(own->lock);
	if (l) {
		*ret = l;
		return 0;
	}
	r = open_own(own, call, &l, err);
	if (r < 0) {
		return r;
	}
	(void)pthread_mutex_lock(own->lock);
	old = *own->line;
	*own->line = pai_exec_line_ref(l);
	(void)pthread_mutex_unlock(own->lock);
	pai_exec_line_unref(old);
	*ret = l;
	return 0;
}
