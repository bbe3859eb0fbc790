/*
 * ledger: what happened to every session, in SQLite under the state directory, shared by the
 * daemons of one user, alive after kill -9. It is the session manager's store (store.h) and the
 * source of `pai log`.
 *
 * A damaged file is set aside (NAME.damaged-TIME), said once, and a new one is begun. Never
 * environment values; arguments only when asked for.
 */
#ifndef PAI_LEDGER_LEDGER_H
#define PAI_LEDGER_LEDGER_H

#include "providers/base/json.h"
#include "providers/base/scope.h"
#include "providers/session/store.h"

struct pai_ledger;

/* What the log keeps, roughly: of each key, and of all. The oldest go. */
#define PAI_LEDGER_KEY_ROWS 10000
#define PAI_LEDGER_ROWS 200000

struct pai_ledger_command {
	const char *key;
	const struct pai_session_identity *identity;
	uint64_t generation;
	const char *cwd;
	const char *command; /* the first word, or all of it with log_arguments */
	int64_t started_ms, duration_ms;
	const char *source;  /* "command" or "pai": a literal, as `outcome` */
	const char *outcome; /* exited, timed-out, output-limit, cancelled, not-started, unknown */
	int exit_code;       /* -1: none */
	uint64_t stdin_bytes, stdout_bytes, stderr_bytes;
	const char *spool; /* NULL: none */
};
/* `path` is the database file; its directory exists, 0700. `scope` separates provider
 * configurations that share it (the daemon's instance name). *was_damaged may be NULL. */
int pai_ledger_open(const char *path, const char *scope, bool *was_damaged, struct pai_ledger **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
void pai_ledger_close(struct pai_ledger *l); /* NULL is fine */
/* The store; pai_store_free() of it closes the ledger's reference, which is counted. */
struct pai_store *pai_ledger_store(struct pai_ledger *l);
int pai_ledger_command_add(
    struct pai_ledger *l, const struct pai_ledger_command *c, struct pai_err *err) PAI_WARN_UNUSED;
/* Takes a copy, to be written by whatever this ledger is asked next, before it is asked, by
 * pai_ledger_flush() or by the last pai_ledger_close(). Touches no file. -ENOMEM. */
int pai_ledger_command_queue(
    struct pai_ledger *l, const struct pai_ledger_command *c, struct pai_err *err) PAI_WARN_UNUSED;
/* What can't be written is logged and dropped. */
void pai_ledger_flush(struct pai_ledger *l);
/* What the key was derived from, as it was given; *ret is the caller's, NULL: nobody has said. It
 * is kept also while there is no session of that key, and after its end. Something new is an event,
 * "scope". */
int pai_ledger_ids(
    struct pai_ledger *l, const char *key, char **ret, struct pai_err *err) PAI_WARN_UNUSED;
int pai_ledger_set_ids(
    struct pai_ledger *l, const char *key, const char *text, struct pai_err *err) PAI_WARN_UNUSED;
/* What it says, read: the scope, and the ids, which are replaced. A key that nobody has explained
 * is a threadId; of one that looks derived only its maker knows the ids: *is_known false, no ids.
 * -ENOMEM. */
int pai_ledger_scope(struct pai_ledger *l, const char *key, enum pai_scope *scope,
    struct pai_strmap *ids, bool *is_known) PAI_WARN_UNUSED;
/* The identity in which the key's last command ran; false when there was none. */
bool pai_ledger_last_command(
    struct pai_ledger *l, const char *key, struct pai_session_identity *ret);
/* Newest first, events and commands together, as an array of objects; key NULL: all; before 0: from
 * the newest. */
int pai_ledger_log(struct pai_ledger *l, const char *key, size_t limit, int64_t before_id,
    struct pai_json **ret, struct pai_err *err) PAI_WARN_UNUSED;

#endif
