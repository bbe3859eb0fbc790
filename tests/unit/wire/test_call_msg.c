#include "providers/wire/call_msg.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

/* The one frame in `b`, which is emptied: its payload lives until the next put. */
static struct pai_view take(struct pai_buf *b, uint8_t type, uint32_t id)
{
	struct pai_frame frame;
	size_t at = 0;

	cr_assert_eq(pai_frame_next(b, &at, &frame), 1);
	cr_assert_eq(at, b->len);
	cr_assert_eq(frame.type, type);
	cr_assert_eq(frame.id, id);
	b->len = 0;
	return frame.payload;
}

#define cr_assert_bytes(view, text)                                                                \
	do {                                                                                       \
		struct pai_view view_ = (view);                                                    \
		cr_assert_eq(view_.len, sizeof(text) - 1, "%zu bytes", view_.len);                 \
		cr_assert_eq(memcmp(view_.data, text, sizeof(text) - 1), 0);                       \
	} while (0)
#define HEAD "\x50\x41\x49\x43\x01\x00\x00\x00\x00\x00"
#define ZERO4 "\x00\x00\x00\x00"
#define ZERO8 ZERO4 ZERO4

Test(call_msg, golden_opening)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	struct pai_calls_ready ready = {.caps = 9, .name = "m", .isolation = "i"};
	struct pai_calls_ready back;
	uint16_t version = 0;
	struct pai_view v;

	cr_assert_eq(pai_calls_put_hello(&out), 0);
	v = take(&out, PAI_MSG_CALLS_HELLO, 0);
	cr_assert_bytes(v, HEAD);
	cr_assert_eq(pai_calls_get_hello(v, &version), 0);
	cr_assert_eq(version, 1);
	cr_assert_eq(pai_calls_put_ready(&out, &ready), 0);
	v = take(&out, PAI_MSG_CALLS_READY, 0);
	cr_assert_bytes(v, HEAD "\x09\x00\x00\x00\x01\x00\x00\x00m\x01\x00\x00\x00i");
	cr_assert_eq(pai_calls_get_ready(v, &back), 0);
	cr_assert_eq(back.caps, 9);
	cr_assert_str_eq(back.name, "m");
	cr_assert_str_eq(back.isolation, "i");
}

Test(call_msg, another_version_is_told_and_unknown_caps_are_dropped)
{
	static const char hello[] = "\x50\x41\x49\x43\x02\x00\x00\x00\x00\x00more";
	static const char ready[] = HEAD "\xff\xff\xff\xff\x01\x00\x00\x00m" ZERO4;
	struct pai_calls_ready back;
	uint16_t version = 0;

	cr_assert_eq(pai_calls_get_hello(
			 (struct pai_view){.data = hello, .len = sizeof(hello) - 1}, &version),
	    -EPROTONOSUPPORT);
	cr_assert_eq(version, 2);
	cr_assert_eq(
	    pai_calls_get_ready((struct pai_view){.data = ready, .len = sizeof(ready) - 1}, &back),
	    0);
	cr_assert_eq(back.caps, PAI_CALLS_CAP_ALL);
}

Test(call_msg, golden_create)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	char key[] = "k";
	struct pai_call_request q = {.op = PAI_CALL_CREATE,
	    .within_ms = 1500,
	    .create = {.binding_key = key, .ttl_ms = 2, .network = 2}};
	PAI_AUTO(pai_call_request_fini) struct pai_call_request back = {0};
	struct pai_view v;

	cr_assert_eq(pai_strmap_set(&q.create.metadata, "a", "b"), 0);
	cr_assert_eq(pai_call_put_request(&out, 3, &q), 0);
	pai_strmap_fini(&q.create.metadata);
	v = take(&out, PAI_MSG_CALL, 3);
	cr_assert_bytes(v, "\x02\xdc\x05\x00\x00\x00\x00\x00\x00\x00\x01\x01\x00\x00\x00k"
			   "\x02\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00"
			   "a\x01\x00\x00\x00"
			   "b" ZERO4 "\x02" ZERO4 ZERO4 ZERO8 ZERO4 ZERO8);
	cr_assert_eq(pai_call_get_request(v, &back), 0);
	cr_assert_eq(back.op, PAI_CALL_CREATE);
	cr_assert_null(back.create.template_name);
	cr_assert_str_eq(back.create.binding_key, "k");
	cr_assert_str_eq(pai_strmap_get(&back.create.metadata, "a"), "b");
	cr_assert_eq(back.create.network, 2);
}

Test(call_msg, golden_others)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	pai_auto_buf struct pai_buf names = PAI_BUF_INIT(4096);
	char id[] = "s";
	char incarnation[] = "n";
	struct pai_call_request q = {.op = PAI_CALL_KEEP_ALIVE,
	    .within_ms = UINT64_MAX,
	    .sandbox_id = id,
	    .incarnation = incarnation,
	    .number = 7};
	struct pai_call_sandbox s = {
	    .id = "s", .incarnation = "n", .paused = true, .created_wall_ms = 1};
	struct pai_call_result done = {
	    .found = true, .sandbox = {.id = "s", .incarnation = "n", .flags = 1}};

	cr_assert_eq(pai_call_put_request(&out, 1, &q), 0);
	cr_assert_bytes(take(&out, PAI_MSG_CALL, 1),
	    "\x05\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00\x00s\x01\x00\x00\x00n"
	    "\x07\x00\x00\x00\x00\x00\x00\x00");
	cr_assert_eq(pai_call_put_sandbox(&out, 1, &s), 0);
	cr_assert_bytes(take(&out, PAI_MSG_CALL_SANDBOX, 1),
	    "\x01\x00\x00\x00s\x01\x00\x00\x00n\x01\x01\x00\x00\x00\x00\x00\x00\x00" ZERO4);
	cr_assert_eq(pai_call_put_name(&names, true, "d"), 0);
	cr_assert_eq(pai_call_put_name(&names, false, "f"), 0);
	cr_assert_bytes(((struct pai_view){.data = names.data, .len = names.len}),
	    "\x01\x01\x00\x00\x00\x64\x00\x01\x00\x00\x00\x66");
	cr_assert_eq(pai_call_put_done(&out, 1, &done), 0);
	cr_assert_bytes(take(&out, PAI_MSG_CALL_DONE, 1),
	    "\x00\x01\x01\x00\x00\x00s\x01\x00\x00\x00n\x01\x00\x00\x00");
}

Test(call_msg, every_field_of_an_error_arrives)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	struct pai_call_result result;
	struct pai_err back = PAI_ERR_INIT;

	for (int code = PAI_OK + 1; code < PAI_E_COUNT; code++) {
		struct pai_err err = PAI_ERR_INIT;

		(void)pai_err_set(&err, (enum pai_errcode)code, "it is %d", code);
		if (code == PAI_E_UNAVAILABLE) {
			(void)pai_err_unavailable(&err, PAI_REASON_AUTH, "id-1", "no");
		} else if (code == PAI_E_SYS) {
			(void)pai_err_errno(&err, ENOTEMPTY, "what");
		}
		err.retryable = code % 2;
		err.limit_bytes = 77;
		err.timeout_ms = 88;
		cr_assert_eq(pai_call_put_failed(&out, 9, &err), 0);
		cr_assert_eq(
		    pai_call_get_done(take(&out, PAI_MSG_CALL_DONE, 9), &result, &back), 0);
		cr_assert_eq(back.code, err.code);
		cr_assert_eq(back.reason, err.reason);
		cr_assert_eq(back.errnum, err.errnum);
		cr_assert_eq(back.retryable, err.retryable);
		cr_assert_eq(back.limit_bytes, 77);
		cr_assert_eq(back.timeout_ms, 88);
		cr_assert_str_eq(back.error_id, err.error_id);
		cr_assert_str_eq(back.msg, err.msg);
	}
}

/* A whole request of each op; every cut of it, and every one with a byte more, is malformed. */
Test(call_msg, cut_and_longer_requests_are_malformed)
{
	char word[] = "word";
	char *allow[] = {word, word};

	for (int op = PAI_CALL_PROBE; op <= PAI_CALL_FORGET; op++) {
		pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
		struct pai_call_request back = {0};
		struct pai_call_request q = {.op = (enum pai_call_op)op,
		    .sandbox_id = word,
		    .incarnation = word,
		    .path = word,
		    .create = {.template_name = word, .allow = allow, .allow_count = 2}};
		struct pai_view v;

		cr_assert_eq(pai_strmap_set(&q.metadata, "a", "b"), 0);
		cr_assert_eq(pai_call_put_request(&out, 1, &q), 0);
		pai_strmap_fini(&q.metadata);
		cr_assert_eq(pai_buf_put_u8(&out, 0), 0);
		v = (struct pai_view){
		    .data = out.data + PAI_FRAME_HEADER, .len = out.len - PAI_FRAME_HEADER};
		for (size_t len = 0; len <= v.len; len++) {
			struct pai_view part = {.data = v.data, .len = len};
			int r = pai_call_get_request(part, &back);

			cr_assert_eq(r, len == v.len - 1 ? 0 : -EPROTO, "op %d, %zu", op, len);
		}
		cr_assert_eq(back.op, q.op);
		pai_call_request_fini(&back);
	}
}

Test(call_msg, names_that_are_none_are_refused)
{
	static const char *const bad[] = {"", ".", "..", "a/b", "/"};

	for (size_t i = 0; i < PAI_COUNT(bad); i++) {
		pai_auto_buf struct pai_buf names = PAI_BUF_INIT(4096);
		struct pai_reader in;
		bool is_directory;
		char *name;

		cr_assert_eq(pai_call_put_name(&names, false, bad[i]), 0);
		in = pai_reader_init(names.data, names.len);
		cr_assert_eq(pai_call_get_name(&in, &is_directory, &name), -EPROTO);
	}
}

Test(call_msg, a_key_twice_is_malformed)
{
	static const char list[] = "\x04" ZERO8 "\x02\x00\x00\x00"
				   "\x01\x00\x00\x00"
				   "a" ZERO4 "\x01\x00\x00\x00"
				   "a" ZERO4;
	struct pai_call_request back;

	cr_assert_eq(
	    pai_call_get_request((struct pai_view){.data = list, .len = sizeof(list) - 1}, &back),
	    -EPROTO);
}
