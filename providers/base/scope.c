#include "providers/base/scope.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/buf.h"
#include "providers/base/printable.h"

#define DIGITS 40 /* of SHA-256: 160 bits */

static const struct {
	const char *name;
	const char *id; /* without it there is no key; NULL: none */
	bool by_tenant; /* scopeKey counts too */
} scopes[PAI_SCOPE_COUNT] = {
    [PAI_SCOPE_THREAD] = {"thread", "threadId", true},
    [PAI_SCOPE_ROOT_THREAD] = {"rootThread", "rootThreadId", true},
    [PAI_SCOPE_USER] = {"user", "userKey", true},
    [PAI_SCOPE_SCOPE] = {"scope", "scopeKey", true},
    [PAI_SCOPE_GLOBAL] = {"global", NULL, false},
    [PAI_SCOPE_CUSTOM] = {"custom", NULL, false},
};
static const char *const known_ids[] = {"scopeKey", "threadId", "rootThreadId", "userKey"};

const char *pai_scope_name(enum pai_scope scope)
{
	return scopes[scope].name;
}

bool pai_scope_parse(const char *name, enum pai_scope *ret)
{
	for (int i = 0; i < PAI_SCOPE_COUNT; i++) {
		if (strcmp(scopes[i].name, name) == 0) {
			*ret = (enum pai_scope)i;
			return true;
		}
	}
	return false;
}

bool pai_scope_of_key(const char *key, enum pai_scope *ret)
{
	for (int i = 0; i < PAI_SCOPE_COUNT; i++) {
		size_t n = strlen(scopes[i].name);

		if (strncmp(key, scopes[i].name, n) == 0 && key[n] == '-' &&
		    strlen(key + n + 1) == DIGITS &&
		    strspn(key + n + 1, "0123456789abcdef") == DIGITS) {
			*ret = (enum pai_scope)i;
			return true;
		}
	}
	return false;
}

bool pai_scope_counts(enum pai_scope scope, const char *id)
{
	return scope == PAI_SCOPE_CUSTOM ||
	       (scopes[scope].id && strcmp(id, scopes[scope].id) == 0) ||
	       (scopes[scope].by_tenant && strcmp(id, "scopeKey") == 0);
}

static int check_name(enum pai_scope scope, const char *name, struct pai_err *err)
{
	bool is_known = false;

	for (size_t i = 0; i < PAI_COUNT(known_ids); i++) {
		is_known = is_known || strcmp(name, known_ids[i]) == 0;
	}
	if (scope != PAI_SCOPE_CUSTOM && !is_known) {
		return pai_err_set(err, PAI_E_INPUT,
		    "no id '%s': expected scopeKey, threadId, rootThreadId or userKey", name);
	}
	for (const char *c = name; *c; c++) {
		if (!isalpha((unsigned char)*c) &&
		    (c == name || (!isdigit((unsigned char)*c) && *c != '-' && *c != '_'))) {
			return pai_err_set(err, PAI_E_INPUT,
			    "'%s' can't be an id's name: a letter, then letters, digits, '-', '_'",
			    name);
		}
	}
	return strlen(name) - 1 < PAI_SCOPE_ID_NAME_MAX
		   ? 0
		   : pai_err_set(
			 err, PAI_E_INPUT, "an id's name has 1 to %d bytes", PAI_SCOPE_ID_NAME_MAX);
}

static int check_value(const char *name, const char *value, struct pai_err *err)
{
	size_t len = strlen(value);

	if (len == 0 || len > PAI_SCOPE_ID_MAX) {
		return pai_err_set(
		    err, PAI_E_INPUT, "%s has 1 to %d bytes, not %zu", name, PAI_SCOPE_ID_MAX, len);
	}
	for (size_t i = 0, n = 0; i < len; i += n) {
		n = pai_utf8_len(value + i, len - i);
		if (n == 0) {
			return pai_err_set(err, PAI_E_INPUT, "%s is not valid UTF-8", name);
		}
	}
	return 0;
}

static int check(enum pai_scope scope, const struct pai_strmap *ids, struct pai_err *err)
{
	const char *needed = scopes[scope].id;

	if (ids->count > PAI_SCOPE_IDS_MAX || (scope == PAI_SCOPE_CUSTOM && ids->count == 0)) {
		return pai_err_set(err, PAI_E_INPUT, "scope %s: expected %s%d ids",
		    scopes[scope].name, ids->count ? "at most " : "1 to ", PAI_SCOPE_IDS_MAX);
	}
	for (size_t i = 0; i < ids->count; i++) {
		if (check_name(scope, ids->entries[i].key, err) < 0 ||
		    check_value(ids->entries[i].key, ids->entries[i].value, err) < 0) {
			return -err->errnum;
		}
	}
	return needed && !pai_strmap_get(ids, needed)
		   ? pai_err_set(
			 err, PAI_E_INPUT, "scope %s: %s is missing", scopes[scope].name, needed)
		   : 0;
}

static int by_name(const void *a, const void *b)
{
	const struct pai_strmap_entry *const *x = a;
	const struct pai_strmap_entry *const *y = b;

	return strcmp((*x)->key, (*y)->key);
}

/* A threadId alone that can be a key as it is. */
static bool is_key_itself(enum pai_scope scope, const struct pai_strmap *ids)
{
	enum pai_scope looks;
	const char *id = pai_strmap_get(ids, "threadId");

	return scope == PAI_SCOPE_THREAD && !pai_strmap_get(ids, "scopeKey") &&
	       pai_key_check(id, PAI_ERR_IGNORED()) == 0 && !pai_scope_of_key(id, &looks);
}

int pai_scope_key(enum pai_scope scope, const struct pai_strmap *ids, char ret[PAI_KEY_MAX + 1],
    struct pai_err *err)
{
	pai_auto_buf struct pai_buf text =
	    PAI_BUF_INIT(PAI_SCOPE_IDS_MAX * (PAI_SCOPE_ID_NAME_MAX + PAI_SCOPE_ID_MAX + 2));
	const struct pai_strmap_entry *sorted[PAI_SCOPE_IDS_MAX];
	char hex[2 * PAI_SHA256_BYTES + 1];
	size_t count = 0;
	int r = check(scope, ids, err);

	if (r < 0) {
		return r;
	}
	if (is_key_itself(scope, ids)) {
		(void)snprintf(ret, PAI_KEY_MAX + 1, "%s", pai_strmap_get(ids, "threadId"));
		return 0;
	}
	for (size_t i = 0; i < ids->count; i++) {
		if (pai_scope_counts(scope, ids->entries[i].key)) {
			sorted[count++] = &ids->entries[i];
		}
	}
	qsort(sorted, count, sizeof(sorted[0]), by_name);
	for (size_t i = 0; i < count && r == 0; i++) {
		r = pai_buf_add(&text, sorted[i]->key, strlen(sorted[i]->key) + 1);
		r = r ? r : pai_buf_add(&text, sorted[i]->value, strlen(sorted[i]->value) + 1);
	}
	if (r < 0) {
		return pai_err_no_memory(err);
	}
	pai_sha256_hex(text.data ? text.data : "", text.len, hex);
	(void)snprintf(ret, PAI_KEY_MAX + 1, "%s-%.*s", scopes[scope].name, DIGITS, hex);
	return 0;
}

bool pai_scope_is_delegated(enum pai_scope scope, const struct pai_strmap *ids)
{
	const char *thread = pai_strmap_get(ids, "threadId");
	const char *root = pai_strmap_get(ids, "rootThreadId");

	return scope == PAI_SCOPE_ROOT_THREAD && thread && root && strcmp(thread, root) != 0;
}
