#include "execshim/units.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "providers/base/auto.h"

#define YEAR_MS (366.0 * 86400 * 1000)
#define SIZE_LIMIT (1ull << 60)

/* digits[.digits], nothing that strtod() takes beside ("inf", "0x1p3", signs). */
static const char *number(const char *text, double *ret)
{
	size_t whole = strspn(text, "0123456789");
	size_t len = whole;

	if (whole == 0 || whole > 18) {
		return NULL;
	}
	if (text[len] == '.') {
		size_t part = strspn(text + len + 1, "0123456789");

		if (part == 0) {
			return NULL;
		}
		len += 1 + part;
	}
	*ret = strtod(text, NULL);
	return text + len;
}

bool pai_duration_parse(const char *text, uint64_t *ret_ms)
{
	static const struct {
		const char *name;
		double ms;
	} units[] = {
	    {"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60e3}, {"h", 3600e3}, {"d", 86400e3}};
	double value = 0;
	const char *unit = number(text, &value);

	for (size_t i = 0; unit && i < PAI_COUNT(units); i++) {
		if (strcmp(unit, units[i].name) == 0) {
			value *= units[i].ms;
			if (value < 1 || value > YEAR_MS) {
				return false;
			}
			*ret_ms = (uint64_t)value;
			return true;
		}
	}
	return false;
}

bool pai_size_parse(const char *text, uint64_t *ret_bytes)
{
	static const char letters[] = "KMGT";
	char *end;
	unsigned long long value;
	unsigned shift = 0;

	if (!isdigit((unsigned char)text[0]) || strspn(text, "0123456789") > 18) {
		return false;
	}
	value = strtoull(text, &end, 10);
	if (*end) {
		const char *letter = strchr(letters, toupper((unsigned char)*end));

		if (letter && *letter) {
			shift = 10 * (unsigned)(letter - letters + 1);
			end++;
			end += *end == 'i' && end[1] == 'B';
		}
		end += *end == 'B';
	}
	if (*end || value == 0 || value > SIZE_LIMIT >> shift) {
		return false;
	}
	*ret_bytes = value << shift;
	return true;
}
