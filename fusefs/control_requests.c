/*
 * The requests of PROTOCOL.md. One table names each, with the pool that it runs on: `quick` for
 * those that read local state only, the other for those that may wait for a provider. A handler
 * fills the reply, or the error; its call ends when the client is gone.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "fusefs/control_work.h"
#include "fusefs/daemon_count.h"
#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/base/key.h"
#include "providers/base/log.h"
#include "providers/base/version.h"

#define LIST_MAX 1000 /* sessions in one reply: a frame holds them with the longest names */
#define LOG_DEFAULT 100
#define LOG_MAX 1000
/* For calls to a provider that make nothing: kill, reset, pause. */
#define CALL_TIMEOUT_MS 60000

#define SESSIONS(w) ((w)->control->config.sessions)
#define OPTIONS(w) ((w)->control->config.options)
#define FS(w) ((w)->control->config.fs)

/* --- pieces --- */

int pai_control_wanted(const char *op, const char *field, const char *what, struct pai_err *err)
{
	return pai_err_set(err, PAI_E_INPUT, "%s: expected '%s', %s", op, field, what);
}

int pai_control_session(struct pai_control_work *w, struct pai_session **ret, struct pai_err *err)
{
	const char *key = pai_json_str(w->request, "key");

	if (!key) {
		return pai_control_wanted(w->operation->name, "key", "a session's key", err);
	}
	return pai_sessions_handle(SESSIONS(w), key, ret, err);
}

/* Asking about a key never makes it. */
static int known_session(struct pai_control_work *w, struct pai_session **ret, struct pai_err *err)
{
	struct pai_store *store = pai_sessions_store(SESSIONS(w));
	struct pai_session_record record;
	bool found = false;
	int r = pai_control_session(w, ret, err);

	r = r < 0 ? r : store->ops->load(store, pai_session_key(*ret), &found, &record, err);
	if (r < 0 || (found && record.state != PAI_SESSION_KILLED)) {
		return r;
	}
	return pai_err_set(err, PAI_E_INPUT, "there is no session '%s'%s", pai_session_key(*ret),
	    found ? ": it was killed" : "");
}

static int describe_record(
    struct pai_control_work *w, const struct pai_session_record *r, struct pai_json *into)
{
	char name[PAI_KEY_NAME_MAX + 1] = "";
	const char *provider = pai_provider_name(pai_sessions_provider(SESSIONS(w)));
	const char *id = r->identity.sandbox_id, *incarnation = r->identity.incarnation;
	bool has_name = pai_key_to_name(r->key, name, PAI_ERR_IGNORED()) == 0;
	/* A record keeps the last identity: of one that was reset it is nobody's any more. */
	bool has_sandbox = *id && r->state != PAI_SESSION_NEW && r->state != PAI_SESSION_CREATING;
	bool has_incarnation = has_sandbox && *incarnation;
	int f = pai_json_set_str(into, "key", r->key);

	f = f ? f : pai_json_set_str(into, "name", has_name ? name : NULL);
	f = f ? f : pai_json_set_str(into, "state", pai_session_state_name(r->state));
	f = f ? f : pai_json_set_str(into, "provider", provider);
	f = f ? f : pai_json_set_str(into, "sandboxId", has_sandbox ? id : NULL);
	f = f ? f : pai_json_set_str(into, "incarnation", has_incarnation ? incarnation : NULL);
	f = f ? f : pai_json_set_num(into, "generation", (int64_t)r->generation);
	f = f ? f : pai_json_set_num(into, "createdMs", r->created_ms);
	f = f ? f : pai_json_set_num(into, "lastUsedMs", r->last_used_ms);
	f = f ? f : pai_control_put_scope(w, r->key, false, into);
	return f ? f : pai_json_set_bool(into, "trusted", r->trusted);
}

static int describe(
    struct pai_control_work *w, struct pai_session *s, struct pai_json *into, struct pai_err *err)
{
	struct pai_session_record r;

	pai_session_snapshot(s, &r);
	return describe_record(w, &r, into) < 0 ? pai_err_no_memory(err) : 0;
}

/* --- answered from memory --- */

/* A key that is just being killed has no handle: then it is as the store has it. */
static int push_session(struct pai_control_work *w, const struct pai_session_record *record,
    struct pai_json *list, struct pai_err *err)
{
	pai_auto_session struct pai_session *s = NULL;
	pai_auto_json struct pai_json *object = pai_json_object();
	struct pai_session_record now = *record;

	if (pai_sessions_handle(SESSIONS(w), record->key, &s, PAI_ERR_IGNORED()) == 0) {
		pai_session_snapshot(s, &now);
	}
	if (now.state == PAI_SESSION_KILLED && record->state != PAI_SESSION_KILLED) {
		return 0; /* meanwhile */
	}
	if (describe_record(w, &now, object) < 0 || pai_json_push(list, PAI_TAKE(object)) < 0) {
		return pai_err_no_memory(err);
	}
	return 0;
}

static int list_named(struct pai_control_work *w, const struct pai_json *keys,
    struct pai_json *list, struct pai_err *err)
{
	struct pai_store *store = pai_sessions_store(SESSIONS(w));

	if (pai_json_count(keys) > LIST_MAX) {
		return pai_control_wanted("ls", "keys", "at most 1000 of them", err);
	}
	for (size_t i = 0; i < pai_json_count(keys); i++) {
		const char *key = pai_json_text(pai_json_at(keys, i));
		struct pai_session_record r;
		bool found = false;

		if (!key) {
			return pai_control_wanted("ls", "keys", "an array of strings", err);
		}
		if (pai_key_check(key, err) < 0 ||
		    store->ops->load(store, key, &found, &r, err) < 0 ||
		    (found && push_session(w, &r, list, err) < 0)) {
			return -err->errnum;
		}
	}
	return 0;
}

static int list_all(
    struct pai_control_work *w, struct pai_json *list, bool *more, struct pai_err *err)
{
	struct pai_store *store = pai_sessions_store(SESSIONS(w));
	const char *after = pai_json_str(w->request, "after");
	pai_auto_free struct pai_session_record *records = NULL;
	size_t count = 0;

	if (store->ops->list(store, &records, &count, err) < 0) {
		return -err->errnum;
	}
	for (size_t i = 0; i < count; i++) {
		if (after && strcmp(records[i].key, after) <= 0) {
			continue;
		}
		if (pai_json_count(list) == LIST_MAX) {
			*more = true;
			break;
		}
		if (push_session(w, &records[i], list, err) < 0) {
			return -err->errnum;
		}
	}
	return 0;
}

static int op_ls(struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	const struct pai_json *keys = pai_json_get(w->request, "keys");
	pai_auto_json struct pai_json *list = pai_json_array();
	bool more = false;
	int r = 0;

	(void)call;
	if (!list) {
		return pai_err_no_memory(err);
	}
	r = keys ? list_named(w, keys, list, err) : list_all(w, list, &more, err);
	if (r < 0) {
		return r;
	}
	return pai_json_set(w->reply, "sessions", PAI_TAKE(list)) < 0 ||
		       pai_json_set_bool(w->reply, "more", more) < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

static int count_sessions(struct pai_control_work *w, int64_t *ret, struct pai_err *err)
{
	struct pai_store *store = pai_sessions_store(SESSIONS(w));
	pai_auto_free struct pai_session_record *records = NULL;
	size_t count = 0;

	if (store->ops->list(store, &records, &count, err) < 0) {
		return -err->errnum;
	}
	*ret = (int64_t)count;
	return 0;
}

static const char *const networks[] = {"none", "allowlist", "full"};

/* How the provider is reached, as members of the reply. */
static int status_provider(struct pai_control_work *w, struct pai_provider *p, struct pai_err *err)
{
	pai_auto_strmap struct pai_strmap map = PAI_STRMAP_INIT;
	int r = pai_provider_describe(p, &map, err);

	for (size_t i = 0; r == 0 && i < map.count; i++) {
		r = pai_json_set_str(w->reply, map.entries[i].key, map.entries[i].value);
		r = r < 0 ? pai_err_no_memory(err) : 0;
	}
	return r;
}

static int status_daemon(struct pai_control_work *w, struct pai_err *err)
{
	const struct pai_options *o = OPTIONS(w);
	struct pai_provider *p = pai_sessions_provider(SESSIONS(w));
	bool runs = pai_provider_caps(p) & PAI_CAP_COMMANDS;
	int64_t sessions = 0;
	int f = 0;

	if (count_sessions(w, &sessions, err) < 0) {
		return -err->errnum;
	}
	f = pai_json_set_str(w->reply, "name", o->name);
	f = f ? f : pai_json_set_str(w->reply, "provider", pai_provider_name(p));
	if (f < 0 || status_provider(w, p, err) < 0) {
		return f < 0 ? pai_err_no_memory(err) : -err->errnum;
	}
	f = pai_json_set_str(w->reply, "isolation", pai_provider_isolation(p));
	f = f ? f : pai_json_set_str(w->reply, "mount", o->mountpoint);
	f = f ? f : pai_json_set_num(w->reply, "pid", getpid());
	f = f ? f : pai_json_set_str(w->reply, "version", PAI_VERSION);
	f = f ? f : pai_json_set_str(w->reply, "files", o->helper ? "portable" : "native");
	f = f ? f : pai_json_set_str(w->reply, "exec", runs ? "allowed" : "refused");
	f = f ? f
	      : pai_json_set_str(
		    w->reply, "network", networks[o->create.network < 0 ? 0 : o->create.network]);
	f = f ? f : pai_json_set_str(w->reply, "coherence", o->coherence ? "strict" : "push");
	f = f ? f : pai_json_set_str(w->reply, "writes", "sync");
	f = f ? f : pai_json_set_str(w->reply, "git", o->git ? "trust" : "guard");
	f = f ? f : pai_json_set_num(w->reply, "sessions", sessions);
	return f < 0 ? pai_err_no_memory(err) : 0;
}

static int op_status(struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_session struct pai_session *s = NULL;
	pai_auto_env struct pai_env *env = NULL;
	pai_auto_json struct pai_json *session = pai_json_object();
	const char *files = NULL;
	int f = 0;

	(void)call;
	if (status_daemon(w, err) < 0) {
		return -err->errnum;
	}
	if (!pai_json_str(w->request, "key")) {
		return 0;
	}
	if (known_session(w, &s, err) < 0 || describe(w, s, session, err) < 0) {
		return -err->errnum;
	}
	env = pai_session_current(s);
	files = env && pai_env_ws(env) ? pai_env_ws(env)->ops->name : NULL;
	f = pai_json_set_str(session, "files", files);
	f = f ? f : pai_control_put_scope(w, pai_session_key(s), true, session);
	f = f ? f
	      : pai_json_set_str(session, "network", env ? networks[pai_env_network(env)] : NULL);
	f = f ? f : pai_json_set(w->reply, "session", PAI_TAKE(session));
	f = f ? f
	      : pai_json_set(w->reply, "lostWrites",
		    FS(w) ? pai_fs_lost_writes(FS(w), env, false) : pai_json_array());
	return f < 0 ? pai_err_no_memory(err) : 0;
}

/* Of the environments that there are now. */
static int server_counters(struct pai_control_work *w, struct pai_json *into, struct pai_err *err)
{
	struct pai_store *store = pai_sessions_store(SESSIONS(w));
	pai_auto_free struct pai_session_record *records = NULL;
	size_t count = 0;
	uint64_t sums[PAI_WS_OP_COUNT] = {0};

	if (store->ops->list(store, &records, &count, err) < 0) {
		return -err->errnum;
	}
	for (size_t i = 0; i < count; i++) {
		pai_auto_session struct pai_session *s = NULL;
		pai_auto_env struct pai_env *env = NULL;

		if (pai_sessions_handle(SESSIONS(w), records[i].key, &s, PAI_ERR_IGNORED()) == 0) {
			env = pai_session_current(s);
		}
		for (int op = 0; env && pai_env_ws(env) && op < PAI_WS_OP_COUNT; op++) {
			sums[op] +=
			    __atomic_load_n(&pai_env_ws(env)->counters[op], __ATOMIC_RELAXED);
		}
	}
	for (int op = 0; op < PAI_WS_OP_COUNT; op++) {
		if (pai_json_set_num(into, pai_ws_op_name(op), (int64_t)sums[op]) < 0) {
			return pai_err_no_memory(err);
		}
	}
	return 0;
}

static int op_counters(struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_json struct pai_json *server = pai_json_object();
	pai_auto_json struct pai_json *provider = pai_json_object();

	(void)call;
	if ((FS(w) && pai_fs_counters(FS(w), w->reply, err) < 0) ||
	    server_counters(w, server, err) < 0 ||
	    pai_count_get(pai_sessions_provider(SESSIONS(w)), provider, err) < 0) {
		return -err->errnum;
	}
	return pai_json_set(w->reply, "server", PAI_TAKE(server)) < 0 ||
		       pai_json_set(w->reply, "provider", PAI_TAKE(provider)) < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

static int op_trust(struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	bool trust = pai_json_bool(w->request, "trust", true);
	struct pai_store *store = pai_sessions_store(SESSIONS(w));
	pai_auto_session struct pai_session *s = NULL;
	const char *key;

	(void)call;
	if (known_session(w, &s, err) < 0) {
		return -err->errnum;
	}
	key = pai_session_key(s);
	if (store->ops->trust(store, key, trust, err) < 0) {
		return -err->errnum;
	}
	if (FS(w)) {
		pai_fs_session_named(FS(w), key); /* what the kernel keeps of it is dropped */
	}
	return pai_json_set_str(w->reply, "key", key) < 0 ||
		       pai_json_set_bool(w->reply, "trusted", trust) < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

static int op_resolve(struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	const char *path = pai_json_str(w->request, "path");
	const char *mount = OPTIONS(w)->mountpoint;
	char key[PAI_KEY_MAX + 1];
	pai_auto_free char *inside = NULL;
	size_t n = mount ? strlen(mount) : 0;

	(void)call;
	if (!path) {
		return pai_control_wanted("resolve", "path", "a path inside the mount", err);
	}
	if (!FS(w)) {
		return pai_err_set(err, PAI_E_INPUT, "this daemon has no mount");
	}
	if (path[0] == '/') {
		if (strncmp(path, mount, n) != 0 || (path[n] != '/' && path[n] != '\0')) {
			return pai_err_set(err, PAI_E_INPUT, "the path is not inside %s", mount);
		}
		path += n;
		path += strspn(path, "/");
	}
	if (pai_fs_resolve(FS(w), path, key, &inside, err) < 0) {
		return -err->errnum;
	}
	return pai_json_set_str(w->reply, "key", key) < 0 ||
		       pai_json_set_str(w->reply, "path", inside) < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

static int op_log(struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	const char *key = pai_json_str(w->request, "key");
	int64_t limit = pai_json_num(w->request, "limit", LOG_DEFAULT);
	struct pai_json *entries = NULL;

	(void)call;
	if (limit < 1 || limit > LOG_MAX) {
		return pai_control_wanted("log", "limit", "1 to 1000", err);
	}
	if ((key && pai_key_check(key, err) < 0) ||
	    pai_ledger_log(w->control->config.ledger, key, (size_t)limit,
		pai_json_num(w->request, "before", 0), &entries, err) < 0) {
		return -err->errnum;
	}
	return pai_json_set(w->reply, "entries", entries) < 0 ? pai_err_no_memory(err) : 0;
}

static int op_shutdown(struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	(void)call;
	(void)err;
	w->control->config.shutdown(w->control->config.arg);
	return 0;
}

/* --- those that may wait for a provider --- */

static int op_probe(struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	if (pai_provider_probe(pai_sessions_provider(SESSIONS(w)), call, err) < 0) {
		return -err->errnum;
	}
	return pai_json_set_bool(w->reply, "ok", true) < 0 ? pai_err_no_memory(err) : 0;
}

static int op_create(struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	const struct pai_json *object = pai_json_get(w->request, "options");
	pai_auto_free char *terms = NULL;
	pai_auto_session struct pai_session *s = NULL;
	pai_auto_env struct pai_env *env = NULL;
	struct pai_call making = *call;
	struct pai_session_record before;
	uint64_t timeout_ms;

	if (object && !pai_json_is_object(object)) {
		return pai_control_wanted("create", "options", "an object", err);
	}
	if (pai_json_get(object, "create") && w->conn->uid != geteuid() && w->conn->uid != 0) {
		return pai_err_errno(err, EACCES,
		    "create= names a program that runs as uid %u: only that user may",
		    (unsigned)geteuid());
	}
	if ((object && pai_options_terms(OPTIONS(w), object, &terms, err) < 0) ||
	    pai_control_session(w, &s, err) < 0 ||
	    (pai_json_get(w->request, "scope") &&
		pai_control_keep_scope(w, pai_session_key(s), err) < 0)) {
		return -err->errnum;
	}
	timeout_ms = pai_session_create_timeout(s, terms);
	making.deadline_ms = pai_deadline_in(timeout_ms);
	pai_session_snapshot(s, &before);
	if (pai_session_acquire(
		s, PAI_ACQUIRE_REVIVE | PAI_ACQUIRE_VERIFY, terms, &making, &env, err) < 0) {
		return err->code == PAI_E_TIMEOUT
			   ? pai_err_wrap(err, "create_timeout of %" PRIu64 " ms", timeout_ms)
			   : -err->errnum;
	}
	if (FS(w)) {
		pai_fs_session_named(FS(w), pai_session_key(s));
	}
	return describe(w, s, w->reply, err) < 0 ? -err->errnum
	       : pai_json_set_bool(
		     w->reply, "created", pai_env_generation(env) > before.generation) < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

static int op_reset(struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_session struct pai_session *s = NULL;
	uint64_t token = 0;

	if (pai_control_session(w, &s, err) < 0 || pai_control_token(w, &token, err) < 0 ||
	    pai_session_reset_inside(s, token, call, err) < 0) {
		return -err->errnum;
	}
	return describe(w, s, w->reply, err);
}

static int op_pause(struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_session struct pai_session *s = NULL;

	if (known_session(w, &s, err) < 0 || pai_session_pause(s, call, err) < 0) {
		return -err->errnum;
	}
	return describe(w, s, w->reply, err);
}

/* The session that was bound to it, if any, learns that it is gone. */
static void forget_sandbox(struct pai_control_work *w, const char *sandbox_id)
{
	struct pai_store *store = pai_sessions_store(SESSIONS(w));
	pai_auto_free struct pai_session_record *records = NULL;
	size_t count = 0;

	if (store->ops->list(store, &records, &count, PAI_ERR_IGNORED()) < 0) {
		return;
	}
	for (size_t i = 0; i < count; i++) {
		pai_auto_session struct pai_session *s = NULL;
		pai_auto_env struct pai_env *env = NULL;

		if (strcmp(records[i].identity.sandbox_id, sandbox_id) != 0 ||
		    pai_sessions_handle(SESSIONS(w), records[i].key, &s, PAI_ERR_IGNORED()) < 0) {
			continue;
		}
		env = pai_session_current(s);
		if (env && strcmp(pai_env_identity(env)->sandbox_id, sandbox_id) == 0) {
			pai_session_lost(s, env, "killed by its id");
		}
	}
}

static int kill_sandbox(struct pai_control_work *w, const char *sandbox_id,
    const struct pai_call *call, struct pai_err *err)
{
	pai_auto_sandbox struct pai_sandbox *sb = NULL;

	if (pai_provider_connect(pai_sessions_provider(SESSIONS(w)), sandbox_id, call, &sb, err) <
	    0) {
		return -err->errnum;
	}
	if (sb && pai_sandbox_kill(sb, call, err) < 0) {
		return -err->errnum;
	}
	if (sb) {
		forget_sandbox(w, sandbox_id);
	}
	return pai_json_set_str(w->reply, "sandboxId", sandbox_id) < 0 ||
		       pai_json_set_num(w->reply, "killed", sb ? 1 : 0) < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

/* What the mount has of the key is revoked in any case; where the kill got no further than that
 * (the ledger can't be written), the session goes on. */
static void tell_mount(struct pai_control_work *w, const char *key, bool failed)
{
	struct pai_store *store = pai_sessions_store(SESSIONS(w));
	struct pai_session_record record;
	bool found = false;

	pai_fs_session_killed(FS(w), key);
	if (failed && store->ops->load(store, key, &found, &record, PAI_ERR_IGNORED()) == 0 &&
	    found && record.state != PAI_SESSION_KILLED) {
		pai_fs_session_named(FS(w), key);
	}
}

static int op_kill(struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	const char *key = pai_json_str(w->request, "key");
	const char *sandbox_id = pai_json_str(w->request, "sandboxId");
	size_t killed = 0;
	int r;

	if (!key == !sandbox_id) {
		return pai_control_wanted("kill", "key", "a session's key, or 'sandboxId'", err);
	}
	if (sandbox_id) {
		return kill_sandbox(w, sandbox_id, call, err);
	}
	r = pai_key_check(key, err);
	if (r < 0) {
		return r;
	}
	r = pai_sessions_dispose(SESSIONS(w), key, call, &killed, err);
	if (FS(w)) {
		tell_mount(w, key, r < 0);
	}
	if (r < 0) {
		return r;
	}
	return pai_json_set_str(w->reply, "key", key) < 0 ||
		       pai_json_set_num(w->reply, "killed", (int64_t)killed) < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

/* --- the walk of one request --- */

static int op_barrier(struct pai_control_work *w, const struct pai_call *call, struct pai_err *err);

static const struct pai_control_op operations[] = {
    {"ls", true, op_ls},
    {"status", true, op_status},
    {"counters", true, op_counters},
    {"trust", true, op_trust},
    {"resolve", true, op_resolve},
    {"log", true, op_log},
    {"scope", true, pai_control_op_scope},
    {"shutdown", true, op_shutdown},
    {"probe", false, op_probe},
    {"create", false, op_create},
    {"reset", false, op_reset},
    {"pause", false, op_pause},
    {"kill", false, op_kill},
    {"barrier", false, op_barrier},
    {"acquire", false, pai_control_op_acquire},
    {"read", false, pai_control_op_read},
    {"write", false, pai_control_op_write},
    {"list", false, pai_control_op_list},
    {"seed", false, pai_control_op_seed},
    {"seeds", true, pai_control_op_seeds},
    {"exclusive", false, pai_control_op_exclusive},
    {"release", true, pai_control_op_release},
};

static void work_free(struct pai_control_work *w)
{
	pai_json_free(w->request);
	pai_json_free(w->reply);
	pai_json_free(w->missing);
	pai_buf_fini(&w->data);
	if (w->env) {
		pai_env_unref(w->env);
	}
	pai_conn_unref(w->conn);
	free(w);
}

static void on_answered(void *arg)
{
	struct pai_control_work *w = arg;

	pai_conn_request_done(w->conn);
	work_free(w);
}

static void answer(struct pai_control_work *w)
{
	if (w->err.code != PAI_OK) {
		pai_auto_json struct pai_json *error = pai_json_from_err(&w->err);

		if (w->was_reset && pai_json_set_bool(error, "environmentReset", true) < 0) {
			pai_json_free(PAI_TAKE(error));
		}
		if (w->missing && pai_json_set(error, "missingPaths", PAI_TAKE(w->missing)) < 0) {
			pai_json_free(PAI_TAKE(error));
		}
		pai_conn_send_json(w->conn, PAI_MSG_ERROR, w->id, error);
	} else {
		pai_conn_send_json(w->conn, PAI_MSG_REPLY, w->id, w->reply);
	}
	while (pai_loop_post(w->control->loop, on_answered, w) < 0) {
		(void)!pai_call_sleep(PAI_CALL_UNBOUNDED, pai_deadline_in(10), PAI_ERR_IGNORED());
	}
}

static void work_job(void *arg)
{
	struct pai_control_work *w = arg;
	const struct pai_options *o = OPTIONS(w);
	uint64_t ms = w->operation->fn == op_probe ? o->timeout_ms : CALL_TIMEOUT_MS;
	struct pai_call call = {.deadline_ms = pai_deadline_in(ms), .cancel = w->conn->cancel};

	w->reply = pai_json_object();
	if (!w->reply) {
		(void)pai_err_no_memory(&w->err);
	} else if (w->operation->fn(w, &call, &w->err) > 0) {
		return; /* answered later, by whom it waits for */
	}
	answer(w);
}

static void barrier_done(void *arg, int errnum)
{
	struct pai_control_work *w = arg;

	if (errnum) {
		(void)pai_err_errno(&w->err, errnum, "barrier");
	}
	answer(w);
}

/* 1: barrier_done() answers. */
static int op_barrier(struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_session struct pai_session *s = NULL;

	(void)call;
	if (known_session(w, &s, err) < 0) {
		return -err->errnum;
	}
	w->env = FS(w) ? pai_session_current(s) : NULL;
	if (!w->env) {
		return 0; /* nothing is shown that could differ */
	}
	pai_fs_barrier_after(FS(w), w->env, barrier_done, w);
	return 1;
}

void pai_control_request(
    struct pai_conn *conn, uint32_t id, struct pai_json *take_request, struct pai_buf *data)
{
	const char *op = pai_json_str(take_request, "op");
	struct pai_control_work *w = calloc(1, sizeof(*w));
	int r = 0;

	if (!w) {
		struct pai_err err = PAI_ERR_INIT;

		(void)pai_err_no_memory(&err);
		pai_conn_send_err(conn, id, &err);
		pai_json_free(take_request);
		conn->in_flight--;
		return;
	}
	*w = (struct pai_control_work){.control = conn->control,
	    .conn = pai_conn_ref(conn),
	    .id = id,
	    .request = take_request,
	    .data = *data};
	*data = (struct pai_buf)PAI_BUF_INIT(data->max);
	for (size_t i = 0; op && i < PAI_COUNT(operations); i++) {
		if (strcmp(op, operations[i].name) == 0) {
			w->operation = &operations[i];
		}
	}
	if (!w->operation) {
		(void)pai_err_set(&w->err, PAI_E_INPUT, "this daemon knows no such 'op'");
		answer(w);
		return;
	}
	r = w->operation->is_quick ? pai_pool_submit(conn->control->quick, work_job, w)
				   : pai_control_submit(conn->control, work_job, w);
	if (r < 0) {
		(void)pai_err_unavailable(
		    &w->err, PAI_REASON_BACKEND, NULL, "the daemon has too many calls under way");
		answer(w);
	}
}
