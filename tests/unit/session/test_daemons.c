/* What two daemons on one provider and one store see of each other. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "providers/base/clock.h"
#include "tests/unit/session/world.h"

static struct world w;

static void up(void)
{
	world_init(&w);
	world_start(&w);
}

static void down(void)
{
	world_fini(&w);
}
TestSuite(session_daemons, .init = up, .fini = down, .timeout = 30);

Test(session_daemons, two_daemons_use_one_sandbox)
{
	struct pai_sessions *other = world_daemon(&w);
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_eq(acquire(other, "k", 0, id), PAI_OK);
	cr_assert_str_eq(id, "box-1");
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 1);
	pai_sessions_close(other, pai_deadline_in(10000));
}

Test(session_daemons, two_daemons_that_create_at_once_make_one_where_they_share_locks)
{
	char dir[] = "/tmp/pai-locks-XXXXXX";
	struct pai_sessions *other;
	struct thread a = {.key = "k"}, b = {.key = "k"};

	cr_assert_not_null(mkdtemp(dir));
	world_stop(&w);
	w.lock_dir = dir;
	world_start(&w);
	other = world_daemon(&w);
	a.session = handle_of(w.m, "k");
	b.session = handle_of(other, "k");
	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], true);
	cr_assert_eq(pthread_create(&a.id, NULL, acquire_thread, &a), 0);
	cr_assert(fake_wait(&w.fake, FAKE_CREATE, 1));
	cr_assert_eq(pthread_create(&b.id, NULL, acquire_thread, &b), 0);
	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], false);
	(void)pthread_join(a.id, NULL);
	(void)pthread_join(b.id, NULL);
	cr_assert_eq(a.code, PAI_OK);
	cr_assert_eq(b.code, PAI_OK);
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 1);
	pai_session_unref(a.session);
	pai_session_unref(b.session);
	pai_sessions_close(other, pai_deadline_in(10000));
	remove_dir(dir);
}

/* Each has its own store, as on two hosts: the older one stays, its maker kills the loser. */
Test(session_daemons, creators_without_a_binding_key_converge_on_the_oldest)
{
	pai_auto_strmap struct pai_strmap ours = PAI_STRMAP_INIT;
	struct thread t = {.session = handle_of(w.m, "k")};
	struct pai_env *e;

	cr_assert_eq(pai_strmap_set(&ours, "paiSessionKey", "k"), 0);
	cr_assert_eq(pai_strmap_set(&ours, "paiNetwork", "none"), 0);
	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], true);
	cr_assert_eq(pthread_create(&t.id, NULL, acquire_thread, &t), 0);
	cr_assert(fake_wait(&w.fake, FAKE_CREATE, 1));
	fake_add(&w.fake, "elsewhere", &ours)->created_ms = 1;
	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], false);
	(void)pthread_join(t.id, NULL);
	cr_assert_eq(t.code, PAI_OK);
	e = pai_session_current(t.session);
	cr_assert_str_eq(pai_env_identity(e)->sandbox_id, "elsewhere");
	cr_assert_eq(fake_live(&w.fake), 1);
	cr_assert_eq(w.fake.calls[FAKE_KILL], 1);
	pai_env_unref(e);
	pai_session_unref(t.session);
}

Test(session_daemons, with_a_binding_key_nobody_is_killed)
{
	struct thread t;
	struct pai_sessions *other;
	char id[PAI_ID_MAX + 1];

	world_stop(&w);
	w.fake.binds = true;
	world_start(&w);
	other = world_daemon(&w);
	t = (struct thread){.session = handle_of(w.m, "k")};
	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], true);
	cr_assert_eq(pthread_create(&t.id, NULL, acquire_thread, &t), 0);
	cr_assert(fake_wait(&w.fake, FAKE_CREATE, 1));
	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], false);
	cr_assert_eq(acquire(other, "k", 0, id), PAI_OK);
	(void)pthread_join(t.id, NULL);
	cr_assert_eq(t.code, PAI_OK);
	cr_assert_eq(fake_live(&w.fake), 1);
	cr_assert_eq(w.fake.calls[FAKE_KILL], 0);
	pai_session_unref(t.session);
	pai_sessions_close(other, pai_deadline_in(10000));
}

Test(session_daemons, a_reset_by_another_daemon_is_seen_by_the_next_use)
{
	struct pai_sessions *other = world_daemon(&w);
	struct pai_session *s = handle_of(w.m, "k");
	struct pai_env *old = env_of(s, 0), *e;

	cr_assert_eq(reset(other, "k"), PAI_OK);
	e = env_of(s, 0);
	cr_assert(pai_env_revoked(old));
	cr_assert_str_eq(pai_env_identity(e)->sandbox_id, "box-2");
	cr_assert_eq(pai_env_generation(e), 2);
	cr_assert_eq(w.replaced, 1);
	pai_env_unref(old);
	pai_env_unref(e);
	pai_session_unref(s);
	pai_sessions_close(other, pai_deadline_in(10000));
}

static int reset_elsewhere(void *arg, struct pai_env *e, struct pai_err *err)
{
	struct thread *t = arg;
	char id[PAI_ID_MAX + 1];
	struct pai_sessions *other = world_daemon(&w);

	(void)e;
	t->killed++;
	cr_assert_eq(reset(other, "k"), PAI_OK);
	cr_assert_eq(acquire(other, "k", 0, id), PAI_OK);
	pai_sessions_close(other, pai_deadline_in(10000));
	return pai_err_set(err, PAI_E_NOT_FOUND, "the sandbox is gone");
}

Test(session_daemons, work_before_another_daemons_reset_is_not_retried_after_it)
{
	struct thread t = {.session = handle_of(w.m, "k")};
	struct pai_use how = {.flags = 0};
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	bool is_reset;

	cr_assert_eq(
	    pai_session_use(t.session, &how, reset_elsewhere, &t, &call, &is_reset, &err), -ESTALE);
	cr_assert_eq(t.killed, 1);
	pai_session_unref(t.session);
}

Test(session_daemons, a_tombstone_of_another_daemon_is_honoured)
{
	struct pai_sessions *other = world_daemon(&w);
	struct pai_session *s = handle_of(w.m, "k");
	struct pai_env *e = env_of(s, 0), *none = NULL;
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	size_t killed;

	cr_assert_eq(dispose(other, "k", &killed), PAI_OK);
	cr_assert_eq(pai_session_acquire(s, 0, NULL, &call, &none, &err), -ESTALE);
	cr_assert_eq(err.code, PAI_E_RESET);
	cr_assert(pai_env_revoked(e));
	cr_assert_eq(w.detached, 1);
	pai_env_unref(e);
	e = env_of(s, PAI_ACQUIRE_REVIVE);
	cr_assert_str_eq(pai_env_identity(e)->sandbox_id, "box-2");
	pai_env_unref(e);
	pai_session_unref(s);
	pai_sessions_close(other, pai_deadline_in(10000));
}

static int lose_it(void *arg, struct pai_env *e, struct pai_err *err)
{
	struct thread *t = arg;

	t->killed++;
	fake_vanish(&w.fake, pai_env_identity(e)->sandbox_id);
	return pai_err_set(err, PAI_E_NOT_FOUND, "the sandbox is gone");
}

static void *lose_thread(void *arg)
{
	struct thread *t = arg;
	struct pai_use how = {.flags = 0};
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	bool is_reset;

	(void)!pai_session_use(t->session, &how, lose_it, t, &call, &is_reset, &err);
	t->code = err.code;
	return NULL;
}

Test(session_daemons, work_whose_replacement_is_being_made_is_not_retried_after_a_reset)
{
	struct thread t = {.session = handle_of(w.m, "k")};

	pai_env_unref(env_of(t.session, 0));
	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], true);
	cr_assert_eq(pthread_create(&t.id, NULL, lose_thread, &t), 0);
	cr_assert(fake_wait(&w.fake, FAKE_CREATE, 2));
	cr_assert_eq(reset(w.m, "k"), PAI_OK);
	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], false);
	(void)pthread_join(t.id, NULL);
	cr_assert_eq(t.code, PAI_E_NOT_FOUND);
	cr_assert_eq(t.killed, 1);
	pai_session_unref(t.session);
}

/* --- discovery --- */

Test(session_daemons, discovery_remembers_foreign_keys_and_a_look_adopts_them)
{
	pai_auto_strmap struct pai_strmap ours = PAI_STRMAP_INIT, bad = PAI_STRMAP_INIT;
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	struct pai_session_record *all = NULL;
	char id[PAI_ID_MAX + 1];
	size_t count, killed;

	cr_assert_eq(acquire(w.m, "dead", 0, id), PAI_OK);
	cr_assert_eq(dispose(w.m, "dead", &killed), PAI_OK);
	cr_assert_eq(pai_strmap_set(&ours, "paiSessionKey", "k"), 0);
	cr_assert_eq(pai_strmap_set(&ours, "paiNetwork", "none"), 0);
	cr_assert_eq(pai_strmap_set(&bad, "paiSessionKey", "no\nkey"), 0);
	(void)fake_add(&w.fake, "foreign", &ours);
	(void)fake_add(&w.fake, "hostile", &bad);
	(void)fake_add(&w.fake, "unlabelled", NULL);
	cr_assert_eq(pai_strmap_set(&ours, "paiSessionKey", "dead"), 0);
	(void)fake_add(&w.fake, "ghost", &ours);
	cr_assert_eq(pai_sessions_discover(w.m, &call, &err), 0, "%s", err.msg);
	cr_assert_eq(w.store->ops->list(w.store, &all, &count, &err), 0);
	cr_assert_eq(count, 1, "the tombstone stays");
	cr_assert_str_eq(all[0].key, "k");
	cr_assert_eq(all[0].state, PAI_SESSION_LOST);
	free(all);
	cr_assert_eq(acquire(w.m, "k", PAI_ACQUIRE_LOOK, id), PAI_OK);
	cr_assert_str_eq(id, "foreign");
}
