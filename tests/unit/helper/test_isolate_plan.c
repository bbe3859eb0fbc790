#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "providers/helper/isolate_plan.h"

static int parse(
    const char *const *argv, size_t argc, struct pai_isolate_plan *ret, struct pai_err *err)
{
	return pai_isolate_parse((int)argc, (char **)(uintptr_t)argv, ret, err);
}
#define PARSE(ret, err, ...)                                                                       \
	parse((const char *const[]){"isolate", __VA_ARGS__, NULL},                                 \
	    PAI_COUNT(((const char *const[]){"isolate", __VA_ARGS__})), (ret), (err))

Test(isolate_plan, what_local_says_is_understood)
{
	PAI_AUTO(pai_isolate_plan_fini) struct pai_isolate_plan p = {0};
	struct pai_err err = PAI_ERR_INIT;
	static const char *const argv[] = {"isolate", "--unshare-net", "--as-pid-1", "--ro-bind",
	    "/usr", "/usr", "--ro-bind-try", "/a", "/b", "--dev-bind", "/dev", "/dev", "--bind-fd",
	    "10", "/tmp", "--symlink", "usr/bin", "/bin", "--tmpfs", "/etc/x", "--proc", "/proc",
	    "--cap-drop", "ALL", "--cap-add", "CAP_CHOWN", "--remount-ro", "/", "--chdir",
	    "/workspace", "--", "prog", "-x", NULL};

	cr_assert_eq(parse(argv, PAI_COUNT(argv) - 1, &p, &err), 0, "%s", err.msg);
	cr_assert_eq(p.namespaces, CLONE_NEWNET);
	cr_assert_eq(p.count, 8);
	cr_assert(p.steps[0].kind == PAI_ISOLATE_BIND && p.steps[0].is_read_only &&
		  !p.steps[0].has_devices && !p.steps[0].may_lack);
	cr_assert(p.steps[1].may_lack && strcmp(p.steps[1].to, "/b") == 0);
	cr_assert(p.steps[2].has_devices && !p.steps[2].is_read_only);
	cr_assert(p.steps[3].kind == PAI_ISOLATE_BIND_FD && strcmp(p.steps[3].from, "10") == 0);
	cr_assert(
	    p.steps[4].kind == PAI_ISOLATE_SYMLINK && strcmp(p.steps[4].from, "usr/bin") == 0);
	cr_assert(p.has_capabilities && p.capabilities == 1);
	cr_assert_str_eq(p.cwd, "/workspace");
	cr_assert(strcmp(p.argv[0], "prog") == 0 && strcmp(p.argv[1], "-x") == 0);
}

Test(isolate_plan, arguments_come_by_a_descriptor_too)
{
	static const char text[] = "--tmpfs\0/a\0--dir\0/b"; /* and its NUL */
	PAI_AUTO(pai_isolate_plan_fini) struct pai_isolate_plan p = {0};
	struct pai_err err = PAI_ERR_INIT;
	char number[16];
	int fd = memfd_create("args", MFD_CLOEXEC);

	cr_assert_eq(write(fd, text, sizeof(text)), (ssize_t)sizeof(text));
	cr_assert_eq(lseek(fd, 0, SEEK_SET), 0);
	(void)snprintf(number, sizeof(number), "%d", fd);
	cr_assert_eq(
	    PARSE(&p, &err, "--args", number, "--dir", "/c", "--", "prog"), 0, "%s", err.msg);
	cr_assert_eq(p.count, 3);
	cr_assert_str_eq(p.steps[1].to, "/b");
	cr_assert_str_eq(p.steps[2].to, "/c");
	cr_assert_eq(fcntl(fd, F_GETFD), -1, "it is closed");
}

Test(isolate_plan, what_it_does_not_know_is_refused)
{
	struct pai_isolate_plan p = {0};
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(PARSE(&p, &err, "--bind", "/a", "/b", "prog"), -EINVAL);
	cr_assert(strstr(err.msg, "'--bind'"));
	cr_assert_eq(PARSE(&p, &err, "--cap-add", "CAP_SYS_ADMIN", "prog"), -EINVAL);
	cr_assert_eq(PARSE(&p, &err, "--cap-drop", "CAP_CHOWN", "prog"), -EINVAL);
	cr_assert_eq(PARSE(&p, &err, "--tmpfs", "relative", "prog"), -EINVAL);
	cr_assert_eq(PARSE(&p, &err, "--tmpfs"), -EINVAL);
	cr_assert_eq(PARSE(&p, &err, "--args", "2", "prog"), -EINVAL);
	cr_assert_eq(PARSE(&p, &err, "--dir", "/a"), -EINVAL, "no program");
	cr_assert_eq(PARSE(&p, &err, "--dir", "/a", "--"), -EINVAL);
}
