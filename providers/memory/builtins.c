/*
 * builtins: the commands of memory's shell that don't change the tree. They do what POSIX says as
 * far as the project's own recipes and tests ask for it, and refuse options that they don't know.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/auto.h"
#include "providers/memory/shell.h"

#define YES_CHUNK 4096
#define YES_PIPE_MAX (1u << 20) /* into a pipe, whose reader comes only afterwards */
#define STATUS_PIPE 141

int pai_builtin_fail(struct pai_buf *err, const char *name, const char *what, int r)
{
	(void)!pai_buf_printf(err, "%s: %s: %s\n", name, what, strerrordesc_np(-r));
	return 1;
}

static int usage(struct pai_buf *err, const char *name, const char *text)
{
	(void)!pai_buf_printf(err, "%s: %s\n", name, text);
	return 2;
}

/* A full output buffer: the text is cut and the status says so. */
static int status_of(int r)
{
	return r < 0 ? 1 : 0;
}

static int do_true(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	(void)sh, (void)argv, (void)out, (void)err;
	return 0;
}

static int do_false(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	(void)sh, (void)argv, (void)out, (void)err;
	return 1;
}

static int do_exit(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	(void)out, (void)err;
	sh->exiting = true;
	return argv[1] ? (int)(strtol(argv[1], NULL, 10) & 0xff) : sh->status;
}

static int do_echo(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	const bool no_newline = argv[1] && strcmp(argv[1], "-n") == 0;
	int r = 0;

	(void)sh, (void)err;
	for (char *const *v = argv + 1 + no_newline; r == 0 && *v; v++) {
		r = pai_buf_printf(out, "%s%s", *v, v[1] ? " " : "");
	}
	if (r == 0 && !no_newline) {
		r = pai_buf_add(out, "\n", 1);
	}
	return status_of(r);
}

/* --- printf --- */

/* The byte that an escape after a backslash stands for; moves past it. */
static char escaped(const char **p)
{
	static const char from[] = "abfnrtv\\\"'";
	static const char to[] = "\a\b\f\n\r\t\v\\\"'";
	const char *at = **p ? strchr(from, **p) : NULL;
	unsigned value = 0;
	int digits = 0;

	if (at) {
		(*p)++;
		return to[at - from];
	}
	while (digits < 3 && **p >= '0' && **p <= '7') {
		value = value * 8 + (unsigned)(*(*p)++ - '0');
		digits++;
	}
	return digits ? (char)value : '\\';
}

static int add_unescaped(struct pai_buf *out, const char *text)
{
	int r = 0;

	while (r == 0 && *text) {
		char c = *text++;

		if (c == '\\') {
			c = escaped(&text);
		}
		r = pai_buf_add(out, &c, 1);
	}
	return r;
}

/* One pass over the format; *args moves past what it took. -EINVAL for a conversion not known. */
static int add_formatted(struct pai_buf *out, const char *fmt, char *const **args)
{
	int r = 0;

	while (r == 0 && *fmt) {
		const char *arg = **args ? **args : "";
		char c = *fmt++;

		if (c == '\\') {
			c = escaped(&fmt);
		}
		if (c != '%' || fmt[-1] != '%') {
			r = pai_buf_add(out, &c, 1);
			continue;
		}
		switch (*fmt++) {
		case '%':
			r = pai_buf_add(out, "%", 1);
			continue;
		case 's':
			r = pai_buf_add_str(out, arg);
			break;
		case 'b':
			r = add_unescaped(out, arg);
			break;
		case 'd':
			r = pai_buf_printf(out, "%lld", strtoll(arg, NULL, 0));
			break;
		case 'o':
			r = pai_buf_printf(out, "%llo", strtoull(arg, NULL, 0));
			break;
		default:
			return -EINVAL;
		}
		*args += **args != NULL;
	}
	return r;
}

static int do_printf(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	char *const *args;
	char *const *before;
	int r;

	(void)sh;
	argv += argv[1] && strcmp(argv[1], "--") == 0;
	if (!argv[1]) {
		return usage(err, "printf", "a format is missing");
	}
	args = argv + 2;
	do {
		before = args;
		r = add_formatted(out, argv[1], &args);
	} while (r == 0 && *args && args != before);
	return r == -EINVAL ? usage(err, "printf", "only %s %b %d %o %% are supported")
			    : status_of(r);
}

/* --- text --- */

static int add_input(struct pai_shell *sh, const char *path, struct pai_buf *out)
{
	pai_auto_free char *full = NULL;
	struct pai_tree_node *n;
	int r;

	if (strcmp(path, "-") == 0) {
		return pai_buf_add(out, sh->in.data ? sh->in.data : "", sh->in.len);
	}
	full = pai_shell_path(sh, path);
	if (!full) {
		return -ENOMEM;
	}
	r = pai_tree_get(sh->tree, full, true, &n);
	if (r < 0) {
		return r;
	}
	if (!S_ISREG(n->mode)) {
		return S_ISDIR(n->mode) ? -EISDIR : -EINVAL;
	}
	return pai_buf_add(out, n->data ? n->data : "", n->size);
}

static int do_cat(struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	static char dash[] = "-";
	static char *const standard_input[] = {dash, NULL};
	int status = 0;

	argv += 1 + (argv[1] && strcmp(argv[1], "--") == 0);
	for (char *const *v = *argv ? argv : standard_input; *v; v++) {
		int r = add_input(sh, *v, out);

		if (r < 0) {
			status = pai_builtin_fail(err, "cat", *v, r);
		}
	}
	return status;
}

/* head [-n N | -c N] [FILE], wc -l|-c [FILE]. */
static int do_head(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(PAI_TREE_MAX_BYTES);
	const bool bytes = argv[1] && strncmp(argv[1], "-c", 2) == 0;
	const bool lines = argv[1] && strncmp(argv[1], "-n", 2) == 0;
	unsigned long left = 10;
	size_t n = 0;
	int r;

	if (bytes || lines) {
		const char *count = argv[1][2] ? argv[1] + 2 : argv[2];

		left = count ? strtoul(count, NULL, 10) : 0;
		argv += argv[1][2] || !argv[2] ? 1 : 2;
	}
	r = add_input(sh, argv[1] ? argv[1] : "-", &text);
	if (r < 0) {
		return pai_builtin_fail(err, "head", argv[1] ? argv[1] : "-", r);
	}
	while (n < text.len && left > 0) {
		left -= bytes || text.data[n] == '\n';
		n++;
	}
	return status_of(pai_buf_add(out, text.data ? text.data : "", n));
}

static int do_wc(struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(PAI_TREE_MAX_BYTES);
	const bool lines = argv[1] && strcmp(argv[1], "-l") == 0;
	size_t n = 0;
	int r;

	if (!lines && (!argv[1] || strcmp(argv[1], "-c") != 0)) {
		return usage(err, "wc", "only -l and -c are supported");
	}
	r = add_input(sh, argv[2] ? argv[2] : "-", &text);
	if (r < 0) {
		return pai_builtin_fail(err, "wc", argv[2] ? argv[2] : "-", r);
	}
	for (size_t i = 0; i < text.len; i++) {
		n += !lines || text.data[i] == '\n';
	}
	return status_of(pai_buf_printf(out, "%zu\n", n));
}

/* --- time --- */

/* "2", "0.5": in milliseconds; false for anything else. */
static bool parse_seconds(const char *text, uint64_t *ret_ms)
{
	char *end;
	double seconds;

	if (!isdigit((unsigned char)text[0]) && text[0] != '.') {
		return false;
	}
	seconds = strtod(text, &end);
	if (*end || seconds < 0 || seconds > 1e9) {
		return false;
	}
	*ret_ms = (uint64_t)(seconds * 1000);
	return true;
}

static int do_sleep(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	uint64_t ms;
	int r;

	(void)out;
	if (!argv[1] || !parse_seconds(argv[1], &ms)) {
		return usage(err, "sleep", "expected a number of seconds");
	}
	r = sh->host->sleep(sh->arg, ms);
	if (r < 0) {
		sh->stopped = r;
	}
	return 0;
}

static int do_yes(struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	const char *word = argv[1] ? argv[1] : "y";
	pai_auto_buf struct pai_buf chunk = PAI_BUF_INIT(PAI_TREE_MAX_BYTES);
	uint64_t sent = 0;
	int r = 0;

	(void)out, (void)err;
	while (r == 0 && chunk.len < YES_CHUNK) {
		r = pai_buf_printf(&chunk, "%s\n", word);
	}
	while (r == 0 && (sh->out->kind != PAI_SINK_PIPE || sent < YES_PIPE_MAX)) {
		/* The sleep of nothing is where a timeout or a cancel is noticed. */
		r = sh->host->sleep(sh->arg, 0);
		if (r < 0) {
			sh->stopped = r;
			break;
		}
		r = pai_shell_emit(sh, sh->out, chunk.data, chunk.len);
		sent += chunk.len;
	}
	return STATUS_PIPE;
}

/* --- environment and directory --- */

static int do_pwd(struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	(void)argv, (void)err;
	return status_of(pai_buf_printf(out, "%s\n", sh->cwd));
}

/* The directory's path from the root, as `pwd -P` writes it: the names are found from below. */
static char *path_of(const struct pai_tree_node *n)
{
	pai_auto_buf struct pai_buf path = PAI_BUF_INIT(PAI_TREE_MAX_BYTES);

	while (n->parent != n) {
		const struct pai_tree_node *up = n->parent;
		pai_auto_buf struct pai_buf longer = PAI_BUF_INIT(PAI_TREE_MAX_BYTES);
		struct pai_buf shorter = path;
		size_t i = 0;

		while (up->entries[i].node != n) {
			i++;
		}
		if (pai_buf_printf(
			&longer, "/%s%s", up->entries[i].name, path.data ? path.data : "") < 0) {
			return NULL;
		}
		path = longer;
		longer = shorter;
		n = up;
	}
	if (path.len == 0 && pai_buf_add(&path, "/", 1) < 0) {
		return NULL;
	}
	return pai_buf_take(&path);
}

static int do_cd(struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	pai_auto_free char *path = NULL;
	struct pai_tree_node *n;
	const char *name;
	int r = -ENOMEM;

	(void)out;
	argv += argv[1] && strcmp(argv[1], "--") == 0;
	name = argv[1] ? argv[1] : "/workspace";
	path = pai_shell_path(sh, name);
	if (path) {
		r = pai_tree_get(sh->tree, path, true, &n);
	}
	if (r == 0 && !S_ISDIR(n->mode)) {
		r = -ENOTDIR;
	}
	if (r < 0) {
		return pai_builtin_fail(err, "cd", name, r);
	}
	free(path);
	path = path_of(n);
	if (!path) {
		return pai_builtin_fail(err, "cd", name, -ENOMEM);
	}
	free(sh->cwd);
	sh->cwd = PAI_TAKE(path);
	return 0;
}

static int print_all(const struct pai_shell *sh, struct pai_buf *out)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < sh->vars.count; i++) {
		r = pai_buf_printf(
		    out, "%s=%s\n", sh->vars.entries[i].key, sh->vars.entries[i].value);
	}
	return status_of(r);
}

static int do_printenv(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	const char *value;

	(void)err;
	if (!argv[1]) {
		return print_all(sh, out);
	}
	value = pai_strmap_get(&sh->vars, argv[1]);
	return value ? status_of(pai_buf_printf(out, "%s\n", value)) : 1;
}

/* Every variable is exported here. */
static int do_export(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	(void)out;
	for (char *const *v = argv + 1; *v; v++) {
		if (strchr(*v, '=') && pai_strmap_set_pair(&sh->vars, *v) < 0) {
			return usage(err, "export", "expected NAME=VALUE");
		}
	}
	return 0;
}

/* env [-i] [NAME=VALUE]... [COMMAND [ARG]...] */
static int do_env(struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	pai_auto_strmap struct pai_strmap before = PAI_STRMAP_INIT;
	pai_auto_strmap struct pai_strmap inner = PAI_STRMAP_INIT;
	const bool empty = argv[1] && strcmp(argv[1], "-i") == 0;
	int r = empty ? 0 : pai_strmap_copy(&inner, &sh->vars);

	argv += 1 + empty;
	while (r == 0 && *argv && strchr(*argv, '=')) {
		r = pai_strmap_set_pair(&inner, *argv++);
	}
	if (r < 0) {
		return pai_builtin_fail(err, "env", "environment", r);
	}
	before = sh->vars;
	sh->vars = inner;
	inner = (struct pai_strmap)PAI_STRMAP_INIT;
	if (*argv) {
		pai_shell_exec(sh, argv);
		r = sh->status;
	} else {
		r = print_all(sh, out);
	}
	inner = sh->vars;
	sh->vars = before;
	before = (struct pai_strmap)PAI_STRMAP_INIT;
	return r;
}

/* sh -c LINE [NAME [PARAM]...]: directory, variables and exit stay inside. */
static int do_sh(struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	pai_auto_strmap struct pai_strmap vars = PAI_STRMAP_INIT;
	pai_auto_free char *cwd = NULL;
	struct pai_strmap during;
	char *there;

	(void)out;
	if (!argv[1] || strcmp(argv[1], "-c") != 0 || !argv[2]) {
		return usage(err, "sh", "expected -c LINE");
	}
	cwd = strdup(sh->cwd);
	if (!cwd || pai_strmap_copy(&vars, &sh->vars) < 0) {
		return pai_builtin_fail(err, "sh", "start", -ENOMEM);
	}
	pai_shell_eval(sh, argv[2], argv[3] ? argv + 4 : NULL);
	sh->exiting = false;
	during = sh->vars;
	sh->vars = vars;
	vars = during;
	there = sh->cwd;
	sh->cwd = cwd;
	cwd = there;
	return sh->status;
}

const struct pai_builtin pai_builtins[] = {
    {"true", do_true, true},
    {":", do_true, true},
    {"false", do_false, true},
    {"exit", do_exit, true},
    {"echo", do_echo, true},
    {"printf", do_printf, true},
    {"cat", do_cat, false},
    {"head", do_head, false},
    {"wc", do_wc, false},
    {"sleep", do_sleep, true},
    {"yes", do_yes, true},
    {"pwd", do_pwd, true},
    {"cd", do_cd, false},
    {"printenv", do_printenv, true},
    {"export", do_export, true},
    {"env", do_env, true},
    {"sh", do_sh, true},
    {NULL, NULL, false},
};
