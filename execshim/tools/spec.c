#include "execshim/tools/spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "execshim/tools/text.h"

#define ANY INT32_MAX
#define REASON                                                                                     \
	{                                                                                          \
		"reason", PAI_TOOL_TEXT, true, 1, 200, NULL,                                       \
		    "A short label for the person following along, such as \"Drafting the "        \
		    "summary\"."                                                                   \
	}
#define PATH(text)                                                                                 \
	{                                                                                          \
		"path", PAI_TOOL_TEXT, true, 0, ANY, NULL, text                                    \
	}
#define MESSAGE                                                                                    \
	{                                                                                          \
		"message", PAI_TOOL_TEXT                                                           \
	}
#define INVALID(stops)                                                                             \
	{                                                                                          \
		"invalid", stops,                                                                  \
		{                                                                                  \
			MESSAGE                                                                    \
		}                                                                                  \
	}
#define FAILS_ENGINE {"not_found", false, {MESSAGE}}, {"error", false, {MESSAGE}}, INVALID(false)

const struct pai_tool_spec pai_tool_specs[PAI_TOOL_COUNT] = {
    [PAI_TOOL_BASH] = {"bash", true,
	"Run a shell command. A non-zero exit code is a normal result. Commands time out after 2 "
	"minutes unless timeoutMs says otherwise; then timedOut is true and exitCode null. Of a "
	"long output the end is returned, and the whole is kept in a file that the banner names. "
	"Within one step bash, write and edit run alone, in the order written; a command that "
	"exits non-zero or times out stops the calls after it.",
	{REASON, {"command", PAI_TOOL_TEXT, true, 1, ANY, NULL, "The command line."},
	    {"cwd", PAI_TOOL_TEXT, false, 1, ANY, "\"/workspace\"",
		"The directory to run it in, absolute."},
	    {"timeoutMs", PAI_TOOL_NUMBER, false, 1, 3600000, "120000",
		"How long it may take, in milliseconds."}},
	{{NULL, false,
	    {{"exitCode", PAI_TOOL_NUMBER, .nullable = true}, {"timedOut", PAI_TOOL_FLAG},
		{"stdout", PAI_TOOL_TEXT}, {"stderr", PAI_TOOL_TEXT},
		{"truncated", PAI_TOOL_FLAG}}}},
	1},
    [PAI_TOOL_READ] = {"read", false,
	"Read a UTF-8 text file, or a PNG or JPEG image of at most 2 MiB. Text comes with line "
	"numbers, \"N: text\"; a page names the offset to go on with. Read a file before you edit "
	"or replace it.",
	{REASON, PATH("The file, absolute."),
	    {"offset", PAI_TOOL_NUMBER, false, 1, INT64_C(1) << 53, "1",
		"The first line of the page, from 1. Text only."},
	    {"limit", PAI_TOOL_NUMBER, false, 1, 1000000, "2000", "Lines of the page. Text only."}},
	{{"text", false,
	     {{"content", PAI_TOOL_TEXT}, {"nextOffset", PAI_TOOL_NUMBER, .nullable = true},
		 {"totalLines", PAI_TOOL_NUMBER}}},
	    {"image", false,
		{{"path", PAI_TOOL_TEXT}, {"mediaType", PAI_TOOL_TEXT},
		    {"base64", PAI_TOOL_TEXT, .is_bulk = true}}},
	    {"binary", false, {MESSAGE}}, {"not_found", false, {{"didYouMean", PAI_TOOL_TEXTS}}},
	    {"directory", false, {MESSAGE}}, INVALID(false)},
	6},
    [PAI_TOOL_WRITE] = {"write", true,
	"Create a file or replace the whole of one; missing parent directories are made. Read a "
	"file before you replace it. Within one step bash, write and edit run alone, in the order "
	"written; a write with status invalid stops the calls after it.",
	{REASON, PATH("The file, absolute."),
	    {"content", PAI_TOOL_TEXT, true, 0, INT64_MAX, NULL, "All that the file shall hold."}},
	{{"written", false,
	     {{"path", PAI_TOOL_TEXT}, {"bytes", PAI_TOOL_NUMBER}, {"existed", PAI_TOOL_FLAG}}},
	    INVALID(true)},
	2},
    [PAI_TOOL_EDIT] = {"edit", true,
	"Replace a text in a file by another. oldString must be in the file exactly as given, and "
	"once, unless replaceAll is true; line ends may be LF where the file has CRLF and the "
	"other way round, the file keeps its own. Within one step bash, write and edit run alone, "
	"in the order written; an edit with a status other than edited stops the calls after it.",
	{REASON, PATH("The file, absolute."),
	    {"oldString", PAI_TOOL_TEXT, true, 0, INT64_MAX, NULL, "The text to replace."},
	    {"newString", PAI_TOOL_TEXT, true, 0, INT64_MAX, NULL, "What to put in its place."},
	    {"replaceAll", PAI_TOOL_FLAG, false, 0, 0, "false", "Replace every occurrence."}},
	{{"edited", false, {{"replacements", PAI_TOOL_NUMBER}, {"snippet", PAI_TOOL_TEXT}}},
	    {"no_match", true, {MESSAGE}},
	    {"not_unique", true, {{"occurrences", PAI_TOOL_NUMBER}, MESSAGE}},
	    {"not_found", true, {{"didYouMean", PAI_TOOL_TEXTS}, MESSAGE}},
	    {"binary", true, {MESSAGE}}, INVALID(true)},
	6},
    [PAI_TOOL_GREP] = {"grep", false,
	"Search the contents of files with a regular expression. Matches come as "
	"\"path:line:text\" "
	"lines. Hidden files are searched, .git and binary files are not.",
	{REASON, {"pattern", PAI_TOOL_TEXT, true, 0, ANY, NULL, "An extended regular expression."},
	    {"path", PAI_TOOL_TEXT, false, 0, ANY, "\"/workspace\"",
		"The directory or file to search, absolute."},
	    {"glob", PAI_TOOL_TEXT, false, 1, ANY, NULL,
		"Only files of this name, such as \"*.py\", at any depth."},
	    {"ignoreCase", PAI_TOOL_FLAG, false, 0, 0, "false", "Whether case doesn't matter."},
	    {"limit", PAI_TOOL_NUMBER, false, 1, 1000, "100", "Matching lines to return."}},
	{{"ok", false,
	     {{"matches", PAI_TOOL_TEXT}, {"count", PAI_TOOL_NUMBER},
		 {"truncated", PAI_TOOL_FLAG}}},
	    FAILS_ENGINE},
	4},
    [PAI_TOOL_GLOB] = {"glob", false,
	"Find files by name, at any depth, sorted by path. Hidden files are found, what is in .git "
	"is not.",
	{REASON,
	    {"pattern", PAI_TOOL_TEXT, true, 1, ANY, NULL,
		"A file name pattern such as \"*.py\" or \"src/**/*.ts\"."},
	    {"path", PAI_TOOL_TEXT, false, 0, ANY, "\"/workspace\"",
		"The directory to look in, absolute."},
	    {"limit", PAI_TOOL_NUMBER, false, 1, 1000, "100", "Paths to return."}},
	{{"ok", false,
	     {{"paths", PAI_TOOL_TEXTS}, {"truncated", PAI_TOOL_FLAG},
		 {"message", PAI_TOOL_TEXT, .optional = true}}},
	    FAILS_ENGINE},
	4},
    [PAI_TOOL_LIST] = {"listDirectory", false,
	"List a directory, sorted by name, in pages: go on with offset: nextOffset until that is "
	"null.",
	{REASON, PATH("The directory, absolute."),
	    {"offset", PAI_TOOL_NUMBER, false, 0, INT32_MAX, "0", "Entries to pass over."},
	    {"limit", PAI_TOOL_NUMBER, false, 1, 200, "100", "Entries to return."}},
	{{"ok", false,
	     {{"entries", PAI_TOOL_ENTRIES}, {"nextOffset", PAI_TOOL_NUMBER, .nullable = true},
		 {"message", PAI_TOOL_TEXT, .optional = true}}},
	    {"not_found", false,
		{{"entries", PAI_TOOL_ENTRIES}, {"nextOffset", PAI_TOOL_NUMBER, .nullable = true}}},
	    INVALID(false)},
	3},
};

const struct pai_tool_spec *pai_tool_find(const char *name)
{
	for (size_t i = 0; i < PAI_TOOL_COUNT; i++) {
		if (strcmp(pai_tool_specs[i].name, name) == 0) {
			return &pai_tool_specs[i];
		}
	}
	return NULL;
}

/* --- checking --- */

static int expected(const struct pai_tool_field *f, struct pai_err *err)
{
	char a[32], b[32];

	if (f->type == PAI_TOOL_FLAG) {
		return pai_err_set(err, PAI_E_INPUT, "%s: expected true or false", f->name);
	}
	if (f->type == PAI_TOOL_NUMBER) {
		return pai_err_set(err, PAI_E_INPUT, "%s: expected a whole number from %s to %s",
		    f->name, pai_text_number((uint64_t)f->least, a),
		    pai_text_number((uint64_t)f->most, b));
	}
	if (f->most < ANY) {
		return pai_err_set(err, PAI_E_INPUT, "%s: expected a text of %s to %s characters",
		    f->name, pai_text_number((uint64_t)f->least, a),
		    pai_text_number((uint64_t)f->most, b));
	}
	return pai_err_set(err, PAI_E_INPUT, "%s: expected a text%s", f->name,
	    f->least > 0 ? " that is not empty" : "");
}

static bool fits(const struct pai_tool_field *f, const struct pai_json *input)
{
	const struct pai_json *value = pai_json_get(input, f->name);
	const char *text = pai_json_text(value);
	int64_t n;

	switch (f->type) {
	case PAI_TOOL_TEXT:
		n = text ? (int64_t)pai_text_count(text, strlen(text)) : -1;
		break;
	case PAI_TOOL_NUMBER:
		n = pai_json_num(input, f->name, -1);
		break;
	default:
		return pai_json_is_bool(value);
	}
	return n >= f->least && n <= f->most;
}

static int unknown(const struct pai_tool_spec *spec, const char *name, struct pai_err *err)
{
	char known[160] = "";
	size_t at = 0;

	for (const struct pai_tool_field *f = spec->fields; f->name; f++) {
		at += (size_t)snprintf(
		    known + at, sizeof(known) - at, "%s%s", at ? ", " : "", f->name);
	}
	return pai_err_set(err, PAI_E_INPUT, "unknown field '%.40s': expected %s", name, known);
}

int pai_tool_check(
    const struct pai_tool_spec *spec, const struct pai_json *input, struct pai_err *err)
{
	if (!pai_json_is_object(input)) {
		return pai_err_set(err, PAI_E_INPUT, "expected one JSON object");
	}
	for (const struct pai_json *m = pai_json_at(input, 0); m; m = pai_json_next(m)) {
		const struct pai_tool_field *f = spec->fields;

		while (f->name && strcmp(f->name, pai_json_name(m)) != 0) {
			f++;
		}
		if (!f->name) {
			return unknown(spec, pai_json_name(m), err);
		}
	}
	for (const struct pai_tool_field *f = spec->fields; f->name; f++) {
		const struct pai_json *value = pai_json_get(input, f->name);

		if (!value && f->required) {
			return pai_err_set(err, PAI_E_INPUT, "%s: is required", f->name);
		}
		if (value && !fits(f, input)) {
			return expected(f, err);
		}
	}
	return 0;
}

int64_t pai_tool_number(
    const struct pai_tool_spec *spec, const struct pai_json *input, const char *field)
{
	const struct pai_tool_field *f = spec->fields;

	while (f->name && strcmp(f->name, field) != 0) {
		f++;
	}
	return pai_json_num(input, field, f->name ? strtoll(f->fallback, NULL, 10) : 0);
}

bool pai_tool_stops(const struct pai_tool_spec *spec, const struct pai_json *answer)
{
	const char *status = pai_json_str(answer, "status");

	if (spec == &pai_tool_specs[PAI_TOOL_BASH]) {
		return pai_json_num(answer, "exitCode", -1) != 0;
	}
	for (size_t i = 0; i < spec->result_count; i++) {
		if (status && strcmp(status, spec->results[i].status) == 0) {
			return spec->results[i].stops;
		}
	}
	return true; /* an error, or skipped */
}

/* --- schemas --- */

static struct pai_json *parsed(const char *text)
{
	struct pai_json *j = NULL;

	return pai_json_parse(text, strlen(text), 8, &j, PAI_ERR_IGNORED()) < 0 ? NULL : j;
}

/* The schema of a value without its bounds. */
static struct pai_json *type_schema(enum pai_tool_type type, bool nullable)
{
	static const char *const plain[] = {
	    [PAI_TOOL_TEXT] = "{\"type\":\"string\"}",
	    [PAI_TOOL_NUMBER] = "{\"type\":\"integer\"}",
	    [PAI_TOOL_FLAG] = "{\"type\":\"boolean\"}",
	    [PAI_TOOL_TEXTS] = "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}",
	    [PAI_TOOL_ENTRIES] =
		"{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{"
		"\"name\":{\"type\":\"string\"},\"type\":{\"enum\":[\"file\",\"directory\"]}},"
		"\"required\":[\"name\",\"type\"],\"additionalProperties\":false}}",
	};

	return parsed(nullable ? "{\"type\":[\"integer\",\"null\"]}" : plain[type]);
}

static int add_field(
    const struct pai_tool_field *f, struct pai_json *properties, struct pai_json *required)
{
	pai_auto_json struct pai_json *s = type_schema(f->type, false);
	int r = pai_json_set_str(s, "description", f->meaning);

	if (f->type == PAI_TOOL_NUMBER) {
		r = r ? r : pai_json_set_num(s, "minimum", f->least);
		r = r ? r : pai_json_set_num(s, "maximum", f->most);
	} else if (f->type == PAI_TOOL_TEXT) {
		r = r || f->least == 0 ? r : pai_json_set_num(s, "minLength", f->least);
		r = r || f->most >= ANY ? r : pai_json_set_num(s, "maxLength", f->most);
	}
	r = r || !f->fallback ? r : pai_json_set(s, "default", parsed(f->fallback));
	r = r || !f->required ? r : pai_json_push_str(required, f->name);
	return r ? r : pai_json_set(properties, f->name, PAI_TAKE(s));
}

/* {"type":"object", "properties", "required", "additionalProperties": false} */
static struct pai_json *object_schema(
    struct pai_json *take_properties, struct pai_json *take_required)
{
	pai_auto_json struct pai_json *s = parsed("{\"type\":\"object\"}");
	int r = pai_json_set(s, "properties", take_properties);
	int q = pai_json_set(s, "required", take_required);

	return r || q || pai_json_set_bool(s, "additionalProperties", false) < 0 ? NULL
										 : PAI_TAKE(s);
}

struct pai_json *pai_tool_input_schema(const struct pai_tool_spec *spec)
{
	pai_auto_json struct pai_json *properties = pai_json_object();
	pai_auto_json struct pai_json *required = pai_json_array();
	int r = properties && required ? 0 : -1;

	for (const struct pai_tool_field *f = spec->fields; f->name && r == 0; f++) {
		r = add_field(f, properties, required);
	}
	return r < 0 ? NULL : object_schema(PAI_TAKE(properties), PAI_TAKE(required));
}

static struct pai_json *result_schema(const struct pai_tool_result *result, bool with_bulk)
{
	pai_auto_json struct pai_json *properties = pai_json_object();
	pai_auto_json struct pai_json *required = pai_json_array();
	pai_auto_json struct pai_json *status = result->status ? pai_json_object() : NULL;
	int r = properties && required ? 0 : -1;

	if (r == 0 && result->status) {
		r = pai_json_set_str(status, "const", result->status);
		r = r ? r : pai_json_set(properties, "status", PAI_TAKE(status));
		r = r ? r : pai_json_push_str(required, "status");
	}
	for (const struct pai_tool_member *m = result->members; m->name && r == 0; m++) {
		if (m->is_bulk && !with_bulk) {
			continue;
		}
		r = pai_json_set(properties, m->name, type_schema(m->type, m->nullable));
		r = r || m->optional ? r : pai_json_push_str(required, m->name);
	}
	r = r ? r : pai_json_set(properties, "environmentReset", type_schema(PAI_TOOL_FLAG, false));
	r = r ? r : pai_json_push_str(required, "environmentReset");
	return r < 0 ? NULL : object_schema(PAI_TAKE(properties), PAI_TAKE(required));
}

struct pai_json *pai_tool_output_schema(const struct pai_tool_spec *spec, bool with_bulk)
{
	static const struct pai_tool_result skipped = {
	    "skipped", true, {{"after", PAI_TOOL_NUMBER}}};
	static const char error[] =
	    "{\"type\":\"object\",\"properties\":{\"error\":{\"type\":\"object\",\"properties\":{"
	    "\"kind\":{\"type\":\"string\"},\"message\":{\"type\":\"string\"}},"
	    "\"required\":[\"kind\",\"message\"],\"additionalProperties\":false},"
	    "\"environmentReset\":{\"type\":\"boolean\"}},"
	    "\"required\":[\"error\",\"environmentReset\"],\"additionalProperties\":false}";
	pai_auto_json struct pai_json *s = parsed("{\"type\":\"object\"}");
	pai_auto_json struct pai_json *any = pai_json_array();
	int r = any ? 0 : -1;

	for (size_t i = 0; i < spec->result_count && r == 0; i++) {
		r = pai_json_push(any, result_schema(&spec->results[i], with_bulk));
	}
	r = r ? r : pai_json_push(any, result_schema(&skipped, true));
	r = r ? r : pai_json_push(any, parsed(error));
	r = r ? r : pai_json_set(s, "oneOf", PAI_TAKE(any));
	return r < 0 ? NULL : PAI_TAKE(s);
}

struct pai_json *pai_tool_schema(const struct pai_tool_spec *spec)
{
	pai_auto_json struct pai_json *s = pai_json_object();
	int r = pai_json_set_str(s, "name", spec->name);

	r = r ? r : pai_json_set_str(s, "description", spec->meaning);
	r = r ? r : pai_json_set_bool(s, "sequential", spec->is_sequential);
	r = r ? r : pai_json_set(s, "inputSchema", pai_tool_input_schema(spec));
	r = r ? r : pai_json_set(s, "outputSchema", pai_tool_output_schema(spec, true));
	return r < 0 ? NULL : PAI_TAKE(s);
}
