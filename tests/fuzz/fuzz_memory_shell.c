/* Command lines of the memory provider's shell: any text ends with a status, within its bounds. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "providers/memory/shell.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OUTPUT_MAX (1u << 20)

struct host {
	size_t bytes;
	unsigned entered; /* the lock is taken once at a time and always given back */
};

static int enter(void *arg)
{
	struct host *h = arg;

	if (h->entered++) {
		abort();
	}
	return 0;
}

static void leave(void *arg)
{
	((struct host *)arg)->entered--;
}

static int emit(void *arg, enum pai_stream stream, const char *bytes, size_t len)
{
	struct host *h = arg;

	(void)stream, (void)bytes;
	h->bytes += len;
	return h->bytes > OUTPUT_MAX ? -1 : 0;
}

static int nap(void *arg, uint64_t ms)
{
	(void)arg;
	return ms > 1000 ? -1 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct pai_shell_host shell_host = {enter, leave, emit, nap};
	char *line = size <= 4096 ? strndup((const char *)data, size) : NULL;
	struct pai_tree *tree = pai_tree_new();
	struct host h = {0};

	if (line && tree) {
		int r = pai_shell_run(&shell_host, &h, tree, "/workspace", NULL, line);

		if (r > 255 || h.entered != 0) {
			abort();
		}
	}
	pai_tree_free(tree);
	free(line);
	return 0;
}
