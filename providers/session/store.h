/*
 * store: what the session manager must remember beyond its process, as an interface. The ledger
 * implements it (SQLite, shared by the daemons of one user on one host); a manager without one
 * keeps it in memory.
 *
 * All calls are short and local, from any thread. Times are wall-clock milliseconds.
 */
#ifndef PAI_SESSION_STORE_H
#define PAI_SESSION_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/base/err.h"

#define PAI_ID_MAX 255

enum pai_session_state {
	PAI_SESSION_NEW,      /* "new"      named, no sandbox yet */
	PAI_SESSION_CREATING, /* "creating" */
	PAI_SESSION_LIVE,     /* "live" */
	PAI_SESSION_PAUSED,   /* "paused" */
	PAI_SESSION_LOST,     /* "lost"     gone by itself: the next use makes another */
	PAI_SESSION_KILLED, /* "killed"   by somebody's word: a tombstone, honoured by every daemon
			     */
};
const char *pai_session_state_name(enum pai_session_state s);

/* What tells one environment from another. Empty strings: none. */
struct pai_session_identity {
	char sandbox_id[PAI_ID_MAX + 1];
	char incarnation[PAI_ID_MAX + 1];
};
bool pai_session_identity_equal(
    const struct pai_session_identity *a, const struct pai_session_identity *b);
/* One printable text for the two, equal only for equal ones: for who may not be told more. */
#define PAI_IDENTITY_TAG 64
void pai_session_identity_tag(
    const struct pai_session_identity *id, char ret[PAI_IDENTITY_TAG + 1]);

struct pai_session_record {
	char key[129];
	enum pai_session_state state;         /* NEW, LIVE, PAUSED, LOST or KILLED */
	struct pai_session_identity identity; /* bound last */
	uint64_t generation;                  /* environments so far; 0: none yet */
	uint64_t resets; /* resets and kills so far: what makes earlier work ineligible for retry */
	int64_t created_ms, last_used_ms;
	bool trusted; /* git guard lifted by the user */
};
enum pai_store_event {
	PAI_STORE_CREATE,
	PAI_STORE_ADOPT, /* found again by metadata or binding key */
	PAI_STORE_LOST,
	PAI_STORE_RESET,
	PAI_STORE_KILL,
	PAI_STORE_PAUSE,
	PAI_STORE_RESUME,
};
struct pai_store {
	const struct pai_store_ops *ops;
};
struct pai_store_ops {
	int (*load)(struct pai_store *s, const char *key, bool *found,
	    struct pai_session_record *ret, struct pai_err *err);
	/* Every record that isn't KILLED, in key order; *ret is the caller's, free(). */
	int (*list)(struct pai_store *s, struct pai_session_record **ret, size_t *count,
	    struct pai_err *err);
	/* The key exists (mkdir, pai create): NEW, also after a kill, whose tombstone it lifts.
	 * Nothing otherwise. */
	int (*name)(struct pai_store *s, const char *key, struct pai_err *err);
	/* key is LIVE with this identity. A different one than before raises the generation, in one
	 * transaction; *ret is the record after it and *changed tells whether an environment was
	 * replaced. A KILLED key stays killed and the call fails with RESET, unless `revive`. */
	int (*bind)(struct pai_store *s, const char *key,
	    const struct pai_session_identity *identity, bool revive,
	    struct pai_session_record *ret, bool *changed, struct pai_err *err);
	/* Writes the event and moves the state: LOST and PAUSE (both only while `identity` is still
	 * the bound one), RESET to NEW (keeping the identity: the next bind tells a replacement),
	 * KILL to KILLED. Only a bind or a name moves a KILLED key. CREATE, ADOPT and RESUME are
	 * written after their bind and move nothing. An unknown key is made first. `identity` may
	 * be NULL: none. */
	int (*event)(struct pai_store *s, const char *key, enum pai_store_event event,
	    const struct pai_session_identity *identity, const char *detail, struct pai_err *err);
	int (*trust)(struct pai_store *s, const char *key, bool trusted, struct pai_err *err);
	/* A text that is kept with the key until it is killed (terms.h); of a KILLED key none. *ret
	 * is the caller's, NULL for none. */
	int (*terms)(struct pai_store *s, const char *key, char **ret, struct pai_err *err);
	int (*set_terms)(
	    struct pai_store *s, const char *key, const char *text, struct pai_err *err);
	void (*free)(struct pai_store *s);
};
/* In-process store, for tests and where there is no state directory. NULL without memory. */
struct pai_store *pai_store_memory_new(void);
void pai_store_free(struct pai_store *s);

#endif
