#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "providers/base/json.h"
#include "providers/provider.h"

/* What the trace wrote, line by line, as JSON. */
struct lines {
	struct pai_json *items[32];
	size_t count;
	char *text;
};

static struct lines read_lines(int fd)
{
	struct lines l = {0};
	struct pai_buf text = PAI_BUF_INIT(1u << 20);
	struct pai_err err = PAI_ERR_INIT;
	char *rest;
	char *line;

	cr_assert_eq(lseek(fd, 0, SEEK_SET), 0);
	cr_assert_eq(pai_buf_fill(&text, fd, &err), 0, "%s", err.msg);
	l.text = pai_buf_take(&text);
	rest = strdup(l.text);
	for (char *p = rest; (line = strsep(&p, "\n")) != NULL && *line; l.count++) {
		cr_assert_eq(
		    pai_json_parse(line, strlen(line), 8, &l.items[l.count], &err), 0, "%s", line);
	}
	free(rest);
	return l;
}

static void lines_free(struct lines *l)
{
	for (size_t i = 0; i < l->count; i++) {
		pai_json_free(l->items[i]);
	}
	free(l->text);
}

static void use_everything(struct pai_provider *p)
{
	pai_auto_strmap struct pai_strmap env = PAI_STRMAP_INIT;
	pai_auto_strmap struct pai_strmap metadata = PAI_STRMAP_INIT;
	struct pai_create_input create = {.env = &env, .metadata = &metadata, .binding_key = "k"};
	pai_auto_sandbox struct pai_sandbox *sb = NULL;
	pai_auto_sandbox struct pai_sandbox *gone = NULL;
	pai_auto_run_result struct pai_run_result result = {0};
	pai_auto_buf struct pai_buf data = PAI_BUF_INIT(1000);
	struct pai_err err = PAI_ERR_INIT;
	bool found;

	cr_assert_eq(pai_strmap_set(&env, "TOKEN", "SECRET-env"), 0);
	cr_assert_eq(pai_strmap_set(&metadata, "key", "thread-42"), 0);
	cr_assert_eq(
	    pai_provider_create(p, &create, PAI_CALL_UNBOUNDED, &sb, &err), 0, "%s", err.msg);
	struct pai_run_input run = {.command = "  echo SECRET-output", .env = &env};
	cr_assert_eq(pai_sandbox_run(sb, &run, PAI_CALL_UNBOUNDED, &result, &err), 0);
	pai_run_result_fini(&result);
	run.command = "PASS=SECRET-assigned printenv PASS";
	cr_assert_eq(pai_sandbox_run(sb, &run, PAI_CALL_UNBOUNDED, &result, &err), 0);
	cr_assert_eq(
	    pai_sandbox_write_file(sb, "f", "SECRET-file", 11, PAI_CALL_UNBOUNDED, &err), 0);
	cr_assert_eq(
	    pai_sandbox_read_file(sb, "f", 1000, PAI_CALL_UNBOUNDED, &found, &data, &err), 0);
	cr_assert_lt(pai_sandbox_read_file(sb, "f", 3, PAI_CALL_UNBOUNDED, &found, &data, &err), 0);
	err = (struct pai_err)PAI_ERR_INIT;
	cr_assert_eq(pai_provider_connect(p, "nosuch", PAI_CALL_UNBOUNDED, &gone, &err), 0);
}

Test(provider_trace, one_line_a_call_with_sizes_instead_of_secrets)
{
	struct pai_provider *inner = NULL;
	struct pai_provider *p = NULL;
	struct pai_err err = PAI_ERR_INIT;
	int fd = memfd_create("trace", MFD_CLOEXEC);
	int ours = dup(fd);
	struct lines l;

	cr_assert_eq(pai_provider_open("memory", NULL, &inner, &err), 0);
	cr_assert_eq(pai_provider_trace(inner, fd, &p, &err), 0);
	use_everything(p);
	pai_provider_free(p);
	l = read_lines(ours);
	cr_assert_eq(l.count, 7);
	cr_expect_null(strstr(l.text, "SECRET"), "%s", l.text);

	cr_expect_str_eq(pai_json_str(l.items[0], "call"), "create");
	cr_expect_str_eq(pai_json_str(l.items[0], "bindingKey"), "k");
	cr_expect_str_eq(pai_json_str(l.items[0], "network"), "none");
	cr_expect_str_eq(pai_json_text(pai_json_at(pai_json_get(l.items[0], "env"), 0)), "TOKEN");
	cr_expect(pai_json_str(l.items[0], "sandbox"));
	cr_expect_str_eq(pai_json_str(pai_json_get(l.items[0], "metadata"), "key"), "thread-42");

	cr_expect_str_eq(pai_json_str(l.items[1], "call"), "run");
	cr_expect_str_eq(pai_json_str(l.items[1], "command"), "echo");
	cr_expect_str_eq(pai_json_str(l.items[1], "cwd"), "/workspace");
	cr_expect_eq(pai_json_num(l.items[1], "exitCode", -1), 0);
	cr_expect_eq(pai_json_num(l.items[1], "stdoutBytes", -1), 14);
	cr_expect_str_eq(pai_json_str(l.items[2], "command"), "PASS=...");

	cr_expect_eq(pai_json_num(l.items[3], "bytes", -1), 11);
	cr_expect_str_eq(pai_json_str(l.items[4], "path"), "/workspace/f");
	cr_expect_str_eq(pai_json_str(pai_json_get(l.items[5], "error"), "kind"), "file-too-large");
	cr_expect_eq(pai_json_bool(l.items[6], "found", true), false);
	lines_free(&l);
	close(ours);
}

Test(provider_trace, says_the_name_and_caps_of_what_it_wraps)
{
	struct pai_provider *inner = NULL;
	struct pai_provider *p = NULL;
	struct pai_err err = PAI_ERR_INIT;
	uint32_t caps;

	cr_assert_eq(pai_provider_open("memory", NULL, &inner, &err), 0);
	caps = pai_provider_caps(inner);
	cr_assert_eq(
	    pai_provider_trace(inner, open("/dev/null", O_WRONLY | O_CLOEXEC), &p, &err), 0);
	cr_expect_str_eq(pai_provider_name(p), "memory");
	cr_expect_eq(pai_provider_caps(p), caps);
	pai_provider_free(p);
}
