#include "providers/wire/frame.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

Test(frame, layout_is_the_documented_one)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(64);

	cr_assert_eq(pai_frame_put(&out, 0x13, 0x01020304, "ab", 2), 0);
	cr_assert_eq(out.len, 11);
	cr_assert_arr_eq(out.data,
	    "\x07\0\0\0\x13\x04\x03\x02\x01"
	    "ab",
	    11);
}

Test(frame, frames_come_back_in_order_and_whole_only)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(64);
	struct pai_frame frame;
	size_t at = 0;

	cr_assert_eq(pai_frame_put(&out, 1, 7, "x", 1), 0);
	cr_assert_eq(pai_frame_put(&out, 2, 8, NULL, 0), 0);
	for (size_t cut = 0; cut < out.len; cut++) {
		struct pai_buf part = {.data = out.data, .len = cut, .cap = out.cap};
		int whole = 0;

		at = 0;
		while (pai_frame_next(&part, &at, &frame) == 1) {
			whole++;
		}
		cr_assert_eq(whole, cut >= PAI_FRAME_HEADER + 1 ? 1 : 0, "cut at %zu", cut);
	}
	at = 0;
	cr_assert_eq(pai_frame_next(&out, &at, &frame), 1);
	cr_assert(frame.type == 1 && frame.id == 7 && frame.payload.len == 1);
	cr_assert_eq(pai_frame_next(&out, &at, &frame), 1);
	cr_assert(frame.type == 2 && frame.id == 8 && frame.payload.len == 0);
	cr_assert_eq(pai_frame_next(&out, &at, &frame), 0);
	cr_assert_eq(at, out.len);
}

Test(frame, impossible_lengths_are_refused_before_their_bytes_come)
{
	static const uint32_t bad[] = {0, 4, PAI_FRAME_MAX + 1, UINT32_MAX};

	for (size_t i = 0; i < PAI_COUNT(bad); i++) {
		pai_auto_buf struct pai_buf in = PAI_BUF_INIT(16);
		struct pai_frame frame;
		size_t at = 0;

		cr_assert_eq(pai_buf_put_u32(&in, bad[i]), 0);
		cr_assert_eq(pai_frame_next(&in, &at, &frame), -EPROTO, "length %u", bad[i]);
		cr_assert_eq(at, 0);
	}
}

Test(frame, what_does_not_fit_changes_nothing)
{
	static char big[PAI_FRAME_MAX];
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(16);
	pai_auto_buf struct pai_buf large = PAI_BUF_INIT(2 * PAI_FRAME_MAX);
	struct pai_frame frame;
	size_t at = 0;

	cr_assert_eq(pai_frame_put(&out, 1, 1, big, 8), -EMSGSIZE);
	cr_assert_eq(out.len, 0);
	cr_assert_eq(pai_frame_put(&large, 1, 1, big, sizeof(big) - 4), -EMSGSIZE);
	cr_assert_eq(large.len, 0);
	cr_assert_eq(pai_frame_put(&large, 1, 1, big, sizeof(big) - 5), 0);
	cr_assert_eq(pai_frame_next(&large, &at, &frame), 1);
	cr_assert_eq(frame.payload.len, sizeof(big) - 5);
}

Test(frame, built_in_place_equals_put)
{
	pai_auto_buf struct pai_buf a = PAI_BUF_INIT(64);
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(64);
	ssize_t begun;

	cr_assert_eq(pai_frame_put(&a, 5, 6, "hello", 5), 0);
	begun = pai_frame_begin(&b, 5, 6);
	cr_assert_eq(begun, 0);
	cr_assert_eq(pai_buf_add(&b, "hello", 5), 0);
	cr_assert_eq(pai_frame_end(&b, begun), 0);
	cr_assert_eq(a.len, b.len);
	cr_assert_arr_eq(a.data, b.data, a.len);
}

Test(frame, peek_shows_the_part_that_has_come)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(64);
	struct pai_frame frame;
	size_t len;

	cr_assert_eq(pai_frame_put(&out, 0x14, 3, "abcdef", 6), 0);
	for (size_t cut = 0; cut <= out.len; cut++) {
		struct pai_buf part = {.data = out.data, .len = cut, .cap = out.cap};
		int r = pai_frame_peek(&part, 0, &frame, &len);

		cr_assert_eq(r, cut >= PAI_FRAME_HEADER, "cut at %zu", cut);
		if (r == 1) {
			cr_assert(frame.type == 0x14 && frame.id == 3 && len == 6);
			cr_assert_eq(frame.payload.len, cut - PAI_FRAME_HEADER);
		}
	}
}

/* --- a stream in pieces --- */

struct fed {
	size_t count;
	struct pai_buf bytes; /* of all payloads */
	int answer;           /* to the second frame */
};

static int take_fed(void *arg, const struct pai_frame *f)
{
	struct fed *fed = arg;

	cr_assert_eq(f->id, fed->count);
	cr_assert_eq(pai_buf_add(&fed->bytes, f->payload.data, f->payload.len), 0);
	return fed->count++ == 1 ? fed->answer : 0;
}

static void put_stream(struct pai_buf *out)
{
	char data[300];

	for (size_t i = 0; i < sizeof(data); i++) {
		data[i] = (char)(i * 7);
	}
	for (uint32_t i = 0; i < 6; i++) {
		cr_assert_eq(pai_frame_put(out, 5, i, data, i % 3 == 2 ? 0 : i * 60), 0);
	}
}

Test(frame, a_stream_may_come_in_any_pieces)
{
	pai_auto_buf struct pai_buf all = PAI_BUF_INIT(4096);

	put_stream(&all);
	for (size_t piece = 1; piece <= all.len; piece++) {
		pai_auto_buf struct pai_buf rest = PAI_BUF_INIT(512);
		struct fed fed = {.bytes.max = 4096};

		for (size_t at = 0; at < all.len; at += piece) {
			size_t n = all.len - at < piece ? all.len - at : piece;
			struct pai_view v = {all.data + at, n};

			cr_assert_eq(pai_frame_feed(&rest, v, take_fed, &fed), 0);
		}
		cr_assert_eq(fed.count, 6u, "in pieces of %zu", piece);
		cr_assert_eq(rest.len, 0u);
		cr_assert_eq(fed.bytes.len, all.len - 6 * PAI_FRAME_HEADER);
		cr_assert_eq(memcmp(fed.bytes.data + 60, fed.bytes.data + 240, 180), 0);
		pai_buf_fini(&fed.bytes);
	}
}

Test(frame, a_stream_ends_where_it_is_refused_or_wrong)
{
	pai_auto_buf struct pai_buf all = PAI_BUF_INIT(4096);

	put_stream(&all);
	for (size_t piece = 1; piece <= all.len; piece++) {
		pai_auto_buf struct pai_buf rest = PAI_BUF_INIT(512);
		struct fed fed = {.bytes.max = 4096, .answer = -EINVAL};
		int r = 0;

		for (size_t at = 0; at < all.len && r == 0; at += piece) {
			size_t n = all.len - at < piece ? all.len - at : piece;

			r = pai_frame_feed(
			    &rest, (struct pai_view){all.data + at, n}, take_fed, &fed);
		}
		cr_assert_eq(r, -EINVAL);
		cr_assert_eq(fed.count, 2u);
		pai_buf_fini(&fed.bytes);
	}
	{
		pai_auto_buf struct pai_buf rest = PAI_BUF_INIT(512);
		struct fed fed = {.bytes.max = 4096};

		cr_assert_eq(
		    pai_frame_feed(&rest, (struct pai_view){"\1\0\0", 3}, take_fed, &fed), 0);
		cr_assert_eq(
		    pai_frame_feed(&rest, (struct pai_view){"\0\5", 2}, take_fed, &fed), -EPROTO);
		cr_assert_eq(
		    pai_frame_feed(&rest, (struct pai_view){"\1\0\0\0\5", 5}, take_fed, &fed),
		    -EPROTO);
	}
}

Test(frame, who_looks_on_sees_each_header_in_any_pieces)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4096);
	char payload[300] = {'\x05'}; /* as if it were a length */

	for (uint32_t id = 1; id <= 5; id++) {
		cr_assert_eq(
		    pai_frame_put(&out, (uint8_t)(0x10 + id), id, payload, id % 2 ? 0 : 60 * id),
		    0);
	}
	for (size_t piece = 1; piece <= out.len; piece++) {
		struct pai_frame_walk w = {.header_len = 0};
		struct pai_frame f;
		uint32_t seen = 0;
		int r;

		for (size_t at = 0; at < out.len; at += piece) {
			size_t n = out.len - at < piece ? out.len - at : piece;
			struct pai_view bytes = {out.data + at, n};

			while ((r = pai_frame_walk(&w, &bytes, &f)) == 1) {
				cr_assert_eq(f.id, ++seen, "in pieces of %zu", piece);
				cr_assert_eq(f.type, 0x10 + seen);
			}
			cr_assert_eq(r, 0);
			cr_assert_eq(bytes.len, 0);
		}
		cr_assert_eq(seen, 5, "in pieces of %zu", piece);
		cr_assert(w.header_len == 0 && w.payload_left == 0);
	}
}

Test(frame, who_looks_on_at_no_frames_is_told)
{
	struct pai_frame_walk w = {.header_len = 0};
	struct pai_view bytes = {"\xff\xff\xff\xff\x01\0\0\0\0", 9};
	struct pai_frame f;

	cr_assert_eq(pai_frame_walk(&w, &bytes, &f), -EPROTO);
}
