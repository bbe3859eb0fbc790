#include "execshim/box.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "execshim/caller.h"
#include "execshim/exec_run.h"
#include "providers/base/clock.h"
#include "providers/base/path.h"
#include "providers/wire/control_msg.h"

/* The daemon keeps the deadlines; this is for one that hangs. */
#define CALL_MS (15 * 60 * 1000)

struct pai_box {
	struct pai_target target;
	const char *program;
	struct pai_client *client; /* for requests; NULL before the first */
	bool was_reset;
	int died_of;
	bool is_embedded;
	struct pai_cancel *cancel;           /* embedded: borrowed */
	char known[PAI_ENVIRONMENT_TAG + 1]; /* embedded: the environment that answered last */
	/* In a use: what target.environment and target.token are outside of it; see end_use(). */
	bool in_use;
	bool has_turn; /* target.token is ours to give back */
	char *mark;    /* of its beginning */
	char *missing; /* what seeding did not bring, an array in JSON; NULL: nothing is known */
};

int pai_box_new(
    struct pai_target *take_target, const char *program, struct pai_box **ret, struct pai_err *err)
{
	struct pai_box *b = calloc(1, sizeof(*b));

	if (!b) {
		pai_target_fini(take_target);
		return pai_err_no_memory(err);
	}
	b->target = *take_target;
	b->program = program;
	*ret = b;
	return 0;
}

void pai_box_free(struct pai_box *b)
{
	if (!b) {
		return;
	}
	pai_client_free(b->client);
	pai_target_fini(&b->target);
	free(b->mark);
	free(b->missing);
	free(b);
}

const char *pai_box_key(const struct pai_box *b)
{
	return b->target.place.key;
}

bool pai_box_environment_reset(const struct pai_box *b)
{
	return b->was_reset;
}

void pai_box_begin(struct pai_box *b)
{
	b->was_reset = false;
}

void pai_box_embed(struct pai_box *b, struct pai_cancel *cancel)
{
	b->is_embedded = true;
	b->cancel = cancel;
}

int pai_box_died_of(const struct pai_box *b)
{
	return b->died_of;
}

const char *pai_box_missing(const struct pai_box *b)
{
	return b->missing;
}

void pai_box_disconnect(struct pai_box *b)
{
	pai_client_free(PAI_TAKE(b->client));
}

/* --- requests --- */

/* A daemon that can't be started by its configuration is not this call's mistake. */
static int connect_to(const struct pai_box *b, const struct pai_target *t, struct pai_client **ret,
    struct pai_err *err)
{
	char why[sizeof(err->msg)];
	int r = pai_target_open(t, b->program, true, ret, err);

	if (r < 0 && err->code == PAI_E_INPUT) {
		(void)snprintf(why, sizeof(why), "%s", err->msg);
		return pai_err_unavailable(err, PAI_REASON_NOT_SERVED, NULL, "%s", why);
	}
	return r;
}

/* Nothing is sent that nobody wants any more. */
static int check_cancel(const struct pai_box *b, struct pai_err *err)
{
	return pai_cancel_fired(b->cancel) ? pai_err_set(err, PAI_E_CANCELLED, "cancelled") : 0;
}

static int connected(struct pai_box *b, struct pai_err *err)
{
	int r = check_cancel(b, err);

	return r < 0 || b->client ? r : connect_to(b, &b->target, &b->client, err);
}

/* What every request on the session says. */
static struct pai_json *fields(const struct pai_box *b)
{
	pai_auto_json struct pai_json *f = pai_json_object();
	uint64_t started;
	uint32_t sid;
	int r = pai_json_set_str(f, "key", b->target.place.key);

	pai_caller_identify(&sid, &started);
	r = r ? r : pai_json_set_num(f, "sid", sid);
	r = r ? r : pai_json_set_num(f, "sidStarted", (int64_t)started);
	r = r || !b->target.environment[0]
		? r
		: pai_json_set_str(f, "environment", b->target.environment);
	r = r || !b->target.run[0] ? r : pai_json_set_str(f, "run", b->target.run);
	r = r || !b->target.token[0] ? r : pai_json_set_str(f, "token", b->target.token);
	return r < 0 ? NULL : PAI_TAKE(f);
}

static int keep(char **to, const struct pai_json *reply, const char *field, struct pai_err *err)
{
	const char *text = pai_json_str(reply, field);

	free(*to);
	*to = text ? strdup(text) : NULL;
	return *to    ? 0
	       : text ? pai_err_no_memory(err)
		      : pai_err_set(err, PAI_E_PROTOCOL, "the daemon's answer lacks '%s'", field);
}

static bool ends_connection(const struct pai_err *err)
{
	return err->code == PAI_E_PROTOCOL || err->code == PAI_E_UNAVAILABLE ||
	       err->code == PAI_E_TIMEOUT || err->code == PAI_E_CANCELLED;
}

static int ask(struct pai_box *b, struct pai_client_exchange *x, struct pai_json *take_fields,
    struct pai_json **ret, struct pai_err *err)
{
	int r = connected(b, err);

	if (r < 0) {
		pai_json_free(take_fields);
		return r;
	}
	if (!take_fields) {
		return pai_err_no_memory(err);
	}
	x->deadline_ms = pai_deadline_in(CALL_MS);
	x->cancel = b->cancel;
	r = pai_client_exchange(b->client, x, take_fields, ret, err);
	b->was_reset = b->was_reset || x->was_reset;
	if (x->missing) {
		free(b->missing);
		b->missing = PAI_TAKE(x->missing);
	}
	if (r < 0 && ends_connection(err)) {
		pai_client_free(PAI_TAKE(b->client)); /* it may be good for nothing */
	}
	return r;
}

/* Which environment answered: another than before is news, whoever was told of it already. */
static void note_environment(struct pai_box *b, const char *environment)
{
	if (!b->is_embedded || !environment) {
		return;
	}
	if (b->known[0] && strcmp(b->known, environment) != 0) {
		b->was_reset = true;
	}
	(void)snprintf(b->known, sizeof(b->known), "%s", environment);
}

static int ask_file(struct pai_box *b, struct pai_client_exchange *x, const char *path,
    struct pai_json *take_fields, struct pai_json **ret, struct pai_err *err)
{
	int r;

	if (pai_json_set_str(take_fields, "path", path) < 0) {
		pai_json_free(take_fields);
		return pai_err_no_memory(err);
	}
	r = ask(b, x, take_fields, ret, err);
	if (r == 0) {
		note_environment(b, pai_json_str(*ret, "environment"));
	}
	return r;
}

int pai_box_read(
    struct pai_box *b, const char *path, bool *found, struct pai_buf *ret, struct pai_err *err)
{
	struct pai_client_exchange x = {.op = "read", .got = ret};
	pai_auto_json struct pai_json *reply = NULL;
	struct pai_json *f = fields(b);
	size_t most = ret->max < PAI_CONTROL_FILE_MAX ? ret->max : PAI_CONTROL_FILE_MAX;
	int r;

	pai_buf_clear(ret);
	if (pai_json_set_num(f, "maxBytes", (int64_t)most) < 0) {
		pai_json_free(f);
		return pai_err_no_memory(err);
	}
	r = ask_file(b, &x, path, f, &reply, err);
	if (r == 0) {
		*found = pai_json_bool(reply, "found", false);
	}
	return r;
}

int pai_box_write(struct pai_box *b, const char *path, const void *data, size_t len, bool *existed,
    struct pai_err *err)
{
	struct pai_client_exchange x = {.op = "write", .data = data, .len = len};
	pai_auto_json struct pai_json *reply = NULL;
	struct pai_json *f;
	int r;

	if (len > PAI_CONTROL_FILE_MAX) {
		return pai_err_limit(
		    err, PAI_E_FILE_TOO_LARGE, PAI_CONTROL_FILE_MAX, "what is to be written");
	}
	f = fields(b);
	if (pai_json_set_bool(f, "ask", existed != NULL) < 0) {
		pai_json_free(f);
		return pai_err_no_memory(err);
	}
	r = ask_file(b, &x, path, f, &reply, err);
	if (r == 0 && existed) {
		*existed = pai_json_bool(reply, "existed", false);
	}
	return r;
}

/* --- listing --- */

void pai_box_listing_fini(struct pai_box_listing *l)
{
	for (size_t i = 0; i < l->count; i++) {
		free(l->entries[i].name);
	}
	free(l->entries);
	*l = (struct pai_box_listing){.count = 0};
}

static int take_entries(
    const struct pai_buf *bytes, struct pai_box_listing *ret, struct pai_err *err)
{
	struct pai_reader in = pai_reader_init(bytes->data, bytes->len);
	struct pai_box_entry e;

	while (pai_control_get_entry(&in, &e.is_directory, &e.name)) {
		if ((ret->count & (ret->count - 1)) == 0) {
			size_t cap = ret->count ? 2 * ret->count : 1;
			struct pai_box_entry *grown =
			    reallocarray(ret->entries, cap, sizeof(*ret->entries));

			if (!grown) {
				free(e.name);
				return pai_err_no_memory(err);
			}
			ret->entries = grown;
		}
		ret->entries[ret->count++] = e;
	}
	return in.bad ? pai_err_set(err, PAI_E_PROTOCOL, "the daemon's listing is none") : 0;
}

int pai_box_list(struct pai_box *b, const char *path, uint64_t offset, uint64_t limit, bool *found,
    struct pai_box_listing *ret, struct pai_err *err)
{
	pai_auto_buf struct pai_buf bytes = PAI_BUF_INIT(PAI_CONTROL_FILE_MAX);
	pai_auto_box_listing struct pai_box_listing list = {.count = 0};
	struct pai_client_exchange x = {.op = "list", .got = &bytes};
	pai_auto_json struct pai_json *reply = NULL;
	struct pai_json *f = fields(b);
	int r;

	if (pai_json_set_num(f, "offset", (int64_t)offset) < 0 ||
	    pai_json_set_num(f, "limit", (int64_t)limit) < 0) {
		pai_json_free(f);
		return pai_err_no_memory(err);
	}
	r = ask_file(b, &x, path, f, &reply, err);
	r = r < 0 ? r : take_entries(&bytes, &list, err);
	if (r < 0) {
		return r;
	}
	list.total = (uint64_t)pai_json_num(reply, "total", 0);
	*found = pai_json_bool(reply, "found", false);
	*ret = list;
	list = (struct pai_box_listing){.count = 0};
	return 0;
}

/* --- uses --- */

static int put_text(
    char *to, size_t size, const struct pai_json *reply, const char *field, struct pai_err *err)
{
	const char *text = pai_json_str(reply, field);

	if (!text || strlen(text) >= size) {
		return pai_err_set(
		    err, PAI_E_PROTOCOL, "the daemon's answer has no usable '%s'", field);
	}
	(void)snprintf(to, size, "%s", text);
	return 0;
}

static int acquire(
    struct pai_box *b, bool verify, const char *mark, struct pai_json **ret, struct pai_err *err)
{
	struct pai_client_exchange x = {.op = "acquire"};
	struct pai_json *f = fields(b);
	int r;

	if ((verify && pai_json_set_bool(f, "verify", true) < 0) ||
	    (mark && pai_json_set_str(f, "mark", mark) < 0)) {
		pai_json_free(f);
		return pai_err_no_memory(err);
	}
	r = ask(b, &x, f, ret, err);
	if (r == 0) {
		note_environment(b, pai_json_str(*ret, "environment"));
	}
	return r;
}

static int take_turn(struct pai_box *b, struct pai_err *err)
{
	struct pai_client_exchange x = {.op = "exclusive"};
	pai_auto_json struct pai_json *reply = NULL;
	int r = ask(b, &x, fields(b), &reply, err);

	r = r < 0 ? r : put_text(b->target.token, sizeof(b->target.token), reply, "token", err);
	b->has_turn = r == 0;
	return r;
}

int pai_box_begin_use(struct pai_box *b, bool exclusive, struct pai_err *err)
{
	pai_auto_json struct pai_json *reply = NULL;
	int r;

	/* The connection of a turn that was cut ended the turn. */
	if (b->has_turn && !b->client) {
		b->has_turn = false;
		b->target.token[0] = '\0';
	}
	r = exclusive && !b->target.token[0] ? take_turn(b, err) : 0;
	if (r < 0 || b->target.environment[0]) {
		return r; /* the use around us has an environment */
	}
	r = acquire(b, false, b->in_use ? b->mark : NULL, &reply, err);
	if (r == 0 && !b->in_use) {
		r = keep(&b->mark, reply, "mark", err);
	}
	r = r < 0 ? r
		  : put_text(b->target.environment, sizeof(b->target.environment), reply,
			"environment", err);
	b->in_use = b->in_use || r == 0;
	return r;
}

bool pai_box_use_is_lost(struct pai_box *b, const struct pai_err *err)
{
	pai_auto_json struct pai_json *reply = NULL;
	struct pai_err why = err ? *err : (struct pai_err)PAI_ERR_INIT;

	if (!b->in_use) {
		return false; /* who began the use around us asks */
	}
	/* Not every call that was cut off knows why. */
	if (!err || why.code == PAI_E_UNAVAILABLE || why.code == PAI_E_TIMEOUT ||
	    why.code == PAI_E_PROTOCOL) {
		why = (struct pai_err)PAI_ERR_INIT;
		(void)!acquire(b, true, NULL, &reply, &why);
	}
	return why.code == PAI_E_RESET || why.code == PAI_E_NOT_FOUND;
}

int pai_box_resume_use(struct pai_box *b, bool exclusive, struct pai_err *err)
{
	char before[sizeof(b->target.environment)];
	int r;

	(void)snprintf(before, sizeof(before), "%s", b->target.environment);
	b->target.environment[0] = '\0';
	r = pai_box_begin_use(b, exclusive, err);
	/* Whoever of the use met it first has been told in our place. */
	b->was_reset =
	    b->was_reset || (r == 0 && before[0] && strcmp(before, b->target.environment) != 0);
	return r;
}

void pai_box_end_use(struct pai_box *b)
{
	struct pai_client_exchange x = {.op = "release"};
	pai_auto_json struct pai_json *reply = NULL;

	if (b->in_use) {
		b->target.environment[0] = '\0';
		b->in_use = false;
	}
	if (!b->has_turn) {
		return;
	}
	if (b->client && ask(b, &x, fields(b), &reply, PAI_ERR_IGNORED()) < 0) {
		pai_client_free(PAI_TAKE(b->client)); /* its end is the turn's too */
	}
	b->has_turn = false;
	b->target.token[0] = '\0';
}

const char *pai_box_environment(const struct pai_box *b)
{
	return b->target.environment;
}

const char *pai_box_token(const struct pai_box *b)
{
	return b->target.token;
}

int pai_box_use(struct pai_box *b, bool exclusive, pai_box_fn fn, void *arg, struct pai_err *err)
{
	struct pai_err again = PAI_ERR_INIT;
	int r = pai_box_begin_use(b, exclusive, err);

	r = r < 0 ? r : fn(arg, b, err);
	/* What was reset or killed meanwhile is not done again: then the first failure stands. */
	if (r < 0 && pai_box_use_is_lost(b, err) && pai_box_resume_use(b, exclusive, &again) == 0) {
		*err = (struct pai_err)PAI_ERR_INIT;
		r = fn(arg, b, err);
	}
	pai_box_end_use(b);
	return r;
}

int pai_box_reset(struct pai_box *b, struct pai_err *err)
{
	struct pai_client_exchange x = {.op = "reset"};
	pai_auto_json struct pai_json *reply = NULL;
	int r = ask(b, &x, fields(b), &reply, err);

	b->was_reset = b->was_reset || r == 0;
	return r;
}

int pai_box_scope(
    struct pai_box *b, const char *scope, const struct pai_strmap *ids, struct pai_err *err)
{
	struct pai_client_exchange x = {.op = "scope"};
	pai_auto_json struct pai_json *reply = NULL;
	struct pai_json *f = fields(b);

	if (pai_json_set_str(f, "scope", scope) < 0 || pai_json_set_map(f, "ids", ids) < 0) {
		pai_json_free(f);
		return pai_err_no_memory(err);
	}
	return ask(b, &x, f, &reply, err);
}

int pai_box_path(struct pai_box *b, const char *path, char **ret, struct pai_err *err)
{
	struct pai_client_exchange x = {.op = "resolve"};
	pai_auto_json struct pai_json *reply = NULL;
	struct pai_json *f = NULL;
	const char *mount, *key;
	size_t n;
	int r = connected(b, err);

	if (r < 0) {
		return r;
	}
	mount = pai_json_str(pai_client_hello(b->client), "mount");
	n = mount ? strlen(mount) : 0;
	if (!mount || strncmp(path, mount, n) != 0 || path[n] != '/') {
		*ret = strdup(path);
		return *ret ? 0 : pai_err_no_memory(err);
	}
	f = pai_json_object();
	if (pai_json_set_str(f, "path", path) < 0) {
		pai_json_free(f);
		return pai_err_no_memory(err);
	}
	r = ask(b, &x, f, &reply, err);
	if (r < 0) {
		return r;
	}
	key = pai_json_str(reply, "key");
	if (!key || strcmp(key, b->target.place.key) != 0) {
		return pai_err_set(err, PAI_E_INPUT, "the path is in another session's directory");
	}
	return keep(ret, reply, "path", err);
}

/* --- commands --- */

/* What the daemon knows of an end that nobody has seen, and of seeds. */
static void take_status_error(
    struct pai_box *b, const struct pai_exec_result *result, struct pai_err *err)
{
	pai_auto_json struct pai_json *status = NULL;
	const struct pai_json *error, *missing;

	if (!result->status || pai_json_parse(result->status, strlen(result->status),
				   PAI_CLIENT_JSON_DEPTH, &status, PAI_ERR_IGNORED()) < 0) {
		return;
	}
	error = pai_json_get(status, "error");
	missing = pai_json_get(error, "missingPaths");
	if (missing) {
		free(b->missing);
		b->missing = pai_json_print(missing, false);
	}
	if (pai_json_is_object(error) && result->ending == PAI_ENDED_UNKNOWN) {
		(void)pai_json_to_err(error, err);
	}
}

static int take_result(struct pai_box *b, const struct pai_exec_result *result,
    struct pai_box_exit *ret, struct pai_err *err)
{
	b->was_reset = b->was_reset || result->was_reset;
	b->died_of = result->die_of;
	if ((result->die_of || pai_cancel_fired(b->cancel)) && result->ending != PAI_ENDED_EXITED) {
		return pai_err_set(err, PAI_E_CANCELLED, "cancelled");
	}
	if (result->ending == PAI_ENDED_EXITED &&
	    (result->err.code == PAI_OK || result->err.code == PAI_E_COMMAND_TIMEOUT)) {
		*ret = (struct pai_box_exit){
		    .timed_out = result->err.code != PAI_OK, .code = result->code};
		return 0;
	}
	if (result->no_cwd) {
		(void)pai_err_set(err, PAI_E_INPUT, "%s", result->err.msg);
		err->errnum = ENOENT;
		return -ENOENT;
	}
	if (result->ending == PAI_ENDED_NOT_STARTED && result->code != 125) {
		*ret = (struct pai_box_exit){.code = result->code};
		return 0;
	}
	*err = result->err;
	take_status_error(b, result, err);
	return -err->errnum;
}

int pai_box_run(struct pai_box *b, const struct pai_box_command *c, struct pai_box_exit *ret,
    struct pai_err *err)
{
	struct pai_exec_options o = {
	    .argv = (char **)(uintptr_t)c->argv,
	    .quiet = true,
	    .env = c->env ? *c->env : (struct pai_strmap)PAI_STRMAP_INIT,
	    .timeout_ms = c->timeout_ms,
	    .max_output_bytes = c->max_output_bytes,
	    .status_fd = -1,
	    .on_output = c->on_output,
	    .output_arg = c->arg,
	    .cancel = b->cancel,
	    .input = c->input,
	    .input_len = c->input_len,
	};
	struct pai_exec_result result = {.ending = PAI_ENDED_NOT_STARTED};
	pai_auto_json struct pai_json *reply = NULL;
	pai_auto_client struct pai_client *client = NULL;
	struct pai_target t = b->target;
	int r;

	t.place.cwd = (char *)(uintptr_t)c->cwd;
	t.place.stands_in = false;
	/* Else a command that is the first to meet an environment would not say which. */
	if (b->is_embedded && !b->known[0]) {
		r = acquire(b, false, NULL, &reply, err);
		if (r < 0) {
			return r;
		}
	}
	o.known = b->known[0] ? b->known : NULL;
	r = check_cancel(b, err);
	r = r < 0 ? r : connect_to(b, &t, &client, err);
	if (r < 0) {
		return r;
	}
	pai_shim_run(&o, &t, client, &result);
	note_environment(b, result.environment[0] ? result.environment : NULL);
	r = take_result(b, &result, ret, err);
	pai_exec_result_fini(&result);
	return r;
}
