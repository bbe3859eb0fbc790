/* Any bytes as the output of a create program: refused as INPUT with nothing changed, or options
 * whose own labels they match. And as what pai create gives of a key: refused as INPUT, or terms
 * that stay what they are when they are read again. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "providers/session/options.h"
#include "providers/session/terms.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_terms(const char *text)
{
	static const struct pai_terms_default d = {1, 2, "paiSessionKey", NULL};
	pai_auto_terms struct pai_terms given = {.text = NULL};
	pai_auto_terms struct pai_terms kept = {.text = NULL};
	pai_auto_terms struct pai_terms both = {.text = NULL};
	struct pai_err err = PAI_ERR_INIT;

	if (pai_terms_read(&given, NULL, text, &d, &err) < 0) {
		assert(err.code == PAI_E_INPUT && !given.key_metadata);
		return;
	}
	assert(given.keepalive_ttl_ms > 0 && given.create_timeout_ms > 0 && *given.key_metadata);
	if (!given.text) {
		return;
	}
	assert(pai_terms_read(&kept, given.text, NULL, &d, &err) == 0);
	assert(strcmp(kept.text, given.text) == 0);
	assert(pai_terms_read(&both, given.text, text, &d, &err) == 0);
	assert(both.create_timeout_ms == given.create_timeout_ms);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size);
	pai_auto_create_options struct pai_create_options o = {.ttl_ms = 77};
	pai_auto_create_options struct pai_create_options copy = {.ttl_ms = 0};
	pai_auto_strmap struct pai_strmap labels = PAI_STRMAP_INIT;
	struct pai_err err = PAI_ERR_INIT;

	if (text) {
		read_terms(text);
		free(text);
	}
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
