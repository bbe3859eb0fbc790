#include "execshim/tools/near.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAME_MAX_BYTES 255
#define FAR SIZE_MAX

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

static bool same(char a, char b)
{
	return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Optimal string alignment, three rows of its table. FAR past `most`. */
static size_t distance(const char *a, const char *b, size_t most)
{
	size_t rows[3][NAME_MAX_BYTES + 2];
	size_t la = strlen(a), lb = strlen(b);

	if (la > NAME_MAX_BYTES || lb > NAME_MAX_BYTES || (la > lb ? la - lb : lb - la) > most) {
		return FAR;
	}
	for (size_t j = 0; j <= lb; j++) {
		rows[0][j] = j;
	}
	for (size_t i = 1; i <= la; i++) {
		size_t *now = rows[i % 3], *one = rows[(i - 1) % 3], *two = rows[(i + 1) % 3];
		size_t least = i;

		now[0] = i;
		for (size_t j = 1; j <= lb; j++) {
			now[j] = smaller(smaller(one[j], now[j - 1]) + 1,
			    one[j - 1] + !same(a[i - 1], b[j - 1]));
			if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) &&
			    same(a[i - 2], b[j - 1])) {
				now[j] = smaller(now[j], two[j - 2] + 1);
			}
			least = smaller(least, now[j]);
		}
		if (least > most) {
			return FAR;
		}
	}
	return rows[la % 3][lb] > most ? FAR : rows[la % 3][lb];
}

struct found {
	size_t index, distance;
	const char *name;
};

static bool is_better(const struct found *a, const struct found *b)
{
	return a->distance != b->distance ? a->distance < b->distance
					  : strcmp(a->name, b->name) < 0;
}

size_t pai_near(
    const char *wanted, const char *const names[], size_t count, size_t ret[PAI_NEAR_MAX])
{
	size_t most = strlen(wanted) / 3 < 2 ? 2 : strlen(wanted) / 3;
	struct found best[PAI_NEAR_MAX];
	size_t n = 0;

	for (size_t i = 0; i < count; i++) {
		struct found f = {i, distance(wanted, names[i], most), names[i]};
		size_t at = n;

		if (f.distance == FAR || strcmp(wanted, names[i]) == 0 ||
		    (f.distance >= strlen(wanted) && f.distance > 0)) {
			continue;
		}
		while (at > 0 && is_better(&f, &best[at - 1])) {
			at--;
		}
		if (at == PAI_NEAR_MAX) {
			continue;
		}
		n += n < PAI_NEAR_MAX;
		memmove(&best[at + 1], &best[at], (n - 1 - at) * sizeof(best[0]));
		best[at] = f;
	}
	for (size_t i = 0; i < n; i++) {
		ret[i] = best[i].index;
	}
	return n;
}
