/* Reset, dispose, close, the exclusive queue, and what two daemons see of each other. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
TestSuite(session_ends, .init = up, .fini = down, .timeout = 30);

/* --- reset --- */

Test(session_ends, reset_destroys_and_the_next_use_makes_another_and_says_so)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct pai_env *old = env_of(s, 0);
	struct pai_env *e;

	cr_assert_eq(reset(w.m, "k"), PAI_OK);
	cr_assert_eq(fake_live(&w.fake), 0);
	cr_assert(pai_env_revoked(old));
	cr_assert_eq(state_of(&w, "k"), PAI_SESSION_NEW);
	e = env_of(s, 0);
	cr_assert_str_eq(pai_env_identity(e)->sandbox_id, "box-2");
	cr_assert_eq(pai_env_generation(e), 2);
	cr_assert_eq(w.replaced, 1);
	pai_env_unref(old);
	pai_env_unref(e);
	pai_session_unref(s);
}

Test(session_ends, reset_of_a_key_never_used_makes_nothing)
{
	cr_assert_eq(reset(w.m, "k"), PAI_OK);
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 0);
	cr_assert_eq(w.fake.calls[FAKE_KILL], 0);
}

Test(session_ends, reset_destroys_what_only_metadata_finds)
{
	pai_auto_strmap struct pai_strmap ours = PAI_STRMAP_INIT;

	cr_assert_eq(pai_strmap_set(&ours, "paiSessionKey", "k"), 0);
	(void)fake_add(&w.fake, "orphan", &ours);
	cr_assert_eq(reset(w.m, "k"), PAI_OK);
	cr_assert_eq(fake_live(&w.fake), 0);
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 0);
}

Test(session_ends, reset_leaves_what_is_bound_to_another_key)
{
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(w.m, "theirs", 0, id), PAI_OK);
	cr_assert_eq(pai_strmap_set(&w.fake.boxes[0].metadata, "paiSessionKey", "k"), 0);
	cr_assert_eq(reset(w.m, "k"), PAI_OK);
	cr_assert_eq(fake_live(&w.fake), 1);
}

Test(session_ends, a_borrowed_workspace_is_not_reset)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct pai_env *e;

	w.fake.borrowed = true;
	e = env_of(s, 0);
	cr_assert_eq(reset(w.m, "k"), PAI_E_POLICY_MISMATCH);
	cr_assert_not(pai_env_revoked(e), "its files stay open");
	world_stop(&w);
	world_start(&w);
	cr_assert_eq(reset(w.m, "k"), PAI_E_POLICY_MISMATCH, "also when it isn't attached");
	cr_assert_eq(fake_live(&w.fake), 1);
	pai_env_unref(e);
	pai_session_unref(s);
}

Test(session_ends, a_reset_whose_kill_fails_is_a_failure)
{
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	fake_set(&w.fake, &w.fake.fail[FAKE_KILL], true);
	cr_assert_eq(reset(w.m, "k"), PAI_E_UNAVAILABLE);
	fake_set(&w.fake, &w.fake.fail[FAKE_KILL], false);
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_str_eq(id, "box-1");
}

static void *reset_thread(void *arg)
{
	struct thread *t = arg;

	t->code = reset(w.m, t->key);
	return NULL;
}

Test(session_ends, a_reset_ends_the_creation_that_runs_and_the_waiter_gets_the_next)
{
	struct thread waiter = {.session = handle_of(w.m, "k")};

	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], true);
	cr_assert_eq(pthread_create(&waiter.id, NULL, acquire_thread, &waiter), 0);
	cr_assert(fake_wait(&w.fake, FAKE_CREATE, 1));
	cr_assert_eq(reset(w.m, "k"), PAI_OK);
	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], false);
	(void)pthread_join(waiter.id, NULL);
	cr_assert_eq(waiter.code, PAI_OK);
	cr_assert_eq(fake_live(&w.fake), 1);
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 2);
	pai_session_unref(waiter.session);
}

/* --- dispose --- */

Test(session_ends, dispose_revokes_held_handles_kills_and_leaves_a_tombstone)
{
	struct pai_session *held = handle_of(w.m, "k"), *fresh;
	struct pai_env *e = env_of(held, 0), *none = NULL;
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	char id[PAI_ID_MAX + 1];
	size_t killed;

	cr_assert_eq(dispose(w.m, "k", &killed), PAI_OK);
	cr_assert_eq(killed, 1);
	cr_assert_eq(fake_live(&w.fake), 0);
	cr_assert(pai_env_revoked(e));
	cr_assert_eq(w.detached, 1);
	cr_assert_eq(state_of(&w, "k"), PAI_SESSION_KILLED);
	cr_assert_eq(
	    pai_session_acquire(held, PAI_ACQUIRE_REVIVE, NULL, &call, &none, &err), -ESTALE);
	cr_assert_eq(err.code, PAI_E_RESET, "terminal for the held handle, even to revive");

	fresh = handle_of(w.m, "k");
	cr_assert_neq(fresh, held);
	pai_session_unref(fresh);
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_E_RESET, "a write gets ESTALE");
	cr_assert_eq(acquire(w.m, "k", PAI_ACQUIRE_LOOK, id), PAI_E_RESET);
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 1);
	cr_assert_eq(acquire(w.m, "k", PAI_ACQUIRE_REVIVE, id), PAI_OK);
	cr_assert_str_eq(id, "box-2");
	pai_env_unref(e);
	pai_session_unref(held);
}

Test(session_ends, dispose_sweeps_orphans)
{
	pai_auto_strmap struct pai_strmap ours = PAI_STRMAP_INIT;
	char id[PAI_ID_MAX + 1];
	size_t killed;

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_eq(pai_strmap_set(&ours, "paiSessionKey", "k"), 0);
	(void)fake_add(&w.fake, "orphan-1", &ours);
	(void)fake_add(&w.fake, "orphan-2", &ours);
	cr_assert_eq(acquire(w.m, "other", 0, id), PAI_OK);
	cr_assert_eq(dispose(w.m, "k", &killed), PAI_OK);
	cr_assert_eq(killed, 3);
	cr_assert_eq(fake_live(&w.fake), 1, "the other key's");
}

Test(session_ends, dispose_does_not_trust_the_lists_filter)
{
	char id[PAI_ID_MAX + 1];
	size_t killed;

	(void)fake_add(&w.fake, "somebody-elses", NULL);
	w.fake.ignores_filter = true;
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_str_eq(id, "box-2");
	cr_assert_eq(dispose(w.m, "k", &killed), PAI_OK);
	cr_assert_eq(killed, 1);
	cr_assert_eq(fake_live(&w.fake), 1);
}

Test(session_ends, dispose_of_what_nobody_knows_is_nothing)
{
	size_t killed;
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(dispose(w.m, "k", &killed), PAI_OK);
	cr_assert_eq(killed, 0);
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK, "no tombstone for it");
}

Test(session_ends, a_dispose_that_fails_has_left_its_tombstone_and_can_be_repeated)
{
	char id[PAI_ID_MAX + 1];
	size_t killed;

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	fake_set(&w.fake, &w.fake.fail[FAKE_KILL], true);
	cr_assert_eq(dispose(w.m, "k", &killed), PAI_E_UNAVAILABLE);
	cr_assert_eq(killed, 0);
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_E_RESET);
	fake_set(&w.fake, &w.fake.fail[FAKE_KILL], false);
	cr_assert_eq(dispose(w.m, "k", &killed), PAI_OK);
	cr_assert_eq(killed, 1);
}

static void *dispose_thread(void *arg)
{
	struct thread *t = arg;

	t->code = dispose(w.m, t->key, &t->killed);
	return NULL;
}

Test(session_ends, a_handle_is_not_had_while_it_is_disposed_of)
{
	struct thread killer = {.key = "k"}, second = {.key = "k"};
	struct pai_session *s = NULL;
	struct pai_err err = PAI_ERR_INIT;
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	fake_set(&w.fake, &w.fake.hold[FAKE_KILL], true);
	cr_assert_eq(pthread_create(&killer.id, NULL, dispose_thread, &killer), 0);
	cr_assert(fake_wait(&w.fake, FAKE_KILL, 1));
	cr_assert_eq(pai_sessions_handle(w.m, "k", &s, &err), -ESTALE);
	cr_assert_eq(err.code, PAI_E_RESET);
	cr_assert_eq(pthread_create(&second.id, NULL, dispose_thread, &second), 0);
	fake_set(&w.fake, &w.fake.hold[FAKE_KILL], false);
	(void)pthread_join(killer.id, NULL);
	(void)pthread_join(second.id, NULL);
	cr_assert_eq(killer.code, PAI_OK);
	cr_assert_eq(killer.killed, 1);
	cr_assert_eq(second.code, PAI_OK);
	cr_assert_eq(second.killed, 0);
	cr_assert_eq(pai_sessions_handle(w.m, "k", &s, &err), 0);
	pai_session_unref(s);
}

Test(session_ends, dispose_ends_the_creation_that_runs)
{
	struct thread waiter = {.session = handle_of(w.m, "k")};
	size_t killed;

	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], true);
	cr_assert_eq(pthread_create(&waiter.id, NULL, acquire_thread, &waiter), 0);
	cr_assert(fake_wait(&w.fake, FAKE_CREATE, 1));
	cr_assert_eq(dispose(w.m, "k", &killed), PAI_OK);
	(void)pthread_join(waiter.id, NULL);
	cr_assert_eq(waiter.code, PAI_E_RESET);
	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], false);
	cr_assert_eq(fake_live(&w.fake), 0);
	pai_session_unref(waiter.session);
}

static int kill_it(void *arg, struct pai_env *e, struct pai_err *err)
{
	int *calls = arg;
	size_t killed;

	(void)e;
	(*calls)++;
	cr_assert_eq(dispose(w.m, "k", &killed), PAI_OK);
	return pai_err_set(err, PAI_E_NOT_FOUND, "the sandbox is gone");
}

Test(session_ends, work_under_way_is_not_retried_after_a_dispose)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct pai_use how = {.flags = PAI_ACQUIRE_REVIVE};
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	bool is_reset = true;
	int calls = 0;

	cr_assert_eq(pai_session_use(s, &how, kill_it, &calls, &call, &is_reset, &err), -ESTALE);
	cr_assert_eq(calls, 1);
	cr_assert_eq(fake_live(&w.fake), 0);
	pai_session_unref(s);
}

static struct thread killer = {.key = "k"};

static void dispose_meanwhile(struct world *world)
{
	struct pai_session *s = NULL;

	cr_assert_eq(pthread_create(&killer.id, NULL, dispose_thread, &killer), 0);
	while (pai_sessions_handle(world->m, "k", &s, PAI_ERR_IGNORED()) == 0) {
		pai_session_unref(s);
		sched_yield();
	}
}

Test(session_ends, a_dispose_at_the_last_moment_of_a_creation_wins)
{
	char id[PAI_ID_MAX + 1];

	w.before_bind = dispose_meanwhile;
	cr_assert_eq(acquire(w.m, "k", PAI_ACQUIRE_REVIVE, id), PAI_E_RESET);
	(void)pthread_join(killer.id, NULL);
	cr_assert_eq(killer.code, PAI_OK);
	cr_assert_eq(fake_live(&w.fake), 0);
	cr_assert_eq(state_of(&w, "k"), PAI_SESSION_KILLED);
	cr_assert_eq(w.attached, 0);
}

/* --- the exclusive queue --- */

static uint64_t begin(struct pai_session *s, uint64_t ms, enum pai_errcode *code)
{
	struct pai_call call = {.deadline_ms = pai_deadline_in(ms)};
	struct pai_err err = PAI_ERR_INIT;
	uint64_t token = 0;

	(void)!pai_session_exclusive_begin(s, &call, &token, &err);
	*code = err.code;
	return token;
}

struct turns {
	pthread_t thread;
	struct pai_session *session;
	atomic_int *inside;
	atomic_int *most;
};

static int count_inside(void *arg, struct pai_env *e, struct pai_err *err)
{
	struct turns *t = arg;
	int now = atomic_fetch_add(t->inside, 1) + 1;

	(void)e;
	(void)err;
	if (now > atomic_load(t->most)) {
		atomic_store(t->most, now);
	}
	sched_yield();
	(void)atomic_fetch_sub(t->inside, 1);
	return 0;
}

static void *turn_thread(void *arg)
{
	struct turns *t = arg;
	struct pai_use how = {.exclusive = true};
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	bool is_reset;

	for (int i = 0; i < 50; i++) {
		if (pai_session_use(t->session, &how, count_inside, t, &call, &is_reset, &err) <
		    0) {
			(void)fprintf(stderr, "%s\n", err.msg);
			abort();
		}
	}
	return NULL;
}

Test(session_ends, exclusive_uses_are_one_at_a_time)
{
	struct pai_session *s = handle_of(w.m, "k");
	atomic_int inside = 0, most = 0;
	struct turns turns[6];

	for (size_t i = 0; i < 6; i++) {
		turns[i] = (struct turns){.session = s, .inside = &inside, .most = &most};
		cr_assert_eq(pthread_create(&turns[i].thread, NULL, turn_thread, &turns[i]), 0);
	}
	for (size_t i = 0; i < 6; i++) {
		(void)pthread_join(turns[i].thread, NULL);
	}
	cr_assert_eq(most, 1);
	pai_session_unref(s);
}

Test(session_ends, the_token_passes_and_others_wait_until_their_deadline)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	atomic_int inside = 0, most = 0;
	struct turns t = {.session = s, .inside = &inside, .most = &most};
	struct pai_use how = {.exclusive = true};
	enum pai_errcode code;
	bool is_reset;
	uint64_t token = begin(s, 10000, &code);

	cr_assert_neq(token, 0);
	(void)begin(s, 20, &code);
	cr_assert_eq(code, PAI_E_TIMEOUT);
	how.token = token;
	cr_assert_eq(pai_session_use(s, &how, count_inside, &t, &call, &is_reset, &err), 0);
	cr_assert_eq(pai_session_reset_inside(s, token, &call, &err), 0, "%s", err.msg);
	pai_session_exclusive_end(s, token + 1);
	(void)begin(s, 20, &code);
	cr_assert_eq(code, PAI_E_TIMEOUT, "another token ends nothing");
	pai_session_exclusive_end(s, token);
	cr_assert_eq(pai_session_use(s, &how, count_inside, &t, &call, &is_reset, &err), -EINVAL);
	token = begin(s, 10000, &code);
	cr_assert_eq(code, PAI_OK);
	pai_session_exclusive_end(s, token);
	pai_session_unref(s);
}

Test(session_ends, a_reset_waits_for_the_exclusive_use)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct thread t = {.key = "k"};
	struct pai_env *e = env_of(s, 0);
	enum pai_errcode code;
	uint64_t token = begin(s, 10000, &code);

	cr_assert_eq(pthread_create(&t.id, NULL, reset_thread, &t), 0);
	cr_assert_not(pai_env_revoked(e));
	cr_assert_eq(w.fake.calls[FAKE_KILL], 0);
	pai_session_exclusive_end(s, token);
	(void)pthread_join(t.id, NULL);
	cr_assert_eq(t.code, PAI_OK);
	cr_assert(pai_env_revoked(e));
	pai_env_unref(e);
	pai_session_unref(s);
}

static int reset_in_vain(void *arg, struct pai_env *e, struct pai_err *err)
{
	struct thread *t = arg;
	struct pai_call call = {.deadline_ms = pai_deadline_in(20)};
	struct pai_err why = PAI_ERR_INIT;

	t->killed++;
	cr_assert_eq(pai_session_reset(t->session, &call, &why), -ETIMEDOUT);
	fake_vanish(&w.fake, pai_env_identity(e)->sandbox_id);
	return pai_err_set(err, PAI_E_NOT_FOUND, "the sandbox is gone");
}

Test(session_ends, a_reset_forbids_retries_from_when_it_is_asked_for)
{
	struct thread t = {.session = handle_of(w.m, "k")};
	struct pai_use how = {.flags = 0};
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	enum pai_errcode code;
	uint64_t token = begin(t.session, 10000, &code);
	bool is_reset;

	cr_assert_eq(
	    pai_session_use(t.session, &how, reset_in_vain, &t, &call, &is_reset, &err), -ESTALE);
	cr_assert_eq(t.killed, 1);
	pai_session_exclusive_end(t.session, token);
	pai_session_unref(t.session);
}

static size_t count_files(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	size_t n = 0;

	while ((e = readdir(d))) {
		n += e->d_name[0] != '.';
	}
	(void)closedir(d);
	return n;
}

Test(session_ends, the_daemons_of_a_host_share_the_queue_by_a_file)
{
	char dir[] = "/tmp/pai-locks-XXXXXX";
	struct pai_sessions *other;
	struct pai_session *a, *b;
	enum pai_errcode code;
	uint64_t token;
	size_t killed;

	cr_assert_not_null(mkdtemp(dir));
	world_stop(&w);
	w.lock_dir = dir;
	world_start(&w);
	other = world_daemon(&w);
	a = handle_of(w.m, "k");
	b = handle_of(other, "k");
	pai_env_unref(env_of(a, 0));
	token = begin(a, 10000, &code);
	(void)begin(b, 30, &code);
	cr_assert_eq(code, PAI_E_TIMEOUT);
	pai_session_exclusive_end(a, token);
	token = begin(b, 10000, &code);
	cr_assert_eq(code, PAI_OK);
	pai_session_exclusive_end(b, token);
	cr_assert_gt(count_files(dir), 0);
	cr_assert_eq(dispose(w.m, "k", &killed), PAI_OK);
	cr_assert_eq(count_files(dir), 0, "nothing remains of a killed key");
	pai_session_unref(a);
	pai_session_unref(b);
	pai_sessions_close(other, pai_deadline_in(10000));
	remove_dir(dir);
}

/* --- close --- */

struct closer {
	pthread_t id;
	struct pai_sessions *m;
	atomic_bool done;
};

static void *close_thread(void *arg)
{
	struct closer *c = arg;

	pai_sessions_close(c->m, pai_deadline_in(10000));
	atomic_store(&c->done, true);
	return NULL;
}

static int wait_run(void *arg, struct pai_env *e, struct pai_err *err)
{
	struct pai_run_input input = {.command = "x"};
	struct pai_run_result result = {.out = NULL};
	struct pai_call call = soon();
	int r = pai_sandbox_run(pai_env_sandbox(e), &input, &call, &result, err);

	(void)arg;
	pai_run_result_fini(&result);
	return r == 0 && pai_env_revoked(e)
		   ? pai_err_set(err, PAI_E_INTERNAL, "revoked while it was used")
		   : r;
}

static void *use_thread(void *arg)
{
	struct thread *t = arg;
	struct pai_use how = {.flags = 0};
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	bool is_reset;

	(void)!pai_session_use(t->session, &how, wait_run, NULL, &call, &is_reset, &err);
	t->code = err.code;
	pai_session_unref(t->session);
	return NULL;
}

Test(session_ends, close_drains_what_was_admitted_and_refuses_what_comes)
{
	struct closer c = {.m = w.m};
	struct thread t = {.session = handle_of(w.m, "k")};
	struct pai_session *held = handle_of(w.m, "k");
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	struct pai_env *e = NULL;
	int r;

	fake_set(&w.fake, &w.fake.hold[FAKE_RUN], true);
	cr_assert_eq(pthread_create(&t.id, NULL, use_thread, &t), 0);
	cr_assert(fake_wait(&w.fake, FAKE_RUN, 1));
	cr_assert_eq(pthread_create(&c.id, NULL, close_thread, &c), 0);
	do {
		r = pai_session_acquire(held, 0, NULL, &call, &e, &err);
		pai_env_unref(e);
		e = NULL;
	} while (r == 0); /* until the close has begun */
	cr_assert_eq(err.code, PAI_E_UNAVAILABLE);
	/* Time for a close that doesn't wait to show. */
	call.deadline_ms = pai_deadline_in(50);
	cr_assert_eq(pai_call_sleep(&call, PAI_NO_DEADLINE, &err), -ETIMEDOUT);
	cr_assert_not(atomic_load(&c.done));
	fake_set(&w.fake, &w.fake.hold[FAKE_RUN], false);
	(void)pthread_join(t.id, NULL);
	cr_assert_eq(t.code, PAI_OK);
	(void)pthread_join(c.id, NULL);
	cr_assert_eq(fake_live(&w.fake), 1);
	cr_assert_eq(w.fake.calls[FAKE_CLOSE], 0, "a held handle keeps the provider");
	cr_assert_eq(w.detached, 1);
	pai_session_unref(held);
	cr_assert_eq(w.fake.calls[FAKE_CLOSE], 1);
	cr_assert_eq(w.freed, w.composed);
	world_start(&w); /* for the teardown */
}

Test(session_ends, what_was_admitted_gets_its_replacement_while_closing)
{
	struct closer c = {.m = w.m};
	struct thread t = {.session = handle_of(w.m, "k")};
	struct pai_session *s = NULL;
	struct pai_call call = soon();
	size_t killed;

	fake_set(&w.fake, &w.fake.hold[FAKE_RUN], true);
	cr_assert_eq(pthread_create(&t.id, NULL, use_thread, &t), 0);
	cr_assert(fake_wait(&w.fake, FAKE_RUN, 1));
	s = handle_of(w.m, "k");
	cr_assert_eq(pthread_create(&c.id, NULL, close_thread, &c), 0);
	while (pai_sessions_dispose(w.m, "other", &call, &killed, PAI_ERR_IGNORED()) == 0) {
		sched_yield(); /* until the close has begun */
	}
	fake_vanish(&w.fake, "box-1");
	fake_set(&w.fake, &w.fake.hold[FAKE_RUN], false);
	(void)pthread_join(t.id, NULL);
	(void)pthread_join(c.id, NULL);
	cr_assert_eq(t.code, PAI_OK);
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 2);
	pai_session_unref(s);
	world_start(&w);
}

Test(session_ends, close_cancels_a_creation_past_its_deadline)
{
	struct thread t = {.session = handle_of(w.m, "k")};

	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], true);
	cr_assert_eq(pthread_create(&t.id, NULL, acquire_thread, &t), 0);
	cr_assert(fake_wait(&w.fake, FAKE_CREATE, 1));
	pai_sessions_close(w.m, pai_deadline_in(20));
	(void)pthread_join(t.id, NULL);
	cr_assert_eq(t.code, PAI_E_UNAVAILABLE);
	pai_session_unref(t.session);
	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], false);
	world_start(&w);
}

Test(session_ends, an_environment_held_past_the_close_is_revoked_and_stays_valid)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct pai_env *e = env_of(s, 0);

	pai_session_unref(s);
	world_stop(&w);
	cr_assert(pai_env_revoked(e));
	cr_assert_str_eq(pai_sandbox_id(pai_env_sandbox(e)), "box-1");
	cr_assert_eq(w.freed, 0);
	pai_env_unref(e);
	cr_assert_eq(w.freed, 1);
	world_start(&w);
}
