#include "execshim/print.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "providers/base/buf.h"
#include "providers/base/printable.h"

#define CELL_MAX (1u << 20)
#define NAME_WIDTH 14 /* of pai_print_members(): the longest name that the daemon has now */

struct pai_table {
	const char *const *heads;
	size_t columns;
	char **cells;
	size_t count;
	size_t room;
};

struct pai_table *pai_table_new(const char *const heads[])
{
	struct pai_table *t = calloc(1, sizeof(*t));

	if (t) {
		t->heads = heads;
		while (heads[t->columns]) {
			t->columns++;
		}
	}
	return t;
}

void pai_table_free(struct pai_table *t)
{
	for (size_t i = 0; t && i < t->count; i++) {
		free(t->cells[i]);
	}
	if (t) {
		free(t->cells);
	}
	free(t);
}

int pai_table_add(struct pai_table *t, const char *text)
{
	pai_auto_buf struct pai_buf cell = PAI_BUF_INIT(CELL_MAX);

	if (!t || pai_printable_add(&cell, text ? text : "", text ? strlen(text) : 0) < 0) {
		return -ENOMEM;
	}
	if (t->count == t->room) {
		size_t room = t->room ? 2 * t->room : 64;
		char **grown = reallocarray(t->cells, room, sizeof(*grown));

		if (!grown) {
			return -ENOMEM;
		}
		t->cells = grown;
		t->room = room;
	}
	t->cells[t->count] = cell.len ? pai_buf_take(&cell) : strdup("-");
	return t->cells[t->count] ? (t->count++, 0) : -ENOMEM;
}

static size_t width_of(const char *text)
{
	size_t width = 0;

	for (; *text; text++) {
		width += ((unsigned char)*text & 0xc0) != 0x80;
	}
	return width;
}

static size_t column_width(const struct pai_table *t, size_t column)
{
	size_t width = strlen(t->heads[column]);

	for (size_t i = column; i < t->count; i += t->columns) {
		size_t w = width_of(t->cells[i]);

		width = w > width ? w : width;
	}
	return width;
}

void pai_table_print(const struct pai_table *t, FILE *to)
{
	size_t widths[16];

	for (size_t c = 0; c < t->columns && c < PAI_COUNT(widths); c++) {
		widths[c] = column_width(t, c);
	}
	for (size_t i = 0; i < t->columns + t->count; i++) {
		size_t c = i % t->columns;
		const char *text = i < t->columns ? t->heads[c] : t->cells[i - t->columns];

		if (c + 1 == t->columns) {
			(void)fprintf(to, "%s\n", text);
		} else {
			(void)fprintf(to, "%s%*s", text, (int)(widths[c] - width_of(text) + 2), "");
		}
	}
}

int pai_print_json(const struct pai_json *j, FILE *to)
{
	pai_auto_free char *text = pai_json_print_ascii(j);

	if (!text) {
		return -ENOMEM;
	}
	(void)fprintf(to, "%s\n", text);
	return 0;
}

const char *pai_time_text(int64_t wall_ms, char ret[32])
{
	time_t seconds = (time_t)(wall_ms / 1000);
	struct tm tm;

	if (wall_ms <= 0 || !localtime_r(&seconds, &tm) ||
	    strftime(ret, 32, "%Y-%m-%d %H:%M:%S", &tm) == 0) {
		(void)snprintf(ret, 32, "-");
	}
	return ret;
}

static bool ends_with(const char *text, const char *end)
{
	size_t a = strlen(text);
	size_t b = strlen(end);

	return a > b && strcmp(text + a - b, end) == 0;
}

const char *pai_member_text(const struct pai_json *obj, const char *key, char ret[32])
{
	const struct pai_json *value = pai_json_get(obj, key);
	const char *text = pai_json_text(value);

	if (text) {
		return text;
	}
	ret[0] = '\0';
	if (pai_json_is_number(value)) {
		(void)snprintf(ret, 32, "%" PRId64, pai_json_num(obj, key, 0));
	} else if (pai_json_is_bool(value)) {
		(void)snprintf(ret, 32, "%s", pai_json_bool(obj, key, false) ? "yes" : "no");
	}
	return ret;
}

void pai_print_members(const struct pai_json *obj, const char *indent, FILE *to)
{
	for (size_t i = 0; i < pai_json_count(obj); i++) {
		const char *name = pai_json_name(pai_json_at(obj, i));
		char number[32];
		const char *text = name ? pai_member_text(obj, name, number) : "";
		char label[64];

		if (!*text) {
			continue;
		}
		(void)pai_printable_into(label, sizeof(label), name, strlen(name));
		if (ends_with(name, "Ms")) {
			text = pai_time_text(pai_json_num(obj, name, 0), number);
			label[strlen(label) - 2] = '\0';
		}
		(void)fprintf(to, "%s%-*s %s\n", indent, NAME_WIDTH, label, pai_printable(text));
	}
}
