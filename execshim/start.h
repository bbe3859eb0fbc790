/*
 * start: `paifs --no-mount` on demand, for commands given outside a mount.
 */
#ifndef PAI_EXECSHIM_START_H
#define PAI_EXECSHIM_START_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/base/err.h"

/*
 * Starts the daemon `name` from the configuration file NAME.conf alone, in / and with a clean
 * environment (HOME, USER, PATH, XDG_*): nothing of the workspace the caller stands in reaches
 * it. Returns when it serves. INPUT without a usable configuration; UNAVAILABLE with the daemon's
 * own words when it ended; TIMEOUT.
 */
int pai_daemon_start(const char *name, uint64_t deadline_ms, struct pai_err *err) PAI_WARN_UNUSED;
/* Whether NAME.conf is there to start it from, be it good or not. */
bool pai_daemon_is_configured(const char *name);
/* The file a program of ours lies in, beside this one or where this library was installed:
 * "pai-conformance". The caller frees. */
int pai_program_beside(const char *program, char **ret, struct pai_err *err) PAI_WARN_UNUSED;
/* INPUT unless NAME.conf exists, is the user's or root's alone to write, and names a provider. */
int pai_config_check(const char *path, struct pai_err *err) PAI_WARN_UNUSED;

#endif
