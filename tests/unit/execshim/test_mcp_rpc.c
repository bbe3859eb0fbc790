#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "execshim/mcp/rpc.h"

Test(mcp_rpc, a_message_is_a_request_a_notification_or_an_answer)
{
	static const struct {
		const char *text;
		const char *id; /* NULL: none */
		const char *method;
		bool is_wrong;
	} rows[] = {
	    {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", "1", "ping", false},
	    {"{\"jsonrpc\":\"2.0\",\"id\":\"a\\u00e9\\\"\",\"method\":\"m\",\"params\":{}}",
		"\"a\\u00e9\\\"\"", "m", false},
	    {"{\"jsonrpc\":\"2.0\",\"id\":-9007199254740991,\"method\":\"m\"}", NULL, NULL, true},
	    {"{\"jsonrpc\":\"2.0\",\"id\":900719925474099,\"method\":\"m\"}", "900719925474099",
		"m", false},
	    {"{\"jsonrpc\":\"2.0\",\"method\":\"n\"}", NULL, "n", false},
	    {"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}", "2", NULL, false},
	    {"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{}}", NULL, NULL, false},
	    {"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"m\"}", NULL, NULL, true},
	    {"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"m\"}", NULL, NULL, true},
	    {"{\"jsonrpc\":\"2.0\",\"id\":1e30,\"method\":\"m\"}", NULL, NULL, true},
	    {"{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"m\"}", NULL, NULL, true},
	    {"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"m\"}", NULL, NULL, true},
	    {"{\"jsonrpc\":\"1.0\",\"id\":3,\"method\":\"m\"}", "3", NULL, true},
	    {"{\"id\":4,\"method\":\"m\"}", "4", NULL, true},
	    {"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":7}", "5", NULL, true},
	    {"{\"jsonrpc\":\"2.0\",\"id\":6}", "6", NULL, true},
	    {"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"m\",\"params\":[1]}", "7", "m", true},
	    {"{}", NULL, NULL, true},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		pai_auto_rpc struct pai_rpc_message m = {.id = NULL};
		pai_auto_json struct pai_json *tree = NULL;
		struct pai_err err = PAI_ERR_INIT;
		int r;

		cr_assert_eq(pai_json_parse(rows[i].text, strlen(rows[i].text), 8, &tree, &err), 0);
		r = pai_rpc_take(tree, &m, &err);
		cr_assert_eq(r < 0, rows[i].is_wrong, "row %zu: %s", i, err.msg);
		cr_assert_eq(m.id == NULL, rows[i].id == NULL, "row %zu", i);
		if (m.id) {
			cr_assert_str_eq(m.id, rows[i].id, "row %zu", i);
		}
		if (!rows[i].is_wrong && rows[i].method) {
			cr_assert_str_eq(m.method, rows[i].method, "row %zu", i);
		}
	}
}

Test(mcp_rpc, the_id_is_found_in_what_is_no_json)
{
	static const struct {
		const char *text;
		const char *id;
	} rows[] = {
	    {"{\"jsonrpc\":\"2.0\",\"id\":12,\"method\":\"\\u0000\"}", "12"},
	    {"{\"method\":\"m\",\"params\":{\"id\":1,\"x\":[[[{\"id\":3}]]]},\"id\" : \"b,}\" }",
		"\"b,}\""},
	    {"{\"a\":\"\\\"id\\\":5,\",\"id\":6}", "6"},
	    {"{\"params\":{\"id\":7}}", ""},
	    {"[{\"id\":8}]", ""},
	    {"{\"id\":9", ""}, /* cut: it may go on */
	    {"{\"id\":9,", "9"},
	    {"{\"id\":1.5,\"x\":1}", ""},
	    {"{\"id\":-,\"x\":1}", ""},
	    {"{\"id\":null}", ""},
	    {"{\"id\":\"\":\"x\"}", ""},
	    {"{\"id\":\"a\"b}", ""},
	    {"{\"id\":\"\"}", "\"\""},
	    {"{\"id\":\"}", ""},
	    {"{\"id\":007}", ""},
	    {"{\"id\":-0}", "-0"},
	    {"{\"id\":}", ""},
	    {"{\"id\":\"a\\u0041\"}", ""},
	    {"}}}]]],{\"id\":10}", "10"},
	    {"{\"id\":99999999999999999999}", ""},
	    {"", ""},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pai_rpc_scan whole = {.depth = 0}, pieces = {.depth = 0};
		size_t len = strlen(rows[i].text);

		pai_rpc_scan(&whole, rows[i].text, len);
		cr_assert_str_eq(whole.id, rows[i].id, "row %zu", i);
		for (size_t at = 0; at < len; at++) {
			pai_rpc_scan(&pieces, rows[i].text + at, 1);
		}
		cr_assert_str_eq(pieces.id, rows[i].id, "row %zu, in pieces", i);
	}
}

struct seen {
	size_t lines, long_ones;
	char last[64];
};

static void on_line(void *arg, const char *line, size_t len, const char *id)
{
	struct seen *s = arg;

	if (line) {
		s->lines++;
		cr_assert_eq(strlen(line), len);
	} else {
		s->long_ones++;
	}
	(void)snprintf(s->last, sizeof(s->last), "%s", line ? line : id ? id : "null");
}

Test(mcp_rpc, lines_come_whole_and_one_that_is_too_long_not_at_all)
{
	struct pai_rpc_lines l = PAI_RPC_LINES_INIT;
	struct seen s = {.lines = 0};
	pai_auto_free char *piece = malloc(1 << 20);

	cr_assert_not_null(piece);
	memset(piece, 'x', 1 << 20);
	pai_rpc_lines_feed(&l, "{\"a\"", 4, on_line, &s);
	cr_assert_eq(s.lines, 0);
	pai_rpc_lines_feed(&l, ":1}\n\n \r\n{}\r\n{\"id\":77,\"x\":\"", 27, on_line, &s);
	cr_assert_eq(s.lines, 2);
	cr_assert_str_eq(s.last, "{}\r");
	for (int i = 0; i < 100; i++) {
		pai_rpc_lines_feed(&l, piece, 1 << 20, on_line, &s);
		cr_assert_leq(l.buf.cap, 2u * PAI_RPC_LINE_MAX);
	}
	cr_assert_eq(s.long_ones, 0);
	pai_rpc_lines_feed(&l, "\"}\n[2]\n", 7, on_line, &s);
	cr_assert_eq(s.long_ones, 1);
	cr_assert_eq(s.lines, 3);
	cr_assert_str_eq(s.last, "[2]");
	pai_rpc_lines_fini(&l);
}

Test(mcp_rpc, what_is_said_is_one_line_each)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	struct pai_json *params = pai_json_object();

	cr_assert_eq(pai_rpc_put_result(&out, "7", "{}"), 0);
	cr_assert_str_eq(out.data, "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}");
	pai_buf_clear(&out);
	cr_assert_eq(pai_rpc_put_error(&out, NULL, PAI_RPC_PARSE, "no\n\"x\"", NULL), 0);
	cr_assert_str_eq(out.data, "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,"
				   "\"message\":\"no\\n\\\"x\\\"\"}}");
	pai_buf_clear(&out);
	cr_assert_eq(pai_json_set_num(params, "n", 1), 0);
	cr_assert_eq(pai_rpc_put_notification(&out, "notifications/x", params), 0);
	cr_assert_str_eq(out.data, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":"
				   "{\"n\":1}}");
}
