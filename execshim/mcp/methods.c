/*
 * What a client may say, and what it is answered. Two ways of speaking share one table: with a
 * handshake, whose revision holds for the connection, and with a revision in each request's _meta.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "execshim/mcp/instructions.h"
#include "execshim/mcp/outside.h"
#include "execshim/mcp/server_priv.h"
#include "execshim/tools/fixed.h"
#include "providers/base/clock.h"
#include "providers/base/log.h"

#define META "io.modelcontextprotocol/"
#define KEEP_MS 3600000 /* how long a client may believe server/discover */
#define CALLS_MAX 1000
#define HELD_MAX (256u << 20)
#define BATCH_MAX 1000

static const char *const levels[] = {
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"};

/* PAI_MCP_SILENT: none of those. */
static enum pai_mcp_level level_of(const char *name)
{
	int i = 0;

	while (i < PAI_MCP_SILENT && (!name || strcmp(levels[i], name) != 0)) {
		i++;
	}
	return (enum pai_mcp_level)i;
}

/* --- answers --- */

static void put_answer(
    struct pai_mcp *m, const struct pai_mcp_ask *ask, struct pai_buf *line, int r)
{
	if (!ask->batch) {
		pai_mcp_send(m, line, r);
		return;
	}
	r = r ? r : pai_buf_add_str(&ask->batch->answers, ask->batch->answers.len ? "," : "[");
	r = r ? r : pai_buf_add(&ask->batch->answers, line->data, line->len);
	m->is_over = m->is_over || r < 0;
}

void pai_mcp_answer(struct pai_mcp *m, const struct pai_mcp_ask *ask, const char *result)
{
	pai_auto_buf struct pai_buf line = PAI_BUF_INIT(SIZE_MAX - 1);

	put_answer(m, ask, &line, pai_rpc_put_result(&line, ask->id, result));
}

static void answer_json(
    struct pai_mcp *m, const struct pai_mcp_ask *ask, struct pai_json *take_result)
{
	pai_auto_json struct pai_json *result = take_result;
	pai_auto_free char *text = result ? pai_json_print(result, false) : NULL;

	if (text) {
		pai_mcp_answer(m, ask, text);
	} else {
		m->is_over = true;
	}
}

static void answer_error(struct pai_mcp *m, const struct pai_mcp_ask *ask, enum pai_rpc_code code,
    const char *message, struct pai_json *take_data)
{
	pai_auto_buf struct pai_buf line = PAI_BUF_INIT(SIZE_MAX - 1);

	put_answer(m, ask, &line, pai_rpc_put_error(&line, ask->id, code, message, take_data));
}

void pai_mcp_answer_tool(
    struct pai_mcp *m, struct pai_mcp_call *c, struct pai_json *take_answer, enum pai_tool_end end)
{
	pai_auto_json struct pai_json *answer = take_answer;

	if (answer && c->session && c->session->outside &&
	    pai_mcp_outside(answer, c->session->outside) < 0) {
		m->is_over = true;
	}
	answer_json(
	    m, &c->ask, answer ? pai_mcp_call_result(PAI_TAKE(answer), end, c->ask.rev) : NULL);
}

static void leave_batch(struct pai_mcp *m, struct pai_mcp_batch *batch)
{
	if (!batch || --batch->waits_for > 0) {
		return;
	}
	if (batch->answers.len > 0) {
		pai_mcp_send(m, &batch->answers, pai_buf_add_str(&batch->answers, "]"));
	}
	pai_buf_fini(&batch->answers);
	free(batch);
}

void pai_mcp_ask_fini(struct pai_mcp *m, struct pai_mcp_ask *ask)
{
	leave_batch(m, ask->batch);
	free(ask->id);
	*ask = (struct pai_mcp_ask){.id = NULL};
}

/* --- notifications --- */

static void notify(struct pai_mcp *m, const char *method, struct pai_json *take_params)
{
	pai_auto_buf struct pai_buf line = PAI_BUF_INIT(SIZE_MAX - 1);

	pai_mcp_send(m, &line, pai_rpc_put_notification(&line, method, take_params));
}

/* A token is JSON text already. */
static struct pai_json *parsed(const char *text)
{
	struct pai_json *j = NULL;

	return pai_json_parse(text, strlen(text), 1, &j, PAI_ERR_IGNORED()) < 0 ? NULL : j;
}

void pai_mcp_tell_progress(struct pai_mcp *m, struct pai_mcp_call *c)
{
	pai_auto_json struct pai_json *params = NULL;
	const char *reason = pai_json_str(c->input, "reason");
	uint64_t now = pai_clock_ms();
	int64_t elapsed = (int64_t)(now - c->begun_ms);
	int r;

	if (!c->progress_token || c->is_cancelled || c->is_answered) {
		return;
	}
	/* Milliseconds since it began, and more each time. */
	c->progress = elapsed > c->progress ? elapsed : c->progress + 1;
	c->told_ms = now;
	params = pai_json_object();
	r = pai_json_set(params, "progressToken", parsed(c->progress_token));
	r = r ? r : pai_json_set_num(params, "progress", c->progress);
	r = r || !reason ? r : pai_json_set_str(params, "message", reason);
	notify(m, "notifications/progress", r < 0 ? NULL : PAI_TAKE(params));
}

void pai_mcp_tell_event(struct pai_mcp *m, struct pai_mcp_call *c, enum pai_mcp_level level,
    const char *event, struct pai_json *take_data)
{
	pai_auto_json struct pai_json *data = take_data ? take_data : pai_json_object();
	pai_auto_json struct pai_json *params = pai_json_object();
	int r;

	if (level < c->ask.level || c->is_cancelled || c->is_answered) {
		return;
	}
	r = pai_json_set_str(data, "event", event);
	r = r ? r : pai_json_set_str(data, "tool", c->spec->name);
	r = r ? r : pai_json_set_str(data, "reason", pai_json_str(c->input, "reason"));
	r = r ? r : pai_json_set_str(params, "level", levels[level]);
	r = r ? r : pai_json_set_str(params, "logger", "paifs");
	r = r ? r : pai_json_set(params, "data", PAI_TAKE(data));
	notify(m, "notifications/message", r < 0 ? NULL : PAI_TAKE(params));
}

/* --- methods --- */

static const char *instructions(struct pai_mcp *m)
{
	if (!m->instructions) {
		m->instructions = pai_mcp_instructions(&m->o);
		m->is_over = m->is_over || !m->instructions;
	}
	return m->instructions;
}

static int set_abilities(struct pai_json *result)
{
	pai_auto_json struct pai_json *abilities = pai_json_object();
	int r = pai_json_set(abilities, "tools", pai_json_object());

	r = r ? r : pai_json_set(abilities, "logging", pai_json_object());
	return r ? r : pai_json_set(result, "capabilities", PAI_TAKE(abilities));
}

static void initialize(struct pai_mcp *m, struct pai_mcp_ask *ask)
{
	const char *wanted = pai_json_str(ask->params, "protocolVersion");
	pai_auto_json struct pai_json *result = NULL;
	enum pai_mcp_revision rev;
	int r;

	if (m->rev != PAI_MCP_REVISIONS || ask->batch) {
		answer_error(m, ask, PAI_RPC_INVALID,
		    ask->batch ? "initialize is not for a batch" : "initialized already", NULL);
		return;
	}
	if (!wanted) {
		answer_error(m, ask, PAI_RPC_PARAMS, "protocolVersion: expected a text", NULL);
		return;
	}
	/* One that there is no handshake for, or that is unknown: the latest that has one. */
	rev = pai_mcp_revision_find(wanted);
	m->rev = rev < PAI_MCP_2026_07_28 ? rev : PAI_MCP_2025_11_25;
	result = pai_mcp_result(m->rev);
	r = pai_json_set_str(result, "protocolVersion", pai_mcp_revision_name(m->rev));
	r = r ? r : set_abilities(result);
	r = r ? r : pai_json_set(result, "serverInfo", pai_mcp_server_info());
	r = r ? r : pai_json_set_str(result, "instructions", instructions(m));
	answer_json(m, ask, r < 0 ? NULL : PAI_TAKE(result));
}

static void discover(struct pai_mcp *m, struct pai_mcp_ask *ask)
{
	pai_auto_json struct pai_json *result = pai_mcp_result(ask->rev);
	int r = pai_json_set(result, "supportedVersions", pai_mcp_revision_list());

	r = r ? r : set_abilities(result);
	r = r ? r : pai_json_set_str(result, "instructions", instructions(m));
	r = r ? r : pai_json_set_num(result, "ttlMs", KEEP_MS);
	r = r ? r : pai_json_set_str(result, "cacheScope", "private");
	answer_json(m, ask, r < 0 ? NULL : PAI_TAKE(result));
}

static void ping(struct pai_mcp *m, struct pai_mcp_ask *ask)
{
	pai_mcp_answer(m, ask, "{}");
}

static void set_level(struct pai_mcp *m, struct pai_mcp_ask *ask)
{
	enum pai_mcp_level level = level_of(pai_json_str(ask->params, "level"));

	if (level == PAI_MCP_SILENT) {
		answer_error(
		    m, ask, PAI_RPC_PARAMS, "level: expected debug, info, ..., emergency", NULL);
		return;
	}
	m->level = level;
	pai_mcp_answer(m, ask, "{}");
}

static void list_tools(struct pai_mcp *m, struct pai_mcp_ask *ask)
{
	if (pai_json_get(ask->params, "cursor")) {
		answer_error(m, ask, PAI_RPC_PARAMS, "cursor: there is one page", NULL);
		return;
	}
	answer_json(m, ask, pai_mcp_tool_list(m->o.served, ask->rev));
}

static int copy_input(const struct pai_json *given, struct pai_mcp_call *c, struct pai_err *err)
{
	pai_auto_free char *text = given ? pai_json_print(given, false) : strdup("{}");

	if (!text) {
		return pai_err_no_memory(err);
	}
	c->bytes = strlen(text);
	return pai_json_parse(text, c->bytes, PAI_RPC_DEPTH_MAX, &c->input, err);
}

/* 1: which session it is for is known; 0: the call is answered. */
static int find_session(struct pai_mcp *m, struct pai_mcp_call *c)
{
	const char *field = c->spec == &pai_tool_specs[PAI_TOOL_BASH] ? "cwd" : "path";
	struct pai_err err = PAI_ERR_INIT;
	pai_auto_free char *said = NULL;

	if (m->o.dir && !pai_json_get(c->input, field) &&
	    (c->spec == &pai_tool_specs[PAI_TOOL_BASH] ||
		c->spec == &pai_tool_specs[PAI_TOOL_GREP] ||
		c->spec == &pai_tool_specs[PAI_TOOL_GLOB]) &&
	    pai_json_set_str(c->input, field, m->o.dir) < 0) {
		m->is_over = true;
		return 0;
	}
	c->session = pai_mcp_session_for(m, pai_json_str(c->input, field), &err);
	if (c->session) {
		return 1;
	}
	if (err.code != PAI_E_INPUT || asprintf(&said, "%s: %s", field, err.msg) < 0) {
		said = NULL;
	}
	pai_log_info("mcp", "%s: %s", c->spec->name, err.msg);
	pai_mcp_answer_tool(m, c, pai_fixed_answer(&err, said, false), PAI_TOOL_BAD_INPUT);
	return 0;
}

static void call_tool(struct pai_mcp *m, struct pai_mcp_ask *ask)
{
	const char *name = pai_json_str(ask->params, "name");
	const struct pai_json *given = pai_json_get(ask->params, "arguments");
	const struct pai_tool_spec *spec = name ? pai_tool_find(name) : NULL;
	struct pai_mcp_call *c;
	struct pai_err err = PAI_ERR_INIT;
	char text[80];

	if (!spec || !m->o.served[spec - pai_tool_specs]) {
		(void)snprintf(text, sizeof(text), "Unknown tool: %.40s", name ? name : "no name");
		answer_error(m, ask, PAI_RPC_PARAMS, text, NULL);
		return;
	}
	if (given && !pai_json_is_object(given)) {
		answer_error(m, ask, PAI_RPC_PARAMS, "arguments: expected an object", NULL);
		return;
	}
	c = calloc(1, sizeof(*c));
	if (!c || copy_input(given, c, &err) < 0) {
		free(c);
		m->is_over = true;
		return;
	}
	c->spec = spec;
	c->lane.is_sequential = spec->is_sequential;
	c->progress_token =
	    pai_rpc_token(pai_json_get(pai_json_get(ask->params, "_meta"), "progressToken"));
	c->ask = *ask;
	*ask = (struct pai_mcp_ask){.id = NULL};
	if (m->call_count >= CALLS_MAX || m->held_bytes + c->bytes > HELD_MAX) {
		struct pai_err busy = {.code = PAI_E_QUOTA_EXCEEDED};

		pai_mcp_answer_tool(m, c, pai_fixed_answer(&busy, NULL, false), PAI_TOOL_FAILED);
		pai_mcp_call_free(m, c);
	} else if (find_session(m, c) > 0) {
		pai_mcp_take_call(m, c);
	} else {
		pai_mcp_call_free(m, c);
	}
}

static const struct method {
	const char *name;
	enum pai_mcp_revision from, to;
	bool before_handshake;
	void (*fn)(struct pai_mcp *m, struct pai_mcp_ask *ask);
} methods[] = {
    {"initialize", PAI_MCP_2025_03_26, PAI_MCP_2025_11_25, true, initialize},
    {"ping", PAI_MCP_2025_03_26, PAI_MCP_2025_11_25, true, ping},
    {"logging/setLevel", PAI_MCP_2025_03_26, PAI_MCP_2025_11_25, false, set_level},
    {"server/discover", PAI_MCP_2026_07_28, PAI_MCP_2026_07_28, false, discover},
    {"tools/list", PAI_MCP_2025_03_26, PAI_MCP_2026_07_28, false, list_tools},
    {"tools/call", PAI_MCP_2025_03_26, PAI_MCP_2026_07_28, false, call_tool},
};

static void refuse_revision(struct pai_mcp *m, struct pai_mcp_ask *ask, const char *wanted)
{
	pai_auto_json struct pai_json *data = pai_json_object();
	int r = pai_json_set(data, "supported", pai_mcp_revision_list());

	r = r ? r : pai_json_set_str(data, "requested", wanted);
	m->is_over = m->is_over || r < 0;
	answer_error(m, ask, PAI_RPC_VERSION, "Unsupported protocol version", PAI_TAKE(data));
}

/* What the request says of itself, from 2026-07-28 on. True: it can be gone on with. */
static bool read_meta(struct pai_mcp *m, struct pai_mcp_ask *ask, const struct pai_json *meta)
{
	const char *wanted = pai_json_str(meta, META "protocolVersion");
	const struct pai_json *level = pai_json_get(meta, META "logLevel");

	ask->rev = wanted ? pai_mcp_revision_find(wanted) : PAI_MCP_REVISIONS;
	if (!wanted || !pai_json_is_object(pai_json_get(meta, META "clientCapabilities"))) {
		answer_error(m, ask, PAI_RPC_PARAMS,
		    "_meta: expected " META "protocolVersion and " META "clientCapabilities", NULL);
		return false;
	}
	if (ask->rev == PAI_MCP_REVISIONS) {
		refuse_revision(m, ask, wanted);
		return false;
	}
	ask->level = level ? level_of(pai_json_text(level)) : PAI_MCP_SILENT;
	if (level && ask->level == PAI_MCP_SILENT) {
		answer_error(m, ask, PAI_RPC_PARAMS, "_meta: " META "logLevel is no level", NULL);
		return false;
	}
	return true;
}

static bool is_in_use(const struct pai_mcp *m, const char *id)
{
	for (const struct pai_mcp_call *c = m->calls; c; c = c->next) {
		if (strcmp(c->ask.id, id) == 0) {
			return true;
		}
	}
	return false;
}

static void on_request(struct pai_mcp *m, struct pai_mcp_ask *ask, const char *name)
{
	const struct pai_json *meta = pai_json_get(ask->params, "_meta");
	bool has_meta = pai_json_get(meta, META "protocolVersion") ||
			pai_json_get(meta, META "clientCapabilities");
	const struct method *f = methods;

	ask->rev = m->rev;
	ask->level = m->level;
	while (f < methods + PAI_COUNT(methods) && strcmp(f->name, name) != 0) {
		f++;
	}
	if (is_in_use(m, ask->id)) {
		answer_error(
		    m, ask, PAI_RPC_INVALID, "id: is that of a call that is being made", NULL);
		return;
	}
	if ((has_meta || (f < methods + PAI_COUNT(methods) && f->from == PAI_MCP_2026_07_28)) &&
	    !read_meta(m, ask, meta)) {
		return;
	}
	if (f == methods + PAI_COUNT(methods) ||
	    (ask->rev != PAI_MCP_REVISIONS && (ask->rev < f->from || ask->rev > f->to))) {
		answer_error(m, ask, PAI_RPC_NO_METHOD, "Method not found", NULL);
		return;
	}
	if (ask->rev == PAI_MCP_REVISIONS && !f->before_handshake) {
		answer_error(m, ask, PAI_RPC_PARAMS,
		    "expected initialize first, or _meta with " META "protocolVersion and " META
		    "clientCapabilities",
		    NULL);
		return;
	}
	f->fn(m, ask);
}

static void on_notification(struct pai_mcp *m, const struct pai_rpc_message *said)
{
	pai_auto_free char *id = NULL;

	if (strcmp(said->method, "notifications/cancelled") != 0) {
		return; /* nothing else changes anything here */
	}
	id = pai_rpc_token(pai_json_get(said->params, "requestId"));
	if (id) {
		pai_mcp_cancel(m, id);
	}
}

static void on_message(
    struct pai_mcp *m, const struct pai_json *object, struct pai_mcp_batch *batch)
{
	pai_auto_rpc struct pai_rpc_message said = {.id = NULL};
	struct pai_mcp_ask ask = {.batch = batch};
	struct pai_err err = PAI_ERR_INIT;
	int r = pai_rpc_take(object, &said, &err);

	if (r == 0 && !said.method) {
		return; /* an answer; we ask nothing */
	}
	if (r == 0 && !said.id) {
		on_notification(m, &said);
		return;
	}
	ask.id = PAI_TAKE(said.id);
	ask.params = said.params;
	if (batch) {
		batch->waits_for++;
	}
	if (r < 0) {
		answer_error(m, &ask, PAI_RPC_INVALID, err.msg, NULL);
	} else {
		on_request(m, &ask, said.method);
	}
	pai_mcp_ask_fini(m, &ask);
}

static void on_batch(struct pai_mcp *m, const struct pai_json *array)
{
	struct pai_mcp_ask nobody = {.id = NULL};
	size_t count = pai_json_count(array);
	struct pai_mcp_batch *batch;

	if (m->rev != PAI_MCP_2025_03_26 || count == 0 || count > BATCH_MAX) {
		answer_error(m, &nobody, PAI_RPC_INVALID,
		    m->rev != PAI_MCP_2025_03_26
			? "expected an object: this revision has no batches"
			: "expected a batch of 1 to 1000 messages",
		    NULL);
		return;
	}
	batch = calloc(1, sizeof(*batch));
	if (!batch) {
		m->is_over = true;
		return;
	}
	batch->waits_for = 1;
	batch->answers = (struct pai_buf)PAI_BUF_INIT(SIZE_MAX - 1);
	for (const struct pai_json *e = pai_json_at(array, 0); e; e = pai_json_next(e)) {
		on_message(m, e, batch);
	}
	leave_batch(m, batch);
}

void pai_mcp_on_line(void *arg, const char *line, size_t len, const char *id)
{
	struct pai_mcp *m = arg;
	pai_auto_json struct pai_json *tree = NULL;
	struct pai_rpc_scan scan = {.depth = 0};
	struct pai_mcp_ask nobody = {.id = (char *)(uintptr_t)id};
	struct pai_err err = PAI_ERR_INIT;

	if (!line) {
		answer_error(
		    m, &nobody, PAI_RPC_PARSE, "Parse error: a message is at most 64 MiB", NULL);
		return;
	}
	if (pai_json_parse(line, len, PAI_RPC_DEPTH_MAX, &tree, &err) < 0) {
		char text[300];

		pai_rpc_scan(&scan, line, len);
		nobody.id = scan.id[0] ? scan.id : NULL;
		(void)snprintf(text, sizeof(text), "Parse error: %s", err.msg);
		answer_error(m, &nobody, PAI_RPC_PARSE, text, NULL);
	} else if (pai_json_is_object(tree)) {
		on_message(m, tree, NULL);
	} else if (pai_json_is_array(tree)) {
		on_batch(m, tree);
	} else {
		answer_error(m, &nobody, PAI_RPC_INVALID, "expected an object", NULL);
	}
}
