#include <criterion/criterion.h>
#include <string.h>

#include "execshim/tools/image.h"
#include "execshim/tools/near.h"
#include "execshim/tools/replace.h"

struct row {
	const char *data, *old_text, *new_text;
	bool all;
	enum pai_replace_end end;
	const char *after; /* PAI_REPLACED */
	uint64_t count, first_line;
};

static void check(const struct row *w)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1 << 20);
	struct pai_replace p = {.data = w->data,
	    .len = strlen(w->data),
	    .old_text = w->old_text,
	    .new_text = w->new_text,
	    .all = w->all};
	enum pai_replace_end end;

	cr_assert_eq(pai_replace(&p, &out, &end), 0);
	cr_assert_eq(end, w->end, "'%s' in '%s': %d", w->old_text, w->data, end);
	cr_assert_eq(
	    p.count, w->count, "'%s' in '%s': %lu", w->old_text, w->data, (unsigned long)p.count);
	if (end == PAI_REPLACED) {
		cr_assert_str_eq(out.data ? out.data : "", w->after);
		cr_assert_eq(p.first_line, w->first_line);
	}
}

Test(tool_edit, replacements)
{
	static const struct row rows[] = {
	    {"abc", "b", "X", false, PAI_REPLACED, "aXc", 1, 1},
	    {"abc", "b", "", false, PAI_REPLACED, "ac", 1, 1},
	    {"b", "b", "", false, PAI_REPLACED, "", 1, 1},
	    {"abc", "x", "y", false, PAI_REPLACE_NO_MATCH, NULL, 0, 0},
	    {"", "x", "y", false, PAI_REPLACE_NO_MATCH, NULL, 0, 0},
	    {"bab", "b", "X", false, PAI_REPLACE_NOT_UNIQUE, NULL, 2, 0},
	    {"bab", "b", "X", true, PAI_REPLACED, "XaX", 2, 1},
	    {"bab", "b", "bb", true, PAI_REPLACED, "bbabb", 2, 1},
	    {"aaa", "aa", "b", false, PAI_REPLACE_NOT_UNIQUE, NULL, 2, 0},
	    {"aaa", "aa", "b", true, PAI_REPLACED, "ba", 1, 1},
	    {"1\n2\n3\n", "3", "x", false, PAI_REPLACED, "1\n2\nx\n", 1, 3},
	    /* Line ends. */
	    {"a\r\nb\r\n", "a\nb", "x\ny", false, PAI_REPLACED, "x\r\ny\r\n", 1, 1},
	    {"a\nb\n", "a\r\nb", "x\r\ny", false, PAI_REPLACED, "x\ny\n", 1, 1},
	    {"a\r\nb\r\n", "a\r\nb", "x\ny", false, PAI_REPLACED, "x\ny\r\n", 1, 1}, /* exact */
	    {"a\r\nb\r\n", "b", "b\nc", false, PAI_REPLACED, "a\r\nb\r\nc\r\n", 1, 2},
	    {"a\nb\n", "b", "b\r\nc", false, PAI_REPLACED, "a\nb\r\nc\n", 1, 2}, /* as given */
	    {"a\r\nb\nc\r\n", "b\nc", "x", false, PAI_REPLACED, "a\r\nx\r\n", 1, 2},
	    {"a\nb\r\nc\n", "a\r\nb", "x", false, PAI_REPLACED, "x\r\nc\n", 1, 1},
	    {"a\r\nb\r\n", "a\nb", "a\r\nb", false, PAI_REPLACE_SAME, NULL, 1, 0},
	    {"a b", "a  b", "x", false, PAI_REPLACE_NO_MATCH, NULL, 0, 0}, /* never fuzzy */
	    {"A", "a", "x", false, PAI_REPLACE_NO_MATCH, NULL, 0, 0},
	    {"a.c", "a.c", "$&\\1", false, PAI_REPLACED, "$&\\1", 1, 1},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		check(&rows[i]);
	}
}

Test(tool_edit, bytes_that_are_no_text_stay)
{
	static const char data[] = "\xff\0\xfe old \x80";
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1 << 20);
	struct pai_replace p = {
	    .data = data, .len = sizeof(data) - 1, .old_text = "old", .new_text = "new"};
	enum pai_replace_end end;

	cr_assert_eq(pai_replace(&p, &out, &end), 0);
	cr_assert_eq(end, PAI_REPLACED);
	cr_assert_eq(out.len, sizeof(data) - 1);
	cr_assert_eq(memcmp(out.data, "\xff\0\xfe new \x80", out.len), 0);
}

Test(tool_edit, near_names)
{
	static const char *const names[] = {"Makefile", "makefile.am", "main.c", "mian.c", "man.c",
	    "maim.c", "main.cc", "main.h", "zebra", "", "README.md"};
	static const struct {
		const char *wanted;
		const char *found[PAI_NEAR_MAX + 1];
	} rows[] = {
	    {"makefile", {"Makefile"}},
	    {"MAIN.C", {"main.c", "maim.c", "main.cc", "main.h", "man.c"}},
	    {"readme.md", {"README.md"}},
	    {"REDAME.md", {"README.md"}},
	    {"nothing-like-that", {NULL}},
	    {"zebra", {NULL}}, /* itself: it is there, and leads nowhere */
	    {"x", {NULL}},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		size_t best[PAI_NEAR_MAX];
		size_t n = pai_near(rows[i].wanted, names, sizeof(names) / sizeof(names[0]), best);
		size_t want = 0;

		while (rows[i].found[want]) {
			want++;
		}
		cr_assert_eq(n, want, "%s: %zu", rows[i].wanted, n);
		for (size_t k = 0; k < n; k++) {
			cr_assert_str_eq(names[best[k]], rows[i].found[k], "%s at %zu: %s",
			    rows[i].wanted, k, names[best[k]]);
		}
	}
}

Test(tool_edit, a_name_too_long_is_near_to_none)
{
	char wanted[600];
	const char *const names[] = {"short"};
	size_t best[PAI_NEAR_MAX];

	memset(wanted, 'n', sizeof(wanted) - 1);
	wanted[sizeof(wanted) - 1] = '\0';
	cr_assert_eq(pai_near(wanted, names, 1, best), 0);
}

Test(tool_edit, images_by_their_bytes)
{
	cr_assert_str_eq(pai_image_type("\x89PNG\r\n\x1a\n", 8), "image/png");
	cr_assert_null(pai_image_type("\x89PNG\r\n\x1a\n", 7));
	cr_assert_str_eq(pai_image_type("\xff\xd8\xff", 3), "image/jpeg");
	cr_assert_null(pai_image_type("\xff\xd8", 2));
	cr_assert_null(pai_image_type("GIF89a", 6));
	cr_assert_null(pai_image_type("", 0));
}

Test(tool_edit, base64)
{
	static const char *const rows[][2] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="},
	    {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"\xff\xfe\xfd", "//79"}, {"\xfb\xf0", "+/A="}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		pai_auto_buf struct pai_buf out = PAI_BUF_INIT(100);

		cr_assert_eq(pai_image_base64(&out, rows[i][0], strlen(rows[i][0])), 0);
		cr_assert_str_eq(out.data ? out.data : "", rows[i][1]);
	}
}
