/*
 * outside: a client that knows the sessions of a mount by their directories: which one a path is
 * in, and the paths of an answer as that client has them.
 */
#ifndef PAI_EXECSHIM_MCP_OUTSIDE_H
#define PAI_EXECSHIM_MCP_OUTSIDE_H

#include "providers/base/json.h"
#include "providers/base/key.h"

/* MOUNT/NAME/...: the session, and what is its directory (MOUNT/NAME), which the caller frees.
 * INPUT for a path that is in none. */
int pai_mcp_session_of(const char *mount, const char *path, char key[PAI_KEY_MAX + 1],
    char **ret_dir, struct pai_err *err) PAI_WARN_UNUSED;
/* Paths in /workspace become paths in `dir`. -ENOMEM: some may have. */
int pai_mcp_outside(struct pai_json *answer, const char *dir) PAI_WARN_UNUSED;

#endif
