/* What keys were derived from. */
#include <stdlib.h>
#include <string.h>

#include "ledger/ledger_private.h"
#include "providers/base/clock.h"

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
