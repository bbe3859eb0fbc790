/*
 * provider: whoever makes sandboxes, as callers see it (seed: SandboxProvider, SandboxSession).
 * A *provider* makes *sandboxes*; implementers include provider_ops.h instead.
 *
 * Calls block, take an absolute deadline and a cancel token (struct pai_call), and may be made from
 * any thread, several at once, except _free. Arguments are borrowed for the call. Expected misses
 * are a NULL or `found = false` with return 0; failures are one of the contract's kinds (err.h).
 *
 * Paths: `/workspace` names the workspace on every provider; a relative path and a relative cwd
 * resolve against it (path.h); a path outside it is the provider's to serve or refuse (INPUT).
 */
#ifndef PAI_PROVIDERS_PROVIDER_H
#define PAI_PROVIDERS_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "providers/base/buf.h"
#include "providers/base/cancel.h"
#include "providers/base/err.h"
#include "providers/base/strmap.h"

struct pai_provider; /* opaque */
struct pai_sandbox;  /* opaque; one live sandbox: the seed's SandboxSession */

enum pai_cap {
	PAI_CAP_BINDING_KEYS = 1 << 0,      /* at most one live sandbox per key, in this process */
	PAI_CAP_BINDING_PROCESSES = 1 << 1, /* ... and among processes */
	PAI_CAP_PAUSE = 1 << 2,
	PAI_CAP_COMMANDS = 1 << 3,     /* run() may work, as configured */
	PAI_CAP_DURABLE = 1 << 4,      /* sandboxes outlive the process that made them */
	PAI_CAP_ISOLATED = 1 << 5,     /* network none is enforced */
	PAI_CAP_FULL_NETWORK = 1 << 6, /* full may be asked for */
	PAI_CAP_ALLOWLIST = 1 << 7,
	PAI_CAP_POSIX_SHELL = 1 << 8, /* commands are run by a POSIX sh */
	PAI_CAP_ALONE = 1 << 9,       /* only the holder can start processes in the sandbox */
};

enum pai_network_access {
	PAI_NETWORK_NONE, /* the default, enforced or refused (POLICY_MISMATCH) */
	PAI_NETWORK_ALLOWLIST,
	PAI_NETWORK_FULL,
};
struct pai_network {
	enum pai_network_access access;
	const char *const *allow; /* domains, IPs, CIDRs; ALLOWLIST only */
	size_t allow_count;
};
struct pai_resources { /* 0: the provider's own */
	uint32_t cpu_millis;
	uint64_t memory_bytes;
	uint32_t pids;
	uint64_t disk_bytes;
};
struct pai_create_input {
	const char *template_name; /* NULL: the provider's default */
	uint64_t ttl_ms;           /* 0: the provider's default (local, memory: no deadline) */
	const struct pai_strmap *metadata; /* NULL: none, here and below */
	/* At most one live sandbox per key: create returns the one already bound and ignores the
	 * rest of this input. NULL: not bound. "" is INPUT. Ignored where PAI_CAP_BINDING_KEYS is
	 * not claimed. */
	const char *binding_key;
	const struct pai_strmap *env;
	struct pai_network network;
	struct pai_resources resources;
};
enum pai_sandbox_state {
	PAI_SANDBOX_RUNNING,
	PAI_SANDBOX_PAUSED,
};
struct pai_sandbox_info {
	char *sandbox_id;
	/* What tells this environment from another: with sandbox_id it is the identity. From the
	 * provider (a nonce, a pod's UID), "" where list() can't tell. */
	char *incarnation;
	struct pai_strmap metadata;
	enum pai_sandbox_state state;
	int64_t created_wall_ms; /* 0: unknown */
};
struct pai_sandbox_list {
	struct pai_sandbox_info *items;
	size_t count;
};
void pai_sandbox_list_fini(struct pai_sandbox_list *l);
#define pai_auto_sandbox_list PAI_AUTO(pai_sandbox_list_fini)

/* --- provider --- */

const char *pai_provider_name(const struct pai_provider *p);
/* Of one that is elsewhere they may become fewer once it has been reached; so may isolation change.
 */
uint32_t pai_provider_caps(const struct pai_provider *p);
/* One line for people: what separates its commands from the host ("nothing", ...). */
const char *pai_provider_isolation(const struct pai_provider *p);
/* How it is reached, for people: names and texts ("host", "transport", "line"), added to `ret`.
 * Never waits for the backend. */
int pai_provider_describe(
    struct pai_provider *p, struct pai_strmap *ret, struct pai_err *err) PAI_WARN_UNUSED;
/* Whether the backend can serve this caller: the cheapest call that proves the credential.
 * Provisions nothing, writes nothing, is not cached. */
int pai_provider_probe(
    struct pai_provider *p, const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;
int pai_provider_create(struct pai_provider *p, const struct pai_create_input *input,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err) PAI_WARN_UNUSED;
/* Reattaches, resuming a paused one. *ret NULL with 0: it no longer exists. */
int pai_provider_connect(struct pai_provider *p, const char *sandbox_id,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err) PAI_WARN_UNUSED;
/* Live (running or paused) sandboxes whose metadata includes `metadata` (NULL: all). `ret` is
 * initialised by the call. */
int pai_provider_list(struct pai_provider *p, const struct pai_strmap *metadata,
    const struct pai_call *call, struct pai_sandbox_list *ret, struct pai_err *err) PAI_WARN_UNUSED;
/* Ends in-process state; never kills. Every sandbox handle must have been freed. NULL is fine. */
void pai_provider_free(struct pai_provider *p);
PAI_DEFINE_AUTO(struct pai_provider, pai_provider_free)
#define pai_auto_provider PAI_AUTO(pai_provider_free_p)

/* --- sandbox --- */

const char *pai_sandbox_id(const struct pai_sandbox *sb);
const char *pai_sandbox_incarnation(const struct pai_sandbox *sb);
enum pai_sandbox_flag {
	/* The workspace is a directory that the user named (a template): kill leaves it as it is,
	 * so a session on it can't be reset to a fresh one. */
	PAI_SANDBOX_BORROWED_WORKSPACE = 1 << 0,
	/* /workspace is a name in calls, not in commands: they begin there all the same, and have
	 * its path in $PAI_WORKSPACE. */
	PAI_SANDBOX_UNBOUND_WORKSPACE = 1 << 1,
};
uint32_t pai_sandbox_flags(const struct pai_sandbox *sb);
/* How long the sandbox's streams may be silent because what carries them has gone, and go on when
 * it is back: so much longer has whoever is at their far end before its silence is its death. 0:
 * they end at once. */
uint64_t pai_sandbox_hold_ms(const struct pai_sandbox *sb);
/* Drops this handle; the sandbox lives on. No call on it may be running. NULL is fine. */
void pai_sandbox_free(struct pai_sandbox *sb);
PAI_DEFINE_AUTO(struct pai_sandbox, pai_sandbox_free)
#define pai_auto_sandbox PAI_AUTO(pai_sandbox_free_p)

enum pai_stream {
	PAI_STDOUT = 1,
	PAI_STDERR = 2,
};
/* Chunks of bytes as they are produced, on any one thread at a time; concatenated per stream they
 * equal the result. Must not call back into the same sandbox. */
typedef void (*pai_output_fn)(void *arg, enum pai_stream stream, const char *data, size_t len);
struct pai_run_input {
	const char *command; /* a shell command line, for the provider's shell */
	const char *cwd;     /* NULL: /workspace */
	const struct pai_strmap *env;
	uint64_t timeout_ms; /* COMMAND_TIMEOUT when passed; 0: none */
	/* Combined captured budget; OUTPUT_LIMIT past it, the command is killed. 0: the provider's
	 * default; PAI_OUTPUT_UNLIMITED: none. */
	uint64_t max_output_bytes;
	bool no_capture; /* callbacks only; the result's texts stay empty */
	pai_output_fn on_output;
	void *on_output_arg;
};
#define PAI_OUTPUT_UNLIMITED UINT64_MAX
#define PAI_OUTPUT_DEFAULT (10u << 20) /* what 0 means for the providers of this project */
struct pai_run_result {
	char *out; /* NUL-terminated; may hold NULs */
	size_t out_len;
	char *err;
	size_t err_len;
	int exit_code; /* 128+n when signal n ended it */
};
void pai_run_result_fini(struct pai_run_result *r);
#define pai_auto_run_result PAI_AUTO(pai_run_result_fini)
/* A non-zero exit is a result, not a failure. NOT_FOUND when the sandbox is gone. After a failure
 * that is not an OUTPUT_LIMIT or COMMAND_TIMEOUT whether the command ran is unknown, save where the
 * error is `retryable`: then it did not start. */
int pai_sandbox_run(struct pai_sandbox *sb, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err) PAI_WARN_UNUSED;
/* *found false: no such file. FILE_TOO_LARGE past max_bytes, before more than that was read;
 * UINT64_MAX: the provider's own limit. A directory is INPUT. `ret` is filled up to its own cap. */
int pai_sandbox_read_file(struct pai_sandbox *sb, const char *path, uint64_t max_bytes,
    const struct pai_call *call, bool *found, struct pai_buf *ret,
    struct pai_err *err) PAI_WARN_UNUSED;
/* Makes parents; readers see the whole old file or the whole new one; an existing file keeps its
 * mode and owner; a symbolic link is followed inside the workspace. */
int pai_sandbox_write_file(struct pai_sandbox *sb, const char *path, const void *data, size_t len,
    const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;
struct pai_dir_item {
	char *name; /* as the sandbox has it, any bytes but '/' and NUL */
	bool is_directory;
};
struct pai_dir_list {
	struct pai_dir_item *items;
	size_t count;
};
void pai_dir_list_fini(struct pai_dir_list *l);
#define pai_auto_dir_list PAI_AUTO(pai_dir_list_fini)
/* *found false: no such directory. A file is INPUT. No "." or "..", unsorted. */
int pai_sandbox_list_dir(struct pai_sandbox *sb, const char *path, const struct pai_call *call,
    bool *found, struct pai_dir_list *ret, struct pai_err *err) PAI_WARN_UNUSED;
/* Extends the idle lifetime to at least ttl_ms from now; never shortens it. */
int pai_sandbox_keep_alive(struct pai_sandbox *sb, uint64_t ttl_ms, const struct pai_call *call,
    struct pai_err *err) PAI_WARN_UNUSED;
/* Destroys it; 0 also when it was gone already. */
int pai_sandbox_kill(
    struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;
/* UNSUPPORTED without PAI_CAP_PAUSE. */
int pai_sandbox_pause(
    struct pai_sandbox *sb, const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;
/* A duplex byte stream to a new process `argv` in the sandbox; *ret_fd is a connected stream socket
 * of the caller's. UNSUPPORTED where the provider has none. */
int pai_sandbox_open_line(struct pai_sandbox *sb, const char *const argv[],
    const struct pai_call *call, int *ret_fd, struct pai_err *err) PAI_WARN_UNUSED;

/*
 * The workspace as a directory of this host, for the providers that have it so (local; docker with
 * files on the host). Descriptors are the caller's to close.
 *   root_fd   O_PATH of the workspace directory
 *   nonce_fd  the identity file beside it, open: once its link count is 0 the sandbox is gone
 * UNSUPPORTED: there is none; the workspace is reached through a helper or the portable server.
 */
struct pai_host_files {
	int root_fd;
	int nonce_fd;
	/* Free space of its file system below which whoever writes through the mount gets ENOSPC;
	 * 0: none. */
	uint64_t reserve_bytes;
	/* Whose what root makes through the mount shall be, so that commands can change it; 0:
	 * root's own. */
	uid_t maker_uid;
	gid_t maker_gid;
	char *
	    state_dir; /* a directory beside the workspace, ours, on the same file system; free() */
};
int pai_sandbox_host_files(struct pai_sandbox *sb, const struct pai_call *call,
    struct pai_host_files *ret, struct pai_err *err) PAI_WARN_UNUSED;
/*
 * A connection to the sandbox's supervisor, which speaks the exec frames of wire/exec_msg.h:
 * started when it is not running. POLICY_MISMATCH where commands are not allowed. UNSUPPORTED:
 * commands go through run() alone.
 */
int pai_sandbox_open_exec(struct pai_sandbox *sb, const struct pai_call *call, int *ret_fd,
    struct pai_err *err) PAI_WARN_UNUSED;

/*
 * A stream to whoever serves the sandbox's files by the frames of wire/ws_msg.h (a pai-helper in
 * it): a stream socket of the caller's. Called again when the stream has ended. NOT_FOUND: the
 * sandbox is gone. UNSUPPORTED: files go through host_files or the portable server.
 */
int pai_sandbox_open_files(struct pai_sandbox *sb, const struct pai_call *call, int *ret_fd,
    struct pai_err *err) PAI_WARN_UNUSED;

/* --- making one --- */

/*
 * Opens a provider by name (memory, local, ...) or, when the name contains a '/', the shared object
 * at that path. `options` are its own (provider docs: `paifs --help PROVIDER`); an unknown option
 * or a wrong value is INPUT with one line that says what was expected.
 */
int pai_provider_open(const char *name, const struct pai_strmap *options, struct pai_provider **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
/* The options a provider takes, NULL-terminated, {name, meaning}; NULL for an unknown provider. */
struct pai_option_doc {
	const char *name;
	const char *meaning;
};
const struct pai_option_doc *pai_provider_option_docs(const char *name);
/* NULL-terminated names of the built-in providers. */
const char *const *pai_provider_names(void);

/* Wraps `take_inner`, which belongs to the result from then on, also on failure.
 * trace: one JSON line per call into fd (owned): call, ids, redacted input, result, milliseconds.
 * fault: errors, delays and lost sandboxes on a schedule; the grammar is in provider_fault.c's
 * head. */
int pai_provider_trace(struct pai_provider *take_inner, int take_fd, struct pai_provider **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
int pai_provider_fault(struct pai_provider *take_inner, const char *schedule,
    struct pai_provider **ret, struct pai_err *err) PAI_WARN_UNUSED;

#endif
