#include "providers/memory/box.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "providers/base/clock.h"

void pai_box_unref(struct pai_box *b)
{
	if (!b || atomic_fetch_sub(&b->refs, 1) != 1) {
		return;
	}
	pai_tree_free(b->tree);
	pai_cancel_unref(b->stop);
	pai_strmap_fini(&b->metadata);
	pai_strmap_fini(&b->env);
	free(b->id);
	free(b->incarnation);
	free(b->binding_key);
	(void)pthread_mutex_destroy(&b->lock);
	free(b);
}

struct pai_box *pai_box_ref(struct pai_box *b)
{
	(void)atomic_fetch_add(&b->refs, 1);
	return b;
}

static char *random_name(const char *prefix)
{
	uint64_t number;
	char *name = NULL;

	if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number) ||
	    asprintf(&name, "%s%016" PRIx64, prefix, number) < 0) {
		return NULL;
	}
	return name;
}

struct pai_box *pai_box_new(const struct pai_create_input *in)
{
	pai_auto_box struct pai_box *b = calloc(1, sizeof(*b));

	if (!b) {
		return NULL;
	}
	atomic_init(&b->refs, 1);
	(void)pthread_mutex_init(&b->lock, NULL);
	b->id = random_name("mem-");
	b->incarnation = random_name("");
	b->stop = pai_cancel_new();
	b->tree = pai_tree_new();
	b->binding_key = in->binding_key ? strdup(in->binding_key) : NULL;
	b->created_wall_ms = pai_clock_wall_ms();
	b->ttl_ms = in->ttl_ms;
	b->expires_ms = in->ttl_ms ? pai_deadline_in(in->ttl_ms) : PAI_NO_DEADLINE;
	if (!b->id || !b->incarnation || !b->stop || !b->tree ||
	    (in->binding_key && !b->binding_key) ||
	    (in->metadata && pai_strmap_copy(&b->metadata, in->metadata) < 0) ||
	    (in->env && pai_strmap_copy(&b->env, in->env) < 0)) {
		return NULL;
	}
	return PAI_TAKE(b);
}

static void box_enter_locked(struct pai_box *b, enum pai_box_state next)
{
	static const bool allowed[3][3] = {
	    [PAI_BOX_RUNNING] = {[PAI_BOX_PAUSED] = true, [PAI_BOX_GONE] = true},
	    [PAI_BOX_PAUSED] = {[PAI_BOX_RUNNING] = true, [PAI_BOX_GONE] = true},
	};

	assert(allowed[b->state][next]);
	b->state = next;
	if (next != PAI_BOX_RUNNING) {
		pai_cancel_fire(b->stop);
	}
}

static void box_expire_locked(struct pai_box *b)
{
	if (b->state == PAI_BOX_RUNNING && pai_deadline_passed(b->expires_ms)) {
		box_enter_locked(b, PAI_BOX_GONE);
	}
}

/* 0 with the lock held, or why no call may work on it. */
int pai_box_lock(struct pai_box *b, struct pai_err *err)
{
	enum pai_box_state state;

	(void)pthread_mutex_lock(&b->lock);
	box_expire_locked(b);
	state = b->state;
	if (state == PAI_BOX_RUNNING) {
		return 0;
	}
	(void)pthread_mutex_unlock(&b->lock);
	if (state == PAI_BOX_PAUSED) {
		return pai_err_unavailable(err, PAI_REASON_BACKEND, NULL,
		    "sandbox %s is paused: connect resumes it", b->id);
	}
	return pai_err_set(err, PAI_E_NOT_FOUND, "sandbox %s is gone", b->id);
}

void pai_box_unlock(struct pai_box *b)
{
	(void)pthread_mutex_unlock(&b->lock);
}

bool pai_box_is_live(struct pai_box *b)
{
	bool live;

	(void)pthread_mutex_lock(&b->lock);
	box_expire_locked(b);
	live = b->state != PAI_BOX_GONE;
	(void)pthread_mutex_unlock(&b->lock);
	return live;
}

void pai_box_kill(struct pai_box *b)
{
	(void)pthread_mutex_lock(&b->lock);
	if (b->state != PAI_BOX_GONE) {
		box_enter_locked(b, PAI_BOX_GONE);
	}
	(void)pthread_mutex_unlock(&b->lock);
}

int pai_box_pause(struct pai_box *b, struct pai_err *err)
{
	int r = 0;

	(void)pthread_mutex_lock(&b->lock);
	box_expire_locked(b);
	if (b->state == PAI_BOX_GONE) {
		r = pai_err_set(err, PAI_E_NOT_FOUND, "sandbox %s is gone", b->id);
	} else if (b->state == PAI_BOX_RUNNING) {
		box_enter_locked(b, PAI_BOX_PAUSED);
	}
	(void)pthread_mutex_unlock(&b->lock);
	return r;
}

/* With a fresh `stop`: the old one stays fired for the commands that it ended. */
int pai_box_resume(struct pai_box *b, struct pai_err *err)
{
	struct pai_cancel *fresh = pai_cancel_new();

	if (!fresh) {
		return pai_err_no_memory(err);
	}
	(void)pthread_mutex_lock(&b->lock);
	if (b->state == PAI_BOX_PAUSED) {
		struct pai_cancel *old = b->stop;

		b->stop = fresh;
		fresh = old;
		b->expires_ms = b->ttl_ms ? pai_deadline_in(b->ttl_ms) : PAI_NO_DEADLINE;
		box_enter_locked(b, PAI_BOX_RUNNING);
	}
	(void)pthread_mutex_unlock(&b->lock);
	pai_cancel_unref(fresh);
	return 0;
}

void pai_box_keep_alive(struct pai_box *b, uint64_t until_ms)
{
	if (until_ms > b->expires_ms) {
		b->expires_ms = until_ms;
	}
}
