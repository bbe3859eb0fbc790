/*
 * builtins_fs: the commands of memory's shell that look at files and change them: the recipes of
 * providers/workspace/recipes.h, and what people and tests type beside them. Every failure ends in
 * ": strerror", as the recipes ask.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "providers/base/auto.h"
#include "providers/memory/shell.h"

#define NS 1000000000
#define DEV 77 /* one device for every tree: what the number is doesn't matter */
#define BLOCK 512
#define BLKSIZE 4096

/* --- options --- */

struct opts {
	uint64_t flags; /* one bit per letter, a-z then A-Z */
	const char *values[2];
	size_t value_count;
	char *const *rest;
};

static uint64_t flag(char c)
{
	return 1ull << (islower((unsigned char)c) ? c - 'a' : 26 + c - 'A');
}

static bool has(const struct opts *o, char c)
{
	return (o->flags & flag(c)) != 0;
}

/* One word that starts with '-'; `spec` is getopt()'s, letters only. getopt() itself has one state
 * for the whole process. */
static bool parse_option_word(
    const char *word, char *const **next, const char *spec, struct opts *o)
{
	for (const char *c = word + 1; *c; c++) {
		const char *known = isalpha((unsigned char)*c) ? strchr(spec, *c) : NULL;

		if (!known) {
			return false;
		}
		o->flags |= flag(*c);
		if (known[1] != ':') {
			continue;
		}
		if (o->value_count == PAI_COUNT(o->values)) {
			return false;
		}
		if (!c[1] && !**next) {
			return false;
		}
		o->values[o->value_count++] = c[1] ? c + 1 : *(*next)++;
		return true;
	}
	return true;
}

static bool parse_options(
    char *const *argv, const char *spec, size_t min_operands, struct opts *o, struct pai_buf *err)
{
	const char *name = argv[0];
	size_t count = 0;

	*o = (struct opts){0};
	argv++;
	while (*argv && (*argv)[0] == '-' && (*argv)[1]) {
		const char *word = *argv++;

		if (strcmp(word, "--") == 0) {
			break;
		}
		if (!parse_option_word(word, &argv, spec, o)) {
			(void)!pai_buf_printf(err, "%s: %s: option not supported\n", name, word);
			return false;
		}
	}
	o->rest = argv;
	while (argv[count]) {
		count++;
	}
	if (count < min_operands) {
		(void)!pai_buf_printf(err, "%s: missing operand\n", name);
		return false;
	}
	return true;
}

static bool parse_mode(const char *text, mode_t *ret)
{
	char *end;
	unsigned long mode = strtoul(text, &end, 8);

	if (!isdigit((unsigned char)text[0]) || *end || mode > 07777) {
		return false;
	}
	*ret = (mode_t)mode;
	return true;
}

/* Calls fn with each operand's full path; the status is 1 when one failed. */
typedef int (*path_fn)(struct pai_tree *t, const char *path, const struct opts *o);
static int each_path(
    struct pai_shell *sh, const char *name, const struct opts *o, path_fn fn, struct pai_buf *err)
{
	int status = 0;

	for (char *const *v = o->rest; *v; v++) {
		pai_auto_free char *path = pai_shell_path(sh, *v);
		int r = path ? fn(sh->tree, path, o) : -ENOMEM;

		if (r < 0) {
			status = pai_builtin_fail(err, name, *v, r);
		}
	}
	return status;
}

/* --- making and removing --- */

static int mkdir_one(struct pai_tree *t, const char *path, const struct opts *o)
{
	mode_t mode = 0755;

	if (o->value_count > 0 && !parse_mode(o->values[0], &mode)) {
		return -EINVAL;
	}
	return has(o, 'p') ? pai_tree_mkdir_all(t, path, mode) : pai_tree_mkdir(t, path, mode);
}

static int do_mkdir(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	struct opts o;

	(void)out;
	return parse_options(argv, "pm:", 1, &o, err) ? each_path(sh, "mkdir", &o, mkdir_one, err)
						      : 2;
}

static int rmdir_one(struct pai_tree *t, const char *path, const struct opts *o)
{
	(void)o;
	return pai_tree_rmdir(t, path);
}

static int do_rmdir(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	struct opts o;

	(void)out;
	return parse_options(argv, "", 1, &o, err) ? each_path(sh, "rmdir", &o, rmdir_one, err) : 2;
}

/* Empties a directory, deepest first, always by the first entry of the current one. */
static int remove_below(struct pai_tree *t, struct pai_tree_node *top, const char *path)
{
	pai_auto_buf struct pai_buf at = PAI_BUF_INIT(PAI_TREE_MAX_BYTES);
	struct pai_tree_node *n = top;
	int r = pai_buf_add_str(&at, path);

	while (r == 0 && top->count > 0) {
		struct pai_tree_node *below = n->count > 0 ? n->entries[0].node : NULL;
		const size_t len = at.len;

		if (below) {
			r = pai_buf_printf(&at, "/%s", n->entries[0].name);
			if (r == 0 && S_ISDIR(below->mode)) {
				n = below;
				continue;
			}
			r = r < 0 ? r : pai_tree_unlink(t, at.data);
			at.len = len;
		} else {
			n = n->parent;
			r = pai_tree_rmdir(t, at.data);
			at.len = (size_t)(strrchr(at.data, '/') - at.data);
		}
		at.data[at.len] = '\0';
	}
	return r;
}

static int rm_one(struct pai_tree *t, const char *path, const struct opts *o)
{
	struct pai_tree_node *n;
	int r = pai_tree_get(t, path, false, &n);

	if (r == -ENOENT && has(o, 'f')) {
		return 0;
	}
	if (r == 0 && S_ISDIR(n->mode) && (has(o, 'r') || has(o, 'R'))) {
		r = remove_below(t, n, path);
		return r < 0 ? r : pai_tree_rmdir(t, path);
	}
	return r < 0 ? r : pai_tree_unlink(t, path);
}

static int do_rm(struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	struct opts o;

	(void)out;
	return parse_options(argv, "frR", 0, &o, err) ? each_path(sh, "rm", &o, rm_one, err) : 2;
}

/* --- two paths --- */

/* TO, or TO/NAME when TO is a directory and -T wasn't given. */
static char *target_of(struct pai_shell *sh, const struct opts *o)
{
	pai_auto_free char *to = pai_shell_path(sh, o->rest[1]);
	const char *slash = strrchr(o->rest[0], '/');
	struct pai_tree_node *n;
	char *inside = NULL;

	if (to && !has(o, 'T') && pai_tree_get(sh->tree, to, true, &n) == 0 && S_ISDIR(n->mode)) {
		return asprintf(&inside, "%s/%s", to, slash ? slash + 1 : o->rest[0]) < 0 ? NULL
											  : inside;
	}
	return PAI_TAKE(to);
}

static int do_mv(struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	pai_auto_free char *from = NULL;
	pai_auto_free char *to = NULL;
	struct opts o;
	int r;

	(void)out;
	if (!parse_options(argv, "fT", 2, &o, err)) {
		return 2;
	}
	from = pai_shell_path(sh, o.rest[0]);
	to = target_of(sh, &o);
	r = from && to ? pai_tree_rename(sh->tree, from, to) : -ENOMEM;
	return r < 0 ? pai_builtin_fail(err, "mv", o.rest[0], r) : 0;
}

static int do_ln(struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	pai_auto_free char *from = NULL;
	pai_auto_free char *to = NULL;
	struct opts o;
	int r;

	(void)out;
	if (!parse_options(argv, "sfnT", 2, &o, err)) {
		return 2;
	}
	from = pai_shell_path(sh, o.rest[0]);
	to = target_of(sh, &o);
	if (!from || !to) {
		return pai_builtin_fail(err, "ln", o.rest[1], -ENOMEM);
	}
	if (has(&o, 'f')) {
		(void)!pai_tree_unlink(sh->tree, to);
	}
	r = has(&o, 's') ? pai_tree_symlink(sh->tree, o.rest[0], to)
			 : pai_tree_link(sh->tree, from, to);
	return r < 0 ? pai_builtin_fail(err, "ln", o.rest[1], r) : 0;
}

/* --- attributes --- */

static int do_chmod(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	struct opts o;
	mode_t mode;
	int status = 0;

	(void)out;
	if (!parse_options(argv, "", 2, &o, err)) {
		return 2;
	}
	if (!parse_mode(o.rest[0], &mode)) {
		return pai_builtin_fail(err, "chmod", o.rest[0], -EINVAL);
	}
	for (char *const *v = o.rest + 1; *v; v++) {
		pai_auto_free char *path = pai_shell_path(sh, *v);
		struct pai_tree_node *n;
		int r = path ? pai_tree_get(sh->tree, path, true, &n) : -ENOMEM;

		if (r < 0) {
			status = pai_builtin_fail(err, "chmod", *v, r);
		} else {
			pai_tree_chmod(n, mode);
		}
	}
	return status;
}

/* "@SECONDS[.FRACTION]", the form that is the same everywhere. */
static bool parse_time(const char *text, int64_t *ret_ns)
{
	const bool negative = text[0] == '@' && text[1] == '-';
	int64_t ns = 0;
	int64_t unit = NS;
	char *end;
	long long seconds;

	if (text[0] != '@' || !isdigit((unsigned char)text[1 + negative])) {
		return false;
	}
	seconds = strtoll(text + 1, &end, 10);
	if (seconds > INT64_MAX / NS - 1 || seconds < INT64_MIN / NS + 1) {
		return false;
	}
	if (*end == '.') {
		end++;
		while (isdigit((unsigned char)*end) && unit > 1) {
			unit /= 10;
			ns += (*end++ - '0') * unit;
		}
	}
	*ret_ns = (int64_t)seconds * NS + (negative ? -ns : ns);
	return *end == '\0';
}

static int touch_one(struct pai_tree *t, const char *path, const struct opts *o)
{
	const int64_t now = pai_tree_now_ns();
	int64_t when = now;
	struct pai_tree_node *n;
	int r = pai_tree_get(t, path, !has(o, 'h'), &n);

	if (o->value_count > 0 && !parse_time(o->values[0], &when)) {
		return -EINVAL;
	}
	if (r == -ENOENT) {
		if (has(o, 'c')) {
			return 0;
		}
		r = pai_tree_write(t, path, "", 0, true);
		r = r < 0 ? r : pai_tree_get(t, path, true, &n);
	}
	if (r < 0) {
		return r;
	}
	if (!has(o, 'm') || has(o, 'a')) {
		n->atime_ns = when;
	}
	if (!has(o, 'a') || has(o, 'm')) {
		n->mtime_ns = when;
	}
	n->ctime_ns = now;
	return 0;
}

static int do_touch(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	struct opts o;

	(void)out;
	return parse_options(argv, "acmhd:", 1, &o, err)
		   ? each_path(sh, "touch", &o, touch_one, err)
		   : 2;
}

static int truncate_one(struct pai_tree *t, const char *path, const struct opts *o)
{
	struct pai_tree_node *n;
	char *end;
	uint64_t size;
	int r;

	if (o->value_count == 0 || !isdigit((unsigned char)o->values[0][0])) {
		return -EINVAL;
	}
	errno = 0;
	size = strtoull(o->values[0], &end, 10);
	if (*end || errno) {
		return errno ? -EFBIG : -EINVAL;
	}
	r = pai_tree_get(t, path, true, &n);
	if (r == -ENOENT) {
		if (has(o, 'c')) {
			return 0;
		}
		r = pai_tree_write(t, path, "", 0, true);
		r = r < 0 ? r : pai_tree_get(t, path, true, &n);
	}
	return r < 0 ? r : pai_tree_resize(t, n, size);
}

static int do_truncate(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	struct opts o;

	(void)out;
	return parse_options(argv, "cs:", 1, &o, err)
		   ? each_path(sh, "truncate", &o, truncate_one, err)
		   : 2;
}

/* --- looking --- */

/* Before 1970 as GNU stat writes it: whole seconds round down, a fraction counts from 0. */
static int add_time(struct pai_buf *out, int64_t ns, bool fraction)
{
	const uint64_t away = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;

	if (!fraction) {
		return pai_buf_printf(out, "%" PRId64, ns / NS - (ns % NS < 0));
	}
	return pai_buf_printf(
	    out, "%s%" PRIu64 ".%09" PRIu64, ns < 0 ? "-" : "", away / NS, away % NS);
}

/* "%y" and its like, as in UTC. */
static int add_date(struct pai_buf *out, int64_t ns)
{
	const time_t s = ns / NS - (ns % NS < 0);
	struct tm tm;

	if (!gmtime_r(&s, &tm)) {
		return -EINVAL;
	}
	return pai_buf_printf(out, "%04d-%02d-%02d %02d:%02d:%02d.%09" PRId64 " +0000",
	    tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
	    ns - (int64_t)s * NS);
}

static int add_stat_field(
    struct pai_buf *out, char what, bool fraction, const char *name, const struct pai_tree_node *n)
{
	switch (what) {
	case 'i':
		return pai_buf_printf(out, "%" PRIu64, n->ino);
	case 'd':
		return pai_buf_printf(out, "%d", DEV);
	case 'f':
		return pai_buf_printf(out, "%x", (unsigned)n->mode);
	case 'a':
		return pai_buf_printf(out, "%o", (unsigned)n->mode & 07777u);
	case 'h':
		return pai_buf_printf(out, "%u", n->nlink);
	case 'u':
		return pai_buf_printf(out, "%u", (unsigned)getuid());
	case 'g':
		return pai_buf_printf(out, "%u", (unsigned)getgid());
	case 't':
	case 'T':
		return pai_buf_add(out, "0", 1);
	case 's':
		return pai_buf_printf(out, "%zu", n->size);
	case 'b':
		return pai_buf_printf(out, "%zu", (n->size + BLOCK - 1) / BLOCK);
	case 'o':
		return pai_buf_printf(out, "%d", BLKSIZE);
	case 'W':
		return add_time(out, n->btime_ns, fraction);
	case 'w':
		return add_date(out, n->btime_ns);
	case 'x':
		return add_date(out, n->atime_ns);
	case 'y':
		return add_date(out, n->mtime_ns);
	case 'z':
		return add_date(out, n->ctime_ns);
	case 'X':
		return add_time(out, n->atime_ns, fraction);
	case 'Y':
		return add_time(out, n->mtime_ns, fraction);
	case 'Z':
		return add_time(out, n->ctime_ns, fraction);
	case 'n':
		return pai_buf_add_str(out, name);
	case '%':
		return pai_buf_add(out, "%", 1);
	default:
		return -EINVAL;
	}
}

static int add_stat(
    struct pai_buf *out, const char *fmt, const char *name, const struct pai_tree_node *n)
{
	int r = 0;

	while (r == 0 && *fmt) {
		bool fraction;

		if (*fmt != '%') {
			r = pai_buf_add(out, fmt++, 1);
			continue;
		}
		fraction = strncmp(fmt + 1, ".9", 2) == 0;
		fmt += fraction ? 3 : 1;
		r = add_stat_field(out, *fmt, fraction, name, n);
		fmt += *fmt != '\0';
	}
	return r < 0 ? r : pai_buf_add(out, "\n", 1);
}

static int do_stat(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	struct opts o;
	int status = 0;

	if (!parse_options(argv, "Lc:", 1, &o, err)) {
		return 2;
	}
	if (o.value_count == 0) {
		(void)!pai_buf_add_str(err, "stat: expected -c FORMAT\n");
		return 2;
	}
	for (char *const *v = o.rest; *v; v++) {
		pai_auto_free char *path = pai_shell_path(sh, *v);
		struct pai_tree_node *n;
		const size_t before = out->len;
		int r = path ? pai_tree_get(sh->tree, path, has(&o, 'L'), &n) : -ENOMEM;

		r = r < 0 ? r : add_stat(out, o.values[0], *v, n);
		if (r < 0) {
			out->len = before;
			status = pai_builtin_fail(err, "stat", *v, r);
		}
	}
	return status;
}

static int do_readlink(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	pai_auto_free char *path = NULL;
	struct pai_tree_node *n;
	struct opts o;
	int r;

	if (!parse_options(argv, "nv", 1, &o, err)) {
		return 2;
	}
	path = pai_shell_path(sh, o.rest[0]);
	r = path ? pai_tree_get(sh->tree, path, false, &n) : -ENOMEM;
	if (r == 0) {
		r = S_ISLNK(n->mode) ? pai_buf_add(out, n->data, n->size) : -EINVAL;
	}
	if (r < 0) {
		return pai_builtin_fail(err, "readlink", o.rest[0], r);
	}
	return has(&o, 'n') || pai_buf_add(out, "\n", 1) == 0 ? 0 : 1;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int list_one(
    struct pai_tree *t, const char *path, const char *shown, bool all, struct pai_buf *out)
{
	pai_auto_free const char **names = NULL;
	struct pai_tree_node *n;
	int r = pai_tree_get(t, path, true, &n);

	if (r < 0) {
		return r;
	}
	if (!S_ISDIR(n->mode)) {
		return pai_buf_printf(out, "%s\n", shown);
	}
	names = calloc(n->count + 1, sizeof(*names));
	if (!names) {
		return -ENOMEM;
	}
	for (size_t i = 0; i < n->count; i++) {
		names[i] = n->entries[i].name;
	}
	qsort(names, n->count, sizeof(*names), by_name);
	for (size_t i = 0; r == 0 && i < n->count; i++) {
		if (all || names[i][0] != '.') {
			r = pai_buf_printf(out, "%s\n", names[i]);
		}
	}
	return r;
}

/* One name a line, as into a pipe. */
static int do_ls(struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	static char dot[] = ".";
	static char *const here[] = {dot, NULL};
	struct opts o;
	int status = 0;

	if (!parse_options(argv, "aA", 0, &o, err)) {
		return 2;
	}
	for (char *const *v = *o.rest ? o.rest : here; *v; v++) {
		pai_auto_free char *path = pai_shell_path(sh, *v);
		int r = path ? list_one(sh->tree, path, *v, has(&o, 'a') || has(&o, 'A'), out)
			     : -ENOMEM;

		if (r < 0) {
			status = pai_builtin_fail(err, "ls", *v, r);
		}
	}
	return status;
}

/* test -e|-f|-d|-L|-x|-s PATH, -n|-z TEXT, A = B, A != B; 2 for what it doesn't know. */
static int test_file(struct pai_shell *sh, char what, const char *name)
{
	pai_auto_free char *path = pai_shell_path(sh, name);
	struct pai_tree_node *n;

	if (!path || pai_tree_get(sh->tree, path, what != 'L', &n) < 0) {
		return 1;
	}
	switch (what) {
	case 'f':
		return !S_ISREG(n->mode);
	case 'd':
		return !S_ISDIR(n->mode);
	case 'L':
		return !S_ISLNK(n->mode);
	case 'x':
		return !(n->mode & 0111);
	case 's':
		return n->size == 0;
	default:
		return 0;
	}
}

static int do_test(
    struct pai_shell *sh, char *const *argv, struct pai_buf *out, struct pai_buf *err)
{
	const bool bracket = strcmp(argv[0], "[") == 0;
	size_t n = 0;

	(void)out;
	while (argv[n + 1]) {
		n++;
	}
	if (bracket && (n == 0 || strcmp(argv[n], "]") != 0)) {
		(void)!pai_buf_add_str(err, "[: expected ]\n");
		return 2;
	}
	n -= bracket;
	if (n == 2 && argv[1][0] == '-' && argv[1][1] && !argv[1][2]) {
		if (strchr("efdLxs", argv[1][1])) {
			return test_file(sh, argv[1][1], argv[2]);
		}
		if (strchr("nz", argv[1][1])) {
			return (argv[2][0] == '\0') == (argv[1][1] == 'n');
		}
	}
	if (n == 3 && (strcmp(argv[2], "=") == 0 || strcmp(argv[2], "!=") == 0)) {
		return (strcmp(argv[1], argv[3]) == 0) == (argv[2][0] == '!');
	}
	if (n <= 1) {
		return n == 0 || !argv[1][0];
	}
	(void)!pai_buf_add_str(err, "test: this form is not supported\n");
	return 2;
}

const struct pai_builtin pai_builtins_fs[] = {
    {"mkdir", do_mkdir, false},
    {"rmdir", do_rmdir, false},
    {"rm", do_rm, false},
    {"mv", do_mv, false},
    {"ln", do_ln, false},
    {"chmod", do_chmod, false},
    {"touch", do_touch, false},
    {"truncate", do_truncate, false},
    {"stat", do_stat, false},
    {"readlink", do_readlink, false},
    {"ls", do_ls, false},
    {"test", do_test, false},
    {"[", do_test, false},
    {NULL, NULL, false},
};
