#include "execshim/exec_report.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "execshim/client.h"

static struct pai_json *own(const struct pai_exec_result *r)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_json *obj = NULL;
	char *text = pai_exec_own_status(r);

	cr_assert_not_null(text);
	cr_assert_eq(pai_json_parse(text, strlen(text), PAI_CLIENT_JSON_DEPTH, &obj, &err), 0);
	free(text);
	return obj;
}

Test(exec_report, our_own_object_has_the_daemons_shape)
{
	static const char *const names[] = {"source", "exitCode", "signal", "timedOut", "outcome",
	    "attempts", "environmentReset", "generation", "sandboxId", "bytes", "cut", "spool",
	    "lostWrites", "error"};
	struct pai_exec_result r = {.ending = PAI_ENDED_UNKNOWN, .stdout_bytes = 7};
	pai_auto_json struct pai_json *obj = NULL;

	(void)pai_err_unavailable(&r.err, PAI_REASON_TRANSPORT, NULL, "the line fell");
	obj = own(&r);
	cr_assert_eq(pai_json_count(obj), PAI_COUNT(names));
	for (size_t i = 0; i < PAI_COUNT(names); i++) {
		cr_assert_str_eq(pai_json_name(pai_json_at(obj, i)), names[i]);
	}
	cr_assert_str_eq(pai_json_str(obj, "source"), "pai");
	cr_assert_str_eq(pai_json_str(obj, "outcome"), "unknown");
	cr_assert_eq(pai_json_num(pai_json_get(obj, "bytes"), "stdout", 0), 7);
	cr_assert_str_eq(pai_json_str(pai_json_get(obj, "error"), "kind"), "unavailable");
	cr_assert(pai_json_is_null(obj, "exitCode"));
}

Test(exec_report, the_daemons_object_goes_out_as_it_came)
{
	char status[] = "{ \"odd\" :  [1] }";
	struct pai_exec_result r = {.ending = PAI_ENDED_EXITED, .status = status};
	char got[64] = "";
	int fds[2];

	cr_assert_eq(pipe(fds), 0);
	pai_exec_report_status(&r, fds[1]);
	(void)close(fds[1]);
	cr_assert_eq(read(fds[0], got, sizeof(got) - 1), (ssize_t)strlen(status) + 1);
	cr_assert_str_eq(got, "{ \"odd\" :  [1] }\n");
}
