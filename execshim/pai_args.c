#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "execshim/pai_cmd.h"
#include "providers/base/buf.h"

enum {
	OPT_JSON = 256,
	OPT_SANDBOX,
	OPT_LIMIT,
	OPT_BEFORE,
	OPT_ALL,
	OPT_OFF,
	OPT_LISTEN,
	OPT_INPUT,
	OPT_STREAM,
	OPT_BATCH,
	OPT_SCHEMA,
	OPT_ROOT,
	OPT_INCLUDE,
	OPT_EXCLUDE,
	OPT_SCOPE,
	OPT_EXCLUSIVE,
	OPT_DRY_RUN,
};
static const struct option long_options[] = {
    {"name", required_argument, NULL, 'n'},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {"session", required_argument, NULL, 's'},
    {"options", required_argument, NULL, 'o'},
    {"sandbox", required_argument, NULL, OPT_SANDBOX},
    {"limit", required_argument, NULL, OPT_LIMIT},
    {"before", required_argument, NULL, OPT_BEFORE},
    {"all", no_argument, NULL, OPT_ALL},
    {"off", no_argument, NULL, OPT_OFF},
    {"listen", required_argument, NULL, OPT_LISTEN},
    {"input", required_argument, NULL, OPT_INPUT},
    {"stream", no_argument, NULL, OPT_STREAM},
    {"batch", no_argument, NULL, OPT_BATCH},
    {"schema", no_argument, NULL, OPT_SCHEMA},
    {"root", required_argument, NULL, OPT_ROOT},
    {"include", required_argument, NULL, OPT_INCLUDE},
    {"exclude", required_argument, NULL, OPT_EXCLUDE},
    {"scope", required_argument, NULL, OPT_SCOPE},
    {"exclusive", no_argument, NULL, OPT_EXCLUSIVE},
    {"dry-run", no_argument, NULL, OPT_DRY_RUN},
    {NULL, 0, NULL, 0},
};

void pai_args_fini(struct pai_args *a)
{
	pai_strmap_fini(&a->options);
}

/* The next piece up to an unescaped comma into `piece`; returns where the rest begins. */
static const char *next_piece(const char *text, struct pai_buf *piece, int *r)
{
	pai_buf_clear(piece);
	for (; *text && *text != ',' && *r == 0; text++) {
		text += text[0] == '\\' && text[1];
		*r = pai_buf_add(piece, text, 1);
	}
	return *text ? text + 1 : text;
}

int pai_args_add_options(struct pai_strmap *options, const char *text, struct pai_err *err)
{
	pai_auto_buf struct pai_buf piece = PAI_BUF_INIT(1u << 20);
	int r = 0;

	while (*text && r == 0) {
		text = next_piece(text, &piece, &r);
		if (r < 0 || piece.len == 0) {
			continue;
		}
		/* A bare word is a switch that is on, as in a mount's options. */
		r = strchr(piece.data, '=') ? pai_strmap_set_pair(options, piece.data)
					    : pai_strmap_set(options, piece.data, "");
		if (r == -EINVAL) {
			return pai_err_set(
			    err, PAI_E_INPUT, "-o '%s': expected NAME=VALUE", piece.data);
		}
	}
	return r == -EMSGSIZE ? pai_err_set(err, PAI_E_INPUT, "-o: too many options")
	       : r < 0        ? pai_err_no_memory(err)
			      : 0;
}

static unsigned takes_of(int option)
{
	switch (option) {
	case 's':
		return PAI_TAKES_SESSION;
	case 'o':
		return PAI_TAKES_OPTIONS;
	case OPT_SANDBOX:
		return PAI_TAKES_SANDBOX;
	case OPT_LIMIT:
	case OPT_BEFORE:
	case OPT_ALL:
		return PAI_TAKES_PAGE;
	case OPT_OFF:
		return PAI_TAKES_OFF;
	case OPT_LISTEN:
		return PAI_TAKES_LISTEN;
	case OPT_INPUT:
	case OPT_STREAM:
	case OPT_BATCH:
	case OPT_SCHEMA:
		return PAI_TAKES_CALL;
	case OPT_ROOT:
	case OPT_INCLUDE:
	case OPT_EXCLUDE:
		return PAI_TAKES_SERVE;
	case OPT_SCOPE:
		return PAI_TAKES_SCOPE;
	case OPT_EXCLUSIVE:
		return PAI_TAKES_USE;
	case OPT_DRY_RUN:
		return PAI_TAKES_PROGRAM;
	default:
		return 0;
	}
}

static int parse_count(const char *name, const char *text, int64_t *ret, struct pai_err *err)
{
	char *end;
	long long value = strtoll(text, &end, 10);

	if (!*text || *end || value < 1 || value > INT64_MAX / 2) {
		return pai_err_set(
		    err, PAI_E_INPUT, "%s '%s': expected a number from 1", name, text);
	}
	*ret = value;
	return 0;
}

static int take(struct pai_args *a, int option, struct pai_err *err)
{
	switch (option) {
	case 'n':
		a->daemon = optarg;
		return 0;
	case 'h':
		a->help = true;
		return 0;
	case 's':
		a->key = optarg;
		return 0;
	case 'o':
		return pai_args_add_options(&a->options, optarg, err);
	case OPT_JSON:
		a->json = true;
		return 0;
	case OPT_SANDBOX:
		a->sandbox = optarg;
		return 0;
	case OPT_LIMIT:
		return parse_count("--limit", optarg, &a->limit, err);
	case OPT_BEFORE:
		return parse_count("--before", optarg, &a->before, err);
	case OPT_ALL:
		a->all = true;
		return 0;
	case OPT_LISTEN:
		a->listen = optarg;
		return 0;
	case OPT_INPUT:
		a->input = optarg;
		return 0;
	case OPT_STREAM:
		a->stream = true;
		return 0;
	case OPT_BATCH:
		a->batch = true;
		return 0;
	case OPT_SCHEMA:
		a->schema = true;
		return 0;
	case OPT_ROOT:
		a->root = optarg;
		return 0;
	case OPT_INCLUDE:
		a->include = optarg;
		return 0;
	case OPT_EXCLUDE:
		a->exclude = optarg;
		return 0;
	case OPT_SCOPE:
		a->scope = optarg;
		return 0;
	case OPT_EXCLUSIVE:
		a->exclusive = true;
		return 0;
	case OPT_DRY_RUN:
		a->dry_run = true;
		return 0;
	default:
		a->off = true;
		return 0;
	}
}

static int refuse(
    const struct pai_cmd *cmd, const char *what, const char *word, struct pai_err *err)
{
	return pai_err_set(err, PAI_E_INPUT, "%s '%s'; expected: pai %s%s%s (see pai %s --help)",
	    what, word, cmd->name, *cmd->synopsis ? " " : "", cmd->synopsis, cmd->name);
}

/* What getopt stumbled over, as it was written. */
static int refuse_unknown(const struct pai_cmd *cmd, int option, char **argv, struct pai_err *err)
{
	char letter[3] = {'-', (char)optopt, '\0'};
	bool is_short = optopt > 0 && optopt < 256 && strncmp(argv[optind - 1], "--", 2) != 0;

	return refuse(cmd, option == ':' ? "no value for" : "unknown option",
	    is_short ? letter : argv[optind - 1], err);
}

/* An option of `pai` that this command has no use for. */
static int refuse_known(const struct pai_cmd *cmd, int option, struct pai_err *err)
{
	const struct option *o = long_options;
	char word[32];

	while (o->name && o->val != option) {
		o++;
	}
	(void)snprintf(word, sizeof(word), "--%s", o->name ? o->name : "");
	return refuse(cmd, "unknown option", word, err);
}

int pai_args_parse(
    const struct pai_cmd *cmd, int argc, char **argv, struct pai_args *ret, struct pai_err *err)
{
	const char *letters;
	int option;

	*ret = (struct pai_args){.words = argv + 1};
	if (cmd->takes & PAI_TAKES_RAW) {
		ret->word_count = (size_t)argc - 1;
		return 0;
	}
	optind = 0;
	opterr = 0;
	/* "+": what follows the first word is not ours. */
	letters = cmd->takes & (PAI_TAKES_USE | PAI_TAKES_PROGRAM) ? "+:n:hs:o:" : ":n:hs:o:";
	while ((option = getopt_long(argc, argv, letters, long_options, NULL)) != -1) {
		unsigned needs = takes_of(option);
		int r = 0;

		if (option == '?' || option == ':') {
			r = refuse_unknown(cmd, option, argv, err);
		} else if (needs && !(cmd->takes & needs)) {
			r = refuse_known(cmd, option, err);
		} else {
			r = take(ret, option, err);
		}
		if (r < 0) {
			return r;
		}
	}
	ret->words = argv + optind;
	ret->word_count = (size_t)(argc - optind);
	ret->has_dashes = optind > 1 && strcmp(argv[optind - 1], "--") == 0;
	if (ret->word_count > cmd->most_words && !ret->help && !ret->scope) {
		return refuse(cmd, "one word too many:", ret->words[cmd->most_words], err);
	}
	return 0;
}
