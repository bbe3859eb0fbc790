/*
 * What the tools make of bytes from a sandbox: numbered pages, replaced texts, near names, the
 * lines of a search. The first bytes choose; what is shown is UTF-8 and within its budgets, and
 * what is edited is what was there but for the text replaced.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "execshim/tools/image.h"
#include "execshim/tools/matches.h"
#include "execshim/tools/near.h"
#include "execshim/tools/replace.h"
#include "execshim/tools/text.h"
#include "providers/base/printable.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_LINE 20

static void page(const char *data, size_t len, uint8_t how)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1 << 24);
	struct pai_text_page p = {.data = data,
	    .len = len,
	    .offset = 1 + how % 7,
	    .limit = 1 + how % 5,
	    .max_chars = 10 + how,
	    .max_line = MAX_LINE};
	int r = pai_text_number_lines(&out, &p);

	assert(r == 0 && pai_utf8_valid(out.data ? out.data : "", out.len));
	assert(p.next_offset == 0 || (p.next_offset > p.offset && p.next_offset <= p.total &&
					 p.next_offset - p.offset <= p.limit));
	assert(p.is_beyond == (p.offset > p.total && p.offset > 1));
	/* Characters are counted as they are shown, and cut between them. */
	assert(pai_text_head(data, len, pai_text_count(data, len)) == len);
	assert(pai_text_count(data + pai_text_tail(data, len, how),
		   len - pai_text_tail(data, len, how)) <= how);
}

static void replaced(const char *data, size_t len, uint8_t how)
{
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(1 << 24);
	size_t from = len ? how % len : 0;
	size_t most = how / 16u + 1 < len - from ? how / 16u + 1 : len - from;
	pai_auto_free char *old_text = strndup(data + from, most);
	struct pai_replace p = {
	    .data = data, .len = len, .old_text = old_text, .new_text = "<\n>", .all = how & 1};
	enum pai_replace_end end = PAI_REPLACE_NO_MATCH;
	int r;

	if (!old_text || !old_text[0]) {
		return;
	}
	r = pai_replace(&p, &out, &end);
	assert(r == 0);
	assert(end == PAI_REPLACED || end == PAI_REPLACE_NOT_UNIQUE || end == PAI_REPLACE_SAME);
	if (end == PAI_REPLACED) {
		size_t old_len = strlen(old_text);

		assert(p.count >= 1 && p.first_line >= 1);
		assert(out.len == len - p.count * old_len + p.count * 3 ||
		       out.len == len - p.count * old_len + p.count * 4);
	}
}

static void searched(const char *data, size_t len, uint8_t how)
{
	struct pai_matches m = {.text = PAI_BUF_INIT(1 << 24)};
	int r = pai_matches_take(data, len, 1 + how % 9, &m);

	assert(r == 0 && m.count <= 1 + how % 9);
	assert(pai_utf8_valid(m.text.data ? m.text.data : "", m.text.len));
	pai_buf_fini(&m.text);
}

static void near_names(const char *data, size_t len)
{
	pai_auto_free char *text = strndup(data, len);
	const char *names[64];
	size_t best[PAI_NEAR_MAX];
	size_t count = 0, n;

	for (char *at = text; at && *at && count < 64; count++) {
		names[count] = at;
		at += strcspn(at, "\n");
		if (*at) {
			*at++ = '\0';
		}
	}
	n = count ? pai_near(names[0], names, count, best) : 0;
	assert(n <= PAI_NEAR_MAX);
	for (size_t i = 0; i < n; i++) {
		assert(best[i] < count && strcmp(names[best[i]], names[0]) != 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;

	if (size < 1) {
		return 0;
	}
	page(text, size - 1, data[0]);
	replaced(text, size - 1, data[0]);
	searched(text, size - 1, data[0]);
	near_names(text, size - 1);
	(void)pai_image_type(text, size - 1);
	return 0;
}
