/*
 * The runner. A case's process is the leader of a group that is killed with it; its verdict comes
 * through a pipe as one struct, and a process that ends without one has crashed or been killed. A
 * last process sweeps what is left of the run, found by its metadata.
 */
#include "providers/conformance/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "providers/base/auto.h"
#include "providers/base/json.h"
#include "providers/base/printable.h"
#include "providers/conformance/conf.h"

#define CASE_CALLS 4 /* a case may take as long as this many calls */

static const struct pai_conf_case *const provider_tables[] = {
    pai_conf_lifecycle_cases,
    pai_conf_command_cases,
    pai_conf_file_cases,
    pai_conf_policy_cases,
    pai_conf_binding_cases,
    NULL,
};
const struct pai_conformance_suite pai_provider_suite = {
    .name = "provider",
    .tables = provider_tables,
};

struct verdict {
	enum pai_conf_verdict verdict;
	char message[sizeof(((struct pai_conf *)0)->message)];
	uint64_t ms;
};

/* --- one case --- */

static const struct {
	uint32_t cap;
	const char *name;
} cap_names[] = {
    {PAI_CAP_BINDING_KEYS, "binding keys"},
    {PAI_CAP_BINDING_PROCESSES, "binding keys among processes"},
    {PAI_CAP_PAUSE, "pause"},
    {PAI_CAP_COMMANDS, "commands (as configured)"},
    {PAI_CAP_DURABLE, "durable sandboxes"},
    {PAI_CAP_ISOLATED, "isolation"},
    {PAI_CAP_FULL_NETWORK, "network full"},
    {PAI_CAP_ALLOWLIST, "network allowlist"},
    {PAI_CAP_POSIX_SHELL, "a POSIX shell"},
};

static bool can(struct pai_conf *c, uint32_t needs)
{
	for (size_t i = 0; i < PAI_COUNT(cap_names); i++) {
		if (needs & ~c->caps & cap_names[i].cap) {
			pai_conf_skip(c, "the provider doesn't claim %s", cap_names[i].name);
			return false;
		}
	}
	return true;
}

/* Kills and frees what the case made; a kill that fails is a finding of its own. */
static void clean_up(struct pai_conf *c)
{
	for (size_t i = 0; i < c->count; i++) {
		struct pai_err err = PAI_ERR_INIT;

		if (pai_sandbox_kill(c->sandboxes[i], CONF_CALL(c), &err) < 0) {
			pai_conf_fail(c, "kill at the end of the case: %s (%s)", err.msg,
			    pai_errcode_name(err.code));
		}
	}
	for (size_t i = 0; i < c->count; i++) {
		pai_sandbox_free(c->sandboxes[i]);
	}
	c->count = 0;
}

static void run_here(const struct pai_conf_case *k, const struct pai_conf_options *options,
    const char *run_id, struct verdict *v)
{
	struct pai_conf c = {.options = options, .run_id = run_id};
	struct pai_err err = PAI_ERR_INIT;
	const uint64_t start = pai_clock_ms();

	if (pai_provider_open(options->provider, options->provider_options, &c.provider, &err) <
	    0) {
		pai_conf_fail(&c, "open: %s", err.msg);
	} else {
		c.caps = pai_provider_caps(c.provider);
		if (can(&c, k->needs)) {
			k->run(&c);
		}
		clean_up(&c);
		pai_provider_free(c.provider);
	}
	v->verdict = c.verdict;
	memcpy(v->message, c.message, sizeof(v->message));
	v->ms = pai_clock_ms() - start;
}

/* Waits for the case's verdict, then for its end; kills the group when its time is over. */
static void await(pid_t pid, int fd, uint64_t limit_ms, struct verdict *v)
{
	const struct pai_call call = {.deadline_ms = pai_deadline_in(limit_ms)};
	size_t got = 0;
	bool late = false;
	int status = 0;

	while (got < sizeof(*v) && !late) {
		ssize_t n = 0;

		late = pai_call_poll(&call, fd, POLLIN, PAI_ERR_IGNORED()) < 0;
		if (!late) {
			n = read(fd, (char *)v + got, sizeof(*v) - got);
		}
		if (n <= 0) {
			break;
		}
		got += (size_t)n;
	}
	(void)kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	if (got == sizeof(*v)) {
		return;
	}
	*v = (struct verdict){.verdict = PAI_CONF_FAILED, .ms = limit_ms};
	if (late) {
		(void)snprintf(v->message, sizeof(v->message),
		    "still running after %" PRIu64 " s: killed", limit_ms / 1000);
	} else if (WIFSIGNALED(status)) {
		(void)snprintf(v->message, sizeof(v->message), "the provider crashed: signal %d",
		    WTERMSIG(status));
	} else {
		(void)snprintf(v->message, sizeof(v->message), "the provider ended the process");
	}
}

/* Runs fn in a child. The parent's buffered output is flushed first, or it would come twice. */
static int run_case(const struct pai_conf_case *k, const struct pai_conf_options *options,
    const char *run_id, struct verdict *v, struct pai_err *err)
{
	int fds[2];
	pid_t pid;

	if (options->in_process) {
		run_here(k, options, run_id, v);
		return 0;
	}
	if (pipe2(fds, O_CLOEXEC) < 0) {
		return pai_err_sys(err, "pipe");
	}
	pid = fork();
	if (pid == 0) {
		(void)setpgid(0, 0);
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_here(k, options, run_id, v);
		_exit(write(fds[1], v, sizeof(*v)) == (ssize_t)sizeof(*v) ? 0 : 1);
	}
	(void)close(fds[1]);
	if (pid < 0) {
		(void)close(fds[0]);
		return pai_err_sys(err, "fork");
	}
	(void)setpgid(pid, pid);
	await(pid, fds[0], CASE_CALLS * options->call_ms, v);
	(void)close(fds[0]);
	return 0;
}

/* What cases that were killed left behind. */
static void sweep(struct pai_conf *c)
{
	pai_auto_strmap struct pai_strmap mine = PAI_STRMAP_INIT;
	pai_auto_sandbox_list struct pai_sandbox_list list = {0};
	struct pai_err err = PAI_ERR_INIT;
	size_t left;

	if (!pai_conf_metadata(c, NULL, &mine)) {
		return;
	}
	CONF_OK(c, pai_provider_list(c->provider, &mine, CONF_CALL(c), &list, &err), err, "list");
	left = list.count;
	for (size_t i = 0; i < left; i++) {
		struct pai_sandbox *sb = pai_conf_connect(c, list.items[i].sandbox_id);

		if (!sb || !pai_conf_kill(c, sb)) {
			return;
		}
	}
	CONF_CHECK(c, left == 0, "%zu sandboxes were left behind by the cases (killed now)", left);
}
static const struct pai_conf_case sweep_case = {.name = "run/leaves_nothing_behind", .run = sweep};

/* A provider that can't be opened is one error, not a failure of every case. It is opened in a
 * process too: threads that it starts must not be there when the cases are forked. */
static void open_only(struct pai_conf *c)
{
	(void)c;
}
static int check_open(
    const struct pai_conf_options *options, const char *run_id, struct pai_err *err)
{
	static const struct pai_conf_case open_case = {.name = "run/open", .run = open_only};
	struct verdict v = {0};
	int r = run_case(&open_case, options, run_id, &v, err);

	if (r == 0 && v.verdict == PAI_CONF_FAILED) {
		r = pai_err_set(err, PAI_E_INPUT, "%s", v.message);
	}
	return r;
}

/* --- reports --- */

static void report_json(
    FILE *out, const char *suite, const struct pai_conf_case *k, const struct verdict *v)
{
	static const char *const names[] = {
	    [PAI_CONF_PASSED] = "pass", [PAI_CONF_FAILED] = "fail", [PAI_CONF_SKIPPED] = "skip"};
	pai_auto_json struct pai_json *obj = pai_json_object();
	pai_auto_free char *text = NULL;
	int r = pai_json_set_str(obj, "suite", suite);

	r = r < 0 ? r : pai_json_set_str(obj, "case", k->name);
	r = r < 0 ? r : pai_json_set_str(obj, "result", names[v->verdict]);
	r = r < 0 ? r : pai_json_set_num(obj, "ms", (int64_t)v->ms);
	if (r == 0 && v->message[0]) {
		r = pai_json_set_str(obj, "message", v->message);
	}
	text = r < 0 ? NULL : pai_json_print_ascii(obj);
	(void)fprintf(out, "%s\n", text ? text : "{}");
}

static void report_tap(
    FILE *out, size_t number, const struct pai_conf_case *k, const struct verdict *v)
{
	(void)fprintf(
	    out, "%s %zu - %s", v->verdict == PAI_CONF_FAILED ? "not ok" : "ok", number, k->name);
	if (v->verdict == PAI_CONF_SKIPPED) {
		(void)fprintf(out, " # SKIP %s", pai_printable(v->message));
	}
	(void)fprintf(out, "\n");
	if (v->verdict == PAI_CONF_FAILED) {
		(void)fprintf(out, "#   %s\n", pai_printable(v->message));
	}
}

static void count(struct pai_conf_totals *totals, const struct verdict *v)
{
	totals->passed += v->verdict == PAI_CONF_PASSED;
	totals->failed += v->verdict == PAI_CONF_FAILED;
	totals->skipped += v->verdict == PAI_CONF_SKIPPED;
}

/* --- all of them --- */

static bool is_wanted(const struct pai_conf_options *options, const struct pai_conf_case *k)
{
	return !options->filter || fnmatch(options->filter, k->name, 0) == 0;
}

struct chosen {
	const char *suite;
	const struct pai_conf_case *k;
};

static bool choose_one(
    const char *suite, const struct pai_conf_case *k, struct chosen **all, size_t *count)
{
	struct chosen *bigger = realloc(*all, (*count + 1) * sizeof(*bigger));

	if (!bigger) {
		return false;
	}
	*all = bigger;
	bigger[(*count)++] = (struct chosen){suite, k};
	return true;
}

static bool choose_table(const char *suite, const struct pai_conf_case *table,
    const struct pai_conf_options *options, struct chosen **all, size_t *count)
{
	for (const struct pai_conf_case *k = table; k->name; k++) {
		if (is_wanted(options, k) && !choose_one(suite, k, all, count)) {
			return false;
		}
	}
	return true;
}

/* The cases that the options let through, in order, freed by the caller; NULL: none, or no
 * memory. */
static struct chosen *choose(const struct pai_conformance_suite *const suites[],
    const struct pai_conf_options *options, size_t *ret_count)
{
	struct chosen *all = NULL;
	size_t n = 0;

	for (size_t s = 0; suites[s]; s++) {
		if (options->suite && strcmp(options->suite, suites[s]->name) != 0) {
			continue;
		}
		for (size_t t = 0; suites[s]->tables[t]; t++) {
			if (!choose_table(
				suites[s]->name, suites[s]->tables[t], options, &all, &n)) {
				free(all);
				return NULL;
			}
		}
	}
	*ret_count = n;
	return all;
}

void pai_conformance_list(const struct pai_conformance_suite *const suites[],
    const struct pai_conf_options *options, FILE *out)
{
	size_t n = 0;
	pai_auto_free struct chosen *all = choose(suites, options, &n);

	for (size_t i = 0; all && i < n; i++) {
		(void)fprintf(out, "%s\n", all[i].k->name);
	}
}

static int run_one(const struct chosen *what, size_t number, const struct pai_conf_options *options,
    const char *run_id, FILE *out, struct pai_conf_totals *totals, struct pai_err *err)
{
	struct verdict v = {0};

	(void)fflush(out);
	if (run_case(what->k, options, run_id, &v, err) < 0) {
		return -err->errnum;
	}
	count(totals, &v);
	if (options->json) {
		report_json(out, what->suite, what->k, &v);
	} else {
		report_tap(out, number, what->k, &v);
	}
	return 0;
}

int pai_conformance_run(const struct pai_conformance_suite *const suites[],
    const struct pai_conf_options *options, FILE *out, struct pai_conf_totals *totals,
    struct pai_err *err)
{
	const struct chosen last = {"run", &sweep_case};
	size_t n = 0;
	pai_auto_free struct chosen *all = choose(suites, options, &n);
	uint64_t number;
	char run_id[24];

	if (!all) {
		return pai_err_set(err, PAI_E_INPUT, "no case matches '%s'",
		    options->filter ? options->filter : "*");
	}
	if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number)) {
		return pai_err_sys(err, "getrandom");
	}
	(void)snprintf(run_id, sizeof(run_id), "%016" PRIx64, number);
	*totals = (struct pai_conf_totals){0};
	if (check_open(options, run_id, err) < 0) {
		return -err->errnum;
	}
	if (!options->json) {
		(void)fprintf(out, "1..%zu\n", n + 1);
	}
	for (size_t i = 0; i < n; i++) {
		if (run_one(&all[i], i + 1, options, run_id, out, totals, err) < 0) {
			return -err->errnum;
		}
	}
	if (run_one(&last, n + 1, options, run_id, out, totals, err) < 0) {
		return -err->errnum;
	}
	(void)fflush(out);
	return 0;
}
