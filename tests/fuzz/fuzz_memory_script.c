/* Scripts of the memory provider: any text is a script or INPUT, and what was parsed can be used.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "providers/memory/script.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pai_script script = {0};
	struct pai_err err = PAI_ERR_INIT;
	struct pai_tree *tree;

	if (pai_script_parse(&script, (const char *)data, size, &err) < 0 &&
	    err.code != PAI_E_INPUT) {
		abort();
	}
	tree = pai_tree_new();
	for (size_t i = 0; tree && i < script.command_count; i++) {
		(void)pai_script_match(&script, script.commands[i].match);
		(void)!pai_script_apply(&script.commands[i].files, tree);
	}
	pai_tree_free(tree);
	pai_script_fini(&script);
	return 0;
}
