/*
 * Calls of the contract, and recipes as one of them. A recipe's failure is told by the text that
 * ends its last line (recipes.h), which the C library's own table turns back into a number; where
 * the program has words of its own, by those.
 */
#include <errno.h>
#include <string.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"
#include "providers/base/path.h"
#include "providers/workspace/portable.h"

#define CALL_MS 30000        /* one call of the contract, when nothing else was said */
#define COMMAND_BYTES 131072 /* the kernel takes no longer word: `sh -c COMMAND` */
#define OUTPUT_BYTES (8u << 20)
#define ERRNO_MAX 133 /* the last that Linux has */
#define NOT_FOUND_STATUS 127

struct pai_call pai_portable_call(const struct pai_portable *p)
{
	uint64_t bound = p->config.call_ms ? p->config.call_ms : CALL_MS;

	return (struct pai_call){.deadline_ms = pai_deadline_in(bound), .cancel = p->cancel};
}

int pai_portable_error(struct pai_portable *p, const struct pai_err *err)
{
	if (err->code == PAI_E_NOT_FOUND) {
		__atomic_store_n(&p->base.gone, 1, __ATOMIC_RELEASE);
	}
	pai_log_debug("portable", "%s", err->msg);
	return err->errnum;
}

char *pai_portable_shell_path(const char *rel)
{
	return *rel ? pai_path_join(".", rel) : strdup(".");
}

char *pai_portable_call_path(const char *rel)
{
	return *rel ? pai_path_join(PAI_WORKSPACE, rel) : strdup(PAI_WORKSPACE);
}

/* -1: none's. */
static int errno_of_text(const char *text, size_t len)
{
	for (int e = 1; e <= ERRNO_MAX; e++) {
		const char *known = strerrordesc_np(e);

		if (known && strlen(known) == len && !memcmp(known, text, len)) {
			return e;
		}
	}
	return -1;
}

/* What GNU (G) and busybox (B) look up or refuse by themselves, and what the system call that is
 * meant would say: a rename onto the same file is none. */
static const struct {
	enum pai_recipe recipe;
	const char *begin, *end;
	int error;
} phrases[] = {
    {PAI_RECIPE_MV, "mv: cannot overwrite directory ", "", EISDIR},      /* G */
    {PAI_RECIPE_MV, "mv: cannot overwrite non-directory ", "", ENOTDIR}, /* G */
    {PAI_RECIPE_MV, "mv: cannot move ", "", EINVAL},  /* G: "... to a subdirectory of itself, x" */
    {PAI_RECIPE_MV, "mv: ", " are the same file", 0}, /* G */
    {PAI_RECIPE_MV, "mv: ", " is a directory", EISDIR},             /* B */
    {PAI_RECIPE_RM, "rm: ", " is a directory", EISDIR},             /* B */
    {PAI_RECIPE_LN, "ln: ", " is a directory", EEXIST},             /* B */
    {PAI_RECIPE_SYMLINK, "ln: ", " is a directory", EEXIST},        /* B */
    {PAI_RECIPE_READLINK, "readlink: ", ": not a symlink", EINVAL}, /* B */
    {PAI_RECIPE_TOUCH_ACCESS, "touch: invalid date ", "", EINVAL},  /* B */
    {PAI_RECIPE_TOUCH_MODIFY, "touch: invalid date ", "", EINVAL},  /* B */
};

static int errno_of_phrase(enum pai_recipe recipe, const char *text, size_t len)
{
	for (size_t i = 0; i < PAI_COUNT(phrases); i++) {
		size_t begin = strlen(phrases[i].begin), end = strlen(phrases[i].end);

		if (phrases[i].recipe == recipe && len >= begin + end &&
		    !memcmp(text, phrases[i].begin, begin) &&
		    !memcmp(text + len - end, phrases[i].end, end)) {
			return phrases[i].error;
		}
	}
	return EIO;
}

/* "mkdir: cannot create directory 'x': File exists\n" */
static int errno_of_stderr(enum pai_recipe recipe, const char *err, size_t len)
{
	int error = -1;
	const char *colon = NULL;

	while (len > 0 && err[len - 1] == '\n') {
		len--;
	}
	for (size_t i = 0; i + 1 < len; i++) {
		if (err[i] == ':' && err[i + 1] == ' ') {
			colon = err + i + 2;
		}
	}
	if (colon) {
		error = errno_of_text(colon, len - (size_t)(colon - err));
	}
	return error < 0 ? errno_of_phrase(recipe, err, len) : error;
}

static int no_shell(struct pai_portable *p, const char *why)
{
	if (!__atomic_exchange_n(&p->has_no_shell, 1, __ATOMIC_RELAXED)) {
		pai_log_info("portable", "no shell (%s): reading and writing only", why);
	}
	return EOPNOTSUPP;
}

static int run(struct pai_portable *p, const struct pai_run_input *input, enum pai_recipe recipe,
    char **ret_out)
{
	pai_auto_run_result struct pai_run_result result = {.out = NULL};
	struct pai_call call = pai_portable_call(p);
	struct pai_err err = PAI_ERR_INIT;

	if (pai_sandbox_run(p->sb, input, &call, &result, &err) < 0) {
		bool is_refused =
		    err.code == PAI_E_UNSUPPORTED || err.code == PAI_E_POLICY_MISMATCH;

		return is_refused ? no_shell(p, err.msg) : pai_portable_error(p, &err);
	}
	if (result.exit_code == NOT_FOUND_STATUS) {
		return recipe == PAI_RECIPE_STAT ? no_shell(p, "no stat") : EOPNOTSUPP;
	}
	if (ret_out) {
		*ret_out = PAI_TAKE(result.out);
	}
	return result.exit_code
		   ? errno_of_stderr(recipe, result.err ? result.err : "", result.err_len)
		   : 0;
}

int pai_portable_recipe(struct pai_portable *p, enum pai_recipe recipe,
    const char *const operands[], size_t count, char **ret_out)
{
	pai_auto_buf struct pai_buf command = PAI_BUF_INIT(COMMAND_BYTES - 1);
	struct pai_strmap_entry words[] = {
	    {(char *)"LC_ALL", (char *)"C"}, {(char *)"TZ", (char *)"UTC0"}};
	const struct pai_strmap env = {words, PAI_COUNT(words)};
	struct pai_run_input input = {.env = &env, .max_output_bytes = OUTPUT_BYTES};
	int r = pai_recipe_format(recipe, operands, count, &command);

	if (__atomic_load_n(&p->has_no_shell, __ATOMIC_RELAXED)) {
		return EOPNOTSUPP;
	}
	if (r < 0) {
		return r == -EMSGSIZE ? ENAMETOOLONG : -r;
	}
	input.command = command.data;
	return run(p, &input, recipe, ret_out);
}
