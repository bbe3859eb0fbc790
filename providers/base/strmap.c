#include "providers/base/strmap.h"

#include <errno.h>
#include <string.h>

void pai_strmap_fini(struct pai_strmap *m)
{
	for (size_t i = 0; i < m->count; i++) {
		free(m->entries[i].key);
		free(m->entries[i].value);
	}
	free(m->entries);
	*m = (struct pai_strmap)PAI_STRMAP_INIT;
}

static struct pai_strmap_entry *find(const struct pai_strmap *m, const char *key)
{
	for (size_t i = 0; m && i < m->count; i++) {
		if (strcmp(m->entries[i].key, key) == 0) {
			return &m->entries[i];
		}
	}
	return NULL;
}

/* Memory for one more; it doubles whenever the count is a power of two. */
static int grow(struct pai_strmap *m)
{
	size_t room = m->count > 0 ? m->count * 2 : 1;
	struct pai_strmap_entry *entries;

	if (m->count >= PAI_STRMAP_MAX) {
		return -EMSGSIZE;
	}
	if ((m->count & (m->count - 1)) != 0) {
		return 0;
	}
	entries = reallocarray(m->entries, room, sizeof(*entries));
	if (!entries) {
		return -ENOMEM;
	}
	m->entries = entries;
	return 0;
}

static int set(struct pai_strmap *m, const char *key, size_t key_len, const char *value)
{
	pai_auto_free char *own_key = strndup(key, key_len);
	pai_auto_free char *own_value = strdup(value);
	struct pai_strmap_entry *e;
	int r;

	if (!own_key || !own_value) {
		return -ENOMEM;
	}
	e = find(m, own_key);
	if (e) {
		free(e->value);
		e->value = PAI_TAKE(own_value);
		return 0;
	}
	r = grow(m);
	if (r < 0) {
		return r;
	}
	m->entries[m->count++] = (struct pai_strmap_entry){
	    .key = PAI_TAKE(own_key),
	    .value = PAI_TAKE(own_value),
	};
	return 0;
}

int pai_strmap_set(struct pai_strmap *m, const char *key, const char *value)
{
	return set(m, key, strlen(key), value);
}

int pai_strmap_set_pair(struct pai_strmap *m, const char *pair)
{
	const char *equals = strchr(pair, '=');

	if (!equals || equals == pair) {
		return -EINVAL;
	}
	return set(m, pair, (size_t)(equals - pair), equals + 1);
}

const char *pai_strmap_get(const struct pai_strmap *m, const char *key)
{
	const struct pai_strmap_entry *e = find(m, key);

	return e ? e->value : NULL;
}

int pai_strmap_copy(struct pai_strmap *to, const struct pai_strmap *from)
{
	pai_auto_strmap struct pai_strmap copy = PAI_STRMAP_INIT;

	for (size_t i = 0; from && i < from->count; i++) {
		int r = pai_strmap_set(&copy, from->entries[i].key, from->entries[i].value);

		if (r < 0) {
			return r;
		}
	}
	pai_strmap_fini(to);
	*to = copy;
	copy = (struct pai_strmap)PAI_STRMAP_INIT;
	return 0;
}

bool pai_strmap_includes(const struct pai_strmap *m, const struct pai_strmap *wanted)
{
	for (size_t i = 0; wanted && i < wanted->count; i++) {
		const char *value = pai_strmap_get(m, wanted->entries[i].key);

		if (!value || strcmp(value, wanted->entries[i].value) != 0) {
			return false;
		}
	}
	return true;
}
