/*
 * The second suite: what the session manager does over this provider. Its keying and lifecycle are
 * the manager's own, but they hold only as far as the provider's lists, labels and NOT_FOUND do,
 * which is what these cases find out.
 *
 * A case has managers of its own over the case's provider, lent through a decorator that counts
 * calls and doesn't end it. They have no store in common: a fresh manager knows what metadata says.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "providers/base/auto.h"
#include "providers/conformance/conf.h"
#include "providers/session/session.h"
#include "providers/wrap.h"

#define USERS 8
#define TURNS 20
#define POOL_THREADS 8

/* --- the case's world --- */

struct lent {
	struct pai_wrap wrap; /* first */
	atomic_int *calls;
};
struct world {
	struct pai_conf *c;
	struct pai_pool *pool;
	struct pai_strmap metadata;
	struct pai_sessions *m;
	char key[PAI_ID_MAX + 1];
	atomic_int calls[PAI_WRAP_CALL_COUNT];
};

static int count_call(struct pai_wrap *w, const struct pai_wrap_event *e, struct pai_err *err)
{
	(void)err;
	(void)atomic_fetch_add(&((struct lent *)w)->calls[e->call], 1);
	return 0;
}

static int pass_result(struct pai_wrap *w, const struct pai_wrap_event *e, int result,
    uint64_t started_ms, struct pai_err *err)
{
	(void)w;
	(void)e;
	(void)started_ms;
	(void)err;
	return result;
}

/* The inner one is the case's, so it isn't ended. */
static void return_lent(struct pai_wrap *w)
{
	free(w);
}

static struct pai_sessions *manager(struct world *w)
{
	static const struct pai_wrap_hooks hooks = {count_call, pass_result, return_lent};
	struct lent *lent = calloc(1, sizeof(*lent));
	struct pai_store *store = pai_store_memory_new();
	struct pai_session_options options = {
	    .create = pai_conf_input(w->c),
	    .create_timeout_ms = w->c->options->call_ms,
	};
	struct pai_sessions *m = NULL;
	struct pai_err err = PAI_ERR_INIT;

	options.create.metadata = &w->metadata;
	if (!lent || !store) {
		free(lent);
		pai_store_free(store);
		pai_conf_fail(w->c, "no memory");
		return NULL;
	}
	pai_wrap_init(&lent->wrap, w->c->provider, &hooks);
	lent->calls = w->calls;
	if (pai_sessions_new(&lent->wrap.base, store, w->pool, &options, NULL, NULL, &m, &err) <
	    0) {
		pai_conf_fail(w->c, "new manager: %s", err.msg);
	}
	return m;
}

static void close_manager(struct world *w)
{
	pai_sessions_close(w->m, CONF_CALL(w->c)->deadline_ms);
	w->m = NULL;
}

static void world_end(struct world *w)
{
	size_t killed;

	if (!w->m && w->pool) {
		w->m = manager(w);
	}
	if (w->m &&
	    pai_sessions_dispose(w->m, w->key, CONF_CALL(w->c), &killed, PAI_ERR_IGNORED()) < 0) {
		pai_conf_fail(w->c, "the case's sandboxes can't be killed");
	}
	close_manager(w);
	pai_pool_free(w->pool);
	pai_strmap_fini(&w->metadata);
}
#define auto_world PAI_AUTO(world_end)

static bool world_begin(struct world *w, struct pai_conf *c)
{
	w->c = c;
	pai_conf_key(c, "k", w->key);
	w->pool = pai_pool_new("conf", POOL_THREADS, 1024);
	if (!w->pool || !pai_conf_metadata(c, NULL, &w->metadata)) {
		pai_conf_fail(c, "no memory");
		return false;
	}
	w->m = manager(w);
	return w->m != NULL;
}
#define WORLD(c)                                                                                   \
	auto_world struct world w = {.metadata = PAI_STRMAP_INIT};                                 \
	if (!world_begin(&w, (c))) {                                                               \
		return;                                                                            \
	}

PAI_DEFINE_AUTO(struct pai_session, pai_session_unref)
#define auto_session PAI_AUTO(pai_session_unref_p)

static struct pai_session *session_of(struct world *w)
{
	struct pai_session *s = NULL;
	struct pai_err err = PAI_ERR_INIT;

	if (pai_sessions_handle(w->m, w->key, &s, &err) < 0) {
		pai_conf_fail(w->c, "handle: %s", err.msg);
	}
	return s;
}

static bool acquire(struct world *w, struct pai_session *s, uint32_t flags, struct pai_env **ret)
{
	struct pai_err err = PAI_ERR_INIT;

	if (pai_session_acquire(s, flags, NULL, CONF_CALL(w->c), ret, &err) < 0) {
		pai_conf_fail(w->c, "acquire: %s (%s)", err.msg, pai_errcode_name(err.code));
		return false;
	}
	if (!*ret && !(flags & PAI_ACQUIRE_LOOK)) {
		pai_conf_fail(w->c, "acquire gave no environment");
	}
	return *ret || flags & PAI_ACQUIRE_LOOK;
}

static const char *id_of(const struct pai_env *e)
{
	return pai_env_identity(e)->sandbox_id;
}

/* Behind the manager's back. */
static bool kill_by_id(struct pai_conf *c, const char *id)
{
	pai_auto_sandbox struct pai_sandbox *sb = NULL;
	struct pai_err err = PAI_ERR_INIT;

	if (pai_provider_connect(c->provider, id, CONF_CALL(c), &sb, &err) < 0 ||
	    (sb && pai_sandbox_kill(sb, CONF_CALL(c), &err) < 0)) {
		pai_conf_fail(c, "kill %s: %s", id, err.msg);
		return false;
	}
	return true;
}

static size_t count_listed(struct world *w)
{
	pai_auto_sandbox_list struct pai_sandbox_list listed = {.items = NULL};
	pai_auto_strmap struct pai_strmap label = PAI_STRMAP_INIT;
	struct pai_err err = PAI_ERR_INIT;

	if (pai_strmap_set(&label, PAI_SESSION_KEY_METADATA, w->key) < 0 ||
	    pai_provider_list(w->c->provider, &label, CONF_CALL(w->c), &listed, &err) < 0) {
		pai_conf_fail(w->c, "list: %s", err.msg);
	}
	return listed.count;
}

/* --- work in a session --- */

struct work {
	struct world *w;
	struct pai_session *session;
	int calls;
	int lose;    /* so many calls find their sandbox killed */
	bool resets; /* the first call resets its own session first */
	char id[PAI_ID_MAX + 1];
};

static int work(void *arg, struct pai_env *e, struct pai_err *err)
{
	struct work *k = arg;
	const struct pai_call *call = CONF_CALL(k->w->c);
	pai_auto_dir_list struct pai_dir_list list = {.items = NULL};
	bool found = false;

	k->calls++;
	(void)snprintf(k->id, sizeof(k->id), "%s", id_of(e));
	if (k->calls <= k->lose && !kill_by_id(k->w->c, k->id)) {
		return pai_err_set(err, PAI_E_INTERNAL, "not killed");
	}
	if (k->resets && k->calls == 1 && pai_session_reset(k->session, call, err) < 0) {
		return -err->errnum;
	}
	return pai_sandbox_list_dir(pai_env_sandbox(e), "/workspace", call, &found, &list, err);
}

static int use(struct work *k, bool *environment_reset, struct pai_err *err)
{
	const struct pai_use how = {.flags = 0};

	return pai_session_use(
	    k->session, &how, work, k, CONF_CALL(k->w->c), environment_reset, err);
}

/* --- keying --- */

struct user {
	pthread_t thread;
	struct world *w;
	struct pai_session *session;
	struct pai_env *env;
	struct pai_err err;
};

static void *user_thread(void *arg)
{
	struct user *u = arg;

	(void)!pai_session_acquire(u->session, 0, NULL, CONF_CALL(u->w->c), &u->env, &u->err);
	return NULL;
}

static void first_uses_at_once_make_one(struct pai_conf *c)
{
	WORLD(c);
	struct user users[USERS];
	size_t started = 0;
	auto_session struct pai_session *s = session_of(&w);

	for (size_t i = 0; s && i < USERS; i++) {
		users[i] = (struct user){.w = &w, .session = s};
		if (pthread_create(&users[i].thread, NULL, user_thread, &users[i]) != 0) {
			pai_conf_fail(c, "no thread");
			break;
		}
		started++;
	}
	for (size_t i = 0; i < started; i++) {
		(void)pthread_join(users[i].thread, NULL);
		if (!users[i].env) {
			pai_conf_fail(c, "acquire: %s", users[i].err.msg);
		} else if (users[0].env && strcmp(id_of(users[i].env), id_of(users[0].env)) != 0) {
			pai_conf_fail(c, "two users of one key got two sandboxes");
		}
	}
	for (size_t i = 0; i < started; i++) {
		pai_env_unref(users[i].env);
	}
	CONF_CHECK(c, atomic_load(&w.calls[PAI_WRAP_CREATE]) == 1, "%d creates, expected 1",
	    atomic_load(&w.calls[PAI_WRAP_CREATE]));
	CONF_CHECK(
	    c, count_listed(&w) == 1, "%zu sandboxes carry the key, expected 1", count_listed(&w));
}

static void what_it_makes_carries_the_key(struct pai_conf *c)
{
	WORLD(c);
	pai_auto_strmap struct pai_strmap label = PAI_STRMAP_INIT;
	pai_auto_env struct pai_env *e = NULL;
	bool listed = false;
	auto_session struct pai_session *s = session_of(&w);

	if (!s || !acquire(&w, s, 0, &e)) {
		return;
	}
	CONF_CHECK(c, pai_strmap_set(&label, PAI_SESSION_KEY_METADATA, w.key) == 0, "no memory");
	if (pai_conf_is_listed(c, &label, id_of(e), &listed)) {
		CONF_CHECK(c, listed, "list by %s doesn't give it", PAI_SESSION_KEY_METADATA);
	}
}

static void renews_right_after_create(struct pai_conf *c)
{
	WORLD(c);
	pai_auto_env struct pai_env *e = NULL;
	auto_session struct pai_session *s = session_of(&w);

	if (!s || !acquire(&w, s, 0, &e)) {
		return;
	}
	CONF_CHECK(c, atomic_load(&w.calls[PAI_WRAP_KEEP_ALIVE]) == 1, "%d renewals, expected 1",
	    atomic_load(&w.calls[PAI_WRAP_KEEP_ALIVE]));
}

static void a_fresh_manager_finds_it_again(struct pai_conf *c)
{
	WORLD(c);
	pai_auto_env struct pai_env *before = NULL, *after = NULL;
	char id[PAI_ID_MAX + 1];

	{
		auto_session struct pai_session *s = session_of(&w);

		if (!s || !acquire(&w, s, 0, &before)) {
			return;
		}
		(void)snprintf(id, sizeof(id), "%s", id_of(before));
		CONF_CHECK(c, pai_conf_write(c, pai_env_sandbox(before), "f", "x", 1), "write");
		pai_env_unref(PAI_TAKE(before));
	}
	close_manager(&w);
	w.m = manager(&w);
	{
		auto_session struct pai_session *s = w.m ? session_of(&w) : NULL;

		if (!s || !acquire(&w, s, 0, &after)) {
			return;
		}
		CONF_CHECK(c, strcmp(id_of(after), id) == 0, "it made another: %s", id_of(after));
		CONF_CHECK(c, atomic_load(&w.calls[PAI_WRAP_CREATE]) == 1, "it called create");
		(void)!pai_conf_holds(c, pai_env_sandbox(after), "f", "x", 1);
		pai_env_unref(PAI_TAKE(after));
	}
}

static void looking_makes_nothing(struct pai_conf *c)
{
	WORLD(c);
	pai_auto_env struct pai_env *e = NULL;
	auto_session struct pai_session *s = session_of(&w);

	if (!s || !acquire(&w, s, PAI_ACQUIRE_LOOK, &e)) {
		return;
	}
	CONF_CHECK(c, !e && count_listed(&w) == 0, "a look made a sandbox");
}

/* --- loss --- */

static void lost_in_mid_call_recovers_once_and_says_so(struct pai_conf *c)
{
	WORLD(c);
	struct pai_err err = PAI_ERR_INIT;
	bool was_reset = false;
	auto_session struct pai_session *s = session_of(&w);
	struct work k = {.w = &w, .session = s, .lose = 1};

	if (!s) {
		return;
	}
	CONF_OK(c, use(&k, &was_reset, &err), err, "use");
	CONF_CHECK(c, k.calls == 2, "the work ran %d times, expected 2", k.calls);
	CONF_CHECK(c, was_reset, "environmentReset was not reported");
	k = (struct work){.w = &w, .session = s};
	CONF_OK(c, use(&k, &was_reset, &err), err, "the next use");
	CONF_CHECK(c, !was_reset, "environmentReset was reported again");
}

static void lost_twice_is_not_found(struct pai_conf *c)
{
	WORLD(c);
	struct pai_err err = PAI_ERR_INIT;
	bool was_reset = false;
	int r;
	auto_session struct pai_session *s = session_of(&w);
	struct work k = {.w = &w, .session = s, .lose = 2};

	if (!s) {
		return;
	}
	r = use(&k, &was_reset, &err);
	CONF_ERROR(c, r, err, PAI_E_NOT_FOUND, "use");
	CONF_CHECK(c, k.calls == 2, "the work ran %d times, expected 2", k.calls);
}

static void a_verified_use_sees_a_loss_between_calls(struct pai_conf *c)
{
	WORLD(c);
	pai_auto_env struct pai_env *old = NULL, *e = NULL;
	auto_session struct pai_session *s = session_of(&w);

	if (!s || !acquire(&w, s, 0, &old) || !kill_by_id(c, id_of(old)) ||
	    !acquire(&w, s, PAI_ACQUIRE_VERIFY, &e)) {
		return;
	}
	CONF_CHECK(c,
	    strcmp(id_of(old), id_of(e)) != 0 ||
		!pai_session_identity_equal(pai_env_identity(old), pai_env_identity(e)),
	    "the killed sandbox was given again");
	CONF_CHECK(c, pai_env_revoked(old) && !pai_env_revoked(e), "the wrong one is revoked");
}

/* --- reset, dispose, close --- */

static void reset_destroys_and_the_next_use_says_so(struct pai_conf *c)
{
	WORLD(c);
	struct pai_err err = PAI_ERR_INIT;
	char old[PAI_ID_MAX + 1];
	bool was_reset = true;
	auto_session struct pai_session *s = session_of(&w);
	struct work k = {.w = &w, .session = s};

	if (!s) {
		return;
	}
	CONF_OK(c, use(&k, &was_reset, &err), err, "use");
	CONF_CHECK(c, !was_reset, "the first use says environmentReset");
	(void)snprintf(old, sizeof(old), "%s", k.id);
	CONF_OK(c, pai_session_reset(s, CONF_CALL(c), &err), err, "reset");
	CONF_CHECK(c, count_listed(&w) == 0, "the sandbox outlives a reset");
	CONF_OK(c, use(&k, &was_reset, &err), err, "use after the reset");
	CONF_CHECK(c, was_reset, "environmentReset was not reported");
	CONF_CHECK(c, strcmp(old, k.id) != 0, "the old sandbox answers after a reset");
}

static void reset_of_a_key_never_used_makes_nothing(struct pai_conf *c)
{
	WORLD(c);
	struct pai_err err = PAI_ERR_INIT;
	auto_session struct pai_session *s = session_of(&w);

	if (!s) {
		return;
	}
	CONF_OK(c, pai_session_reset(s, CONF_CALL(c), &err), err, "reset");
	CONF_CHECK(c, atomic_load(&w.calls[PAI_WRAP_CREATE]) == 0, "a reset called create");
}

static void work_before_a_reset_is_not_retried(struct pai_conf *c)
{
	WORLD(c);
	struct pai_err err = PAI_ERR_INIT;
	bool was_reset = false;
	int r;
	auto_session struct pai_session *s = session_of(&w);
	struct work k = {.w = &w, .session = s, .resets = true};

	if (!s) {
		return;
	}
	r = use(&k, &was_reset, &err);
	CONF_ERROR(c, r, err, PAI_E_NOT_FOUND, "use");
	CONF_CHECK(c, k.calls == 1, "the work ran %d times, expected 1", k.calls);
}

static void dispose_ends_the_held_handle_and_every_orphan(struct pai_conf *c)
{
	WORLD(c);
	pai_auto_strmap struct pai_strmap label = PAI_STRMAP_INIT;
	pai_auto_env struct pai_env *e = NULL, *none = NULL;
	struct pai_create_input input = pai_conf_input(c);
	struct pai_err err = PAI_ERR_INIT;
	size_t killed = 0;
	int r;
	auto_session struct pai_session *s = session_of(&w);

	if (!s || !acquire(&w, s, 0, &e)) {
		return;
	}
	CONF_CHECK(c, pai_strmap_set(&label, PAI_SESSION_KEY_METADATA, w.key) == 0, "no memory");
	input.metadata = &label;
	if (!pai_conf_create(c, &input)) {
		return;
	}
	CONF_OK(c, pai_sessions_dispose(w.m, w.key, CONF_CALL(c), &killed, &err), err, "dispose");
	CONF_CHECK(c, killed == 2, "%zu killed, expected 2", killed);
	CONF_CHECK(c, count_listed(&w) == 0, "sandboxes of the key outlive its end");
	CONF_CHECK(c, pai_env_revoked(e), "the environment held is not revoked");
	r = pai_session_acquire(s, PAI_ACQUIRE_REVIVE, NULL, CONF_CALL(c), &none, &err);
	CONF_ERROR(c, r, err, PAI_E_RESET, "acquire by the held handle");
}

static void dispose_leaves_other_keys(struct pai_conf *c)
{
	WORLD(c);
	struct pai_sandbox *other = pai_conf_sandbox(c);
	pai_auto_env struct pai_env *e = NULL;
	struct pai_err err = PAI_ERR_INIT;
	size_t killed = 0;
	auto_session struct pai_session *s = session_of(&w);

	if (!other || !s || !acquire(&w, s, 0, &e)) {
		return;
	}
	CONF_OK(c, pai_sessions_dispose(w.m, w.key, CONF_CALL(c), &killed, &err), err, "dispose");
	CONF_CHECK(c, killed == 1, "%zu killed, expected 1", killed);
	(void)!pai_conf_connect(c, pai_sandbox_id(other));
}

struct drain {
	pthread_t thread;
	struct work work;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool inside, may_go;
	int result;
	struct pai_err err;
};

static int held_work(void *arg, struct pai_env *e, struct pai_err *err)
{
	struct drain *d = arg;

	(void)pthread_mutex_lock(&d->lock);
	d->inside = true;
	(void)pthread_cond_signal(&d->changed);
	while (!d->may_go) {
		(void)pthread_cond_wait(&d->changed, &d->lock);
	}
	(void)pthread_mutex_unlock(&d->lock);
	return work(&d->work, e, err);
}

static void *drain_thread(void *arg)
{
	struct drain *d = arg;
	const struct pai_use how = {.flags = 0};
	bool was_reset;

	d->result = pai_session_use(
	    d->work.session, &how, held_work, d, CONF_CALL(d->work.w->c), &was_reset, &d->err);
	(void)pthread_mutex_lock(&d->lock);
	d->inside = true; /* also where it never got in */
	(void)pthread_cond_signal(&d->changed);
	(void)pthread_mutex_unlock(&d->lock);
	return NULL;
}

static void *close_thread(void *arg)
{
	close_manager(arg);
	return NULL;
}

static void close_drains_and_never_kills(struct pai_conf *c)
{
	WORLD(c);
	struct drain d = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
	pthread_t closer;
	auto_session struct pai_session *s = session_of(&w);

	d.work = (struct work){.w = &w, .session = s};
	if (!s || pthread_create(&d.thread, NULL, drain_thread, &d) != 0) {
		return;
	}
	(void)pthread_mutex_lock(&d.lock);
	while (!d.inside) {
		(void)pthread_cond_wait(&d.changed, &d.lock);
	}
	(void)pthread_mutex_unlock(&d.lock);
	if (pthread_create(&closer, NULL, close_thread, &w) != 0) {
		pai_conf_fail(c, "no thread");
	}
	(void)pthread_mutex_lock(&d.lock);
	d.may_go = true;
	(void)pthread_cond_signal(&d.changed);
	(void)pthread_mutex_unlock(&d.lock);
	(void)pthread_join(d.thread, NULL);
	(void)pthread_join(closer, NULL);
	CONF_OK(c, d.result, d.err, "the use that was under way");
	CONF_CHECK(c, count_listed(&w) == 1, "close killed the sandbox");
}

/* --- the exclusive queue --- */

struct turns {
	pthread_t thread;
	struct work work;
	atomic_int *inside, *overlaps;
	struct pai_err err;
};

static int one_turn(void *arg, struct pai_env *e, struct pai_err *err)
{
	struct turns *t = arg;
	int r;

	if (atomic_fetch_add(t->inside, 1) != 0) {
		(void)atomic_fetch_add(t->overlaps, 1);
	}
	r = work(&t->work, e, err);
	(void)atomic_fetch_sub(t->inside, 1);
	return r;
}

static void *turns_thread(void *arg)
{
	struct turns *t = arg;
	const struct pai_use how = {.exclusive = true};
	bool was_reset;
	int r = 0;

	for (int i = 0; r == 0 && i < TURNS; i++) {
		r = pai_session_use(t->work.session, &how, one_turn, t, CONF_CALL(t->work.w->c),
		    &was_reset, &t->err);
	}
	return NULL;
}

static void exclusive_uses_take_turns(struct pai_conf *c)
{
	WORLD(c);
	struct turns turns[USERS];
	atomic_int inside = 0, overlaps = 0;
	size_t started = 0;
	auto_session struct pai_session *s = session_of(&w);

	for (size_t i = 0; s && i < USERS; i++) {
		turns[i] = (struct turns){
		    .work = {.w = &w, .session = s}, .inside = &inside, .overlaps = &overlaps};
		if (pthread_create(&turns[i].thread, NULL, turns_thread, &turns[i]) != 0) {
			break;
		}
		started++;
	}
	for (size_t i = 0; i < started; i++) {
		(void)pthread_join(turns[i].thread, NULL);
		if (turns[i].err.code != PAI_OK) {
			pai_conf_fail(c, "exclusive use: %s", turns[i].err.msg);
		}
	}
	CONF_CHECK(c, started == USERS, "no threads");
	CONF_CHECK(c, atomic_load(&overlaps) == 0, "%d uses overlapped", atomic_load(&overlaps));
}

/* --- pause --- */

static void a_paused_one_is_resumed_by_use_alone(struct pai_conf *c)
{
	WORLD(c);
	pai_auto_env struct pai_env *e = NULL, *looked = NULL, *after = NULL;
	struct pai_err err = PAI_ERR_INIT;
	auto_session struct pai_session *s = session_of(&w);

	if (!s || !acquire(&w, s, 0, &e)) {
		return;
	}
	CONF_OK(c, pai_session_pause(s, CONF_CALL(c), &err), err, "pause");
	if (!acquire(&w, s, PAI_ACQUIRE_LOOK, &looked)) {
		return;
	}
	CONF_CHECK(c, !looked, "a look resumed it");
	if (acquire(&w, s, 0, &after)) {
		CONF_CHECK(c,
		    pai_session_identity_equal(pai_env_identity(e), pai_env_identity(after)),
		    "resuming gave another environment");
	}
}

static const struct pai_conf_case cases[] = {
    {"session/first_uses_at_once_make_one", 0, first_uses_at_once_make_one},
    {"session/what_it_makes_carries_the_key", 0, what_it_makes_carries_the_key},
    {"session/renews_right_after_create", 0, renews_right_after_create},
    {"session/a_fresh_manager_finds_it_again", 0, a_fresh_manager_finds_it_again},
    {"session/looking_makes_nothing", 0, looking_makes_nothing},
    {"session/lost_in_mid_call_recovers_once_and_says_so", 0,
	lost_in_mid_call_recovers_once_and_says_so},
    {"session/lost_twice_is_not_found", 0, lost_twice_is_not_found},
    {"session/a_verified_use_sees_a_loss_between_calls", 0,
	a_verified_use_sees_a_loss_between_calls},
    {"session/reset_destroys_and_the_next_use_says_so", 0, reset_destroys_and_the_next_use_says_so},
    {"session/reset_of_a_key_never_used_makes_nothing", 0, reset_of_a_key_never_used_makes_nothing},
    {"session/work_before_a_reset_is_not_retried", 0, work_before_a_reset_is_not_retried},
    {"session/dispose_ends_the_held_handle_and_every_orphan", 0,
	dispose_ends_the_held_handle_and_every_orphan},
    {"session/dispose_leaves_other_keys", 0, dispose_leaves_other_keys},
    {"session/close_drains_and_never_kills", 0, close_drains_and_never_kills},
    {"session/exclusive_uses_take_turns", 0, exclusive_uses_take_turns},
    {"session/a_paused_one_is_resumed_by_use_alone", PAI_CAP_PAUSE,
	a_paused_one_is_resumed_by_use_alone},
    {NULL, 0, NULL},
};
static const struct pai_conf_case *const tables[] = {cases, NULL};
const struct pai_conformance_suite pai_session_suite = {"session", tables};
