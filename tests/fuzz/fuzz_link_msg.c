/*
 * The first byte chooses the decoder of link_msg.h, the rest is its payload; what decodes must
 * encode to the very same bytes. Any other first byte: the rest is what comes before ATTACHED.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "providers/wire/link_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int again_opened(struct pai_buf *out, struct pai_view p)
{
	struct pai_err why;
	uint32_t window;
	int r = pai_link_get_opened(p, &window, &why);

	if (r < 0) {
		return r;
	}
	if (why.code == PAI_OK) {
		return pai_link_put_opened(out, 1, window);
	}
	/* Not canonical: an unknown errno name becomes EIO, a kind's errno is ours. */
	assert(why.code < PAI_E_COUNT && why.errnum > 0);
	r = pai_link_put_open_failed(out, 1, &why);
	assert(r == 0);
	return -1;
}

static int again(struct pai_buf *out, uint8_t type, struct pai_view p)
{
	struct pai_link_attach attach;
	struct pai_link_attached attached;
	struct pai_ch_open open;
	uint64_t count;
	uint32_t n;

	switch (type) {
	case PAI_MSG_LINK_ATTACH:
		return pai_link_get_attach(p, &attach) ? -1 : pai_link_put_attach(out, &attach);
	case PAI_MSG_LINK_ATTACHED:
		return pai_link_get_attached(p, &attached) ? -1
							   : pai_link_put_attached(out, &attached);
	case PAI_MSG_CH_OPEN:
		return pai_link_get_open(p, &open) ? -1 : pai_link_put_open(out, 1, &open);
	case PAI_MSG_CH_OPENED:
		return again_opened(out, p);
	case PAI_MSG_CH_CREDIT:
		return pai_link_get_credit(p, &n) ? -1 : pai_link_put_credit(out, 1, n);
	default:
		return pai_link_get_ack(p, &count) ? -1 : pai_link_put_ack(out, count);
	}
}

/* Whole, and byte by byte: the same answer at the same place. */
static void find(struct pai_view p)
{
	static const uint8_t challenge[PAI_LINK_CHALLENGE] = "0123456789abcdef";
	struct pai_buf in = {.data = (char *)(uintptr_t)p.data, .len = p.len};
	struct pai_link_attached a;
	size_t whole = 0;
	int r = pai_link_find_attached(&in, challenge, &whole, &a);
	int part = 0;
	size_t at = 0;

	assert(
	    r != 1 || (whole <= p.len && memcmp(a.challenge, challenge, sizeof(challenge)) == 0));
	if (p.len > 4096) {
		return;
	}
	for (in.len = 0; in.len <= p.len && part == 0; in.len++) {
		part = pai_link_find_attached(&in, challenge, &at, &a);
	}
	assert(part == r && (r != 1 || at == whole));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(PAI_FRAME_HEADER + PAI_FRAME_MAX);
	struct pai_view p = {.data = (const char *)data + 1, .len = size - 1};

	if (size == 0 || size > PAI_FRAME_MAX - PAI_FRAME_HEADER) {
		return 0;
	}
	if (data[0] < PAI_MSG_LINK_ATTACH || data[0] > PAI_MSG_LINK_ACK) {
		find(p);
	} else if (again(&out, data[0], p) == 0) {
		assert(out.len == PAI_FRAME_HEADER + p.len);
		assert(memcmp(out.data + PAI_FRAME_HEADER, p.data, p.len) == 0);
	}
	return 0;
}
