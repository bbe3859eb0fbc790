/*
 * target: which daemon and session a command is for, from the options given and the place the
 * caller stands in.
 */
#ifndef PAI_EXECSHIM_TARGET_H
#define PAI_EXECSHIM_TARGET_H

#include "execshim/client.h"
#include "execshim/locate.h"

#define PAI_TOKEN_MAX 20

struct pai_target_options {
	const char *key;    /* -s, or NULL */
	const char *daemon; /* -n: NAME, or NAME@USER for another user's; or NULL */
	const char *dir;    /* -C, or NULL: a local path into a mount, or a sandbox path */
	const char *run;    /* --run, or NULL */
};
struct pai_target {
	struct pai_place place; /* daemon always; key "" when neither given nor stood in */
	bool by_mount;          /* place.dev is to be compared, and no daemon to be started */
	bool is_others;         /* of `owner`, who must have named the caller in control_uid= */
	uid_t owner;
	/* What `pai use` has said of this session, where it started us; else "": the one
	 * environment that everything is done in, and the turn in the exclusive queue that we are
	 * inside of. */
	char environment[PAI_ENVIRONMENT_TAG + 1];
	char token[PAI_TOKEN_MAX + 1];
	/* What this is part of: the seeds are checked once for each. --run, or what the `pai use`
	 * or `pai run` around us says; "": nothing. */
	char run[PAI_RUN_TEXT_MAX + 1];
};
#define PAI_USE_RUN "PAI_RUN"
/* How a program is told of the use that it runs in; all of them are set. */
#define PAI_USE_DAEMON "PAI_DAEMON"           /* as -n takes it */
#define PAI_USE_SESSION "PAI_SESSION"         /* the key */
#define PAI_USE_ENVIRONMENT "PAI_ENVIRONMENT" /* opaque */
#define PAI_USE_TOKEN "PAI_TOKEN"             /* opaque; "": not exclusive */
#define PAI_USE_RESET                                                                              \
	"PAI_ENVIRONMENT_RESET" /* "1": the second run, in a new environment; or                   \
				   the first, in one that is new to the caller */
void pai_target_fini(struct pai_target *t);

/* A run begins here, unless this is part of one. */
int pai_target_begin_run(struct pai_target *t, struct pai_err *err) PAI_WARN_UNUSED;

/* Its daemon as -n takes it. */
#define PAI_TARGET_DAEMON_MAX (PAI_DAEMON_NAME_MAX + 16)
const char *pai_target_daemon(const struct pai_target *t, char ret[PAI_TARGET_DAEMON_MAX]);

/* pai_key_check(), with the key in the message. */
int pai_target_check_key(const char *key, struct pai_err *err) PAI_WARN_UNUSED;

/* May change the working directory (to `dir`). INPUT for what contradicts itself. */
int pai_target_find(const struct pai_target_options *o, struct pai_target *ret,
    struct pai_err *err) PAI_WARN_UNUSED;
/* pai_client_open() for it. `start`: on demand, where the rules allow it. */
int pai_target_open(const struct pai_target *t, const char *program, bool start,
    struct pai_client **ret, struct pai_err *err) PAI_WARN_UNUSED;

#endif
