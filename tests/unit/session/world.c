#include "tests/unit/session/world.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/clock.h"

struct view {
	struct pai_store base;
	struct pai_store *inner;
	struct world *world;
};

static void run_once(struct pai_store *s, void (**hook)(struct world *w))
{
	void (*fn)(struct world * w) = *hook;

	*hook = NULL;
	if (fn) {
		fn(((struct view *)s)->world);
	}
}

static struct pai_store *inner_of(struct pai_store *s)
{
	return ((struct view *)s)->inner;
}

static int view_load(struct pai_store *s, const char *key, bool *found,
    struct pai_session_record *ret, struct pai_err *err)
{
	int r = inner_of(s)->ops->load(inner_of(s), key, found, ret, err);

	run_once(s, &((struct view *)s)->world->after_load);
	return r;
}

static int view_list(
    struct pai_store *s, struct pai_session_record **ret, size_t *count, struct pai_err *err)
{
	return inner_of(s)->ops->list(inner_of(s), ret, count, err);
}

static int view_name(struct pai_store *s, const char *key, struct pai_err *err)
{
	return inner_of(s)->ops->name(inner_of(s), key, err);
}

static int view_bind(struct pai_store *s, const char *key,
    const struct pai_session_identity *identity, bool revive, struct pai_session_record *ret,
    bool *changed, struct pai_err *err)
{
	run_once(s, &((struct view *)s)->world->before_bind);
	return inner_of(s)->ops->bind(inner_of(s), key, identity, revive, ret, changed, err);
}

static int view_event(struct pai_store *s, const char *key, enum pai_store_event event,
    const struct pai_session_identity *identity, const char *detail, struct pai_err *err)
{
	return inner_of(s)->ops->event(inner_of(s), key, event, identity, detail, err);
}

static int view_trust(struct pai_store *s, const char *key, bool trusted, struct pai_err *err)
{
	return inner_of(s)->ops->trust(inner_of(s), key, trusted, err);
}

static int view_terms(struct pai_store *s, const char *key, char **ret, struct pai_err *err)
{
	return inner_of(s)->ops->terms(inner_of(s), key, ret, err);
}

static int view_set_terms(
    struct pai_store *s, const char *key, const char *text, struct pai_err *err)
{
	return inner_of(s)->ops->set_terms(inner_of(s), key, text, err);
}

static void view_free(struct pai_store *s)
{
	free(s);
}

static const struct pai_store_ops view_ops = {
    .load = view_load,
    .list = view_list,
    .name = view_name,
    .bind = view_bind,
    .event = view_event,
    .trust = view_trust,
    .terms = view_terms,
    .set_terms = view_set_terms,
    .free = view_free,
};

static struct pai_store *view_of(struct world *w)
{
	struct view *v = calloc(1, sizeof(*v));

	if (!v) {
		abort();
	}
	v->base.ops = &view_ops;
	v->inner = w->store;
	v->world = w;
	return &v->base;
}

static void *on_compose(void *arg, struct pai_session *s, struct pai_ws_config *config)
{
	struct world *w = arg;

	(void)s;
	(void)config;
	(void)atomic_fetch_add(&w->composed, 1);
	return w;
}

static void on_attached(void *arg, struct pai_session *s, struct pai_env *e, bool replaced)
{
	struct world *w = arg;

	(void)s;
	if (pai_env_user(e) != w) {
		abort();
	}
	(void)atomic_fetch_add(&w->attached, 1);
	(void)atomic_fetch_add(&w->replaced, replaced);
}

static void on_detached(void *arg, struct pai_session *s, struct pai_env *e)
{
	struct world *w = arg;

	(void)s;
	if (!pai_env_revoked(e)) {
		abort();
	}
	(void)atomic_fetch_add(&w->detached, 1);
}

static void on_free(void *arg, void *user)
{
	struct world *w = arg;

	if (user != w) {
		abort();
	}
	(void)atomic_fetch_add(&w->freed, 1);
}

struct pai_sessions *world_daemon(struct world *w)
{
	const struct pai_session_listener listener = {
	    on_compose, on_attached, on_detached, on_free, w};
	struct pai_sessions *m = NULL;
	struct pai_err err = PAI_ERR_INIT;

	if (pai_sessions_new(fake_view(&w->fake), view_of(w), w->pool, &w->options, w->lock_dir,
		&listener, &m, &err) < 0) {
		(void)fprintf(stderr, "%s\n", err.msg);
		abort();
	}
	return m;
}

void world_init(struct world *w)
{
	memset(w, 0, sizeof(*w));
	fake_init(&w->fake);
	w->store = pai_store_memory_new();
	w->pool = pai_pool_new("test", 8, 64);
	if (!w->store || !w->pool) {
		abort();
	}
}

void world_start(struct world *w)
{
	w->m = world_daemon(w);
}

void world_stop(struct world *w)
{
	pai_sessions_close(w->m, pai_deadline_in(10000));
	w->m = NULL;
}

void world_fini(struct world *w)
{
	world_stop(w);
	pai_store_free(w->store);
	pai_pool_free(w->pool);
	fake_fini(&w->fake);
}

struct pai_call soon(void)
{
	return (struct pai_call){.deadline_ms = pai_deadline_in(10000)};
}

struct pai_session *handle_of(struct pai_sessions *m, const char *key)
{
	struct pai_session *s = NULL;
	struct pai_err err = PAI_ERR_INIT;

	if (pai_sessions_handle(m, key, &s, &err) < 0) {
		(void)fprintf(stderr, "%s\n", err.msg);
		abort();
	}
	return s;
}

enum pai_errcode acquire(
    struct pai_sessions *m, const char *key, uint32_t flags, char id[PAI_ID_MAX + 1])
{
	struct pai_session *s = handle_of(m, key);
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	struct pai_env *e = NULL;

	id[0] = '\0';
	if (pai_session_acquire(s, flags, NULL, &call, &e, &err) == 0 && e) {
		(void)snprintf(id, PAI_ID_MAX + 1, "%s", pai_env_identity(e)->sandbox_id);
		pai_env_unref(e);
	}
	pai_session_unref(s);
	return err.code;
}

enum pai_session_state state_of(struct world *w, const char *key)
{
	struct pai_session_record record = {.state = PAI_SESSION_NEW};
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;

	if (w->store->ops->load(w->store, key, &found, &record, &err) < 0) {
		abort();
	}
	return record.state;
}

enum pai_errcode reset(struct pai_sessions *m, const char *key)
{
	struct pai_session *s = handle_of(m, key);
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	int r = pai_session_reset(s, &call, &err);

	cr_assert_eq(r, -err.errnum);
	pai_session_unref(s);
	return err.code;
}

enum pai_errcode dispose(struct pai_sessions *m, const char *key, size_t *killed)
{
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;

	*killed = 99;
	cr_assert_eq(pai_sessions_dispose(m, key, &call, killed, &err), -err.errnum);
	return err.code;
}

struct pai_env *env_of(struct pai_session *s, uint32_t flags)
{
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	struct pai_env *e = NULL;

	cr_assert_eq(pai_session_acquire(s, flags, NULL, &call, &e, &err), 0, "%s", err.msg);
	return e;
}

void *acquire_thread(void *arg)
{
	struct thread *t = arg;
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	struct pai_env *e = NULL;

	(void)!pai_session_acquire(t->session, 0, NULL, &call, &e, &err);
	t->code = err.code;
	pai_env_unref(e);
	return NULL;
}

void remove_dir(const char *path)
{
	char command[128];

	(void)snprintf(command, sizeof(command), "rm -rf %s", path);
	cr_assert_eq(system(command), 0);
}
