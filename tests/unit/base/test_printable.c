#include "providers/base/printable.h"

#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

static const struct {
	const char *in;
	const char *out;
} rows[] = {
    {"", ""},
    {"plain text 123 ~", "plain text 123 ~"},
    {"back\\slash", "back\\\\slash"},
    {"a\nb\tc\r", "a\\x0ab\\x09c\\x0d"},
    {"\x1B[31mred", "\\x1b[31mred"},
    {"\x7F", "\\x7f"},
    {"\xC2\x80\xC2\x9F", "\\xc2\\x80\\xc2\\x9f"}, /* C1 */
    {"\xC2\xA0\xC3\xA9", "\xC2\xA0\xC3\xA9"},     /* just past C1; e acute */
    {"\xE2\x80\xAE"
     "evil",
	"\\xe2\\x80\\xae"
	"evil"},                                                    /* right-to-left override */
    {"\xE2\x80\xA8\xE2\x80\xA9", "\\xe2\\x80\\xa8\\xe2\\x80\\xa9"}, /* separators */
    {"\xE2\x81\xA6\xE2\x81\xA9", "\\xe2\\x81\\xa6\\xe2\\x81\\xa9"}, /* isolates */
    {"\xD8\x9C\xE2\x80\x8E\xE2\x80\x8F", "\\xd8\\x9c\\xe2\\x80\\x8e\\xe2\\x80\\x8f"},
    {"\xE2\x80\x90\xE2\x81\xA5", "\xE2\x80\x90\xE2\x81\xA5"}, /* neighbours stay */
    {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"},
    {"\xFF\xFE", "\\xff\\xfe"},
    {"\xC3", "\\xc3"},                            /* cut short */
    {"\xC3(", "\\xc3("},                          /* no continuation */
    {"\xC0\xAF", "\\xc0\\xaf"},                   /* overlong '/' */
    {"\xE0\x80\xAF", "\\xe0\\x80\\xaf"},          /* overlong */
    {"\xED\xA0\x80", "\\xed\\xa0\\x80"},          /* surrogate */
    {"\xF4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* past U+10FFFF */
    {"\xF0\x8F\xBF\xBF", "\\xf0\\x8f\\xbf\\xbf"}, /* overlong */
    {"ok\x80ok", "ok\\x80ok"},
};

Test(printable, table)
{
	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		pai_auto_buf struct pai_buf b = PAI_BUF_INIT(1000);

		cr_expect_eq(pai_printable_add(&b, rows[i].in, strlen(rows[i].in)), 0);
		cr_expect_str_eq(b.data ? b.data : "", rows[i].out, "row %zu", i);
		cr_expect_str_eq(pai_printable(rows[i].in), rows[i].out, "row %zu", i);
	}
}

Test(printable, nul_is_shown)
{
	char out[32];

	cr_assert_str_eq(pai_printable_into(out, sizeof(out), "a\0b", 3), "a\\x00b");
}

/* Whatever byte comes in, what goes out is clean UTF-8 without a control character. */
Test(printable, every_byte_value_is_safe)
{
	for (int first = 0; first < 256; first++) {
		char in[4] = {(char)first, (char)0x80, (char)0xAE, 'x'};
		const char *out = pai_printable_into((char[64]){0}, 64, in, sizeof(in));

		cr_expect(pai_utf8_valid(out, strlen(out)), "%d", first);
		for (const char *p = out; *p; p++) {
			cr_expect(*p < 0 || (*p >= 0x20 && *p < 0x7F), "%d", first);
		}
	}
}

Test(printable, is_cut_at_a_whole_escape_or_character)
{
	char out[8];

	cr_assert_str_eq(pai_printable_into(out, 5, "ab\n", 3), "ab");
	cr_assert_str_eq(pai_printable_into(out, 7, "ab\n", 3), "ab\\x0a");
	cr_assert_str_eq(pai_printable_into(out, 4, "ab\xC3\xA9", 4), "ab");
	cr_assert_str_eq(pai_printable_into(out, 5, "ab\xC3\xA9", 4), "ab\xC3\xA9");
	cr_assert_str_eq(pai_printable_into(out, 1, "ab", 2), "");
}

Test(printable, respects_the_cap_of_the_buffer)
{
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(3);

	cr_assert_eq(pai_printable_add(&b, "\n", 1), -EMSGSIZE);
	cr_assert_eq(b.len, 0);
}

Test(printable, utf8_lengths)
{
	cr_assert_eq(pai_utf8_len("", 0), 0);
	cr_assert_eq(pai_utf8_len("a", 1), 1);
	cr_assert_eq(pai_utf8_len("\xC3\xA9", 2), 2);
	cr_assert_eq(pai_utf8_len("\xC3\xA9", 1), 0);
	cr_assert_eq(pai_utf8_len("\xE2\x82\xAC", 3), 3);
	cr_assert_eq(pai_utf8_len("\xE2\x82\xAC", 2), 0);
	cr_assert_eq(pai_utf8_len("\xF4\x8F\xBF\xBF", 4), 4);
	cr_assert(pai_utf8_valid("a\xC3\xA9", 3));
	cr_assert_not(pai_utf8_valid("a\xC3", 2));
	cr_assert(pai_utf8_valid("", 0));
}
