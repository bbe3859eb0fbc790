#include "execshim/tools/matches.h"

#include <string.h>

#include "execshim/tools/text.h"

#define MATCHES_CHARS 30000
#define LINE_CHARS 500

/* Where the text of "path:line:text" begins, as far as it can be told. */
static size_t text_at(const char *line, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		size_t at = i + 1;

		while (line[i] == ':' && at < len && line[at] >= '0' && line[at] <= '9') {
			at++;
		}
		if (at > i + 1 && at < len && line[at] == ':') {
			return at + 1;
		}
	}
	return 0;
}

static int add_match(struct pai_buf *out, const char *line, size_t len)
{
	size_t at = text_at(line, len);
	size_t shown = pai_text_head(line + at, len - at, LINE_CHARS);
	int r = pai_text_add(out, line, at + shown);

	return r || at + shown == len ? r : pai_buf_add_str(out, "… [clipped]");
}

int pai_matches_take(const char *data, size_t len, int64_t limit, struct pai_matches *m)
{
	const char *at = len ? data : "";
	const char *end = at + len;
	size_t chars = 0;

	while (at < end) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		size_t n = newline ? (size_t)(newline - at) : (size_t)(end - at);
		size_t before = m->text.len;
		int r;

		/* What ripgrep says of a binary file is no match. */
		if (text_at(at, n) == 0) {
			at += n + 1;
			continue;
		}
		if (m->count == limit) {
			m->is_cut = true;
			break;
		}
		r = m->count ? pai_buf_add_str(&m->text, "\n") : 0;
		r = r ? r : add_match(&m->text, at, n);
		if (r < 0) {
			return r;
		}
		chars += pai_text_count(m->text.data + before, m->text.len - before);
		if (m->count > 0 && chars > MATCHES_CHARS) {
			m->text.len = before;
			m->text.data[before] = '\0';
			m->is_cut = true;
			break;
		}
		m->count++;
		at += n + 1;
	}
	return 0;
}
