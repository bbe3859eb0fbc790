/*
 * libpai: sandboxes for a program: run a command, read a file, write a file, through a paifs
 * daemon: one that runs, or `paifs --no-mount` started from ~/.config/paifs/NAME.conf when it is
 * needed (the paifs that was installed with the shared library, or lies beside the program).
 *
 *   service   one daemon, and how sessions are keyed in it
 *   sandbox   one session, as one of the program's own calls sees it
 *
 * A sandbox is cheap and lazy: nothing is asked, and nothing made, before its first call. Every
 * call makes the environment where there is none, extends its lifetime, and is done once more in
 * the next one when it was lost in the middle; that this happened is latched, see
 * libpai_environment_reset(). What somebody reset or killed is never done again by itself.
 *
 * Paths are the sandbox's own: /workspace is the workspace; relative ones begin there. All strings
 * are UTF-8 and end with a NUL. Times are milliseconds, sizes bytes.
 *
 * Results. Functions that can fail return a negative errno and fill *err (NULL: not wanted); what
 * they were to give is untouched then, unless they say otherwise. 0 is done; those that look for
 * something return 1 when it is there and 0 when it is not.
 *
 * Ownership. What a function takes is borrowed for the call. What it gives in a `struct libpai_...`
 * is the caller's: its _free() or _fini(), which take NULL and what is zeroed.
 *
 * Threads. A service: any number at once. A sandbox: one at a time; several sandboxes of one
 * session at once are fine. libpai_cancel() alone may be called from any thread and from signal
 * handlers. The library starts no thread and leaves the process's signals, its working directory
 * and its standard descriptors alone; a daemon that it starts is no child of the process. After
 * fork() the child makes sandboxes of its own.
 *
 * Every wait has an end: a command that of its timeout_ms where it has one, a file call and a reset
 * 15 minutes at the very most, whatever became of the daemon.
 *
 * In a program that `pai use` runs, the session of that use is its: calls are made in its
 * environment and inside its turn.
 */
#ifndef LIBPAI_H
#define LIBPAI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LIBPAI_API __attribute__((visibility("default")))
#define LIBPAI_CHECKED __attribute__((visibility("default"), warn_unused_result))

/* --- errors --- */

/* Values never change their meaning; new ones may come. */
enum libpai_code {
	LIBPAI_OK = 0,
	/* The contract's. */
	LIBPAI_NOT_FOUND = 1,       /* the sandbox is gone, and so was the next one */
	LIBPAI_UNAVAILABLE = 2,     /* `reason` says why; another sandbox would not help */
	LIBPAI_COMMAND_TIMEOUT = 3, /* `timeout_ms`; the command was killed */
	LIBPAI_OUTPUT_LIMIT = 4,    /* `limit_bytes`; the command was killed */
	LIBPAI_FILE_TOO_LARGE = 5,  /* `limit_bytes` */
	LIBPAI_POLICY_MISMATCH = 6, /* not allowed here; asking again will not help */
	LIBPAI_QUOTA_EXCEEDED = 7,  /* once other sandboxes have ended it may work */
	LIBPAI_INPUT = 8,           /* the caller's mistake: a path, a key, a working directory */
	LIBPAI_SEED = 9,            /* files that the workspace should begin with are missing:
				       libpai_missing() names them */
	LIBPAI_CANCELLED = 10,      /* by libpai_cancel() */
	/* Others. */
	LIBPAI_SYSTEM = 11,  /* `errnum` is that of the sandbox's own file call */
	LIBPAI_TIMEOUT = 12, /* a deadline, not a command's: whether it took effect is unknown */
	LIBPAI_RESET = 13,   /* another environment answers than the one that was begun with */
	LIBPAI_WRITE_FAILED = 14, /* what was stored through the mount is lost; nothing ran */
	LIBPAI_UNSUPPORTED = 15,  /* this provider, or this daemon's version, can't */
	LIBPAI_NO_MEMORY = 16,
	LIBPAI_INTERNAL = 17, /* a mistake of the library's or the daemon's */
};
enum libpai_reason { /* with LIBPAI_UNAVAILABLE */
	LIBPAI_REASON_NONE = 0,
	LIBPAI_TRANSPORT = 1,  /* never reached */
	LIBPAI_BACKEND = 2,    /* it answered, and failed */
	LIBPAI_AUTH = 3,       /* it refused the credential */
	LIBPAI_NOT_SERVED = 4, /* it does not serve this caller */
};
struct libpai_error {
	enum libpai_code code;
	enum libpai_reason reason;
	bool retryable; /* asking again unchanged may help */
	int errnum;     /* what was returned, positive */
	uint64_t limit_bytes, timeout_ms;
	char error_id[64]; /* the backend's own id of the failure; "": none */
	/* For operators: it may name hosts, paths and ids, and have any bytes of the sandbox's. */
	char message[256];
};
/* "not-found", "unavailable", ...; of a reason "transport", ... "" for what is none. */
LIBPAI_API const char *libpai_code_name(enum libpai_code code);
LIBPAI_API const char *libpai_reason_name(enum libpai_reason reason);

/* --- service --- */

enum libpai_scope {             /* what a session is keyed on */
	LIBPAI_THREAD = 0,      /* thread_id, scope_key: one conversation */
	LIBPAI_ROOT_THREAD = 1, /* root_thread_id, scope_key: with all that is delegated from it */
	LIBPAI_USER = 2,        /* user_key, scope_key */
	LIBPAI_SCOPE = 3,       /* scope_key */
	LIBPAI_GLOBAL = 4,      /* nothing */
	LIBPAI_CUSTOM = 5,      /* `custom` */
};
struct libpai_options {
	const char *daemon;  /* as pai -n: NAME, or NAME@USER; NULL: the mount's the process stands
				in;  outside one `default`, else the only one with a mount */
	const char *program; /* for the daemon's log; NULL: "libpai" */
	enum libpai_scope scope;
};
/* Whose sandbox: the ids that are known, NULL for others. The scope takes what it is keyed on, and
 * an id that it needs and that is missing is INPUT. `pai key` gives the same keys. */
struct libpai_ref {
	const char *scope_key; /* the tenant; NULL where there is one only */
	const char *thread_id, *root_thread_id, *user_key;
	const char *const *custom; /* "NAME=VALUE", NULL-terminated */
	const char *key;           /* not NULL: the session's key itself; nothing else counts */
};
struct libpai_service;
struct libpai_sandbox;

/* Looks for no daemon yet. */
LIBPAI_CHECKED int libpai_service_open(
    const struct libpai_options *options, struct libpai_service **ret, struct libpai_error *err);
/* Whether the provider can serve this caller: asked afresh each time, makes nothing. UNAVAILABLE
 * with a reason when it can't. */
LIBPAI_CHECKED int libpai_service_probe(struct libpai_service *s, struct libpai_error *err);
/* The sandbox of these ids. Asks nothing of anybody. */
LIBPAI_CHECKED int libpai_service_acquire(struct libpai_service *s, const struct libpai_ref *ref,
    struct libpai_sandbox **ret, struct libpai_error *err);
/* Destroys the environment, also one that only the provider knows; a session that was never used
 * stays so. The next call makes another and says so. */
LIBPAI_CHECKED int libpai_service_reset(
    struct libpai_service *s, const struct libpai_ref *ref, struct libpai_error *err);
/* Ends the session for good and kills its sandboxes: what is under way on it fails (RESET) and
 * isn't done again; a later call begins a new one. With LIBPAI_ROOT_THREAD the ids of a delegated
 * thread (thread_id is not root_thread_id) end nothing. */
LIBPAI_CHECKED int libpai_service_dispose(
    struct libpai_service *s, const struct libpai_ref *ref, struct libpai_error *err);
/* Kills nothing: sandboxes are found again. Those acquired go on until they are freed. */
LIBPAI_API void libpai_service_close(struct libpai_service *s);

/* --- cancellation --- */

struct libpai_cancel;
LIBPAI_API struct libpai_cancel *libpai_cancel_new(void); /* NULL without memory or descriptors */
LIBPAI_API void libpai_cancel_free(struct libpai_cancel *c); /* after all that were told of it */
/* For good. Calls under way, and later ones, on sandboxes that were told of it end with CANCELLED:
 * a command once its processes are known to be dead, or after 10 s. Any thread; signal handlers. */
LIBPAI_API void libpai_cancel(struct libpai_cancel *c);

/* --- sandbox --- */

LIBPAI_API void libpai_sandbox_free(struct libpai_sandbox *sb);
/* Opaque: the session's key. Borrowed. */
LIBPAI_API const char *libpai_key(const struct libpai_sandbox *sb);
/* A call of this sandbox ran in a recreated environment, or it was reset: earlier files and
 * processes are gone. Never false again. */
LIBPAI_API bool libpai_environment_reset(const struct libpai_sandbox *sb);
/* After a call that failed of SEED: the paths that are missing, numbered from 0; NULL: no more.
 * Borrowed until the next call. */
LIBPAI_API const char *libpai_missing(const struct libpai_sandbox *sb, size_t number);
/* From the next call on; borrowed until another is set or the sandbox freed. NULL: none. */
LIBPAI_API void libpai_set_cancel(struct libpai_sandbox *sb, struct libpai_cancel *cancel);

enum libpai_stream {
	LIBPAI_RESTARTED =
	    0, /* the command is run again, in another environment: what came is void */
	LIBPAI_STDOUT = 1,
	LIBPAI_STDERR = 2,
};
struct libpai_command {
	const char *command;     /* a shell's line, or NULL: */
	const char *const *argv; /* NULL-terminated, the program looked for on the sandbox's PATH */
	const char *cwd;         /* NULL: /workspace */
	const char *const *env;  /* "NAME=VALUE", NULL-terminated, added; NULL: none */
	uint64_t timeout_ms;     /* 0: none */
	uint64_t max_output_bytes; /* of both streams together; 0: none but memory */
	const void *input;         /* its stdin; NULL: empty */
	size_t input_len;
	/* As it comes; NULL: not wanted. May call libpai_cancel(), nothing else of the library. */
	void (*on_output)(void *arg, enum libpai_stream stream, const char *data, size_t len);
	void *arg;
};
struct libpai_result {
	int exit_code; /* 128+N when signal N ended it; 126 or 127 when it could not be executed */
	char *out, *err; /* what it said, with a NUL behind; never NULL */
	size_t out_len, err_len;
};
LIBPAI_API void libpai_result_fini(struct libpai_result *r);
/* Runs a command to its end, whatever its exit code. On COMMAND_TIMEOUT, OUTPUT_LIMIT and CANCELLED
 * *ret holds what it had said. INPUT: the working directory isn't there. libpai_result_fini() in
 * every case. */
LIBPAI_CHECKED int libpai_run(struct libpai_sandbox *sb, const struct libpai_command *c,
    struct libpai_result *ret, struct libpai_error *err);

/* 1: *ret is its bytes, with a NUL behind; free(). 0: no such file. FILE_TOO_LARGE past max_bytes,
 * or past 50 MiB; a directory is INPUT. */
LIBPAI_CHECKED int libpai_read(struct libpai_sandbox *sb, const char *path, uint64_t max_bytes,
    char **ret, size_t *ret_len, struct libpai_error *err);
/* The whole file, its parents made; readers see all of the old or all of the new. In the session's
 * exclusive queue. FILE_TOO_LARGE past 50 MiB. */
LIBPAI_CHECKED int libpai_write(struct libpai_sandbox *sb, const char *path, const void *data,
    size_t len, struct libpai_error *err);

struct libpai_entry {
	char *name;
	bool is_directory;
};
struct libpai_list {
	struct libpai_entry *entries; /* in the order of the bytes of their names */
	size_t count;
};
LIBPAI_API void libpai_list_fini(struct libpai_list *l);
/* 1: *ret is the directory. 0: no such directory. */
LIBPAI_CHECKED int libpai_list(
    struct libpai_sandbox *sb, const char *path, struct libpai_list *ret, struct libpai_error *err);

/* Returns 0, or what libpai_use() is to return; `err` is for the calls that it makes. */
typedef int (*libpai_use_fn)(void *arg, struct libpai_sandbox *sb, struct libpai_error *err);
/* Several calls on one environment: when it is lost in their middle, which lets a call fail, and fn
 * then returns other than 0, fn is called once more, in the next environment; not when somebody has
 * reset or killed the session. Not nested: INPUT. */
LIBPAI_CHECKED int libpai_use(
    struct libpai_sandbox *sb, libpai_use_fn fn, void *arg, struct libpai_error *err);
/* The same, serial with other exclusive uses, with writes and with resets of the session, in every
 * process of this host: for what is read, changed and written back. */
LIBPAI_CHECKED int libpai_use_exclusive(
    struct libpai_sandbox *sb, libpai_use_fn fn, void *arg, struct libpai_error *err);

/* Destroys the environment now; the next call makes another. */
LIBPAI_CHECKED int libpai_reset(struct libpai_sandbox *sb, struct libpai_error *err);

#ifdef __cplusplus
}
#endif

#endif
