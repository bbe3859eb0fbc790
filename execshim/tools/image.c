#include "execshim/tools/image.h"

#include <stdint.h>
#include <string.h>

const char *pai_image_type(const char *data, size_t len)
{
	static const char png[] = "\x89PNG\r\n\x1a\n";
	static const char jpeg[] = "\xff\xd8\xff";

	return len >= sizeof(png) - 1 && memcmp(data, png, sizeof(png) - 1) == 0      ? "image/png"
	       : len >= sizeof(jpeg) - 1 && memcmp(data, jpeg, sizeof(jpeg) - 1) == 0 ? "image/jpeg"
										      : NULL;
}

int pai_image_base64(struct pai_buf *out, const char *data, size_t len)
{
	static const char digits[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *in = (const unsigned char *)data;
	int r = pai_buf_reserve(out, (len + 2) / 3 * 4);

	for (size_t i = 0; i < len && r == 0; i += 3) {
		size_t n = len - i < 3 ? len - i : 3;
		uint32_t v = (uint32_t)in[i] << 16 | (n > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
			     (n > 2 ? in[i + 2] : 0);
		const char four[] = {digits[v >> 18], digits[v >> 12 & 63],
		    n > 1 ? digits[v >> 6 & 63] : '=', n > 2 ? digits[v & 63] : '='};

		r = pai_buf_add(out, four, sizeof(four));
	}
	return r;
}
