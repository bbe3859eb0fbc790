/* read, write, edit, listDirectory: the file calls of the contract, and what is made of them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "execshim/tools/image.h"
#include "execshim/tools/replace.h"
#include "execshim/tools/text.h"
#include "execshim/tools/tool.h"
#include "providers/wire/control_msg.h"

#define PAGE_CHARS 50000
#define LINE_CHARS 2000
#define SNIPPET_LINES 4 /* on each side */

static int no_memory(int r, struct pai_err *err)
{
	return r < 0 ? pai_err_no_memory(err) : 0;
}

/* --- read --- */

static int answer_image(struct pai_tool_call *c, const char *path, const char *type,
    const struct pai_buf *bytes, struct pai_err *err)
{
	pai_auto_buf struct pai_buf base64 = PAI_BUF_INIT(SIZE_MAX - 1);
	int r;

	if (bytes->len > PAI_IMAGE_MAX) {
		return pai_tool_says(c, "binary",
		    "The image is larger than 2 MiB. Make a smaller copy of it with bash and read "
		    "that.",
		    err);
	}
	r = pai_image_base64(&base64, bytes->data, bytes->len);
	r = r ? r : pai_json_set_str(c->answer, "status", "image");
	r = r ? r : pai_json_set_str(c->answer, "path", path);
	r = r ? r : pai_json_set_str(c->answer, "mediaType", type);
	r = r ? r : pai_json_set_str(c->answer, "base64", base64.data);
	return no_memory(r, err);
}

static int answer_text(struct pai_tool_call *c, const struct pai_buf *bytes, struct pai_err *err)
{
	pai_auto_buf struct pai_buf content = PAI_BUF_INIT(SIZE_MAX - 1);
	struct pai_text_page page = {
	    .data = bytes->data,
	    .len = bytes->len,
	    .offset = (uint64_t)pai_tool_number(c->spec, c->input, "offset"),
	    .limit = (uint64_t)pai_tool_number(c->spec, c->input, "limit"),
	    .max_chars = PAGE_CHARS,
	    .max_line = LINE_CHARS,
	};
	int r = pai_text_number_lines(&content, &page);

	if (r == 0 && page.is_beyond) {
		pai_auto_buf struct pai_buf text = PAI_BUF_INIT(256);
		char number[32];

		r = pai_buf_printf(&text, "offset is behind the end: the file has %s line%s.",
		    pai_text_number(page.total, number), page.total == 1 ? "" : "s");
		return r < 0 ? pai_err_no_memory(err) : pai_tool_says(c, "invalid", text.data, err);
	}
	r = r ? r : pai_json_set_str(c->answer, "status", "text");
	r = r ? r : pai_json_set_str(c->answer, "content", content.data ? content.data : "");
	r = r ? r
	    : page.next_offset
		? pai_json_set_num(c->answer, "nextOffset", (int64_t)page.next_offset)
		: pai_json_set_null(c->answer, "nextOffset");
	r = r ? r : pai_json_set_num(c->answer, "totalLines", (int64_t)page.total);
	return no_memory(r, err);
}

/* What bash has kept of a long output may lie where only commands get. */
static bool is_spool(const char *path)
{
	const char *name = strrchr(path, '/');

	return name && strncmp(name, "/bash-", 6) == 0 && name - path >= 5 &&
	       strncmp(name - 5, "/.pai", 5) == 0;
}

static void gather(void *arg, int stream, const char *data, size_t len)
{
	struct pai_buf *to = arg;

	if (stream == 0) {
		pai_buf_clear(to);
	} else if (stream == 1 && pai_buf_add(to, data, len) < 0) {
		to->max = 0; /* too much: nothing more is taken */
	}
}

static int read_by_command(struct pai_tool_call *c, const char *path, bool *found,
    struct pai_buf *ret, struct pai_err *err)
{
	const char *const argv[] = {"cat", "--", path, NULL};
	struct pai_box_command cat = {.argv = (char *const *)(uintptr_t)argv,
	    .cwd = "/",
	    .timeout_ms = PAI_TOOL_TIMEOUT_MS,
	    .on_output = gather,
	    .arg = ret};
	struct pai_box_exit end = {.code = 1};
	int r;

	pai_buf_clear(ret);
	r = pai_box_run(c->box, &cat, &end, err);
	*found = r == 0 && end.code == 0 && !end.timed_out;
	return r == 0 && ret->max == 0
		   ? pai_err_limit(err, PAI_E_FILE_TOO_LARGE, PAI_CONTROL_FILE_MAX, "the file")
		   : r;
}

static int fetch(struct pai_tool_call *c, const char *path, bool *found, struct pai_buf *ret,
    struct pai_err *err)
{
	int r = pai_box_read(c->box, path, found, ret, err);

	if (is_spool(path) && ((r == 0 && !*found) || (r < 0 && err->code == PAI_E_INPUT))) {
		*err = (struct pai_err)PAI_ERR_INIT;
		r = read_by_command(c, path, found, ret, err);
	}
	return r;
}

int pai_tool_read(struct pai_tool_call *c, struct pai_err *err)
{
	pai_auto_buf struct pai_buf bytes = PAI_BUF_INIT(PAI_CONTROL_FILE_MAX);
	pai_auto_free char *path = NULL;
	const char *image;
	bool found = false;
	int r = pai_tool_path(c, "path", "", &path, err);

	if (r <= 0) {
		return r;
	}
	r = fetch(c, path, &found, &bytes, err);
	if (r < 0 && err->code == PAI_E_INPUT && pai_tool_is_directory(c, path)) {
		*err = (struct pai_err)PAI_ERR_INIT;
		return pai_tool_says(c, "directory",
		    "The path is a directory. Use listDirectory, glob or grep.", err);
	}
	if (r < 0) {
		return pai_tool_file_failed(c, path, err);
	}
	if (!found) {
		r = pai_tool_status(c, "not_found", err);
		return r < 0 ? r : pai_tool_did_you_mean(c, path, err);
	}
	image = pai_image_type(bytes.data, bytes.len);
	if (image) {
		return answer_image(c, path, image, &bytes, err);
	}
	return pai_text_is_binary(bytes.data, bytes.len)
		   ? pai_tool_says(c, "binary",
			 "The file is binary. Look at it with bash, for example with file, "
			 "xxd or strings.",
			 err)
		   : answer_text(c, &bytes, err);
}

/* --- write --- */

int pai_tool_write(struct pai_tool_call *c, struct pai_err *err)
{
	const char *content = pai_json_str(c->input, "content");
	pai_auto_free char *path = NULL;
	bool existed = false;
	int r = pai_tool_path(c, "path", "", &path, err);

	if (r <= 0) {
		return r;
	}
	r = pai_box_write(c->box, path, content, strlen(content), &existed, err);
	if (r < 0) {
		return pai_tool_file_failed(c, path, err);
	}
	r = pai_json_set_str(c->answer, "status", "written");
	r = r ? r : pai_json_set_str(c->answer, "path", path);
	r = r ? r : pai_json_set_num(c->answer, "bytes", (int64_t)strlen(content));
	r = r ? r : pai_json_set_bool(c->answer, "existed", existed);
	return no_memory(r, err);
}

/* --- edit --- */

struct edit {
	struct pai_tool_call *c;
	const char *path;
	bool found, is_binary;
	enum pai_replace_end end;
	struct pai_replace replace;
	struct pai_buf before, after;
};

/* Read, replace, write, on one environment and with nobody else's edit in between. */
static int edit_once(void *arg, struct pai_box *b, struct pai_err *err)
{
	struct edit *e = arg;
	int r;

	pai_buf_clear(&e->before);
	pai_buf_clear(&e->after);
	r = pai_box_read(b, e->path, &e->found, &e->before, err);
	if (r < 0 || !e->found) {
		return r;
	}
	e->is_binary = pai_text_is_binary(e->before.data, e->before.len) ||
		       pai_image_type(e->before.data, e->before.len);
	if (e->is_binary) {
		return 0;
	}
	e->replace.data = e->before.data ? e->before.data : "";
	e->replace.len = e->before.len;
	r = pai_replace(&e->replace, &e->after, &e->end);
	if (r < 0) {
		return r == -EMSGSIZE ? pai_err_limit(err, PAI_E_FILE_TOO_LARGE,
					    PAI_CONTROL_FILE_MAX, "the edited file")
				      : pai_err_no_memory(err);
	}
	return e->end == PAI_REPLACED
		   ? pai_box_write(b, e->path, e->after.data, e->after.len, NULL, err)
		   : 0;
}

static int answer_edited(struct edit *e, struct pai_err *err)
{
	pai_auto_buf struct pai_buf snippet = PAI_BUF_INIT(SIZE_MAX - 1);
	uint64_t first = e->replace.first_line;
	uint64_t from = first > SNIPPET_LINES ? first - SNIPPET_LINES : 1;
	struct pai_text_page page = {
	    .data = e->after.data,
	    .len = e->after.len,
	    .offset = from,
	    .limit = first - from + e->replace.line_count + SNIPPET_LINES,
	    .max_chars = PAGE_CHARS,
	    .max_line = LINE_CHARS,
	    .is_part = true,
	};
	int r = pai_text_number_lines(&snippet, &page);

	r = r ? r : pai_json_set_str(e->c->answer, "status", "edited");
	r = r ? r : pai_json_set_num(e->c->answer, "replacements", (int64_t)e->replace.count);
	r = r ? r : pai_json_set_str(e->c->answer, "snippet", snippet.data ? snippet.data : "");
	return no_memory(r, err);
}

static int answer_not_unique(struct edit *e, struct pai_err *err)
{
	int r = pai_tool_says(e->c, "not_unique",
	    "oldString is in the file more than once. Give more of the text around the place, or "
	    "set replaceAll to true.",
	    err);

	return r < 0 ? r
	       : pai_json_set_num(e->c->answer, "occurrences", (int64_t)e->replace.count) < 0
		   ? pai_err_no_memory(err)
		   : 0;
}

static int answer_edit(struct edit *e, struct pai_err *err)
{
	if (!e->found) {
		int r = pai_tool_says(e->c, "not_found", "There is no such file.", err);

		return r < 0 ? r : pai_tool_did_you_mean(e->c, e->path, err);
	}
	if (e->is_binary) {
		return pai_tool_says(
		    e->c, "binary", "The file is binary: this tool edits text. Use bash.", err);
	}
	switch (e->end) {
	case PAI_REPLACED:
		return answer_edited(e, err);
	case PAI_REPLACE_NOT_UNIQUE:
		return answer_not_unique(e, err);
	case PAI_REPLACE_SAME:
		return pai_tool_says(e->c, "invalid",
		    "oldString and newString are the same with the line ends of the file.", err);
	default:
		return pai_tool_says(e->c, "no_match",
		    "oldString is not in the file. It has to be exactly what the file holds, "
		    "blanks "
		    "and indentation included: read the file again.",
		    err);
	}
}

int pai_tool_edit(struct pai_tool_call *c, struct pai_err *err)
{
	pai_auto_free char *path = NULL;
	struct edit e = {
	    .c = c,
	    .replace = {.old_text = pai_json_str(c->input, "oldString"),
		.new_text = pai_json_str(c->input, "newString"),
		.all = pai_json_bool(c->input, "replaceAll", false)},
	    .before = PAI_BUF_INIT(PAI_CONTROL_FILE_MAX),
	    .after = PAI_BUF_INIT(PAI_CONTROL_FILE_MAX),
	};
	int r;

	if (e.replace.old_text[0] == '\0') {
		return pai_tool_says(
		    c, "invalid", "oldString is empty: use write to make or replace a file.", err);
	}
	if (strcmp(e.replace.old_text, e.replace.new_text) == 0) {
		return pai_tool_says(c, "invalid", "oldString and newString are the same.", err);
	}
	r = pai_tool_path(c, "path", "", &path, err);
	if (r <= 0) {
		return r;
	}
	e.path = path;
	r = pai_box_use(c->box, true, edit_once, &e, err);
	r = r < 0 ? pai_tool_file_failed(c, path, err) : answer_edit(&e, err);
	pai_buf_fini(&e.before);
	pai_buf_fini(&e.after);
	return r;
}

/* --- listDirectory --- */

static int push_entry(struct pai_json *list, const struct pai_box_entry *e)
{
	pai_auto_json struct pai_json *entry = pai_json_object();
	pai_auto_buf struct pai_buf name = PAI_BUF_INIT(SIZE_MAX - 1);
	int r = pai_text_add(&name, e->name, strlen(e->name));

	r = r ? r : pai_json_set_str(entry, "name", name.data);
	r = r ? r : pai_json_set_str(entry, "type", e->is_directory ? "directory" : "file");
	return r ? r : pai_json_push(list, PAI_TAKE(entry));
}

static int set_next(struct pai_tool_call *c, const struct pai_box_listing *l, int64_t offset)
{
	pai_auto_buf struct pai_buf text = PAI_BUF_INIT(256);
	uint64_t next = (uint64_t)offset + l->count;
	char a[32], b[32], total[32];
	int r;

	if (next >= l->total) {
		return pai_json_set_null(c->answer, "nextOffset");
	}
	r = pai_json_set_num(c->answer, "nextOffset", (int64_t)next);
	r = r ? r
	      : pai_buf_printf(&text,
		    "[Entries %s to %s of %s are shown. Go on with offset: %llu.]",
		    pai_text_number((uint64_t)offset + 1, a), pai_text_number(next, b),
		    pai_text_number(l->total, total), (unsigned long long)next);
	return r ? r : pai_json_set_str(c->answer, "message", text.data);
}

int pai_tool_list(struct pai_tool_call *c, struct pai_err *err)
{
	pai_auto_box_listing struct pai_box_listing l = {.count = 0};
	pai_auto_json struct pai_json *list = pai_json_array();
	pai_auto_free char *path = NULL;
	int64_t offset = pai_tool_number(c->spec, c->input, "offset");
	bool found = false;
	int r = pai_tool_path(c, "path", "", &path, err);

	if (r <= 0) {
		return r;
	}
	r = pai_box_list(c->box, path, (uint64_t)offset,
	    (uint64_t)pai_tool_number(c->spec, c->input, "limit"), &found, &l, err);
	if (r < 0 && err->code == PAI_E_INPUT) {
		*err = (struct pai_err)PAI_ERR_INIT;
		return pai_tool_says(c, "invalid",
		    "The path is not a directory, or lies where this tool can't look: under "
		    "/workspace and /tmp it can. Use bash for others.",
		    err);
	}
	if (r < 0) {
		return pai_tool_file_failed(c, path, err);
	}
	r = list ? 0 : -ENOMEM;
	for (size_t i = 0; i < l.count && r == 0; i++) {
		r = push_entry(list, &l.entries[i]);
	}
	r = r ? r : pai_json_set_str(c->answer, "status", found ? "ok" : "not_found");
	r = r ? r : pai_json_set(c->answer, "entries", PAI_TAKE(list));
	r = r ? r : set_next(c, &l, offset);
	return no_memory(r, err);
}
