#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
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
TestSuite(session, .init = up, .fini = down, .timeout = 30);

/* --- the first use --- */

Test(session, a_handle_does_not_touch_the_provider)
{
	pai_session_unref(handle_of(w.m, "k"));
	for (int i = 0; i < FAKE_CALLS; i++) {
		cr_assert_eq(w.fake.calls[i], 0);
	}
}

Test(session, what_is_not_a_key_is_input)
{
	struct pai_session *s = NULL;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_lt(pai_sessions_handle(w.m, "", &s, &err), 0);
	cr_assert_eq(err.code, PAI_E_INPUT);
	cr_assert_null(s);
}

Test(session, the_first_use_creates_and_renews_once)
{
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_str_eq(id, "box-1");
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 1);
	cr_assert_eq(w.fake.calls[FAKE_KEEP_ALIVE], 1);
	cr_assert_eq(w.fake.last_ttl_ms, 5 * 60 * 1000);
	cr_assert_str_eq(pai_strmap_get(&w.fake.boxes[0].metadata, "paiSessionKey"), "k");
	cr_assert_str_eq(w.fake.boxes[0].binding_key, "k");
	cr_assert_eq(state_of(&w, "k"), PAI_SESSION_LIVE);
	cr_assert_eq(w.attached, 1);
	cr_assert_eq(w.replaced, 0);
}

Test(session, the_next_use_makes_no_call_at_all)
{
	char id[PAI_ID_MAX + 1];
	int before;

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	before = w.fake.calls[FAKE_LIST] + w.fake.calls[FAKE_CONNECT];
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_eq(acquire(w.m, "k", PAI_ACQUIRE_LOOK, id), PAI_OK);
	cr_assert_str_eq(id, "box-1");
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 1);
	cr_assert_eq(w.fake.calls[FAKE_KEEP_ALIVE], 1);
	cr_assert_eq(w.fake.calls[FAKE_LIST] + w.fake.calls[FAKE_CONNECT], before);
}

struct user {
	pthread_t thread;
	enum pai_errcode code;
	char id[PAI_ID_MAX + 1];
};

static void *use_thread(void *arg)
{
	struct user *u = arg;

	u->code = acquire(w.m, "k", 0, u->id);
	return NULL;
}

Test(session, concurrent_first_uses_issue_one_create)
{
	struct user users[16];

	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], true);
	for (size_t i = 0; i < 16; i++) {
		cr_assert_eq(pthread_create(&users[i].thread, NULL, use_thread, &users[i]), 0);
	}
	cr_assert(fake_wait(&w.fake, FAKE_CREATE, 1));
	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], false);
	for (size_t i = 0; i < 16; i++) {
		(void)pthread_join(users[i].thread, NULL);
		cr_assert_eq(users[i].code, PAI_OK);
		cr_assert_str_eq(users[i].id, "box-1");
	}
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 1);
}

Test(session, a_waiter_ends_at_its_deadline_and_the_next_gets_what_was_made)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct pai_call call = {.deadline_ms = pai_deadline_in(30)};
	struct pai_err err = PAI_ERR_INIT;
	struct pai_env *e = NULL;
	char id[PAI_ID_MAX + 1];

	fake_set(&w.fake, &w.fake.hang[FAKE_CREATE], true);
	cr_assert_eq(pai_session_acquire(s, 0, NULL, &call, &e, &err), -ETIMEDOUT);
	cr_assert_eq(err.code, PAI_E_TIMEOUT);
	fake_set(&w.fake, &w.fake.hang[FAKE_CREATE], false);
	cr_assert(fake_wait(&w.fake, FAKE_KEEP_ALIVE, 1), "renewed though nobody waits");
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 1);
	cr_assert_eq(w.fake.calls[FAKE_KEEP_ALIVE], 1);
	pai_session_unref(s);
}

Test(session, a_waiter_can_be_cancelled)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct pai_cancel *cancel = pai_cancel_new();
	struct pai_call call = {.deadline_ms = pai_deadline_in(10000), .cancel = cancel};
	struct pai_err err = PAI_ERR_INIT;
	struct pai_env *e = NULL;

	fake_set(&w.fake, &w.fake.hang[FAKE_CREATE], true);
	pai_cancel_fire(cancel);
	cr_assert_eq(pai_session_acquire(s, 0, NULL, &call, &e, &err), -ECANCELED);
	fake_set(&w.fake, &w.fake.hang[FAKE_CREATE], false);
	pai_cancel_unref(cancel);
	pai_session_unref(s);
}

Test(session, a_failed_create_is_told_and_tried_again)
{
	char id[PAI_ID_MAX + 1];

	fake_set(&w.fake, &w.fake.fail[FAKE_CREATE], true);
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_E_UNAVAILABLE);
	fake_set(&w.fake, &w.fake.fail[FAKE_CREATE], false);
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_str_eq(id, "box-1");
}

/* --- found again --- */

Test(session, a_fresh_manager_finds_it_again)
{
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	world_stop(&w);
	cr_assert_eq(fake_live(&w.fake), 1, "close never kills");
	cr_assert_eq(w.fake.calls[FAKE_CLOSE], 1);
	world_start(&w);
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_str_eq(id, "box-1");
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 1);
	cr_assert_eq(w.replaced, 0);
}

Test(session, metadata_alone_finds_it_the_oldest_first)
{
	pai_auto_strmap struct pai_strmap ours = PAI_STRMAP_INIT;
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(pai_strmap_set(&ours, "paiSessionKey", "k"), 0);
	cr_assert_eq(pai_strmap_set(&ours, "paiNetwork", "none"), 0);
	fake_add(&w.fake, "young", &ours)->created_ms = 9000;
	fake_add(&w.fake, "old-b", &ours)->created_ms = 500;
	fake_add(&w.fake, "old-a", &ours)->created_ms = 500;
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_str_eq(id, "old-a");
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 0);
}

Test(session, a_list_that_lags_does_not_hide_the_bound_one)
{
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	world_stop(&w);
	w.fake.hide = true;
	world_start(&w);
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_str_eq(id, "box-1");
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 1);
}

Test(session, a_sandbox_bound_to_another_key_is_not_adopted)
{
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(w.m, "theirs", 0, id), PAI_OK);
	cr_assert_eq(pai_strmap_set(&w.fake.boxes[0].metadata, "paiSessionKey", "k"), 0);
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_str_eq(id, "box-2");
}

Test(session, another_network_is_refused_at_adoption)
{
	pai_auto_strmap struct pai_strmap ours = PAI_STRMAP_INIT;
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(pai_strmap_set(&ours, "paiSessionKey", "k"), 0);
	cr_assert_eq(pai_strmap_set(&ours, "paiNetwork", "full"), 0);
	(void)fake_add(&w.fake, "open", &ours);
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_E_POLICY_MISMATCH);
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 0);
}

Test(session, a_sandbox_that_does_not_say_its_network_counts_as_open)
{
	pai_auto_strmap struct pai_strmap ours = PAI_STRMAP_INIT;
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(pai_strmap_set(&ours, "paiSessionKey", "k"), 0);
	(void)fake_add(&w.fake, "silent", &ours);
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_E_POLICY_MISMATCH);
}

Test(session, one_found_that_goes_before_it_is_ours_is_not_the_end)
{
	pai_auto_strmap struct pai_strmap ours = PAI_STRMAP_INIT;
	struct user u;

	cr_assert_eq(pai_strmap_set(&ours, "paiSessionKey", "k"), 0);
	cr_assert_eq(pai_strmap_set(&ours, "paiNetwork", "none"), 0);
	(void)fake_add(&w.fake, "found", &ours);
	fake_set(&w.fake, &w.fake.hold[FAKE_KEEP_ALIVE], true);
	cr_assert_eq(pthread_create(&u.thread, NULL, use_thread, &u), 0);
	cr_assert(fake_wait(&w.fake, FAKE_KEEP_ALIVE, 1));
	fake_vanish(&w.fake, "found");
	fake_set(&w.fake, &w.fake.hold[FAKE_KEEP_ALIVE], false);
	(void)pthread_join(u.thread, NULL);
	cr_assert_eq(u.code, PAI_OK, "%s", pai_errcode_name(u.code));
	cr_assert_str_eq(u.id, "box-2");
}

/* --- lost --- */

struct work {
	int calls;
	int lose; /* so many calls lose their sandbox */
	bool reset_first;
	struct pai_session *session;
	char id[PAI_ID_MAX + 1];
};

static int work(void *arg, struct pai_env *e, struct pai_err *err)
{
	struct work *k = arg;
	struct pai_call call = soon();
	struct pai_run_input input = {.command = "x"};
	struct pai_run_result result = {.out = NULL};
	int r;

	(void)snprintf(k->id, sizeof(k->id), "%s", pai_env_identity(e)->sandbox_id);
	k->calls++;
	if (k->reset_first) {
		cr_assert_eq(pai_session_reset(k->session, &call, err), 0);
	}
	if (k->calls <= k->lose) {
		fake_vanish(&w.fake, k->id);
	}
	r = pai_sandbox_run(pai_env_sandbox(e), &input, &call, &result, err);
	pai_run_result_fini(&result);
	return r;
}

static enum pai_errcode use(struct pai_session *s, struct work *k, bool *environment_reset)
{
	struct pai_use how = {.exclusive = false};
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	int r = pai_session_use(s, &how, work, k, &call, environment_reset, &err);

	cr_assert_eq(r, -err.errnum);
	return err.code;
}

Test(session, a_sandbox_lost_in_mid_call_is_replaced_once_and_told)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct work k = {.lose = 1};
	bool is_reset = false;

	cr_assert_eq(use(s, &k, &is_reset), PAI_OK);
	cr_assert_eq(k.calls, 2);
	cr_assert_str_eq(k.id, "box-2");
	cr_assert(is_reset);
	cr_assert_eq(w.replaced, 1);
	k = (struct work){.lose = 0};
	cr_assert_eq(use(s, &k, &is_reset), PAI_OK);
	cr_assert_not(is_reset, "told once");
	pai_session_unref(s);
}

Test(session, lost_twice_is_a_failure)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct work k = {.lose = 2};
	bool is_reset = false;

	cr_assert_eq(use(s, &k, &is_reset), PAI_E_NOT_FOUND);
	cr_assert_eq(k.calls, 2);
	pai_session_unref(s);
}

Test(session, lost_between_two_uses_is_told_by_the_next)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct work k = {.lose = 0};
	bool is_reset = false;
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	fake_vanish(&w.fake, "box-1");
	pai_clock_advance_for_test(4 * 60 * 1000);
	cr_assert_eq(use(s, &k, &is_reset), PAI_OK);
	cr_assert_eq(k.calls, 1);
	cr_assert_str_eq(k.id, "box-2");
	cr_assert(is_reset);
	pai_session_unref(s);
}

Test(session, a_replacement_made_by_somebody_else_is_told_by_the_first_use_in_it)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct work k = {.lose = 0};
	bool is_reset = false;
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	fake_vanish(&w.fake, "box-1");
	cr_assert_eq(acquire(w.m, "k", PAI_ACQUIRE_VERIFY, id), PAI_OK);
	cr_assert_str_eq(id, "box-2");
	cr_assert_eq(use(s, &k, &is_reset), PAI_OK);
	cr_assert(is_reset);
	cr_assert_eq(use(s, &k, &is_reset), PAI_OK);
	cr_assert_not(is_reset);
	pai_session_unref(s);
}

static void acquire_meanwhile(struct world *world)
{
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(world->m, "k", 0, id), PAI_OK);
}

Test(session, what_was_read_before_an_attachment_does_not_undo_it)
{
	char id[PAI_ID_MAX + 1];

	w.after_load = acquire_meanwhile;
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_str_eq(id, "box-1");
	cr_assert_eq(w.detached, 0);
	cr_assert_eq(w.attached, 1);
}

Test(session, work_before_a_reset_is_not_retried_after_it)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct work k = {.reset_first = true, .session = s};
	bool is_reset = false;

	cr_assert_eq(use(s, &k, &is_reset), PAI_E_NOT_FOUND);
	cr_assert_eq(k.calls, 1);
	pai_session_unref(s);
}

Test(session, verify_finds_out_that_it_is_gone)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	struct pai_env *e = NULL;

	cr_assert_eq(pai_session_acquire(s, 0, NULL, &call, &e, &err), 0);
	cr_assert_eq(pai_session_verify(s, e, &call, &err), 0);
	fake_vanish(&w.fake, "box-1");
	cr_assert_eq(pai_session_verify(s, e, &call, &err), -ESTALE);
	cr_assert_eq(err.code, PAI_E_NOT_FOUND);
	cr_assert(pai_env_revoked(e));
	cr_assert_null(pai_session_current(s));
	cr_assert_eq(state_of(&w, "k"), PAI_SESSION_LOST);
	pai_env_unref(e);
	pai_session_unref(s);
}

/* --- looking --- */

Test(session, looking_never_makes_and_asks_nothing_about_what_was_never_bound)
{
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(w.store->ops->name(w.store, "k", PAI_ERR_IGNORED()), 0);
	cr_assert_eq(acquire(w.m, "k", PAI_ACQUIRE_LOOK, id), PAI_OK);
	cr_assert_eq(acquire(w.m, "unknown", PAI_ACQUIRE_LOOK, id), PAI_OK);
	cr_assert_str_eq(id, "");
	for (int i = 0; i < FAKE_CALLS; i++) {
		cr_assert_eq(w.fake.calls[i], 0);
	}
}

Test(session, looking_at_a_lost_one_neither_makes_nor_asks_twice)
{
	char id[PAI_ID_MAX + 1];
	int lists;

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	world_stop(&w);
	world_start(&w);
	fake_vanish(&w.fake, "box-1");
	cr_assert_eq(acquire(w.m, "k", PAI_ACQUIRE_LOOK, id), PAI_OK);
	cr_assert_str_eq(id, "");
	cr_assert_eq(state_of(&w, "k"), PAI_SESSION_LOST);
	lists = w.fake.calls[FAKE_LIST];
	cr_assert_eq(acquire(w.m, "k", PAI_ACQUIRE_LOOK, id), PAI_OK);
	cr_assert_eq(w.fake.calls[FAKE_LIST], lists);
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 1);
}

Test(session, looking_at_a_discovered_one_that_is_gone_asks_now_and_then)
{
	struct pai_session *held = handle_of(w.m, "k");
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(w.store->ops->event(
			 w.store, "k", PAI_STORE_LOST, NULL, "discovered", PAI_ERR_IGNORED()),
	    0);
	for (int i = 0; i < 5; i++) {
		cr_assert_eq(acquire(w.m, "k", PAI_ACQUIRE_LOOK, id), PAI_OK);
		cr_assert_str_eq(id, "");
	}
	cr_assert_eq(w.fake.calls[FAKE_LIST], 1);
	pai_clock_advance_for_test(60000);
	cr_assert_eq(acquire(w.m, "k", PAI_ACQUIRE_LOOK, id), PAI_OK);
	cr_assert_eq(w.fake.calls[FAKE_LIST], 2);
	pai_session_unref(held);
}

Test(session, looking_reattaches_after_a_restart_without_renewing)
{
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	world_stop(&w);
	world_start(&w);
	cr_assert_eq(acquire(w.m, "k", PAI_ACQUIRE_LOOK, id), PAI_OK);
	cr_assert_str_eq(id, "box-1");
	cr_assert_eq(w.fake.calls[FAKE_KEEP_ALIVE], 1);
}

/* --- pause --- */

Test(session, a_paused_one_is_resumed_by_use_and_not_by_a_look)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	int connects;
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_eq(pai_session_pause(s, &call, &err), 0, "%s", err.msg);
	cr_assert_eq(state_of(&w, "k"), PAI_SESSION_PAUSED);
	connects = w.fake.calls[FAKE_CONNECT];
	cr_assert_eq(acquire(w.m, "k", PAI_ACQUIRE_LOOK, id), PAI_OK);
	cr_assert_str_eq(id, "");
	cr_assert_eq(w.fake.calls[FAKE_CONNECT], connects);
	cr_assert_eq(pai_session_pause(s, &call, &err), 0, "paused already");
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_str_eq(id, "box-1");
	cr_assert_eq(w.replaced, 0);
	cr_assert_eq(state_of(&w, "k"), PAI_SESSION_LIVE);
	pai_session_unref(s);
}

Test(session, one_paused_behind_our_back_is_seen_and_left_alone)
{
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	world_stop(&w);
	w.fake.boxes[0].state = PAI_SANDBOX_PAUSED;
	world_start(&w);
	cr_assert_eq(acquire(w.m, "k", PAI_ACQUIRE_LOOK, id), PAI_OK);
	cr_assert_str_eq(id, "");
	cr_assert_eq(state_of(&w, "k"), PAI_SESSION_PAUSED);
	cr_assert_eq(w.fake.calls[FAKE_CONNECT], 0);
}

/* --- keeping alive --- */

Test(session, a_use_renews_what_was_renewed_long_ago)
{
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	pai_clock_advance_for_test(3 * 60 * 1000);
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_eq(w.fake.calls[FAKE_KEEP_ALIVE], 2);
}

static void hold_busy(struct pai_session **s, struct pai_env **e, const char *key)
{
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;

	*s = handle_of(w.m, key);
	*e = NULL;
	cr_assert_eq(pai_session_acquire(*s, 0, NULL, &call, e, &err), 0, "%s", err.msg);
	pai_env_busy(*e, 1);
}

static void let_go(struct pai_session *s, struct pai_env *e)
{
	pai_env_busy(e, -1);
	pai_env_unref(e);
	pai_session_unref(s);
}

#define MAKERS 32 /* creations that the manager has under way at a time */
#define CREATIONS (MAKERS + 8)

Test(session, creations_that_hang_hold_up_no_renewal)
{
	struct pai_session *s;
	struct pai_env *e;
	int before;

	world_stop(&w);
	w.options.create_timeout_ms = 10 * 60 * 1000;
	world_start(&w);
	hold_busy(&s, &e, "k");
	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], true);
	for (int i = 0; i < CREATIONS; i++) {
		struct pai_call call = {.deadline_ms = pai_deadline_in(5)};
		struct pai_err err = PAI_ERR_INIT;
		struct pai_env *none = NULL;
		struct pai_session *other;
		char key[16];

		(void)snprintf(key, sizeof(key), "other-%d", i);
		other = handle_of(w.m, key);
		cr_assert_lt(pai_session_acquire(other, 0, NULL, &call, &none, &err), 0);
		pai_session_unref(other);
	}
	cr_assert(fake_wait(&w.fake, FAKE_CREATE, 1 + MAKERS));
	before = fake_count(&w.fake, FAKE_KEEP_ALIVE);
	pai_clock_advance_for_test(3 * 60 * 1000);
	pai_env_busy(e, -1);
	pai_env_busy(e, 1); /* has the keeper look */
	cr_assert(fake_wait(&w.fake, FAKE_KEEP_ALIVE, before + 1));
	fake_set(&w.fake, &w.fake.hold[FAKE_CREATE], false);
	let_go(s, e);
}

Test(session, a_renewal_that_hangs_does_not_hold_up_the_close, .timeout = 10)
{
	struct pai_session *s;
	struct pai_env *e;
	int before;

	hold_busy(&s, &e, "k");
	fake_set(&w.fake, &w.fake.hold[FAKE_KEEP_ALIVE], true);
	before = fake_count(&w.fake, FAKE_KEEP_ALIVE);
	pai_clock_advance_for_test(3 * 60 * 1000);
	pai_env_busy(e, -1);
	pai_env_busy(e, 1); /* has the keeper look */
	cr_assert(fake_wait(&w.fake, FAKE_KEEP_ALIVE, before + 1));
	/* It would go on for half a minute. */
	pai_sessions_close(PAI_TAKE(w.m), pai_deadline_in(20000));
	let_go(s, e);
}

Test(session, a_busy_environment_is_renewed_in_the_background)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	struct pai_env *e = NULL;

	cr_assert_eq(pai_session_acquire(s, 0, NULL, &call, &e, &err), 0);
	pai_clock_advance_for_test(3 * 60 * 1000);
	pai_env_busy(e, 1);
	cr_assert(fake_wait(&w.fake, FAKE_KEEP_ALIVE, 2));
	pai_env_busy(e, -1);
	pai_env_unref(e);
	pai_session_unref(s);
}
