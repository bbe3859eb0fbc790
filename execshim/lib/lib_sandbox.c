/* The facade: each call is one of the box's, with the library's words around it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "execshim/lib/lib_private.h"
#include "providers/base/path.h"
#include "providers/wire/control_msg.h"

#define PROGRAM "libpai"
#define PAGE_ENTRIES 1000000 /* as many as the daemon gives */

/* --- life --- */

int pai_lib_sandbox_new(
    struct pai_target *take_target, struct libpai_sandbox **ret, struct pai_err *err)
{
	struct libpai_sandbox *sb = calloc(1, sizeof(*sb));

	if (!sb || !(sb->never = pai_cancel_new())) {
		free(sb);
		pai_target_fini(take_target);
		return pai_err_no_memory(err);
	}
	if (pai_box_new(take_target, PROGRAM, &sb->box, err) < 0) {
		libpai_sandbox_free(sb);
		return -err->errnum;
	}
	pai_box_embed(sb->box, sb->never);
	*ret = sb;
	return 0;
}

void libpai_sandbox_free(struct libpai_sandbox *sb)
{
	if (sb) {
		pai_box_free(sb->box);
		pai_cancel_unref(sb->never);
		pai_strmap_fini(&sb->ids);
		pai_json_free(sb->missing);
		free(sb);
	}
}

const char *libpai_key(const struct libpai_sandbox *sb)
{
	return pai_box_key(sb->box);
}

bool libpai_environment_reset(const struct libpai_sandbox *sb)
{
	return pai_box_environment_reset(sb->box);
}

const char *libpai_missing(const struct libpai_sandbox *sb, size_t number)
{
	return pai_json_text(pai_json_at(sb->missing, number));
}

struct libpai_cancel *libpai_cancel_new(void)
{
	struct pai_cancel *c = pai_cancel_new();

	if (c && pai_cancel_fd(c) < 0) {
		pai_cancel_unref(c);
		return NULL;
	}
	return (struct libpai_cancel *)c;
}

void libpai_cancel_free(struct libpai_cancel *c)
{
	pai_cancel_unref((struct pai_cancel *)c);
}

void libpai_cancel(struct libpai_cancel *c)
{
	pai_cancel_fire((struct pai_cancel *)c);
}

void libpai_set_cancel(struct libpai_sandbox *sb, struct libpai_cancel *cancel)
{
	pai_box_embed(sb->box, cancel ? (struct pai_cancel *)cancel : sb->never);
}

/* --- pieces --- */

static void keep_missing(struct libpai_sandbox *sb)
{
	const char *text = pai_box_missing(sb->box);

	pai_json_free(PAI_TAKE(sb->missing));
	if (text && pai_json_parse(text, strlen(text), 1, &sb->missing, PAI_ERR_IGNORED()) < 0) {
		sb->missing = NULL;
	}
}

static int fail(struct libpai_sandbox *sb, const struct pai_err *why, struct libpai_error *err)
{
	sb->failed = *why;
	if (why->code == PAI_E_SEED) {
		keep_missing(sb);
	}
	return pai_lib_fail(why, err);
}

/* What the ledger keeps of the session, ahead of the first call. A threadId alone is its key. */
static int introduce(struct libpai_sandbox *sb, struct pai_err *err)
{
	bool is_plain = sb->scope == PAI_SCOPE_THREAD && sb->ids.count == 1;
	int r = 0;

	if (!sb->is_told && sb->ids.count > 0 && !is_plain) {
		r = pai_box_scope(sb->box, pai_scope_name(sb->scope), &sb->ids, err);
	}
	sb->is_told = sb->is_told || r == 0;
	return r;
}

/* --- commands --- */

struct running {
	struct pai_buf texts[2];
	const struct libpai_command *c;
	bool is_full; /* no memory */
};

static void on_output(void *arg, int stream, const char *data, size_t len)
{
	struct running *run = arg;

	if (stream == 0) {
		pai_buf_clear(&run->texts[0]);
		pai_buf_clear(&run->texts[1]);
	} else if (pai_buf_add(&run->texts[stream - 1], data, len) < 0) {
		run->is_full = true;
		return;
	}
	if (run->c->on_output) {
		run->c->on_output(run->c->arg, (enum libpai_stream)stream, data, len);
	}
}

static int run_in(struct libpai_sandbox *sb, struct running *run, int *code, struct pai_err *err)
{
	static const char sh[] = "sh";
	static const char dash_c[] = "-c";
	const struct libpai_command *c = run->c;
	const char *const line[] = {sh, dash_c, c->command, NULL};
	pai_auto_strmap struct pai_strmap env = PAI_STRMAP_INIT;
	pai_auto_free char *cwd = NULL;
	struct pai_box_command command = {
	    .argv = (char *const *)(uintptr_t)(c->command ? line : c->argv),
	    .env = &env,
	    .timeout_ms = c->timeout_ms,
	    .max_output_bytes = c->max_output_bytes,
	    .input = c->input,
	    .input_len = c->input_len,
	    .on_output = on_output,
	    .arg = run,
	};
	struct pai_box_exit ended = {.timed_out = false};

	if (!c->command == !(c->argv && c->argv[0])) {
		return pai_err_set(err, PAI_E_INPUT, "expected a command, or the words of one");
	}
	if (pai_lib_take_pairs(c->env, "env", &env, err) < 0 ||
	    pai_path_resolve(c->cwd ? c->cwd : PAI_WORKSPACE, &cwd, err) < 0 ||
	    introduce(sb, err) < 0) {
		return -err->errnum;
	}
	command.cwd = cwd;
	if (pai_box_run(sb->box, &command, &ended, err) < 0) {
		return -err->errnum;
	}
	*code = ended.code;
	return run->is_full      ? pai_err_no_memory(err)
	       : ended.timed_out ? pai_err_command_timeout(err, c->timeout_ms)
				 : 0;
}

void libpai_result_fini(struct libpai_result *r)
{
	free(r->out);
	free(r->err);
	*r = (struct libpai_result){.out = NULL};
}

int libpai_run(struct libpai_sandbox *sb, const struct libpai_command *c, struct libpai_result *ret,
    struct libpai_error *err)
{
	struct running run = {
	    .texts = {PAI_BUF_INIT(SIZE_MAX - 1), PAI_BUF_INIT(SIZE_MAX - 1)}, .c = c};
	struct pai_err why = PAI_ERR_INIT;
	int code = 0;
	int r = run_in(sb, &run, &code, &why);

	*ret = (struct libpai_result){
	    .exit_code = code, .out_len = run.texts[0].len, .err_len = run.texts[1].len};
	ret->out = pai_buf_take(&run.texts[0]);
	ret->err = pai_buf_take(&run.texts[1]);
	if (r == 0 && (!ret->out || !ret->err)) {
		r = pai_err_no_memory(&why);
	}
	return r < 0 ? fail(sb, &why, err) : 0;
}

/* --- files --- */

int libpai_read(struct libpai_sandbox *sb, const char *path, uint64_t max_bytes, char **ret,
    size_t *ret_len, struct libpai_error *err)
{
	uint64_t most = max_bytes < PAI_CONTROL_FILE_MAX ? max_bytes : PAI_CONTROL_FILE_MAX;
	pai_auto_buf struct pai_buf bytes = PAI_BUF_INIT((size_t)most);
	struct pai_err why = PAI_ERR_INIT;
	bool found = false;
	size_t len;
	char *text;

	if (introduce(sb, &why) < 0 || pai_box_read(sb->box, path, &found, &bytes, &why) < 0) {
		return fail(sb, &why, err);
	}
	if (!found) {
		return 0;
	}
	len = bytes.len;
	text = pai_buf_take(&bytes);
	if (!text) {
		(void)pai_err_no_memory(&why);
		return fail(sb, &why, err);
	}
	*ret = text;
	*ret_len = len;
	return 1;
}

int libpai_write(struct libpai_sandbox *sb, const char *path, const void *data, size_t len,
    struct libpai_error *err)
{
	struct pai_err why = PAI_ERR_INIT;

	return introduce(sb, &why) < 0 || pai_box_write(sb->box, path, data, len, NULL, &why) < 0
		   ? fail(sb, &why, err)
		   : 0;
}

void libpai_list_fini(struct libpai_list *l)
{
	for (size_t i = 0; i < l->count; i++) {
		free(l->entries[i].name);
	}
	free(l->entries);
	*l = (struct libpai_list){.count = 0};
}

/* Takes the names. */
static int add_page(struct libpai_list *to, struct pai_box_listing *page, struct pai_err *err)
{
	struct libpai_entry *grown =
	    reallocarray(to->entries, to->count + page->count + 1, sizeof(*to->entries));

	if (!grown) {
		return pai_err_no_memory(err);
	}
	to->entries = grown;
	for (size_t i = 0; i < page->count; i++) {
		to->entries[to->count++] = (struct libpai_entry){
		    PAI_TAKE(page->entries[i].name), page->entries[i].is_directory};
	}
	return 0;
}

static int list_all(struct libpai_sandbox *sb, const char *path, bool *found,
    struct libpai_list *ret, struct pai_err *err)
{
	uint64_t total = 0;

	do {
		pai_auto_box_listing struct pai_box_listing page = {.count = 0};
		int r = pai_box_list(sb->box, path, ret->count, PAGE_ENTRIES, found, &page, err);

		r = r < 0 || !*found ? r : add_page(ret, &page, err);
		if (r < 0 || !*found || page.count == 0) {
			return r;
		}
		total = page.total;
	} while (ret->count < total);
	return 0;
}

int libpai_list(
    struct libpai_sandbox *sb, const char *path, struct libpai_list *ret, struct libpai_error *err)
{
	struct libpai_list list = {.count = 0};
	struct pai_err why = PAI_ERR_INIT;
	bool found = false;

	if (introduce(sb, &why) < 0 || list_all(sb, path, &found, &list, &why) < 0) {
		libpai_list_fini(&list);
		return fail(sb, &why, err);
	}
	if (!found) {
		libpai_list_fini(&list);
		return 0;
	}
	*ret = list;
	return 1;
}

int libpai_reset(struct libpai_sandbox *sb, struct libpai_error *err)
{
	struct pai_err why = PAI_ERR_INIT;

	return pai_box_reset(sb->box, &why) < 0 ? fail(sb, &why, err) : 0;
}

/* --- uses --- */

struct use {
	struct libpai_sandbox *sb;
	libpai_use_fn fn;
	void *arg;
	struct libpai_error *err;
	int result; /* of the last call of fn */
};

/* What fn failed of is what its last failing call did; of its own accord it is not tried again. */
static int call_fn(void *arg, struct pai_box *b, struct pai_err *err)
{
	struct use *u = arg;

	(void)b;
	u->sb->failed = (struct pai_err)PAI_ERR_INIT;
	u->result = u->fn(u->arg, u->sb, u->err);
	if (u->result == 0) {
		return 0;
	}
	if (u->sb->failed.code == PAI_OK) {
		return pai_err_set(err, PAI_E_INPUT, "the caller's function failed");
	}
	*err = u->sb->failed;
	return -err->errnum;
}

static int use(struct libpai_sandbox *sb, bool exclusive, libpai_use_fn fn, void *arg,
    struct libpai_error *err)
{
	struct libpai_error ignored;
	struct use u = {.sb = sb, .fn = fn, .arg = arg, .err = err ? err : &ignored};
	struct pai_err why = PAI_ERR_INIT;
	int r;

	*u.err = (struct libpai_error){.code = LIBPAI_OK};
	/* Its end would be that of the one around it. */
	if (sb->in_use) {
		(void)pai_err_set(&why, PAI_E_INPUT, "a use within a use of the same sandbox");
		return fail(sb, &why, err);
	}
	if (introduce(sb, &why) < 0) {
		return fail(sb, &why, err);
	}
	sb->in_use = true;
	r = pai_box_use(sb->box, exclusive, call_fn, &u, &why);
	sb->in_use = false;
	return r < 0 && u.result == 0 ? fail(sb, &why, err) : u.result;
}

int libpai_use(struct libpai_sandbox *sb, libpai_use_fn fn, void *arg, struct libpai_error *err)
{
	return use(sb, false, fn, arg, err);
}

int libpai_use_exclusive(
    struct libpai_sandbox *sb, libpai_use_fn fn, void *arg, struct libpai_error *err)
{
	return use(sb, true, fn, arg, err);
}
