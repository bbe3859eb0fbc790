/*
 * bash. Of each channel the end is shown; one that is longer is written, whole, to a file in the
 * sandbox once the command has ended: most are not, and pay nothing for it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "execshim/tools/text.h"
#include "execshim/tools/tool.h"
#include "providers/base/clock.h"
#include "providers/base/log.h"

#define SHOWN_CHARS 30000
#define SHOWN_BYTES (4 * SHOWN_CHARS + 3)
#define KEPT_MAX (50u << 20) /* of a channel; past it the oldest are dropped */
#define EVENT_EVERY_MS 100
#define SPOOL_TIMEOUT_MS 60000

struct channel {
	const char *name;
	struct pai_buf kept; /* the last KEPT_MAX/2 at least of what came */
	uint64_t bytes;      /* that came */
	uint64_t event_ms;   /* when its last interim event was */
	bool is_lost;        /* no memory for it */
	char *spool;         /* where all of it lies; NULL: nowhere */
};
struct run {
	struct pai_tool_call *c;
	struct channel channels[2];
};

/* The last characters within the budget. NULL without memory. */
static char *shown(const struct channel *ch)
{
	size_t from = ch->kept.len > SHOWN_BYTES ? ch->kept.len - SHOWN_BYTES : 0;
	const char *data = ch->kept.len ? ch->kept.data + from : "";
	size_t len = ch->kept.len - from;
	size_t at = pai_text_tail(data, len, SHOWN_CHARS);
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(SIZE_MAX - 1);

	return pai_text_add(&text, data + at, len - at) < 0 ? NULL : pai_buf_take(&text);
}

static void tell(struct run *r, struct channel *ch)
{
	pai_auto_free char *text = shown(ch);

	ch->event_ms = pai_clock_ms();
	if (text) {
		r->c->on_event(r->c->arg, ch->name, text, false);
	}
}

static void on_output(void *arg, int stream, const char *data, size_t len)
{
	struct run *r = arg;
	struct channel *ch = &r->channels[stream ? stream - 1 : 0];

	if (stream == 0) {
		for (size_t i = 0; i < 2; i++) {
			pai_buf_clear(&r->channels[i].kept);
			r->channels[i].bytes = 0;
		}
		return;
	}
	ch->bytes += len;
	if (ch->kept.len + len > KEPT_MAX) {
		pai_buf_consume(&ch->kept, ch->kept.len / 2);
	}
	ch->is_lost = ch->is_lost || pai_buf_add(&ch->kept, data, len) < 0;
	if (r->c->on_event && pai_clock_ms() - ch->event_ms >= EVENT_EVERY_MS) {
		tell(r, ch);
	}
}

/* --- the spool --- */

static const char spool_script[] =
    "umask 077; d=${TMPDIR:-/tmp}/.pai; mkdir -p \"$d\" && cat >\"$d/$1\" && printf %s \"$d\"";

static void take_dir(void *arg, int stream, const char *data, size_t len)
{
	if (stream == 0) {
		pai_buf_clear(arg);
	} else if (stream == 1) {
		(void)!pai_buf_add(arg, data, len);
	}
}

/* `spool` stays empty where it can't be kept. */
static void keep_whole(struct run *r, struct channel *ch)
{
	pai_auto_buf struct pai_buf dir = PAI_BUF_INIT(4096);
	uint64_t id = 0;
	char name[48];
	const char *const argv[] = {"sh", "-c", spool_script, "sh", name, NULL};
	struct pai_box_command keep = {.argv = (char *const *)(uintptr_t)argv,
	    .cwd = "/",
	    .timeout_ms = SPOOL_TIMEOUT_MS,
	    .input = ch->kept.data,
	    .input_len = ch->kept.len,
	    .on_output = take_dir,
	    .arg = &dir};
	struct pai_box_exit end = {.code = 1};
	struct pai_err err = PAI_ERR_INIT;
	bool was_reset = pai_box_environment_reset(r->c->box);

	(void)!getrandom(&id, sizeof(id), 0);
	(void)snprintf(name, sizeof(name), "bash-%016llx-%s.log", (unsigned long long)id, ch->name);
	if (pai_box_run(r->c->box, &keep, &end, &err) < 0) {
		pai_log_info("tool", "the output could not be kept: %s", err.msg);
		return;
	}
	/* In a new environment it would be a file that its command never made. */
	if (end.code == 0 && dir.len > 0 && dir.len < 4000 &&
	    was_reset == pai_box_environment_reset(r->c->box) &&
	    asprintf(&ch->spool, "%s/%s", dir.data, name) < 0) {
		ch->spool = NULL;
	}
}

/* --- the answer --- */

static int add_banner(const struct run *run, const struct channel *ch, struct pai_buf *out)
{
	const char *how = run->c->in_workspace ? "look at it with bash, in the same session"
					       : "read or grep that";
	char total[32], kept[32];
	int r = pai_buf_printf(out, "[The last %s characters of %s bytes are shown. ",
	    pai_text_number(SHOWN_CHARS, kept), pai_text_number(ch->bytes, total));

	if (r == 0 && !ch->spool) {
		r = pai_buf_add_str(out,
		    "The rest could not be kept: run it again with its output sent to a file.]\n");
	} else if (r == 0 && ch->bytes > ch->kept.len) {
		r = pai_buf_printf(out, "Its last %s bytes are in %s: %s.]\n",
		    pai_text_number(ch->kept.len, total), ch->spool, how);
	} else if (r == 0) {
		r = pai_buf_printf(out, "All of it is in %s: %s.]\n", ch->spool, how);
	}
	return r;
}

/* 1: it was cut. */
static int set_channel(struct run *r, struct channel *ch, struct pai_err *err)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(SIZE_MAX - 1);
	pai_auto_free char *end = shown(ch);
	bool is_cut = ch->bytes > ch->kept.len || ch->kept.len > SHOWN_BYTES ||
		      pai_text_tail(ch->kept.data, ch->kept.len, SHOWN_CHARS) > 0;

	if (!end || ch->is_lost) {
		return pai_err_no_memory(err);
	}
	if (is_cut) {
		keep_whole(r, ch);
	}
	if ((is_cut && add_banner(r, ch, &text) < 0) || pai_buf_add_str(&text, end) < 0 ||
	    pai_json_set_str(r->c->answer, ch->name, text.data ? text.data : "") < 0) {
		return pai_err_no_memory(err);
	}
	if (r->c->on_event) {
		r->c->on_event(r->c->arg, ch->name, text.data ? text.data : "", true);
	}
	return is_cut;
}

static int answer(struct run *r, const struct pai_box_exit *end, struct pai_err *err)
{
	int out, errs;
	int f = end->timed_out ? pai_json_set_null(r->c->answer, "exitCode")
			       : pai_json_set_num(r->c->answer, "exitCode", end->code);

	f = f ? f : pai_json_set_bool(r->c->answer, "timedOut", end->timed_out);
	if (f < 0) {
		return pai_err_no_memory(err);
	}
	out = set_channel(r, &r->channels[0], err);
	errs = out < 0 ? out : set_channel(r, &r->channels[1], err);
	if (errs < 0) {
		return errs;
	}
	return pai_json_set_bool(r->c->answer, "truncated", out || errs) < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

/* bash where there is one: a POSIX shell has no other way to say so. */
static const char shell_script[] =
    "command -v bash >/dev/null 2>&1 && exec bash -c -- \"$1\"; exec sh -c -- \"$1\"";

static int run(struct run *r, const char *cwd, struct pai_err *err)
{
	const char *const argv[] = {
	    "sh", "-c", shell_script, "sh", pai_json_str(r->c->input, "command"), NULL};
	struct pai_box_command command = {.argv = (char *const *)(uintptr_t)argv,
	    .cwd = cwd,
	    .timeout_ms = (uint64_t)pai_tool_number(r->c->spec, r->c->input, "timeoutMs"),
	    .on_output = on_output,
	    .arg = r};
	struct pai_box_exit end = {.code = 0};
	int f = pai_box_run(r->c->box, &command, &end, err);

	return f < 0 ? f : answer(r, &end, err);
}

int pai_tool_bash(struct pai_tool_call *c, struct pai_err *err)
{
	struct run r = {
	    .c = c,
	    .channels = {{.name = "stdout", .kept = PAI_BUF_INIT(KEPT_MAX + (1u << 20))},
		{.name = "stderr", .kept = PAI_BUF_INIT(KEPT_MAX + (1u << 20))}},
	};
	pai_auto_free char *cwd = NULL;
	int f = pai_tool_path(c, "cwd", PAI_TOOL_WORKSPACE, &cwd, err);

	/* This tool has no status to say it with. */
	f = f == 0 ? pai_err_set(err, PAI_E_INPUT, "cwd is not a path of the sandbox") : f;
	f = f < 0 ? f : run(&r, cwd, err);
	for (size_t i = 0; i < 2; i++) {
		pai_buf_fini(&r.channels[i].kept);
		free(r.channels[i].spool);
	}
	return f;
}
