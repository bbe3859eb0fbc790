#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/memory/memory.h"
#include "providers/memory/script.h"
#include "providers/provider.h"

#define CALL PAI_CALL_UNBOUNDED

static struct pai_provider *provider;
static void open_provider(void)
{
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_provider_open("memory", NULL, &provider, &err), 0, "%s", err.msg);
}
static void close_provider(void)
{
	pai_provider_free(provider);
}

TestSuite(memory, .init = open_provider, .fini = close_provider, .timeout = 20);

static struct pai_sandbox *create(const struct pai_create_input *input)
{
	struct pai_sandbox *sb = NULL;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_provider_create(provider, input, CALL, &sb, &err), 0, "%s", err.msg);
	return sb;
}

static struct pai_sandbox *plain(void)
{
	return create(&(struct pai_create_input){0});
}

static int run(
    struct pai_sandbox *sb, const char *command, struct pai_run_result *r, struct pai_err *err)
{
	const struct pai_run_input input = {.command = command};

	*err = (struct pai_err)PAI_ERR_INIT;
	return pai_sandbox_run(sb, &input, CALL, r, err);
}

static bool is_live(const char *id)
{
	pai_auto_sandbox struct pai_sandbox *sb = NULL;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_provider_connect(provider, id, CALL, &sb, &err), 0, "%s", err.msg);
	return sb != NULL;
}

/* --- time to live, by a clock that the test moves --- */

Test(memory, a_ttl_counts_from_create_and_from_the_longest_keep_alive)
{
	pai_auto_sandbox struct pai_sandbox *sb =
	    create(&(struct pai_create_input){.ttl_ms = 10000});
	struct pai_err err = PAI_ERR_INIT;

	pai_clock_advance_for_test(9000);
	cr_expect(is_live(pai_sandbox_id(sb)));
	cr_expect_eq(pai_sandbox_keep_alive(sb, 20000, CALL, &err), 0);
	cr_expect_eq(pai_sandbox_keep_alive(sb, 1000, CALL, &err), 0);
	pai_clock_advance_for_test(19000);
	cr_expect(is_live(pai_sandbox_id(sb)));
	pai_clock_advance_for_test(2000);
	cr_expect_not(is_live(pai_sandbox_id(sb)));
	cr_expect_lt(pai_sandbox_write_file(sb, "f", "x", 1, CALL, &err), 0);
	cr_expect_eq(err.code, PAI_E_NOT_FOUND);
}

Test(memory, without_a_ttl_nothing_expires)
{
	pai_auto_sandbox struct pai_sandbox *sb = plain();
	struct pai_err err = PAI_ERR_INIT;

	cr_expect_eq(pai_sandbox_keep_alive(sb, 1000, CALL, &err), 0);
	pai_clock_advance_for_test(1000ull * 86400 * 365);
	cr_expect(is_live(pai_sandbox_id(sb)));
}

Test(memory, a_paused_sandbox_does_not_expire_and_its_ttl_starts_anew)
{
	pai_auto_sandbox struct pai_sandbox *sb =
	    create(&(struct pai_create_input){.ttl_ms = 10000});
	struct pai_err err = PAI_ERR_INIT;

	cr_expect_eq(pai_sandbox_pause(sb, CALL, &err), 0);
	cr_expect_lt(pai_sandbox_write_file(sb, "f", "x", 1, CALL, &err), 0);
	cr_expect_eq(err.code, PAI_E_UNAVAILABLE);
	pai_clock_advance_for_test(60000);
	cr_expect(is_live(pai_sandbox_id(sb)));
	err = (struct pai_err)PAI_ERR_INIT;
	cr_expect_eq(pai_sandbox_write_file(sb, "f", "x", 1, CALL, &err), 0, "%s", err.msg);
	pai_clock_advance_for_test(11000);
	cr_expect_not(is_live(pai_sandbox_id(sb)));
}

/* --- commands that are running --- */

struct runner {
	struct pai_sandbox *sb;
	struct pai_err err;
	int result;
	pthread_mutex_t lock;
	pthread_cond_t started;
	bool has_started;
};

static void on_output(void *arg, enum pai_stream stream, const char *data, size_t len)
{
	struct runner *w = arg;

	(void)stream, (void)data, (void)len;
	pthread_mutex_lock(&w->lock);
	w->has_started = true;
	pthread_cond_signal(&w->started);
	pthread_mutex_unlock(&w->lock);
}

static void *run_long(void *arg)
{
	struct runner *w = arg;
	pai_auto_run_result struct pai_run_result r = {0};
	const struct pai_run_input input = {
	    .command = "echo started; sleep 60", .on_output = on_output, .on_output_arg = w};

	w->result = pai_sandbox_run(w->sb, &input, CALL, &r, &w->err);
	return NULL;
}

static void start(struct runner *w, pthread_t *thread)
{
	*w = (struct runner){
	    .sb = w->sb, .lock = PTHREAD_MUTEX_INITIALIZER, .started = PTHREAD_COND_INITIALIZER};
	cr_assert_eq(pthread_create(thread, NULL, run_long, w), 0);
	pthread_mutex_lock(&w->lock);
	while (!w->has_started) {
		pthread_cond_wait(&w->started, &w->lock);
	}
	pthread_mutex_unlock(&w->lock);
}

Test(memory, a_pause_ends_a_running_command_even_when_it_is_over_at_once)
{
	pai_auto_sandbox struct pai_sandbox *sb = plain();
	struct runner w = {.sb = sb};
	struct pai_err err = PAI_ERR_INIT;
	pthread_t thread;

	start(&w, &thread);
	cr_expect_eq(pai_sandbox_pause(sb, CALL, &err), 0);
	cr_expect(is_live(pai_sandbox_id(sb))); /* resumes */
	pthread_join(thread, NULL);
	cr_expect_lt(w.result, 0);
	cr_expect_eq(w.err.code, PAI_E_UNAVAILABLE);
	cr_expect_not(w.err.retryable, "the command had started");
}

Test(memory, a_kill_ends_a_running_command)
{
	pai_auto_sandbox struct pai_sandbox *sb = plain();
	struct runner w = {.sb = sb};
	struct pai_err err = PAI_ERR_INIT;
	pthread_t thread;

	start(&w, &thread);
	cr_expect_eq(pai_sandbox_kill(sb, CALL, &err), 0);
	pthread_join(thread, NULL);
	cr_expect_eq(w.err.code, PAI_E_NOT_FOUND);
}

/* --- scripts --- */

Test(memory, a_scripted_command_answers_before_the_builtins_and_as_often_as_it_says)
{
	static const struct pai_memory_file files[] = {
	    {.path = "made/here", .data = "text", .len = 4},
	    {.path = "old"},
	};
	const struct pai_memory_command twice = {
	    .match = "echo *",
	    .out = "scripted",
	    .err = "warned",
	    .exit_code = 5,
	    .times = 2,
	    .files = files,
	    .file_count = 2,
	};
	pai_auto_sandbox struct pai_sandbox *sb = plain();
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_memory_add_command(provider, &twice, &err), 0);
	cr_assert_eq(pai_sandbox_write_file(sb, "old", "x", 1, CALL, &err), 0);
	for (int i = 0; i < 3; i++) {
		pai_auto_run_result struct pai_run_result r = {0};

		cr_assert_eq(run(sb, "echo hello", &r, &err), 0, "%s", err.msg);
		cr_expect_str_eq(r.out, i < 2 ? "scripted" : "hello\n");
		cr_expect_str_eq(r.err, i < 2 ? "warned" : "");
		cr_expect_eq(r.exit_code, i < 2 ? 5 : 0);
	}
	pai_auto_run_result struct pai_run_result r = {0};
	cr_assert_eq(run(sb, "cat made/here; ls", &r, &err), 0);
	cr_expect_str_eq(r.out, "textmade\n");
}

Test(memory, a_scripted_delay_counts_against_the_timeout)
{
	const struct pai_memory_command slow = {.match = "slow", .delay_ms = 60000};
	const struct pai_run_input input = {.command = "slow", .timeout_ms = 20};
	pai_auto_sandbox struct pai_sandbox *sb = plain();
	pai_auto_run_result struct pai_run_result r = {0};
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(pai_memory_add_command(provider, &slow, &err), 0);
	cr_expect_lt(pai_sandbox_run(sb, &input, CALL, &r, &err), 0);
	cr_expect_eq(err.code, PAI_E_COMMAND_TIMEOUT);
	cr_expect_eq(err.timeout_ms, 20);
}

Test(memory, a_template_is_what_a_new_sandbox_holds)
{
	static const struct pai_memory_file files[] = {{.path = "README", .data = "hi", .len = 2}};
	struct pai_create_input input = {.template_name = "start"};
	pai_auto_sandbox struct pai_sandbox *sb = NULL;
	pai_auto_run_result struct pai_run_result r = {0};
	struct pai_err err = PAI_ERR_INIT;

	cr_expect_lt(pai_provider_create(provider, &input, CALL, &sb, &err), 0);
	cr_expect_eq(err.code, PAI_E_POLICY_MISMATCH);
	cr_assert_eq(pai_memory_add_template(provider, "start", files, 1, &err), 0);
	sb = create(&input);
	cr_assert_eq(run(sb, "cat README", &r, &err), 0);
	cr_expect_str_eq(r.out, "hi");
}

Test(memory, resources_are_an_option_that_it_cannot_carry)
{
	struct pai_create_input input = {.resources = {.pids = 5}};
	struct pai_sandbox *sb = NULL;
	struct pai_err err = PAI_ERR_INIT;

	cr_expect_lt(pai_provider_create(provider, &input, CALL, &sb, &err), 0);
	cr_expect_eq(err.code, PAI_E_INPUT);
}

Test(memory_script, a_file_gives_commands_and_templates)
{
	static const char text[] =
	    "{\"commands\": [{\"match\": \"a?c\", \"stdout\": \"out\", \"exit\": 3,"
	    " \"files\": [{\"path\": \"x\", \"text\": \"y\"}]}],"
	    " \"templates\": {\"t\": [{\"path\": \"p\", \"text\": \"q\"}]}}";
	pai_auto_strmap struct pai_strmap options = PAI_STRMAP_INIT;
	pai_auto_provider struct pai_provider *p = NULL;
	pai_auto_sandbox struct pai_sandbox *sb = NULL;
	pai_auto_run_result struct pai_run_result r = {0};
	struct pai_create_input input = {.template_name = "t"};
	struct pai_err err = PAI_ERR_INIT;
	char path[] = "/tmp/pai-script-XXXXXX";
	int fd = mkstemp(path);

	cr_assert_eq(write(fd, text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
	close(fd);
	cr_assert_eq(pai_strmap_set(&options, "script", path), 0);
	cr_assert_eq(pai_provider_open("memory", &options, &p, &err), 0, "%s", err.msg);
	unlink(path);
	cr_assert_eq(pai_provider_create(p, &input, CALL, &sb, &err), 0, "%s", err.msg);
	cr_assert_eq(run(sb, "abc", &r, &err), 0);
	cr_expect_str_eq(r.out, "out");
	cr_expect_eq(r.exit_code, 3);
	pai_run_result_fini(&r);
	cr_assert_eq(run(sb, "cat x p", &r, &err), 0);
	cr_expect_str_eq(r.out, "yq");
}

Test(memory_script, what_is_wrong_is_input_that_names_the_place)
{
	static const char *const texts[][2] = {
	    {"", "JSON"},
	    {"[]", "top"},
	    {"{\"commands\": 5}", "commands"},
	    {"{\"commands\": null}", "commands"},
	    {"{\"commands\": {}}", "commands"},
	    {"{\"templates\": []}", "templates"},
	    {"{\"templates\": {\"t\": {}}}", "templates"},
	    {"{\"command\": []}", "command"},
	    {"{\"commands\": [5]}", "commands[0]"},
	    {"{\"commands\": [{\"match\": \"a\"}, {}]}", "commands[1]"},
	    {"{\"commands\": [{\"match\": \"\"}]}", "match"},
	    {"{\"commands\": [{\"match\": \"a\", \"exit\": 256}]}", "exit"},
	    {"{\"commands\": [{\"match\": \"a\", \"exit\": \"1\"}]}", "exit"},
	    {"{\"commands\": [{\"match\": \"a\", \"delay_ms\": -1}]}", "delay_ms"},
	    {"{\"commands\": [{\"match\": \"a\", \"stdout\": 1}]}", "stdout"},
	    {"{\"commands\": [{\"match\": \"a\", \"files\": {}}]}", "files"},
	    {"{\"commands\": [{\"match\": \"a\", \"files\": [{\"text\": \"x\"}]}]}", "path"},
	    {"{\"commands\": [{\"match\": \"a\", \"files\": [{\"path\": \"x\"}]}]}", "remove"},
	    {"{\"commands\": [{\"match\": \"a\", \"out\": \"x\"}]}", "out"},
	};

	for (size_t i = 0; i < PAI_COUNT(texts); i++) {
		struct pai_script script = {0};
		struct pai_err err = PAI_ERR_INIT;

		cr_expect_lt(pai_script_parse(&script, texts[i][0], strlen(texts[i][0]), &err), 0,
		    "%s", texts[i][0]);
		cr_expect_eq(err.code, PAI_E_INPUT, "%s: %s", texts[i][0], err.msg);
		cr_expect(strstr(err.msg, texts[i][1]), "%s: %s", texts[i][0], err.msg);
		pai_script_fini(&script);
	}
}
