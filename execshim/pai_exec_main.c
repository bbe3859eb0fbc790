/* pai-exec: run a command in the sandbox of the session one stands in. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "execshim/exec_options.h"
#include "execshim/exec_report.h"
#include "execshim/exec_run.h"
#include "execshim/link.h"
#include "execshim/shell.h"
#include "providers/base/log.h"
#include "providers/base/version.h"

/* A closed standard descriptor must not be the number that the next open() returns: the command's
 * output would go into the daemon's socket. */
static void fill_standard_fds(void)
{
	for (int fd = 0; fd <= 2; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) {
			_exit(125);
		}
	}
}

static int find_and_open(const struct pai_exec_options *o, struct pai_target *t,
    struct pai_client **ret, struct pai_err *err)
{
	int r = pai_target_find(&o->target, t, err);

	if (r < 0) {
		return r;
	}
	if (t->place.key[0] == '\0') {
		return pai_err_set(err, PAI_E_INPUT,
		    t->by_mount
			? "you stand in the root of the mount: cd into a session's directory, "
			  "or name one with -s KEY"
			: "you stand in no session: cd into a directory of a paifs mount, or "
			  "name one with -s KEY");
	}
	return pai_target_open(t, "pai-exec", true, ret, err);
}

static void run(const struct pai_exec_options *o, struct pai_exec_result *result)
{
	pai_auto_client struct pai_client *c = NULL;
	struct pai_target t = {.by_mount = false};

	if (find_and_open(o, &t, &c, &result->err) == 0) {
		pai_shim_run(o, &t, c, result);
	}
	pai_target_fini(&t);
}

/* As the command would have; returns where the caller ignores the signal. */
static void die_of(int signo)
{
	sigset_t set;

	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* the core would be ours, not the command's */
	(void)signal(signo, SIG_DFL);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, signo);
	(void)sigprocmask(SIG_UNBLOCK, &set, NULL);
	(void)raise(signo);
}

/* As a link of `pai shell-init`. */
static void run_as_link(const char *name, int argc, char **argv, struct pai_exec_options *o,
    struct pai_exec_result *result)
{
	if (pai_link_options(name, argc, argv, o, &result->err) == 0) {
		(void)signal(SIGPIPE, SIG_IGN);
		run(o, result);
	} else if (result->err.code == PAI_E_NOT_FOUND) {
		result->code = 127;
	}
}

/* Whether there is anything to report. */
static bool run_as_exec(int argc, char **argv, struct pai_exec_options *o,
    struct pai_exec_result *result, int *ret_code)
{
	int parsed = pai_exec_options_parse(argc, argv, o, &result->err);

	if (parsed == 0 && o->mode != PAI_EXEC_RUN) {
		bool is_help = o->mode == PAI_EXEC_HELP;

		*ret_code =
		    fputs(is_help ? pai_exec_help : "pai-exec " PAI_VERSION "\n", stdout) < 0 ||
		    fflush(stdout) != 0;
		return false;
	}
	if (parsed == 0) {
		run(o, result);
	}
	return true;
}

int main(int argc, char **argv)
{
	struct pai_exec_result result = {.ending = PAI_ENDED_NOT_STARTED, .code = 125};
	struct pai_exec_options o = {.status_fd = -1};
	struct pai_shell_called called;
	char exe[PATH_MAX];
	bool is_shell = pai_shell_called_as(argc > 0 ? argv[0] : NULL, exe, &called);
	void (*old_pipe)(int);
	bool is_link;
	int code = 0;

	if (called.exe && !called.is_shell && argc > 1 && pai_shell_is_name(argv[1])) {
		argc--, argv++; /* busybox sh -c ... */
		is_shell = pai_shell_called_as(argv[0], exe, &called);
	}
	fill_standard_fds();
	if (is_shell) {
		pai_shell_go_home(&called, argv);
	}
	is_link =
	    !is_shell && !called.exe && called.name[0] && strcmp(called.name, "pai-exec") != 0;
	/* The next program on PATH gets what we were given. */
	old_pipe = is_link ? SIG_DFL : signal(SIGPIPE, SIG_IGN);
	pai_log_init("pai-exec");
	if (is_shell) {
		pai_shell_run(&called, argc, argv, &result);
	} else if (is_link) {
		run_as_link(called.name, argc, argv, &o, &result);
	} else if (!run_as_exec(argc, argv, &o, &result, &code)) {
		pai_exec_options_fini(&o);
		return code;
	}
	pai_exec_report_text(&result);
	if (o.status_fd >= 0) {
		pai_exec_report_status(&result, o.status_fd);
	}
	code = result.die_of ? 128 + result.die_of : result.code;
	pai_exec_options_fini(&o);
	pai_exec_result_fini(&result);
	if (result.die_of && !(result.die_of == SIGPIPE && old_pipe == SIG_IGN)) {
		die_of(result.die_of);
	}
	return code;
}
