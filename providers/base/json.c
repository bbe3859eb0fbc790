/*
 * cJSON trees under another name. cJSON itself accepts more than a peer may send, so a text is
 * scanned first (depth, NUL, UTF-8) and its tree is checked for duplicate keys after.
 */
#include "providers/base/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "providers/base/buf.h"
#include "providers/base/printable.h"

#define EXACT_MAX 9007199254740992.0 /* 2^53: beyond it a double skips integers */
/* cJSON 1.7.15 prints 15 digits whenever they are "close enough": longer numbers go in as text. */
#define CJSON_EXACT_MAX 1000000000000000
static const char replacement[] = "\xEF\xBF\xBD";

/* The cast is the type: a pai_json is never defined. */
static cJSON *node(const struct pai_json *j)
{
	return (cJSON *)(uintptr_t)j;
}

static struct pai_json *wrap(const cJSON *c)
{
	return (struct pai_json *)(uintptr_t)c;
}

struct scan {
	size_t depth;
	size_t max_depth;
	size_t values; /* at most so many, so far */
	bool in_string;
};

/* One character at `at`: its length, 0 when it may not be there. */
static size_t scan_one(struct scan *s, const char *at, size_t len)
{
	size_t n = pai_utf8_len(at, len);

	if (n == 0 || *at == '\0') {
		return 0;
	}
	if (*at == '"') {
		s->in_string = !s->in_string;
	} else if (s->in_string && *at == '\\') {
		if (len >= 6 && memcmp(at, "\\u0000", 6) == 0) {
			return 0;
		}
		return len >= 2 && (unsigned char)at[1] < 0x80 && at[1] != '\0' ? 2 : 0;
	} else if (!s->in_string && (*at == '[' || *at == '{' || *at == ',')) {
		s->depth += *at != ',';
		s->values++;
		return s->depth <= s->max_depth && s->values < PAI_JSON_VALUES_MAX ? n : 0;
	} else if (!s->in_string && (*at == ']' || *at == '}')) {
		s->depth -= s->depth > 0 ? 1 : 0;
	}
	return n;
}

/* Where the text stops being acceptable; len when nowhere. */
static size_t scan(const char *text, size_t len, size_t max_depth)
{
	struct scan s = {.max_depth = max_depth};
	size_t at = 0;

	while (at < len) {
		size_t n = scan_one(&s, text + at, len - at);

		if (n == 0) {
			return at;
		}
		at += n;
	}
	return len;
}

static int compare_keys(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted, so that an object of a hundred thousand keys costs no more than its share. 1: has them,
 * 0: not, -ENOMEM. */
static int object_has_duplicates(const cJSON *object)
{
	size_t count = 0;
	pai_auto_free const char **keys = NULL;
	const cJSON *child;

	cJSON_ArrayForEach(child, object)
	{
		count++;
	}
	if (count < 2) {
		return 0;
	}
	keys = reallocarray(NULL, count, sizeof(*keys));
	if (!keys) {
		return -ENOMEM;
	}
	count = 0;
	cJSON_ArrayForEach(child, object)
	{
		keys[count++] = child->string;
	}
	qsort(keys, count, sizeof(*keys), compare_keys);
	for (size_t i = 1; i < count; i++) {
		if (strcmp(keys[i - 1], keys[i]) == 0) {
			return 1;
		}
	}
	return 0;
}

/* Recursion is bounded by the scan's depth. */
static int has_duplicates(const cJSON *value)
{
	const cJSON *child;
	int r = cJSON_IsObject(value) ? object_has_duplicates(value) : 0;

	if (r == 0 && (cJSON_IsObject(value) || cJSON_IsArray(value))) {
		cJSON_ArrayForEach(child, value)
		{
			r = r != 0 ? r : has_duplicates(child);
		}
	}
	return r;
}

static bool is_blank(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (!strchr(" \t\r\n", text[i])) {
			return false;
		}
	}
	return true;
}

int pai_json_parse(
    const char *text, size_t len, size_t max_depth, struct pai_json **ret, struct pai_err *err)
{
	size_t bad_at = scan(text, len, max_depth);
	pai_auto_json struct pai_json *j = NULL;
	const char *end = text;
	int r;

	if (bad_at < len) {
		return pai_err_set(err, PAI_E_PROTOCOL, "JSON: not acceptable at byte %zu", bad_at);
	}
	j = wrap(cJSON_ParseWithLengthOpts(text, len, &end, false));
	if (!j) {
		return pai_err_set(err, PAI_E_PROTOCOL, "JSON: not well-formed at byte %zu",
		    end ? (size_t)(end - text) : (size_t)0);
	}
	if (!is_blank(end, len - (size_t)(end - text))) {
		return pai_err_set(err, PAI_E_PROTOCOL, "JSON: more than one value at byte %zu",
		    (size_t)(end - text));
	}
	r = has_duplicates(node(j));
	if (r != 0) {
		return r < 0 ? pai_err_no_memory(err)
			     : pai_err_set(err, PAI_E_PROTOCOL, "JSON: a key is there twice");
	}
	*ret = PAI_TAKE(j);
	return 0;
}

void pai_json_free(struct pai_json *j)
{
	cJSON_Delete(node(j));
}

char *pai_json_print(const struct pai_json *j, bool indented)
{
	return indented ? cJSON_Print(node(j)) : cJSON_PrintUnformatted(node(j));
}

static int add_escaped(struct pai_buf *out, uint32_t code)
{
	if (code < 0x10000) {
		return pai_buf_printf(out, "\\u%04x", (unsigned)code);
	}
	code -= 0x10000;
	return pai_buf_printf(out, "\\u%04x\\u%04x", (unsigned)(0xd800 + (code >> 10)),
	    (unsigned)(0xdc00 + (code & 0x3ff)));
}

char *pai_json_print_ascii(const struct pai_json *j)
{
	pai_auto_free char *text = pai_json_print(j, false);
	pai_auto_buf struct pai_buf out = PAI_BUF_INIT(SIZE_MAX - 1);
	size_t left = text ? strlen(text) : 0;
	int r = text ? 0 : -ENOMEM;

	for (const char *at = text; left > 0 && r == 0;) {
		size_t len = pai_utf8_len(at, left);
		uint32_t code = (unsigned char)*at;

		if (len > 1) {
			code &= 0x7fu >> len;
			for (size_t i = 1; i < len; i++) {
				code = code << 6 | ((unsigned char)at[i] & 0x3f);
			}
		}
		len = len ? len : 1;
		r = code < 0x7f ? pai_buf_add(&out, at, 1) : add_escaped(&out, code);
		at += len;
		left -= len;
	}
	return r < 0 ? NULL : pai_buf_take(&out);
}

struct pai_json *pai_json_object(void)
{
	return wrap(cJSON_CreateObject());
}

struct pai_json *pai_json_array(void)
{
	return wrap(cJSON_CreateArray());
}

/* `text` itself when it is UTF-8, else a repaired copy in *made; NULL without memory. */
static const char *repaired(const char *text, char **made)
{
	size_t len = strlen(text);
	struct pai_buf out = PAI_BUF_INIT(SIZE_MAX - 1);
	int r = 0;

	if (pai_utf8_valid(text, len)) {
		return text;
	}
	while (len > 0 && r == 0) {
		size_t n = pai_utf8_len(text, len);

		r = n > 0 ? pai_buf_add(&out, text, n) : pai_buf_add_str(&out, replacement);
		n = n > 0 ? n : 1;
		text += n;
		len -= n;
	}
	*made = r < 0 ? NULL : pai_buf_take(&out);
	pai_buf_fini(&out);
	return *made;
}

static cJSON *string_node(const char *value)
{
	pai_auto_free char *made = NULL;
	const char *text = value ? repaired(value, &made) : NULL;

	if (!value) {
		return cJSON_CreateNull();
	}
	return text ? cJSON_CreateString(text) : NULL;
}

int pai_json_set(struct pai_json *obj, const char *key, struct pai_json *take_value)
{
	pai_auto_json struct pai_json *value = take_value;
	pai_auto_free char *made = NULL;
	const char *name = repaired(key, &made);
	bool was_there;

	if (!obj || !value || !name) {
		return -ENOMEM;
	}
	/* Not cJSON's replace: without memory for the key it succeeds with an empty one. */
	was_there = cJSON_GetObjectItemCaseSensitive(node(obj), name) != NULL;
	if (!cJSON_AddItemToObject(node(obj), name, node(value))) {
		return -ENOMEM;
	}
	(void)PAI_TAKE(value);
	if (was_there) {
		cJSON_DeleteItemFromObjectCaseSensitive(node(obj), name); /* the first: the old */
	}
	return 0;
}

int pai_json_set_str(struct pai_json *obj, const char *key, const char *value)
{
	return pai_json_set(obj, key, wrap(string_node(value)));
}

int pai_json_set_num(struct pai_json *obj, const char *key, int64_t value)
{
	char digits[32];

	if (value > -CJSON_EXACT_MAX && value < CJSON_EXACT_MAX) {
		return pai_json_set(obj, key, wrap(cJSON_CreateNumber((double)value)));
	}
	(void)snprintf(digits, sizeof(digits), "%lld", (long long)value);
	return pai_json_set(obj, key, wrap(cJSON_CreateRaw(digits)));
}

int pai_json_set_bool(struct pai_json *obj, const char *key, bool value)
{
	return pai_json_set(obj, key, wrap(cJSON_CreateBool(value)));
}

int pai_json_set_null(struct pai_json *obj, const char *key)
{
	return pai_json_set(obj, key, wrap(cJSON_CreateNull()));
}

int pai_json_set_map(struct pai_json *obj, const char *key, const struct pai_strmap *m)
{
	pai_auto_json struct pai_json *map = pai_json_object();

	for (size_t i = 0; m && i < m->count; i++) {
		int r = pai_json_set_str(map, m->entries[i].key, m->entries[i].value);

		if (r < 0) {
			return r;
		}
	}
	return pai_json_set(obj, key, PAI_TAKE(map));
}

int pai_json_push(struct pai_json *arr, struct pai_json *take_value)
{
	pai_auto_json struct pai_json *value = take_value;

	if (!arr || !value || !cJSON_AddItemToArray(node(arr), node(value))) {
		return -ENOMEM;
	}
	(void)PAI_TAKE(value);
	return 0;
}

int pai_json_push_str(struct pai_json *arr, const char *value)
{
	return pai_json_push(arr, wrap(string_node(value)));
}

const struct pai_json *pai_json_get(const struct pai_json *obj, const char *key)
{
	return cJSON_IsObject(node(obj)) ? wrap(cJSON_GetObjectItemCaseSensitive(node(obj), key))
					 : NULL;
}

const char *pai_json_str(const struct pai_json *obj, const char *key)
{
	return pai_json_text(pai_json_get(obj, key));
}

static bool is_number(const cJSON *value)
{
	return cJSON_IsNumber(value) || cJSON_IsRaw(value);
}

int64_t pai_json_num(const struct pai_json *obj, const char *key, int64_t fallback)
{
	const cJSON *value = node(pai_json_get(obj, key));
	double d;

	if (!is_number(value)) {
		return fallback;
	}
	d = cJSON_IsRaw(value) ? strtod(value->valuestring, NULL) : value->valuedouble;
	if (!(d >= -EXACT_MAX && d <= EXACT_MAX) || d != (double)(int64_t)d) {
		return fallback;
	}
	return (int64_t)d;
}

bool pai_json_bool(const struct pai_json *obj, const char *key, bool fallback)
{
	const cJSON *value = node(pai_json_get(obj, key));

	return cJSON_IsBool(value) ? cJSON_IsTrue(value) : fallback;
}

bool pai_json_is_null(const struct pai_json *obj, const char *key)
{
	const cJSON *value = node(pai_json_get(obj, key));

	return !value || cJSON_IsNull(value);
}

int pai_json_map(const struct pai_json *obj, const char *key, struct pai_strmap *ret)
{
	pai_auto_strmap struct pai_strmap map = PAI_STRMAP_INIT;
	const struct pai_json *from = pai_json_get(obj, key);

	if (!cJSON_IsObject(node(from)) && !pai_json_is_null(obj, key)) {
		return -EINVAL;
	}
	for (const struct pai_json *at = pai_json_at(from, 0); at; at = pai_json_next(at)) {
		const char *value = pai_json_text(at);
		int r = value ? pai_strmap_set(&map, pai_json_name(at), value) : -EINVAL;

		if (r < 0) {
			return r;
		}
	}
	return pai_strmap_copy(ret, &map);
}

size_t pai_json_count(const struct pai_json *array_or_object)
{
	return (size_t)cJSON_GetArraySize(node(array_or_object));
}

const struct pai_json *pai_json_at(const struct pai_json *array_or_object, size_t i)
{
	return i > INT32_MAX ? NULL : wrap(cJSON_GetArrayItem(node(array_or_object), (int)i));
}

const struct pai_json *pai_json_next(const struct pai_json *member)
{
	return wrap(node(member)->next);
}

const char *pai_json_name(const struct pai_json *member)
{
	return member ? node(member)->string : NULL;
}

const char *pai_json_text(const struct pai_json *value)
{
	return cJSON_IsString(node(value)) ? node(value)->valuestring : NULL;
}

bool pai_json_is_object(const struct pai_json *value)
{
	return cJSON_IsObject(node(value));
}

bool pai_json_is_array(const struct pai_json *value)
{
	return cJSON_IsArray(node(value));
}

bool pai_json_is_number(const struct pai_json *value)
{
	return is_number(node(value));
}

bool pai_json_is_bool(const struct pai_json *value)
{
	return cJSON_IsBool(node(value));
}
