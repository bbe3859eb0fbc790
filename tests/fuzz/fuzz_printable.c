/* Any bytes, printed: clean UTF-8 without control characters, whole or cut at any size. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "providers/base/printable.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *out)
{
	assert(pai_utf8_valid(out, strlen(out)));
	for (const char *p = out; *p; p++) {
		assert((signed char)*p < 0 || (*p >= 0x20 && *p < 0x7F));
		assert(strncmp(p, "\xE2\x80\xAE", 3) != 0); /* the override */
		assert(strncmp(p, "\xC2\x9B", 2) != 0);     /* CSI */
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	pai_auto_buf struct pai_buf whole = PAI_BUF_INIT(SIZE_MAX - 1);
	char cut[32];

	assert(pai_printable_add(&whole, (const char *)data, size) == 0);
	check(whole.data ? whole.data : "");
	for (size_t cap = 1; cap <= sizeof(cut); cap++) {
		check(pai_printable_into(cut, cap, (const char *)data, size));
		assert(strncmp(cut, whole.data ? whole.data : "", strlen(cut)) == 0);
	}
	return 0;
}
