/*
 * provider_ops: what an implementer of a provider fills in. Callers include provider.h.
 *
 * The wrappers in provider.c check arguments that the contract itself forbids (empty binding key,
 * bad paths, zero limits: INPUT) and normalise paths and cwd (absolute, normalised, see path.h)
 * before a slot is called, and assert the outputs. A slot returns 0 or a negative errno with `err`
 * filled, and may be called from several threads at once. A NULL slot means what its comment says.
 */
#ifndef PAI_PROVIDERS_PROVIDER_OPS_H
#define PAI_PROVIDERS_PROVIDER_OPS_H

#include "providers/provider.h"

/* Raised whenever anything in this header or provider.h changes incompatibly. */
#define PAI_PROVIDER_ABI 2

struct pai_provider_ops {
	const char *name;
	/* NULL: answers OK. */
	int (*probe)(struct pai_provider *p, const struct pai_call *call, struct pai_err *err);
	int (*create)(struct pai_provider *p, const struct pai_create_input *input,
	    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err);
	int (*connect)(struct pai_provider *p, const char *sandbox_id, const struct pai_call *call,
	    struct pai_sandbox **ret, struct pai_err *err);
	/* `ret` is zeroed; on failure the wrapper frees what is in it. */
	int (*list)(struct pai_provider *p, const struct pai_strmap *metadata,
	    const struct pai_call *call, struct pai_sandbox_list *ret, struct pai_err *err);
	void (*free)(struct pai_provider *p);
	/* NULL: nothing. Never waits. */
	int (*describe)(struct pai_provider *p, struct pai_strmap *ret, struct pai_err *err);
};

struct pai_sandbox_ops {
	void (*free)(struct pai_sandbox *sb);
	int (*run)(struct pai_sandbox *sb, const struct pai_run_input *input,
	    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err);
	int (*read_file)(struct pai_sandbox *sb, const char *path, uint64_t max_bytes,
	    const struct pai_call *call, bool *found, struct pai_buf *ret, struct pai_err *err);
	int (*write_file)(struct pai_sandbox *sb, const char *path, const void *data, size_t len,
	    const struct pai_call *call, struct pai_err *err);
	int (*list_dir)(struct pai_sandbox *sb, const char *path, const struct pai_call *call,
	    bool *found, struct pai_dir_list *ret, struct pai_err *err);
	/* NULL: never expires. */
	int (*keep_alive)(struct pai_sandbox *sb, uint64_t ttl_ms, const struct pai_call *call,
	    struct pai_err *err);
	int (*kill)(struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err);
	/* NULL, here and below: UNSUPPORTED. */
	int (*pause)(struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err);
	int (*open_line)(struct pai_sandbox *sb, const char *const argv[],
	    const struct pai_call *call, int *ret_fd, struct pai_err *err);
	int (*host_files)(struct pai_sandbox *sb, const struct pai_call *call,
	    struct pai_host_files *ret, struct pai_err *err);
	int (*open_exec)(
	    struct pai_sandbox *sb, const struct pai_call *call, int *ret_fd, struct pai_err *err);
	int (*open_files)(
	    struct pai_sandbox *sb, const struct pai_call *call, int *ret_fd, struct pai_err *err);
};

/* Embedded first in the implementer's struct; filled before it is returned. */
struct pai_provider {
	const struct pai_provider_ops *ops;
	uint32_t caps;
	const char *isolation; /* static, or owned by the implementer */
};
struct pai_sandbox {
	const struct pai_sandbox_ops *ops;
	struct pai_provider *provider;
	char *id;          /* freed by the ops->free of the implementer */
	char *incarnation; /* as above */
	uint32_t flags;    /* enum pai_sandbox_flag; a decorator copies them */
	uint64_t hold_ms;  /* as pai_sandbox_hold_ms() says; a decorator copies it */
};

/* A provider in a shared object exports one symbol, `pai_provider_plugin`, of this type. */
struct pai_provider_plugin {
	uint32_t abi; /* PAI_PROVIDER_ABI */
	const char *name;
	const struct pai_option_doc *options;
	int (*open)(
	    const struct pai_strmap *options, struct pai_provider **ret, struct pai_err *err);
};
#define PAI_PROVIDER_PLUGIN_SYMBOL "pai_provider_plugin"

/* For the registry: built-in providers are plugins that are linked in. */
extern const struct pai_provider_plugin pai_memory_plugin;
extern const struct pai_provider_plugin pai_local_plugin;
extern const struct pai_provider_plugin pai_docker_plugin;
extern const struct pai_provider_plugin pai_ssh_plugin;

#endif
