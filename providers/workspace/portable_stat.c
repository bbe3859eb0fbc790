/*
 * Attributes. With a shell they are stat's; without one they are made up from what the contract
 * tells: that a name is there, whether it is a directory, and how long a file is. A made-up
 * identity is the path's own.
 *
 * What stat prints is a sandbox's word: parsed field by field, and only a record that ends in the
 * operand that was asked counts.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "providers/base/clock.h"
#include "providers/workspace/portable.h"

#define BATCH_BYTES 60000 /* of operands in one command, well below what a shell takes */
#define NS_PER_S 1000000000u
#define YEAR_MAX 99999
#define DAYS_CYCLE_YEARS 400
#define DAYS_CYCLE 146097   /* days of that many years */
#define DAYS_TO_1970 719468 /* from the first of March of the year 0 */

/* --- parsing --- */

struct cursor {
	const char *at;
	bool bad;
};

static uint64_t get_number(struct cursor *c, int base)
{
	char *end;
	uint64_t v;

	errno = 0;
	v = strtoull(c->at, &end, base);
	if (c->bad || errno || *c->at == '-' || *c->at == '+' || end == c->at || *end != ' ') {
		c->bad = true;
		return 0;
	}
	c->at = end + 1;
	return v;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Two digits after the byte that is to be before them. */
static unsigned get_two(struct cursor *c, char before)
{
	const char *at = c->at;

	if (c->bad || at[0] != before || !is_digit(at[1]) || !is_digit(at[2])) {
		c->bad = true;
		return 0;
	}
	c->at += 3;
	return (unsigned)(at[1] - '0') * 10 + (unsigned)(at[2] - '0');
}

/* ".5", up to nine digits; nothing there is 0. */
static uint32_t get_fraction(struct cursor *c)
{
	uint32_t ns = 0, unit = NS_PER_S;

	for (c->at += *c->at == '.'; is_digit(*c->at) && unit > 1; c->at++) {
		unit /= 10;
		ns += unit * (uint32_t)(*c->at - '0');
	}
	return ns;
}

/* " +0130", as seconds; nothing there is 0. */
static int64_t get_zone(struct cursor *c)
{
	const char sign = c->at[0] == ' ' ? c->at[1] : '\0';
	int64_t hours, minutes;

	if (c->bad || (sign != '+' && sign != '-')) {
		return 0;
	}
	c->at++;
	hours = get_two(c, sign);
	c->at--; /* nothing is between the two */
	minutes = get_two(c, c->at[0]);
	return (sign == '-' ? -60 : 60) * (hours * 60 + minutes);
}

/* Since 1970, in the calendar that goes on in both directions; years begin in March, so that the
 * day which some have more is their last. */
static int64_t days_of(int64_t year, unsigned month, unsigned day)
{
	const int64_t y = year - (month <= 2) + 1000 * DAYS_CYCLE_YEARS;
	const int64_t cycle = y / DAYS_CYCLE_YEARS, rest = y % DAYS_CYCLE_YEARS;
	const int64_t in_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;

	return (cycle - 1000) * DAYS_CYCLE + rest * 365 + rest / 4 - rest / 100 + in_year -
	       DAYS_TO_1970;
}

/* "-12-01 04:32:36", what comes after the year, as seconds. */
static int64_t get_date(struct cursor *c, int64_t year)
{
	unsigned month = get_two(c, '-'), day = get_two(c, '-');
	unsigned hour = get_two(c, ' '), minute = get_two(c, ':'), second = get_two(c, ':');

	c->bad |= month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 ||
		  second > 60;
	return c->bad ? 0 : days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
}

/* A time as the recipe has it: a date, or seconds with a sign. */
static int64_t get_time(struct cursor *c)
{
	bool is_negative = *c->at == '-';
	uint32_t ns;
	uint64_t v;
	int64_t s, all_ns;
	char *end;

	if (!c->bad && *c->at && strchr("-?w", *c->at) && c->at[1] == ' ') {
		c->at += 2;
		return 0; /* it has none */
	}
	c->at += is_negative;
	errno = 0;
	v = strtoull(c->at, &end, 10);
	if (c->bad || errno || !is_digit(*c->at) || v > INT64_MAX) {
		c->bad = true;
		return 0;
	}
	c->at = end;
	s = (int64_t)v;
	if (*end == '-') {
		/* Far beyond what fits, it ends up at the end of what does. */
		s = s < YEAR_MAX ? s : YEAR_MAX;
		s = get_date(c, is_negative ? -s : s);
		is_negative = false;
		ns = get_fraction(c);
		s -= get_zone(c);
	} else {
		ns = get_fraction(c);
	}
	if (c->bad || *c->at != ' ') {
		c->bad = true;
		return 0;
	}
	c->at++;
	all_ns = pai_clock_join(s, ns);
	return is_negative ? -all_ns : all_ns;
}

static int64_t get_size(struct cursor *c)
{
	uint64_t v = get_number(c, 10);

	c->bad |= v > INT64_MAX;
	return c->bad ? 0 : (int64_t)v;
}

static uint32_t get_u32(struct cursor *c, int base)
{
	uint64_t v = get_number(c, base);

	c->bad |= v > UINT32_MAX;
	return (uint32_t)v;
}

/* One record, up to the operand that ends it. */
static bool get_record(struct cursor *c, struct pai_ws_attr *ret)
{
	struct pai_ws_attr a = {.flags = PAI_WS_UNWATCHED};

	a.id.ino = get_number(c, 10);
	a.id.btime_ns = (uint64_t)get_time(c);
	a.id.dev = get_number(c, 10);
	a.mode = get_u32(c, 16);
	a.nlink = get_u32(c, 10);
	a.uid = get_u32(c, 10);
	a.gid = get_u32(c, 10);
	a.rdev_major = get_u32(c, 16);
	a.rdev_minor = get_u32(c, 16);
	a.size = get_size(c);
	a.blocks = get_size(c);
	a.blksize = get_u32(c, 10);
	a.atime_ns = get_time(c);
	a.mtime_ns = get_time(c);
	a.ctime_ns = get_time(c);
	*ret = a;
	return !c->bad && a.id.ino;
}

int pai_portable_parse_stat(const char *out, const char *const operands[], size_t count,
    struct pai_ws_attr *ret, bool *found)
{
	struct cursor c = {.at = out};
	size_t i = 0;

	while (*c.at) {
		struct pai_ws_attr a;
		size_t len = 0;

		if (!get_record(&c, &a)) {
			return EPROTO;
		}
		for (; i < count; i++) {
			len = strlen(operands[i]);
			if (!strncmp(c.at, operands[i], len) && c.at[len] == '\n') {
				break;
			}
		}
		if (i == count) {
			return EPROTO;
		}
		ret[i] = a;
		found[i++] = true;
		c.at += len + 1;
	}
	return 0;
}

/* --- identities --- */

static void show_locked(struct pai_portable *p, struct pai_ws_identity *id)
{
	size_t n = p->alias_count < PAI_PORTABLE_ALIASES ? p->alias_count : PAI_PORTABLE_ALIASES;

	for (size_t i = 0; i < n; i++) {
		if (pai_ws_identity_equal(&p->aliases[i].real, id)) {
			*id = p->aliases[i].shown;
			return;
		}
	}
}

static void show(struct pai_portable *p, struct pai_ws_attr *a, size_t count)
{
	(void)pthread_mutex_lock(&p->lock);
	for (size_t i = 0; p->alias_count && i < count; i++) {
		show_locked(p, &a[i].id);
	}
	(void)pthread_mutex_unlock(&p->lock);
}

void pai_portable_replaced(
    struct pai_portable *p, const char *rel, const struct pai_ws_identity *before)
{
	struct pai_ws_attr now;

	if (pai_portable_stat(p, rel, &now) != 0 || pai_ws_identity_equal(&now.id, before)) {
		return;
	}
	(void)pthread_mutex_lock(&p->lock);
	p->aliases[p->alias_count++ % PAI_PORTABLE_ALIASES] =
	    (struct pai_portable_alias){.real = now.id, .shown = *before};
	(void)pthread_mutex_unlock(&p->lock);
}

/* --- without a shell --- */

static uint64_t path_number(const char *rel)
{
	uint64_t h = 14695981039346656037u;

	for (; *rel; rel++) {
		h = (h ^ (unsigned char)*rel) * 1099511628211u;
	}
	return h ? h : 1;
}

static void make_up(const char *rel, bool is_dir, size_t size, struct pai_ws_attr *ret)
{
	*ret = (struct pai_ws_attr){
	    .id = {.ino = path_number(rel)},
	    .mode = is_dir ? S_IFDIR | 0755 : S_IFREG | 0644,
	    .nlink = is_dir ? 2 : 1,
	    .uid = geteuid(),
	    .gid = getegid(),
	    .flags = PAI_WS_UNWATCHED,
	    .blksize = 4096,
	    .size = (int64_t)size,
	    .blocks = (int64_t)(size + 511) / 512,
	};
}

static int is_directory(struct pai_portable *p, const char *rel, bool *ret)
{
	const char *slash = strrchr(rel, '/');
	pai_auto_free char *parent = strndup(rel, slash ? (size_t)(slash - rel) : 0);
	pai_auto_free char *path = parent ? pai_portable_call_path(parent) : NULL;
	pai_auto_dir_list struct pai_dir_list list = {.items = NULL};
	struct pai_call call = pai_portable_call(p);
	struct pai_err err = PAI_ERR_INIT;
	bool found = false;

	if (!path) {
		return ENOMEM;
	}
	if (pai_sandbox_list_dir(p->sb, path, &call, &found, &list, &err) < 0) {
		return err.code == PAI_E_INPUT ? ENOTDIR : pai_portable_error(p, &err);
	}
	for (size_t i = 0; i < list.count; i++) {
		if (!strcmp(list.items[i].name, slash ? slash + 1 : rel)) {
			*ret = list.items[i].is_directory;
			return 0;
		}
	}
	return ENOENT;
}

static int stat_by_contract(struct pai_portable *p, const char *rel, struct pai_ws_attr *ret)
{
	pai_auto_buf struct pai_buf content = PAI_BUF_INIT(PAI_PORTABLE_FILE_MAX);
	pai_auto_free char *path = pai_portable_call_path(rel);
	struct pai_call call = pai_portable_call(p);
	struct pai_err err = PAI_ERR_INIT;
	bool found = true, is_dir = !*rel;
	int error = is_dir ? 0 : is_directory(p, rel, &is_dir);

	if (error || !path) {
		return error ? error : ENOMEM;
	}
	if (!is_dir && pai_sandbox_read_file(
			   p->sb, path, PAI_PORTABLE_FILE_MAX, &call, &found, &content, &err) < 0) {
		return pai_portable_error(p, &err);
	}
	make_up(rel, is_dir, content.len, ret);
	return found ? 0 : ENOENT;
}

/* --- both --- */

static void free_strings(char **list, size_t count)
{
	for (size_t i = 0; list && i < count; i++) {
		free(list[i]);
	}
	free(list);
}

/* Asks for the workspace as well, whose device is 0 in identities: its number may change when the
 * files do not. */
static int stat_batch(struct pai_portable *p, const char *const rels[], size_t count,
    struct pai_ws_attr *ret, bool *found)
{
	char **operands = calloc(count + 2, sizeof(*operands));
	struct pai_ws_attr *attrs = calloc(count + 1, sizeof(*attrs));
	bool *is_there = calloc(count + 1, sizeof(*is_there));
	pai_auto_free char *out = NULL;
	int error = operands && attrs && is_there ? 0 : ENOMEM;

	for (size_t i = 0; error == 0 && i <= count; i++) {
		operands[i] = pai_portable_shell_path(i ? rels[i - 1] : "");
		error = operands[i] ? 0 : ENOMEM;
	}
	if (error == 0) {
		error = pai_portable_recipe(
		    p, PAI_RECIPE_STAT, (const char *const *)operands, count + 1, &out);
	}
	/* With output, or with nothing but missing paths, the failure is only that some are. */
	if (out && (error == 0 || *out || error == ENOENT || error == ENOTDIR)) {
		error = pai_portable_parse_stat(
		    out, (const char *const *)operands, count + 1, attrs, is_there);
	}
	for (size_t i = 0; error == 0 && i < count; i++) {
		ret[i] = attrs[i + 1];
		ret[i].id.dev ^= attrs[0].id.dev;
		found[i] = is_there[i + 1];
	}
	free_strings(operands, count + 1);
	free(attrs);
	free(is_there);
	return error;
}

int pai_portable_stat_many(struct pai_portable *p, const char *const rels[], size_t count,
    struct pai_ws_attr *ret, bool *found)
{
	int error = 0;

	memset(found, 0, count * sizeof(*found));
	for (size_t i = 0, n; error == 0 && i < count; i += n) {
		size_t bytes = 0;

		for (n = 0; i + n < count && (n == 0 || bytes < BATCH_BYTES); n++) {
			bytes += 4 * strlen(rels[i + n]) + 8; /* a quote becomes four bytes */
		}
		error = stat_batch(p, rels + i, n, ret + i, found + i);
	}
	for (size_t i = 0; error == EOPNOTSUPP && i < count; i++) {
		int e = stat_by_contract(p, rels[i], &ret[i]);

		found[i] = e == 0;
		error = e == 0 || e == ENOENT || e == ENOTDIR ? EOPNOTSUPP : e;
	}
	if (error == 0) {
		show(p, ret, count);
	}
	return error == EOPNOTSUPP ? 0 : error;
}

int pai_portable_stat(struct pai_portable *p, const char *rel, struct pai_ws_attr *ret)
{
	bool found;
	int error = pai_portable_stat_many(p, &rel, 1, ret, &found);

	return error || found ? error : ENOENT;
}

int pai_portable_check(struct pai_portable *p, const struct pai_ws_at *at, struct pai_ws_attr *ret)
{
	int error = pai_portable_stat(p, at->path, ret);

	if (error == ENOENT && at->id.ino) {
		return ESTALE;
	}
	return error == 0 && at->id.ino && !pai_ws_identity_equal(&ret->id, &at->id) ? ESTALE
										     : error;
}
