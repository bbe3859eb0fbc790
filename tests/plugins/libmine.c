/* A provider of somebody else's: memory under another name. What a shared object must export. */
#include <stdlib.h>

#include "providers/wrap.h"

static void mine_free(struct pai_wrap *w)
{
	pai_wrap_fini(w);
	free(w);
}

static int mine_open(
    const struct pai_strmap *options, struct pai_provider **ret, struct pai_err *err)
{
	static const struct pai_wrap_hooks hooks = {.free = mine_free};
	struct pai_provider *inner = NULL;
	struct pai_wrap *w;

	if (pai_provider_open("memory", options, &inner, err) < 0) {
		return -err->errnum;
	}
	w = calloc(1, sizeof(*w));
	if (!w) {
		pai_provider_free(inner);
		return pai_err_no_memory(err);
	}
	pai_wrap_init(w, inner, &hooks);
	w->ops.name = "mine";
	*ret = &w->base;
	return 0;
}

static const struct pai_option_doc mine_options[] = {
    {"script", "as memory's"},
    {NULL, NULL},
};
extern const struct pai_provider_plugin pai_provider_plugin;
const struct pai_provider_plugin pai_provider_plugin = {
    .abi = PAI_PROVIDER_ABI,
    .name = "mine",
    .options = mine_options,
    .open = mine_open,
};
