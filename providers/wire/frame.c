#include "providers/wire/frame.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define LENGTH_BYTES 4u
#define INNER_BYTES (PAI_FRAME_HEADER - LENGTH_BYTES) /* type and id: length counts them */

void pai_frame_header(char out[PAI_FRAME_HEADER], uint8_t type, uint32_t id, size_t payload_len)
{
	uint32_t length = htole32((uint32_t)(payload_len + INNER_BYTES));
	uint32_t id_le = htole32(id);

	memcpy(out, &length, sizeof(length));
	out[LENGTH_BYTES] = (char)type;
	memcpy(out + LENGTH_BYTES + 1, &id_le, sizeof(id_le));
}

int pai_frame_put(struct pai_buf *out, uint8_t type, uint32_t id, const void *payload, size_t len)
{
	char header[PAI_FRAME_HEADER];
	int r;

	if (len > PAI_FRAME_MAX - INNER_BYTES) {
		return -EMSGSIZE;
	}
	r = pai_buf_reserve(out, sizeof(header) + len);
	if (r < 0) {
		return r;
	}
	pai_frame_header(header, type, id, len);
	r = pai_buf_add(out, header, sizeof(header));
	return r ? r : pai_buf_add(out, payload, len);
}

ssize_t pai_frame_begin(struct pai_buf *out, uint8_t type, uint32_t id)
{
	size_t at = out->len;
	int r = pai_frame_put(out, type, id, NULL, 0);

	return r < 0 ? r : (ssize_t)at;
}

int pai_frame_end(struct pai_buf *out, ssize_t begun)
{
	size_t length = out->len - (size_t)begun - LENGTH_BYTES;
	uint32_t length_le = htole32((uint32_t)length);

	if (length > PAI_FRAME_MAX) {
		return -EMSGSIZE;
	}
	memcpy(out->data + begun, &length_le, sizeof(length_le));
	return 0;
}

int pai_frame_peek(const struct pai_buf *in, size_t at, struct pai_frame *ret, size_t *payload_len)
{
	struct pai_reader r = pai_reader_init(in->data ? in->data + at : "", in->len - at);
	uint32_t length = pai_get_u32(&r);

	if (r.bad) {
		return 0;
	}
	if (length < INNER_BYTES || length > PAI_FRAME_MAX) {
		return -EPROTO;
	}
	ret->type = pai_get_u8(&r);
	ret->id = pai_get_u32(&r);
	if (r.bad) {
		return 0;
	}
	ret->payload = pai_get_rest(&r);
	*payload_len = length - INNER_BYTES;
	if (ret->payload.len > *payload_len) {
		ret->payload.len = *payload_len;
	}
	return 1;
}

int pai_frame_next(const struct pai_buf *in, size_t *at, struct pai_frame *ret)
{
	struct pai_frame frame;
	size_t payload_len;
	int r = pai_frame_peek(in, *at, &frame, &payload_len);

	if (r <= 0 || frame.payload.len < payload_len) {
		return r < 0 ? r : 0;
	}
	*ret = frame;
	*at += PAI_FRAME_HEADER + payload_len;
	return 1;
}

/* How many bytes of its first frame have yet to come, as far as is known; or -EPROTO. */
static ssize_t missing(const struct pai_buf *rest)
{
	struct pai_frame f;
	size_t len;
	int r = pai_frame_peek(rest, 0, &f, &len);

	if (r == 0) {
		return (ssize_t)(PAI_FRAME_HEADER - rest->len);
	}
	return r < 0 ? r : (ssize_t)(PAI_FRAME_HEADER + len - rest->len);
}

/* Moves what the frame that has begun lacks; hands it on when it is whole. */
static int feed_rest(struct pai_buf *rest, struct pai_view *bytes,
    int (*take)(void *arg, const struct pai_frame *f), void *arg)
{
	ssize_t lacks = missing(rest);
	size_t n = lacks > 0 && (size_t)lacks < bytes->len ? (size_t)lacks : bytes->len;
	struct pai_frame f;
	size_t at = 0;
	int r = lacks < 0 ? (int)lacks : pai_buf_reserve(rest, (size_t)lacks);

	r = r < 0 ? r : pai_buf_add(rest, bytes->data, n);
	r = r < 0 ? r : pai_frame_next(rest, &at, &f);
	if (r == 1) {
		r = take(arg, &f);
		pai_buf_clear(rest);
	}
	bytes->data += n;
	bytes->len -= n;
	return r;
}

int pai_frame_feed(struct pai_buf *rest, struct pai_view bytes,
    int (*take)(void *arg, const struct pai_frame *f), void *arg)
{
	int r = 0;

	while (bytes.len > 0 && r >= 0) {
		const struct pai_buf there = {
		    .data = (char *)(uintptr_t)bytes.data, .len = bytes.len, .max = bytes.len};
		struct pai_frame f;
		size_t at = 0;

		if (rest->len > 0) {
			r = feed_rest(rest, &bytes, take, arg);
			continue;
		}
		r = pai_frame_next(&there, &at, &f);
		if (r == 0) {
			return pai_buf_add(rest, bytes.data, bytes.len);
		}
		r = r == 1 ? take(arg, &f) : r;
		bytes.data += at;
		bytes.len -= at;
	}
	return r < 0 ? r : 0;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

int pai_frame_walk(struct pai_frame_walk *w, struct pai_view *bytes, struct pai_frame *ret)
{
	const struct pai_buf header = {.data = w->header, .len = PAI_FRAME_HEADER};
	size_t n = least(w->payload_left, bytes->len);
	int r;

	w->payload_left -= n;
	bytes->data += n;
	bytes->len -= n;
	n = least(PAI_FRAME_HEADER - w->header_len, bytes->len);
	if (n > 0) {
		memcpy(w->header + w->header_len, bytes->data, n);
	}
	w->header_len += n;
	bytes->data += n;
	bytes->len -= n;
	if (w->header_len < PAI_FRAME_HEADER) {
		return 0;
	}
	w->header_len = 0;
	r = pai_frame_peek(&header, 0, ret, &w->payload_left);
	return r < 0 ? r : 1;
}
