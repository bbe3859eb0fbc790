#include "ledger/seed_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/base64.h"
#include "providers/base/json.h"
#include "providers/base/key.h"
#include "providers/base/path.h"
#include "providers/base/printable.h"

#define JSON_DEPTH 4
#define OWN_DIR PAI_WORKSPACE "/.pai"

static void file_fini(struct pai_seed_file *f)
{
	for (char **word = f->argv; word && *word; word++) {
		free(*word);
	}
	free(f->argv);
	free(f->path);
	free(f->version);
	free(f->data);
	free(f->file_id);
	*f = (struct pai_seed_file){.path = NULL};
}

void pai_seed_list_fini(struct pai_seed_list *l)
{
	for (size_t i = 0; i < l->count; i++) {
		file_fini(&l->files[i]);
	}
	free(l->files);
	*l = (struct pai_seed_list){.files = NULL};
}

/* --- one entry --- */

static int check_path(const char *path, struct pai_err *err)
{
	pai_auto_free char *normal = NULL;
	const char *inside;
	size_t own = strlen(OWN_DIR);

	if (path[0] != '/') {
		return pai_err_set(
		    err, PAI_E_INPUT, "the path is relative: expected one inside " PAI_WORKSPACE);
	}
	if (pai_path_resolve(path, &normal, err) < 0) {
		return -err->errnum;
	}
	if (strcmp(path, normal) != 0) {
		return pai_err_set(err, PAI_E_INPUT, "the path is not normalised: expected '%s'",
		    pai_printable(normal));
	}
	inside = pai_path_in_workspace(path);
	if (!inside || !*inside) {
		return pai_err_set(
		    err, PAI_E_INPUT, "the path is outside " PAI_WORKSPACE ", or that itself");
	}
	if (strncmp(path, OWN_DIR, own) == 0 && (path[own] == '/' || path[own] == '\0')) {
		return pai_err_set(
		    err, PAI_E_INPUT, "the path is inside " OWN_DIR ", which is not for seeds");
	}
	return 0;
}

static int set_version(
    struct pai_seed_file *f, const char *kind, const char *value, struct pai_err *err)
{
	if (asprintf(&f->version, "%s:%s", kind, value) < 0) {
		f->version = NULL;
		return pai_err_no_memory(err);
	}
	return 0;
}

/* A member that is a text which says something. */
static int get_id(
    const struct pai_json *entry, const char *name, const char **ret, struct pai_err *err)
{
	*ret = pai_json_str(entry, name);
	if (!*ret) {
		return pai_err_set(err, PAI_E_INPUT, "%s: expected a text", name);
	}
	if (!**ret) {
		return pai_err_set(err, PAI_E_INPUT, "the %s is empty", name);
	}
	return strlen(*ret) > PAI_SEED_ID_MAX
		   ? pai_err_set(
			 err, PAI_E_INPUT, "the %s is longer than %d bytes", name, PAI_SEED_ID_MAX)
		   : 0;
}

static int take_base64(struct pai_seed_file *f, const char *text, struct pai_err *err)
{
	pai_auto_buf struct pai_buf bytes = PAI_BUF_INIT(PAI_SEED_LIST_MAX);
	int r = pai_base64_decode(&bytes, text, strlen(text));

	if (r == -EINVAL) {
		return pai_err_set(err, PAI_E_INPUT, "data: that is not base64");
	}
	f->len = bytes.len;
	f->data = r < 0 ? NULL : pai_buf_take(&bytes);
	return f->data ? 0 : pai_err_no_memory(err);
}

static int take_data(struct pai_seed_file *f, const struct pai_json *entry, struct pai_err *err)
{
	const char *text = pai_json_str(entry, "data");
	const char *encoding = pai_json_str(entry, "encoding");
	char hex[2 * PAI_SHA256_BYTES + 1];
	int r = 0;

	if (!text) {
		return pai_err_set(err, PAI_E_INPUT, "data: expected a text");
	}
	if (pai_json_get(entry, "encoding") &&
	    (!encoding || (strcmp(encoding, "utf8") != 0 && strcmp(encoding, "base64") != 0))) {
		return pai_err_set(err, PAI_E_INPUT, "encoding: expected \"utf8\" or \"base64\"");
	}
	if (encoding && strcmp(encoding, "base64") == 0) {
		r = take_base64(f, text, err);
	} else {
		f->len = strlen(text);
		f->data = strdup(text);
		r = f->data ? 0 : pai_err_no_memory(err);
	}
	if (r < 0) {
		return r;
	}
	pai_sha256_hex(f->data, f->len, hex);
	return set_version(f, "sha256", hex, err);
}

static int take_stored(struct pai_seed_file *f, const struct pai_json *entry, struct pai_err *err)
{
	const char *id = NULL;

	if (get_id(entry, "fileId", &id, err) < 0) {
		return -err->errnum;
	}
	f->file_id = strdup(id);
	return f->file_id ? set_version(f, "file", id, err) : pai_err_no_memory(err);
}

static int take_loader(struct pai_seed_file *f, const struct pai_json *entry, struct pai_err *err)
{
	const struct pai_json *argv = pai_json_get(entry, "loader");
	size_t count = pai_json_is_array(argv) ? pai_json_count(argv) : 0;
	const char *version = NULL;
	size_t i = 0;

	f->argv = count ? calloc(count + 1, sizeof(*f->argv)) : NULL;
	if (count && !f->argv) {
		return pai_err_no_memory(err);
	}
	for (const struct pai_json *at = pai_json_at(argv, 0); i < count; at = pai_json_next(at)) {
		const char *word = pai_json_text(at);

		if (!word) {
			break;
		}
		f->argv[i] = strdup(word);
		if (!f->argv[i++]) {
			return pai_err_no_memory(err);
		}
	}
	if (count == 0 || i < count || !*f->argv[0]) {
		return pai_err_set(err, PAI_E_INPUT,
		    "loader: expected a program and its arguments, an array of texts");
	}
	if (!pai_json_get(entry, "version")) {
		return pai_err_set(err, PAI_E_INPUT, "a loader needs a version");
	}
	return get_id(entry, "version", &version, err) < 0 ? -err->errnum
							   : set_version(f, "loader", version, err);
}

/* The only members that there are; a word of another spelling would be lost in silence. */
static int check_members(const struct pai_json *entry, struct pai_err *err)
{
	static const char *const known[] = {
	    "path", "data", "encoding", "fileId", "loader", "version", "executable"};

	for (const struct pai_json *at = pai_json_at(entry, 0); at; at = pai_json_next(at)) {
		size_t i = 0;

		while (i < PAI_COUNT(known) && strcmp(known[i], pai_json_name(at)) != 0) {
			i++;
		}
		if (i == PAI_COUNT(known)) {
			return pai_err_set(err, PAI_E_INPUT, "'%s' is no member of a file",
			    pai_printable(pai_json_name(at)));
		}
	}
	if (pai_json_get(entry, "encoding") && !pai_json_get(entry, "data")) {
		return pai_err_set(err, PAI_E_INPUT, "an encoding is that of data");
	}
	if (pai_json_get(entry, "version") && !pai_json_get(entry, "loader")) {
		return pai_err_set(err, PAI_E_INPUT,
		    "a version is a loader's: that of data is its hash, of a stored file its id");
	}
	return 0;
}

static int take_source(struct pai_seed_file *f, const struct pai_json *entry, struct pai_err *err)
{
	bool has_data = pai_json_get(entry, "data") != NULL;
	bool has_id = pai_json_get(entry, "fileId") != NULL;
	bool has_loader = pai_json_get(entry, "loader") != NULL;

	switch (has_data + has_id + has_loader) {
	case 0:
		return pai_err_set(err, PAI_E_INPUT, "no source: expected data, fileId or loader");
	case 1:
		return has_data ? take_data(f, entry, err)
		       : has_id ? take_stored(f, entry, err)
				: take_loader(f, entry, err);
	default:
		return pai_err_set(err, PAI_E_INPUT,
		    "more than one source: expected one of data, fileId and loader");
	}
}

static int take_rest(struct pai_seed_file *f, const struct pai_json *entry, struct pai_err *err)
{
	const struct pai_json *executable = pai_json_get(entry, "executable");

	if (check_path(f->path, err) < 0 || check_members(entry, err) < 0) {
		return -err->errnum;
	}
	if (executable && !pai_json_is_bool(executable)) {
		return pai_err_set(err, PAI_E_INPUT, "executable: expected true or false");
	}
	f->executable = pai_json_bool(entry, "executable", false);
	return take_source(f, entry, err);
}

/* What is not valid keeps its path alone, so that it can be named. */
static int take_entry(
    struct pai_seed_list *l, const struct pai_json *entry, size_t number, struct pai_err *err)
{
	struct pai_seed_file *f = &l->files[l->count];
	const char *path = pai_json_str(entry, "path");
	struct pai_err why = PAI_ERR_INIT;

	if (!path) {
		(void)pai_err_set(&why, PAI_E_INPUT,
		    "seed list, entry %zu: expected an object with a 'path', a text", number);
	} else {
		*f = (struct pai_seed_file){.path = strdup(path)};
		l->count++;
		if (!f->path) {
			return pai_err_no_memory(err);
		}
		if (take_rest(f, entry, &why) < 0) {
			char *kept = PAI_TAKE(f->path);

			file_fini(f);
			f->path = kept;
			(void)pai_err_wrap(
			    &why, "seed list, entry %zu, '%s'", number, pai_printable(path));
		}
	}
	if (why.code == PAI_E_NO_MEMORY) {
		*err = why;
		return -err->errnum;
	}
	if (l->invalid.code == PAI_OK) {
		l->invalid = why;
	}
	return 0;
}

/* --- paths that are listed twice --- */

static int by_path(const void *a, const void *b)
{
	const struct pai_seed_file *const *x = a, *const *y = b;
	int r = strcmp((*x)->path, (*y)->path);

	return r ? r : (*x > *y) - (*x < *y);
}

static int keep_last(struct pai_seed_list *l, struct pai_err *err)
{
	pai_auto_free struct pai_seed_file **sorted = NULL;
	size_t kept = 0;

	if (l->count < 2) {
		return 0;
	}
	sorted = reallocarray(NULL, l->count, sizeof(*sorted));
	if (!sorted) {
		return pai_err_no_memory(err);
	}
	for (size_t i = 0; i < l->count; i++) {
		sorted[i] = &l->files[i];
	}
	qsort(sorted, l->count, sizeof(*sorted), by_path);
	for (size_t i = 0; i + 1 < l->count; i++) {
		if (strcmp(sorted[i]->path, sorted[i + 1]->path) == 0) {
			file_fini(sorted[i]);
		}
	}
	for (size_t i = 0; i < l->count; i++) {
		if (l->files[i].path) {
			l->files[kept++] = l->files[i];
		}
	}
	l->count = kept;
	return 0;
}

int pai_seed_list_parse(
    const char *text, size_t len, struct pai_seed_list *ret, struct pai_err *err)
{
	pai_auto_seed_list struct pai_seed_list l = {.files = NULL};
	pai_auto_json struct pai_json *json = NULL;
	struct pai_err why = PAI_ERR_INIT;
	size_t count, number = 0;

	if (len > PAI_SEED_LIST_MAX) {
		return pai_err_set(
		    err, PAI_E_INPUT, "seed list: more than %u bytes", PAI_SEED_LIST_MAX);
	}
	if (pai_json_parse(text, len, JSON_DEPTH, &json, &why) < 0) {
		return why.code == PAI_E_NO_MEMORY
			   ? pai_err_no_memory(err)
			   : pai_err_set(err, PAI_E_INPUT, "seed list: %s", why.msg);
	}
	count = pai_json_count(json);
	if (!pai_json_is_array(json)) {
		return pai_err_set(err, PAI_E_INPUT, "seed list: expected an array of files");
	}
	if (count > PAI_SEED_FILES_MAX) {
		return pai_err_set(
		    err, PAI_E_INPUT, "seed list: more than %d files", PAI_SEED_FILES_MAX);
	}
	l.files = calloc(count ? count : 1, sizeof(*l.files));
	if (!l.files) {
		return pai_err_no_memory(err);
	}
	for (const struct pai_json *at = pai_json_at(json, 0); at; at = pai_json_next(at)) {
		if (take_entry(&l, at, ++number, err) < 0) {
			return -err->errnum;
		}
	}
	if (keep_last(&l, err) < 0) {
		return -err->errnum;
	}
	*ret = l;
	l = (struct pai_seed_list){.files = NULL};
	return 0;
}
