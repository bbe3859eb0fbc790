/* world: a fake provider, a store that outlives managers, a pool, and what the listener heard. */
#ifndef TESTS_UNIT_SESSION_WORLD_H
#define TESTS_UNIT_SESSION_WORLD_H

#include <stdatomic.h>

#include "providers/session/session.h"
#include "tests/unit/session/fake.h"

struct world {
	struct fake fake;
	struct pai_store *store; /* the real one; managers get borrowing views of it */
	struct pai_pool *pool;
	struct pai_sessions *m;
	struct pai_session_options options;
	char *lock_dir;
	/* Run once, by the thread that calls: after a load has read, before a bind writes. */
	void (*after_load)(struct world *w);
	void (*before_bind)(struct world *w);
	atomic_int composed, attached, detached, freed, replaced;
};
void world_init(struct world *w);
void world_start(struct world *w); /* a manager; after world_stop() a fresh one on the same store */
void world_stop(struct world *w);
void world_fini(struct world *w);
/* Another manager on the same provider and store: another daemon. */
struct pai_sessions *world_daemon(struct world *w);

struct pai_call soon(void); /* ten seconds */
struct pai_session *handle_of(struct pai_sessions *m, const char *key);
/* Acquires, drops the environment, returns the error's code; id gets the sandbox's, "" for none. */
enum pai_errcode acquire(
    struct pai_sessions *m, const char *key, uint32_t flags, char id[PAI_ID_MAX + 1]);
enum pai_errcode reset(struct pai_sessions *m, const char *key);
enum pai_errcode dispose(struct pai_sessions *m, const char *key, size_t *killed);
/* Fails the test where there is none. */
struct pai_env *env_of(struct pai_session *s, uint32_t flags);
struct thread {
	pthread_t id;
	const char *key;
	struct pai_session *session;
	enum pai_errcode code;
	size_t killed;
};
void *acquire_thread(void *arg); /* a struct thread */
void remove_dir(const char *path);
enum pai_session_state state_of(struct world *w, const char *key);

#endif
