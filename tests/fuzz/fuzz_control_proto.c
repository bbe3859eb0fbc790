/* What a client may send, as the control socket hears it: arbitrary bytes in arbitrary pieces. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "fusefs/control_proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* How many of each state's calls came; the rules between them are asserted. */
struct heard {
	struct pai_proto proto;
	bool hello, exec, eof;
};

static int on_hello(void *arg, const struct pai_json *client)
{
	struct heard *h = arg;

	assert(!h->hello && pai_json_is_object(client));
	h->hello = true;
	return 0;
}
static int on_request(void *arg, uint32_t id, struct pai_json *take_request, struct pai_buf *data)
{
	struct heard *h = arg;

	assert(h->hello && !h->exec && pai_json_is_object(take_request));
	assert((int64_t)data->len == pai_json_num(take_request, "size", 0));
	pai_json_free(take_request);
	h->proto.paused = id & 1;
	return 0;
}
static int on_exec(void *arg, uint32_t id, struct pai_control_exec *take_exec)
{
	struct heard *h = arg;

	(void)id;
	assert(h->hello && !h->exec && take_exec->key[0] && take_exec->start.argv[0]);
	h->exec = true;
	pai_control_exec_fini(take_exec);
	return 0;
}
static int on_stdin(void *arg, struct pai_view data)
{
	struct heard *h = arg;

	assert(h->exec && !h->eof && data.len > 0 && data.len <= PAI_FRAME_DATA_MAX);
	return 0;
}
static int on_eof(void *arg)
{
	struct heard *h = arg;

	assert(h->exec && !h->eof);
	h->eof = true;
	return 0;
}
static int on_credit(void *arg, uint8_t stream, uint32_t bytes)
{
	const struct heard *h = arg;

	(void)bytes;
	assert(h->exec && (stream == 1 || stream == 2));
	return 0;
}
static int on_signal(void *arg, int signo)
{
	const struct heard *h = arg;

	assert(h->exec && signo > 0);
	return 0;
}
static int on_resize(void *arg, uint16_t rows, uint16_t columns)
{
	const struct heard *h = arg;

	(void)rows;
	(void)columns;
	assert(h->exec);
	return 0;
}
static int on_cancel(void *arg)
{
	const struct heard *h = arg;

	assert(h->exec);
	return 0;
}
static const struct pai_proto_ops ops = {
    .hello = on_hello,
    .request = on_request,
    .exec = on_exec,
    .stdin_data = on_stdin,
    .stdin_eof = on_eof,
    .credit = on_credit,
    .signal = on_signal,
    .resize = on_resize,
    .cancel = on_cancel,
};

/* The first byte tells how the rest is cut. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct heard h = {.hello = false};
	size_t step = size > 0 && data[0] ? data[0] : 4096;
	int r = 0;

	pai_proto_init(&h.proto, &ops, &h);
	for (size_t at = 1; r == 0 && at < size;) {
		size_t room = 0;
		char *space = pai_proto_space(&h.proto, &room);
		size_t n = size - at < step ? size - at : step;

		if (!space) {
			break;
		}
		n = n < room ? n : room;
		memcpy(space, data + at, n);
		pai_proto_filled(&h.proto, n);
		at += n;
		r = pai_proto_run(&h.proto);
		h.proto.paused = false;
		r = r < 0 ? r : pai_proto_run(&h.proto);
	}
	pai_proto_fini(&h.proto);
	return 0;
}
