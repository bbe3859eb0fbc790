/* pai-conformance: the suites over one provider, from the command line. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "providers/base/auto.h"
#include "providers/base/json.h"
#include "providers/base/log.h"
#include "providers/base/printable.h"
#include "providers/conformance/suite.h"

#define EXIT_FOUND 1 /* a case failed */
#define EXIT_USAGE 2
#define DEFAULT_CALL_S 30

/* A further suite is a further line here. */
static const struct pai_conformance_suite *const suites[] = {
    &pai_provider_suite,
    &pai_session_suite,
    NULL,
};

static const char help[] =
    "usage: pai-conformance [options] PROVIDER\n"
    "\n"
    "Runs the conformance suites over a provider: a name (local, memory, ...) or the path of a\n"
    "shared object (./libmine.so). Prints TAP. Exit status: 0 every case passed or was skipped,\n"
    "1 a case failed, 2 it could not be run.\n"
    "\n"
    "  -o KEY=VALUE[,...]     options of the provider; KEY alone means KEY=1\n"
    "  --suite NAME           only that suite: provider or session\n"
    "  --filter PATTERN       only the cases whose name matches (a shell pattern)\n"
    "  --list                 print the names of the cases and end\n"
    "  --json                 one JSON object a line instead of TAP\n"
    "  --command NAME=TEXT    what runs instead of a POSIX recipe; NAME is one of helloStdout,\n"
    "                         stderrExit3, longRunning, printCwd, printEnvVar\n"
    "  --timeout SECONDS      deadline of one call (default 30); a case has four times that\n"
    "  --network full         make the sandboxes with network full (default: none, or full where\n"
    "                         none can't be had)\n"
    "  --break COMMAND        host command that makes the backend unreachable, and\n"
    "  --mend COMMAND         reachable again: for probe/answers_afresh\n"
    "  --in-process           cases run in this process, for a debugger\n"
    "  -h, --help             this text\n"
    "\n"
    "example: pai conformance memory\n"
    "         pai conformance ./libmine.so --suite provider --filter 'files/*'\n";

struct arguments {
	struct pai_conf_options options;
	struct pai_strmap provider_options;
	const char *create_bound;
	bool list;
};

static int usage(const char *what, const char *value)
{
	/* pai_printable() has rooms for several texts of one line. */
	(void)fprintf(stderr, "pai-conformance: %s%s%s (see --help)\n", pai_printable(what),
	    value ? ": " : "", value ? pai_printable(value) : "");
	return EXIT_USAGE;
}

/* The provider's own words, and JSON for who asked for it. */
static int failed(const struct arguments *a, const struct pai_err *err)
{
	pai_auto_json struct pai_json *object = a->options.json ? pai_json_object() : NULL;
	pai_auto_free char *text = NULL;

	if (object && pai_json_set(object, "error", pai_json_from_err(err)) == 0 &&
	    (text = pai_json_print_ascii(object))) {
		(void)printf("%s\n", text);
	}
	return usage(err->msg, NULL);
}

/* fstab style: A=1,B=2; a comma in a value is written "\,". */
static int add_options(struct pai_strmap *map, const char *text)
{
	pai_auto_free char *copy = strdup(text);
	char *to = copy;
	char *start = copy;
	int r = copy ? 0 : -ENOMEM;

	for (const char *p = text; r == 0; p++) {
		if (p[0] == '\\' && p[1] == ',') {
			*to++ = *++p;
			continue;
		}
		if (*p != ',' && *p != '\0') {
			*to++ = *p;
			continue;
		}
		*to = '\0';
		if (*start) {
			r = strchr(start, '=') ? pai_strmap_set_pair(map, start)
					       : pai_strmap_set(map, start, "1");
		}
		to = start = to + 1 <= copy + strlen(text) ? to + 1 : to;
		if (*p == '\0') {
			break;
		}
	}
	return r;
}

static bool set_command(struct pai_conf_commands *commands, const char *pair)
{
	const struct {
		const char *name;
		const char **to;
	} known[] = {
	    {"helloStdout=", &commands->hello_stdout},
	    {"stderrExit3=", &commands->stderr_exit3},
	    {"longRunning=", &commands->long_running},
	    {"printCwd=", &commands->print_cwd},
	    {"printEnvVar=", &commands->print_env_var},
	};

	for (size_t i = 0; i < PAI_COUNT(known); i++) {
		const size_t len = strlen(known[i].name);

		if (strncmp(pair, known[i].name, len) == 0) {
			*known[i].to = pair + len;
			return true;
		}
	}
	return false;
}

static bool set_timeout(struct pai_conf_options *options, const char *text)
{
	char *end;
	unsigned long seconds = strtoul(text, &end, 10);

	options->call_ms = (uint64_t)seconds * 1000;
	return *text >= '0' && *text <= '9' && *end == '\0' && seconds > 0 && seconds <= 3600;
}

enum {
	OPT_SUITE = 256,
	OPT_FILTER,
	OPT_LIST,
	OPT_JSON,
	OPT_COMMAND,
	OPT_TIMEOUT,
	OPT_NETWORK,
	OPT_BREAK,
	OPT_MEND,
	OPT_IN_PROCESS,
	OPT_CREATE_BOUND,
	OPT_HELP,
};
static const struct option long_options[] = {
    {"suite", required_argument, NULL, OPT_SUITE},
    {"filter", required_argument, NULL, OPT_FILTER},
    {"list", no_argument, NULL, OPT_LIST},
    {"json", no_argument, NULL, OPT_JSON},
    {"command", required_argument, NULL, OPT_COMMAND},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"network", required_argument, NULL, OPT_NETWORK},
    {"break", required_argument, NULL, OPT_BREAK},
    {"mend", required_argument, NULL, OPT_MEND},
    {"in-process", no_argument, NULL, OPT_IN_PROCESS},
    {"create-bound", required_argument, NULL, OPT_CREATE_BOUND}, /* for our own cases */
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

static bool is_suite(const char *name)
{
	for (size_t i = 0; suites[i]; i++) {
		if (strcmp(suites[i]->name, name) == 0) {
			return true;
		}
	}
	return false;
}

/* -1: go on; else the exit status. */
static int take_option(struct arguments *a, int option, char **argv)
{
	switch (option) {
	case 'o':
		return add_options(&a->provider_options, optarg) < 0
			   ? usage("-o expects KEY=VALUE[,KEY=VALUE...]", optarg)
			   : -1;
	case OPT_SUITE:
		a->options.suite = optarg;
		return is_suite(optarg) ? -1 : usage("no such suite", optarg);
	case OPT_FILTER:
		a->options.filter = optarg;
		return -1;
	case OPT_LIST:
		a->list = true;
		return -1;
	case OPT_JSON:
		a->options.json = true;
		return -1;
	case OPT_COMMAND:
		return set_command(&a->options.commands, optarg)
			   ? -1
			   : usage("--command expects helloStdout=, stderrExit3=, longRunning=, "
				   "printCwd= or printEnvVar=",
				 optarg);
	case OPT_TIMEOUT:
		return set_timeout(&a->options, optarg)
			   ? -1
			   : usage("--timeout expects seconds from 1 to 3600", optarg);
	case OPT_NETWORK:
		a->options.full_network = strcmp(optarg, "full") == 0;
		return a->options.full_network || strcmp(optarg, "none") == 0
			   ? -1
			   : usage("--network expects none or full", optarg);
	case OPT_BREAK:
		a->options.break_command = optarg;
		return -1;
	case OPT_MEND:
		a->options.mend_command = optarg;
		return -1;
	case OPT_IN_PROCESS:
		a->options.in_process = true;
		return -1;
	case OPT_CREATE_BOUND:
		a->create_bound = optarg;
		return -1;
	case 'h':
	case OPT_HELP:
		(void)fputs(help, stdout);
		return 0;
	case ':':
		return usage("no value for", argv[optind - 1]);
	default:
		return usage("unknown option", argv[optind - 1]);
	}
}

static int run(struct arguments *a)
{
	struct pai_conf_totals totals;
	struct pai_err err = PAI_ERR_INIT;

	if (a->list) {
		pai_conformance_list(suites, &a->options, stdout);
		return 0;
	}
	if (a->create_bound) {
		if (pai_conformance_create_bound(&a->options, a->create_bound, &err) < 0) {
			return failed(a, &err);
		}
		return 0;
	}
	if (pai_conformance_run(suites, &a->options, stdout, &totals, &err) < 0) {
		return failed(a, &err);
	}
	if (!a->options.json) {
		(void)printf("# %zu passed, %zu failed, %zu skipped\n", totals.passed,
		    totals.failed, totals.skipped);
	}
	return totals.failed > 0 ? EXIT_FOUND : 0;
}

int main(int argc, char **argv)
{
	struct arguments a = {
	    .options =
		{
		    .call_ms = DEFAULT_CALL_S * 1000,
		    .commands =
			{
			    .hello_stdout = "echo hello",
			    .stderr_exit3 = "echo oops >&2; exit 3",
			    .long_running = "sleep 30",
			    .print_cwd = "pwd",
			    .print_env_var = "printf '%s\\n' \"$PAI_CONFORMANCE\"",
			},
		},
	};
	int status = -1;
	int option;

	pai_log_init("pai-conformance");
	(void)signal(SIGPIPE, SIG_IGN);
	opterr = 0;
	while (status < 0 && (option = getopt_long(argc, argv, ":ho:", long_options, NULL)) != -1) {
		status = take_option(&a, option, argv);
	}
	if (status < 0 && !a.list && optind != argc - 1) {
		status = usage("expected exactly one provider", NULL);
	}
	if (status < 0) {
		a.options.provider = argv[optind];
		a.options.provider_options = &a.provider_options;
		status = run(&a);
	}
	pai_strmap_fini(&a.provider_options);
	if (fflush(stdout) != 0 && status == 0) {
		status = EXIT_USAGE;
	}
	return status;
}
