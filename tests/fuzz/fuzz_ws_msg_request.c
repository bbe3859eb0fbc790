/*
 * What a server is told: HELLO (first byte 0) or a request's payload. What decodes must encode to
 * the very same bytes: the encoding is canonical.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "providers/wire/ws_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(PAI_FRAME_HEADER + PAI_FRAME_MAX);
	struct pai_view p = {.data = (const char *)data, .len = size};
	struct pai_ws_request got;
	struct pai_ws_hello hello;
	int r;

	if (size == 0 || size > PAI_FRAME_MAX - PAI_FRAME_HEADER) {
		return 0;
	}
	if (data[0] == 0) {
		p.data++;
		p.len--;
		r = pai_ws_get_hello(p, &hello);
		r = r ? r : pai_ws_put_hello(&out, &hello);
	} else {
		r = pai_ws_get_request(p, &got);
		if (r == 0) {
			r = pai_ws_put_request(&out, 1, &got.req);
			assert(r == 0);
			pai_ws_request_fini(&got);
		}
	}
	if (r == 0) {
		assert(out.len == PAI_FRAME_HEADER + p.len);
		assert(memcmp(out.data + PAI_FRAME_HEADER, p.data, p.len) == 0);
	}
	return 0;
}
