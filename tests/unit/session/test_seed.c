/* When environments are checked, and who is told what of it; what a check does is ledger's. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#include "providers/base/clock.h"
#include "tests/unit/session/world.h"

static struct world w;
static struct pai_session *session;
static char lock_dir[] = "/tmp/pai-seed-XXXXXX";

/* What the seeder does, as the test says. */
static atomic_int checks, running, most_running;
static atomic_bool holds;
static enum pai_errcode fails;
static pid_t program; /* its POSIX session while it is held */

static int check(void *arg, struct pai_session *s, struct pai_env *e,
    const struct pai_seed_round *round, struct pai_json **missing, struct pai_err *err)
{
	struct pai_call call = {.deadline_ms = pai_deadline_in(10000), .cancel = round->cancel};
	int now = atomic_fetch_add(&running, 1) + 1;
	int r = 0;

	(void)arg;
	(void)s;
	(void)e;
	if (now > most_running) {
		most_running = now;
	}
	checks++;
	if (program) {
		round->tell(round->arg, program);
	}
	while (r == 0 && holds) {
		r = pai_call_sleep(&call, pai_deadline_in(2), err);
	}
	round->tell(round->arg, 0);
	running--;
	if (r == 0 && fails != PAI_OK) {
		if (fails == PAI_E_SEED) {
			*missing = pai_json_array();
			cr_assert_eq(pai_json_push_str(*missing, "/workspace/a"), 0);
		}
		r = pai_err_set(err, fails, "as told");
	}
	return r;
}

static void up(void)
{
	static const struct pai_session_seeder seeder = {.check = check};

	world_init(&w);
	w.lock_dir = mkdtemp(lock_dir);
	w.options.seeder = &seeder;
	world_start(&w);
	session = handle_of(w.m, "k");
}

static void down(void)
{
	pai_session_unref(session);
	world_fini(&w);
	remove_dir(lock_dir);
}
TestSuite(seed, .init = up, .fini = down, .timeout = 30);

static int nothing(void *arg, struct pai_env *e, struct pai_err *err)
{
	(void)e;
	(void)err;
	if (arg) {
		++*(atomic_int *)arg;
	}
	return 0;
}

struct ask {
	pthread_t id;
	struct pai_seed_ask ask;
	uint64_t ms;
	bool exclusive;
	atomic_int ran;
	enum pai_errcode code;
	int errnum;
};

static void *use_in(void *arg)
{
	struct ask *a = arg;
	struct pai_use use = {.exclusive = a->exclusive, .seed = a->ask};
	struct pai_call call = {.deadline_ms = pai_deadline_in(a->ms ? a->ms : 10000)};
	struct pai_err err = PAI_ERR_INIT;
	bool was_reset = false;

	(void)!pai_session_use(session, &use, nothing, &a->ran, &call, &was_reset, &err);
	a->code = err.code;
	a->errnum = err.errnum;
	return NULL;
}

static enum pai_errcode use(const char *run)
{
	struct ask a = {.ask = {.run = run}};

	(void)use_in(&a);
	return a.code;
}

static void rest(uint64_t ms)
{
	(void)!pai_call_sleep(PAI_CALL_UNBOUNDED, pai_deadline_in(ms), PAI_ERR_IGNORED());
}

static void wait_checks(int n)
{
	for (int i = 0; i < 5000 && checks < n; i++) {
		rest(1);
	}
	cr_assert_geq(checks, n);
}

Test(seed, an_environment_is_checked_once_and_again_for_each_run)
{
	cr_assert_eq(use(NULL), PAI_OK);
	cr_assert_eq(use(""), PAI_OK);
	cr_assert_eq(checks, 1);
	cr_assert_eq(use("a"), PAI_OK);
	cr_assert_eq(use("a"), PAI_OK);
	cr_assert_eq(checks, 2);
	cr_assert_eq(use("b"), PAI_OK);
	cr_assert_eq(use("a"), PAI_OK);
	cr_assert_eq(checks, 3);
}

Test(seed, the_first_of_a_run_checks_a_new_environment_but_once)
{
	cr_assert_eq(use("a"), PAI_OK);
	cr_assert_eq(use(NULL), PAI_OK);
	cr_assert_eq(use("a"), PAI_OK);
	cr_assert_eq(checks, 1);
}

Test(seed, a_replacement_is_checked_as_well)
{
	cr_assert_eq(use("a"), PAI_OK);
	cr_assert_eq(reset(w.m, "k"), PAI_OK);
	cr_assert_eq(use("a"), PAI_OK);
	cr_assert_eq(checks, 2);
	cr_assert_eq(use("a"), PAI_OK);
	cr_assert_eq(checks, 2);
}

Test(seed, another_process_checks_for_itself)
{
	cr_assert_eq(use(NULL), PAI_OK);
	pai_session_unref(session);
	world_stop(&w);
	world_start(&w);
	session = handle_of(w.m, "k");
	cr_assert_eq(use(NULL), PAI_OK);
	cr_assert_eq(checks, 2);
}

Test(seed, looking_alone_checks_nothing)
{
	char id[PAI_ID_MAX + 1];

	cr_assert_eq(acquire(w.m, "k", PAI_ACQUIRE_LOOK, id), PAI_OK);
	cr_assert_eq(acquire(w.m, "k", 0, id), PAI_OK);
	cr_assert_eq(checks, 0);
}

Test(seed, parallel_operations_wait_for_the_one_check)
{
	struct ask a[8] = {0};

	holds = true;
	for (size_t i = 0; i < PAI_COUNT(a); i++) {
		a[i].ask.run = i % 2 ? "a" : NULL;
		a[i].ask.run = i == 0 ? "a" : a[i].ask.run;
		cr_assert_eq(pthread_create(&a[i].id, NULL, use_in, &a[i]), 0);
		wait_checks(1);
	}
	rest(50);
	for (size_t i = 0; i < PAI_COUNT(a); i++) {
		cr_assert_eq(a[i].ran, 0);
	}
	holds = false;
	for (size_t i = 0; i < PAI_COUNT(a); i++) {
		cr_assert_eq(pthread_join(a[i].id, NULL), 0);
		cr_assert_eq(a[i].code, PAI_OK);
		cr_assert_eq(a[i].ran, 1);
	}
	cr_assert_eq(checks, 1);
}

Test(seed, a_failure_is_told_to_the_one_whose_check_it_was)
{
	struct ask first = {.ask = {.run = "a"}}, second = {.ask = {.run = "a"}};
	struct pai_json *missing;

	fails = PAI_E_SEED;
	holds = true;
	cr_assert_eq(pthread_create(&first.id, NULL, use_in, &first), 0);
	wait_checks(1);
	cr_assert_eq(pthread_create(&second.id, NULL, use_in, &second), 0);
	rest(50);
	holds = false;
	cr_assert_eq(pthread_join(first.id, NULL), 0);
	cr_assert_eq(pthread_join(second.id, NULL), 0);
	cr_assert_eq(first.code, PAI_E_SEED);
	cr_assert_eq(first.errnum, EREMOTEIO);
	cr_assert_eq(first.ran, 0);
	cr_assert_eq(second.code, PAI_OK);
	missing = pai_session_missing(session);
	cr_assert_eq(pai_json_count(missing), 1);
	pai_json_free(missing);
	/* Later ones of the run go ahead, the next run checks. */
	cr_assert_eq(use("a"), PAI_OK);
	cr_assert_eq(use(NULL), PAI_OK);
	cr_assert_eq(checks, 1);
	fails = PAI_OK;
	cr_assert_eq(use("b"), PAI_OK);
	cr_assert_eq(checks, 2);
	cr_assert_null(pai_session_missing(session));
}

Test(seed, what_can_not_be_reached_is_checked_again_by_the_next)
{
	fails = PAI_E_UNAVAILABLE;
	cr_assert_eq(use("a"), PAI_E_UNAVAILABLE);
	cr_assert_eq(use("a"), PAI_E_UNAVAILABLE);
	cr_assert_eq(checks, 2);
	fails = PAI_OK;
	cr_assert_eq(use("a"), PAI_OK);
	cr_assert_eq(use("a"), PAI_OK);
	cr_assert_eq(checks, 3);
}

Test(seed, seeders_own_programs_are_refused_at_once)
{
	struct ask a = {.ask = {.run = "a"}}, own = {.ask = {.sid = 4711}},
		   other = {.ask = {.sid = 4712}, .ms = 100};

	program = 4711;
	holds = true;
	cr_assert_eq(pthread_create(&a.id, NULL, use_in, &a), 0);
	wait_checks(1);
	rest(20);
	(void)use_in(&own);
	cr_assert_eq(own.code, PAI_E_SYS);
	cr_assert_eq(own.errnum, EDEADLK);
	(void)use_in(&other);
	cr_assert_eq(other.code, PAI_E_TIMEOUT);
	holds = false;
	cr_assert_eq(pthread_join(a.id, NULL), 0);
	cr_assert_eq(a.code, PAI_OK);
}

Test(seed, one_that_waits_before_its_session_is_known_is_refused_too)
{
	struct ask a = {.ask = {.run = "a", .sid = 4711}};

	program = 4711;
	holds = true;
	(void)use_in(&a);
	cr_assert_eq(a.errnum, EDEADLK);
	holds = false;
}

Test(seed, a_check_goes_on_without_those_who_leave)
{
	struct ask a = {.ms = 100};

	holds = true;
	(void)use_in(&a);
	cr_assert_eq(a.code, PAI_E_TIMEOUT);
	holds = false;
	cr_assert_eq(use(NULL), PAI_OK);
	cr_assert_eq(checks, 1);
}

Test(seed, a_reset_ends_the_check_and_the_operation)
{
	struct ask a = {.ask = {.run = "a"}};

	holds = true;
	cr_assert_eq(pthread_create(&a.id, NULL, use_in, &a), 0);
	wait_checks(1);
	cr_assert_eq(reset(w.m, "k"), PAI_OK);
	cr_assert_eq(pthread_join(a.id, NULL), 0);
	cr_assert_eq(a.code, PAI_E_RESET); /* and is not done again */
	cr_assert_eq(a.ran, 0);
	holds = false;
	cr_assert_eq(use("a"), PAI_OK);
	cr_assert_eq(checks, 2);
}

Test(seed, a_kill_and_the_close_end_it_too)
{
	struct ask a = {.ask = {.run = "a"}};
	uint64_t began;
	size_t killed = 0;

	holds = true;
	cr_assert_eq(pthread_create(&a.id, NULL, use_in, &a), 0);
	wait_checks(1);
	cr_assert_eq(dispose(w.m, "k", &killed), PAI_OK);
	cr_assert_eq(pthread_join(a.id, NULL), 0);
	cr_assert_eq(a.code, PAI_E_RESET);
	pai_session_unref(session);
	session = handle_of(w.m, "other");
	cr_assert_eq(pthread_create(&a.id, NULL, use_in, &a), 0);
	wait_checks(2);
	began = pai_clock_ms();
	world_stop(&w);
	cr_assert_lt(pai_clock_ms() - began, 5000);
	cr_assert_eq(pthread_join(a.id, NULL), 0);
	cr_assert_neq(a.code, PAI_OK);
	holds = false;
	pai_session_unref(session);
	world_start(&w);
	session = handle_of(w.m, "other");
}

/* A use that has the turn may be what the check is for. */
Test(seed, an_exclusive_use_has_its_check)
{
	struct ask a = {.ask = {.run = "a"}, .exclusive = true};

	(void)use_in(&a);
	cr_assert_eq(a.code, PAI_OK);
	cr_assert_eq(a.ran, 1);
}

Test(seed, two_processes_check_one_after_the_other)
{
	struct pai_sessions *second = world_daemon(&w);
	struct pai_session *theirs = handle_of(second, "k");
	struct ask a = {.ask = {.run = NULL}};
	struct pai_call call = soon();
	struct pai_err err = PAI_ERR_INIT;
	struct pai_env *e = NULL;

	cr_assert_eq(pai_session_acquire(theirs, 0, NULL, &call, &e, &err), 0, "%s", err.msg);
	holds = true;
	cr_assert_eq(pthread_create(&a.id, NULL, use_in, &a), 0);
	wait_checks(1);
	call.deadline_ms = pai_deadline_in(200);
	cr_assert_lt(pai_session_seed(theirs, e, &(struct pai_seed_ask){0}, &call, &err), 0);
	cr_assert_eq(checks, 1);
	holds = false;
	call = soon();
	cr_assert_eq(pai_session_seed(theirs, e, &(struct pai_seed_ask){0}, &call, &err), 0);
	cr_assert_eq(pthread_join(a.id, NULL), 0);
	cr_assert_eq(checks, 2);
	cr_assert_eq(most_running, 1);
	pai_env_unref(e);
	pai_session_unref(theirs);
	pai_sessions_close(second, pai_deadline_in(10000));
}
