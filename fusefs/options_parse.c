/*
 * The command line and the configuration file. Both become a list of (name, value) first: the
 * instance's name decides which file is read, the provider decides which options exist, and either
 * may stand anywhere.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <string.h>

#include "fusefs/options.h"
#include "providers/base/auto.h"
#include "providers/base/buf.h"
#include "providers/base/key.h"
#include "providers/base/path.h"
#include "providers/base/printable.h"

#define CONFIG_MAX_BYTES (1u << 20)

struct item {
	char *name;
	char *value; /* NULL: no '=' */
	int line;    /* of the configuration file; 0: command line */
};
struct items {
	struct item *list;
	size_t count;
};

static void items_fini(struct items *items)
{
	for (size_t i = 0; i < items->count; i++) {
		free(items->list[i].name);
		free(items->list[i].value);
	}
	free(items->list);
}

static int items_add(
    struct items *items, const char *name, const char *value, int line, struct pai_err *err)
{
	struct item item = {.name = strdup(name), .value = value ? strdup(value) : NULL, line};
	struct item *grown = reallocarray(items->list, items->count + 1, sizeof(*grown));

	if (grown) {
		items->list = grown;
	}
	if (!grown || !item.name || (value && !item.value)) {
		free(item.name);
		free(item.value);
		return pai_err_no_memory(err);
	}
	items->list[items->count++] = item;
	return 0;
}

/* The last one given, as the later wins. */
static const char *items_get(const struct items *items, const char *name)
{
	for (size_t i = items->count; i-- > 0;) {
		if (strcmp(items->list[i].name, name) == 0) {
			return items->list[i].value ? items->list[i].value : "";
		}
	}
	return NULL;
}

/* "a,b=c\,d": a comma inside a value is escaped, as mount(8) does. */
static int add_list(struct items *items, const char *list, struct pai_err *err)
{
	pai_auto_buf struct pai_buf word = PAI_BUF_INIT(CONFIG_MAX_BYTES);

	for (const char *p = list;; p++) {
		char *equals = NULL;

		if (*p == '\\' && (p[1] == ',' || p[1] == '\\')) {
			p++;
		} else if (*p == ',' || *p == '\0') {
			equals = word.len ? strchr(word.data, '=') : NULL;
			if (equals) {
				*equals = '\0';
			}
			if (word.len &&
			    items_add(items, word.data, equals ? equals + 1 : NULL, 0, err) < 0) {
				return -err->errnum;
			}
			pai_buf_clear(&word);
			if (*p == '\0') {
				return 0;
			}
			continue;
		}
		if (pai_buf_add(&word, p, 1) < 0) {
			return pai_err_no_memory(err);
		}
	}
}

/* --- configuration file --- */

static char *trim(char *s)
{
	size_t n = 0;

	s += strspn(s, " \t\r");
	n = strlen(s);
	while (n > 0 && strchr(" \t\r", s[n - 1])) {
		s[--n] = '\0';
	}
	return s;
}

static int add_config_text(struct items *items, char *text, struct pai_err *err)
{
	int number = 0;
	char *next = text;

	while (next) {
		char *line = next;
		char *equals = NULL;

		next = strchr(line, '\n');
		if (next) {
			*next++ = '\0';
		}
		number++;
		line = trim(line);
		if (*line == '\0' || *line == '#') {
			continue;
		}
		equals = strchr(line, '=');
		if (equals) {
			*equals = '\0';
		}
		if (items_add(items, trim(line), equals ? trim(equals + 1) : NULL, number, err) <
		    0) {
			return -err->errnum;
		}
	}
	return 0;
}

/* *ret_path: where it lies or would lie. A missing file is an empty one. */
static int read_config(const char *name, struct items *items, char **ret_path, struct pai_err *err)
{
	pai_auto_free char *dir = NULL;
	pai_auto_fd int fd = -1;
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(CONFIG_MAX_BYTES);
	pai_auto_free char *path = NULL;

	if (pai_config_dir(&dir, PAI_ERR_IGNORED()) < 0) {
		return 0; /* no home, no configuration */
	}
	if (asprintf(&path, "%s/%s.conf", dir, name) < 0) {
		path = NULL;
		return pai_err_no_memory(err);
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
		return 0;
	}
	if (fd < 0) {
		return pai_err_sys(err, "open '%s'", path);
	}
	if (pai_buf_fill(&text, fd, err) < 0) {
		return pai_err_wrap(err, "read '%s'", path);
	}
	if (text.len && strlen(text.data) != text.len) {
		return pai_err_set(err, PAI_E_INPUT, "'%s' is not text", path);
	}
	*ret_path = PAI_TAKE(path);
	return text.len ? add_config_text(items, text.data, err) : 0;
}

/* --- the command line --- */

struct command_line {
	struct items items;
	const char *positional[3]; /* PROVIDER, [HOST[:DIR]], MOUNTPOINT */
	size_t positional_count;
};

static int read_argv(
    int argc, char **argv, struct command_line *line, struct pai_options *ret, struct pai_err *err)
{
	static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
	    {"version", no_argument, NULL, 'V'}, {"no-mount", no_argument, NULL, 'M'},
	    {"name", required_argument, NULL, 'n'}, {"foreground", no_argument, NULL, 'f'},
	    {"debug", no_argument, NULL, 'd'}, {NULL, 0, NULL, 0}};
	int c = 0;
	int r = 0;

	optind = 0; /* a fresh start: tests call this more than once */
	opterr = 0;
	while (r == 0 && (c = getopt_long(argc, argv, "+:o:n:fdhV", longs, NULL)) != -1) {
		switch (c) {
		case 'h':
			ret->show = PAI_SHOW_HELP;
			break;
		case 'V':
			ret->show = PAI_SHOW_VERSION;
			break;
		case 'M':
			ret->no_mount = true;
			break;
		case 'n':
			r = items_add(&line->items, "name", optarg, 0, err);
			break;
		case 'f':
			ret->foreground = true;
			break;
		case 'd':
			ret->debug = ret->foreground = true;
			break;
		case 'o':
			r = add_list(&line->items, optarg, err);
			break;
		case ':':
			r = pai_err_set(err, PAI_E_INPUT, "'%s': expected a value after it",
			    pai_printable(argv[optind - 1]));
			break;
		default:
			r = pai_err_set(err, PAI_E_INPUT,
			    "unknown argument '%s': `paifs --help` lists them",
			    pai_printable(argv[optind - 1]));
			break;
		}
	}
	return r;
}

/* Options may stand before, between and after the words: mount(8) puts them last. */
static int read_command_line(
    int argc, char **argv, struct command_line *line, struct pai_options *ret, struct pai_err *err)
{
	while (argc > 0) {
		int r = read_argv(argc, argv, line, ret, err);

		if (r < 0) {
			return r;
		}
		argc -= optind;
		argv += optind;
		if (argc == 0) {
			break;
		}
		if (line->positional_count == PAI_COUNT(line->positional)) {
			return pai_err_set(err, PAI_E_INPUT,
			    "'%s' is one argument too many: expected PROVIDER MOUNTPOINT",
			    pai_printable(argv[0]));
		}
		line->positional[line->positional_count++] = argv[0];
		/* What is left starts with the word just taken, in the place of a program's name.
		 */
	}
	return 0;
}

/* --- names --- */

int pai_options_unknown_provider(const char *name, struct pai_err *err)
{
	char list[256] = "";

	for (const char *const *p = pai_provider_names(); *p; p++) {
		size_t used = strlen(list);

		(void)snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "", *p);
	}
	return pai_err_set(err, PAI_E_INPUT,
	    "unknown provider '%s': expected %s, or the path of a shared object",
	    pai_printable(name), list);
}

static int set_provider(struct pai_options *o, const char *given, struct pai_err *err)
{
	/* mount(8) may pass the source as it is shown in the mount table. */
	const char *name = strncmp(given, "paifs#", 6) == 0 ? given + 6 : given;

	if (strchr(name, '/')) {
		o->provider = realpath(name, NULL);
		return o->provider ? 0 : pai_err_sys(err, "provider '%s'", pai_printable(name));
	}
	for (const char *const *p = pai_provider_names(); *p; p++) {
		if (strcmp(name, *p) == 0) {
			o->provider = strdup(name);
			return o->provider ? 0 : pai_err_no_memory(err);
		}
	}
	return pai_options_unknown_provider(name, err);
}

int pai_options_place(const char *given, char **ret, struct pai_err *err)
{
	pai_auto_free char *copy = strdup(given);
	pai_auto_free char *dir = NULL;
	char *base = NULL;
	size_t n = strlen(given);

	if (!copy) {
		return pai_err_no_memory(err);
	}
	while (n > 1 && copy[n - 1] == '/') {
		copy[--n] = '\0';
	}
	*ret = realpath(copy, NULL);
	if (*ret) {
		return 0;
	}
	base = strrchr(copy, '/');
	if (base) {
		*base++ = '\0';
	}
	dir = realpath(!base ? "." : *copy ? copy : "/", NULL);
	if (!dir || n == 0) {
		errno = n == 0 ? ENOENT : errno;
		return pai_err_sys(err, "'%s'", pai_printable(given));
	}
	if (asprintf(ret, "%s%s%s", dir, strcmp(dir, "/") == 0 ? "" : "/", base ? base : copy) <
	    0) {
		*ret = NULL;
		return pai_err_no_memory(err);
	}
	return 0;
}

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == '-';
}

static int check_name(const char *name, struct pai_err *err)
{
	size_t n = 0;

	while (is_name_char(name[n])) {
		n++;
	}
	if (n == 0 || n > PAI_OPTIONS_NAME_MAX || name[n] != '\0' || name[0] == '.') {
		return pai_err_set(err, PAI_E_INPUT,
		    "name=%s: expected at most %d letters, digits, '-', '_' or '.', not first a "
		    "'.'",
		    pai_printable(name), PAI_OPTIONS_NAME_MAX);
	}
	return 0;
}

/* The same mount gets the same name again, so that a restarted daemon finds its sessions. */
static int derive_name(struct pai_options *o, const char *provider, struct pai_err *err)
{
	char hex[2 * PAI_SHA256_BYTES + 1];
	char base[25] = "";
	const char *slash = strrchr(provider, '/');
	const char *last = strrchr(o->mountpoint, '/');
	size_t n = 0;

	for (const char *p = last + 1; *p && n < sizeof(base) - 1; p++) {
		base[n++] = is_name_char(*p) ? *p : '_';
	}
	pai_sha256_hex(o->mountpoint, strlen(o->mountpoint), hex);
	if (asprintf(&o->name, "%.24s-%s-%.8s", slash ? slash + 1 : provider, base, hex) < 0) {
		o->name = NULL;
		return pai_err_no_memory(err);
	}
	for (char *p = o->name; *p; p++) {
		*p = is_name_char(*p) ? *p : '_';
	}
	return 0;
}

static int set_name(struct pai_options *o, const struct command_line *line, struct pai_err *err)
{
	const char *given = items_get(&line->items, "name");

	if (!given && o->no_mount) {
		given = "default";
	}
	if (!given) {
		return derive_name(o, line->positional[0], err);
	}
	o->name = strdup(given);
	return o->name ? check_name(given, err) : pai_err_no_memory(err);
}

static int apply(
    struct pai_options *o, const struct items *items, const char *path, struct pai_err *err)
{
	for (size_t i = 0; i < items->count; i++) {
		const struct item *item = &items->list[i];
		bool is_name = strcmp(item->name, "name") == 0;

		if (item->line && (is_name || strcmp(item->name, "provider") == 0)) {
			if (is_name && (!item->value || strcmp(item->value, o->name) != 0)) {
				return pai_err_set(err, PAI_E_INPUT,
				    "%s:%d: name: the file's own name is the instance's", path,
				    item->line);
			}
			continue;
		}
		if (!is_name && pai_options_set(o, item->name, item->value, err) < 0) {
			return item->line ? pai_err_wrap(err, "%s:%d", path, item->line)
					  : -err->errnum;
		}
	}
	return 0;
}

static void default_choice(int *field, int value)
{
	*field = *field < 0 ? value : *field;
}

static int finish(struct pai_options *o, struct pai_err *err)
{
	bool local = strcmp(o->provider, "local") == 0;
	/* Commands there are the user's own: its repositories are no more foreign than here. */
	bool trusts = local || strcmp(o->provider, "ssh") == 0;

	default_choice(&o->coherence, 0);
	default_choice(&o->symlinks, local ? 1 : 0);
	default_choice(&o->git, trusts ? 1 : 0);
	default_choice(&o->special, 0);
	default_choice(&o->writes, 0);
	default_choice(&o->helper, 0);
	/* The server opens files as its own user: who else may, the kernel alone can tell. */
	o->default_permissions |= o->allow_other;
	/* There it is the provider's as well: what would be put on a host. */
	if (o->helper == 1 && strcmp(o->provider, "ssh") == 0 &&
	    pai_strmap_set(&o->provider_options, "helper", "off") < 0) {
		return pai_err_no_memory(err);
	}
	return pai_options_create_check(&o->create, err);
}

/* "[USER@]HOST[:DIR]" of the one provider that is somewhere: its options host and root. */
static int set_place(struct pai_options *o, const char *text, struct pai_err *err)
{
	/* A colon inside of brackets belongs to an address. */
	const char *bracket = text[0] == '[' || strstr(text, "@[") ? strchr(text, ']') : NULL;
	const char *colon = strchr(bracket ? bracket : text, ':');
	pai_auto_free char *host = colon ? strndup(text, (size_t)(colon - text)) : strdup(text);
	int r;

	if (!host) {
		return pai_err_no_memory(err);
	}
	r = pai_strmap_set(&o->provider_options, "host", host);
	if (r == 0 && colon && colon[1]) {
		r = pai_strmap_set(&o->provider_options, "root", colon + 1);
	}
	return r < 0 ? pai_err_no_memory(err) : 0;
}

/* Which word is what: two are PROVIDER MOUNTPOINT, of three the second is the provider's. */
static int sort_words(
    const struct pai_options *o, struct command_line *line, const char **ret, struct pai_err *err)
{
	size_t most = PAI_COUNT(line->positional) - o->no_mount;
	bool has_place = line->positional_count == most;
	const char *first = line->positional[0];

	*ret = has_place ? line->positional[1] : NULL;
	if (has_place && strcmp(first, "ssh") != 0) {
		return o->no_mount
			   ? pai_err_set(err, PAI_E_INPUT, "'%s': --no-mount takes no mount point",
				 pai_printable(line->positional[1]))
			   : pai_err_set(err, PAI_E_INPUT,
				 "'%s' is one argument too many: expected PROVIDER "
				 "MOUNTPOINT",
				 pai_printable(line->positional[2]));
	}
	if (line->positional_count < 2 && !o->no_mount) {
		return pai_err_set(
		    err, PAI_E_INPUT, "expected PROVIDER MOUNTPOINT: see `paifs --help`");
	}
	if (line->positional_count > most) {
		return pai_err_set(err, PAI_E_INPUT, "'%s': --no-mount takes no mount point",
		    pai_printable(line->positional[most]));
	}
	return 0;
}

static int parse_all(
    struct pai_options *o, struct command_line *line, struct items *config, struct pai_err *err)
{
	pai_auto_free char *path = NULL;
	const char *provider = line->positional[0];
	const char *place = NULL;

	if (sort_words(o, line, &place, err) < 0) {
		return -err->errnum;
	}
	if (!o->no_mount && pai_options_place(line->positional[line->positional_count - 1],
				&o->mountpoint, err) < 0) {
		return pai_err_wrap(err, "mount point");
	}
	if (set_name(o, line, err) < 0 || read_config(o->name, config, &path, err) < 0) {
		return -err->errnum;
	}
	provider = provider ? provider : items_get(config, "provider");
	if (!provider) {
		return pai_err_set(err, PAI_E_INPUT,
		    "expected PROVIDER, or provider= in the configuration file %s.conf", o->name);
	}
	if (set_provider(o, provider, err) < 0 || apply(o, config, path, err) < 0 ||
	    (place && set_place(o, place, err) < 0) || apply(o, &line->items, "", err) < 0) {
		return -err->errnum;
	}
	return finish(o, err);
}

int pai_options_parse(int argc, char **argv, struct pai_options *ret, struct pai_err *err)
{
	struct command_line line = {.positional_count = 0};
	struct items config = {.count = 0};
	int r = 0;

	pai_options_init(ret);
	r = read_command_line(argc, argv, &line, ret, err);
	if (r == 0 && ret->show == PAI_SHOW_HELP && line.positional[0]) {
		ret->help_topic = strdup(line.positional[0]);
	}
	if (r == 0 && ret->show == PAI_SHOW_NOTHING) {
		r = parse_all(ret, &line, &config, err);
	}
	items_fini(&line.items);
	items_fini(&config);
	if (r < 0) {
		pai_options_fini(ret);
	}
	return r;
}
