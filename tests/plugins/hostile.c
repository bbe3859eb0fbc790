/* A provider whose errors say every byte that there is: what our programs make of them. Sandboxes
 * of keys that begin with "said" can't be made; it can't be probed at all. */
#include "tests/plugins/broken.h"

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

static int hostile_open(
    const struct pai_strmap *options, struct pai_provider **ret, struct pai_err *err)
{
	static const struct pai_wrap_hooks hooks = {.before = before, .free = broken_free};
	struct pai_wrap *w = NULL;

	if (wrap_memory(options, &hooks, &w, err) < 0) {
		return -err->errnum;
	}
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
