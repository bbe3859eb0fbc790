#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ledger/seed_ledger.h"

static struct pai_seed_ledger parse_bytes(const char *text, size_t len)
{
	struct pai_seed_ledger l;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_seed_ledger_parse(text, len, &l, &err), 0, "%.80s: %s", text, err.msg);
	return l;
}

static struct pai_seed_ledger parse(const char *text)
{
	return parse_bytes(text, strlen(text));
}

Test(seed_ledger, what_is_written_is_read)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(PAI_SEED_LEDGER_MAX);
	pai_auto_seed_ledger struct pai_seed_ledger l = {.records = NULL};

	cr_assert_eq(pai_seed_ledger_begin(&text), 0);
	cr_assert_eq(pai_seed_ledger_put(&text, "/workspace/b\"\\\n", "file:1"), 0);
	cr_assert_eq(pai_seed_ledger_put(&text, "/workspace/a", "loader:2"), 0);
	cr_assert_eq(pai_seed_ledger_end(&text), 0);
	l = parse(text.data);
	cr_assert_eq(l.count, 2);
	cr_assert_str_eq(pai_seed_ledger_find(&l, "/workspace/a")->version, "loader:2");
	cr_assert_str_eq(pai_seed_ledger_find(&l, "/workspace/b\"\\\n")->version, "file:1");
	cr_assert_null(pai_seed_ledger_find(&l, "/workspace/c"));
}

Test(seed_ledger, an_empty_one_is_one)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(PAI_SEED_LEDGER_MAX);
	pai_auto_seed_ledger struct pai_seed_ledger l = {.records = NULL};

	cr_assert_eq(pai_seed_ledger_begin(&text), 0);
	cr_assert_eq(pai_seed_ledger_end(&text), 0);
	l = parse(text.data);
	cr_assert_eq(l.count, 0);
	cr_assert_null(pai_seed_ledger_find(&l, "/workspace/a"));
}

Test(seed_ledger, a_damaged_or_foreign_one_is_empty)
{
	static const char *const texts[] = {"", "{", "7", "[]", "null", "{}", "{\"files\":7}",
	    "{\"files\":{\"/workspace/a\":\"v\"}}", "{\"files\":[7,null,[],\"x\"]}",
	    "{\"files\":[{\"path\":1,\"version\":\"v\"},{\"path\":\"/workspace/a\"}]}",
	    "{\"files\":[[[[{\"path\":\"/workspace/a\",\"version\":\"v\"}]]]]}",
	    "{\"files\":[{\"path\":\"/workspace/\xff\",\"version\":\"v\"}]}",
	    "{\"files\":[],\"files\":[{\"path\":\"/workspace/a\",\"version\":\"v\"}]}",
	    "{\"files\":[{\"path\":\"/workspace/a\",\"version\":\"v\"}]} more"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct pai_seed_ledger l = parse(texts[i]);

		cr_assert_eq(l.count, 0, "%s", texts[i]);
		pai_seed_ledger_fini(&l);
	}
}

Test(seed_ledger, what_is_right_in_it_counts)
{
	pai_auto_seed_ledger struct pai_seed_ledger l =
	    parse("{\"more\":1,\"files\":[7,{\"path\":\"/workspace/a\",\"version\":\"v\",\"x\":2},"
		  "{\"path\":\"/etc/passwd\",\"version\":\"\"},{\"path\":\"/workspace/a\","
		  "\"version\":\"w\"}]}");

	cr_assert_eq(l.count, 2);
	cr_assert_not_null(pai_seed_ledger_find(&l, "/workspace/a"));
	cr_assert_str_eq(pai_seed_ledger_find(&l, "/etc/passwd")->version, "");
}

Test(seed_ledger, a_huge_or_deep_one_is_empty_and_costs_no_more_than_its_bytes, .timeout = 60)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(2 * (size_t)PAI_SEED_LEDGER_MAX);
	struct pai_seed_ledger l;

	for (int i = 0; i < 1000000; i++) {
		cr_assert_eq(pai_buf_add_str(&text, "{\"files\":["), 0);
	}
	l = parse_bytes(text.data, text.len);
	cr_assert_eq(l.count, 0);
	pai_buf_clear(&text);
	cr_assert_eq(pai_buf_add_str(&text, "{\"files\":["), 0);
	while (text.len <= PAI_SEED_LEDGER_MAX) {
		cr_assert_eq(
		    pai_buf_add_str(&text, "{\"path\":\"/workspace/a\",\"version\":\"v\"},"), 0);
	}
	cr_assert_eq(pai_buf_add_str(&text, "7]}"), 0);
	l = parse_bytes(text.data, text.len);
	cr_assert_eq(l.count, 0);
}

Test(seed_ledger, no_more_is_written_than_is_read)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(60);

	cr_assert_eq(pai_seed_ledger_begin(&text), 0);
	cr_assert_eq(pai_seed_ledger_put(&text, "/workspace/a", "v"), 0);
	cr_assert_eq(pai_seed_ledger_put(&text, "/workspace/b", "v"), -EMSGSIZE);
}
