/*
 * The provider is a stream of calls that is opened when it is wanted; a sandbox is an id and an
 * incarnation. Nothing is asked twice here: whether a call that was lost may be made again is said
 * in its error.
 */
#include "providers/helper/far.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/helper/exec_line.h"
#include "providers/helper/far_calls.h"
#include "providers/helper/link.h"

#define OPEN_LOOK_MS 5
#define GRACE_S_MAX 86400
#define PROOF_MS 5000 /* to ask whether a sandbox whose line has ended is gone */

struct far {
	struct pai_provider base;
	struct pai_provider_ops ops; /* a copy: it carries the name */
	struct pai_far_config config;
	pthread_mutex_t lock;
	/* lock */
	bool opening;
	struct pai_far_calls *calls; /* the newest; may have ended */
	char isolation[256];
};

struct far_sandbox {
	struct pai_sandbox base;
	pthread_mutex_t lock;
	struct pai_exec_line *line; /* lock; run()'s own */
};

static const struct pai_sandbox_ops far_sandbox_ops;
static int far_create(struct pai_provider *p, const struct pai_create_input *in,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err);

static struct far *far_of(const struct pai_provider *p)
{
	assert(p->ops->create == far_create);
	return (struct far *)(uintptr_t)p;
}

static struct far_sandbox *sandbox_of(struct pai_sandbox *sb)
{
	assert(sb->ops == &far_sandbox_ops);
	return (struct far_sandbox *)sb;
}

void *pai_far_arg(const struct pai_provider *p)
{
	return far_of(p)->config.arg;
}

/* --- the stream of calls --- */

/* What both sides say. Isolation is written once: people may be reading it. */
static void learn_locked(struct far *f, const struct pai_calls_ready *ready)
{
	uint32_t caps = f->config.caps & ready->caps;

	__atomic_store_n(&f->base.caps, caps, __ATOMIC_RELAXED);
	if (f->isolation[0] == '\0' && ready->isolation[0]) {
		(void)snprintf(f->isolation, sizeof(f->isolation), "%s", ready->isolation);
		__atomic_store_n(&f->base.isolation, f->isolation, __ATOMIC_RELEASE);
	}
}

static int open_calls(
    struct far *f, const struct pai_call *call, struct pai_far_calls **ret, struct pai_err *err)
{
	int fd = -1;
	int r = f->config.open(f->config.arg, PAI_CHANNEL_CALLS, "", call, &fd, err);

	return r < 0 ? r : pai_far_calls_new(fd, call, ret, err);
}

/* A reference to the stream, or NULL with 0: the caller opens one, `opening` is set. */
static int stream_or_turn(
    struct far *f, const struct pai_call *call, struct pai_far_calls **ret, struct pai_err *err)
{
	for (;;) {
		bool mine = false;
		int r;

		(void)pthread_mutex_lock(&f->lock);
		if (f->calls && pai_far_calls_alive(f->calls)) {
			*ret = pai_far_calls_ref(f->calls);
		} else if (!f->opening) {
			f->opening = mine = true;
		}
		(void)pthread_mutex_unlock(&f->lock);
		if (*ret || mine) {
			return 0;
		}
		r = pai_call_sleep(call, pai_deadline_in(OPEN_LOOK_MS), err);
		if (r < 0) {
			return r;
		}
	}
}

/* A reference. */
static int get_calls(
    struct far *f, const struct pai_call *call, struct pai_far_calls **ret, struct pai_err *err)
{
	struct pai_far_calls *c = NULL;
	struct pai_far_calls *old = NULL;
	int r = stream_or_turn(f, call, &c, err);

	if (r < 0 || c) {
		*ret = c;
		return r;
	}
	r = open_calls(f, call, &c, err);
	(void)pthread_mutex_lock(&f->lock);
	f->opening = false;
	if (r == 0) {
		old = f->calls;
		f->calls = pai_far_calls_ref(c);
		learn_locked(f, pai_far_calls_ready(c));
	}
	(void)pthread_mutex_unlock(&f->lock);
	pai_far_calls_unref(old);
	if (r == 0) {
		*ret = c;
	}
	return r;
}

int pai_far_connect(struct pai_provider *p, const struct pai_call *call, struct pai_err *err)
{
	struct pai_far_calls *c = NULL;
	int r = get_calls(far_of(p), call, &c, err);

	pai_far_calls_unref(c);
	return r;
}

static int ask(struct far *f, struct pai_call_request *q, const void *data,
    const struct pai_call *call, struct pai_far_reply *reply, struct pai_err *err)
{
	struct pai_far_calls *c = NULL;
	bool sent = false;
	int r = get_calls(f, call, &c, err);

	if (r < 0) {
		return r;
	}
	r = pai_far_call(c, q, data, call, reply, &sent, err);
	/* Only of a sandbox without a key would a second one be another one. */
	if (r < 0 && sent && !pai_far_calls_alive(c) && err->code == PAI_E_UNAVAILABLE &&
	    q->op == PAI_CALL_CREATE && !q->create.binding_key) {
		err->retryable = false;
	}
	pai_far_calls_unref(c);
	return r;
}

/* --- the provider --- */

static char *borrow(const char *text)
{
	return (char *)(uintptr_t)text;
}

static struct pai_strmap map_of(const struct pai_strmap *m)
{
	return m ? *m : (struct pai_strmap)PAI_STRMAP_INIT;
}

int pai_far_take_grace(const struct pai_strmap *options, uint64_t *ret_ms, struct pai_err *err)
{
	const char *text = pai_strmap_get(options, "line_grace");
	unsigned long seconds = text ? strtoul(text, NULL, 10) : 0;

	if (text && (!text[0] || strspn(text, "0123456789") != strlen(text) || seconds < 1 ||
			seconds > GRACE_S_MAX)) {
		return pai_err_set(err, PAI_E_INPUT,
		    "line_grace=%s: expected a number of seconds from 1 to %d", text, GRACE_S_MAX);
	}
	*ret_ms = text ? seconds * 1000 : PAI_LINK_GRACE_MS;
	return 0;
}

static int hand_out(
    struct far *f, const struct pai_call_sandbox *s, struct pai_sandbox **ret, struct pai_err *err)
{
	struct far_sandbox *sb = calloc(1, sizeof(*sb));

	if (sb) {
		sb->base.id = strdup(s->id);
		sb->base.incarnation = strdup(s->incarnation);
	}
	if (!sb || !sb->base.id || !sb->base.incarnation) {
		if (sb) {
			free(sb->base.id);
			free(sb->base.incarnation);
		}
		free(sb);
		return pai_err_no_memory(err);
	}
	sb->base.ops = &far_sandbox_ops;
	sb->base.provider = &f->base;
	sb->base.flags = s->flags;
	sb->base.hold_ms = f->config.hold_ms;
	(void)pthread_mutex_init(&sb->lock, NULL);
	*ret = &sb->base;
	return 0;
}

static int far_probe(struct pai_provider *p, const struct pai_call *call, struct pai_err *err)
{
	struct far *f = far_of(p);
	struct pai_call_request q = {.op = PAI_CALL_PROBE};
	struct pai_far_reply reply = {0};

	return f->config.probe ? f->config.probe(f->config.arg, call, err)
			       : ask(f, &q, NULL, call, &reply, err);
}

static int far_create(struct pai_provider *p, const struct pai_create_input *in,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err)
{
	struct far *f = far_of(p);
	struct pai_far_reply reply = {0};
	/* All of it is borrowed. */
	struct pai_call_request q = {
	    .op = PAI_CALL_CREATE,
	    .create = {.template_name = borrow(in->template_name),
		.binding_key = borrow(in->binding_key),
		.ttl_ms = in->ttl_ms,
		.metadata = map_of(in->metadata),
		.env = map_of(in->env),
		.network = (uint8_t)in->network.access,
		.allow = (char **)(uintptr_t)in->network.allow,
		.allow_count = in->network.allow_count,
		.cpu_millis = in->resources.cpu_millis,
		.memory_bytes = in->resources.memory_bytes,
		.pids = in->resources.pids,
		.disk_bytes = in->resources.disk_bytes},
	};
	int r = ask(f, &q, NULL, call, &reply, err);

	return r < 0 ? r : hand_out(f, &reply.result.sandbox, ret, err);
}

static int far_connect(struct pai_provider *p, const char *sandbox_id, const struct pai_call *call,
    struct pai_sandbox **ret, struct pai_err *err)
{
	struct far *f = far_of(p);
	struct pai_call_request q = {.op = PAI_CALL_CONNECT, .sandbox_id = borrow(sandbox_id)};
	struct pai_far_reply reply = {0};
	int r;

	*ret = NULL;
	if (strlen(sandbox_id) > PAI_CALL_ID_MAX) {
		return 0; /* never one of ours */
	}
	r = ask(f, &q, NULL, call, &reply, err);
	if (r < 0 || !reply.result.found) {
		return r;
	}
	return hand_out(f, &reply.result.sandbox, ret, err);
}

static int far_list(struct pai_provider *p, const struct pai_strmap *metadata,
    const struct pai_call *call, struct pai_sandbox_list *ret, struct pai_err *err)
{
	struct pai_call_request q = {.op = PAI_CALL_LIST, .metadata = map_of(metadata)};
	struct pai_far_reply reply = {0};
	int r = ask(far_of(p), &q, NULL, call, &reply, err);

	if (r == 0) {
		*ret = reply.list;
	}
	return r;
}

static int far_describe(struct pai_provider *p, struct pai_strmap *ret, struct pai_err *err)
{
	const struct pai_far_config *c = &far_of(p)->config;

	return c->describe ? c->describe(c->arg, ret, err) : 0;
}

static void far_free(struct pai_provider *p)
{
	struct far *f = far_of(p);

	if (f->calls) {
		pai_far_calls_end(f->calls);
	}
	pai_far_calls_unref(f->calls);
	if (f->config.freed) {
		f->config.freed(f->config.arg);
	}
	(void)pthread_mutex_destroy(&f->lock);
	free(f);
}

int pai_far_new(const struct pai_far_config *config, struct pai_provider **ret, struct pai_err *err)
{
	struct far *f = calloc(1, sizeof(*f));

	if (!f) {
		return pai_err_no_memory(err);
	}
	f->config = *config;
	f->ops = (struct pai_provider_ops){
	    .name = config->name,
	    .probe = far_probe,
	    .create = far_create,
	    .connect = far_connect,
	    .list = far_list,
	    .free = far_free,
	    .describe = far_describe,
	};
	f->base.ops = &f->ops;
	f->base.caps = config->caps;
	f->base.isolation = config->isolation;
	(void)pthread_mutex_init(&f->lock, NULL);
	*ret = &f->base;
	return 0;
}

/* --- sandboxes --- */

static struct pai_call_request request_on(const struct pai_sandbox *sb, enum pai_call_op op)
{
	return (struct pai_call_request){
	    .op = op, .sandbox_id = sb->id, .incarnation = sb->incarnation};
}

static void far_sandbox_free(struct pai_sandbox *base)
{
	struct far_sandbox *sb = sandbox_of(base);
	struct far *f = far_of(base->provider);
	struct pai_call_request q = request_on(base, PAI_CALL_FORGET);
	struct pai_far_calls *c = NULL;

	(void)pthread_mutex_lock(&f->lock);
	if (f->calls && pai_far_calls_alive(f->calls)) {
		c = pai_far_calls_ref(f->calls);
	}
	(void)pthread_mutex_unlock(&f->lock);
	if (c) {
		pai_far_tell(c, &q);
		pai_far_calls_unref(c);
	}
	pai_exec_line_unref(sb->line);
	(void)pthread_mutex_destroy(&sb->lock);
	free(sb->base.id);
	free(sb->base.incarnation);
	free(sb);
}

static int ask_plain(struct pai_sandbox *sb, enum pai_call_op op, uint64_t number,
    const struct pai_call *call, struct pai_err *err)
{
	struct pai_call_request q = request_on(sb, op);
	struct pai_far_reply reply = {0};

	q.number = number;
	return ask(far_of(sb->provider), &q, NULL, call, &reply, err);
}

static int far_keep_alive(
    struct pai_sandbox *sb, uint64_t ttl_ms, const struct pai_call *call, struct pai_err *err)
{
	return ask_plain(sb, PAI_CALL_KEEP_ALIVE, ttl_ms, call, err);
}

static int far_kill(struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err)
{
	return ask_plain(sb, PAI_CALL_KILL, 0, call, err);
}

static int far_pause(struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err)
{
	return ask_plain(sb, PAI_CALL_PAUSE, 0, call, err);
}

static int far_read_file(struct pai_sandbox *sb, const char *path, uint64_t max_bytes,
    const struct pai_call *call, bool *found, struct pai_buf *ret, struct pai_err *err)
{
	struct pai_call_request q = request_on(sb, PAI_CALL_READ_FILE);
	struct pai_far_reply reply = {0};
	size_t room = ret->max - ret->len;
	int r;

	room = room < PAI_CALL_FILE_MAX ? room : PAI_CALL_FILE_MAX;
	q.path = borrow(path);
	/* What the buffer has no room for needn't come. */
	q.number = max_bytes == UINT64_MAX && room == PAI_CALL_FILE_MAX ? UINT64_MAX
		   : max_bytes < room                                   ? max_bytes
									: room;
	reply.data.max = room;
	r = ask(far_of(sb->provider), &q, NULL, call, &reply, err);
	if (r < 0) {
		if (err->code == PAI_E_FILE_TOO_LARGE) {
			err->limit_bytes = max_bytes == UINT64_MAX ? err->limit_bytes : max_bytes;
		}
		return r;
	}
	if (ret->len == 0 && reply.data.len > 0) {
		size_t max = ret->max;

		pai_buf_fini(ret);
		*ret = reply.data;
		ret->max = max;
	} else {
		r = pai_buf_add(ret, reply.data.data, reply.data.len);
		pai_buf_fini(&reply.data);
	}
	if (r < 0) {
		return pai_err_no_memory(err);
	}
	*found = reply.result.found;
	return 0;
}

static int far_write_file(struct pai_sandbox *sb, const char *path, const void *data, size_t len,
    const struct pai_call *call, struct pai_err *err)
{
	struct pai_call_request q = request_on(sb, PAI_CALL_WRITE_FILE);
	struct pai_far_reply reply = {0};

	if (len > PAI_CALL_FILE_MAX) {
		return pai_err_limit(
		    err, PAI_E_FILE_TOO_LARGE, PAI_CALL_FILE_MAX, "what is to be written");
	}
	q.path = borrow(path);
	q.number = len;
	return ask(far_of(sb->provider), &q, data, call, &reply, err);
}

static int far_list_dir(struct pai_sandbox *sb, const char *path, const struct pai_call *call,
    bool *found, struct pai_dir_list *ret, struct pai_err *err)
{
	struct pai_call_request q = request_on(sb, PAI_CALL_LIST_DIR);
	struct pai_far_reply reply = {0};
	int r;

	q.path = borrow(path);
	r = ask(far_of(sb->provider), &q, NULL, call, &reply, err);
	if (r == 0) {
		*found = reply.result.found;
		*ret = reply.names;
	}
	return r;
}

/* Of this incarnation: another one under its id is another sandbox. */
static int open_to(struct pai_sandbox *sb, enum pai_channel_kind kind, const struct pai_call *call,
    int *ret_fd, struct pai_err *err)
{
	const struct pai_far_config *c = &far_of(sb->provider)->config;
	char name[PAI_LINK_SANDBOX_MAX + 1];
	int n = snprintf(name, sizeof(name), "%s/%s", sb->id, sb->incarnation);

	return c->open(c->arg, kind, (size_t)n < sizeof(name) ? name : sb->id, call, ret_fd, err);
}

static int far_open_exec(
    struct pai_sandbox *sb, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	return open_to(sb, PAI_CHANNEL_EXEC, call, ret_fd, err);
}

static int far_open_files(
    struct pai_sandbox *sb, const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	return open_to(sb, PAI_CHANNEL_FILES, call, ret_fd, err);
}

/* --- run() --- */

/* A line that ended may have ended with its sandbox: then that is the failure. */
static int prove(struct far_sandbox *sb, struct pai_err *err)
{
	const struct pai_call within = {.deadline_ms = pai_deadline_in(PROOF_MS)};
	struct pai_err why = PAI_ERR_INIT;

	if (err->code == PAI_E_UNAVAILABLE &&
	    ask_plain(&sb->base, PAI_CALL_KEEP_ALIVE, 1, &within, &why) < 0 &&
	    why.code == PAI_E_NOT_FOUND) {
		*err = why;
	}
	return -err->errnum;
}

static int far_run(struct pai_sandbox *base, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err)
{
	struct far_sandbox *sb = sandbox_of(base);
	struct pai_exec_line *l = NULL;
	int r = pai_exec_own_line(
	    &(struct pai_exec_own){&sb->base, -1, &sb->lock, &sb->line}, call, &l, err);

	if (err->code == PAI_E_UNSUPPORTED && r < 0) {
		return pai_err_set(
		    err, PAI_E_POLICY_MISMATCH, "no commands: the far side runs none");
	}
	r = r < 0 ? r : pai_exec_run(l, input, call, ret, err);
	pai_exec_line_unref(l);
	return r < 0 ? prove(sb, err) : 0;
}

static const struct pai_sandbox_ops far_sandbox_ops = {
    .free = far_sandbox_free,
    .run = far_run,
    .read_file = far_read_file,
    .write_file = far_write_file,
    .list_dir = far_list_dir,
    .keep_alive = far_keep_alive,
    .kill = far_kill,
    .pause = far_pause,
    .open_exec = far_open_exec,
    .open_files = far_open_files,
};
