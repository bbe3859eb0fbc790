#include "execshim/mcp/instructions.h"

#include <string.h>

#include "providers/base/clock.h"
#include "providers/base/log.h"

#define ASK_MS 2000

static struct pai_json *ask(const struct pai_mcp_options *o)
{
	pai_auto_client struct pai_client *client = NULL;
	pai_auto_json struct pai_json *fields = pai_json_object();
	struct pai_json *status = NULL;
	struct pai_err err = PAI_ERR_INIT;
	uint64_t until = pai_deadline_in(ASK_MS);
	int r = pai_target_open(&o->target, "pai-mcp", true, &client, &err);

	if (r == 0 && o->target.place.key[0]) {
		r = pai_json_set_str(fields, "key", o->target.place.key) < 0
			? pai_err_no_memory(&err)
			: pai_client_request(
			      client, "status", PAI_TAKE(fields), until, &status, &err);
	}
	if (r == 0 && !status) {
		r = pai_client_request(client, "status", NULL, until, &status, &err);
	} else if (r < 0 && err.code == PAI_E_INPUT && client) {
		/* A session that there is not yet. */
		err = (struct pai_err)PAI_ERR_INIT;
		r = pai_client_request(client, "status", NULL, until, &status, &err);
	}
	if (r < 0) {
		pai_log_warn("mcp", "the policy can't be told: %s", err.msg);
	}
	return status;
}

static const char *network_of(const struct pai_json *status)
{
	const char *own = pai_json_str(pai_json_get(status, "session"), "network");

	return own ? own : pai_json_str(status, "network");
}

static const char *in_words(const char *network)
{
	if (!network) {
		return NULL;
	}
	return strcmp(network, "none") == 0 ? "Commands have no network."
	       : strcmp(network, "full") == 0
		   ? "Commands have network access."
		   : "Commands reach the network hosts that are allowed, "
		     "no others.";
}

static int add_place(struct pai_buf *text, const struct pai_mcp_options *o)
{
	if (o->mount) {
		return pai_buf_printf(text,
		    "These tools work in the sandboxes of %s: each directory in it is the "
		    "workspace "
		    "of one sandbox, and the path or cwd of a call says which. Give bash, grep and "
		    "glob one in every call. Within a sandbox that directory is /workspace: so say "
		    "the commands that run there. What lies elsewhere in a sandbox, as in /tmp, "
		    "commands can reach.",
		    o->mount);
	}
	return pai_buf_printf(text,
	    "These tools work in one sandbox, a machine of its own files and processes. Its "
	    "workspace is " PAI_TOOL_WORKSPACE "; paths are absolute paths of the sandbox.%s%s%s",
	    o->dir ? " Tools that are given no directory begin in " : "", o->dir ? o->dir : "",
	    o->dir ? "." : "");
}

char *pai_mcp_instructions_from(const struct pai_mcp_options *o, const struct pai_json *status)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(1u << 16);
	const char *exec = pai_json_str(status, "exec");
	const char *network = in_words(network_of(status));
	int r = add_place(&text, o);

	if (r == 0 && exec && strcmp(exec, "refused") == 0) {
		r = pai_buf_add_str(
		    &text, " Commands are refused here: only files can be worked on.");
	} else if (r == 0 && network) {
		r = pai_buf_printf(&text, " %s", network);
	}
	r = r ? r
	      : pai_buf_add_str(&text,
		    " The sandbox is made when it is first used and may be replaced by a new, "
		    "empty "
		    "one; then environmentReset is true in the next result, and earlier files and "
		    "processes are gone. bash, write and edit are made one after the other, in the "
		    "order of the calls; one that fails stops the calls that wait behind it, whose "
		    "status is then skipped: make them again when what failed is settled.");
	return r < 0 ? NULL : pai_buf_take(&text);
}

char *pai_mcp_instructions(const struct pai_mcp_options *o)
{
	pai_auto_json struct pai_json *status = ask(o);

	return pai_mcp_instructions_from(o, status);
}
