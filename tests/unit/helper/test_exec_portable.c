/* Over memory's run(): what the portable line promises, and what it refuses. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/base/pool.h"
#include "providers/provider.h"
#include "tests/unit/helper/fixture.h"

static struct pai_provider *provider;
static struct pai_sandbox *sandbox;
static struct pai_pool *pool;
static struct pai_exec_line *line;

static void set_up(void)
{
	struct pai_create_input input = {.network = {.access = PAI_NETWORK_NONE}};
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_provider_open("memory", NULL, &provider, &err), 0, "%s", err.msg);
	cr_assert_eq(pai_provider_create(provider, &input, PAI_CALL_UNBOUNDED, &sandbox, &err), 0);
	pool = pai_pool_new("test", 4, 16);
	cr_assert_eq(pai_exec_line_portable_new(sandbox, pool, NULL, NULL, &line, &err), 0);
}

static void tear_down(void)
{
	pai_exec_line_unref(line);
	pai_pool_free(pool);
	pai_sandbox_free(sandbox);
	pai_provider_free(provider);
}

TestSuite(exec_portable, .init = set_up, .fini = tear_down, .timeout = 30);

Test(exec_portable, a_command_starts_speaks_and_ends)
{
	struct seen s;

	seen_sh(&s, line, 0, "cd /workspace; echo hello; echo oops >&2; exit 3");
	seen_wait_last(&s);
	cr_assert(s.started && s.last == EXITED && s.exit.kind == PAI_EXIT_CODE);
	cr_assert_eq(s.exit.value, 3);
	cr_assert_str_eq(s.out[0], "hello\n");
	cr_assert_str_eq(s.out[1], "oops\n");
	cr_assert(s.exit.stdout_bytes == 6 && s.exit.stderr_bytes == 5);
}

Test(exec_portable, argv_is_quoted)
{
	char echo[] = "echo";
	char odd[] = "a 'b' \"$X\" `c` \\ *\n";
	char *argv[] = {echo, odd, NULL};
	struct seen s;

	seen_start(&s, line, 0, argv);
	seen_wait_last(&s);
	cr_assert_str_eq(s.out[0], "a 'b' \"$X\" `c` \\ *\n\n");
}

Test(exec_portable, stdin_is_spooled_to_its_end_and_leaves_nothing)
{
	pai_auto_dir_list struct pai_dir_list list = {0};
	struct pai_err err = PAI_ERR_INIT;
	struct seen s;
	bool found;

	seen_sh(&s, line, PAI_START_STDIN, "cat");
	seen_wait_started(&s);
	cr_assert_geq(s.stdin_credit, PAI_EXEC_WINDOW);
	cr_assert_eq(pai_exec_stdin(s.exec, "abc\n", 4), 0);
	cr_assert_eq(s.last, NOTHING);
	pai_exec_stdin_eof(s.exec);
	seen_wait_last(&s);
	cr_assert_str_eq(s.out[0], "abc\n");
	cr_assert(s.stdin_taken == 4 && s.exit.stdin_bytes == 4);
	cr_assert_eq(pai_sandbox_list_dir(
			 sandbox, "/workspace/.pai", PAI_CALL_UNBOUNDED, &found, &list, &err),
	    0);
	cr_assert(found && list.count == 0);
}

Test(exec_portable, more_stdin_than_can_be_spooled_is_said)
{
	static char chunk[1 << 20];
	struct seen s;

	seen_sh(&s, line, PAI_START_STDIN, "cat");
	seen_wait_started(&s);
	for (int i = 0; i < 64; i++) {
		cr_assert_eq(pai_exec_stdin(s.exec, chunk, sizeof(chunk)), 0);
	}
	seen_wait_last(&s);
	cr_assert(s.last == LOST && s.err.code == PAI_E_INPUT);
}

Test(exec_portable, a_command_that_waits_for_stdin_can_be_cancelled)
{
	struct seen s;

	seen_sh(&s, line, PAI_START_STDIN, "cat");
	seen_wait_started(&s);
	pai_exec_cancel(s.exec);
	seen_wait_last(&s);
	cr_assert(s.last == EXITED && s.exit.kind == PAI_EXIT_CANCELLED);
}

Test(exec_portable, signals_that_end_programs_end_it_and_others_are_not_heard)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGKILL};

	for (size_t i = 0; i < PAI_COUNT(ends); i++) {
		struct seen s;

		seen_sh(&s, line, 0, "trap '' USR1 INT TERM HUP QUIT; echo go; sleep 1000");
		seen_wait_output(&s, 1, 3);
		pai_exec_signal(s.exec, SIGUSR1);
		pai_exec_signal(s.exec, ends[i]);
		seen_wait_last(&s);
		cr_assert(s.exit.kind == PAI_EXIT_SIGNAL && s.exit.value == ends[i]);
	}
}

Test(exec_portable, a_terminal_and_detach_are_refused)
{
	static const uint32_t flags[] = {
	    PAI_START_PTY, PAI_START_DETACH, PAI_START_CONNECT | PAI_START_STDIN};
	char echo[] = "echo";
	char cwd[] = "/workspace";
	char *argv[] = {echo, NULL};

	for (size_t i = 0; i < PAI_COUNT(flags); i++) {
		struct pai_exec_start start = {.flags = flags[i], .argv = argv, .cwd = cwd};
		struct pai_err err = PAI_ERR_INIT;
		struct pai_exec *x = NULL;

		cr_assert_lt(pai_exec_start(line, &start, NULL, NULL, &x, &err), 0);
		cr_assert(err.code == PAI_E_UNSUPPORTED && !x);
	}
}

Test(exec_portable, a_missing_cwd_is_a_failed_start)
{
	char echo[] = "echo";
	char cwd[] = "/workspace/none";
	char *argv[] = {echo, NULL};
	struct pai_exec_start start = {.argv = argv, .cwd = cwd};
	struct seen s = {.grants = true};

	seen_start_with(&s, line, &start);
	seen_wait_last(&s);
	cr_assert(s.last == FAILED && s.phase == PAI_FAIL_CWD && !s.started);
}

Test(exec_portable, a_killed_sandbox_is_not_found)
{
	struct pai_err err = PAI_ERR_INIT;
	struct seen s;

	seen_sh(&s, line, 0, "echo go; sleep 1000");
	seen_wait_output(&s, 1, 3);
	cr_assert_eq(pai_sandbox_kill(sandbox, PAI_CALL_UNBOUNDED, &err), 0);
	seen_wait_last(&s);
	cr_assert(s.last == LOST && s.err.code == PAI_E_NOT_FOUND);
}

Test(exec_portable, revoked_means_not_found)
{
	struct seen s;

	seen_sh(&s, line, 0, "echo go; sleep 1000");
	seen_wait_output(&s, 1, 3);
	pai_exec_line_revoke(line);
	seen_wait_last(&s);
	cr_assert(s.last == LOST && s.err.code == PAI_E_NOT_FOUND);
	cr_assert_not(pai_exec_line_alive(line));
}
