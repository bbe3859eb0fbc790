/*
 * shell_host: which shells stay on this machine, inside `pai run`:
 *   - what `pai host` runs, and the shells that a shell of this machine starts itself
 *   - what ssh and gpg start: proxies, pinentries
 *   - what git starts for credentials and transport, when git's own configuration of this machine
 *     names it: a workspace's configuration is not asked
 *   - the agent itself, where it begins as a shell's script
 */
#ifndef PAI_EXECSHIM_SHELL_HOST_H
#define PAI_EXECSHIM_SHELL_HOST_H

#include <stdbool.h>

#include "execshim/run_place.h"

/* May leave the working directory (to "/") and drop git's variables, for a helper of git's. */
bool pai_shell_is_hosts(const struct pai_run_place *place, char *const argv[]);

/* The part without I/O: whether `line`, a shell's, is `command` with what git puts behind it. */
bool pai_shell_is_git_helper(const char *line, const char *command);

#endif
