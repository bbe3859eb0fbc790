#include "providers/transport/mux.h"

#include <errno.h>
#include <string.h>

static size_t take_header(struct pai_mux *m, const char *data, size_t len)
{
	size_t n = PAI_MUX_HEADER - m->header_len;
	const unsigned char *h = m->header;

	n = n > len ? len : n;
	memcpy(m->header + m->header_len, data, n);
	m->header_len += n;
	if (m->header_len == PAI_MUX_HEADER) {
		m->left = (uint32_t)h[4] << 24 | (uint32_t)h[5] << 16 | (uint32_t)h[6] << 8 | h[7];
	}
	return n;
}

int pai_mux_take(struct pai_mux *m, const char *data, size_t len, pai_mux_fn fn, void *arg)
{
	while (len > 0) {
		const unsigned char *h = m->header;
		size_t n;
		int r = 0;

		if (m->header_len < PAI_MUX_HEADER) {
			n = take_header(m, data, len);
			if (m->header_len == PAI_MUX_HEADER &&
			    (h[0] > 2 || h[1] || h[2] || h[3] || m->left > PAI_MUX_FRAME_MAX)) {
				return -EPROTO;
			}
		} else {
			n = m->left > len ? len : m->left;
			r = fn(arg, h[0] == 2 ? 2 : 1, data, n);
			m->left -= (uint32_t)n;
		}
		if (m->header_len == PAI_MUX_HEADER && m->left == 0) {
			m->header_len = 0;
		}
		if (r < 0) {
			return r;
		}
		data += n;
		len -= n;
	}
	return 0;
}
