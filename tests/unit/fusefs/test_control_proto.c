#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "fusefs/control_proto.h"
#include "providers/base/auto.h"

/* Each call leaves a letter: what was understood, in order. */
struct seen {
	struct pai_proto proto;
	char calls[64];
	size_t count;
	size_t stdin_bytes, data_bytes;
	uint32_t last_id;
	bool pause_requests;
	int refuse; /* what the handlers of exec frames answer */
};

static int note(struct seen *s, char c)
{
	cr_assert_lt(s->count, sizeof(s->calls) - 1);
	s->calls[s->count++] = c;
	return s->refuse;
}
static int on_hello(void *arg, const struct pai_json *client)
{
	cr_assert(pai_json_is_object(client));
	return note(arg, 'H');
}
static int on_request(void *arg, uint32_t id, struct pai_json *take_request, struct pai_buf *data)
{
	struct seen *s = arg;

	s->last_id = id;
	s->data_bytes = data->len;
	s->proto.paused = s->pause_requests;
	pai_json_free(take_request);
	return note(s, 'R');
}
static int on_exec(void *arg, uint32_t id, struct pai_control_exec *take_exec)
{
	struct seen *s = arg;

	s->last_id = id;
	pai_control_exec_fini(take_exec);
	return note(s, 'X');
}
static int on_stdin(void *arg, struct pai_view data)
{
	struct seen *s = arg;

	s->stdin_bytes += data.len;
	return note(s, 'i');
}
static int on_eof(void *arg)
{
	return note(arg, 'e');
}
static int on_credit(void *arg, uint8_t stream, uint32_t bytes)
{
	cr_assert(stream == 1 || stream == 2);
	(void)bytes;
	return note(arg, 'c');
}
static int on_signal(void *arg, int signo)
{
	cr_assert_eq(signo, SIGTERM);
	return note(arg, 's');
}
static int on_resize(void *arg, uint16_t rows, uint16_t columns)
{
	cr_assert_eq(rows, 24);
	cr_assert_eq(columns, 80);
	return note(arg, 'r');
}
static int on_cancel(void *arg)
{
	return note(arg, 'k');
}
static const struct pai_proto_ops ops = {
    .hello = on_hello,
    .request = on_request,
    .exec = on_exec,
    .stdin_data = on_stdin,
    .stdin_eof = on_eof,
    .credit = on_credit,
    .signal = on_signal,
    .resize = on_resize,
    .cancel = on_cancel,
};

static struct seen *new_seen(void)
{
	struct seen *s = calloc(1, sizeof(*s));

	cr_assert_not_null(s);
	pai_proto_init(&s->proto, &ops, s);
	return s;
}
static void seen_free(struct seen *s)
{
	pai_proto_fini(&s->proto);
	free(s);
}
PAI_DEFINE_AUTO(struct seen, seen_free)
#define auto_seen PAI_AUTO(seen_free_p)

/* In pieces of at most `step` bytes, as a socket may deliver them. */
static int feed(struct seen *s, const struct pai_buf *b, size_t step)
{
	for (size_t at = 0; at < b->len;) {
		size_t room = 0;
		char *space = pai_proto_space(&s->proto, &room);
		size_t n = b->len - at < step ? b->len - at : step;
		int r = 0;

		cr_assert_not_null(space);
		n = n < room ? n : room;
		memcpy(space, b->data + at, n);
		pai_proto_filled(&s->proto, n);
		at += n;
		r = pai_proto_run(&s->proto);
		if (r < 0) {
			return r;
		}
	}
	return 0;
}

static void put_exec(struct pai_buf *b, uint32_t id)
{
	char key[] = "k", word[] = "true", cwd[] = "/workspace";
	char *argv[] = {word, NULL};
	char *env[] = {NULL};
	const struct pai_control_exec exec = {
	    .key = key,
	    .start = {.argv = argv, .env = env, .cwd = cwd, .flags = PAI_START_STDIN},
	};

	cr_assert_eq(pai_control_put_exec(b, id, &exec), 0);
}

static void put_conversation(struct pai_buf *b)
{
	cr_assert_eq(pai_control_put_hello(b, "{}"), 0);
	put_exec(b, 7);
	cr_assert_eq(pai_exec_put_data(b, 7, PAI_MSG_STDIN, "abc", 3), 0);
	cr_assert_eq(pai_exec_put_credit(b, 7, 1, 10), 0);
	cr_assert_eq(pai_exec_put_signal(b, 7, PAI_SIG_TERM), 0);
	cr_assert_eq(pai_exec_put_resize(b, 7, 24, 80), 0);
	cr_assert_eq(pai_exec_put_empty(b, 7, PAI_MSG_STDIN_EOF), 0);
	cr_assert_eq(pai_exec_put_empty(b, 7, PAI_MSG_CANCEL), 0);
}

TestSuite(control_proto, .timeout = 20);

Test(control_proto, an_exec_is_understood_however_it_is_cut)
{
	for (size_t step = 1; step < 64; step++) {
		auto_seen struct seen *s = new_seen();
		pai_auto_buf struct pai_buf b = PAI_BUF_INIT(1u << 20);

		put_conversation(&b);
		cr_assert_eq(feed(s, &b, step), 0);
		cr_assert_str_eq(s->calls, "HXicsrek");
		cr_assert_eq(s->last_id, 7);
		cr_assert_eq(s->stdin_bytes, 3);
	}
}

Test(control_proto, a_cut_frame_calls_nobody)
{
	auto_seen struct seen *s = new_seen();
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(1u << 20);

	cr_assert_eq(pai_control_put_hello(&b, "{}"), 0);
	b.len--;
	cr_assert_eq(feed(s, &b, 1000), 0);
	cr_assert_eq(s->count, 0);
}

Test(control_proto, requests_wait_while_paused)
{
	auto_seen struct seen *s = new_seen();
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(1u << 20);

	cr_assert_eq(pai_control_put_hello(&b, "{}"), 0);
	for (uint32_t id = 1; id <= 3; id++) {
		cr_assert_eq(pai_control_put_json(&b, PAI_MSG_REQUEST, id, "{\"op\":\"ls\"}"), 0);
	}
	s->pause_requests = true;
	cr_assert_eq(feed(s, &b, 10000), 0);
	cr_assert_str_eq(s->calls, "HR");
	s->proto.paused = false;
	cr_assert_eq(pai_proto_run(&s->proto), 0);
	cr_assert_str_eq(s->calls, "HRR");
	s->pause_requests = s->proto.paused = false;
	cr_assert_eq(pai_proto_run(&s->proto), 0);
	cr_assert_str_eq(s->calls, "HRRR");
	cr_assert_eq(s->last_id, 3);
}

Test(control_proto, a_request_is_handed_on_with_all_its_bytes)
{
	for (size_t step = 1; step < 64; step++) {
		auto_seen struct seen *s = new_seen();
		pai_auto_buf struct pai_buf b = PAI_BUF_INIT(1u << 20);

		cr_assert_eq(pai_control_put_hello(&b, "{}"), 0);
		cr_assert_eq(pai_control_put_json(&b, PAI_MSG_REQUEST, 4, "{\"size\":5}"), 0);
		cr_assert_eq(pai_frame_put(&b, PAI_MSG_DATA, 4, "abc", 3), 0);
		cr_assert_eq(feed(s, &b, step), 0);
		cr_assert_str_eq(s->calls, "H");
		pai_buf_clear(&b);
		cr_assert_eq(pai_frame_put(&b, PAI_MSG_DATA, 4, "de", 2), 0);
		cr_assert_eq(pai_control_put_json(&b, PAI_MSG_REQUEST, 5, "{\"op\":\"ls\"}"), 0);
		cr_assert_eq(pai_frame_put(&b, PAI_MSG_DATA, 5, "f", 1), 0);
		cr_assert_eq(feed(s, &b, step), -EPROTO, "DATA that nobody announced");
		cr_assert_str_eq(s->calls, "HRR");
		cr_assert_eq(s->last_id, 5);
		cr_assert_eq(s->data_bytes, 0, "of the second one");
	}
}

static int after_hello(void (*put)(struct pai_buf *b), bool with_exec, const char *expect)
{
	auto_seen struct seen *s = new_seen();
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(4u << 20);
	int r = 0;

	cr_assert_eq(pai_control_put_hello(&b, "{}"), 0);
	if (with_exec) {
		put_exec(&b, 7);
	}
	put(&b);
	r = feed(s, &b, 100000);
	cr_assert_str_eq(s->calls, expect);
	return r;
}

static void put_hello(struct pai_buf *b)
{
	cr_assert_eq(pai_control_put_hello(b, "{}"), 0);
}
static void put_request(struct pai_buf *b)
{
	cr_assert_eq(pai_control_put_json(b, PAI_MSG_REQUEST, 1, "{\"op\":\"ls\"}"), 0);
}
static void put_second_exec(struct pai_buf *b)
{
	put_exec(b, 7);
}
static void put_other_id(struct pai_buf *b)
{
	cr_assert_eq(pai_exec_put_data(b, 8, PAI_MSG_STDIN, "abc", 3), 0);
}
static void put_no_object(struct pai_buf *b)
{
	cr_assert_eq(pai_control_put_json(b, PAI_MSG_REQUEST, 1, "[1]"), 0);
}
static void put_no_json(struct pai_buf *b)
{
	cr_assert_eq(pai_control_put_json(b, PAI_MSG_REQUEST, 1, "{\"op\":"), 0);
}
static void put_deep_json(struct pai_buf *b)
{
	pai_auto_buf struct pai_buf deep = PAI_BUF_INIT(1000);

	cr_assert_eq(pai_buf_printf(&deep, "{\"op\":%.*s1%.*s}", 20, "[[[[[[[[[[[[[[[[[[[[", 20,
			 "]]]]]]]]]]]]]]]]]]]]"),
	    0);
	cr_assert_eq(pai_control_put_json(b, PAI_MSG_REQUEST, 1, deep.data), 0);
}
static void put_request_then_exec(struct pai_buf *b)
{
	put_request(b);
	put_exec(b, 2);
}
static void put_stdin_after_eof(struct pai_buf *b)
{
	cr_assert_eq(pai_exec_put_empty(b, 7, PAI_MSG_STDIN_EOF), 0);
	cr_assert_eq(pai_exec_put_data(b, 7, PAI_MSG_STDIN, "abc", 3), 0);
}
static void put_stdin_credit(struct pai_buf *b)
{
	cr_assert_eq(pai_exec_put_credit(b, 7, 0, 10), 0);
}
static void put_answer(struct pai_buf *b)
{
	cr_assert_eq(pai_exec_put_started(b, 7, 1, 1), 0);
}
static void put_huge(struct pai_buf *b)
{
	cr_assert_eq(pai_buf_put_u32(b, 0xffffffffu), 0);
	cr_assert_eq(pai_buf_put_u8(b, PAI_MSG_REQUEST), 0);
	cr_assert_eq(pai_buf_put_u32(b, 1), 0);
}
static void put_short(struct pai_buf *b)
{
	cr_assert_eq(pai_buf_put_u32(b, 1), 0);
	cr_assert_eq(pai_buf_put_u8(b, PAI_MSG_REQUEST), 0);
}

Test(control_proto, what_may_not_be_said_ends_the_connection)
{
	cr_expect_eq(after_hello(put_hello, false, "H"), -EPROTO);
	cr_expect_eq(after_hello(put_other_id, false, "H"), -EPROTO);
	cr_expect_eq(after_hello(put_answer, false, "H"), -EPROTO);
	cr_expect_eq(after_hello(put_no_object, false, "H"), -EPROTO);
	cr_expect_eq(after_hello(put_no_json, false, "H"), -EPROTO);
	cr_expect_eq(after_hello(put_deep_json, false, "H"), -EPROTO);
	cr_expect_eq(after_hello(put_huge, false, "H"), -EPROTO);
	cr_expect_eq(after_hello(put_short, false, "H"), -EPROTO);
	cr_expect_eq(after_hello(put_request_then_exec, false, "HR"), -EPROTO);
	cr_expect_eq(after_hello(put_second_exec, true, "HX"), -EPROTO);
	cr_expect_eq(after_hello(put_request, true, "HX"), -EPROTO);
	cr_expect_eq(after_hello(put_other_id, true, "HX"), -EPROTO);
	cr_expect_eq(after_hello(put_stdin_after_eof, true, "HXe"), -EPROTO);
	cr_expect_eq(after_hello(put_stdin_credit, true, "HX"), -EPROTO);
	cr_expect_eq(after_hello(put_answer, true, "HX"), -EPROTO);
}

Test(control_proto, hello_comes_first)
{
	auto_seen struct seen *s = new_seen();
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(1u << 20);

	put_request(&b);
	cr_assert_eq(feed(s, &b, 1000), -EPROTO);
	cr_assert_eq(s->count, 0);
	cr_assert_not(s->proto.version_differs);
}

Test(control_proto, another_version_is_told_apart)
{
	auto_seen struct seen *s = new_seen();
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(1u << 20);

	cr_assert_eq(pai_control_put_hello(&b, "{}"), 0);
	b.data[PAI_FRAME_HEADER + 4]++;
	cr_assert_eq(feed(s, &b, 1000), -EPROTO);
	cr_assert(s->proto.version_differs);
}

Test(control_proto, a_handlers_refusal_ends_it)
{
	auto_seen struct seen *s = new_seen();
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(1u << 20);

	put_conversation(&b);
	s->refuse = -EPROTO;
	cr_assert_eq(feed(s, &b, 1000), -EPROTO);
	cr_assert_str_eq(s->calls, "H");
}
