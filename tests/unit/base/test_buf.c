#include "providers/base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include <criterion/criterion.h>

Test(buf, an_append_past_the_cap_changes_nothing)
{
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(4);

	cr_assert_eq(pai_buf_add_str(&b, "abc"), 0);
	cr_assert_eq(pai_buf_add_str(&b, "de"), -EMSGSIZE);
	cr_assert_eq(pai_buf_printf(&b, "%d", 42), -EMSGSIZE);
	cr_assert_eq(pai_buf_put_u16(&b, 1), -EMSGSIZE);
	cr_assert_eq(pai_buf_put_bytes(&b, "x", 1), -EMSGSIZE);
	cr_assert_str_eq(b.data, "abc");
	cr_assert_eq(pai_buf_add_str(&b, "d"), 0, "the cap itself is allowed");
	cr_assert_str_eq(b.data, "abcd");
	cr_assert_eq(pai_buf_add(&b, "", 0), 0);
}

Test(buf, huge_requests_are_refused_not_wrapped)
{
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(SIZE_MAX);

	cr_assert_eq(pai_buf_add_str(&b, "a"), 0);
	cr_assert_eq(pai_buf_reserve(&b, SIZE_MAX), -EMSGSIZE);
	cr_assert_eq(pai_buf_reserve(&b, SIZE_MAX - 1), -EMSGSIZE);
	cr_assert_eq(pai_buf_reserve(&b, SIZE_MAX / 2), -ENOMEM);
	cr_assert_str_eq(b.data, "a");
}

Test(buf, memory_never_grows_past_cap_and_nul)
{
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(1000);

	for (int i = 0; i < 1000; i++) {
		cr_assert_eq(pai_buf_add_str(&b, "x"), 0);
		cr_assert_leq(b.cap, 1001);
		cr_assert_eq(b.data[b.len], '\0');
	}
	cr_assert_eq(b.len, 1000);
	cr_assert_eq(pai_buf_add_str(&b, "x"), -EMSGSIZE);
}

Test(buf, consume_clear_and_take)
{
	struct pai_buf b = PAI_BUF_INIT(100);
	char *taken;

	cr_assert_eq(pai_buf_printf(&b, "%s-%03d", "ab", 7), 0);
	pai_buf_consume(&b, 0);
	pai_buf_consume(&b, 3);
	cr_assert_str_eq(b.data, "007");
	pai_buf_consume(&b, 3);
	cr_assert_eq(b.len, 0);
	cr_assert_eq(pai_buf_add_str(&b, "again"), 0);
	taken = pai_buf_take(&b);
	cr_assert_str_eq(taken, "again");
	free(taken);
	taken = pai_buf_take(&b);
	cr_assert_str_eq(taken, "", "an empty buffer gives the empty string");
	free(taken);
	pai_buf_clear(&b);
	pai_buf_consume(&b, 0);
	pai_buf_fini(&b);
	pai_buf_fini(&b);
}

Test(buf, numbers_are_little_endian_and_come_back)
{
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(100);
	struct pai_reader r;
	struct pai_view v;

	cr_assert_eq(pai_buf_put_u8(&b, 0xAB), 0);
	cr_assert_eq(pai_buf_put_u16(&b, 0x0102), 0);
	cr_assert_eq(pai_buf_put_u32(&b, 0x01020304), 0);
	cr_assert_eq(pai_buf_put_u64(&b, 0x0102030405060708), 0);
	cr_assert_eq(pai_buf_put_bytes(&b, "a\0b", 3), 0);
	cr_assert_eq(memcmp(b.data, "\xAB\x02\x01\x04\x03\x02\x01\x08\x07", 9), 0);
	r = pai_reader_init(b.data, b.len);
	cr_assert_eq(pai_get_u8(&r), 0xAB);
	cr_assert_eq(pai_get_u16(&r), 0x0102);
	cr_assert_eq(pai_get_u32(&r), 0x01020304);
	cr_assert_eq(pai_get_u64(&r), 0x0102030405060708);
	v = pai_get_bytes(&r, 3);
	cr_assert_eq(v.len, 3);
	cr_assert_eq(memcmp(v.data, "a\0b", 3), 0);
	cr_assert(pai_reader_done(&r));
}

/* Every prefix of a good message is bad, and nothing reads past it. */
Test(buf, a_truncated_message_latches)
{
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(100);

	cr_assert_eq(pai_buf_put_u64(&b, UINT64_MAX), 0);
	cr_assert_eq(pai_buf_put_bytes(&b, "hello", 5), 0);
	cr_assert_eq(pai_buf_put_u16(&b, UINT16_MAX), 0);
	for (size_t len = 0; len < b.len; len++) {
		/* Its own allocation, so that a sanitizer sees a read past the end. */
		pai_auto_free char *cut = malloc(len + 1);
		struct pai_reader r;
		pai_auto_free char *text = NULL;

		cr_assert_not_null(cut);
		memcpy(cut, b.data, len);
		r = pai_reader_init(cut, len);
		(void)pai_get_u64(&r);
		text = pai_get_str(&r, 100);
		cr_expect_eq(text != NULL, len >= 17);
		cr_expect_eq(pai_get_u16(&r), 0, "%zu", len);
		cr_expect(r.bad);
		cr_expect_not(pai_reader_done(&r));
		cr_expect_eq(pai_get_u8(&r), 0, "bad latches");
		cr_expect_eq(pai_get_rest(&r).len, 0);
	}
}

Test(buf, a_length_over_the_limit_is_bad)
{
	struct pai_reader r = pai_reader_init("\xFF\xFF\xFF\xFFxyz", 7);
	struct pai_view v = pai_get_bytes(&r, SIZE_MAX);

	cr_assert(r.bad);
	cr_assert_eq(v.len, 0);
	cr_assert_not_null(v.data);
	r = pai_reader_init("\x03\0\0\0xyz", 7);
	v = pai_get_bytes(&r, 2);
	cr_assert(r.bad);
	r = pai_reader_init("\x03\0\0\0xyz", 7);
	v = pai_get_bytes(&r, 3);
	cr_assert(pai_reader_done(&r));
	cr_assert_eq(v.len, 3);
}

Test(buf, strings_have_no_nul_inside)
{
	struct pai_reader r = pai_reader_init("\x03\0\0\0x\0z", 7);
	char *text = pai_get_str(&r, 10);

	cr_assert_null(text);
	cr_assert(r.bad);
	r = pai_reader_init("\0\0\0\0", 4);
	text = pai_get_str(&r, 10);
	cr_assert_str_eq(text, "");
	cr_assert(pai_reader_done(&r));
	free(text);
}

Test(buf, an_empty_input_and_the_rest)
{
	struct pai_reader r = pai_reader_init(NULL, 0);

	cr_assert(pai_reader_done(&r));
	cr_assert_eq(pai_get_u32(&r), 0);
	cr_assert(r.bad);
	r = pai_reader_init("abc", 3);
	cr_assert_eq(pai_get_u8(&r), 'a');
	cr_assert_not(pai_reader_done(&r), "bytes are left");
	cr_assert_eq(pai_get_rest(&r).len, 2);
	cr_assert(pai_reader_done(&r));
}

static int file_of(size_t len)
{
	char template[] = "/tmp/pai-test-buf-XXXXXX";
	int fd = mkstemp(template);

	cr_assert_geq(fd, 0);
	cr_assert_eq(unlink(template), 0);
	cr_assert_eq(ftruncate(fd, (off_t)len), 0);
	return fd;
}

Test(buf, fill_reads_to_the_end_and_stops_at_the_cap)
{
	pai_auto_fd int fd = file_of(100000);
	pai_auto_buf struct pai_buf exact = PAI_BUF_INIT(100003);
	pai_auto_buf struct pai_buf small = PAI_BUF_INIT(100002);
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_buf_add_str(&exact, "abc"), 0);
	cr_assert_eq(pai_buf_fill(&exact, fd, &err), 0);
	cr_assert_eq(exact.len, 100003);
	cr_assert_eq(lseek(fd, 0, SEEK_SET), 0);
	cr_assert_eq(pai_buf_add_str(&small, "abc"), 0);
	cr_assert_eq(pai_buf_fill(&small, fd, &err), -EFBIG);
	cr_assert_eq(err.errnum, EFBIG);
	cr_assert_str_eq(small.data, "abc", "a failure leaves what was there");
	cr_assert_eq(pai_buf_fill(&small, -1, &err), -EBADF);
}
