/*
 * shell: the part of a POSIX shell that memory's commands need, over a tree: lists (`;`, newline,
 * `&&`, `||`), pipes (a stage ends before the next starts), groups (`( )`, `{ }`), redirections to
 * and from files, quotes, `$NAME`, `${NAME}`, `$?`, `$1`.. and "$@", assignments, and the built-in
 * commands of builtins.c. No substitution of commands, no loops, no `if`, no background, no
 * patterns: such a line is a syntax error with status 2, never half run.
 *
 * An unquoted variable is one word, whatever blanks are in it.
 */
#ifndef PAI_MEMORY_SHELL_H
#define PAI_MEMORY_SHELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "providers/base/buf.h"
#include "providers/base/strmap.h"
#include "providers/memory/tree.h"
#include "providers/provider.h"

/* How a shell reaches its surroundings. A negative value from any of them ends the command line at
 * once and comes out of pai_shell_run(). */
struct pai_shell_host {
	/* Takes the lock of the tree; fails when the command must not go on. */
	int (*enter)(void *arg);
	void (*leave)(void *arg);
	/* Not called with the lock held. */
	int (*emit)(void *arg, enum pai_stream stream, const char *data, size_t len);
	int (*sleep)(void *arg, uint64_t ms);
};

enum pai_sink_kind {
	PAI_SINK_STREAM,
	PAI_SINK_FILE,
	PAI_SINK_PIPE,
	PAI_SINK_NULL,
};
struct pai_sink {
	enum pai_sink_kind kind;
	enum pai_stream stream;
	char *path;         /* FILE */
	struct pai_buf buf; /* PIPE */
};

struct pai_shell {
	const struct pai_shell_host *host;
	void *arg;
	struct pai_tree *tree;
	char *cwd;
	struct pai_strmap vars;
	char *const *params; /* $1.., NULL-terminated; borrowed */
	struct pai_sink *out, *err;
	struct pai_view in;
	int status;
	int stopped; /* negative: the host said stop */
	bool exiting;
	int depth;
};

/* The exit status, or the negative value with which the host stopped it. -ENOMEM without memory. */
int pai_shell_run(const struct pai_shell_host *host, void *arg, struct pai_tree *tree,
    const char *cwd, const struct pai_strmap *env, const char *command) PAI_WARN_UNUSED;

/* --- for builtins --- */

/* Runs a whole command line in this shell; params may be NULL. */
void pai_shell_eval(struct pai_shell *sh, const char *text, char *const *params);
/* Runs one command, found among the builtins. */
void pai_shell_exec(struct pai_shell *sh, char *const *argv);
/* `path` seen from the working directory; NULL without memory. */
char *pai_shell_path(const struct pai_shell *sh, const char *path);
int pai_shell_emit(
    struct pai_shell *sh, struct pai_sink *to, const char *data, size_t len) PAI_WARN_UNUSED;

/* Writes to `out` and `err` and returns the status. Called with the tree locked, save FREE. */
typedef int (*pai_builtin_fn)(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err);
struct pai_builtin {
	const char *name;
	pai_builtin_fn fn;
	bool free; /* called without the lock */
};
extern const struct pai_builtin pai_builtins[];    /* ends with a NULL name */
extern const struct pai_builtin pai_builtins_fs[]; /* the same */
/* "NAME: TEXT: strerror", status 1. */
int pai_builtin_fail(struct pai_buf *err, const char *name, const char *what, int r);

#endif
