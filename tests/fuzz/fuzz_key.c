/* Any bytes as a file name in the mount: a name that is a key is that key's one name. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "providers/base/auto.h"
#include "providers/base/key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	pai_auto_free char *name = strndup((const char *)data, size);
	char key[PAI_KEY_MAX + 1];
	char back[PAI_KEY_NAME_MAX + 1];
	struct pai_err err = PAI_ERR_INIT;

	if (pai_key_from_name(name, key, &err) == 0) {
		assert(pai_key_check(key, &err) == 0);
		if (pai_key_to_name(key, back, &err) == 0) {
			assert(strcmp(back, name) == 0);
			assert(!strchr(back, '/') && back[0] != '.');
		} else {
			assert(strlen(name) > 255);
		}
	}
	/* The same bytes as a key. */
	if (pai_key_check(name, &err) == 0 && pai_key_to_name(name, back, &err) == 0) {
		assert(pai_key_from_name(back, key, &err) == 0 && strcmp(key, name) == 0);
	}
	return 0;
}
