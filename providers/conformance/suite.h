/*
 * suite: conformance, as data. A suite is a table of cases; each case runs in a process of its own
 * with a provider opened afresh, so that a provider that crashes, hangs or keeps state spoils one
 * case and is named by it. No test framework: whoever writes a provider runs `pai-conformance
 * ./libmine.so`.
 *
 * A case is a function that returns at its first failed check. What it makes through conf_create()
 * and conf_connect() is killed and freed after it.
 */
#ifndef PAI_CONFORMANCE_SUITE_H
#define PAI_CONFORMANCE_SUITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "providers/provider.h"

/* Every sandbox that a run makes carries this metadata, with a value of the run's own. */
#define PAI_CONF_METADATA "paiConformance"

struct pai_conf;
struct pai_conf_case {
	const char *name;                /* "group/what_is_claimed" */
	uint32_t needs;                  /* PAI_CAP_*: skipped, with the reason, without them */
	void (*run)(struct pai_conf *c); /* reports through pai_conf_fail() and pai_conf_skip() */
};
struct pai_conformance_suite {
	const char *name;
	const struct pai_conf_case *const *tables; /* ends with NULL; each with a NULL name */
};

/* What the suite runs (seed: SandboxConformanceCommands); NULL members get the POSIX recipe. */
struct pai_conf_commands {
	const char *hello_stdout;  /* prints "hello" on stdout, exit 0 */
	const char *stderr_exit3;  /* prints "oops" on stderr, exit 3 */
	const char *long_running;  /* runs at least 10 s unless killed */
	const char *print_cwd;     /* prints the working directory */
	const char *print_env_var; /* prints $PAI_CONFORMANCE */
};
struct pai_conf_options {
	const char *provider; /* name or path, for pai_provider_open() */
	const struct pai_strmap *provider_options;
	struct pai_conf_commands commands;
	const char *suite;         /* its name; NULL: all */
	const char *filter;        /* fnmatch(3) pattern over case names; NULL: all */
	bool full_network;         /* sandboxes are made with network full, not none */
	uint64_t call_ms;          /* deadline of one call; a case has four times that */
	const char *break_command; /* host commands that make the backend unreachable, and */
	const char *mend_command;  /* reachable again: for probe/answers_afresh. NULL: skipped */
	bool json;                 /* one JSON object a line instead of TAP */
	bool in_process;           /* no fork: for a debugger */
};
struct pai_conf_totals {
	size_t passed, failed, skipped;
};

extern const struct pai_conformance_suite pai_provider_suite;
extern const struct pai_conformance_suite pai_session_suite; /* the session manager over it */

/* The names that match the filter, one a line. */
void pai_conformance_list(const struct pai_conformance_suite *const suites[],
    const struct pai_conf_options *options, FILE *out);
/* `suites` ends with NULL. Fails only where it can't run at all; what the cases found is in
 * `totals`. */
int pai_conformance_run(const struct pai_conformance_suite *const suites[],
    const struct pai_conf_options *options, FILE *out, struct pai_conf_totals *totals,
    struct pai_err *err) PAI_WARN_UNUSED;
/* In a process that a case started: creates with `key`, prints the sandbox's id, exits. */
int pai_conformance_create_bound(
    const struct pai_conf_options *options, const char *key, struct pai_err *err) PAI_WARN_UNUSED;

#endif
