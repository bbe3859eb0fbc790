/*
 * The contract's file calls for clients: read, write, list, acquiring alone, and turns in a
 * session's exclusive queue. They go by the session manager's rules (made on first use, made again
 * once when lost) and ask the sandbox itself, never what the mount has in its cache.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "fusefs/control_work.h"
#include "providers/base/auto.h"
#include "providers/base/clock.h"
#include "providers/base/path.h"

#define CALL_TIMEOUT_MS 60000 /* beside what making and seeding a sandbox may take */
#define LIST_MAX 1000000

/* One call on whatever environment the session has, and on its next one when that is lost. */
struct file_use {
	struct pai_control_work *w;
	struct pai_session *session;
	struct pai_call call; /* of what is done, once there is an environment for it */
	const char *path;     /* NULL: acquire */
	int (*fn)(struct file_use *u, struct pai_env *e, struct pai_err *err);
	unsigned attempts;
	struct pai_session_identity first;
	/* What it gave. */
	bool found, existed;
	struct pai_buf bytes;
	struct pai_dir_list list;
};

/* --- the walk --- */

/* A client that is in the middle of several calls on one environment names it. */
static int check_pinned(struct file_use *u, const char *tag, struct pai_err *err)
{
	const char *wanted = pai_json_str(u->w->request, "environment");

	return !wanted || strcmp(wanted, tag) == 0
		   ? 0
		   : pai_err_set(err, PAI_E_RESET, "another environment answers now");
}

/* As for commands: see exec_bridge.c. */
static void note_reset(struct file_use *u, struct pai_env *e)
{
	struct pai_ledger *ledger = u->w->control->config.ledger;
	const struct pai_json *request = u->w->request;
	struct pai_session_identity last;
	bool has_last = pai_ledger_last_command(ledger, pai_session_key(u->session), &last);

	if (u->attempts++ == 0) {
		u->first = *pai_env_identity(e);
	}
	if (pai_session_tell_reset(u->session, (uint32_t)pai_json_num(request, "sid", 0),
		(uint64_t)pai_json_num(request, "sidStarted", 0), e, has_last ? &last : NULL) ||
	    !pai_session_identity_equal(&u->first, pai_env_identity(e))) {
		u->w->was_reset = true;
	}
}

static int in_environment(void *arg, struct pai_env *e, struct pai_err *err)
{
	struct file_use *u = arg;
	char tag[PAI_IDENTITY_TAG + 1];
	int r;

	u->call.deadline_ms = pai_deadline_in(CALL_TIMEOUT_MS);
	pai_session_identity_tag(pai_env_identity(e), tag);
	note_reset(u, e);
	r = check_pinned(u, tag, err);
	r = r < 0 ? r : u->fn(u, e, err);
	return r == 0 && pai_json_set_str(u->w->reply, "environment", tag) < 0
		   ? pai_err_no_memory(err)
		   : r;
}

static int parse_token(const char *text, uint64_t *ret)
{
	char *end = NULL;

	errno = 0;
	*ret = strtoull(text, &end, 16);
	return errno || *end || end == text || *ret == 0 || *text == '-' ? -EINVAL : 0;
}

int pai_control_token(struct pai_control_work *w, uint64_t *ret, struct pai_err *err)
{
	const char *text = pai_json_str(w->request, "token");

	*ret = 0;
	if (pai_json_get(w->request, "token") && (!text || parse_token(text, ret) < 0)) {
		return pai_control_wanted(
		    w->operation->name, "token", "what 'exclusive' answered", err);
	}
	return 0;
}

/* What it is part of, and who asks. */
static int get_seed_ask(struct pai_control_work *w, struct pai_seed_ask *ret, struct pai_err *err)
{
	pid_t session = w->conn->pid > 0 ? getsid(w->conn->pid) : 0;

	ret->run = pai_json_str(w->request, "run");
	ret->sid = session > 0 ? (uint32_t)session : 0;
	return !pai_json_get(w->request, "run") ||
		       (ret->run && strlen(ret->run) <= PAI_RUN_TEXT_MAX)
		   ? 0
		   : pai_control_wanted(
			 w->operation->name, "run", "a text of at most 128 bytes", err);
}

static int use(struct file_use *u, bool exclusive, struct pai_err *err)
{
	/* Who is in the middle of something has not asked for a killed key's next sandbox. */
	bool goes_on =
	    pai_json_get(u->w->request, "environment") || pai_json_get(u->w->request, "mark");
	struct pai_use how = {.exclusive = exclusive, .flags = goes_on ? 0 : PAI_ACQUIRE_REVIVE};
	pai_auto_session struct pai_session *s = NULL;
	struct pai_call call = u->call;
	bool was_reset = false;
	int r;

	if (pai_control_session(u->w, &s, err) < 0 ||
	    pai_control_token(u->w, &how.token, err) < 0 ||
	    get_seed_ask(u->w, &how.seed, err) < 0) {
		return -err->errnum;
	}
	call.deadline_ms = pai_deadline_in(
	    pai_session_create_timeout(s, NULL) + pai_session_seed_timeout(s) + CALL_TIMEOUT_MS);
	u->session = s;
	r = pai_session_use(s, &how, in_environment, u, &call, &was_reset, err);
	u->w->was_reset = u->w->was_reset || was_reset;
	if (r < 0 && err->code == PAI_E_SEED) {
		u->w->missing = pai_session_missing(s);
	}
	r = r == 0 && u->bytes.len > 0
		? pai_conn_send_bulk(u->w->conn, u->w->id, &u->bytes, &u->call, err)
		: r;
	if (r == 0 && pai_json_set_bool(u->w->reply, "environmentReset", u->w->was_reset) < 0) {
		r = pai_err_no_memory(err);
	}
	return r;
}

static int use_path(struct file_use *u, bool exclusive, struct pai_err *err)
{
	u->path = pai_json_str(u->w->request, "path");
	return u->path ? use(u, exclusive, err)
		       : pai_control_wanted(u->w->operation->name, "path", "a sandbox path", err);
}

/* A number of the request within its bounds. */
static int get_count(struct pai_control_work *w, const char *field, int64_t fallback, int64_t most,
    int64_t *ret, struct pai_err *err)
{
	char what[64];

	*ret = pai_json_get(w->request, field) ? pai_json_num(w->request, field, -1) : fallback;
	if (*ret >= 0 && *ret <= most) {
		return 0;
	}
	(void)snprintf(what, sizeof(what), "0 to %" PRId64, most);
	return pai_control_wanted(w->operation->name, field, what, err);
}

/* --- read --- */

static int read_in(struct file_use *u, struct pai_env *e, struct pai_err *err)
{
	int errnum = pai_fs_barrier_wait(u->w->control->config.fs, e, false);

	if (errnum) {
		return pai_err_errno(
		    err, errnum, "what was written through the mount did not reach the sandbox");
	}
	pai_buf_clear(&u->bytes);
	return pai_sandbox_read_file(
	    pai_env_sandbox(e), u->path, u->bytes.max, &u->call, &u->found, &u->bytes, err);
}

int pai_control_op_read(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	struct file_use u = {.w = w, .call = *call, .fn = read_in};
	int64_t most = 0;
	int r = get_count(w, "maxBytes", PAI_CONTROL_FILE_MAX, PAI_CONTROL_FILE_MAX, &most, err);

	if (r < 0) {
		return r;
	}
	u.bytes.max = (size_t)most;
	r = use_path(&u, false, err);
	if (r == 0 && (pai_json_set_bool(w->reply, "found", u.found) < 0 ||
			  pai_json_set_num(w->reply, "size", (int64_t)u.bytes.len) < 0)) {
		r = pai_err_no_memory(err);
	}
	pai_buf_fini(&u.bytes);
	return r;
}

/* --- write --- */

/* The cheapest question of the contract that tells: no byte of the file is wanted. */
static int ask_existed(struct file_use *u, struct pai_env *e, struct pai_err *err)
{
	pai_auto_buf struct pai_buf none = PAI_BUF_INIT(0);
	struct pai_err why = PAI_ERR_INIT;
	int r = pai_sandbox_read_file(
	    pai_env_sandbox(e), u->path, 0, &u->call, &u->existed, &none, &why);

	if (r < 0 && why.code == PAI_E_FILE_TOO_LARGE) {
		u->existed = true;
		return 0;
	}
	if (r < 0 && why.code == PAI_E_SYS && why.errnum == EACCES) {
		u->existed = true; /* whether it may be replaced is its directory's to say */
		return 0;
	}
	if (r < 0) {
		*err = why;
	}
	return r;
}

static int write_in(struct file_use *u, struct pai_env *e, struct pai_err *err)
{
	int r = pai_json_bool(u->w->request, "ask", true) ? ask_existed(u, e, err) : 0;

	r = r < 0 ? r
		  : pai_sandbox_write_file(pai_env_sandbox(e), u->path, u->w->data.data,
			u->w->data.len, &u->call, err);
	if (r == 0) {
		/* Not proven in time: then nothing stays cached, and it is visible all the same. */
		(void)pai_fs_barrier_wait(u->w->control->config.fs, e, true);
	}
	return r;
}

int pai_control_op_write(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	struct file_use u = {.w = w, .call = *call, .fn = write_in};
	int r = use_path(&u, true, err);

	return r < 0 ? r
	       : pai_json_set_bool(w->reply, "existed", u.existed) < 0 ||
		       pai_json_set_num(w->reply, "size", (int64_t)w->data.len) < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

/* --- list --- */

static int by_name(const void *a, const void *b)
{
	const struct pai_dir_item *x = a;
	const struct pai_dir_item *y = b;

	return strcmp(x->name, y->name);
}

static int list_in(struct file_use *u, struct pai_env *e, struct pai_err *err)
{
	pai_dir_list_fini(&u->list);
	u->list = (struct pai_dir_list){0};
	return pai_sandbox_list_dir(
	    pai_env_sandbox(e), u->path, &u->call, &u->found, &u->list, err);
}

/* The whole directory is read and sorted; one page of it is sent. */
static int page_in(struct file_use *u, struct pai_env *e, struct pai_err *err)
{
	int64_t offset = pai_json_num(u->w->request, "offset", 0);
	int64_t limit = pai_json_num(u->w->request, "limit", LIST_MAX);
	int64_t at;
	int r = list_in(u, e, err);

	if (r < 0) {
		return r;
	}
	if (u->list.count > 0) {
		qsort(u->list.items, u->list.count, sizeof(*u->list.items), by_name);
	}
	pai_buf_clear(&u->bytes);
	for (at = offset; at < (int64_t)u->list.count && at - offset < limit; at++) {
		const struct pai_dir_item *item = &u->list.items[at];

		r = pai_control_put_entry(&u->bytes, item->is_directory, item->name);
		if (r == -EMSGSIZE) {
			break; /* the page is as large as one may be */
		}
		if (r < 0) {
			return pai_err_no_memory(err);
		}
	}
	r = pai_json_set_num(u->w->reply, "total", (int64_t)u->list.count);
	r = r ? r : pai_json_set_bool(u->w->reply, "more", at < (int64_t)u->list.count);
	return r < 0 ? pai_err_no_memory(err) : 0;
}

int pai_control_op_list(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	struct file_use u = {
	    .w = w, .call = *call, .fn = page_in, .bytes = PAI_BUF_INIT(PAI_CONTROL_FILE_MAX)};
	int64_t ignored = 0;
	int r = get_count(w, "offset", 0, INT32_MAX, &ignored, err);

	r = r < 0 ? r : get_count(w, "limit", LIST_MAX, LIST_MAX, &ignored, err);
	r = r < 0 ? r : use_path(&u, false, err);
	if (r == 0 && pai_json_set_bool(w->reply, "found", u.found) < 0) {
		r = pai_err_no_memory(err);
	}
	pai_dir_list_fini(&u.list);
	pai_buf_fini(&u.bytes);
	return r;
}

/* --- acquiring alone --- */

/* "EPOCH.RESETS" */
static int parse_mark(struct pai_control_work *w, struct pai_session_mark *ret, struct pai_err *err)
{
	const char *text = pai_json_str(w->request, "mark");

	return text && sscanf(text, "%" SCNx64 ".%" SCNx64, &ret->epoch, &ret->resets) == 2
		   ? 0
		   : pai_control_wanted(
			 "acquire", "mark", "what an earlier 'acquire' answered", err);
}

/* Asked with the environment in hand: a reset that was under way has ended then. */
static int acquire_in(struct file_use *u, struct pai_env *e, struct pai_err *err)
{
	struct pai_session_mark mark = {0};

	if (pai_json_get(u->w->request, "mark")) {
		if (parse_mark(u->w, &mark, err) < 0) {
			return -err->errnum;
		}
		if (!pai_session_is_unreset(u->session, &mark)) {
			return pai_err_set(err, PAI_E_RESET,
			    "the session was reset or killed meanwhile: nothing is done again");
		}
	}
	return pai_json_bool(u->w->request, "verify", false)
		   ? pai_session_verify(u->session, e, &u->call, err)
		   : 0;
}

int pai_control_op_acquire(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	struct file_use u = {.w = w, .call = *call, .fn = acquire_in};
	pai_auto_session struct pai_session *s = NULL;
	struct pai_session_mark mark;
	char text[40];

	/* From before it is there: what is reset while we wait is not begun anew. */
	if (pai_control_session(w, &s, err) < 0 || pai_session_mark(s, &mark, err) < 0 ||
	    use(&u, false, err) < 0) {
		return -err->errnum;
	}
	(void)snprintf(text, sizeof(text), "%" PRIx64 ".%" PRIx64, mark.epoch, mark.resets);
	return pai_json_set_str(w->reply, "mark", text) < 0 ? pai_err_no_memory(err) : 0;
}

/* --- seeds --- */

static int put_seeds(
    struct pai_control_work *w, struct pai_session *s, const char *error, struct pai_err *err)
{
	pai_auto_env struct pai_env *e = pai_session_current(s);
	struct pai_json *missing = pai_session_missing(s);
	bool is_configured = pai_session_seed_timeout(s) > 0;
	int r = pai_json_set_str(w->reply, "key", pai_session_key(s));

	r = r ? r : pai_json_set_bool(w->reply, "configured", is_configured);
	r = r ? r
	      : pai_json_set_bool(w->reply, "checked", is_configured && e && pai_env_is_seeded(e));
	r = r ? r : pai_json_set_str(w->reply, "error", error);
	if (r < 0) {
		pai_json_free(missing);
		return pai_err_no_memory(err);
	}
	return pai_json_set(w->reply, "missing", missing ? missing : pai_json_array()) < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

static int seed_in(struct file_use *u, struct pai_env *e, struct pai_err *err)
{
	(void)u;
	(void)e;
	(void)err;
	return 0; /* it has been checked */
}

/* A run of its own, so that it is checked now. */
int pai_control_op_seed(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	struct file_use u = {.w = w, .call = *call, .fn = seed_in};
	pai_auto_session struct pai_session *s = NULL;
	struct pai_err why = PAI_ERR_INIT;
	char run[64];

	(void)snprintf(run, sizeof(run), "seed-%d-%" PRIu64, getpid(), pai_clock_ms());
	if (pai_control_session(w, &s, err) < 0) {
		return -err->errnum;
	}
	if (pai_json_set_str(w->request, "run", run) < 0) {
		return pai_err_no_memory(err);
	}
	if (use(&u, false, &why) < 0 && why.code != PAI_E_SEED) {
		*err = why;
		return -err->errnum;
	}
	return put_seeds(w, s, why.code == PAI_OK ? NULL : why.msg, err);
}

int pai_control_op_seeds(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_session struct pai_session *s = NULL;

	(void)call;
	return pai_control_session(w, &s, err) < 0 ? -err->errnum : put_seeds(w, s, NULL, err);
}

/* --- turns --- */

int pai_control_op_exclusive(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	pai_auto_session struct pai_session *s = NULL;
	uint64_t token = 0;
	char text[20];

	if (pai_control_session(w, &s, err) < 0 ||
	    pai_session_exclusive_begin(s, call, &token, err) < 0 ||
	    pai_conn_keep(w->conn, s, token, err) < 0) {
		return -err->errnum;
	}
	(void)snprintf(text, sizeof(text), "%" PRIx64, token);
	return pai_json_set_str(w->reply, "token", text) < 0 ? pai_err_no_memory(err) : 0;
}

int pai_control_op_release(
    struct pai_control_work *w, const struct pai_call *call, struct pai_err *err)
{
	uint64_t token = 0;

	(void)call;
	if (pai_control_token(w, &token, err) < 0) {
		return -err->errnum;
	}
	return token != 0 && pai_conn_drop(w->conn, token)
		   ? 0
		   : pai_control_wanted("release", "token", "one that this connection holds", err);
}
