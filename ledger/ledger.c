/*
 * The file, its opening and its repair. Every process that uses it opens it here, under a lock on
 * NAME.lock, so that of several that find it damaged one sets it aside and the others open the new
 * one. An operation that finds another file at the path than the one it has open (set aside by
 * another process, or deleted) opens that first.
 *
 * WAL with synchronous=NORMAL: a killed process loses nothing, a power cut at most the last
 * commits, and the file stays sound.
 */
#include "ledger/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ledger/ledger_private.h"
#include "providers/base/clock.h"
#include "providers/base/log.h"

#define SCHEMA_VERSION 3
#define APPLICATION_ID "1346455884" /* "PAIL" */
#define BUSY_MS 5000
/* Past this, only the table that decisions hang on is checked at the opening. */
#define CHECK_ALL_BYTES (64 << 20)

/* What was given to `pai create`, environment included: the file is its owner's alone. */
#define TERMS_TABLE                                                                                \
	"CREATE TABLE terms ("                                                                     \
	" scope TEXT NOT NULL, key TEXT NOT NULL, text TEXT NOT NULL,"                             \
	" PRIMARY KEY (scope, key)) WITHOUT ROWID;"
/* What a key was derived from (providers/base/scope.h). It outlives the session: a key never means
 * anything else. */
#define IDS_TABLE                                                                                  \
	"CREATE TABLE ids ("                                                                       \
	" scope TEXT NOT NULL, key TEXT NOT NULL, text TEXT NOT NULL,"                             \
	" PRIMARY KEY (scope, key)) WITHOUT ROWID;"
static const char schema[] =
    "BEGIN IMMEDIATE;"
    "PRAGMA application_id = " APPLICATION_ID ";"
    "CREATE TABLE sessions ("
    " scope TEXT NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL,"
    " sandbox_id TEXT NOT NULL DEFAULT '', incarnation TEXT NOT NULL DEFAULT '',"
    " generation INTEGER NOT NULL DEFAULT 0, resets INTEGER NOT NULL DEFAULT 0,"
    " created_ms INTEGER NOT NULL, last_used_ms INTEGER NOT NULL DEFAULT 0,"
    " trusted INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (scope, key)) WITHOUT ROWID;"
    "CREATE TABLE events ("
    " id INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL, key TEXT NOT NULL,"
    " at_ms INTEGER NOT NULL, event TEXT NOT NULL, sandbox_id TEXT NOT NULL,"
    " incarnation TEXT NOT NULL, generation INTEGER NOT NULL, detail TEXT NOT NULL);"
    "CREATE INDEX events_by_key ON events (scope, key, id);"
    /* A command is an event with the same id. */
    "CREATE TABLE commands ("
    " id INTEGER PRIMARY KEY, cwd TEXT, command TEXT, duration_ms INTEGER NOT NULL,"
    " source TEXT, outcome TEXT, exit_code INTEGER, stdin_bytes INTEGER NOT NULL,"
    " stdout_bytes INTEGER NOT NULL, stderr_bytes INTEGER NOT NULL, spool TEXT);" TERMS_TABLE
	IDS_TABLE "PRAGMA user_version = 3;"
    "COMMIT;";
/* What brings a file of an earlier version up, from version 1 on. */
static const char *const upgrades[SCHEMA_VERSION] = {
    [1] = "BEGIN IMMEDIATE;" TERMS_TABLE "PRAGMA user_version = 2; COMMIT;",
    [2] = "BEGIN IMMEDIATE;" IDS_TABLE "PRAGMA user_version = 3; COMMIT;",
};

#define RECORD                                                                                     \
	"key, state, sandbox_id, incarnation, generation, resets, created_ms, last_used_ms, "      \
	"trusted"
#define OF_KEY                                                                                     \
	"SELECT id FROM events WHERE scope = ?1 AND key = ?4 AND id <= ?2 ORDER BY id LIMIT ?3"
#define OLDEST "SELECT id FROM events WHERE id <= ?2 ORDER BY id LIMIT ?3"
static const char *const statements[PAI_SQL_STATEMENTS] = {
    [PAI_SQL_BEGIN] = "BEGIN IMMEDIATE",
    [PAI_SQL_COMMIT] = "COMMIT",
    [PAI_SQL_ROLLBACK] = "ROLLBACK",
    [PAI_SQL_LOAD] = "SELECT " RECORD " FROM sessions WHERE scope = ?1 AND key = ?2",
    [PAI_SQL_LIST] =
	"SELECT " RECORD " FROM sessions WHERE scope = ?1 AND state <> 'killed' ORDER BY key",
    [PAI_SQL_NEED] = "INSERT INTO sessions (scope, key, state, created_ms) "
		     "VALUES (?1, ?2, 'new', ?3) ON CONFLICT DO NOTHING",
    [PAI_SQL_NAME] =
	"UPDATE sessions SET state = 'new' WHERE scope = ?1 AND key = ?2 AND state = 'killed'",
    [PAI_SQL_BIND] = "UPDATE sessions SET state = 'live', sandbox_id = ?3, incarnation = ?4, "
		     "generation = ?5, last_used_ms = ?6 WHERE scope = ?1 AND key = ?2",
    /* ?4, ?5: only while this identity is bound; ?6: whichever is. */
    [PAI_SQL_MOVE] = "UPDATE sessions SET state = ?3, trusted = trusted AND ?3 <> 'killed' "
		     "WHERE scope = ?1 AND key = ?2 AND state <> 'killed' "
		     "AND (?6 OR (sandbox_id = ?4 AND incarnation = ?5))",
    [PAI_SQL_COUNT_RESET] = "UPDATE sessions SET resets = resets + 1 WHERE scope = ?1 AND key = ?2",
    [PAI_SQL_TRUST] = "UPDATE sessions SET trusted = ?3 WHERE scope = ?1 AND key = ?2",
    [PAI_SQL_TERMS] = "SELECT text FROM terms WHERE scope = ?1 AND key = ?2",
    [PAI_SQL_SET_TERMS] = "INSERT OR REPLACE INTO terms (scope, key, text) SELECT ?1, ?2, ?3 "
			  "WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE scope = ?1 AND key = ?2 "
			  "AND state = 'killed')",
    [PAI_SQL_DROP_TERMS] = "DELETE FROM terms WHERE scope = ?1 AND key = ?2",
    [PAI_SQL_IDS] = "SELECT text FROM ids WHERE scope = ?1 AND key = ?2",
    [PAI_SQL_SET_IDS] = "INSERT OR REPLACE INTO ids (scope, key, text) VALUES (?1, ?2, ?3)",
    [PAI_SQL_EVENT] = "INSERT INTO events (scope, key, at_ms, event, sandbox_id, incarnation, "
		      "generation, detail) "
		      "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [PAI_SQL_COMMAND] =
	"INSERT INTO commands (id, cwd, command, duration_ms, source, outcome, exit_code, "
	"stdin_bytes, stdout_bytes, stderr_bytes, spool) "
	"VALUES (last_insert_rowid(), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    [PAI_SQL_USED] = "UPDATE sessions SET last_used_ms = max(last_used_ms, ?3) "
		     "WHERE scope = ?1 AND key = ?2",
    [PAI_SQL_LAST_COMMAND] =
	"SELECT sandbox_id, incarnation FROM events WHERE scope = ?1 AND key = ?2 "
	"AND event = 'command' ORDER BY id DESC LIMIT 1",
    [PAI_SQL_LOG] =
	"SELECT e.id, e.key, e.at_ms, e.event, e.sandbox_id, e.incarnation, e.generation, "
	"e.detail, c.id, c.cwd, c.command, c.duration_ms, c.source, c.outcome, c.exit_code, "
	"c.stdin_bytes, c.stdout_bytes, c.stderr_bytes, c.spool "
	"FROM events e LEFT JOIN commands c ON c.id = e.id WHERE e.scope = ?1 "
	"AND (?2 IS NULL OR e.key = ?2) AND (?3 = 0 OR e.id < ?3) ORDER BY e.id DESC LIMIT ?4",
    [PAI_SQL_OVER] = "SELECT id FROM events WHERE scope = ?1 AND key = ?2 "
		     "ORDER BY id DESC LIMIT 1 OFFSET ?3",
    [PAI_SQL_DROP_KEY_COMMANDS] = "DELETE FROM commands WHERE id IN (" OF_KEY ")",
    [PAI_SQL_DROP_KEY_EVENTS] = "DELETE FROM events WHERE id IN (" OF_KEY ")",
    [PAI_SQL_DROP_COMMANDS] = "DELETE FROM commands WHERE id IN (" OLDEST ")",
    [PAI_SQL_DROP_EVENTS] = "DELETE FROM events WHERE id IN (" OLDEST ")",
};

/* --- statements --- */

sqlite3_stmt *pai_ledger_sql(struct pai_ledger *l, enum pai_ledger_sql which)
{
	sqlite3_stmt **stmt = &l->statements[which];

	if (!*stmt && sqlite3_prepare_v3(l->db, statements[which], -1, SQLITE_PREPARE_PERSISTENT,
			  stmt, NULL) != SQLITE_OK) {
		return NULL;
	}
	(void)sqlite3_reset(*stmt);
	(void)sqlite3_clear_bindings(*stmt);
	if (sqlite3_bind_parameter_count(*stmt) > 0) {
		(void)sqlite3_bind_text(*stmt, 1, l->scope, -1, SQLITE_STATIC);
	}
	return *stmt;
}

int pai_ledger_run(sqlite3_stmt *stmt)
{
	int r = sqlite3_step(stmt);

	(void)sqlite3_reset(stmt);
	return r == SQLITE_DONE || r == SQLITE_ROW ? SQLITE_OK : r;
}

void pai_ledger_text(sqlite3_stmt *stmt, int column, char *to, size_t cap)
{
	const unsigned char *text = sqlite3_column_text(stmt, column);

	(void)snprintf(to, cap, "%s", text ? (const char *)text : "");
}

/* --- opening --- */

static bool is_damage(int code)
{
	return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB;
}

static int fail(const struct pai_ledger *l, int code, struct pai_err *err)
{
	const char *why = l->db ? sqlite3_errmsg(l->db) : sqlite3_errstr(code);
	int errnum = l->db ? sqlite3_system_errno(l->db) : 0;

	switch (code & 0xff) {
	case SQLITE_NOMEM:
		return pai_err_no_memory(err);
	case SQLITE_FULL:
		return pai_err_errno(err, ENOSPC, "ledger '%s'", l->path);
	case SQLITE_READONLY:
	case SQLITE_CANTOPEN:
	case SQLITE_PERM:
		return pai_err_errno(err, EACCES, "ledger '%s': %s", l->path, why);
	case SQLITE_IOERR:
		if (errnum == ENOSPC || errnum == EDQUOT || errnum == EROFS) {
			return pai_err_errno(err, errnum, "ledger '%s'", l->path);
		}
		return pai_err_errno(err, EIO, "ledger '%s': %s", l->path, why);
	default:
		return pai_err_errno(err, EIO, "ledger '%s': %s", l->path, why);
	}
}

static void close_db(struct pai_ledger *l)
{
	for (size_t i = 0; i < PAI_SQL_STATEMENTS; i++) {
		(void)sqlite3_finalize(l->statements[i]);
		l->statements[i] = NULL;
	}
	(void)sqlite3_close(l->db);
	l->db = NULL;
}

static int first_number(sqlite3 *db, const char *sql, int64_t *ret)
{
	sqlite3_stmt *stmt = NULL;
	int r = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);

	if (r == SQLITE_OK) {
		r = sqlite3_step(stmt);
	}
	if (r == SQLITE_ROW) {
		*ret = sqlite3_column_int64(stmt, 0);
		r = SQLITE_OK;
	} else if (r == SQLITE_DONE) {
		*ret = 0;
		r = SQLITE_OK;
	}
	(void)sqlite3_finalize(stmt);
	return r;
}

/* "ok" is what a sound file answers. */
static int check_pages(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *stmt = NULL;
	int r = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);

	if (r == SQLITE_OK) {
		r = sqlite3_step(stmt);
	}
	if (r == SQLITE_ROW) {
		const unsigned char *text = sqlite3_column_text(stmt, 0);

		r = text && strcmp((const char *)text, "ok") == 0 ? SQLITE_OK : SQLITE_CORRUPT;
	}
	(void)sqlite3_finalize(stmt);
	return r;
}

/* Whether it is a ledger; a fresh file becomes one. */
static int check_schema(struct pai_ledger *l, off_t size, bool *is_newer)
{
	int64_t version = 0, tables = 0, application = 0;
	int r = first_number(l->db, "PRAGMA user_version", &version);

	r = r ? r : first_number(l->db, "SELECT count(*) FROM sqlite_schema", &tables);
	r = r ? r : first_number(l->db, "PRAGMA application_id", &application);
	if (r == SQLITE_OK && version == 0 && tables == 0) {
		r = sqlite3_exec(l->db, schema, NULL, NULL, NULL);
	} else if (r == SQLITE_OK && application != strtoll(APPLICATION_ID, NULL, 10)) {
		r = SQLITE_NOTADB;
	} else if (r == SQLITE_OK) {
		*is_newer = version > SCHEMA_VERSION;
		/* Under the lock of the opening: nobody else does it at the same time. */
		for (int64_t v = version; r == SQLITE_OK && v > 0 && v < SCHEMA_VERSION; v++) {
			r = sqlite3_exec(l->db, upgrades[v], NULL, NULL, NULL);
		}
	}
	if (r == SQLITE_OK && !*is_newer) {
		r = check_pages(l->db, size < CHECK_ALL_BYTES ? "PRAGMA quick_check(1)"
							      : "PRAGMA quick_check(sessions)");
	}
	/* Tables that are there but others than ours show when they are first used. */
	for (int i = 0; r == SQLITE_OK && !*is_newer && i < PAI_SQL_STATEMENTS; i++) {
		r = pai_ledger_sql(l, (enum pai_ledger_sql)i) ? SQLITE_OK : sqlite3_errcode(l->db);
		r = r == SQLITE_ERROR ? SQLITE_CORRUPT : r;
	}
	return r;
}

/*
 * A file at the path, 0600 from its birth. Only one that is new may be opened here: a process that
 * closes any descriptor of a file drops all its POSIX locks there, SQLite's too. Then another
 * process takes itself for the last one, and at its end removes the log that this one writes to.
 */
static int make_file(const char *path, struct stat *ret, struct pai_err *err)
{
	pai_auto_fd int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if ((fd < 0 && errno != EEXIST) || lstat(path, ret) < 0) {
		return pai_err_sys(err, "ledger '%s'", path);
	}
	if (!S_ISREG(ret->st_mode)) {
		return pai_err_errno(err, EACCES, "ledger '%s' is no regular file", path);
	}
	return (ret->st_mode & 07777) == 0600 || chmod(path, 0600) == 0
		   ? 0
		   : pai_err_sys(err, "ledger '%s'", path);
}

/* Opens what is at the path. *damaged: it is no ledger of ours. */
static int open_db(struct pai_ledger *l, bool *damaged, struct pai_err *err)
{
	struct stat st;
	bool is_newer = false;
	int r = make_file(l->path, &st, err);

	*damaged = false;
	if (r < 0) {
		return r;
	}
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	r = sqlite3_open_v2(l->path, &l->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
	if (r == SQLITE_OK) {
		(void)sqlite3_busy_timeout(l->db, BUSY_MS);
		r = sqlite3_exec(l->db,
		    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
		    "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;",
		    NULL, NULL, NULL);
	}
	r = r ? r : check_schema(l, st.st_size, &is_newer);
	if (is_newer) {
		close_db(l);
		return pai_err_set(err, PAI_E_UNSUPPORTED,
		    "ledger '%s' was made by a newer version of this program", l->path);
	}
	if (r == SQLITE_OK) {
		return 0;
	}
	*damaged = is_damage(r);
	r = *damaged ? 0 : fail(l, r, err);
	close_db(l);
	return r;
}

static int move_aside(const char *path, const char *suffix, int64_t when, struct pai_err *err)
{
	char from[PATH_MAX], to[PATH_MAX];

	if (snprintf(from, sizeof(from), "%s%s", path, suffix) >= (int)sizeof(from) ||
	    snprintf(to, sizeof(to), "%s.damaged-%lld%s", path, (long long)when, suffix) >=
		(int)sizeof(to)) {
		return pai_err_errno(err, ENAMETOOLONG, "ledger '%s'", path);
	}
	if (rename(from, to) < 0 && errno != ENOENT) {
		return pai_err_sys(err, "set aside '%s'", from);
	}
	return 0;
}

/* The log that belongs to it goes first: a new file may not find an old one's. */
static int set_aside(const char *path, struct pai_err *err)
{
	int64_t when = pai_clock_wall_ms();
	int r = move_aside(path, "-wal", when, err);

	r = r < 0 ? r : move_aside(path, "-shm", when, err);
	r = r < 0 ? r : move_aside(path, "", when, err);
	if (r == 0) {
		pai_log_warn("ledger",
		    "'%s' is damaged and was set aside as '%s.damaged-%lld'; a new one is begun: "
		    "kills before this are forgotten",
		    path, path, (long long)when);
	}
	return r;
}

static int open_lock(const char *path, int *ret_fd, struct pai_err *err)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char name[PATH_MAX];
	pai_auto_fd int fd = -1;

	if (snprintf(name, sizeof(name), "%s.lock", path) >= (int)sizeof(name)) {
		return pai_err_errno(err, ENAMETOOLONG, "ledger '%s'", path);
	}
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		return pai_err_sys(err, "ledger lock '%s'", name);
	}
	/* Held for an opening and a check: milliseconds. */
	while (fcntl(fd, F_OFD_SETLKW, &whole) < 0) {
		if (errno != EINTR) {
			return pai_err_sys(err, "ledger lock '%s'", name);
		}
	}
	*ret_fd = PAI_TAKE_FD(fd);
	return 0;
}

static int open_or_renew(struct pai_ledger *l, bool *was_damaged, struct pai_err *err)
{
	pai_auto_fd int lock = -1;
	bool damaged = false;
	int r = open_lock(l->path, &lock, err);

	*was_damaged = false;
	r = r < 0 ? r : open_db(l, &damaged, err);
	if (r < 0 || !damaged) {
		return r;
	}
	*was_damaged = true;
	r = set_aside(l->path, err);
	r = r < 0 ? r : open_db(l, &damaged, err);
	if (r == 0 && damaged) {
		r = pai_err_errno(err, EIO, "ledger '%s': a new file is damaged too", l->path);
	}
	return r;
}

/* --- operations --- */

static int transact(struct pai_ledger *l, pai_ledger_op op, void *arg, struct pai_err *err)
{
	int r = pai_ledger_run(pai_ledger_sql(l, PAI_SQL_BEGIN));

	if (r != SQLITE_OK) {
		return r;
	}
	r = op(l, arg, err);
	r = r ? r : pai_ledger_run(pai_ledger_sql(l, PAI_SQL_COMMIT));
	if (!sqlite3_get_autocommit(l->db)) {
		(void)pai_ledger_run(pai_ledger_sql(l, PAI_SQL_ROLLBACK));
	}
	return r;
}

/* The file at the path is another than ours, or there is none. */
static bool is_replaced(const struct pai_ledger *l)
{
	struct stat st;

	return !l->db || stat(l->path, &st) < 0 || st.st_dev != l->dev || st.st_ino != l->ino;
}

static int perform_locked(
    struct pai_ledger *l, bool writes, pai_ledger_op op, void *arg, struct pai_err *err)
{
	int code = SQLITE_OK;

	for (int tries = 0; tries < 2; tries++) {
		bool was_damaged;

		if (tries > 0 || is_replaced(l)) {
			int r;

			close_db(l);
			r = open_or_renew(l, &was_damaged, err);
			if (r < 0) {
				return r;
			}
		}
		code = writes ? transact(l, op, arg, err) : op(l, arg, err);
		if (!is_damage(code)) {
			break;
		}
	}
	if (code == SQLITE_OK) {
		return 0;
	}
	return code == SQLITE_ABORT && err->code != PAI_OK ? -err->errnum : fail(l, code, err);
}

static void flush_locked(struct pai_ledger *l)
{
	struct pai_err err = PAI_ERR_INIT;
	struct pai_ledger_queued *list;

	(void)pthread_mutex_lock(&l->queue_lock);
	list = PAI_TAKE(l->queue);
	l->queue_tail = &l->queue;
	(void)pthread_mutex_unlock(&l->queue_lock);
	if (list && perform_locked(l, true, pai_ledger_add_queued, list, &err) < 0) {
		pai_log_warn("ledger", "commands are not recorded: %s", err.msg);
	}
	pai_ledger_queued_free(list);
}

void pai_ledger_flush(struct pai_ledger *l)
{
	(void)pthread_mutex_lock(&l->lock);
	flush_locked(l);
	(void)pthread_mutex_unlock(&l->lock);
}

int pai_ledger_perform(
    struct pai_ledger *l, bool writes, pai_ledger_op op, void *arg, struct pai_err *err)
{
	int r;

	(void)pthread_mutex_lock(&l->lock);
	flush_locked(l);
	r = perform_locked(l, writes, op, arg, err);
	(void)pthread_mutex_unlock(&l->lock);
	return r;
}

/* --- life --- */

int pai_ledger_open(const char *path, const char *scope, bool *was_damaged, struct pai_ledger **ret,
    struct pai_err *err)
{
	struct pai_ledger *l = calloc(1, sizeof(*l));
	bool damaged = false;
	int r;

	if (!l) {
		return pai_err_no_memory(err);
	}
	l->store.ops = &pai_ledger_store_ops;
	atomic_init(&l->refs, 1);
	(void)pthread_mutex_init(&l->lock, NULL);
	(void)pthread_mutex_init(&l->queue_lock, NULL);
	l->queue_tail = &l->queue;
	l->path = strdup(path);
	l->scope = strdup(scope);
	r = l->path && l->scope ? open_or_renew(l, &damaged, err) : pai_err_no_memory(err);
	if (r < 0) {
		pai_ledger_close(l);
		return r;
	}
	if (was_damaged) {
		*was_damaged = damaged;
	}
	*ret = l;
	return 0;
}

void pai_ledger_close(struct pai_ledger *l)
{
	if (!l || atomic_fetch_sub(&l->refs, 1) != 1) {
		return;
	}
	pai_ledger_flush(l);
	close_db(l);
	(void)pthread_mutex_destroy(&l->queue_lock);
	(void)pthread_mutex_destroy(&l->lock);
	free(l->path);
	free(l->scope);
	free(l);
}

struct pai_store *pai_ledger_store(struct pai_ledger *l)
{
	(void)atomic_fetch_add(&l->refs, 1);
	return &l->store;
}
