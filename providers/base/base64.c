#include "providers/base/base64.h"

#include <errno.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int pai_base64_encode(struct pai_buf *b, const void *data, size_t len)
{
	const unsigned char *in = data;

	for (size_t i = 0; i < len; i += 3) {
		size_t n = len - i < 3 ? len - i : 3;
		uint32_t bits = (uint32_t)in[i] << 16 | (n > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
				(n > 2 ? in[i + 2] : 0);
		char group[4] = {digits[bits >> 18], digits[bits >> 12 & 63],
		    n > 1 ? digits[bits >> 6 & 63] : '=', n > 2 ? digits[bits & 63] : '='};
		int r = pai_buf_add(b, group, sizeof(group));

		if (r) {
			return r;
		}
	}
	return 0;
}

/* Four digits; how many bytes they are. */
static int take_group(const char group[4], unsigned char out[3])
{
	int count = group[3] != '=' ? 3 : group[2] != '=' ? 2 : 1;
	uint32_t bits = 0;

	for (int i = 0; i < 4; i++) {
		const char *at = i <= count ? strchr(digits, group[i]) : digits;

		if (!at || !*at || (i > count && group[i] != '=')) {
			return -EINVAL;
		}
		bits = bits << 6 | (uint32_t)(at - digits);
	}
	out[0] = (unsigned char)(bits >> 16);
	out[1] = (unsigned char)(bits >> 8);
	out[2] = (unsigned char)bits;
	return count;
}

int pai_base64_decode(struct pai_buf *b, const char *text, size_t len)
{
	char group[4];
	size_t have = 0;
	bool ended = false;

	for (size_t i = 0; i < len; i++) {
		unsigned char out[3];
		int n;
		int r;

		if (text[i] == '\n' || text[i] == '\r') {
			continue;
		}
		group[have++] = text[i];
		if (have < sizeof(group)) {
			continue;
		}
		n = ended ? -EINVAL : take_group(group, out);
		r = n < 0 ? n : pai_buf_add(b, out, (size_t)n);
		if (r) {
			return r;
		}
		ended = n < 3;
		have = 0;
	}
	return have ? -EINVAL : 0;
}
