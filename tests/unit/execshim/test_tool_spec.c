#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "execshim/tools/fixed.h"
#include "execshim/tools/spec.h"
#include "execshim/tools/step.h"

static int check(const char *tool, const char *input, struct pai_err *err)
{
	pai_auto_json struct pai_json *j = NULL;

	cr_assert_eq(pai_json_parse(input, strlen(input), 16, &j, err), 0, "%s", input);
	return pai_tool_check(pai_tool_find(tool), j, err);
}

Test(tool_spec, each_wrong_input_has_a_message_that_names_its_field)
{
	static const struct {
		const char *tool, *input, *message; /* NULL: it is good */
	} rows[] = {
	    {"bash", "{\"reason\":\"r\",\"command\":\"x\"}", NULL},
	    {"bash", "{\"reason\":\"r\",\"command\":\"x\",\"timeoutMs\":3600000}", NULL},
	    {"bash", "{\"reason\":\"r\",\"command\":\"x\",\"timeoutMs\":3600001}",
		"timeoutMs: expected a whole number from 1 to 3,600,000"},
	    {"bash", "{\"command\":\"x\"}", "reason: is required"},
	    {"bash", "{\"reason\":\"\",\"command\":\"x\"}",
		"reason: expected a text of 1 to 200 characters"},
	    {"bash", "{\"reason\":7,\"command\":\"x\"}",
		"reason: expected a text of 1 to 200 characters"},
	    {"bash", "{\"reason\":\"r\",\"command\":\"\"}",
		"command: expected a text that is not empty"},
	    {"bash", "{\"reason\":\"r\",\"command\":\"x\",\"env\":{}}",
		"unknown field 'env': expected reason, command, cwd, timeoutMs"},
	    {"bash", "[]", "expected one JSON object"},
	    {"bash", "null", "expected one JSON object"},
	    {"read", "{\"reason\":\"r\",\"path\":\"\"}", NULL}, /* the tool answers `invalid` */
	    {"read", "{\"reason\":\"r\",\"path\":\"/x\",\"offset\":1.5}",
		"offset: expected a whole number from 1 to 9,007,199,254,740,992"},
	    {"edit",
		"{\"reason\":\"r\",\"path\":\"/x\",\"oldString\":\"a\",\"newString\":\"b\","
		"\"replaceAll\":1}",
		"replaceAll: expected true or false"},
	    {"write", "{\"reason\":\"r\",\"path\":\"/x\",\"content\":null}",
		"content: expected a text"},
	    {"grep", "{\"reason\":\"r\",\"pattern\":\"x\",\"limit\":1001}",
		"limit: expected a whole number from 1 to 1,000"},
	    {"listDirectory", "{\"reason\":\"r\",\"path\":\"/\",\"limit\":201}",
		"limit: expected a whole number from 1 to 200"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pai_err err = PAI_ERR_INIT;
		int r = check(rows[i].tool, rows[i].input, &err);

		cr_assert_eq(r, rows[i].message ? -EINVAL : 0, "%s: %s", rows[i].input, err.msg);
		cr_assert_str_eq(err.msg, rows[i].message ? rows[i].message : "");
	}
}

Test(tool_spec, the_seven_tools_and_which_run_alone)
{
	static const char *const names[] = {
	    "bash", "read", "write", "edit", "grep", "glob", "listDirectory"};

	for (size_t i = 0; i < PAI_TOOL_COUNT; i++) {
		const struct pai_tool_spec *s = pai_tool_find(names[i]);

		cr_assert_eq(s, &pai_tool_specs[i]);
		cr_assert_eq(s->is_sequential,
		    i == PAI_TOOL_BASH || i == PAI_TOOL_WRITE || i == PAI_TOOL_EDIT);
		cr_assert_str_eq(s->fields[0].name, "reason", "it comes first");
		cr_assert(s->fields[0].required);
		/* A description claims no isolation, whoever provides it. */
		cr_assert_null(strstr(s->meaning, "isolat"));
		cr_assert_null(strstr(s->meaning, "safe"));
		cr_assert_eq(strstr(s->meaning, "run alone") != NULL, s->is_sequential);
		cr_assert_eq(
		    strstr(s->meaning, "stops the calls after it") != NULL, s->is_sequential);
	}
	cr_assert_null(pai_tool_find("Bash"));
	cr_assert_null(pai_tool_find(""));
}

static bool stops(const char *tool, const char *answer)
{
	pai_auto_json struct pai_json *j = NULL;

	cr_assert_eq(pai_json_parse(answer, strlen(answer), 16, &j, PAI_ERR_IGNORED()), 0);
	return pai_tool_stops(pai_tool_find(tool), j);
}

Test(tool_spec, what_stops_the_calls_after_it)
{
	cr_assert(!stops("bash", "{\"exitCode\":0,\"timedOut\":false}"));
	cr_assert(stops("bash", "{\"exitCode\":1,\"timedOut\":false}"));
	cr_assert(stops("bash", "{\"exitCode\":null,\"timedOut\":true}"));
	cr_assert(!stops("edit", "{\"status\":\"edited\"}"));
	for (size_t i = 1; i < pai_tool_specs[PAI_TOOL_EDIT].result_count; i++) {
		cr_assert(pai_tool_specs[PAI_TOOL_EDIT].results[i].stops);
	}
	cr_assert(!stops("write", "{\"status\":\"written\"}"));
	cr_assert(stops("write", "{\"status\":\"invalid\"}"));
	cr_assert(!stops("read", "{\"status\":\"not_found\"}"));
	cr_assert(!stops("read", "{\"status\":\"invalid\"}"));
	cr_assert(!stops("grep", "{\"status\":\"error\"}"));
	cr_assert(stops("grep", "{\"error\":{}}"));
}

Test(tool_spec, every_kind_of_error_has_its_text_and_nothing_of_its_message)
{
	static const struct {
		enum pai_errcode code;
		const char *kind;
	} rows[] = {{PAI_E_NOT_FOUND, "sandbox-lost"}, {PAI_E_RESET, "sandbox-lost"},
	    {PAI_E_UNAVAILABLE, "unavailable"}, {PAI_E_QUOTA_EXCEEDED, "busy"},
	    {PAI_E_POLICY_MISMATCH, "refused"}, {PAI_E_OUTPUT_LIMIT, "output-too-large"},
	    {PAI_E_FILE_TOO_LARGE, "file-too-large"}, {PAI_E_SEED, "seed"}, {PAI_E_INPUT, "input"},
	    {PAI_E_CANCELLED, "cancelled"}, {PAI_E_WRITE_FAILED, "write-failed"},
	    {PAI_E_SYS, "unavailable"}, {PAI_E_TIMEOUT, "unavailable"},
	    {PAI_E_PROTOCOL, "unavailable"}, {PAI_E_INTERNAL, "unavailable"},
	    {PAI_E_NO_MEMORY, "unavailable"}, {PAI_E_UNSUPPORTED, "refused"},
	    {PAI_E_COMMAND_TIMEOUT, "unavailable"}};

	cr_assert_eq(sizeof(rows) / sizeof(rows[0]), PAI_E_COUNT - 1, "one a kind");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pai_err err = PAI_ERR_INIT;
		pai_auto_json struct pai_json *answer = NULL;
		pai_auto_free char *text = NULL;

		(void)pai_err_set(&err, rows[i].code, "secret.example.org: id-4711 in /home/me");
		answer = pai_fixed_answer(&err, NULL, true);
		text = pai_json_print(answer, false);
		cr_assert_str_eq(pai_json_str(pai_json_get(answer, "error"), "kind"), rows[i].kind);
		cr_assert(pai_json_bool(answer, "environmentReset", false));
		cr_assert_null(strstr(text, "secret"));
		cr_assert_null(strstr(text, "4711"));
		cr_assert_null(strstr(text, "/home"));
	}
}

Test(tool_spec, lines_of_a_batch)
{
	static const char text[] =
	    "{\"tool\":\"read\",\"input\":{\"reason\":\"r\",\"path\":\"/x\"}}\n"
	    " \t\n"
	    "{\"tool\":\"nosuch\",\"input\":{}}\n"
	    "not JSON\n"
	    "{\"tool\":\"read\"}\n"
	    "{\"tool\":\"read\",\"input\":[]}\n"
	    "{\"tool\":\"read\",\"input\":{},\"id\":1}\n"
	    "{\"tool\":\"bash\",\"input\":{}}";
	struct pai_step b;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_step_parse(&b, text, sizeof(text) - 1, &err), 0);
	cr_assert_eq(b.count, 7);
	cr_assert(b.calls[0].spec && b.calls[0].input && !b.calls[0].wrong);
	for (size_t i = 1; i < 6; i++) {
		cr_assert_not_null(b.calls[i].wrong, "line %zu", i);
	}
	cr_assert_null(b.calls[6].wrong);
	pai_step_fini(&b);
}
