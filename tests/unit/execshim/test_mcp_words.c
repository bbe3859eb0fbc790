#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "execshim/mcp/instructions.h"
#include "execshim/mcp/outside.h"

Test(mcp_outside, a_path_below_a_mount_says_whose_session_it_is)
{
	static const struct {
		const char *path;
		const char *key; /* NULL: none */
		const char *dir;
	} rows[] = {
	    {"/mnt/pai/a", "a", "/mnt/pai/a"},
	    {"/mnt/pai/a/", "a", "/mnt/pai/a"},
	    {"/mnt/pai/b%2Fc/x/y", "b/c", "/mnt/pai/b%2Fc"},
	    {"/mnt/pai", NULL, NULL},
	    {"/mnt/pai/", NULL, NULL},
	    {"/mnt/pai//a", NULL, NULL},
	    {"/mnt/pai/..", NULL, NULL},
	    {"/mnt/pai/.", NULL, NULL},
	    {"/mnt/paix/a", NULL, NULL},
	    {"/mnt/pai/%61", NULL, NULL},
	    {"/workspace/a", NULL, NULL},
	    {"a", NULL, NULL},
	    {"", NULL, NULL},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pai_err err = PAI_ERR_INIT;
		char key[PAI_KEY_MAX + 1];
		pai_auto_free char *dir = NULL;
		int r = pai_mcp_session_of("/mnt/pai", rows[i].path, key, &dir, &err);

		cr_assert_eq(r == 0, rows[i].key != NULL, "%s", rows[i].path);
		cr_assert(r == 0 || err.code == PAI_E_INPUT);
		if (r == 0) {
			cr_assert_str_eq(key, rows[i].key);
			cr_assert_str_eq(dir, rows[i].dir);
		}
	}
}

Test(mcp_outside, paths_of_an_answer_are_the_clients_and_no_other_text_is_touched)
{
	static const char before[] =
	    "{\"status\":\"ok\",\"path\":\"/workspace\",\"paths\":[\"/workspace/a\\nb\",\"/tmp/x\","
	    "\"/workspaces/y\"],\"matches\":\"/workspace/f:1:/workspace\\n[/workspace]\\n/"
	    "workspace/g:2:x\","
	    "\"content\":\"1: "
	    "/workspace/f\",\"didYouMean\":[\"/workspace/z\"],\"stdout\":\"/workspace\"}";
	static const char after[] = "{\"status\":\"ok\",\"content\":\"1: "
				    "/workspace/f\",\"stdout\":\"/workspace\",\"path\":\"/m/k\","
				    "\"matches\":\"/m/k/f:1:/workspace\\n[/workspace]\\n/m/k/"
				    "g:2:x\",\"paths\":[\"/m/k/a\\nb\",\"/tmp/x\","
				    "\"/workspaces/y\"],\"didYouMean\":[\"/m/k/z\"]}";
	pai_auto_json struct pai_json *answer = NULL;
	pai_auto_free char *text = NULL;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_json_parse(before, strlen(before), 8, &answer, &err), 0);
	cr_assert_eq(pai_mcp_outside(answer, "/m/k"), 0);
	text = pai_json_print(answer, false);
	cr_assert_str_eq(text, after);
}

Test(mcp_instructions, name_the_workspace_and_what_commands_may_do)
{
	static const struct {
		const char *status; /* NULL: nobody told */
		const char *said;
		const char *not_said;
	} rows[] = {
	    {"{\"exec\":\"allowed\",\"network\":\"none\"}", "have no network", "refused"},
	    {"{\"exec\":\"allowed\",\"network\":\"full\"}", "have network access", "no network"},
	    {"{\"exec\":\"allowed\",\"network\":\"allowlist\"}", "that are allowed", "no network"},
	    {"{\"exec\":\"allowed\",\"network\":\"full\",\"session\":{\"network\":\"none\"}}",
		"have no network", "network access"},
	    {"{\"exec\":\"allowed\",\"network\":\"full\",\"session\":{\"network\":null}}",
		"have network access", "no network"},
	    {"{\"exec\":\"refused\",\"network\":\"full\"}", "Commands are refused", "network"},
	    {NULL, "/workspace", "network"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pai_mcp_options o = {.mount = NULL};
		pai_auto_json struct pai_json *status = NULL;
		pai_auto_free char *text = NULL;
		struct pai_err err = PAI_ERR_INIT;

		if (rows[i].status) {
			cr_assert_eq(pai_json_parse(
					 rows[i].status, strlen(rows[i].status), 8, &status, &err),
			    0);
		}
		text = pai_mcp_instructions_from(&o, status);
		cr_assert_not_null(strstr(text, rows[i].said), "row %zu: %s", i, text);
		cr_assert_null(strstr(text, rows[i].not_said), "row %zu: %s", i, text);
	}
}

Test(mcp_instructions, say_where_one_is)
{
	struct pai_mcp_options by_mount = {.mount = (char *)"/home/u/pai"};
	struct pai_mcp_options inside = {.dir = (char *)"/workspace/proj"};
	pai_auto_free char *all = pai_mcp_instructions_from(&by_mount, NULL);
	pai_auto_free char *one = pai_mcp_instructions_from(&inside, NULL);

	cr_assert_not_null(strstr(all, "/home/u/pai"));
	cr_assert_not_null(strstr(one, "/workspace/proj"));
}
