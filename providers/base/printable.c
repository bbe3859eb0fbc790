#include "providers/base/printable.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The widest unit: a bidirectional control of three bytes, each as \xNN. */
#define UNIT_MAX (4 * 4 + 1)

size_t pai_utf8_len(const char *data, size_t len)
{
	const uint8_t *p = (const uint8_t *)data;
	uint8_t low = 0x80; /* bounds of the second byte: no overlongs, surrogates, > U+10FFFF */
	uint8_t high = 0xBF;
	size_t want;

	if (len == 0) {
		return 0;
	}
	if (p[0] < 0x80) {
		return 1;
	}
	if (p[0] < 0xC2 || p[0] > 0xF4) {
		return 0;
	}
	want = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
	low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : low;
	high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : high;
	if (len < want || p[1] < low || p[1] > high) {
		return 0;
	}
	for (size_t i = 2; i < want; i++) {
		if ((p[i] & 0xC0) != 0x80) {
			return 0;
		}
	}
	return want;
}

bool pai_utf8_valid(const char *data, size_t len)
{
	while (len > 0) {
		size_t n = pai_utf8_len(data, len);

		if (n == 0) {
			return false;
		}
		data += n;
		len -= n;
	}
	return true;
}

static uint32_t decode(const char *data, size_t n)
{
	static const uint8_t lead_mask[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
	uint32_t c = (uint8_t)data[0] & lead_mask[n];

	for (size_t i = 1; i < n; i++) {
		c = c << 6 | ((uint8_t)data[i] & 0x3F);
	}
	return c;
}

static bool is_hidden(uint32_t c)
{
	static const struct {
		uint32_t first;
		uint32_t last;
	} hidden[] = {
	    {0x00, 0x1F},     /* C0 */
	    {0x7F, 0x9F},     /* DEL, C1 */
	    {0x061C, 0x061C}, /* Arabic letter mark */
	    {0x200E, 0x200F}, /* left-to-right and right-to-left mark */
	    {0x2028, 0x202E}, /* line, paragraph separator; embeddings and overrides */
	    {0x2066, 0x2069}, /* isolates */
	};

	for (size_t i = 0; i < PAI_COUNT(hidden); i++) {
		if (c >= hidden[i].first && c <= hidden[i].last) {
			return true;
		}
	}
	return false;
}

/* One character or bad byte to its printable form; *used is what it took. Returns its length. */
static size_t print_unit(const char *data, size_t len, char out[UNIT_MAX], size_t *used)
{
	size_t n = pai_utf8_len(data, len);
	size_t at = 0;

	*used = n > 0 ? n : 1;
	if (n > 0 && data[0] != '\\' && !is_hidden(decode(data, n))) {
		memcpy(out, data, n);
		return n;
	}
	if (data[0] == '\\') {
		memcpy(out, "\\\\", 2);
		return 2;
	}
	for (size_t i = 0; i < *used; i++) {
		at += (size_t)snprintf(out + at, UNIT_MAX - at, "\\x%02x", (uint8_t)data[i]);
	}
	return at;
}

int pai_printable_add(struct pai_buf *b, const char *data, size_t len)
{
	while (len > 0) {
		char unit[UNIT_MAX];
		size_t used;
		size_t n = print_unit(data, len, unit, &used);
		int r = pai_buf_add(b, unit, n);

		if (r < 0) {
			return r;
		}
		data += used;
		len -= used;
	}
	return 0;
}

const char *pai_printable_into(char *out, size_t cap, const char *data, size_t len)
{
	size_t at = 0;

	while (len > 0) {
		char unit[UNIT_MAX];
		size_t used;
		size_t n = print_unit(data, len, unit, &used);

		if (n >= cap - at) {
			break;
		}
		memcpy(out + at, unit, n);
		at += n;
		data += used;
		len -= used;
	}
	out[at] = '\0';
	return out;
}
