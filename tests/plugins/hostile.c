/* A provider whose errors say every byte that there is: what our programs make of them. Sandboxes
 * of keys that begin with "said" can't be made; it can't be probed at all. */
#include <stdlib.h>
#include <string.h>

#include "providers/wrap.h"

static int fail(struct pai_err *err)
{
	char all[256];

	for (int i = 0; i < 255; i++) {
		all[i] = (char)(i + 1);
	}
	all[255] = '\0';
	return pai_err_unavailable(err, PAI_REASON_BACKEND, "id\033[7m", "\033[2J%s", all);
}

static int before(struct pai_wrap *w, const struct pai_wrap_event *e, struct pai_err *err)
{
	const char *key = e->create ? e->create->binding_key : NULL;

	(void)w;
	return e->call == PAI_WRAP_PROBE || (key && strncmp(key, "said", 4) == 0) ? fail(err) : 0;
}

static void hostile_free(struct pai_wrap *w)
{
	pai_wrap_fini(w);
	free(w);
}

static int hostile_open(
    const struct pai_strmap *options, struct pai_provider **ret, struct pai_err *err)
{
	static const struct pai_wrap_hooks hooks = {.before = before, .free = hostile_free};
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
	w->ops.name = "hostile";
	*ret = &w->base;
	return 0;
}

extern const struct pai_provider_plugin pai_provider_plugin;
const struct pai_provider_plugin pai_provider_plugin = {
    .abi = PAI_PROVIDER_ABI,
    .name = "hostile",
    .open = hostile_open,
};
