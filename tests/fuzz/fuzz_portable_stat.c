/*
 * What a sandbox prints for the STAT recipe. Whatever it is, only operands that were asked are
 * found, each once, and nothing in them is negative that may not be.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "providers/workspace/portable.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const operands[] = {"./x", "./a\nb", "./x y", "."};
	struct pai_ws_attr attrs[4];
	bool found[4] = {false};
	char *text = malloc(size + 1);
	int error;

	assert(text);
	memcpy(text, data, size);
	text[size] = '\0';
	error = pai_portable_parse_stat(text, operands, 4, attrs, found);
	assert(error == 0 || error == EPROTO);
	for (size_t i = 0; i < 4; i++) {
		assert(
		    !found[i] || (attrs[i].id.ino && attrs[i].size >= 0 && attrs[i].blocks >= 0));
	}
	free(text);
	return 0;
}
