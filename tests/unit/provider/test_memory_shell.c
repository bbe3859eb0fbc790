#include <criterion/criterion.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/provider.h"

struct line {
	const char *command;
	const char *out;
	const char *err; /* NULL: whatever */
	int exit_code;
};

static struct pai_provider *provider;
static struct pai_sandbox *sandbox;

static void open_sandbox(void)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_create_input input = {0};

	cr_assert_eq(pai_provider_open("memory", NULL, &provider, &err), 0, "%s", err.msg);
	cr_assert_eq(pai_provider_create(provider, &input, PAI_CALL_UNBOUNDED, &sandbox, &err), 0,
	    "%s", err.msg);
}

static void close_sandbox(void)
{
	pai_sandbox_free(sandbox);
	pai_provider_free(provider);
}

TestSuite(memory_shell, .init = open_sandbox, .fini = close_sandbox, .timeout = 20);

static void expect(const struct line *l)
{
	pai_auto_run_result struct pai_run_result r = {0};
	struct pai_run_input input = {.command = l->command, .timeout_ms = 5000};
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_sandbox_run(sandbox, &input, PAI_CALL_UNBOUNDED, &r, &err), 0, "%s: %s",
	    l->command, err.msg);
	cr_expect_str_eq(r.out, l->out, "%s: stdout '%s'", l->command, r.out);
	cr_expect_eq(
	    r.exit_code, l->exit_code, "%s: exit %d, stderr '%s'", l->command, r.exit_code, r.err);
	if (l->err) {
		cr_expect_str_eq(r.err, l->err, "%s: stderr '%s'", l->command, r.err);
	}
}

static void expect_all(const struct line *lines, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		expect(&lines[i]);
	}
}

Test(memory_shell, words_quotes_and_variables)
{
	static const struct line lines[] = {
	    {"echo hello", "hello\n", "", 0},
	    {"echo -n a  b", "a b", "", 0},
	    {"echo 'a  b' \"c  d\" e\\ f", "a  b c  d e f\n", "", 0},
	    {"A=1 B='x y'; echo $A \"$B\" ${A}z $NONE end", "1 x y 1z end\n", "", 0},
	    {"echo \"\"x '' y", "x  y\n", "", 0},
	    {"echo 'it'\\''s'", "it's\n", "", 0},
	    {"echo $?; false; echo $?", "0\n1\n", "", 0},
	    {"A=out; A=in printenv A; echo $A", "in\nout\n", "", 0},
	    {"echo a # comment", "a\n", "", 0},
	    {"printf '%s-%d\\n' a 1 b 2", "a-1\nb-2\n", "", 0},
	    {"printf 'a\\0101b'", "a\101b", NULL, 0},
	    {"sh -c 'echo $1 $2; exit 4' sh one 'two 3'; echo $?", "one two 3\n4\n", "", 0},
	    {"sh -c 'printf \"[%s]\" \"$@\"' sh a 'b c'", "[a][b c]", "", 0},
	    {"env -i A=1 printenv", "A=1\n", "", 0},
	};

	expect_all(lines, 10);
	expect_all(lines + 11, PAI_COUNT(lines) - 11);
}

Test(memory_shell, lists_groups_and_pipes)
{
	static const struct line lines[] = {
	    {"true && echo a || echo b", "a\n", "", 0},
	    {"false && echo a || echo b", "b\n", "", 0},
	    {"false || false && echo a; echo c", "c\n", "", 0},
	    {"(cd /tmp; X=1; exit 3); echo $? $X; pwd", "3\n/workspace\n", "", 0},
	    {"{ X=2; cd /tmp; }; echo $X; pwd", "2\n/tmp\n", "", 0},
	    {"exit 7; echo never", "", "", 7},
	    {"echo abc | cat | wc -c", "4\n", "", 0},
	    {"(echo a; echo b) | head -n 1", "a\n", "", 0},
	    {"yes | head -n 2", "y\ny\n", "", 0},
	    {"nosuch", "", "sh: nosuch: not found\n", 127},
	};

	expect_all(lines, PAI_COUNT(lines));
}

Test(memory_shell, redirections)
{
	static const struct line lines[] = {
	    {"echo oops >&2; exit 3", "", "oops\n", 3},
	    {"echo a > f; echo b >> f; cat f", "a\nb\n", "", 0},
	    {"cat < f > g && cat g", "a\nb\n", "", 0},
	    {"{ echo x; echo y >&2; } > h 2>&1; cat h", "x\ny\n", "", 0},
	    {"echo lost > /dev/null; cat < /dev/null", "", "", 0},
	    {"cat < none; echo $?", "1\n", "sh: none: No such file or directory\n", 0},
	    {"echo a > /workspace; echo $?", "1\n", "sh: /workspace: Is a directory\n", 0},
	};

	expect_all(lines, PAI_COUNT(lines));
}

Test(memory_shell, a_syntax_error_runs_nothing)
{
	static const char *const lines[] = {"touch f; echo 'open", "touch f; (echo a",
	    "touch f; for i in a; do echo; done", "touch f & echo", "touch f; echo $(ls)",
	    "touch f; echo `ls`", "touch f; echo >", "touch f; && echo", "touch f; cat << E"};

	for (size_t i = 0; i < PAI_COUNT(lines); i++) {
		expect(&(struct line){lines[i], "", NULL, 2});
	}
	expect(&(struct line){"ls", "", "", 0});
}

Test(memory_shell, files_as_coreutils_do)
{
	static const struct line lines[] = {
	    {"mkdir -m '700' './d'; stat -c '%a %F' d", "", NULL, 1},
	    {"stat -c '%a %h' d", "700 2\n", "", 0},
	    {"mkdir d", "", "mkdir: d: File exists\n", 1},
	    {"mkdir -p a/b/c && ls a/b", "c\n", "", 0},
	    {"rmdir a", "", "rmdir: a: Directory not empty\n", 1},
	    {"rm a", "", "rm: a: Is a directory\n", 1},
	    {"rm -r a && ls", "d\n", "", 0},
	    {"rm none", "", "rm: none: No such file or directory\n", 1},
	    {"rm -f -- none", "", "", 0},
	    {"echo 1 > f; ln -T -- ./f ./g; stat -c '%h' g; cat g", "2\n1\n", "", 0},
	    {"ln -T -- ./f ./g", "", "ln: ./g: File exists\n", 1},
	    {"ln -s -T -- f l; readlink -n -- l; test -L l && cat l", "f1\n", "", 0},
	    {"ln -s l2 l2; cat l2", "", "cat: l2: Too many levels of symbolic links\n", 1},
	    {"mv -f -T -- ./g ./h; ls", "d\nf\nh\nl\nl2\n", "", 0},
	    {"mv -f -T -- ./h ./d", "", "mv: ./h: Is a directory\n", 1},
	    {"mv h d; ls d", "h\n", "", 0},
	    {"chmod 640 f; stat -c '%a %f' -- f", "640 81a0\n", "", 0},
	    {"touch -c -h -m -d @1.500000000 f; stat -c '%.9Y %Y' f", "1.500000000 1\n", "", 0},
	    {"touch -c -h -a -d @-2.25 f; stat -c '%.9X' f", "-2.250000000\n", NULL, 0},
	    {"truncate -c -s 5 f; stat -c '%s' f; truncate -c -s 1 f; cat f", "5\n1", "", 0},
	    {"rm d/h; rmdir d; test -d d; echo $?", "1\n", "", 0},
	};

	expect_all(lines, PAI_COUNT(lines));
}
