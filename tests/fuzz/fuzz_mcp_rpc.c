/*
 * Any bytes as what an MCP client says: lines come whole however they are cut, each is a message,
 * no message or no JSON, and the id that is made out of what can't be read is one.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "execshim/mcp/rpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_id(const char *id)
{
	pai_auto_json struct pai_json *value = NULL;
	pai_auto_free char *again = NULL;
	struct pai_err err = PAI_ERR_INIT;

	assert(strlen(id) < 6 * PAI_RPC_ID_MAX + 3 && !strchr(id, '\n'));
	assert(pai_json_parse(id, strlen(id), 1, &value, &err) == 0);
	again = pai_rpc_token(value);
	assert(again);
}

static void check_answer(const char *id)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1 << 16);
	pai_auto_json struct pai_json *tree = NULL;
	struct pai_err err = PAI_ERR_INIT;

	assert(pai_rpc_put_error(&out, id, PAI_RPC_PARSE, "x", NULL) == 0);
	assert(pai_json_parse(out.data, out.len, 4, &tree, &err) == 0);
}

struct seen {
	size_t lines, bytes;
};

static void on_line(void *arg, const char *line, size_t len, const char *id)
{
	struct seen *s = arg;
	pai_auto_json struct pai_json *tree = NULL;
	pai_auto_rpc struct pai_rpc_message m = {.id = NULL};
	struct pai_rpc_scan scan = {.depth = 0};
	struct pai_err err = PAI_ERR_INIT;

	assert(line && !id && len > 0 && line[len] == '\0'); /* none of these is too long */
	s->lines++;
	s->bytes += len;
	pai_rpc_scan(&scan, line, len);
	if (scan.id[0]) {
		check_answer(scan.id);
	}
	if (pai_json_parse(line, len, PAI_RPC_DEPTH_MAX, &tree, &err) < 0) {
		return;
	}
	(void)!pai_rpc_take(tree, &m, &err);
	if (m.id) {
		check_id(m.id);
		check_answer(m.id);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pai_rpc_lines whole = PAI_RPC_LINES_INIT, pieces = PAI_RPC_LINES_INIT;
	struct seen a = {.lines = 0}, b = {.lines = 0};
	size_t step = size ? 1 + data[0] % 7 : 1;

	pai_rpc_lines_feed(&whole, (const char *)data, size, on_line, &a);
	for (size_t at = 0; at < size; at += step) {
		size_t n = size - at < step ? size - at : step;

		pai_rpc_lines_feed(&pieces, (const char *)data + at, n, on_line, &b);
	}
	assert(a.lines == b.lines && a.bytes == b.bytes);
	pai_rpc_lines_fini(&whole);
	pai_rpc_lines_fini(&pieces);
	return 0;
}
