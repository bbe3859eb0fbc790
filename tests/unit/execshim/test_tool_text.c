#include <criterion/criterion.h>
#include <string.h>

#include "execshim/tools/text.h"

static char *repaired(const char *data, size_t len)
{
	struct pai_buf out = PAI_BUF_INIT(1 << 20);

	cr_assert_eq(pai_text_add(&out, data, len), 0);
	return pai_buf_take(&out);
}

Test(tool_text, what_is_no_utf8_shows_as_one_character_a_byte)
{
	static const struct {
		const char *in;
		size_t len;
		const char *out;
		size_t chars;
	} rows[] = {
	    {"", 0, "", 0},
	    {"plain", 5, "plain", 5},
	    {"a\0b", 3,
		"a\xEF\xBF\xBD"
		"b",
		3},
	    {"\xff", 1, "\xEF\xBF\xBD", 1},
	    {"\xe2\x82", 2, "\xEF\xBF\xBD\xEF\xBF\xBD", 2},
	    {"\xe2\x82\xac", 3, "\xe2\x82\xac", 1},
	    {"\xc0\xaf", 2, "\xEF\xBF\xBD\xEF\xBF\xBD", 2},                 /* overlong */
	    {"\xed\xa0\x80", 3, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", 3}, /* a surrogate */
	    {"\xf0\x9f\x98\x80x", 5, "\xf0\x9f\x98\x80x", 2},
	    {"x\x80y", 3, "x\xEF\xBF\xBDy", 3},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		pai_auto_free char *out = repaired(rows[i].in, rows[i].len);

		cr_assert_str_eq(out, rows[i].out, "row %zu: %s", i, out);
		cr_assert_eq(pai_text_count(rows[i].in, rows[i].len), rows[i].chars, "row %zu", i);
	}
}

Test(tool_text, heads_and_tails_are_whole_characters)
{
	static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z"; /* 1+2+3+4+1 */
	static const size_t heads[] = {0, 1, 3, 6, 10, 11, 11};
	static const size_t tails[] = {11, 10, 6, 3, 1, 0, 0};
	size_t len = strlen(text);

	for (size_t n = 0; n < 7; n++) {
		cr_assert_eq(pai_text_head(text, len, n), heads[n], "head %zu", n);
		cr_assert_eq(pai_text_tail(text, len, n), tails[n], "tail %zu: %zu", n,
		    pai_text_tail(text, len, n));
	}
	cr_assert_eq(pai_text_tail("\x80\x80\x80\x80\x80", 5, 2), 3, "bad bytes count as well");
	cr_assert_eq(pai_text_tail("", 0, 5), 0);
}

Test(tool_text, a_clip_says_how_many_follow)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1 << 20);

	cr_assert_eq(pai_text_add_clipped(&out, "abcdef", 6, 6), 0);
	cr_assert_str_eq(out.data, "abcdef");
	pai_buf_clear(&out);
	cr_assert_eq(pai_text_add_clipped(&out, "abc\xc3\xa9\xc3\xa9", 7, 4), 0);
	cr_assert_str_eq(out.data, "abc\xc3\xa9… [1 more characters]");
}

Test(tool_text, numbers_have_commas)
{
	char room[32];

	cr_assert_str_eq(pai_text_number(0, room), "0");
	cr_assert_str_eq(pai_text_number(999, room), "999");
	cr_assert_str_eq(pai_text_number(1000, room), "1,000");
	cr_assert_str_eq(pai_text_number(12345678, room), "12,345,678");
	cr_assert_str_eq(pai_text_number(UINT64_MAX, room), "18,446,744,073,709,551,615");
}

Test(tool_text, binary_is_a_nul_in_the_first_8192_bytes)
{
	char data[9000];

	memset(data, 'x', sizeof(data));
	cr_assert(!pai_text_is_binary(data, sizeof(data)));
	data[8192] = '\0';
	cr_assert(!pai_text_is_binary(data, sizeof(data)));
	data[8191] = '\0';
	cr_assert(pai_text_is_binary(data, sizeof(data)));
	cr_assert(!pai_text_is_binary(data, 8191));
	cr_assert(!pai_text_is_binary(NULL, 0));
}

struct expected {
	const char *text;
	uint64_t offset, limit;
	size_t max_chars;
	const char *content;
	uint64_t total, next;
};

static void check_page(const struct expected *e)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1 << 20);
	struct pai_text_page p = {.data = e->text,
	    .len = strlen(e->text),
	    .offset = e->offset,
	    .limit = e->limit,
	    .max_chars = e->max_chars,
	    .max_line = 5};

	cr_assert_eq(pai_text_number_lines(&out, &p), 0);
	cr_assert_str_eq(out.data ? out.data : "", e->content, "%s", out.data);
	cr_assert_eq(p.total, e->total);
	cr_assert_eq(p.next_offset, e->next, "%s: next %lu", e->text, (unsigned long)p.next_offset);
}

Test(tool_text, pages_of_numbered_lines)
{
	static const struct expected rows[] = {
	    {"", 1, 9, 99, "", 0, 0},
	    {"a", 1, 9, 99, "1: a", 1, 0},
	    {"a\n", 1, 9, 99, "1: a", 1, 0},
	    {"a\n\n", 1, 9, 99, "1: a\n2: ", 2, 0},
	    {"a\r\nb", 1, 9, 99, "1: a\r\n2: b", 2, 0},
	    {"a\nb\nc\n", 2, 1, 99, "2: b\n[Lines 2 to 2 of 3 are shown. Read on with offset: 3.]",
		3, 3},
	    {"a\nb\nc\n", 3, 1, 99, "3: c", 3, 0},
	    /* 4 + 5 characters are the budget: the second line ends it exactly. */
	    {"a\nb\nc\n", 1, 9, 9,
		"1: a\n2: b\n[Lines 1 to 2 of 3 are shown. Read on with offset: 3.]", 3, 3},
	    {"a\nb\nc\n", 1, 9, 8, "1: a\n[Lines 1 to 1 of 3 are shown. Read on with offset: 2.]",
		3, 2},
	    /* One line is shown whatever the budget. */
	    {"abc\nb\n", 1, 9, 1, "1: abc\n[Lines 1 to 1 of 2 are shown. Read on with offset: 2.]",
		2, 2},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		check_page(&rows[i]);
	}
}

Test(tool_text, clipped_lines_are_told_and_a_part_has_no_banner)
{
	static const struct expected clipped = {"123456\n", 1, 9, 99,
	    "1: 12345… [1 more characters]\n[Lines over 5 characters are clipped. See the rest of "
	    "one with bash: sed -n NUMBERp FILE | cut -c 6-]",
	    1, 0};
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1 << 20);
	struct pai_text_page part = {.data = "a\nb\nc\n",
	    .len = 6,
	    .offset = 1,
	    .limit = 2,
	    .max_chars = 99,
	    .max_line = 9,
	    .is_part = true};

	check_page(&clipped);
	cr_assert_eq(pai_text_number_lines(&out, &part), 0);
	cr_assert_str_eq(out.data, "1: a\n2: b");
	cr_assert_eq(part.next_offset, 3);
	part.offset = 4;
	cr_assert_eq(pai_text_number_lines(&out, &part), 0);
	cr_assert(part.is_beyond);
}
