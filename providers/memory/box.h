/*
 * box: one sandbox of the memory provider. The provider's list and every handle hold a reference,
 * so that a handle outlives the sandbox and says NOT_FOUND.
 *
 *   state     calls on it             leaves by
 *   RUNNING   work                    kill, expiry, pause
 *   PAUSED    UNAVAILABLE             kill, connect
 *   GONE      NOT_FOUND               nothing
 *
 * Locks: the provider's (list, script), then a box's (state, tree). A command holds a box's lock
 * for one built-in at a time and asks the state each time it takes it; `stop` is fired with every
 * change away from RUNNING, which is what wakes a sleeping one.
 */
#ifndef PAI_MEMORY_BOX_H
#define PAI_MEMORY_BOX_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "providers/base/auto.h"
#include "providers/base/cancel.h"
#include "providers/memory/script.h"
#include "providers/memory/tree.h"
#include "providers/provider_ops.h"

enum pai_box_state {
	PAI_BOX_RUNNING,
	PAI_BOX_PAUSED,
	PAI_BOX_GONE,
};

struct pai_box {
	atomic_uint refs;
	char *id, *incarnation;
	char *binding_key; /* NULL: none */
	struct pai_strmap metadata, env;
	int64_t created_wall_ms;
	struct pai_box *next; /* the provider's lock */

	pthread_mutex_t lock;
	enum pai_box_state state;
	uint64_t ttl_ms;     /* 0: none */
	uint64_t expires_ms; /* PAI_NO_DEADLINE: never */
	struct pai_cancel *stop;
	struct pai_tree *tree;
};

struct pai_memory {
	struct pai_provider base;
	pthread_mutex_t lock;
	struct pai_box *boxes;
	struct pai_script script;
};

struct pai_memory_sandbox {
	struct pai_sandbox base;
	struct pai_box *box;
};

/* NULL without memory or descriptors. */
struct pai_box *pai_box_new(const struct pai_create_input *in);
struct pai_box *pai_box_ref(struct pai_box *b);
void pai_box_unref(struct pai_box *b);
PAI_DEFINE_AUTO(struct pai_box, pai_box_unref)
#define pai_auto_box PAI_AUTO(pai_box_unref_p)
/* 0 with the lock held, or why no call may work on it: NOT_FOUND, UNAVAILABLE while paused. */
int pai_box_lock(struct pai_box *b, struct pai_err *err) PAI_WARN_UNUSED;
void pai_box_unlock(struct pai_box *b);
bool pai_box_is_live(struct pai_box *b);
void pai_box_kill(struct pai_box *b);
/* NOT_FOUND when it is gone. */
int pai_box_pause(struct pai_box *b, struct pai_err *err) PAI_WARN_UNUSED;
/* A box that isn't paused is left alone. */
int pai_box_resume(struct pai_box *b, struct pai_err *err) PAI_WARN_UNUSED;
void pai_box_keep_alive(struct pai_box *b, uint64_t until_ms); /* locked by the caller */

/* The sandbox call run(), on a box of `m`. */
int pai_memory_run(struct pai_memory *m, struct pai_box *b, const struct pai_run_input *input,
    const struct pai_call *call, struct pai_run_result *ret, struct pai_err *err) PAI_WARN_UNUSED;

#endif
