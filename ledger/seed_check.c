#include "ledger/seed_check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/seed_ledger.h"
#include "ledger/seed_list.h"
#include "ledger/seed_source.h"
#include "providers/base/clock.h"
#include "providers/base/log.h"
#include "providers/base/path.h"
#include "providers/base/printable.h"

enum file_state {
	FILE_THERE,   /* by the ledger, or copied in an earlier check */
	FILE_WANTED,  /* not dealt with yet */
	FILE_COPIED,  /* by this check */
	FILE_SKIPPED, /* this time */
	FILE_LOST,    /* it can't be loaded */
};
struct check {
	const struct pai_seed_job *job;
	struct pai_call call;
	struct pai_seed_list list;
	struct pai_seed_ledger ledger;
	uint8_t *states; /* enum file_state of each file of the list */
	size_t copied;
	bool no_stream;
	struct pai_err why; /* the first thing that went wrong; OK: nothing */
};

/* The sandbox is gone or out of reach, or nobody wants to know any more: no failure of a file. */
static bool ends_check(const struct pai_err *err)
{
	switch (err->code) {
	case PAI_E_NOT_FOUND:
	case PAI_E_RESET:
	case PAI_E_UNAVAILABLE:
	case PAI_E_CANCELLED:
	case PAI_E_TIMEOUT:
	case PAI_E_PROTOCOL:
	case PAI_E_NO_MEMORY:
		return true;
	default:
		return false;
	}
}

static void note(struct check *c, const struct pai_err *err, const char *path)
{
	struct pai_err why = *err;

	(void)pai_err_wrap(&why, "'%s'", pai_printable(path));
	pai_log_debug("seed", "%s", why.msg);
	if (c->why.code == PAI_OK) {
		c->why = why;
	}
}

/* --- the ledger --- */

static int read_ledger(struct check *c, struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(PAI_SEED_LEDGER_MAX);
	struct pai_err why = PAI_ERR_INIT;
	bool found = false;
	int r = pai_sandbox_read_file(
	    c->job->sandbox, PAI_SEED_LEDGER_PATH, text.max, &c->call, &found, &text, &why);

	if (r < 0 && ends_check(&why)) {
		*err = why;
		return r;
	}
	if (r < 0 || !found) {
		return 0; /* a directory, a FIFO, a link that leads nowhere: an empty one */
	}
	return pai_seed_ledger_parse(text.data ? text.data : "", text.len, &c->ledger, err);
}

static int print_ledger(const struct check *c, struct pai_buf *out)
{
	int r = pai_seed_ledger_begin(out);

	for (size_t i = 0; r == 0 && i < c->ledger.count; i++) {
		const struct pai_seed_record *old = &c->ledger.records[i];

		r = old->is_void ? 0 : pai_seed_ledger_put(out, old->path, old->version);
	}
	for (size_t i = 0; r == 0 && i < c->list.count; i++) {
		const struct pai_seed_file *f = &c->list.files[i];

		r = c->states[i] == FILE_COPIED ? pai_seed_ledger_put(out, f->path, f->version) : 0;
	}
	return r ? r : pai_seed_ledger_end(out);
}

/* That there is none costs another copy, no file. */
static int write_ledger(struct check *c, struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(PAI_SEED_LEDGER_MAX);
	struct pai_err why = PAI_ERR_INIT;
	int r = print_ledger(c, &text);

	if (r == -ENOMEM) {
		return pai_err_no_memory(err);
	}
	if (r < 0) {
		pai_log_warn("seed", "the seed ledger would be too large: it is not written");
		return 0;
	}
	r = pai_sandbox_write_file(
	    c->job->sandbox, PAI_SEED_LEDGER_PATH, text.data, text.len, &c->call, &why);
	if (r < 0 && ends_check(&why)) {
		*err = why;
		return r;
	}
	if (r < 0) {
		pai_log_warn(
		    "seed", "the seed ledger can't be written: %s", pai_printable(why.msg));
	}
	return 0;
}

/* --- copying --- */

/* What is to be copied; *replaces: some of it is recorded in another version. */
static size_t compare(struct check *c, bool *replaces)
{
	size_t wanted = 0;

	for (size_t i = 0; i < c->list.count; i++) {
		const struct pai_seed_file *f = &c->list.files[i];
		struct pai_seed_record *r = pai_seed_ledger_find(&c->ledger, f->path);
		bool is_there = r && f->version && strcmp(r->version, f->version) == 0;

		c->states[i] = is_there ? FILE_THERE : FILE_WANTED;
		wanted += !is_there;
		if (r && !is_there) {
			r->is_void = true;
			*replaces = true;
		}
	}
	return wanted;
}

static int make_executable(struct check *c, const char *path, struct pai_err *err)
{
	pai_auto_buf struct pai_buf command = PAI_BUF_INIT(4 * PAI_PATH_MAX + 32);
	pai_auto_run_result struct pai_run_result result = {.exit_code = 0};
	int r = pai_buf_add_str(&command, "chmod 755 '");

	for (const char *at = path; r == 0 && *at; at++) {
		r = *at == '\'' ? pai_buf_add_str(&command, "'\\''") : pai_buf_add(&command, at, 1);
	}
	r = r ? r : pai_buf_add_str(&command, "'");
	if (r < 0) {
		return pai_err_no_memory(err);
	}
	r = pai_sandbox_run(c->job->sandbox, &(struct pai_run_input){.command = command.data},
	    &c->call, &result, err);
	if (r == 0 && result.exit_code != 0) {
		return pai_err_errno(err, EPERM, "can't be made executable");
	}
	return r;
}

static int write_file(struct check *c, const struct pai_seed_file *f, const char *data, size_t len,
    struct pai_err *err)
{
	const struct pai_seed_job *job = c->job;
	const struct pai_seed_server *server = &job->server;
	int r;

	if (server->leads_out && server->leads_out(server->arg, f->path, &c->call)) {
		return pai_err_set(
		    err, PAI_E_INPUT, "runs through a link that leads out of " PAI_WORKSPACE);
	}
	r = pai_sandbox_write_file(job->sandbox, f->path, data, len, &c->call, err);
	return r < 0 || !f->executable ? r : make_executable(c, f->path, err);
}

static void set_copied(struct check *c, size_t i)
{
	c->states[i] = FILE_COPIED;
	c->copied++;
}

/* Fails where the check ends; else the file is the one at which it stops. */
static int note_failed_write(
    struct check *c, size_t i, bool *stop, const struct pai_err *why, struct pai_err *err)
{
	if (ends_check(why)) {
		*err = *why;
		return -err->errnum;
	}
	note(c, why, c->list.files[i].path);
	*stop = true;
	return 0;
}

/* --- batches: files whose bytes are here, in order --- */

#define BATCH_FILES 512
#define BATCH_BYTES (16u << 20)
#define BATCH_LEAST 4 /* for fewer the calls cost less */

struct batch {
	struct pai_seed_item items[BATCH_FILES];
	size_t files[BATCH_FILES]; /* their places in the list */
	char *owned[BATCH_FILES];  /* the bytes, where they aren't the list's */
	size_t count, bytes;
};

static void batch_clear(struct batch *b)
{
	for (size_t i = 0; i < b->count; i++) {
		free(b->owned[i]);
	}
	b->count = 0;
	b->bytes = 0;
}

static void batch_free(struct batch *b)
{
	if (b) {
		batch_clear(b);
		free(b);
	}
}
PAI_DEFINE_AUTO(struct batch, batch_free)

/* How many from the `at`th on went in one piece. */
static size_t stream_run(struct check *c, struct batch *b, size_t at)
{
	const struct pai_seed_server *server = &c->job->server;
	size_t run = 0, copied;

	while (at + run < b->count && b->items[at + run].is_new) {
		run++;
	}
	if (run < BATCH_LEAST || c->no_stream) {
		return 0;
	}
	copied = server->copy(server->arg, b->items + at, run, &c->call);
	c->no_stream = copied == 0; /* its file system may have no such thing */
	return copied;
}

static int write_batch(struct check *c, struct batch *b, bool *stop, struct pai_err *err)
{
	const struct pai_seed_server *server = &c->job->server;
	int r = 0;

	if (server->look && b->count >= BATCH_LEAST) {
		server->look(server->arg, b->items, b->count, &c->call);
	}
	for (size_t at = 0; r == 0 && !*stop && at < b->count; at++) {
		struct pai_err why = PAI_ERR_INIT;

		for (size_t n = stream_run(c, b, at); n > 0; n--) {
			set_copied(c, b->files[at++]);
		}
		if (at == b->count) {
			break;
		}
		if (write_file(c, &c->list.files[b->files[at]], b->items[at].data, b->items[at].len,
			&why) == 0) {
			set_copied(c, b->files[at]);
		} else {
			r = note_failed_write(c, b->files[at], stop, &why, err);
		}
	}
	batch_clear(b);
	return r;
}

static int add_to_batch(
    struct check *c, struct batch *b, size_t i, struct pai_buf *bytes, struct pai_err *err)
{
	const struct pai_seed_file *f = &c->list.files[i];

	b->owned[b->count] = NULL;
	b->files[b->count] = i;
	b->items[b->count] = (struct pai_seed_item){
	    .path = f->path, .data = f->data, .len = f->len, .executable = f->executable};
	if (!f->data) {
		b->items[b->count].len = bytes->len;
		b->items[b->count].data = b->owned[b->count] = pai_buf_take(bytes);
		if (!b->owned[b->count]) {
			return pai_err_no_memory(err);
		}
	}
	b->bytes += b->items[b->count++].len;
	return 0;
}

/* A large one, or one of the contract alone, is written by itself. */
static bool goes_alone(const struct check *c, size_t len)
{
	return !c->job->server.copy || len > PAI_SEED_ITEM_MAX;
}

/* What was loaded, in its turn. */
static int take_bytes(struct check *c, struct batch *b, size_t i, struct pai_buf *bytes, bool *stop,
    struct pai_err *err)
{
	size_t len = c->list.files[i].data ? c->list.files[i].len : bytes->len;
	bool alone = goes_alone(c, len);
	int r = 0;

	if (b->count == BATCH_FILES || b->bytes + len > BATCH_BYTES || alone) {
		r = write_batch(c, b, stop, err);
	}
	if (r < 0 || *stop) {
		return r;
	}
	r = add_to_batch(c, b, i, bytes, err);
	return r == 0 && alone ? write_batch(c, b, stop, err) : r;
}

/* One file. *stop: no more are to be tried. Fails where the check ends. */
static int copy_file(struct check *c, struct batch *b, size_t i, bool *stop, struct pai_err *err)
{
	const struct pai_seed_file *f = &c->list.files[i];
	pai_auto_buf struct pai_buf bytes = PAI_BUF_INIT(PAI_SEED_FILE_MAX);
	struct pai_err why = PAI_ERR_INIT;
	int r;

	switch (pai_seed_fetch(c->job, f, &c->call, &bytes, &why)) {
	case PAI_SEED_ENDED:
		*err = why;
		return -err->errnum;
	case PAI_SEED_SKIP:
		c->states[i] = FILE_SKIPPED;
		return 0;
	case PAI_SEED_LOST:
		c->states[i] = FILE_LOST;
		note(c, &why, f->path);
		return 0;
	case PAI_SEED_TOO_LARGE: /* as if it had been written in vain */
		r = write_batch(c, b, stop, err);
		return r < 0 || *stop ? r : note_failed_write(c, i, stop, &why, err);
	case PAI_SEED_BYTES:
		return take_bytes(c, b, i, &bytes, stop, err);
	}
	return 0;
}

static int copy_all(struct check *c, struct pai_err *err)
{
	PAI_AUTO(batch_free_p) struct batch *b = calloc(1, sizeof(*b));
	bool replaces = false, stop = false;
	size_t wanted = compare(c, &replaces);
	int r = b ? 0 : pai_err_no_memory(err);

	if (r < 0 || wanted == 0 || c->list.invalid.code != PAI_OK) {
		return r;
	}
	r = replaces ? write_ledger(c, err) : 0;
	for (size_t i = 0; r == 0 && !stop && i < c->list.count; i++) {
		r = c->states[i] == FILE_WANTED ? copy_file(c, b, i, &stop, err) : 0;
	}
	r = r == 0 && !stop ? write_batch(c, b, &stop, err) : r;
	return r == 0 && c->copied > 0 ? write_ledger(c, err) : r;
}

/* --- the walk --- */

static int get_list(struct check *c, struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(PAI_SEED_LIST_MAX);
	struct pai_err why = PAI_ERR_INIT;
	int r = pai_seed_fetch_list(c->job, &c->call, &text, &why);

	r = r < 0 ? r : pai_seed_list_parse(text.data ? text.data : "", text.len, &c->list, &why);
	if (r < 0) {
		if (why.code == PAI_E_CANCELLED || why.code == PAI_E_NO_MEMORY ||
		    why.code == PAI_E_TIMEOUT) {
			*err = why;
			return r;
		}
		return pai_err_set(err, PAI_E_SEED, "%s", why.msg);
	}
	c->why = c->list.invalid;
	c->states = calloc(c->list.count ? c->list.count : 1, sizeof(*c->states));
	return c->states ? 0 : pai_err_no_memory(err);
}

static struct pai_json *missing_of(const struct check *c)
{
	pai_auto_json struct pai_json *missing = pai_json_array();

	for (size_t i = 0; i < c->list.count; i++) {
		if ((c->states[i] == FILE_WANTED || c->states[i] == FILE_LOST) &&
		    pai_json_push_str(missing, c->list.files[i].path) < 0) {
			return NULL;
		}
	}
	return PAI_TAKE(missing);
}

static int run(struct check *c, struct pai_err *err)
{
	int r = get_list(c, err);

	r = r < 0 || c->list.count == 0 ? r : read_ledger(c, err);
	r = r < 0 ? r : copy_all(c, err);
	if (r == 0 && c->why.code != PAI_OK) {
		return pai_err_set(err, PAI_E_SEED, "%s", c->why.msg);
	}
	if (r < 0 && err->code == PAI_E_TIMEOUT && pai_deadline_passed(c->call.deadline_ms)) {
		return pai_err_set(err, PAI_E_SEED,
		    "the check took longer than its %llu s: nothing is recorded",
		    (unsigned long long)c->job->config->ceiling_ms / 1000);
	}
	return r;
}

int pai_seed_check(const struct pai_seed_job *job, struct pai_cancel *cancel,
    struct pai_seed_outcome *outcome, struct pai_err *err)
{
	struct check c = {
	    .job = job,
	    .call = {.deadline_ms = pai_deadline_in(job->config->ceiling_ms), .cancel = cancel},
	    .why = PAI_ERR_INIT,
	};
	struct pai_err why = PAI_ERR_INIT;
	int r = run(&c, &why);

	*outcome = (struct pai_seed_outcome){.copied = c.copied};
	if (r < 0 && why.code == PAI_E_SEED) {
		outcome->missing = c.states ? missing_of(&c) : pai_json_array();
		r = outcome->missing ? r : pai_err_no_memory(&why);
	}
	if (r < 0) {
		*err = why;
	}
	pai_seed_list_fini(&c.list);
	pai_seed_ledger_fini(&c.ledger);
	free(c.states);
	return r;
}
