/*
 * The first byte chooses the decoder of call_msg.h, the rest is its payload; what decodes must
 * encode to the very same bytes.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "providers/wire/call_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int again_ready(struct pai_buf *out, struct pai_view p)
{
	struct pai_calls_ready ready;
	int r = pai_calls_get_ready(p, &ready);

	if (r < 0) {
		return r;
	}
	assert(ready.name[0] && (ready.caps & ~(uint32_t)PAI_CALLS_CAP_ALL) == 0);
	r = pai_calls_put_ready(out, &ready);
	assert(r == 0);
	return -1; /* not canonical: unknown caps are dropped */
}

static int again_request(struct pai_buf *out, struct pai_view p)
{
	PAI_AUTO(pai_call_request_fini) struct pai_call_request q = {0};

	return pai_call_get_request(p, &q) ? -1 : pai_call_put_request(out, 1, &q);
}

static int again_sandbox(struct pai_buf *out, struct pai_view p)
{
	struct pai_call_sandbox s;
	int r;

	if (pai_call_get_sandbox(p, &s) < 0) {
		return -1;
	}
	r = pai_call_put_sandbox(out, 1, &s);
	pai_strmap_fini(&s.metadata);
	return r;
}

static int again_names(struct pai_buf *out, struct pai_view p)
{
	pai_auto_buf struct pai_buf names = PAI_BUF_INIT(PAI_FRAME_MAX);
	struct pai_reader in = pai_reader_init(p.data, p.len);
	bool is_directory;
	char *name;
	int r;

	while ((r = pai_call_get_name(&in, &is_directory, &name)) == 1) {
		assert(name[0] && !strchr(name, '/'));
		r = pai_call_put_name(&names, is_directory, name);
		assert(r == 0);
		free(name);
	}
	return r < 0 ? r : pai_frame_put(out, PAI_MSG_CALL_NAMES, 1, names.data, names.len);
}

static int again_done(struct pai_buf *out, struct pai_view p)
{
	struct pai_call_result result;
	struct pai_err why;
	int r = pai_call_get_done(p, &result, &why);

	if (r < 0) {
		return r;
	}
	if (why.code == PAI_OK) {
		return pai_call_put_done(out, 1, &result);
	}
	/* Not canonical: an unknown errno name becomes EIO, a kind's errno is ours. */
	assert(why.code < PAI_E_COUNT && why.errnum > 0);
	r = pai_call_put_failed(out, 1, &why);
	assert(r == 0);
	return -1;
}

static int again(struct pai_buf *out, uint8_t type, struct pai_view p)
{
	uint16_t version;

	switch (type) {
	case PAI_MSG_CALLS_HELLO:
		(void)!pai_calls_get_hello(p, &version);
		return -1; /* not canonical: features that are not known are ignored */
	case PAI_MSG_CALLS_READY:
		return again_ready(out, p);
	case PAI_MSG_CALL:
		return again_request(out, p);
	case PAI_MSG_CALL_SANDBOX:
		return again_sandbox(out, p);
	case PAI_MSG_CALL_NAMES:
		return again_names(out, p);
	default:
		return again_done(out, p);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(PAI_FRAME_HEADER + PAI_FRAME_MAX);
	struct pai_view p = {.data = (const char *)data + 1, .len = size - 1};

	if (size == 0 || size > PAI_FRAME_MAX - PAI_FRAME_HEADER) {
		return 0;
	}
	if (again(&out, data[0], p) == 0) {
		assert(out.len == PAI_FRAME_HEADER + p.len);
		assert(memcmp(out.data + PAI_FRAME_HEADER, p.data, p.len) == 0);
	}
	return 0;
}
