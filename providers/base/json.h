/*
 * json: the project's only user of cJSON. Values are `struct pai_json`, trees owned by their root.
 * Parsing is bounded in size, depth and values and refuses trailing bytes, duplicate keys, NUL in
 * strings and text that is not UTF-8.
 */
#ifndef PAI_BASE_JSON_H
#define PAI_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "providers/base/auto.h"
#include "providers/base/err.h"
#include "providers/base/strmap.h"

struct pai_json;

/* In one text: two bytes of it can cost a hundred, and more than a microsecond. */
#define PAI_JSON_VALUES_MAX 1000000

/* err is PROTOCOL with the offset; out of memory cJSON does not tell from it, else NO_MEMORY. */
int pai_json_parse(const char *text, size_t len, size_t max_depth, struct pai_json **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
void pai_json_free(struct pai_json *j);
PAI_DEFINE_AUTO(struct pai_json, pai_json_free)
#define pai_auto_json PAI_AUTO(pai_json_free_p)
/* Compact text, or indented; the caller frees; NULL without memory. */
char *pai_json_print(const struct pai_json *j, bool indented);
/* Compact, what is not printable ASCII as JSON's \u escapes: for files and streams that a terminal
 * may show. */
char *pai_json_print_ascii(const struct pai_json *j);

struct pai_json *pai_json_object(void); /* NULL without memory, here and below */
struct pai_json *pai_json_array(void);
/* Setters take NULL objects and latch nothing: -ENOMEM. Strings that are not UTF-8 are stored with
 * U+FFFD for each bad byte. Numbers are written exactly and read back up to 2^53. A NULL string is
 * null. */
int pai_json_set_str(struct pai_json *obj, const char *key, const char *value) PAI_WARN_UNUSED;
int pai_json_set_num(struct pai_json *obj, const char *key, int64_t value) PAI_WARN_UNUSED;
int pai_json_set_bool(struct pai_json *obj, const char *key, bool value) PAI_WARN_UNUSED;
int pai_json_set_null(struct pai_json *obj, const char *key) PAI_WARN_UNUSED;
int pai_json_set_map(
    struct pai_json *obj, const char *key, const struct pai_strmap *m) PAI_WARN_UNUSED;
/* Setting a key again replaces it. Takes `take_value` in every case, also on failure. */
int pai_json_set(
    struct pai_json *obj, const char *key, struct pai_json *take_value) PAI_WARN_UNUSED;
int pai_json_push(struct pai_json *arr, struct pai_json *take_value) PAI_WARN_UNUSED;
int pai_json_push_str(struct pai_json *arr, const char *value) PAI_WARN_UNUSED;

/* Getters take NULL and the wrong type: NULL, or the fallback. A number with a fraction or beyond
 * 2^53 is the wrong type. */
const struct pai_json *pai_json_get(const struct pai_json *obj, const char *key);
const char *pai_json_str(const struct pai_json *obj, const char *key);
int64_t pai_json_num(const struct pai_json *obj, const char *key, int64_t fallback);
bool pai_json_bool(const struct pai_json *obj, const char *key, bool fallback);
bool pai_json_is_null(const struct pai_json *obj, const char *key); /* absent is null too */
/* An absent map is empty; -EINVAL when it is not a map of strings. *ret is replaced. */
int pai_json_map(
    const struct pai_json *obj, const char *key, struct pai_strmap *ret) PAI_WARN_UNUSED;
size_t pai_json_count(const struct pai_json *array_or_object);
const struct pai_json *pai_json_at(const struct pai_json *array_or_object, size_t i);
/* The one after `member`: pai_json_at() walks from the start each time. */
const struct pai_json *pai_json_next(const struct pai_json *member);
const char *pai_json_name(const struct pai_json *member); /* its key inside an object */
const char *pai_json_text(const struct pai_json *value);  /* a string value */
bool pai_json_is_object(const struct pai_json *value);
bool pai_json_is_array(const struct pai_json *value);
bool pai_json_is_number(const struct pai_json *value);
bool pai_json_is_bool(const struct pai_json *value);

/* The fixed shape of an error: {"kind","message","retryable","errno", and its fields}. */
struct pai_json *pai_json_from_err(const struct pai_err *err);
/* Back again; a shape that is not one becomes PROTOCOL. Returns -err->errnum. */
int pai_json_to_err(const struct pai_json *obj, struct pai_err *err);

#endif
