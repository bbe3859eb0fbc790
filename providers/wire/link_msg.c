#include "providers/wire/link_msg.h"

#include <errno.h>
#include <string.h>

#include "providers/wire/err_msg.h"

/* What precedes the challenge in an ATTACHED: magic, version, features. */
#define HEAD_BYTES (4u + 2u + 4u)
#define ATTACHED_MAX 512u /* of its payload: the text is at most 255 bytes */

/* --- encoders --- */

static int put_head(struct pai_buf *out, uint16_t version, uint32_t features,
    const uint8_t challenge[PAI_LINK_CHALLENGE])
{
	int r = pai_buf_put_u32(out, PAI_LINK_MAGIC);

	r = r ? r : pai_buf_put_u16(out, version);
	r = r ? r : pai_buf_put_u32(out, features);
	return r ? r : pai_buf_add(out, challenge, PAI_LINK_CHALLENGE);
}

static int put_str(struct pai_buf *out, const char *text)
{
	return pai_buf_put_bytes(out, text, strlen(text));
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

int pai_link_put_attach(struct pai_buf *out, const struct pai_link_attach *a)
{
	size_t before = out->len;
	ssize_t begun = pai_frame_begin(out, PAI_MSG_LINK_ATTACH, 0);
	int r;

	if (begun < 0) {
		return (int)begun;
	}
	r = put_head(out, a->version, a->features, a->challenge);
	r = r ? r : put_str(out, a->client);
	r = r ? r : pai_buf_put_u64(out, a->epoch);
	r = r ? r : pai_buf_put_u64(out, a->link);
	r = r ? r : pai_buf_put_u64(out, a->received);
	r = r ? r : pai_buf_put_u32(out, a->silence_ms);
	r = r ? r : pai_buf_put_u32(out, a->grace_ms);
	return finish(out, before, begun, r);
}

int pai_link_put_attached(struct pai_buf *out, const struct pai_link_attached *a)
{
	size_t before = out->len;
	ssize_t begun = pai_frame_begin(out, PAI_MSG_LINK_ATTACHED, 0);
	int r;

	if (begun < 0) {
		return (int)begun;
	}
	r = put_head(out, a->version, a->features, a->challenge);
	r = r ? r : pai_buf_put_u8(out, (uint8_t)a->status);
	r = r ? r : put_str(out, a->text);
	r = r ? r : pai_buf_put_u64(out, a->epoch);
	r = r ? r : pai_buf_put_u64(out, a->link);
	r = r ? r : pai_buf_put_u64(out, a->received);
	r = r ? r : pai_buf_put_u64(out, (uint64_t)a->clock_ns);
	return finish(out, before, begun, r);
}

int pai_link_put_open(struct pai_buf *out, uint32_t id, const struct pai_ch_open *o)
{
	size_t before = out->len;
	ssize_t begun = pai_frame_begin(out, PAI_MSG_CH_OPEN, id);
	int r;

	if (begun < 0) {
		return (int)begun;
	}
	r = pai_buf_put_u8(out, (uint8_t)o->kind);
	r = r ? r : put_str(out, o->sandbox);
	r = r ? r : pai_buf_put_u32(out, o->window);
	r = r ? r : pai_buf_put_u32(out, o->within_ms);
	return finish(out, before, begun, r);
}

int pai_link_put_opened(struct pai_buf *out, uint32_t id, uint32_t window)
{
	size_t before = out->len;
	ssize_t begun = pai_frame_begin(out, PAI_MSG_CH_OPENED, id);
	int r;

	if (begun < 0) {
		return (int)begun;
	}
	r = pai_buf_put_u8(out, 0);
	r = r ? r : pai_buf_put_u32(out, window);
	return finish(out, before, begun, r);
}

int pai_link_put_open_failed(struct pai_buf *out, uint32_t id, const struct pai_err *why)
{
	size_t before = out->len;
	ssize_t begun = pai_frame_begin(out, PAI_MSG_CH_OPENED, id);
	int r;

	if (begun < 0) {
		return (int)begun;
	}
	r = pai_buf_put_u8(out, 1);
	r = r ? r : pai_wire_put_err(out, why);
	return finish(out, before, begun, r);
}

static int put_number(struct pai_buf *out, uint8_t type, uint32_t id, uint64_t value, size_t bytes)
{
	uint8_t le[8];

	for (size_t i = 0; i < bytes; i++) {
		le[i] = (uint8_t)(value >> (8 * i));
	}
	return pai_frame_put(out, type, id, le, bytes);
}

int pai_link_put_credit(struct pai_buf *out, uint32_t id, uint32_t bytes)
{
	return put_number(out, PAI_MSG_CH_CREDIT, id, bytes, sizeof(bytes));
}

int pai_link_put_ack(struct pai_buf *out, uint64_t received)
{
	return put_number(out, PAI_MSG_LINK_ACK, 0, received, sizeof(received));
}

int pai_link_put_empty(struct pai_buf *out, uint32_t id, uint8_t type)
{
	return pai_frame_put(out, type, id, NULL, 0);
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

static int get_head(struct pai_reader *in, uint16_t *version, uint32_t *features,
    uint8_t challenge[PAI_LINK_CHALLENGE])
{
	uint32_t magic = pai_get_u32(in);

	*version = pai_get_u16(in);
	*features = pai_get_u32(in);
	if (in->bad || magic != PAI_LINK_MAGIC || *version == 0 ||
	    (size_t)(in->end - in->at) < PAI_LINK_CHALLENGE) {
		return -EPROTO;
	}
	memcpy(challenge, in->at, PAI_LINK_CHALLENGE);
	in->at += PAI_LINK_CHALLENGE;
	return *version == PAI_LINK_VERSION ? 0 : -EPROTONOSUPPORT;
}

int pai_link_get_attach(struct pai_view payload, struct pai_link_attach *ret)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	struct pai_link_attach a = {0};
	int r = get_head(&in, &a.version, &a.features, a.challenge);

	if (r == 0) {
		get_text(&in, a.client, PAI_LINK_CLIENT_MAX);
		a.epoch = pai_get_u64(&in);
		a.link = pai_get_u64(&in);
		a.received = pai_get_u64(&in);
		a.silence_ms = pai_get_u32(&in);
		a.grace_ms = pai_get_u32(&in);
		if (!pai_reader_done(&in) || a.client[0] == '\0' || a.epoch == 0 ||
		    (a.link == 0 && a.received != 0) || a.silence_ms == 0 ||
		    a.silence_ms > PAI_LINK_TIME_MAX || a.grace_ms > PAI_LINK_TIME_MAX) {
			r = -EPROTO;
		}
	}
	if (r != -EPROTO) {
		*ret = a;
	}
	return r;
}

static bool attached_makes_sense(const struct pai_link_attached *a)
{
	switch (a->status) {
	case PAI_LINK_NEW:
		return a->link != 0 && a->received == 0;
	case PAI_LINK_RESUMED:
		return a->link != 0;
	case PAI_LINK_LOST:
	case PAI_LINK_STALE:
	case PAI_LINK_REFUSED:
		return a->link == 0 && a->received == 0;
	}
	return false;
}

int pai_link_get_attached(struct pai_view payload, struct pai_link_attached *ret)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	struct pai_link_attached a = {0};
	int r = get_head(&in, &a.version, &a.features, a.challenge);

	if (r == 0) {
		a.status = (enum pai_link_status_code)pai_get_u8(&in);
		get_text(&in, a.text, PAI_LINK_TEXT_MAX);
		a.epoch = pai_get_u64(&in);
		a.link = pai_get_u64(&in);
		a.received = pai_get_u64(&in);
		a.clock_ns = (int64_t)pai_get_u64(&in);
		r = pai_reader_done(&in) && attached_makes_sense(&a) ? 0 : -EPROTO;
	}
	if (r != -EPROTO) {
		*ret = a;
	}
	return r;
}

int pai_link_get_open(struct pai_view payload, struct pai_ch_open *ret)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	struct pai_ch_open o = {.kind = (enum pai_channel_kind)pai_get_u8(&in)};

	get_text(&in, o.sandbox, PAI_LINK_SANDBOX_MAX);
	o.window = pai_get_u32(&in);
	o.within_ms = pai_get_u32(&in);
	if (!pai_reader_done(&in) || o.kind < PAI_CHANNEL_FILES || o.kind > PAI_CHANNEL_CALLS ||
	    o.window == 0 || o.window > PAI_LINK_WINDOW_MAX) {
		return -EPROTO;
	}
	*ret = o;
	return 0;
}

int pai_link_get_opened(struct pai_view payload, uint32_t *window, struct pai_err *why)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	struct pai_err err = PAI_ERR_INIT;
	uint8_t failed = pai_get_u8(&in);
	uint32_t size = 0;

	if (failed == 1) {
		pai_wire_get_err(&in, &err);
	} else {
		size = pai_get_u32(&in);
	}
	if (!pai_reader_done(&in) || failed > 1 ||
	    (failed == 0 && (size == 0 || size > PAI_LINK_WINDOW_MAX))) {
		return -EPROTO;
	}
	*window = size;
	*why = err;
	return 0;
}

int pai_link_get_credit(struct pai_view payload, uint32_t *bytes)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	uint32_t n = pai_get_u32(&in);

	if (!pai_reader_done(&in) || n == 0) {
		return -EPROTO;
	}
	*bytes = n;
	return 0;
}

int pai_link_get_ack(struct pai_view payload, uint64_t *received)
{
	struct pai_reader in = pai_reader_init(payload.data, payload.len);
	uint64_t n = pai_get_u64(&in);

	if (!pai_reader_done(&in)) {
		return -EPROTO;
	}
	*received = n;
	return 0;
}

/* Whether an ATTACHED that echoes the challenge may begin at in[at..]; the challenge lies there. */
static bool begins_frame(const struct pai_buf *in, size_t at)
{
	struct pai_frame f;
	size_t len;

	if (pai_frame_peek(in, at, &f, &len) != 1 || f.type != PAI_MSG_LINK_ATTACHED || f.id != 0 ||
	    len > ATTACHED_MAX) {
		return false;
	}
	struct pai_reader r = pai_reader_init(f.payload.data, f.payload.len);

	return pai_get_u32(&r) == PAI_LINK_MAGIC && !r.bad;
}

int pai_link_find_attached(const struct pai_buf *in, const uint8_t challenge[PAI_LINK_CHALLENGE],
    size_t *at, struct pai_link_attached *ret)
{
	const size_t before = PAI_FRAME_HEADER + HEAD_BYTES;
	size_t from = *at;

	while (in->len - from >= before + PAI_LINK_CHALLENGE) {
		const char *found = memmem(in->data + from + before, in->len - from - before,
		    challenge, PAI_LINK_CHALLENGE);
		struct pai_frame f;
		size_t start;
		int r;

		if (!found) {
			break;
		}
		start = (size_t)(found - in->data) - before;
		if (!begins_frame(in, start)) {
			from = start + 1; /* an echo of what we sent */
			continue;
		}
		if (start - *at > PAI_LINK_BANNER_MAX) {
			return -EPROTO;
		}
		from = start;
		r = pai_frame_next(in, &from, &f);
		r = r == 1 ? pai_link_get_attached(f.payload, ret) : r;
		*at = r == 0 && from > start ? from : *at;
		return r < 0 ? r : from > start;
	}
	return in->len - *at > PAI_LINK_BANNER_MAX + before + ATTACHED_MAX ? -EPROTO : 0;
}
