/*
 * What a hostile helper answers: READY (first byte 0), a push (1), or a reply to the operation
 * that the reply itself names. What is taken stays within what was asked, and encodes to the very
 * same bytes, save for an errno whose name is unknown.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "providers/wire/ws_msg.h"

#define ASKED_BYTES 4096u
#define ASKED_ENTRIES 64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_same(const struct pai_buf *out, struct pai_view p)
{
	assert(out->len == PAI_FRAME_HEADER + p.len);
	assert(memcmp(out->data + PAI_FRAME_HEADER, p.data, p.len) == 0);
}

static void reply(struct pai_buf *out, struct pai_view p)
{
	struct pai_ws_entry known[4] = {{.name = "a"}, {.name = "b"}, {.name = "c"}, {.name = "d"}};
	struct pai_ws_req req = {.attr.mode = 0};
	uint32_t flags;
	int error;

	if (pai_ws_get_reply_head(p, &req.op, &error, &flags) < 0) {
		return;
	}
	if (req.op == PAI_WS_COMPARE) {
		req.in.known.entries = known;
		req.in.known.count = 4;
	} else if (req.op == PAI_WS_READDIR || req.op == PAI_WS_OPENDIR) {
		req.in.list.max = ASKED_ENTRIES;
	} else if (req.op == PAI_WS_OPEN) {
		req.in.open.head = PAI_WS_HEAD_BYTES;
	} else if (req.op == PAI_WS_COPY) {
		req.in.copy.len = ASKED_BYTES;
	} else {
		req.in.io.len = ASKED_BYTES;
	}
	if (pai_ws_get_reply(p, &req, &flags) < 0) {
		return;
	}
	assert(req.error == error);
	assert(req.out.count <= ASKED_ENTRIES && req.out.len <= PAI_WS_VALUE_BYTES);
	/* What a COMPARE says is as it was depends on what was known. */
	if (error == 0 && req.op != PAI_WS_COMPARE) {
		int r = pai_ws_put_reply(out, 1, &req, flags);

		assert(r == 0);
		expect_same(out, p);
	}
	free(req.out.data);
	free(req.out.memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(PAI_FRAME_HEADER + PAI_FRAME_MAX);
	struct pai_view p = {.data = (const char *)data + 1, .len = size - 1};
	struct pai_ws_pushed pushed;
	struct pai_ws_ready ready;

	if (size == 0 || size > PAI_WS_LISTING_BYTES) {
		return 0;
	}
	if (data[0] == 0) {
		if (pai_ws_get_ready(p, &ready) == 0) {
			assert(strlen(ready.message) <= 255);
		}
	} else if (data[0] == 1) {
		if (pai_ws_get_push(p, &pushed) == 0) {
			int r = pai_ws_put_push(&out, &pushed.push);

			assert(r == 0);
			expect_same(&out, p);
		}
	} else {
		reply(&out, p);
	}
	return 0;
}
