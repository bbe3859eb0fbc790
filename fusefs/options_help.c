/* The help texts: what a person needs first, then the table. */
#include <string.h>

#include "fusefs/options.h"
#include "providers/base/printable.h"

static const char usage[] =
    "usage: paifs PROVIDER MOUNTPOINT [-o OPTION,...] [-f] [-d]\n"
    "       paifs ssh [USER@]HOST[:DIR] MOUNTPOINT ...\n"
    "       paifs PROVIDER --no-mount [-n NAME] [-o OPTION,...]\n"
    "\n"
    "Mounts every sandbox's /workspace of PROVIDER as a directory below MOUNTPOINT and serves\n"
    "pai-exec and pai. `mkdir MOUNTPOINT/KEY` names a session; its sandbox is made on first use.\n"
    "\n"
    "example:\n"
    "  paifs local ~/pai -o host_commands   one directory per session; commands run on this host\n"
    "  paifs ssh me@box ~/pai               ... on another host, below ~/.local/state/paifs\n"
    "  cd ~/pai/thread-42 && pai-exec make  runs in the sandbox\n"
    "  fusermount3 -u ~/pai                 ends it; the sandboxes live on\n"
    "\n"
    "  -o OPTION,...   options, as below and in fstab (type fuse.paifs)\n"
    "  -n, --name NAME instance name; a mount derives one, --no-mount takes 'default'\n"
    "  -f              stay in the foreground\n"
    "  -d              foreground, with the trace of every request\n"
    "  --no-mount      commands and tools alone, where /dev/fuse is missing\n"
    "  -h, --help [PROVIDER]\n"
    "  -V, --version\n";

static void print_row(FILE *to, const char *name, const char *value, const char *meaning)
{
	char left[64];

	(void)snprintf(left, sizeof(left), "%s%s", name, value);
	fprintf(to, "  %-34s %s\n", left, meaning);
}

static void print_choices(FILE *to, const struct pai_option *p)
{
	char value[64] = "=";

	for (int i = 0; p->choices[i]; i++) {
		size_t used = strlen(value);

		(void)snprintf(
		    value + used, sizeof(value) - used, "%s%s", i ? "|" : "", p->choices[i]);
	}
	print_row(to, p->name, value, p->meaning);
}

static void print_table(FILE *to, bool creates)
{
	static const char *const values[] = {
	    [PAI_OPTION_FLAG] = "",
	    [PAI_OPTION_TEXT] = "=TEXT",
	    [PAI_OPTION_PATH] = "=PATH",
	    [PAI_OPTION_DURATION] = "=DURATION",
	    [PAI_OPTION_SIZE] = "=SIZE",
	    [PAI_OPTION_COUNT] = "=N",
	    [PAI_OPTION_MILLIS] = "=N",
	    [PAI_OPTION_MAP] = ".KEY=VALUE",
	    [PAI_OPTION_UIDS] = "=USER",
	    [PAI_OPTION_ALLOW] = "=HOST",
	};

	for (const struct pai_option *p = pai_option_table; p->name; p++) {
		if (!p->meaning || p->creates != creates) {
			continue;
		}
		if (p->kind == PAI_OPTION_CHOICE) {
			print_choices(to, p);
		} else {
			print_row(to, p->name, values[p->kind], p->meaning);
		}
	}
}

static int print_provider(FILE *to, const char *name, struct pai_err *err)
{
	const struct pai_option_doc *docs = pai_provider_option_docs(name);

	if (!docs) {
		return pai_options_unknown_provider(name, err);
	}
	fprintf(to, "options of the provider %s (-o NAME=VALUE,...):\n", pai_printable(name));
	for (; docs->name; docs++) {
		print_row(to, docs->name, "", docs->meaning);
	}
	return 0;
}

int pai_options_help(FILE *to, const char *topic, struct pai_err *err)
{
	if (topic && print_provider(to, topic, err) < 0) {
		return -err->errnum;
	}
	if (topic) {
		fprintf(to, "\nand those of every provider: `paifs --help`\n");
		return 0;
	}
	fprintf(to, "%s\nmount options:\n", usage);
	print_table(to, false);
	fprintf(to, "\noptions of new sandboxes (also of `pai create`):\n");
	print_table(to, true);
	fprintf(to, "\nproviders (`paifs --help PROVIDER` lists their own options):");
	for (const char *const *p = pai_provider_names(); *p; p++) {
		fprintf(to, " %s", *p);
	}
	fprintf(to,
	    "\nA shared object's path serves as PROVIDER too. ~/.config/paifs/NAME.conf holds\n"
	    "options, one per line; # begins a comment line; the command line wins.\n");
	return 0;
}
