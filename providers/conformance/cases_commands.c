#include <pthread.h>
#include <stdlib.h>

#include "providers/base/auto.h"
#include "providers/base/printable.h"
#include "providers/conformance/conf.h"

#define BIG (1u << 20)
#define SOON_MS 5000 /* what ends by timeout or cancel must end within this */

static const struct pai_conf_commands *recipes(const struct pai_conf *c)
{
	return &c->options->commands;
}

static void expect_text(
    struct pai_conf *c, const char *what, const char *got, size_t len, const char *wanted)
{
	const size_t cut = pai_conf_trimmed(got, len);

	CONF_CHECK(c, cut == strlen(wanted) && memcmp(got, wanted, cut) == 0,
	    "%s is '%.80s', expected '%s'", what, pai_printable(got), wanted);
}

/* --- results --- */

static void stdout_and_exit_0(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_run_result struct pai_run_result r = {0};

	if (sb && pai_conf_sh(c, sb, recipes(c)->hello_stdout, &r)) {
		expect_text(c, "stdout", r.out, r.out_len, "hello");
		CONF_CHECK(c, r.err_len == 0, "stderr isn't empty: %.80s", pai_printable(r.err));
	}
}

static void stderr_and_exit_3(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	const struct pai_run_input input = {.command = recipes(c)->stderr_exit3};
	pai_auto_run_result struct pai_run_result r = {0};

	if (sb && pai_conf_run(c, sb, &input, &r)) {
		CONF_CHECK(c, r.exit_code == 3, "exit status %d, expected 3", r.exit_code);
		expect_text(c, "stderr", r.err, r.err_len, "oops");
		CONF_CHECK(c, r.out_len == 0, "stdout isn't empty: %.80s", pai_printable(r.out));
	}
}

static void missing_program_is_127(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	const struct pai_run_input input = {.command = "pai-conformance-no-such-program"};
	pai_auto_run_result struct pai_run_result r = {0};

	if (sb && pai_conf_run(c, sb, &input, &r)) {
		CONF_CHECK(c, r.exit_code == 127, "exit status %d, expected 127", r.exit_code);
	}
}

static void a_signal_is_128_and_its_number(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	const struct pai_run_input can_kill = {.command = "sh -c 'kill -0 $$'"};
	const struct pai_run_input input = {.command = "sh -c 'kill -TERM $$; sleep 5'"};
	pai_auto_run_result struct pai_run_result first = {0};
	pai_auto_run_result struct pai_run_result r = {0};

	if (!sb || !pai_conf_run(c, sb, &can_kill, &first)) {
		return;
	}
	if (first.exit_code != 0) {
		pai_conf_skip(
		    c, "the shell has no processes to signal (kill -0 $$: %d)", first.exit_code);
		return;
	}
	if (pai_conf_run(c, sb, &input, &r)) {
		CONF_CHECK(c, r.exit_code == 128 + 15, "exit status %d, expected 143", r.exit_code);
	}
}

static void bytes_pass_unchanged(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_run_result struct pai_run_result r = {0};

	if (sb && pai_conf_write(c, sb, "bytes", "a\0\xff\r\n\x80z", 7) &&
	    pai_conf_sh(c, sb, "cat bytes", &r)) {
		CONF_CHECK(c, r.out_len == 7 && memcmp(r.out, "a\0\xff\r\n\x80z", 8) == 0,
		    "stdout is not what `cat` read (%zu bytes, 7 expected)", r.out_len);
	}
}

static char *big_text(struct pai_conf *c)
{
	char *text = malloc(BIG);

	if (!text) {
		pai_conf_fail(c, "out of memory");
		return NULL;
	}
	for (size_t i = 0; i < BIG; i++) {
		text[i] = (char)("0123456789abcdef"[(i * 7 + i / 251) % 16]);
	}
	return text;
}

static void a_mebibyte_of_output_is_exact(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_free char *text = big_text(c);
	pai_auto_run_result struct pai_run_result r = {0};

	if (sb && text && pai_conf_write(c, sb, "big", text, BIG) &&
	    pai_conf_sh(c, sb, "cat big", &r)) {
		CONF_CHECK(c, r.out_len == BIG && memcmp(r.out, text, BIG) == 0,
		    "stdout is not what `cat` read (%zu bytes)", r.out_len);
	}
}

/* --- streaming --- */

struct stream {
	struct pai_buf out, err;
	uint64_t first_ms; /* when the first chunk came */
	bool bad;
};

static void on_output(void *arg, enum pai_stream stream, const char *data, size_t len)
{
	struct stream *s = arg;

	s->first_ms = s->first_ms ? s->first_ms : pai_clock_ms();
	if ((stream != PAI_STDOUT && stream != PAI_STDERR) || len == 0 ||
	    pai_buf_add(stream == PAI_STDOUT ? &s->out : &s->err, data, len) < 0) {
		s->bad = true;
	}
}

static void stream_fini(struct stream *s)
{
	pai_buf_fini(&s->out);
	pai_buf_fini(&s->err);
}
#define auto_stream PAI_AUTO(stream_fini)
#define STREAM_INIT                                                                                \
	{                                                                                          \
		.out = PAI_BUF_INIT(2 * BIG), .err = PAI_BUF_INIT(2 * BIG)                         \
	}

static bool same(const struct pai_buf *chunks, const char *text, size_t len)
{
	return chunks->len == len && (len == 0 || memcmp(chunks->data, text, len) == 0);
}

static void expect_streamed(struct pai_conf *c, struct pai_sandbox *sb, const char *command)
{
	auto_stream struct stream s = STREAM_INIT;
	const struct pai_run_input input = {
	    .command = command, .on_output = on_output, .on_output_arg = &s};
	pai_auto_run_result struct pai_run_result r = {0};

	if (!pai_conf_run(c, sb, &input, &r)) {
		return;
	}
	CONF_CHECK(c, !s.bad, "a chunk was empty or of no known stream");
	CONF_CHECK(c, same(&s.out, r.out, r.out_len),
	    "the chunks of stdout (%zu bytes) aren't the result's (%zu)", s.out.len, r.out_len);
	CONF_CHECK(c, same(&s.err, r.err, r.err_len),
	    "the chunks of stderr (%zu bytes) aren't the result's (%zu)", s.err.len, r.err_len);
	CONF_CHECK(c, r.out_len + r.err_len > 0, "'%s' printed nothing", command);
}

static void chunks_equal_the_result(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);

	if (sb) {
		expect_streamed(c, sb, recipes(c)->hello_stdout);
		expect_streamed(c, sb, recipes(c)->stderr_exit3);
	}
}

static void chunks_of_much_output_equal_the_result(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_free char *text = big_text(c);

	if (sb && text && pai_conf_write(c, sb, "big", text, BIG)) {
		expect_streamed(c, sb, "cat big; cat big >&2; echo end");
	}
}

static void chunks_come_while_it_runs(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	auto_stream struct stream s = STREAM_INIT;
	const struct pai_run_input input = {.command = "echo first; sleep 1; echo second",
	    .on_output = on_output,
	    .on_output_arg = &s};
	pai_auto_run_result struct pai_run_result r = {0};

	if (sb && pai_conf_run(c, sb, &input, &r)) {
		CONF_CHECK(c, s.first_ms && pai_clock_ms() - s.first_ms >= 700,
		    "the first chunk came with the end, not when it was written");
	}
}

static void without_capture_only_chunks_come(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	auto_stream struct stream s = STREAM_INIT;
	const struct pai_run_input input = {
	    .command = recipes(c)->hello_stdout,
	    .no_capture = true,
	    .on_output = on_output,
	    .on_output_arg = &s,
	};
	pai_auto_run_result struct pai_run_result r = {0};

	if (sb && pai_conf_run(c, sb, &input, &r)) {
		CONF_CHECK(c, r.out_len == 0 && r.err_len == 0, "the result holds output");
		expect_text(
		    c, "the chunks of stdout", s.out.data ? s.out.data : "", s.out.len, "hello");
	}
}

/* --- directory and environment --- */

/* What commands call a path below /workspace. */
static const char *path_in_commands(
    struct pai_conf *c, struct pai_sandbox *sb, const char *path, char ret[static 4096])
{
	const struct pai_run_input where = {.command = "printf %s \"$PAI_WORKSPACE\""};
	bool unbound = pai_sandbox_flags(sb) & PAI_SANDBOX_UNBOUND_WORKSPACE;
	pai_auto_run_result struct pai_run_result at = {0};

	if (!unbound || !pai_conf_run(c, sb, &where, &at)) {
		return path;
	}
	(void)snprintf(ret, 4096, "%s%s", at.out, path + strlen("/workspace"));
	return ret;
}

static void expect_cwd(
    struct pai_conf *c, struct pai_sandbox *sb, const char *cwd, const char *wanted)
{
	const struct pai_run_input input = {.command = recipes(c)->print_cwd, .cwd = cwd};
	pai_auto_run_result struct pai_run_result r = {0};
	char moved[4096];

	wanted = path_in_commands(c, sb, wanted, moved);
	if (pai_conf_run(c, sb, &input, &r)) {
		expect_text(c, "the working directory", r.out, r.out_len, wanted);
	}
}

static void cwd_is_the_workspace_or_what_was_given(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);

	if (sb && pai_conf_write(c, sb, "deep/er dir/file", "", 0)) {
		expect_cwd(c, sb, NULL, "/workspace");
		expect_cwd(c, sb, "/workspace/deep/er dir", "/workspace/deep/er dir");
		expect_cwd(c, sb, "deep", "/workspace/deep");
		expect_cwd(c, sb, "deep/../deep/er dir/.", "/workspace/deep/er dir");
	}
}

static void a_missing_cwd_is_an_error_and_nothing_runs(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	const struct pai_run_input input = {.command = "echo ran > /workspace/ran", .cwd = "none"};
	pai_auto_run_result struct pai_run_result r = {0};
	struct pai_err err = PAI_ERR_INIT;
	bool ran = false;

	if (!sb) {
		return;
	}
	CONF_ERROR(c, pai_sandbox_run(sb, &input, CONF_CALL(c), &r, &err), err, PAI_E_INPUT,
	    "run with a missing cwd");
	if (pai_conf_exists(c, sb, "ran", &ran)) {
		CONF_CHECK(c, !ran, "the command ran somewhere else");
	}
}

static void expect_env(
    struct pai_conf *c, struct pai_sandbox *sb, const struct pai_strmap *env, const char *wanted)
{
	const struct pai_run_input input = {.command = recipes(c)->print_env_var, .env = env};
	pai_auto_run_result struct pai_run_result r = {0};

	if (pai_conf_run(c, sb, &input, &r)) {
		expect_text(c, "$PAI_CONFORMANCE", r.out, r.out_len, wanted);
	}
}

static void env_of_a_command_is_its_own(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_strmap struct pai_strmap env = PAI_STRMAP_INIT;

	CONF_CHECK(c, pai_strmap_set(&env, "PAI_CONFORMANCE", "a 'b' \"c\" $d \\e=f") == 0,
	    "out of memory");
	if (sb) {
		expect_env(c, sb, &env, "a 'b' \"c\" $d \\e=f");
		expect_env(c, sb, NULL, "");
	}
}

static void env_of_create_is_in_every_command(struct pai_conf *c)
{
	struct pai_create_input input = pai_conf_input(c);
	pai_auto_strmap struct pai_strmap env = PAI_STRMAP_INIT;
	pai_auto_strmap struct pai_strmap over = PAI_STRMAP_INIT;
	struct pai_sandbox *sb;

	CONF_CHECK(c,
	    pai_strmap_set(&env, "PAI_CONFORMANCE", "from create") == 0 &&
		pai_strmap_set(&over, "PAI_CONFORMANCE", "from run") == 0,
	    "out of memory");
	input.env = &env;
	sb = pai_conf_create(c, &input);
	if (sb) {
		expect_env(c, sb, NULL, "from create");
		expect_env(c, sb, &over, "from run");
		expect_env(c, sb, NULL, "from create");
		sb = pai_conf_connect(c, pai_sandbox_id(sb));
	}
	if (sb) {
		expect_env(c, sb, NULL, "from create");
	}
}

static void the_hosts_environment_stays_outside(struct pai_conf *c)
{
	struct pai_sandbox *sb;

	CONF_CHECK(c, setenv("PAI_CONFORMANCE", "the host's", 1) == 0, "out of memory");
	sb = pai_conf_sandbox(c);
	if (sb) {
		expect_env(c, sb, NULL, "");
	}
}

/* --- ends --- */

static void a_timeout_is_an_error_with_its_limit(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	const struct pai_run_input input = {.command = recipes(c)->long_running, .timeout_ms = 300};
	pai_auto_run_result struct pai_run_result r = {0};
	struct pai_err err = PAI_ERR_INIT;
	const uint64_t start = pai_clock_ms();

	if (!sb) {
		return;
	}
	CONF_ERROR(c, pai_sandbox_run(sb, &input, CONF_CALL(c), &r, &err), err,
	    PAI_E_COMMAND_TIMEOUT, "a command that runs past its timeout");
	CONF_CHECK(c, err.timeout_ms == 300, "the error says %u ms, 300 were given",
	    (unsigned)err.timeout_ms);
	CONF_CHECK(c, pai_clock_ms() - start < SOON_MS, "the command was waited for");
	CONF_CHECK(c, pai_clock_ms() - start >= 300, "it was ended before its timeout");
	(void)!pai_conf_write(c, sb, "f", "x", 1); /* the sandbox lives on */
}

static void a_timeout_not_reached_changes_nothing(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	const struct pai_run_input input = {
	    .command = recipes(c)->hello_stdout, .timeout_ms = 20000};
	pai_auto_run_result struct pai_run_result r = {0};
	const uint64_t start = pai_clock_ms();

	if (sb && pai_conf_run(c, sb, &input, &r)) {
		expect_text(c, "stdout", r.out, r.out_len, "hello");
		CONF_CHECK(c, pai_clock_ms() - start < 15000, "the timeout was waited for");
	}
}

struct runner {
	struct pai_conf *c;
	struct pai_sandbox *sb;
	struct pai_run_input input;
	struct pai_cancel *cancel;
	struct pai_err err;
	int result;
	int exit_code;
};

static void *run_in_thread(void *arg)
{
	struct runner *w = arg;
	const struct pai_call call = {
	    .deadline_ms = pai_deadline_in(w->c->options->call_ms), .cancel = w->cancel};
	pai_auto_run_result struct pai_run_result r = {0};

	w->result = pai_sandbox_run(w->sb, &w->input, &call, &r, &w->err);
	w->exit_code = r.exit_code;
	return NULL;
}

static void cancel_ends_a_command(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_cancel struct pai_cancel *cancel = pai_cancel_new();
	struct runner w = {.c = c, .sb = sb, .cancel = cancel};
	pthread_t thread;
	uint64_t start;

	if (!sb) {
		return;
	}
	w.input.command = recipes(c)->long_running;
	CONF_CHECK(c, cancel && pthread_create(&thread, NULL, run_in_thread, &w) == 0, "no thread");
	pai_conf_sleep(300);
	start = pai_clock_ms();
	pai_cancel_fire(cancel);
	(void)pthread_join(thread, NULL);
	CONF_ERROR(c, w.result, w.err, PAI_E_CANCELLED, "a cancelled command");
	CONF_CHECK(c, pai_clock_ms() - start < SOON_MS, "the command was waited for");
	(void)!pai_conf_write(c, sb, "f", "x", 1);
}

static void a_deadline_ends_a_command(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	const struct pai_run_input input = {.command = recipes(c)->long_running};
	const struct pai_call call = {.deadline_ms = pai_deadline_in(2000)};
	pai_auto_run_result struct pai_run_result r = {0};
	struct pai_err err = PAI_ERR_INIT;
	const uint64_t start = pai_clock_ms();

	if (!sb) {
		return;
	}
	CONF_ERROR(c, pai_sandbox_run(sb, &input, &call, &r, &err), err, PAI_E_TIMEOUT,
	    "a call past its deadline");
	CONF_CHECK(c, pai_clock_ms() - start < SOON_MS, "the command was waited for");
}

/* A command that would leave a file behind if any part of it went on. */
#define LATE_COMMAND "sh -c 'sleep 1; echo late > late' ; echo late > late"

static void expect_dead(struct pai_conf *c, struct pai_sandbox *sb)
{
	bool late = false;

	pai_conf_sleep(1500);
	if (pai_conf_exists(c, sb, "late", &late)) {
		CONF_CHECK(c, !late, "a part of the command went on after it was ended");
	}
}

static void a_timeout_kills_the_whole_group(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	const struct pai_run_input input = {.command = LATE_COMMAND, .timeout_ms = 300};
	pai_auto_run_result struct pai_run_result r = {0};
	struct pai_err err = PAI_ERR_INIT;

	if (!sb) {
		return;
	}
	CONF_ERROR(c, pai_sandbox_run(sb, &input, CONF_CALL(c), &r, &err), err,
	    PAI_E_COMMAND_TIMEOUT, "a command that runs past its timeout");
	expect_dead(c, sb);
}

static void cancel_kills_the_whole_group(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_cancel struct pai_cancel *cancel = pai_cancel_new();
	struct runner w = {.c = c, .sb = sb, .cancel = cancel, .input = {.command = LATE_COMMAND}};
	pthread_t thread;

	if (!sb) {
		return;
	}
	CONF_CHECK(c, cancel && pthread_create(&thread, NULL, run_in_thread, &w) == 0, "no thread");
	pai_conf_sleep(300);
	pai_cancel_fire(cancel);
	(void)pthread_join(thread, NULL);
	CONF_ERROR(c, w.result, w.err, PAI_E_CANCELLED, "a cancelled command");
	expect_dead(c, sb);
}

/* --- limits --- */

static void output_past_its_limit_is_an_error(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	auto_stream struct stream s = STREAM_INIT;
	const struct pai_run_input input = {
	    .command = recipes(c)->hello_stdout,
	    .max_output_bytes = 3,
	    .on_output = on_output,
	    .on_output_arg = &s,
	};
	pai_auto_run_result struct pai_run_result r = {0};
	struct pai_err err = PAI_ERR_INIT;

	if (!sb) {
		return;
	}
	CONF_ERROR(c, pai_sandbox_run(sb, &input, CONF_CALL(c), &r, &err), err, PAI_E_OUTPUT_LIMIT,
	    "more output than its limit");
	CONF_CHECK(c, err.limit_bytes == 3, "the error says %u bytes", (unsigned)err.limit_bytes);
}

static void output_at_its_limit_is_whole(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_run_result struct pai_run_result first = {0};
	pai_auto_run_result struct pai_run_result r = {0};
	struct pai_run_input input = {.command = recipes(c)->hello_stdout};

	if (!sb || !pai_conf_run(c, sb, &input, &first)) {
		return;
	}
	input.max_output_bytes = first.out_len;
	if (pai_conf_run(c, sb, &input, &r)) {
		expect_text(c, "stdout", r.out, r.out_len, "hello");
	}
}

static void both_streams_share_one_limit(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	const struct pai_run_input input = {
	    .command = "echo 1234567; echo 1234567 >&2", .max_output_bytes = 12};
	pai_auto_run_result struct pai_run_result r = {0};
	struct pai_err err = PAI_ERR_INIT;

	if (sb) {
		CONF_ERROR(c, pai_sandbox_run(sb, &input, CONF_CALL(c), &r, &err), err,
		    PAI_E_OUTPUT_LIMIT, "8 bytes on each stream with a limit of 12");
	}
}

static void endless_output_is_ended_by_its_limit(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	const struct pai_run_input input = {.command = "yes", .max_output_bytes = 1u << 16};
	pai_auto_run_result struct pai_run_result r = {0};
	struct pai_err err = PAI_ERR_INIT;
	const uint64_t start = pai_clock_ms();

	if (sb) {
		CONF_ERROR(c, pai_sandbox_run(sb, &input, CONF_CALL(c), &r, &err), err,
		    PAI_E_OUTPUT_LIMIT, "endless output");
		CONF_CHECK(c, pai_clock_ms() - start < SOON_MS, "it took too long");
		(void)!pai_conf_write(c, sb, "f", "x", 1);
	}
}

/* --- together --- */

static void two_commands_run_at_once(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	struct runner w[2];
	pthread_t threads[2];
	uint64_t start;
	size_t started = 0;

	if (!sb) {
		return;
	}
	start = pai_clock_ms();
	for (size_t i = 0; i < 2; i++) {
		w[i] = (struct runner){.c = c, .sb = sb, .input = {.command = "sleep 2"}};
		started += pthread_create(&threads[i], NULL, run_in_thread, &w[i]) == 0;
	}
	for (size_t i = 0; i < started; i++) {
		(void)pthread_join(threads[i], NULL);
	}
	CONF_CHECK(c, started == 2, "no thread");
	CONF_OK(c, w[0].result, w[0].err, "the first");
	CONF_OK(c, w[1].result, w[1].err, "the second");
	CONF_CHECK(c, pai_clock_ms() - start < 3700, "the second waited for the first");
}

static void commands_and_file_calls_see_the_same_files(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_run_result struct pai_run_result r = {0};
	pai_auto_run_result struct pai_run_result w = {0};
	char path[4096], cat[sizeof(path) + 8];

	if (sb && pai_conf_write(c, sb, "dir/in", "from write_file", 15) &&
	    pai_conf_sh(c, sb, "cat dir/in && echo from run > dir/out", &r)) {
		expect_text(c, "what the command read", r.out, r.out_len, "from write_file");
		(void)!pai_conf_holds(c, sb, "dir/out", "from run\n", 9);
		(void)snprintf(cat, sizeof(cat), "cat '%s'",
		    path_in_commands(c, sb, "/workspace/dir/in", path));
		if (pai_conf_sh(c, sb, cat, &w)) {
			expect_text(c, "what it read below /workspace", w.out, w.out_len,
			    "from write_file");
		}
	}
}

static void without_the_claim_run_is_refused(struct pai_conf *c)
{
	const struct pai_run_input input = {.command = "true"};
	pai_auto_run_result struct pai_run_result r = {0};
	struct pai_err err = PAI_ERR_INIT;
	struct pai_sandbox *sb;

	if (c->caps & PAI_CAP_COMMANDS) {
		pai_conf_skip(c, "the provider claims commands");
		return;
	}
	sb = pai_conf_sandbox(c);
	if (sb) {
		CONF_ERROR(c, pai_sandbox_run(sb, &input, CONF_CALL(c), &r, &err), err,
		    PAI_E_POLICY_MISMATCH, "run");
	}
}

#define ANY PAI_CAP_COMMANDS
#define POSIX (PAI_CAP_COMMANDS | PAI_CAP_POSIX_SHELL)

const struct pai_conf_case pai_conf_command_cases[] = {
    {"commands/stdout_and_exit_0", ANY, stdout_and_exit_0},
    {"commands/stderr_and_exit_3", ANY, stderr_and_exit_3},
    {"commands/missing_program_is_127", POSIX, missing_program_is_127},
    {"commands/a_signal_is_128_and_its_number", POSIX, a_signal_is_128_and_its_number},
    {"commands/bytes_pass_unchanged", POSIX, bytes_pass_unchanged},
    {"commands/a_mebibyte_of_output_is_exact", POSIX, a_mebibyte_of_output_is_exact},
    {"commands/chunks_equal_the_result", ANY, chunks_equal_the_result},
    {"commands/chunks_of_much_output_equal_the_result", POSIX,
	chunks_of_much_output_equal_the_result},
    {"commands/chunks_come_while_it_runs", POSIX, chunks_come_while_it_runs},
    {"commands/without_capture_only_chunks_come", ANY, without_capture_only_chunks_come},
    {"commands/cwd_is_the_workspace_or_what_was_given", ANY,
	cwd_is_the_workspace_or_what_was_given},
    {"commands/a_missing_cwd_is_an_error_and_nothing_runs", POSIX,
	a_missing_cwd_is_an_error_and_nothing_runs},
    {"commands/env_of_a_command_is_its_own", ANY, env_of_a_command_is_its_own},
    {"commands/env_of_create_is_in_every_command", ANY, env_of_create_is_in_every_command},
    {"commands/the_hosts_environment_stays_outside", ANY, the_hosts_environment_stays_outside},
    {"commands/a_timeout_is_an_error_with_its_limit", ANY, a_timeout_is_an_error_with_its_limit},
    {"commands/a_timeout_not_reached_changes_nothing", ANY, a_timeout_not_reached_changes_nothing},
    {"commands/a_timeout_kills_the_whole_group", POSIX, a_timeout_kills_the_whole_group},
    {"commands/cancel_ends_a_command", ANY, cancel_ends_a_command},
    {"commands/cancel_kills_the_whole_group", POSIX, cancel_kills_the_whole_group},
    {"commands/a_deadline_ends_a_command", ANY, a_deadline_ends_a_command},
    {"commands/output_past_its_limit_is_an_error", ANY, output_past_its_limit_is_an_error},
    {"commands/output_at_its_limit_is_whole", ANY, output_at_its_limit_is_whole},
    {"commands/both_streams_share_one_limit", POSIX, both_streams_share_one_limit},
    {"commands/endless_output_is_ended_by_its_limit", POSIX, endless_output_is_ended_by_its_limit},
    {"commands/two_commands_run_at_once", POSIX, two_commands_run_at_once},
    {"commands/files_are_the_same_on_both_sides", POSIX,
	commands_and_file_calls_see_the_same_files},
    {"commands/without_the_claim_run_is_refused", 0, without_the_claim_run_is_refused},
    {NULL, 0, NULL},
};
