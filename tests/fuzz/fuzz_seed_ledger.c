/* Any bytes as /workspace/.pai/seed.json: never a failure; what is found is there, and what is
 * written of it is read again. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "ledger/seed_ledger.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	pai_auto_seed_ledger struct pai_seed_ledger l = {.records = NULL};
	pai_auto_seed_ledger struct pai_seed_ledger again = {.records = NULL};
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(PAI_SEED_LEDGER_MAX);
	struct pai_err err = PAI_ERR_INIT;

	assert(pai_seed_ledger_parse((const char *)data, size, &l, &err) == 0);
	assert(!pai_seed_ledger_find(&l, "/workspace/not-in-the-corpus"));
	assert(pai_seed_ledger_begin(&text) == 0);
	for (size_t i = 0; i < l.count; i++) {
		const struct pai_seed_record *found = pai_seed_ledger_find(&l, l.records[i].path);

		assert(found == &l.records[i]);
		assert(pai_seed_ledger_put(&text, l.records[i].path, l.records[i].version) == 0);
	}
	assert(pai_seed_ledger_end(&text) == 0);
	assert(pai_seed_ledger_parse(text.data, text.len, &again, &err) == 0);
	assert(again.count == l.count);
	return 0;
}
