/* Docker's frames: whatever way the bytes are cut, the same comes out. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "providers/base/buf.h"
#include "providers/transport/mux.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct out {
	struct pai_buf text[2];
};

static int keep(void *arg, int stream, const char *data, size_t len)
{
	struct out *o = arg;

	assert(stream == 1 || stream == 2);
	return pai_buf_add(&o->text[stream - 1], data, len);
}

static void same(const struct pai_buf *a, const struct pai_buf *b)
{
	assert(a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct out whole = {{PAI_BUF_INIT(1u << 20), PAI_BUF_INIT(1u << 20)}};
	struct out cut = {{PAI_BUF_INIT(1u << 20), PAI_BUF_INIT(1u << 20)}};
	struct pai_mux a = {.header_len = 0};
	struct pai_mux b = {.header_len = 0};
	int r = pai_mux_take(&a, (const char *)data, size, keep, &whole);
	int again = 0;

	for (size_t i = 0; i < size && again == 0; i++) {
		again = pai_mux_take(&b, (const char *)data + i, 1, keep, &cut);
	}
	assert(r == again);
	for (int i = 0; i < 2; i++) {
		same(&whole.text[i], &cut.text[i]);
		pai_buf_fini(&whole.text[i]);
		pai_buf_fini(&cut.text[i]);
	}
	return 0;
}
