/*
 * shell_env: which variables of an agent's shell go along into the sandbox: those that the agent
 * added or changed since it began, less what belongs to this machine and what looks like a secret.
 */
#ifndef PAI_EXECSHIM_SHELL_ENV_H
#define PAI_EXECSHIM_SHELL_ENV_H

#include "providers/base/buf.h"
#include "providers/base/err.h"
#include "providers/base/strmap.h"

enum pai_shell_env_verdict {
	PAI_ENV_PASSED,
	PAI_ENV_EMPTIED,   /* one of git's numbered settings: without it git fails */
	PAI_ENV_INHERITED, /* the agent has it from you */
	PAI_ENV_HOSTS,     /* PATH, HOME, SHELL, LD_*, proxies, ... */
	PAI_ENV_SECRET,    /* by its name, or a URL with a password */
	PAI_ENV_HOST_PATH, /* a path of this machine is in its value */
};
/* "passed", "refused: ..." */
const char *pai_shell_env_verdict_name(enum pai_shell_env_verdict v);

/* `start`: "NAME=VALUE", NUL after each. `env` is where git's numbered settings are looked up. */
enum pai_shell_env_verdict pai_shell_env_judge(
    const struct pai_buf *start, char *const env[], const char *entry);
/* Adds to *ret what is passed. */
int pai_shell_env_take(const struct pai_buf *start, char *const env[], struct pai_strmap *ret,
    struct pai_err *err) PAI_WARN_UNUSED;

#endif
