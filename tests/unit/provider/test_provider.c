#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/provider.h"
#include "providers/provider_ops.h"

/* A provider whose answers are what a test sets: to see what the wrappers make of them. */
static int answer;
static enum pai_errcode answer_code;
static char *seen_path;
static char stub_id[] = "id";
static char incarnation[] = "inc";
static bool hands_out;

static struct pai_sandbox_ops stub_sandbox_ops;
static struct pai_provider stub;
static struct pai_sandbox stub_sandbox;

static int reply(struct pai_err *err)
{
	return answer_code != PAI_OK ? pai_err_set(err, answer_code, "said so") : answer;
}

static int stub_create(struct pai_provider *p, const struct pai_create_input *input,
    const struct pai_call *call, struct pai_sandbox **ret, struct pai_err *err)
{
	(void)p, (void)input, (void)call;
	*ret = hands_out ? &stub_sandbox : NULL;
	return reply(err);
}

static int stub_connect(struct pai_provider *p, const char *id, const struct pai_call *call,
    struct pai_sandbox **ret, struct pai_err *err)
{
	(void)id;
	return stub_create(p, NULL, call, ret, err);
}

static int stub_list(struct pai_provider *p, const struct pai_strmap *metadata,
    const struct pai_call *call, struct pai_sandbox_list *ret, struct pai_err *err)
{
	(void)p, (void)metadata, (void)call;
	ret->items = calloc(1, sizeof(*ret->items));
	ret->count = 1;
	return reply(err);
}

static int stub_read(struct pai_sandbox *sb, const char *path, uint64_t max_bytes,
    const struct pai_call *call, bool *found, struct pai_buf *ret, struct pai_err *err)
{
	(void)sb, (void)max_bytes, (void)call;
	free(seen_path);
	seen_path = strdup(path);
	*found = true;
	cr_assert_eq(pai_buf_add(ret, "four", 4), 0);
	return reply(err);
}

static const char *listed_name;
static int stub_list_dir(struct pai_sandbox *sb, const char *path, const struct pai_call *call,
    bool *found, struct pai_dir_list *ret, struct pai_err *err)
{
	(void)sb, (void)path, (void)call;
	*found = true;
	ret->items = calloc(1, sizeof(*ret->items));
	ret->items[0].name = strdup(listed_name);
	ret->count = 1;
	return reply(err);
}

static const struct pai_provider_ops stub_ops = {
    .name = "stub",
    .create = stub_create,
    .connect = stub_connect,
    .list = stub_list,
};

static void reset(void)
{
	answer = 0;
	answer_code = PAI_OK;
	hands_out = true;
	listed_name = "a";
	stub = (struct pai_provider){.ops = &stub_ops, .isolation = "nothing"};
	stub_sandbox_ops = (struct pai_sandbox_ops){
	    .read_file = stub_read,
	    .list_dir = stub_list_dir,
	};
	stub_sandbox = (struct pai_sandbox){
	    .ops = &stub_sandbox_ops,
	    .provider = &stub,
	    .id = stub_id,
	    .incarnation = incarnation,
	};
}

TestSuite(provider, .init = reset, .timeout = 10);

#define CALL PAI_CALL_UNBOUNDED

Test(provider, what_the_contract_forbids_is_input_before_the_provider_is_asked)
{
	static const char *const empty_entry[] = {""};
	char name[] = "A=B";
	struct pai_strmap_entry bad_name = {name, name};
	const struct pai_strmap bad_env = {&bad_name, 1};
	const struct pai_create_input inputs[] = {
	    {.binding_key = ""},
	    {.template_name = ""},
	    {.env = &bad_env},
	    {.network = {.access = 17}},
	    {.network = {.access = PAI_NETWORK_ALLOWLIST}},
	    {.network = {.access = PAI_NETWORK_ALLOWLIST, .allow = empty_entry, .allow_count = 1}},
	    {.network = {.access = PAI_NETWORK_FULL, .allow = empty_entry, .allow_count = 1}},
	};

	answer_code = PAI_E_INTERNAL;
	for (size_t i = 0; i < PAI_COUNT(inputs); i++) {
		struct pai_sandbox *sb = NULL;
		struct pai_err err = PAI_ERR_INIT;

		cr_expect_eq(pai_provider_create(&stub, &inputs[i], CALL, &sb, &err), -EINVAL);
		cr_expect_eq(err.code, PAI_E_INPUT, "input %zu: %s", i, err.msg);
		cr_expect_null(sb);
	}
}

Test(provider, paths_reach_the_provider_absolute_and_normalised)
{
	static const char *const paths[][2] = {
	    {"a", "/workspace/a"},
	    {"./a//b/../c", "/workspace/a/c"},
	    {"../etc/passwd", "/etc/passwd"},
	    {"/../../x", "/x"},
	    {"/workspace/a/..", "/workspace"},
	};

	for (size_t i = 0; i < PAI_COUNT(paths); i++) {
		pai_auto_buf struct pai_buf data = PAI_BUF_INIT(100);
		struct pai_err err = PAI_ERR_INIT;
		bool found = false;

		cr_expect_eq(pai_sandbox_read_file(
				 &stub_sandbox, paths[i][0], 100, CALL, &found, &data, &err),
		    0);
		cr_expect_str_eq(seen_path, paths[i][1]);
	}
}

Test(provider, a_failure_leaves_the_outputs_alone)
{
	pai_auto_buf struct pai_buf data = PAI_BUF_INIT(100);
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;

	cr_assert_eq(pai_buf_add(&data, "before", 6), 0);
	answer_code = PAI_E_UNAVAILABLE;
	cr_expect_lt(pai_sandbox_read_file(&stub_sandbox, "a", 100, CALL, &found, &data, &err), 0);
	cr_expect_str_eq(data.data, "before");
	cr_expect_eq(found, false);
	cr_expect_str_eq(err.msg, "stub: read_file: said so");
}

Test(provider, a_broken_promise_is_internal_not_a_crash)
{
	struct pai_sandbox *sb = NULL;
	struct pai_sandbox_list list;
	pai_auto_buf struct pai_buf data = PAI_BUF_INIT(100);
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;
	struct pai_create_input input = {0};

	hands_out = false;
	cr_expect_lt(pai_provider_create(&stub, &input, CALL, &sb, &err), 0);
	cr_expect_eq(err.code, PAI_E_INTERNAL);

	err = (struct pai_err)PAI_ERR_INIT;
	answer = -EIO; /* and no error */
	cr_expect_eq(pai_provider_create(&stub, &input, CALL, &sb, &err), -err.errnum);
	cr_expect_eq(err.code, PAI_E_INTERNAL);

	answer = 0;
	err = (struct pai_err)PAI_ERR_INIT;
	cr_expect_lt(pai_provider_list(&stub, NULL, CALL, &list, &err), 0);
	cr_expect_eq(err.code, PAI_E_INTERNAL);
	cr_expect_eq(list.count, 0);

	err = (struct pai_err)PAI_ERR_INIT;
	cr_expect_lt(pai_sandbox_read_file(&stub_sandbox, "a", 3, CALL, &found, &data, &err), 0);
	cr_expect_eq(err.code, PAI_E_INTERNAL);
	cr_expect_eq(data.len, 0);
}

Test(provider, names_that_no_file_can_have_are_refused)
{
	static char longest[257];
	const char *const names[] = {"", ".", "..", "a/b", longest};

	memset(longest, 'x', 256);
	for (size_t i = 0; i < PAI_COUNT(names); i++) {
		struct pai_dir_list list = {0};
		struct pai_err err = PAI_ERR_INIT;
		bool found = false;

		listed_name = names[i];
		cr_expect_lt(
		    pai_sandbox_list_dir(&stub_sandbox, ".", CALL, &found, &list, &err), 0);
		cr_expect_eq(err.code, PAI_E_PROTOCOL, "name %zu", i);
		cr_expect_eq(list.count, 0);
	}
}

Test(provider, a_null_slot_is_unsupported_and_keep_alive_without_one_holds_for_ever)
{
	struct pai_host_files files;
	struct pai_err err = PAI_ERR_INIT;
	int fd = -1;

	cr_expect_eq(pai_sandbox_pause(&stub_sandbox, CALL, &err), -EOPNOTSUPP);
	cr_expect_eq(err.code, PAI_E_UNSUPPORTED);
	cr_expect_eq(pai_sandbox_host_files(&stub_sandbox, CALL, &files, &err), -EOPNOTSUPP);
	cr_expect_eq(pai_sandbox_open_exec(&stub_sandbox, CALL, &fd, &err), -EOPNOTSUPP);
	cr_expect_eq(pai_sandbox_open_files(&stub_sandbox, CALL, &fd, &err), -EOPNOTSUPP);
	cr_expect_eq(pai_sandbox_open_line(
			 &stub_sandbox, (const char *const[]){"sh", NULL}, CALL, &fd, &err),
	    -EOPNOTSUPP);
	cr_expect_eq(pai_sandbox_keep_alive(&stub_sandbox, 1000, CALL, &err), 0);
	cr_expect_eq(pai_sandbox_keep_alive(&stub_sandbox, 0, CALL, &err), -EINVAL);
}

Test(provider, a_call_whose_time_is_over_is_not_made)
{
	struct pai_cancel *cancel = pai_cancel_new();
	struct pai_call late = {.deadline_ms = 1};
	struct pai_call cancelled = {.deadline_ms = PAI_NO_DEADLINE, .cancel = cancel};
	struct pai_err err = PAI_ERR_INIT;

	pai_cancel_fire(cancel);
	cr_expect_lt(pai_provider_probe(&stub, &late, &err), 0);
	cr_expect_eq(err.code, PAI_E_TIMEOUT);
	cr_expect_lt(pai_provider_probe(&stub, &cancelled, &err), 0);
	cr_expect_eq(err.code, PAI_E_CANCELLED);
	pai_cancel_unref(cancel);
}

Test(registry, a_wrong_name_or_option_is_one_line_with_what_was_expected)
{
	pai_auto_strmap struct pai_strmap options = PAI_STRMAP_INIT;
	struct pai_provider *p = NULL;
	struct pai_err err = PAI_ERR_INIT;

	cr_expect_eq(pai_provider_open("memroy", NULL, &p, &err), -EINVAL);
	cr_expect(strstr(err.msg, "memory"), "%s", err.msg);
	cr_expect_eq(pai_provider_open("./nosuch.so", NULL, &p, &err), -EINVAL);
	cr_expect(strstr(err.msg, "nosuch.so"), "%s", err.msg);
	cr_expect_eq(pai_provider_open("/lib/x86_64-linux-gnu/libm.so.6", NULL, &p, &err), -EINVAL);
	cr_assert_eq(pai_strmap_set(&options, "scirpt", "x"), 0);
	cr_expect_eq(pai_provider_open("memory", &options, &p, &err), -EINVAL);
	cr_expect(strstr(err.msg, "script"), "%s", err.msg);
	cr_expect_null(p);
	cr_expect_null(pai_provider_option_docs("nosuch"));
	cr_expect_str_eq(pai_provider_option_docs("memory")[0].name, "script");
}
