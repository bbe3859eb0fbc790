#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "execshim/pai_cmd.h"

#define ARGS_MAX 12

static int parse(const char *const words[], struct pai_args *a, struct pai_err *err)
{
	static char copies[ARGS_MAX][64];
	static char *argv[ARGS_MAX + 1];
	const struct pai_cmd *cmd = pai_cmd_find(words[0]);
	int argc = 0;

	cr_assert_not_null(cmd);
	for (; words[argc] && argc < ARGS_MAX; argc++) {
		(void)snprintf(copies[argc], sizeof(copies[argc]), "%s", words[argc]);
		argv[argc] = copies[argc];
	}
	argv[argc] = NULL;
	return pai_args_parse(cmd, argc, argv, a, err);
}
#define PARSE(a, err, ...) parse((const char *const[]){__VA_ARGS__, NULL}, a, err)

Test(pai_args, options_may_stand_anywhere)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_args a;

	cr_assert_eq(PARSE(&a, &err, "kill", "a", "--json", "b", "-n", "d"), 0, "%s", err.msg);
	cr_assert_eq(a.word_count, 2);
	cr_assert_str_eq(a.words[0], "a");
	cr_assert_str_eq(a.words[1], "b");
	cr_assert(a.json);
	cr_assert_str_eq(a.daemon, "d");
	pai_args_fini(&a);
}

Test(pai_args, a_command_takes_its_own_options_only)
{
	static const struct {
		const char *words[5];
		const char *said;
	} rows[] = {
	    {{"ls", "--sandbox", "x"}, "unknown option '--sandbox'; expected: pai ls [KEY...]"},
	    {{"ls", "--listen", "1"}, "unknown option '--listen'"},
	    {{"port", "k", "1", "2"}, "one word too many: '2'"},
	    {{"probe", "x"}, "one word too many: 'x'; expected: pai probe (see"},
	    {{"reset", "a", "b"}, "one word too many: 'b'"},
	    {{"kill", "--bogus"}, "unknown option '--bogus'"},
	    {{"kill", "-z"}, "unknown option '-z'"},
	    {{"create", "k", "-o"}, "no value for '-o'"},
	    {{"log", "--limit", "0"}, "--limit '0': expected a number"},
	    {{"log", "--limit", "9x"}, "--limit '9x': expected a number"},
	    {{"create", "k", "-o", "=x"}, "-o '=x': expected NAME=VALUE"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *words[6] = {NULL};
		struct pai_err err = PAI_ERR_INIT;
		struct pai_args a;

		memcpy(words, rows[i].words, sizeof(rows[i].words));
		cr_assert_eq(parse(words, &a, &err), -EINVAL, "%zu", i);
		cr_assert_not_null(strstr(err.msg, rows[i].said), "%zu: %s", i, err.msg);
		pai_args_fini(&a);
	}
}

Test(pai_args, create_options_are_split_at_bare_commas)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_args a;

	cr_assert_eq(
	    PARSE(&a, &err, "create", "k", "-o", "ttl=1h,,env.X=a\\,b\\\\,flag", "-o", "ttl=2h"),
	    0);
	cr_assert_eq(a.options.count, 3);
	cr_assert_str_eq(pai_strmap_get(&a.options, "ttl"), "2h");
	cr_assert_str_eq(pai_strmap_get(&a.options, "env.X"), "a,b\\");
	cr_assert_str_eq(pai_strmap_get(&a.options, "flag"), "");
	pai_args_fini(&a);
}

Test(pai_args, conformance_passes_everything_on)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_args a;

	cr_assert_eq(PARSE(&a, &err, "conformance", "memory", "--json", "-n", "--whatever"), 0);
	cr_assert_eq(a.word_count, 4);
	cr_assert_not(a.json);
	pai_args_fini(&a);
}

Test(pai_args, every_command_has_help_with_an_example)
{
	for (const struct pai_cmd *c = pai_cmd_table; c->name; c++) {
		struct pai_err err = PAI_ERR_INIT;
		struct pai_args a;

		if (c->takes & PAI_TAKES_RAW) {
			continue; /* another program's help is shown */
		}
		cr_assert_not_null(strstr(c->help, "example: "), "%s", c->name);
		cr_assert_eq(PARSE(&a, &err, c->name, "--help"), 0, "%s", c->name);
		cr_assert(a.help, "%s", c->name);
		pai_args_fini(&a);
	}
}
