/*
 * memory: sandboxes in this process, for tests and demos. Each is a file tree (tree.h) and a shell
 * with built-in commands (shell.h); commands may also be scripted. Nothing outlives the process,
 * nothing reaches the network, and no program of the host is started.
 *
 *   network    none only: POLICY_MISMATCH for the rest
 *   template   the names that the script defines; POLICY_MISMATCH for any other
 *   resources  INPUT: there is nothing to limit
 *   ttl        counts from create and keep_alive; a paused sandbox does not expire, and resuming
 *              starts its ttl anew
 *   pause      a command that is running ends with UNAVAILABLE; so do calls until connect()
 *
 * A script (option `script=FILE`) is JSON, all members optional but "match":
 *   {"commands": [{"match": "npm *", "stdout": "...", "stderr": "...", "exit": 1,
 *                  "delay_ms": 100, "times": 2,
 *                  "files": [{"path": "out.txt", "text": "..."}, {"path": "old", "remove":
 * true}]}], "templates": {"NAME": [{"path": "README", "text": "hello"}]}} "match" is an fnmatch(3)
 * pattern for the whole command line; the first entry that matches and has `times` left answers,
 * before the built-in commands. Files change after the delay; relative paths are below /workspace.
 */
#ifndef PAI_MEMORY_MEMORY_H
#define PAI_MEMORY_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "providers/provider.h"

struct pai_memory_file {
	const char *path;
	const char *data; /* NULL: remove it */
	size_t len;
};
struct pai_memory_command {
	const char *match;
	const char *out, *err; /* NULL: nothing */
	int exit_code;
	uint64_t delay_ms;
	uint64_t times; /* 0: always */
	const struct pai_memory_file *files;
	size_t file_count;
};

/* `p` must be a memory provider, not a decorator over one. Everything is copied. Any thread. */
int pai_memory_add_command(struct pai_provider *p, const struct pai_memory_command *command,
    struct pai_err *err) PAI_WARN_UNUSED;
int pai_memory_add_template(struct pai_provider *p, const char *name,
    const struct pai_memory_file *files, size_t count, struct pai_err *err) PAI_WARN_UNUSED;

#endif
