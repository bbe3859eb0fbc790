/* `meta` lies where a sandbox with network full can write: what is read must be written again to
 * the same bytes, and so is all that there is. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "providers/local/local.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	pai_auto_buf struct pai_buf again = PAI_BUF_INIT(PAI_LOCAL_META_MAX);
	PAI_AUTO(pai_local_meta_fini) struct pai_local_meta m = {0};

	if (pai_local_meta_get((struct pai_view){(const char *)data, size}, &m) == 0 &&
	    size <= PAI_LOCAL_META_MAX) {
		int r = pai_local_meta_put(&again, &m);

		assert(r == 0 && again.len == size && memcmp(again.data, data, size) == 0);
	}
	return 0;
}
