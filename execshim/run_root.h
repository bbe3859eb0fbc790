/*
 * run_root: the root directory that the agent of `pai run` sees: this machine's, with the session
 * at /workspace, a folder of ours (run_place.h), and pai-exec over the file of every shell.
 *
 * Threading: for a process with one thread, which is in its own mount namespace from then on.
 */
#ifndef PAI_EXECSHIM_RUN_ROOT_H
#define PAI_EXECSHIM_RUN_ROOT_H

#include <stddef.h>

#include "providers/base/err.h"

/* The files that shells are, resolved, each once: of /etc/shells, of the usual folders and of PATH.
 */
struct pai_run_shells {
	char **files;
	size_t count;
};
void pai_run_shells_fini(struct pai_run_shells *s);
/* `own`: pai-exec's file, which is no shell whatever links are named. */
int pai_run_shells_find(
    const char *own, struct pai_run_shells *ret, struct pai_err *err) PAI_WARN_UNUSED;

struct pai_run_root {
	const char *session; /* what is to be /workspace; this and the next without links in them */
	const char *shim;    /* pai-exec */
	const struct pai_run_shells *shells;
	const char *place, *env; /* the texts of PAI_RUN_FILE and PAI_RUN_ENV */
	size_t env_len;
};
/* SYS EPERM and the like with what to do: the caller is not root, and namespaces of users are not
 * to be had. After a failure the process is only good for ending. */
int pai_run_root_enter(const struct pai_run_root *root, struct pai_err *err) PAI_WARN_UNUSED;

#endif
