/*
 * Threads that acquire, use, lose, reset, pause, dispose, look and discover a few keys at once, in
 * two managers over one memory provider and one store; made for the thread sanitizer. What must
 * hold is checked on the way and at the end: no two environments of one manager are current for a
 * key, exclusive uses don't overlap, and once everything is disposed of nothing lives.
 *
 *   session_stress [SECONDS]
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/ledger.h"
#include "providers/base/clock.h"
#include "providers/session/session.h"
#include "providers/wrap.h"

#define THREADS 8
#define KEYS 3
#define MANAGERS 2
#define CALL_MS 10000

static const char *const keys[KEYS] = {"a", "b", "c"};
static struct pai_sessions *managers[MANAGERS];
static struct pai_provider *provider;
static atomic_bool stop;
static atomic_int inside[KEYS];
static atomic_ulong done, failed, composed, freed, attached, detached;

#define REQUIRE(condition)                                                                         \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			(void)fprintf(                                                             \
			    stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);        \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* --- the provider, lent to each manager --- */

static int before(struct pai_wrap *w, const struct pai_wrap_event *e, struct pai_err *err)
{
	(void)w;
	(void)e;
	(void)err;
	return 0;
}

static int after(struct pai_wrap *w, const struct pai_wrap_event *e, int result, uint64_t started,
    struct pai_err *err)
{
	(void)w;
	(void)e;
	(void)started;
	(void)err;
	return result;
}

static void return_lent(struct pai_wrap *w)
{
	free(w);
}

static struct pai_provider *lend(void)
{
	static const struct pai_wrap_hooks hooks = {before, after, return_lent};
	struct pai_wrap *w = calloc(1, sizeof(*w));

	REQUIRE(w);
	pai_wrap_init(w, provider, &hooks);
	return &w->base;
}

/* --- the listener --- */

static void *on_compose(void *arg, struct pai_session *s, struct pai_ws_config *config)
{
	(void)arg;
	(void)s;
	(void)config;
	(void)atomic_fetch_add(&composed, 1);
	return calloc(1, 1);
}

static void on_attached(void *arg, struct pai_session *s, struct pai_env *e, bool replaced)
{
	(void)arg;
	(void)s;
	(void)replaced;
	REQUIRE(pai_env_user(e));
	(void)atomic_fetch_add(&attached, 1);
}

static void on_detached(void *arg, struct pai_session *s, struct pai_env *e)
{
	(void)arg;
	(void)s;
	REQUIRE(pai_env_revoked(e));
	(void)atomic_fetch_add(&detached, 1);
}

static void on_free(void *arg, void *user)
{
	(void)arg;
	free(user);
	(void)atomic_fetch_add(&freed, 1);
}

/* --- what a thread does --- */

struct turn {
	int key;
	bool exclusive;
};

static int work(void *arg, struct pai_env *e, struct pai_err *err)
{
	struct turn *t = arg;
	struct pai_call call = {.deadline_ms = pai_deadline_in(CALL_MS)};
	struct pai_exec_line *line = NULL;
	pai_auto_dir_list struct pai_dir_list list = {.items = NULL};
	bool found;
	int r;

	if (t->exclusive) {
		REQUIRE(atomic_fetch_add(&inside[t->key], 1) == 0);
	}
	r = pai_env_exec(e, &call, &line, err);
	if (r == 0) {
		r = pai_sandbox_list_dir(
		    pai_env_sandbox(e), "/workspace", &call, &found, &list, err);
	}
	if (t->exclusive) {
		(void)atomic_fetch_sub(&inside[t->key], 1);
	}
	return r;
}

static int use(
    struct pai_session *s, struct turn *t, const struct pai_call *call, struct pai_err *err)
{
	struct pai_use how = {.exclusive = t->exclusive, .flags = PAI_ACQUIRE_REVIVE};
	bool was_reset;

	return pai_session_use(s, &how, work, t, call, &was_reset, err);
}

static int kill_behind(struct pai_session *s, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_env struct pai_env *e = pai_session_current(s);
	pai_auto_sandbox struct pai_sandbox *sb = NULL;

	if (!e ||
	    pai_provider_connect(provider, pai_env_identity(e)->sandbox_id, call, &sb, err) < 0) {
		return 0;
	}
	return sb ? pai_sandbox_kill(sb, call, err) : 0;
}

static int acquire(
    struct pai_session *s, uint32_t flags, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_env struct pai_env *e = NULL;
	struct pai_session_record record;
	int r = pai_session_acquire(s, flags, NULL, call, &e, err);

	if (e) {
		pai_env_busy(e, 1);
		(void)pai_session_tell_reset(s, 1, 1, e, NULL);
		pai_env_busy(e, -1);
	}
	pai_session_snapshot(s, &record);
	return r;
}

/* Losing races is what this is about: only errors of ours are failures. */
static bool is_expected(const struct pai_err *err)
{
	return err->code == PAI_E_RESET || err->code == PAI_E_NOT_FOUND ||
	       err->code == PAI_E_UNAVAILABLE || err->code == PAI_E_CANCELLED ||
	       err->code == PAI_E_UNSUPPORTED;
}

static int act(struct pai_sessions *m, struct pai_session *s, int key, unsigned what,
    const struct pai_call *call, struct pai_err *err)
{
	struct turn t = {.key = key, .exclusive = what < 4};
	struct pai_env *e;
	size_t killed;

	switch (what) {
	case 10:
		return kill_behind(s, call, err);
	case 11:
		return pai_session_reset(s, call, err);
	case 12:
		return pai_sessions_dispose(m, keys[key], call, &killed, err);
	case 13:
		return pai_session_pause(s, call, err);
	case 14:
		return pai_sessions_discover(m, call, err);
	case 15:
		return acquire(s, PAI_ACQUIRE_LOOK, call, err);
	case 16:
		return acquire(s, PAI_ACQUIRE_VERIFY, call, err);
	case 17:
		e = pai_session_current(s);
		if (e) {
			pai_session_lost(s, e, "said for nothing");
		}
		pai_env_unref(e);
		return 0;
	default:
		return use(s, &t, call, err);
	}
}

static void *thread(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	while (!atomic_load(&stop)) {
		struct pai_call call = {.deadline_ms = pai_deadline_in(CALL_MS)};
		struct pai_sessions *m = managers[(unsigned)rand_r(&seed) % MANAGERS];
		int key = (int)((unsigned)rand_r(&seed) % KEYS);
		struct pai_session *s = NULL;
		struct pai_err err = PAI_ERR_INIT;

		if (pai_sessions_handle(m, keys[key], &s, &err) == 0) {
			(void)!act(m, s, key, (unsigned)rand_r(&seed) % 18, &call, &err);
			pai_session_unref(s);
		}
		if (err.code != PAI_OK) {
			(void)atomic_fetch_add(&failed, 1);
			if (!is_expected(&err)) {
				(void)fprintf(
				    stderr, "%s: %s\n", pai_errcode_name(err.code), err.msg);
				abort();
			}
		}
		(void)atomic_fetch_add(&done, 1);
	}
	return NULL;
}

/* --- the whole --- */

static void start(struct pai_ledger *ledger, struct pai_pool *pool, const char *lock_dir)
{
	const struct pai_session_listener listener = {
	    on_compose, on_attached, on_detached, on_free, NULL};
	struct pai_session_options options = {.keepalive_ttl_ms = 40};
	struct pai_err err = PAI_ERR_INIT;

	for (int i = 0; i < MANAGERS; i++) {
		REQUIRE(pai_sessions_new(lend(), pai_ledger_store(ledger), pool, &options, lock_dir,
			    &listener, &managers[i], &err) == 0);
	}
}

static void finish(void)
{
	struct pai_call call = {.deadline_ms = pai_deadline_in(CALL_MS)};
	struct pai_sandbox_list left = {.items = NULL};
	struct pai_err err = PAI_ERR_INIT;
	size_t killed;

	for (int i = 0; i < MANAGERS; i++) {
		for (int key = 0; key < KEYS; key++) {
			REQUIRE(pai_sessions_dispose(
				    managers[i], keys[key], &call, &killed, &err) == 0);
		}
		pai_sessions_close(managers[i], pai_deadline_in(CALL_MS));
	}
	REQUIRE(pai_provider_list(provider, NULL, &call, &left, &err) == 0);
	REQUIRE(left.count == 0);
	pai_sandbox_list_fini(&left);
	REQUIRE(atomic_load(&composed) == atomic_load(&freed));
	REQUIRE(atomic_load(&attached) == atomic_load(&detached));
}

int main(int argc, char **argv)
{
	unsigned long seconds = argc > 1 ? strtoul(argv[1], NULL, 10) : 3;
	struct pai_call run = {.deadline_ms = pai_deadline_in(seconds * 1000)};
	char dir[] = "/tmp/pai-session-stress-XXXXXX";
	char path[64], command[64];
	pthread_t threads[THREADS];
	struct pai_ledger *ledger = NULL;
	struct pai_pool *pool = pai_pool_new("stress", THREADS, 1024);
	struct pai_err err = PAI_ERR_INIT;

	REQUIRE(pool && mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/ledger.db", dir);
	REQUIRE(pai_provider_open("memory", NULL, &provider, &err) == 0);
	REQUIRE(pai_ledger_open(path, "stress", NULL, &ledger, &err) == 0);
	start(ledger, pool, dir);
	for (uintptr_t i = 0; i < THREADS; i++) {
		REQUIRE(pthread_create(&threads[i], NULL, thread, (void *)(i + 1)) == 0);
	}
	(void)!pai_call_sleep(&run, PAI_NO_DEADLINE, &err);
	atomic_store(&stop, true);
	for (int i = 0; i < THREADS; i++) {
		(void)pthread_join(threads[i], NULL);
	}
	finish();
	pai_ledger_close(ledger);
	pai_provider_free(provider);
	pai_pool_free(pool);
	(void)snprintf(command, sizeof(command), "rm -r %s", dir);
	REQUIRE(system(command) == 0);
	(void)printf("%lu calls, %lu of them lost a race, %lu environments\n", atomic_load(&done),
	    atomic_load(&failed), atomic_load(&composed));
	return 0;
}
