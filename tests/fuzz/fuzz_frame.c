/* The envelope over arbitrary bytes: never past the end, and peek agrees with next. */
#include <assert.h>
#include <stdint.h>

#include "providers/wire/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pai_buf in = {.data = (char *)(uintptr_t)data, .len = size};
	size_t at = 0;

	for (;;) {
		struct pai_frame frame = {0};
		struct pai_frame peeked = {0};
		size_t before = at;
		size_t len = 0;
		int p = pai_frame_peek(&in, at, &peeked, &len);
		int r = pai_frame_next(&in, &at, &frame);

		if (r <= 0) {
			assert(at == before && (r == 0 || p == r));
			return 0;
		}
		assert(p == 1 && at <= size && at == before + PAI_FRAME_HEADER + frame.payload.len);
		assert(peeked.type == frame.type && peeked.id == frame.id);
		assert(len == frame.payload.len && peeked.payload.len == len);
	}
}
