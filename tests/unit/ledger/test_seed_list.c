#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ledger/seed_list.h"
#include "providers/base/buf.h"
#include "providers/base/key.h"

static struct pai_seed_list parse(const char *text)
{
	struct pai_seed_list l = {.files = NULL};
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_seed_list_parse(text, strlen(text), &l, &err), 0, "%s: %s", text, err.msg);
	return l;
}

static void is_no_list(const char *text, size_t len)
{
	struct pai_seed_list l = {.files = NULL};
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_seed_list_parse(text, len, &l, &err), -EINVAL, "%.60s", text);
	cr_assert_eq(err.code, PAI_E_INPUT);
	cr_assert_null(l.files);
}

Test(seed_list, each_source_has_its_version)
{
	pai_auto_seed_list struct pai_seed_list l =
	    parse("[{\"path\":\"/workspace/a\",\"data\":\"x\"},"
		  "{\"path\":\"/workspace/b/c\",\"fileId\":\"f1\",\"executable\":false},"
		  "{\"path\":\"/workspace/d\",\"loader\":[\"./l\",\"\",\"z\"],\"version\":\"v\","
		  "\"executable\":true}]");
	char hex[2 * PAI_SHA256_BYTES + 1], wanted[80];

	cr_assert_eq(l.invalid.code, PAI_OK, "%s", l.invalid.msg);
	cr_assert_eq(l.count, 3);
	pai_sha256_hex("x", 1, hex);
	(void)snprintf(wanted, sizeof(wanted), "sha256:%s", hex);
	cr_assert_str_eq(l.files[0].path, "/workspace/a");
	cr_assert_str_eq(l.files[0].version, wanted);
	cr_assert_str_eq(l.files[0].data, "x");
	cr_assert_str_eq(l.files[1].version, "file:f1");
	cr_assert_str_eq(l.files[1].file_id, "f1");
	cr_assert(!l.files[1].executable);
	cr_assert_str_eq(l.files[2].version, "loader:v");
	cr_assert_str_eq(l.files[2].argv[2], "z");
	cr_assert_null(l.files[2].argv[3]);
	cr_assert(l.files[2].executable);
}

Test(seed_list, base64_is_any_bytes)
{
	pai_auto_seed_list struct pai_seed_list l =
	    parse("[{\"path\":\"/workspace/a\",\"data\":\"AP8A\",\"encoding\":\"base64\"},"
		  "{\"path\":\"/workspace/b\",\"data\":\"\",\"encoding\":\"base64\"},"
		  "{\"path\":\"/workspace/c\",\"data\":\"\",\"encoding\":\"utf8\"}]");

	cr_assert_eq(l.invalid.code, PAI_OK, "%s", l.invalid.msg);
	cr_assert_eq(l.files[0].len, 3);
	cr_assert_eq(memcmp(l.files[0].data, "\0\xff\0", 3), 0);
	cr_assert_eq(l.files[1].len, 0);
	cr_assert_str_eq(l.files[1].version, l.files[2].version);
}

Test(seed_list, an_empty_list_is_one)
{
	pai_auto_seed_list struct pai_seed_list l = parse(" [] ");

	cr_assert_eq(l.count, 0);
	cr_assert_eq(l.invalid.code, PAI_OK);
}

Test(seed_list, a_path_that_is_listed_twice_is_the_last_entry)
{
	pai_auto_seed_list struct pai_seed_list l =
	    parse("[{\"path\":\"/workspace/a\",\"data\":\"1\"},{\"path\":\"/workspace/"
		  "b\",\"data\":\"2\"},"
		  "{\"path\":\"/workspace/a\",\"data\":\"3\"},{\"path\":\"/workspace/"
		  "a\",\"data\":\"4\"}]");

	cr_assert_eq(l.invalid.code, PAI_OK);
	cr_assert_eq(l.count, 2);
	cr_assert_str_eq(l.files[0].path, "/workspace/b");
	cr_assert_str_eq(l.files[1].data, "4");
}

/* An entry, and what its message says. */
static const struct {
	const char *entry, *says;
} wrong[] = {
    {"{\"path\":\"a\",\"data\":\"\"}", "the path is relative"},
    {"{\"path\":\"\",\"data\":\"\"}", "the path is relative"},
    {"{\"path\":\"/workspace/a/../b\",\"data\":\"\"}", "not normalised: expected '/workspace/b'"},
    {"{\"path\":\"/workspace//a\",\"data\":\"\"}", "not normalised"},
    {"{\"path\":\"/workspace/a/\",\"data\":\"\"}", "not normalised"},
    {"{\"path\":\"/workspace/../etc/passwd\",\"data\":\"\"}", "not normalised"},
    {"{\"path\":\"/etc/passwd\",\"data\":\"\"}", "outside /workspace"},
    {"{\"path\":\"/workspaces/a\",\"data\":\"\"}", "outside /workspace"},
    {"{\"path\":\"/workspace\",\"data\":\"\"}", "outside /workspace"},
    {"{\"path\":\"/workspace/.pai/x\",\"data\":\"\"}", "inside /workspace/.pai"},
    {"{\"path\":\"/workspace/.pai\",\"data\":\"\"}", "inside /workspace/.pai"},
    {"{\"path\":\"/workspace/a\",\"fileId\":\"\"}", "the fileId is empty"},
    {"{\"path\":\"/workspace/a\",\"fileId\":7}", "fileId: expected a text"},
    {"{\"path\":\"/workspace/a\",\"loader\":[\"l\"],\"version\":\"\"}", "the version is empty"},
    {"{\"path\":\"/workspace/a\",\"loader\":[\"l\"]}", "a loader needs a version"},
    {"{\"path\":\"/workspace/a\",\"loader\":[\"l\"],\"version\":1}", "version: expected a text"},
    {"{\"path\":\"/workspace/a\",\"loader\":[],\"version\":\"v\"}", "loader: expected a program"},
    {"{\"path\":\"/workspace/a\",\"loader\":\"l\",\"version\":\"v\"}",
	"loader: expected a program"},
    {"{\"path\":\"/workspace/a\",\"loader\":[\"l\",1],\"version\":\"v\"}", "an array of texts"},
    {"{\"path\":\"/workspace/a\",\"loader\":[\"\"],\"version\":\"v\"}", "loader: expected"},
    {"{\"path\":\"/workspace/a\"}", "no source"},
    {"{\"path\":\"/workspace/a\",\"data\":\"\",\"fileId\":\"f\"}", "more than one source"},
    {"{\"path\":\"/workspace/a\",\"fileId\":\"f\",\"loader\":[\"l\"],\"version\":\"v\"}",
	"more than one source"},
    {"{\"path\":\"/workspace/a\",\"data\":1}", "data: expected a text"},
    {"{\"path\":\"/workspace/a\",\"data\":\"x\",\"encoding\":\"hex\"}", "encoding: expected"},
    {"{\"path\":\"/workspace/a\",\"data\":\"x\",\"encoding\":\"base64\"}", "not base64"},
    {"{\"path\":\"/workspace/a\",\"fileId\":\"x\",\"encoding\":\"utf8\"}", "that of data"},
    {"{\"path\":\"/workspace/a\",\"data\":\"x\",\"version\":\"v\"}", "a version is a loader's"},
    {"{\"path\":\"/workspace/a\",\"data\":\"x\",\"executable\":1}", "executable: expected"},
    {"{\"path\":\"/workspace/a\",\"data\":\"x\",\"exectuable\":true}", "'exectuable' is no"},
    {"{\"data\":\"x\"}", "with a 'path'"},
    {"{\"path\":1,\"data\":\"x\"}", "with a 'path'"},
    {"7", "with a 'path'"},
    {"[]", "with a 'path'"},
    {"null", "with a 'path'"},
};

Test(seed_list, each_mistake_has_its_own_message)
{
	for (size_t i = 0; i < PAI_COUNT(wrong); i++) {
		char text[512];
		bool has_path = strncmp(wrong[i].entry, "{\"path\":\"", 9) == 0;
		struct pai_seed_list l;

		(void)snprintf(text, sizeof(text),
		    "[{\"path\":\"/workspace/ok\",\"data\":\"\"},%s]", wrong[i].entry);
		l = parse(text);
		cr_assert_eq(l.invalid.code, PAI_E_INPUT, "%s", text);
		cr_assert(strstr(l.invalid.msg, wrong[i].says), "%s: %s", text, l.invalid.msg);
		cr_assert(strstr(l.invalid.msg, "entry 2"), "%s", l.invalid.msg);
		/* What was declared is known all the same. */
		cr_assert_eq(l.count, has_path ? 2 : 1, "%s", text);
		if (has_path) {
			cr_assert_null(l.files[1].version, "%s", text);
		}
		pai_seed_list_fini(&l);
	}
}

Test(seed_list, the_first_mistake_is_told)
{
	pai_auto_seed_list struct pai_seed_list l =
	    parse("[{\"path\":\"a\",\"data\":\"\"},{\"path\":\"/workspace/b\"}]");

	cr_assert(strstr(l.invalid.msg, "entry 1, 'a': the path is relative"), "%s", l.invalid.msg);
}

Test(seed_list, ids_have_a_length)
{
	char text[2 * PAI_SEED_ID_MAX], id[PAI_SEED_ID_MAX + 2];

	memset(id, 'i', sizeof(id));
	for (size_t len = PAI_SEED_ID_MAX; len <= PAI_SEED_ID_MAX + 1; len++) {
		struct pai_seed_list l;

		(void)snprintf(text, sizeof(text),
		    "[{\"path\":\"/workspace/a\",\"fileId\":\"%.*s\"}]", (int)len, id);
		l = parse(text);
		cr_assert_eq(l.invalid.code, len > PAI_SEED_ID_MAX ? PAI_E_INPUT : PAI_OK);
		pai_seed_list_fini(&l);
	}
}

Test(seed_list, what_is_no_list_is_refused)
{
	static const char *const texts[] = {"", "{}", "7", "null", "[", "[{]", "[] []",
	    "[{\"path\":\"/workspace/a\",\"data\":\"\xff\"}]",
	    "[{\"path\":\"/workspace/a\",\"data\":\"\\u0000\"}]",
	    "[{\"path\":\"/workspace/a\",\"path\":\"/workspace/b\",\"data\":\"\"}]",
	    "[{\"path\":\"/workspace/a\",\"data\":[[[[]]]]}]"};

	for (size_t i = 0; i < PAI_COUNT(texts); i++) {
		is_no_list(texts[i], strlen(texts[i]));
	}
	is_no_list("[\0]", 3);
}

static void fill(struct pai_buf *b, size_t count, const char *entry)
{
	cr_assert_eq(pai_buf_add_str(b, "["), 0);
	for (size_t i = 0; i < count; i++) {
		cr_assert_eq(pai_buf_add_str(b, i ? "," : ""), 0);
		cr_assert_eq(pai_buf_add_str(b, entry), 0);
	}
	cr_assert_eq(pai_buf_add_str(b, "]"), 0);
}

Test(seed_list, a_huge_one_is_read_or_refused, .timeout = 60)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(2 * PAI_SEED_LIST_MAX);
	pai_auto_seed_list struct pai_seed_list l = {.files = NULL};

	fill(&text, PAI_SEED_FILES_MAX, "{\"path\":\"/workspace/a\",\"data\":\"x\"}");
	l = parse(text.data);
	cr_assert_eq(l.count, 1);
	pai_buf_clear(&text);
	fill(&text, PAI_SEED_FILES_MAX + 1, "{\"path\":\"/workspace/a\",\"data\":\"x\"}");
	is_no_list(text.data, text.len);
	pai_buf_clear(&text);
	while (text.len <= PAI_SEED_LIST_MAX) {
		cr_assert_eq(pai_buf_add_str(&text, "                                "), 0);
	}
	is_no_list(text.data, text.len);
	pai_buf_clear(&text);
	for (int i = 0; i < 100000; i++) {
		cr_assert_eq(pai_buf_add_str(&text, "["), 0);
	}
	is_no_list(text.data, text.len);
}
