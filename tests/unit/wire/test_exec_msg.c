#include "providers/wire/exec_msg.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_CAP (PAI_FRAME_HEADER + PAI_FRAME_MAX)

/* Whether the payload decodes; frees what it gave. */
typedef int (*decode_fn)(struct pai_view payload);

static int decode_start(struct pai_view p)
{
	struct pai_exec_start s = {0};
	int r = pai_exec_get_start(p, &s);

	if (r == 0) {
		pai_exec_start_fini(&s);
	}
	return r;
}

static int decode_started(struct pai_view p)
{
	uint32_t a;
	uint32_t b;

	return pai_exec_get_started(p, &a, &b);
}

static int decode_failed(struct pai_view p)
{
	enum pai_exec_fail_phase phase;
	char message[256];
	int errnum;

	return pai_exec_get_failed(p, &phase, &errnum, message);
}

static int decode_credit(struct pai_view p)
{
	uint32_t bytes;
	uint8_t stream;

	return pai_exec_get_credit(p, &stream, &bytes);
}

static int decode_signal(struct pai_view p)
{
	int signo;

	return pai_exec_get_signal(p, &signo);
}

static int decode_resize(struct pai_view p)
{
	uint16_t a;
	uint16_t b;

	return pai_exec_get_resize(p, &a, &b);
}

static int decode_exit(struct pai_view p)
{
	struct pai_exec_exit e;

	return pai_exec_get_exit(p, &e);
}

static int decode_taken(struct pai_view p)
{
	uint64_t bytes;

	return pai_exec_get_stdin_taken(p, &bytes);
}

static int decode_hello(struct pai_view p)
{
	struct pai_line_hello h;

	return pai_line_get_hello(PAI_MSG_LINE_HELLO, p, &h);
}

static int decode_ready(struct pai_view p)
{
	struct pai_line_hello h;

	return pai_line_get_hello(PAI_MSG_LINE_READY, p, &h);
}

/* PROTOCOL.md shows these bytes too: another implementation is checked against them. */
static const struct golden {
	const char *name;
	decode_fn decode;
	uint8_t type;
	size_t len;
	const char *payload;
} golden[] = {
    {"start", decode_start, PAI_MSG_START, 65,
	"\x04\0\0\0"
	"\x02\0\0\0"
	"\x02\0\0\0ls"
	"\x02\0\0\0-l"
	"\x0a\0\0\0/workspace"
	"\x01\0\0\0"
	"\x03\0\0\0A=b"
	"\xdc\x05\0\0\0\0\0\0"
	"\0\0\x10\0\0\0\0\0"
	"\0\0"
	"\0\0"},
    {"started", decode_started, PAI_MSG_STARTED, 8,
	"\x2a\0\0\0"
	"\0\0\x10\0"},
    {"failed", decode_failed, PAI_MSG_FAILED, 18,
	"\x02"
	"\x06\0\0\0ENOENT"
	"\x03\0\0\0/no"},
    {"credit", decode_credit, PAI_MSG_CREDIT, 5,
	"\x01"
	"\0\0\x02\0"},
    {"signal", decode_signal, PAI_MSG_SIGNAL, 1, "\x02"},
    {"resize", decode_resize, PAI_MSG_RESIZE, 4,
	"\x18\0"
	"\x50\0"},
    {"exit", decode_exit, PAI_MSG_EXIT, 30,
	"\0"
	"\x03\0\0\0"
	"\x05\0\0\0\0\0\0\0"
	"\x06\0\0\0\0\0\0\0"
	"\x07\0\0\0\0\0\0\0"
	"\x01"},
    {"stdin taken", decode_taken, PAI_MSG_STDIN_TAKEN, 8, "\x09\0\0\0\0\0\0\0"},
    {"hello", decode_hello, PAI_MSG_LINE_HELLO, 24,
	"PAIL"
	"\x01\0"
	"\0\0\0\0"
	"\x02\0\0\0me"
	"\x05\0\0\0\0\0\0\0"},
    {"ready", decode_ready, PAI_MSG_LINE_READY, 16,
	"PAIL"
	"\x01\0"
	"\0\0\0\0"
	"\x02\0\0\0ab"},
};

/* The same messages through the encoders. */
static int put_golden(struct pai_buf *out, uint8_t type)
{
	static char words[][16] = {"ls", "-l", "A=b", "/workspace"};
	char *argv[] = {words[0], words[1], NULL};
	char *env[] = {words[2], NULL};
	struct pai_exec_start s = {
	    .flags = PAI_START_STDIN,
	    .argv = argv,
	    .env = env,
	    .cwd = words[3],
	    .timeout_ms = 1500,
	    .max_output_bytes = 1 << 20,
	};
	struct pai_exec_exit e = {
	    .kind = PAI_EXIT_CODE,
	    .value = 3,
	    .stdout_bytes = 5,
	    .stderr_bytes = 6,
	    .stdin_bytes = 7,
	    .cut = true,
	};
	struct pai_line_hello me = {.version = 1, .who = "me", .epoch = 5};
	struct pai_line_hello ready = {.version = 1, .who = "ab"};

	switch (type) {
	case PAI_MSG_START:
		return pai_exec_put_start(out, 1, &s);
	case PAI_MSG_STARTED:
		return pai_exec_put_started(out, 1, 42, 1 << 20);
	case PAI_MSG_FAILED:
		return pai_exec_put_failed(out, 1, PAI_FAIL_CWD, ENOENT, "/no");
	case PAI_MSG_CREDIT:
		return pai_exec_put_credit(out, 1, 1, 128 << 10);
	case PAI_MSG_SIGNAL:
		return pai_exec_put_signal(out, 1, PAI_SIG_TERM);
	case PAI_MSG_RESIZE:
		return pai_exec_put_resize(out, 1, 24, 80);
	case PAI_MSG_EXIT:
		return pai_exec_put_exit(out, 1, &e);
	case PAI_MSG_STDIN_TAKEN:
		return pai_exec_put_stdin_taken(out, 1, 9);
	case PAI_MSG_LINE_HELLO:
		return pai_line_put_hello(out, type, &me);
	case PAI_MSG_LINE_READY:
		return pai_line_put_hello(out, type, &ready);
	default:
		return -EINVAL;
	}
}

Test(exec_msg, bytes_are_the_documented_ones)
{
	for (size_t i = 0; i < PAI_COUNT(golden); i++) {
		const struct golden *g = &golden[i];
		pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);

		cr_assert_eq(put_golden(&out, g->type), 0, "%s", g->name);
		cr_assert_eq(out.len, PAI_FRAME_HEADER + g->len, "%s: %zu bytes", g->name, out.len);
		cr_assert_arr_eq(out.data + PAI_FRAME_HEADER, g->payload, g->len, "%s", g->name);
		cr_assert_eq(g->decode((struct pai_view){g->payload, g->len}), 0, "%s", g->name);
	}
}

Test(exec_msg, every_truncation_and_every_trailing_byte_is_refused)
{
	for (size_t i = 0; i < PAI_COUNT(golden); i++) {
		const struct golden *g = &golden[i];
		char longer[128] = {0};

		for (size_t cut = 0; cut < g->len; cut++) {
			/* An exact allocation: a read past it is seen by the sanitizer. */
			pai_auto_free char *part = malloc(cut + 1);

			cr_assert(part);
			memcpy(part, g->payload, cut);
			cr_assert_eq(g->decode((struct pai_view){part, cut}), -EPROTO,
			    "%s cut at %zu", g->name, cut);
		}
		memcpy(longer, g->payload, g->len);
		cr_assert_eq(g->decode((struct pai_view){longer, g->len + 1}), -EPROTO,
		    "%s with a byte more", g->name);
	}
}

Test(exec_msg, start_comes_back_as_it_was_put)
{
	static char words[][16] = {"printf", "%s\n", "", "LANG=C", "EMPTY=", "/workspace/a\nb"};
	char *argv[] = {words[0], words[1], words[2], NULL};
	char *env[] = {words[3], words[4], NULL};
	struct pai_exec_start s = {
	    .flags = PAI_START_PTY | PAI_START_DETACH,
	    .argv = argv,
	    .env = env,
	    .cwd = words[5],
	    .timeout_ms = UINT64_MAX,
	    .max_output_bytes = 1ull << 40,
	    .rows = 24,
	    .columns = 65535,
	};
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);
	struct pai_exec_start back = {0};
	struct pai_frame frame;
	size_t at = 0;

	cr_assert_eq(pai_exec_put_start(&out, 9, &s), 0);
	cr_assert_eq(pai_frame_next(&out, &at, &frame), 1);
	cr_assert(frame.id == 9 && frame.type == PAI_MSG_START);
	cr_assert_eq(pai_exec_get_start(frame.payload, &back), 0);
	cr_assert_eq(back.flags, s.flags);
	cr_assert_str_eq(back.argv[1], "%s\n");
	cr_assert_str_eq(back.argv[2], "");
	cr_assert_null(back.argv[3]);
	cr_assert_str_eq(back.env[1], "EMPTY=");
	cr_assert_null(back.env[2]);
	cr_assert_str_eq(back.cwd, "/workspace/a\nb");
	cr_assert(back.timeout_ms == UINT64_MAX && back.max_output_bytes == 1ull << 40);
	cr_assert(back.rows == 24 && back.columns == 65535);
	pai_exec_start_fini(&back);
}

/* Builds a START by hand: flags, argv, cwd, env. */
static int start_by_hand(
    uint32_t flags, uint32_t argc, const char *arg, const char *cwd, const char *env)
{
	pai_auto_buf struct pai_buf b = PAI_BUF_INIT(4096);
	int r = pai_buf_put_u32(&b, flags);

	r = r ? r : pai_buf_put_u32(&b, argc);
	r = r || !arg ? r : pai_buf_put_bytes(&b, arg, strlen(arg));
	r = r ? r : pai_buf_put_bytes(&b, cwd, strlen(cwd));
	r = r ? r : pai_buf_put_u32(&b, env ? 1 : 0);
	r = r || !env ? r : pai_buf_put_bytes(&b, env, strlen(env));
	r = r ? r : pai_buf_put_u64(&b, 0);
	r = r ? r : pai_buf_put_u64(&b, 0);
	r = r ? r : pai_buf_put_u32(&b, 0);
	cr_assert_eq(r, 0);
	return decode_start((struct pai_view){b.data, b.len});
}

Test(exec_msg, a_start_that_makes_no_sense_is_refused)
{
	cr_assert_eq(start_by_hand(0, 1, "ls", "/", "A=b"), 0);
	cr_assert_eq(start_by_hand(1u << 6, 1, "ls", "/", "A=b"), -EPROTO, "unknown flag");
	cr_assert_eq(start_by_hand(PAI_START_LINGER, 1, "ls", "/", "A=b"), 0);
	cr_assert_eq(start_by_hand(PAI_START_LINGER | PAI_START_PTY, 1, "ls", "/", "A=b"), -EPROTO);
	cr_assert_eq(
	    start_by_hand(PAI_START_LINGER | PAI_START_DETACH, 1, "ls", "/", "A=b"), -EPROTO);
	cr_assert_eq(start_by_hand(0, 0, NULL, "/", "A=b"), -EPROTO, "no argv");
	cr_assert_eq(start_by_hand(0, 1, "ls", "x", "A=b"), -EPROTO, "relative cwd");
	cr_assert_eq(start_by_hand(0, 1, "ls", "", "A=b"), -EPROTO, "empty cwd");
	cr_assert_eq(start_by_hand(0, 1, "ls", "/", "=b"), -EPROTO, "no name");
	cr_assert_eq(start_by_hand(0, 1, "ls", "/", "Ab"), -EPROTO, "no equals sign");
	cr_assert_eq(start_by_hand(0, UINT32_MAX, "ls", "/", "A=b"), -EPROTO, "count");
	cr_assert_eq(start_by_hand(0, PAI_START_ARGS_MAX, "ls", "/", NULL), -EPROTO, "short");
}

/* What decodes is what was meant, whoever encodes what makes no sense. */
static int stream_start(uint32_t flags, const char *const words[])
{
	static char room[4][16];
	static char cwd[] = "/";
	char *argv[5] = {NULL};
	struct pai_exec_start s = {.flags = flags, .argv = argv, .cwd = cwd};
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);

	for (size_t i = 0; words[i]; i++) {
		(void)snprintf(room[i], sizeof(room[i]), "%s", words[i]);
		argv[i] = room[i];
	}
	cr_assert_eq(pai_exec_put_start(&out, 1, &s), 0);
	return decode_start(
	    (struct pai_view){out.data + PAI_FRAME_HEADER, out.len - PAI_FRAME_HEADER});
}
#define STREAM(flags, ...) stream_start(flags, (const char *const[]){__VA_ARGS__, NULL})

Test(exec_msg, a_stream_has_stdin_a_kind_and_a_port_and_nothing_else)
{
	const uint32_t flags = PAI_START_CONNECT | PAI_START_STDIN;

	cr_assert_eq(STREAM(flags, "tcp", "80"), 0);
	cr_assert_eq(STREAM(PAI_START_CONNECT, "tcp", "80"), -EPROTO);
	cr_assert_eq(STREAM(flags | PAI_START_PTY, "tcp", "80"), -EPROTO);
	cr_assert_eq(STREAM(flags | PAI_START_DETACH, "tcp", "80"), -EPROTO);
	cr_assert_eq(STREAM(flags | PAI_START_MERGED, "tcp", "80"), -EPROTO);
	cr_assert_eq(STREAM(flags, "udp", "80"), -EPROTO);
	cr_assert_eq(STREAM(flags, "tcp"), -EPROTO);
	cr_assert_eq(STREAM(flags, "tcp", "80", "81"), -EPROTO);
}

Test(exec_msg, the_documented_stream)
{
	static const char bytes[] = "\x14\0\0\0"
				    "\x02\0\0\0"
				    "\x03\0\0\0tcp"
				    "\x02\0\0\0"
				    "80"
				    "\x01\0\0\0/"
				    "\0\0\0\0"
				    "\0\0\0\0\0\0\0\0"
				    "\0\0\0\0\0\0\0\0"
				    "\0\0\0\0";
	struct pai_exec_start s = {0};

	cr_assert_eq(pai_exec_get_start((struct pai_view){bytes, sizeof(bytes) - 1}, &s), 0);
	cr_assert_eq(s.flags, PAI_START_CONNECT | PAI_START_STDIN);
	cr_assert_str_eq(s.argv[1], "80");
	pai_exec_start_fini(&s);
}

Test(exec_msg, a_start_that_is_too_big_leaves_the_buffer_as_it_was)
{
	static char big[PAI_FRAME_MAX];
	static char cwd[] = "/";
	char *argv[] = {big, NULL};
	struct pai_exec_start s = {.argv = argv, .cwd = cwd};
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(4 * PAI_FRAME_MAX);

	memset(big, 'x', sizeof(big) - 1);
	cr_assert_eq(pai_exec_put_empty(&out, 1, PAI_MSG_CANCEL), 0);
	cr_assert_eq(pai_exec_put_start(&out, 1, &s), -EMSGSIZE);
	cr_assert_eq(out.len, PAI_FRAME_HEADER);
	big[sizeof(big) - 100] = '\0';
	cr_assert_eq(pai_exec_put_start(&out, 1, &s), 0);
}

Test(exec_msg, values_outside_their_range_are_refused)
{
	struct pai_exec_exit e = {.kind = PAI_EXIT_CODE};
	static const struct {
		enum pai_exec_exit_kind kind;
		int32_t value;
		int expected;
	} rows[] = {
	    {PAI_EXIT_CODE, 255, 0},
	    {PAI_EXIT_CODE, 256, -EPROTO},
	    {PAI_EXIT_CODE, -1, -EPROTO},
	    {PAI_EXIT_SIGNAL, 9, 0},
	    {PAI_EXIT_SIGNAL, 0, -EPROTO},
	    {PAI_EXIT_SIGNAL, 65, -EPROTO},
	    {PAI_EXIT_TIMEOUT, 0, 0},
	    {PAI_EXIT_TIMEOUT, 1, -EPROTO},
	    {PAI_EXIT_UNKNOWN, 0, 0},
	    {(enum pai_exec_exit_kind)6, 0, -EPROTO},
	};

	for (size_t i = 0; i < PAI_COUNT(rows); i++) {
		pai_auto_buf struct pai_buf out = PAI_BUF_INIT(64);

		e.kind = rows[i].kind;
		e.value = rows[i].value;
		cr_assert_eq(pai_exec_put_exit(&out, 1, &e), 0);
		cr_assert_eq(decode_exit((struct pai_view){
				 out.data + PAI_FRAME_HEADER, out.len - PAI_FRAME_HEADER}),
		    rows[i].expected, "row %zu", i);
	}
	cr_assert_eq(decode_credit((struct pai_view){"\x03\0\0\0\0", 5}), -EPROTO);
	cr_assert_eq(decode_signal((struct pai_view){"\0", 1}), -EPROTO);
	cr_assert_eq(decode_signal((struct pai_view){"\x0b", 1}), -EPROTO);
	cr_assert_eq(decode_failed((struct pai_view){"\x04\x01\0\0\0E\0\0\0\0", 10}), -EPROTO);
	cr_assert_eq(decode_failed((struct pai_view){"\0\x01\0\0\0E\0\0\0\0", 10}), 0);
	cr_assert_eq(
	    decode_hello((struct pai_view){"PAIX\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22}),
	    -EPROTO, "magic");
}

Test(exec_msg, data_is_cut_at_the_chunk)
{
	static char chunk[PAI_FRAME_DATA_MAX + 1];
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(FRAME_CAP);

	cr_assert_eq(pai_exec_put_data(&out, 1, PAI_MSG_STDOUT, chunk, sizeof(chunk)), -EMSGSIZE);
	cr_assert_eq(pai_exec_put_data(&out, 1, PAI_MSG_STDOUT, chunk, sizeof(chunk) - 1), 0);
}

Test(exec_msg, long_messages_are_cut_and_errnos_go_by_name)
{
	char text[400];
	char message[256];
	enum pai_exec_fail_phase phase;
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1024);
	int errnum;

	memset(text, 'm', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	cr_assert_eq(pai_exec_put_failed(&out, 1, PAI_FAIL_EXEC, EACCES, text), 0);
	cr_assert_eq(pai_exec_get_failed(
			 (struct pai_view){out.data + PAI_FRAME_HEADER, out.len - PAI_FRAME_HEADER},
			 &phase, &errnum, message),
	    0);
	cr_assert(phase == PAI_FAIL_EXEC && errnum == EACCES && strlen(message) == 255);
}

Test(exec_msg, every_carried_signal_survives_the_way)
{
	static const int carried[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP,
	    SIGCONT, SIGKILL, SIGWINCH};

	for (size_t i = 0; i < PAI_COUNT(carried); i++) {
		int wire = pai_signal_to_wire(carried[i]);

		cr_assert_gt(wire, 0);
		cr_assert_eq(pai_signal_from_wire((uint8_t)wire), carried[i]);
	}
	cr_assert_eq(pai_signal_to_wire(SIGSEGV), -1);
	cr_assert_eq(pai_signal_from_wire(0), -1);
	cr_assert_eq(pai_signal_from_wire(200), -1);
}
