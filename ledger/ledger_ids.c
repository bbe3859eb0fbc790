/* What keys were derived from. */
#include <stdlib.h>
#include <string.h>

#include "ledger/ledger_private.h"
#include "providers/base/clock.h"
#include "providers/base/log.h"

#define TEXT_DEPTH 4

struct query {
	const char *key;
	const char *text; /* to set */
	char *found;      /* owned */
};

static int op_ids(struct pai_ledger *l, void *arg, struct pai_err *err)
{
	struct query *q = arg;
	sqlite3_stmt *stmt = pai_ledger_sql(l, PAI_SQL_IDS);
	int r;

	(void)err;
	if (!stmt) {
		return sqlite3_errcode(l->db);
	}
	(void)sqlite3_bind_text(stmt, 2, q->key, -1, SQLITE_STATIC);
	r = sqlite3_step(stmt);
	if (r == SQLITE_ROW) {
		const unsigned char *text = sqlite3_column_text(stmt, 0);

		free(q->found); /* of an attempt before this one */
		q->found = text ? strdup((const char *)text) : NULL;
		r = q->found ? SQLITE_DONE : SQLITE_NOMEM;
	}
	(void)sqlite3_reset(stmt);
	return r == SQLITE_DONE ? SQLITE_OK : r;
}

static int add_event(struct pai_ledger *l, const struct query *q)
{
	sqlite3_stmt *stmt = pai_ledger_sql(l, PAI_SQL_EVENT);

	if (!stmt) {
		return sqlite3_errcode(l->db);
	}
	(void)sqlite3_bind_text(stmt, 2, q->key, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 3, pai_clock_wall_ms());
	(void)sqlite3_bind_text(stmt, 4, "scope", -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(stmt, 5, "", -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(stmt, 6, "", -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 7, 0);
	(void)sqlite3_bind_text(stmt, 8, q->text, -1, SQLITE_STATIC);
	return pai_ledger_run(stmt);
}

static int op_set_ids(struct pai_ledger *l, void *arg, struct pai_err *err)
{
	struct query *q = arg;
	sqlite3_stmt *stmt;
	int r = op_ids(l, q, err);

	if (r != SQLITE_OK || (q->found && strcmp(q->found, q->text) == 0)) {
		return r;
	}
	stmt = pai_ledger_sql(l, PAI_SQL_SET_IDS);
	if (!stmt) {
		return sqlite3_errcode(l->db);
	}
	(void)sqlite3_bind_text(stmt, 2, q->key, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(stmt, 3, q->text, -1, SQLITE_STATIC);
	r = pai_ledger_run(stmt);
	r = r ? r : add_event(l, q);
	return r ? r : pai_ledger_prune(l, q->key);
}

int pai_ledger_ids(struct pai_ledger *l, const char *key, char **ret, struct pai_err *err)
{
	struct query q = {.key = key};
	int r = pai_ledger_perform(l, false, op_ids, &q, err);

	if (r < 0) {
		free(q.found);
		return r;
	}
	*ret = q.found;
	return 0;
}

int pai_ledger_set_ids(struct pai_ledger *l, const char *key, const char *text, struct pai_err *err)
{
	struct query q = {.key = key, .text = text};
	int r = pai_ledger_perform(l, true, op_set_ids, &q, err);

	free(q.found);
	return r;
}

/* False: it says nothing that can be used. */
static bool take_said(const char *text, enum pai_scope *scope, struct pai_strmap *ids)
{
	pai_auto_json struct pai_json *said = NULL;
	const char *name;

	if (!text || pai_json_parse(text, strlen(text), TEXT_DEPTH, &said, PAI_ERR_IGNORED()) < 0) {
		return false;
	}
	name = pai_json_str(said, "scope");
	return name && pai_scope_parse(name, scope) && pai_json_map(said, "ids", ids) == 0;
}

int pai_ledger_scope(struct pai_ledger *l, const char *key, enum pai_scope *scope,
    struct pai_strmap *ids, bool *is_known)
{
	pai_auto_free char *text = NULL;
	struct pai_err err = PAI_ERR_INIT;

	if (pai_ledger_ids(l, key, &text, &err) < 0) {
		pai_log_debug("ledger", "%s: no ids: %s", key, err.msg);
	}
	*is_known = true;
	if (take_said(text, scope, ids)) {
		return 0;
	}
	pai_strmap_fini(ids);
	*scope = PAI_SCOPE_THREAD;
	*is_known = !pai_scope_of_key(key, scope);
	return *is_known ? pai_strmap_set(ids, "threadId", key) : 0;
}
