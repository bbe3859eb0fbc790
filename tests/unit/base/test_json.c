#include "providers/base/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "providers/base/buf.h"

static int parse(const char *text, size_t len, struct pai_json **j, struct pai_err *err)
{
	/* Its own allocation without a NUL, so that a sanitizer sees a read past the end. */
	pai_auto_free char *copy = malloc(len + (len == 0));

	memcpy(copy, text, len);
	return pai_json_parse(copy, len, 4, j, err);
}

Test(json, what_a_peer_may_send)
{
	static const char *const good[] = {"{}", " [1, 2.5, -3e2] \n", "\"\\u00e9\\\\\\\"\"",
	    "true", "null", "[[[[]]]]", "{\"a\":{\"a\":1},\"b\":\"\\u005cu0000\"}",
	    "{\"\":1,\"A\":1,\"a\":2}"};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		pai_auto_json struct pai_json *j = NULL;
		struct pai_err err = PAI_ERR_INIT;

		cr_expect_eq(
		    parse(good[i], strlen(good[i]), &j, &err), 0, "%s: %s", good[i], err.msg);
	}
}

Test(json, what_a_peer_may_not_send)
{
	static const struct {
		const char *text;
		size_t len;
	} bad[] = {
#define TEXT(s) {s, sizeof(s) - 1}
	    TEXT(""),
	    TEXT(" "),
	    TEXT("{"),
	    TEXT("{\"a\""),
	    TEXT("{\"a\":}"),
	    TEXT("[1,]x"),
	    TEXT("{} {}"),
	    TEXT("1 x"),
	    TEXT("[[[[[]]]]]"),
	    TEXT("{\"a\":1,\"a\":2}"),
	    TEXT("[{\"x\":{\"k\":1,\"b\":0,\"k\":2}}]"),
	    TEXT("\"a\\u0000b\""),
	    TEXT("\"a\0b\""),
	    TEXT("{}\0"),
	    TEXT("\"\xFF\""),
	    TEXT("\"\xC3\""),
	    TEXT("\"\\ud800\""),
	    TEXT("\"\\"),
	    TEXT("\"\\u12"),
	    TEXT("\"abc"),
	    TEXT("nul"),
#undef TEXT
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct pai_json *j = NULL;
		struct pai_err err = PAI_ERR_INIT;

		cr_expect_eq(parse(bad[i].text, bad[i].len, &j, &err), -EPROTO, "row %zu", i);
		cr_expect_eq(err.code, PAI_E_PROTOCOL);
		cr_expect_null(j);
	}
}

Test(json, depth_is_counted_outside_strings)
{
	pai_auto_json struct pai_json *j = NULL;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(parse("\"[[[[[[[[\"", 10, &j, &err), 0, "%s", err.msg);
	cr_assert_str_eq(pai_json_text(j), "[[[[[[[[");
}

/* Each would be a hundred bytes, and a text of 64 MiB hold half a minute of work. */
Test(json, values_are_counted_outside_strings, .timeout = 20)
{
	static const struct {
		size_t values;
		int want;
	} rows[] = {{PAI_JSON_VALUES_MAX - 1, 0}, {PAI_JSON_VALUES_MAX, -EPROTO}};

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		pai_auto_buf struct pai_buf text = PAI_BUF_INIT(10000000);
		pai_auto_json struct pai_json *j = NULL;
		struct pai_err err = PAI_ERR_INIT;

		for (size_t n = 0; n < rows[i].values; n++) {
			cr_assert_eq(pai_buf_add(&text, n == 0 ? "[0" : ",0", 2), 0);
		}
		cr_assert_eq(pai_buf_add_str(&text, "]"), 0);
		cr_expect_eq(
		    pai_json_parse(text.data, text.len, 4, &j, &err), rows[i].want, "%zu", i);
		memset(text.data + 1, ',', text.len - 2);
		text.data[0] = text.data[text.len - 1] = '"';
		pai_json_free(PAI_TAKE(j));
		cr_expect_eq(pai_json_parse(text.data, text.len, 4, &j, &err), 0, "%s", err.msg);
	}
}

/* A hostile object must not cost the square of its keys. */
Test(json, many_keys_are_cheap, .timeout = 20)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(10000000);
	pai_auto_json struct pai_json *j = NULL;
	struct pai_err err = PAI_ERR_INIT;
	size_t seen = 0;

	for (int i = 0; i < 200000; i++) {
		cr_assert_eq(pai_buf_printf(&text, "%c\"k%d\":1", i == 0 ? '{' : ',', i), 0);
	}
	cr_assert_eq(pai_buf_add_str(&text, "}"), 0);
	cr_assert_eq(pai_json_parse(text.data, text.len, 4, &j, &err), 0, "%s", err.msg);
	for (const struct pai_json *at = pai_json_at(j, 0); at; at = pai_json_next(at)) {
		seen++;
	}
	cr_assert_eq(seen, 200000);
	cr_assert_eq(pai_json_count(j), 200000);
}

Test(json, what_is_set_can_be_got)
{
	pai_auto_json struct pai_json *j = pai_json_object();
	pai_auto_strmap struct pai_strmap m = PAI_STRMAP_INIT;
	pai_auto_strmap struct pai_strmap back = PAI_STRMAP_INIT;
	pai_auto_free char *text = NULL;
	struct pai_json *list = pai_json_array();

	cr_assert_eq(pai_strmap_set(&m, "k", "v"), 0);
	cr_assert_eq(pai_json_set_str(j, "s", "x\"y"), 0);
	cr_assert_eq(pai_json_set_str(j, "none", NULL), 0);
	cr_assert_eq(pai_json_set_num(j, "n", 9007199254740992), 0);
	cr_assert_eq(pai_json_set_num(j, "neg", -5), 0);
	cr_assert_eq(pai_json_set_bool(j, "b", true), 0);
	cr_assert_eq(pai_json_set_null(j, "z"), 0);
	cr_assert_eq(pai_json_set_map(j, "m", &m), 0);
	cr_assert_eq(pai_json_push_str(list, "one"), 0);
	cr_assert_eq(pai_json_push(list, pai_json_object()), 0);
	cr_assert_eq(pai_json_set(j, "l", list), 0);
	text = pai_json_print(j, false);
	cr_assert_str_eq(text, "{\"s\":\"x\\\"y\",\"none\":null,\"n\":9007199254740992,\"neg\":-5,"
			       "\"b\":true,\"z\":null,\"m\":{\"k\":\"v\"},\"l\":[\"one\",{}]}");
	cr_assert_str_eq(pai_json_str(j, "s"), "x\"y");
	cr_assert_eq(pai_json_num(j, "n", 0), 9007199254740992);
	cr_assert_eq(pai_json_num(j, "neg", 0), -5);
	cr_assert(pai_json_bool(j, "b", false));
	cr_assert(pai_json_is_null(j, "z"));
	cr_assert(pai_json_is_null(j, "none"));
	cr_assert(pai_json_is_null(j, "absent"));
	cr_assert_eq(pai_json_map(j, "m", &back), 0);
	cr_assert_str_eq(pai_strmap_get(&back, "k"), "v");
	cr_assert_eq(pai_json_count(pai_json_get(j, "l")), 2);
	cr_assert_str_eq(pai_json_text(pai_json_at(pai_json_get(j, "l"), 0)), "one");
	cr_assert_null(pai_json_at(pai_json_get(j, "l"), 2));
	cr_assert_str_eq(pai_json_name(pai_json_at(j, 0)), "s");
}

Test(json, setting_again_replaces)
{
	pai_auto_json struct pai_json *j = pai_json_object();

	cr_assert_eq(pai_json_set_num(j, "k", 1), 0);
	cr_assert_eq(pai_json_set_num(j, "K", 2), 0);
	cr_assert_eq(pai_json_set_str(j, "k", "x"), 0);
	cr_assert_eq(pai_json_count(j), 2);
	cr_assert_str_eq(pai_json_str(j, "k"), "x");
	cr_assert_eq(pai_json_num(j, "K", 0), 2);
}

Test(json, wrong_types_give_the_fallback)
{
	pai_auto_json struct pai_json *j = NULL;
	pai_auto_strmap struct pai_strmap m = PAI_STRMAP_INIT;
	struct pai_err err = PAI_ERR_INIT;
	const char *text = "{\"s\":\"1\",\"f\":1.5,\"big\":1e300,\"inf\":1e999,\"b\":1,"
			   "\"m\":{\"k\":1},\"l\":[\"x\"]}";

	cr_assert_eq(parse(text, strlen(text), &j, &err), 0);
	cr_assert_eq(pai_json_num(j, "s", 7), 7);
	cr_assert_eq(pai_json_num(j, "f", 7), 7);
	cr_assert_eq(pai_json_num(j, "big", 7), 7);
	cr_assert_eq(pai_json_num(j, "inf", 7), 7);
	cr_assert(pai_json_bool(j, "b", true));
	cr_assert_null(pai_json_str(j, "b"));
	cr_assert_eq(pai_json_map(j, "m", &m), -EINVAL);
	cr_assert_eq(pai_json_map(j, "l", &m), -EINVAL);
	cr_assert_eq(pai_json_map(j, "absent", &m), 0);
	cr_assert_null(pai_json_get(NULL, "x"));
	cr_assert_null(pai_json_get(pai_json_get(j, "l"), "x"));
	cr_assert_null(pai_json_text(NULL));
	cr_assert_eq(pai_json_count(NULL), 0);
	cr_assert_null(pai_json_at(NULL, 0));
	cr_assert_not(pai_json_is_object(NULL));
	cr_assert_not(pai_json_is_number(pai_json_get(j, "s")));
	cr_assert_not(pai_json_is_bool(NULL));
}

Test(json, a_null_object_is_no_memory_and_takes_its_value)
{
	cr_assert_eq(pai_json_set_str(NULL, "k", "v"), -ENOMEM);
	cr_assert_eq(pai_json_set(NULL, "k", pai_json_object()), -ENOMEM);
	cr_assert_eq(pai_json_push(NULL, pai_json_object()), -ENOMEM);
	cr_assert_eq(pai_json_set(NULL, "k", NULL), -ENOMEM);
}

Test(json, bad_utf8_is_replaced_byte_by_byte)
{
	pai_auto_json struct pai_json *j = pai_json_object();

	cr_assert_eq(pai_json_set_str(j, "k\xFF", "a\xC3(\xFF\xE9"), 0);
	cr_assert_str_eq(
	    pai_json_str(j, "k\xEF\xBF\xBD"), "a\xEF\xBF\xBD(\xEF\xBF\xBD\xEF\xBF\xBD");
}

static struct pai_err round_trip(const struct pai_err *err)
{
	pai_auto_json struct pai_json *j = pai_json_from_err(err);
	struct pai_err back = PAI_ERR_INIT;

	cr_assert_not_null(j);
	cr_assert_eq(pai_json_to_err(j, &back), -back.errnum);
	return back;
}

Test(json, errors_come_back_with_every_field)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_err back;

	for (int code = PAI_OK + 1; code < PAI_E_COUNT; code++) {
		(void)pai_err_set(&err, (enum pai_errcode)code, "message %d", code);
		if (code == PAI_E_UNAVAILABLE) {
			continue; /* has a reason: below */
		}
		back = round_trip(&err);
		cr_expect_eq(back.code, err.code);
		cr_expect_eq(back.errnum, err.errnum, "%s", pai_errcode_name(err.code));
		cr_expect_str_eq(back.msg, err.msg);
	}
	(void)pai_err_unavailable(&err, PAI_REASON_NOT_SERVED, "id", "no");
	err.retryable = true;
	back = round_trip(&err);
	cr_assert_eq(back.reason, PAI_REASON_NOT_SERVED);
	cr_assert_eq(back.errnum, EACCES);
	cr_assert_str_eq(back.error_id, "id");
	cr_assert(back.retryable);
	(void)pai_err_limit(&err, PAI_E_OUTPUT_LIMIT, 77, "output");
	cr_assert_eq(round_trip(&err).limit_bytes, 77);
	(void)pai_err_command_timeout(&err, 88);
	cr_assert_eq(round_trip(&err).timeout_ms, 88);
	(void)pai_err_errno(&err, ENOTEMPTY, "rmdir");
	cr_assert_eq(round_trip(&err).errnum, ENOTEMPTY);
}

Test(json, an_error_of_unknown_shape_is_a_protocol_error)
{
	static const char *const bad[] = {"{}", "[]", "null",
	    "{\"kind\":\"ok\",\"message\":\"m\",\"errno\":\"EIO\"}",
	    "{\"kind\":\"strange\",\"message\":\"m\",\"errno\":\"EIO\"}",
	    "{\"kind\":\"system\",\"message\":1,\"errno\":\"EIO\"}",
	    "{\"kind\":\"system\",\"message\":\"m\",\"errno\":2}",
	    "{\"kind\":\"unavailable\",\"message\":\"m\",\"errno\":\"EIO\"}",
	    "{\"kind\":\"unavailable\",\"message\":\"m\",\"errno\":\"EIO\",\"reason\":\"x\"}"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		pai_auto_json struct pai_json *j = NULL;
		struct pai_err err = PAI_ERR_INIT;

		cr_assert_eq(parse(bad[i], strlen(bad[i]), &j, &err), 0);
		cr_expect_eq(pai_json_to_err(j, &err), -EPROTO, "%s", bad[i]);
		cr_expect_eq(err.code, PAI_E_PROTOCOL);
	}
	cr_assert_eq(pai_json_to_err(NULL, PAI_ERR_IGNORED()), -EPROTO);
}

Test(json, a_hostile_error_is_cut_and_its_errno_is_ours)
{
	pai_auto_json struct pai_json *j = pai_json_object();
	struct pai_err err = PAI_ERR_INIT;
	char message[2000];

	memset(message, 'm', sizeof(message));
	message[sizeof(message) - 1] = '\0';
	cr_assert_eq(pai_json_set_str(j, "kind", "not-found"), 0);
	cr_assert_eq(pai_json_set_str(j, "message", message), 0);
	cr_assert_eq(pai_json_set_str(j, "errno", "ENOENT"), 0);
	cr_assert_eq(pai_json_set_str(j, "errorId", message), 0);
	cr_assert_eq(pai_json_set_num(j, "limitBytes", -1), 0);
	cr_assert_eq(pai_json_to_err(j, &err), -ESTALE);
	cr_assert_eq(strlen(err.msg), sizeof(err.msg) - 1);
	cr_assert_eq(strlen(err.error_id), sizeof(err.error_id) - 1);
	cr_assert_eq(err.limit_bytes, 0);
}
