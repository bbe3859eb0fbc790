#include "execshim/tools/replace.h"

#include <errno.h>
#include <string.h>

struct text {
	const char *data;
	size_t len;
};

bool pai_replace_is_crlf(const char *data, size_t len)
{
	const char *end = data + len;
	size_t crlf = 0, lf = 0;

	for (const char *at = data; at < end; at++) {
		at = memchr(at, '\n', (size_t)(end - at));
		if (!at) {
			break;
		}
		if (at > data && at[-1] == '\r') {
			crlf++;
		} else {
			lf++;
		}
	}
	return crlf > lf;
}

static int with_ends(const char *from, bool crlf, struct pai_buf *to)
{
	int r = 0;

	for (const char *at = from; *at && r == 0; at++) {
		if (at[0] == '\r' && at[1] == '\n') {
			continue; /* the '\n' says it all */
		}
		r = *at == '\n' && crlf ? pai_buf_add_str(to, "\r\n") : pai_buf_add(to, at, 1);
	}
	return r;
}

static const char *find(const char *at, const char *end, const struct text *what)
{
	return at < end ? memmem(at, (size_t)(end - at), what->data, what->len) : NULL;
}

/* Side by side; one that overlaps the only one counts, it makes the place ambiguous. */
static uint64_t occurrences(const struct pai_replace *p, const struct text *what)
{
	const char *end = p->data + p->len;
	const char *first = find(p->data, end, what);
	uint64_t count = 0;

	for (const char *at = first; at; at = find(at + what->len, end, what)) {
		count++;
	}
	return count == 1 && !p->all && find(first + 1, end, what) ? 2 : count;
}

static uint64_t newlines(const char *data, size_t len)
{
	const char *end = data + len;
	uint64_t n = 0;

	while (data < end && (data = memchr(data, '\n', (size_t)(end - data)))) {
		n++;
		data++;
	}
	return n;
}

static int put_together(
    struct pai_replace *p, const struct text *what, const struct text *by, struct pai_buf *out)
{
	const char *end = p->data + p->len;
	const char *done = p->data;
	const char *at = find(done, end, what);
	int r = 0;

	p->first_line = 1 + newlines(p->data, (size_t)(at - p->data));
	p->line_count = 1 + newlines(by->data, by->len);
	while (at && r == 0) {
		r = pai_buf_add(out, done, (size_t)(at - done));
		r = r ? r : pai_buf_add(out, by->data, by->len);
		done = at + what->len;
		at = p->all ? find(done, end, what) : NULL;
	}
	return r ? r : pai_buf_add(out, done, (size_t)(end - done));
}

static struct text text_of(const char *data, size_t len)
{
	return (struct text){data ? data : "", len};
}

int pai_replace(struct pai_replace *p, struct pai_buf *out, enum pai_replace_end *ret)
{
	pai_auto_buf struct pai_buf old_ends = PAI_BUF_INIT(SIZE_MAX - 1);
	pai_auto_buf struct pai_buf new_ends = PAI_BUF_INIT(SIZE_MAX - 1);
	struct text what = text_of(p->old_text, strlen(p->old_text));
	struct text by = text_of(p->new_text, strlen(p->new_text));
	bool is_crlf = pai_replace_is_crlf(p->data, p->len);
	bool has_breaks = memchr(what.data, '\n', what.len) != NULL;
	int r = with_ends(p->old_text, is_crlf, &old_ends);

	r = r ? r : with_ends(p->new_text, is_crlf, &new_ends);
	if (r < 0) {
		return r;
	}
	p->count = occurrences(p, &what);
	if (p->count == 0 && has_breaks) {
		what = text_of(old_ends.data, old_ends.len);
		by = text_of(new_ends.data, new_ends.len);
		p->count = occurrences(p, &what);
	} else if (!has_breaks && is_crlf) {
		/* It says nothing of line ends: the new lines get the file's. */
		by = text_of(new_ends.data, new_ends.len);
	}
	if (p->count == 0) {
		*ret = PAI_REPLACE_NO_MATCH;
	} else if (what.len == by.len && memcmp(what.data, by.data, what.len) == 0) {
		*ret = PAI_REPLACE_SAME;
	} else if (p->count > 1 && !p->all) {
		*ret = PAI_REPLACE_NOT_UNIQUE;
	} else {
		*ret = PAI_REPLACED;
		return put_together(p, &what, &by, out);
	}
	return 0;
}
