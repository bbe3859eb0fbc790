#include "providers/wrap.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/clock.h"

struct wrapped {
	struct pai_sandbox base;
	struct pai_sandbox *inner;
};

const char *pai_wrap_call_name(enum pai_wrap_call call)
{
	static const char *const names[PAI_WRAP_CALL_COUNT] = {
	    [PAI_WRAP_PROBE] = "probe",
	    [PAI_WRAP_CREATE] = "create",
	    [PAI_WRAP_CONNECT] = "connect",
	    [PAI_WRAP_LIST] = "list",
	    [PAI_WRAP_RUN] = "run",
	    [PAI_WRAP_READ_FILE] = "read_file",
	    [PAI_WRAP_WRITE_FILE] = "write_file",
	    [PAI_WRAP_LIST_DIR] = "list_dir",
	    [PAI_WRAP_KEEP_ALIVE] = "keep_alive",
	    [PAI_WRAP_KILL] = "kill",
	    [PAI_WRAP_PAUSE] = "pause",
	    [PAI_WRAP_OPEN_LINE] = "open_line",
	    [PAI_WRAP_HOST_FILES] = "host_files",
	    [PAI_WRAP_OPEN_EXEC] = "open_exec",
	    [PAI_WRAP_OPEN_FILES] = "open_files",
	};

	return names[call];
}

static struct pai_wrap *wrap_of(struct pai_provider *p)
{
	struct pai_wrap *w = (struct pai_wrap *)p;

	assert(p->ops == &w->ops);
	return w;
}

struct pai_sandbox *pai_wrap_inner(struct pai_sandbox *sb)
{
	return ((struct wrapped *)sb)->inner;
}

/* --- around a call --- */

static int before(
    struct pai_wrap *w, const struct pai_wrap_event *e, uint64_t *ret_ms, struct pai_err *err)
{
	*ret_ms = pai_clock_ms();
	return w->hooks->before ? w->hooks->before(w, e, err) : 0;
}

static int after(struct pai_wrap *w, const struct pai_wrap_event *e, int result, uint64_t ms,
    struct pai_err *err)
{
	return w->hooks->after ? w->hooks->after(w, e, result, ms, err) : result;
}

static struct pai_wrap_event event_of(
    enum pai_wrap_call call, struct pai_sandbox *sb, const struct pai_call *bounds)
{
	return (struct pai_wrap_event){
	    .call = call,
	    .bounds = bounds,
	    .sandbox = pai_wrap_inner(sb),
	    .sandbox_id = sb->id,
	};
}

/* --- sandbox --- */

static void wrapped_free(struct pai_sandbox *sb)
{
	struct wrapped *h = (struct wrapped *)sb;

	pai_sandbox_free(h->inner);
	free(h);
}

int pai_wrap_sandbox(struct pai_wrap *w, struct pai_sandbox *take_inner, struct pai_sandbox **ret,
    struct pai_err *err)
{
	struct wrapped *h = calloc(1, sizeof(*h));

	if (!h) {
		pai_sandbox_free(take_inner);
		return pai_err_no_memory(err);
	}
	h->base.ops = &w->sandbox_ops;
	h->base.provider = &w->base;
	h->base.id = take_inner->id;
	h->base.incarnation = take_inner->incarnation;
	h->base.flags = take_inner->flags;
	h->base.hold_ms = take_inner->hold_ms;
	h->inner = take_inner;
	*ret = &h->base;
	return 0;
}

static int wrapped_run(struct pai_sandbox *sb, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err)
{
	struct pai_wrap *w = wrap_of(sb->provider);
	struct pai_wrap_event e = event_of(PAI_WRAP_RUN, sb, call);
	uint64_t ms;
	int r;

	e.run = input;
	r = before(w, &e, &ms, err);
	r = r < 0 ? r : pai_sandbox_run(pai_wrap_inner(sb), input, call, ret, err);
	if (r == 0) {
		e.exit_code = ret->exit_code;
		e.bytes_out = ret->out_len;
		e.bytes_err = ret->err_len;
	}
	r = after(w, &e, r, ms, err);
	if (r < 0) {
		pai_run_result_fini(ret);
	}
	return r;
}

static int wrapped_read_file(struct pai_sandbox *sb, const char *path, uint64_t max_bytes,
    const struct pai_call *call, bool *found, struct pai_buf *ret, struct pai_err *err)
{
	struct pai_wrap *w = wrap_of(sb->provider);
	struct pai_wrap_event e = event_of(PAI_WRAP_READ_FILE, sb, call);
	const size_t len = ret->len;
	uint64_t ms;
	int r;

	e.path = path;
	e.limit = max_bytes;
	r = before(w, &e, &ms, err);
	r = r < 0
		? r
		: pai_sandbox_read_file(pai_wrap_inner(sb), path, max_bytes, call, found, ret, err);
	if (r == 0) {
		e.found = *found;
		e.bytes_out = ret->len - len;
	}
	return after(w, &e, r, ms, err);
}

static int wrapped_write_file(struct pai_sandbox *sb, const char *path, const void *data,
    size_t len, const struct pai_call *call, struct pai_err *err)
{
	struct pai_wrap *w = wrap_of(sb->provider);
	struct pai_wrap_event e = event_of(PAI_WRAP_WRITE_FILE, sb, call);
	uint64_t ms;
	int r;

	e.path = path;
	e.bytes_in = len;
	r = before(w, &e, &ms, err);
	r = r < 0 ? r : pai_sandbox_write_file(pai_wrap_inner(sb), path, data, len, call, err);
	return after(w, &e, r, ms, err);
}

static int wrapped_list_dir(struct pai_sandbox *sb, const char *path, const struct pai_call *call,
    bool *found, struct pai_dir_list *ret, struct pai_err *err)
{
	struct pai_wrap *w = wrap_of(sb->provider);
	struct pai_wrap_event e = event_of(PAI_WRAP_LIST_DIR, sb, call);
	uint64_t ms;
	int r;

	e.path = path;
	r = before(w, &e, &ms, err);
	r = r < 0 ? r : pai_sandbox_list_dir(pai_wrap_inner(sb), path, call, found, ret, err);
	if (r == 0) {
		e.found = *found;
		e.count = ret->count;
	}
	return after(w, &e, r, ms, err);
}

static int wrapped_keep_alive(
    struct pai_sandbox *sb, uint64_t ttl_ms, const struct pai_call *call, struct pai_err *err)
{
	struct pai_wrap *w = wrap_of(sb->provider);
	struct pai_wrap_event e = event_of(PAI_WRAP_KEEP_ALIVE, sb, call);
	uint64_t ms;
	int r;

	e.limit = ttl_ms;
	r = before(w, &e, &ms, err);
	r = r < 0 ? r : pai_sandbox_keep_alive(pai_wrap_inner(sb), ttl_ms, call, err);
	return after(w, &e, r, ms, err);
}

static int wrapped_kill(struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err)
{
	struct pai_wrap *w = wrap_of(sb->provider);
	struct pai_wrap_event e = event_of(PAI_WRAP_KILL, sb, call);
	uint64_t ms;
	int r = before(w, &e, &ms, err);

	r = r < 0 ? r : pai_sandbox_kill(pai_wrap_inner(sb), call, err);
	return after(w, &e, r, ms, err);
}

static int wrapped_pause(struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err)
{
	struct pai_wrap *w = wrap_of(sb->provider);
	struct pai_wrap_event e = event_of(PAI_WRAP_PAUSE, sb, call);
	uint64_t ms;
	int r = before(w, &e, &ms, err);

	r = r < 0 ? r : pai_sandbox_pause(pai_wrap_inner(sb), call, err);
	return after(w, &e, r, ms, err);
}

static int close_if_failed(int r, int *fd)
{
	if (r < 0 && *fd >= 0) {
		(void)close(*fd);
		*fd = -1;
	}
	return r;
}

static int wrapped_open_line(struct pai_sandbox *sb, const char *const argv[],
    const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct pai_wrap *w = wrap_of(sb->provider);
	struct pai_wrap_event e = event_of(PAI_WRAP_OPEN_LINE, sb, call);
	uint64_t ms;
	int r;

	e.program = argv[0];
	r = before(w, &e, &ms, err);
	r = r < 0 ? r : pai_sandbox_open_line(pai_wrap_inner(sb), argv, call, ret_fd, err);
	return close_if_failed(after(w, &e, r, ms, err), ret_fd);
}

static int wrapped_host_files(struct pai_sandbox *sb, const struct pai_call *call,
    struct pai_host_files *ret, struct pai_err *err)
{
	struct pai_wrap *w = wrap_of(sb->provider);
	struct pai_wrap_event e = event_of(PAI_WRAP_HOST_FILES, sb, call);
	uint64_t ms;
	int r = before(w, &e, &ms, err);

	r = r < 0 ? r : pai_sandbox_host_files(pai_wrap_inner(sb), call, ret, err);
	r = after(w, &e, r, ms, err);
	if (r < 0) {
		(void)close_if_failed(r, &ret->root_fd);
		(void)close_if_failed(r, &ret->nonce_fd);
		free(ret->state_dir);
	}
	return r;
}

static int wrapped_open_exec(
    struct pai_sandbox *sb, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct pai_wrap *w = wrap_of(sb->provider);
	struct pai_wrap_event e = event_of(PAI_WRAP_OPEN_EXEC, sb, call);
	uint64_t ms;
	int r = before(w, &e, &ms, err);

	r = r < 0 ? r : pai_sandbox_open_exec(pai_wrap_inner(sb), call, ret_fd, err);
	return close_if_failed(after(w, &e, r, ms, err), ret_fd);
}

static int wrapped_open_files(
    struct pai_sandbox *sb, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	struct pai_wrap *w = wrap_of(sb->provider);
	struct pai_wrap_event e = event_of(PAI_WRAP_OPEN_FILES, sb, call);
	uint64_t ms;
	int r = before(w, &e, &ms, err);

	r = r < 0 ? r : pai_sandbox_open_files(pai_wrap_inner(sb), call, ret_fd, err);
	return close_if_failed(after(w, &e, r, ms, err), ret_fd);
}

/* --- provider --- */

static int wrap_probe(struct pai_provider *p, const struct pai_call *call, struct pai_err *err)
{
	struct pai_wrap *w = wrap_of(p);
	struct pai_wrap_event e = {.call = PAI_WRAP_PROBE, .bounds = call};
	uint64_t ms;
	int r = before(w, &e, &ms, err);

	r = r < 0 ? r : pai_provider_probe(w->inner, call, err);
	return after(w, &e, r, ms, err);
}

/* The end of create and connect: the hook sees the new handle, then it gets ours over it. */
static int hand_out(struct pai_wrap *w, struct pai_wrap_event *e, int r, uint64_t ms,
    struct pai_sandbox **ret, struct pai_err *err)
{
	struct pai_sandbox *inner = e->sandbox;

	if (inner) {
		e->sandbox_id = inner->id;
		e->found = true;
	}
	r = after(w, e, r, ms, err);
	if (r < 0) {
		pai_sandbox_free(inner);
		return r;
	}
	return inner ? pai_wrap_sandbox(w, inner, ret, err) : 0;
}

static int wrap_create(struct pai_provider *p, const struct pai_create_input *input,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err)
{
	struct pai_wrap *w = wrap_of(p);
	struct pai_wrap_event e = {.call = PAI_WRAP_CREATE, .bounds = call, .create = input};
	uint64_t ms;
	int r = before(w, &e, &ms, err);

	r = r < 0 ? r : pai_provider_create(w->inner, input, call, &e.sandbox, err);
	return hand_out(w, &e, r, ms, ret, err);
}

static int wrap_connect(struct pai_provider *p, const char *sandbox_id, const struct pai_call *call,
    struct pai_sandbox **ret, struct pai_err *err)
{
	struct pai_wrap *w = wrap_of(p);
	struct pai_wrap_event e = {
	    .call = PAI_WRAP_CONNECT, .bounds = call, .sandbox_id = sandbox_id};
	uint64_t ms;
	int r = before(w, &e, &ms, err);

	r = r < 0 ? r : pai_provider_connect(w->inner, sandbox_id, call, &e.sandbox, err);
	return hand_out(w, &e, r, ms, ret, err);
}

static int wrap_list(struct pai_provider *p, const struct pai_strmap *metadata,
    const struct pai_call *call, struct pai_sandbox_list *ret, struct pai_err *err)
{
	struct pai_wrap *w = wrap_of(p);
	struct pai_wrap_event e = {.call = PAI_WRAP_LIST, .bounds = call, .metadata = metadata};
	uint64_t ms;
	int r = before(w, &e, &ms, err);

	r = r < 0 ? r : pai_provider_list(w->inner, metadata, call, ret, err);
	e.count = r == 0 ? ret->count : 0;
	return after(w, &e, r, ms, err);
}

static int wrap_describe(struct pai_provider *p, struct pai_strmap *ret, struct pai_err *err)
{
	return pai_provider_describe(wrap_of(p)->inner, ret, err);
}

static void wrap_free(struct pai_provider *p)
{
	struct pai_wrap *w = wrap_of(p);

	w->hooks->free(w);
}

void pai_wrap_init(
    struct pai_wrap *w, struct pai_provider *take_inner, const struct pai_wrap_hooks *hooks)
{
	w->inner = take_inner;
	w->hooks = hooks;
	w->ops = (struct pai_provider_ops){
	    .name = take_inner->ops->name,
	    .probe = wrap_probe,
	    .create = wrap_create,
	    .connect = wrap_connect,
	    .list = wrap_list,
	    .free = wrap_free,
	    .describe = wrap_describe,
	};
	w->sandbox_ops = (struct pai_sandbox_ops){
	    .free = wrapped_free,
	    .run = wrapped_run,
	    .read_file = wrapped_read_file,
	    .write_file = wrapped_write_file,
	    .list_dir = wrapped_list_dir,
	    .keep_alive = wrapped_keep_alive,
	    .kill = wrapped_kill,
	    .pause = wrapped_pause,
	    .open_line = wrapped_open_line,
	    .host_files = wrapped_host_files,
	    .open_exec = wrapped_open_exec,
	    .open_files = wrapped_open_files,
	};
	w->base.ops = &w->ops;
	w->base.caps = take_inner->caps;
	w->base.isolation = take_inner->isolation;
}

void pai_wrap_fini(struct pai_wrap *w)
{
	pai_provider_free(w->inner);
}
