#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "providers/base/clock.h"
#include "providers/session/options.h"
#include "providers/session/told.h"
#include "tests/unit/session/world.h"

/* --- the JSON of a create program --- */

static enum pai_errcode parse(const char *text, struct pai_create_options *o)
{
	struct pai_err err = PAI_ERR_INIT;
	int r = pai_create_options_parse(o, text, strlen(text), "paiSessionKey", &err);

	cr_assert_eq(r, -err.errnum);
	return err.code;
}

Test(create_program, every_field_is_taken)
{
	pai_auto_create_options struct pai_create_options o = {.template_name = NULL};

	cr_assert_eq(parse("{\"template\":\"t\",\"ttl\":60000,\"metadata\":{\"a\":\"b\"},"
			   "\"env\":{\"C\":\"d\"},\"network\":\"allowlist\",\"allow\":[\"x.y\"],"
			   "\"resources\":{\"cpuMillis\":500,\"memoryBytes\":1048576,\"pids\":9,"
			   "\"diskBytes\":7}}",
			 &o),
	    PAI_OK);
	cr_assert_str_eq(o.template_name, "t");
	cr_assert_eq(o.ttl_ms, 60000);
	cr_assert_str_eq(pai_strmap_get(&o.metadata, "a"), "b");
	cr_assert_str_eq(pai_strmap_get(&o.env, "C"), "d");
	cr_assert_eq(o.access, PAI_NETWORK_ALLOWLIST);
	cr_assert_eq(o.allow_count, 1);
	cr_assert_str_eq(o.allow[0], "x.y");
	cr_assert_eq(o.resources.cpu_millis, 500);
	cr_assert_eq(o.resources.memory_bytes, 1048576);
	cr_assert_eq(o.resources.pids, 9);
	cr_assert_eq(o.resources.disk_bytes, 7);
}

Test(create_program, what_it_does_not_say_stays_as_it_was)
{
	pai_auto_create_options struct pai_create_options o = {
	    .ttl_ms = 5, .access = PAI_NETWORK_FULL};

	cr_assert_eq(parse("{\"template\":\"t\"}", &o), PAI_OK);
	cr_assert_eq(o.ttl_ms, 5);
	cr_assert_eq(o.access, PAI_NETWORK_FULL);
}

Test(create_program, anything_else_is_input_and_changes_nothing)
{
	static const char *const bad[] = {
	    "",
	    "[]",
	    "{",
	    "{} {}",
	    "nonsense",
	    "{\"templat\":\"t\"}",
	    "{\"template\":1}",
	    "{\"template\":\"\"}",
	    "{\"ttl\":\"5m\"}",
	    "{\"ttl\":-1}",
	    "{\"ttl\":1.5}",
	    "{\"ttl\":1e300}",
	    "{\"metadata\":{\"a\":1}}",
	    "{\"metadata\":null}",
	    "{\"metadata\":{\"paiSessionKey\":\"other\"}}",
	    "{\"metadata\":{\"paiNetwork\":\"none\"}}",
	    "{\"metadata\":{\"paiTemplate\":\"x\"}}",
	    "{\"env\":[\"A=b\"]}",
	    "{\"network\":\"open\"}",
	    "{\"network\":true}",
	    "{\"allow\":[\"x\"]}",
	    "{\"network\":\"full\",\"allow\":[\"x\"]}",
	    "{\"network\":\"allowlist\",\"allow\":\"x\"}",
	    "{\"network\":\"allowlist\",\"allow\":[1]}",
	    "{\"network\":\"allowlist\",\"allow\":null}",
	    "{\"resources\":{\"cpus\":1}}",
	    "{\"resources\":{\"pids\":4294967296}}",
	    "{\"resources\":[]}",
	    "{\"template\":\"t\",\"template\":\"u\"}",
	};

	for (size_t i = 0; i < PAI_COUNT(bad); i++) {
		pai_auto_create_options struct pai_create_options o = {.ttl_ms = 77};

		cr_expect_eq(parse(bad[i], &o), PAI_E_INPUT, "%s", bad[i]);
		cr_expect_eq(o.ttl_ms, 77, "%s", bad[i]);
		cr_expect_null(o.template_name, "%s", bad[i]);
	}
}

/* --- labels --- */

Test(labels, the_order_of_an_allow_list_does_not_matter)
{
	pai_auto_create_options struct pai_create_options a = {.ttl_ms = 0}, b = {.ttl_ms = 0},
							  c = {.ttl_ms = 0};
	pai_auto_strmap struct pai_strmap labels = PAI_STRMAP_INIT;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(parse("{\"network\":\"allowlist\",\"allow\":[\"x\",\"y\"]}", &a), PAI_OK);
	cr_assert_eq(parse("{\"network\":\"allowlist\",\"allow\":[\"y\",\"x\"]}", &b), PAI_OK);
	cr_assert_eq(parse("{\"network\":\"allowlist\",\"allow\":[\"xy\"]}", &c), PAI_OK);
	cr_assert_eq(pai_create_options_label(&a, "paiSessionKey", "k", &labels, &err), 0);
	cr_assert_eq(pai_create_options_check(&b, "id", &labels, &err), 0);
	cr_assert_eq(pai_create_options_check(&c, "id", &labels, &err), -EPERM);
	cr_assert_eq(err.code, PAI_E_POLICY_MISMATCH);
}

Test(labels, another_template_is_a_mismatch)
{
	pai_auto_create_options struct pai_create_options a = {.ttl_ms = 0}, b = {.ttl_ms = 0};
	pai_auto_strmap struct pai_strmap labels = PAI_STRMAP_INIT;
	struct pai_err err = PAI_ERR_INIT;

	cr_assert_eq(parse("{\"template\":\"t\"}", &a), PAI_OK);
	cr_assert_eq(pai_create_options_label(&a, "paiSessionKey", "k", &labels, &err), 0);
	cr_assert_eq(pai_create_options_check(&a, "id", &labels, &err), 0);
	cr_assert_eq(pai_create_options_check(&b, "id", &labels, &err), -EPERM);
}

/* --- running one --- */

static struct world w;
static char dir[] = "/tmp/pai-program-XXXXXX";
static char program[64];

static void up(void)
{
	cr_assert_not_null(mkdtemp(dir));
	(void)snprintf(program, sizeof(program), "%s/create", dir);
	world_init(&w);
	w.options.create_program = program;
	world_start(&w);
}

static void down(void)
{
	world_fini(&w);
	(void)unlink(program);
	(void)rmdir(dir);
}
TestSuite(create_program_run, .init = up, .fini = down, .timeout = 30);

static void write_program(const char *body)
{
	FILE *f = fopen(program, "w");

	cr_assert_not_null(f);
	(void)fprintf(f, "#!/bin/sh\n%s\n", body);
	(void)fclose(f);
	cr_assert_eq(chmod(program, 0700), 0);
}

Test(create_program_run, its_options_are_used_and_it_gets_the_key)
{
	char id[PAI_ID_MAX + 1];

	write_program("printf '{\"template\":\"for-%s\"}' \"$1\"");
	cr_assert_eq(acquire(w.m, "k 1", 0, id), PAI_OK);
	cr_assert_str_eq(w.fake.last_template, "for-k 1");
	cr_assert_str_eq(pai_strmap_get(&w.fake.boxes[0].metadata, "paiTemplate"), "for-k 1");
}

Test(create_program_run, its_failures_are_told_and_nothing_is_made)
{
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_E_UNAVAILABLE, "there is none");
	write_program("exit 3");
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_E_UNAVAILABLE);
	write_program("echo nonsense");
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_E_INPUT);
	write_program("cat /dev/zero");
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_E_INPUT);
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 0);
}

Test(create_program_run, one_that_hangs_ends_at_the_creations_deadline)
{
	static const char *const bodies[] = {"exec sleep 600", "exec >&-; exec sleep 600"};
	char id[PAI_ID_MAX + 1];

	world_stop(&w);
	w.options.create_timeout_ms = 100;
	world_start(&w);
	for (size_t i = 0; i < 2; i++) {
		write_program(bodies[i]);
		cr_assert_eq(acquire(w.m, "k", 0, id), PAI_E_TIMEOUT, "%s", bodies[i]);
	}
}

/* --- terms: what pai create says of one key --- */

static enum pai_errcode create(const char *key, const char *options)
{
	struct pai_session *s = handle_of(w.m, key);
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	struct pai_env *e = NULL;

	(void)!pai_session_acquire(
	    s, PAI_ACQUIRE_REVIVE | PAI_ACQUIRE_VERIFY, options, &call, &e, &err);
	pai_env_unref(e);
	pai_session_unref(s);
	return err.code;
}

static void restart(void)
{
	world_stop(&w);
	world_start(&w);
}

Test(create_program_run, what_is_given_lies_over_it)
{
	write_program("printf '{\"template\":\"theirs\",\"network\":\"full\"}'");
	cr_assert_eq(create("k", "{\"network\":\"none\"}"), PAI_OK);
	cr_assert_str_eq(w.fake.last_template, "theirs");
	cr_assert_str_eq(pai_strmap_get(&w.fake.boxes[0].metadata, "paiNetwork"), "none");
	cr_assert_eq(create("other", "{\"template\":\"mine\"}"), PAI_OK);
	cr_assert_str_eq(w.fake.last_template, "mine");
	cr_assert_str_eq(pai_strmap_get(&w.fake.boxes[1].metadata, "paiNetwork"), "full");
}

static void bare_up(void)
{
	world_init(&w);
	world_start(&w);
}

static void bare_down(void)
{
	world_fini(&w);
}
TestSuite(terms, .init = bare_up, .fini = bare_down, .timeout = 30);

Test(terms, are_kept_until_the_key_is_killed)
{
	char id[PAI_ID_MAX + 1];
	size_t killed;

	cr_assert_eq(create("k", "{\"network\":\"full\",\"template\":\"t\"}"), PAI_OK);
	restart();
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK, "found again as it was made");
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 1);
	cr_assert_eq(reset(w.m, "k"), PAI_OK);
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_str_eq(w.fake.last_template, "t");
	cr_assert_str_eq(pai_strmap_get(&w.fake.boxes[1].metadata, "paiNetwork"), "full");
	cr_assert_eq(dispose(w.m, "k", &killed), PAI_OK);
	cr_assert_eq(create("k", NULL), PAI_OK);
	cr_assert_str_eq(pai_strmap_get(&w.fake.boxes[2].metadata, "paiNetwork"), "none");
}

Test(terms, another_network_or_template_of_a_live_one_is_a_mismatch)
{
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_eq(create("k", "{\"network\":\"full\"}"), PAI_E_POLICY_MISMATCH);
	cr_assert_eq(create("k", "{\"template\":\"t\"}"), PAI_E_POLICY_MISMATCH);
	cr_assert_eq(create("k", "{\"sessionKeyMetadata\":\"x\"}"), PAI_E_POLICY_MISMATCH);
	restart();
	cr_assert_eq(create("k", "{\"network\":\"full\"}"), PAI_E_POLICY_MISMATCH);
	cr_assert_eq(create("k", "{\"network\":\"none\",\"ttl\":5}"), PAI_OK);
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK, "a refusal leaves nothing");
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 1);
}

Test(terms, later_ones_lie_over_earlier_ones)
{
	cr_assert_eq(create("k", "{\"network\":\"full\",\"env\":{\"A\":\"1\",\"B\":\"2\"},"
				 "\"metadata\":{\"m\":\"1\"}}"),
	    PAI_OK);
	cr_assert_eq(create("k", "{\"env\":{\"B\":\"3\"},\"metadata\":{\"n\":\"2\"}}"), PAI_OK);
	fake_vanish(&w.fake, w.fake.boxes[0].id);
	cr_assert_eq(create("k", NULL), PAI_OK);
	cr_assert_str_eq(pai_strmap_get(&w.fake.boxes[1].metadata, "m"), "1");
	cr_assert_str_eq(pai_strmap_get(&w.fake.boxes[1].metadata, "n"), "2");
	cr_assert_str_eq(pai_strmap_get(&w.fake.boxes[1].metadata, "paiNetwork"), "full");
}

Test(terms, lifetime_deadline_and_label_are_the_keys_own)
{
	struct pai_session *s;
	size_t killed;

	cr_assert_eq(create("k", "{\"keepaliveTtl\":7777,\"createTimeout\":8888,"
				 "\"sessionKeyMetadata\":\"thread\"}"),
	    PAI_OK);
	cr_assert_eq(w.fake.last_ttl_ms, 7777);
	cr_assert_str_eq(pai_strmap_get(&w.fake.boxes[0].metadata, "thread"), "k");
	cr_assert_null(pai_strmap_get(&w.fake.boxes[0].metadata, "paiSessionKey"));
	cr_assert_eq(create("k", "{\"keepaliveTtl\":9999}"), PAI_OK);
	cr_assert_eq(w.fake.last_ttl_ms, 9999, "at once");
	restart();
	s = handle_of(w.m, "k");
	cr_assert_eq(pai_session_create_timeout(s, NULL), 8888);
	cr_assert_eq(pai_session_create_timeout(s, "{\"createTimeout\":5}"), 5);
	pai_session_unref(s);
	cr_assert_eq(create("k", NULL), PAI_OK);
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 1);
	cr_assert_eq(dispose(w.m, "k", &killed), PAI_OK);
	cr_assert_eq(killed, 1);
}

Test(terms, a_sandbox_with_that_label_is_adopted)
{
	pai_auto_strmap struct pai_strmap labels = PAI_STRMAP_INIT;

	cr_assert_eq(pai_strmap_set(&labels, "thread", "k"), 0);
	cr_assert_eq(pai_strmap_set(&labels, PAI_NETWORK_METADATA, "none"), 0);
	(void)fake_add(&w.fake, "theirs", &labels);
	cr_assert_eq(create("k", "{\"sessionKeyMetadata\":\"thread\"}"), PAI_OK);
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 0);
}

Test(terms, what_is_wrong_is_input_and_makes_nothing)
{
	static const char *const bad[] = {
	    "",
	    "[]",
	    "{\"nosuch\":1}",
	    "{\"keepaliveTtl\":0}",
	    "{\"keepaliveTtl\":\"5m\"}",
	    "{\"createTimeout\":-1}",
	    "{\"sessionKeyMetadata\":\"\"}",
	    "{\"create\":1}",
	    "{\"allow\":[\"x\"]}",
	    "{\"metadata\":{\"paiSessionKey\":\"x\"}}",
	    "{\"sessionKeyMetadata\":\"x\",\"metadata\":{\"x\":\"y\"}}",
	};

	for (size_t i = 0; i < PAI_COUNT(bad); i++) {
		cr_expect_eq(create("k", bad[i]), PAI_E_INPUT, "%s", bad[i]);
	}
	cr_assert_eq(w.fake.calls[FAKE_CREATE], 0);
	cr_assert_eq(create("k", NULL), PAI_OK, "nothing of it is kept");
}

/* --- told --- */

static bool ask(struct pai_told *t, uint32_t sid, const char *id, const char *before)
{
	struct pai_told_entry caller = {.key = "k", .sid = sid, .sid_started = 7};
	struct pai_session_identity last = {.sandbox_id = ""};

	(void)snprintf(caller.identity.sandbox_id, sizeof(last.sandbox_id), "%s", id);
	(void)snprintf(last.sandbox_id, sizeof(last.sandbox_id), "%s", before ? before : "");
	return pai_told_ask(t, &caller, before ? &last : NULL);
}

Test(told, a_caller_is_told_once_of_each_change)
{
	struct pai_told t;

	pai_told_init(&t);
	cr_assert_not(ask(&t, 1, "a", NULL), "a first caller of a first environment");
	cr_assert_not(ask(&t, 1, "a", NULL));
	cr_assert(ask(&t, 1, "b", "b"));
	cr_assert_not(ask(&t, 1, "b", "a"));
	pai_told_fini(&t);
}

Test(told, a_caller_never_seen_is_compared_with_the_last_command)
{
	struct pai_told t;

	pai_told_init(&t);
	cr_assert(ask(&t, 1, "b", "a"));
	cr_assert_not(ask(&t, 2, "b", "b"));
	pai_told_fini(&t);
}

Test(told, the_least_recent_is_forgotten_first)
{
	struct pai_told t;

	pai_told_init(&t);
	for (uint32_t sid = 0; sid < PAI_TOLD_MAX; sid++) {
		(void)ask(&t, sid, "a", NULL);
	}
	(void)ask(&t, 0, "a", NULL);
	(void)ask(&t, PAI_TOLD_MAX, "a", NULL);
	cr_assert_eq(t.count, PAI_TOLD_MAX);
	cr_assert(ask(&t, 0, "b", NULL), "remembered: it asked lately");
	cr_assert_not(ask(&t, 1, "b", NULL), "forgotten");
	pai_told_fini(&t);
}
