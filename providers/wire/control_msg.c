/*
 * An EXEC carries the START of exec_msg.h as its tail, so that the two can't drift apart: whoever
 * passes the command on hands that tail's fields to the line as they are.
 *
 * EXEC:  str key, u8 flags (1 no_retry, 2 keeps_output, 4 pinned), u32 sid, u64 sid_started, str
 * cwd_environment, START's payload HELLO: u32 magic, u16 version, JSON
 */
#include "providers/wire/control_msg.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/key.h"

enum {
	FLAG_NO_RETRY = 1 << 0,
	FLAG_KEEPS_OUTPUT = 1 << 1,
	FLAG_PINNED = 1 << 2,
	FLAGS_KNOWN = FLAG_NO_RETRY | FLAG_KEEPS_OUTPUT | FLAG_PINNED,
};

void pai_control_exec_fini(struct pai_control_exec *e)
{
	free(e->key);
	e->key = NULL;
	pai_exec_start_fini(&e->start);
}

static int put_exec_head(struct pai_buf *out, const struct pai_control_exec *e)
{
	int flags = (e->no_retry ? FLAG_NO_RETRY : 0) | (e->keeps_output ? FLAG_KEEPS_OUTPUT : 0) |
		    (e->pinned ? FLAG_PINNED : 0);
	int r = pai_buf_put_bytes(out, e->key, strlen(e->key));

	r = r ? r : pai_buf_put_u8(out, (uint8_t)flags);
	r = r ? r : pai_buf_put_u32(out, e->caller_sid);
	r = r ? r : pai_buf_put_u64(out, e->caller_sid_started);
	r = r ? r : pai_buf_put_bytes(out, e->cwd_environment, strlen(e->cwd_environment));
	return r ? r : pai_buf_put_bytes(out, e->run, strlen(e->run));
}

int pai_control_put_exec(struct pai_buf *out, uint32_t id, const struct pai_control_exec *e)
{
	pai_auto_buf struct pai_buf start = PAI_BUF_INIT(PAI_FRAME_HEADER + PAI_FRAME_MAX);
	size_t before = out->len;
	ssize_t begun;
	int r = pai_exec_put_start(&start, id, &e->start);

	if (r < 0) {
		return r;
	}
	begun = pai_frame_begin(out, PAI_MSG_EXEC, id);
	if (begun < 0) {
		return (int)begun;
	}
	r = put_exec_head(out, e);
	r = r ? r : pai_buf_add(out, start.data + PAI_FRAME_HEADER, start.len - PAI_FRAME_HEADER);
	r = r ? r : pai_frame_end(out, begun);
	if (r < 0) {
		out->len = before;
		if (out->data) {
			out->data[before] = '\0';
		}
	}
	return r;
}

int pai_control_get_exec(struct pai_view payload, struct pai_control_exec *ret)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	struct pai_control_exec e = {.key = pai_get_str(&in, PAI_KEY_MAX)};
	uint8_t flags = pai_get_u8(&in);
	pai_auto_free char *environment = NULL;
	pai_auto_free char *run = NULL;
	int r;

	e.no_retry = flags & FLAG_NO_RETRY;
	e.keeps_output = flags & FLAG_KEEPS_OUTPUT;
	e.pinned = flags & FLAG_PINNED;
	e.caller_sid = pai_get_u32(&in);
	e.caller_sid_started = pai_get_u64(&in);
	environment = pai_get_str(&in, PAI_ENVIRONMENT_TAG);
	run = pai_get_str(&in, PAI_RUN_TEXT_MAX);
	if (in.bad || (flags & ~FLAGS_KNOWN) || !e.key || e.key[0] == '\0' || !environment ||
	    !run || (e.pinned && !environment[0])) {
		free(e.key);
		return -EPROTO;
	}
	(void)snprintf(e.cwd_environment, sizeof(e.cwd_environment), "%s", environment);
	(void)snprintf(e.run, sizeof(e.run), "%s", run);
	r = pai_exec_get_start(pai_get_rest(&in), &e.start);
	if (r < 0) {
		free(e.key);
		return r;
	}
	*ret = e;
	return 0;
}

int pai_control_put_hello(struct pai_buf *out, const char *json)
{
	pai_auto_buf struct pai_buf payload = PAI_BUF_INIT(PAI_CONTROL_JSON_MAX + 6);
	int r = pai_buf_put_u32(&payload, PAI_CONTROL_MAGIC);

	r = r ? r : pai_buf_put_u16(&payload, PAI_CONTROL_VERSION);
	r = r ? r : pai_buf_add_str(&payload, json);
	return r ? r : pai_frame_put(out, PAI_MSG_HELLO, 0, payload.data, payload.len);
}

int pai_control_get_hello(struct pai_view payload, uint16_t *version, struct pai_view *json)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	uint32_t magic = pai_get_u32(&in);
	uint16_t v = pai_get_u16(&in);
	struct pai_view rest = pai_get_rest(&in);

	if (in.bad || magic != PAI_CONTROL_MAGIC || v == 0 || rest.len > PAI_CONTROL_JSON_MAX) {
		return -EPROTO;
	}
	*version = v;
	*json = rest;
	return 0;
}

int pai_control_put_json(struct pai_buf *out, uint8_t type, uint32_t id, const char *json)
{
	size_t len = strlen(json);

	return len > PAI_CONTROL_JSON_MAX ? -EMSGSIZE : pai_frame_put(out, type, id, json, len);
}

#define NAME_MAX_BYTES 255u

int pai_control_put_entry(struct pai_buf *out, bool is_directory, const char *name)
{
	size_t before = out->len;
	int r = pai_buf_put_u8(out, is_directory);

	r = r ? r : pai_buf_put_bytes(out, name, strlen(name));
	if (r < 0) {
		out->len = before;
	}
	return r;
}

bool pai_control_get_entry(struct pai_reader *r, bool *is_directory, char **name)
{
	uint8_t kind;
	char *text;

	if (r->bad || r->at == r->end) {
		return false;
	}
	kind = pai_get_u8(r);
	text = pai_get_str(r, NAME_MAX_BYTES);
	if (r->bad || !text || kind > 1 || text[0] == '\0') {
		free(text);
		r->bad = true;
		return false;
	}
	*is_directory = kind;
	*name = text;
	return true;
}
