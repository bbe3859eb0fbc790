/*
 * broken: a provider with one fault, over memory, for the proof that the conformance suite can
 * fail. Each plugin has a table of faults, chosen by option `fault=NAME`; "none" has none. A fault
 * replaces slots or caps of the pass-through decorator. State is static: a case is a process.
 */
#ifndef PAI_TEST_BROKEN_H
#define PAI_TEST_BROKEN_H

#include <stdlib.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/wrap.h"

struct fault {
	const char *name;
	void (*inject)(struct pai_wrap *w);
};

static inline struct pai_provider *inner_of(struct pai_provider *p)
{
	return ((struct pai_wrap *)p)->inner;
}

static inline void broken_free(struct pai_wrap *w)
{
	pai_wrap_fini(w);
	free(w);
}

/* Memory, wrapped: what every provider of the tests begins with. */
static inline int wrap_memory(const struct pai_strmap *options, const struct pai_wrap_hooks *hooks,
    struct pai_wrap **ret, struct pai_err *err)
{
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
	pai_wrap_init(w, inner, hooks);
	*ret = w;
	return 0;
}

static inline int broken_open(const struct fault *faults, const struct pai_strmap *options,
    struct pai_provider **ret, struct pai_err *err)
{
	static const struct pai_wrap_hooks hooks = {.free = broken_free};
	const char *name = pai_strmap_get(options, "fault");
	struct pai_wrap *w = NULL;

	while (faults->name && (!name || strcmp(faults->name, name) != 0)) {
		faults++;
	}
	if (!faults->name && (!name || strcmp(name, "none") != 0)) {
		return pai_err_set(err, PAI_E_INPUT, "no fault '%s'", name ? name : "");
	}
	if (wrap_memory(NULL, &hooks, &w, err) < 0) {
		return -err->errnum;
	}
	if (faults->inject) {
		faults->inject(w);
	}
	*ret = &w->base;
	return 0;
}

#define BROKEN_PLUGIN(plugin_name, faults)                                                         \
	static int plugin_open(                                                                    \
	    const struct pai_strmap *options, struct pai_provider **ret, struct pai_err *err)      \
	{                                                                                          \
		return broken_open(faults, options, ret, err);                                     \
	}                                                                                          \
	static const struct pai_option_doc plugin_options[] = {                                    \
	    {"fault", "which promise to break"},                                                   \
	    {NULL, NULL},                                                                          \
	};                                                                                         \
	extern const struct pai_provider_plugin pai_provider_plugin;                               \
	const struct pai_provider_plugin pai_provider_plugin = {                                   \
	    .abi = PAI_PROVIDER_ABI,                                                               \
	    .name = plugin_name,                                                                   \
	    .options = plugin_options,                                                             \
	    .open = plugin_open,                                                                   \
	}

/* A fault that replaces one slot. */
#define BREAK_PROVIDER(fault_name, slot)                                                           \
	static void inject_##fault_name(struct pai_wrap *w)                                        \
	{                                                                                          \
		w->ops.slot = fault_name;                                                          \
	}
#define BREAK_SANDBOX(fault_name, slot)                                                            \
	static void inject_##fault_name(struct pai_wrap *w)                                        \
	{                                                                                          \
		w->sandbox_ops.slot = fault_name;                                                  \
	}
#define FAULT(fault_name)                                                                          \
	{                                                                                          \
#fault_name, inject_##fault_name                                                   \
	}

#define CREATE_ARGS                                                                                \
	struct pai_provider *p, const struct pai_create_input *input, const struct pai_call *call, \
	    struct pai_sandbox **ret, struct pai_err *err
#define CONNECT_ARGS                                                                               \
	struct pai_provider *p, const char *id, const struct pai_call *call,                       \
	    struct pai_sandbox **ret, struct pai_err *err
#define LIST_ARGS                                                                                  \
	struct pai_provider *p, const struct pai_strmap *metadata, const struct pai_call *call,    \
	    struct pai_sandbox_list *ret, struct pai_err *err
#define RUN_ARGS                                                                                   \
	struct pai_sandbox *sb, const struct pai_run_input *input, const struct pai_call *call,    \
	    struct pai_run_result *ret, struct pai_err *err
#define READ_ARGS                                                                                  \
	struct pai_sandbox *sb, const char *path, uint64_t max_bytes, const struct pai_call *call, \
	    bool *found, struct pai_buf *ret, struct pai_err *err
#define WRITE_ARGS                                                                                 \
	struct pai_sandbox *sb, const char *path, const void *data, size_t len,                    \
	    const struct pai_call *call, struct pai_err *err
#define LIST_DIR_ARGS                                                                              \
	struct pai_sandbox *sb, const char *path, const struct pai_call *call, bool *found,        \
	    struct pai_dir_list *ret, struct pai_err *err
#define SANDBOX_ARGS struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err
#define KEEP_ALIVE_ARGS                                                                            \
	struct pai_sandbox *sb, uint64_t ttl_ms, const struct pai_call *call, struct pai_err *err

/* The inner create, handed out as ours. */
static inline int forward_create(CREATE_ARGS)
{
	struct pai_sandbox *sb = NULL;
	int r = pai_provider_create(inner_of(p), input, call, &sb, err);

	return r < 0 ? r : pai_wrap_sandbox((struct pai_wrap *)p, sb, ret, err);
}

static inline int forward_connect(CONNECT_ARGS)
{
	struct pai_sandbox *sb = NULL;
	int r = pai_provider_connect(inner_of(p), id, call, &sb, err);

	return r < 0 || !sb ? r : pai_wrap_sandbox((struct pai_wrap *)p, sb, ret, err);
}

static inline int forward_run(RUN_ARGS)
{
	return pai_sandbox_run(pai_wrap_inner(sb), input, call, ret, err);
}

static inline int forward_read(READ_ARGS)
{
	return pai_sandbox_read_file(pai_wrap_inner(sb), path, max_bytes, call, found, ret, err);
}

static inline int forward_write(WRITE_ARGS)
{
	return pai_sandbox_write_file(pai_wrap_inner(sb), path, data, len, call, err);
}

static inline int forward_list_dir(LIST_DIR_ARGS)
{
	return pai_sandbox_list_dir(pai_wrap_inner(sb), path, call, found, ret, err);
}

#endif
