/*
 * session: what a user names with a key, bound to at most one live sandbox at a time (seed:
 * "Session manager"). Lazily made, reused and kept alive, found again by metadata, recreated once
 * when lost in mid-call, reset and killed by the user's word.
 *
 * An *environment* is one (sandbox, incarnation) with its file server and its exec line, reference
 * counted. It is never replaced under a holder: when the sandbox changes, the old environment is
 * revoked (its files answer ESTALE, its commands are lost) and the session gets another one.
 *
 * Threading: every function from any thread, unless it says otherwise. Those that take a pai_call
 * block: only on a pool's thread. No lock is held across a provider call. Callbacks of the listener
 * come without locks, in order per session.
 */
#ifndef PAI_SESSION_SESSION_H
#define PAI_SESSION_SESSION_H

#include "providers/base/cancel.h"
#include "providers/base/err.h"
#include "providers/base/json.h"
#include "providers/base/pool.h"
#include "providers/helper/exec_line.h"
#include "providers/provider.h"
#include "providers/session/store.h"
#include "providers/workspace/workspace.h"

#define PAI_SESSION_KEY_METADATA "paiSessionKey"

struct pai_sessions; /* the manager */
struct pai_session;  /* one key; reference counted handle */
struct pai_env;      /* one environment; reference counted */

/* --- environment --- */
struct pai_env *pai_env_ref(struct pai_env *e);
void pai_env_unref(struct pai_env *e);
PAI_DEFINE_AUTO(struct pai_env, pai_env_unref)
#define pai_auto_env PAI_AUTO(pai_env_unref_p)
struct pai_ws *pai_env_ws(struct pai_env *e);           /* borrowed */
struct pai_sandbox *pai_env_sandbox(struct pai_env *e); /* borrowed */
const struct pai_session_identity *pai_env_identity(const struct pai_env *e);
uint64_t pai_env_generation(const struct pai_env *e);
enum pai_network_access pai_env_network(const struct pai_env *e); /* what it was made with */
bool pai_env_revoked(const struct pai_env *e);
void *pai_env_user(const struct pai_env *e); /* what the listener's `compose` gave */
/* The line for commands, opened on first use. Borrowed. POLICY_MISMATCH where commands aren't
 * allowed. */
int pai_env_exec(struct pai_env *e, const struct pai_call *call, struct pai_exec_line **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
/* While busy > 0 the manager renews the sandbox's lifetime in the background (a command, open
 * files). */
void pai_env_busy(struct pai_env *e, int delta);

/* --- seeds --- */
/*
 * Whoever copies files into an environment before it is used (the seed's "Seed the workspace").
 * One check at a time for an environment, on a thread of its own, which outlives those who wait for
 * it and is cancelled when the environment is reset, killed or lost.
 */
struct pai_seed_round {
	struct pai_cancel *cancel; /* borrowed */
	/* Which POSIX session the program that runs leads, 0 none: whoever asks from inside of it
	 * would wait for itself. */
	void (*tell)(void *arg, pid_t session);
	void *arg;
};
struct pai_session_seeder {
	/* SEED: what is not there is *missing, an array of paths, the caller's. Other failures are
	 * the sandbox's: the next who asks checks again. */
	int (*check)(void *arg, struct pai_session *s, struct pai_env *e,
	    const struct pai_seed_round *round, struct pai_json **missing, struct pai_err *err);
	void *arg;
};
struct pai_seed_ask {
	const char *run; /* what this is part of: checked once for each; NULL or "": of none */
	uint32_t sid;    /* the caller's POSIX session; 0: nobody's */
};
/* Returns when the environment, and this run, have been checked, by whomever. SEED for the one who
 * began the check that failed: see pai_session_missing(). EDEADLK (SYS) for the seeder's own
 * programs. RESET: the environment is gone. Without a seeder nothing is done. */
int pai_session_seed(struct pai_session *s, struct pai_env *e, const struct pai_seed_ask *ask,
    const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;
/* How long that may take; 0: nothing is seeded. */
uint64_t pai_session_seed_timeout(const struct pai_session *s);
/* It has been checked once, or nothing is seeded: who is of no run need not ask. */
bool pai_env_is_seeded(const struct pai_env *e);
/* The POSIX session of the seeder's program that runs for it; 0: none. */
pid_t pai_env_seed_session(const struct pai_env *e);
/* What the session's last check did not bring, an array of paths; NULL: nothing. The caller's. */
struct pai_json *pai_session_missing(struct pai_session *s);

/* --- manager --- */
struct pai_session_listener {
	/* A new environment is being composed: fill the workspace configuration; the returned
	 * pointer becomes pai_env_user(). */
	void *(*compose)(void *arg, struct pai_session *s, struct pai_ws_config *config);
	/* It is the session's from now on; `replaced` tells that an earlier one existed (a reset).
	 */
	void (*attached)(void *arg, struct pai_session *s, struct pai_env *e, bool replaced);
	/* It is no longer: revoked, files and commands of it are over. */
	void (*detached)(void *arg, struct pai_session *s, struct pai_env *e);
	/* The last reference is gone. */
	void (*free_user)(void *arg, void *user);
	void *arg;
};
struct pai_session_options {
	struct pai_create_input create;   /* copied; binding_key is the manager's */
	uint64_t keepalive_ttl_ms;        /* default 5 min (seed's example) */
	uint64_t create_timeout_ms;       /* default 120 s: creating has a deadline of its own */
	uint64_t timeout_ms;              /* default 10 s: the silence of a supervisor */
	const char *session_key_metadata; /* NULL: paiSessionKey */
	/* A program that prints create options of a key as JSON, laid over `create`; NULL: none.
	 * Run with the key as its argument; what `pai create` said of the key lies over that.
	 * {"template": "t", "ttl": ms, "metadata": {}, "env": {}, "network":
	 * "none"|"allowlist"|"full", "allow": [], "resources": {"cpuMillis", "memoryBytes", "pids",
	 * "diskBytes"}}; anything else is INPUT. */
	const char *create_program;
	bool portable; /* helper=off: contract calls only */
	bool raw_ids;
	const struct pai_session_seeder *seeder; /* copied; NULL: nothing is seeded */
};
/* Takes provider and store (also on failure). `pool` is borrowed. `lock_dir` holds one lock file
 * per key for the exclusive queue, shared by the daemons of this host; NULL: in-process only. */
int pai_sessions_new(struct pai_provider *take_provider, struct pai_store *take_store,
    struct pai_pool *pool, const struct pai_session_options *options, const char *lock_dir,
    const struct pai_session_listener *listener, struct pai_sessions **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
/* Stops accepting, drains admitted operations within the deadline, then cancels creations that go
 * on, detaches every environment and frees; NULL is fine. Never kills. Handles and environments
 * still held stay valid (every call on them fails) and keep provider and store until the last one
 * is gone; the pool and the listener must live as long. */
void pai_sessions_close(struct pai_sessions *m, uint64_t deadline_ms);
struct pai_provider *pai_sessions_provider(struct pai_sessions *m);
struct pai_store *pai_sessions_store(struct pai_sessions *m);
/* Foreign live sandboxes: lists the provider by metadata and remembers keys that this store doesn't
 * know (as LOST until adopted). Blocks; called at mount and on a timer, never because of a look. */
int pai_sessions_discover(
    struct pai_sessions *m, const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;

/* The handle of a key; does not touch the provider. INPUT for what is not a key; RESET while the
 * key is being disposed of: a new handle can be had once that is done. */
int pai_sessions_handle(struct pai_sessions *m, const char *key, struct pai_session **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
struct pai_session *pai_session_ref(struct pai_session *s);
void pai_session_unref(struct pai_session *s);
const char *pai_session_key(const struct pai_session *s);
/* A picture for people: state, identity, generation; never calls out. */
void pai_session_snapshot(struct pai_session *s, struct pai_session_record *ret);
/* The environment it has now, a reference, or NULL; never calls out: for those who only look. */
struct pai_env *pai_session_current(struct pai_session *s);

enum pai_acquire_flags {
	/* Only what exists: the bound sandbox, reattached after a restart, but never made or
	   resumed. *ret NULL: none. */
	PAI_ACQUIRE_LOOK = 1 << 0,
	/* Also after an explicit kill (exec, mkdir, pai create). Else a killed key is RESET
	   (ESTALE). */
	PAI_ACQUIRE_REVIVE = 1 << 1,
	/* Ask the sandbox even where it was used a moment ago. */
	PAI_ACQUIRE_VERIFY = 1 << 2,
};
/* A live environment, made if need be; concurrent callers share one create; ends at the call's
 * deadline while the creation goes on for the next one. options: NULL, or create options for this
 * key (pai create) as JSON (terms.h), laid over the manager's and what the create program prints,
 * and kept with the key until it is killed. POLICY_MISMATCH when the sandbox that it has was made
 * with another network or template. */
int pai_session_acquire(struct pai_session *s, uint32_t flags, const char *options,
    const struct pai_call *call, struct pai_env **ret, struct pai_err *err) PAI_WARN_UNUSED;
/* How long making its sandbox may take, with these options (NULL: those that are kept). */
uint64_t pai_session_create_timeout(struct pai_session *s, const char *options);
/* Somebody saw that this environment is gone (NOT_FOUND, ESTALE): detaches it if it is still the
 * current one. */
void pai_session_lost(struct pai_session *s, struct pai_env *e, const char *why);
/* Whether it still exists, asked of the provider: NOT_FOUND detaches it. */
int pai_session_verify(struct pai_session *s, struct pai_env *e, const struct pai_call *call,
    struct pai_err *err) PAI_WARN_UNUSED;

/* Runs fn on a live environment; once more on a new one when fn fails with NOT_FOUND or RESET, the
 * environment was lost and no reset or dispose came in between. *environment_reset (set also on
 * failure): it ran in a replacement, or was the first to use one. Exclusive: in the key's mutation
 * queue, serial with others of it and with reset, in every process of this host; `token` non-zero:
 * the caller is inside that use already and passes. fn runs in an environment that has been
 * checked for `seed`; the deadline has to leave time for that (pai_session_seed_timeout()).
 */
typedef int (*pai_session_fn)(void *arg, struct pai_env *e, struct pai_err *err);
struct pai_use {
	bool exclusive;
	uint64_t token;
	uint32_t flags; /* PAI_ACQUIRE_* */
	struct pai_seed_ask seed;
};
int pai_session_use(struct pai_session *s, const struct pai_use *use, pai_session_fn fn, void *arg,
    const struct pai_call *call, bool *environment_reset, struct pai_err *err) PAI_WARN_UNUSED;
/* For who retries by itself (commands): what had been reset or killed when its work began, and
 * whether nothing has since. Ask after the new environment is held: a reset under way has ended
 * then. */
struct pai_session_mark {
	uint64_t epoch, resets;
};
int pai_session_mark(
    struct pai_session *s, struct pai_session_mark *ret, struct pai_err *err) PAI_WARN_UNUSED;
bool pai_session_is_unreset(struct pai_session *s, const struct pai_session_mark *mark);

/* The exclusive queue by hand (pai use): token is non-zero. */
int pai_session_exclusive_begin(struct pai_session *s, const struct pai_call *call, uint64_t *token,
    struct pai_err *err) PAI_WARN_UNUSED;
void pai_session_exclusive_end(struct pai_session *s, uint64_t token);

/* Destroys the environment; the next use makes another and says so. Creates nothing when the key
 * was never used. Earlier work can't be retried into the replacement. POLICY_MISMATCH where the
 * workspace is a directory of the user's (local template). */
int pai_session_reset(
    struct pai_session *s, const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;
/* The same from inside an exclusive use, whose token it is. */
int pai_session_reset_inside(struct pai_session *s, uint64_t token, const struct pai_call *call,
    struct pai_err *err) PAI_WARN_UNUSED;
/* Terminal: revokes held handles, kills the sandbox and every orphan found by metadata, leaves a
 * tombstone. *killed: how many sandboxes. A new handle can be had afterwards. */
int pai_sessions_dispose(struct pai_sessions *m, const char *key, const struct pai_call *call,
    size_t *killed, struct pai_err *err) PAI_WARN_UNUSED;
int pai_session_pause(
    struct pai_session *s, const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;

/* DESIGN 14.5: whether this caller (POSIX session id and its leader's start time) has to be told
 * that the environment is another than the one it saw last; remembers that it has been.
 * `last_command`: the identity of the key's last command in the ledger, for callers never seen. */
bool pai_session_tell_reset(struct pai_session *s, uint32_t sid, uint64_t sid_started,
    struct pai_env *e, const struct pai_session_identity *last_command);

#endif
