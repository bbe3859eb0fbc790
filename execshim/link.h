/*
 * link: pai-exec under the name of a program (`pai shell-init`): that program in the sandbox for
 * who stands in a session's directory, else the next one of that name on PATH. The next one too
 * where an option or a variable names a path outside of the session: a git of an agent's own
 * snapshots, say.
 */
#ifndef PAI_EXECSHIM_LINK_H
#define PAI_EXECSHIM_LINK_H

#include "execshim/exec_options.h"

/* What pai-exec is to run, or becomes the next program on PATH and doesn't return. NOT_FOUND where
 * there is none; pai_exec_options_fini() in either case. */
int pai_link_options(const char *name, int argc, char **argv, struct pai_exec_options *ret,
    struct pai_err *err) PAI_WARN_UNUSED;
/* A file that would become ours is not to be run by a link: what runs programs is named by others'
 * first lines. */
bool pai_link_is_interpreter(const char *name);

#endif
