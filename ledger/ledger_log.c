/* Commands, and everything that happened as JSON. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/ledger_private.h"
#include "providers/base/clock.h"

static int add_event(struct pai_ledger *l, const struct pai_ledger_command *c)
{
	sqlite3_stmt *stmt = pai_ledger_sql(l, PAI_SQL_EVENT);

	if (!stmt) {
		return sqlite3_errcode(l->db);
	}
	(void)sqlite3_bind_text(stmt, 2, c->key, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 3, c->started_ms);
	(void)sqlite3_bind_text(stmt, 4, "command", -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(stmt, 5, c->identity->sandbox_id, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(stmt, 6, c->identity->incarnation, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 7, (sqlite3_int64)c->generation);
	(void)sqlite3_bind_text(stmt, 8, "", -1, SQLITE_STATIC);
	return pai_ledger_run(stmt);
}

static int add_details(struct pai_ledger *l, const struct pai_ledger_command *c)
{
	sqlite3_stmt *stmt = pai_ledger_sql(l, PAI_SQL_COMMAND);

	if (!stmt) {
		return sqlite3_errcode(l->db);
	}
	(void)sqlite3_bind_text(stmt, 2, c->cwd, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(stmt, 3, c->command, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 4, c->duration_ms);
	(void)sqlite3_bind_text(stmt, 5, c->source, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(stmt, 6, c->outcome, -1, SQLITE_STATIC);
	if (c->exit_code >= 0) {
		(void)sqlite3_bind_int(stmt, 7, c->exit_code);
	}
	(void)sqlite3_bind_int64(stmt, 8, (sqlite3_int64)c->stdin_bytes);
	(void)sqlite3_bind_int64(stmt, 9, (sqlite3_int64)c->stdout_bytes);
	(void)sqlite3_bind_int64(stmt, 10, (sqlite3_int64)c->stderr_bytes);
	(void)sqlite3_bind_text(stmt, 11, c->spool, -1, SQLITE_STATIC);
	return pai_ledger_run(stmt);
}

static int op_add(struct pai_ledger *l, void *arg, struct pai_err *err)
{
	const struct pai_ledger_command *c = arg;
	sqlite3_stmt *stmt;
	int r = add_event(l, c);

	(void)err;
	r = r ? r : add_details(l, c);
	if (r != SQLITE_OK) {
		return r;
	}
	stmt = pai_ledger_sql(l, PAI_SQL_USED);
	if (!stmt) {
		return sqlite3_errcode(l->db);
	}
	(void)sqlite3_bind_text(stmt, 2, c->key, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 3, c->started_ms + c->duration_ms);
	r = pai_ledger_run(stmt);
	return r ? r : pai_ledger_prune(l, c->key);
}

int pai_ledger_command_add(
    struct pai_ledger *l, const struct pai_ledger_command *c, struct pai_err *err)
{
	return pai_ledger_perform(l, true, op_add, (void *)c, err);
}

/* --- later --- */

void pai_ledger_queued_free(struct pai_ledger_queued *list)
{
	while (list) {
		struct pai_ledger_queued *q = list;

		list = q->next;
		free(q->key);
		free(q->cwd);
		free(q->text);
		free(q->spool);
		free(q);
	}
}

int pai_ledger_add_queued(struct pai_ledger *l, void *arg, struct pai_err *err)
{
	int r = SQLITE_OK;

	for (struct pai_ledger_queued *q = arg; q && r == SQLITE_OK; q = q->next) {
		r = op_add(l, &q->command, err);
	}
	return r;
}

static bool copy_text(const char *text, char **ret)
{
	*ret = text ? strdup(text) : NULL;
	return *ret || !text;
}

int pai_ledger_command_queue(
    struct pai_ledger *l, const struct pai_ledger_command *c, struct pai_err *err)
{
	struct pai_ledger_queued *q = calloc(1, sizeof(*q));

	if (!q || !copy_text(c->key, &q->key) || !copy_text(c->cwd, &q->cwd) ||
	    !copy_text(c->command, &q->text) || !copy_text(c->spool, &q->spool)) {
		pai_ledger_queued_free(q);
		return pai_err_no_memory(err);
	}
	q->identity = *c->identity;
	q->command = *c; /* source and outcome are literals */
	q->command.key = q->key;
	q->command.identity = &q->identity;
	q->command.cwd = q->cwd;
	q->command.command = q->text;
	q->command.spool = q->spool;
	(void)pthread_mutex_lock(&l->queue_lock);
	*l->queue_tail = q;
	l->queue_tail = &q->next;
	(void)pthread_mutex_unlock(&l->queue_lock);
	return 0;
}

struct last {
	const char *key;
	struct pai_session_identity *ret;
	bool found;
};

static int op_last(struct pai_ledger *l, void *arg, struct pai_err *err)
{
	struct last *q = arg;
	sqlite3_stmt *stmt = pai_ledger_sql(l, PAI_SQL_LAST_COMMAND);
	int r;

	(void)err;
	if (!stmt) {
		return sqlite3_errcode(l->db);
	}
	(void)sqlite3_bind_text(stmt, 2, q->key, -1, SQLITE_STATIC);
	r = sqlite3_step(stmt);
	q->found = r == SQLITE_ROW;
	if (q->found) {
		pai_ledger_text(stmt, 0, q->ret->sandbox_id, sizeof(q->ret->sandbox_id));
		pai_ledger_text(stmt, 1, q->ret->incarnation, sizeof(q->ret->incarnation));
	}
	(void)sqlite3_reset(stmt);
	return r == SQLITE_ROW || r == SQLITE_DONE ? SQLITE_OK : r;
}

bool pai_ledger_last_command(
    struct pai_ledger *l, const char *key, struct pai_session_identity *ret)
{
	struct last q = {.key = key, .ret = ret};

	return pai_ledger_perform(l, false, op_last, &q, PAI_ERR_IGNORED()) == 0 && q.found;
}

/* --- the log --- */

struct log_query {
	const char *key;
	size_t limit;
	int64_t before_id;
	struct pai_json *entries;
};

enum column {
	COL_ID,
	COL_KEY,
	COL_AT,
	COL_EVENT,
	COL_SANDBOX,
	COL_INCARNATION,
	COL_GENERATION,
	COL_DETAIL,
	COL_COMMAND_ID,
	COL_CWD,
	COL_COMMAND,
	COL_DURATION,
	COL_SOURCE,
	COL_OUTCOME,
	COL_EXIT,
	COL_STDIN,
	COL_STDOUT,
	COL_STDERR,
	COL_SPOOL,
};
struct field {
	const char *name;
	enum column column;
	bool is_text;
};
static const struct field common_fields[] = {
    {"id", COL_ID, false},
    {"key", COL_KEY, true},
    {"atMs", COL_AT, false},
    {"event", COL_EVENT, true},
    {"sandboxId", COL_SANDBOX, true},
    {"incarnation", COL_INCARNATION, true},
    {"generation", COL_GENERATION, false},
};
static const struct field event_fields[] = {{"detail", COL_DETAIL, true}};
static const struct field command_fields[] = {
    {"cwd", COL_CWD, true},
    {"command", COL_COMMAND, true},
    {"durationMs", COL_DURATION, false},
    {"source", COL_SOURCE, true},
    {"outcome", COL_OUTCOME, true},
    {"exitCode", COL_EXIT, false},
    {"stdinBytes", COL_STDIN, false},
    {"stdoutBytes", COL_STDOUT, false},
    {"stderrBytes", COL_STDERR, false},
    {"spool", COL_SPOOL, true},
};

static int put_fields(
    struct pai_json *obj, sqlite3_stmt *row, const struct field *fields, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct field *f = &fields[i];
		int r;

		if (sqlite3_column_type(row, (int)f->column) == SQLITE_NULL) {
			r = pai_json_set_null(obj, f->name);
		} else if (f->is_text) {
			r = pai_json_set_str(
			    obj, f->name, (const char *)sqlite3_column_text(row, (int)f->column));
		} else {
			r = pai_json_set_num(
			    obj, f->name, sqlite3_column_int64(row, (int)f->column));
		}
		if (r < 0) {
			return r;
		}
	}
	return 0;
}

static int put_row(struct pai_json *entries, sqlite3_stmt *row)
{
	pai_auto_json struct pai_json *obj = pai_json_object();
	bool is_command = sqlite3_column_type(row, COL_COMMAND_ID) != SQLITE_NULL;
	int r = obj ? put_fields(obj, row, common_fields, PAI_COUNT(common_fields)) : -ENOMEM;

	if (r == 0) {
		r = is_command ? put_fields(obj, row, command_fields, PAI_COUNT(command_fields))
			       : put_fields(obj, row, event_fields, PAI_COUNT(event_fields));
	}
	return r < 0 ? r : pai_json_push(entries, PAI_TAKE(obj));
}

static int op_log(struct pai_ledger *l, void *arg, struct pai_err *err)
{
	struct log_query *q = arg;
	sqlite3_stmt *stmt = pai_ledger_sql(l, PAI_SQL_LOG);
	int r;

	(void)err;
	pai_json_free(q->entries); /* of an attempt before this one */
	q->entries = pai_json_array();
	if (!stmt || !q->entries) {
		return stmt ? SQLITE_NOMEM : sqlite3_errcode(l->db);
	}
	(void)sqlite3_bind_text(stmt, 2, q->key, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 3, q->before_id);
	(void)sqlite3_bind_int64(stmt, 4, q->limit > INT64_MAX ? INT64_MAX : (int64_t)q->limit);
	while ((r = sqlite3_step(stmt)) == SQLITE_ROW) {
		if (put_row(q->entries, stmt) < 0) {
			r = SQLITE_NOMEM;
			break;
		}
	}
	(void)sqlite3_reset(stmt);
	return r == SQLITE_DONE ? SQLITE_OK : r;
}

int pai_ledger_log(struct pai_ledger *l, const char *key, size_t limit, int64_t before_id,
    struct pai_json **ret, struct pai_err *err)
{
	struct log_query q = {.key = key, .limit = limit, .before_id = before_id};
	int r = pai_ledger_perform(l, false, op_log, &q, err);

	if (r < 0) {
		pai_json_free(q.entries);
		return r;
	}
	*ret = q.entries;
	return 0;
}
