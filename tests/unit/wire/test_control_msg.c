#include "providers/wire/control_msg.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_CAP (PAI_FRAME_HEADER + PAI_FRAME_MAX + 4)

static struct pai_control_exec example(void)
{
	static char words[][8] = {"printf", "%s\n", "a b", "LANG=C", "EMPTY="};
	static char *argv[] = {words[0], words[1], words[2], NULL};
	static char *env[] = {words[3], words[4], NULL};
	static char key[] = "thread/42";
	static char cwd[] = "/workspace/a\nb";

	return (struct pai_control_exec){
	    .key = key,
	    .cwd_environment = "0123abcd",
	    .run = "run 7",
	    .pinned = true,
	    .caller_sid = 4242,
	    .caller_sid_started = 1ull << 40,
	    .start = {.flags = PAI_START_STDIN | PAI_START_MERGED,
		.argv = argv,
		.cwd = cwd,
		.env = env,
		.timeout_ms = 1500,
		.max_output_bytes = 1u << 20,
		.rows = 0,
		.columns = 0},
	};
}

static struct pai_view payload_of(const struct pai_buf *b, uint8_t type)
{
	struct pai_frame frame;
	size_t at = 0;

	cr_assert_eq(pai_frame_next(b, &at, &frame), 1);
	cr_assert_eq(at, b->len);
	cr_assert_eq(frame.type, type);
	return frame.payload;
}

Test(control_msg, exec_comes_back_as_it_was_put)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	struct pai_control_exec e = example();
	struct pai_control_exec back;

	cr_assert_eq(pai_control_put_exec(&out, 3, &e), 0);
	cr_assert_eq(pai_control_get_exec(payload_of(&out, PAI_MSG_EXEC), &back), 0);
	cr_assert_str_eq(back.key, "thread/42");
	cr_assert_str_eq(back.cwd_environment, "0123abcd");
	cr_assert_str_eq(back.run, "run 7");
	cr_assert_not(back.no_retry);
	cr_assert(back.pinned);
	cr_assert_eq(back.caller_sid, 4242);
	cr_assert_eq(back.caller_sid_started, 1ull << 40);
	cr_assert_str_eq(back.start.cwd, "/workspace/a\nb");
	cr_assert_str_eq(back.start.argv[2], "a b");
	cr_assert_null(back.start.argv[3]);
	cr_assert_str_eq(back.start.env[1], "EMPTY=");
	cr_assert_eq(back.start.timeout_ms, 1500);
	cr_assert_eq(back.start.flags, PAI_START_STDIN | PAI_START_MERGED);
	pai_control_exec_fini(&back);
	cr_assert_null(back.key);
}

Test(control_msg, a_cut_exec_never_decodes)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	struct pai_control_exec e = example();
	struct pai_view whole;

	cr_assert_eq(pai_control_put_exec(&out, 3, &e), 0);
	whole = payload_of(&out, PAI_MSG_EXEC);
	for (size_t len = 0; len < whole.len; len++) {
		/* A heap copy of the exact size, so that ASan sees a read past it. */
		char *cut = malloc(len ? len : 1);
		struct pai_control_exec back;

		cr_assert_not_null(cut);
		memcpy(cut, whole.data, len);
		cr_assert_eq(
		    pai_control_get_exec((struct pai_view){cut, len}, &back), -EPROTO, "%zu", len);
		free(cut);
	}
}

Test(control_msg, exec_refuses_an_empty_key_and_unknown_flags)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	struct pai_control_exec e = example();
	struct pai_control_exec back;
	char none[] = "";
	char *key = e.key;
	char *flags;

	e.key = none;
	cr_assert_eq(pai_control_put_exec(&out, 1, &e), 0);
	cr_assert_eq(pai_control_get_exec(payload_of(&out, PAI_MSG_EXEC), &back), -EPROTO);
	pai_buf_clear(&out);
	e.key = key;
	cr_assert_eq(pai_control_put_exec(&out, 1, &e), 0);
	flags = out.data + PAI_FRAME_HEADER + 4 + strlen(key);
	*flags = 1 << 5;
	cr_assert_eq(pai_control_get_exec(payload_of(&out, PAI_MSG_EXEC), &back), -EPROTO);
}

Test(control_msg, an_exec_too_large_leaves_the_buffer_as_it_was)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(64);
	struct pai_control_exec e = example();

	cr_assert_eq(pai_buf_add_str(&out, "kept"), 0);
	cr_assert_eq(pai_control_put_exec(&out, 1, &e), -EMSGSIZE);
	cr_assert_eq(out.len, 4);
	cr_assert_str_eq(out.data, "kept");
}

Test(control_msg, hello_carries_version_and_text)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	struct pai_view json;
	uint16_t version = 0;

	cr_assert_eq(pai_control_put_hello(&out, "{\"pid\":1}"), 0);
	cr_assert_eq(pai_control_get_hello(payload_of(&out, PAI_MSG_HELLO), &version, &json), 0);
	cr_assert_eq(version, PAI_CONTROL_VERSION);
	cr_assert_eq(json.len, 9);
	cr_assert_eq(memcmp(json.data, "{\"pid\":1}", 9), 0);
}

Test(control_msg, hello_refuses_a_strangers_greeting)
{
	static const struct {
		const char *text;
		size_t len;
	} bad[] = {
	    {"", 0},
	    {"PAIC\x01", 5},
	    {"SSH-2.0-OpenSSH", 15},
	    {"PAIC\x00\x00{}", 8},
	};
	struct pai_view json;
	uint16_t version;

	for (size_t i = 0; i < PAI_COUNT(bad); i++) {
		struct pai_view v = {bad[i].text, bad[i].len};

		cr_assert_eq(pai_control_get_hello(v, &version, &json), -EPROTO, "%zu", i);
	}
}

Test(control_msg, json_is_capped)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	char *text = malloc(PAI_CONTROL_JSON_MAX + 2);

	cr_assert_not_null(text);
	memset(text, ' ', PAI_CONTROL_JSON_MAX + 1);
	text[PAI_CONTROL_JSON_MAX + 1] = '\0';
	cr_assert_eq(pai_control_put_json(&out, PAI_MSG_REPLY, 9, text), -EMSGSIZE);
	cr_assert_eq(out.len, 0);
	text[PAI_CONTROL_JSON_MAX] = '\0';
	cr_assert_eq(pai_control_put_json(&out, PAI_MSG_REPLY, 9, text), 0);
	cr_assert_eq(payload_of(&out, PAI_MSG_REPLY).len, PAI_CONTROL_JSON_MAX);
	free(text);
}
