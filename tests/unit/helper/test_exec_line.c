#include "providers/helper/exec_line.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/provider.h"
#include "tests/unit/helper/fixture.h"

static struct fixture fix;
static struct pai_exec_line *line;

static void set_up(void)
{
	fixture_start(&fix);
	line = fixture_line(&fix, "daemon", 1);
}

static void tear_down(void)
{
	pai_exec_line_unref(line);
	fixture_stop(&fix);
}

TestSuite(exec_line, .init = set_up, .fini = tear_down, .timeout = 60);

Test(exec_line, a_command_is_acknowledged_speaks_and_ends)
{
	struct seen s;

	seen_sh(&s, line, 0, "echo hello; echo oops >&2; exit 3");
	seen_wait_last(&s);
	cr_assert(s.started);
	cr_assert_eq(s.last, EXITED);
	cr_assert_eq(s.exit.kind, PAI_EXIT_CODE);
	cr_assert_eq(s.exit.value, 3);
	cr_assert_str_eq(s.out[0], "hello\n");
	cr_assert_str_eq(s.out[1], "oops\n");
	cr_assert(s.exit.stdout_bytes == 6 && s.exit.stderr_bytes == 5 && !s.exit.cut);
}

Test(exec_line, every_row_of_the_exit_table)
{
	static const struct {
		const char *script;
		enum pai_exec_exit_kind kind;
		int value;
	} rows[] = {
	    {"true", PAI_EXIT_CODE, 0}, {"exit 255", PAI_EXIT_CODE, 255},
	    {"exit 124", PAI_EXIT_CODE, 124}, {"exit 125", PAI_EXIT_CODE, 125},
	    {"kill -9 $$", PAI_EXIT_SIGNAL, 9}, {"kill -TERM $$", PAI_EXIT_SIGNAL, 15},
	    {"/nowhere/at-all", PAI_EXIT_CODE, 127}, /* the shell's own answer */
	};

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		struct seen s;

		seen_sh(&s, line, 0, rows[i].script);
		seen_wait_last(&s);
		cr_assert_eq(s.last, EXITED, "%s", rows[i].script);
		cr_assert_eq(s.exit.kind, rows[i].kind, "%s", rows[i].script);
		cr_assert_eq(s.exit.value, rows[i].value, "%s", rows[i].script);
	}
}

static void start_fails(
    const char *program, const char *cwd, enum pai_exec_fail_phase phase, int errnum)
{
	char *name = strdup(program);
	char *dir = strdup(cwd);
	char *argv[] = {name, NULL};
	char *env[] = {NULL};
	struct pai_exec_start start = {.argv = argv, .cwd = dir, .env = env};
	struct seen s = {.grants = true};

	seen_start_with(&s, line, &start);
	seen_wait_last(&s);
	cr_assert_not(s.started);
	cr_assert_eq(s.last, FAILED, "%s in %s", program, cwd);
	cr_assert_eq(s.phase, phase, "%s in %s", program, cwd);
	cr_assert_eq(s.err.errnum, errnum, "%s in %s: %s", program, cwd, s.err.msg);
	free(name);
	free(dir);
}

Test(exec_line, a_start_that_fails_says_where)
{
	start_fails("no-such-program-here", "/", PAI_FAIL_NOT_FOUND, ENOENT);
	start_fails("/no/such/program", "/", PAI_FAIL_NOT_FOUND, ENOENT);
	start_fails("", "/", PAI_FAIL_NOT_FOUND, ENOENT);
	start_fails("/etc/passwd", "/", PAI_FAIL_EXEC, EACCES);
	start_fails("/etc", "/", PAI_FAIL_EXEC, EACCES);
	start_fails("true", "/no/such/dir", PAI_FAIL_CWD, ENOENT);
	start_fails("true", "/etc/passwd", PAI_FAIL_CWD, ENOTDIR);
}

Test(exec_line, argv_env_and_cwd_arrive_as_they_were_given)
{
	char sh[] = "sh";
	char dash_c[] = "-c";
	char script[] = "printf '%s|' \"$0\" \"$1\" \"$PWD\" \"$A\" \"$SANDBOX\"; env | wc -l";
	char zero[] = "a b\nc";
	char one[] = "";
	char env_a[] = "A=x=y";
	char env_over[] = "SANDBOX=no";
	char cwd[] = "/usr";
	char *argv[] = {sh, dash_c, script, zero, one, NULL};
	char *env[] = {env_a, env_over, NULL};
	struct pai_exec_start start = {.argv = argv, .cwd = cwd, .env = env};
	struct seen s = {.grants = true};

	seen_start_with(&s, line, &start);
	seen_wait_last(&s);
	/* PATH, SANDBOX, A, and the shell's own PWD. */
	cr_assert_str_eq(s.out[0], "a b\nc||/usr|x=y|no|4\n");
}

Test(exec_line, without_namespaces_a_cwd_in_the_workspace_is_mapped)
{
	char pwd[] = "pwd";
	char cwd[] = "/workspace";
	char missing[] = "/workspace/none";
	char *argv[] = {pwd, NULL};
	struct pai_exec_start start = {.argv = argv, .cwd = cwd};
	struct seen s = {.grants = true};

	seen_start_with(&s, line, &start);
	seen_wait_last(&s);
	cr_assert_eq(strncmp(s.out[0], fix.dir, strlen(fix.dir)), 0, "%s", s.out[0]);
	start.cwd = missing;
	s = (struct seen){.grants = true};
	seen_start_with(&s, line, &start);
	seen_wait_last(&s);
	cr_assert(s.last == FAILED && s.phase == PAI_FAIL_CWD);
}

Test(exec_line, stdin_streams_and_ends)
{
	struct seen s;

	seen_sh(&s, line, PAI_START_STDIN, "cat; echo end");
	seen_wait_started(&s);
	cr_assert_eq(s.stdin_credit, PAI_EXEC_WINDOW);
	cr_assert_eq(pai_exec_stdin(s.exec, "abc", 3), 0);
	seen_wait_output(&s, 1, 3);
	cr_assert_eq(s.last, NOTHING);
	pai_exec_stdin_eof(s.exec);
	seen_wait_last(&s);
	cr_assert_str_eq(s.out[0], "abcend\n");
	cr_assert_eq(s.exit.stdin_bytes, 3);
	cr_assert_eq(s.stdin_taken, 3);
}

Test(exec_line, who_stays_behind_is_heard_to_the_end_where_it_is_asked_for)
{
	struct seen s;

	seen_sh(&s, line, PAI_START_LINGER,
	    "(sleep 0.5; echo later; sleep 0.5; echo last) & echo now; exit 7");
	seen_wait_left(&s);
	cr_assert(s.has_left && s.last == NOTHING);
	cr_assert(s.left.kind == PAI_EXIT_CODE && s.left.value == 7 && s.left.stdout_bytes == 4);
	seen_wait_last(&s);
	cr_assert_str_eq(s.out[0], "now\nlater\nlast\n");
	cr_assert(s.exit.kind == PAI_EXIT_CODE && s.exit.value == 7 && !s.exit.cut);
	/* Nobody stays behind who could be heard, when the command ends: no LEFT. */
	seen_sh(&s, line, PAI_START_LINGER,
	    "d=$(mktemp -d); mkfifo $d/f; (exec >/dev/null 2>&1; echo >$d/f; exec sleep 1000) & "
	    "read x <$d/f; rm -r $d; echo now");
	seen_wait_last(&s);
	cr_assert(s.last == EXITED && !s.has_left);
}

Test(exec_line, who_stays_behind_goes_with_a_cancel)
{
	struct seen s;
	long pid;

	seen_sh(&s, line, PAI_START_LINGER, "sleep 1000 & echo $!");
	seen_wait_left(&s);
	seen_wait_output(&s, 1, 1);
	pid = strtol(s.out[0], NULL, 10);
	cr_assert_gt(pid, 1);
	cr_assert_eq(kill((pid_t)pid, 0), 0);
	pai_exec_cancel(s.exec);
	seen_wait_last(&s);
	cr_assert(s.exit.kind == PAI_EXIT_CODE && s.exit.cut);
	cr_assert(process_ends(pid));
}

Test(exec_line, stdin_past_the_credit_is_refused_and_unread_stdin_blocks_nobody)
{
	static char big[PAI_EXEC_WINDOW + 1];
	struct seen s;

	seen_sh(&s, line, PAI_START_STDIN, "exec sleep 1000");
	seen_wait_started(&s);
	cr_assert_eq(pai_exec_stdin(s.exec, big, sizeof(big)), -EINVAL);
	cr_assert_eq(pai_exec_stdin(s.exec, big, sizeof(big) - 1), 0);
	cr_assert_eq(pai_exec_stdin(s.exec, big, PAI_EXEC_WINDOW / 2), -EINVAL);
	pai_exec_cancel(s.exec);
	seen_wait_last(&s);
	cr_assert_eq(s.exit.kind, PAI_EXIT_CANCELLED);
	cr_assert_leq(s.exit.stdin_bytes, PAI_EXEC_WINDOW / 2);
}

/* What is told at the exit: how much of the 9 bytes the command has read. */
static uint64_t taken_of_nine(const char *script, bool ends)
{
	struct seen s;

	seen_sh(&s, line, PAI_START_STDIN, script);
	seen_wait_started(&s);
	cr_assert_eq(pai_exec_stdin(s.exec, "one\ntwo\n\n", 9), 0);
	if (ends) {
		pai_exec_stdin_eof(s.exec);
	}
	seen_wait_last(&s);
	cr_assert_eq(s.exit.kind, PAI_EXIT_CODE);
	return s.exit.stdin_bytes;
}

Test(exec_line, what_was_left_of_stdin_counts_as_not_taken)
{
	for (int ends = 0; ends < 2; ends++) {
		cr_assert_eq(taken_of_nine("sleep 0.1", ends), 0);
		cr_assert_eq(taken_of_nine("read x; sleep 0.1", ends), 4);
		cr_assert_eq(taken_of_nine("head -n 3 >/dev/null", ends), 9);
		/* Somebody else may read it yet. */
		cr_assert_eq(
		    taken_of_nine("read x; exec 3<&0; sleep 1 <&3 >/dev/null 2>&1 &", ends), 9);
	}
	cr_assert_eq(taken_of_nine("read x; exec 0<&-; sleep 0.2", true), 4);
}

Test(exec_line, without_stdin_it_reads_the_end_at_once)
{
	struct seen s;

	seen_sh(&s, line, 0, "cat; readlink /proc/self/fd/0");
	seen_wait_last(&s);
	cr_assert_str_eq(s.out[0], "/dev/null\n");
}

Test(exec_line, merged_streams_keep_their_order)
{
	struct seen s;

	seen_sh(&s, line, PAI_START_MERGED, "echo 1; echo 2 >&2; echo 3");
	seen_wait_last(&s);
	cr_assert_neq(s.last, LOST, "%s", s.err.msg);
	cr_assert_str_eq(s.out[0], "1\n2\n3\n");
	cr_assert_eq(s.out_len[1], 0);
}

/* The script prints the pid of what must die before it waits. */
static void dies(const char *script, void (*end)(struct seen *s), enum pai_exec_exit_kind kind)
{
	struct seen s;
	long pid;

	seen_sh(&s, line, 0, script);
	seen_wait_output(&s, 1, 2);
	pid = strtol(s.out[0], NULL, 10);
	cr_assert_gt(pid, 1, "%s", s.out[0]);
	end(&s);
	seen_wait_last(&s);
	cr_assert_eq(s.last, EXITED);
	cr_assert_eq(s.exit.kind, kind, "%d", (int)s.exit.kind);
	cr_assert(process_ends(pid), "%s", script);
}

static void end_by_cancel(struct seen *s)
{
	pai_exec_cancel(s->exec);
}

Test(exec_line, cancel_kills_the_whole_tree_before_the_exit_is_said)
{
	dies("sleep 1000 & echo $!; wait", end_by_cancel, PAI_EXIT_CANCELLED);
	dies("setsid sh -c 'echo $$; exec sleep 1000' & wait", end_by_cancel, PAI_EXIT_CANCELLED);
	/* Left the group and lost its parent. */
	dies("(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 1000", end_by_cancel,
	    PAI_EXIT_CANCELLED);
	dies("trap '' TERM INT HUP; echo $$; while :; do sleep 1; done", end_by_cancel,
	    PAI_EXIT_CANCELLED);
}

Test(exec_line, a_timeout_kills_the_grandchildren)
{
	char sh[] = "sh";
	char dash_c[] = "-c";
	char script[] = "sh -c 'echo $$; sleep 1000; :' & wait";
	char cwd[] = "/";
	char *argv[] = {sh, dash_c, script, NULL};
	char *env[] = {NULL};
	struct pai_exec_start start = {.argv = argv, .cwd = cwd, .env = env, .timeout_ms = 200};
	struct seen s = {.grants = true};

	seen_start_with(&s, line, &start);
	seen_wait_last(&s);
	cr_assert_eq(s.exit.kind, PAI_EXIT_TIMEOUT);
	cr_assert(process_ends(strtol(s.out[0], NULL, 10)));
}

Test(exec_line, output_stops_exactly_at_its_limit)
{
	char sh[] = "sh";
	char dash_c[] = "-c";
	char script[] = "yes; :";
	char cwd[] = "/";
	char *argv[] = {sh, dash_c, script, NULL};
	char *env[] = {NULL};
	struct pai_exec_start start = {
	    .argv = argv, .cwd = cwd, .env = env, .max_output_bytes = 100001};
	struct seen s = {.grants = true};

	seen_start_with(&s, line, &start);
	seen_wait_last(&s);
	cr_assert_eq(s.exit.kind, PAI_EXIT_OUTPUT_LIMIT);
	cr_assert_eq(s.out_len[0], 100001);
	(void)snprintf(script, sizeof(script), "%s", "echo 1");
	start.max_output_bytes = 2;
	s = (struct seen){.grants = true};
	seen_start_with(&s, line, &start);
	seen_wait_last(&s);
	cr_assert_eq(s.exit.kind, PAI_EXIT_CODE, "exactly the limit is within it");
}

Test(exec_line, signals_reach_the_group)
{
	struct seen s;

	seen_sh(&s, line, 0, "trap 'echo got; exit 7' USR1; echo go; while :; do sleep 0.05; done");
	seen_wait_output(&s, 1, 3);
	pai_exec_signal(s.exec, SIGUSR1);
	seen_wait_last(&s);
	cr_assert_str_eq(s.out[0], "go\ngot\n");
	cr_assert_eq(s.exit.value, 7);
	seen_sh(&s, line, 0, "echo go; sleep 1000 | sleep 1000");
	seen_wait_output(&s, 1, 3);
	pai_exec_signal(s.exec, SIGINT);
	seen_wait_last(&s);
	cr_assert(s.exit.kind == PAI_EXIT_SIGNAL && s.exit.value == SIGINT);
}

Test(exec_line, a_terminal_has_a_size_and_an_end)
{
	char sh[] = "sh";
	char dash_c[] = "-c";
	char script[] = "trap 'stty size; exit 0' WINCH; stty size; tty <&2 | cut -c1-9; read x; "
			"echo \"<$x>\"; while :; do sleep 0.05; done";
	char cwd[] = "/";
	char *argv[] = {sh, dash_c, script, NULL};
	char *env[] = {NULL};
	struct pai_exec_start start = {.flags = PAI_START_PTY | PAI_START_STDIN,
	    .argv = argv,
	    .cwd = cwd,
	    .env = env,
	    .rows = 24,
	    .columns = 80};
	struct seen s = {.grants = true};

	seen_start_with(&s, line, &start);
	seen_wait_output(&s, 1, 18);
	cr_assert_eq(pai_exec_stdin(s.exec, "hi\n", 3), 0);
	seen_wait_output(&s, 1, strlen("24 80\r\n/dev/pts/\r\nhi\r\n<hi>\r\n"));
	pai_exec_resize(s.exec, 50, 132);
	seen_wait_last(&s);
	cr_assert_eq(s.last, EXITED);
	cr_assert_str_eq(s.out[0], "24 80\r\n/dev/pts/\r\nhi\r\n<hi>\r\n50 132\r\n");
}

Test(exec_line, the_end_of_stdin_is_the_end_of_a_terminal)
{
	struct seen s;

	seen_sh(&s, line, PAI_START_PTY | PAI_START_STDIN, "cat; echo over");
	seen_wait_started(&s);
	pai_exec_stdin_eof(s.exec);
	seen_wait_last(&s);
	cr_assert_str_eq(s.out[0], "over\r\n");
}

Test(exec_line, a_background_child_is_let_live_and_the_output_is_cut)
{
	struct seen s;
	long pid;

	seen_sh(&s, line, 0, "sh -c 'sleep 1; while echo alive; do sleep 0.05; done' & echo $!");
	seen_wait_last(&s);
	pid = strtol(s.out[0], NULL, 10);
	cr_assert(s.last == EXITED && s.exit.value == 0 && s.exit.cut);
	cr_assert_eq(kill((pid_t)pid, 0), 0, "the background child lives");
	/* What it writes later is thrown away: it isn't killed by SIGPIPE. Two seconds on. */
	cr_assert_not(process_ends(pid));
	(void)kill((pid_t)pid, SIGKILL);
}

Test(exec_line, output_written_before_the_exit_is_never_cut)
{
	struct seen s;

	/* 900,000 bytes lie in the pipe and the window when it ends; a child holds the pipe. */
	seen_sh(&s, line, 0, "sleep 30 & head -c 900000 /dev/zero; exit 0");
	seen_wait_last(&s);
	cr_assert_eq(s.out_len[0], 900000);
	cr_assert(s.exit.cut);
}

Test(exec_line, a_blocked_consumer_stalls_its_own_command_alone)
{
	struct seen blocked;
	struct seen other;

	seen_sh(&blocked, line, 0, ":");
	seen_wait_last(&blocked);
	{
		char yes[] = "yes";
		char cwd[] = "/";
		char *argv[] = {yes, NULL};
		char *env[] = {NULL};
		struct pai_exec_start start = {.argv = argv, .cwd = cwd, .env = env};

		blocked = (struct seen){.grants = false};
		seen_start_with(&blocked, line, &start);
	}
	seen_wait_output(&blocked, 1, PAI_EXEC_WINDOW);
	seen_sh(&other, line, 0, "head -c 8000000 /dev/zero");
	seen_wait_last(&other);
	cr_assert_eq(other.out_len[0], 8000000);
	cr_assert_eq(blocked.out_len[0], PAI_EXEC_WINDOW, "not a byte past the window");
	pai_exec_cancel(blocked.exec);
	seen_wait_last(&blocked);
	cr_assert_eq(blocked.exit.kind, PAI_EXIT_CANCELLED);
}

Test(exec_line, the_end_of_the_line_kills_what_is_not_detached)
{
	struct pai_exec_line *second = fixture_line(&fix, "other", 1);
	struct seen attached;
	struct seen detached;
	long a;
	long d;

	seen_sh(&attached, second, 0, "(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 1000");
	seen_sh(&detached, second, PAI_START_DETACH, "echo $$; exec sleep 1000");
	seen_wait_output(&attached, 1, 2);
	seen_wait_output(&detached, 1, 2);
	a = strtol(attached.out[0], NULL, 10);
	d = strtol(detached.out[0], NULL, 10);
	pai_exec_line_unref(second);
	seen_wait_last(&attached);
	seen_wait_last(&detached);
	cr_assert_eq(attached.last, LOST);
	cr_assert_eq(attached.err.code, PAI_E_UNAVAILABLE);
	cr_assert_not(attached.err.retryable);
	cr_assert(process_ends(a));
	cr_assert_eq(kill((pid_t)d, 0), 0);
	(void)kill((pid_t)d, SIGKILL);
}

Test(exec_line, a_higher_epoch_fences_the_older_line_first)
{
	struct pai_exec_line *newer;
	struct pai_err err = PAI_ERR_INIT;
	const struct pai_call call = {.deadline_ms = pai_deadline_in(5000)};
	struct pai_exec_line *older = NULL;
	struct seen s;
	long pid;

	seen_sh(&s, line, 0, "echo $$; exec sleep 1000");
	seen_wait_output(&s, 1, 2);
	pid = strtol(s.out[0], NULL, 10);
	newer = fixture_line(&fix, "daemon", 2);
	/* READY was the acknowledgement: it is dead already. */
	cr_assert(kill((pid_t)pid, 0) < 0 && errno == ESRCH);
	seen_wait_last(&s);
	cr_assert_eq(s.last, LOST);
	cr_assert_eq(pai_exec_line_new(fixture_connect(&fix), "daemon", 1, &call, &older, &err),
	    -err.errnum);
	cr_assert_eq(err.code, PAI_E_UNAVAILABLE, "%s", err.msg);
	seen_sh(&s, newer, 0, "exit 4");
	seen_wait_last(&s);
	cr_assert_eq(s.exit.value, 4);
	pai_exec_line_unref(newer);
}

Test(exec_line, a_supervisor_that_has_stopped_is_given_up_and_the_next_line_fences)
{
	struct pai_exec_line *newer;
	struct seen s;
	struct seen started;

	pai_exec_line_expect(line, 100);
	seen_sh(&started, line, 0, "sleep 1000");
	seen_wait_started(&started);
	cr_assert_eq(kill(fix.supervisor, SIGSTOP), 0);
	seen_sh(&s, line, 0, "exit 3");
	seen_wait_last(&s);
	seen_wait_last(&started);
	cr_assert(s.last == LOST && s.err.code == PAI_E_UNAVAILABLE && !s.started);
	cr_assert(started.last == LOST && started.err.code == PAI_E_UNAVAILABLE);
	cr_assert_not(pai_exec_line_alive(line));
	cr_assert_eq(kill(fix.supervisor, SIGCONT), 0);
	newer = fixture_line(&fix, "daemon", 2);
	cr_assert(kill((pid_t)started.pid, 0) < 0 && errno == ESRCH);
	seen_sh(&s, newer, 0, "exit 4");
	seen_wait_last(&s);
	cr_assert_eq(s.exit.value, 4);
	pai_exec_line_unref(newer);
}

/* Silence is what counts, not the age of a command. */
Test(exec_line, a_command_that_says_nothing_lives_on)
{
	struct seen s;

	pai_exec_line_expect(line, 100);
	seen_sh(&s, line, 0, "sleep 0.6; exit 5");
	seen_wait_last(&s);
	cr_assert(s.last == EXITED && s.exit.value == 5);
}

Test(exec_line, revoked_means_not_found)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_exec *x = NULL;
	struct seen s;
	char *argv[] = {NULL};
	struct pai_exec_start start = {.argv = argv};

	seen_sh(&s, line, 0, "sleep 1000");
	seen_wait_started(&s);
	pai_exec_line_revoke(line);
	seen_wait_last(&s);
	cr_assert(s.last == LOST && s.err.code == PAI_E_NOT_FOUND);
	cr_assert_not(pai_exec_line_alive(line));
	cr_assert_lt(pai_exec_start(line, &start, NULL, NULL, &x, &err), 0);
	cr_assert_eq(err.code, PAI_E_NOT_FOUND);
}

Test(exec_line, the_supervisor_ends_with_its_sandbox_and_kills_what_is_in_it)
{
	struct seen s;
	struct seen left;
	long pid;

	seen_sh(&left, line, 0, "setsid sleep 1000 >/dev/null 2>&1 & echo $!");
	seen_wait_last(&left);
	pid = strtol(left.out[0], NULL, 10);
	seen_sh(&s, line, 0, "sleep 1000");
	seen_wait_started(&s);
	cr_assert_eq(unlink(fix.nonce), 0);
	seen_wait_last(&s);
	cr_assert_eq(s.last, LOST);
	cr_assert_eq(fixture_wait(&fix), 0);
	cr_assert(process_ends(pid));
}

Test(exec_line, with_no_line_and_no_process_the_supervisor_ends)
{
	pai_exec_line_unref(line);
	cr_assert_eq(fixture_wait(&fix), 0);
	/* tear_down needs a line to let go. */
	fixture_stop(&fix);
	set_up();
}

Test(exec_line, a_daemon_that_breaks_the_protocol_loses_its_line_alone)
{
	static const char garbage[] = "GET / HTTP/1.1\r\n\r\n";
	int fd = fixture_connect(&fix);
	struct seen s;
	char byte;

	cr_assert_gt(send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL), 0);
	cr_assert_eq(fcntl(fd, F_SETFL, 0), 0);
	cr_assert_eq(recv(fd, &byte, 1, 0), 0, "closed without a word");
	(void)close(fd);
	seen_sh(&s, line, 0, "exit 5");
	seen_wait_last(&s);
	cr_assert_eq(s.exit.value, 5);
}

/* --- run() --- */

struct heard {
	size_t bytes[2];
};

static void on_heard(void *arg, enum pai_stream stream, const char *data, size_t len)
{
	struct heard *h = arg;

	(void)data;
	h->bytes[stream - 1] += len;
}

static int run(struct pai_run_input *input, uint64_t within_ms, struct pai_run_result *result,
    struct pai_err *err)
{
	const struct pai_call call = {.deadline_ms = pai_deadline_in(within_ms)};

	*err = (struct pai_err)PAI_ERR_INIT;
	*result = (struct pai_run_result){0};
	input->cwd = input->cwd ? input->cwd : "/";
	return pai_exec_run(line, input, &call, result, err);
}

Test(exec_line, run_captures_and_streams_the_same_bytes)
{
	struct heard h = {0};
	struct pai_run_input input = {.command = "printf 'a\\0b'; echo e >&2; exit 9",
	    .on_output = on_heard,
	    .on_output_arg = &h};
	pai_auto_run_result struct pai_run_result result = {0};
	struct pai_err err;

	cr_assert_eq(run(&input, 10000, &result, &err), 0, "%s", err.msg);
	cr_assert(result.exit_code == 9 && result.out_len == 3 && result.err_len == 2);
	cr_assert_arr_eq(result.out, "a\0b", 4);
	cr_assert(h.bytes[0] == 3 && h.bytes[1] == 2);
}

Test(exec_line, run_names_each_way_to_fail)
{
	static const struct {
		struct pai_run_input input;
		uint64_t within_ms;
		enum pai_errcode code;
	} rows[] = {
	    {{.command = "sleep 1000", .timeout_ms = 100}, 10000, PAI_E_COMMAND_TIMEOUT},
	    {{.command = "yes", .max_output_bytes = 1000}, 10000, PAI_E_OUTPUT_LIMIT},
	    {{.command = "sleep 1000"}, 100, PAI_E_TIMEOUT},
	    {{.command = "true", .cwd = "/no/such"}, 10000, PAI_E_INPUT},
	};

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		struct pai_run_input input = rows[i].input;
		struct pai_run_result result;
		struct pai_err err;

		cr_assert_lt(run(&input, rows[i].within_ms, &result, &err), 0);
		cr_assert_eq(err.code, rows[i].code, "row %zu: %s", i, err.msg);
	}
}

Test(exec_line, run_is_cancelled_by_its_token)
{
	pai_auto_cancel struct pai_cancel *cancel = pai_cancel_new();
	const struct pai_call call = {.deadline_ms = pai_deadline_in(20000), .cancel = cancel};
	struct pai_run_input input = {.command = "sleep 1000", .cwd = "/"};
	struct pai_run_result result;
	struct pai_err err = PAI_ERR_INIT;

	pai_cancel_fire(cancel);
	cr_assert_lt(pai_exec_run(line, &input, &call, &result, &err), 0);
	cr_assert_eq(err.code, PAI_E_CANCELLED);
}

Test(exec_line, run_without_capture_passes_any_amount)
{
	struct heard h = {0};
	struct pai_run_input input = {.command = "head -c 50000000 /dev/zero",
	    .no_capture = true,
	    .max_output_bytes = PAI_OUTPUT_UNLIMITED,
	    .on_output = on_heard,
	    .on_output_arg = &h};
	pai_auto_run_result struct pai_run_result result = {0};
	struct pai_err err;

	cr_assert_eq(run(&input, 30000, &result, &err), 0, "%s", err.msg);
	cr_assert(h.bytes[0] == 50000000 && result.out_len == 0);
}
