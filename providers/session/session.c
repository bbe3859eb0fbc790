/*
 * One key. Whoever needs an environment that isn't there starts the session's one job, on the
 * manager's own threads, and waits for it as long as its own deadline allows; the job goes on for
 * the next. A reset, a pause and a dispose take the job's slot, so nothing is made meanwhile.
 *
 *   phase      env  job   left by
 *   ABSENT     no   no    acquire (ATTACHING), reset or pause (SWEEPING), dispose (ENDED)
 *   ATTACHING  no   yes   the job: found (LIVE), none (CREATING), failed (ABSENT)
 *   CREATING   no   yes   the job: LIVE or ABSENT
 *   LIVE       yes  any   lost, or another daemon's doing (ABSENT), reset, pause (SWEEPING), ENDED
 *   SWEEPING   no   yes   its end (ABSENT)
 *   ENDED      no   any   nothing: the key's next handle is a new one
 *
 * What other daemons did stands in the store, which every acquire reads first.
 */
#include "providers/session/session.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"
#include "providers/session/session_private.h"

/* A sandbox that is lost again as soon as it is made, this many times, is the backend's failure. */
#define ACQUIRE_TRIES 4
/* A look at a key whose sandbox we have never seen asks the provider at most this often. */
#define LOOK_AGAIN_MS 10000

static const bool allowed[PAI_PHASE_COUNT][PAI_PHASE_COUNT] = {
    [PAI_PHASE_ABSENT] =
	{[PAI_PHASE_ATTACHING] = true, [PAI_PHASE_SWEEPING] = true, [PAI_PHASE_ENDED] = true},
    [PAI_PHASE_ATTACHING] = {[PAI_PHASE_CREATING] = true,
	[PAI_PHASE_LIVE] = true,
	[PAI_PHASE_ABSENT] = true,
	[PAI_PHASE_ENDED] = true},
    [PAI_PHASE_CREATING] =
	{[PAI_PHASE_LIVE] = true, [PAI_PHASE_ABSENT] = true, [PAI_PHASE_ENDED] = true},
    [PAI_PHASE_LIVE] =
	{[PAI_PHASE_ABSENT] = true, [PAI_PHASE_SWEEPING] = true, [PAI_PHASE_ENDED] = true},
    [PAI_PHASE_SWEEPING] = {[PAI_PHASE_ABSENT] = true, [PAI_PHASE_ENDED] = true},
};

static void check_invariants_locked(const struct pai_session *s)
{
	assert((s->phase == PAI_PHASE_LIVE) == (s->env != NULL));
	assert(s->job || (s->phase != PAI_PHASE_ATTACHING && s->phase != PAI_PHASE_CREATING &&
			     s->phase != PAI_PHASE_SWEEPING));
	(void)s; /* without assertions */
}

static void move_locked(struct pai_session *s, enum pai_session_phase next)
{
	static const char *const names[] = {
	    "absent", "attaching", "creating", "live", "sweeping", "ended"};

	assert(allowed[s->phase][next]);
	pai_log_debug("session", "%s: %s -> %s", s->key, names[s->phase], names[next]);
	s->phase = next;
	pai_waitq_wake(&s->changed);
}

void pai_session_enter_locked(struct pai_session *s, enum pai_session_phase next)
{
	move_locked(s, next);
	check_invariants_locked(s);
}

/* --- events of the listener --- */

static void push_event_locked(struct pai_session *s, struct pai_env_event *event)
{
	event->next = NULL;
	*s->events_end = event;
	s->events_end = &event->next;
}

void pai_session_attach_locked(struct pai_session *s, struct pai_env *take_e)
{
	take_e->attach_number = ++s->attachments;
	s->last = take_e->identity;
	s->env = take_e;
	take_e->attached = (struct pai_env_event){.env = pai_env_ref(take_e)};
	push_event_locked(s, &take_e->attached);
	pai_session_enter_locked(s, PAI_PHASE_LIVE);
}

void pai_session_detach_locked(struct pai_session *s, enum pai_session_phase next, const char *why)
{
	struct pai_env *e = s->env;

	if (e) {
		pai_log_debug(
		    "session", "%s: %s is detached: %s", s->key, e->identity.sandbox_id, why);
		/* Seen at once by whoever asks; the servers are told with the event. */
		atomic_store(&e->revoked, true);
		s->env = NULL;
		s->attachments++;
		e->detached = (struct pai_env_event){.env = e, .is_detach = true};
		push_event_locked(s, &e->detached);
	}
	if (s->phase != next) {
		pai_session_enter_locked(s, next);
	}
}

static void run_event(struct pai_session *s, struct pai_env_event *event)
{
	const struct pai_session_listener *l = &s->m->listener;

	if (event->is_detach) {
		pai_env_revoke(event->env);
		if (l->detached) {
			l->detached(l->arg, s, event->env);
		}
	} else if (l->attached) {
		l->attached(l->arg, s, event->env, event->env->replaced);
	}
	pai_env_unref(event->env); /* the event lies in it */
}

void pai_session_deliver(struct pai_session *s)
{
	(void)pthread_mutex_lock(&s->lock);
	if (s->is_delivering) {
		(void)pthread_mutex_unlock(&s->lock);
		return;
	}
	s->is_delivering = true;
	while (s->events) {
		struct pai_env_event *event = s->events;

		s->events = event->next;
		if (!s->events) {
			s->events_end = &s->events;
		}
		(void)pthread_mutex_unlock(&s->lock);
		run_event(s, event);
		(void)pthread_mutex_lock(&s->lock);
	}
	s->is_delivering = false;
	pai_waitq_wake(&s->changed);
	(void)pthread_mutex_unlock(&s->lock);
}

int pai_session_wait_delivered_locked(
    struct pai_session *s, const struct pai_call *call, struct pai_err *err)
{
	while (s->is_delivering || s->events) {
		int r = pai_waitq_wait(&s->changed, &s->lock, call, "tell the mount", err);

		if (r < 0) {
			return r;
		}
	}
	return 0;
}

/* --- the job's slot --- */

static int wait_slot_locked(struct pai_session *s, const struct pai_call *call, struct pai_err *err)
{
	while (s->job) {
		int r = pai_waitq_wait(&s->changed, &s->lock, call, "wait for the sandbox", err);

		if (r < 0) {
			return r;
		}
	}
	return 0;
}

int pai_session_take_slot_locked(struct pai_session *s, enum pai_session_phase phase,
    const struct pai_call *call, struct pai_err *err)
{
	int r;

	if (s->job_cancel) {
		pai_cancel_fire(s->job_cancel);
	}
	/* Those who wait for the job would start another as soon as it has ended. */
	s->slot_wanted++;
	r = wait_slot_locked(s, call, err);
	s->slot_wanted--;
	if (r < 0) {
		pai_waitq_wake(&s->changed);
		return r;
	}
	s->job = true;
	s->job_number++;
	if (s->phase != PAI_PHASE_ENDED) {
		pai_session_detach_locked(s, phase, "by the user's word");
	}
	return 0;
}

void pai_session_release_slot(struct pai_session *s)
{
	(void)pthread_mutex_lock(&s->lock);
	if (s->phase == PAI_PHASE_SWEEPING) {
		move_locked(s, PAI_PHASE_ABSENT);
	}
	s->job = false;
	s->done_number = s->job_number;
	s->done_err = (struct pai_err)PAI_ERR_INIT;
	check_invariants_locked(s);
	pai_waitq_wake(&s->changed);
	(void)pthread_mutex_unlock(&s->lock);
}

/* --- the job --- */

struct job {
	struct pai_attach attach;
	char *given;
	struct pai_cancel *cancel;
};

static void job_free(struct job *j)
{
	if (!j) {
		return;
	}
	free(j->given);
	pai_cancel_unref(j->cancel);
	free(j);
}
PAI_DEFINE_AUTO(struct job, job_free)

static void job_end(struct job *j, const struct pai_err *err)
{
	struct pai_session *s = j->attach.session;

	(void)pthread_mutex_lock(&s->lock);
	if (s->phase == PAI_PHASE_ATTACHING || s->phase == PAI_PHASE_CREATING) {
		move_locked(s, PAI_PHASE_ABSENT);
	}
	s->job = false;
	s->job_cancel = NULL;
	s->done_number = s->job_number;
	s->done_err = *err;
	check_invariants_locked(s);
	pai_waitq_wake(&s->changed);
	(void)pthread_mutex_unlock(&s->lock);
}

static void job_run(void *arg)
{
	struct job *j = arg;
	struct pai_session *s = j->attach.session;
	struct pai_sessions *m = s->m;
	pai_auto_terms struct pai_terms terms = {.text = NULL};
	struct pai_call call = {.cancel = j->cancel};
	struct pai_err err = PAI_ERR_INIT;
	int r = pai_session_terms(s, j->given, &terms, &err);

	j->attach.terms = &terms;
	call.deadline_ms = pai_deadline_in(terms.create_timeout_ms);
	r = r < 0 ? r : pai_session_attach(&j->attach, &call, &err);
	if (r < 0) {
		pai_log_debug("session", "%s: %s", s->key, err.msg);
	}
	pai_session_deliver(s);
	job_end(j, &err);
	job_free(j);
	pai_session_unref(s);
	pai_sessions_leave(m);
}

/* No job runs. */
static int job_start_locked(
    struct pai_session *s, uint32_t flags, const char *options, struct pai_err *err)
{
	PAI_AUTO(job_free_p) struct job *j = calloc(1, sizeof(*j));
	int r = 0;

	if (!j || !(j->cancel = pai_cancel_new()) || (options && !(j->given = strdup(options)))) {
		return pai_err_no_memory(err);
	}
	j->attach.given = j->given;
	j->attach.session = pai_session_ref(s);
	j->attach.flags = flags;
	j->attach.epoch = s->epoch;
	s->job = true;
	s->job_cancel = j->cancel;
	s->job_number++;
	pai_session_enter_locked(s, PAI_PHASE_ATTACHING);
	r = pai_sessions_submit(s->m, job_run, j, err);
	if (r == 0) {
		(void)PAI_TAKE(j);
		return 0;
	}
	s->job = false;
	s->job_cancel = NULL;
	move_locked(s, PAI_PHASE_ABSENT);
	pai_session_unref(s); /* not the last: the caller has one */
	return r;
}

/* --- acquire --- */

int pai_session_load_locked(
    struct pai_session *s, struct pai_session_record *record, struct pai_err *err)
{
	struct pai_store *store = s->m->store;
	uint64_t attachments;

	do {
		bool found = false;
		int r;

		attachments = s->attachments;
		(void)pthread_mutex_unlock(&s->lock);
		*record = (struct pai_session_record){.state = PAI_SESSION_NEW};
		r = store->ops->load(store, s->key, &found, record, err);
		(void)pthread_mutex_lock(&s->lock);
		if (r < 0) {
			return pai_err_wrap(err, "session store");
		}
		/* What was read before an attachment says nothing about it. */
	} while (s->attachments != attachments);
	if (s->env && (record->state != PAI_SESSION_LIVE ||
			  !pai_session_identity_equal(&record->identity, &s->env->identity))) {
		pai_session_detach_locked(s, PAI_PHASE_ABSENT, "changed by another daemon");
	}
	return 0;
}

/* A look asks the provider only about what may be there and costs nothing to reattach: not a
 * session that was never bound, is known to be gone, or is paused. */
static bool may_look_locked(const struct pai_session *s, const struct pai_session_record *record)
{
	if (record->state == PAI_SESSION_LIVE) {
		return true;
	}
	return record->state == PAI_SESSION_LOST && !record->identity.sandbox_id[0] &&
	       pai_deadline_passed(s->look_again_ms);
}

enum step {
	STEP_DONE,   /* *ret is the answer, NULL too */
	STEP_CHECK,  /* *ret is there: renew and verify it */
	STEP_AGAIN,  /* a job has ended: what it made is looked at */
	STEP_WAITED, /* for something that passes: no try */
};
struct acquire {
	struct pai_session *s;
	uint32_t flags;
	const char *options;
	const struct pai_call *call;
	bool started; /* a job with these options */
};

/* Waits for the job that runs; its failure is ours. */
static int wait_job_locked(const struct acquire *a, struct pai_err *err)
{
	struct pai_session *s = a->s;
	uint64_t number = s->job_number;
	bool is_look = a->flags & PAI_ACQUIRE_LOOK;

	while (s->job && s->job_number == number) {
		int r;

		if (is_look && s->phase == PAI_PHASE_CREATING) {
			return 0;
		}
		r = pai_waitq_wait(&s->changed, &s->lock, a->call, "wait for the sandbox", err);
		if (r < 0) {
			return r;
		}
	}
	/* A job is cancelled by a reset or a kill, never by a waiter: the next step sees which. And
	 * what it found may have gone before it was ours: the next job finds another. */
	if (s->phase != PAI_PHASE_LIVE && s->done_number == number && s->done_err.code != PAI_OK &&
	    s->done_err.code != PAI_E_CANCELLED && s->done_err.code != PAI_E_NOT_FOUND) {
		*err = s->done_err;
		return -err->errnum;
	}
	return 0;
}

static int step_locked(
    struct acquire *a, enum step *step, struct pai_env **ret, struct pai_err *err)
{
	struct pai_session *s = a->s;
	struct pai_session_record record;
	bool is_look = a->flags & PAI_ACQUIRE_LOOK;
	int r = pai_session_load_locked(s, &record, err);

	*step = STEP_AGAIN;
	if (r < 0) {
		return r;
	}
	if (s->phase == PAI_PHASE_ENDED) {
		return pai_err_set(err, PAI_E_RESET, "session '%s' was killed", s->key);
	}
	if (record.state == PAI_SESSION_KILLED && !(a->flags & PAI_ACQUIRE_REVIVE)) {
		return pai_err_set(err, PAI_E_RESET, "session '%s' was killed", s->key);
	}
	if (s->events || s->is_delivering) {
		*step = STEP_WAITED; /* or delivers them itself, without the lock */
		return s->is_delivering ? pai_session_wait_delivered_locked(s, a->call, err) : 0;
	}
	if (s->env) {
		*ret = pai_env_ref(s->env);
		*step = STEP_CHECK;
		return 0;
	}
	if (is_look && (s->phase == PAI_PHASE_CREATING || s->phase == PAI_PHASE_SWEEPING ||
			   s->slot_wanted > 0 || (!s->job && !may_look_locked(s, &record)))) {
		*step = STEP_DONE;
		return 0;
	}
	if (!s->job && s->slot_wanted > 0) {
		*step = STEP_WAITED;
		return pai_waitq_wait(&s->changed, &s->lock, a->call, "wait for the reset", err);
	}
	a->started = a->started || !s->job;
	r = s->job ? 0 : job_start_locked(s, a->flags, a->options, err);
	r = r < 0 ? r : wait_job_locked(a, err);
	if (r == 0 && is_look && !s->env && !s->job && s->phase == PAI_PHASE_ABSENT) {
		s->look_again_ms = pai_deadline_in(LOOK_AGAIN_MS);
		*step = STEP_DONE;
	}
	return r;
}

/* The environment that is there, still alive as far as has to be known. 0 with *is_gone: it is
 * detached. */
static int check_env(const struct acquire *a, struct pai_env *e, bool *is_gone, struct pai_err *err)
{
	struct pai_err why = PAI_ERR_INIT;
	int r = 0;

	if (pai_env_is_seen_gone(e)) {
		pai_session_lost(a->s, e, "its identity file is gone");
		*is_gone = true;
		return 0;
	}
	if (a->flags & PAI_ACQUIRE_VERIFY) {
		r = pai_session_verify_entered(a->s, e, a->call, &why);
	}
	if (r == 0 && a->options && !a->started) {
		r = pai_session_apply(a->s, e, a->options, a->call, &why);
	}
	if (r == 0 && !(a->flags & PAI_ACQUIRE_LOOK)) {
		r = pai_env_renew(e, a->call, &why);
	}
	if (r < 0 && why.code == PAI_E_NOT_FOUND) {
		pai_session_lost(a->s, e, why.msg);
		*is_gone = true;
		return 0;
	}
	if (r < 0) {
		*err = why;
	}
	return r;
}

int pai_session_acquire_entered(struct pai_session *s, uint32_t flags, const char *options,
    const struct pai_call *call, struct pai_env **ret, struct pai_err *err)
{
	struct acquire a = {s, flags, options, call, false};

	for (int tries = 0; tries < ACQUIRE_TRIES;) {
		pai_auto_env struct pai_env *e = NULL;
		enum step step;
		bool is_gone = false;
		int r = pai_call_check(call, "acquire the session", err);

		if (r < 0) {
			return r;
		}
		(void)pthread_mutex_lock(&s->lock);
		r = step_locked(&a, &step, &e, err);
		(void)pthread_mutex_unlock(&s->lock);
		pai_session_deliver(s);
		if (r == 0 && step == STEP_CHECK) {
			r = check_env(&a, e, &is_gone, err);
		}
		if (r < 0) {
			return r;
		}
		if (step == STEP_DONE || (step == STEP_CHECK && !is_gone)) {
			*ret = PAI_TAKE(e);
			return 0;
		}
		tries += step == STEP_AGAIN;
	}
	return pai_err_unavailable(
	    err, PAI_REASON_BACKEND, NULL, "the sandbox of '%s' keeps disappearing", s->key);
}

int pai_session_acquire(struct pai_session *s, uint32_t flags, const char *options,
    const struct pai_call *call, struct pai_env **ret, struct pai_err *err)
{
	int r = pai_sessions_enter(s->m, err);

	if (r < 0) {
		return r;
	}
	r = pai_session_acquire_entered(s, flags, options, call, ret, err);
	pai_sessions_leave(s->m);
	return r;
}

/* --- what became of it --- */

struct pai_env *pai_session_current(struct pai_session *s)
{
	struct pai_env *e;

	(void)pthread_mutex_lock(&s->lock);
	e = s->env ? pai_env_ref(s->env) : NULL;
	(void)pthread_mutex_unlock(&s->lock);
	return e;
}

void pai_session_lost(struct pai_session *s, struct pai_env *e, const char *why)
{
	struct pai_store *store = s->m->store;
	struct pai_err err = PAI_ERR_INIT;
	bool is_ours;

	(void)pthread_mutex_lock(&s->lock);
	is_ours = s->env == e;
	if (is_ours) {
		pai_session_detach_locked(s, PAI_PHASE_ABSENT, why);
	}
	(void)pthread_mutex_unlock(&s->lock);
	if (!is_ours) {
		return;
	}
	if (store->ops->event(store, s->key, PAI_STORE_LOST, &e->identity, why, &err) < 0) {
		pai_log_warn(
		    "session", "%s: the loss of its sandbox is not recorded: %s", s->key, err.msg);
	}
	pai_session_deliver(s);
}

int pai_session_verify_entered(
    struct pai_session *s, struct pai_env *e, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_sandbox struct pai_sandbox *sb = NULL;
	struct pai_session_identity now;
	int r = pai_provider_connect(s->m->provider, e->identity.sandbox_id, call, &sb, err);

	if (r < 0) {
		return r;
	}
	if (sb) {
		pai_session_identity_of(sb, &now);
	}
	if (!sb || !pai_session_identity_equal(&now, &e->identity)) {
		pai_session_lost(s, e, "the provider no longer has it");
		return pai_err_set(
		    err, PAI_E_NOT_FOUND, "sandbox %s is gone", e->identity.sandbox_id);
	}
	return 0;
}

int pai_session_verify(
    struct pai_session *s, struct pai_env *e, const struct pai_call *call, struct pai_err *err)
{
	int r = pai_sessions_enter(s->m, err);

	if (r < 0) {
		return r;
	}
	r = pai_session_verify_entered(s, e, call, err);
	pai_sessions_leave(s->m);
	return r;
}

const char *pai_session_key(const struct pai_session *s)
{
	return s->key;
}

void pai_session_snapshot(struct pai_session *s, struct pai_session_record *ret)
{
	struct pai_store *store = s->m->store;
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;

	*ret = (struct pai_session_record){.state = PAI_SESSION_NEW};
	if (store->ops->load(store, s->key, &found, ret, &err) < 0) {
		pai_log_debug("session", "%s: no record: %s", s->key, err.msg);
	}
	(void)snprintf(ret->key, sizeof(ret->key), "%s", s->key);
	(void)pthread_mutex_lock(&s->lock);
	if (s->phase == PAI_PHASE_CREATING) {
		ret->state = PAI_SESSION_CREATING;
	}
	(void)pthread_mutex_unlock(&s->lock);
}

bool pai_session_tell_reset(struct pai_session *s, uint32_t sid, uint64_t sid_started,
    struct pai_env *e, const struct pai_session_identity *last_command)
{
	struct pai_told_entry caller = {
	    .sid = sid,
	    .sid_started = sid_started,
	    .identity = e->identity,
	};
	bool tell;

	(void)snprintf(caller.key, sizeof(caller.key), "%s", s->key);
	(void)pthread_mutex_lock(&s->m->lock);
	tell = pai_told_ask(&s->m->told, &caller, last_command);
	(void)pthread_mutex_unlock(&s->m->lock);
	if (tell) {
		/* A use that comes next in it has nothing new to report. */
		atomic_store(&e->told, true);
	}
	return tell;
}
