/*
 * path: sandbox paths. `/workspace` names the workspace on every provider. In contract calls a
 * relative path resolves against it; `.`, `..` and doubled slashes are resolved by text, and `..`
 * never climbs above the root. A path with a NUL, empty, or over PAI_PATH_MAX bytes is INPUT.
 */
#ifndef PAI_BASE_PATH_H
#define PAI_BASE_PATH_H

#include <stdbool.h>
#include <sys/types.h>

#include "providers/base/err.h"

#define PAI_WORKSPACE "/workspace"
#define PAI_PATH_MAX 65536 /* bytes: deeper trees than the kernel's PATH_MAX exist, by chdir */

/* The normalised absolute sandbox path; *ret is the caller's, free(). */
int pai_path_resolve(const char *path, char **ret, struct pai_err *err) PAI_WARN_UNUSED;
/* For a normalised absolute path: the part below /workspace ("" for itself), borrowed from `path`,
 * or NULL when it lies outside. */
const char *pai_path_in_workspace(const char *path);
/* "a/b" and "c" to "a/b/c"; an empty dir gives name. NULL without memory. */
char *pai_path_join(const char *dir, const char *name);
/* mkdir -p below dirfd with openat2(RESOLVE_BENEATH|RESOLVE_NO_SYMLINKS) steps; returns an O_PATH
 * descriptor of the last directory. mode is for the ones that are made. */
int pai_mkdir_beneath(
    int dirfd, const char *rel, unsigned mode, int *ret_fd, struct pai_err *err) PAI_WARN_UNUSED;
/* The per-user directories of ours, made 0700 (a runtime one that is shared: 0711) and checked
 * (owner, mode, not a link) through an open descriptor. Each returns a path the caller frees. state
 * $XDG_STATE_HOME/paifs or ~/.local/state/paifs; root without HOME: /var/lib/paifs runtime
 * $XDG_RUNTIME_DIR/paifs, /run/user/UID/paifs, for root /run/paifs, else a 0700 directory of ours
 * in /tmp config   $XDG_CONFIG_HOME/paifs or ~/.config/paifs; never made, may not exist */
int pai_state_dir(char **ret, struct pai_err *err) PAI_WARN_UNUSED;
int pai_runtime_dir(char **ret, struct pai_err *err) PAI_WARN_UNUSED;
int pai_config_dir(char **ret, struct pai_err *err) PAI_WARN_UNUSED;
/* The user's home by the password file, not by an environment; free() it. NULL: none. */
char *pai_home_of_user(uid_t uid);
/* Where sockets of this user's lie that others may use too: /run/paifs for root, else
 * /tmp/paifs-UID. Whoever connects there must compare the peer's uid: the name proves nothing. */
const char *pai_shared_dir(uid_t uid, char ret[64]);
/* Makes the caller's: 0711, nobody else's, not a link. */
int pai_shared_dir_make(struct pai_err *err) PAI_WARN_UNUSED;

#endif
