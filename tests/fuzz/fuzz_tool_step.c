/*
 * The calls of a step as they are said: lines, their JSON, the check of each input. What is
 * accepted is what the tools rely on, what is not has words for it; and the paths of an answer as a
 * client has them.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "execshim/mcp/outside.h"
#include "execshim/tools/step.h"
#include "execshim/tools/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DIR "/m/k"

static void accepted(const struct pai_tool_spec *spec, const struct pai_json *input)
{
	const char *reason = pai_json_str(input, "reason");

	assert(reason && pai_text_count(reason, strlen(reason)) >= 1 &&
	       pai_text_count(reason, strlen(reason)) <= 200);
	for (const struct pai_tool_field *f = spec->fields; f->name; f++) {
		const struct pai_json *value = pai_json_get(input, f->name);

		assert(value || !f->required);
		if (f->type == PAI_TOOL_TEXT) {
			assert(!value || pai_json_text(value));
		} else if (f->type == PAI_TOOL_NUMBER) {
			assert(pai_tool_number(spec, input, f->name) >= f->least);
			assert(pai_tool_number(spec, input, f->name) <= f->most);
		}
	}
}

/* A path of the workspace is one below the directory, and nothing else has changed. */
static void outside(struct pai_json *input)
{
	const char *path = pai_json_str(input, "path");
	bool is_inside = path && strncmp(path, "/workspace/", strlen("/workspace/")) == 0;

	assert(pai_mcp_outside(input, DIR) == 0);
	path = pai_json_str(input, "path");
	assert(!is_inside || strncmp(path, DIR "/", strlen(DIR "/")) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pai_step step = {.count = 0};
	struct pai_err err = PAI_ERR_INIT;

	if (pai_step_parse(&step, (const char *)data, size, &err) < 0) {
		assert(err.code == PAI_E_INPUT && err.msg[0]);
	}
	for (size_t i = 0; i < step.count; i++) {
		struct pai_step_call *c = &step.calls[i];

		err = (struct pai_err)PAI_ERR_INIT;
		if (c->wrong) {
			assert(c->wrong[0] && !c->input);
		} else if (c->input && pai_tool_check(c->spec, c->input, &err) == 0) {
			accepted(c->spec, c->input);
			outside(c->input);
		} else {
			assert(c->input && err.code == PAI_E_INPUT && err.msg[0]);
		}
	}
	pai_step_fini(&step);
	return 0;
}
