#include "providers/wire/link_msg.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/wire/err_msg.h"

#define CHALLENGE_TEXT "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
#define HEAD "\x50\x41\x49\x4b\x01\x00\x00\x00\x00\x00" CHALLENGE_TEXT

static struct pai_link_attach attach_example(void)
{
	struct pai_link_attach a = {.version = 1,
	    .client = "me",
	    .epoch = 5,
	    .link = 7,
	    .received = 9,
	    .silence_ms = 10000,
	    .grace_ms = 60000};

	memcpy(a.challenge, CHALLENGE_TEXT, PAI_LINK_CHALLENGE);
	return a;
}

static struct pai_link_attached attached_example(void)
{
	struct pai_link_attached a = {.version = 1,
	    .status = PAI_LINK_RESUMED,
	    .text = "ab",
	    .epoch = 5,
	    .link = 7,
	    .received = 3,
	    .clock_ns = 1};

	memcpy(a.challenge, CHALLENGE_TEXT, PAI_LINK_CHALLENGE);
	return a;
}

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

Test(link_msg, golden_attach)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	struct pai_link_attach a = attach_example();
	struct pai_link_attach back;
	struct pai_view v;

	cr_assert_eq(pai_link_put_attach(&out, &a), 0);
	v = take(&out, PAI_MSG_LINK_ATTACH, 0);
	cr_assert_bytes(v, HEAD "\x02\x00\x00\x00me\x05\x00\x00\x00\x00\x00\x00\x00"
				"\x07\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00"
				"\x10\x27\x00\x00\x60\xea\x00\x00");
	cr_assert_eq(pai_link_get_attach(v, &back), 0);
	cr_assert_str_eq(back.client, "me");
	cr_assert_eq(back.epoch, 5);
	cr_assert_eq(back.link, 7);
	cr_assert_eq(back.received, 9);
	cr_assert_eq(back.silence_ms, 10000);
	cr_assert_eq(back.grace_ms, 60000);
	cr_assert_eq(memcmp(back.challenge, a.challenge, PAI_LINK_CHALLENGE), 0);
}

Test(link_msg, golden_attached)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	struct pai_link_attached a = attached_example();
	struct pai_link_attached back;
	struct pai_view v;

	cr_assert_eq(pai_link_put_attached(&out, &a), 0);
	v = take(&out, PAI_MSG_LINK_ATTACHED, 0);
	cr_assert_bytes(v, HEAD "\x01\x02\x00\x00\x00"
				"ab\x05\x00\x00\x00\x00\x00\x00\x00"
				"\x07\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00"
				"\x01\x00\x00\x00\x00\x00\x00\x00");
	cr_assert_eq(pai_link_get_attached(v, &back), 0);
	cr_assert_eq(back.status, PAI_LINK_RESUMED);
	cr_assert_str_eq(back.text, "ab");
	cr_assert_eq(back.received, 3);
	cr_assert_eq(back.clock_ns, 1);
}

Test(link_msg, golden_channel_frames)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	struct pai_ch_open o = {
	    .kind = PAI_CHANNEL_EXEC, .sandbox = "s1", .window = 1 << 20, .within_ms = 30000};
	struct pai_err gone = PAI_ERR_INIT;

	(void)pai_err_set(&gone, PAI_E_NOT_FOUND, "gone");
	cr_assert_eq(pai_link_put_open(&out, 1, &o), 0);
	cr_assert_bytes(take(&out, PAI_MSG_CH_OPEN, 1),
	    "\x02\x02\x00\x00\x00s1\x00\x00\x10\x00\x30\x75\x00\x00");
	cr_assert_eq(pai_link_put_opened(&out, 1, 1 << 20), 0);
	cr_assert_bytes(take(&out, PAI_MSG_CH_OPENED, 1), "\x00\x00\x00\x10\x00");
	cr_assert_eq(pai_link_put_open_failed(&out, 1, &gone), 0);
	cr_assert_bytes(take(&out, PAI_MSG_CH_OPENED, 1),
	    "\x01\x09\x00\x00\x00not-found\x00\x00\x00\x00\x06\x00\x00\x00"
	    "ESTALE\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	    "\x00\x00\x00\x00\x04\x00\x00\x00gone");
	cr_assert_eq(pai_link_put_credit(&out, 1, 1 << 18), 0);
	cr_assert_bytes(take(&out, PAI_MSG_CH_CREDIT, 1), "\x00\x00\x04\x00");
	cr_assert_eq(pai_link_put_ack(&out, 9), 0);
	cr_assert_bytes(take(&out, PAI_MSG_LINK_ACK, 0), "\x09\x00\x00\x00\x00\x00\x00\x00");
	cr_assert_eq(pai_link_put_empty(&out, 1, PAI_MSG_CH_END), 0);
	cr_assert_bytes(take(&out, PAI_MSG_CH_END, 1), "");
}

Test(link_msg, an_error_comes_back_as_it_was)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	struct pai_err err = PAI_ERR_INIT;
	struct pai_err back;
	uint32_t window;

	(void)pai_err_unavailable(&err, PAI_REASON_AUTH, "req-1", "refused by %s", "host");
	cr_assert_eq(pai_link_put_open_failed(&out, 1, &err), 0);
	cr_assert_eq(pai_link_get_opened(take(&out, PAI_MSG_CH_OPENED, 1), &window, &back), 0);
	cr_assert_eq(memcmp(&back, &err, offsetof(struct pai_err, error_id)), 0);
	cr_assert_str_eq(back.error_id, "req-1");
	cr_assert_str_eq(back.msg, "refused by host");
	err = (struct pai_err)PAI_ERR_INIT;
	(void)pai_err_errno(&err, ENOTEMPTY, "rmdir");
	cr_assert_eq(pai_link_put_open_failed(&out, 1, &err), 0);
	cr_assert_eq(pai_link_get_opened(take(&out, PAI_MSG_CH_OPENED, 1), &window, &back), 0);
	cr_assert_eq(back.code, PAI_E_SYS);
	cr_assert_eq(back.errnum, ENOTEMPTY);
	err = (struct pai_err)PAI_ERR_INIT;
	(void)pai_err_command_timeout(&err, 1500);
	cr_assert_eq(pai_link_put_open_failed(&out, 1, &err), 0);
	cr_assert_eq(pai_link_get_opened(take(&out, PAI_MSG_CH_OPENED, 1), &window, &back), 0);
	cr_assert_eq(back.timeout_ms, 1500);
}

/* Of a heap copy of the exact size, so that ASan sees a read past it. */
static int decode(uint8_t type, const char *data, size_t len)
{
	char *copy = malloc(len ? len : 1);
	struct pai_view v = {copy, len};
	struct pai_link_attach attach;
	struct pai_link_attached attached;
	struct pai_ch_open open;
	struct pai_err err;
	uint64_t count;
	uint32_t n;
	int r;

	cr_assert_not_null(copy);
	memcpy(copy, data, len);
	switch (type) {
	case PAI_MSG_LINK_ATTACH:
		r = pai_link_get_attach(v, &attach);
		break;
	case PAI_MSG_LINK_ATTACHED:
		r = pai_link_get_attached(v, &attached);
		break;
	case PAI_MSG_CH_OPEN:
		r = pai_link_get_open(v, &open);
		break;
	case PAI_MSG_CH_OPENED:
		r = pai_link_get_opened(v, &n, &err);
		break;
	case PAI_MSG_CH_CREDIT:
		r = pai_link_get_credit(v, &n);
		break;
	default:
		r = pai_link_get_ack(v, &count);
	}
	free(copy);
	return r;
}

Test(link_msg, what_is_cut_or_too_long_never_decodes)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	struct pai_link_attach attach = attach_example();
	struct pai_link_attached attached = attached_example();
	struct pai_ch_open open = {.kind = PAI_CHANNEL_FILES, .sandbox = "x", .window = 1};
	struct pai_err gone = PAI_ERR_INIT;
	struct pai_frame f;
	size_t at = 0;

	(void)pai_err_set(&gone, PAI_E_NOT_FOUND, "gone");
	cr_assert_eq(pai_link_put_attach(&out, &attach), 0);
	cr_assert_eq(pai_link_put_attached(&out, &attached), 0);
	cr_assert_eq(pai_link_put_open(&out, 1, &open), 0);
	cr_assert_eq(pai_link_put_opened(&out, 1, 5), 0);
	cr_assert_eq(pai_link_put_open_failed(&out, 1, &gone), 0);
	cr_assert_eq(pai_link_put_credit(&out, 1, 5), 0);
	cr_assert_eq(pai_link_put_ack(&out, 5), 0);
	while (pai_frame_next(&out, &at, &f) == 1) {
		char longer[1024] = "";

		cr_assert_eq(decode(f.type, f.payload.data, f.payload.len), 0, "%#x", f.type);
		for (size_t len = 0; len < f.payload.len; len++) {
			cr_assert_eq(decode(f.type, f.payload.data, len), -EPROTO, "%#x cut to %zu",
			    f.type, len);
		}
		memcpy(longer, f.payload.data, f.payload.len);
		cr_assert_eq(decode(f.type, longer, f.payload.len + 1), -EPROTO, "%#x", f.type);
	}
	cr_assert_eq(at, out.len);
}

Test(link_msg, values_out_of_range_are_refused)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(8192);
	struct pai_link_attach a = attach_example();
	struct pai_ch_open o = {.kind = PAI_CHANNEL_CALLS, .window = PAI_LINK_WINDOW_MAX};
	struct pai_link_attach back;
	struct pai_ch_open open;
	uint32_t n;

	a.epoch = 0;
	cr_assert_eq(pai_link_put_attach(&out, &a), 0);
	cr_assert_eq(pai_link_get_attach(take(&out, PAI_MSG_LINK_ATTACH, 0), &back), -EPROTO);
	a = attach_example();
	a.silence_ms = 0;
	cr_assert_eq(pai_link_put_attach(&out, &a), 0);
	cr_assert_eq(pai_link_get_attach(take(&out, PAI_MSG_LINK_ATTACH, 0), &back), -EPROTO);
	a = attach_example();
	a.link = 0;
	cr_assert_eq(pai_link_put_attach(&out, &a), 0);
	cr_assert_eq(pai_link_get_attach(take(&out, PAI_MSG_LINK_ATTACH, 0), &back), -EPROTO);
	cr_assert_eq(pai_link_put_open(&out, 1, &o), 0);
	cr_assert_eq(pai_link_get_open(take(&out, PAI_MSG_CH_OPEN, 1), &open), 0);
	o.window++;
	cr_assert_eq(pai_link_put_open(&out, 1, &o), 0);
	cr_assert_eq(pai_link_get_open(take(&out, PAI_MSG_CH_OPEN, 1), &open), -EPROTO);
	o.window = 1;
	o.kind = PAI_CHANNEL_CALLS + 1;
	cr_assert_eq(pai_link_put_open(&out, 1, &o), 0);
	cr_assert_eq(pai_link_get_open(take(&out, PAI_MSG_CH_OPEN, 1), &open), -EPROTO);
	cr_assert_eq(pai_link_put_credit(&out, 1, 0), 0);
	cr_assert_eq(pai_link_get_credit(take(&out, PAI_MSG_CH_CREDIT, 1), &n), -EPROTO);
}

Test(link_msg, another_version_is_told_by_its_head)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	struct pai_link_attach a = attach_example();
	struct pai_link_attach back;

	a.version = 2;
	cr_assert_eq(pai_link_put_attach(&out, &a), 0);
	cr_assert_eq(
	    pai_link_get_attach(take(&out, PAI_MSG_LINK_ATTACH, 0), &back), -EPROTONOSUPPORT);
	cr_assert_eq(back.version, 2);
	cr_assert_eq(memcmp(back.challenge, a.challenge, PAI_LINK_CHALLENGE), 0);
}

/* --- the banner --- */

static int find(const struct pai_buf *in, size_t *at)
{
	struct pai_link_attached a;

	return pai_link_find_attached(in, (const uint8_t *)CHALLENGE_TEXT, at, &a);
}

Test(link_msg, attached_is_found_behind_a_banner_and_an_echo)
{
	pai_auto_buf struct pai_buf in = PAI_BUF_INIT(256 << 10);
	struct pai_link_attach echo = attach_example();
	struct pai_link_attached a = attached_example();
	size_t end;
	size_t at = 0;

	cr_assert_eq(pai_buf_add_str(&in, "Last login: never\r\nPAIK\n"), 0);
	cr_assert_eq(pai_link_put_attach(&in, &echo), 0);
	cr_assert_eq(pai_link_put_attached(&in, &a), 0);
	end = in.len;
	cr_assert_eq(pai_buf_add_str(&in, "what follows"), 0);
	cr_assert_eq(find(&in, &at), 1);
	cr_assert_eq(at, end);
	for (size_t len = 0; len < end; len++) {
		struct pai_buf cut = {.data = in.data, .len = len};

		at = 0;
		cr_assert_eq(find(&cut, &at), 0, "%zu", len);
		cr_assert_eq(at, 0);
	}
}

Test(link_msg, a_banner_without_end_is_refused)
{
	pai_auto_buf struct pai_buf in = PAI_BUF_INIT(256 << 10);
	struct pai_link_attached a = attached_example();
	size_t at = 0;

	while (in.len < PAI_LINK_BANNER_MAX + 1) {
		cr_assert_eq(pai_buf_put_u8(&in, '.'), 0);
	}
	cr_assert_eq(find(&in, &at), 0);
	cr_assert_eq(pai_link_put_attached(&in, &a), 0);
	cr_assert_eq(find(&in, &at), -EPROTO, "one byte too late");
	in.len = PAI_LINK_BANNER_MAX;
	cr_assert_eq(pai_link_put_attached(&in, &a), 0);
	cr_assert_eq(find(&in, &at), 1);
	at = 0;
	in.len = 0;
	while (in.len < 2 * PAI_LINK_BANNER_MAX) {
		cr_assert_eq(pai_buf_put_u8(&in, '.'), 0);
	}
	cr_assert_eq(find(&in, &at), -EPROTO);
}
