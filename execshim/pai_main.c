/* pai: sessions, daemons and their state, for people and scripts. */
#include <stdio.h>
#include <string.h>

#include "execshim/pai_cmd.h"
#include "execshim/print.h"
#include "providers/base/json.h"
#include "providers/base/log.h"
#include "providers/base/printable.h"
#include "providers/base/version.h"

enum {
	EXIT_DONE = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_NOT_RUN = 125,
};

static void print_usage(FILE *to)
{
	(void)fprintf(to, "usage: pai [-n NAME] COMMAND [ARG...]\n\n");
	for (const struct pai_cmd *c = pai_cmd_table; c->name; c++) {
		(void)fprintf(to, "  %-12s %s\n", c->name, c->summary);
	}
	(void)fprintf(to,
	    "\n"
	    "  -n, --name NAME  the daemon (default: the mount's you stand in; outside one, "
	    "'default',\n"
	    "                   else the only one that has a mount); NAME@USER: another user's,\n"
	    "                   who has named you with -o control_uid=\n"
	    "  --json           JSON instead of text, an object a line, with every command;\n"
	    "                   a failure is {\"error\":{\"kind\",\"message\",...}}, and a line on "
	    "stderr\n"
	    "  -h, --help       this text, or with a command its own\n"
	    "  -V, --version    the version\n"
	    "\n"
	    "Exit status: 0 done, 1 failed, 2 not understood.\n"
	    "example: pai create thread-42 && pai status thread-42\n"
	    "         pai create --help\n");
}

static void print_help(const struct pai_cmd *c)
{
	printf("usage: pai [-n NAME] %s%s%s%s\n\n%s.\n%s", c->name, *c->synopsis ? " " : "",
	    c->synopsis, c->takes & PAI_TAKES_RAW ? "" : " [--json]", c->summary, c->help);
}

static int report(const struct pai_err *err, bool json, int code)
{
	pai_auto_json struct pai_json *object = json ? pai_json_object() : NULL;

	if (object && pai_json_set(object, "error", pai_json_from_err(err)) == 0) {
		(void)!pai_print_json(object, stdout);
	}
	(void)fprintf(
	    stderr, "pai: %s (%s)\n", pai_printable(err->msg), pai_errcode_name(err->code));
	return code;
}

/* A command line that was not understood: what it asked for all the same. */
static bool asks_json(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0) {
			return true;
		}
	}
	return false;
}

static int usage_error(const char *what, const char *word, bool json)
{
	struct pai_err err = PAI_ERR_INIT;
	char names[sizeof(err.msg)] = "";
	size_t len = 0;

	for (const struct pai_cmd *c = pai_cmd_table; c->name && len < sizeof(names); c++) {
		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s",
		    c == pai_cmd_table ? "" : ", ", c->name);
	}
	(void)pai_err_set(&err, PAI_E_INPUT, "%s '%s'; expected a command: %s", what, word, names);
	return report(&err, json, EXIT_USAGE);
}

static int flushed(int code)
{
	struct pai_err err = PAI_ERR_INIT;

	if (fflush(stdout) != 0 || ferror(stdout)) {
		(void)pai_err_sys(&err, "write to stdout");
		code = code ? code : report(&err, false, EXIT_FAILED);
	}
	return code;
}

static int run(const struct pai_cmd *cmd, const char *daemon, int argc, char **argv)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_args args;
	int code = EXIT_DONE;
	int r = pai_args_parse(cmd, argc, argv, &args, &err);

	args.daemon = args.daemon ? args.daemon : daemon;
	if (r < 0) {
		/* Of a program's own statuses these are the ones that are ours. */
		code = report(&err, args.json || asks_json(argc, argv),
		    cmd->takes & PAI_TAKES_USE ? EXIT_NOT_RUN : EXIT_USAGE);
	} else if (args.help) {
		print_help(cmd);
	} else {
		r = cmd->run(&args, &err);
		code = r >= 0 ? r
			      : report(&err, args.json,
				    cmd->takes & PAI_TAKES_USE ? EXIT_NOT_RUN : EXIT_FAILED);
	}
	pai_args_fini(&args);
	return flushed(code);
}

int main(int argc, char **argv)
{
	static char json_option[] = "--json";
	const char *daemon = NULL;
	const struct pai_cmd *cmd;
	bool json = false;
	int at = 1;

	pai_log_init("pai");
	while (at < argc && argv[at][0] == '-') {
		const char *word = argv[at];

		if (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0) {
			print_usage(stdout);
			return flushed(EXIT_DONE);
		}
		if (strcmp(word, "-V") == 0 || strcmp(word, "--version") == 0) {
			printf("pai " PAI_VERSION "\n");
			return flushed(EXIT_DONE);
		}
		if (strcmp(word, "--json") == 0) {
			json = true;
			at++;
			continue;
		}
		if (strcmp(word, "-n") != 0 && strcmp(word, "--name") != 0) {
			return usage_error("unknown option", word, asks_json(argc, argv));
		}
		if (at + 1 >= argc) {
			return usage_error("no NAME after", word, json);
		}
		daemon = argv[at + 1];
		at += 2;
	}
	if (at >= argc) {
		print_usage(stderr);
		return EXIT_USAGE;
	}
	cmd = pai_cmd_find(argv[at]);
	if (!cmd) {
		return usage_error("unknown command", argv[at], asks_json(argc, argv));
	}
	if (json) { /* as if it had been said of the command, which may be another program's */
		argv[at - 1] = argv[at];
		argv[at--] = json_option;
	}
	return run(cmd, daemon, argc - at, argv + at);
}
