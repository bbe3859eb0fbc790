/* The ledger as the session manager's store: the rules of store.h, in SQL. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/ledger_private.h"
#include "providers/base/clock.h"

static struct pai_ledger *ledger_of(struct pai_store *s)
{
	return (struct pai_ledger *)s;
}

static enum pai_session_state parse_state(const char *name)
{
	for (int i = PAI_SESSION_NEW; i <= PAI_SESSION_KILLED; i++) {
		if (strcmp(pai_session_state_name((enum pai_session_state)i), name) == 0) {
			return (enum pai_session_state)i;
		}
	}
	return PAI_SESSION_NEW;
}

static void read_record(sqlite3_stmt *row, struct pai_session_record *r)
{
	char state[16];

	*r = (struct pai_session_record){.state = PAI_SESSION_NEW};
	pai_ledger_text(row, 0, r->key, sizeof(r->key));
	pai_ledger_text(row, 1, state, sizeof(state));
	r->state = parse_state(state);
	pai_ledger_text(row, 2, r->identity.sandbox_id, sizeof(r->identity.sandbox_id));
	pai_ledger_text(row, 3, r->identity.incarnation, sizeof(r->identity.incarnation));
	r->generation = (uint64_t)sqlite3_column_int64(row, 4);
	r->resets = (uint64_t)sqlite3_column_int64(row, 5);
	r->created_ms = sqlite3_column_int64(row, 6);
	r->last_used_ms = sqlite3_column_int64(row, 7);
	r->trusted = sqlite3_column_int(row, 8) != 0;
}

struct request {
	const char *key;
	const struct pai_session_identity *identity;
	enum pai_store_event event;
	const char *detail; /* set_terms: the text */
	char *text;         /* terms: owned */
	bool flag;          /* revive, trusted */
	bool found, changed;
	struct pai_session_record record;
	struct pai_session_record *records;
	size_t count, cap;
};

static sqlite3_stmt *sql_of_key(struct pai_ledger *l, enum pai_ledger_sql which, const char *key)
{
	sqlite3_stmt *stmt = pai_ledger_sql(l, which);

	if (stmt) {
		(void)sqlite3_bind_text(stmt, 2, key, -1, SQLITE_STATIC);
	}
	return stmt;
}

static int run_of_key(struct pai_ledger *l, enum pai_ledger_sql which, const char *key)
{
	sqlite3_stmt *stmt = sql_of_key(l, which, key);

	return stmt ? pai_ledger_run(stmt) : sqlite3_errcode(l->db);
}

static int load(struct pai_ledger *l, struct request *q)
{
	sqlite3_stmt *stmt = sql_of_key(l, PAI_SQL_LOAD, q->key);
	int r = stmt ? sqlite3_step(stmt) : sqlite3_errcode(l->db);

	q->found = r == SQLITE_ROW;
	if (q->found) {
		read_record(stmt, &q->record);
	}
	if (stmt) {
		(void)sqlite3_reset(stmt);
	}
	return r == SQLITE_ROW || r == SQLITE_DONE ? SQLITE_OK : r;
}

/* The key exists, as NEW when it didn't; its record is in q. */
static int need(struct pai_ledger *l, struct request *q)
{
	sqlite3_stmt *stmt = sql_of_key(l, PAI_SQL_NEED, q->key);
	int r;

	if (!stmt) {
		return sqlite3_errcode(l->db);
	}
	(void)sqlite3_bind_int64(stmt, 3, pai_clock_wall_ms());
	r = pai_ledger_run(stmt);
	return r ? r : load(l, q);
}

static int op_load(struct pai_ledger *l, void *arg, struct pai_err *err)
{
	(void)err;
	return load(l, arg);
}

static int op_list(struct pai_ledger *l, void *arg, struct pai_err *err)
{
	struct request *q = arg;
	sqlite3_stmt *stmt = pai_ledger_sql(l, PAI_SQL_LIST);
	int r = stmt ? sqlite3_step(stmt) : sqlite3_errcode(l->db);

	(void)err;
	q->count = 0; /* of an attempt before this one */
	for (; r == SQLITE_ROW; r = sqlite3_step(stmt)) {
		if (q->count == q->cap) {
			size_t cap = q->cap ? 2 * q->cap : 16;
			void *grown = reallocarray(q->records, cap, sizeof(*q->records));

			if (!grown) {
				r = SQLITE_NOMEM;
				break;
			}
			q->records = grown;
			q->cap = cap;
		}
		read_record(stmt, &q->records[q->count++]);
	}
	if (stmt) {
		(void)sqlite3_reset(stmt);
	}
	return r == SQLITE_DONE ? SQLITE_OK : r;
}

static int op_name(struct pai_ledger *l, void *arg, struct pai_err *err)
{
	struct request *q = arg;
	int r = need(l, q);

	(void)err;
	return r ? r : run_of_key(l, PAI_SQL_NAME, q->key);
}

static int op_bind(struct pai_ledger *l, void *arg, struct pai_err *err)
{
	struct request *q = arg;
	struct pai_session_record *record = &q->record;
	sqlite3_stmt *stmt;
	bool differs;
	int r = need(l, q);

	if (r != SQLITE_OK) {
		return r;
	}
	if (record->state == PAI_SESSION_KILLED && !q->flag) {
		(void)pai_err_set(err, PAI_E_RESET, "the session was killed");
		return SQLITE_ABORT;
	}
	differs = !pai_session_identity_equal(&record->identity, q->identity);
	q->changed = differs && record->generation > 0;
	record->generation += differs;
	record->identity = *q->identity;
	record->state = PAI_SESSION_LIVE;
	record->last_used_ms = pai_clock_wall_ms();
	stmt = sql_of_key(l, PAI_SQL_BIND, q->key);
	if (!stmt) {
		return sqlite3_errcode(l->db);
	}
	(void)sqlite3_bind_text(stmt, 3, record->identity.sandbox_id, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(stmt, 4, record->identity.incarnation, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 5, (sqlite3_int64)record->generation);
	(void)sqlite3_bind_int64(stmt, 6, record->last_used_ms);
	return pai_ledger_run(stmt);
}

static const struct {
	const char *name;
	const char *state; /* NULL: moves nothing */
	bool any_identity, is_reset;
} events[] = {
    [PAI_STORE_CREATE] = {"create", NULL, false, false},
    [PAI_STORE_ADOPT] = {"adopt", NULL, false, false},
    [PAI_STORE_LOST] = {"lost", "lost", false, false},
    [PAI_STORE_RESET] = {"reset", "new", true, true},
    [PAI_STORE_KILL] = {"kill", "killed", true, true},
    [PAI_STORE_PAUSE] = {"pause", "paused", false, false},
    [PAI_STORE_RESUME] = {"resume", NULL, false, false},
};

static int move(struct pai_ledger *l, const struct request *q)
{
	sqlite3_stmt *stmt = sql_of_key(l, PAI_SQL_MOVE, q->key);

	if (!stmt) {
		return sqlite3_errcode(l->db);
	}
	(void)sqlite3_bind_text(stmt, 3, events[q->event].state, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(stmt, 4, q->identity->sandbox_id, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(stmt, 5, q->identity->incarnation, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int(stmt, 6, events[q->event].any_identity);
	return pai_ledger_run(stmt);
}

static int op_event(struct pai_ledger *l, void *arg, struct pai_err *err)
{
	struct request *q = arg;
	sqlite3_stmt *stmt;
	int r = need(l, q);

	(void)err;
	if (r == SQLITE_OK && events[q->event].is_reset) {
		r = run_of_key(l, PAI_SQL_COUNT_RESET, q->key);
	}
	if (r == SQLITE_OK && events[q->event].state) {
		r = move(l, q);
	}
	if (r == SQLITE_OK && q->event == PAI_STORE_KILL) {
		r = run_of_key(l, PAI_SQL_DROP_TERMS, q->key);
	}
	if (r != SQLITE_OK) {
		return r;
	}
	stmt = sql_of_key(l, PAI_SQL_EVENT, q->key);
	if (!stmt) {
		return sqlite3_errcode(l->db);
	}
	(void)sqlite3_bind_int64(stmt, 3, pai_clock_wall_ms());
	(void)sqlite3_bind_text(stmt, 4, events[q->event].name, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(stmt, 5, q->identity->sandbox_id, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(stmt, 6, q->identity->incarnation, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 7, (sqlite3_int64)q->record.generation);
	(void)sqlite3_bind_text(stmt, 8, q->detail, -1, SQLITE_STATIC);
	r = pai_ledger_run(stmt);
	return r ? r : pai_ledger_prune(l, q->key);
}

static int op_trust(struct pai_ledger *l, void *arg, struct pai_err *err)
{
	struct request *q = arg;
	sqlite3_stmt *stmt;
	int r = need(l, q);

	(void)err;
	if (r != SQLITE_OK) {
		return r;
	}
	stmt = sql_of_key(l, PAI_SQL_TRUST, q->key);
	if (!stmt) {
		return sqlite3_errcode(l->db);
	}
	(void)sqlite3_bind_int(stmt, 3, q->flag);
	return pai_ledger_run(stmt);
}

static int op_terms(struct pai_ledger *l, void *arg, struct pai_err *err)
{
	struct request *q = arg;
	sqlite3_stmt *stmt = sql_of_key(l, PAI_SQL_TERMS, q->key);
	int r = stmt ? sqlite3_step(stmt) : sqlite3_errcode(l->db);

	(void)err;
	if (r == SQLITE_ROW) {
		const unsigned char *text = sqlite3_column_text(stmt, 0);

		free(q->text);
		q->text = text ? strdup((const char *)text) : NULL;
		r = q->text ? SQLITE_DONE : SQLITE_NOMEM;
	}
	if (stmt) {
		(void)sqlite3_reset(stmt);
	}
	return r == SQLITE_DONE ? SQLITE_OK : r;
}

static int op_set_terms(struct pai_ledger *l, void *arg, struct pai_err *err)
{
	struct request *q = arg;
	sqlite3_stmt *stmt = sql_of_key(l, PAI_SQL_SET_TERMS, q->key);

	(void)err;
	if (!stmt) {
		return sqlite3_errcode(l->db);
	}
	(void)sqlite3_bind_text(stmt, 3, q->detail, -1, SQLITE_STATIC);
	return pai_ledger_run(stmt);
}

/* --- the store's calls --- */

static int store_load(struct pai_store *s, const char *key, bool *found,
    struct pai_session_record *ret, struct pai_err *err)
{
	struct request q = {.key = key};
	int r = pai_ledger_perform(ledger_of(s), false, op_load, &q, err);

	if (r == 0) {
		*found = q.found;
	}
	if (r == 0 && q.found) {
		*ret = q.record;
	}
	return r;
}

static int store_list(
    struct pai_store *s, struct pai_session_record **ret, size_t *count, struct pai_err *err)
{
	struct request q = {.key = NULL};
	int r = pai_ledger_perform(ledger_of(s), false, op_list, &q, err);

	if (r < 0) {
		free(q.records);
		return r;
	}
	*ret = q.records;
	*count = q.count;
	return 0;
}

static int store_name(struct pai_store *s, const char *key, struct pai_err *err)
{
	struct request q = {.key = key};

	return pai_ledger_perform(ledger_of(s), true, op_name, &q, err);
}

static int store_bind(struct pai_store *s, const char *key,
    const struct pai_session_identity *identity, bool revive, struct pai_session_record *ret,
    bool *changed, struct pai_err *err)
{
	struct request q = {.key = key, .identity = identity, .flag = revive};
	int r = pai_ledger_perform(ledger_of(s), true, op_bind, &q, err);

	if (r == 0) {
		*ret = q.record;
		*changed = q.changed;
	}
	return r;
}

static int store_event(struct pai_store *s, const char *key, enum pai_store_event event,
    const struct pai_session_identity *identity, const char *detail, struct pai_err *err)
{
	static const struct pai_session_identity none;
	struct request q = {
	    .key = key,
	    .identity = identity ? identity : &none,
	    .event = event,
	    .detail = detail,
	};

	return pai_ledger_perform(ledger_of(s), true, op_event, &q, err);
}

static int store_trust(struct pai_store *s, const char *key, bool trusted, struct pai_err *err)
{
	struct request q = {.key = key, .flag = trusted};

	return pai_ledger_perform(ledger_of(s), true, op_trust, &q, err);
}

static int store_terms(struct pai_store *s, const char *key, char **ret, struct pai_err *err)
{
	struct request q = {.key = key};
	int r = pai_ledger_perform(ledger_of(s), false, op_terms, &q, err);

	if (r < 0) {
		free(q.text);
		return r;
	}
	*ret = q.text;
	return 0;
}

static int store_set_terms(
    struct pai_store *s, const char *key, const char *text, struct pai_err *err)
{
	struct request q = {.key = key, .detail = text};

	return pai_ledger_perform(ledger_of(s), true, op_set_terms, &q, err);
}

static void store_free(struct pai_store *s)
{
	pai_ledger_close(ledger_of(s));
}

const struct pai_store_ops pai_ledger_store_ops = {
    .load = store_load,
    .list = store_list,
    .name = store_name,
    .bind = store_bind,
    .event = store_event,
    .trust = store_trust,
    .terms = store_terms,
    .set_terms = store_set_terms,
    .free = store_free,
};
