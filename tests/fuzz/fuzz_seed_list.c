/* Any bytes as a seed list: what is taken of it keeps to the rules of its header. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "ledger/seed_list.h"
#include "providers/base/path.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_file(const struct pai_seed_file *f)
{
	const char *inside = pai_path_in_workspace(f->path);
	bool is_own = strncmp(f->path, "/workspace/.pai", 15) == 0;

	assert(inside && *inside && !strstr(f->path, "//") && !strstr(f->path, "/../"));
	assert(!is_own || (f->path[15] != '/' && f->path[15] != '\0'));
	assert(!!f->data + !!f->file_id + !!f->argv == 1);
	assert(strlen(f->version) <= PAI_SEED_ID_MAX + 7 && strchr(f->version, ':')[1]);
	assert(!f->argv || *f->argv[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	pai_auto_seed_list struct pai_seed_list l = {.files = NULL};
	struct pai_err err = PAI_ERR_INIT;

	if (pai_seed_list_parse((const char *)data, size, &l, &err) < 0) {
		assert(err.code == PAI_E_INPUT && !l.files);
		return 0;
	}
	for (size_t i = 0; i < l.count; i++) {
		assert(l.files[i].path);
		if (l.files[i].version) {
			check_file(&l.files[i]);
		} else {
			assert(l.invalid.code == PAI_E_INPUT);
		}
		for (size_t j = 0; j < i && i < 64; j++) {
			assert(strcmp(l.files[i].path, l.files[j].path) != 0);
		}
	}
	return 0;
}
