/* pai mcp: which session and which tools; mcp/server.h serves them. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "execshim/mcp/server.h"
#include "execshim/pai_cmd.h"
#include "providers/base/path.h"

static int take_names(
    const char *names, bool value, bool served[PAI_TOOL_COUNT], struct pai_err *err)
{
	pai_auto_free char *copy = strdup(names);
	char *rest = copy;
	char *name;

	if (!copy) {
		return pai_err_no_memory(err);
	}
	while ((name = strsep(&rest, ","))) {
		const struct pai_tool_spec *spec = pai_tool_find(name);

		if (!spec) {
			return pai_err_set(err, PAI_E_INPUT,
			    "no tool '%.40s': expected names of bash, read, write, edit, grep, "
			    "glob, listDirectory, with commas between them",
			    name);
		}
		served[spec - pai_tool_specs] = value;
	}
	return 0;
}

static int choose_tools(const struct pai_args *a, bool served[PAI_TOOL_COUNT], struct pai_err *err)
{
	if (a->include && a->exclude) {
		return pai_err_set(
		    err, PAI_E_INPUT, "--include and --exclude: expected one of them");
	}
	for (size_t i = 0; i < PAI_TOOL_COUNT; i++) {
		served[i] = !a->include;
	}
	return a->include   ? take_names(a->include, true, served, err)
	       : a->exclude ? take_names(a->exclude, false, served, err)
			    : 0;
}

/* Standing in it, so that the mount table says whose it is. */
static int choose_root(const char *root, struct pai_mcp_options *o, struct pai_err *err)
{
	if (!o->target.by_mount) {
		return pai_err_set(
		    err, PAI_E_INPUT, "--root '%s': expected a directory of a mount of ours", root);
	}
	if (o->target.place.key[0]) {
		o->dir = strdup(o->target.place.cwd);
		return o->dir ? 0 : pai_err_no_memory(err);
	}
	o->mount = getcwd(NULL, 0);
	return o->mount ? 0 : pai_err_sys(err, "--root '%s'", root);
}

static int choose_session(const struct pai_args *a, struct pai_mcp_options *o, struct pai_err *err)
{
	int r;

	if (a->root && a->key) {
		return pai_err_set(err, PAI_E_INPUT, "-s and --root: expected one of them");
	}
	if (a->root && chdir(a->root) < 0) {
		return pai_err_sys(err, "--root '%s'", a->root);
	}
	r = pai_target_find(
	    &(struct pai_target_options){.key = a->key, .daemon = a->daemon}, &o->target, err);
	r = r < 0 || !a->root ? r : choose_root(a->root, o, err);
	r = r < 0 ? r : pai_target_begin_run(&o->target, err);
	if (r < 0) {
		return r;
	}
	if (o->target.place.key[0] == '\0' && !o->mount) {
		return pai_err_set(err, PAI_E_INPUT,
		    "which session? name it with -s KEY or --root DIR, or stand in its directory");
	}
	/* A mount is not to be busy because a server was started in it. */
	o->target.place.stands_in = false;
	return chdir("/") < 0 ? pai_err_sys(err, "chdir /") : 0;
}

static void free_options(struct pai_mcp_options *o)
{
	pai_target_fini(&o->target);
	free(o->mount);
	free(o->dir);
}

int pai_cmd_mcp(const struct pai_args *a, struct pai_err *err)
{
	struct pai_mcp_options o = {.mount = NULL};
	int r = choose_tools(a, o.served, err);

	r = r < 0 ? r : choose_session(a, &o, err);
	if (r < 0) {
		free_options(&o);
		return r;
	}
	r = pai_mcp_serve(&o, err);
	if (r > 0) {
		(void)signal(r, SIG_DFL);
		(void)raise(r);
	}
	return r;
}
