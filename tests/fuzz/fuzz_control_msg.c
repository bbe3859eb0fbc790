/*
 * Every decoder of control_msg.h over arbitrary bytes; what decodes must encode and decode again
 * to the same command.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "providers/wire/control_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void round_trip(const struct pai_control_exec *e)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(PAI_FRAME_HEADER + PAI_FRAME_MAX);
	struct pai_control_exec again = {.key = NULL};
	struct pai_frame frame;
	size_t at = 0;
	int r = pai_control_put_exec(&out, 7, e);

	assert(r == 0);
	assert(pai_frame_next(&out, &at, &frame) == 1 && at == out.len && frame.id == 7);
	r = pai_control_get_exec(frame.payload, &again);
	assert(r == 0);
	assert(strcmp(again.key, e->key) == 0);
	assert(strcmp(again.cwd_environment, e->cwd_environment) == 0);
	assert(strcmp(again.run, e->run) == 0);
	assert(again.keeps_output == e->keeps_output && again.pinned == e->pinned);
	assert(again.no_retry == e->no_retry && again.caller_sid == e->caller_sid);
	assert(again.caller_sid_started == e->caller_sid_started);
	pai_control_exec_fini(&again);
}

/* What is read as entries is what they are put as. */
static void listing(struct pai_view payload)
{
	pai_auto_buf struct pai_buf again = PAI_BUF_INIT(payload.len);
	struct pai_reader r = pai_reader_init(payload.data, payload.len);
	bool is_directory;
	char *name;

	while (pai_control_get_entry(&r, &is_directory, &name)) {
		int put = pai_control_put_entry(&again, is_directory, name);

		assert(put == 0 && name[0]);
		free(name);
	}
	assert(again.len <= payload.len &&
	       memcmp(again.data ? again.data : "", payload.data, again.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pai_view payload = {.data = (const char *)data, .len = size};
	struct pai_control_exec e = {.key = NULL};
	struct pai_view json;
	uint16_t version;

	if (pai_control_get_exec(payload, &e) == 0) {
		round_trip(&e);
		pai_control_exec_fini(&e);
	}
	listing(payload);
	if (pai_control_get_hello(payload, &version, &json) == 0) {
		assert(version != 0 && json.len + 6 == size);
	}
	return 0;
}
