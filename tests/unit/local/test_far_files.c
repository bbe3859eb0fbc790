/* -o workspace=helper: the files are served by a process of its own. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/base/pool.h"
#include "providers/helper/ws_line.h"
#include "tests/unit/local/fixture.h"

static struct pai_provider *far;
static struct pai_sandbox *sb;

static void set_up(void)
{
	pai_auto_strmap struct pai_strmap options = PAI_STRMAP_INIT;
	const struct pai_create_input empty = {.network = {.access = PAI_NETWORK_NONE}};
	struct pai_err err = PAI_ERR_INIT;
	char path[512];
	char *slash;
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);

	cr_assert_gt(n, 0);
	path[n] = '\0';
	for (int i = 0; i < 2; i++) {
		slash = strrchr(path, '/');
		*slash = '\0';
	}
	(void)snprintf(slash, 16, "/pai-helper");
	cr_assert_eq(setenv("PAI_HELPER", path, 1), 0);
	local_set_up();
	cr_assert_eq(pai_strmap_set(&options, "root", local_root), 0);
	cr_assert_eq(pai_strmap_set(&options, "workspace", "helper"), 0);
	cr_assert_eq(pai_provider_open("local", &options, &far, &err), 0, "%s", err.msg);
	cr_assert_eq(pai_provider_create(far, &empty, &call, &sb, &err), 0, "%s", err.msg);
}

static void tear_down(void)
{
	pai_sandbox_free(sb);
	pai_provider_free(far);
	local_tear_down();
}

TestSuite(far_files, .init = set_up, .fini = tear_down, .timeout = 30);

static int open_files(void *arg, const struct pai_call *within, int *ret_fd, struct pai_err *err)
{
	return pai_sandbox_open_files(arg, within, ret_fd, err);
}

static void nothing(struct pai_ws_req *req)
{
	(void)req;
}

static int run(struct pai_ws *ws, struct pai_ws_req req)
{
	req.done = nothing;
	return pai_ws_wait(ws, &req, PAI_CALL_UNBOUNDED);
}

Test(far_files, there_is_no_directory_of_this_host)
{
	struct pai_host_files files;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_sandbox_host_files(sb, &call, &files, &err), -EOPNOTSUPP);
}

Test(far_files, a_helper_serves_the_workspace_until_it_is_killed)
{
	struct pai_pool *pool = pai_pool_new("test", 2, 16);
	struct pai_ws_line_config line = {.open = open_files, .arg = sb};
	struct pai_ws_config config = {.pool = pool};
	struct pai_ws_req make = {
	    .op = PAI_WS_MKDIR, .at = {.path = ""}, .name = "d", .in.make.mode = 0755};
	struct pai_ws_req look = {.op = PAI_WS_LOOKUP, .at = {.path = ""}, .name = "d"};
	struct pai_err err = PAI_ERR_INIT;
	struct pai_ws *ws = NULL;
	int fd = -1;

	cr_assert_eq(pai_ws_line_new(&line, &config, &call, &ws, &err), 0, "%s", err.msg);
	cr_assert_eq(run(ws, make), 0);
	cr_assert_eq(access(local_path(sb, "workspace/d"), F_OK), 0);
	cr_assert_eq(run(ws, look), 0);
	cr_assert_eq(pai_sandbox_kill(sb, &call, &err), 0, "%s", err.msg);
	cr_assert_eq(run(ws, look), ESTALE);
	cr_assert_eq(ws->gone, 1);
	cr_assert_eq(pai_sandbox_open_files(sb, &call, &fd, &err), -ESTALE);
	pai_ws_unref(ws);
	pai_pool_free(pool);
}

Test(far_files, the_option_has_two_values)
{
	pai_auto_strmap struct pai_strmap options = PAI_STRMAP_INIT;
	struct pai_provider *p = NULL;
	struct pai_err err = PAI_ERR_INIT;
	int fd = -1;

	cr_assert_eq(pai_strmap_set(&options, "workspace", "elsewhere"), 0);
	cr_assert_eq(pai_provider_open("local", &options, &p, &err), -EINVAL);
	cr_assert_str_eq(err.msg, "local: workspace=elsewhere: expected host or helper");
	pai_sandbox_free(sb);
	sb = local_create(NULL);
	cr_assert_eq(pai_sandbox_open_files(sb, &call, &fd, &err), -EOPNOTSUPP);
}
