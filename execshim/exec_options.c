#include "execshim/exec_options.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "execshim/units.h"
#include "providers/base/auto.h"

const char pai_exec_help[] =
    "usage: pai-exec [OPTIONS] [--] CMD [ARG...]\n"
    "       pai-exec [OPTIONS] -c STRING [NAME [ARG...]]\n"
    "\n"
    "Runs a command in the sandbox of the session that you stand in (a directory of a\n"
    "paifs mount), in the same directory there. Streams, signals and the exit status are\n"
    "the command's own. Nothing ever runs on this machine instead.\n"
    "\n"
    "  -c STRING            run STRING with sh -c\n"
    "  -s, --session KEY    the session KEY, from anywhere\n"
    "  -n, --name NAME      the daemon NAME (default: the mount's; outside one, 'default',\n"
    "                       else the only one that has a mount); NAME@USER: another user's,\n"
    "                       who has named you with -o control_uid=\n"
    "  -C, --cwd DIR        run in DIR: a path in the sandbox, or one into the mount\n"
    "  -e, --env VAR[=VAL]  pass a variable; nothing is passed unless named\n"
    "  -t, --tty            give the command a terminal\n"
    "  -T, --no-tty         none (the default)\n"
    "      --timeout DUR    kill the command after DUR (30, 1.5s, 200ms, 5m, 1h)\n"
    "      --max-output SIZE  kill it after SIZE bytes of output (64K, 10M)\n"
    "      --detach         print its process id once it runs, and leave it running\n"
    "      --status-fd N    write one JSON object about the outcome to descriptor N\n"
    "      --run ID         part of the run ID: seeds are checked once for each (default:\n"
    "                       $PAI_RUN)\n"
    "      --no-retry       don't start again when the sandbox was lost before any output\n"
    "  -q, --quiet          don't say that the environment was reset\n"
    "  -h, --help           this text\n"
    "  -V, --version        the version\n"
    "\n"
    "exit status: the command's (128+n for signal n); 124 --timeout passed; 125 paifs refused\n"
    "or failed (nothing ran, or the outcome is unknown: stderr says which); 126 could not be\n"
    "executed; 127 not found. Only --status-fd tells these from a command's own 124-127.\n"
    "\n"
    "example: cd ~/pai/thread-42/proj && pai-exec make test\n"
    "         pai-exec -s thread-42 -e LANG -c 'ls | wc -l'\n";

enum {
	OPT_TIMEOUT = 256,
	OPT_MAX_OUTPUT,
	OPT_DETACH,
	OPT_STATUS_FD,
	OPT_NO_RETRY,
	OPT_RUN,
};
static const char short_options[] = "+:c:s:n:C:e:tTqhV";
static const struct option long_options[] = {
    {"session", required_argument, NULL, 's'},
    {"name", required_argument, NULL, 'n'},
    {"cwd", required_argument, NULL, 'C'},
    {"env", required_argument, NULL, 'e'},
    {"tty", no_argument, NULL, 't'},
    {"no-tty", no_argument, NULL, 'T'},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"max-output", required_argument, NULL, OPT_MAX_OUTPUT},
    {"detach", no_argument, NULL, OPT_DETACH},
    {"status-fd", required_argument, NULL, OPT_STATUS_FD},
    {"no-retry", no_argument, NULL, OPT_NO_RETRY},
    {"run", required_argument, NULL, OPT_RUN},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

void pai_exec_options_fini(struct pai_exec_options *o)
{
	pai_strmap_fini(&o->env);
	free(o->argv);
	o->argv = NULL;
}

static int add_env(struct pai_exec_options *o, const char *text, struct pai_err *err)
{
	size_t len = strcspn(text, "=");
	pai_auto_free char *name = strndup(text, len);
	const char *value;
	int r;

	if (!name) {
		return pai_err_no_memory(err);
	}
	if (len == 0) {
		return pai_err_set(err, PAI_E_INPUT, "-e '%s': expected VAR or VAR=VALUE", text);
	}
	value = text[len] == '=' ? text + len + 1 : getenv(name);
	/* Named, but not set here: not set there. */
	r = value ? pai_strmap_set(&o->env, name, value) : 0;
	if (r == -EMSGSIZE) {
		return pai_err_set(err, PAI_E_INPUT, "-e: more than %d variables", PAI_STRMAP_MAX);
	}
	return r < 0 ? pai_err_no_memory(err) : 0;
}

static int set_status_fd(struct pai_exec_options *o, const char *text, struct pai_err *err)
{
	char *end;
	long fd = strtol(text, &end, 10);
	int flags = text[0] && !*end && fd >= 0 && fd <= 1 << 20 ? fcntl((int)fd, F_GETFL) : -1;

	if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) {
		return pai_err_set(err, PAI_E_INPUT,
		    "--status-fd '%s': expected the number of a descriptor open for writing", text);
	}
	o->status_fd = (int)fd;
	return 0;
}

static int take_option(struct pai_exec_options *o, int option, struct pai_err *err)
{
	switch (option) {
	case 's':
		o->target.key = optarg;
		return 0;
	case 'n':
		o->target.daemon = optarg;
		return 0;
	case 'C':
		o->target.dir = optarg;
		return 0;
	case 'e':
		return add_env(o, optarg, err);
	case 't':
	case 'T':
		o->tty = option == 't';
		return 0;
	case 'q':
		o->quiet = true;
		return 0;
	case OPT_DETACH:
		o->detach = true;
		return 0;
	case OPT_NO_RETRY:
		o->no_retry = true;
		return 0;
	case OPT_RUN:
		o->target.run = optarg;
		return 0;
	case OPT_STATUS_FD:
		return set_status_fd(o, optarg, err);
	case OPT_TIMEOUT:
		return pai_duration_parse(optarg, &o->timeout_ms)
			   ? 0
			   : pai_err_set(err, PAI_E_INPUT,
				 "--timeout '%s': expected a duration like 30, 1.5s, 200ms, 5m, 1h",
				 optarg);
	case OPT_MAX_OUTPUT:
		return pai_size_parse(optarg, &o->max_output_bytes)
			   ? 0
			   : pai_err_set(err, PAI_E_INPUT,
				 "--max-output '%s': expected a size like 4096, 64K, 10M", optarg);
	default:
		return pai_err_set(err, PAI_E_INTERNAL, "option %d", option);
	}
}

/* What getopt could not take: it is named, with where to read on. */
static int bad_option(int kind, char **argv, struct pai_err *err)
{
	const char *word = argv[optind - 1];
	bool is_long = word && strncmp(word, "--", 2) == 0;
	char letter[3] = {'-', (char)optopt, '\0'};
	const char *name = is_long || optopt == 0 ? word : letter;

	if (kind == ':') {
		return pai_err_set(err, PAI_E_INPUT, "option '%s' needs a value (see --help)",
		    is_long ? word : letter);
	}
	return pai_err_set(err, PAI_E_INPUT,
	    "unknown option '%s'; the command comes after the options, or after -- (see --help)",
	    name);
}

/* argv of the sandbox: sh -c STRING NAME ARG..., or what was given. */
static int set_argv(
    struct pai_exec_options *o, char *shell_string, char **rest, struct pai_err *err)
{
	static char sh[] = "sh";
	static char dash_c[] = "-c";
	size_t count = 0;
	size_t at = 0;

	while (rest[count]) {
		count++;
	}
	if (count == 0 && !shell_string) {
		return pai_err_set(
		    err, PAI_E_INPUT, "no command given: pai-exec [OPTIONS] CMD [ARG...]");
	}
	o->argv = calloc(count + 4, sizeof(*o->argv));
	if (!o->argv) {
		return pai_err_no_memory(err);
	}
	if (shell_string) {
		o->argv[at++] = sh;
		o->argv[at++] = dash_c;
		o->argv[at++] = shell_string;
	}
	memcpy(o->argv + at, rest, count * sizeof(*rest));
	return 0;
}

int pai_exec_options_parse(int argc, char **argv, struct pai_exec_options *ret, struct pai_err *err)
{
	char *shell_string = NULL;
	int option;

	*ret = (struct pai_exec_options){.status_fd = -1};
	optind = 0; /* glibc: start anew, for tests */
	opterr = 0;
	while ((option = getopt_long(argc, argv, short_options, long_options, NULL)) != -1) {
		int r = 0;

		if (option == 'h' || option == 'V') {
			ret->mode = option == 'h' ? PAI_EXEC_HELP : PAI_EXEC_VERSION;
			return 0;
		}
		if (option == 'c') {
			shell_string = optarg;
		} else {
			r = option == '?' || option == ':' ? bad_option(option, argv, err)
							   : take_option(ret, option, err);
		}
		if (r < 0) {
			return r;
		}
	}
	if (ret->detach && ret->tty) {
		return pai_err_set(err, PAI_E_INPUT, "--detach and -t exclude each other");
	}
	return set_argv(ret, shell_string, argv + optind, err);
}
