/* ledger_private: what the files of this folder share. */
#ifndef PAI_LEDGER_PRIVATE_H
#define PAI_LEDGER_PRIVATE_H

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "ledger/ledger.h"

enum pai_ledger_sql {
	PAI_SQL_BEGIN,
	PAI_SQL_COMMIT,
	PAI_SQL_ROLLBACK,
	PAI_SQL_LOAD,
	PAI_SQL_LIST,
	PAI_SQL_NEED,
	PAI_SQL_NAME,
	PAI_SQL_BIND,
	PAI_SQL_MOVE,
	PAI_SQL_COUNT_RESET,
	PAI_SQL_TRUST,
	PAI_SQL_TERMS,
	PAI_SQL_SET_TERMS,
	PAI_SQL_DROP_TERMS,
	PAI_SQL_IDS,
	PAI_SQL_SET_IDS,
	PAI_SQL_EVENT,
	PAI_SQL_COMMAND,
	PAI_SQL_USED,
	PAI_SQL_LAST_COMMAND,
	PAI_SQL_LOG,
	PAI_SQL_OVER,
	PAI_SQL_DROP_KEY_COMMANDS,
	PAI_SQL_DROP_KEY_EVENTS,
	PAI_SQL_DROP_COMMANDS,
	PAI_SQL_DROP_EVENTS,
	PAI_SQL_STATEMENTS
};

/* A command that waits to be written, with its strings. */
struct pai_ledger_queued {
	struct pai_ledger_queued *next;
	struct pai_ledger_command command;
	struct pai_session_identity identity;
	char *key, *cwd, *text, *spool;
};
struct pai_ledger {
	struct pai_store store; /* first: the store is the ledger */
	atomic_uint refs;
	char *path, *scope;
	pthread_mutex_t lock; /* of everything below */
	sqlite3 *db;
	dev_t dev; /* of the file that is open: another process may set it aside */
	ino_t ino;
	sqlite3_stmt *statements[PAI_SQL_STATEMENTS];
	/* Taken after `lock`, or alone. */
	pthread_mutex_t queue_lock;
	struct pai_ledger_queued *queue, **queue_tail;
};
extern const struct pai_store_ops pai_ledger_store_ops;

/*
 * Runs `op` with the database, once more after a damaged file was set aside. With `writes` in one
 * transaction, which SQLITE_OK commits. `op` may set `err` itself and return SQLITE_ABORT: it is
 * given on.
 */
typedef int (*pai_ledger_op)(struct pai_ledger *l, void *arg, struct pai_err *err);
int pai_ledger_perform(struct pai_ledger *l, bool writes, pai_ledger_op op, void *arg,
    struct pai_err *err) PAI_WARN_UNUSED;

/* One transaction for all of them: an op, `arg` is the first. */
int pai_ledger_add_queued(struct pai_ledger *l, void *arg, struct pai_err *err);
void pai_ledger_queued_free(struct pai_ledger_queued *list);

/* After an insertion for `key`: takes away what is over the bounds, now and then. SQLITE_OK or an
 * error. */
int pai_ledger_prune(struct pai_ledger *l, const char *key);

/* A statement, reset, with the scope bound to ?1 where it has one; NULL: sqlite3_errcode() says. */
sqlite3_stmt *pai_ledger_sql(struct pai_ledger *l, enum pai_ledger_sql which);
/* Runs a statement that gives no row. SQLITE_OK or an error. */
int pai_ledger_run(sqlite3_stmt *stmt);
/* The column as a string cut to cap, "" for NULL. */
void pai_ledger_text(sqlite3_stmt *stmt, int column, char *to, size_t cap);

#endif
