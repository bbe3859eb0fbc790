/* Any bytes as a link's text in a sandbox: what is shown of it can't lead out of the session, and
 * stored again it is the same text. The first byte is the depth of the link. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "fusefs/internal.h"
#include "providers/base/auto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whatever the directories before a ".." really are. */
static void stays_inside(const char *text, int depth)
{
	bool named = false;

	assert(*text != '/');
	while (*text) {
		size_t len = strcspn(text, "/");

		if (len == 2 && memcmp(text, "..", 2) == 0) {
			assert(!named && depth-- > 0);
		} else if (len > 0 && !(len == 1 && *text == '.')) {
			named = true;
		}
		text += len;
		text += *text == '/';
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct pai_fs fs = {.options = {.symlinks = PAI_FS_SYMLINKS_GUARDED}};
	int depth = size > 0 ? data[0] % 16 : 0;
	/* No file system takes a longer text, or none. */
	pai_auto_free char *raw =
	    size > 1 ? strndup((const char *)data + 1, size - 1 < 4095 ? size - 1 : 4095) : NULL;
	pai_auto_free char *shown = NULL;
	pai_auto_free char *back = NULL;

	if (!raw || !*raw) {
		return 0;
	}
	assert(fs_link_show(&fs, raw, depth, &shown) == 0);
	stays_inside(shown, depth);
	assert(fs_link_store(&fs, shown, &back) == 0);
	assert(strcmp(back, raw) == 0);
	return 0;
}
