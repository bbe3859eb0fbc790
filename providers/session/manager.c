/*
 * The manager: the table of handles, admission and the close, discovery and dispose. The table is
 * weak: a session is in it as long as somebody holds it, and an environment holds its session.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"
#include "providers/session/session_private.h"

#define KEEPALIVE_TTL_MS (5 * 60 * 1000)
#define TIMEOUT_MS (10 * 1000)
#define CREATE_TIMEOUT_MS (120 * 1000)
/* Creations at once; more wait their turn, each within the deadline of who asked. */
#define MAKERS 32
#define RENEWERS 64 /* each at most 30 s at a call that is not answered */
#define MAKERS_QUEUE 4096
#define SEEDERS 64 /* checks at a time: each may run the user's programs for minutes */
/* Listed sandboxes that become known keys: a hostile list may not fill the store. */
#define DISCOVER_MAX 10000

/* --- admission --- */

int pai_sessions_enter(struct pai_sessions *m, struct pai_err *err)
{
	bool is_closing;

	(void)pthread_mutex_lock(&m->lock);
	is_closing = m->is_closing;
	m->admitted += !is_closing;
	(void)pthread_mutex_unlock(&m->lock);
	return is_closing ? pai_err_unavailable(
				err, PAI_REASON_NOT_SERVED, NULL, "the session manager is closing")
			  : 0;
}

void pai_sessions_leave(struct pai_sessions *m)
{
	(void)pthread_mutex_lock(&m->lock);
	m->admitted--;
	if (m->admitted == 0) {
		pai_waitq_wake(&m->drained);
	}
	(void)pthread_mutex_unlock(&m->lock);
}

/* Under the lock: the close takes the pools away. */
static int submit_locked(
    struct pai_sessions *m, struct pai_pool *pool, pai_work_fn fn, void *arg, struct pai_err *err)
{
	int r = pool ? pai_pool_submit(pool, fn, arg) : -ESHUTDOWN;

	m->admitted += r == 0;
	return r == 0 ? 0
		      : pai_err_unavailable(err, PAI_REASON_BACKEND, NULL,
			    r == -EAGAIN ? "too many calls are under way"
					 : "the session manager is closing");
}

int pai_sessions_submit(struct pai_sessions *m, pai_work_fn fn, void *arg, struct pai_err *err)
{
	int r;

	(void)pthread_mutex_lock(&m->lock);
	r = submit_locked(m, m->makers, fn, arg, err);
	(void)pthread_mutex_unlock(&m->lock);
	return r;
}

int pai_sessions_submit_renewal(
    struct pai_sessions *m, pai_work_fn fn, void *arg, struct pai_err *err)
{
	int r;

	(void)pthread_mutex_lock(&m->lock);
	r = submit_locked(m, m->renewers, fn, arg, err);
	(void)pthread_mutex_unlock(&m->lock);
	return r;
}

int pai_sessions_submit_check(
    struct pai_sessions *m, pai_work_fn fn, void *arg, struct pai_err *err)
{
	int r;

	(void)pthread_mutex_lock(&m->lock);
	r = submit_locked(m, m->seeders, fn, arg, err);
	(void)pthread_mutex_unlock(&m->lock);
	return r;
}

/* --- life --- */

static void free_manager(struct pai_sessions *m)
{
	if (m->provider) {
		pai_provider_free(m->provider);
	}
	pai_store_free(m->store);
	pai_cancel_unref(m->closing);
	pai_told_fini(&m->told);
	pai_create_options_fini(&m->create);
	free(m->key_metadata);
	free(m->create_program);
	free(m->lock_dir);
	(void)pthread_cond_destroy(&m->keeper_wake);
	(void)pthread_mutex_destroy(&m->lock);
	free(m);
}

void pai_sessions_unref(struct pai_sessions *m)
{
	bool is_last;

	(void)pthread_mutex_lock(&m->lock);
	is_last = --m->refs == 0;
	(void)pthread_mutex_unlock(&m->lock);
	if (is_last) {
		free_manager(m);
	}
}

static int new_client_id(char id[33], struct pai_err *err)
{
	unsigned char bytes[16];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
		return pai_err_sys(err, "getrandom");
	}
	for (size_t i = 0; i < sizeof(bytes); i++) {
		(void)snprintf(id + 2 * i, 3, "%02x", bytes[i]);
	}
	return 0;
}

static int copy_text(char **to, const char *from, struct pai_err *err)
{
	if (from && !(*to = strdup(from))) {
		return pai_err_no_memory(err);
	}
	return 0;
}

static int configure(struct pai_sessions *m, const struct pai_session_options *o,
    const char *lock_dir, struct pai_err *err)
{
	const char *key_metadata =
	    o->session_key_metadata ? o->session_key_metadata : PAI_SESSION_KEY_METADATA;
	int r;

	if (!key_metadata[0]) {
		return pai_err_set(err, PAI_E_INPUT, "session_key_metadata is empty");
	}
	m->keepalive_ttl_ms = o->keepalive_ttl_ms ? o->keepalive_ttl_ms : KEEPALIVE_TTL_MS;
	m->least_ttl_ms = m->keepalive_ttl_ms;
	m->timeout_ms = o->timeout_ms ? o->timeout_ms : TIMEOUT_MS;
	m->create_timeout_ms = o->create_timeout_ms ? o->create_timeout_ms : CREATE_TIMEOUT_MS;
	m->portable = o->portable;
	m->raw_ids = o->raw_ids;
	if (o->seeder) {
		m->seeder = *o->seeder;
	}
	r = copy_text(&m->key_metadata, key_metadata, err);
	r = r < 0 ? r : copy_text(&m->create_program, o->create_program, err);
	r = r < 0 ? r : copy_text(&m->lock_dir, lock_dir, err);
	r = r < 0 ? r : new_client_id(m->client_id, err);
	return r < 0 ? r : pai_create_options_copy(&m->create, &o->create, key_metadata, err);
}

int pai_sessions_new(struct pai_provider *take_provider, struct pai_store *take_store,
    struct pai_pool *pool, const struct pai_session_options *options, const char *lock_dir,
    const struct pai_session_listener *listener, struct pai_sessions **ret, struct pai_err *err)
{
	struct pai_sessions *m = calloc(1, sizeof(*m));
	int r;

	if (!m) {
		pai_provider_free(take_provider);
		pai_store_free(take_store);
		return pai_err_no_memory(err);
	}
	(void)pthread_mutex_init(&m->lock, NULL);
	(void)pthread_cond_init(&m->keeper_wake, NULL);
	pai_told_init(&m->told);
	m->refs = 1;
	m->provider = take_provider;
	m->store = take_store;
	m->pool = pool;
	if (listener) {
		m->listener = *listener;
	}
	r = configure(m, options, lock_dir, err);
	if (r == 0) {
		m->makers = pai_pool_new("make", MAKERS, MAKERS_QUEUE);
		m->renewers = pai_pool_new("renew", RENEWERS, MAKERS_QUEUE);
		m->closing = pai_cancel_new();
		m->seeders = m->seeder.check ? pai_pool_new("seed", SEEDERS, MAKERS_QUEUE) : NULL;
		r = m->makers && m->renewers && m->closing && (m->seeders || !m->seeder.check)
			? pai_sessions_keeper_start(m, err)
			: pai_err_no_memory(err);
	}
	if (r < 0) {
		pai_pool_free(m->makers);
		pai_pool_free(m->renewers);
		pai_pool_free(m->seeders);
		free_manager(m);
		return r;
	}
	*ret = m;
	return 0;
}

struct pai_provider *pai_sessions_provider(struct pai_sessions *m)
{
	return m->provider;
}

struct pai_store *pai_sessions_store(struct pai_sessions *m)
{
	return m->store;
}

static void cancel_jobs(struct pai_sessions *m)
{
	size_t count = 0;
	struct pai_session **all = pai_sessions_all(m, &count);

	for (size_t i = 0; all && i < count; i++) {
		(void)pthread_mutex_lock(&all[i]->lock);
		if (all[i]->job_cancel) {
			pai_cancel_fire(all[i]->job_cancel);
		}
		(void)pthread_mutex_unlock(&all[i]->lock);
		pai_session_unref(all[i]);
	}
	free(all);
}

/* A check that was cut off is begun again by whoever comes next: nobody waits for it. */
static void cancel_checks(struct pai_sessions *m)
{
	size_t count = 0;
	struct pai_session **all = pai_sessions_all(m, &count);

	for (size_t i = 0; all && i < count; i++) {
		struct pai_env *e = pai_session_current(all[i]);

		if (e) {
			pai_env_seed_end(e);
			pai_env_unref(e);
		}
		pai_session_unref(all[i]);
	}
	free(all);
}

static void detach_all(struct pai_sessions *m)
{
	size_t count = 0;
	struct pai_session **all = pai_sessions_all(m, &count);

	for (size_t i = 0; all && i < count; i++) {
		(void)pthread_mutex_lock(&all[i]->lock);
		if (all[i]->env) {
			pai_session_detach_locked(all[i], PAI_PHASE_ABSENT, "closing");
		}
		(void)pthread_mutex_unlock(&all[i]->lock);
		pai_session_deliver(all[i]);
		pai_session_unref(all[i]);
	}
	free(all);
}

void pai_sessions_close(struct pai_sessions *m, uint64_t deadline_ms)
{
	struct pai_call call = {.deadline_ms = deadline_ms};
	struct pai_err err = PAI_ERR_INIT;
	struct pai_pool *makers;
	struct pai_pool *renewers;
	struct pai_pool *seeders;
	int r = 0;

	if (!m) {
		return;
	}
	pai_cancel_fire(m->closing);
	(void)pthread_mutex_lock(&m->lock);
	m->is_closing = true;
	seeders = m->seeders;
	m->seeders = NULL;
	(void)pthread_mutex_unlock(&m->lock);
	if (seeders) {
		cancel_checks(m);
	}
	(void)pthread_mutex_lock(&m->lock);
	while (r == 0 && m->admitted > 0) {
		r = pai_waitq_wait(&m->drained, &m->lock, &call, "drain", &err);
	}
	if (r < 0) {
		pai_log_warn("session", "%zu operations go on at the close", m->admitted);
	}
	makers = m->makers;
	m->makers = NULL;
	renewers = m->renewers;
	m->renewers = NULL;
	(void)pthread_mutex_unlock(&m->lock);
	pai_sessions_keeper_stop(m);
	cancel_jobs(m);
	pai_pool_free(makers);
	pai_pool_free(renewers);
	pai_pool_free(seeders);
	detach_all(m);
	pai_sessions_unref(m);
}

/* --- handles --- */

static struct pai_session **bucket_of(struct pai_sessions *m, const char *key)
{
	uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

	for (const char *c = key; *c; c++) {
		hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
	}
	return &m->buckets[(hash ^ hash >> 32) % PAI_SESSION_BUCKETS];
}

static struct pai_session *new_session(struct pai_sessions *m, const char *key)
{
	struct pai_session *s = calloc(1, sizeof(*s));

	if (!s) {
		return NULL;
	}
	(void)pthread_mutex_init(&s->lock, NULL);
	(void)snprintf(s->key, sizeof(s->key), "%s", key);
	s->m = m;
	s->refs = 1;
	s->events_end = &s->events;
	s->lock_fd = -1;
	return s;
}

/* A reference to the key's session in the table, disposed of or not; NULL without memory. */
static struct pai_session *get(struct pai_sessions *m, const char *key)
{
	struct pai_session **bucket = bucket_of(m, key);
	struct pai_session *s;

	(void)pthread_mutex_lock(&m->lock);
	for (s = *bucket; s && strcmp(s->key, key) != 0; s = s->next) {
		continue;
	}
	if (s) {
		s->refs++;
	} else {
		s = new_session(m, key);
		if (s) {
			m->refs++;
			s->is_listed = true;
			s->next = *bucket;
			*bucket = s;
		}
	}
	(void)pthread_mutex_unlock(&m->lock);
	return s;
}

static void unlist_locked(struct pai_session *s)
{
	struct pai_session **at = bucket_of(s->m, s->key);

	if (!s->is_listed) {
		return;
	}
	while (*at != s) {
		at = &(*at)->next;
	}
	*at = s->next;
	s->is_listed = false;
}

static void unlist(struct pai_session *s)
{
	(void)pthread_mutex_lock(&s->m->lock);
	unlist_locked(s);
	(void)pthread_mutex_unlock(&s->m->lock);
}

int pai_sessions_handle(
    struct pai_sessions *m, const char *key, struct pai_session **ret, struct pai_err *err)
{
	struct pai_session *s;
	bool is_ended;
	int r = pai_key_check(key, err);

	if (r < 0) {
		return r;
	}
	s = get(m, key);
	if (!s) {
		return pai_err_no_memory(err);
	}
	(void)pthread_mutex_lock(&s->lock);
	is_ended = s->phase == PAI_PHASE_ENDED;
	(void)pthread_mutex_unlock(&s->lock);
	if (is_ended) {
		pai_session_unref(s);
		return pai_err_set(err, PAI_E_RESET, "session '%s' is being killed", key);
	}
	*ret = s;
	return 0;
}

struct pai_session *pai_session_ref(struct pai_session *s)
{
	(void)pthread_mutex_lock(&s->m->lock);
	s->refs++;
	(void)pthread_mutex_unlock(&s->m->lock);
	return s;
}

void pai_session_unref(struct pai_session *s)
{
	struct pai_sessions *m;
	bool is_last;

	if (!s) {
		return;
	}
	m = s->m;
	(void)pthread_mutex_lock(&m->lock);
	is_last = --s->refs == 0;
	if (is_last) {
		unlist_locked(s);
	}
	(void)pthread_mutex_unlock(&m->lock);
	if (!is_last) {
		return;
	}
	if (s->lock_fd >= 0) {
		(void)close(s->lock_fd);
	}
	(void)pthread_mutex_destroy(&s->lock);
	free(s->missing);
	free(s);
	pai_sessions_unref(m);
}

struct pai_session **pai_sessions_all(struct pai_sessions *m, size_t *count)
{
	struct pai_session **all;
	size_t n = 0;

	(void)pthread_mutex_lock(&m->lock);
	all = calloc(m->refs + 1, sizeof(struct pai_session *));
	for (size_t i = 0; all && i < PAI_SESSION_BUCKETS; i++) {
		for (struct pai_session *s = m->buckets[i]; s; s = s->next) {
			s->refs++;
			all[n++] = s;
		}
	}
	(void)pthread_mutex_unlock(&m->lock);
	*count = n;
	return all;
}

/* --- discovery --- */

static int remember(struct pai_sessions *m, const struct pai_sandbox_info *info, const char *key,
    const struct pai_session_record *known, size_t count, struct pai_err *err)
{
	const struct pai_store_ops *ops = m->store->ops;
	struct pai_session_record record;
	bool found = false;
	int r = ops->load(m->store, key, &found, &record, err);

	if (r < 0 || found || pai_session_is_foreign(known, count, key, info)) {
		return r;
	}
	r = ops->name(m->store, key, err);
	return r < 0
		   ? r
		   : ops->event(m->store, key, PAI_STORE_LOST, NULL, "found at the provider", err);
}

static int discover(struct pai_sessions *m, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_sandbox_list struct pai_sandbox_list listed = {.items = NULL};
	pai_auto_free struct pai_session_record *known = NULL;
	size_t known_count = 0;
	int r = pai_provider_list(m->provider, NULL, call, &listed, err);

	r = r < 0 ? r : m->store->ops->list(m->store, &known, &known_count, err);
	for (size_t i = 0; r == 0 && i < listed.count && i < DISCOVER_MAX; i++) {
		const char *key = pai_strmap_get(&listed.items[i].metadata, m->key_metadata);

		if (!key) {
			continue;
		}
		if (pai_key_check(key, PAI_ERR_IGNORED()) < 0) {
			pai_log_debug("session", "sandbox %s: its label is no key",
			    listed.items[i].sandbox_id);
			continue;
		}
		r = remember(m, &listed.items[i], key, known, known_count, err);
	}
	return r;
}

int pai_sessions_discover(struct pai_sessions *m, const struct pai_call *call, struct pai_err *err)
{
	int r = pai_sessions_enter(m, err);

	if (r < 0) {
		return r;
	}
	r = discover(m, call, err);
	pai_sessions_leave(m);
	return r;
}

/* --- dispose --- */

static bool is_listed(struct pai_session *s)
{
	bool listed;

	(void)pthread_mutex_lock(&s->m->lock);
	listed = s->is_listed;
	(void)pthread_mutex_unlock(&s->m->lock);
	return listed;
}

/* Revokes the handle, or waits until another dispose of it is done: then *ret is NULL. */
static int revoke_handle(
    struct pai_session *s, const struct pai_call *call, bool *revoked, struct pai_err *err)
{
	int r = 0;

	(void)pthread_mutex_lock(&s->lock);
	*revoked = s->phase != PAI_PHASE_ENDED;
	if (*revoked) {
		s->epoch++;
		pai_session_detach_locked(s, PAI_PHASE_ENDED, "killed");
	}
	while (!*revoked && r == 0 && is_listed(s)) {
		r = pai_waitq_wait(&s->changed, &s->lock, call, "wait for another kill", err);
	}
	(void)pthread_mutex_unlock(&s->lock);
	pai_session_deliver(s);
	return r;
}

/* The creation that runs is cancelled and over, the mount has let go. */
static int settle(struct pai_session *s, const struct pai_call *call, struct pai_err *err)
{
	int r;

	(void)pthread_mutex_lock(&s->lock);
	r = pai_session_take_slot_locked(s, PAI_PHASE_ENDED, call, err);
	if (r == 0) {
		r = pai_session_wait_delivered_locked(s, call, err);
		if (r < 0) {
			s->job = false;
		}
	}
	(void)pthread_mutex_unlock(&s->lock);
	return r;
}

/* The tombstone comes before the sweep, so that no other daemon makes another meanwhile. A key that
 * nobody has ever used leaves none. */
static int end_revoked(
    struct pai_session *s, const struct pai_call *call, size_t *killed, struct pai_err *err)
{
	struct pai_store *store = s->m->store;
	struct pai_session_record record = {.state = PAI_SESSION_NEW};
	struct pai_err why = PAI_ERR_INIT;
	pai_auto_free char *label = pai_session_label(s); /* which the tombstone takes away */
	bool found = false;
	int r_settle = settle(s, call, &why);
	int r =
	    label ? store->ops->load(store, s->key, &found, &record, err) : pai_err_no_memory(err);

	if (r == 0 && found) {
		r = store->ops->event(store, s->key, PAI_STORE_KILL, &record.identity, "", err);
	}
	if (r == 0 && r_settle < 0) {
		*err = why;
		r = r_settle;
	}
	r = r < 0 ? r : pai_session_sweep(s, label, false, call, killed, err);
	if (!found && *killed > 0 &&
	    store->ops->event(store, s->key, PAI_STORE_KILL, NULL, "", &why) < 0 && r == 0) {
		*err = why;
		r = -why.errnum;
	}
	if (r == 0) {
		pai_session_drop_lock_files(s);
	}
	if (r_settle == 0) {
		pai_session_release_slot(s);
	}
	return r;
}

static int dispose(struct pai_sessions *m, const char *key, const struct pai_call *call,
    size_t *killed, struct pai_err *err)
{
	for (;;) {
		struct pai_session *s = get(m, key);
		bool revoked = false;
		int r = s ? revoke_handle(s, call, &revoked, err) : pai_err_no_memory(err);

		if (r == 0 && revoked) {
			r = end_revoked(s, call, killed, err);
			unlist(s);
			(void)pthread_mutex_lock(&s->lock);
			pai_waitq_wake(&s->changed);
			(void)pthread_mutex_unlock(&s->lock);
		}
		pai_session_unref(s);
		if (r < 0 || revoked) {
			return r;
		}
	}
}

int pai_sessions_dispose(struct pai_sessions *m, const char *key, const struct pai_call *call,
    size_t *killed, struct pai_err *err)
{
	int r = pai_key_check(key, err);

	r = r < 0 ? r : pai_sessions_enter(m, err);
	if (r < 0) {
		return r;
	}
	*killed = 0;
	r = dispose(m, key, call, killed, err);
	pai_sessions_leave(m);
	return r;
}
