#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "providers/base/auto.h"
#include "providers/conformance/conf.h"

#define SHORT_TTL_MS 1000
#define LONG_TTL_MS 60000
#define EXPIRY_SLACK_MS 10000 /* a backend may sweep late */

/* --- create, connect, list --- */

static void create_gives_an_identity(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	struct pai_sandbox *again;

	if (!sb) {
		return;
	}
	CONF_CHECK(c, pai_sandbox_incarnation(sb)[0], "the sandbox has no incarnation");
	again = pai_conf_connect(c, pai_sandbox_id(sb));
	if (!again) {
		return;
	}
	CONF_CHECK(c, strcmp(pai_sandbox_id(again), pai_sandbox_id(sb)) == 0,
	    "connect gave a handle with another id");
	CONF_CHECK(c, strcmp(pai_sandbox_incarnation(again), pai_sandbox_incarnation(sb)) == 0,
	    "connect gave a handle with another incarnation");
}

static void two_creates_are_two_sandboxes(struct pai_conf *c)
{
	struct pai_sandbox *a = pai_conf_sandbox(c);
	struct pai_sandbox *b = pai_conf_sandbox(c);
	bool found = true;

	if (!a || !b) {
		return;
	}
	CONF_CHECK(c, strcmp(pai_sandbox_id(a), pai_sandbox_id(b)) != 0,
	    "two creates without a binding key gave one sandbox");
	CONF_CHECK(c, strcmp(pai_sandbox_incarnation(a), pai_sandbox_incarnation(b)) != 0,
	    "two sandboxes have the same incarnation");
	if (pai_conf_write(c, a, "mine", "a", 1) && pai_conf_exists(c, b, "mine", &found)) {
		CONF_CHECK(c, !found, "a file of one sandbox is seen in the other");
	}
}

static void connect_reaches_the_same_files(struct pai_conf *c)
{
	struct pai_sandbox *a = pai_conf_sandbox(c);
	struct pai_sandbox *b = a ? pai_conf_connect(c, pai_sandbox_id(a)) : NULL;

	if (b && pai_conf_write(c, a, "shared", "text", 4) &&
	    pai_conf_holds(c, b, "shared", "text", 4)) {
		(void)!pai_conf_write(c, b, "back", "too", 3);
		(void)!pai_conf_holds(c, a, "back", "too", 3);
	}
}

static void connect_to_nothing_is_null(struct pai_conf *c)
{
	static const char *const ids[] = {"no-such-sandbox", "../../etc", "a b\n", "%s%n"};

	for (size_t i = 0; i < PAI_COUNT(ids); i++) {
		struct pai_sandbox *sb = NULL;
		struct pai_err err = PAI_ERR_INIT;
		int r = pai_provider_connect(c->provider, ids[i], CONF_CALL(c), &sb, &err);

		if (sb) {
			pai_sandbox_free(sb);
			pai_conf_fail(c, "connect found a sandbox that was never made");
		}
		CONF_OK(c, r, err, "connect to an id that was never given out");
	}
}

static void freeing_a_handle_does_not_kill(struct pai_conf *c)
{
	struct pai_create_input input = pai_conf_input(c);
	pai_auto_strmap struct pai_strmap metadata = PAI_STRMAP_INIT;
	struct pai_sandbox *sb = NULL;
	pai_auto_free char *id = NULL;
	struct pai_err err = PAI_ERR_INIT;

	if (!pai_conf_metadata(c, NULL, &metadata)) {
		return;
	}
	input.metadata = &metadata;
	CONF_OK(
	    c, pai_provider_create(c->provider, &input, CONF_CALL(c), &sb, &err), err, "create");
	id = strdup(pai_sandbox_id(sb));
	pai_sandbox_free(sb);
	CONF_CHECK(c, id, "out of memory");
	(void)pai_conf_connect(c, id);
}

static void closing_the_provider_does_not_kill(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	pai_auto_free char *id = sb ? strdup(pai_sandbox_id(sb)) : NULL;
	struct pai_err err = PAI_ERR_INIT;

	if (!sb || !pai_conf_write(c, sb, "kept", "text", 4)) {
		return;
	}
	CONF_CHECK(c, id, "out of memory");
	c->count = 0;
	pai_sandbox_free(sb);
	pai_provider_free(c->provider);
	c->provider = NULL;
	CONF_OK(c,
	    pai_provider_open(
		c->options->provider, c->options->provider_options, &c->provider, &err),
	    err, "open again");
	sb = pai_conf_connect(c, id);
	if (sb) {
		(void)!pai_conf_holds(c, sb, "kept", "text", 4);
	}
}

static bool with_metadata(
    struct pai_conf *c, const char *key, const char *value, struct pai_sandbox **ret)
{
	pai_auto_strmap struct pai_strmap metadata = PAI_STRMAP_INIT;
	struct pai_create_input input = pai_conf_input(c);

	if (pai_strmap_set(&metadata, key, value) < 0 ||
	    pai_strmap_set(&metadata, "other", "x y=z") < 0) {
		pai_conf_fail(c, "out of memory");
		return false;
	}
	input.metadata = &metadata;
	*ret = pai_conf_create(c, &input);
	return *ret != NULL;
}

static void list_filters_by_metadata(struct pai_conf *c)
{
	pai_auto_strmap struct pai_strmap red = PAI_STRMAP_INIT;
	pai_auto_strmap struct pai_strmap nothing = PAI_STRMAP_INIT;
	struct pai_sandbox *a = NULL;
	struct pai_sandbox *b = NULL;
	bool in_all, in_red, in_nothing;

	CONF_CHECK(c,
	    pai_strmap_set(&red, "colour", "red") == 0 &&
		pai_strmap_set(&nothing, "colour", "re") == 0,
	    "out of memory");
	if (!with_metadata(c, "colour", "red", &a) || !with_metadata(c, "colour", "blue", &b)) {
		return;
	}
	for (int i = 0; i < 2; i++) {
		const char *id = pai_sandbox_id(i ? b : a);

		if (!pai_conf_is_listed(c, NULL, id, &in_all) ||
		    !pai_conf_is_listed(c, &red, id, &in_red) ||
		    !pai_conf_is_listed(c, &nothing, id, &in_nothing)) {
			return;
		}
		CONF_CHECK(c, in_all, "a live sandbox isn't listed");
		CONF_CHECK(c, in_red == (i == 0), "the metadata filter %s",
		    i ? "lets another value through" : "keeps a match out");
		CONF_CHECK(c, !in_nothing, "the metadata filter takes a part of a value");
	}
}

static void list_tells_what_was_given(struct pai_conf *c)
{
	pai_auto_strmap struct pai_strmap mine = PAI_STRMAP_INIT;
	pai_auto_sandbox_list struct pai_sandbox_list list = {0};
	struct pai_err err = PAI_ERR_INIT;
	const struct pai_sandbox_info *info;
	struct pai_sandbox *sb = NULL;
	const char *value;

	if (!with_metadata(c, "note", "a 'quoted' \"value\"\n\xc3\xa4", &sb)) {
		return;
	}
	CONF_CHECK(c, pai_strmap_set(&mine, "note", "a 'quoted' \"value\"\n\xc3\xa4") == 0,
	    "out of memory");
	if (!pai_conf_metadata(c, NULL, &mine)) {
		return;
	}
	CONF_OK(c, pai_provider_list(c->provider, &mine, CONF_CALL(c), &list, &err), err, "list");
	CONF_CHECK(c, list.count == 1, "%zu entries for metadata that one sandbox has", list.count);
	info = &list.items[0];
	CONF_CHECK(c, strcmp(info->sandbox_id, pai_sandbox_id(sb)) == 0, "another id is listed");
	CONF_CHECK(c,
	    !info->incarnation[0] || strcmp(info->incarnation, pai_sandbox_incarnation(sb)) == 0,
	    "another incarnation is listed");
	CONF_CHECK(c, info->state == PAI_SANDBOX_RUNNING, "a running sandbox is listed as paused");
	value = pai_strmap_get(&info->metadata, "other");
	CONF_CHECK(c, value && strcmp(value, "x y=z") == 0, "a metadata value was lost or changed");
}

/* --- probe --- */

static bool count_all(struct pai_conf *c, size_t *ret)
{
	pai_auto_sandbox_list struct pai_sandbox_list list = {0};
	struct pai_err err = PAI_ERR_INIT;

	/* Everybody's: what a probe makes has no mark of ours. */
	if (pai_provider_list(c->provider, NULL, CONF_CALL(c), &list, &err) < 0) {
		pai_conf_fail(c, "list: %s", err.msg);
		return false;
	}
	*ret = list.count;
	return true;
}

static void probe_provisions_nothing(struct pai_conf *c)
{
	struct pai_err err = PAI_ERR_INIT;
	size_t before, after;

	if (!count_all(c, &before)) {
		return;
	}
	CONF_OK(c, pai_provider_probe(c->provider, CONF_CALL(c), &err), err, "probe");
	CONF_OK(c, pai_provider_probe(c->provider, CONF_CALL(c), &err), err, "probe");
	if (count_all(c, &after)) {
		CONF_CHECK(c, after <= before, "probe made %zu sandboxes", after - before);
	}
}

static bool host(struct pai_conf *c, const char *command)
{
	/* The person at the command line wrote it, as with make's recipes. */
	if (system(command) != 0) {
		pai_conf_fail(c, "'%s' failed", command);
		return false;
	}
	return true;
}

static void probe_answers_afresh(struct pai_conf *c)
{
	struct pai_err err = PAI_ERR_INIT;
	int r;

	if (!c->options->break_command || !c->options->mend_command) {
		pai_conf_skip(c, "needs --break and --mend: host commands that make the backend "
				 "unreachable and reachable again");
		return;
	}
	CONF_OK(c, pai_provider_probe(c->provider, CONF_CALL(c), &err), err, "probe");
	if (!host(c, c->options->break_command)) {
		return;
	}
	r = pai_provider_probe(c->provider, CONF_CALL(c), &err);
	if (!host(c, c->options->mend_command)) {
		return;
	}
	CONF_ERROR(c, r, err, PAI_E_UNAVAILABLE, "probe of a backend that has gone");
	CONF_CHECK(c, err.reason != PAI_REASON_NONE, "the error has no reason");
	err = (struct pai_err)PAI_ERR_INIT;
	CONF_OK(c, pai_provider_probe(c->provider, CONF_CALL(c), &err), err,
	    "probe of a backend that has come back");
}

/* --- time to live --- */

/* NULL with the case settled: a provider may refuse a ttl (policy) or have none at all. */
static struct pai_sandbox *create_with_ttl(struct pai_conf *c, uint64_t ttl_ms)
{
	struct pai_create_input input = pai_conf_input(c);
	struct pai_sandbox *sb;

	input.ttl_ms = ttl_ms;
	sb = pai_conf_create(c, &input);
	if (!sb && c->verdict == PAI_CONF_FAILED && strstr(c->message, "(policy-mismatch)")) {
		c->verdict = PAI_CONF_PASSED;
		pai_conf_skip(c, "the provider refuses a ttl of %u ms", (unsigned)ttl_ms);
	}
	return sb;
}

static bool is_gone(struct pai_conf *c, const char *id, bool *ret)
{
	struct pai_sandbox *sb = NULL;
	struct pai_err err = PAI_ERR_INIT;

	if (pai_provider_connect(c->provider, id, CONF_CALL(c), &sb, &err) < 0) {
		pai_conf_fail(c, "connect: %s (%s)", err.msg, pai_errcode_name(err.code));
		return false;
	}
	*ret = sb == NULL;
	pai_sandbox_free(sb);
	return true;
}

static void an_expired_sandbox_is_gone(struct pai_conf *c)
{
	struct pai_sandbox *sb = create_with_ttl(c, SHORT_TTL_MS);
	const uint64_t until = pai_deadline_in(SHORT_TTL_MS + EXPIRY_SLACK_MS);
	struct pai_err err = PAI_ERR_INIT;
	bool gone = false;
	bool listed = true;

	if (!sb) {
		return;
	}
	pai_conf_sleep(SHORT_TTL_MS);
	while (!gone && !pai_deadline_passed(until)) {
		pai_conf_sleep(100);
		if (!is_gone(c, pai_sandbox_id(sb), &gone)) {
			return;
		}
	}
	CONF_CHECK(c, gone, "it still lives %u s after its ttl", EXPIRY_SLACK_MS / 1000);
	CONF_ERROR(c, pai_sandbox_write_file(sb, "f", "x", 1, CONF_CALL(c), &err), err,
	    PAI_E_NOT_FOUND, "write to an expired sandbox");
	if (pai_conf_is_listed(c, NULL, pai_sandbox_id(sb), &listed)) {
		CONF_CHECK(c, !listed, "an expired sandbox is listed");
	}
}

static void keep_alive_then(struct pai_conf *c, uint64_t ttl_ms, uint64_t keep_ms)
{
	struct pai_sandbox *sb = create_with_ttl(c, ttl_ms);
	struct pai_err err = PAI_ERR_INIT;

	if (!sb) {
		return;
	}
	CONF_OK(c, pai_sandbox_keep_alive(sb, keep_ms, CONF_CALL(c), &err), err, "keep_alive");
	pai_conf_sleep(SHORT_TTL_MS + SHORT_TTL_MS / 2);
	CONF_OK(c, pai_sandbox_write_file(sb, "f", "x", 1, CONF_CALL(c), &err), err,
	    "a call before the longest ttl has passed");
}

static void keep_alive_extends(struct pai_conf *c)
{
	keep_alive_then(c, SHORT_TTL_MS, LONG_TTL_MS);
}

static void keep_alive_never_shortens(struct pai_conf *c)
{
	keep_alive_then(c, LONG_TTL_MS, SHORT_TTL_MS / 2);
}

static void keep_alive_gives_no_deadline_to_one_without(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	struct pai_err err = PAI_ERR_INIT;

	if (!sb) {
		return;
	}
	CONF_OK(
	    c, pai_sandbox_keep_alive(sb, SHORT_TTL_MS / 2, CONF_CALL(c), &err), err, "keep_alive");
	pai_conf_sleep(SHORT_TTL_MS);
	(void)!pai_conf_write(c, sb, "f", "x", 1);
}

/* --- kill --- */

static void every_call_says_not_found(struct pai_conf *c, struct pai_sandbox *sb, const char *whose)
{
	const struct pai_run_input run = {.command = "true"};
	pai_auto_run_result struct pai_run_result result = {0};
	pai_auto_dir_list struct pai_dir_list list = {0};
	pai_auto_buf struct pai_buf data = PAI_BUF_INIT(1000);
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;

	if (c->caps & PAI_CAP_COMMANDS) {
		CONF_ERROR(c, pai_sandbox_run(sb, &run, CONF_CALL(c), &result, &err), err,
		    PAI_E_NOT_FOUND, "run");
	}
	CONF_ERROR(c, pai_sandbox_read_file(sb, "f", 1000, CONF_CALL(c), &found, &data, &err), err,
	    PAI_E_NOT_FOUND, "read_file");
	CONF_ERROR(c, pai_sandbox_write_file(sb, "f", "x", 1, CONF_CALL(c), &err), err,
	    PAI_E_NOT_FOUND, "write_file");
	CONF_ERROR(c, pai_sandbox_list_dir(sb, ".", CONF_CALL(c), &found, &list, &err), err,
	    PAI_E_NOT_FOUND, "list_dir");
	CONF_ERROR(c, pai_sandbox_keep_alive(sb, 1000, CONF_CALL(c), &err), err, PAI_E_NOT_FOUND,
	    "keep_alive");
	if (c->caps & PAI_CAP_PAUSE) {
		CONF_ERROR(
		    c, pai_sandbox_pause(sb, CONF_CALL(c), &err), err, PAI_E_NOT_FOUND, "pause");
	}
	CONF_OK(c, pai_sandbox_kill(sb, CONF_CALL(c), &err), err, whose);
}

static void after_kill_every_call_is_not_found(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	struct pai_sandbox *other = sb ? pai_conf_connect(c, pai_sandbox_id(sb)) : NULL;

	if (!other || !pai_conf_write(c, sb, "f", "x", 1) || !pai_conf_kill(c, sb)) {
		return;
	}
	every_call_says_not_found(c, sb, "kill again, by the same handle");
	every_call_says_not_found(c, other, "kill again, by another handle");
}

static void after_kill_connect_is_null(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	bool gone = false;

	if (sb && pai_conf_kill(c, sb) && is_gone(c, pai_sandbox_id(sb), &gone)) {
		CONF_CHECK(c, gone, "connect still finds it");
	}
}

static void after_kill_it_is_not_listed(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	bool listed = true;

	if (sb && pai_conf_kill(c, sb) &&
	    pai_conf_is_listed(c, NULL, pai_sandbox_id(sb), &listed)) {
		CONF_CHECK(c, !listed, "list still has it");
	}
}

static void kill_twice_is_fine(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);

	if (sb && pai_conf_kill(c, sb)) {
		(void)!pai_conf_kill(c, sb);
	}
}

static void kill_leaves_the_others_alone(struct pai_conf *c)
{
	struct pai_sandbox *a = pai_conf_sandbox(c);
	struct pai_sandbox *b = pai_conf_sandbox(c);

	if (a && b && pai_conf_write(c, b, "f", "x", 1) && pai_conf_kill(c, a)) {
		(void)!pai_conf_holds(c, b, "f", "x", 1);
	}
}

struct waiter {
	struct pai_conf *c;
	struct pai_sandbox *sb;
	struct pai_err err;
	int result;
};

static void *run_long(void *arg)
{
	struct waiter *w = arg;
	const struct pai_run_input input = {.command = w->c->options->commands.long_running};
	pai_auto_run_result struct pai_run_result result = {0};

	w->result = pai_sandbox_run(w->sb, &input, CONF_CALL(w->c), &result, &w->err);
	return NULL;
}

static void kill_ends_a_running_command(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	struct waiter w = {.c = c, .sb = sb};
	const uint64_t start = pai_clock_ms();
	pthread_t thread;
	bool killed;

	if (!sb) {
		return;
	}
	CONF_CHECK(c, pthread_create(&thread, NULL, run_long, &w) == 0, "no thread");
	pai_conf_sleep(500);
	killed = pai_conf_kill(c, sb);
	(void)pthread_join(thread, NULL);
	if (!killed) {
		return;
	}
	CONF_ERROR(c, w.result, w.err, PAI_E_NOT_FOUND, "a command whose sandbox was killed");
	CONF_CHECK(c, pai_clock_ms() - start < 8000, "the command was waited for to its end");
}

/* --- pause --- */

static void pause_is_listed_and_connect_resumes(struct pai_conf *c)
{
	pai_auto_sandbox_list struct pai_sandbox_list list = {0};
	pai_auto_strmap struct pai_strmap mine = PAI_STRMAP_INIT;
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	struct pai_err err = PAI_ERR_INIT;
	struct pai_sandbox *again;
	bool paused = false;

	if (!sb || !pai_conf_write(c, sb, "kept", "text", 4) ||
	    !pai_conf_metadata(c, NULL, &mine)) {
		return;
	}
	CONF_OK(c, pai_sandbox_pause(sb, CONF_CALL(c), &err), err, "pause");
	CONF_OK(c, pai_provider_list(c->provider, &mine, CONF_CALL(c), &list, &err), err, "list");
	for (size_t i = 0; i < list.count; i++) {
		paused = paused || (strcmp(list.items[i].sandbox_id, pai_sandbox_id(sb)) == 0 &&
				       list.items[i].state == PAI_SANDBOX_PAUSED);
	}
	CONF_CHECK(c, paused, "a paused sandbox isn't listed as paused");
	again = pai_conf_connect(c, pai_sandbox_id(sb));
	if (!again || !pai_conf_holds(c, again, "kept", "text", 4)) {
		return;
	}
	CONF_CHECK(c, strcmp(pai_sandbox_incarnation(again), pai_sandbox_incarnation(sb)) == 0,
	    "resuming gave another incarnation");
	(void)!pai_conf_write(c, again, "kept", "more", 4);
}

static void a_paused_sandbox_can_be_killed(struct pai_conf *c)
{
	struct pai_sandbox *sb = pai_conf_sandbox(c);
	struct pai_err err = PAI_ERR_INIT;
	bool gone = false;

	if (!sb) {
		return;
	}
	CONF_OK(c, pai_sandbox_pause(sb, CONF_CALL(c), &err), err, "pause");
	if (pai_conf_kill(c, sb) && is_gone(c, pai_sandbox_id(sb), &gone)) {
		CONF_CHECK(c, gone, "connect still finds it");
	}
}

static void without_the_claim_pause_is_unsupported(struct pai_conf *c)
{
	struct pai_sandbox *sb;
	struct pai_err err = PAI_ERR_INIT;

	if (c->caps & PAI_CAP_PAUSE) {
		pai_conf_skip(c, "the provider claims pause");
		return;
	}
	sb = pai_conf_sandbox(c);
	if (sb) {
		CONF_ERROR(
		    c, pai_sandbox_pause(sb, CONF_CALL(c), &err), err, PAI_E_UNSUPPORTED, "pause");
		(void)!pai_conf_write(c, sb, "f", "x", 1);
	}
}

const struct pai_conf_case pai_conf_lifecycle_cases[] = {
    {"lifecycle/create_gives_an_identity", 0, create_gives_an_identity},
    {"lifecycle/two_creates_are_two_sandboxes", 0, two_creates_are_two_sandboxes},
    {"lifecycle/connect_reaches_the_same_files", 0, connect_reaches_the_same_files},
    {"lifecycle/connect_to_nothing_is_null", 0, connect_to_nothing_is_null},
    {"lifecycle/freeing_a_handle_does_not_kill", 0, freeing_a_handle_does_not_kill},
    {"lifecycle/closing_the_provider_does_not_kill", PAI_CAP_DURABLE,
	closing_the_provider_does_not_kill},
    {"list/filters_by_metadata", 0, list_filters_by_metadata},
    {"list/tells_what_was_given", 0, list_tells_what_was_given},
    {"probe/provisions_nothing", 0, probe_provisions_nothing},
    {"probe/answers_afresh", 0, probe_answers_afresh},
    {"ttl/an_expired_sandbox_is_gone", 0, an_expired_sandbox_is_gone},
    {"ttl/keep_alive_extends", 0, keep_alive_extends},
    {"ttl/keep_alive_never_shortens", 0, keep_alive_never_shortens},
    {"ttl/keep_alive_gives_no_deadline_to_one_without", 0,
	keep_alive_gives_no_deadline_to_one_without},
    {"kill/every_call_is_not_found", 0, after_kill_every_call_is_not_found},
    {"kill/connect_is_null", 0, after_kill_connect_is_null},
    {"kill/it_is_not_listed", 0, after_kill_it_is_not_listed},
    {"kill/twice_is_fine", 0, kill_twice_is_fine},
    {"kill/leaves_the_others_alone", 0, kill_leaves_the_others_alone},
    {"kill/ends_a_running_command", PAI_CAP_COMMANDS, kill_ends_a_running_command},
    {"pause/is_listed_and_connect_resumes", PAI_CAP_PAUSE, pause_is_listed_and_connect_resumes},
    {"pause/a_paused_sandbox_can_be_killed", PAI_CAP_PAUSE, a_paused_sandbox_can_be_killed},
    {"pause/without_the_claim_it_is_unsupported", 0, without_the_claim_pause_is_unsupported},
    {NULL, 0, NULL},
};
