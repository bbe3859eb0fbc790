#include "execshim/shell.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "execshim/exec_options.h"
#include "execshim/run_place.h"
#include "execshim/shell_env.h"
#include "execshim/shell_host.h"
#include "providers/base/path.h"

#define PAI_SH "pai-sh"
#define OWN_NAME "pai-exec"

const char *const pai_shell_names[] = {"sh", "bash", "dash", "zsh", "ash", "ksh", "ksh93", "mksh",
    "lksh", "yash", "rbash", "rzsh", "rksh", "csh", "tcsh", "fish", "nu", "xonsh", "elvish", "pwsh",
    PAI_SH, NULL};

struct call {
	const struct pai_shell_called *called;
	struct pai_run_place place;
	bool in_run;
	struct pai_exec_options o;
	struct pai_exec_result result;
};

bool pai_shell_is_name(const char *name)
{
	for (size_t i = 0; pai_shell_names[i]; i++) {
		if (strcmp(name, pai_shell_names[i]) == 0) {
			return true;
		}
	}
	return false;
}

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The process's file is what the kernel says, whatever the caller put into argv[0]. */
bool pai_shell_called_as(const char *argv0, char *exe_room, struct pai_shell_called *ret)
{
	ssize_t n = readlink("/proc/self/exe", exe_room, PATH_MAX - 1);
	const char *own = last_part(argv0 ? argv0 : "");
	const char *file;

	own += *own == '-';
	exe_room[n > 0 ? n : 0] = '\0';
	file = last_part(exe_room);
	*ret = (struct pai_shell_called){.name = own};
	if (strcmp(file, OWN_NAME) == 0) {
		ret->is_shell = pai_shell_is_name(own);
		return ret->is_shell;
	}
	ret->exe = exe_room;
	ret->is_shell = pai_shell_is_name(own) || pai_shell_is_name(file);
	ret->name = pai_shell_is_name(own) ? own : file;
	return ret->is_shell || access(PAI_RUN_FILE, F_OK) == 0;
}

void pai_shell_go_home(const struct pai_shell_called *called, char **argv)
{
	struct pai_run_place place;
	pai_auto_free char *path = NULL;
	bool is_hosts = !called->is_shell;

	if (!called->exe || pai_run_place_load(&place, PAI_ERR_IGNORED()) <= 0) {
		return;
	}
	is_hosts = is_hosts || pai_shell_is_hosts(&place, argv);
	pai_run_place_fini(&place);
	if (!is_hosts) {
		return;
	}
	if (asprintf(&path, "%s%s", PAI_RUN_HOST, called->exe) >= 0) {
		(void)execv(path, argv);
	}
	(void)fprintf(stderr, "pai-exec: nothing ran: '%s' of this machine: %s\n", called->exe,
	    strerrordesc_np(errno));
	_exit(125);
}

/* --- what is run --- */

/* `bash` instead of `-bash`, which is how login(1) and su(1) say -l. */
static int set_argv(struct call *c, int argc, char **argv, struct pai_err *err)
{
	static char bash[] = "bash", dash_c[] = "-c", dash_l[] = "-l";
	const char *name = c->called->name;
	bool is_ours = strcmp(name, PAI_SH) == 0;
	char **list = calloc((size_t)argc + 3, sizeof(*list));
	size_t at = 0;

	c->o.argv = list;
	if (!list) {
		return pai_err_no_memory(err);
	}
	if (is_ours && argc > 2) {
		memcpy(list, argv + 1, (size_t)(argc - 1) * sizeof(*list));
		return 0;
	}
	if (is_ours) {
		list[at++] = bash;
		if (argc == 2) {
			list[at++] = dash_c;
			list[at++] = argv[1];
		}
		return 0;
	}
	/* A mask's path is that of a shell, a link's is of this machine alone. */
	if (!c->called->exe) {
		list[at++] = (char *)(uintptr_t)name;
	} else if (argv[0][0] == '-' || !pai_shell_is_name(last_part(argv[0]))) {
		list[at++] = (char *)(uintptr_t)c->called->exe;
	} else {
		list[at++] = argv[0];
	}
	if (argv[0][0] == '-') {
		list[at++] = dash_l;
	}
	memcpy(list + at, argv + 1, (size_t)(argc - 1) * sizeof(*list));
	return 0;
}

/* A job in the background must not touch the terminal: it would be stopped. */
bool pai_shell_has_terminal(void)
{
	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) &&
	       tcgetpgrp(STDIN_FILENO) == getpgrp();
}

static int set_env(struct call *c, struct pai_err *err)
{
	pai_auto_buf struct pai_buf start = PAI_BUF_INIT(1);
	const char *term = getenv("TERM");
	int r = c->in_run ? pai_run_place_env(&start, err) : 0;

	r = r < 0 || !c->in_run ? r : pai_shell_env_take(&start, environ, &c->o.env, err);
	if (r < 0) {
		return r;
	}
	if (c->o.tty && term && pai_strmap_set(&c->o.env, "TERM", term) < 0) {
		return pai_err_no_memory(err);
	}
	if (c->place.tmp && pai_strmap_set(&c->o.env, "TMPDIR", c->place.tmp) < 0) {
		return pai_err_no_memory(err);
	}
	return 0;
}

static int set_options(struct call *c, int argc, char **argv, struct pai_err *err)
{
	int r;

	c->o = (struct pai_exec_options){.status_fd = -1, .tty = pai_shell_has_terminal()};
	c->o.lingers = !c->o.tty;
	c->o.dies_alike = true;
	if (c->in_run) {
		c->o.target.key = c->place.key;
		c->o.target.daemon = c->place.daemon;
		c->o.target.run = c->place.run;
		if (c->place.runtime_dir &&
		    setenv("XDG_RUNTIME_DIR", c->place.runtime_dir, 1) < 0) {
			return pai_err_no_memory(err);
		}
	}
	r = set_argv(c, argc, argv, err);
	return r < 0 ? r : set_env(c, err);
}

/* --- the run --- */

/* A working directory that says nothing about the session is /workspace there. */
static int find(const struct call *c, struct pai_target *t, struct pai_err *err)
{
	int r = pai_target_find(&c->o.target, t, err);

	if (r < 0 && c->in_run && chdir("/") == 0) {
		*err = (struct pai_err)PAI_ERR_INIT;
		r = pai_target_find(&c->o.target, t, err);
	}
	if (r == 0 && t->place.key[0] == '\0') {
		pai_target_fini(t);
		return pai_err_set(err, PAI_E_INPUT,
		    "'%s' stands for a sandbox's shell here, and this is no session's directory",
		    c->called->name);
	}
	return r;
}

static void run_once(struct call *c)
{
	struct pai_exec_result *result = &c->result;
	pai_auto_client struct pai_client *client = NULL;
	struct pai_target t = {.by_mount = false};

	*result = (struct pai_exec_result){.ending = PAI_ENDED_NOT_STARTED, .code = 125};
	if (find(c, &t, &result->err) < 0) {
		return;
	}
	if (pai_target_open(&t, c->called->name, !c->in_run, &client, &result->err) == 0) {
		pai_shim_run(&c->o, &t, client, result);
	} else if (result->err.errnum == EPERM) {
		(void)pai_err_set(&result->err, PAI_E_UNAVAILABLE,
		    "the agent's own sandbox forbids Unix sockets: switch it off, its commands run "
		    "in "
		    "a sandbox here");
	}
	pai_target_fini(&t);
}

/* Nothing ran, for want of a thing that another try can do without. */
static bool try_less(struct call *c)
{
	static char sh[] = "sh";
	const struct pai_exec_result *r = &c->result;
	char *program = c->o.argv[0];

	if (r->ending != PAI_ENDED_NOT_STARTED) {
		return false;
	}
	if (r->no_cwd && c->o.target.dir == NULL) {
		c->o.target.dir = PAI_WORKSPACE;
		return true;
	}
	if (r->code == 127 && program[0] == '/' && pai_shell_is_name(last_part(program))) {
		c->o.argv[0] = (char *)(uintptr_t)last_part(program);
		return true;
	}
	if (r->code == 127 && strcmp(c->called->name, PAI_SH) == 0 &&
	    strcmp(program, "bash") == 0) {
		c->o.argv[0] = sh;
		return true;
	}
	return false;
}

static void run(struct call *c)
{
	run_once(c);
	while (try_less(c)) {
		pai_exec_result_fini(&c->result);
		run_once(c);
	}
}

void pai_shell_run(
    const struct pai_shell_called *called, int argc, char **argv, struct pai_exec_result *ret)
{
	struct call c = {.called = called};
	struct pai_err *err = &c.result.err;
	int r = pai_run_place_load(&c.place, err);

	c.result.code = 125;
	c.in_run = r > 0;
	if (r >= 0 && set_options(&c, argc, argv, err) == 0) {
		run(&c);
	}
	pai_exec_options_fini(&c.o);
	pai_run_place_fini(&c.place);
	*ret = c.result;
}
