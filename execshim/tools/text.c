#include "execshim/tools/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "providers/base/printable.h"

#define HEAD_BYTES 8192

static const char replacement[] = "\xEF\xBF\xBD";

/* Bytes of the character at `at`, 1 for a bad one. */
static size_t step(const char *at, size_t len, bool *is_bad)
{
	size_t n = *at == '\0' ? 0 : pai_utf8_len(at, len);

	*is_bad = n == 0;
	return n ? n : 1;
}

int pai_text_add(struct pai_buf *out, const char *data, size_t len)
{
	size_t good = 0; /* from here on nothing is bad, up to `at` */
	size_t at = 0;
	int r = 0;

	while (at < len && r == 0) {
		bool is_bad;
		size_t n = step(data + at, len - at, &is_bad);

		if (is_bad) {
			r = pai_buf_add(out, data + good, at - good);
			r = r ? r : pai_buf_add_str(out, replacement);
			good = at + n;
		}
		at += n;
	}
	return r ? r : pai_buf_add(out, data + good, at - good);
}

size_t pai_text_head(const char *data, size_t len, size_t chars)
{
	size_t at = 0;
	bool is_bad;

	while (at < len && chars-- > 0) {
		at += step(data + at, len - at, &is_bad);
	}
	return at;
}

size_t pai_text_count(const char *data, size_t len)
{
	size_t count = 0;
	bool is_bad;

	for (size_t at = 0; at < len; count++) {
		at += step(data + at, len - at, &is_bad);
	}
	return count;
}

/* From where no more characters than these can lie, forward. */
size_t pai_text_tail(const char *data, size_t len, size_t chars)
{
	size_t from = len > 4 * chars ? len - 4 * chars : 0;
	size_t count;

	/* Not into the middle of a character. */
	for (int i = 0; i < 3 && from > 0 && from < len && (data[from] & 0xc0) == 0x80; i++) {
		from++;
	}
	count = pai_text_count(data + from, len - from);
	return count > chars ? from + pai_text_head(data + from, len - from, count - chars) : from;
}

int pai_text_add_clipped(struct pai_buf *out, const char *data, size_t len, size_t chars)
{
	size_t n = pai_text_head(data, len, chars);
	char number[32];
	int r = pai_text_add(out, data, n);

	return r || n == len ? r
			     : pai_buf_printf(out, "… [%s more characters]",
				   pai_text_number(pai_text_count(data + n, len - n), number));
}

const char *pai_text_number(uint64_t n, char ret[32])
{
	char plain[24];
	int len = snprintf(plain, sizeof(plain), "%" PRIu64, n);
	char *to = ret;

	for (int i = 0; i < len; i++) {
		if (i > 0 && (len - i) % 3 == 0) {
			*to++ = ',';
		}
		*to++ = plain[i];
	}
	*to = '\0';
	return ret;
}

bool pai_text_is_binary(const char *data, size_t len)
{
	return len > 0 && memchr(data, '\0', len < HEAD_BYTES ? len : HEAD_BYTES) != NULL;
}

/* --- pages --- */

static const char *line_end(const char *at, const char *end)
{
	const char *newline = memchr(at, '\n', (size_t)(end - at));

	return newline ? newline : end;
}

static uint64_t count_lines(const char *data, size_t len)
{
	const char *end = data + len;
	uint64_t n = 0;

	for (const char *at = data; at < end; n++) {
		at = line_end(at, end) + 1;
	}
	return n;
}

static int add_banner(
    struct pai_buf *out, const struct pai_text_page *p, uint64_t last, bool has_clipped)
{
	char a[32], b[32], c[32];
	int r = 0;

	if (p->next_offset && !p->is_part) {
		r = pai_buf_printf(out,
		    "%s[Lines %s to %s of %s are shown. Read on with offset: %" PRIu64 ".]",
		    out->len ? "\n" : "", pai_text_number(p->offset, a), pai_text_number(last, b),
		    pai_text_number(p->total, c), p->next_offset);
	}
	return r || !has_clipped
		   ? r
		   : pai_buf_printf(out,
			 "\n[Lines over %s characters are clipped. See the rest of one with bash: "
			 "sed -n NUMBERp FILE | cut -c %zu-]",
			 pai_text_number(p->max_line, a), p->max_line + 1);
}

int pai_text_number_lines(struct pai_buf *out, struct pai_text_page *p)
{
	const char *at = p->len ? p->data : "";
	const char *end = at + p->len;
	pai_auto_buf struct pai_buf line = PAI_BUF_INIT(SIZE_MAX - 1);
	uint64_t number = 1, shown = 0;
	size_t chars = 0;
	bool has_clipped = false, is_full = false;
	int r = 0;

	p->total = count_lines(at, p->len);
	p->next_offset = 0;
	p->is_beyond = p->offset > p->total && !(p->offset == 1 && p->total == 0);
	for (; at < end && number < p->offset; number++) {
		at = line_end(at, end) + 1;
	}
	for (; at < end && shown < p->limit; number++, shown++) {
		const char *stop = line_end(at, end);
		size_t len = (size_t)(stop - at);
		size_t more;

		pai_buf_clear(&line);
		r = pai_buf_printf(&line, "%s%" PRIu64 ": ", shown ? "\n" : "", number);
		r = r ? r : pai_text_add_clipped(&line, at, len, p->max_line);
		if (r < 0) {
			return r;
		}
		more = pai_text_count(line.data, line.len);
		if (shown > 0 && chars + more > p->max_chars) {
			is_full = true;
			break;
		}
		has_clipped = has_clipped || pai_text_head(at, len, p->max_line) < len;
		chars += more;
		r = pai_buf_add(out, line.data, line.len);
		if (r < 0) {
			return r;
		}
		at = stop + 1;
	}
	p->next_offset = at < end ? number : 0;
	p->is_part = p->is_part && !is_full;
	return add_banner(out, p, number - 1, has_clipped);
}
