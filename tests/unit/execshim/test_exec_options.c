#include "execshim/exec_options.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ARGS_MAX 32

/* getopt wants writable words. */
static int parse(const char *const words[], struct pai_exec_options *o, struct pai_err *err)
{
	static char copies[ARGS_MAX][128];
	static char *argv[ARGS_MAX + 1];
	int argc = 0;

	for (; words[argc] && argc < ARGS_MAX; argc++) {
		(void)snprintf(copies[argc], sizeof(copies[argc]), "%s", words[argc]);
		argv[argc] = copies[argc];
	}
	argv[argc] = NULL;
	return pai_exec_options_parse(argc, argv, o, err);
}
#define PARSE(o, err, ...) parse((const char *const[]){"pai-exec", __VA_ARGS__, NULL}, o, err)

Test(exec_options, the_command_begins_at_the_first_word)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_exec_options o;

	cr_assert_eq(
	    PARSE(&o, &err, "-s", "k", "-q", "ls", "-l", "--help", "-c"), 0, "%s", err.msg);
	cr_assert_str_eq(o.target.key, "k");
	cr_assert(o.quiet);
	cr_assert_eq(o.status_fd, -1);
	cr_assert_str_eq(o.argv[0], "ls");
	cr_assert_str_eq(o.argv[2], "--help");
	cr_assert_str_eq(o.argv[3], "-c");
	cr_assert_null(o.argv[4]);
	pai_exec_options_fini(&o);
	cr_assert_eq(PARSE(&o, &err, "--", "-s", "x"), 0);
	cr_assert_null(o.target.key);
	cr_assert_str_eq(o.argv[0], "-s");
	pai_exec_options_fini(&o);
}

Test(exec_options, c_runs_a_shell_with_its_words)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_exec_options o;

	cr_assert_eq(PARSE(&o, &err, "-c", "echo $1", "name", "a b"), 0);
	cr_assert_str_eq(o.argv[0], "sh");
	cr_assert_str_eq(o.argv[1], "-c");
	cr_assert_str_eq(o.argv[2], "echo $1");
	cr_assert_str_eq(o.argv[4], "a b");
	cr_assert_null(o.argv[5]);
	pai_exec_options_fini(&o);
	cr_assert_eq(PARSE(&o, &err, "-c", "true"), 0);
	cr_assert_null(o.argv[3]);
	pai_exec_options_fini(&o);
}

Test(exec_options, values_are_understood)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_exec_options o;

	(void)setenv("EO_SET", "v=1", 1);
	(void)unsetenv("EO_UNSET");
	cr_assert_eq(PARSE(&o, &err, "-e", "A=b=c", "-e", "EO_SET", "-e", "EO_UNSET", "-e",
			 "E=", "--timeout", "1.5s", "--max-output=64K", "--no-retry", "-tT", "-C",
			 "/d", "-n", "d", "true"),
	    0, "%s", err.msg);
	cr_assert_eq(o.env.count, 3);
	cr_assert_str_eq(pai_strmap_get(&o.env, "A"), "b=c");
	cr_assert_str_eq(pai_strmap_get(&o.env, "EO_SET"), "v=1");
	cr_assert_str_eq(pai_strmap_get(&o.env, "E"), "");
	cr_assert_eq(o.timeout_ms, 1500);
	cr_assert_eq(o.max_output_bytes, 65536);
	cr_assert(o.no_retry);
	cr_assert_not(o.tty);
	cr_assert_str_eq(o.target.dir, "/d");
	cr_assert_str_eq(o.target.daemon, "d");
	pai_exec_options_fini(&o);
}

Test(exec_options, mistakes_are_named)
{
	static const struct {
		const char *words[4];
		const char *said;
	} rows[] = {
	    {{"--bogus", "true"}, "unknown option '--bogus'"},
	    {{"-qZ", "true"}, "unknown option '-Z'"},
	    {{"--quiet=1", "true"}, "unknown option '--quiet=1'"},
	    {{"-s"}, "'-s' needs a value"},
	    {{"--timeout"}, "'--timeout' needs a value"},
	    {{"--timeout", "soon", "true"}, "--timeout 'soon': expected a duration"},
	    {{"--max-output", "-1", "true"}, "--max-output '-1': expected a size"},
	    {{"--status-fd", "x", "true"}, "--status-fd 'x'"},
	    {{"--status-fd", "999", "true"}, "--status-fd '999'"},
	    {{"-e", "=x", "true"}, "-e '=x'"},
	    {{"--detach", "-t", "true"}, "exclude each other"},
	    {{"-q"}, "no command given"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *words[6] = {"pai-exec"};
		struct pai_err err = PAI_ERR_INIT;
		struct pai_exec_options o;

		memcpy(words + 1, rows[i].words, sizeof(rows[i].words));
		cr_assert_eq(parse(words, &o, &err), -EINVAL, "%zu", i);
		cr_assert_eq(err.code, PAI_E_INPUT);
		cr_assert_not_null(strstr(err.msg, rows[i].said), "%zu: %s", i, err.msg);
		cr_assert_null(strchr(err.msg, '\n'));
		pai_exec_options_fini(&o);
	}
}

Test(exec_options, help_and_version_need_no_command)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_exec_options o;

	cr_assert_eq(PARSE(&o, &err, "--help"), 0);
	cr_assert_eq(o.mode, PAI_EXEC_HELP);
	pai_exec_options_fini(&o);
	cr_assert_eq(PARSE(&o, &err, "-V"), 0);
	cr_assert_eq(o.mode, PAI_EXEC_VERSION);
	pai_exec_options_fini(&o);
}
