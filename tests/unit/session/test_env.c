/* The parts of an environment: its line, its revocation, its end. */
#include <criterion/criterion.h>
#include <errno.h>

#include "tests/unit/session/stand_in.h"
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
TestSuite(env, .init = up, .fini = down, .timeout = 30);

static struct pai_env *env_for(const char *key)
{
	struct pai_session *s = handle_of(w.m, key);
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	struct pai_env *e = NULL;

	cr_assert_eq(pai_session_acquire(s, 0, NULL, &call, &e, &err), 0, "%s", err.msg);
	pai_session_unref(s);
	return e;
}

static int open_line(struct pai_env *e, struct pai_exec_line **line)
{
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;

	return pai_env_exec(e, &call, line, &err);
}

Test(env, the_line_is_opened_on_first_use_and_shared)
{
	struct pai_env *e = env_for("k");
	struct pai_exec_line *a = NULL, *b = NULL;

	cr_assert_eq(stand_in_lines, 0);
	cr_assert_eq(open_line(e, &a), 0);
	cr_assert_eq(open_line(e, &b), 0);
	cr_assert_eq(a, b);
	cr_assert_eq(stand_in_lines, 1);
	pai_env_unref(e);
}

Test(env, a_dead_line_is_replaced_and_stays_for_who_has_it)
{
	struct pai_env *e = env_for("k");
	struct pai_exec_line *a = NULL, *b = NULL;

	cr_assert_eq(open_line(e, &a), 0);
	atomic_store(&stand_in_lines_die, true);
	cr_assert_eq(open_line(e, &b), 0);
	cr_assert_neq(a, b);
	cr_assert_eq(stand_in_lines_open, 2);
	pai_env_unref(e);
}

Test(env, a_loss_revokes_the_line_and_refuses_another)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct pai_env *e = env_for("k");
	struct pai_exec_line *line = NULL;

	cr_assert_eq(open_line(e, &line), 0);
	pai_session_lost(s, e, "test");
	cr_assert_eq(stand_in_lines_ended, 1);
	cr_assert_eq(e ? pai_env_ws(e)->gone : 0, 1);
	cr_assert_eq(open_line(e, &line), -ESTALE);
	cr_assert_eq(stand_in_lines, 1);
	pai_env_unref(e);
	pai_session_unref(s);
}

Test(env, an_older_environments_loss_is_not_the_new_ones)
{
	struct pai_session *s = handle_of(w.m, "k");
	struct pai_env *old = env_for("k"), *e;

	pai_session_lost(s, old, "test");
	fake_vanish(&w.fake, "box-1");
	e = env_for("k");
	pai_session_lost(s, old, "late");
	cr_assert_not(pai_env_revoked(e));
	cr_assert_eq(state_of(&w, "k"), PAI_SESSION_LIVE);
	pai_env_unref(old);
	pai_env_unref(e);
	pai_session_unref(s);
}

Test(env, a_server_that_says_gone_is_replaced_at_the_next_use)
{
	struct pai_env *old = env_for("k"), *e;

	fake_vanish(&w.fake, "box-1");
	__atomic_store_n(&pai_env_ws(old)->gone, 1, __ATOMIC_RELEASE);
	e = env_for("k");
	cr_assert_str_eq(pai_env_identity(e)->sandbox_id, "box-2");
	cr_assert(pai_env_revoked(old));
	pai_env_unref(old);
	pai_env_unref(e);
}

Test(env, nothing_is_left_after_the_last_reference)
{
	struct pai_env *e = env_for("k");
	struct pai_exec_line *line = NULL;

	cr_assert_eq(open_line(e, &line), 0);
	world_stop(&w);
	cr_assert_eq(stand_in_lines_open, 1, "held");
	pai_env_unref(e);
	cr_assert_eq(stand_in_lines_open, 0);
	cr_assert_eq(stand_in_servers, 0);
	cr_assert_eq(w.freed, 1);
	cr_assert_eq(w.fake.calls[FAKE_CLOSE], 1);
	world_start(&w);
}
