/*
 * script: the scripted commands and templates of a memory provider, as data. Not locked.
 */
#ifndef PAI_MEMORY_SCRIPT_H
#define PAI_MEMORY_SCRIPT_H

#include "providers/memory/memory.h"
#include "providers/memory/tree.h"

#define PAI_SCRIPT_MAX_BYTES (16u << 20)

struct pai_script_files {
	struct pai_memory_file *items; /* the strings are ours */
	size_t count;
};
struct pai_script_command {
	char *match;
	char *out, *err;
	int exit_code;
	uint64_t delay_ms;
	uint64_t times_left; /* UINT64_MAX: always */
	struct pai_script_files files;
};
struct pai_script_template {
	char *name;
	struct pai_script_files files;
};
struct pai_script {
	struct pai_script_command *commands;
	size_t command_count;
	struct pai_script_template *templates;
	size_t template_count;
};

void pai_script_fini(struct pai_script *s);
int pai_script_add_command(
    struct pai_script *s, const struct pai_memory_command *c, struct pai_err *err) PAI_WARN_UNUSED;
int pai_script_add_template(struct pai_script *s, const char *name,
    const struct pai_memory_file *files, size_t count, struct pai_err *err) PAI_WARN_UNUSED;
/* Adds what the text says. INPUT names the place that is wrong. */
int pai_script_parse(
    struct pai_script *s, const char *text, size_t len, struct pai_err *err) PAI_WARN_UNUSED;
int pai_script_load(struct pai_script *s, const char *path, struct pai_err *err) PAI_WARN_UNUSED;
/* The entry that answers `command`, with one of its `times` taken; NULL: none. Borrowed until the
 * script changes. */
const struct pai_script_command *pai_script_match(struct pai_script *s, const char *command);
const struct pai_script_template *pai_script_template(const struct pai_script *s, const char *name);
int pai_script_copy_files(
    struct pai_script_files *to, const struct pai_memory_file *files, size_t count) PAI_WARN_UNUSED;
void pai_script_files_fini(struct pai_script_files *f);
/* Makes the changes in a tree: 0 or a negative errno. */
int pai_script_apply(const struct pai_script_files *files, struct pai_tree *t) PAI_WARN_UNUSED;

#endif
