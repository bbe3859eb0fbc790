/*
 * shell: pai-exec under the name of a shell. Whatever a program asks of that shell is asked of the
 * one of the same name in the sandbox, with the caller's arguments as they are; never of a shell of
 * this machine, save where shell_host.h says so.
 *
 * The session is the one of `pai run` (run_place.h), else the one that the caller stands in.
 */
#ifndef PAI_EXECSHIM_SHELL_H
#define PAI_EXECSHIM_SHELL_H

#include <stdbool.h>

#include "execshim/exec_run.h"

extern const char *const pai_shell_names[]; /* NULL-terminated */
/* The name of a shell that runs lines of a user's: "bash", not "tmux", "git-shell" or "nologin". */
bool pai_shell_is_name(const char *name);

struct pai_shell_called {
	const char *name; /* the shell's: "bash"; "pai-sh" */
	const char *exe;  /* the file that was executed, where a shell's file is ours; else NULL */
	bool is_shell;    /* false: another name of the many that a masked busybox has */
};
/* Whether this program was called as something else than pai-exec: by its file (a mask over
 * /bin/bash), or by argv[0] (a link). `exe_room` holds PATH_MAX bytes. */
bool pai_shell_called_as(const char *argv0, char *exe_room, struct pai_shell_called *ret);

/* stdin and stdout are a terminal that is ours to use: -t is implied. */
bool pai_shell_has_terminal(void);

/* Becomes the file that a mask hides, where this call is for that one; else returns. */
void pai_shell_go_home(const struct pai_shell_called *called, char **argv);
/* As pai_shim_run(), whatever fails. */
void pai_shell_run(
    const struct pai_shell_called *called, int argc, char **argv, struct pai_exec_result *ret);

#endif
