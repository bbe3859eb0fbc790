/* Any bytes as the output of a create program: refused as INPUT with nothing changed, or options
 * whose own labels they match. */
#include <assert.h>
#include <stdint.h>

#include "providers/session/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	pai_auto_create_options struct pai_create_options o = {.ttl_ms = 77};
	pai_auto_create_options struct pai_create_options copy = {.ttl_ms = 0};
	pai_auto_strmap struct pai_strmap labels = PAI_STRMAP_INIT;
	struct pai_err err = PAI_ERR_INIT;

	if (pai_create_options_parse(&o, (const char *)data, size, "paiSessionKey", &err) < 0) {
		assert(err.code == PAI_E_INPUT && o.ttl_ms == 77 && !o.template_name &&
		       o.metadata.count == 0 && o.allow_count == 0);
		return 0;
	}
	assert(pai_create_options_clone(&copy, &o, &err) == 0);
	assert(pai_create_options_label(&copy, "paiSessionKey", "k", &labels, &err) == 0);
	assert(pai_create_options_check(&o, "id", &labels, &err) == 0);
	return 0;
}
