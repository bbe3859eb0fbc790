/*
 * What is done with an environment: a use with its one retry, a reset, a pause. Retry is for work
 * that no reset or kill came in between of, here (epoch) or in another daemon (record.resets).
 */
#include <errno.h>

#include "providers/session/session_private.h"

struct use {
	struct pai_session *s;
	const struct pai_use *how;
	pai_session_fn fn;
	void *arg;
	const struct pai_call *call;
	uint64_t attachments; /* of the session when it began */
	struct pai_session_mark mark;
	bool *environment_reset;
};

int pai_session_mark(struct pai_session *s, struct pai_session_mark *ret, struct pai_err *err)
{
	struct pai_session_record record;
	int r;

	(void)pthread_mutex_lock(&s->lock);
	r = pai_session_load_locked(s, &record, err);
	ret->epoch = s->epoch;
	(void)pthread_mutex_unlock(&s->lock);
	pai_session_deliver(s);
	ret->resets = record.resets;
	return r;
}

bool pai_session_is_unreset(struct pai_session *s, const struct pai_session_mark *mark)
{
	struct pai_session_record record;
	bool is_unreset;

	(void)pthread_mutex_lock(&s->lock);
	is_unreset = pai_session_load_locked(s, &record, PAI_ERR_IGNORED()) == 0 &&
		     mark->epoch == s->epoch && mark->resets == record.resets &&
		     s->phase != PAI_PHASE_ENDED;
	(void)pthread_mutex_unlock(&s->lock);
	pai_session_deliver(s);
	return is_unreset;
}

static int begin(struct use *u, struct pai_err *err)
{
	(void)pthread_mutex_lock(&u->s->lock);
	u->attachments = u->s->attachments;
	(void)pthread_mutex_unlock(&u->s->lock);
	return pai_session_mark(u->s, &u->mark, err);
}

/* Whether the failure means that the environment is gone; it is detached then. A stale file alone
 * answers RESET as well: the provider is asked. */
static bool is_lost(struct use *u, struct pai_env *e, const struct pai_err *err)
{
	struct pai_err why = PAI_ERR_INIT;

	if (err->code == PAI_E_NOT_FOUND) {
		pai_session_lost(u->s, e, err->msg);
		return true;
	}
	return err->code == PAI_E_RESET &&
	       (pai_env_revoked(e) || pai_env_is_seen_gone(e) ||
		   (pai_session_verify_entered(u->s, e, u->call, &why) < 0 &&
		       why.code == PAI_E_NOT_FOUND));
}

/* `first`: why the first try failed, NULL in the first. *again: it may be tried once more. */
static int try(struct use *u, const struct pai_err *first, bool *again, struct pai_err *err)
{
	pai_auto_env struct pai_env *e = NULL;
	int r = pai_session_acquire_entered(u->s, u->how->flags, NULL, u->call, &e, err);

	*again = false;
	if (r < 0) {
		return r;
	}
	if (!e) {
		return pai_err_set(
		    err, PAI_E_NOT_FOUND, "session '%s' has no live sandbox", u->s->key);
	}
	/* Asked again: a reset may have come while we waited for the replacement. */
	if (first && !pai_session_is_unreset(u->s, &u->mark)) {
		*err = *first;
		return -first->errnum;
	}
	/* Told by the first use in it, and by those that were under way when it came. */
	if (e->replaced &&
	    (!atomic_exchange(&e->told, true) || e->attach_number > u->attachments)) {
		*u->environment_reset = true;
	}
	pai_env_busy(e, 1);
	r = pai_session_seed_entered(u->s, e, &u->how->seed, u->call, err);
	r = r < 0 ? r : u->fn(u->arg, e, err);
	pai_env_busy(e, -1);
	if (r < 0 && is_lost(u, e, err)) {
		*again = true;
	}
	return r;
}

static int use_twice(struct use *u, struct pai_err *err)
{
	bool again = false;
	int r = begin(u, err);

	r = r < 0 ? r : try(u, NULL, &again, err);
	if (r < 0 && again && pai_session_is_unreset(u->s, &u->mark)) {
		struct pai_err first = *err;

		*err = (struct pai_err)PAI_ERR_INIT;
		r = try(u, &first, &again, err);
	}
	return r;
}

int pai_session_use(struct pai_session *s, const struct pai_use *use, pai_session_fn fn, void *arg,
    const struct pai_call *call, bool *environment_reset, struct pai_err *err)
{
	struct use u = {s, use, fn, arg, call, .environment_reset = environment_reset};
	uint64_t token = 0;
	int r = pai_sessions_enter(s->m, err);

	*environment_reset = false;
	if (r < 0) {
		return r;
	}
	if (use->exclusive) {
		r = pai_session_exclusive_pass(s, use->token, call, &token, err);
	}
	if (r == 0) {
		r = use_twice(&u, err);
		pai_session_exclusive_end(s, token);
	}
	pai_sessions_leave(s->m);
	return r;
}

/* --- reset --- */

static void forbid_retry(struct pai_session *s)
{
	(void)pthread_mutex_lock(&s->lock);
	s->epoch++;
	(void)pthread_mutex_unlock(&s->lock);
}

/* Takes the slot for what `record` says is there. *nothing: killed already. */
static int begin_reset(struct pai_session *s, const struct pai_call *call,
    struct pai_session_record *record, bool *nothing, struct pai_err *err)
{
	int r;

	(void)pthread_mutex_lock(&s->lock);
	r = pai_session_load_locked(s, record, err);
	*nothing = r == 0 && record->state == PAI_SESSION_KILLED;
	if (r == 0 && s->phase == PAI_PHASE_ENDED) {
		r = pai_err_set(err, PAI_E_RESET, "session '%s' was killed", s->key);
	}
	if (r == 0 && s->env) {
		r = pai_session_refuse_borrowed(s, s->env->sandbox, err);
	}
	if (r == 0 && !*nothing) {
		s->epoch++;
		r = pai_session_take_slot_locked(s, PAI_PHASE_SWEEPING, call, err);
	}
	(void)pthread_mutex_unlock(&s->lock);
	pai_session_deliver(s);
	return r;
}

/* Sweeps and records; nobody makes another in between, in any daemon of this host. */
static int sweep_slot(struct pai_session *s, const struct pai_session_record *record,
    const struct pai_call *call, struct pai_err *err)
{
	struct pai_store *store = s->m->store;
	pai_auto_fd int lock_fd = -1;
	pai_auto_free char *label = pai_session_label(s);
	struct pai_err why = PAI_ERR_INIT;
	size_t killed = 0;
	int r =
	    label ? pai_session_lock_file(s, "make", call, &lock_fd, err) : pai_err_no_memory(err);

	if (r < 0) {
		return r;
	}
	r = pai_session_sweep(s, label, true, call, &killed, err);
	if ((killed > 0 || (r == 0 && record->generation > 0)) &&
	    store->ops->event(store, s->key, PAI_STORE_RESET, &record->identity, "", &why) < 0 &&
	    r == 0) {
		*err = why;
		r = -why.errnum;
	}
	return r;
}

static int reset_exclusively(
    struct pai_session *s, const struct pai_call *call, struct pai_err *err)
{
	struct pai_session_record record;
	bool nothing = false;
	int r = begin_reset(s, call, &record, &nothing, err);

	if (r < 0 || nothing) {
		return r;
	}
	r = sweep_slot(s, &record, call, err);
	pai_session_release_slot(s);
	return r;
}

int pai_session_reset_inside(
    struct pai_session *s, uint64_t token, const struct pai_call *call, struct pai_err *err)
{
	uint64_t taken = 0;
	int r = pai_sessions_enter(s->m, err);

	if (r < 0) {
		return r;
	}
	/* From now on, and again once it is our turn: what began in between is older too. */
	forbid_retry(s);
	r = pai_session_exclusive_pass(s, token, call, &taken, err);
	if (r == 0) {
		r = reset_exclusively(s, call, err);
		pai_session_exclusive_end(s, taken);
	}
	pai_sessions_leave(s->m);
	return r;
}

int pai_session_reset(struct pai_session *s, const struct pai_call *call, struct pai_err *err)
{
	return pai_session_reset_inside(s, 0, call, err);
}

/* --- pause --- */

static int pause_entered(struct pai_session *s, const struct pai_call *call, struct pai_err *err)
{
	struct pai_store *store = s->m->store;
	pai_auto_env struct pai_env *e = NULL;
	struct pai_session_record record;
	int r = pai_session_acquire_entered(s, PAI_ACQUIRE_LOOK, NULL, call, &e, err);

	if (r == 0 && !e) {
		pai_session_snapshot(s, &record);
		return record.state == PAI_SESSION_PAUSED
			   ? 0
			   : pai_err_set(
				 err, PAI_E_NOT_FOUND, "session '%s' has no live sandbox", s->key);
	}
	if (r < 0) {
		return r;
	}
	(void)pthread_mutex_lock(&s->lock);
	r = s->phase == PAI_PHASE_ENDED
		? pai_err_set(err, PAI_E_RESET, "session '%s' was killed", s->key)
		: pai_session_take_slot_locked(s, PAI_PHASE_SWEEPING, call, err);
	(void)pthread_mutex_unlock(&s->lock);
	pai_session_deliver(s);
	if (r < 0) {
		return r;
	}
	r = pai_sandbox_pause(e->sandbox, call, err);
	r = r < 0 ? r : store->ops->event(store, s->key, PAI_STORE_PAUSE, &e->identity, "", err);
	pai_session_release_slot(s);
	return r;
}

int pai_session_pause(struct pai_session *s, const struct pai_call *call, struct pai_err *err)
{
	int r;

	if (!(pai_provider_caps(s->m->provider) & PAI_CAP_PAUSE)) {
		return pai_err_set(err, PAI_E_UNSUPPORTED, "%s: sandboxes can't be paused",
		    pai_provider_name(s->m->provider));
	}
	r = pai_sessions_enter(s->m, err);
	if (r < 0) {
		return r;
	}
	r = pause_entered(s, call, err);
	pai_sessions_leave(s->m);
	return r;
}
