/*
 * provider_trace: one JSON line per call into a descriptor, after the call.
 *
 *   {"at":WALL_MS,"ms":N,"call":"run","provider":"local","sandbox":"...", input, result}
 *
 * Redacted at the source, so that a trace can be shown: of a command the first word (an assignment
 * before it without its value), of an environment the names, of files and output the sizes. The
 * error is the contract's own shape, whose messages never hold a secret. A trace that can't be
 * written is dropped: the call it tells of has happened.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/base/json.h"
#include "providers/base/log.h"
#include "providers/wrap.h"

#define WORD_MAX 64 /* a program's name; longer is cut */

struct trace {
	struct pai_wrap wrap;
	int fd;
};

/* --- input --- */

static int add_names(struct pai_json *obj, const char *key, const struct pai_strmap *env)
{
	struct pai_json *names = pai_json_array();
	int r = names ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < env->count; i++) {
		r = pai_json_push_str(names, env->entries[i].key);
	}
	if (r < 0) {
		pai_json_free(names);
		return r;
	}
	return pai_json_set(obj, key, names);
}

/* "TOKEN=..." of a leading assignment, else the first word. */
static int add_first_word(struct pai_json *obj, const char *command)
{
	char word[WORD_MAX + 4];
	const char *start = command + strspn(command, " \t\n");
	size_t len = strcspn(start, " \t\n");
	const char *equals = memchr(start, '=', len);

	if (equals) {
		len = (size_t)(equals - start) + 1;
	}
	len = len < WORD_MAX ? len : WORD_MAX;
	memcpy(word, start, len);
	memcpy(word + len, equals ? "..." : "", equals ? 4 : 1);
	return pai_json_set_str(obj, "command", word);
}

static int add_run(struct pai_json *obj, const struct pai_run_input *in)
{
	int r = add_first_word(obj, in->command);

	r = r < 0 ? r : pai_json_set_str(obj, "cwd", in->cwd);
	r = r < 0 || !in->env ? r : add_names(obj, "env", in->env);
	r = r < 0 || !in->timeout_ms ? r
				     : pai_json_set_num(obj, "timeoutMs", (int64_t)in->timeout_ms);
	return r;
}

static int add_create(struct pai_json *obj, const struct pai_create_input *in)
{
	static const char *const access[] = {
	    [PAI_NETWORK_NONE] = "none",
	    [PAI_NETWORK_ALLOWLIST] = "allowlist",
	    [PAI_NETWORK_FULL] = "full",
	};
	int r = pai_json_set_str(obj, "network", access[in->network.access]);

	r = r < 0 || !in->template_name ? r : pai_json_set_str(obj, "template", in->template_name);
	r = r < 0 || !in->binding_key ? r : pai_json_set_str(obj, "bindingKey", in->binding_key);
	r = r < 0 || !in->ttl_ms ? r : pai_json_set_num(obj, "ttlMs", (int64_t)in->ttl_ms);
	r = r < 0 || !in->metadata ? r : pai_json_set_map(obj, "metadata", in->metadata);
	return r < 0 || !in->env ? r : add_names(obj, "env", in->env);
}

static int add_input(struct pai_json *obj, const struct pai_wrap_event *e)
{
	int r = 0;

	if (e->create) {
		return add_create(obj, e->create);
	}
	if (e->run) {
		return add_run(obj, e->run);
	}
	r = e->path ? pai_json_set_str(obj, "path", e->path) : 0;
	r = r < 0 || !e->program ? r : pai_json_set_str(obj, "command", e->program);
	r = r < 0 || !e->metadata ? r : pai_json_set_map(obj, "metadata", e->metadata);
	if (r == 0 && e->call == PAI_WRAP_WRITE_FILE) {
		r = pai_json_set_num(obj, "bytes", (int64_t)e->bytes_in);
	}
	if (r == 0 && e->limit != 0 && e->limit != UINT64_MAX) {
		r = pai_json_set_num(
		    obj, e->call == PAI_WRAP_KEEP_ALIVE ? "ttlMs" : "maxBytes", (int64_t)e->limit);
	}
	return r;
}

/* --- result --- */

static int add_result(struct pai_json *obj, const struct pai_wrap_event *e)
{
	int r = 0;

	switch (e->call) {
	case PAI_WRAP_RUN:
		r = pai_json_set_num(obj, "exitCode", e->exit_code);
		r = r < 0 ? r : pai_json_set_num(obj, "stdoutBytes", (int64_t)e->bytes_out);
		return r < 0 ? r : pai_json_set_num(obj, "stderrBytes", (int64_t)e->bytes_err);
	case PAI_WRAP_READ_FILE:
		r = pai_json_set_bool(obj, "found", e->found);
		return r < 0 ? r : pai_json_set_num(obj, "bytes", (int64_t)e->bytes_out);
	case PAI_WRAP_LIST_DIR:
		r = pai_json_set_bool(obj, "found", e->found);
		return r < 0 ? r : pai_json_set_num(obj, "count", (int64_t)e->count);
	case PAI_WRAP_LIST:
		return pai_json_set_num(obj, "count", (int64_t)e->count);
	case PAI_WRAP_CONNECT:
		return pai_json_set_bool(obj, "found", e->found);
	default:
		return 0;
	}
}

static int fill(struct pai_json *obj, const struct pai_wrap *w, const struct pai_wrap_event *e,
    int result, const struct pai_err *err)
{
	int r = pai_json_set_str(obj, "call", pai_wrap_call_name(e->call));

	r = r < 0 ? r : pai_json_set_str(obj, "provider", w->base.ops->name);
	r = r < 0 || !e->sandbox_id ? r : pai_json_set_str(obj, "sandbox", e->sandbox_id);
	r = r < 0 ? r : add_input(obj, e);
	if (r < 0) {
		return r;
	}
	if (result < 0) {
		return pai_json_set(obj, "error", pai_json_from_err(err));
	}
	return add_result(obj, e);
}

static void write_line(const struct trace *t, const char *text)
{
	pai_auto_buf struct pai_buf line = PAI_BUF_INIT(1u << 20);
	size_t sent = 0;

	if (pai_buf_printf(&line, "%s\n", text) < 0) {
		return;
	}
	/* One write, so that lines of several threads stay whole in a file or a pipe. */
	while (sent < line.len) {
		ssize_t n = write(t->fd, line.data + sent, line.len - sent);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n <= 0) {
			pai_log_debug("provider", "trace: write failed");
			return;
		}
		sent += (size_t)n;
	}
}

static int trace_after(struct pai_wrap *w, const struct pai_wrap_event *e, int result,
    uint64_t started_ms, struct pai_err *err)
{
	pai_auto_json struct pai_json *obj = pai_json_object();
	pai_auto_free char *text = NULL;
	int r = pai_json_set_num(obj, "at", pai_clock_wall_ms());

	r = r < 0 ? r : pai_json_set_num(obj, "ms", (int64_t)(pai_clock_ms() - started_ms));
	r = r < 0 ? r : fill(obj, w, e, result, err);
	text = r < 0 ? NULL : pai_json_print_ascii(obj);
	if (text) {
		write_line((const struct trace *)w, text);
	}
	return result;
}

static void trace_free(struct pai_wrap *w)
{
	struct trace *t = (struct trace *)w;

	pai_wrap_fini(w);
	(void)close(t->fd);
	free(t);
}

int pai_provider_trace(
    struct pai_provider *take_inner, int take_fd, struct pai_provider **ret, struct pai_err *err)
{
	static const struct pai_wrap_hooks hooks = {.after = trace_after, .free = trace_free};
	struct trace *t = calloc(1, sizeof(*t));

	if (!t) {
		pai_provider_free(take_inner);
		(void)close(take_fd);
		return pai_err_no_memory(err);
	}
	t->fd = take_fd;
	pai_wrap_init(&t->wrap, take_inner, &hooks);
	*ret = &t->wrap.base;
	return 0;
}
