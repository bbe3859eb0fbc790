/*
 * fake: a provider whose sandboxes are a few words of memory, for the session manager's tests. It
 * counts every call, can be told to wait or to fail, and outlives managers: what they close is a
 * view (fake_view) of one world.
 */
#ifndef TESTS_UNIT_SESSION_FAKE_H
#define TESTS_UNIT_SESSION_FAKE_H

#include <pthread.h>

#include "providers/base/strmap.h"
#include "providers/provider.h"

#define FAKE_BOXES 64

enum fake_call {
	FAKE_CREATE,
	FAKE_CONNECT,
	FAKE_LIST,
	FAKE_KEEP_ALIVE,
	FAKE_KILL,
	FAKE_PAUSE,
	FAKE_RUN,
	FAKE_CLOSE,
	FAKE_CALLS
};
struct fake_box {
	char id[32], incarnation[32];
	struct pai_strmap metadata;
	char binding_key[160];
	enum pai_sandbox_state state;
	int64_t created_ms;
	bool is_live;
};
struct fake {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct fake_box boxes[FAKE_BOXES];
	size_t count;
	int calls[FAKE_CALLS];
	/* Told by the test. */
	bool hold[FAKE_CALLS]; /* calls wait until it is false, or cancelled */
	bool hang[FAKE_CALLS]; /* the same, and deaf to a cancellation */
	bool fail[FAKE_CALLS]; /* UNAVAILABLE */
	bool hide;             /* list shows nothing: a backend whose list lags */
	bool ignores_filter;
	bool binds, borrowed;
	uint64_t last_ttl_ms;
	struct pai_create_input last_create; /* shallow: network and template by name below */
	char last_template[64];
};
void fake_init(struct fake *f);
void fake_fini(struct fake *f);
struct pai_provider *fake_view(struct fake *f);

int fake_count(struct fake *f, enum fake_call call);
/* Waits, ten seconds at most, until the call was entered n times. */
bool fake_wait(struct fake *f, enum fake_call call, int n);
void fake_set(struct fake *f, bool *flag, bool value);
size_t fake_live(struct fake *f);
/* Somebody else's doing: a sandbox appears, or goes by itself. */
struct fake_box *fake_add(struct fake *f, const char *id, const struct pai_strmap *metadata);
void fake_vanish(struct fake *f, const char *id);

#endif
