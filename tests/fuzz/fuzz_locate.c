/*
 * The mount table, whose mount points and sources other users choose, and the working directory.
 * Input: the path up to the first NUL, then the table.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "execshim/locate.h"
#include "providers/base/path.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct pai_err err = PAI_ERR_INIT;
	struct pai_place p;
	size_t len;

	if (!text) {
		return 0;
	}
	memcpy(text, data, size);
	text[size] = '\0';
	len = strlen(text);
	if (len < size && text[0] == '/') {
		struct pai_locate_input in = {
		    .table = text + len + 1, .mount_id = 40, .cwd = text, .uid = 1000};

		if (pai_locate_from(&in, &p, &err) == 1) {
			assert(pai_daemon_name_ok(p.daemon));
			assert(!p.key[0] == !p.cwd);
			assert(!p.cwd || pai_path_in_workspace(p.cwd));
			pai_place_fini(&p);
		}
	}
	free(text);
	return 0;
}
