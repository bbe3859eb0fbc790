/*
 * The keeper: one thread that renews the lifetime of sandboxes in use (pai_env_busy), on the
 * manager's own pool, so that one that doesn't answer holds up no other.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"
#include "providers/session/session_private.h"

/* Half of the lifetime: one renewal may fail and the next still comes in time. */
#define RENEW_PART 2
#define LOOKS_PER_TTL 4
#define BACKGROUND_MS 30000

static uint64_t ttl_of(const struct pai_session *s)
{
	uint64_t own = atomic_load(&s->keepalive_ttl_ms);

	return own ? own : s->m->keepalive_ttl_ms;
}

void pai_session_set_keepalive(struct pai_session *s, uint64_t ttl_ms)
{
	struct pai_sessions *m = s->m;

	atomic_store(&s->keepalive_ttl_ms, ttl_ms);
	(void)pthread_mutex_lock(&m->lock);
	if (ttl_ms < m->least_ttl_ms) {
		m->least_ttl_ms = ttl_ms;
		m->keeper_poked = true;
		(void)pthread_cond_signal(&m->keeper_wake);
	}
	(void)pthread_mutex_unlock(&m->lock);
}

int pai_env_renew(struct pai_env *e, const struct pai_call *call, struct pai_err *err)
{
	uint64_t ttl_ms = ttl_of(e->session);
	uint64_t now = pai_clock_ms();
	uint64_t before = atomic_load(&e->renewed_ms);
	int r;

	if (before != 0 && now - before < ttl_ms / RENEW_PART) {
		return 0;
	}
	/* One of several callers does it; the others go on. */
	if (!atomic_compare_exchange_strong(&e->renewed_ms, &before, now)) {
		return 0;
	}
	r = pai_sandbox_keep_alive(e->sandbox, ttl_ms, call, err);
	if (r < 0) {
		atomic_store(&e->renewed_ms, before);
	}
	return r;
}

static bool is_due(const struct pai_env *e)
{
	uint64_t before = atomic_load(&e->renewed_ms);

	return atomic_load(&e->busy) > 0 &&
	       (before == 0 || pai_clock_ms() - before >= ttl_of(e->session) / RENEW_PART);
}

static void renew_job(void *arg)
{
	struct pai_env *e = arg;
	struct pai_sessions *m = e->session->m;
	struct pai_call call = {
	    .deadline_ms = pai_deadline_in(BACKGROUND_MS), .cancel = m->closing};
	struct pai_err err = PAI_ERR_INIT;

	if (pai_env_renew(e, &call, &err) < 0) {
		if (pai_cancel_fired(m->closing)) {
			pai_log_debug("session", "%s: lifetime not renewed", e->session->key);
		} else if (err.code == PAI_E_NOT_FOUND) {
			pai_session_lost(e->session, e, err.msg);
		} else {
			pai_log_warn(
			    "session", "%s: lifetime not renewed: %s", e->session->key, err.msg);
		}
	}
	e->is_renewing = false;
	pai_env_unref(e);
	pai_sessions_leave(m);
}

static void look(struct pai_sessions *m)
{
	size_t count = 0;
	struct pai_session **all = pai_sessions_all(m, &count);

	for (size_t i = 0; all && i < count; i++) {
		struct pai_env *e = pai_session_current(all[i]);

		if (e && is_due(e) && !atomic_exchange(&e->is_renewing, true)) {
			if (pai_sessions_submit_renewal(m, renew_job, e, PAI_ERR_IGNORED()) == 0) {
				e = NULL;
			} else {
				e->is_renewing = false;
			}
		}
		pai_env_unref(e);
		pai_session_unref(all[i]);
	}
	free(all);
}

static void *keeper(void *arg)
{
	struct pai_sessions *m = arg;
	(void)pthread_mutex_lock(&m->lock);
	while (!m->keeper_stops) {
		struct timespec until =
		    pai_deadline_monotonic(pai_deadline_in(m->least_ttl_ms / LOOKS_PER_TTL + 1));

		if (!m->keeper_poked) {
			(void)pthread_cond_clockwait(
			    &m->keeper_wake, &m->lock, CLOCK_MONOTONIC, &until);
		}
		m->keeper_poked = false;
		if (m->keeper_stops) {
			break;
		}
		(void)pthread_mutex_unlock(&m->lock);
		look(m);
		(void)pthread_mutex_lock(&m->lock);
	}
	(void)pthread_mutex_unlock(&m->lock);
	return NULL;
}

int pai_sessions_keeper_start(struct pai_sessions *m, struct pai_err *err)
{
	int r = pthread_create(&m->keeper, NULL, keeper, m);

	m->has_keeper = r == 0;
	return r ? pai_err_errno(err, r, "start the keeper thread") : 0;
}

void pai_sessions_keeper_stop(struct pai_sessions *m)
{
	if (!m->has_keeper) {
		return;
	}
	(void)pthread_mutex_lock(&m->lock);
	m->keeper_stops = true;
	(void)pthread_cond_signal(&m->keeper_wake);
	(void)pthread_mutex_unlock(&m->lock);
	(void)pthread_join(m->keeper, NULL);
	m->has_keeper = false;
}

void pai_sessions_poke(struct pai_sessions *m)
{
	(void)pthread_mutex_lock(&m->lock);
	m->keeper_poked = true;
	(void)pthread_cond_signal(&m->keeper_wake);
	(void)pthread_mutex_unlock(&m->lock);
}
