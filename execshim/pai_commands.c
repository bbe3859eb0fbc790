/*
 * Everything here is one request and a way to show its reply; what the daemon knows is not known
 * here twice.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "execshim/pai_cmd.h"
#include "execshim/print.h"
#include "execshim/start.h"
#include "providers/base/clock.h"
#include "providers/base/key.h"
#include "providers/base/printable.h"

#define PROGRAM "pai"
/* The daemon answers these from its own memory and disk. */
#define LOCAL_MS 10000
/* These wait for a provider, whose own deadlines (create_timeout) are the daemon's to keep; this
 * is for a daemon that hangs. */
#define REMOTE_MS (15 * 60 * 1000)

/* ---- talking ---- */

struct call {
	const char *op;
	struct pai_json *fields; /* owned */
	uint64_t timeout_ms;
	bool start; /* a daemon, where none runs */
};

/* One request to the daemon that the arguments and the working directory name. */
static int ask_target(
    const struct pai_target *t, struct call *c, struct pai_json **ret, struct pai_err *err)
{
	pai_auto_client struct pai_client *client = NULL;
	int r = pai_target_open(t, PROGRAM, c->start, &client, err);

	return r < 0 ? r
		     : pai_client_request(client, c->op, PAI_TAKE(c->fields),
			   pai_deadline_in(c->timeout_ms), ret, err);
}

static int find(const struct pai_args *a, struct pai_target *ret, struct pai_err *err)
{
	return pai_target_find(
	    &(struct pai_target_options){.key = a->key, .daemon = a->daemon}, ret, err);
}

static int ask(const struct pai_args *a, struct call *c, struct pai_json **ret, struct pai_err *err)
{
	const char *key = pai_json_str(c->fields, "key");
	struct pai_target t;
	int r = pai_target_find(
	    &(struct pai_target_options){.key = key ? key : a->key, .daemon = a->daemon}, &t, err);

	/* In an exclusive use it is part of that, and would wait for its end otherwise. */
	if (r == 0 && t.token[0] && strcmp(c->op, "reset") == 0 &&
	    pai_json_set_str(c->fields, "token", t.token) < 0) {
		r = pai_err_no_memory(err);
		pai_target_fini(&t);
	} else if (r == 0) {
		r = ask_target(&t, c, ret, err);
		pai_target_fini(&t);
	}
	pai_json_free(PAI_TAKE(c->fields));
	return r;
}

/* The session meant: the word given, -s, or with `by_place` the one stood in; "" for none. */
static int session_of(
    const struct pai_args *a, bool by_place, char ret[PAI_KEY_MAX + 1], struct pai_err *err)
{
	const char *given = a->word_count ? a->words[0] : a->key;
	struct pai_target t;
	int r;

	ret[0] = '\0';
	if (a->scope) {
		pai_auto_strmap struct pai_strmap ids = PAI_STRMAP_INIT;

		return a->key
			   ? pai_err_set(err, PAI_E_INPUT, "expected -s KEY or --scope, not both")
			   : pai_cmd_scoped_key(a, &ids, ret, err);
	}
	if (a->word_count && a->key) {
		return pai_err_set(
		    err, PAI_E_INPUT, "a session is named once: '%s' or -s '%s'", given, a->key);
	}
	if (given) {
		r = pai_target_check_key(given, err);
		if (r < 0) {
			return r;
		}
		(void)snprintf(ret, PAI_KEY_MAX + 1, "%s", given);
		return 0;
	}
	if (!by_place) {
		return 0;
	}
	r = find(a, &t, err);
	if (r == 0) {
		(void)snprintf(ret, PAI_KEY_MAX + 1, "%s", t.place.key);
		pai_target_fini(&t);
	}
	return r;
}

int pai_cmd_need_session(
    const struct pai_args *a, bool by_place, char ret[PAI_KEY_MAX + 1], struct pai_err *err)
{
	int r = session_of(a, by_place, ret, err);

	if (r == 0 && ret[0] == '\0') {
		return pai_err_set(err, PAI_E_INPUT,
		    by_place
			? "which session? give its KEY, or cd into its directory"
			: "which session? give its KEY; this is not guessed from the directory");
	}
	return r;
}

static struct pai_json *fields_with_key(const char *key)
{
	pai_auto_json struct pai_json *f = pai_json_object();

	return *key && pai_json_set_str(f, "key", key) < 0 ? NULL : PAI_TAKE(f);
}

static int show_json(const struct pai_json *j, struct pai_err *err)
{
	return pai_print_json(j, stdout) < 0 ? pai_err_no_memory(err) : 0;
}

/* A request about one session, answered by that session's object. */
static int session_call(const struct pai_args *a, struct call *c, const char *key, const char *done,
    struct pai_err *err)
{
	pai_auto_json struct pai_json *reply = NULL;
	const char *id;
	int r = ask(a, c, &reply, err);

	if (r < 0) {
		return pai_err_wrap(err, "%s '%s'", c->op, key);
	}
	if (a->json) {
		return show_json(reply, err);
	}
	id = pai_json_str(reply, "sandboxId");
	if (strcmp(c->op, "reset") == 0 && pai_json_num(reply, "generation", 0) == 0) {
		done = "was never used: nothing to reset, and nothing was made";
	}
	printf("%s: %s", pai_printable(key), done);
	if (id) {
		printf(" (sandbox %s)", pai_printable(id));
	}
	(void)putchar('\n');
	return 0;
}

/* ---- the commands ---- */

static const char *const ls_heads[] = {"KEY", "STATE", "SANDBOX", "GENERATION", "USED", NULL};

static int add_session_row(struct pai_table *t, const struct pai_json *s)
{
	char text[32];
	int r = pai_table_add(t, pai_json_str(s, "key"));

	r = r ? r : pai_table_add(t, pai_json_str(s, "state"));
	r = r ? r : pai_table_add(t, pai_json_str(s, "sandboxId"));
	r = r ? r : pai_table_add(t, pai_member_text(s, "generation", text));
	return r ? r : pai_table_add(t, pai_time_text(pai_json_num(s, "lastUsedMs", 0), text));
}

static int ls_fields(const struct pai_args *a, const char *after, struct pai_json **ret)
{
	pai_auto_json struct pai_json *f = pai_json_object();
	pai_auto_json struct pai_json *keys = a->word_count ? pai_json_array() : NULL;
	int r = f ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < a->word_count; i++) {
		r = pai_json_push_str(keys, a->words[i]);
	}
	r = r || !keys ? r : pai_json_set(f, "keys", PAI_TAKE(keys));
	r = r || !after ? r : pai_json_set_str(f, "after", after);
	*ret = r ? NULL : PAI_TAKE(f);
	return r;
}

struct listing {
	struct pai_table *rows;
	bool *met;                   /* by the number of its word */
	char after[PAI_KEY_MAX + 1]; /* the last key of a page that has a next one */
};

/* One page of the list into the table (people) or out (programs: an object a page). */
static int ls_page(const struct pai_args *a, struct listing *l, struct pai_err *err)
{
	struct call c = {.op = "ls", .timeout_ms = LOCAL_MS, .start = true};
	pai_auto_json struct pai_json *reply = NULL;
	const struct pai_json *sessions;
	const char *last = NULL;
	int r = ls_fields(a, *l->after ? l->after : NULL, &c.fields);

	r = r < 0 ? pai_err_no_memory(err) : ask(a, &c, &reply, err);
	if (r < 0) {
		return r;
	}
	if (a->json && show_json(reply, err) < 0) {
		return -err->errnum;
	}
	sessions = pai_json_get(reply, "sessions");
	for (size_t i = 0; i < pai_json_count(sessions); i++) {
		const struct pai_json *s = pai_json_at(sessions, i);

		if (add_session_row(l->rows, s) < 0) {
			return pai_err_no_memory(err);
		}
		last = pai_json_str(s, "key");
		for (size_t w = 0; last && w < a->word_count; w++) {
			l->met[w] = l->met[w] || strcmp(a->words[w], last) == 0;
		}
	}
	if (!pai_json_bool(reply, "more", false) || !last || strlen(last) > PAI_KEY_MAX ||
	    strcmp(last, l->after) <= 0) {
		l->after[0] = '\0';
	} else {
		(void)snprintf(l->after, sizeof(l->after), "%s", last);
	}
	return 0;
}

int pai_cmd_ls(const struct pai_args *a, struct pai_err *err)
{
	pai_auto_table struct pai_table *t = pai_table_new(ls_heads);
	pai_auto_free bool *met = calloc(a->word_count + 1, sizeof(*met));
	struct listing l = {.rows = t, .met = met};

	if (!t || !met) {
		return pai_err_no_memory(err);
	}
	do {
		int r = ls_page(a, &l, err);

		if (r < 0) {
			return r;
		}
	} while (l.after[0]);
	if (!a->json) {
		pai_table_print(t, stdout);
	}
	for (size_t i = 0; i < a->word_count; i++) {
		if (!met[i]) {
			return pai_err_set(
			    err, PAI_E_INPUT, "there is no session '%s'", a->words[i]);
		}
	}
	return 0;
}

int pai_cmd_status(const struct pai_args *a, struct pai_err *err)
{
	struct call c = {.op = "status", .timeout_ms = LOCAL_MS};
	pai_auto_json struct pai_json *reply = NULL;
	const struct pai_json *lost;
	char key[PAI_KEY_MAX + 1];
	int r = session_of(a, true, key, err);

	if (r < 0) {
		return r;
	}
	c.fields = fields_with_key(key);
	r = c.fields ? ask(a, &c, &reply, err) : pai_err_no_memory(err);
	if (r < 0) {
		return r;
	}
	if (a->json) {
		return show_json(reply, err);
	}
	pai_print_members(reply, "", stdout);
	if (pai_json_get(reply, "session")) {
		printf("session\n");
		pai_print_members(pai_json_get(reply, "session"), "  ", stdout);
	}
	lost = pai_json_get(reply, "lostWrites");
	for (size_t i = 0; i < pai_json_count(lost); i++) {
		const char *path = pai_json_text(pai_json_at(lost, i));

		printf("lost write     %s\n", pai_printable(path ? path : "?"));
	}
	return 0;
}

/* {"enabled","error"}: for programs that want to know no more. */
static int show_probe(const struct pai_err *failure, struct pai_err *err)
{
	pai_auto_json struct pai_json *answer = pai_json_object();
	const char *why = !failure                             ? NULL
			  : failure->code == PAI_E_UNAVAILABLE ? pai_reason_name(failure->reason)
							       : "unknown";

	if (failure) {
		(void)fprintf(stderr, "pai: %s (%s)\n", pai_printable(failure->msg),
		    pai_errcode_name(failure->code));
	}
	if (pai_json_set_bool(answer, "enabled", !failure) < 0 ||
	    pai_json_set_str(answer, "error", why) < 0 || pai_print_json(answer, stdout) < 0) {
		return pai_err_no_memory(err);
	}
	return failure != NULL;
}

int pai_cmd_probe(const struct pai_args *a, struct pai_err *err)
{
	struct call c = {.op = "probe", .timeout_ms = REMOTE_MS, .start = true};
	pai_auto_json struct pai_json *reply = NULL;
	int r = ask(a, &c, &reply, err);

	if (a->json) {
		return show_probe(r < 0 ? err : NULL, err);
	}
	if (r == 0) {
		printf("ok: the provider answers and takes the credential\n");
	}
	return r;
}

/* create=./PROGRAM is beside whoever asks, not beside the daemon. */
static int set_options(
    struct pai_json *fields, const struct pai_strmap *options, struct pai_err *err)
{
	const char *program = pai_strmap_get(options, "create");
	pai_auto_strmap struct pai_strmap sent = PAI_STRMAP_INIT;
	pai_auto_free char *path = NULL;
	int r = pai_strmap_copy(&sent, options);

	if (r == 0 && program && *program) {
		path = realpath(program, NULL);
		if (!path) {
			return pai_err_sys(err, "create=%s", program);
		}
		r = pai_strmap_set(&sent, "create", path);
	}
	r = r < 0 ? r : pai_json_set_map(fields, "options", &sent);
	return r < 0 ? pai_err_no_memory(err) : 0;
}

int pai_cmd_create(const struct pai_args *a, struct pai_err *err)
{
	struct call c = {.op = "create", .timeout_ms = REMOTE_MS, .start = true};
	pai_auto_json struct pai_json *reply = NULL;
	const char *id;
	char key[PAI_KEY_MAX + 1];
	int r = pai_cmd_need_session(a, false, key, err);

	if (r < 0) {
		return r;
	}
	c.fields = fields_with_key(key);
	r = !c.fields          ? pai_err_no_memory(err)
	    : a->options.count ? set_options(c.fields, &a->options, err)
			       : 0;
	r = r < 0 ? r : pai_cmd_set_scope(a, c.fields, err);
	if (r < 0) {
		pai_json_free(c.fields);
		return r;
	}
	r = ask(a, &c, &reply, err);
	if (r < 0) {
		return pai_err_wrap(err, "create '%s'", key);
	}
	if (a->json) {
		return show_json(reply, err);
	}
	id = pai_json_str(reply, "sandboxId");
	printf("%s: ", pai_printable(key));
	printf("%s (sandbox %s)\n",
	    pai_json_bool(reply, "created", false) ? "made"
	    : a->options.count
		? "was there already: what a sandbox is made with counts for its next one"
		: "was there already",
	    pai_printable(id ? id : "?"));
	return 0;
}

static int named_session(
    const struct pai_args *a, const char *op, bool by_place, const char *done, struct pai_err *err)
{
	struct call c = {.op = op, .timeout_ms = REMOTE_MS, .start = true};
	char key[PAI_KEY_MAX + 1];
	int r = pai_cmd_need_session(a, by_place, key, err);

	if (r < 0) {
		return r;
	}
	c.fields = fields_with_key(key);
	return c.fields ? session_call(a, &c, key, done, err) : pai_err_no_memory(err);
}

int pai_cmd_reset(const struct pai_args *a, struct pai_err *err)
{
	return named_session(a, "reset", false, "reset; the next use makes a fresh sandbox", err);
}

int pai_cmd_pause(const struct pai_args *a, struct pai_err *err)
{
	return named_session(a, "pause", true, "paused; the next use resumes it", err);
}

int pai_cmd_barrier(const struct pai_args *a, struct pai_err *err)
{
	return named_session(
	    a, "barrier", true, "the mount shows what has been done in its sandbox", err);
}

/* field: "key" or "sandboxId". */
static int kill_one(
    const struct pai_args *a, const char *field, const char *value, struct pai_err *err)
{
	struct call c = {.op = "kill", .timeout_ms = REMOTE_MS, .start = true};
	pai_auto_json struct pai_json *reply = NULL;
	int64_t killed;
	int r;

	c.fields = pai_json_object();
	if (pai_json_set_str(c.fields, field, value) < 0) {
		pai_json_free(c.fields);
		return pai_err_no_memory(err);
	}
	r = ask(a, &c, &reply, err);
	if (r < 0) {
		return pai_err_wrap(err, "kill '%s'", value);
	}
	if (a->json) {
		return show_json(reply, err);
	}
	killed = pai_json_num(reply, "killed", 0);
	printf("%s: %" PRId64 " sandbox%s killed\n", pai_printable(value), killed,
	    killed == 1 ? "" : "es");
	return 0;
}

static int kill_scoped(const struct pai_args *a, struct pai_err *err)
{
	char key[PAI_KEY_MAX + 1];
	int r = pai_cmd_need_session(a, false, key, err);

	if (r < 0 || !pai_cmd_is_delegated(a)) {
		return r < 0 ? r : kill_one(a, "key", key, err);
	}
	if (a->json) {
		printf("{\"key\":\"%s\",\"killed\":0}\n", key); /* made of letters and digits */
	} else {
		printf("%s: stays: it is the root thread's, whose end it has\n", key);
	}
	return 0;
}

int pai_cmd_kill(const struct pai_args *a, struct pai_err *err)
{
	int r = 0;

	if (a->sandbox) {
		return a->word_count || a->key ? pai_err_set(err, PAI_E_INPUT,
						     "expected KEY... or --sandbox ID, not both")
					       : kill_one(a, "sandboxId", a->sandbox, err);
	}
	if (a->scope) {
		return kill_scoped(a, err);
	}
	if (!a->word_count && !a->key) {
		return pai_err_set(err, PAI_E_INPUT,
		    "which session? give its KEY; this is not guessed from the directory");
	}
	if (a->key) {
		r = kill_one(a, "key", a->key, err);
	}
	for (size_t i = 0; i < a->word_count && r == 0; i++) {
		r = pai_target_check_key(a->words[i], err);
		r = r < 0 ? r : kill_one(a, "key", a->words[i], err);
	}
	return r;
}

int pai_cmd_trust(const struct pai_args *a, struct pai_err *err)
{
	struct call c = {.op = "trust", .timeout_ms = LOCAL_MS, .start = true};
	char key[PAI_KEY_MAX + 1];
	int r = pai_cmd_need_session(a, true, key, err);

	if (r < 0) {
		return r;
	}
	c.fields = fields_with_key(key);
	if (pai_json_set_bool(c.fields, "trust", !a->off) < 0) {
		pai_json_free(c.fields);
		return pai_err_no_memory(err);
	}
	return session_call(a, &c, key,
	    a->off ? "no longer trusted; host git refuses its repositories"
		   : "trusted; host git runs what its repositories' configuration says",
	    err);
}

int pai_cmd_umount(const struct pai_args *a, struct pai_err *err)
{
	struct call c = {.op = "shutdown", .timeout_ms = LOCAL_MS};
	pai_auto_json struct pai_json *reply = NULL;
	struct pai_target t;
	int r = find(a, &t, err);

	if (r < 0) {
		return r;
	}
	c.fields = pai_json_object();
	r = c.fields ? ask_target(&t, &c, &reply, err) : pai_err_no_memory(err);
	pai_json_free(c.fields);
	if (r == 0 && a->json) {
		r = show_json(reply, err);
	} else if (r == 0) {
		printf("%s: unmounts and ends; its sandboxes stay\n", t.place.daemon);
	}
	pai_target_fini(&t);
	return r;
}

/* ---- log ---- */

static const char *const log_heads[] = {
    "TIME", "KEY", "GENERATION", "WHAT", "ENDED", "DETAIL", NULL};

static int add_log_row(struct pai_table *t, const struct pai_json *e)
{
	const char *command = pai_json_str(e, "command");
	char text[32];
	char ended[64] = "";
	int64_t code = pai_json_num(e, "exitCode", -1);
	const char *outcome = pai_json_str(e, "outcome");
	int r = pai_table_add(t, pai_time_text(pai_json_num(e, "atMs", 0), text));

	if (code >= 0) {
		(void)snprintf(ended, sizeof(ended), "%" PRId64 " in %" PRId64 " ms", code,
		    pai_json_num(e, "durationMs", 0));
	} else if (outcome && strcmp(outcome, "not-started") != 0) {
		(void)snprintf(ended, sizeof(ended), "%.32s in %" PRId64 " ms", outcome,
		    pai_json_num(e, "durationMs", 0));
	} else if (outcome) {
		(void)snprintf(ended, sizeof(ended), "%s", outcome);
	}
	r = r ? r : pai_table_add(t, pai_json_str(e, "key"));
	r = r ? r : pai_table_add(t, pai_member_text(e, "generation", text));
	r = r ? r : pai_table_add(t, pai_json_str(e, "event"));
	r = r ? r : pai_table_add(t, ended);
	return r ? r : pai_table_add(t, command ? command : pai_json_str(e, "detail"));
}

static int log_fields(const struct pai_args *a, const char *key, struct pai_json **ret)
{
	pai_auto_json struct pai_json *f = fields_with_key(key);
	int r = f ? 0 : -ENOMEM;

	r = r || !a->limit ? r : pai_json_set_num(f, "limit", a->limit);
	r = r || !a->before ? r : pai_json_set_num(f, "before", a->before);
	*ret = r ? NULL : PAI_TAKE(f);
	return r;
}

int pai_cmd_log(const struct pai_args *a, struct pai_err *err)
{
	struct call c = {.op = "log", .timeout_ms = LOCAL_MS, .start = true};
	pai_auto_table struct pai_table *t = pai_table_new(log_heads);
	pai_auto_json struct pai_json *reply = NULL;
	const struct pai_json *entries;
	char key[PAI_KEY_MAX + 1];
	int r = session_of(a, !a->all, key, err);

	if (r < 0) {
		return r;
	}
	if (!t || log_fields(a, key, &c.fields) < 0) {
		return pai_err_no_memory(err);
	}
	r = ask(a, &c, &reply, err);
	if (r < 0) {
		return r;
	}
	if (a->json) {
		return show_json(reply, err);
	}
	entries = pai_json_get(reply, "entries");
	for (size_t i = 0; i < pai_json_count(entries); i++) {
		if (add_log_row(t, pai_json_at(entries, i)) < 0) {
			return pai_err_no_memory(err);
		}
	}
	pai_table_print(t, stdout);
	return 0;
}

/* The suites may load foreign providers: another program, which this one becomes. */
int pai_cmd_conformance(const struct pai_args *a, struct pai_err *err)
{
	static char name[] = "pai-conformance";
	pai_auto_free char *path = NULL;
	pai_auto_free char **argv = calloc(a->word_count + 2, sizeof(*argv));
	int r = argv ? pai_program_beside(name, &path, err) : pai_err_no_memory(err);

	if (r < 0) {
		return r;
	}
	argv[0] = name;
	memcpy(argv + 1, a->words, a->word_count * sizeof(*argv));
	(void)execv(path, argv);
	return pai_err_sys(err, "run '%s'", path);
}
