/*
 * spec: the seven tools as one table: names, fields, bounds, results. Input is checked by it, and
 * the JSON Schemas and the help are made of it.
 */
#ifndef PAI_EXECSHIM_TOOLS_SPEC_H
#define PAI_EXECSHIM_TOOLS_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "providers/base/err.h"
#include "providers/base/json.h"

enum pai_tool_type {
	PAI_TOOL_TEXT,
	PAI_TOOL_NUMBER, /* whole */
	PAI_TOOL_FLAG,
	PAI_TOOL_TEXTS,   /* results only: an array of texts */
	PAI_TOOL_ENTRIES, /* results only: an array of {name, type} */
};
struct pai_tool_field {
	const char *name; /* NULL ends a list */
	enum pai_tool_type type;
	bool required;
	int64_t least, most;  /* of a number; of a text, in characters */
	const char *fallback; /* as JSON, NULL: none */
	const char *meaning;
};
struct pai_tool_member {
	const char *name; /* NULL ends a list */
	enum pai_tool_type type;
	bool nullable;
	bool optional;
	bool is_bulk; /* bytes that a protocol may carry beside the result */
};
struct pai_tool_result {
	const char *status; /* NULL: it has none */
	bool stops;         /* the calls of a step that come after it */
	struct pai_tool_member members[8];
};
enum pai_tool_id {
	PAI_TOOL_BASH,
	PAI_TOOL_READ,
	PAI_TOOL_WRITE,
	PAI_TOOL_EDIT,
	PAI_TOOL_GREP,
	PAI_TOOL_GLOB,
	PAI_TOOL_LIST,
	PAI_TOOL_COUNT
};
struct pai_tool_spec {
	const char *name;
	bool is_sequential; /* runs alone within a step */
	const char *meaning;
	struct pai_tool_field fields[8];
	struct pai_tool_result results[7];
	size_t result_count;
};
#define PAI_TOOL_TIMEOUT_MS 120000
#define PAI_TOOL_READ_LINES 2000
#define PAI_TOOL_PAGE 100

extern const struct pai_tool_spec pai_tool_specs[PAI_TOOL_COUNT];
/* NULL for an unknown name. */
const struct pai_tool_spec *pai_tool_find(const char *name);

/* INPUT: the field and what was expected of it. */
int pai_tool_check(const struct pai_tool_spec *spec, const struct pai_json *input,
    struct pai_err *err) PAI_WARN_UNUSED;
/* A number of the input, or its fallback. */
int64_t pai_tool_number(
    const struct pai_tool_spec *spec, const struct pai_json *input, const char *field);
/* Whether the answer stops the calls after it: `status` NULL for a tool without one. */
bool pai_tool_stops(const struct pai_tool_spec *spec, const struct pai_json *answer);

/* {"name", "description", "sequential", "inputSchema", "outputSchema"}; NULL without memory, here
 * and below. */
struct pai_json *pai_tool_schema(const struct pai_tool_spec *spec);
struct pai_json *pai_tool_input_schema(const struct pai_tool_spec *spec);
struct pai_json *pai_tool_output_schema(const struct pai_tool_spec *spec, bool with_bulk);

#endif
