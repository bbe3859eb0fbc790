/* The talk with the script, over a shell of this machine in the place of a login by ssh. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "providers/base/clock.h"
#include "providers/helper/find.h"
#include "providers/ssh/ssh.h"
#include "providers/transport/ssh_stream.h"

#define CALL_MS 20000

static struct {
	const char *login;  /* the shell that gets -c COMMAND */
	const char *before; /* what it prints first; NULL */
	char home[64];
	pid_t pid;
	int opened;
} box;

static void be_shell(int fd, const char *command)
{
	char home[80];
	char run[100];
	char *env[] = {home, run, (char[]){"PATH=/usr/bin:/bin"}, NULL};

	(void)snprintf(home, sizeof(home), "HOME=%s", box.home);
	/* The second place to try: the third is everybody's. */
	(void)snprintf(run, sizeof(run), "XDG_RUNTIME_DIR=%s/run", box.home);
	(void)dup2(fd, 0);
	(void)dup2(fd, 1);
	(void)close(2);
	(void)open("/dev/null", O_WRONLY);
	if (box.before) {
		(void)!write(1, box.before, strlen(box.before));
	}
	if (strstr(box.login, "busybox")) {
		(void)execle(box.login, "sh", "-c", command, NULL, env);
	}
	(void)execle(box.login, box.login, "-c", command, NULL, env);
	_exit(127);
}

static int open_shell(const struct pai_ssh_target *t, const char *command,
    const struct pai_call *call, struct pai_ssh_stream **ret, struct pai_err *err)
{
	int ends[2];

	(void)call, (void)err;
	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	box.opened++;
	box.pid = fork();
	if (box.pid == 0) {
		be_shell(ends[1], command);
	}
	(void)close(ends[1]);
	*ret = pai_ssh_stream_new(ends[0], t->host);
	cr_assert(*ret);
	return 0;
}

static void box_init(const char *login)
{
	box.login = login;
	(void)snprintf(box.home, sizeof(box.home), "/tmp/pai-unit-ssh-XXXXXX");
	cr_assert(mkdtemp(box.home));
}

static void box_fini(void)
{
	char command[128];

	(void)snprintf(command, sizeof(command), "rm -rf %s", box.home);
	cr_assert_eq(system(command), 0);
}

static const struct pai_call *in_time(void)
{
	static struct pai_call call;

	call.deadline_ms = pai_deadline_in(CALL_MS);
	return &call;
}

static int go(struct pai_err *err)
{
	const struct pai_ssh_target target = {.host = "box"};
	/* A root that can't be: the helper that was started ends at once. */
	const struct pai_ssh_bootstrap b = {
	    .open = open_shell, .target = &target, .root = "/dev/null/it's", .client = "c'l"};
	pai_auto_ssh_stream struct pai_ssh_stream *s = NULL;
	int r = pai_ssh_bootstrap(&b, in_time(), &s, err);

	pai_ssh_stream_free(PAI_TAKE(s));
	(void)waitpid(box.pid, NULL, 0);
	return r;
}

static bool have_helper(void)
{
	struct utsname here;
	char *path = NULL;
	bool have =
	    uname(&here) == 0 && pai_helper_find(here.machine, &path, PAI_ERR_IGNORED()) == 0;

	free(path);
	return have;
}
#define NEED_HELPER()                                                                              \
	do {                                                                                       \
		if (!have_helper()) {                                                              \
			cr_skip_test("no static helper was built here");                           \
		}                                                                                  \
	} while (0)

/* How many files pai-helper-* lie in the directory below the home, all of one mode. */
static int helpers_in(const char *rel, unsigned mode)
{
	char command[160];
	char out[16] = "";
	FILE *f;

	(void)snprintf(command, sizeof(command),
	    "find %s/%s -name 'pai-helper-*' -perm %o 2>/dev/null | wc -l", box.home, rel, mode);
	f = popen(command, "r");
	cr_assert(f && fgets(out, sizeof(out), f));
	(void)pclose(f);
	return (int)strtol(out, NULL, 10);
}

static const char *const shells[] = {"/bin/dash", "/bin/bash", "/bin/busybox"};

Test(bootstrap, a_helper_is_sent_once_and_found_again_in_every_shell, .timeout = 60)
{
	NEED_HELPER();
	for (size_t i = 0; i < PAI_COUNT(shells); i++) {
		struct pai_err err = PAI_ERR_INIT;
		struct stat first;
		struct stat second;
		char dir[96];

		if (access(shells[i], X_OK) < 0) {
			continue;
		}
		box_init(shells[i]);
		(void)snprintf(dir, sizeof(dir), "%s/.cache/paifs", box.home);
		cr_assert_eq(go(&err), 0, "%s: %s", shells[i], err.msg);
		cr_assert_eq(helpers_in(".cache/paifs", 0700), 1);
		cr_assert_eq(stat(dir, &first), 0);
		cr_assert_eq(first.st_mode & 07777, 0700);
		cr_assert_eq(go(&err), 0, "%s: %s", shells[i], err.msg);
		cr_assert_eq(stat(dir, &second), 0);
		cr_assert_eq(first.st_mtim.tv_nsec, second.st_mtim.tv_nsec, "it was sent again");
		box_fini();
	}
}

Test(bootstrap, a_banner_is_skipped, .timeout = 60)
{
	struct pai_err err = PAI_ERR_INIT;

	NEED_HELPER();
	box_init("/bin/sh");
	box.before = "Welcome!\nno newline at the end";
	cr_assert_eq(go(&err), 0, "%s", err.msg);
	box_fini();
}

Test(bootstrap, a_helper_with_other_bytes_is_replaced, .timeout = 60)
{
	struct pai_err err = PAI_ERR_INIT;
	char command[256];

	NEED_HELPER();
	box_init("/bin/sh");
	cr_assert_eq(go(&err), 0, "%s", err.msg);
	(void)snprintf(command, sizeof(command),
	    "for f in %s/.cache/paifs/pai-helper-*; do echo evil >$f; done", box.home);
	cr_assert_eq(system(command), 0);
	cr_assert_eq(go(&err), 0, "%s", err.msg);
	(void)snprintf(command, sizeof(command), "! grep -qs evil %s/.cache/paifs/*", box.home);
	cr_assert_eq(system(command), 0);
	box_fini();
}

Test(bootstrap, a_directory_that_is_a_link_is_not_used, .timeout = 60)
{
	struct pai_err err = PAI_ERR_INIT;
	char command[256];

	NEED_HELPER();
	box_init("/bin/sh");
	(void)snprintf(command, sizeof(command),
	    "mkdir -p %s/.cache %s/else && ln -s ../else %s/.cache/paifs", box.home, box.home,
	    box.home);
	cr_assert_eq(system(command), 0);
	cr_assert_eq(go(&err), 0, "%s", err.msg);
	cr_assert_eq(helpers_in("else", 0700), 0);
	cr_assert_eq(helpers_in("run/paifs", 0700), 1);
	box_fini();
}

Test(bootstrap, a_shell_that_prints_without_end_is_told, .timeout = 60)
{
	struct pai_err err = PAI_ERR_INIT;
	char filler[70000];

	box_init("/bin/sh");
	memset(filler, 'x', sizeof(filler));
	filler[sizeof(filler) - 1] = '\0';
	for (size_t i = 99; i < sizeof(filler); i += 100) {
		filler[i] = '\n';
	}
	filler[sizeof(filler) - 1] = '\0';
	box.before = filler;
	cr_assert_lt(go(&err), 0);
	cr_assert_eq(err.code, PAI_E_UNAVAILABLE, "%s", err.msg);
	cr_assert(strstr(err.msg, "prints without end"), "%s", err.msg);
	box_fini();
}

static int probe_root(const char *root, struct pai_err *err)
{
	const struct pai_ssh_target target = {.host = "box"};
	const struct pai_ssh_bootstrap b = {
	    .open = open_shell, .target = &target, .root = root, .client = "c"};
	int r = pai_ssh_probe(&b, in_time(), err);

	(void)waitpid(box.pid, NULL, 0);
	return r;
}

Test(bootstrap, a_probe_looks_and_writes_nothing, .timeout = 60)
{
	struct pai_err err = PAI_ERR_INIT;
	char path[96];

	for (size_t i = 0; i < PAI_COUNT(shells); i++) {
		if (access(shells[i], X_OK) < 0) {
			continue;
		}
		box_init(shells[i]);
		cr_assert_eq(probe_root("", &err), 0, "%s", err.msg);
		cr_assert_eq(probe_root("a/b/c", &err), 0, "%s", err.msg);
		cr_assert_eq(probe_root("~/it's", &err), 0, "%s", err.msg);
		(void)snprintf(path, sizeof(path), "%s/file", box.home);
		(void)close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
		cr_assert_lt(probe_root("file/below", &err), 0);
		cr_assert_eq(err.reason, PAI_REASON_NOT_SERVED);
		cr_assert(strstr(err.msg, "is no directory"), "%s", err.msg);
		(void)unlink(path);
		cr_assert_eq(rmdir(box.home), 0, "something was written");
	}
}
