/*
 * box: one session's sandbox for a program (seed: "Sandbox facade"). Lazy: nothing is asked before
 * the first call. Every call makes the environment where there is none, and what was lost in its
 * middle is done once more in the next one, by the daemon's rules; that it is a new one is latched.
 *
 * Errors are the contract's kinds; their messages are for operators.
 *
 * Threading: one thread at a time. run() owns the process's signals while it runs, unless the box
 * is embedded.
 */
#ifndef PAI_EXECSHIM_BOX_H
#define PAI_EXECSHIM_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "execshim/sink.h"
#include "execshim/target.h"
#include "providers/base/cancel.h"

struct pai_box;

/* Takes the fields of *take_target, also on failure. `program`: for the daemon's log, borrowed. */
int pai_box_new(struct pai_target *take_target, const char *program, struct pai_box **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
void pai_box_free(struct pai_box *b); /* NULL is fine */
PAI_DEFINE_AUTO(struct pai_box, pai_box_free)
#define pai_auto_box PAI_AUTO(pai_box_free_p)

const char *pai_box_key(const struct pai_box *b);
/* In a program that is not ours: run() leaves its signals alone, `cancel` (borrowed, never NULL)
 * ends whatever is under way, and what was reset is told by what this box has seen, not by what the
 * caller's POSIX session was told. */
void pai_box_embed(struct pai_box *b, struct pai_cancel *cancel);

/* Some call ran in a recreated environment, or after reset(). Never false again. */
bool pai_box_environment_reset(const struct pai_box *b);
/* Forgets it: for who hands one box from call to call. */
void pai_box_begin(struct pai_box *b);

struct pai_box_command {
	char *const *argv;
	const char *cwd;              /* a sandbox path */
	const struct pai_strmap *env; /* NULL: none */
	uint64_t timeout_ms;          /* 0: none; as the next */
	uint64_t max_output_bytes;
	const char *input; /* its stdin; NULL: none */
	size_t input_len;
	/* May not be NULL. Stream 0: the command is run again, in a new environment; what came so
	 * far is void. */
	pai_sink_fn on_output;
	void *arg;
};
struct pai_box_exit {
	bool timed_out; /* and killed; `code` says nothing */
	int code;       /* 128+n when signal n ended it */
};
/* A command that could not be executed ended with 126 or 127, as in a shell. INPUT (ENOENT): the
 * working directory is not there. CANCELLED: a signal came that ends us, see pai_box_died_of(). */
int pai_box_run(struct pai_box *b, const struct pai_box_command *c, struct pai_box_exit *ret,
    struct pai_err *err) PAI_WARN_UNUSED;
/* The signal that ended a run of ours; 0: none. */
int pai_box_died_of(const struct pai_box *b);

/* After SEED: the paths that are not there, an array of texts in JSON; NULL: nobody has said. */
const char *pai_box_missing(const struct pai_box *b);

/* As pai_sandbox_read_file() and the others of provider.h. `ret` is emptied first; its cap is the
 * limit, with PAI_CONTROL_FILE_MAX. */
int pai_box_read(struct pai_box *b, const char *path, bool *found, struct pai_buf *ret,
    struct pai_err *err) PAI_WARN_UNUSED;
/* existed: it replaced a file; NULL: nobody wants to know, which costs less. FILE_TOO_LARGE past
 * PAI_CONTROL_FILE_MAX. */
int pai_box_write(struct pai_box *b, const char *path, const void *data, size_t len, bool *existed,
    struct pai_err *err) PAI_WARN_UNUSED;
struct pai_box_entry {
	char *name;
	bool is_directory;
};
struct pai_box_listing {
	struct pai_box_entry *entries; /* sorted by the bytes of their names */
	size_t count;
	uint64_t total; /* in the directory */
};
void pai_box_listing_fini(struct pai_box_listing *l);
#define pai_auto_box_listing PAI_AUTO(pai_box_listing_fini)
int pai_box_list(struct pai_box *b, const char *path, uint64_t offset, uint64_t limit, bool *found,
    struct pai_box_listing *ret, struct pai_err *err) PAI_WARN_UNUSED;

/* All calls of fn are made on one environment; when that is lost in their middle the whole is done
 * once more on the next one, unless the session was reset or killed meanwhile. Exclusive: serial
 * with other uses of that kind, with writes and resets of the session, in every process. Not
 * nested; in a use of `pai use` (target.h) it is part of that. */
typedef int (*pai_box_fn)(void *arg, struct pai_box *b, struct pai_err *err);
int pai_box_use(struct pai_box *b, bool exclusive, pai_box_fn fn, void *arg,
    struct pai_err *err) PAI_WARN_UNUSED;

/* The same for who can't be called: a program. Each ends with pai_box_end_use(), also after a
 * failure. */
int pai_box_begin_use(struct pai_box *b, bool exclusive, struct pai_err *err) PAI_WARN_UNUSED;
/* Whether the environment is gone, after `err` in the use; NULL: asks the provider. */
bool pai_box_use_is_lost(struct pai_box *b, const struct pai_err *err);
/* On the next one. RESET: the session was reset or killed since the use began. */
int pai_box_resume_use(struct pai_box *b, bool exclusive, struct pai_err *err) PAI_WARN_UNUSED;
void pai_box_end_use(struct pai_box *b);
const char *pai_box_environment(const struct pai_box *b); /* of the use; "": none */
const char *pai_box_token(const struct pai_box *b);       /* of its turn; "": none */

/* Destroys the environment; the next call makes another. */
int pai_box_reset(struct pai_box *b, struct pai_err *err) PAI_WARN_UNUSED;

/* After a fork: this process connects anew when it next asks. */
void pai_box_disconnect(struct pai_box *b);

/* What the session's key was derived from, for the ledger (providers/base/scope.h). */
int pai_box_scope(struct pai_box *b, const char *scope, const struct pai_strmap *ids,
    struct pai_err *err) PAI_WARN_UNUSED;

/* A path inside the daemon's mount to the sandbox path of the same file, any other as it is. INPUT:
 * in the mount, but of another session. */
int pai_box_path(
    struct pai_box *b, const char *path, char **ret, struct pai_err *err) PAI_WARN_UNUSED;

#endif
