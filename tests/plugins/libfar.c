/*
 * A provider that is any other one (-o over=NAME, its options passed on) at the far end of streams,
 * served by threads of this process: what the codec and both its ends are held to by conformance.
 */
#include <string.h>

#include "providers/helper/far.h"
#include "providers/helper/far_serve.h"

struct world {
	struct pai_provider *inner;
	struct pai_far_server *server;
};

static int open_stream(void *arg, enum pai_channel_kind kind, const char *sandbox,
    const struct pai_call *call, int *ret_fd, struct pai_err *err)
{
	const struct world *w = arg;

	return pai_far_server_open(w->server, kind, sandbox, call, ret_fd, err);
}

static void world_free(void *arg)
{
	struct world *w = arg;

	pai_far_server_free(w->server);
	pai_provider_free(w->inner);
	free(w);
}

static int open_inner(struct world *w, const struct pai_strmap *options, struct pai_err *err)
{
	pai_auto_strmap struct pai_strmap rest = PAI_STRMAP_INIT;
	const char *over = pai_strmap_get(options, "over");

	for (size_t i = 0; i < options->count; i++) {
		const struct pai_strmap_entry *e = &options->entries[i];

		if (strcmp(e->key, "over") != 0 && strcmp(e->key, "files") != 0 &&
		    pai_strmap_set(&rest, e->key, e->value) < 0) {
			return pai_err_no_memory(err);
		}
	}
	return pai_provider_open(over ? over : "local", &rest, &w->inner, err);
}

static int far_open(
    const struct pai_strmap *options, struct pai_provider **ret, struct pai_err *err)
{
	/* Commands of one without a supervisor have no way here: only its files are asked for. */
	const bool files_only = pai_strmap_get(options, "files") != NULL;
	struct world *w = calloc(1, sizeof(*w));
	struct pai_far_config config = {
	    .name = "far", .open = open_stream, .freed = world_free, .arg = w};
	int r = w ? open_inner(w, options, err) : pai_err_no_memory(err);

	r = r < 0 ? r : pai_far_server_new(w->inner, &w->server, err);
	if (r == 0) {
		config.caps = pai_provider_caps(w->inner);
		config.caps &= files_only ? ~(uint32_t)PAI_CAP_COMMANDS : ~0u;
		config.isolation = pai_provider_isolation(w->inner);
		r = pai_far_new(&config, ret, err);
	}
	if (r < 0 && w) {
		world_free(w);
	}
	return r;
}

static const struct pai_option_doc far_options[] = {
    {"over", "NAME: the provider at the far end (default local)"},
    {"files", "claim no commands"},
    {"root", "of local"},
    {"host_commands", "of local"},
    {NULL, NULL},
};

extern const struct pai_provider_plugin pai_provider_plugin;
const struct pai_provider_plugin pai_provider_plugin = {
    .abi = PAI_PROVIDER_ABI,
    .name = "far",
    .options = far_options,
    .open = far_open,
};
