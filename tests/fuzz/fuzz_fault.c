/* Fault schedules: any text is one or INPUT, and a call through one ends. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/provider.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *schedule = strndup((const char *)data, size);
	struct pai_provider *inner = NULL;
	struct pai_provider *p = NULL;
	struct pai_err err = PAI_ERR_INIT;
	struct pai_call call = {.deadline_ms = pai_deadline_in(1)}; /* delays and hangs end here */

	if (!schedule || pai_provider_open("memory", NULL, &inner, &err) < 0) {
		abort();
	}
	if (pai_provider_fault(inner, schedule, &p, &err) < 0) {
		if (err.code != PAI_E_INPUT) {
			abort();
		}
	} else {
		(void)!pai_provider_probe(p, &call, PAI_ERR_IGNORED());
		pai_provider_free(p);
	}
	free(schedule);
	return 0;
}
