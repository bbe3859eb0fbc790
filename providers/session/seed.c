/*
 * When an environment is checked: once by this process, and once for each run that says so. The
 * check is a job of its own; whoever needs it waits for it, and only the one for whom it was begun
 * is told that it failed.
 *
 * It has a lock on a file beside the exclusive queue's, not a turn in that: a use that has the turn
 * may be what the check is for. Daemons of one host check one after the other; those of others may
 * do it at once, which the order of writing allows for (ledger/seed_check.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/base/key.h"
#include "providers/base/log.h"
#include "providers/session/session_private.h"

/* Another daemon's check, which has a ceiling (five minutes), and then ours. */
#define LOCK_MS 330000
#define WAIT_MS (2 * LOCK_MS)

struct pai_seed_trigger {
	bool is_done;
	struct pai_err err;
};
struct check {
	struct pai_session *s; /* references, both */
	struct pai_env *e;
	uint64_t run; /* hash; 0: none */
};

int pai_env_seed_init(struct pai_env *e, struct pai_err *err)
{
	atomic_init(&e->seed.is_done, e->session->m->seeder.check == NULL);
	e->seed.cancel = pai_cancel_new();
	return e->seed.cancel ? 0 : pai_err_no_memory(err);
}

void pai_env_seed_fini(struct pai_env *e)
{
	pai_cancel_unref(e->seed.cancel);
}

void pai_env_seed_end(struct pai_env *e)
{
	pai_cancel_fire(e->seed.cancel);
}

bool pai_env_is_seeded(const struct pai_env *e)
{
	return atomic_load(&e->seed.is_done);
}

pid_t pai_env_seed_session(const struct pai_env *e)
{
	return atomic_load(&e->seed.session);
}

struct pai_json *pai_session_missing(struct pai_session *s)
{
	pai_auto_free char *text = NULL;
	struct pai_json *missing = NULL;

	(void)pthread_mutex_lock(&s->lock);
	text = s->missing ? strdup(s->missing) : NULL;
	(void)pthread_mutex_unlock(&s->lock);
	return text && pai_json_parse(text, strlen(text), 1, &missing, PAI_ERR_IGNORED()) == 0
		   ? missing
		   : NULL;
}

uint64_t pai_session_seed_timeout(const struct pai_session *s)
{
	return s->m->seeder.check ? WAIT_MS : 0;
}

/* --- runs --- */

static uint64_t hash_of(const char *run)
{
	char hex[2 * PAI_SHA256_BYTES + 1];

	if (!run || !*run) {
		return 0;
	}
	pai_sha256_hex(run, strlen(run), hex);
	hex[16] = '\0';
	return strtoull(hex, NULL, 16) | 1;
}

static bool has_run_locked(const struct pai_env_seed *seed, uint64_t run)
{
	for (size_t i = 0; i < PAI_SEED_RUNS && i < seed->run_count; i++) {
		if (seed->runs[i] == run) {
			return true;
		}
	}
	return false;
}

static bool is_checked_locked(const struct pai_env_seed *seed, uint64_t run)
{
	return atomic_load(&seed->is_done) && (run == 0 || has_run_locked(seed, run));
}

/* --- the check --- */

/* Those who wait look again: one of them may be of that session. */
static void on_program(void *arg, pid_t session)
{
	struct pai_env *e = arg;

	(void)pthread_mutex_lock(&e->lock);
	atomic_store(&e->seed.session, session);
	pai_waitq_wake(&e->seed.changed);
	(void)pthread_mutex_unlock(&e->lock);
}

static void keep_missing(struct pai_session *s, const struct pai_json *missing)
{
	char *text = missing ? pai_json_print(missing, false) : NULL;

	(void)pthread_mutex_lock(&s->lock);
	free(s->missing);
	s->missing = text;
	(void)pthread_mutex_unlock(&s->lock);
}

static int run_check(struct check *c, struct pai_err *err)
{
	const struct pai_session_seeder *seeder = &c->s->m->seeder;
	const struct pai_seed_round round = {c->e->seed.cancel, on_program, c->e};
	const struct pai_call wait = {pai_deadline_in(LOCK_MS), c->e->seed.cancel};
	pai_auto_json struct pai_json *missing = NULL;
	pai_auto_fd int lock_fd = -1;
	int r = pai_session_lock_file(c->s, "seed", &wait, &lock_fd, err);

	r = r < 0 ? r : seeder->check(seeder->arg, c->s, c->e, &round, &missing, err);
	if (r == 0 || err->code == PAI_E_SEED) {
		keep_missing(c->s, missing);
	}
	return r;
}

static void end_check(struct check *c, const struct pai_err *err)
{
	struct pai_env_seed *seed = &c->e->seed;

	(void)pthread_mutex_lock(&c->e->lock);
	seed->is_checking = false;
	if (err->code == PAI_OK || err->code == PAI_E_SEED) {
		if (c->run) {
			seed->runs[seed->run_count++ % PAI_SEED_RUNS] = c->run;
		}
		atomic_store(&seed->is_done, true);
	}
	if (seed->trigger) {
		seed->trigger->is_done = true;
		seed->trigger->err = *err;
		seed->trigger = NULL;
	}
	pai_waitq_wake(&seed->changed);
	(void)pthread_mutex_unlock(&c->e->lock);
}

static void check_job(void *arg)
{
	struct check *c = arg;
	struct pai_sessions *m = c->s->m;
	struct pai_err err = PAI_ERR_INIT;
	int r;

	pai_env_busy(c->e, 1);
	r = run_check(c, &err);
	pai_env_busy(c->e, -1);
	if (r < 0) {
		pai_log_debug("session", "%s: seeds: %s", c->s->key, err.msg);
	}
	/* Cut off: the environment is gone, or we are closing. */
	if (err.code == PAI_E_CANCELLED && pai_env_revoked(c->e)) {
		(void)pai_err_set(&err, PAI_E_RESET, "the environment is gone");
	}
	end_check(c, &err);
	pai_env_unref(c->e);
	pai_session_unref(c->s);
	free(c);
	pai_sessions_leave(m);
}

/* The lock is held on entry and return, not in between. */
static int begin_locked(struct pai_session *s, struct pai_env *e, uint64_t run,
    struct pai_seed_trigger *trigger, struct pai_err *err)
{
	struct check *c = calloc(1, sizeof(*c));
	int r;

	if (!c) {
		return pai_err_no_memory(err);
	}
	e->seed.is_checking = true;
	e->seed.trigger = trigger;
	(void)pthread_mutex_unlock(&e->lock);
	*c = (struct check){pai_session_ref(s), pai_env_ref(e), run};
	r = pai_sessions_submit_check(s->m, check_job, c, err);
	if (r < 0) {
		pai_env_unref(c->e);
		pai_session_unref(c->s);
		free(c);
	}
	(void)pthread_mutex_lock(&e->lock);
	if (r < 0) {
		e->seed.is_checking = false;
		e->seed.trigger = NULL;
		pai_waitq_wake(&e->seed.changed);
	}
	return r;
}

/* --- who asks --- */

/* Until the trigger is done, or there is nothing to wait for. */
static int wait_locked(struct pai_session *s, struct pai_env *e, const struct pai_seed_ask *ask,
    struct pai_seed_trigger *trigger, const struct pai_call *call, struct pai_err *err)
{
	uint64_t run = hash_of(ask->run);
	struct pai_env_seed *seed = &e->seed;
	bool begun = false;
	int r = 0;

	while (r == 0 && !trigger->is_done) {
		if (seed->is_checking && ask->sid && (int)ask->sid == atomic_load(&seed->session)) {
			r = pai_err_errno(err, EDEADLK,
			    "this is part of what seeds '%s', which must not use it", s->key);
		} else if (seed->is_checking) {
			r = pai_waitq_wait(
			    &seed->changed, &e->lock, call, "wait for the seeds", err);
		} else if (is_checked_locked(seed, run)) {
			break;
		} else if (atomic_load(&e->revoked)) {
			r = pai_err_set(err, PAI_E_RESET, "the environment is gone");
		} else {
			begun = true;
			r = begin_locked(s, e, run, trigger, err);
		}
	}
	if (begun && seed->trigger == trigger) {
		seed->trigger = NULL; /* it goes on without us */
	}
	return r;
}

int pai_session_seed_entered(struct pai_session *s, struct pai_env *e,
    const struct pai_seed_ask *ask, const struct pai_call *call, struct pai_err *err)
{
	struct pai_seed_trigger trigger = {.err = PAI_ERR_INIT};
	int r;

	if (!s->m->seeder.check) {
		return 0;
	}
	(void)pthread_mutex_lock(&e->lock);
	r = wait_locked(s, e, ask, &trigger, call, err);
	(void)pthread_mutex_unlock(&e->lock);
	if (r == 0 && trigger.err.code != PAI_OK) {
		*err = trigger.err;
		return -err->errnum;
	}
	return r;
}

int pai_session_seed(struct pai_session *s, struct pai_env *e, const struct pai_seed_ask *ask,
    const struct pai_call *call, struct pai_err *err)
{
	int r;

	if (!s->m->seeder.check) {
		return 0;
	}
	r = pai_sessions_enter(s->m, err);
	if (r < 0) {
		return r;
	}
	r = pai_session_seed_entered(s, e, ask, call, err);
	pai_sessions_leave(s->m);
	return r;
}
