#include "providers/wire/call_msg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/wire/err_msg.h"

#define NETWORK_LAST 2
#define NAME_MAX_BYTES 255u

void pai_call_request_fini(struct pai_call_request *r)
{
	struct pai_call_create *c = &r->create;

	free(r->sandbox_id);
	free(r->incarnation);
	free(r->path);
	pai_strmap_fini(&r->metadata);
	free(c->template_name);
	free(c->binding_key);
	pai_strmap_fini(&c->metadata);
	pai_strmap_fini(&c->env);
	for (size_t i = 0; i < c->allow_count; i++) {
		free(c->allow[i]);
	}
	free(c->allow);
	*r = (struct pai_call_request){0};
}

/* --- what an op carries --- */

enum carries {
	HAS_ID = 1 << 0,
	HAS_INCARNATION = 1 << 1,
	HAS_PATH = 1 << 2,
	HAS_NUMBER = 1 << 3,
	HAS_METADATA = 1 << 4,
	HAS_CREATE = 1 << 5,
};
#define HAS_SANDBOX (HAS_ID | HAS_INCARNATION)

/* -1: no such op. */
static int carried_by(enum pai_call_op op)
{
	switch (op) {
	case PAI_CALL_PROBE:
		return 0;
	case PAI_CALL_CREATE:
		return HAS_CREATE;
	case PAI_CALL_CONNECT:
		return HAS_ID;
	case PAI_CALL_LIST:
		return HAS_METADATA;
	case PAI_CALL_KEEP_ALIVE:
		return HAS_SANDBOX | HAS_NUMBER;
	case PAI_CALL_KILL:
	case PAI_CALL_PAUSE:
	case PAI_CALL_FORGET:
		return HAS_SANDBOX;
	case PAI_CALL_READ_FILE:
	case PAI_CALL_WRITE_FILE:
		return HAS_SANDBOX | HAS_PATH | HAS_NUMBER;
	case PAI_CALL_LIST_DIR:
		return HAS_SANDBOX | HAS_PATH;
	}
	return -1;
}

/* --- encoders --- */

static int put_str(struct pai_buf *out, const char *text)
{
	return pai_buf_put_bytes(out, text, strlen(text));
}

static int put_maybe(struct pai_buf *out, const char *text)
{
	int r = pai_buf_put_u8(out, text != NULL);

	return r || !text ? r : put_str(out, text);
}

static int put_map(struct pai_buf *out, const struct pai_strmap *m)
{
	int r = pai_buf_put_u32(out, (uint32_t)m->count);

	for (size_t i = 0; r == 0 && i < m->count; i++) {
		r = put_str(out, m->entries[i].key);
		r = r ? r : put_str(out, m->entries[i].value);
	}
	return r;
}

/* A frame is there whole or not at all. */
static int finish(struct pai_buf *out, size_t before, ssize_t begun, int r)
{
	r = r ? r : pai_frame_end(out, begun);
	if (r < 0) {
		out->len = before;
		if (out->data) {
			out->data[before] = '\0';
		}
	}
	return r;
}

static int put_head(struct pai_buf *out, uint32_t features)
{
	int r = pai_buf_put_u32(out, PAI_CALLS_MAGIC);

	r = r ? r : pai_buf_put_u16(out, PAI_CALLS_VERSION);
	return r ? r : pai_buf_put_u32(out, features);
}

int pai_calls_put_hello(struct pai_buf *out)
{
	size_t before = out->len;
	ssize_t begun = pai_frame_begin(out, PAI_MSG_CALLS_HELLO, 0);

	return begun < 0 ? (int)begun : finish(out, before, begun, put_head(out, 0));
}

int pai_calls_put_ready(struct pai_buf *out, const struct pai_calls_ready *ready)
{
	size_t before = out->len;
	ssize_t begun = pai_frame_begin(out, PAI_MSG_CALLS_READY, 0);
	int r;

	if (begun < 0) {
		return (int)begun;
	}
	r = put_head(out, ready->features);
	r = r ? r : pai_buf_put_u32(out, ready->caps);
	r = r ? r : put_str(out, ready->name);
	r = r ? r : put_str(out, ready->isolation);
	return finish(out, before, begun, r);
}

static int put_create(struct pai_buf *out, const struct pai_call_create *c)
{
	int r = put_maybe(out, c->template_name);

	r = r ? r : put_maybe(out, c->binding_key);
	r = r ? r : pai_buf_put_u64(out, c->ttl_ms);
	r = r ? r : put_map(out, &c->metadata);
	r = r ? r : put_map(out, &c->env);
	r = r ? r : pai_buf_put_u8(out, c->network);
	r = r ? r : pai_buf_put_u32(out, (uint32_t)c->allow_count);
	for (size_t i = 0; r == 0 && i < c->allow_count; i++) {
		r = put_str(out, c->allow[i]);
	}
	r = r ? r : pai_buf_put_u32(out, c->cpu_millis);
	r = r ? r : pai_buf_put_u64(out, c->memory_bytes);
	r = r ? r : pai_buf_put_u32(out, c->pids);
	return r ? r : pai_buf_put_u64(out, c->disk_bytes);
}

int pai_call_put_request(struct pai_buf *out, uint32_t id, const struct pai_call_request *q)
{
	size_t before = out->len;
	ssize_t begun = pai_frame_begin(out, PAI_MSG_CALL, id);
	int has = carried_by(q->op);
	int r;

	if (begun < 0) {
		return (int)begun;
	}
	r = pai_buf_put_u8(out, (uint8_t)q->op);
	r = r ? r : pai_buf_put_u64(out, q->within_ms);
	r = r || !(has & HAS_ID) ? r : put_str(out, q->sandbox_id);
	r = r || !(has & HAS_INCARNATION) ? r : put_str(out, q->incarnation);
	r = r || !(has & HAS_PATH) ? r : put_str(out, q->path);
	r = r || !(has & HAS_NUMBER) ? r : pai_buf_put_u64(out, q->number);
	r = r || !(has & HAS_METADATA) ? r : put_map(out, &q->metadata);
	r = r || !(has & HAS_CREATE) ? r : put_create(out, &q->create);
	return finish(out, before, begun, r);
}

int pai_call_put_sandbox(struct pai_buf *out, uint32_t id, const struct pai_call_sandbox *s)
{
	size_t before = out->len;
	ssize_t begun = pai_frame_begin(out, PAI_MSG_CALL_SANDBOX, id);
	int r;

	if (begun < 0) {
		return (int)begun;
	}
	r = put_str(out, s->id);
	r = r ? r : put_str(out, s->incarnation);
	r = r ? r : pai_buf_put_u8(out, s->paused);
	r = r ? r : pai_buf_put_u64(out, (uint64_t)s->created_wall_ms);
	r = r ? r : put_map(out, &s->metadata);
	return finish(out, before, begun, r);
}

int pai_call_put_name(struct pai_buf *names, bool is_directory, const char *name)
{
	size_t before = names->len;
	int r = pai_buf_put_u8(names, is_directory);

	r = r ? r : put_str(names, name);
	if (r < 0) {
		names->len = before;
	}
	return r;
}

int pai_call_put_done(struct pai_buf *out, uint32_t id, const struct pai_call_result *result)
{
	size_t before = out->len;
	ssize_t begun = pai_frame_begin(out, PAI_MSG_CALL_DONE, id);
	int r;

	if (begun < 0) {
		return (int)begun;
	}
	r = pai_buf_put_u8(out, 0);
	r = r ? r : pai_buf_put_u8(out, result->found);
	r = r ? r : put_str(out, result->sandbox.id);
	r = r ? r : put_str(out, result->sandbox.incarnation);
	r = r ? r : pai_buf_put_u32(out, result->sandbox.flags);
	return finish(out, before, begun, r);
}

int pai_call_put_failed(struct pai_buf *out, uint32_t id, const struct pai_err *why)
{
	size_t before = out->len;
	ssize_t begun = pai_frame_begin(out, PAI_MSG_CALL_DONE, id);
	int r;

	if (begun < 0) {
		return (int)begun;
	}
	r = pai_buf_put_u8(out, 1);
	r = r ? r : pai_wire_put_err(out, why);
	return finish(out, before, begun, r);
}

/* --- decoders --- */

/* Into a buffer of `max` + 1; a NUL inside is bad. */
static void get_text(struct pai_reader *in, char *out, size_t max)
{
	struct pai_view v = pai_get_bytes(in, max);

	if (v.len > 0 && memchr(v.data, '\0', v.len)) {
		in->bad = true;
		v.len = 0;
	}
	if (v.len > 0) {
		memcpy(out, v.data, v.len);
	}
	out[v.len] = '\0';
}

static uint8_t get_bool(struct pai_reader *in)
{
	uint8_t v = pai_get_u8(in);

	in->bad = in->bad || v > 1;
	return v;
}

/* -ENOMEM, or 0 with `bad` as it is. */
static int get_str(struct pai_reader *in, size_t max, char **ret)
{
	bool was_bad = in->bad;
	struct pai_reader look = *in;
	struct pai_view v = pai_get_bytes(&look, max);
	bool is_text = !look.bad && !(v.len > 0 && memchr(v.data, '\0', v.len));

	*ret = pai_get_str(in, max);
	return !was_bad && is_text && !*ret ? -ENOMEM : 0;
}

static int get_maybe(struct pai_reader *in, char **ret)
{
	return get_bool(in) && !in->bad ? get_str(in, PAI_CALL_TEXT_MAX, ret) : 0;
}

static int get_map(struct pai_reader *in, struct pai_strmap *ret)
{
	uint32_t count = pai_get_u32(in);

	if (count > PAI_STRMAP_MAX) {
		in->bad = true;
	}
	for (uint32_t i = 0; !in->bad && i < count; i++) {
		pai_auto_free char *key = NULL;
		pai_auto_free char *value = NULL;
		int r = get_str(in, PAI_FRAME_MAX, &key);

		r = r ? r : get_str(in, PAI_FRAME_MAX, &value);
		if (r < 0) {
			return r;
		}
		if (in->bad || pai_strmap_get(ret, key)) {
			in->bad = true;
			break;
		}
		r = pai_strmap_set(ret, key, value);
		if (r < 0) {
			return r;
		}
	}
	return 0;
}

static int get_allow(struct pai_reader *in, struct pai_call_create *c)
{
	uint32_t count = pai_get_u32(in);

	if (in->bad || count > PAI_CALL_ALLOW_MAX) {
		in->bad = true;
		return 0;
	}
	c->allow = calloc((size_t)count + 1, sizeof(*c->allow));
	if (!c->allow) {
		return -ENOMEM;
	}
	while (!in->bad && c->allow_count < count) {
		int r = get_str(in, PAI_CALL_TEXT_MAX, &c->allow[c->allow_count]);

		if (r < 0) {
			return r;
		}
		c->allow_count += !in->bad;
	}
	return 0;
}

static int get_create(struct pai_reader *in, struct pai_call_create *c)
{
	int r = get_maybe(in, &c->template_name);

	r = r ? r : get_maybe(in, &c->binding_key);
	c->ttl_ms = pai_get_u64(in);
	r = r ? r : get_map(in, &c->metadata);
	r = r ? r : get_map(in, &c->env);
	c->network = pai_get_u8(in);
	in->bad = in->bad || c->network > NETWORK_LAST;
	r = r ? r : get_allow(in, c);
	c->cpu_millis = pai_get_u32(in);
	c->memory_bytes = pai_get_u64(in);
	c->pids = pai_get_u32(in);
	c->disk_bytes = pai_get_u64(in);
	return r;
}

static int get_head(struct pai_reader *in, uint16_t *version, uint32_t *features)
{
	uint32_t magic = pai_get_u32(in);

	*version = pai_get_u16(in);
	*features = pai_get_u32(in);
	if (in->bad || magic != PAI_CALLS_MAGIC || *version == 0) {
		return -EPROTO;
	}
	return *version == PAI_CALLS_VERSION ? 0 : -EPROTONOSUPPORT;
}

int pai_calls_get_hello(struct pai_view payload, uint16_t *version)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	uint32_t features;
	int r = get_head(&in, version, &features);

	return r ? r : pai_reader_done(&in) ? 0 : -EPROTO;
}

int pai_calls_get_ready(struct pai_view payload, struct pai_calls_ready *ret)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	struct pai_calls_ready ready = {0};
	int r = get_head(&in, &ready.version, &ready.features);

	if (r == 0) {
		ready.caps = pai_get_u32(&in) & PAI_CALLS_CAP_ALL;
		get_text(&in, ready.name, sizeof(ready.name) - 1);
		get_text(&in, ready.isolation, sizeof(ready.isolation) - 1);
		r = pai_reader_done(&in) && ready.name[0] ? 0 : -EPROTO;
	}
	if (r != -EPROTO) {
		*ret = ready;
	}
	return r;
}

int pai_call_get_request(struct pai_view payload, struct pai_call_request *ret)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	PAI_AUTO(pai_call_request_fini)
	struct pai_call_request q = {.op = (enum pai_call_op)pai_get_u8(&in)};
	int has = carried_by(q.op);
	int r = 0;

	if (has < 0) {
		return -EPROTO;
	}
	q.within_ms = pai_get_u64(&in);
	r = r || !(has & HAS_ID) ? r : get_str(&in, PAI_CALL_ID_MAX, &q.sandbox_id);
	r = r || !(has & HAS_INCARNATION) ? r : get_str(&in, PAI_CALL_ID_MAX, &q.incarnation);
	r = r || !(has & HAS_PATH) ? r : get_str(&in, PAI_CALL_TEXT_MAX, &q.path);
	q.number = has & HAS_NUMBER ? pai_get_u64(&in) : 0;
	r = r || !(has & HAS_METADATA) ? r : get_map(&in, &q.metadata);
	r = r || !(has & HAS_CREATE) ? r : get_create(&in, &q.create);
	if (r < 0) {
		return r;
	}
	if (!pai_reader_done(&in) || (q.sandbox_id && !q.sandbox_id[0])) {
		return -EPROTO;
	}
	*ret = q;
	q = (struct pai_call_request){0};
	return 0;
}

int pai_call_get_sandbox(struct pai_view payload, struct pai_call_sandbox *ret)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	struct pai_call_sandbox s = {0};
	int r;

	get_text(&in, s.id, PAI_CALL_ID_MAX);
	get_text(&in, s.incarnation, PAI_CALL_ID_MAX);
	s.paused = get_bool(&in);
	s.created_wall_ms = (int64_t)pai_get_u64(&in);
	r = get_map(&in, &s.metadata);
	if (r == 0 && (!pai_reader_done(&in) || s.id[0] == '\0')) {
		r = -EPROTO;
	}
	if (r < 0) {
		pai_strmap_fini(&s.metadata);
		return r;
	}
	*ret = s;
	return 0;
}

int pai_call_get_name(struct pai_reader *in, bool *is_directory, char **name)
{
	uint8_t directory;
	char *text = NULL;
	int r;

	if (in->bad || in->at == in->end) {
		return in->bad ? -EPROTO : 0;
	}
	directory = get_bool(in);
	r = get_str(in, NAME_MAX_BYTES, &text);
	if (r < 0) {
		return r;
	}
	if (in->bad || text[0] == '\0' || strchr(text, '/') || strcmp(text, ".") == 0 ||
	    strcmp(text, "..") == 0) {
		free(text);
		in->bad = true;
		return -EPROTO;
	}
	*is_directory = directory;
	*name = text;
	return 1;
}

int pai_call_get_done(struct pai_view payload, struct pai_call_result *ret, struct pai_err *why)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	struct pai_call_result result = {0};
	struct pai_err err = PAI_ERR_INIT;
	uint8_t failed = get_bool(&in);

	if (failed) {
		pai_wire_get_err(&in, &err);
	} else {
		result.found = get_bool(&in);
		get_text(&in, result.sandbox.id, PAI_CALL_ID_MAX);
		get_text(&in, result.sandbox.incarnation, PAI_CALL_ID_MAX);
		result.sandbox.flags = pai_get_u32(&in);
	}
	if (!pai_reader_done(&in)) {
		return -EPROTO;
	}
	*ret = result;
	*why = err;
	return 0;
}
