/*
 * pai_cmd: the commands of `pai`. Each is a row of one table: name, what it takes, its help, its
 * function; the command line is read by one parser for all.
 */
#ifndef PAI_EXECSHIM_PAI_CMD_H
#define PAI_EXECSHIM_PAI_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "execshim/target.h"
#include "providers/base/key.h"
#include "providers/base/strmap.h"

enum pai_cmd_takes {                /* beside -n, --json, --help */
	PAI_TAKES_SESSION = 1 << 0, /* -s KEY */
	PAI_TAKES_OPTIONS = 1 << 1, /* -o NAME=VALUE,... */
	PAI_TAKES_SANDBOX = 1 << 2, /* --sandbox ID */
	PAI_TAKES_PAGE = 1 << 3,    /* --limit N, --before ID, --all */
	PAI_TAKES_OFF = 1 << 4,     /* --off */
	PAI_TAKES_RAW = 1 << 5,     /* everything after the name is another program's */
	PAI_TAKES_LISTEN = 1 << 6,  /* --listen [ADDRESS:]PORT */
	PAI_TAKES_CALL = 1 << 7,    /* --input JSON, --stream, --batch, --schema */
	PAI_TAKES_SERVE = 1 << 8,   /* --root DIR, --include TOOLS, --exclude TOOLS */
	PAI_TAKES_SCOPE = 1 << 9,   /* --scope SCOPE; the words are then ID=VALUE */
	PAI_TAKES_USE = 1 << 10, /* --exclusive; the words after the first are another program's */
	PAI_TAKES_PROGRAM = 1 << 11, /* --dry-run; from the first word on it is another program's */
};
struct pai_args {
	const char *daemon;  /* -n */
	const char *key;     /* -s, or NULL */
	const char *sandbox; /* --sandbox */
	const char *listen;  /* --listen */
	const char *input;   /* --input */
	const char *root;    /* --root, and so on */
	const char *include, *exclude;
	const char *scope; /* --scope */
	struct pai_strmap options;
	bool json, off, all, help;
	bool stream, batch, schema, exclusive, dry_run;
	int64_t limit, before; /* 0: not given */
	char **words;          /* borrowed, NULL-terminated */
	bool has_dashes;       /* "--" stood right before them */
	size_t word_count;
};
struct pai_cmd {
	const char *name;
	const char *synopsis; /* after the name */
	const char *summary;  /* one line */
	const char *help;     /* more, with an example */
	unsigned takes;
	size_t most_words;
	/* Prints, and returns 0; or fills err. More than 0: it has failed and said so itself; the
	 * exit status. */
	int (*run)(const struct pai_args *a, struct pai_err *err);
};
extern const struct pai_cmd pai_cmd_table[]; /* ends with a NULL name */
const struct pai_cmd *pai_cmd_find(const char *name);

/* argv[0] is the command's name. INPUT with one line that says what was expected. */
int pai_args_parse(const struct pai_cmd *cmd, int argc, char **argv, struct pai_args *ret,
    struct pai_err *err) PAI_WARN_UNUSED;
void pai_args_fini(struct pai_args *a);
/* "a=b,c=d": a backslash takes the next character as it is. */
int pai_args_add_options(
    struct pai_strmap *options, const char *text, struct pai_err *err) PAI_WARN_UNUSED;

/* pai_commands.c */
int pai_cmd_ls(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;
int pai_cmd_status(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;
int pai_cmd_probe(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;
int pai_cmd_create(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;
int pai_cmd_reset(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;
int pai_cmd_pause(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;
int pai_cmd_barrier(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;
int pai_cmd_kill(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;
int pai_cmd_trust(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;
int pai_cmd_umount(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;
int pai_cmd_log(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;
int pai_cmd_conformance(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;
/* The session meant, by the one word, -s, or with `by_place` the place stood in. */
int pai_cmd_need_session(const struct pai_args *a, bool by_place, char ret[PAI_KEY_MAX + 1],
    struct pai_err *err) PAI_WARN_UNUSED;

/* pai_scope.c: the ids that the words are, and the key that they give. */
int pai_cmd_scoped_key(const struct pai_args *a, struct pai_strmap *ids, char ret[PAI_KEY_MAX + 1],
    struct pai_err *err) PAI_WARN_UNUSED;
/* What `create` says of them. Nothing without --scope. */
int pai_cmd_set_scope(
    const struct pai_args *a, struct pai_json *fields, struct pai_err *err) PAI_WARN_UNUSED;
/* With --scope, the ids are of a thread whose end is not the session's. */
bool pai_cmd_is_delegated(const struct pai_args *a);
int pai_cmd_key(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;

/* pai_seed.c */
int pai_cmd_seed(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;
int pai_cmd_filename(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;

/* pai_use.c */
int pai_cmd_use(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;

/* pai_port.c */
int pai_cmd_port(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;

/* pai_tool.c */
int pai_cmd_tool(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;

/* pai_mcp.c */
int pai_cmd_mcp(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;
/* pai_run.c */
int pai_cmd_run(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;
int pai_cmd_host(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;

/* pai_shell_init.c */
int pai_cmd_shell_init(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;

/* pai_doctor.c */
int pai_cmd_doctor(const struct pai_args *a, struct pai_err *err) PAI_WARN_UNUSED;

#endif
