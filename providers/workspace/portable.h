/*
 * portable: what the files of the portable server share. Nobody outside of it includes this.
 *
 * Everything here blocks on the sandbox and runs on the pool. Functions return a positive errno.
 */
#ifndef PAI_WORKSPACE_PORTABLE_H
#define PAI_WORKSPACE_PORTABLE_H

#include <pthread.h>

#include "providers/provider.h"
#include "providers/workspace/recipes.h"
#include "providers/workspace/workspace.h"

/* Threads of the pool that one sandbox may hold: a silent one leaves the others theirs. */
#define PAI_PORTABLE_RUNNING 8
#define PAI_PORTABLE_FILE_MAX (64u << 20) /* whole files travel: past it EFBIG */

struct pai_portable_file; /* portable_file.c: an open file or directory */

/* A write may replace the inode: what came after is shown as what was before. */
struct pai_portable_alias {
	struct pai_ws_identity real, shown;
};
#define PAI_PORTABLE_ALIASES 256

struct pai_portable {
	struct pai_ws base;
	struct pai_sandbox *sb;
	struct pai_ws_config config;
	struct pai_cancel *cancel; /* fired by revoke: ends the calls that run */
	int has_no_shell;          /* atomic: a recipe was refused, or its command is not there */
	pthread_mutex_t lock;      /* everything below */
	struct pai_ws_req *queue, **queue_end; /* what waits until fewer run */
	size_t running;
	struct pai_portable_file *files;
	uint64_t last_number;
	struct pai_portable_alias aliases[PAI_PORTABLE_ALIASES];
	size_t alias_count; /* ever; the table is a ring */
};

/* --- portable_run.c --- */

/* The errno of a failed call; the sandbox being gone is noted. */
int pai_portable_error(struct pai_portable *p, const struct pai_err *err);
/* Fills in the deadline of one call and the server's cancel token. */
struct pai_call pai_portable_call(const struct pai_portable *p);
/* Runs a recipe; `ret_out` may be NULL, else the caller frees it (NUL-terminated). EOPNOTSUPP
 * without a shell. */
int pai_portable_recipe(struct pai_portable *p, enum pai_recipe recipe,
    const char *const operands[], size_t count, char **ret_out);
/* A path of the workspace as recipes and as file calls have it. The caller frees; NULL without
 * memory. */
char *pai_portable_shell_path(const char *rel);
char *pai_portable_call_path(const char *rel);

/* --- portable_stat.c --- */

/* The output of the STAT recipe for `operands`. Missing paths print nothing, so each record is
 * matched with the next operand that it ends in. EPROTO for anything else. */
int pai_portable_parse_stat(const char *out, const char *const operands[], size_t count,
    struct pai_ws_attr *ret, bool *found);
/* Attributes of several paths; found[i] tells whether there is such a thing. */
int pai_portable_stat_many(struct pai_portable *p, const char *const rels[], size_t count,
    struct pai_ws_attr *ret, bool *found);
/* ENOENT when there is nothing. */
int pai_portable_stat(struct pai_portable *p, const char *rel, struct pai_ws_attr *ret);
/* As above, and compared with the identity that is expected: ESTALE. */
int pai_portable_check(struct pai_portable *p, const struct pai_ws_at *at, struct pai_ws_attr *ret);
/* What was `before` has become what is at `rel` now, by our own writing. */
void pai_portable_replaced(
    struct pai_portable *p, const char *rel, const struct pai_ws_identity *before);

/* --- portable_file.c --- */

int pai_portable_open(struct pai_portable *p, struct pai_ws_req *req);
int pai_portable_create(struct pai_portable *p, struct pai_ws_req *req);
int pai_portable_read(struct pai_portable *p, struct pai_ws_req *req);
int pai_portable_write(struct pai_portable *p, struct pai_ws_req *req);
int pai_portable_lseek(struct pai_portable *p, struct pai_ws_req *req);
int pai_portable_release(struct pai_portable *p, struct pai_ws_req *req);
int pai_portable_opendir(struct pai_portable *p, struct pai_ws_req *req);
int pai_portable_readdir(struct pai_portable *p, struct pai_ws_req *req);
/* Sets the size of what lies at `rel`. */
int pai_portable_resize(struct pai_portable *p, const char *rel, int64_t size);
/* The path a handle stands for, free(), or NULL: no such handle. */
char *pai_portable_path_of(struct pai_portable *p, uint64_t number);
/* Open files below `from` are below `to` now. */
void pai_portable_moved(struct pai_portable *p, const char *from, const char *to);
/* What was read and is kept counts no more. */
void pai_portable_forget(struct pai_portable *p);
void pai_portable_files_free(struct pai_portable *p);
int pai_portable_make_file(struct pai_portable *p, const char *rel, uint32_t mode);

#endif
