#include "ledger/seed_ledger.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/base/json.h"

#define JSON_DEPTH 3

void pai_seed_ledger_fini(struct pai_seed_ledger *l)
{
	for (size_t i = 0; i < l->count; i++) {
		free(l->records[i].path);
		free(l->records[i].version);
	}
	free(l->records);
	*l = (struct pai_seed_ledger){.records = NULL};
}

static int by_path(const void *a, const void *b)
{
	const struct pai_seed_record *x = a, *y = b;

	return strcmp(x->path, y->path);
}

/* What is no record is left aside. */
static int take(struct pai_seed_ledger *l, const struct pai_json *record, struct pai_err *err)
{
	const char *path = pai_json_str(record, "path");
	const char *version = pai_json_str(record, "version");
	struct pai_seed_record *r = &l->records[l->count];

	if (!path || !version) {
		return 0;
	}
	*r = (struct pai_seed_record){.path = strdup(path), .version = strdup(version)};
	l->count++;
	return r->path && r->version ? 0 : pai_err_no_memory(err);
}

static void drop_doubles(struct pai_seed_ledger *l)
{
	size_t kept = 0;

	if (l->count > 1) {
		qsort(l->records, l->count, sizeof(*l->records), by_path);
	}
	for (size_t i = 0; i < l->count; i++) {
		if (kept > 0 && strcmp(l->records[kept - 1].path, l->records[i].path) == 0) {
			free(l->records[i].path);
			free(l->records[i].version);
		} else {
			l->records[kept++] = l->records[i];
		}
	}
	l->count = kept;
}

int pai_seed_ledger_parse(
    const char *text, size_t len, struct pai_seed_ledger *ret, struct pai_err *err)
{
	pai_auto_seed_ledger struct pai_seed_ledger l = {.records = NULL};
	pai_auto_json struct pai_json *json = NULL;
	const struct pai_json *files;
	size_t count;
	struct pai_err why = PAI_ERR_INIT;

	*ret = (struct pai_seed_ledger){.records = NULL};
	if (len > PAI_SEED_LEDGER_MAX || pai_json_parse(text, len, JSON_DEPTH, &json, &why) < 0) {
		return why.code == PAI_E_NO_MEMORY ? pai_err_no_memory(err) : 0;
	}
	files = pai_json_get(json, "files");
	count = pai_json_is_array(files) ? pai_json_count(files) : 0;
	if (count == 0) {
		return 0;
	}
	l.records = calloc(count, sizeof(*l.records));
	if (!l.records) {
		return pai_err_no_memory(err);
	}
	for (const struct pai_json *at = pai_json_at(files, 0); at; at = pai_json_next(at)) {
		if (take(&l, at, err) < 0) {
			return -err->errnum;
		}
	}
	drop_doubles(&l);
	*ret = l;
	l = (struct pai_seed_ledger){.records = NULL};
	return 0;
}

struct pai_seed_record *pai_seed_ledger_find(struct pai_seed_ledger *l, const char *path)
{
	struct pai_seed_record wanted = {.path = (char *)(uintptr_t)path};

	return l->count ? bsearch(&wanted, l->records, l->count, sizeof(*l->records), by_path)
			: NULL;
}

int pai_seed_ledger_begin(struct pai_buf *out)
{
	return pai_buf_add_str(out, "{\"files\":[");
}

int pai_seed_ledger_put(struct pai_buf *out, const char *path, const char *version)
{
	pai_auto_json struct pai_json *record = pai_json_object();
	pai_auto_free char *text = NULL;
	int r = pai_json_set_str(record, "path", path);

	r = r ? r : pai_json_set_str(record, "version", version);
	text = r ? NULL : pai_json_print(record, false);
	if (!text) {
		return -ENOMEM;
	}
	r = pai_buf_add_str(out, out->data[out->len - 1] == '[' ? "\n" : ",\n");
	return r ? r : pai_buf_add_str(out, text);
}

int pai_seed_ledger_end(struct pai_buf *out)
{
	return pai_buf_add_str(out, "\n]}\n");
}
