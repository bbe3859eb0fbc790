/*
 * The first byte chooses the decoder of exec_msg.h, the rest is its payload. What decodes must
 * encode to the very same bytes: the encoding is canonical.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "providers/wire/exec_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int again_start(struct pai_buf *out, struct pai_view p)
{
	struct pai_exec_start s = {0};
	int r = pai_exec_get_start(p, &s);

	if (r == 0) {
		r = pai_exec_put_start(out, 1, &s);
		assert(r == 0);
		pai_exec_start_fini(&s);
	}
	return r;
}

static int again_failed(struct pai_buf *out, struct pai_view p)
{
	enum pai_exec_fail_phase phase;
	char message[256];
	int errnum;

	/* An unknown errno name becomes EIO: not canonical, so only the decoder is tried. */
	if (pai_exec_get_failed(p, &phase, &errnum, message) == 0) {
		assert(phase <= PAI_FAIL_REFUSED && errnum > 0 && strlen(message) <= 255);
	}
	(void)out;
	return -1;
}

static int again_exit(struct pai_buf *out, struct pai_view p)
{
	struct pai_exec_exit e;
	int r = pai_exec_get_exit(p, &e);

	return r ? r : pai_exec_put_exit(out, 1, &e);
}

static int again_numbers(struct pai_buf *out, uint8_t type, struct pai_view p)
{
	uint64_t taken;
	uint32_t a;
	uint32_t b;
	uint16_t rows;
	uint16_t columns;
	uint8_t stream;
	int signo;

	switch (type) {
	case PAI_MSG_STARTED:
		return pai_exec_get_started(p, &a, &b) ? -1 : pai_exec_put_started(out, 1, a, b);
	case PAI_MSG_CREDIT:
		return pai_exec_get_credit(p, &stream, &a) ? -1
							   : pai_exec_put_credit(out, 1, stream, a);
	case PAI_MSG_SIGNAL:
		return pai_exec_get_signal(p, &signo)
			   ? -1
			   : pai_exec_put_signal(out, 1, (uint8_t)pai_signal_to_wire(signo));
	case PAI_MSG_RESIZE:
		return pai_exec_get_resize(p, &rows, &columns)
			   ? -1
			   : pai_exec_put_resize(out, 1, rows, columns);
	case PAI_MSG_STDIN_TAKEN:
		return pai_exec_get_stdin_taken(p, &taken)
			   ? -1
			   : pai_exec_put_stdin_taken(out, 1, taken);
	default:
		return -1;
	}
}

static int again_hello(struct pai_buf *out, uint8_t type, struct pai_view p)
{
	struct pai_line_hello h;
	int r = pai_line_get_hello(type, p, &h);

	return r ? r : pai_line_put_hello(out, type, &h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(PAI_FRAME_HEADER + PAI_FRAME_MAX);
	struct pai_view p = {.data = (const char *)data + 1, .len = size - 1};
	int r;

	if (size == 0 || size > PAI_FRAME_MAX - PAI_FRAME_HEADER) {
		return 0;
	}
	switch (data[0]) {
	case PAI_MSG_START:
		r = again_start(&out, p);
		break;
	case PAI_MSG_FAILED:
		r = again_failed(&out, p);
		break;
	case PAI_MSG_EXIT:
	case PAI_MSG_LEFT:
		r = again_exit(&out, p);
		break;
	case PAI_MSG_LINE_HELLO:
	case PAI_MSG_LINE_READY:
		r = again_hello(&out, data[0], p);
		break;
	default:
		r = again_numbers(&out, data[0], p);
	}
	if (r == 0) {
		assert(out.len == PAI_FRAME_HEADER + p.len);
		assert(memcmp(out.data + PAI_FRAME_HEADER, p.data, p.len) == 0);
	}
	return 0;
}
