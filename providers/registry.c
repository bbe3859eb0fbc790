/*
 * registry: from a provider's name to a provider. A built-in one is a plugin that is linked in, so
 * both kinds go through the same checks: interface number, then options against the plugin's table.
 *
 * A shared object stays loaded for the life of the process once it has been accepted: its code may
 * be on some thread's stack, and its option table is handed out.
 */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "providers/provider.h"
#include "providers/provider_ops.h"

static const struct pai_provider_plugin *const builtins[] = {
    &pai_docker_plugin,
    &pai_local_plugin,
    &pai_memory_plugin,
    &pai_ssh_plugin,
};

const char *const *pai_provider_names(void)
{
	static const char *const names[] = {"docker", "local", "memory", "ssh", NULL};

	return names;
}

static const struct pai_provider_plugin *find_builtin(const char *name)
{
	for (size_t i = 0; i < PAI_COUNT(builtins); i++) {
		if (strcmp(builtins[i]->name, name) == 0) {
			return builtins[i];
		}
	}
	return NULL;
}

static int load(const char *path, const struct pai_provider_plugin **ret, struct pai_err *err)
{
	const struct pai_provider_plugin *plugin;
	void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const char *why;

	if (!object) {
		why = dlerror();
		return pai_err_set(
		    err, PAI_E_INPUT, "can't load '%s': %s", path, why ? why : "no reason given");
	}
	plugin = dlsym(object, PAI_PROVIDER_PLUGIN_SYMBOL);
	if (!plugin) {
		(void)dlclose(object);
		return pai_err_set(err, PAI_E_INPUT,
		    "'%s' is no provider: it exports no '" PAI_PROVIDER_PLUGIN_SYMBOL "'", path);
	}
	if (plugin->abi != PAI_PROVIDER_ABI) {
		const uint32_t theirs = plugin->abi;

		(void)dlclose(object);
		return pai_err_set(err, PAI_E_INPUT,
		    "'%s' was built for provider interface %u, this program has %u: rebuild it",
		    path, theirs, (unsigned)PAI_PROVIDER_ABI);
	}
	if (!plugin->name || !plugin->open) {
		(void)dlclose(object);
		return pai_err_set(
		    err, PAI_E_INPUT, "'%s': the provider has no name or no open()", path);
	}
	*ret = plugin;
	return 0;
}

static int find(const char *name, const struct pai_provider_plugin **ret, struct pai_err *err)
{
	if (!name || !name[0]) {
		return pai_err_set(err, PAI_E_INPUT, "no provider was named");
	}
	if (strchr(name, '/')) {
		return load(name, ret, err);
	}
	*ret = find_builtin(name);
	if (!*ret) {
		return pai_err_set(err, PAI_E_INPUT,
		    "no provider '%s': expected docker, local, memory, ssh, or the path of a "
		    "shared "
		    "object "
		    "(with a '/')",
		    name);
	}
	return 0;
}

static int check_options(
    const struct pai_provider_plugin *plugin, const struct pai_strmap *options, struct pai_err *err)
{
	for (size_t i = 0; options && i < options->count; i++) {
		const char *key = options->entries[i].key;
		const struct pai_option_doc *doc = plugin->options;
		char known[160] = "";
		size_t used = 0;

		while (doc && doc->name && strcmp(doc->name, key) != 0) {
			int n = snprintf(known + used, sizeof(known) - used, "%s%s",
			    used ? ", " : "", doc->name);

			used = n > 0 && used + (size_t)n < sizeof(known) ? used + (size_t)n : used;
			doc++;
		}
		if (!doc || !doc->name) {
			return pai_err_set(err, PAI_E_INPUT,
			    "provider %s has no option '%s': expected %s", plugin->name, key,
			    used ? known : "none");
		}
	}
	return 0;
}

int pai_provider_open(const char *name, const struct pai_strmap *options, struct pai_provider **ret,
    struct pai_err *err)
{
	static const struct pai_strmap none = PAI_STRMAP_INIT;
	const struct pai_provider_plugin *plugin = NULL;
	struct pai_provider *p = NULL;
	int r = find(name, &plugin, err);

	if (r < 0) {
		return r;
	}
	r = check_options(plugin, options, err);
	if (r < 0) {
		return r;
	}
	r = plugin->open(options ? options : &none, &p, err);
	if (r != 0) {
		if (err->code == PAI_OK) {
			return pai_err_set(
			    err, PAI_E_INTERNAL, "provider %s failed without an error", name);
		}
		return pai_err_wrap(err, "%s", plugin->name);
	}
	if (!p || !p->ops || !p->ops->create || !p->ops->connect || !p->ops->list ||
	    !p->ops->free) {
		return pai_err_set(
		    err, PAI_E_INTERNAL, "provider %s lacks one of its calls", plugin->name);
	}
	*ret = p;
	return 0;
}

const struct pai_option_doc *pai_provider_option_docs(const char *name)
{
	const struct pai_provider_plugin *plugin = NULL;

	if (find(name, &plugin, PAI_ERR_IGNORED()) < 0) {
		return NULL;
	}
	return plugin->options;
}
