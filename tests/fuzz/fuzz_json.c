/* Any bytes as JSON: what is accepted prints, and its print is accepted and prints the same. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "providers/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	pai_auto_json struct pai_json *j = NULL;
	pai_auto_json struct pai_json *again = NULL;
	pai_auto_free char *text = NULL;
	pai_auto_free char *same = NULL;
	struct pai_err err = PAI_ERR_INIT;

	if (pai_json_parse((const char *)data, size, 16, &j, &err) < 0) {
		assert(err.code == PAI_E_PROTOCOL && !j);
		return 0;
	}
	(void)pai_json_to_err(j, &err);
	text = pai_json_print(j, false);
	assert(text && pai_json_parse(text, strlen(text), 16, &again, &err) == 0);
	same = pai_json_print(again, false);
	assert(same && strcmp(text, same) == 0);
	return 0;
}
