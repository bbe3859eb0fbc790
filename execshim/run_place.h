/*
 * run_place: what `pai run` leaves for the shells of its agent, at a fixed path in the agent's own
 * mount namespace: an agent may drop every variable (su -), start shells anywhere and long after.
 */
#ifndef PAI_EXECSHIM_RUN_PLACE_H
#define PAI_EXECSHIM_RUN_PLACE_H

#include <stdbool.h>
#include <sys/types.h>

#include "execshim/locate.h"
#include "providers/base/buf.h"
#include "providers/wire/control_msg.h"

#define PAI_RUN_DIR "/.paifs"           /* in the agent's root, read-only but for the tmux folder */
#define PAI_RUN_FILE PAI_RUN_DIR "/run" /* a struct pai_run_place, as JSON */
#define PAI_RUN_ENV PAI_RUN_DIR "/env"  /* the agent's environment when it began, NUL-separated */
#define PAI_RUN_HOST PAI_RUN_DIR "/host" /* the true shells, each at its own path below this */
#define PAI_RUN_TMUX PAI_RUN_DIR "/tmux" /* servers of another namespace don't count here */

/* "1": shells are this machine's, set by `pai host`. */
#define PAI_HOST_VARIABLE "PAI_HOST"

struct pai_run_place {
	char daemon[PAI_DAEMON_NAME_MAX + 1];
	char key[PAI_KEY_MAX + 1];
	char run[PAI_RUN_TEXT_MAX + 1]; /* all of it is one */
	char *runtime_dir;              /* where the daemon's socket is: XDG_RUNTIME_DIR, or NULL */
	char *tmp;                      /* the shared temp directory, the same path on both sides */
	pid_t agent;                    /* that `pai run` became */
	bool is_script; /* the agent began as a shell's script: that one shell is this machine's */
};
void pai_run_place_fini(struct pai_run_place *p);

/* 1: *ret is filled. 0: not inside `pai run`. PROTOCOL for a file that is not to be believed. */
int pai_run_place_load(struct pai_run_place *ret, struct pai_err *err) PAI_WARN_UNUSED;
int pai_run_place_print(
    const struct pai_run_place *p, char **ret, struct pai_err *err) PAI_WARN_UNUSED;
/* The agent's first environment; "" where there is none. */
int pai_run_place_env(struct pai_buf *ret, struct pai_err *err) PAI_WARN_UNUSED;

#endif
