/*
 * The log's bound. What goes is the oldest, a few rows at a time, so that no transaction is long,
 * also in a file from before there was a bound. Sessions and their tombstones are no log: they
 * stay.
 */
#include "ledger/ledger_private.h"

#define ONE_IN 64 /* insertions that look: a look walks PAI_LEDGER_KEY_ROWS entries of an index */
#define ROWS_AT_ONCE 256

/* By the id, scattered: whoever writes in turn with others must get his turn here as well. */
static bool is_due(int64_t id)
{
	return ((uint32_t)id * 2654435761u) % ONE_IN == 0;
}

/* The newest id that is to go; 0: none. */
static int find_newest(struct pai_ledger *l, const char *key, int64_t *ret)
{
	sqlite3_stmt *stmt = pai_ledger_sql(l, PAI_SQL_OVER);
	int r;

	if (!stmt) {
		return sqlite3_errcode(l->db);
	}
	(void)sqlite3_bind_text(stmt, 2, key, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 3, PAI_LEDGER_KEY_ROWS);
	r = sqlite3_step(stmt);
	*ret = r == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
	(void)sqlite3_reset(stmt);
	return r == SQLITE_ROW || r == SQLITE_DONE ? SQLITE_OK : r;
}

/* A command goes before its event, by which it is found. */
static int drop(struct pai_ledger *l, enum pai_ledger_sql which, const char *key, int64_t bound)
{
	sqlite3_stmt *stmt = pai_ledger_sql(l, which);

	if (!stmt) {
		return sqlite3_errcode(l->db);
	}
	(void)sqlite3_bind_int64(stmt, 2, bound);
	(void)sqlite3_bind_int64(stmt, 3, ROWS_AT_ONCE);
	if (key) {
		(void)sqlite3_bind_text(stmt, 4, key, -1, SQLITE_STATIC);
	}
	return pai_ledger_run(stmt);
}

int pai_ledger_prune(struct pai_ledger *l, const char *key)
{
	int64_t id = sqlite3_last_insert_rowid(l->db);
	int64_t newest = 0;
	int r;

	if (!is_due(id)) {
		return SQLITE_OK;
	}
	r = find_newest(l, key, &newest);
	if (r == SQLITE_OK && newest > 0) {
		r = drop(l, PAI_SQL_DROP_KEY_COMMANDS, key, newest);
		r = r ? r : drop(l, PAI_SQL_DROP_KEY_EVENTS, key, newest);
	}
	if (r == SQLITE_OK && id > PAI_LEDGER_ROWS) {
		r = drop(l, PAI_SQL_DROP_COMMANDS, NULL, id - PAI_LEDGER_ROWS);
		r = r ? r : drop(l, PAI_SQL_DROP_EVENTS, NULL, id - PAI_LEDGER_ROWS);
	}
	return r;
}
