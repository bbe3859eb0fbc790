#include "execshim/mcp/rpc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t\r\n"

/* --- messages --- */

char *pai_rpc_token(const struct pai_json *value)
{
	const char *text = pai_json_text(value);
	char *number;

	if (text) {
		return strlen(text) <= PAI_RPC_ID_MAX ? pai_json_print_ascii(value) : NULL;
	}
	if (!pai_json_is_number(value)) {
		return NULL;
	}
	number = pai_json_print(value, false);
	if (number && (number[strspn(number, "-0123456789")] || strlen(number) > 16)) {
		free(PAI_TAKE(number));
	}
	return number;
}

void pai_rpc_message_fini(struct pai_rpc_message *m)
{
	free(m->id);
	*m = (struct pai_rpc_message){.id = NULL};
}

int pai_rpc_take(const struct pai_json *object, struct pai_rpc_message *ret, struct pai_err *err)
{
	const struct pai_json *id = pai_json_get(object, "id");
	const struct pai_json *params = pai_json_get(object, "params");
	const char *version = pai_json_str(object, "jsonrpc");

	*ret = (struct pai_rpc_message){.id = id ? pai_rpc_token(id) : NULL};
	if (!version || strcmp(version, "2.0") != 0) {
		return pai_err_set(
		    err, PAI_E_INPUT, "expected an object with \"jsonrpc\": \"2.0\"");
	}
	ret->method = pai_json_str(object, "method");
	if (!ret->method &&
	    (pai_json_get(object, "method") ||
		(!pai_json_get(object, "result") && !pai_json_get(object, "error")))) {
		return pai_err_set(err, PAI_E_INPUT, "method: expected a text");
	}
	if (id && !ret->id && ret->method) {
		return pai_err_set(err, PAI_E_INPUT,
		    "id: expected a text of up to %d bytes or a whole number", PAI_RPC_ID_MAX);
	}
	if (params && !pai_json_is_object(params)) {
		return pai_err_set(err, PAI_E_INPUT, "params: expected an object");
	}
	ret->params = params;
	return 0;
}

/* --- the id of what can't be read --- */

static const char *skip(const char *at, const char *blanks)
{
	return at + strspn(at, blanks);
}

static bool is_plain_text(const char *at, size_t len)
{
	for (size_t i = 1; i < len; i++) {
		if (at[i] < ' ' || at[i] > '~' || at[i] == '\\' ||
		    (at[i] == '"') != (i == len - 1)) {
			return false;
		}
	}
	return len >= 2;
}

static bool is_whole_number(const char *at, size_t len)
{
	size_t sign = *at == '-';

	return len > sign && len <= 16 && strspn(at + sign, "0123456789") == len - sign &&
	       (at[sign] != '0' || len == sign + 1);
}

/* A member of the outermost object has ended: is it the id? */
static void settle(struct pai_rpc_scan *s)
{
	const char *at = s->word;
	size_t len;

	s->word[s->len] = '\0';
	at = skip(at, BLANKS);
	if (s->is_long || strncmp(at, "\"id\"", 4) != 0 || *(at = skip(at + 4, BLANKS)) != ':') {
		return;
	}
	at = skip(at + 1, BLANKS);
	len = strlen(at);
	while (len > 0 && strchr(BLANKS, at[len - 1])) {
		len--;
	}
	if ((*at == '"' ? is_plain_text(at, len) : is_whole_number(at, len)) &&
	    len < sizeof(s->id)) {
		memcpy(s->id, at, len);
		s->id[len] = '\0';
	}
}

static void keep(struct pai_rpc_scan *s, char c)
{
	s->is_long = s->is_long || s->len == sizeof(s->word) - 1;
	if (!s->is_long) {
		s->word[s->len++] = c;
	}
}

static void begin_member(struct pai_rpc_scan *s)
{
	s->len = 0;
	s->is_long = false;
}

static void scan_outside(struct pai_rpc_scan *s, char c)
{
	if (c == '{' || c == '[') {
		s->depth++;
	}
	if (s->depth == 1 && (c == ',' || c == '}')) {
		settle(s);
	}
	if (s->depth == 1 && (c == ',' || c == '{')) {
		begin_member(s);
	} else if (s->depth == 1) {
		keep(s, c);
	}
	if ((c == '}' || c == ']') && s->depth > 0) {
		s->depth--;
	}
	s->in_string = c == '"';
}

void pai_rpc_scan(struct pai_rpc_scan *s, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		char c = data[i] ? data[i] : '\1'; /* a NUL is none of an id */

		if (!s->in_string) {
			scan_outside(s, c);
			continue;
		}
		if (s->depth == 1) {
			keep(s, c);
		}
		s->in_string = s->is_escaped || c != '"';
		s->is_escaped = !s->is_escaped && c == '\\';
	}
}

/* --- lines --- */

static void end_line(struct pai_rpc_lines *l, pai_rpc_line_fn fn, void *arg)
{
	if (l->is_over) {
		fn(arg, NULL, 0, l->scan.id[0] ? l->scan.id : NULL);
	} else if (l->buf.len > 0 && strspn(l->buf.data, BLANKS) < l->buf.len) {
		fn(arg, l->buf.data, l->buf.len, NULL);
	}
	pai_buf_clear(&l->buf);
	if (l->buf.cap > 1u << 20) {
		pai_buf_fini(&l->buf);
		l->buf = (struct pai_buf)PAI_BUF_INIT(PAI_RPC_LINE_MAX);
	}
	l->is_over = false;
	l->scan = (struct pai_rpc_scan){.depth = 0};
}

void pai_rpc_lines_feed(
    struct pai_rpc_lines *l, const char *data, size_t len, pai_rpc_line_fn fn, void *arg)
{
	const char *end = data + len;

	while (data < end) {
		const char *newline = memchr(data, '\n', (size_t)(end - data));
		size_t n = (size_t)((newline ? newline : end) - data);

		if (!l->is_over && pai_buf_add(&l->buf, data, n) < 0) {
			l->is_over = true;
			pai_rpc_scan(&l->scan, l->buf.data ? l->buf.data : "", l->buf.len);
			pai_buf_clear(&l->buf);
		}
		if (l->is_over) {
			pai_rpc_scan(&l->scan, data, n);
		}
		if (newline) {
			end_line(l, fn, arg);
		}
		data += n + (newline != NULL);
	}
}

void pai_rpc_lines_fini(struct pai_rpc_lines *l)
{
	pai_buf_fini(&l->buf);
}

/* --- what we say --- */

int pai_rpc_put_result(struct pai_buf *out, const char *id, const char *result)
{
	return pai_buf_printf(out, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":", id ? id : "null") <
			   0 ||
		       pai_buf_add_str(out, result) < 0
		   ? -ENOMEM
		   : pai_buf_add_str(out, "}");
}

static int put(struct pai_buf *out, const struct pai_json *message)
{
	pai_auto_free char *text = pai_json_print(message, false);

	return text ? pai_buf_add_str(out, text) : -ENOMEM;
}

int pai_rpc_put_error(struct pai_buf *out, const char *id, enum pai_rpc_code code,
    const char *message, struct pai_json *take_data)
{
	pai_auto_json struct pai_json *data = take_data;
	pai_auto_json struct pai_json *error = pai_json_object();
	int r = pai_json_set_num(error, "code", code);

	r = r ? r : pai_json_set_str(error, "message", message);
	r = r || !data ? r : pai_json_set(error, "data", PAI_TAKE(data));
	r = r ? r
	      : pai_buf_printf(out, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":", id ? id : "null");
	r = r ? r : put(out, error);
	return r ? r : pai_buf_add_str(out, "}");
}

int pai_rpc_put_notification(struct pai_buf *out, const char *method, struct pai_json *take_params)
{
	pai_auto_json struct pai_json *params = take_params;
	pai_auto_json struct pai_json *message = pai_json_object();
	int r = params ? pai_json_set_str(message, "jsonrpc", "2.0") : -ENOMEM;

	r = r ? r : pai_json_set_str(message, "method", method);
	r = r ? r : pai_json_set(message, "params", PAI_TAKE(params));
	return r ? r : put(out, message);
}
