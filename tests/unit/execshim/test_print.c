#include "execshim/print.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

struct shown {
	char *text;
	size_t len;
	FILE *file;
};
static FILE *begin(struct shown *s)
{
	s->file = open_memstream(&s->text, &s->len);
	cr_assert_not_null(s->file);
	return s->file;
}
static const char *end(struct shown *s)
{
	(void)fclose(s->file);
	return s->text;
}

Test(print, a_table_is_aligned_and_harmless)
{
	static const char *const heads[] = {"KEY", "STATE", NULL};
	pai_auto_table struct pai_table *t = pai_table_new(heads);
	struct shown s;

	cr_assert_eq(pai_table_add(t, "th\x1b[31mread"), 0);
	cr_assert_eq(pai_table_add(t, "live"), 0);
	cr_assert_eq(pai_table_add(t, "\xc3\xa4\xc3\xb6"), 0);
	cr_assert_eq(pai_table_add(t, NULL), 0);
	pai_table_print(t, begin(&s));
	cr_assert_str_eq(end(&s), "KEY             STATE\n"
				  "th\\x1b[31mread  live\n"
				  "\xc3\xa4\xc3\xb6              -\n");
	free(s.text);
}

Test(print, json_is_ascii_and_the_same_value)
{
	pai_auto_json struct pai_json *obj = pai_json_object();
	pai_auto_json struct pai_json *back = NULL;
	/* RLO, C1 NEL, an emoji, DEL, ESC */
	static const char text[] = "\xe2\x80\xae\xc2\x85\xf0\x9f\x98\x80\x7f\x1b z\"\\";
	struct pai_err err = PAI_ERR_INIT;
	struct shown s;
	size_t len;

	cr_assert_eq(pai_json_set_str(obj, "k\xc3\xa4", text), 0);
	cr_assert_eq(pai_print_json(obj, begin(&s)), 0);
	len = strlen(end(&s));
	cr_assert_eq(s.text[len - 1], '\n');
	for (size_t i = 0; i + 1 < len; i++) {
		cr_assert(s.text[i] >= ' ' && s.text[i] < 0x7f, "byte %d at %zu", s.text[i], i);
	}
	cr_assert_eq(pai_json_parse(s.text, len - 1, 4, &back, &err), 0, "%s: %s", s.text, err.msg);
	cr_assert_str_eq(pai_json_str(back, "k\xc3\xa4"), text);
	free(s.text);
}

Test(print, members_are_a_line_each_without_what_is_not_there)
{
	pai_auto_json struct pai_json *obj = pai_json_object();
	struct shown s;

	cr_assert_eq(pai_json_set_str(obj, "mount", "/a\nb"), 0);
	cr_assert_eq(pai_json_set_num(obj, "pid", 42), 0);
	cr_assert_eq(pai_json_set_bool(obj, "trusted", false), 0);
	cr_assert_eq(pai_json_set_null(obj, "nothing"), 0);
	cr_assert_eq(pai_json_set_num(obj, "usedMs", 0), 0);
	pai_print_members(obj, "  ", begin(&s));
	cr_assert_str_eq(end(&s), "  mount          /a\\x0ab\n"
				  "  pid            42\n"
				  "  trusted        no\n"
				  "  used           -\n");
	free(s.text);
}
