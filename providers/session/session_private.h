/*
 * session_private: what the files of this folder share. Nobody else includes it.
 *
 * Lock order: session, manager; an environment's alone. None is held across a provider call or a
 * callback of the listener. The store is called without any of them.
 */
#ifndef PAI_SESSION_PRIVATE_H
#define PAI_SESSION_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "providers/session/options.h"
#include "providers/session/session.h"
#include "providers/session/terms.h"
#include "providers/session/told.h"
#include "providers/session/wait.h"

/*
 * What a session's process-local half is doing. `env` is set exactly in LIVE; `job` is set in
 * ATTACHING, CREATING and SWEEPING, and may outlast ENDED until the job has seen it.
 */
enum pai_session_phase {
	PAI_PHASE_ABSENT,    /* no environment here */
	PAI_PHASE_ATTACHING, /* looking for the sandbox that exists */
	PAI_PHASE_CREATING,  /* making one */
	PAI_PHASE_LIVE,
	PAI_PHASE_SWEEPING, /* a reset or a pause has the sandbox */
	PAI_PHASE_ENDED,    /* disposed: terminal for those who hold the handle */
	PAI_PHASE_COUNT
};

struct pai_env_event {
	struct pai_env *env; /* a reference */
	bool is_detach;
	struct pai_env_event *next;
};

#define PAI_SEED_RUNS 64 /* of an environment that are remembered: the rest are checked again */
struct pai_seed_trigger; /* who began the check and waits for what it says: seed.c */
/* seed.c; the environment's lock. */
struct pai_env_seed {
	struct pai_waitq changed;
	struct pai_cancel *cancel;
	bool is_checking;
	struct pai_seed_trigger *trigger;
	uint64_t runs[PAI_SEED_RUNS]; /* hashes */
	size_t run_count;             /* so far */
	atomic_bool is_done;          /* some check came to its end */
	atomic_int session;           /* that of the seeder's program */
};

struct pai_env {
	atomic_uint refs;
	/* What the sandbox, and with it the session and the provider, is kept for: the references
	 * as one, a server that asks it, and each portable line. A call that hangs outlives those
	 * who asked. */
	atomic_uint parts;
	struct pai_session *session; /* a reference */
	struct pai_sandbox *sandbox;
	struct pai_ws *ws;
	int nonce_fd; /* the identity file, where it is of this host: unlinked by a kill; -1: none
		       */
	struct pai_session_identity identity;
	enum pai_network_access network;
	uint64_t generation;
	bool replaced;
	uint64_t attach_number; /* which attachment of its session */
	void *user;
	atomic_bool is_renewing;   /* by the keeper */
	atomic_bool revoked, told; /* told: some use has reported the replacement */
	atomic_int busy;
	atomic_uint_least64_t renewed_ms; /* 0: not by us yet */
	struct pai_env_event attached, detached;

	pthread_mutex_t lock;
	struct pai_waitq opened;
	bool is_opening;
	/* The last one is used; those before it have died, and are kept for who borrowed them. */
	struct pai_exec_line **lines;
	size_t line_count;
	struct pai_env_seed seed;
};

struct pai_session {
	struct pai_sessions *m;   /* a reference */
	struct pai_session *next; /* in its bucket; manager's lock, as the two below */
	size_t refs;
	bool is_listed;
	char key[PAI_KEY_MAX + 1];

	pthread_mutex_t lock;
	struct pai_waitq changed;
	enum pai_session_phase phase;
	struct pai_env *env;
	bool job;
	size_t slot_wanted; /* resets, pauses and disposes that wait for the job's end */
	struct pai_cancel *job_cancel;
	uint64_t job_number, done_number; /* the one that runs, the one whose error this is */
	struct pai_err done_err;
	struct pai_session_identity last; /* attached last in this process */
	uint64_t epoch;                   /* resets and kills seen by this handle */
	uint64_t attachments;
	uint64_t look_again_ms; /* a look found nothing: no call before */
	/* 0: the manager's. */
	atomic_uint_least64_t keepalive_ttl_ms;
	struct pai_env_event *events, **events_end;
	bool is_delivering;

	char *missing; /* JSON; NULL: none */

	/* exclusive.c */
	struct pai_exclusive_waiter *queue;
	uint64_t holder; /* token; 0: free */
	int lock_fd;
};

#define PAI_SESSION_BUCKETS 256
struct pai_sessions {
	pthread_mutex_t lock;
	size_t refs; /* one for who made it until the close, one per session */
	struct pai_session *buckets[PAI_SESSION_BUCKETS];
	size_t admitted;
	struct pai_waitq drained;
	bool is_closing;
	struct pai_told told;

	struct pai_provider *provider;
	struct pai_store *store;
	struct pai_pool *pool;     /* borrowed */
	struct pai_pool *makers;   /* creations: those who wait for one may fill `pool` */
	struct pai_pool *renewers; /* the keeper's: creations that hang may fill `makers` */
	struct pai_pool *seeders;  /* checks; NULL: nothing is seeded */
	struct pai_session_seeder seeder;
	struct pai_cancel *closing; /* fired by the close: renewals are not waited for */
	struct pai_session_listener listener;
	struct pai_create_options create;
	uint64_t keepalive_ttl_ms, create_timeout_ms, timeout_ms;
	char *key_metadata, *create_program, *lock_dir;
	bool portable, raw_ids;
	char client_id[33];

	pthread_t keeper;
	bool has_keeper, keeper_stops, keeper_poked;
	uint64_t least_ttl_ms; /* of any session so far: how often the keeper looks */
	pthread_cond_t keeper_wake;
};

/* manager.c */
int pai_sessions_enter(struct pai_sessions *m, struct pai_err *err) PAI_WARN_UNUSED;
void pai_sessions_leave(struct pai_sessions *m);
/* On the manager's own threads, for who has entered, also while closing: fn leaves at its end. */
int pai_sessions_submit(
    struct pai_sessions *m, pai_work_fn fn, void *arg, struct pai_err *err) PAI_WARN_UNUSED;
int pai_sessions_submit_renewal(
    struct pai_sessions *m, pai_work_fn fn, void *arg, struct pai_err *err) PAI_WARN_UNUSED;
int pai_sessions_submit_check(
    struct pai_sessions *m, pai_work_fn fn, void *arg, struct pai_err *err) PAI_WARN_UNUSED;
void pai_sessions_unref(struct pai_sessions *m);
/* Every session there is, references; free() the array after unref of each. NULL without memory. */
struct pai_session **pai_sessions_all(struct pai_sessions *m, size_t *count);
/* Has the keeper look at once. */
void pai_sessions_poke(struct pai_sessions *m);

/* keeper.c */
int pai_sessions_keeper_start(struct pai_sessions *m, struct pai_err *err) PAI_WARN_UNUSED;
void pai_sessions_keeper_stop(struct pai_sessions *m);
/* Renews the lifetime when the last renewal is older than half of it; NOT_FOUND is the caller's to
 * act on. */
int pai_env_renew(
    struct pai_env *e, const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;
/* From now on this session's lifetimes are so long. */
void pai_session_set_keepalive(struct pai_session *s, uint64_t ttl_ms);

/* session.c */
void pai_session_enter_locked(struct pai_session *s, enum pai_session_phase next);
/* Makes `e` (a reference, taken) the session's. */
void pai_session_attach_locked(struct pai_session *s, struct pai_env *take_e);
/* No environment from now on; pai_session_deliver() afterwards, without the lock. `next`: ABSENT,
 * SWEEPING or ENDED. */
void pai_session_detach_locked(struct pai_session *s, enum pai_session_phase next, const char *why);
void pai_session_deliver(struct pai_session *s);
/* Waits until every event has been delivered; the lock is held on entry and return. */
int pai_session_wait_delivered_locked(
    struct pai_session *s, const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;
/* As pai_session_acquire(), for those who have entered. */
int pai_session_acquire_entered(struct pai_session *s, uint32_t flags, const char *options,
    const struct pai_call *call, struct pai_env **ret, struct pai_err *err) PAI_WARN_UNUSED;
int pai_session_verify_entered(struct pai_session *s, struct pai_env *e,
    const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;
/* Reads the store's record (NEW when there is none) and detaches an environment that another daemon
 * replaced or ended. The lock is held on entry and return, not in between. */
int pai_session_load_locked(
    struct pai_session *s, struct pai_session_record *record, struct pai_err *err) PAI_WARN_UNUSED;
/* The job slot, whose owner alone changes what the session's sandbox is. Taking it cancels a job
 * that runs and waits for its end. `phase` is entered where the session isn't ENDED. */
int pai_session_take_slot_locked(struct pai_session *s, enum pai_session_phase phase,
    const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;
void pai_session_release_slot(struct pai_session *s);

/* attach.c: the body of the job. *ret NULL: LOOK found none. On success the environment is the
 * session's already. */
struct pai_attach {
	struct pai_session *session;
	uint32_t flags;
	uint64_t epoch;                /* of the session when it was asked for */
	const char *given;             /* JSON of pai create; NULL: none */
	const struct pai_terms *terms; /* of the key, `given` included */
};
int pai_session_attach(
    const struct pai_attach *a, const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;
/* Whether the listed sandbox is bound to a key other than `key` in the store. */
bool pai_session_is_foreign(const struct pai_session_record *records, size_t count, const char *key,
    const struct pai_sandbox_info *info);
/* Those that carry the key as metadata `key_metadata`. */
int pai_session_list_own(struct pai_session *s, const char *key_metadata,
    const struct pai_call *call, struct pai_sandbox_list *ret, struct pai_err *err) PAI_WARN_UNUSED;
/* The key's terms as the store keeps them, with `given` (NULL: nothing) laid over. */
int pai_session_terms(struct pai_session *s, const char *given, struct pai_terms *ret,
    struct pai_err *err) PAI_WARN_UNUSED;
/* `given` on a session that has this environment: what it was made with can't be changed any more
 * and is compared (POLICY_MISMATCH), the rest is kept from now on. */
int pai_session_apply(struct pai_session *s, struct pai_env *e, const char *given,
    const struct pai_call *call, struct pai_err *err) PAI_WARN_UNUSED;

/* sweep.c: kills what the key has, by the bound identity and by metadata `label`; *killed is
 * counted also on failure. With `is_reset` nothing is killed unless everything can be, and a
 * borrowed workspace is POLICY_MISMATCH. */
int pai_session_sweep(struct pai_session *s, const char *label, bool is_reset,
    const struct pai_call *call, size_t *killed, struct pai_err *err) PAI_WARN_UNUSED;
/* The metadata name that holds its key. The caller frees; NULL without memory. */
char *pai_session_label(struct pai_session *s);
int pai_session_refuse_borrowed(
    const struct pai_session *s, const struct pai_sandbox *sb, struct pai_err *err) PAI_WARN_UNUSED;

/* env.c */
int pai_env_compose(struct pai_session *s, struct pai_sandbox *take_sandbox,
    const struct pai_call *call, struct pai_env **ret, struct pai_err *err) PAI_WARN_UNUSED;
void pai_env_revoke(struct pai_env *e);
/* Whether it is known here, without a call, that the sandbox is gone. */
bool pai_env_is_seen_gone(struct pai_env *e);
void pai_session_identity_of(const struct pai_sandbox *sb, struct pai_session_identity *ret);

/* seed.c */
int pai_session_seed_entered(struct pai_session *s, struct pai_env *e,
    const struct pai_seed_ask *ask, const struct pai_call *call,
    struct pai_err *err) PAI_WARN_UNUSED;
int pai_env_seed_init(struct pai_env *e, struct pai_err *err) PAI_WARN_UNUSED;
void pai_env_seed_fini(struct pai_env *e);
/* The environment is revoked: its check ends. */
void pai_env_seed_end(struct pai_env *e);

/* exclusive.c */
/* Into the queue, or through it with the token of the use that the caller is inside of: *taken is
 * what pai_session_exclusive_end() wants, 0 when nothing was taken. */
int pai_session_exclusive_pass(struct pai_session *s, uint64_t token, const struct pai_call *call,
    uint64_t *taken, struct pai_err *err) PAI_WARN_UNUSED;
/* Locks lock_dir/HASH.suffix within the call; *ret_fd -1 without a lock_dir. Closing unlocks. */
int pai_session_lock_file(struct pai_session *s, const char *suffix, const struct pai_call *call,
    int *ret_fd, struct pai_err *err) PAI_WARN_UNUSED;
/* After a kill: the files go, where nobody holds them. */
void pai_session_drop_lock_files(struct pai_session *s);

#endif
