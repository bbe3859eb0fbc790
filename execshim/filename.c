#include "execshim/filename.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "providers/base/buf.h"
#include "providers/base/printable.h"

#define ENDING_MAX 20 /* bytes, the dot included: longer is no ending */

static uint32_t decode(const char *at, size_t len)
{
	uint32_t code = (unsigned char)*at;

	if (len > 1) {
		code &= 0x7fu >> len;
	}
	for (size_t i = 1; i < len; i++) {
		code = code << 6 | ((unsigned char)at[i] & 0x3f);
	}
	return code;
}

/* C0, C1, DEL; marks and overrides of direction, joiners, separators of lines, the byte order mark,
 * tags, and what is for nobody's use. */
static bool is_unsafe(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == '/' || code == '\\' ||
	       code == 0xad || code == 0x61c || (code >= 0x200b && code <= 0x200f) ||
	       (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) ||
	       code == 0xfeff || (code >= 0xfff0 && code <= 0xfffb) || (code & 0xfffe) == 0xfffe ||
	       (code >= 0xe0000 && code <= 0xe0fff);
}

/* Each character, or '_'. */
static void replace(const char *name, size_t len, char *out)
{
	while (len > 0) {
		size_t n = pai_utf8_len(name, len);

		if (n == 0 || is_unsafe(decode(name, n))) {
			*out++ = '_';
			n = n ? n : 1;
		} else {
			memcpy(out, name, n);
			out += n;
		}
		name += n;
		len -= n;
	}
	*out = '\0';
}

/* The longest beginning of at most `most` bytes that ends with a character. */
static size_t fit(const char *text, size_t most)
{
	size_t len = strlen(text);
	size_t at = 0;

	while (at < len) {
		size_t n = pai_utf8_len(text + at, len - at);

		n = n ? n : 1;
		if (at + n > most) {
			break;
		}
		at += n;
	}
	return at;
}

/* Without the blanks and dots at its end. */
static size_t trimmed(const char *text, size_t len)
{
	while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '.')) {
		len--;
	}
	return len;
}

const char *pai_filename(const char *name, size_t len, char ret[PAI_FILENAME_MAX + 1])
{
	pai_auto_free char *all = malloc(len + 1);
	const char *begin, *ending;
	size_t end, stem, extra = 0;

	(void)snprintf(ret, PAI_FILENAME_MAX + 1, "file");
	if (!all) {
		return ret;
	}
	replace(name, len, all);
	begin = all + strspn(all, " ");
	end = trimmed(begin, strlen(begin));
	if (end == 0) {
		return ret;
	}
	all[(size_t)(begin - all) + end] = '\0';
	extra = strchr("-~.", *begin) ? 1 : 0;
	ending = strrchr(begin, '.');
	ending = ending && ending > begin && strlen(ending) <= ENDING_MAX ? ending : begin + end;
	stem = fit(begin, PAI_FILENAME_MAX - extra - strlen(ending));
	stem = stem < (size_t)(ending - begin) ? stem : (size_t)(ending - begin);
	stem = *ending ? stem : trimmed(begin, stem);
	(void)snprintf(
	    ret, PAI_FILENAME_MAX + 1, "%s%.*s%s", extra ? "_" : "", (int)stem, begin, ending);
	return ret;
}
