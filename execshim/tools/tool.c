#include "execshim/tools/tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "execshim/tools/fixed.h"
#include "execshim/tools/near.h"
#include "execshim/tools/text.h"
#include "providers/base/log.h"
#include "providers/base/path.h"
#include "providers/base/printable.h"

#define NEAR_NAMES_MAX 100000 /* of a directory that are compared */

static int (*const functions[PAI_TOOL_COUNT])(struct pai_tool_call *, struct pai_err *) = {
    [PAI_TOOL_BASH] = pai_tool_bash,
    [PAI_TOOL_READ] = pai_tool_read,
    [PAI_TOOL_WRITE] = pai_tool_write,
    [PAI_TOOL_EDIT] = pai_tool_edit,
    [PAI_TOOL_GREP] = pai_tool_grep,
    [PAI_TOOL_GLOB] = pai_tool_glob,
    [PAI_TOOL_LIST] = pai_tool_list,
};

int pai_tool_status(struct pai_tool_call *c, const char *status, struct pai_err *err)
{
	return pai_json_set_str(c->answer, "status", status) < 0 ? pai_err_no_memory(err) : 0;
}

int pai_tool_says(
    struct pai_tool_call *c, const char *status, const char *message, struct pai_err *err)
{
	return pai_tool_status(c, status, err) < 0                   ? -err->errnum
	       : pai_json_set_str(c->answer, "message", message) < 0 ? pai_err_no_memory(err)
								     : 0;
}

int pai_tool_set_text(
    struct pai_tool_call *c, const char *field, const char *data, size_t len, struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(SIZE_MAX - 1);

	return pai_text_add(&text, data, len) < 0 ||
		       pai_json_set_str(c->answer, field, text.data ? text.data : "") < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

int pai_tool_path(struct pai_tool_call *c, const char *field, const char *fallback, char **ret,
    struct pai_err *err)
{
	const char *given = pai_json_str(c->input, field);
	pai_auto_free char *inside = NULL;
	const char *wrong = NULL;
	int r;

	given = given ? given : fallback;
	if (given[0] != '/') {
		wrong = "The path has to be absolute, such as /workspace/notes.txt.";
	} else {
		r = pai_box_path(c->box, given, &inside, err);
		r = r < 0 ? r : pai_path_resolve(inside, ret, err);
		if (r == 0) {
			return 1;
		}
		if (err->code != PAI_E_INPUT) {
			return r;
		}
		*err = (struct pai_err)PAI_ERR_INIT;
		wrong = "The path is not one of this sandbox.";
	}
	r = pai_tool_says(c, "invalid", wrong, err);
	return r < 0 ? r : 0;
}

bool pai_tool_is_directory(struct pai_tool_call *c, const char *path)
{
	pai_auto_box_listing struct pai_box_listing l = {.count = 0};
	bool found = false;

	return pai_box_list(c->box, path, 0, 1, &found, &l, PAI_ERR_IGNORED()) == 0 && found;
}

int pai_tool_file_failed(struct pai_tool_call *c, const char *path, struct pai_err *err)
{
	const char *text = pai_fixed_file(err);

	if (err->code == PAI_E_INPUT) {
		text =
		    pai_tool_is_directory(c, path)
			? "The path is a directory."
			: "The path is not a regular file, or lies where files can't be reached "
			  "by this tool: under /workspace and /tmp they can. Use bash for others.";
	}
	if (!text) {
		return -err->errnum;
	}
	pai_log_info("tool", "%s: %s", c->spec->name, err->msg);
	*err = (struct pai_err)PAI_ERR_INIT;
	return pai_tool_says(c, "invalid", text, err);
}

/* --- near names --- */

static int push_near(
    struct pai_json *list, const char *dir, const char *wanted, const struct pai_box_listing *l)
{
	pai_auto_free const char **names = calloc(l->count + 1, sizeof(*names));
	size_t best[PAI_NEAR_MAX];
	size_t n;

	if (!names) {
		return -ENOMEM;
	}
	for (size_t i = 0; i < l->count; i++) {
		names[i] = l->entries[i].name;
	}
	n = pai_near(wanted, names, l->count, best);
	for (size_t i = 0; i < n; i++) {
		pai_auto_free char *path =
		    pai_path_join(strcmp(dir, "/") == 0 ? "" : dir, names[best[i]]);
		pai_auto_buf struct pai_buf text = PAI_BUF_INIT(SIZE_MAX - 1);

		if (!path || pai_text_add(&text, path, strlen(path)) < 0 ||
		    pai_json_push_str(list, text.data) < 0) {
			return -ENOMEM;
		}
	}
	return 0;
}

int pai_tool_did_you_mean(struct pai_tool_call *c, const char *path, struct pai_err *err)
{
	pai_auto_box_listing struct pai_box_listing l = {.count = 0};
	pai_auto_json struct pai_json *list = pai_json_array();
	pai_auto_free char *dir = strdup(path);
	char *slash = dir ? strrchr(dir, '/') : NULL;
	bool found = false;
	int r = list && slash ? 0 : -ENOMEM;

	if (r == 0) {
		const char *above = slash == dir ? "/" : dir;

		*slash = '\0';
		/* No such directory, or none that this can look into: then there is nothing near.
		 */
		if (pai_box_list(c->box, above, 0, NEAR_NAMES_MAX, &found, &l, PAI_ERR_IGNORED()) ==
			0 &&
		    found) {
			r = push_near(list, above, slash + 1, &l);
		}
	}
	r = r ? r : pai_json_set(c->answer, "didYouMean", PAI_TAKE(list));
	return r < 0 ? pai_err_no_memory(err) : 0;
}

/* --- one call --- */

static enum pai_tool_end fail(struct pai_tool_call *c, const struct pai_err *err, const char *said,
    enum pai_tool_end end, struct pai_json **ret)
{
	pai_auto_free char *named =
	    err->code == PAI_E_SEED ? pai_fixed_seed(pai_box_missing(c->box)) : NULL;

	pai_log_info("tool", "%s: %s (%s)", c->spec->name, err->msg, pai_errcode_name(err->code));
	pai_json_free(PAI_TAKE(c->answer));
	*ret = pai_fixed_answer(err, named ? named : said, pai_box_environment_reset(c->box));
	return *ret ? end : PAI_TOOL_NO_MEMORY;
}

enum pai_tool_end pai_tool_run(struct pai_tool_call *c, struct pai_json **ret)
{
	struct pai_err err = PAI_ERR_INIT;

	*ret = NULL;
	pai_box_begin(c->box);
	if (pai_tool_check(c->spec, c->input, &err) < 0) {
		return fail(c, &err, err.msg, PAI_TOOL_BAD_INPUT, ret);
	}
	c->answer = pai_json_object();
	if (!c->answer) {
		return PAI_TOOL_NO_MEMORY;
	}
	if (functions[c->spec - pai_tool_specs](c, &err) < 0) {
		return fail(c, &err, NULL, PAI_TOOL_FAILED, ret);
	}
	if (pai_json_set_bool(c->answer, "environmentReset", pai_box_environment_reset(c->box)) <
	    0) {
		pai_json_free(PAI_TAKE(c->answer));
		return PAI_TOOL_NO_MEMORY;
	}
	*ret = PAI_TAKE(c->answer);
	return pai_tool_stops(c->spec, *ret) ? PAI_TOOL_STOPS : PAI_TOOL_ANSWERED;
}
