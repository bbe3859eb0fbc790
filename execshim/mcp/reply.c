#include "execshim/mcp/reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/version.h"

/* How long a client may keep a list, which is this process's for as long as it lives. */
#define KEEP_MS 3600000

static const char *const revisions[PAI_MCP_REVISIONS] = {
    [PAI_MCP_2025_03_26] = "2025-03-26",
    [PAI_MCP_2025_06_18] = "2025-06-18",
    [PAI_MCP_2025_11_25] = "2025-11-25",
    [PAI_MCP_2026_07_28] = "2026-07-28",
};

struct traits {
	const char *title;
	bool is_read_only;
	bool is_destructive;
	bool is_idempotent;
	bool is_open_world; /* may reach beyond the sandbox, where its network lets it */
};
static const struct traits traits[PAI_TOOL_COUNT] = {
    [PAI_TOOL_BASH] = {"Run a command", false, true, false, true},
    [PAI_TOOL_READ] = {"Read a file", true, false, true, false},
    [PAI_TOOL_WRITE] = {"Write a file", false, true, true, false},
    [PAI_TOOL_EDIT] = {"Edit a file", false, true, false, false},
    [PAI_TOOL_GREP] = {"Search in files", true, false, true, false},
    [PAI_TOOL_GLOB] = {"Find files", true, false, true, false},
    [PAI_TOOL_LIST] = {"List a directory", true, false, true, false},
};

const char *pai_mcp_revision_name(enum pai_mcp_revision rev)
{
	return revisions[rev];
}

enum pai_mcp_revision pai_mcp_revision_find(const char *name)
{
	int i = 0;

	while (i < PAI_MCP_REVISIONS && strcmp(revisions[i], name) != 0) {
		i++;
	}
	return (enum pai_mcp_revision)i;
}

struct pai_json *pai_mcp_revision_list(void)
{
	pai_auto_json struct pai_json *list = pai_json_array();
	int r = list ? 0 : -ENOMEM;

	for (int i = PAI_MCP_REVISIONS; i > 0 && r == 0; i--) {
		r = pai_json_push_str(list, revisions[i - 1]);
	}
	return r < 0 ? NULL : PAI_TAKE(list);
}

struct pai_json *pai_mcp_server_info(void)
{
	pai_auto_json struct pai_json *info = pai_json_object();
	int r = pai_json_set_str(info, "name", "paifs");

	r = r ? r : pai_json_set_str(info, "title", "paifs sandbox tools");
	r = r ? r : pai_json_set_str(info, "version", PAI_VERSION);
	return r < 0 ? NULL : PAI_TAKE(info);
}

struct pai_json *pai_mcp_result(enum pai_mcp_revision rev)
{
	pai_auto_json struct pai_json *result = pai_json_object();
	pai_auto_json struct pai_json *meta = pai_json_object();
	int r = result && meta ? 0 : -ENOMEM;

	if (rev >= PAI_MCP_2026_07_28) {
		r = r ? r : pai_json_set_str(result, "resultType", "complete");
		r = r ? r
		      : pai_json_set(
			    meta, "io.modelcontextprotocol/serverInfo", pai_mcp_server_info());
		r = r ? r : pai_json_set(result, "_meta", PAI_TAKE(meta));
	}
	return r < 0 ? NULL : PAI_TAKE(result);
}

/* --- tools/list --- */

static struct pai_json *annotations(const struct traits *t)
{
	pai_auto_json struct pai_json *a = pai_json_object();
	int r = pai_json_set_str(a, "title", t->title);

	r = r ? r : pai_json_set_bool(a, "readOnlyHint", t->is_read_only);
	r = r ? r : pai_json_set_bool(a, "destructiveHint", t->is_destructive);
	r = r ? r : pai_json_set_bool(a, "idempotentHint", t->is_idempotent);
	r = r ? r : pai_json_set_bool(a, "openWorldHint", t->is_open_world);
	return r < 0 ? NULL : PAI_TAKE(a);
}

static struct pai_json *tool(enum pai_tool_id id, enum pai_mcp_revision rev)
{
	const struct pai_tool_spec *spec = &pai_tool_specs[id];
	pai_auto_json struct pai_json *t = pai_json_object();
	bool is_structured = rev >= PAI_MCP_2025_06_18;
	int r = pai_json_set_str(t, "name", spec->name);

	r = r || !is_structured ? r : pai_json_set_str(t, "title", traits[id].title);
	r = r ? r : pai_json_set_str(t, "description", spec->meaning);
	r = r ? r : pai_json_set(t, "inputSchema", pai_tool_input_schema(spec));
	r = r || !is_structured
		? r
		: pai_json_set(t, "outputSchema", pai_tool_output_schema(spec, false));
	r = r ? r : pai_json_set(t, "annotations", annotations(&traits[id]));
	return r < 0 ? NULL : PAI_TAKE(t);
}

struct pai_json *pai_mcp_tool_list(const bool served[PAI_TOOL_COUNT], enum pai_mcp_revision rev)
{
	pai_auto_json struct pai_json *result = pai_mcp_result(rev);
	pai_auto_json struct pai_json *list = pai_json_array();
	int r = result && list ? 0 : -ENOMEM;

	for (int i = 0; i < PAI_TOOL_COUNT && r == 0; i++) {
		r = served[i] ? pai_json_push(list, tool((enum pai_tool_id)i, rev)) : 0;
	}
	r = r ? r : pai_json_set(result, "tools", PAI_TAKE(list));
	if (rev >= PAI_MCP_2026_07_28) {
		r = r ? r : pai_json_set_num(result, "ttlMs", KEEP_MS);
		r = r ? r : pai_json_set_str(result, "cacheScope", "public");
	}
	return r < 0 ? NULL : PAI_TAKE(result);
}

/* --- tools/call --- */

static int push_text(struct pai_json *content, const char *text)
{
	pai_auto_json struct pai_json *item = pai_json_object();
	int r = pai_json_set_str(item, "type", "text");

	r = r ? r : pai_json_set_str(item, "text", text);
	return r ? r : pai_json_push(content, PAI_TAKE(item));
}

static int push_image(struct pai_json *content, const struct pai_json *answer)
{
	pai_auto_json struct pai_json *item = pai_json_object();
	pai_auto_buf struct pai_buf words = PAI_BUF_INIT(SIZE_MAX - 1);
	const char *media = pai_json_str(answer, "mediaType");
	int r = pai_buf_printf(&words, "%s (%s)", pai_json_str(answer, "path"), media);

	if (r == 0 && pai_json_bool(answer, "environmentReset", false)) {
		r = pai_buf_add_str(&words,
		    "\n[The environment was replaced by a new one: files and processes of earlier "
		    "calls are gone.]");
	}
	r = r ? r : push_text(content, words.data);
	r = r ? r : pai_json_set_str(item, "type", "image");
	r = r ? r : pai_json_set_str(item, "data", pai_json_str(answer, "base64"));
	r = r ? r : pai_json_set_str(item, "mimeType", media);
	return r ? r : pai_json_push(content, PAI_TAKE(item));
}

static struct pai_json *without_bytes(const struct pai_json *answer)
{
	pai_auto_json struct pai_json *rest = pai_json_object();
	int r = 0;

	for (const char *const *name = (const char *const[]){"status", "path", "mediaType", NULL};
	     *name && r == 0; name++) {
		r = pai_json_set_str(rest, *name, pai_json_str(answer, *name));
	}
	r = r ? r
	      : pai_json_set_bool(
		    rest, "environmentReset", pai_json_bool(answer, "environmentReset", false));
	return r < 0 ? NULL : PAI_TAKE(rest);
}

struct pai_json *pai_mcp_call_result(
    struct pai_json *take_answer, enum pai_tool_end end, enum pai_mcp_revision rev)
{
	pai_auto_json struct pai_json *answer = take_answer;
	pai_auto_json struct pai_json *result = pai_mcp_result(rev);
	pai_auto_json struct pai_json *content = pai_json_array();
	const char *status = pai_json_str(answer, "status");
	bool is_image = status && strcmp(status, "image") == 0;
	int r = answer && result && content ? 0 : -ENOMEM;

	if (r == 0 && is_image) {
		r = push_image(content, answer);
	} else if (r == 0) {
		pai_auto_free char *text = pai_json_print(answer, false);

		r = text ? push_text(content, text) : -ENOMEM;
	}
	r = r ? r : pai_json_set(result, "content", PAI_TAKE(content));
	if (r == 0 && rev >= PAI_MCP_2025_06_18) {
		r = pai_json_set(result, "structuredContent",
		    is_image ? without_bytes(answer) : PAI_TAKE(answer));
	}
	r = r ? r
	      : pai_json_set_bool(
		    result, "isError", end != PAI_TOOL_ANSWERED && end != PAI_TOOL_STOPS);
	return r < 0 ? NULL : PAI_TAKE(result);
}
