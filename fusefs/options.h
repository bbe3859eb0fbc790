/*
 * options: what the command line of paifs, its -o lists, the configuration file and the create
 * options of `pai create` may say, as one table. Every failure is INPUT with one line that says
 * what was expected.
 *
 * Later settings win; the command line wins over ~/.config/paifs/NAME.conf. Lists (allow,
 * control_uid) add up, maps (metadata.K, env.K) by key.
 */
#ifndef PAI_FUSEFS_OPTIONS_H
#define PAI_FUSEFS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "providers/base/err.h"
#include "providers/base/json.h"
#include "providers/base/strmap.h"
#include "providers/provider.h"

#define PAI_OPTIONS_NAME_MAX 64 /* bytes of an instance name: its socket's path has to fit */
#define PAI_OPTIONS_LIST_MAX 64 /* allow= and control_uid= */

enum pai_options_show {
	PAI_SHOW_NOTHING,
	PAI_SHOW_HELP,
	PAI_SHOW_VERSION,
};
/* What a sandbox is created with: fields of struct pai_create_input, owned. */
struct pai_options_create {
	char *template_name;
	uint64_t ttl_ms;
	struct pai_strmap metadata, env;
	int network; /* enum pai_network_access; -1: not given */
	char *allow[PAI_OPTIONS_LIST_MAX];
	size_t allow_count;
	struct pai_resources resources;
};
struct pai_options {
	enum pai_options_show show;
	char *help_topic; /* a provider, or NULL */

	char *provider;   /* a name, or the absolute path of a shared object */
	char *mountpoint; /* absolute; NULL with no_mount */
	char *name;
	bool foreground, debug, no_mount, read_only;
	/* Choices: the index of the value in its table row; -1: not given. */
	int coherence; /* enum pai_fs_coherence */
	int symlinks;  /* enum pai_fs_symlinks */
	int git;       /* 0 guard, 1 trust */
	int special;   /* 0 masked, 1 full */
	int writes;    /* 0 sync */
	int helper;    /* 0 auto, 1 off */
	bool allow_other, default_permissions, exec, suid, dev, log_arguments;
	uint64_t timeout_ms, keepalive_ttl_ms, create_timeout_ms;
	uid_t control_uids[PAI_OPTIONS_LIST_MAX];
	size_t control_uid_count;
	char *session_key_metadata;
	char *create_program;       /* absolute */
	char *seed, *file_provider; /* absolute */
	uint64_t seed_wait_ms;
	char *trace_path, *log_path; /* absolute */
	char *fault;
	struct pai_options_create create;
	struct pai_strmap provider_options;
};

/* argv[0] is skipped. Reads the configuration file. A `ret` of a failed call needs no fini. */
int pai_options_parse(
    int argc, char **argv, struct pai_options *ret, struct pai_err *err) PAI_WARN_UNUSED;
void pai_options_fini(struct pai_options *o);

/* The same place by one name, absolute, whether it exists or not, and also where a dead mount lies
 * on it. SYS when what lies above it does not exist. */
int pai_options_place(const char *given, char **ret, struct pai_err *err) PAI_WARN_UNUSED;
/* One setting. value NULL: given without '='. */
int pai_options_set(struct pai_options *o, const char *name, const char *value,
    struct pai_err *err) PAI_WARN_UNUSED;
/* The create options of one key, {name: value} as on the mount, as the session manager wants them
 * (providers/session/terms.h): only what was given. A value is a string or a number; metadata and
 * env may be objects, allow an array. The caller frees *ret. */
int pai_options_terms(const struct pai_options *mount, const struct pai_json *object, char **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
void pai_options_create_fini(struct pai_options_create *c);
/* What only makes sense together. */
int pai_options_create_check(
    const struct pai_options_create *c, struct pai_err *err) PAI_WARN_UNUSED;
/* A view; borrowed from `c`. */
void pai_options_create_input(const struct pai_options_create *c, struct pai_create_input *ret);

/* topic: NULL, or a provider. INPUT for an unknown one. */
int pai_options_help(FILE *to, const char *topic, struct pai_err *err) PAI_WARN_UNUSED;

/* --- between the files of options --- */
enum pai_option_kind {
	PAI_OPTION_FLAG,
	PAI_OPTION_TEXT,
	PAI_OPTION_PATH, /* made absolute */
	PAI_OPTION_DURATION,
	PAI_OPTION_SIZE,
	PAI_OPTION_COUNT,  /* uint32_t */
	PAI_OPTION_MILLIS, /* uint32_t thousandths: "1.5", "500m" */
	PAI_OPTION_CHOICE,
	PAI_OPTION_MAP, /* name.KEY=VALUE */
	PAI_OPTION_UIDS,
	PAI_OPTION_ALLOW,
	PAI_OPTION_UNSET, /* the flag at `offset` becomes false: "nosuid" */
};
struct pai_option {
	const char *name;
	enum pai_option_kind kind;
	bool creates; /* also an option of `pai create`: pai_options_terms() */
	size_t offset;
	const char *const *choices; /* CHOICE; NULL-terminated */
	const char *meaning;        /* NULL: not in the help */
};
extern const struct pai_option pai_option_table[]; /* ends with a NULL name */
void pai_options_init(struct pai_options *o);
/* INPUT, with the names of those there are. */
int pai_options_unknown_provider(const char *name, struct pai_err *err);

#endif
